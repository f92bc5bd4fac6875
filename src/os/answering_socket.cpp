// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/answering_socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "os/udp_socket.hpp"

namespace weft::os {
namespace {

constexpr size_t buffer_bytes = size_t{1} << 21;  // what a burst of requests brings
constexpr size_t control_bytes = 256;

void set(const Fd& socket, int level, int option, int value) noexcept {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

// ::ffff:a.b.c.d as a.b.c.d.
SocketAddress plain(const SocketAddress& address) noexcept {
  if (address.family() != AF_INET6) return address;
  sockaddr_in6 in6;
  std::memcpy(&in6, address.get(), sizeof in6);
  if (!IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) return address;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = in6.sin6_port;
  std::memcpy(&in.sin_addr, &in6.sin6_addr.s6_addr[12], sizeof in.sin_addr);
  return *SocketAddress::from(&in, sizeof in);
}

// The other way, for an IPv6 socket.
SocketAddress mapped(const SocketAddress& address) noexcept {
  if (address.family() != AF_INET) return address;
  sockaddr_in in;
  std::memcpy(&in, address.get(), sizeof in);
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = in.sin_port;
  in6.sin6_addr.s6_addr[10] = in6.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&in6.sin6_addr.s6_addr[12], &in.sin_addr, sizeof in.sin_addr);
  return *SocketAddress::from(&in6, sizeof in6);
}

}  // namespace

Result<AnsweringSocket> AnsweringSocket::open(const SocketAddress& address, bool one_family) {
  const int family = address.family();
  Fd socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return Error{errno, "no UDP socket"};
  const bool is_ip6 = family == AF_INET6;
  set(socket, SOL_SOCKET, SO_RCVBUF, static_cast<int>(buffer_bytes));
  set(socket, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  set(socket, IPPROTO_IP, IP_PKTINFO, 1);
  if (is_ip6) {
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, one_family ? 1 : 0);
    set(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    set(socket, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
  }
  watch_udp_refusals(socket);
  if (::bind(socket.get(), address.get(), address.size()) != 0)
    return Error{errno, "cannot bind the UDP socket"};
  const SocketAddress bound = local_address(socket.get());
  if (!bound) return Error{errno, "the UDP socket has no address"};
  return AnsweringSocket(std::move(socket), bound);
}

int AnsweringSocket::send(const SocketAddress& source, const SocketAddress& destination,
                          std::span<const std::byte> packet) noexcept {
  const bool is_ip6 = address_.family() == AF_INET6;
  const SocketAddress to = is_ip6 ? mapped(destination) : destination;
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to.get());
  message.msg_namelen = to.size();
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, control_bytes> control{};
  if (address_.is_any() && !source.is_any()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* entry = CMSG_FIRSTHDR(&message);
    if (source.family() == AF_INET) {
      in_pktinfo info{};
      std::memcpy(&info.ipi_spec_dst, &reinterpret_cast<const sockaddr_in*>(source.get())->sin_addr,
                  sizeof info.ipi_spec_dst);
      entry->cmsg_level = IPPROTO_IP;
      entry->cmsg_type = IP_PKTINFO;
      entry->cmsg_len = CMSG_LEN(sizeof info);
      std::memcpy(CMSG_DATA(entry), &info, sizeof info);
      message.msg_controllen = CMSG_SPACE(sizeof info);
    } else {
      in6_pktinfo info{};
      info.ipi6_addr = reinterpret_cast<const sockaddr_in6*>(source.get())->sin6_addr;
      info.ipi6_ifindex = source.scope();
      entry->cmsg_level = IPPROTO_IPV6;
      entry->cmsg_type = IPV6_PKTINFO;
      entry->cmsg_len = CMSG_LEN(sizeof info);
      std::memcpy(CMSG_DATA(entry), &info, sizeof info);
      message.msg_controllen = CMSG_SPACE(sizeof info);
    }
  }
  // What an earlier packet caused is reported by the first call, and waits in the error queue, too.
  for (int attempt = 0; attempt < 2; ++attempt)
    if (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL) >= 0) return 0;
  return -errno;
}

size_t AnsweringSocket::receive(std::span<std::byte> room, SocketAddress& source,
                                SocketAddress& destination) noexcept {
  constexpr int errors_max = 64;  // each reported once
  sockaddr_storage from{};
  alignas(cmsghdr) std::array<std::byte, control_bytes> control;
  for (int attempt = 0; attempt < errors_max; ++attempt) {
    iovec part{room.data(), room.size()};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      continue;
    }
    const auto sender = SocketAddress::from(&from, message.msg_namelen);
    if (!sender || got == 0) continue;
    source = plain(*sender);
    destination = plain(address_);
    for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr; entry = CMSG_NXTHDR(&message, entry)) {
      if (entry->cmsg_level == IPPROTO_IP && entry->cmsg_type == IP_PKTINFO) {
        in_pktinfo info;
        std::memcpy(&info, CMSG_DATA(entry), sizeof info);
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_addr = info.ipi_addr;
        destination = *SocketAddress::from(&in, sizeof in);
      } else if (entry->cmsg_level == IPPROTO_IPV6 && entry->cmsg_type == IPV6_PKTINFO) {
        in6_pktinfo info;
        std::memcpy(&info, CMSG_DATA(entry), sizeof info);
        sockaddr_in6 in{};
        in.sin6_family = AF_INET6;
        in.sin6_addr = info.ipi6_addr;
        destination = *SocketAddress::from(&in, sizeof in);
        if (destination.is_link_local()) destination.set_scope(info.ipi6_ifindex);
        destination = plain(destination);
      }
    }
    destination.set_port(address_.port());
    return static_cast<size_t>(got);
  }
  return 0;
}

bool AnsweringSocket::take_refusal(SocketAddress& destination) noexcept {
  int error = 0;
  while (take_udp_refusal(fd_, destination, error)) {
    if (error != ECONNREFUSED) continue;
    destination = plain(destination);
    return true;
  }
  return false;
}

}  // namespace weft::os
