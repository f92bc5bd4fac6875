// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The virtio_net driver over its model: the tests of every driver for each combination of ring layout, mergeable
// buffers and event indices, and what only this card has.
#include "nic/virtio_net/driver.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>

#include "nic/driver_suite.hpp"
#include "nic/model/virtio_net.hpp"

namespace weft::nic {
namespace {

namespace feature = virtio_net::feature;
using Settings = model::VirtioNet::Settings;

Settings settings_of(unsigned n, bool is_packed, bool is_merged, bool has_event_index) {
  Settings settings;
  settings.mac = model::mac_of(n);
  settings.mtu = 9000;
  settings.on_violation = [](const char* what) {
    ADD_FAILURE() << "the driver did what is forbidden: " << what;
  };
  if (!is_packed) settings.features &= ~feature::packed_ring;
  if (!is_merged) settings.features &= ~feature::mergeable_buffers;
  if (!has_event_index) settings.features &= ~feature::event_index;
  return settings;
}

template <bool packed, bool merged, bool event_index>
struct Card {
  template <class Bus>
  using Driver = virtio_net::Driver<Bus>;
  using Model = model::VirtioNet;
  static constexpr size_t frame_bytes_largest = 9014;
  static std::unique_ptr<Model> make(model::Hub& hub, unsigned n) {
    return std::make_unique<Model>(hub, settings_of(n, packed, merged, event_index));
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioSplit, NicDriver, decltype(Card<false, false, false>{}));
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioSplitEvent, NicDriver, decltype(Card<false, false, true>{}));
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioSplitMerged, NicDriver, decltype(Card<false, true, false>{}));
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioSplitMergedEvent, NicDriver, decltype(Card<false, true, true>{}));
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioPacked, NicDriver, decltype(Card<true, false, false>{}));
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioPackedEvent, NicDriver, decltype(Card<true, false, true>{}));
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioPackedMerged, NicDriver, decltype(Card<true, true, false>{}));
INSTANTIATE_TYPED_TEST_SUITE_P(VirtioPackedMergedEvent, NicDriver, decltype(Card<true, true, true>{}));

using Stand = model::Stand<model::VirtioNet, virtio_net::Driver>;

// Layout, mergeable buffers, event indices.
using Combination = std::tuple<bool, bool, bool>;

class VirtioNet : public testing::TestWithParam<Combination> {
 public:
  Settings with(unsigned n) const {
    const auto [is_packed, is_merged, has_event_index] = GetParam();
    return settings_of(n, is_packed, is_merged, has_event_index);
  }
  bool is_packed() const { return std::get<0>(GetParam()); }
  bool is_merged() const { return std::get<1>(GetParam()); }

  std::unique_ptr<Stand> stand(const Settings& settings) {
    return std::make_unique<Stand>(std::make_unique<model::VirtioNet>(hub, settings));
  }
  // Two stands that are open.
  void open(const Settings& to_a, const Settings& to_b, const DriverSettings& settings = {}) {
    a = stand(to_a);
    b = stand(to_b);
    for (Stand* each : {a.get(), b.get()}) {
      auto done = each->driver.open(settings);
      ASSERT_TRUE(done) << done.error().why;
    }
  }
  void open(const DriverSettings& settings = {}) { open(with(1), with(2), settings); }

  std::vector<std::byte> frame(size_t bytes, unsigned seed = 0) {
    return model::frame_of(model::mac_of(2), model::mac_of(1), bytes, seed);
  }
  void exchange(size_t bytes = 60) {
    const auto sent = frame(bytes, static_cast<unsigned>(bytes));
    ASSERT_TRUE(a->send(sent, bytes));
    ASSERT_EQ(b->receive(), 1u);
    ASSERT_EQ(b->frames.back().bytes, sent);
    b->frames.clear();
    ASSERT_EQ(a->reclaim(), 1u);
  }
  // The device has contradicted itself: it is stopped, and the driver can begin anew.
  void expect_broken(Stand& stand) {
    EXPECT_TRUE(stand.driver.is_broken());
    EXPECT_EQ(stand.model->status(), 0);
    EXPECT_FALSE(stand.bus.host().is_master);
    EXPECT_FALSE(stand.driver.has_link());
    EXPECT_FALSE(stand.driver.arm());
    EXPECT_FALSE(stand.post(frame(60)));
    EXPECT_EQ(stand.receive(), 0u);
    EXPECT_EQ(stand.reclaim(), 0u);
    ASSERT_TRUE(stand.driver.open({}));
    exchange(100);
  }

  model::Hub hub;
  std::unique_ptr<Stand> a;
  std::unique_ptr<Stand> b;
};

std::string name_of(const testing::TestParamInfo<Combination>& combination) {
  const auto [is_packed, is_merged, has_event_index] = combination.param;
  return std::string(is_packed ? "packed" : "split") + (is_merged ? "_merged" : "") +
         (has_event_index ? "_event" : "");
}
INSTANTIATE_TEST_SUITE_P(Rings, VirtioNet,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()), name_of);

TEST_P(VirtioNet, UsesWhatWasAgreed) {
  open();
  EXPECT_EQ(a->driver.features(), a->model->features());
  EXPECT_EQ(a->driver.features(), with(1).features);
  EXPECT_EQ((a->driver.features() & feature::packed_ring) != 0, is_packed());
}

// The indices of split rings run through 2^16 more than once, the wrap counters of packed ones flip thousands of times.
TEST_P(VirtioNet, RunsThroughAllIndices) {
  DriverSettings settings;
  settings.transmit_descriptors = settings.receive_descriptors = 32;
  open(settings);
  uint64_t token = 0;
  const auto small = frame(60);
  for (unsigned round = 0; token < 140'000; ++round) {
    const bool sleeps = round % 64 == 0;
    const uint64_t before = b->bus.host().interrupts(0);
    ASSERT_TRUE(!sleeps || b->driver.arm());
    unsigned count = 0;
    for (; count < 1 + round % 9; ++count) ASSERT_TRUE(a->post(small, token++));
    const uint64_t doorbells = a->driver.counters().transmit_doorbells;
    a->driver.kick();
    ASSERT_EQ(a->driver.counters().transmit_doorbells, doorbells + 1);
    ASSERT_EQ(b->bus.host().interrupts(0) > before, sleeps);
    if (sleeps) b->driver.disarm();
    ASSERT_EQ(b->receive(), count);
    ASSERT_EQ(a->reclaim(), count);
    b->frames.clear();
  }
  for (uint64_t i = 0; i < token; ++i) ASSERT_EQ(a->tokens[i], i);
}

TEST_P(VirtioNet, TakesRingsOfAnySize) {
  for (uint16_t size = 2; size <= 40; ++size) {
    Settings to_a = with(1);
    Settings to_b = with(2);
    to_a.queue_size_max = to_b.queue_size_max = size;
    open(to_a, to_b);
    const size_t room = is_packed() ? size : std::bit_floor(size);
    ASSERT_EQ(a->driver.transmit_room(), room);
    for (unsigned i = 0; i < 3u * size; ++i) ASSERT_NO_FATAL_FAILURE(exchange(60 + 7 * i));
    // All that fits, and frames of several descriptors across the end of the ring.
    for (unsigned round = 0; round < 20; ++round) {
      unsigned count = 0;
      size_t left = a->driver.transmit_room();
      for (; left >= 2; ++count) {
        std::vector<Fragment> fragments;
        const auto pieces =
            static_cast<unsigned>(std::min<size_t>({left - 1, 1 + (round + count) % 5, fragments_max}));
        for (unsigned i = 0; i < pieces; ++i)
          fragments.push_back({a->address() + 20 * i, i + 1 == pieces ? 40u : 20u});
        ASSERT_TRUE(a->driver.post(fragments, count));
        left = a->driver.transmit_room();
      }
      EXPECT_FALSE(a->post(frame(60)));
      a->driver.kick();
      EXPECT_EQ(a->reclaim(), count);
      EXPECT_EQ(a->driver.transmit_room(), room);
      while (b->receive(1) == 1) {
      }
    }
    EXPECT_FALSE(a->driver.is_broken());
    EXPECT_FALSE(b->driver.is_broken());
  }
}

TEST_P(VirtioNet, ReordersWhatTheDeviceUsedBackwards) {
  Settings to_a = with(1);
  to_a.uses_backwards = true;
  to_a.queue_size_max = 37;
  open(to_a, with(2));
  uint64_t next = 0;
  for (unsigned round = 0; round < 2000; ++round) {
    for (unsigned i = 0; i < 1 + round % 7; ++i) {
      std::vector<Fragment> fragments(1 + (round + i) % 4, Fragment{a->address(), 60});
      if (a->driver.post(fragments, next)) ++next;
    }
    a->driver.kick();
    if (round % 3 == 0) a->reclaim();
    b->receive();
    b->frames.clear();
  }
  a->reclaim();
  ASSERT_EQ(a->tokens.size(), next);
  for (uint64_t i = 0; i < next; ++i) ASSERT_EQ(a->tokens[i], i);
  EXPECT_EQ(a->driver.transmit_room(), is_packed() ? 37u : 32u);
}

TEST_P(VirtioNet, RingsNoDeviceThatChecksByItself) {
  open();
  exchange();
  a->model->hold_transmit(true);
  const uint64_t before = a->model->doorbells(1);
  unsigned count = 0;
  while (a->send(frame(60), count)) ++count;
  EXPECT_EQ(a->model->doorbells(1), before);
  EXPECT_EQ(count, a->driver.is_broken() ? 0u : 128u);
  EXPECT_EQ(a->reclaim(), 0u);
  a->model->hold_transmit(false);
  EXPECT_EQ(b->receive(1000), count);
  EXPECT_EQ(a->reclaim(), count);
  exchange();
  EXPECT_EQ(a->model->doorbells(1), before + 1);
}

TEST_P(VirtioNet, FreesOnlyWhatTheDeviceHasRead) {
  open();
  a->model->hold_transmit(true);
  for (unsigned i = 0; i < 10; ++i) ASSERT_TRUE(a->send(frame(60), i));
  EXPECT_EQ(a->reclaim(), 0u);
  // A reset while the device holds frames: they are forgotten, and nothing of them is sent later.
  ASSERT_TRUE(a->driver.open({}));
  a->model->hold_transmit(false);
  EXPECT_EQ(a->reclaim(), 0u);
  EXPECT_EQ(b->receive(), 0u);
  exchange();
}

TEST_P(VirtioNet, GathersFramesOfSeveralBuffers) {
  DriverSettings settings;
  settings.frame_bytes_max = 9014;
  open(settings);
  // The device shows each buffer by itself, and the driver looks in between.
  size_t checks = 0;
  size_t early = 0;
  b->model->between_buffers = [&] {
    ++checks;
    if (b->receive() != 0) ++early;
  };
  for (const size_t bytes : {size_t{2036}, size_t{2037}, size_t{4084}, size_t{4085}, size_t{9014}}) {
    checks = early = 0;
    const auto sent = frame(bytes, 5);
    b->frames.clear();
    ASSERT_TRUE(a->send(sent));
    a->reclaim();
    b->receive();
    ASSERT_EQ(b->frames.size(), 1u);
    EXPECT_EQ(b->frames[0].bytes, sent);
    const size_t buffers = (bytes + 12 + 2047) / 2048;
    EXPECT_EQ(checks, is_merged() && buffers > 1 ? buffers : 0u);
    EXPECT_EQ(early, is_merged() && buffers > 1 ? 1u : 0u);
  }
}

TEST_P(VirtioNet, TouchesNoRegisterButDoorbells) {
  open();
  const auto count = [](Stand& stand, auto work) {
    const model::Accesses before = stand.bus.accesses();
    work();
    EXPECT_EQ(stand.bus.accesses().reads, before.reads);
    return stand.bus.accesses().writes - before.writes;
  };
  for (unsigned batch : {1u, 32u}) {
    for (unsigned round = 0; round < 10; ++round) {
      EXPECT_EQ(count(*a,
                      [&] {
                        for (unsigned i = 0; i < batch; ++i) ASSERT_TRUE(a->post(frame(60)));
                        a->driver.kick();
                        EXPECT_EQ(a->reclaim(), batch);
                      }),
                1u);
      EXPECT_EQ(count(*b, [&] { EXPECT_EQ(b->receive(), batch); }),
                0u);  // it has buffers, and wants no doorbell
    }
  }
}

TEST_P(VirtioNet, AsksForADoorbellWhenBuffersRanOut) {
  DriverSettings settings;
  settings.receive_descriptors = 16;
  open(settings);
  for (unsigned i = 0; i < 20; ++i) {
    ASSERT_TRUE(a->send(frame(60)));
    a->reclaim();
  }
  EXPECT_EQ(b->model->frames_missed(), 4u);
  const uint64_t before = b->driver.counters().receive_doorbells;
  EXPECT_EQ(b->receive(), 16u);
  EXPECT_EQ(b->driver.counters().receive_doorbells, before + 1);
  exchange();
  EXPECT_EQ(b->driver.counters().receive_doorbells, before + 1);
}

// --- filters ---

TEST_P(VirtioNet, PassesAllGroupsWhenTheTableIsFull) {
  open();
  const auto group = [](unsigned n) {
    wire::Mac mac = model::mac_of(n);
    mac[0] = std::byte{1};
    return mac;
  };
  const auto passes = [&](const wire::Mac& to) {
    EXPECT_TRUE(a->send(model::frame_of(to, model::mac_of(1), 60)));
    a->reclaim();
    return b->receive() == 1;
  };
  constexpr auto most = static_cast<unsigned>(decltype(b->driver)::groups_max);
  for (unsigned i = 0; i < most; ++i) ASSERT_EQ(b->driver.join(group(i)), 0);
  for (unsigned i = 0; i < most; ++i) EXPECT_TRUE(passes(group(i)));
  EXPECT_FALSE(passes(group(most)));
  EXPECT_EQ(b->driver.join(group(3)), 0);
  b->driver.leave(group(3));
  b->driver.leave(group(3));
  b->driver.leave(group(3));
  EXPECT_FALSE(passes(group(3)));
  EXPECT_TRUE(passes(group(most - 1)));
  ASSERT_EQ(b->driver.join(group(3)), 0);
  EXPECT_EQ(b->driver.join(group(most)), -ENOSPC);
  EXPECT_TRUE(passes(group(most)));
  EXPECT_FALSE(passes(model::mac_of(9)));
  ASSERT_TRUE(b->driver.open({}));
  EXPECT_TRUE(passes(group(most)));
}

TEST_P(VirtioNet, LivesWithoutAFilter) {
  for (const uint64_t without : {feature::control_queue, feature::control_receive,
                                 feature::control_queue | feature::control_receive}) {
    Settings to_b = with(2);
    to_b.features &= ~without;
    open(with(1), to_b);
    EXPECT_EQ(b->driver.join(model::broadcast), 0);
    b->driver.set_promiscuous(false);
    b->driver.leave(model::broadcast);
    EXPECT_EQ(b->model->doorbells(2), 0u);
    ASSERT_TRUE(a->send(model::frame_of(model::mac_of(9), model::mac_of(1), 60)));
    EXPECT_EQ(b->receive(), 1u);
    a->reclaim();
    exchange();
  }
  Settings to_b = with(2);
  to_b.refuses_filter = true;
  open(with(1), to_b);
  EXPECT_EQ(b->driver.join(model::mac_of(3)), -ENOSPC);
  EXPECT_FALSE(b->driver.is_broken());
  exchange();
}

// --- configuration ---

TEST_P(VirtioNet, KeepsToTheMtuOfTheDevice) {
  Settings to_a = with(1);
  to_a.mtu = 600;
  open(to_a, with(2));
  EXPECT_EQ(a->driver.frame_bytes_max(), 614u);
  EXPECT_FALSE(a->post(frame(615)));
  exchange(614);
  EXPECT_EQ(b->driver.frame_bytes_max(), 1514u);
  to_a.features &= ~feature::mtu;
  open(to_a, with(2));
  EXPECT_EQ(a->driver.frame_bytes_max(), 1514u);
}

TEST_P(VirtioNet, HasALinkWhenTheDeviceDoesNotSay) {
  Settings to_a = with(1);
  to_a.features &= ~feature::link_status;
  open(to_a, with(2));
  hub.set_carrier(*a->model, false);
  hub.set_carrier(*b->model, false);
  EXPECT_TRUE(a->driver.has_link());
  EXPECT_FALSE(b->driver.has_link());
}

TEST_P(VirtioNet, WaitsForASlowReset) {
  Settings to_a = with(1);
  to_a.reset_reads = 1000;
  open(to_a, with(2));
  ASSERT_TRUE(a->driver.open({}));
  EXPECT_GE(a->bus.waited_us(), 10'000u);
  exchange();
}

TEST_P(VirtioNet, ResetsTheFunctionWhenTheDeviceHangs) {
  Settings to_a = with(1);
  to_a.reset_reads = 1'000'000;
  open(to_a, with(2));
  ASSERT_TRUE(a->driver.open({}));
  exchange();
  to_a.has_function_reset = false;
  open(to_a, with(2));
  auto done = a->driver.open({});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ETIMEDOUT);
  EXPECT_EQ(a->bus.leaked(), 1u);
  EXPECT_FALSE(a->bus.host().is_master);
}

TEST_P(VirtioNet, RefusesDevicesThatItCannotDrive) {
  const auto refusal = [&](auto change) {
    Settings settings = with(1);
    change(settings);
    Stand stand(std::make_unique<model::VirtioNet>(hub, settings));
    auto done = stand.driver.open({});
    EXPECT_FALSE(done);
    EXPECT_EQ(stand.bus.leaked(), 1u);
    EXPECT_FALSE(stand.bus.host().is_master);
    EXPECT_EQ(stand.model->status() & virtio_net::status::driver_ok, 0);
    return done ? 0 : done.error().code;
  };
  for (const uint64_t without : {feature::version_1, feature::access_platform, feature::mac})
    EXPECT_EQ(refusal([&](Settings& settings) { settings.features &= ~without; }), ENODEV);
  EXPECT_EQ(refusal([](Settings& settings) { settings.refuses_features = true; }), ENODEV);
  EXPECT_EQ(refusal([](Settings& settings) { settings.queue_size_max = 1; }), ENODEV);
  EXPECT_EQ(refusal([](Settings& settings) { settings.vectors = 0; }), ENOTSUP);
  EXPECT_EQ(refusal([](Settings& settings) { settings.mac = model::broadcast; }), EPROTO);
  EXPECT_EQ(refusal([](Settings& settings) { settings.mtu = 67; }), EPROTO);
  EXPECT_EQ(refusal([](Settings& settings) { settings.ignores_commands = true; }), EIO);
  Stand stand(std::make_unique<model::VirtioNet>(hub, with(1)));
  for (const size_t bytes : {size_t{0}, size_t{13}, size_t{65554}, SIZE_MAX}) {
    DriverSettings settings;
    settings.frame_bytes_max = bytes;
    auto done = stand.driver.open(settings);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EINVAL);
  }
  DriverSettings settings;
  settings.frame_bytes_max = 9014;
  settings.receive_descriptors = 4;  // 8 KiB, if they are merged
  EXPECT_EQ(static_cast<bool>(stand.driver.open(settings)), !is_merged());
}

// --- devices that lie, fail, or are gone ---

TEST_P(VirtioNet, StopsADeviceThatUsesWhatItDoesNotHave) {
  open();
  for (const uint16_t id : {uint16_t{0xffff}, uint16_t{256}}) {
    b->model->use(0, id, 100);
    EXPECT_EQ(b->receive(), 0u);
    expect_broken(*b);
    a->model->use(1, id, 0);
    EXPECT_EQ(a->reclaim(), 0u);
    expect_broken(*a);
  }
  a->model->use(1, 0, 0);  // nothing was posted
  EXPECT_EQ(a->reclaim(), 0u);
  expect_broken(*a);
}

TEST_P(VirtioNet, StopsADeviceThatUsesAFrameTwice) {
  open();
  a->model->hold_transmit(true);
  for (unsigned i = 0; i < 3; ++i) ASSERT_TRUE(a->send(frame(60), i));
  a->model->use(1, 0, 0, 2);
  a->model->use(1, 0, 0, 2);
  EXPECT_EQ(a->reclaim(), 1u);
  a->model->hold_transmit(false);
  expect_broken(*a);
}

TEST_P(VirtioNet, StopsADeviceThatWroteMoreThanThereIs) {
  open();
  for (const uint32_t bytes : {uint32_t{0}, uint32_t{11}, uint32_t{4096}, ~uint32_t{0}}) {
    b->model->use(0, 0, bytes);
    EXPECT_EQ(b->receive(), 0u);
    expect_broken(*b);
  }
  b->model->use(0, 0, 12 + 13);  // no Ethernet header, but nothing that contradicts the rings
  EXPECT_EQ(b->receive(), 0u);
  EXPECT_FALSE(b->driver.is_broken());
  EXPECT_EQ(b->driver.counters().frames_bad, 1u);
}

TEST_P(VirtioNet, StopsADeviceThatCountsBuffersWrong) {
  open();
  for (const uint16_t buffers : {uint16_t{0}, uint16_t{257}, uint16_t{0xffff}}) {
    b->bus.host().tamper = [&](uint64_t, std::span<std::byte> bytes) {
      if (bytes.size() == 72) std::memcpy(&bytes[10], &buffers, sizeof buffers);
      return bytes.size();
    };
    ASSERT_TRUE(a->send(frame(60)));
    a->reclaim();
    EXPECT_EQ(b->receive(), is_merged() ? 0u : 1u);
    b->bus.host().tamper = nullptr;
    if (is_merged()) expect_broken(*b);
  }
}

// A frame of more buffers than the scratch holds is dropped, and the next one is found.
TEST_P(VirtioNet, DropsMergedFramesThatAreTooLong) {
  if (!is_merged()) return;  // a frame has one buffer
  open();
  DriverSettings settings;
  settings.frame_bytes_max = 9014;
  ASSERT_TRUE(a->driver.open(settings));
  for (unsigned i = 0; i < 300; ++i) {
    ASSERT_TRUE(a->send(frame(9014)));
    a->reclaim();
    ASSERT_EQ(b->receive(), 0u);
  }
  EXPECT_EQ(b->driver.counters().frames_bad, 300u);
  exchange(1514);
}

TEST_P(VirtioNet, StopsADeviceThatNeedsAReset) {
  open();
  ASSERT_TRUE(b->driver.arm());
  const uint64_t before = b->bus.host().interrupts(0);
  b->model->need_reset();
  EXPECT_GT(b->bus.host().interrupts(0), before);  // who sleeps wakes up
  b->driver.disarm();
  EXPECT_FALSE(b->driver.arm());
  expect_broken(*b);
  b->model->need_reset();
  EXPECT_FALSE(b->driver.has_link());
  expect_broken(*b);
  b->model->need_reset();
  b->driver.set_promiscuous(true);
  expect_broken(*b);
}

TEST_P(VirtioNet, EndsWithADeviceThatIsGoneInACommand) {
  open();
  b->bus.unplug();
  b->driver.set_promiscuous(true);
  EXPECT_TRUE(b->driver.is_broken());
  EXPECT_EQ(b->driver.join(model::mac_of(5)), -ENOSPC);
  b->driver.close();
  EXPECT_EQ(b->bus.leaked(), 1u);
  EXPECT_LT(b->bus.waited_us(), 1000u);  // all ones are not waited for
}

}  // namespace
}  // namespace weft::nic
