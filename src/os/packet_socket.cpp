// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// socket(2) of AF_PACKET, recvmmsg(2) with PACKET_AUXDATA.
#include "os/packet_socket.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace weft::os {
namespace {

constexpr size_t link_head_bytes = 18;  // with a tag

Error refused(const std::string& interface, const char* what) {
  const int code = errno;
  std::string why = "packet socket on " + interface + ": " + what + ": " + std::strerror(code);
  if (code == EPERM) why += " (it needs CAP_NET_RAW)";
  return Error{code, why};
}

}  // namespace

struct PacketSocket::State {
  using Control = std::array<std::byte, CMSG_SPACE(sizeof(tpacket_auxdata))>;

  explicit State(size_t frame_bytes) : slot_bytes(frame_bytes), memory(batch_max * frame_bytes) {
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
  const auto wanted = static_cast<int>(buffer_bytes);
  for (const auto& [forced, plain] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, {SO_SNDBUFFORCE, SO_SNDBUF}})
    if (::setsockopt(fd.get(), SOL_SOCKET, forced, &wanted, sizeof wanted) != 0)
      (void)::setsockopt(fd.get(), SOL_SOCKET, plain, &wanted, sizeof wanted);
  int got = 0;
  socklen_t got_bytes = sizeof got;
  (void)::getsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &got, &got_bytes);
  receive_buffer_bytes_ = static_cast<size_t>(got);
  state_.reset(new State(mtu_bytes_ + link_head_bytes));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    return refused(interface, "bind");
  fd_ = std::move(fd);
  return {};
}

bool PacketSocket::send(const iovec* parts, size_t count) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  for (;;) {
    if (::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    return errno != EAGAIN && errno != ENOBUFS;
  }
}

size_t PacketSocket::receive() noexcept {
  if (!fd_) return 0;
  for (mmsghdr& message : state_->messages) message.msg_hdr.msg_controllen = sizeof(State::Control);
  const int got = ::recvmmsg(fd_.get(), state_->messages.data(), batch_max, MSG_DONTWAIT, nullptr);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

PacketSocket::Frame PacketSocket::frame(size_t index) const noexcept {
  const mmsghdr& message = state_->messages[index];
  Frame frame;
  // What is longer than the interface's MTU the kernel has joined, or it is none of ours.
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) return frame;
  frame.bytes = {static_cast<const std::byte*>(state_->parts[index].iov_base), message.msg_len};
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

}  // namespace weft::os
