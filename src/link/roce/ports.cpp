// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/roce/ports.hpp"

#include "os/plain_address.hpp"

namespace weft::link::roce {

std::string Ports::addresses() const {
  std::string all;
  for (const auto& port : ports_)
    if (port) all.append(all.empty() ? "" : ", ").append(os::plain_text(port->address()));
  return all;
}

void Ports::close() noexcept {
  for (auto& port : ports_)
    if (port) port->close();
}

void Ports::show_marks() noexcept {
  if (shows_marks_) return;
  shows_marks_ = true;
  for (auto& port : ports_)
    if (port) port->show_marks();
}

PortCounters Ports::counters() const noexcept {
  PortCounters sum;
  for (const auto& port : ports_) {
    if (!port) continue;
    sum.wrong_icrc += port->counters().wrong_icrc;
    sum.solved += port->counters().solved;
  }
  return sum;
}

PacketSocketCounters Ports::packet_socket_counters(bool with_lost) noexcept {
  PacketSocketCounters sum;
  for (auto& port : ports_) {
    os::PacketSocket* const socket = port ? port->link().packet_socket() : nullptr;
    if (socket == nullptr) continue;
    ++sum.sockets;
    if (socket->has_ring()) {
      sum.ring_slots += socket->ring().layout().slots();
      sum.ring_bytes += socket->ring().layout().bytes();
    }
    if (with_lost) sum.lost += socket->lost();
    sum.cut += socket->cut();
  }
  return sum;
}

}  // namespace weft::link::roce
