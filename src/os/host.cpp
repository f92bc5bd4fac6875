// The boot id and the namespaces of this process, as /proc shows them.
#include "os/host.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

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

}  // namespace

uint64_t sharing_identity() noexcept {
  uint64_t hash = hash_word(::getuid(), hash_factor_b);
  if (!mix_boot(hash) || !mix_namespace("/proc/self/ns/net", hash) ||
      !mix_namespace("/proc/self/ns/user", hash))
    return 0;
  hash &= (uint64_t{1} << 48) - 1;
  return hash != 0 ? hash : 1;
}

}  // namespace weft::os
