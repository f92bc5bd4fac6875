// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tests that every driver passes, over a model of its card: instantiated in the driver's own test (docs/nic-guide.md). Must not know
// which driver.
//
//   struct Card {
//     template <class Bus> using Driver = ...;
//     using Model = ...;
//     static std::unique_ptr<Model> make(model::Hub& hub, unsigned n);  // with the address model::mac_of(n)
//     static constexpr size_t frame_bytes_largest;
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, NicDriver, Card);
//
// The last check of every test: the device never reached for memory that it was not given, and the driver never missed a register.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>

#include "nic/model/stand.hpp"

namespace weft::nic {

template <class Card>
class NicDriver : public testing::Test {
 public:
  using Stand = model::Stand<typename Card::Model, Card::template Driver>;
  static constexpr size_t plain = 1514;

  void open(DriverSettings settings = {}) {
    for (Stand* stand : {&a, &b}) {
      auto done = stand->driver.open(settings);
      ASSERT_TRUE(done) << done.error().why;
      ASSERT_TRUE(stand->driver.has_link());
    }
  }
  void TearDown() override {
    for (Stand* stand : {&a, &b}) {
      stand->driver.close();
      EXPECT_EQ(stand->bus.leaked(), 1u) << "only the memory of the stand is mapped";
      EXPECT_EQ(stand->bus.host().iommu.faults(), 0u);
      EXPECT_EQ(stand->bus.bad_accesses(), 0u);
    }
  }
  std::vector<std::byte> frame(size_t bytes, unsigned seed = 0) {
    return model::frame_of(model::mac_of(2), model::mac_of(1), bytes, seed);
  }
  // Sends frames from a to b, and wants them to come as they were.
  void exchange(size_t bytes) {
    const auto sent = frame(bytes, static_cast<unsigned>(bytes));
    ASSERT_TRUE(a.send(sent, bytes));
    ASSERT_EQ(b.receive(), 1u) << bytes;
    ASSERT_EQ(b.frames.back().bytes, sent) << bytes;
    ASSERT_EQ(a.reclaim(), 1u) << bytes;
    ASSERT_EQ(a.tokens.back(), bytes);
  }

  model::Hub hub;
  Stand a{Card::make(hub, 1)};
  Stand b{Card::make(hub, 2)};
};

TYPED_TEST_SUITE_P(NicDriver);

TYPED_TEST_P(NicDriver, KnowsItsAddress) {
  this->open();
  EXPECT_EQ(this->a.driver.mac(), model::mac_of(1));
  EXPECT_EQ(this->b.driver.mac(), model::mac_of(2));
  EXPECT_TRUE(this->a.driver.drives(static_cast<uint16_t>(this->a.bus.read_config(0, 2)),
                                    static_cast<uint16_t>(this->a.bus.read_config(2, 2))));
  EXPECT_FALSE(this->a.driver.drives(0xffff, 0xffff));
}

TYPED_TEST_P(NicDriver, CarriesFramesOfAllSizes) {
  this->open();
  for (size_t bytes = 60; bytes <= this->plain; ++bytes) ASSERT_NO_FATAL_FAILURE(this->exchange(bytes));
  const DriverCounters sent = this->a.driver.counters();
  const DriverCounters received = this->b.driver.counters();
  EXPECT_EQ(sent.frames_sent, this->plain - 59);
  EXPECT_EQ(received.frames_received, sent.frames_sent);
  EXPECT_EQ(received.bytes_received, sent.bytes_sent);
  EXPECT_EQ(received.frames_bad, 0u);
}

TYPED_TEST_P(NicDriver, CarriesJumboFrames) {
  DriverSettings settings;
  settings.frame_bytes_max = TypeParam::frame_bytes_largest;
  settings.receive_descriptors = 64;
  this->open(settings);
  EXPECT_EQ(this->a.driver.frame_bytes_max(), TypeParam::frame_bytes_largest);
  for (size_t bytes = 60; bytes <= TypeParam::frame_bytes_largest; bytes += 97)
    ASSERT_NO_FATAL_FAILURE(this->exchange(bytes));
  for (const size_t bytes :
       {size_t{2047}, size_t{2048}, size_t{2049}, size_t{4096}, size_t{8192}, TypeParam::frame_bytes_largest})
    ASSERT_NO_FATAL_FAILURE(this->exchange(bytes));
}

TYPED_TEST_P(NicDriver, DropsFramesThatAreTooLongForIt) {
  DriverSettings settings;
  settings.frame_bytes_max = TypeParam::frame_bytes_largest;
  settings.receive_descriptors = 64;
  ASSERT_TRUE(this->a.driver.open(settings));
  ASSERT_TRUE(this->b.driver.open({}));
  for (int round = 0; round < 500; ++round) {
    ASSERT_TRUE(this->a.send(this->frame(TypeParam::frame_bytes_largest)));
    this->a.reclaim();
    ASSERT_EQ(this->b.receive(), 0u);
  }
  EXPECT_FALSE(this->b.driver.is_broken());
  this->exchange(1514);
}

TYPED_TEST_P(NicDriver, RefusesWhatItCannotSend) {
  this->open();
  EXPECT_FALSE(this->a.driver.post({}, 1));
  EXPECT_FALSE(this->a.post(this->frame(this->plain + 1)));
  const std::vector<Fragment> many(fragments_max + 1, Fragment{this->a.address(), 16});
  EXPECT_FALSE(this->a.driver.post(many, 1));
  const std::array<Fragment, 2> nothing{Fragment{this->a.address(), 0}, Fragment{this->a.address(), 0}};
  EXPECT_FALSE(this->a.driver.post(nothing, 1));
  const std::array<Fragment, 2> huge{Fragment{this->a.address(), 0xffffffff},
                                     Fragment{this->a.address(), 61}};
  EXPECT_FALSE(this->a.driver.post(huge, 1));
  this->a.driver.kick();
  EXPECT_EQ(this->a.reclaim(), 0u);
  EXPECT_EQ(this->b.receive(), 0u);
  this->exchange(60);
}

TYPED_TEST_P(NicDriver, GathersFragments) {
  this->open();
  const auto whole = this->frame(600, 3);
  std::copy(whole.begin(), whole.end(), this->a.memory().begin());
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::array<Fragment, fragments_max> fragments{};
    const size_t count = 1 + random() % fragments_max;
    uint32_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bytes = i + 1 == count ? 600 - at : random() % 3 == 0 ? 0 : random() % (600 - at);
      fragments[i] = {this->a.address() + at, bytes};
      at += bytes;
    }
    ASSERT_TRUE(this->a.driver.post(std::span(fragments).first(count), 1));
    this->a.driver.kick();
    ASSERT_EQ(this->b.receive(), 1u);
    ASSERT_EQ(this->b.frames.back().bytes, whole);
    ASSERT_EQ(this->a.reclaim(), 1u);
  }
}

TYPED_TEST_P(NicDriver, RingsOnceForABatch) {
  this->open();
  const uint64_t before = this->a.driver.counters().transmit_doorbells;
  for (unsigned i = 0; i < 32; ++i) ASSERT_TRUE(this->a.post(this->frame(100, i), i));
  EXPECT_EQ(this->b.receive(), 0u);
  this->a.driver.kick();
  this->a.driver.kick();
  EXPECT_EQ(this->a.driver.counters().transmit_doorbells, before + 1);
  EXPECT_EQ(this->b.receive(), 32u);
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(this->b.frames[i].bytes, this->frame(100, i));
  EXPECT_EQ(this->a.reclaim(), 32u);
}

TYPED_TEST_P(NicDriver, GivesTokensBackInOrder) {
  DriverSettings settings;
  settings.transmit_descriptors = 64;
  this->open(settings);
  std::mt19937 random(2);
  uint64_t next = 0;
  for (int round = 0; round < 2000; ++round) {
    for (unsigned batch = random() % 8; batch > 0; --batch)
      if (this->a.post(this->frame(60), next)) ++next;
    if (random() % 2) this->a.driver.kick();
    if (random() % 3 == 0) this->a.reclaim();
    this->b.receive();
  }
  this->a.driver.kick();
  this->a.reclaim();
  ASSERT_EQ(this->a.tokens.size(), next);
  for (uint64_t i = 0; i < next; ++i) ASSERT_EQ(this->a.tokens[i], i);
}

TYPED_TEST_P(NicDriver, SaysWhenTheRingIsFull) {
  DriverSettings settings;
  settings.transmit_descriptors = 64;
  this->open(settings);
  for (int round = 0; round < 5; ++round) {
    size_t room = this->a.driver.transmit_room();
    size_t posted = 0;
    for (; this->a.post(this->frame(60), posted); ++posted) {
      ASSERT_LT(this->a.driver.transmit_room(), room);
      room = this->a.driver.transmit_room();
    }
    EXPECT_GE(posted, 31u);
    this->a.driver.kick();
    EXPECT_EQ(this->a.reclaim(), posted);
    EXPECT_TRUE(this->a.driver.transmit_room() > 0);
    this->b.receive(1000);
  }
  this->exchange(60);
}

TYPED_TEST_P(NicDriver, GoesOnAfterTheReceiveRingWasFull) {
  DriverSettings settings;
  settings.receive_descriptors = 64;
  this->open(settings);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 300; ++i) {
      ASSERT_TRUE(this->a.send(this->frame(200)));
      this->a.reclaim();
    }
    size_t taken = 0;
    while (const size_t n = this->b.receive(7)) {
      EXPECT_LE(n, 7u);
      taken += n;
    }
    EXPECT_GE(taken, 16u);
    EXPECT_LT(taken, 300u);
    EXPECT_FALSE(this->b.driver.is_broken());
  }
  this->exchange(1000);
}

TYPED_TEST_P(NicDriver, WrapsItsRings) {
  DriverSettings settings;
  settings.transmit_descriptors = 64;
  settings.receive_descriptors = 64;
  this->open(settings);
  std::mt19937 random(3);
  std::deque<std::vector<std::byte>> expected;
  size_t count = 0;
  for (unsigned round = 0; round < 3000; ++round) {
    for (unsigned batch = random() % 12; batch > 0; --batch) {
      auto sent = this->frame(60 + random() % 1400, round);
      if (this->a.post(sent)) expected.push_back(std::move(sent));
    }
    this->a.driver.kick();
    this->b.receive(100);
    this->a.reclaim();
    for (const auto& got : this->b.frames) {
      ASSERT_EQ(got.bytes, expected.front());
      expected.pop_front();
      ++count;
    }
    this->b.frames.clear();
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_GT(count, 10000u);
}

TYPED_TEST_P(NicDriver, CarriesBothWaysAtOnce) {
  this->open();
  for (unsigned i = 0; i < 200; ++i) {
    const auto there = model::frame_of(model::mac_of(2), model::mac_of(1), 300, i);
    const auto back = model::frame_of(model::mac_of(1), model::mac_of(2), 400, i);
    ASSERT_TRUE(this->a.send(there));
    ASSERT_TRUE(this->b.send(back));
    ASSERT_EQ(this->b.receive(), 1u);
    ASSERT_EQ(this->a.receive(), 1u);
    ASSERT_EQ(this->b.frames.back().bytes, there);
    ASSERT_EQ(this->a.frames.back().bytes, back);
    this->a.reclaim();
    this->b.reclaim();
  }
}

TYPED_TEST_P(NicDriver, LetsHandlersSend) {
  this->open();
  auto& mine = this->b;
  const auto back = model::frame_of(model::mac_of(1), model::mac_of(2), 60);
  struct Echo {
    void on_frame(std::span<const std::byte>, bool) noexcept {
      stand.post(frame);
      stand.driver.kick();
    }
    std::remove_reference_t<decltype(mine)>& stand;
    const std::vector<std::byte>& frame;
  } echo{mine, back};
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(this->a.send(this->frame(60)));
  EXPECT_EQ(mine.driver.receive(echo, 64), 10u);
  EXPECT_EQ(this->a.receive(), 10u);
  int again = 5;
  size_t tokens = 0;
  const auto repost = [&](uint64_t) noexcept {
    ++tokens;
    if (again-- > 0) this->a.send(this->frame(60));
  };
  while (this->a.driver.reclaim(repost) != 0) {
  }
  EXPECT_EQ(tokens, 15u);
}

TYPED_TEST_P(NicDriver, TakesWhatIsForIt) {
  this->open();
  const wire::Mac group{std::byte{1}, std::byte{0}, std::byte{0x5e},
                        std::byte{1}, std::byte{2}, std::byte{3}};
  const auto to = [&](const wire::Mac& mac) {
    this->b.frames.clear();
    EXPECT_TRUE(this->a.send(model::frame_of(mac, model::mac_of(1), 60)));
    this->a.reclaim();
    this->b.receive();
    return this->b.frames.size() == 1;
  };
  EXPECT_TRUE(to(model::mac_of(2)));
  EXPECT_TRUE(to(model::broadcast));
  EXPECT_FALSE(to(model::mac_of(3)));
  EXPECT_EQ(this->b.driver.join(group), 0);
  EXPECT_TRUE(to(group));
  EXPECT_EQ(this->b.driver.join(group), 0);
  this->b.driver.leave(group);
  EXPECT_TRUE(to(group)) << "joined twice, left once";
  ASSERT_TRUE(this->b.driver.open({}));
  EXPECT_TRUE(to(group)) << "groups outlive open()";
  this->b.driver.leave(group);
  this->b.driver.set_promiscuous(true);
  EXPECT_TRUE(to(model::mac_of(3)));
  EXPECT_TRUE(to(group));
  this->b.driver.set_promiscuous(false);
  EXPECT_FALSE(to(model::mac_of(3)));
}

TYPED_TEST_P(NicDriver, SaysWhatWasChecked) {
  this->open();
  auto udp = model::udp_frame_of(model::mac_of(2), model::mac_of(1), 100);
  ASSERT_TRUE(this->a.send(udp));
  udp.back() ^= std::byte{1};
  ASSERT_TRUE(this->a.send(udp));
  ASSERT_TRUE(this->a.send(this->frame(100)));
  this->b.receive();
  // A device that does not look says so; it never says so of a wrong one.
  for (size_t i = 1; i < this->b.frames.size(); ++i) EXPECT_FALSE(this->b.frames[i].is_checked) << i;
}

TYPED_TEST_P(NicDriver, WakesWhoSleeps) {
  this->open();
  auto& host = this->b.bus.host();
  ASSERT_TRUE(this->a.send(this->frame(60)));
  EXPECT_EQ(host.interrupts(0), 0u) << "not armed";
  EXPECT_FALSE(this->b.driver.arm() && this->b.driver.arm()) << "a frame is there";
  this->b.driver.disarm();
  EXPECT_EQ(this->b.receive(), 1u);
  for (unsigned round = 1; round <= 20; ++round) {
    const uint64_t before = host.interrupts(0);
    ASSERT_TRUE(this->b.driver.arm() || this->b.driver.arm());
    EXPECT_FALSE(host.is_pending(0));
    ASSERT_TRUE(this->a.send(this->frame(60)));
    EXPECT_GE(host.interrupts(0), before + 1);
    EXPECT_TRUE(host.is_pending(0));
    this->b.driver.disarm();
    EXPECT_FALSE(host.is_pending(0));
    const uint64_t after = host.interrupts(0);
    ASSERT_TRUE(this->a.send(this->frame(60)));
    EXPECT_EQ(host.interrupts(0), after) << "disarmed";
    EXPECT_EQ(this->b.receive(), 2u);
    this->a.reclaim();
  }
}

// A frame comes at each register that arm() touches: either arm() says so, or the interrupt does.
TYPED_TEST_P(NicDriver, LosesNoWakeUp) {
  this->open();
  auto& mine = this->b;
  for (unsigned access = 0; access < 12; ++access) {
    for (const bool is_armed_before : {false, true}) {
      mine.driver.disarm();
      mine.receive();
      if (is_armed_before) mine.driver.arm();
      unsigned seen = 0;
      const auto strike = [&] {
        if (seen++ == access) this->a.send(this->frame(60));
      };
      mine.bus.on_access = strike;
      const uint64_t before = mine.bus.host().interrupts(0);
      const bool is_asleep = mine.driver.arm();
      mine.bus.on_access = nullptr;
      if (seen <= access) this->a.send(this->frame(60));
      EXPECT_TRUE(!is_asleep || mine.bus.host().interrupts(0) > before) << access << is_armed_before;
      mine.driver.disarm();
      EXPECT_EQ(mine.receive(), 1u);
      this->a.reclaim();
    }
  }
}

TYPED_TEST_P(NicDriver, SeesTheLinkComeAndGo) {
  this->open();
  auto& mine = this->b;
  while (!mine.driver.arm()) mine.receive();
  const uint64_t before = mine.bus.host().interrupts(0);
  this->hub.set_carrier(*mine.model, false);
  EXPECT_GT(mine.bus.host().interrupts(0), before);
  EXPECT_FALSE(mine.driver.has_link());
  mine.driver.disarm();
  this->hub.set_carrier(*mine.model, true);
  EXPECT_TRUE(mine.driver.has_link());
  this->exchange(60);
}

TYPED_TEST_P(NicDriver, IsQuietWhenClosed) {
  this->open();
  auto& mine = this->b;
  while (!mine.driver.arm()) mine.receive();
  mine.driver.close();
  mine.driver.close();
  EXPECT_FALSE(mine.driver.has_link());
  const uint64_t before = mine.bus.host().interrupts(0);
  EXPECT_EQ(mine.bus.leaked(), 1u);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(this->a.send(this->frame(60)));
  EXPECT_EQ(mine.bus.host().interrupts(0), before);
  EXPECT_EQ(mine.receive(), 0u);
  EXPECT_FALSE(mine.post(this->frame(60)));
  mine.driver.kick();
  EXPECT_EQ(mine.reclaim(), 0u);
  EXPECT_FALSE(mine.driver.arm());
  EXPECT_FALSE(mine.bus.host().is_master);
  ASSERT_TRUE(mine.driver.open({}));
  this->a.reclaim();
  this->exchange(60);
}

TYPED_TEST_P(NicDriver, ResetsUnderLoad) {
  this->open();
  for (unsigned round = 0; round < 20; ++round) {
    for (unsigned i = 0; i < 20; ++i) {
      this->a.post(this->frame(500, i));
      this->b.post(model::frame_of(model::mac_of(1), model::mac_of(2), 500, i));
    }
    if (round % 2) this->a.driver.kick();
    this->b.driver.kick();
    this->b.receive(5);
    auto& victim = round % 3 ? this->b : this->a;
    ASSERT_TRUE(victim.driver.open({}));
    victim.tokens.clear();
  }
  this->open();
  this->exchange(900);
}

TYPED_TEST_P(NicDriver, SurvivesThatItIsUnplugged) {
  this->open();
  ASSERT_TRUE(this->a.send(this->frame(60)));
  this->b.bus.unplug();
  EXPECT_EQ(this->b.receive(), 1u);
  ASSERT_TRUE(this->a.send(this->frame(60)));
  EXPECT_EQ(this->b.receive(), 0u);
  this->b.send(this->frame(60));
  EXPECT_EQ(this->b.reclaim(), 0u);
  EXPECT_FALSE(this->b.driver.has_link());
  EXPECT_TRUE(this->b.driver.is_broken());
  EXPECT_FALSE(this->b.driver.arm());
  EXPECT_FALSE(this->b.post(this->frame(60)));
  this->b.driver.counters();
  this->b.driver.set_promiscuous(true);
  this->b.driver.join(model::broadcast);
  this->b.driver.close();
  EXPECT_FALSE(this->b.driver.open({}));
}

REGISTER_TYPED_TEST_SUITE_P(NicDriver, KnowsItsAddress, CarriesFramesOfAllSizes, CarriesJumboFrames,
                            DropsFramesThatAreTooLongForIt, RefusesWhatItCannotSend, GathersFragments,
                            RingsOnceForABatch, GivesTokensBackInOrder, SaysWhenTheRingIsFull,
                            GoesOnAfterTheReceiveRingWasFull, WrapsItsRings, CarriesBothWaysAtOnce,
                            LetsHandlersSend, TakesWhatIsForIt, SaysWhatWasChecked, WakesWhoSleeps,
                            LosesNoWakeUp, SeesTheLinkComeAndGo, IsQuietWhenClosed, ResetsUnderLoad,
                            SurvivesThatItIsUnplugged);

}  // namespace weft::nic
