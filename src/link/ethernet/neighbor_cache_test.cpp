// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Neighbours: questions and their times, whom to believe, ageing, bounds.
#include "link/ethernet/neighbor_cache.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace weft::link::ethernet {
namespace {

constexpr uint64_t ms = NeighborCache::ms;
using State = NeighborEntry::State;

Host host(unsigned number) {
  Host out{};
  out[10] = out[11] = std::byte{0xff};
  out[12] = std::byte{10};
  out[14] = static_cast<std::byte>(number >> 8);
  out[15] = static_cast<std::byte>(number);
  return out;
}
wire::Mac mac(unsigned number) { return {std::byte{2}, {}, {}, {}, {}, static_cast<std::byte>(number)}; }

struct Asked {
  std::vector<uint64_t> times;
  std::vector<bool> directly;
  unsigned gone = 0;
};
// Runs the timers ms by ms.
Asked run(NeighborCache& cache, uint64_t from, uint64_t to) {
  Asked asked;
  for (uint64_t now = from; now < to; now += ms)
    cache.tick(
        now,
        [&](const NeighborEntry&, bool directly) {
          asked.times.push_back((now - from) / ms);
          asked.directly.push_back(directly);
        },
        [&](const NeighborEntry&) { ++asked.gone; });
  return asked;
}

TEST(NeighborCache, AsksEverMoreSeldomAndGivesUp) {
  NeighborCache cache;
  ASSERT_EQ(cache.use(host(1), ms)->state, State::Asking);
  EXPECT_TRUE(cache.is_asking());
  const Asked asked = run(cache, ms, 20'000 * ms);
  EXPECT_EQ(asked.times, (std::vector<uint64_t>{0, 100, 300, 700, 1500}));
  EXPECT_EQ(asked.gone, 1u);
  EXPECT_EQ(cache.find(host(1))->state, State::Failed);
  EXPECT_FALSE(cache.is_asking());
}

TEST(NeighborCache, DoesNotAskAnewAtOnce) {
  NeighborCache cache;
  (void)cache.use(host(1), ms);
  (void)run(cache, ms, 2'600 * ms);
  EXPECT_EQ(cache.use(host(1), 2'700 * ms)->state, State::Failed);
  EXPECT_EQ(cache.use(host(1), 4'000 * ms)->state, State::Asking);
  EXPECT_EQ(run(cache, 4'000 * ms, 4'010 * ms).times.size(), 1u);
}

TEST(NeighborCache, AnAnswerEndsTheQuestions) {
  NeighborCache cache;
  (void)cache.use(host(1), ms);
  (void)run(cache, ms, 2 * ms);
  cache.answered(host(1), mac(1), true, 2 * ms);
  EXPECT_TRUE(cache.find(host(1))->is_known());
  EXPECT_EQ(cache.find(host(1))->mac, mac(1));
  EXPECT_TRUE(run(cache, 3 * ms, 5'000 * ms).times.empty());
}

TEST(NeighborCache, NobodyAnswersUnasked) {
  NeighborCache cache;
  cache.answered(host(1), mac(1), true, ms);
  EXPECT_EQ(cache.find(host(1)), nullptr);
  cache.heard(host(1), mac(1), false, ms);
  EXPECT_EQ(cache.find(host(1)), nullptr);
}

TEST(NeighborCache, AnAnswerToNoQuestionIsVerifiedWhenItIsUsed) {
  for (const bool is_failed : {false, true}) {
    NeighborCache cache;
    (void)cache.use(host(1), ms);
    const uint64_t now = is_failed ? 3'000 * ms : 10 * ms;
    (void)run(cache, ms, now);
    if (!is_failed) cache.answered(host(1), mac(1), true, now);
    cache.answered(host(1), mac(2), true, now);
    EXPECT_EQ(cache.find(host(1))->mac, mac(2));
    EXPECT_TRUE(cache.use(host(1), now + ms)->is_known());
    EXPECT_EQ(run(cache, now + ms, now + 2 * ms).directly, std::vector<bool>{true});
  }
}

TEST(NeighborCache, AnOldNeighbourIsAskedDirectlyWhileItIsUsed) {
  NeighborCache cache;
  (void)cache.use(host(1), ms);
  cache.answered(host(1), mac(1), true, ms);
  const uint64_t old = ms + NeighborCache::fresh_ns;
  EXPECT_TRUE(cache.use(host(1), old)->is_known());
  const Asked asked = run(cache, old, old + 20'000 * ms);
  ASSERT_EQ(asked.directly.size(), NeighborCache::probes_max + NeighborCache::asks_max);
  for (unsigned i = 0; i < asked.directly.size(); ++i)
    EXPECT_EQ(asked.directly[i], i < NeighborCache::probes_max) << i;
  EXPECT_EQ(asked.gone, 1u);
}

TEST(NeighborCache, OneThatAnswersAProbeIsFresh) {
  NeighborCache cache;
  (void)cache.use(host(1), ms);
  cache.answered(host(1), mac(1), true, ms);
  const uint64_t old = ms + NeighborCache::fresh_ns;
  (void)cache.use(host(1), old);
  EXPECT_EQ(run(cache, old, old + ms).times.size(), 1u);
  cache.answered(host(1), mac(1), false, old + ms);
  (void)cache.use(host(1), old + 2 * ms);
  EXPECT_TRUE(run(cache, old + 2 * ms, old + 1'000 * ms).times.empty());
}

TEST(NeighborCache, AnAdvertisementWithoutOverrideKeepsTheKnownMac) {
  NeighborCache cache;
  (void)cache.use(host(1), ms);
  cache.answered(host(1), mac(1), true, ms);
  cache.answered(host(1), mac(2), false, ms);
  EXPECT_EQ(cache.find(host(1))->mac, mac(1));
  cache.answered(host(1), mac(2), true, ms);
  EXPECT_EQ(cache.find(host(1))->mac, mac(2));
}

TEST(NeighborCache, WhatANeighbourSaidOfItselfIsVerifiedWhenItIsUsed) {
  NeighborCache cache;
  cache.heard(host(1), mac(1), true, ms);
  EXPECT_TRUE(run(cache, ms, 100 * ms).times.empty());
  EXPECT_TRUE(cache.use(host(1), 100 * ms)->is_known());
  const Asked asked = run(cache, 100 * ms, 101 * ms);
  ASSERT_EQ(asked.directly.size(), 1u);
  EXPECT_TRUE(asked.directly[0]);
}

TEST(NeighborCache, StrangersTakeNoPlaceFromThoseThatAreUsed) {
  NeighborCache cache;
  constexpr unsigned used = 64;
  unsigned placed = 0;
  for (unsigned i = 0; i < used; ++i)
    if (cache.use(host(i), ms) != nullptr) {
      cache.answered(host(i), mac(i), true, ms);
      ++placed;
    }
  for (unsigned i = 1000; i < 60'000; ++i) cache.heard(host(i), mac(i), true, 2 * ms);
  unsigned there = 0;
  for (unsigned i = 0; i < used; ++i) there += cache.find(host(i)) != nullptr;
  EXPECT_EQ(there, placed);
}

TEST(NeighborCache, TheOneThatWasUsedLongestAgoGivesWay) {
  NeighborCache cache;
  for (unsigned i = 0; i < 10'000; ++i) {
    if (cache.use(host(i), (i + 1) * ms) != nullptr) cache.answered(host(i), mac(i), true, (i + 1) * ms);
  }
  EXPECT_NE(cache.find(host(9'999)), nullptr);
  EXPECT_EQ(cache.find(host(0)), nullptr);
}

TEST(NeighborCache, FullOfHostsThatAreBeingAskedItHasNoRoom) {
  NeighborCache cache;
  unsigned refused = 0;
  for (unsigned i = 0; i < 1'000; ++i) refused += cache.use(host(i), ms) == nullptr;
  EXPECT_GE(refused, 1'000u - NeighborCache::sets * NeighborCache::ways);
}

}  // namespace
}  // namespace weft::link::ethernet
