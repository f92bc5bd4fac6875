// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RoCEv2 over network cards that are models, one e1000e and one virtio_net on a cable.
#include <gtest/gtest.h>

#include <cstring>

#include "link/nic/settings.hpp"
#include "link/nic/test_cards.hpp"
#include "link/roce/test_side.hpp"

namespace weft::link::roce {
namespace {

using namespace testing;

struct RoceCard : ::testing::Test {
  static DeviceSettings settings_of(unsigned n, bool has_thread, size_t mtu = 9000) {
    DeviceSettings settings;
    const std::string text =
        "0000:00:0" + std::to_string(n) + ".0=10.0.0." + std::to_string(n) + "/24,mtu=" + std::to_string(mtu);
    settings.card = *nic::parse_card(text);
    settings.has_thread = has_thread;
    return settings;
  }
  static void fill(Side& side) {
    for (size_t i = 0; i < side.memory.size(); ++i) side.memory[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  }
  // What has to be done for a region (ibv_reg_mr).
  static void* map(Side& side) {
    const std::scoped_lock guard(side.device->lock());
    return side.device->map(side.memory.data(), side.memory.size());
  }
  static void unmap(Side& side, void* mapping) {
    const std::scoped_lock guard(side.device->lock());
    side.device->unmap(mapping);
  }
  void no_faults() {
    for (nic::TestCard* card : {bench.first.get(), bench.second.get()}) {
      EXPECT_EQ(card->host().iommu.faults(), 0u);
      EXPECT_EQ(card->bad_accesses(), 0u);
    }
  }
  nic::TestBench bench;
};

TEST_F(RoceCard, WritesLeaveRegisteredMemoryWithoutACopy) {
  for (const bool has_thread : {true, false}) {
    Side a(settings_of(1, has_thread), 1);
    Side b(settings_of(2, true), 1);
    ASSERT_TRUE(a.device && b.device);
    EXPECT_EQ(a.device->port_of(1), 4791);
    void* const mapping = map(a);
    ASSERT_NE(mapping, nullptr);
    a.connect(b);
    b.connect(a);
    fill(a);
    for (uint32_t bytes : {1U, 255U, 256U, 1024U, 5000U, 200'000U, 1'000'000U}) {
      a.write(b, bytes);
      ASSERT_TRUE(a.wait(!has_thread)) << bytes;
      const std::scoped_lock guard(b.device->lock());
      ASSERT_EQ(std::memcmp(a.memory.data(), b.memory.data(), bytes), 0) << bytes;
    }
    EXPECT_GE(a.device->card_statistics().in_place_bytes, 1'200'000U);
    EXPECT_LT(a.device->card_statistics().copied_bytes, 200'000U);  // heads, ICRCs, acknowledgements
    {
      const std::scoped_lock guard(b.device->lock());
      EXPECT_EQ(b.device->ports().counters().solved,
                0U);  // the headers are shown: every ICRC is verified exactly
      EXPECT_EQ(b.device->ports().counters().wrong_icrc, 0U);
    }
    const uint64_t before = a.device->card_statistics().in_place_bytes;
    unmap(a, mapping);
    a.write(b, 100'000);
    ASSERT_TRUE(a.wait(!has_thread));
    EXPECT_EQ(a.device->card_statistics().in_place_bytes, before);
    no_faults();
  }
}

uint64_t doorbells_of(Side& side) {
  const std::scoped_lock guard(side.device->lock());
  for (const proto::DeviceCounter& counter : side.device->card_counters())
    if (std::string_view(counter.name) == "transmit_doorbells") return counter.value;
  return 0;
}

// Each end is a stranger to the other: their GIDs name no port of ours.
TEST_F(RoceCard, ABatchOfRequestsRingsOnce) {
  Side a(settings_of(1, false), 1);
  Side b(settings_of(2, false), 1);
  ASSERT_TRUE(a.device && b.device);
  void* const mapping = map(a);
  a.connect(b);
  b.connect(a);
  fill(a);
  const auto poll = [](Side& side) {
    const std::scoped_lock guard(side.device->lock());
    return side.device->poll();
  };
  const auto finish = [&](unsigned wanted) {
    unsigned done = 0;
    for (int i = 0; i < 10'000 && done < wanted; ++i) {
      poll(a);
      poll(b);
      Completion c;
      const std::scoped_lock guard(a.device->lock());
      if (a.cq->poll({&c, 1}) != 1) continue;
      EXPECT_EQ(c.status, Status::Success);
      ++done;
    }
    return done == wanted;
  };
  a.write(b, 100);  // they find each other
  ASSERT_TRUE(finish(1));
  for (const uint32_t bytes : {16U, 300U, 4096U, 5000U}) {
    constexpr unsigned requests = 32;
    const uint64_t before = doorbells_of(a);
    {
      const std::scoped_lock guard(a.device->lock());
      const auto to = b.card();
      for (unsigned i = 0; i < requests; ++i) {
        const Element from{reinterpret_cast<uint64_t>(a.memory.data()), bytes, a.region->key};
        SendRequest q;
        q.opcode = SendOpcode::Write;
        q.flags = signaled;
        q.elements = {&from, 1};
        q.remote_address = to.address;
        q.remote_key = to.key;
        ASSERT_EQ(a.device->adapter().post_send(*a.qp, q, os::monotonic_ns()), 0);
      }
      a.device->posted();
    }
    EXPECT_EQ(doorbells_of(a), before + 1) << bytes;
    const uint64_t of_b = doorbells_of(b);
    poll(b);
    EXPECT_LE(doorbells_of(b), of_b + 1) << bytes;  // acknowledgements
    ASSERT_TRUE(finish(requests)) << bytes;
    ASSERT_EQ(std::memcmp(a.memory.data(), b.memory.data(), bytes), 0) << bytes;
  }
  unmap(a, mapping);
  no_faults();
}

TEST_F(RoceCard, BothDirectionsWithLosses) {
  Side a(settings_of(1, true, 1500), 1);
  Side b(settings_of(2, true, 1500), 1);
  ASSERT_TRUE(a.device && b.device);
  void* const of_a = map(a);
  void* const of_b = map(b);
  a.connect(b);
  b.connect(a);
  fill(a);
  {
    const std::scoped_lock guard(bench.mutex);
    bench.hub.drop = [n = 0](std::span<const std::byte> frame) mutable {
      return frame.size() > 60 && ++n % 50 == 0;
    };
  }
  for (int round = 0; round < 5; ++round) {
    a.write(b, 300'000);
    b.write(a, 100);
    ASSERT_TRUE(a.wait(false));
    ASSERT_TRUE(b.wait(false));
  }
  {
    const std::scoped_lock guard(bench.mutex);
    bench.hub.drop = nullptr;
  }
  EXPECT_EQ(b.at(299'999), static_cast<std::byte>(299'999 * 7 + (299'999 >> 8)));
  unmap(a, of_a);
  unmap(b, of_b);
  no_faults();
}

TEST_F(RoceCard, ACardThatIsNotThereIsExplained) {
  DeviceSettings settings = settings_of(1, true);
  settings.card->card = "0000:00:1f.7";
  testing::Counting events;
  auto opened = Device::open(settings, events);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().why.find("0000:00:1f.7"), std::string::npos) << opened.error().why;
}

}  // namespace
}  // namespace weft::link::roce
