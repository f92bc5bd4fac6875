// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// socket(2) of AF_PACKET; sendmmsg(2); recvmmsg(2) with PACKET_AUXDATA.
#include "os/packet_socket.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace weft::os {
namespace {

constexpr size_t link_head_bytes = 18;  // with a tag
constexpr size_t together_bytes_max = 512;
constexpr int send_flags = MSG_DONTWAIT | MSG_NOSIGNAL;

Error refused(const std::string& interface, const char* what) {
  const int code = errno;
  std::string why = "packet socket on " + interface + ": " + what + ": " + std::strerror(code);
  if (code == EPERM) why += " (it needs CAP_NET_RAW)";
  return Error{code, why};
}

void gather(const iovec* parts, size_t count, std::byte* out) noexcept {
  for (size_t i = 0; i < count; out += parts[i++].iov_len)
    if (parts[i].iov_len != 0) std::memcpy(out, parts[i].iov_base, parts[i].iov_len);
}

}  // namespace

// Buffers of recvmmsg(2), without a ring, and of frames that are sent together.
struct PacketSocket::State {
  using Control = std::array<std::byte, CMSG_SPACE(sizeof(tpacket_auxdata))>;
  static constexpr size_t head_bytes_max = 256;
  static constexpr size_t sent_parts_max = 512;

  struct Incoming {
    explicit Incoming(size_t frame_bytes) : slot_bytes(frame_bytes), memory(batch_max * frame_bytes) {
      for (size_t i = 0; i < batch_max; ++i) {
        parts[i] = {memory.data() + i * slot_bytes, slot_bytes};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_control = controls[i].data();
      }
    }
    size_t slot_bytes;
    std::vector<std::byte> memory;
    std::array<mmsghdr, batch_max> messages{};
    std::array<iovec, batch_max> parts{};
    alignas(cmsghdr) std::array<Control, batch_max> controls{};
  };

  std::unique_ptr<Incoming> incoming;
  size_t sent_count = 0;
  size_t sent_part_count = 0;
  std::array<mmsghdr, batch_max> sent{};
  std::array<iovec, sent_parts_max> sent_parts;
  std::array<std::array<std::byte, head_bytes_max>, batch_max> heads;
};

void PacketSocket::Deleter::operator()(State* state) const noexcept { delete state; }

Result<void> PacketSocket::open(const std::string& interface) {
  // Of no protocol until it is bound, so that no frame of another interface comes in.
  Fd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return refused(interface, "cannot be made");
  ifreq request{};
  if (interface.empty() || interface.size() >= sizeof request.ifr_name)
    return Error{ENODEV, "packet socket: no interface is named \"" + interface + "\""};
  std::memcpy(request.ifr_name, interface.data(), interface.size());
  if (::ioctl(fd.get(), SIOCGIFHWADDR, &request) != 0) return refused(interface, "no MAC address");
  if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER)
    return Error{ENODEV, "packet socket on " + interface + ": that is no Ethernet"};
  std::memcpy(mac_.data(), request.ifr_hwaddr.sa_data, mac_.size());
  if (::ioctl(fd.get(), SIOCGIFMTU, &request) != 0) return refused(interface, "no MTU");
  mtu_bytes_ = static_cast<size_t>(request.ifr_mtu);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(ETH_P_ALL);
  to.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0 ||
      ::setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0)
    return refused(interface, "options");
  const size_t frame_bytes = mtu_bytes_ + link_head_bytes;
  if (ring_bytes_ != 0)
    if (auto ring = ring_.open(fd.get(), ring_bytes_, frame_bytes); !ring)
      why_no_ring_ = "packet socket on " + interface + ": no ring for frames: " + ring.error().why;
  const auto wanted = static_cast<int>(buffer_bytes);
  for (const auto& [forced, plain] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, {SO_SNDBUFFORCE, SO_SNDBUF}})
    if (::setsockopt(fd.get(), SOL_SOCKET, forced, &wanted, sizeof wanted) != 0)
      (void)::setsockopt(fd.get(), SOL_SOCKET, plain, &wanted, sizeof wanted);
  int got = 0;
  socklen_t got_bytes = sizeof got;
  (void)::getsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &got, &got_bytes);
  receive_buffer_bytes_ = ring_ ? ring_.layout().bytes() : static_cast<size_t>(got);
  state_.reset(new State);
  if (!ring_) state_->incoming = std::make_unique<State::Incoming>(frame_bytes);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    return refused(interface, "bind");
  fd_ = std::move(fd);
  return {};
}

bool PacketSocket::send(const iovec* parts, size_t count) noexcept {
  // One piece spares the kernel the list of pieces.
  std::array<std::byte, together_bytes_max> together;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  const bool is_short = bytes <= together.size();
  if (is_short) gather(parts, count, together.data());
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  for (;;) {
    const ssize_t sent = is_short ? ::send(fd_.get(), together.data(), bytes, send_flags)
                                  : ::sendmsg(fd_.get(), &message, send_flags);
    if (sent >= 0) return true;
    if (errno == EINTR) continue;
    return errno != EAGAIN && errno != ENOBUFS;
  }
}

bool PacketSocket::add(const iovec* parts, size_t count) noexcept {
  State& all = *state_;
  const bool fits = parts[0].iov_len <= State::head_bytes_max && count <= State::sent_parts_max;
  if (!fits || all.sent_count == batch_max || all.sent_part_count + count > State::sent_parts_max) {
    const size_t added = all.sent_count;
    if (send_added() != added) return false;
  }
  if (!fits) {
    const bool sent = send(parts, count);
    if (sent) ++left_;
    return sent;
  }
  std::byte* const head = all.heads[all.sent_count].data();
  std::memcpy(head, parts[0].iov_base, parts[0].iov_len);
  msghdr& message = all.sent[all.sent_count++].msg_hdr;
  message.msg_iov = &all.sent_parts[all.sent_part_count];
  message.msg_iovlen = count;
  message.msg_iov[0] = {head, parts[0].iov_len};
  std::copy_n(parts + 1, count - 1, message.msg_iov + 1);
  all.sent_part_count += count;
  return true;
}

size_t PacketSocket::flush() noexcept {
  (void)send_added();
  return std::exchange(left_, size_t{0});
}

size_t PacketSocket::send_added() noexcept {
  State& all = *state_;
  size_t done = 0;
  while (done < all.sent_count) {
    const int sent =
        ::sendmmsg(fd_.get(), &all.sent[done], static_cast<unsigned>(all.sent_count - done), send_flags);
    if (sent > 0) {
      done += static_cast<size_t>(sent);
    } else if (errno != EINTR) {
      if (errno == EAGAIN || errno == ENOBUFS) break;
      ++done;  // the first one cannot leave
    }
  }
  all.sent_count = all.sent_part_count = 0;
  left_ += done;
  return done;
}

size_t PacketSocket::receive_batch() noexcept {
  if (!fd_) return 0;
  State::Incoming& all = *state_->incoming;
  for (mmsghdr& message : all.messages) message.msg_hdr.msg_controllen = sizeof(State::Control);
  const int got = ::recvmmsg(fd_.get(), all.messages.data(), batch_max, MSG_DONTWAIT, nullptr);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

PacketFrame PacketSocket::received(size_t index) noexcept {
  const mmsghdr& message = state_->incoming->messages[index];
  PacketFrame frame;
  // What is longer than the interface's MTU the kernel has joined, or it is none of ours.
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) {
    ++cut_;
    return frame;
  }
  frame.bytes = {static_cast<const std::byte*>(state_->incoming->parts[index].iov_base), message.msg_len};
  for (const cmsghdr* at = CMSG_FIRSTHDR(&message.msg_hdr); at != nullptr;
       at = CMSG_NXTHDR(const_cast<msghdr*>(&message.msg_hdr), const_cast<cmsghdr*>(at))) {
    if (at->cmsg_level != SOL_PACKET || at->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata aux;
    std::memcpy(&aux, CMSG_DATA(at), sizeof aux);
    frame.is_checksum_good = (aux.tp_status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID)) != 0;
    if ((aux.tp_status & TP_STATUS_VLAN_VALID) != 0) frame.vlan = aux.tp_vlan_tci;
  }
  return frame;
}

// An interface that goes down is an error of the socket, which makes the descriptor readable until somebody reads it;
// recvmmsg(2) does that itself.
void PacketSocket::consume_error() noexcept {
  slept_ = false;
  int error = 0;
  socklen_t bytes = sizeof error;
  (void)::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
}

// The kernel's counters begin anew with each call.
uint64_t PacketSocket::lost() noexcept {
  tpacket_stats stats{};
  socklen_t bytes = sizeof stats;
  if (fd_ && ::getsockopt(fd_.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &bytes) == 0)
    lost_ += stats.tp_drops;
  return lost_;
}

}  // namespace weft::os
