// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A word that goes back and forth.
#include "line_transfer.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>

#include "failure.hpp"

namespace weft::tool {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds duration{2};
constexpr std::chrono::seconds timeout{1};
constexpr uint64_t over = UINT64_MAX;
constexpr uint64_t warm_rounds = 200;
constexpr unsigned looks_per_clock = 1024;

// False: `word` did not become `wanted`, or the end, in time.
template <class Wanted>
bool await(const std::atomic<uint64_t>& word, Wanted&& wanted) noexcept {
  const auto until = Clock::now() + timeout;
  for (unsigned looks = 1; !wanted(word.load(std::memory_order_acquire)); ++looks)
    if (looks % looks_per_clock == 0 && Clock::now() > until) return false;
  return true;
}

}  // namespace

// Each word alone in its line, and in the pair that a prefetcher takes.
struct LineTransfer::Page {
  alignas(256) std::atomic<uint64_t> ping{0};
  alignas(256) std::atomic<uint64_t> pong{0};
  alignas(256) std::atomic<uint64_t> round{0};  // the leader's: of time()
  alignas(256) std::atomic<uint64_t> joined{0};
};

LineTransfer::LineTransfer() {
  void* at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("no shared memory: {}", std::strerror(errno));
  page_ = new (at) Page;
}

LineTransfer::~LineTransfer() { ::munmap(page_, sizeof(Page)); }

double LineTransfer::time(bool leads) noexcept {
  auto& [ping, pong, round, joined] = *page_;
  if (!leads) {
    const uint64_t mine = joined.load(std::memory_order_relaxed) + 1;
    if (!await(round, [&](uint64_t at) { return at >= mine; })) return 0;
    uint64_t seen = 0;
    pong.store(0, std::memory_order_relaxed);
    joined.store(round.load(std::memory_order_relaxed), std::memory_order_release);
    while (await(ping, [&](uint64_t at) { return at > seen; })) {
      seen = ping.load(std::memory_order_acquire);
      if (seen == over) return 0;
      pong.store(seen, std::memory_order_release);
    }
    return 0;
  }
  const uint64_t mine = round.load(std::memory_order_relaxed) + 1;
  ping.store(0, std::memory_order_relaxed);
  round.store(mine, std::memory_order_release);
  bool answered = await(joined, [&](uint64_t at) { return at == mine; });
  uint64_t at = 0;
  auto begin = Clock::now();
  const auto until = begin + duration;
  while (answered) {
    ping.store(++at, std::memory_order_release);
    answered = await(pong, [&](uint64_t there) { return there == at; });
    if (at == warm_rounds) begin = Clock::now();
    if (at % warm_rounds == 0 && at > warm_rounds && Clock::now() > until) break;
  }
  const auto took = Clock::now() - begin;
  ping.store(over, std::memory_order_release);
  if (!answered) return 0;
  return std::chrono::duration<double, std::nano>(took).count() / static_cast<double>(at - warm_rounds) / 2;
}

std::string_view placement_of(double before_ns, double after_ns) noexcept {
  const auto class_of = [](double ns) -> std::string_view {
    if (ns <= 0) return "unknown";
    return ns < near_ns_max ? "near" : ns < far_ns_min ? "between" : ns < busy_ns_min ? "far" : "busy";
  };
  const std::string_view before = class_of(before_ns);
  if (before == "unknown" || after_ns <= 0) return "unknown";
  const std::string_view after = class_of(after_ns);
  if (before == "busy" || after == "busy") return "busy";
  return before == after ? before : "moved";
}

}  // namespace weft::tool
