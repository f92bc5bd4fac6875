// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Each algorithm under both protocols that retransmit: in the simulators' bad worlds, where every byte arrives whatever it does, and before a narrow
// place, where it fills the path and leaves its queue short. Two of them (sim_cubic.hpp, sim_delivery_rate.hpp) exist for this test.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "proto/congestion/dcqcn.hpp"
#include "proto/congestion/delay_window.hpp"
#include "proto/congestion/sim_cubic.hpp"
#include "proto/congestion/sim_delivery_rate.hpp"
#include "proto/reliable/sim_world.hpp"
#include "proto/roce/sim_bottleneck.hpp"
#include "proto/roce/sim_program.hpp"

namespace weft::proto::congestion {
namespace {

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000'000;
constexpr uint64_t seeds = 60;

// A path without losses but for its narrowest place, which has room for 300 packets.
reliable::sim::Conditions narrow(uint64_t packet_ns) {
  reliable::sim::Conditions rules;
  rules.delay_ns = 200 * us;
  rules.poll_ns = 2 * us;
  rules.packet_ns = packet_ns;
  rules.room = 300;
  return rules;
}

struct Case {
  const char* name;
  Make algorithm;
  bool (*has_acted)(const Controller& controller);
  // Before a narrow place: the mean of the packets that wait there.
  double stream_from, stream_to;  // without marks
  double pair_from, pair_to;
  uint64_t stream_ns;  // of a stream, at most; 29 ms, were the path full all the time
};

bool is_limited(const Controller& controller) {
  return !controller.is_idle() && controller.window() != no_limit;
}
bool has_cut(const Controller& controller) { return static_cast<const sim::Cubic&>(controller).cuts() > 0; }
bool is_paced(const Controller& controller) { return controller.is_paced(); }
bool is_slower(const Controller& controller) { return controller.is_paced() || !controller.is_idle(); }

constexpr Case cases[] = {{"DelayWindow", make<DelayWindow>, is_limited, 10, 60, 25, 60, 50 * ms},
                          // Hears of congestion by CNPs alone, and of losses behind the first one.
                          {"Dcqcn", make<Dcqcn>, is_slower, 150, 300, 5, 20, 150 * ms},
                          {"Cubic", make<sim::Cubic>, has_cut, 80, 250, 10, 25, 60 * ms},
                          {"DeliveryRate", make<sim::DeliveryRate>, is_paced, 10, 60, 2, 40, 50 * ms}};

class UnderBoth : public ::testing::TestWithParam<Case> {};

TEST_P(UnderBoth, EveryByteOfAStreamArrivesOnce) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    reliable::sim::World world(seed);
    world.algorithm = GetParam().algorithm;
    world.rules.packet_ns = seed % 2 == 0 ? 0 : 5 * us;
    world.rules.room = 100;
    ASSERT_EQ(world.run(), "") << "seed " << seed;
  }
}

TEST_P(UnderBoth, EveryRequestOfAQueuePairCompletesOnce) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    roce::sim::World world(seed, true, GetParam().algorithm);
    ASSERT_EQ(world.run(), "") << "seed " << seed;
  }
}

// 2 MB each way over 20 us a packet.
TEST_P(UnderBoth, AStreamFillsANarrowPath) {
  reliable::sim::World world(1);
  world.algorithm = GetParam().algorithm;
  world.rules = narrow(20 * us);
  world.rules.bytes = 2'000'000;
  ASSERT_EQ(world.run(), "");
  EXPECT_LT(world.finished_at, GetParam().stream_ns);
  const double mean = static_cast<double>(world.waited) / static_cast<double>(world.carried);
  EXPECT_GT(mean, GetParam().stream_from);
  EXPECT_LT(mean, GetParam().stream_to);
  EXPECT_TRUE(GetParam().has_acted(*world.nodes[0]->peers.at(1)->congestion));
}

// 50 packets a ms.
TEST_P(UnderBoth, AQueuePairFillsANarrowPath) {
  roce::sim::Bottleneck net(roce::QpType::Rc, true, 14, GetParam().algorithm);
  net.packet_ns = 20 * us;
  (void)net.stream(roce::SendOpcode::Write, 50 * ms);
  net.forget();
  const double carried = net.stream(roce::SendOpcode::Write, 200 * ms);
  EXPECT_GT(carried, 35);
  EXPECT_LE(carried, 51);
  EXPECT_GT(net.mean(), GetParam().pair_from);
  EXPECT_LT(net.mean(), GetParam().pair_to);  // without control 128 packets stand there
  EXPECT_TRUE(GetParam().has_acted(*net.p.a.qp->congestion));
  EXPECT_EQ(net.p.a.adapter.counters().timeouts, 0u);
}

INSTANTIATE_TEST_SUITE_P(Congestion, UnderBoth, ::testing::ValuesIn(cases),
                         [](const auto& one) { return std::string(one.param.name); });

// A packet in 40 us, and no window.
class FixedRate final : public Controller {
 public:
  uint32_t packets() const noexcept override { return packets_; }
  uint64_t next_at() const noexcept override { return at_ + packet_ns; }
  void configure(size_t, size_t) noexcept override { is_idle_ = is_paced_ = true; }
  void advance(uint64_t now) noexcept override {
    if (now < at_ + packet_ns) return;
    packets_ = 1;  // what is not used is not saved
    at_ = at_ == 0 ? now : at_ + (now - at_) / packet_ns * packet_ns;
  }
  void on_sent(uint64_t packets) noexcept override {
    packets_ -= static_cast<uint32_t>(std::min<uint64_t>(packets, packets_));
  }
  void on_ack(const Acknowledged&) noexcept override {}
  void on_loss(const Loss&) noexcept override {}

  static constexpr uint64_t packet_ns = 40 * us;

 private:
  uint32_t packets_ = 1;
  uint64_t at_ = 0;
};

TEST(PaceUnderBoth, AStreamIsAsFastAsItsRate) {
  reliable::sim::World world(1);
  world.algorithm = make<FixedRate>;
  world.rules = narrow(1 * us);
  world.rules.bytes = 400'000;
  ASSERT_EQ(world.run(), "");
  const uint64_t full = 400'000 / 1472 * FixedRate::packet_ns;  // acknowledgements alone are not counted
  EXPECT_GT(world.finished_at, full);
  EXPECT_LT(world.finished_at, 2 * full);  // a node that polls late sends late
}

TEST(PaceUnderBoth, AQueuePairIsAsFastAsItsRate) {
  roce::sim::Bottleneck net(roce::QpType::Rc, true, 14, make<FixedRate>);
  const double carried = net.stream(roce::SendOpcode::Write, 100 * ms);
  EXPECT_GT(carried, 20);
  EXPECT_LT(carried, 26);
  EXPECT_EQ(net.p.a.adapter.counters().timeouts, 0u);
  EXPECT_EQ(net.p.a.adapter.counters().sent_again, 0u);
}

}  // namespace
}  // namespace weft::proto::congestion
