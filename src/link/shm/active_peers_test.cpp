// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the list of peers whose rings every poll looks at, and of doorbells, without endpoints.
#include "link/shm/active_peers.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "link/shm/doorbells.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t ms = 1'000'000;

// Peers that have attached a channel to us, one file for all of them.
class ShmActivePeers : public testing::Test {
 protected:
  ShmActivePeers() {
    remote->fences = 1;
    active.set_fences(true);
    doorbells.open(*header);
  }
  Peer& make(bool with_fences = true) {
    peers.push_back(std::make_unique<Peer>());
    Peer& peer = *peers.back();
    auto file = os::create_memory("weft-active-test", channel_bytes);
    peer.in.open(std::move(*os::map_memory(*file, 0, channel_bytes)));
    peer.remote = with_fences ? remote.get() : nullptr;
    doorbells.add(peer);
    return peer;
  }
  static uint32_t polled(const Peer& peer) { return peer.in.control()->polled.load(); }

  std::unique_ptr<RegionHeader> header = std::make_unique<RegionHeader>();
  std::unique_ptr<RegionHeader> remote = std::make_unique<RegionHeader>();
  std::vector<std::unique_ptr<Peer>> peers;
  ActivePeers active;
  Doorbells doorbells;
};

TEST_F(ShmActivePeers, APeerInTheListNeedNotRing) {
  Peer& peer = make();
  active.add(peer, ms);
  ASSERT_EQ(active.size(), 1U);
  EXPECT_EQ(&active[0], &peer);
  EXPECT_EQ(polled(peer), 1U);
  active.remove(peer);
  EXPECT_EQ(active.size(), 0U);
  EXPECT_EQ(polled(peer), 0U);
}

TEST_F(ShmActivePeers, WithoutTheFenceItRingsAllTheSame) {
  Peer& peer = make(false);
  active.add(peer, ms);
  EXPECT_EQ(active.size(), 1U);
  EXPECT_EQ(polled(peer), 0U);
}

TEST_F(ShmActivePeers, APeerWithoutARingStaysOutside) {
  Peer& peer = make();
  peer.in.stop();
  active.add(peer, ms);
  EXPECT_EQ(active.size(), 0U);
}

TEST_F(ShmActivePeers, WhileTheOwnerSleepsAllRing) {
  Peer& first = make();
  active.add(first, ms);
  active.arm();
  EXPECT_TRUE(active.is_armed());
  EXPECT_EQ(polled(first), 0U);
  Peer& second = make();
  active.add(second, ms);
  EXPECT_EQ(polled(second), 0U);
  active.disarm();
  EXPECT_EQ(polled(first), 1U);
  EXPECT_EQ(polled(second), 1U);
}

TEST_F(ShmActivePeers, AQuietPeerLeavesAFullListSlowly) {
  for (size_t i = 0; i < ActivePeers::count_max; ++i) active.add(make(), 100 * ms + i);
  Peer& late = make();
  active.add(late, 110 * ms);  // nobody has been quiet for long
  EXPECT_FALSE(late.activity.active);
  EXPECT_FALSE(peers[0]->activity.demoting);
  active.add(late, 200 * ms);
  EXPECT_FALSE(late.activity.active);
  Peer& quiet = *peers[0];
  EXPECT_TRUE(quiet.activity.demoting);
  EXPECT_EQ(polled(quiet), 0U);
  EXPECT_TRUE(quiet.activity.active);  // it may not have seen that yet
  std::vector<Peer*> left;
  const auto leave = [&](Peer& peer) { left.push_back(&peer); };
  active.finish_leaving(201 * ms, leave);
  EXPECT_TRUE(left.empty());
  active.finish_leaving(202 * ms, leave);
  EXPECT_EQ(left, std::vector<Peer*>{&quiet});
  EXPECT_EQ(active.size(), ActivePeers::count_max - 1);
  active.add(late, 203 * ms);
  EXPECT_TRUE(late.activity.active);
}

TEST_F(ShmActivePeers, WhoRingsIsFoundOnce) {
  Peer& first = make();
  Peer& second = make();
  std::vector<Peer*> rung;
  const auto take = [&] {
    rung.clear();
    doorbells.collect(header->pending.exchange(0), rung);
  };
  take();
  EXPECT_TRUE(rung.empty());
  ChannelControl channel{};
  channel.doorbell.store(second.doorbell + 1);
  EXPECT_FALSE(ring(channel, *header));
  take();
  EXPECT_EQ(rung, std::vector<Peer*>{&second});
  take();
  EXPECT_TRUE(rung.empty());
  doorbells.ring_own(first);
  EXPECT_FALSE(ring(channel, *header));
  take();
  EXPECT_EQ(rung.size(), 2U);
  doorbells.remove(first);
  doorbells.ring_own(first);
  take();
  EXPECT_TRUE(rung.empty());
}

TEST_F(ShmActivePeers, OnlyOneWakesASleeper) {
  ChannelControl channel{};
  channel.doorbell.store(1);
  header->sleeping.store(1);
  EXPECT_TRUE(ring(channel, *header));
  EXPECT_FALSE(ring(channel, *header));
}

TEST_F(ShmActivePeers, AReceiverThatHasNotAttachedLooksAtItsSocket) {
  ChannelControl channel{};
  EXPECT_FALSE(ring_unmapped(channel));  // the hello on its way is the doorbell
  EXPECT_FALSE(ring(channel, *header));
  EXPECT_EQ(header->pending.load(), pending_socket);
  channel.doorbell.store(1);
  EXPECT_TRUE(ring_unmapped(channel));
}

}  // namespace
}  // namespace weft::link::shm
