// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The page of this process, and the file that is written at its end.
#include "os/statistics.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <weft/statistics_text.hpp>

#include "base/lasting.hpp"
#include "base/settings.hpp"
#include "os/clock.hpp"
#include "os/new_file.hpp"
#include "os/poll_set.hpp"
#include "os/shared_memory.hpp"

namespace weft::os {
namespace {

using statistics::Entry;
using statistics::Header;

constexpr size_t closed_max = 4096;  // objects that are kept for WEFT_STATS after they are closed

// Of the page that is mapped now, for the handler of fork(2), which takes no lock.
std::atomic<void*> mapped_at{nullptr};
std::atomic<int> mapped_file{-1};

// A child's inherited entries must not write to its parent's page: they get private memory in its place.
void leave_page() noexcept {
  void* const at = mapped_at.exchange(nullptr, std::memory_order_relaxed);
  const int file = mapped_file.exchange(-1, std::memory_order_relaxed);
  if (at != nullptr)
    (void)::mmap(at, statistics::page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0);
  if (file >= 0) ::close(file);
}
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, leave_page);

template <size_t Bytes>
void put_text(std::array<char, Bytes>& to, std::string_view text) noexcept {
  std::memcpy(to.data(), text.data(), std::min(text.size(), Bytes - 1));
}
template <size_t Bytes>
void put_text(std::array<std::atomic<char>, Bytes>& to, std::string_view text) noexcept {
  for (size_t i = 0; i < Bytes; ++i)
    to[i].store(i < std::min(text.size(), Bytes - 1) ? text[i] : '\0', std::memory_order_relaxed);
}

// The file that this code is in: a drop-in, a plugin, or the program itself.
std::string library_name() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&leave_page), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string_view path = info.dli_fname;
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string program_name() {
  std::array<char, 64> name{};
  const std::unique_ptr<FILE, decltype([](FILE* file) { std::fclose(file); })> comm(
      std::fopen("/proc/self/comm", "re"));
  if (comm == nullptr || std::fgets(name.data(), name.size(), comm.get()) == nullptr)
    return ::program_invocation_short_name;
  return {name.data(), std::strcspn(name.data(), "\n")};
}

// Begins and ends a change of what stands above the values.
class Change {
 public:
  explicit Change(Entry& entry) noexcept : entry_(entry) {
    step();
    std::atomic_thread_fence(std::memory_order_release);  // pairs with the fence of statistics::copy_of()
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  ~Change() {
    std::atomic_thread_fence(std::memory_order_release);
    step();
  }

 private:
  void step() noexcept {
    entry_.generation.store(entry_.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  Entry& entry_;
};

// What a process has. A forked child makes one of its own.
class State {
 public:
  State() {
    const char* path = ::getauxval(AT_SECURE) == 0 ? settings::text("WEFT_STATS") : nullptr;
    if (path == nullptr || *path == 0) return;
    // The program may change its directory.
    const std::unique_ptr<char, decltype([](char* text) { std::free(text); })> folder(
        *path == '/' ? nullptr : ::getcwd(nullptr, 0));
    path_ = folder != nullptr ? std::string(folder.get()) + '/' + path : path;
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (!origin_.is_here()) (void)memory_.file.release();  // leave_page() has closed it
  }

  bool is_here() const noexcept { return origin_.is_here(); }

  Entry* add(statistics::Kind kind, std::string_view name, std::string_view detail, uint32_t parent,
             uint32_t& id) {
    const std::scoped_lock guard(mutex_);
    if (!memory_.mapping && !make_page()) return nullptr;
    size_t place = 0;
    while (place < statistics::entries && used_[place]) ++place;
    if (place == statistics::entries) {
      auto& unlisted = memory_.mapping.as<Header>()->unlisted;
      unlisted.store(unlisted.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return nullptr;
    }
    used_[place] = true;
    places_ = std::max(places_, place + 1);
    ++live_;
    id = ++last_id_;
    Entry& entry = *memory_.mapping.as<Entry>(statistics::header_bytes + place * sizeof(Entry));
    const Change change(entry);
    entry.kind.store(static_cast<uint32_t>(kind), std::memory_order_relaxed);
    entry.id.store(id, std::memory_order_relaxed);
    entry.parent.store(parent, std::memory_order_relaxed);
    entry.present.store(0, std::memory_order_relaxed);
    entry.opened_ns.store(realtime_ns(), std::memory_order_relaxed);
    put_text(entry.name, name);
    put_text(entry.detail, detail);
    for (auto& value : entry.values) value.store(0, std::memory_order_relaxed);
    return &entry;
  }

  void remove(Entry& entry) noexcept {
    const std::scoped_lock guard(mutex_);
    if (!path_.empty()) keep(entry);
    {
      const Change change(entry);
      entry.kind.store(0, std::memory_order_relaxed);
    }
    const auto* first = memory_.mapping.as<Entry>(statistics::header_bytes);
    used_[static_cast<size_t>(&entry - first)] = false;
    if (--live_ != 0) return;
    mapped_at.store(nullptr, std::memory_order_relaxed);
    mapped_file.store(-1, std::memory_order_relaxed);
    memory_ = {};
  }

  // At the end of the process.
  void write_out() {
    const std::scoped_lock guard(mutex_);
    if (path_.empty() || (closed_.empty() && !memory_.mapping)) return;
    statistics::Process process;
    if (memory_.mapping)
      if (auto shown = statistics::parse(copy_of_page())) process = std::move(*shown);
    process.pid = process_id();
    process.program = statistics::printable(program_name().c_str(), SIZE_MAX);
    process.library = statistics::printable(library_name().c_str(), SIZE_MAX);
    process.unlisted += unkept_;
    process.objects.insert(process.objects.begin(), closed_.begin(), closed_.end());
    const std::span<const statistics::Process> all(&process, 1);
    const std::string text =
        path_.ends_with(".prom") ? statistics::to_metrics(all) : statistics::to_json(all, realtime_ns());
    if (auto written = write_file(text); !written)
      ::dprintf(STDERR_FILENO, "weft: WEFT_STATS: %s\n", written.error().why.c_str());
    path_.clear();
  }

 private:
  bool make_page() {
    auto made = create_readable_memory(statistics::file_name, statistics::page_bytes);
    if (!made) return false;
    memory_ = std::move(*made);
    Header& header = *memory_.mapping.as<Header>();
    header.version = statistics::version;
    header.header_bytes = statistics::header_bytes;
    header.entry_bytes = sizeof(Entry);
    header.entries = statistics::entries;
    header.pid = process_id();
    header.opened_ns = realtime_ns();
    put_text(header.library, library_name());
    put_text(header.program, program_name());
    header.magic.store(statistics::magic, std::memory_order_release);  // a page without it is not ready
    used_.reset();
    mapped_file.store(memory_.file.get(), std::memory_order_relaxed);
    mapped_at.store(memory_.mapping.as<void>(), std::memory_order_relaxed);
    return true;
  }

  std::vector<std::byte> copy_of_page() const {
    return statistics::copy_of(memory_.mapping.as<std::byte>(),
                               statistics::header_bytes + places_ * sizeof(Entry));
  }

  // Its last numbers, for write_out().
  void keep(const Entry& entry) noexcept try {
    if (closed_.size() == closed_max) {
      ++unkept_;
      return;
    }
    auto process = statistics::parse(copy_of_page());
    const uint32_t id = entry.id.load(std::memory_order_relaxed);
    if (!process) return;
    const auto found = std::ranges::find(process->objects, id, &statistics::Object::id);
    if (found != process->objects.end()) closed_.push_back(std::move(*found));
  } catch (const std::bad_alloc&) {
    ++unkept_;
  }

  Result<void> write_file(const std::string& text) {
    constexpr unsigned tries_max = 1000;
    auto file = create_file(path_);
    for (unsigned i = 1; i <= tries_max && !file && file.error().code == EEXIST && is_regular_file(path_);
         ++i)
      if (auto other = create_file(numbered_name(path_, process_id(), i));
          other || other.error().code != EEXIST)
        file = std::move(other);
    if (!file) return file.error();
    if (const int error = append_to_file(*file, 0, std::as_bytes(std::span(text))); error != 0)
      return Error{error, path_ + ": " + std::strerror(error)};
    return {};
  }

  Origin origin_;
  std::mutex mutex_;
  ReadableMemory memory_;
  std::bitset<statistics::entries> used_;
  size_t live_ = 0;
  size_t places_ = 0;  // the first ones, which were used: no other page of the file is touched
  uint32_t last_id_ = 0;
  std::string path_;  // of WEFT_STATS; empty: none
  std::vector<statistics::Object> closed_;
  uint64_t unkept_ = 0;
};

std::atomic<State*> the_state{nullptr};

State* own_state() noexcept {
  State* const there = the_state.load(std::memory_order_acquire);
  return there != nullptr && there->is_here() ? there : nullptr;
}

State& make_state() {
  for (;;) {
    State* other = the_state.load(std::memory_order_acquire);
    if (other != nullptr && other->is_here()) return *other;
    State& made = make_lasting<State>();
    if (the_state.compare_exchange_strong(other, &made)) return made;
  }
}

struct AtExit {
  ~AtExit() {
    State* const own = own_state();
    if (own == nullptr) return;
    try {
      own->write_out();
    } catch (const std::bad_alloc&) {  // there is no file
    }
  }
} at_exit;

}  // namespace

StatisticsEntry::StatisticsEntry(StatisticsEntry&& other) noexcept
    : entry_(std::exchange(other.entry_, nullptr)),
      id_(std::exchange(other.id_, 0)),
      origin_(other.origin_) {}

StatisticsEntry& StatisticsEntry::operator=(StatisticsEntry&& other) noexcept {
  if (this == &other) return *this;
  close();
  entry_ = std::exchange(other.entry_, nullptr);
  id_ = std::exchange(other.id_, 0);
  origin_ = other.origin_;
  return *this;
}

StatisticsEntry StatisticsEntry::open(Kind kind, std::string_view name, std::string_view detail,
                                      uint32_t parent) noexcept try {
  StatisticsEntry made;
  made.entry_ = make_state().add(kind, name, detail, parent, made.id_);
  return made;
} catch (const std::exception&) {  // no memory, or no lock
  return {};
}

void StatisticsEntry::describe(std::string_view detail) noexcept {
  if (entry_ == nullptr) return;
  const Change change(*entry_);
  put_text(entry_->detail, detail);
}

void StatisticsEntry::show(std::initializer_list<Shown> values) noexcept {
  if (entry_ == nullptr) return;
  uint64_t present = entry_->present.load(std::memory_order_relaxed);
  for (const Shown& one : values) {
    entry_->values[static_cast<size_t>(one.value)].store(one.number, std::memory_order_relaxed);
    present |= uint64_t{1} << static_cast<uint32_t>(one.value);
  }
  entry_->present.store(present,
                        std::memory_order_release);  // behind the numbers that it shows for the first time
}

void StatisticsEntry::close() noexcept {
  Entry* const entry = std::exchange(entry_, nullptr);
  id_ = 0;
  if (entry == nullptr || !origin_.is_here()) return;
  if (State* const own = own_state()) own->remove(*entry);
}

}  // namespace weft::os
