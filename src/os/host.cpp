// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The boot id and the namespaces of this process, as /proc shows them.
#include "os/host.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/hash.hpp"
#include "os/fd.hpp"

namespace weft::os {
namespace {

// A namespace is an inode of the kernel's own file system.
bool mix_namespace(const char* path, uint64_t& hash) noexcept {
  struct stat status {};
  if (::stat(path, &status) != 0) return false;
  hash = hash_pair(status.st_ino, status.st_dev, hash);
  return true;
}

bool mix_boot(uint64_t& hash) noexcept {
  const Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 36> text{};
  if (!file || ::read(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return false;
  for (size_t at = 0; at < text.size(); at += 4) {
    uint32_t word;
    std::memcpy(&word, text.data() + at, sizeof(word));
    hash = hash_pair(word, at, hash);
  }
  return true;
}

bool same_address(const sockaddr* a, const sockaddr* b) noexcept {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(b)->sin_addr, sizeof(in_addr)) == 0;
  if (a->sa_family != AF_INET6) return false;
  const auto* a6 = reinterpret_cast<const sockaddr_in6*>(a);
  const auto* b6 = reinterpret_cast<const sockaddr_in6*>(b);
  const bool same_scope =
      a6->sin6_scope_id == 0 || b6->sin6_scope_id == 0 || a6->sin6_scope_id == b6->sin6_scope_id;
  return same_scope && std::memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(in6_addr)) == 0;
}

// The loopback network is always this host; all else is an address of an interface.
bool is_own_address(const sockaddr* address, const ifaddrs* interfaces) noexcept {
  if (address->sa_family == AF_INET &&
      ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
    return true;
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next)
    if (same_address(entry->ifa_addr, address)) return true;
  return false;
}

}  // namespace

bool is_this_host(const char* node) {
  std::array<char, 256> own{};
  if (::strcasecmp(node, "localhost") == 0) return true;
  if (::gethostname(own.data(), own.size() - 1) == 0 && ::strcasecmp(node, own.data()) == 0) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(node, "0", &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) interfaces = nullptr;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> interfaces_owner(interfaces, ::freeifaddrs);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next)
    if (is_own_address(entry->ai_addr, interfaces)) return true;
  return false;
}

uint64_t sharing_identity() noexcept {
  uint64_t hash = hash_word(::geteuid(), hash_factor_b);
  if (!mix_boot(hash) || !mix_namespace("/proc/self/ns/net", hash) ||
      !mix_namespace("/proc/self/ns/user", hash))
    return 0;
  hash &= (uint64_t{1} << 48) - 1;
  return hash != 0 ? hash : 1;
}

}  // namespace weft::os
