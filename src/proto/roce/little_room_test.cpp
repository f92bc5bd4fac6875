// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A receiver whose ring holds few packets: RC sends less at a time, and does not give up.
#include <algorithm>
#include <utility>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

struct LittleRoom : Pair {
  LittleRoom(size_t frames, bool is_weft_peer) : room(frames) {
    if (is_weft_peer)
      for (Port* port : {&a, &b}) port->adapter.is_weft_peer = [](const Gid&) noexcept { return true; };
    common.path_mtu = 3;
    common.timeout = 14;  // 67 ms
    common.retry_count = 7;
    connect();
    fill(from, 5);
  }
  // What one side sends in its turn reaches the other one as far as its ring holds it; the rest is lost.
  void turn(Port& sender, Port& receiver) {
    sender.adapter.flush(now);
    size_t used = 0;
    for (const PacketBytes& one : std::exchange(sender.out, {})) {
      if (used++ < room) give(receiver, one);
      else ++lost;
    }
  }
  void run() {
    for (int turns = 0; turns < 200'000; ++turns) {
      turn(a, b);
      turn(b, a);
      if (!a.adapter.has_ready() && !b.adapter.has_ready()) {
        const uint64_t due = std::min(a.adapter.next_due(), b.adapter.next_due());
        if (due == UINT64_MAX) return;
        now = std::max(now, due);
      }
    }
    ADD_FAILURE() << "does not come to rest";
  }

  Block from{a, 1 << 17};
  Block to{b, 1 << 17};
  size_t room;
  uint64_t lost = 0;
};

TEST(RoceLittleRoom, MessagesLongerThanTheRingArrive) {
  for (const bool is_weft_peer : {false, true}) {
    for (const size_t room : {1, 2, 4, 14}) {
      LittleRoom p(room, is_weft_peer);
      constexpr uint64_t messages = 50;
      for (uint64_t id = 0; id < messages; ++id) {
        ASSERT_EQ(p.receive(p.b, id, {p.to.element(0, 1 << 17)}), 0);
        ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, p.from.element(0, 100'000), id)), 0);
        p.run();
        expect_one(p.a, id, CompletionOpcode::Send);
        expect_one(p.b, id, CompletionOpcode::Receive);
        ASSERT_EQ(std::memcmp(p.from.at, p.to.at, 100'000), 0);
        std::fill_n(p.to.at, 100'000, std::byte{0});
      }
      const AdapterCounters& c = p.a.adapter.counters();
      // 98 packets each.
      EXPECT_LE(c.timeouts, 4 * messages) << room << (is_weft_peer ? " of Weft" : "");
      EXPECT_LT(p.lost, 8 * messages * 98) << room << (is_weft_peer ? " of Weft" : "");
    }
  }
}

// It is no limit for good.
TEST(RoceLittleRoom, TheWindowIsWholeAgainWhereThereIsRoom) {
  LittleRoom p(4, false);
  ASSERT_EQ(p.receive(p.b, 1, {p.to.element(0, 1 << 17)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, p.from.element(0, 100'000), 1)), 0);
  p.run();
  EXPECT_LT(p.a.qp->requester.allowed, 20u);
  p.room = 1000;
  for (uint64_t id = 2; id < 150; ++id) {
    ASSERT_EQ(p.receive(p.b, id, {p.to.element(0, 1 << 17)}), 0);
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, p.from.element(0, 100'000), id)), 0);
    p.run();
  }
  EXPECT_EQ(p.a.qp->requester.allowed, UINT32_MAX);
}

}  // namespace
}  // namespace weft::proto::roce::sim
