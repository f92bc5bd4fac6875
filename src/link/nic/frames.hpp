// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames: a card (device.hpp) as one endpoint on it sees it; Packets: the packet link of that endpoint: one UDP port of
// the card's host. Must not know what packets carry.
//
// Threads: as Device. An endpoint hears of a frame in its own poll() only.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "link/ethernet/frames.hpp"
#include "link/ethernet/packets.hpp"
#include "link/nic/device.hpp"
#include "link/nic/inbox.hpp"
#include "os/shared_sleep.hpp"
#include "proto/device.hpp"
#include "proto/packet/abilities.hpp"
#include "proto/packet/in_place.hpp"

namespace weft::link::nic {

class Frames {
 public:
  Frames() = default;
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;
  ~Frames() { close(); }

  // --- before open() ---
  void set_device(Device& device) noexcept { device_ = &device; }
  Device* device() noexcept { return device_; }
  void set_port(uint16_t port) noexcept { port_ = port; }
  // --- at any time ---
  // What the parts of the next frames point to stays as it is until the receiver has it: the card may read registered
  // memory after send() has returned.
  void set_parts_stay(bool stay) noexcept { parts_stay_ = stay; }

  // --- ethernet::Frames ---
  Result<void> open();
  void close() noexcept;
  wire::Mac mac() const noexcept { return device_->mac(); }
  size_t mtu_bytes() const noexcept { return device_->mtu_bytes(); }
  bool send(const iovec* parts, size_t count) noexcept { return device_->send(parts, count, parts_stay_); }
  bool has_room(size_t frames) noexcept { return device_->has_room(frames); }
  void flush() noexcept { device_->flush(); }
  int failure() const noexcept { return device_->is_lost() ? -ENETDOWN : 0; }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    const auto show = [&](std::span<const std::byte> frame, bool is_checked) {
      handler.on_frame(ethernet::ReceivedFrame{frame, 0, is_checked});
    };
    struct Direct final : FrameSink {
      explicit Direct(decltype(show)& to) noexcept : shown_to(to) {}
      void on_frame(std::span<const std::byte> frame, bool is_checked) noexcept override {
        shown_to(frame, is_checked);
      }
      decltype(show)& shown_to;
    } direct(show);
    device_->begin_poll();
    auto frames = static_cast<int>(inbox_.drain(Device::frames_per_poll, show));
    // What is in the inbox came first.
    frames += inbox_.empty() ? device_->poll(this, &direct) : device_->poll(nullptr, nullptr);
    device_->end_poll();
    return frames;
  }
  int join_mac(const wire::Mac& group) noexcept;
  void leave_mac(const wire::Mac& group) noexcept;

  // The card's own buffers are everybody's; the inbox is behind them.
  size_t receive_buffer_bytes() const noexcept { return Device::receive_frames * receive_packet_bytes(); }
  size_t receive_packet_bytes() const noexcept { return device_->mtu_bytes(); }

  int wait_fd() noexcept { return sleep_.fd(*device_); }
  bool arm() noexcept { return sleep_.arm(*device_, inbox_.empty()); }
  void disarm() noexcept { sleep_.disarm(*device_); }

  // --- called by the device ---
  bool has_joined(const wire::Mac& group) const noexcept {
    return std::find(groups_.begin(), groups_.end(), group) != groups_.end();
  }
  bool put(const iovec* parts, size_t count, bool is_checked) noexcept {
    if (!inbox_.put(parts, count, is_checked)) return false;
    sleep_.ring();
    return true;
  }

 private:
  Device* device_ = nullptr;
  uint16_t port_ = 0;
  bool is_open_ = false;
  bool parts_stay_ = false;
  Inbox inbox_;
  os::SharedSleep sleep_;
  std::vector<wire::Mac> groups_;
};

class Packets : public ethernet::EthernetPackets<Frames> {
 public:
  using Device = nic::Device;
  using Base = ethernet::EthernetPackets<Frames>;

  void set_device(Device& device) noexcept { frames().set_device(device); }
  void set_parts_stay(bool stay) noexcept { frames().set_parts_stay(stay); }
  void release_parts() noexcept { frames().device()->await_no_reads(); }
  // Nothing, a wildcard, or the card's own address; a zero port is drawn.
  Result<void> open(std::span<const std::byte> address);
  // For datagram endpoints without an address: the card's.
  static std::vector<std::byte> source_for(bool, std::span<const std::byte>) { return {}; }
};

static_assert(ethernet::Frames<Frames> && ethernet::HasFlush<Frames> && ethernet::HasMacFilter<Frames> &&
              ethernet::HasFailure<Frames> && ethernet::HasRoom<Frames> && proto::HasSleep<Frames> &&
              proto::HasReceiveBuffer<Frames>);
static_assert(proto::PacketLink<Packets> && proto::UsesDevice<Packets> && proto::HasSleep<Packets> &&
              proto::HasReceiveBuffer<Packets> && proto::HasReceiveSlots<Packets> &&
              proto::HasMulticast<Packets> && proto::HasPartsThatStay<Packets> &&
              proto::ReleasesParts<Packets>);

}  // namespace weft::link::nic
