// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reading a plan, deciding.
#include "proto/packet/faults.hpp"

#include <cerrno>
#include <charconv>
#include <new>

#include "base/hash.hpp"

namespace weft::proto {
namespace {

constexpr uint64_t every = uint64_t{1} << 32;

bool parse_rate(std::string_view text, uint64_t& rate) noexcept {
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (error != std::errc() || end != text.data() + text.size() || !(percent >= 0 && percent <= 100))
    return false;
  rate = static_cast<uint64_t>(percent / 100 * static_cast<double>(every));
  return true;
}

bool parse_seed(std::string_view text, uint64_t& seed) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<FaultPlan> FaultPlan::parse(std::string_view text) {
  FaultPlan plan;
  const std::string whole(text);
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    uint64_t* rate = key == "loss"      ? &plan.loss
                     : key == "twice"   ? &plan.twice
                     : key == "late"    ? &plan.late
                     : key == "reorder" ? &plan.reorder
                     : key == "corrupt" ? &plan.corrupt
                     : key == "mark"    ? &plan.mark
                                        : nullptr;
    if (key == "seed") {
      if (!parse_seed(value, plan.seed))
        return Error{EINVAL, whole + ": seed takes a whole number from 0 to 18446744073709551615, not \"" +
                                 std::string(value) + '"'};
    } else if (rate == nullptr) {
      return Error{EINVAL,
                   whole + ": \"" + std::string(key) +
                       "\" is no fault; there are loss, twice, late, reorder, corrupt, mark and seed"};
    } else if (!parse_rate(value, *rate)) {
      return Error{EINVAL, whole + ": " + std::string(key) + " takes a percentage from 0 to 100, not \"" +
                               std::string(value) + '"'};
    }
  }
  return plan;
}

uint64_t Faults::random(Kind kind) const noexcept {
  const uint64_t mixed = hash_pair(counts_.packets + 1, static_cast<uint64_t>(kind), plan_.seed);
  return hash_word(mixed + hash_factor_a, hash_factor_b);
}

FaultDecision Faults::next() const noexcept {
  FaultDecision decision;
  decision.lost = hit(Kind::Loss, plan_.loss);
  if (decision.lost) return decision;
  decision.twice = hit(Kind::Twice, plan_.twice);
  decision.corrupt = hit(Kind::Corrupt, plan_.corrupt);
  if (decision.corrupt) decision.bit = random(Kind::Bit) >> 8;
  if (hit(Kind::Late, plan_.late)) {
    decision.after = 1 + static_cast<uint32_t>((random(Kind::Delay) >> 32) % FaultPlan::late_max);
  } else if (hit(Kind::Reorder, plan_.reorder)) {
    decision.after = 1;
    decision.reordered = true;
  }
  decision.marked = decision.after == 0 && hit(Kind::Mark, plan_.mark);
  return decision;
}

void Faults::done(const FaultDecision& decision) noexcept {
  ++counts_.packets;
  if (decision.lost) ++counts_.lost;
  if (decision.twice) ++counts_.twice;
  if (decision.reordered) ++counts_.reordered;
  else if (decision.after != 0) ++counts_.late;
  if (decision.corrupt) ++counts_.corrupted;
  if (decision.marked) ++counts_.marked;
}

bool Faults::hold(std::span<const std::byte> to, std::span<const std::byte> bytes, uint32_t after) noexcept
    try {
  // The packet that is held back counts itself, since release() follows.
  held_.push_back({{to.begin(), to.end()}, {bytes.begin(), bytes.end()}, after + 1});
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

std::string Faults::summary() const {
  const auto part = [](uint64_t count, const char* what) { return std::to_string(count) + what; };
  return "faults: of " + part(counts_.packets, " packets ") + part(counts_.lost, " lost, ") +
         part(counts_.twice, " twice, ") + part(counts_.late, " late, ") +
         part(counts_.reordered, " reordered, ") + part(counts_.corrupted, " corrupted") +
         (plan_.mark == 0 ? std::string() : ", " + part(counts_.marked, " marked")) + "; seed " +
         std::to_string(plan_.seed);
}

}  // namespace weft::proto
