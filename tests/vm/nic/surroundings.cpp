// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// packet(7), /dev/kmsg, the serial console.
#include "surroundings.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checks.hpp"

namespace weft::vm {
namespace {

constexpr size_t frame_max = 16384;

}  // namespace

Frame make_frame(wire::Mac to, wire::Mac from, size_t bytes, uint32_t seed) {
  Frame frame(bytes);
  std::ranges::copy(to, frame.begin());
  std::ranges::copy(from, frame.begin() + 6);
  frame[12] = std::byte{ethernet_type >> 8};
  frame[13] = std::byte{ethernet_type & 0xff};
  uint32_t state = seed * 2654435761U + 1;
  for (size_t i = head_bytes; i < bytes; ++i) {
    state = state * 1664525U + 1013904223U;
    frame[i] = std::byte(state >> 24);
  }
  return frame;
}

Wire::Wire(const std::string& interface)
    : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ethernet_type))),
      index_(static_cast<int>(::if_nametoindex(interface.c_str()))) {
  require(bool(fd_), "AF_PACKET: %s", std::strerror(errno));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ethernet_type);
  address.sll_ifindex = index_;
  require(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "bind to %s: %s", interface.c_str(), std::strerror(errno));
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), sizeof request.ifr_name - 1);
  require(::ioctl(fd_.get(), SIOCGIFHWADDR, &request) == 0, "MAC of %s", interface.c_str());
  std::memcpy(mac_.data(), request.ifr_hwaddr.sa_data, mac_.size());
  const int bytes = 8 << 20;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  packet_mreq everything{};
  everything.mr_ifindex = index_;
  everything.mr_type = PACKET_MR_PROMISC;
  ::setsockopt(fd_.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything, sizeof everything);
}

void Wire::send(const Frame& frame) const {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (::send(fd_.get(), frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size())) return;
    if (errno != ENOBUFS && errno != EAGAIN) break;
    ::usleep(1000);
  }
  throw Failure(text("the kernel does not send %zu bytes: %s", frame.size(), std::strerror(errno)));
}

std::optional<Frame> Wire::receive(int timeout_ms) const {
  const auto end = Clock::now() + milliseconds(timeout_ms);
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
    pollfd one{fd_.get(), POLLIN, 0};
    if (::poll(&one, 1, static_cast<int>(std::max<long>(left, 0))) <= 0) return std::nullopt;
    Frame frame(frame_max);
    sockaddr_ll from{};
    socklen_t bytes = sizeof from;
    const ssize_t got =
        ::recvfrom(fd_.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&from), &bytes);
    if (got < 0 || from.sll_pkttype == PACKET_OUTGOING) continue;
    frame.resize(static_cast<size_t>(got));
    return frame;
  }
}

void Wire::drain() const {
  while (receive(0)) {
  }
}

KernelLog::KernelLog() : fd_(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  require(bool(fd_), "/dev/kmsg: %s", std::strerror(errno));
  ::lseek(fd_.get(), 0, SEEK_END);
}

std::vector<std::string> KernelLog::faults() {
  std::vector<std::string> lines;
  char record[8192];
  for (;;) {
    const ssize_t got = ::read(fd_.get(), record, sizeof record - 1);
    if (got < 0 && errno == EPIPE) continue;  // overwritten
    if (got <= 0) return lines;
    std::string line(record, static_cast<size_t>(got));
    line = line.substr(line.find(';') + 1);
    line = line.substr(0, line.find('\n'));
    if (line.find("DMAR") != std::string::npos && line.find("fault") != std::string::npos)
      lines.push_back(line);
  }
}

size_t KernelLog::wait_for_fault() {
  size_t seen = 0;
  within(milliseconds(3000), [&] {
    seen += faults().size();
    return seen != 0;
  });
  return seen;
}

Monitor::Monitor() : fd_(::open("/dev/ttyS0", O_WRONLY | O_CLOEXEC | O_NOCTTY)) {
  require(bool(fd_), "/dev/ttyS0: %s", std::strerror(errno));
}

void Monitor::say(const std::string& command) const {
  const std::string line = "\nmonitor: " + command + "\n";
  require(::write(fd_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()), "console: %s",
          std::strerror(errno));
}

}  // namespace weft::vm
