// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What matching costs per message, beside the least that a queue of any kind costs (a list push and pop, a
// pool take and give). Figures compare within one run only.
// NOLINTBEGIN(clang-analyzer-deadcode.DeadStores): `for (auto _ : state)` is how this library counts
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "base/list.hpp"
#include "base/pool.hpp"
#include "core/matching.hpp"

namespace {

using weft::List;
using weft::Pool;
using weft::core::any_source;
using weft::core::MsgMatcher;
using weft::core::PostedBase;
using weft::core::PostedHook;
using weft::core::TagMatcher;
using weft::core::UnexpectedBase;

// As large as the engine's receive, so that cache use is like the real one.
struct Receive : PostedBase {
  void* fields[10] = {};
};
struct Message : UnexpectedBase {
  void* fields[8] = {};
};

constexpr size_t window = 64;

void per_item(benchmark::State& state, size_t items) { state.SetItemsProcessed(state.iterations() * items); }

void list_push_pop(benchmark::State& state) {
  Pool<Receive> pool(1024);
  List<Receive, PostedHook> list;
  for (auto _ : state) {
    for (size_t i = 0; i < window; ++i) {
      Receive* receive = pool.acquire();
      receive->tag = i;
      list.push_back(*receive);
    }
    for (size_t i = 0; i < window; ++i) {
      Receive* receive = list.pop_front();
      benchmark::DoNotOptimize(receive->tag);
      pool.release(receive);
    }
  }
  per_item(state, window);
}
BENCHMARK(list_push_pop);

// A window of receives is posted, then as many messages arrive. Tags repeat after `tags`, sources after
// `sources` (0: any source); both are powers of two, so that no division is measured.
void post_and_match(benchmark::State& state, size_t posted, uint64_t tags, uint64_t sources) {
  const auto tag_of = [=](size_t i) { return i & (tags - 1); };
  const auto source_of = [=](size_t i, uint64_t otherwise) {
    return sources == 0 ? otherwise : i & (sources - 1);
  };
  Pool<Receive> pool(posted);
  TagMatcher matcher;
  for (auto _ : state) {
    for (size_t i = 0; i < posted; ++i) {
      Receive* receive = pool.acquire();
      receive->tag = tag_of(i);
      receive->ignore = 0;
      receive->source = source_of(i, any_source);
      if (matcher.match_posted(receive->tag, 0, receive->source) != nullptr)
        state.SkipWithError("unexpected");
      matcher.post(*receive);
    }
    for (size_t i = 0; i < posted; ++i) {
      auto* receive = static_cast<Receive*>(matcher.match_arrival(tag_of(i), source_of(i, 7)));
      if (receive == nullptr) {
        state.SkipWithError("no match");
        return;
      }
      benchmark::DoNotOptimize(receive->order);
      pool.release(receive);
    }
  }
  per_item(state, posted);
}
BENCHMARK_CAPTURE(post_and_match, one_tag, window, 1, 0);
BENCHMARK_CAPTURE(post_and_match, tag_each, window, window, 0);
BENCHMARK_CAPTURE(post_and_match, one_tag_one_source, window, 1, 1);
BENCHMARK_CAPTURE(post_and_match, one_tag_source_each, window, 1, window);
BENCHMARK_CAPTURE(post_and_match, many_tags, 1 << 17, 1 << 17, 0);
BENCHMARK_CAPTURE(post_and_match, many_of_one_tag, 1 << 17, 1, 0);

// One receive outstanding, as in a ping-pong.
void post_and_match_single(benchmark::State& state) {
  Pool<Receive> pool(16);
  TagMatcher matcher;
  uint64_t tag = 0;
  for (auto _ : state) {
    Receive* receive = pool.acquire();
    receive->tag = ++tag & 255;
    receive->ignore = 0;
    receive->source = any_source;
    benchmark::DoNotOptimize(matcher.match_posted(receive->tag, 0, any_source));
    matcher.post(*receive);
    auto* matched = static_cast<Receive*>(matcher.match_arrival(tag & 255, 7));
    benchmark::DoNotOptimize(matched);
    pool.release(matched);
  }
  per_item(state, 1);
}
BENCHMARK(post_and_match_single);

// Exact receives while some receives with ignore bits wait that never match.
void post_and_match_beside_masked(benchmark::State& state) {
  TagMatcher matcher;
  std::vector<Receive> masked(static_cast<size_t>(state.range(0)));
  std::vector<Receive> receives(window);
  for (auto _ : state) {
    for (size_t i = 0; i < window; ++i) {
      receives[i].tag = i;
      matcher.post(receives[i]);
    }
    for (Receive& receive : masked) {
      receive.tag = 1u << 20;
      receive.ignore = 0xff;
      matcher.post(receive);
    }
    for (size_t i = 0; i < window; ++i) benchmark::DoNotOptimize(matcher.match_arrival(i, 7));
    for (Receive& receive : masked) matcher.remove(receive);
  }
  per_item(state, window);
}
BENCHMARK(post_and_match_beside_masked)->Arg(1)->Arg(8);

void unexpected_then_receive(benchmark::State& state, size_t arrived, uint64_t tags, uint64_t sources) {
  TagMatcher matcher;
  std::vector<Message> messages(arrived);
  for (auto _ : state) {
    for (size_t i = 0; i < arrived; ++i) {
      messages[i].tag = i & (tags - 1);
      messages[i].source = i & (sources - 1);
      matcher.add_unexpected(messages[i]);
    }
    for (size_t i = 0; i < arrived; ++i)
      benchmark::DoNotOptimize(matcher.match_posted(i & (tags - 1), 0, i & (sources - 1)));
    if (!matcher.empty()) state.SkipWithError("left over");
  }
  per_item(state, arrived);
}
BENCHMARK_CAPTURE(unexpected_then_receive, one_tag, window, 1, 1);
BENCHMARK_CAPTURE(unexpected_then_receive, tag_each, window, window, 1);
BENCHMARK_CAPTURE(unexpected_then_receive, one_tag_source_each, window, 1, window);
BENCHMARK_CAPTURE(unexpected_then_receive, many_tags, 1 << 17, 1 << 17, 1);

void untagged(benchmark::State& state) {
  Pool<Receive> pool(window);
  MsgMatcher matcher;
  for (auto _ : state) {
    for (size_t i = 0; i < window; ++i) {
      Receive* receive = pool.acquire();
      receive->source = any_source;
      benchmark::DoNotOptimize(matcher.match_posted(any_source));
      matcher.post(*receive);
    }
    for (size_t i = 0; i < window; ++i) {
      auto* receive = static_cast<Receive*>(matcher.match_arrival(7));
      benchmark::DoNotOptimize(receive);
      pool.release(receive);
    }
  }
  per_item(state, window);
}
BENCHMARK(untagged);

}  // namespace

BENCHMARK_MAIN();
// NOLINTEND(clang-analyzer-deadcode.DeadStores)
