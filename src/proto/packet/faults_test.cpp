// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Plans of faults: what is refused, that seeds repeat, that rates are kept; and what Observed does with them.
#include "proto/packet/faults.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/packet/observed.hpp"

namespace weft::proto {
namespace {

using Bytes = std::span<const std::byte>;
Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

FaultPlan plan_of(std::string_view text) {
  const auto plan = FaultPlan::parse(text);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().why);
  return plan ? *plan : FaultPlan();
}

TEST(FaultPlan, ReadsRatesAndASeedOf64Bits) {
  const FaultPlan plan = plan_of("loss=1,twice=0.5,late=2,reorder=100,corrupt=0,seed=18446744073709551615");
  EXPECT_EQ(plan.loss, (uint64_t{1} << 32) / 100);
  EXPECT_EQ(plan.twice, (uint64_t{1} << 32) / 200);
  EXPECT_EQ(plan.late, (uint64_t{1} << 32) / 50);
  EXPECT_EQ(plan.reorder, uint64_t{1} << 32);
  EXPECT_EQ(plan.corrupt, 0u);
  EXPECT_EQ(plan.seed, UINT64_MAX);
  EXPECT_EQ(plan_of("").seed, 1u);
}

TEST(FaultPlan, RefusesWhatItDoesNotKnow) {
  for (const char* wrong :
       {"lose=1", "loss", "loss=", "loss=x", "loss=1x", "loss=-1", "loss=101", "loss=nan", "loss=1;late=2",
        "seed=1.5", "seed=-1", "seed=", "seed=18446744073709551616", ",", "loss=1,,late=1", "=1", "LOSS=1"}) {
    const auto plan = FaultPlan::parse(wrong);
    ASSERT_FALSE(plan) << wrong;
    EXPECT_EQ(plan.error().code, EINVAL);
    EXPECT_TRUE(plan.error().why.starts_with(wrong)) << plan.error().why;
  }
  EXPECT_EQ(FaultPlan::parse("lose=1").error().why,
            "lose=1: \"lose\" is no fault; there are loss, twice, late, reorder, corrupt, mark and seed");
  EXPECT_EQ(FaultPlan::parse("loss=5%").error().why,
            "loss=5%: loss takes a percentage from 0 to 100, not \"5%\"");
}

std::string decisions(const FaultPlan& plan, int count) {
  Faults faults(plan);
  std::string all;
  for (int i = 0; i < count; ++i) {
    const FaultDecision d = faults.next();
    faults.done(d);
    all += d.lost ? 'L' : d.reordered ? 'R' : d.after != 0 ? static_cast<char>('0' + d.after) : '.';
    if (d.twice) all += 'T';
    if (d.corrupt) all += "C" + std::to_string(d.bit % 1000);
  }
  return all;
}

TEST(Faults, TheSameSeedDecidesTheSame) {
  const char* rates = "loss=10,twice=10,late=10,reorder=10,corrupt=10,seed=";
  std::set<std::string> all;
  for (const char* seed : {"0", "1", "2", "3", "4294967297", "18446744073709551615"}) {
    const FaultPlan plan = plan_of(std::string(rates) + seed);
    const std::string once = decisions(plan, 200);
    EXPECT_EQ(once, decisions(plan, 200));
    all.insert(once);
  }
  EXPECT_EQ(all.size(), 6u);
}

TEST(Faults, TheRateOfOneFaultDoesNotMoveAnother) {
  const std::string few = decisions(plan_of("loss=5,seed=9"), 1000);
  const std::string more = decisions(plan_of("loss=5,reorder=5,seed=9"), 1000);
  for (size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i] == 'L', more[i] == 'L') << i;
}

TEST(Faults, RatesAreKept) {
  for (const char* seed : {"0", "1", "77"}) {
    Faults faults(plan_of(std::string("loss=5,twice=2,late=1,reorder=3,corrupt=0.5,seed=") + seed));
    constexpr int packets = 200'000;
    for (int i = 0; i < packets; ++i) faults.done(faults.next());
    const FaultCounts& counts = faults.counts();
    const auto near = [](uint64_t count, double percent) {
      EXPECT_NEAR(static_cast<double>(count), packets * percent / 100, packets * percent / 100 * 0.15);
    };
    near(counts.lost, 5);
    near(counts.twice, 2 * 0.95);  // what is lost does not come twice
    near(counts.late, 1 * 0.95);
    near(counts.reordered, 3 * 0.95);
    near(counts.corrupted, 0.5 * 0.95);
    EXPECT_EQ(counts.packets, uint64_t{packets});
  }
}

TEST(Faults, NoneAndAll) {
  Faults none(plan_of("seed=5"));
  Faults all(plan_of("loss=100,seed=5"));
  for (int i = 0; i < 10'000; ++i) {
    none.done(none.next());
    all.done(all.next());
  }
  EXPECT_EQ(none.counts().lost + none.counts().twice + none.counts().late + none.counts().corrupted, 0u);
  EXPECT_EQ(all.counts().lost, 10'000u);
  EXPECT_EQ(all.summary(),
            "faults: of 10000 packets 10000 lost, 0 twice, 0 late, 0 reordered, 0 corrupted; seed 5");
}

// --- over a link ---

struct Wire {
  static constexpr size_t address_length = 8;
  static constexpr size_t segments_max = 64;
  static Result<void> open(Bytes) { return {}; }
  static void close() noexcept {}
  static Bytes address() noexcept { return bytes_of("me"); }
  static size_t packet_bytes_max(Bytes) noexcept { return 1000; }
  bool send(Bytes to, const iovec* parts, size_t count) noexcept {
    if (full) return false;
    std::string packet;
    for (size_t i = 0; i < count; ++i)
      packet.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    went.push_back(text_of(to) + ":" + packet);
    return true;
  }
  bool send_segmented(Bytes to, const iovec* parts, size_t count, size_t bytes) noexcept {
    ++batches;
    const iovec whole = parts[0];
    for (size_t at = 0; at < whole.iov_len && count == 1; at += bytes) {
      const iovec part{static_cast<char*>(whole.iov_base) + at, std::min(bytes, whole.iov_len - at)};
      if (!send(to, &part, 1)) return at != 0;
    }
    return true;
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    for (const std::string& packet : arriving)
      handler.on_packet({bytes_of("you"), address(), bytes_of(packet)});
    return static_cast<int>(std::exchange(arriving, {}).size());
  }
  static int wait_fd() noexcept { return 0; }
  static bool arm() noexcept { return true; }
  static void disarm() noexcept {}
  bool full = false;
  int batches = 0;
  std::vector<std::string> went;
  std::vector<std::string> arriving;
};
static_assert(PacketLink<Observed<Wire>> && HasSegmentationOffload<Observed<Wire>> &&
              HasSleep<Observed<Wire>> && !HasSendStatus<Observed<Wire>> && !HasBatches<Observed<Wire>> &&
              !HasZeroCopySend<Observed<Wire>>);

struct Taken {
  std::vector<std::string> packets;
  void on_packet(const ReceivedPacket& packet) noexcept { packets.push_back(text_of(packet.bytes)); }
};

struct ObservedLink : testing::Test {
  void observe(std::string_view plan, bool checked = false) {
    auto made = std::make_unique<PacketObserver>();
    made->faults.emplace(plan_of(plan));
    made->is_checked = checked;
    made->note = [](const void* self, const char* what) {
      static_cast<ObservedLink*>(const_cast<void*>(self))->notes.emplace_back(what);
    };
    made->noted = this;
    link.observe(std::move(made));
  }
  bool send(const std::string& text) {
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return link.send(bytes_of("to"), &part, 1);
  }
  std::vector<std::string> notes;
  Observed<Wire> link;
};

TEST_F(ObservedLink, WithoutAnObserverIsTheLink) {
  EXPECT_TRUE(send("a"));
  EXPECT_EQ(link.went, (std::vector<std::string>{"to:a"}));
  EXPECT_EQ(link.observer(), nullptr);
  EXPECT_TRUE(link.arm());
}

TEST_F(ObservedLink, LosesAndDoubles) {
  observe("loss=100");
  EXPECT_TRUE(send("a"));
  EXPECT_TRUE(link.went.empty());
  observe("twice=100");
  EXPECT_TRUE(send("b"));
  EXPECT_EQ(link.went, (std::vector<std::string>{"to:b", "to:b"}));
  EXPECT_EQ(link.observer()->statistics().sent, 2u);
  EXPECT_EQ(link.observer()->faults->counts().twice, 1u);
  link.close();
  EXPECT_EQ(notes, (std::vector<std::string>{
                       "faults: of 1 packets 0 lost, 1 twice, 0 late, 0 reordered, 0 corrupted; seed 1"}));
}

TEST_F(ObservedLink, ReordersWithTheNextPacket) {
  observe("reorder=50,seed=3");
  std::string sent, came;
  for (char c = 'a'; c <= 'z'; ++c) {
    EXPECT_TRUE(send(std::string(1, c)));
    sent += c;
  }
  EXPECT_GT(link.observer()->faults->counts().reordered, 3u);
  Taken taken;
  for (int i = 0; i < 2; ++i) (void)link.poll(taken);
  for (const std::string& packet : link.went) came += packet.back();
  EXPECT_NE(came, sent);
  for (size_t i = 0; i < came.size(); ++i) EXPECT_LE(std::abs(came[i] - sent[i]), 1) << came;
  std::ranges::sort(came);
  EXPECT_EQ(came, sent);
}

TEST_F(ObservedLink, LatePacketsGoAtPollsAndKeepTheOwnerAwake) {
  observe("late=100");
  EXPECT_TRUE(send("a"));
  EXPECT_TRUE(link.went.empty());
  EXPECT_FALSE(link.arm());
  Taken taken;
  for (uint32_t i = 0; i < FaultPlan::late_max; ++i) (void)link.poll(taken);
  EXPECT_EQ(link.went, (std::vector<std::string>{"to:a"}));
  EXPECT_TRUE(link.arm());
  EXPECT_TRUE(send("b"));
  link.close();
  EXPECT_EQ(link.went.size(), 2u);
}

TEST_F(ObservedLink, CorruptsOneBitOrLosesBelowAChecksum) {
  const std::string text(100, '\0');
  observe("corrupt=100");
  EXPECT_TRUE(send(text));
  ASSERT_EQ(link.went.size(), 1u);
  int bits = 0;
  for (const char c : link.went[0].substr(3)) bits += __builtin_popcount(static_cast<unsigned char>(c));
  EXPECT_EQ(bits, 1);
  observe("corrupt=100", true);
  EXPECT_TRUE(send(text));
  EXPECT_EQ(link.went.size(), 1u);
  EXPECT_EQ(link.observer()->faults->counts().corrupted, 1u);
}

TEST_F(ObservedLink, ARefusedPacketKeepsItsNumber) {
  observe("loss=50,seed=4");
  link.full = true;
  Faults expected(plan_of("loss=50,seed=4"));
  while (expected.next().lost) {
    EXPECT_TRUE(send("x"));
    expected.done(expected.next());
  }
  EXPECT_FALSE(send("x"));
  EXPECT_FALSE(send("x"));
  EXPECT_EQ(link.observer()->faults->counts().packets, expected.counts().packets);
  EXPECT_EQ(link.observer()->statistics().refused, 2u);
}

TEST_F(ObservedLink, SegmentsHaveFaultsOneByOne) {
  std::string text;
  for (char c = 'a'; c <= 'z'; ++c) text += c;
  const iovec part{text.data(), text.size()};
  link.observe(std::make_unique<PacketObserver>());
  EXPECT_TRUE(link.send_segmented(bytes_of("to"), &part, 1, 3));
  EXPECT_EQ(link.batches, 1);  // nothing to do but count
  EXPECT_EQ(link.observer()->statistics().sent, 9u);
  EXPECT_EQ(link.observer()->statistics().sent_bytes, 26u);
  link.went.clear();
  observe("loss=40,seed=2");
  EXPECT_TRUE(link.send_segmented(bytes_of("to"), &part, 1, 3));
  const uint64_t lost = link.observer()->faults->counts().lost;
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(link.went.size(), 9u - lost);
  link.full = true;
  observe("seed=2");
  EXPECT_FALSE(link.send_segmented(bytes_of("to"), &part, 1, 3));
}

TEST_F(ObservedLink, CountsAndPassesOnWhatArrives) {
  link.observe(std::make_unique<PacketObserver>());
  link.arriving = {"one", "three"};
  Taken taken;
  EXPECT_EQ(link.poll(taken), 2);
  EXPECT_EQ(taken.packets, (std::vector<std::string>{"one", "three"}));
  EXPECT_EQ(link.observer()->statistics().received, 2u);
  EXPECT_EQ(link.observer()->statistics().received_bytes, 8u);
}

}  // namespace
}  // namespace weft::proto
