// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two drivers of different kinds on one cable: what one sends the other receives, whatever their rings look like.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "nic/e1000e/driver.hpp"
#include "nic/model/e1000e.hpp"
#include "nic/model/stand.hpp"
#include "nic/model/virtio_net.hpp"
#include "nic/virtio_net/driver.hpp"

namespace weft::nic {
namespace {

struct Cable : testing::TestWithParam<bool> {  // with packed rings
  using Intel = model::Stand<model::E1000e, e1000e::Driver>;
  using Virtio = model::Stand<model::VirtioNet, virtio_net::Driver>;

  Cable() {
    DriverSettings settings;
    settings.frame_bytes_max = bytes_max;
    settings.transmit_descriptors = settings.receive_descriptors = 64;
    EXPECT_TRUE(intel.driver.open(settings));
    EXPECT_TRUE(virtio.driver.open(settings));
  }
  static std::unique_ptr<model::VirtioNet> make(model::Hub& hub) {
    model::VirtioNet::Settings settings;
    settings.mac = model::mac_of(2);
    settings.mtu = bytes_max - 14;
    settings.on_violation = [](const char* what) { ADD_FAILURE() << what; };
    if (!GetParam()) settings.features &= ~virtio_net::feature::packed_ring;
    return std::make_unique<model::VirtioNet>(hub, settings);
  }

  static constexpr size_t bytes_max = 9014;
  model::Hub hub;
  Intel intel{std::make_unique<model::E1000e>(hub, model::E1000e::Settings{.mac = model::mac_of(1)})};
  Virtio virtio{make(hub)};
};

INSTANTIATE_TEST_SUITE_P(Rings, Cable, testing::Bool());

TEST_P(Cable, CarriesFramesBothWays) {
  std::mt19937 random(7);
  size_t count = 0;
  const auto send = [&](auto& from, const wire::Mac& to, std::deque<std::vector<std::byte>>& in_flight) {
    for (unsigned batch = random() % 6; batch > 0; --batch) {
      const size_t bytes = random() % 8 == 0 ? bytes_max : 60 + random() % 1455;
      auto frame = model::frame_of(to, from.driver.mac(), bytes, random());
      if (from.post(frame, in_flight.size())) in_flight.push_back(std::move(frame));
    }
    from.driver.kick();
    from.reclaim();
  };
  const auto receive = [&](auto& at, std::deque<std::vector<std::byte>>& in_flight) {
    at.receive(1000);
    for (const auto& frame : at.frames) {
      ASSERT_FALSE(in_flight.empty());
      ASSERT_EQ(frame.bytes, in_flight.front());
      in_flight.pop_front();
      ++count;
    }
    at.frames.clear();
  };
  std::deque<std::vector<std::byte>> to_virtio;
  std::deque<std::vector<std::byte>> to_intel;
  for (unsigned round = 0; round < 1000; ++round) {
    send(intel, model::mac_of(2), to_virtio);
    send(virtio, model::mac_of(1), to_intel);
    ASSERT_NO_FATAL_FAILURE(receive(virtio, to_virtio));
    ASSERT_NO_FATAL_FAILURE(receive(intel, to_intel));
    ASSERT_TRUE(to_virtio.empty() && to_intel.empty());
  }
  EXPECT_GT(count, 4000u);
}

TEST_P(Cable, WakesTheOtherKind) {
  while (!intel.driver.arm()) intel.receive();
  ASSERT_TRUE(virtio.driver.arm());
  ASSERT_TRUE(intel.send(model::frame_of(model::mac_of(2), model::mac_of(1), 60)));
  EXPECT_TRUE(virtio.bus.host().is_pending(0));
  ASSERT_TRUE(virtio.send(model::frame_of(model::mac_of(1), model::mac_of(2), 60)));
  EXPECT_TRUE(intel.bus.host().is_pending(0));
  EXPECT_EQ(virtio.receive(), 1u);
  EXPECT_EQ(intel.receive(), 1u);
}

TEST_P(Cable, OneGoesWhileTheOtherSends) {
  const auto frame = model::frame_of(model::mac_of(2), model::mac_of(1), 500);
  for (unsigned round = 0; round < 10; ++round) {
    for (unsigned i = 0; i < 10; ++i) ASSERT_TRUE(intel.send(frame));
    intel.reclaim();
    virtio.driver.close();
    ASSERT_TRUE(intel.send(frame));
    intel.reclaim();
    ASSERT_TRUE(virtio.driver.open({}));
    EXPECT_EQ(virtio.receive(), 0u);
    ASSERT_TRUE(intel.send(frame));
    intel.reclaim();
    EXPECT_EQ(virtio.receive(), 1u);
  }
}

}  // namespace
}  // namespace weft::nic
