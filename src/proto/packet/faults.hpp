// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Faults: which packets of an endpoint are lost, duplicated, delayed, reordered or corrupted on purpose, for tests.
// Decides only; Observed<P> (observed.hpp) acts. Must not know clocks: a delay is counted in packets and polls.
//
// The decision for the n-th packet that an endpoint hands over depends on n, the seed and the rates, and on nothing
// else. A packet that the link refuses ("no room now") keeps its number for the next try.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace weft::proto {

// Rates are of 2^32; 2^32 itself is every packet.
struct FaultPlan {
  uint64_t loss = 0;
  uint64_t twice = 0;
  uint64_t late = 0;     // goes after 1 to late_max others
  uint64_t reorder = 0;  // goes right after the next one
  uint64_t corrupt = 0;  // one bit is inverted
  uint64_t mark = 0;     // by ECN: congestion experienced, where the link's packets are capable of it
  uint64_t seed = 1;

  static constexpr uint32_t late_max = 8;

  // "loss=1,twice=0.5,late=2,reorder=1,corrupt=0.1,mark=3,seed=7": rates in percent, 0 to 100, seed a number of 64
  // bits.
  // Refuses unknown keys and malformed values with a sentence.
  static Result<FaultPlan> parse(std::string_view text);
};

struct FaultDecision {
  bool lost = false;
  bool twice = false;
  uint32_t after = 0;  // so many other packets; 0: at once
  bool reordered = false;
  bool corrupt = false;
  bool marked = false;
  uint64_t bit = 0;  // to invert, modulo the packet's bits
};

struct FaultCounts {
  uint64_t packets = 0;  // decided
  uint64_t lost = 0;
  uint64_t twice = 0;
  uint64_t late = 0;
  uint64_t reordered = 0;
  uint64_t corrupted = 0;
  uint64_t marked = 0;
};

class Faults {
 public:
  explicit Faults(const FaultPlan& plan) noexcept : plan_(plan) {}

  // What happens to the next packet.
  FaultDecision next() const noexcept;
  // It was handed over so; the next one has the next number.
  void done(const FaultDecision& decision) noexcept;
  const FaultCounts& counts() const noexcept { return counts_; }
  // "faults: of 100 packets 1 lost, 2 twice, 0 late, 0 reordered, 0 corrupted; seed 7", with a plan that marks
  // "..., 0 corrupted, 5 marked; seed 7"
  std::string summary() const;

  // --- packets that are held back ---
  struct Held {
    std::vector<std::byte> to;
    std::vector<std::byte> bytes;
    uint32_t after;
  };
  bool holds() const noexcept { return !held_.empty(); }
  // False: no memory.
  bool hold(std::span<const std::byte> to, std::span<const std::byte> bytes, uint32_t after) noexcept;
  // One more packet or poll has passed: put(to, bytes) for each that is due.
  template <class Put>
  void release(Put&& put) noexcept {
    for (size_t i = 0; i < held_.size();) {
      if (--held_[i].after != 0) {
        ++i;
        continue;
      }
      put(held_[i].to, held_[i].bytes);
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  template <class Put>
  void release_all(Put&& put) noexcept {
    for (const Held& one : held_) put(one.to, one.bytes);
    held_.clear();
  }

 private:
  enum class Kind : uint64_t { Loss = 1, Twice, Late, Reorder, Corrupt, Delay, Bit, Mark };
  uint64_t random(Kind kind) const noexcept;
  bool hit(Kind kind, uint64_t rate) const noexcept { return random(kind) >> 32 < rate; }

  FaultPlan plan_;
  FaultCounts counts_;
  std::vector<Held> held_;  // at most late_max, for each packet counts against all
};

}  // namespace weft::proto
