// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ports: the ports of a device, one for each GID that it has, and what the device asks of all of them together. Must not know schedules, nor shared
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "link/roce/carrier.hpp"
#include "link/roce/port.hpp"
#include "proto/packet/observed.hpp"

namespace weft::link::roce {

// What the kernel's packet sockets of a device count.
struct PacketSocketCounters {
  size_t sockets = 0;
  size_t ring_slots = 0;  // of all of them; 0: there is no ring
  size_t ring_bytes = 0;
  uint64_t lost = 0;  // by the kernel, for want of room
  uint64_t cut = 0;   // longer than the interface's MTU
};

class Ports {
 public:
  using Socket = proto::Observed<Carrier>;
  static constexpr size_t count = 3;

  // By GID index, which is below `count`. Empty: the device has no such GID.
  std::optional<Port<Socket>>& operator[](size_t index) noexcept { return ports_[index]; }
  const std::optional<Port<Socket>>& operator[](size_t index) const noexcept { return ports_[index]; }
  auto begin() noexcept { return ports_.begin(); }
  auto end() noexcept { return ports_.end(); }
  bool has(size_t index) const noexcept { return index < count && ports_[index]; }
  std::string addresses() const;  // for a person: "192.0.2.1:40001, 192.0.2.1:4791"
  void close() noexcept;

  // Gives what came to the adapter; returns how many packets.
  int poll(uint64_t now) noexcept {
    int packets = 0;
    for (auto& port : ports_)
      if (port) packets += port->poll(now);
    return packets;
  }
  // Sends what the ports have collected.
  void flush() noexcept {
    is_blocked_ = false;
    for (auto& port : ports_)
      if (port && !port->flush()) is_blocked_ = true;
  }
  // Since then: a port has packets that its socket had no room for.
  bool is_blocked() const noexcept { return is_blocked_; }
  // Packets wait in ports, and none whose request is complete as soon as it is sent: UC, UD.
  bool may_wait() const noexcept {
    bool any = false;
    for (const auto& port : ports_) {
      if (!port || !port->has_unsent()) continue;
      if (!port->may_wait()) return false;
      any = true;
    }
    return any;
  }
  // Each port tells without a system call whether packets are there.
  void set_glances(bool glances) noexcept { glances_ = glances; }
  bool glances() const noexcept { return glances_; }
  bool has_nothing() noexcept {  // then
    for (auto& port : ports_)
      if (port && !port->link().has_nothing()) return false;
    return true;
  }

  // There is a UD queue pair whose program looks at the headers of what came.
  void show_marks() noexcept;
  PortCounters counters() const noexcept;
  // A system call each. `with_lost`: to ask takes what was lost from the count, in a forked child from that of its parent.
  PacketSocketCounters packet_socket_counters(bool with_lost) noexcept;

  // Sleeping without a thread, on the packets of GID 0: the descriptor is readable while there are some, between arm()
  // and disarm().
  int wait_fd() noexcept { return ports_[0] ? ports_[0]->link().wait_fd() : -1; }
  bool arm() noexcept { return ports_[0] && ports_[0]->link().arm(); }
  void disarm() noexcept {
    if (ports_[0]) ports_[0]->link().disarm();
  }

 private:
  std::array<std::optional<Port<Socket>>, count> ports_;
  bool is_blocked_ = false;
  bool glances_ = false;
  bool shows_marks_ = false;
};

}  // namespace weft::link::roce
