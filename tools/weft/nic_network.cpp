// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ioctl(2) of netdevice(7), RTM_NEWADDR and RTM_NEWROUTE of rtnetlink(7).
#include "nic_network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace weft::tool::cards {
namespace {

class Socket {
 public:
  Socket(int family, int type, int protocol) : fd_(::socket(family, type | SOCK_CLOEXEC, protocol)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string text_of(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = {};
  return ::inet_ntop(family, address, text, sizeof text) != nullptr ? text : "";
}

ifreq request_for(const std::string& interface) {
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), sizeof request.ifr_name - 1);
  return request;
}

unsigned prefix_of(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  if (mask->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, mask, sizeof four);
    return static_cast<unsigned>(std::popcount(four.sin_addr.s_addr));
  }
  sockaddr_in6 six{};
  std::memcpy(&six, mask, sizeof six);
  unsigned bits = 0;
  for (const uint8_t byte : six.sin6_addr.s6_addr) bits += static_cast<unsigned>(std::popcount(byte));
  return bits;
}

std::vector<std::string> addresses_of(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<std::string> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const std::string_view name(one->ifa_name, std::strcspn(one->ifa_name, ":"));
    if (one->ifa_addr == nullptr || name != interface) continue;
    if (one->ifa_addr->sa_family == AF_INET) {
      sockaddr_in four{};
      std::memcpy(&four, one->ifa_addr, sizeof four);
      found.push_back(fmt::format("{}/{}", text_of(AF_INET, &four.sin_addr), prefix_of(one->ifa_netmask)));
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 six{};
      std::memcpy(&six, one->ifa_addr, sizeof six);
      if (!IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr))
        found.push_back(fmt::format("{}/{}", text_of(AF_INET6, &six.sin6_addr), prefix_of(one->ifa_netmask)));
    }
  }
  return found;
}

// 32 hexadecimal digits.
bool read_hex(const std::string& text, in6_addr& out) {
  if (text.size() != 32) return false;
  for (size_t i = 0; i < 16; ++i) {
    const auto byte = pci::detail::number(std::string_view(text).substr(2 * i, 2), 16);
    if (!byte) return false;
    out.s6_addr[i] = static_cast<uint8_t>(*byte);
  }
  return true;
}

// One request of rtnetlink with its attributes, and the kernel's answer.
class Request {
 public:
  template <class Body>
  Request(uint16_t type, const Body& body) {
    head().nlmsg_type = type;
    head().nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    std::memcpy(bytes_.data() + NLMSG_HDRLEN, &body, sizeof body);
    end_ = NLMSG_LENGTH(sizeof body);
  }
  void add(uint16_t type, const void* value, size_t bytes) {
    end_ = NLMSG_ALIGN(end_);
    const rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(bytes)), type};
    std::memcpy(bytes_.data() + end_, &attribute, sizeof attribute);
    std::memcpy(bytes_.data() + end_ + RTA_LENGTH(0), value, bytes);
    end_ += RTA_LENGTH(bytes);
  }
  // 0 or an errno. What is there already is no mistake.
  int send() {
    head().nlmsg_len = static_cast<uint32_t>(end_);
    const Socket socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (socket.get() < 0 || ::send(socket.get(), bytes_.data(), end_, 0) < 0) return errno;
    std::array<std::byte, 4096> answer{};
    const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), 0);
    nlmsghdr reply{};
    nlmsgerr error{};
    if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof error))) return EPROTO;
    std::memcpy(&reply, answer.data(), sizeof reply);
    std::memcpy(&error, answer.data() + NLMSG_HDRLEN, sizeof error);
    return reply.nlmsg_type != NLMSG_ERROR ? EPROTO : error.error == -EEXIST ? 0 : -error.error;
  }

 private:
  nlmsghdr& head() { return *reinterpret_cast<nlmsghdr*>(bytes_.data()); }

  alignas(nlmsghdr) std::array<std::byte, 256> bytes_{};
  size_t end_ = 0;
};

struct Ip {
  int family = AF_UNSPEC;
  std::array<std::byte, 16> bytes{};
  size_t size() const { return family == AF_INET ? 4 : 16; }
};
Ip ip_of(const std::string& text) {
  Ip ip;
  ip.family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (::inet_pton(ip.family, text.c_str(), ip.bytes.data()) != 1) ip.family = AF_UNSPEC;
  return ip;
}

int add_address(unsigned index, const std::string& network) {
  const size_t slash = network.find('/');
  const Ip ip = ip_of(network.substr(0, slash));
  const auto prefix = pci::detail::number(std::string_view(network).substr(slash + 1), 10);
  if (ip.family == AF_UNSPEC || !prefix) return EINVAL;
  ifaddrmsg body{};
  body.ifa_family = static_cast<uint8_t>(ip.family);
  body.ifa_prefixlen = static_cast<uint8_t>(*prefix);
  body.ifa_index = index;
  Request request(RTM_NEWADDR, body);
  request.add(IFA_LOCAL, ip.bytes.data(), ip.size());
  request.add(IFA_ADDRESS, ip.bytes.data(), ip.size());
  if (ip.family == AF_INET && *prefix < 31) {
    uint32_t address = 0;
    std::memcpy(&address, ip.bytes.data(), sizeof address);
    const uint32_t broadcast =
        address | htonl(*prefix == 0 ? UINT32_MAX : (uint32_t{1} << (32 - *prefix)) - 1);
    request.add(IFA_BROADCAST, &broadcast, sizeof broadcast);
  }
  return request.send();
}

int add_gateway(unsigned index, const std::string& gateway) {
  const Ip ip = ip_of(gateway);
  if (ip.family == AF_UNSPEC) return EINVAL;
  rtmsg body{};
  body.rtm_family = static_cast<uint8_t>(ip.family);
  body.rtm_table = RT_TABLE_MAIN;
  body.rtm_protocol = RTPROT_BOOT;
  body.rtm_scope = RT_SCOPE_UNIVERSE;
  body.rtm_type = RTN_UNICAST;
  Request request(RTM_NEWROUTE, body);
  request.add(RTA_GATEWAY, ip.bytes.data(), ip.size());
  request.add(RTA_OIF, &index, sizeof index);
  return request.send();
}

bool set_up(const Socket& socket, const std::string& interface, bool up) {
  ifreq request = request_for(interface);
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return false;
  const int flags = request.ifr_flags;
  request.ifr_flags = static_cast<short>(up ? flags | IFF_UP : flags & ~IFF_UP);
  return flags == request.ifr_flags || ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

bool set_mac(const Socket& socket, const std::string& interface, const std::string& mac) {
  ifreq request = request_for(interface);
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  for (size_t i = 0; i < 6; ++i)
    request.ifr_hwaddr.sa_data[i] =
        static_cast<char>(pci::detail::number(std::string_view(mac).substr(3 * i, 2), 16).value_or(0));
  return ::ioctl(socket.get(), SIOCSIFHWADDR, &request) == 0;
}

}  // namespace

std::vector<std::string> routes4(std::string_view table, std::string_view interface,
                                 std::vector<std::string>& gateways) {
  std::vector<std::string> found;
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, destination, gateway, flags, ignored, mask;
    words >> name >> destination >> gateway >> flags >> ignored >> ignored >> ignored >> mask;
    const auto to = pci::detail::number(destination, 16), by = pci::detail::number(gateway, 16),
               bits = pci::detail::number(mask, 16);
    if (name != interface || !to || !by || !bits) continue;
    found.push_back(fmt::format("{}/{}", text_of(AF_INET, &*to), std::popcount(*bits)));
    if (*bits == 0 && *by != 0) gateways.push_back(text_of(AF_INET, &*by));
  }
  return found;
}

std::vector<std::string> routes6(std::string_view table, std::string_view interface,
                                 std::vector<std::string>& gateways) {
  std::vector<std::string> found;
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string destination, prefix, source, source_prefix, gateway, ignored, name;
    words >> destination >> prefix >> source >> source_prefix >> gateway >> ignored >> ignored >> ignored >>
        ignored >> name;
    in6_addr to{}, by{};
    const auto bits = pci::detail::number(prefix, 16);
    if (name != interface || !bits || !read_hex(destination, to) || !read_hex(gateway, by)) continue;
    if (IN6_IS_ADDR_LINKLOCAL(&to) || IN6_IS_ADDR_MULTICAST(&to)) continue;
    found.push_back(fmt::format("{}/{}", text_of(AF_INET6, &to), *bits));
    if (*bits == 0 && !IN6_IS_ADDR_UNSPECIFIED(&by)) gateways.push_back(text_of(AF_INET6, &by));
  }
  return found;
}

// Documentation/ABI/testing/sysfs-class-net: a symbolic link upper_NAME for each.
std::vector<std::string> uppers_of(const std::string& interface, const std::string& root) {
  constexpr std::string_view prefix = "upper_";
  std::vector<std::string> found;
  for (const std::string& name : pci::detail::names_in(fmt::format("{}/sys/class/net/{}", root, interface)))
    if (name.starts_with(prefix)) found.push_back(name.substr(prefix.size()));
  return found;
}

InterfaceState state_of(const std::string& interface) {
  InterfaceState state;
  state.name = interface;
  const Socket socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request = request_for(interface);
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0) state.is_up = (request.ifr_flags & IFF_UP) != 0;
  request = request_for(interface);
  if (::ioctl(socket.get(), SIOCGIFMTU, &request) == 0) state.mtu = static_cast<uint32_t>(request.ifr_mtu);
  request = request_for(interface);
  if (::ioctl(socket.get(), SIOCGIFHWADDR, &request) == 0 && request.ifr_hwaddr.sa_family == ARPHRD_ETHER)
    for (size_t i = 0; i < 6; ++i)
      state.mac +=
          fmt::format("{}{:02x}", i == 0 ? "" : ":", static_cast<uint8_t>(request.ifr_hwaddr.sa_data[i]));
  state.addresses = addresses_of(interface);
  state.uppers = uppers_of(interface);
  constexpr size_t table_max = 1U << 20;
  state.routes =
      routes4(pci::detail::read_file("/proc/net/route", table_max).value_or(""), interface, state.gateways);
  for (std::string& one : routes6(pci::detail::read_file("/proc/net/ipv6_route", table_max).value_or(""),
                                  interface, state.gateways))
    state.routes.push_back(std::move(one));
  return state;
}

std::vector<std::string> restore(const std::string& interface, const nic_binding::Interface& had) {
  std::vector<std::string> refused;
  const auto note = [&](bool good, const std::string& what, int code) {
    if (!good) refused.push_back(fmt::format("{}: {}: {}", interface, what, std::strerror(code)));
  };
  const Socket socket(AF_INET, SOCK_DGRAM, 0);
  const unsigned index = ::if_nametoindex(interface.c_str());
  const InterfaceState now = state_of(interface);
  if (!had.mac.empty() && now.mac != had.mac)
    note(set_mac(socket, interface, had.mac), "MAC " + had.mac, errno);
  if (had.mtu != 0 && now.mtu != had.mtu) {
    ifreq request = request_for(interface);
    request.ifr_mtu = static_cast<int>(had.mtu);
    note(::ioctl(socket.get(), SIOCSIFMTU, &request) == 0, fmt::format("MTU {}", had.mtu), errno);
  }
  // Addresses before routes, and routes only over an interface that is up.
  if (had.is_up) note(set_up(socket, interface, true), "up", errno);
  for (const std::string& address : had.addresses) {
    const int code = add_address(index, address);
    note(code == 0, "address " + address, code);
  }
  for (const std::string& gateway : had.gateways) {
    const int code = had.is_up ? add_gateway(index, gateway) : 0;
    note(code == 0, "default route by " + gateway, code);
  }
  return refused;
}

}  // namespace weft::tool::cards
