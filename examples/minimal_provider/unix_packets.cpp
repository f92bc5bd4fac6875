// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "unix_packets.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

// Abstract names begin with a zero (unix(7)), which is no part of an address.
static socklen_t to_socket(weft::Bytes address, sockaddr_un& out) noexcept {
  out.sun_family = AF_UNIX;
  out.sun_path[0] = 0;
  std::memcpy(out.sun_path + 1, address.data(), address.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
}

static weft::Bytes from_socket(const sockaddr_un& address, socklen_t length) noexcept {
  const size_t head = offsetof(sockaddr_un, sun_path) + 1;
  if (length <= head || address.sun_path[0] != 0) return {};
  return {reinterpret_cast<const std::byte*>(address.sun_path + 1), length - head};
}

int UnixPackets::open(weft::Bytes address) {
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return -errno;
  const int bytes = 4 << 20;  // as much of it as we may have
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  sockaddr_un name{};
  socklen_t length = to_socket(address, name);
  if (address.empty()) length = sizeof name.sun_family;  // the kernel chooses
  if (::bind(socket_, reinterpret_cast<sockaddr*>(&name), length) != 0) return -errno;
  length = sizeof name;
  ::getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &length);
  const weft::Bytes own = from_socket(name, length);
  std::memcpy(name_, own.data(), name_bytes_ = own.size());
  buffers_ = std::make_unique_for_overwrite<std::byte[]>(batch * packet_bytes);
  return 0;
}

void UnixPackets::close() noexcept {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

int UnixPackets::send(weft::Bytes to, const iovec* parts, size_t count) noexcept {
  sockaddr_un name;
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = to_socket(to, name);
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  if (::sendmsg(socket_, &message, MSG_NOSIGNAL) >= 0) return 0;
  if (errno == EAGAIN || errno == ENOBUFS) return -EAGAIN;  // the other side has to read first
  const int error = errno;
  if (error == ECONNREFUSED) std::memcpy(refused_, to.data(), refused_bytes_ = to.size());
  return -error;
}

size_t UnixPackets::take_refusal(std::span<std::byte> place) noexcept {
  const size_t bytes = refused_bytes_;
  std::memcpy(place.data(), refused_, bytes);
  refused_bytes_ = 0;
  return bytes;
}

int UnixPackets::receive(weft::PacketSink& sink) noexcept {
  sockaddr_un names[batch];
  iovec parts[batch];
  mmsghdr messages[batch];
  for (int i = 0; i < batch; ++i) {
    parts[i] = {buffers_.get() + i * packet_bytes, packet_bytes};
    messages[i] = {};
    messages[i].msg_hdr.msg_name = &names[i];
    messages[i].msg_hdr.msg_namelen = sizeof names[i];
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int count = ::recvmmsg(socket_, messages, batch, MSG_DONTWAIT, nullptr);
  for (int i = 0; i < count; ++i)
    sink(from_socket(names[i], messages[i].msg_hdr.msg_namelen),
         {buffers_.get() + i * packet_bytes, messages[i].msg_len});
  return count > 0 ? count : 0;
}
