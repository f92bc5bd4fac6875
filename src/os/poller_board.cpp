// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A word for each CPU: who polled there last, and when.
#include "os/poller_board.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>

#include "base/lasting.hpp"
#include "os/event.hpp"
#include "os/origin.hpp"
#include "os/poll_set.hpp"
#include "os/published_memory.hpp"

namespace weft::os {
namespace {

constexpr unsigned cpus_max = 1024;  // more of them share words
constexpr uint64_t valid_us = 50'000;
constexpr uint64_t repeat_us = 1'000;
constexpr uint64_t time_mask = (uint64_t{1} << 48) - 1;
// A process that may have fewer descriptors needs them for its peers.
constexpr rlim_t descriptors_min = 256;

struct Board {
  struct alignas(64) Word {
    std::atomic<uint64_t>
        last;  // [0..15] the thread's mark, never 0; [16..63] microseconds of the monotonic clock
  };
  std::array<Word, cpus_max> cpus;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

std::atomic<Board*> board{nullptr};
std::atomic<bool> was_tried{false};

// Tells threads apart, also after fork(2).
uint64_t mark_of_this_thread() noexcept {
  struct Mark {
    Origin origin;
    uint64_t value = random_bits() % 0xffff + 1;
  };
  static thread_local Mark mark;
  if (!mark.origin.is_here()) mark = Mark{};
  return mark.value;
}

// The other thread may have read the clock after us.
bool is_older(uint64_t now_us, uint64_t then_us, uint64_t us) noexcept {
  return ((now_us - then_us + us) & time_mask) > 2 * us;
}

}  // namespace

bool PollerWatch::others_poll_here(uint64_t now_ns) noexcept {
  Board* const shared = board.load(std::memory_order_acquire);
  if (shared == nullptr) return false;
  const unsigned cpu = current_cpu();
  if (cpu != cpu_) other_us_ = 0;
  cpu_ = cpu;
  const uint64_t now_us = (now_ns / 1000) & time_mask;
  const uint64_t mine = mark_of_this_thread();
  std::atomic<uint64_t>& word = shared->cpus[cpu % cpus_max].last;
  const uint64_t last = word.load(std::memory_order_relaxed);
  const bool is_mine = (last & 0xffff) == mine;
  if (!is_mine && last != 0) other_us_ = std::max<uint64_t>(last >> 16, 1);
  if (!is_mine || is_older(now_us, last >> 16, repeat_us))
    word.store(now_us << 16 | mine, std::memory_order_relaxed);
  return other_us_ != 0 && !is_older(now_us, other_us_, valid_us);
}

bool PollerWatch::another_polled() noexcept {
  Board* const shared = board.load(std::memory_order_acquire);
  if (shared != nullptr && cpu_ != ~0u && cpu_ == current_cpu()) {
    const uint64_t last = shared->cpus[cpu_ % cpus_max].last.load(std::memory_order_relaxed);
    if (last != 0 && (last & 0xffff) != mark_of_this_thread()) return true;
  }
  other_us_ = 0;
  return false;
}

void PollerWatch::join() noexcept {
  if (was_tried.exchange(true, std::memory_order_relaxed)) return;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < descriptors_min) return;
  try {
    auto joined = PublishedMemory::join("weft-pollers", "weft-pollers-1", sizeof(Board));
    if (!joined || !have_pages(joined->mapping(), sizeof(Board)))
      return;  // a store without memory would be SIGBUS
    const PublishedMemory& kept = make_lasting<PublishedMemory>(std::move(*joined));
    board.store(kept.mapping().as<Board>(), std::memory_order_release);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace weft::os
