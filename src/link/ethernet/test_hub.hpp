// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: an Ethernet in memory. Whatever one port sends all others receive, unless a test takes it away.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#include "link/ethernet/frames.hpp"

namespace weft::link::ethernet {

using Frame = std::vector<std::byte>;

class HubPort;

struct Hub {
  std::vector<HubPort*> ports;
  std::function<bool(Frame&)> pass;  // false: the frame is lost
  std::vector<Frame> seen;           // what was sent, before `pass`
  void send(const HubPort* from, Frame frame);
};

class HubPort {
 public:
  HubPort() = default;
  HubPort(const HubPort&) = delete;
  HubPort& operator=(const HubPort&) = delete;
  ~HubPort() { close(); }

  void attach(Hub& hub, uint8_t number) {
    hub_ = &hub;
    mac_ = {std::byte{0x02}, {}, {}, {}, {}, std::byte{number}};
  }
  Result<void> open() {
    hub_->ports.push_back(this);
    return {};
  }
  void close() noexcept {
    if (hub_ != nullptr) std::erase(hub_->ports, this);
  }
  const wire::Mac& mac() const noexcept { return mac_; }
  size_t mtu_bytes() const noexcept { return mtu; }
  bool send(const iovec* parts, size_t count) noexcept {
    if (is_full || room == 0) return false;
    --room;
    Frame frame;
    for (size_t i = 0; i < count; ++i) {
      const auto* const from = static_cast<const std::byte*>(parts[i].iov_base);
      frame.insert(frame.end(), from, from + parts[i].iov_len);
    }
    hub_->send(this, std::move(frame));
    return true;
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    const int count = static_cast<int>(arrived.size());
    for (int i = 0; i < count; ++i) {
      const Frame frame = std::move(arrived.front());
      arrived.pop_front();
      ReceivedFrame received;
      received.bytes = frame;
      received.is_checksum_good = trusts_checksums;
      handler.on_frame(received);
    }
    return count;
  }
  int join_mac(const wire::Mac& group) noexcept {
    groups.push_back(group);
    return 0;
  }
  void leave_mac(const wire::Mac& group) noexcept { std::erase(groups, group); }

  size_t mtu = 1500;
  bool is_full = false;
  size_t room = SIZE_MAX;  // frames until it is full
  bool trusts_checksums = false;
  std::deque<Frame> arrived;
  std::vector<wire::Mac> groups;

 private:
  Hub* hub_ = nullptr;
  wire::Mac mac_{};
};

inline void Hub::send(const HubPort* from, Frame frame) {
  seen.push_back(frame);
  if (pass && !pass(frame)) return;
  for (HubPort* port : ports)
    if (port != from) port->arrived.push_back(frame);
}

// What is added is copied, and sent together.
class TrainPort : public HubPort {
 public:
  bool add(const iovec* parts, size_t count) noexcept {
    Frame frame;
    for (size_t i = 0; i < count; ++i) {
      const auto* const from = static_cast<const std::byte*>(parts[i].iov_base);
      frame.insert(frame.end(), from, from + parts[i].iov_len);
    }
    added_.push_back(std::move(frame));
    return true;
  }
  size_t send_added() noexcept {
    size_t left = 0;
    for (Frame& frame : added_) {
      const iovec part{frame.data(), frame.size()};
      if (!send(&part, 1)) break;
      ++left;
    }
    added_.clear();
    return left;
  }

 private:
  std::vector<Frame> added_;
};

static_assert(Frames<HubPort> && HasMacFilter<HubPort> && HasTrains<TrainPort>);

}  // namespace weft::link::ethernet
