// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Abstract names as a directory of memory files.
#include "os/published_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "os/event.hpp"
#include "os/poll_set.hpp"
#include "os/unix_socket.hpp"

namespace weft::os {
namespace {

bool map_found(int pid, int fd, size_t bytes, const Fd& ours, FoundMemory& out) noexcept {
  const Fd file = open_memory_of(pid, fd, ::geteuid(), ours);
  if (!file || memory_size(file) < bytes) return false;
  void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (at == MAP_FAILED) return false;
  out = {Mapping(at, bytes), pid};
  return true;
}

// A decimal number and the colon behind it, which `from` then passes. False: there is none.
bool take_number(const char*& from, int& out) noexcept {
  const auto [end, status] = std::from_chars(from, from + std::strlen(from), out);
  if (status != std::errc() || *end != ':') return false;
  from = end + 1;
  return true;
}

constexpr int64_t join_timeout_ms = 50;

// Names in the abstract name space are anybody's, and may lead to a memory file of this user that another program has made for itself.
bool has_label(const Fd& file, const char* label) {
  std::array<char, 288> link{};
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file.get());
  if (::readlink(path.data(), link.data(), link.size() - 1) <= 0) return false;
  std::string wanted = "/memfd:";
  wanted.append(label).append(" (deleted)");
  return wanted == link.data();
}

// Calls on_name(process, descriptor) for what other processes have published, until it returns false.
template <class F>
void each_published(std::string_view prefix, F&& on_name) {
  const std::unique_ptr<FILE, decltype([](FILE* file) { std::fclose(file); })> names(
      std::fopen("/proc/net/unix", "re"));
  if (names == nullptr) return;
  std::string wanted = "@";
  wanted.append(prefix).push_back('/');
  struct Line {
    char* text = nullptr;
    size_t room = 0;
    ~Line() { std::free(text); }
  } line;
  while (::getline(&line.text, &line.room, names.get()) > 0) {
    const char* at = std::strstr(line.text, wanted.c_str());
    if (at == nullptr) continue;
    const char* from = at + wanted.size();
    int pid = 0;
    int fd = -1;
    if (!take_number(from, pid) || !take_number(from, fd)) continue;
    if (pid <= 0 || fd < 0 || pid == process_id()) continue;
    if (!on_name(pid, fd)) return;
  }
}

}  // namespace

Result<PublishedMemory> PublishedMemory::create(const char* label, size_t bytes) {
  PublishedMemory made;
  auto file = create_memory(label, bytes);
  if (!file) return file.error();
  made.file_ = std::move(*file);
  auto mapping = map_memory(made.file_, 0, bytes);
  if (!mapping) return mapping.error();
  made.mapping_ = std::move(*mapping);
  made.owner_pid_ = process_id();
  return made;
}

Result<PublishedMemory> PublishedMemory::join(const char* label, std::string_view prefix, size_t bytes) {
  std::string lock(prefix);
  lock.append("-lock/").append(std::to_string(::geteuid()));
  const Fd held = hold_prefix(lock, join_timeout_ms);
  auto joined = create(label, bytes);
  if (!joined) return joined;
  each_published(prefix, [&](int pid, int fd) {
    Fd file = open_memory_of(pid, fd, ::geteuid(), joined->file_);
    if (!file || memory_size(file) != bytes || !has_label(file, label)) return true;
    auto mapping = map_memory(file, 0, bytes);
    if (!mapping) return true;
    joined->file_ = std::move(file);
    joined->mapping_ = std::move(*mapping);
    return false;
  });
  if (auto named = joined->publish(prefix); !named) return named.error();
  return joined;
}

Result<void> PublishedMemory::publish(std::string_view prefix) {
  auto bound = bind_datagram(std::string(prefix) + '/' + std::to_string(owner_pid_) + ':' +
                             std::to_string(file_.get()) + ':' + std::to_string(random_bits() >> 32));
  if (!bound) return bound.error();
  name_ = std::move(*bound);
  stop_datagrams(name_);  // it is a name only; to close what others sent there could sleep
  return {};
}

Fd hold_prefix(std::string_view prefix, int64_t timeout_ms) noexcept try {
  for (const int64_t until = now_ms() + timeout_ms; now_ms() < until; yield_processor())
    if (auto bound = bind_datagram(prefix)) {
      stop_datagrams(*bound);
      return std::move(*bound);
    }
  return {};
} catch (const std::bad_alloc&) {
  return {};
}

bool PublishedMemory::belongs_here() const noexcept { return process_id() == owner_pid_; }

std::vector<FoundMemory> find_published_memory(std::string_view prefix, size_t bytes) {
  std::vector<FoundMemory> all;
  auto ours = create_memory("weft-look", 1);  // to compare with
  if (!ours) return all;
  each_published(prefix, [&](int pid, int fd) {
    if (FoundMemory found; map_found(pid, fd, bytes, *ours, found)) all.push_back(std::move(found));
    return true;
  });
  return all;
}

}  // namespace weft::os
