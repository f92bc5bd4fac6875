// The boot id and the namespaces of this process, as /proc shows them.
#include "os/host.hpp"

#include <fcntl.h>
#include <netdb.h>
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

// Only addresses of this machine can be bound.
bool is_own_address(const sockaddr* address, socklen_t length) noexcept {
  const Fd socket(::socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket && ::bind(socket.get(), address, length) == 0;
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
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next)
    if (is_own_address(entry->ai_addr, entry->ai_addrlen)) return true;
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
