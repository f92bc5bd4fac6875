// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// udp(7), ip(7), ipv6(7), cmsg(3), getifaddrs(3). Linux 4.18 (UDP_SEGMENT) and 5.0 (UDP_GRO); without them packets go one by one.
#include "os/udp_socket.hpp"

#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

// Of <linux/in6.h>, which contradicts <netinet/in.h>.
#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif
#ifndef IPV6_AUTOFLOWLABEL
#define IPV6_AUTOFLOWLABEL 70
#endif

namespace weft::os {
namespace {

// IPv4 counts its own head of 20 bytes in the 16-bit length, IPv6 does not; UDP's length has 16 bits with its head of 8.
constexpr size_t udp_head = 8;
constexpr size_t ipv4_head = 20;
constexpr size_t ipv6_head = 40;
constexpr size_t ipv4_payload_max = 0xffff - ipv4_head - udp_head;
constexpr size_t ipv6_payload_max = 0xffff - udp_head;

int family_of(std::span<const std::byte> address) noexcept {
  sa_family_t family = AF_UNSPEC;
  if (address.size() >= sizeof family) std::memcpy(&family, address.data(), sizeof family);
  return family;
}

bool is_udp_address(std::span<const std::byte> address) noexcept {
  const int family = family_of(address);
  return (family == AF_INET && address.size() == sizeof(sockaddr_in)) ||
         (family == AF_INET6 && address.size() == sizeof(sockaddr_in6));
}

Error system_error(const char* what) {
  const int code = errno;
  return Error{code, std::string(what) + ": " + std::strerror(code)};
}

void set(const Fd& socket, int level, int name, int value) noexcept {
  (void)::setsockopt(socket.get(), level, name, &value, sizeof value);
}

// The privileged option goes beyond the system's limit, the other one up to it.
void set_buffer(const Fd& socket, int forced, int plain, size_t bytes) noexcept {
  const int value = static_cast<int>(std::min<size_t>(bytes, size_t{1} << 28));
  if (::setsockopt(socket.get(), SOL_SOCKET, forced, &value, sizeof value) != 0)
    set(socket, SOL_SOCKET, plain, value);
}

size_t payload_of(int family, size_t mtu) noexcept {
  const size_t heads = udp_head + (family == AF_INET6 ? ipv6_head : ipv4_head);
  const size_t most = family == AF_INET6 ? ipv6_payload_max : ipv4_payload_max;
  return mtu <= heads ? 0 : std::min(mtu - heads, most);
}

// An ICMP error about an earlier packet is reported by the next call, which then has done nothing: once more.
bool is_about_another(int error, int attempt) noexcept {
  return error == EINTR ||
         (attempt < 3 && (error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
                          error == EMSGSIZE || error == EPROTO || error == EACCES));
}

struct Interfaces {
  ifaddrs* list = nullptr;
  Interfaces() noexcept { (void)::getifaddrs(&list); }
  Interfaces(const Interfaces&) = delete;
  Interfaces& operator=(const Interfaces&) = delete;
  ~Interfaces() { ::freeifaddrs(list); }
};

}  // namespace

Result<Fd> open_udp(std::span<const std::byte> address, const UdpOptions& options) {
  if (!is_udp_address(address)) return Error{EINVAL, "the address is neither sockaddr_in nor sockaddr_in6"};
  const int family = family_of(address);
  Fd socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("no UDP socket");
  if (options.buffer_bytes != 0) {
    set_buffer(socket, SO_RCVBUFFORCE, SO_RCVBUF, options.buffer_bytes);
    set_buffer(socket, SO_SNDBUFFORCE, SO_SNDBUF, options.buffer_bytes);
  }
  set(socket, IPPROTO_IP, IP_MTU_DISCOVER, options.fragments ? IP_PMTUDISC_WANT : IP_PMTUDISC_DO);
  if (family == AF_INET6) {
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    set(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, options.fragments ? IPV6_PMTUDISC_WANT : IPV6_PMTUDISC_DO);
    if (options.optional_checksum) set(socket, SOL_UDP, UDP_NO_CHECK6_RX, 1);
  }
  set(socket, SOL_UDP, UDP_GRO, 1);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(address.data()),
             static_cast<socklen_t>(address.size())) != 0)
    return system_error("cannot bind the UDP socket");
  return socket;
}

Result<SocketAddress> udp_address(const Fd& socket) {
  SocketAddress bound = local_address(socket.get());
  if (!bound) return system_error("the UDP socket has no address");
  if (!bound.is_any()) return bound;
  SocketAddress reachable = outgoing_address(bound.family());
  reachable.set_port(bound.port());
  return reachable;
}

size_t udp_receive_buffer(const Fd& socket) noexcept {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &bytes, &length) != 0 || bytes < 0) return 0;
  return static_cast<size_t>(bytes);
}

size_t udp_path_bytes(std::span<const std::byte> address) noexcept {
  if (!is_udp_address(address)) return 0;
  const int family = family_of(address);
  const Fd probe(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.get(), reinterpret_cast<const sockaddr*>(address.data()),
                          static_cast<socklen_t>(address.size())) != 0)
    return 0;
  int mtu = 0;
  socklen_t length = sizeof mtu;
  const bool known = family == AF_INET6
                         ? ::getsockopt(probe.get(), IPPROTO_IPV6, IPV6_MTU, &mtu, &length) == 0
                         : ::getsockopt(probe.get(), IPPROTO_IP, IP_MTU, &mtu, &length) == 0;
  return known && mtu > 0 ? payload_of(family, static_cast<size_t>(mtu)) : 0;
}

size_t udp_interface_bytes(int family) noexcept {
  const Interfaces interfaces;
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  size_t least = SIZE_MAX;
  size_t loopback = 0;
  for (const ifaddrs* at = interfaces.list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_UP) == 0)
      continue;
    ifreq request{};
    std::strncpy(request.ifr_name, at->ifa_name, sizeof request.ifr_name - 1);
    if (::ioctl(any.get(), SIOCGIFMTU, &request) != 0 || request.ifr_mtu <= 0) continue;
    const size_t bytes = payload_of(family, static_cast<size_t>(request.ifr_mtu));
    if ((at->ifa_flags & IFF_LOOPBACK) != 0) loopback = bytes;
    else least = std::min(least, bytes);
  }
  return least != SIZE_MAX ? least : loopback;
}

namespace {

// Small packets are put together here: a copy of a few bytes costs less than the kernel's reading of a list of pieces.
constexpr size_t together_bytes = 512;

int send_together(const Fd& socket, std::span<const std::byte> address, const iovec* parts,
                  size_t count) noexcept {
  std::array<std::byte, together_bytes> bytes;
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len != 0) std::memcpy(bytes.data() + length, parts[i].iov_base, parts[i].iov_len);
    length += parts[i].iov_len;
  }
  for (int attempt = 0;; ++attempt) {
    if (::sendto(socket.get(), bytes.data(), length, MSG_DONTWAIT | MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(address.data()),
                 static_cast<socklen_t>(address.size())) >= 0)
      return 0;
    if (is_about_another(errno, attempt)) continue;
    return -errno;
  }
}

// Ancillary data of one message, entry by entry.
class Control {
 public:
  template <class T>
  void add(int level, int type, const T& value) noexcept {
    auto* const entry = reinterpret_cast<cmsghdr*>(bytes_.data() + count_);
    entry->cmsg_level = level;
    entry->cmsg_type = type;
    entry->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(entry), &value, sizeof value);
    count_ += CMSG_SPACE(sizeof value);
  }
  void give(msghdr& message) noexcept {
    message.msg_control = count_ == 0 ? nullptr : bytes_.data();
    message.msg_controllen = count_;
  }

 private:
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(uint16_t)) + 3 * CMSG_SPACE(sizeof(int))> bytes_{};
  size_t count_ = 0;
};

void add_marks(Control& control, int family, const IpMarks& marks) noexcept {
  const int traffic_class = marks.traffic_class;
  const int hops = marks.hops;
  if (family == AF_INET) {
    control.add(IPPROTO_IP, IP_TOS, traffic_class);
    control.add(IPPROTO_IP, IP_TTL, hops);
    return;
  }
  control.add(IPPROTO_IPV6, IPV6_TCLASS, traffic_class);
  control.add(IPPROTO_IPV6, IPV6_HOPLIMIT, hops);
  if (marks.flow_label != 0) control.add(IPPROTO_IPV6, IPV6_FLOWINFO, htonl(marks.flow_label & 0xfffff));
}

}  // namespace

int send_udp(const Fd& socket, std::span<const std::byte> address, const iovec* parts, size_t count,
             size_t segment_bytes, const IpMarks* marks) noexcept {
  if (segment_bytes == 0 && marks == nullptr) {
    size_t length = 0;
    for (size_t i = 0; i < count; ++i) length += parts[i].iov_len;
    if (length <= together_bytes) return send_together(socket, address, parts, count);
  }
  Control control;
  msghdr message{};
  message.msg_name = const_cast<std::byte*>(address.data());
  message.msg_namelen = static_cast<socklen_t>(address.size());
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  if (segment_bytes != 0) control.add(SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment_bytes));
  if (marks != nullptr) add_marks(control, family_of(address), *marks);
  control.give(message);
  for (int attempt = 0;; ++attempt) {
    if (::sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
    if (is_about_another(errno, attempt)) continue;
    return -errno;
  }
}

void show_traffic_class(const Fd& socket) noexcept {
  set(socket, IPPROTO_IP, IP_RECVTOS, 1);
  set(socket, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
}

void show_marks(const Fd& socket) noexcept {
  show_traffic_class(socket);
  set(socket, IPPROTO_IP, IP_RECVTTL, 1);
  set(socket, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
  set(socket, IPPROTO_IPV6, IPV6_FLOWINFO, 1);
  set(socket, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
}

void mark_packets(const Fd& socket, const IpMarks& marks) noexcept {
  set(socket, IPPROTO_IP, IP_TOS, marks.traffic_class);
  set(socket, IPPROTO_IP, IP_TTL, marks.hops);
  set(socket, IPPROTO_IPV6, IPV6_TCLASS, marks.traffic_class);
  set(socket, IPPROTO_IPV6, IPV6_UNICAST_HOPS, marks.hops);
  set(socket, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
}

void watch_udp_refusals(const Fd& socket) noexcept {
  set(socket, IPPROTO_IP, IP_RECVERR, 1);
  set(socket, IPPROTO_IPV6, IPV6_RECVERR, 1);
}

bool take_udp_refusal(const Fd& socket, SocketAddress& destination, int& error_code) noexcept {
  constexpr int errors_max = 64;  // others are passed over: a path MTU
  for (int i = 0; i < errors_max; ++i) {
    alignas(cmsghdr) std::array<std::byte, 512> control;
    sockaddr_storage to{};
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(socket.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return false;
    for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr; entry = CMSG_NXTHDR(&message, entry)) {
      if (!(entry->cmsg_level == IPPROTO_IP && entry->cmsg_type == IP_RECVERR) &&
          !(entry->cmsg_level == IPPROTO_IPV6 && entry->cmsg_type == IPV6_RECVERR))
        continue;
      sock_extended_err error;
      std::memcpy(&error, CMSG_DATA(entry), sizeof error);
      if (error.ee_errno == EMSGSIZE) continue;
      const auto found = SocketAddress::from(&to, message.msg_namelen);
      if (!found) continue;
      destination = *found;
      error_code = static_cast<int>(error.ee_errno);
      return true;
    }
  }
  return false;
}

// --- receiving ---

namespace {

// One datagram at most, or what UDP_GRO joined, which an skb's 16-bit length bounds.
constexpr size_t slot_bytes = size_t{1} << 16;
constexpr size_t source_bytes = sizeof(sockaddr_in6);
// Slots begin in different sets of the first cache.
constexpr size_t slot_stride = slot_bytes + 5 * 64;
// When packets are large, fewer are taken in one call, so that they are still in the cache when they are looked at.
constexpr size_t large_bytes = size_t{1} << 12;
constexpr size_t large_batches = 4;

}  // namespace

// Ints, but for a byte of IP_TOS and the big-endian word of IPV6_FLOWINFO.
static void take_mark(const cmsghdr& entry, IpMarks& marks) noexcept {
  const bool is_ip4 = entry.cmsg_level == IPPROTO_IP;
  if (!is_ip4 && entry.cmsg_level != IPPROTO_IPV6) return;
  const unsigned char* const data = CMSG_DATA(&entry);
  if (is_ip4 && entry.cmsg_type == IP_TOS) {
    marks.traffic_class = *data;
    return;
  }
  int value = 0;
  if (entry.cmsg_len < CMSG_LEN(sizeof value)) return;
  std::memcpy(&value, data, sizeof value);
  if (is_ip4 && entry.cmsg_type == IP_TTL) marks.hops = static_cast<uint8_t>(value);
  if (is_ip4) return;
  if (entry.cmsg_type == IPV6_TCLASS) marks.traffic_class = static_cast<uint8_t>(value);
  if (entry.cmsg_type == IPV6_HOPLIMIT) marks.hops = static_cast<uint8_t>(value);
  if (entry.cmsg_type == IPV6_FLOWINFO) marks.flow_label = ntohl(static_cast<uint32_t>(value)) & 0xfffff;
}

struct UdpReceiver::State {
  struct Slot {
    alignas(8) std::array<std::byte, source_bytes> source;
    iovec part;
    alignas(cmsghdr) std::array<std::byte, 4 * CMSG_SPACE(sizeof(int))> control;
  };
  size_t ask = 1;       // batches in the next call
  size_t in_a_row = 0;  // calls that found something
  std::array<mmsghdr, batches_max> messages{};
  std::array<Slot, batches_max> slots{};
  std::unique_ptr<std::byte[]> memory;
};

void UdpReceiver::Deleter::operator()(State* state) const noexcept { delete state; }

Result<UdpReceiver> UdpReceiver::create() {
  UdpReceiver receiver;
  receiver.state_.reset(new State);
  State& state = *receiver.state_;
  // Untouched memory costs nothing, so a receiver of small packets has a page for each slot.
  state.memory.reset(new std::byte[batches_max * slot_stride]);
  for (size_t i = 0; i < batches_max; ++i) {
    State::Slot& slot = state.slots[i];
    slot.part = {state.memory.get() + i * slot_stride, slot_bytes};
    msghdr& message = state.messages[i].msg_hdr;
    message.msg_name = slot.source.data();
    message.msg_namelen = source_bytes;
    message.msg_iov = &slot.part;
    message.msg_iovlen = 1;
    message.msg_control = slot.control.data();
    message.msg_controllen = slot.control.size();
  }
  return receiver;
}

size_t UdpReceiver::receive(const Fd& socket) noexcept {
  State& state = *state_;
  const size_t asked = state.ask;
  ssize_t got;
  int attempt = 0;
  do {
    if (asked == 1) {
      got = ::recvmsg(socket.get(), &state.messages[0].msg_hdr, MSG_DONTWAIT);
      if (got >= 0) {
        state.messages[0].msg_len = static_cast<unsigned>(got);
        got = 1;
      }
    } else {
      got = ::recvmmsg(socket.get(), state.messages.data(), static_cast<unsigned>(asked), MSG_DONTWAIT,
                       nullptr);
    }
  } while (got < 0 && is_about_another(errno, attempt++));
  if (got <= 0) {
    state.ask = 1;  // a lone packet costs least to ask for alone
    state.in_a_row = 0;
    return 0;
  }
  const auto count = static_cast<size_t>(got);
  if (++state.in_a_row > 1)
    state.ask = state.messages[count - 1].msg_len >= large_bytes ? large_batches : batches_max;
  return count;
}

UdpReceiver::Batch UdpReceiver::batch(size_t index) const noexcept {
  msghdr& message = state_->messages[index].msg_hdr;
  const size_t bytes = std::min<size_t>(state_->messages[index].msg_len, slot_bytes);
  Batch batch{{static_cast<const std::byte*>(message.msg_name), message.msg_namelen},
              {static_cast<const std::byte*>(message.msg_iov->iov_base), bytes},
              0,
              {}};
  if (message.msg_controllen != 0) {
    for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr; entry = CMSG_NXTHDR(&message, entry)) {
      if (entry->cmsg_level != SOL_UDP || entry->cmsg_type != UDP_GRO) {
        take_mark(*entry, batch.marks);
        continue;
      }
      int segment = 0;
      std::memcpy(&segment, CMSG_DATA(entry), sizeof segment);
      if (segment > 0 && static_cast<size_t>(segment) < bytes) batch.segment = static_cast<size_t>(segment);
    }
  }
  // For the next call; the kernel has written the lengths that it used.
  message.msg_namelen = source_bytes;
  message.msg_controllen = sizeof(State::Slot::control);
  return batch;
}

// --- multicast ---

namespace {

// The number of the interface that has this address; 0: none, or any.
unsigned interface_of(const SocketAddress& own) noexcept {
  if (own.is_any()) return 0;
  const Interfaces interfaces;
  for (const ifaddrs* at = interfaces.list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != own.family()) continue;
    auto here = SocketAddress::from(at->ifa_addr, own.size());
    if (!here) continue;
    here->set_port(own.port());
    if (*here == own) return ::if_nametoindex(at->ifa_name);
  }
  return 0;
}

// A group of link or interface scope is another one on each interface; the others may be joined on any.
sockaddr_in6 on_interface(std::span<const std::byte> group, unsigned interface) noexcept {
  sockaddr_in6 address;
  std::memcpy(&address, group.data(), sizeof address);
  if (address.sin6_scope_id == 0) address.sin6_scope_id = interface;
  return address;
}

// Binds and joins. 0 or an errno.
int enter_group(const Fd& socket, std::span<const std::byte> group, unsigned interface) noexcept {
  if (family_of(group) == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, group.data(), sizeof address);
    ip_mreqn request{};
    request.imr_multiaddr = address.sin_addr;
    request.imr_ifindex = static_cast<int>(interface);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return errno;
    return ::setsockopt(socket.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) == 0 ? 0
                                                                                                    : errno;
  }
  const sockaddr_in6 address = on_interface(group, interface);
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = address.sin6_addr;
  request.ipv6mr_interface = address.sin6_scope_id;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return errno;
  return ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &request, sizeof request) == 0 ? 0
                                                                                                      : errno;
}

}  // namespace

Result<Fd> open_group(const Fd& member, std::span<const std::byte> group) {
  if (!is_group(group)) return Error{EINVAL, "this is no multicast address with a port"};
  const int family = family_of(group);
  Fd socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("no UDP socket");
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  set(socket, SOL_UDP, UDP_GRO, 1);
  // Not what other sockets of the machine have joined on other interfaces.
  set(socket, IPPROTO_IP, IP_MULTICAST_ALL, 0);
  if (family == AF_INET6) set(socket, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
  set_buffer(socket, SO_RCVBUFFORCE, SO_RCVBUF, udp_receive_buffer(member) / 2);
  if (const int error = enter_group(socket, group, interface_of(local_address(member.get()))); error != 0)
    return Error{error, std::string("cannot join the multicast group: ") + std::strerror(error)};
  return socket;
}

void route_groups(const Fd& member) noexcept {
  const SocketAddress own = local_address(member.get());
  const auto interface = static_cast<int>(interface_of(own));
  if (interface == 0) return;
  if (own.family() == AF_INET) {
    ip_mreqn request{};
    request.imr_ifindex = interface;
    (void)::setsockopt(member.get(), IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
  } else {
    set(member, IPPROTO_IPV6, IPV6_MULTICAST_IF, interface);
  }
}

bool is_group(std::span<const std::byte> address) noexcept {
  if (!is_udp_address(address)) return false;
  if (family_of(address) == AF_INET) {
    sockaddr_in at;
    std::memcpy(&at, address.data(), sizeof at);
    return IN_MULTICAST(ntohl(at.sin_addr.s_addr)) && at.sin_port != 0;
  }
  sockaddr_in6 at;
  std::memcpy(&at, address.data(), sizeof at);
  return IN6_IS_ADDR_MULTICAST(&at.sin6_addr) && at.sin6_port != 0;
}

}  // namespace weft::os
