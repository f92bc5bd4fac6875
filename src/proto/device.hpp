// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Device: what the endpoints of one domain share, opened with the domain: a network card that a user-space driver has
// taken over, a protocol instance with one socket and many queue pairs. What it may have beyond opening and closing is
// one named concept for each ability (docs/devices.md). Must not know which device it is, nor the front end.
//
// Contract:
//   - open() is called once, before everything but the setters that say "before open()". close() ends it, also after a
//     refusal, and may be called again.
//   - Every other call, from the links of the domain's endpoints, from the region table and from the progress thread,
//     is made with the domain lock held; at FI_THREAD_DOMAIN without a lock the program serialises them. So a device
//     needs a mutex only against what is outside of its domain.
//   - Links leave the device in their close(). All endpoints and regions are closed before the device.
//   - A device demultiplexes into the inboxes of its endpoints and calls no handler: what arrives for an endpoint is
//     handed to the engine by that endpoint's poll(). Inboxes are bounded; a packet that finds one full is lost.
//   - A forked child may close what it inherited; the device stays its parent's.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "core/progress.hpp"
#include "core/registrar.hpp"

namespace weft::proto {

// What a device is opened for. Valid during open() only.
struct DeviceRequest {
  std::string_view domain;            // fi_domain_attr::name
  uint32_t address_format = 0;        // FI_SOCKADDR_IN, FI_ADDR_STR ...
  std::span<const std::byte> source;  // fi_info::src_addr; empty: the program named none
};

template <class D>
concept Device = std::default_initializable<D> && requires(D& device, const DeviceRequest& request) {
  { device.open(request) } -> std::same_as<Result<void>>;
  { device.close() }
  noexcept;
};

// The device has to know the memory regions of its domain.
template <class D>
concept RegistersMemory = std::derived_from<D, core::Registrar>;

// The device demultiplexes what arrives for all of its endpoints: progress(). The domain's progress thread drives it
// while endpoints are enabled, and their links call progress() in their poll().
template <class D>
concept MakesProgress = std::derived_from<D, core::Progressor>;

// Statistics: a snapshot of named counters, for the log.
struct DeviceCounter {
  std::string name;
  uint64_t value = 0;
};
template <class D>
concept HasDeviceCounters = requires(const D& device) {
  { device.counters() } -> std::same_as<std::vector<DeviceCounter>>;
};

// A link or a packet link that works on a device of type L::Device. set_device() is called before open(); the device
// outlives the link. If the device MakesProgress, poll() and arm() of the link include it (os/shared_sleep.hpp).
template <class L>
concept UsesDevice = Device<typename L::Device> && requires(L& link, typename L::Device& device) {
  { link.set_device(device) }
  noexcept;
};

// D is the device that L uses.
template <class D, class L>
concept DeviceUsedBy = UsesDevice<L> && std::same_as<D, typename L::Device>;

// Base of a layer over L that passes set_device() on: names the device of L, if it has one.
template <class L>
struct DeviceBelow {};
template <UsesDevice L>
struct DeviceBelow<L> {
  using Device = typename L::Device;
};

}  // namespace weft::proto
