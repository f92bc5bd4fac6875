// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Each algorithm under both protocols that retransmit: in the simulators' bad worlds, where every byte arrives whatever it does, and before a narrow
// place, where it fills the path and leaves its queue short. Two of them (sim_cubic.hpp, sim_delivery_rate.hpp) exist for this test.
#include <gtest/gtest.h>

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

struct Case {
  const char* name;
  Make algorithm;
  // Of a stream before a narrow place, whose packets nobody marks.
  uint64_t within;    // ns; 29 ms, were the path full all the time
  size_t most_queue;  // packets, the mean
};
constexpr Case cases[] = {{"DelayWindow", make<DelayWindow>, 50 * ms, 60},
                          {"Dcqcn", make<Dcqcn>, 150 * ms, 300},  // hears of congestion by notices alone
                          {"Cubic", make<sim::Cubic>, 60 * ms, 250},
                          {"DeliveryRate", make<sim::DeliveryRate>, 50 * ms, 60}};

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
  world.rules = {};
  world.rules.delay_ns = 200 * us;
  world.rules.poll_ns = 2 * us;
  world.rules.bytes = 2'000'000;
  world.rules.packet_ns = 20 * us;
  world.rules.room = 300;
  ASSERT_EQ(world.run(), "");
  const double mean = static_cast<double>(world.waited) / static_cast<double>(world.carried);
  EXPECT_LT(world.finished_at, GetParam().within);
  EXPECT_LT(mean, static_cast<double>(GetParam().most_queue));
  EXPECT_GT(mean, 1);  // it was narrow
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
  EXPECT_LT(net.mean(), 100);  // without control 128 packets stand there
  EXPECT_EQ(net.p.a.adapter.counters().timeouts, 0u);
}

INSTANTIATE_TEST_SUITE_P(Congestion, UnderBoth, ::testing::ValuesIn(cases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace weft::proto::congestion
