// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Driver: Ethernet frames through one device. What a driver of another card implements (docs/nic-guide.md). Must not know what frames
// carry, nor who is below the bus.
//
// Contract:
//   - One thread at a time. No system call but those of the bus, and none on the data path.
//   - A frame is from the destination MAC to the end of the payload, without preamble and frame check sequence.
//   - What the device writes is hostile: indices, lengths and flags are bounded by the driver's own state before use. A
//     device that contradicts itself is stopped (is_broken()), never believed.
//   - post() only fills descriptors; kick() shows all of them to the device with one doorbell.
//   - Memory of a posted frame belongs to the device until reclaim() returns its token.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "nic/bus.hpp"
#include "wire/neighbor.hpp"

namespace weft::nic {

// A piece of a frame, at an address of the device.
struct Fragment {
  uint64_t address = 0;
  uint32_t bytes = 0;
};
inline constexpr size_t fragments_max = 16;  // of a frame

struct DriverSettings {
  size_t frame_bytes_max =
      1514;  // without FCS: 14 and the MTU, and 4 for a VLAN tag. More needs jumbo frames
  unsigned transmit_descriptors = 512;  // rounded to what the device takes
  unsigned receive_descriptors = 512;
  bool promiscuous = false;
};

struct DriverCounters {
  uint64_t frames_sent = 0;
  uint64_t bytes_sent = 0;
  uint64_t frames_received = 0;
  uint64_t bytes_received = 0;
  uint64_t frames_bad = 0;     // received with an error that the device told, or of an impossible length
  uint64_t frames_missed = 0;  // the device had no buffer for them
  uint64_t transmit_doorbells = 0;
  uint64_t receive_doorbells = 0;
};

// What a received frame is shown to.
struct FrameHandlerArchetype {
  // `frame` is valid during the call. `is_checked`: the device has found the IP and UDP or TCP checksums right.
  void on_frame(std::span<const std::byte> frame, bool is_checked) noexcept;
};
// What a reclaimed token is given to.
struct TokenHandlerArchetype {
  void operator()(uint64_t token) noexcept;
};

template <class D>
concept Driver = Bus<typename D::Bus> && std::constructible_from<D, typename D::Bus&> &&
    requires(D& driver, const D& steady, const DriverSettings& settings, std::span<const Fragment> frame,
             uint64_t token, FrameHandlerArchetype& frames, TokenHandlerArchetype& tokens, size_t count,
             wire::Mac mac, bool on) {
  { D::name } -> std::convertible_to<const char*>;
  // PCI vendor and device id: is this driver for it?
  { D::drives(uint16_t{}, uint16_t{}) }
  noexcept->std::same_as<bool>;
  // Resets the device, sets up rings and receive buffers, interrupts masked. The link may come up later. An open driver begins
  // anew. What was joined stays joined across close() and open().
  { driver.open(settings) } -> std::same_as<Result<void>>;
  // The device is quiet afterwards: no DMA, no interrupt. Tokens that were not reclaimed are forgotten. May be called again.
  { driver.close() }
  noexcept;
  { steady.mac() }
  noexcept->std::same_as<wire::Mac>;
  { steady.frame_bytes_max() }
  noexcept->std::convertible_to<size_t>;
  // Asks the device; for housekeeping, not for each packet.
  { driver.has_link() }
  noexcept->std::same_as<bool>;
  { steady.is_broken() }
  noexcept->std::same_as<bool>;
  // Frames to this group address pass the filter, too. 0, or -ENOSPC: the filter is full, and everything passes now.
  { driver.join(mac) }
  noexcept->std::same_as<int>;
  { driver.leave(mac) }
  noexcept;
  { driver.set_promiscuous(on) }
  noexcept;

  // Descriptors that are free; a frame needs at most one for each fragment, one for each border of 4 KiB of device addresses that a
  // fragment crosses, and one more.
  { steady.transmit_room() }
  noexcept->std::same_as<size_t>;
  // False: no room, or a frame that the device cannot take (empty, too long, too many fragments).
  { driver.post(frame, token) }
  noexcept->std::same_as<bool>;
  { driver.kick() }
  noexcept;
  // Tokens of frames that the device has read, in the order of post(); how many.
  { driver.reclaim(tokens) }
  noexcept->std::same_as<size_t>;

  // At most `count` frames, each where the device put it; its buffer goes back to the device, with one doorbell for all.
  { driver.receive(frames, count) }
  noexcept->std::same_as<size_t>;

  // Sleeping: true: the device raises wait_fd() with the next frame, or when the link changes. False: frames are there, or the link
  // has changed, or the device is broken: look instead.
  { driver.arm() }
  noexcept->std::same_as<bool>;
  { driver.disarm() }
  noexcept;
  { steady.wait_fd() }
  noexcept->std::same_as<int>;
  { driver.counters() }
  noexcept->std::same_as<DriverCounters>;
};

}  // namespace weft::nic
