// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of <weft/extensions.h> for shared memory: a message that is read or written where it lies is matched and ordered like any other.
// Providers without shared memory answer -FI_ENOSYS.
#include <weft/extensions.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

bool nobody_is_near() {
  const char* value = std::getenv("FI_WEFT_SHM");
  return value != nullptr && std::strcmp(value, "0") == 0;
}
bool has_extension() { return provider_name() == "shm" || provider_name() == "weft"; }

template <class T>
T sized() {
  T made{};
  made.size = sizeof(T);
  return made;
}

struct InPlace : testing::Test {
  void SetUp() override {
    if (!has_extension() || nobody_is_near()) GTEST_SKIP() << "no shared memory";
  }

  // Both have met, and their rings are empty.
  void meet(World& w) {
    for (const size_t i : {size_t{0}, size_t{1}}) {
      WEFT_ASSERT_OK(weft_shm_open(w[i], &ops_));
      uint64_t in = 0, out = 7;
      Ctx sent, received;
      WEFT_ASSERT_OK(fi_trecv(w[1 - i], &in, 8, nullptr, FI_ADDR_UNSPEC, 99, 0, &received));
      WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[i], &out, 8, nullptr, w[i].peer[1 - i], 99, &sent); }));
      w.done(w[1 - i].rx, received);
      w.done(w[i].tx, sent);
    }
    w.progress_for(milliseconds(15));
  }
  int try_take(World& w, weft_shm_message& m, uint64_t tag, uint64_t ignore = 0, uint64_t flags = FI_TAGGED,
               size_t by = 1) {
    weft_shm_wanted wanted = sized<weft_shm_wanted>();
    wanted.flags = flags;
    wanted.source = FI_ADDR_UNSPEC;
    wanted.tag = tag;
    wanted.ignore = ignore;
    return weft_shm_take(ops_, w[by], &wanted, &m);
  }
  // Until there is one.
  weft_shm_message take(World& w, uint64_t tag, uint64_t ignore = 0, uint64_t flags = FI_TAGGED) {
    weft_shm_message m = sized<weft_shm_message>();
    WEFT_EXPECT_OK(w.post([&] { return try_take(w, m, tag, ignore, flags); }));
    return m;
  }
  void put(World& w, size_t len, uint64_t tag, uint32_t seed) {
    const auto data = pattern(len, seed);
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], data.data(), len, w[0].peer[1], tag); }));
  }
  weft_shm_room reserve(World& w, size_t len) {
    weft_shm_room room = sized<weft_shm_room>();
    WEFT_EXPECT_OK(w.post([&] { return weft_shm_reserve(ops_, w[0], w[0].peer[1], len, &room); }));
    return room;
  }
  int commit(World& w, uint64_t handle, size_t len, uint64_t tag, uint64_t flags = FI_TAGGED,
             uint64_t data = 0) {
    weft_shm_send send = sized<weft_shm_send>();
    send.flags = flags;
    send.length = len;
    send.tag = tag;
    send.cq_data = data;
    return weft_shm_commit(ops_, w[0], handle, &send);
  }
  weft_shm_rings rings(World& w, size_t of) {
    weft_shm_rings rings = sized<weft_shm_rings>();
    WEFT_EXPECT_OK(weft_shm_query_rings(ops_, w[of], w[of].peer[1 - of], &rings));
    return rings;
  }

  const weft_shm_ops* ops_ = nullptr;
};

TEST(InPlaceAnywhere, a_name_that_is_not_known_is_ENOSYS__fi_open_ops) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  void* found = nullptr;
  EXPECT_EQ(fi_open_ops(w[0].ep.fid(), "nobody's", 0, &found, nullptr), -FI_ENOSYS);
  const weft_shm_ops* ops = nullptr;
  const int opened = weft_shm_open(w[0], &ops);
  EXPECT_EQ(opened, has_extension() ? 0 : -FI_ENOSYS);
  EXPECT_EQ(ops != nullptr, has_extension());
  if (has_extension()) {
    EXPECT_EQ(fi_open_ops(w[0].ep.fid(), WEFT_SHM_OPS, 1, &found, nullptr), -FI_EBADFLAGS);
  }
  // An older library, as the wrappers see it.
  weft_shm_limits limits = sized<weft_shm_limits>();
  EXPECT_EQ(weft_shm_query_limits(nullptr, w[0], &limits), -FI_ENOSYS);
  if (ops == nullptr) return;
  weft_shm_ops old = *ops;
  old.size = offsetof(weft_shm_ops, rings);
  WEFT_EXPECT_OK(weft_shm_query_limits(&old, w[0], &limits));
  EXPECT_EQ(weft_shm_abandon(&old, w[0], 1), -FI_ENOSYS);
}

TEST(InPlaceAnywhere, a_peer_that_is_far_is_EOPNOTSUPP) {
  if (!has_extension() || !nobody_is_near()) return;
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  const weft_shm_ops* ops = nullptr;
  WEFT_ASSERT_OK(weft_shm_open(w[0], &ops));
  weft_shm_room room = sized<weft_shm_room>();
  EXPECT_EQ(weft_shm_reserve(ops, w[0], w[0].peer[1], 8, &room), -FI_EOPNOTSUPP);
  weft_shm_rings rings = sized<weft_shm_rings>();
  WEFT_EXPECT_OK(weft_shm_query_rings(ops, w[0], w[0].peer[1], &rings));
  EXPECT_EQ(rings.out_entries, 0u);
}

TEST_F(InPlace, bounds_and_occupancy) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  weft_shm_limits limits = sized<weft_shm_limits>();
  WEFT_ASSERT_OK(weft_shm_query_limits(ops_, w[0], &limits));
  EXPECT_GE(limits.write_max, 4096u);
  EXPECT_GT(limits.take_max, 0u);
  EXPECT_LE(limits.write_max, limits.ring_bytes);
  const size_t before = rings(w, 0).out_entries;
  for (int i = 0; i < 5; ++i) put(w, 1000, 1, 1);
  EXPECT_EQ(rings(w, 0).out_entries, before + 5);
  EXPECT_GE(rings(w, 0).out_bytes, 5000u);
  EXPECT_EQ(rings(w, 1).in_entries, 5u);
  EXPECT_GE(rings(w, 1).in_bytes, 5000u);
  EXPECT_LE(rings(w, 1).in_bytes, limits.ring_bytes);
  for (int i = 0; i < 5; ++i) {
    const weft_shm_message m = take(w, 1);
    EXPECT_EQ(rings(w, 1).in_taken, 1u);
    WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  }
  EXPECT_EQ(rings(w, 1).in_entries, 0u);
  EXPECT_EQ(rings(w, 1).in_taken, 0u);
  weft_shm_rings nobody = sized<weft_shm_rings>();
  EXPECT_EQ(weft_shm_query_rings(ops_, w[0], 12345, &nobody), -FI_EINVAL);
}

TEST_F(InPlace, a_message_is_taken_from_the_ring) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  for (const size_t len : {0, 1, 8, 40, 48, 49, 1000, 4096}) {
    SCOPED_TRACE(len);
    put(w, len, 0xabc, 3);
    const weft_shm_message m = take(w, 0xa00, 0xff);
    EXPECT_EQ(m.length, len);
    EXPECT_EQ(m.tag, 0xabcu);
    EXPECT_EQ(m.flags, FI_TAGGED);
    EXPECT_EQ(m.place, WEFT_SHM_IN_RING);
    EXPECT_EQ(m.source, w[1].peer[0]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(m.data) % 8, 0u);
    WEFT_EXPECT_PATTERN(m.data, len, 3);
    WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  }
  EXPECT_TRUE(w.quiet(w[1].rx));
}

TEST_F(InPlace, data_and_untagged_messages) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_MSG});
  meet(w);
  const auto data = pattern(600, 4);
  for (const size_t len : {size_t{8}, size_t{600}}) {
    WEFT_ASSERT_OK(w.post([&] { return fi_tinjectdata(w[0], data.data(), len, 0xd00d, w[0].peer[1], 7); }));
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], data.data(), len, w[0].peer[1]); }));
    weft_shm_message m = take(w, 0, 0, FI_MSG);
    EXPECT_EQ(m.flags, FI_MSG);
    EXPECT_EQ(m.tag, 0u);
    EXPECT_EQ(m.length, len);
    WEFT_EXPECT_PATTERN(m.data, len, 4);
    WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
    m = take(w, 7);  // had come before, and was put aside meanwhile
    EXPECT_EQ(m.flags, FI_TAGGED | FI_REMOTE_CQ_DATA);
    EXPECT_EQ(m.cq_data, 0xd00du);
    EXPECT_EQ(m.place, 0u);
    WEFT_EXPECT_PATTERN(m.data, len, 4);
    WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  }
}

TEST_F(InPlace, posted_receives_and_older_messages_go_first) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  uint64_t in = 0;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, &received));
  for (uint64_t i = 1; i <= 3; ++i)
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &i, 8, w[0].peer[1], 5); }));
  const auto expect = [&](uint64_t number) {
    const weft_shm_message m = take(w, 5);
    EXPECT_EQ(*static_cast<const uint64_t*>(m.data), number);
    WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  };
  expect(2);
  w.done(w[1].rx, received);
  EXPECT_EQ(in, 1u);
  w.progress_for(milliseconds(1));  // 3 is put aside now
  const uint64_t four = 4;
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &four, 8, w[0].peer[1], 5); }));
  expect(3);
  expect(4);
}

// A message that is announced keeps its place: nothing younger is taken before it.
TEST_F(InPlace, a_message_that_is_not_here_is_EMSGSIZE) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  const auto out = pattern(1'000'000, 5);
  std::vector<uint8_t> in(out.size());
  Ctx sent, received;
  WEFT_ASSERT_OK(
      w.post([&] { return fi_tsend(w[0], out.data(), out.size(), nullptr, w[0].peer[1], 6, &sent); }));
  put(w, 8, 6, 1);
  weft_shm_message m = sized<weft_shm_message>();
  EXPECT_EQ(w.post([&] { return try_take(w, m, 6); }), -FI_EMSGSIZE);
  EXPECT_EQ(m.length, out.size());
  EXPECT_EQ(m.data, nullptr);
  EXPECT_EQ(m.source, w[1].peer[0]);
  WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 6, 0, &received));
  w.done(w[1].rx, received);
  w.done(w[0].tx, sent);
  WEFT_EXPECT_PATTERN(in.data(), in.size(), 5);
  m = take(w, 6);
  EXPECT_EQ(m.length, 8u);
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  // One that comes in pieces is taken when it is whole, and was copied.
  WEFT_ASSERT_OK(
      w.post([&] { return fi_tsend(w[0], out.data(), 100'000, nullptr, w[0].peer[1], 7, &sent); }));
  m = take(w, 7);
  EXPECT_EQ(m.length, 100'000u);
  EXPECT_EQ(m.place, 0u);
  WEFT_EXPECT_PATTERN(m.data, m.length, 5);
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  w.done(w[0].tx, sent);
}

TEST_F(InPlace, delivery_complete_is_told_at_the_release) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .tx_op_flags = FI_DELIVERY_COMPLETE});
  meet(w);
  uint64_t out = 77;
  Ctx sent;
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out, 8, nullptr, w[0].peer[1], 8, &sent); }));
  const weft_shm_message m = take(w, 8);
  EXPECT_EQ(*static_cast<const uint64_t*>(m.data), 77u);
  EXPECT_TRUE(w.quiet(w[0].tx));
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  w.done(w[0].tx, sent);
}

// What is taken stays as it is while the ring behind it fills up, whatever the order of the releases.
TEST_F(InPlace, taken_messages_keep_their_room) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  weft_shm_limits limits = sized<weft_shm_limits>();
  WEFT_ASSERT_OK(weft_shm_query_limits(ops_, w[0], &limits));
  for (const size_t len : {size_t{8}, size_t{4096}}) {
    SCOPED_TRACE(len);
    for (int round = 0; round < 3; ++round) {
      std::vector<weft_shm_message> taken;
      for (uint32_t i = 0; i < 10; ++i) {
        put(w, len, i, i);
        taken.push_back(take(w, i));
        EXPECT_EQ(taken.back().place, WEFT_SHM_IN_RING);
      }
      const auto data = pattern(len, 100);
      size_t sent = 0;
      std::vector<uint8_t> in(len);
      Ctx received;
      // The receiver goes on receiving, until the sender finds no room.
      while (rings(w, 0).out_entries < limits.entries) {
        WEFT_ASSERT_OK(fi_tinject(w[0], data.data(), len, w[0].peer[1], 1000));
        WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1000, 0, &received));
        w.done(w[1].rx, received);
        WEFT_EXPECT_PATTERN(in.data(), len, 100);
        ++sent;
      }
      EXPECT_GT(sent, limits.entries / 2);
      std::vector<size_t> order(taken.size());
      std::iota(order.begin(), order.end(), size_t{0});
      if (round == 1) std::reverse(order.begin(), order.end());
      if (round == 2) std::rotate(order.begin(), order.begin() + 5, order.end());
      for (const size_t i : order) {
        WEFT_EXPECT_PATTERN(taken[i].data, len, static_cast<uint32_t>(i));
        WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], taken[i].handle));
      }
      // The ring goes round again.
      for (uint32_t i = 0; i < 2 * limits.entries; ++i) {
        put(w, len, 5, i);
        const weft_shm_message m = take(w, 5);
        WEFT_EXPECT_PATTERN(m.data, len, i);
        WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
      }
    }
  }
}

TEST_F(InPlace, no_more_than_take_max) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  weft_shm_limits limits = sized<weft_shm_limits>();
  WEFT_ASSERT_OK(weft_shm_query_limits(ops_, w[0], &limits));
  std::vector<weft_shm_message> taken;
  for (size_t i = 0; i < limits.take_max; ++i) {
    put(w, 8, 1, 1);
    w.progress();  // put aside: the ring is shorter than what may be taken
    taken.push_back(take(w, 1));
  }
  put(w, 8, 1, 1);
  w.progress();
  weft_shm_message m = sized<weft_shm_message>();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(try_take(w, m, 1), -FI_EAGAIN);
  for (const weft_shm_message& one : taken) WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], one.handle));
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], take(w, 1).handle));
}

TEST_F(InPlace, a_message_is_written_in_the_ring) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_MSG, .counters = {FI_SEND}});
  meet(w);
  weft_shm_limits limits = sized<weft_shm_limits>();
  WEFT_ASSERT_OK(weft_shm_query_limits(ops_, w[0], &limits));
  uint64_t count = fi_cntr_read(w[0].counter(FI_SEND));
  for (const size_t len : {size_t{0}, size_t{1}, size_t{8}, size_t{64}, size_t{5000}, limits.write_max}) {
    for (int i = 0; i < 40; ++i) {
      SCOPED_TRACE(len);
      const weft_shm_room room = reserve(w, len);
      ASSERT_NE(room.data, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(room.data) % 64, 0u);
      fill(room.data, len, 9);
      std::vector<uint8_t> in(len + 1);
      Ctx received;
      const bool data = i % 2 == 1;
      WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 11, 0, &received));
      WEFT_ASSERT_OK(commit(w, room.handle, len, 11, FI_TAGGED | (data ? FI_REMOTE_CQ_DATA : 0), 0xc0de));
      const Completion c = w.done(w[1].rx, received);
      EXPECT_EQ(c.len, len);
      EXPECT_EQ(c.tag, 11u);
      EXPECT_EQ(c.data, data ? 0xc0deu : 0u);
      WEFT_EXPECT_PATTERN(in.data(), len, 9);
      EXPECT_EQ(fi_cntr_read(w[0].counter(FI_SEND)), ++count);
    }
  }
  // From one ring to the reader without any copy, and less than was reserved.
  const weft_shm_room room = reserve(w, 1000);
  fill(room.data, 600, 10);
  WEFT_ASSERT_OK(commit(w, room.handle, 600, 0, FI_MSG));
  const weft_shm_message m = take(w, 0, 0, FI_MSG);
  EXPECT_EQ(m.length, 600u);
  EXPECT_EQ(m.place, WEFT_SHM_IN_RING);
  WEFT_EXPECT_PATTERN(m.data, 600, 10);
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  EXPECT_TRUE(w.quiet(w[0].tx));
}

// The place in the order is that of the reservation; what comes later waits.
TEST_F(InPlace, what_is_sent_later_stays_behind) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  const auto big = pattern(20'000, 1);
  for (const bool commits : {true, false}) {
    SCOPED_TRACE(commits);
    put(w, 8, 3, 1);
    const weft_shm_room room = reserve(w, 100);
    weft_shm_room second = sized<weft_shm_room>();
    EXPECT_EQ(weft_shm_reserve(ops_, w[0], w[0].peer[1], 8, &second), -FI_EBUSY);
    put(w, 16, 3, 1);
    Ctx sent;
    WEFT_ASSERT_OK(
        w.post([&] { return fi_tsend(w[0], big.data(), big.size(), nullptr, w[0].peer[1], 3, &sent); }));
    weft_shm_message m = take(w, 3);
    EXPECT_EQ(m.length, 8u);
    WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
    w.progress_for(milliseconds(2));
    EXPECT_EQ(try_take(w, m, 3), -FI_EAGAIN);
    if (commits) {
      fill(room.data, 100, 2);
      WEFT_ASSERT_OK(commit(w, room.handle, 100, 3));
    } else {
      WEFT_ASSERT_OK(weft_shm_abandon(ops_, w[0], room.handle));
    }
    std::vector<size_t> lengths;
    for (int i = 0; i < (commits ? 3 : 2); ++i) {
      m = take(w, 3);
      lengths.push_back(m.length);
      WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
    }
    EXPECT_EQ(lengths, commits ? (std::vector<size_t>{100, 16, 20'000}) : (std::vector<size_t>{16, 20'000}));
    w.done(w[0].tx, sent);
    weft_shm_room again = reserve(w, 8);
    WEFT_ASSERT_OK(weft_shm_abandon(ops_, w[0], again.handle));
  }
}

// The other direction goes on while a room is open: answers, acknowledgements and what is fetched.
TEST_F(InPlace, a_reservation_does_not_stop_the_other_direction) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .tx_op_flags = FI_DELIVERY_COMPLETE});
  meet(w);
  const weft_shm_room room = reserve(w, 4096);
  for (const size_t len : {size_t{8}, size_t{8000}, size_t{600'000}}) {
    const auto out = pattern(len, 8);
    std::vector<uint8_t> in(len);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_trecv(w[0], in.data(), len, nullptr, FI_ADDR_UNSPEC, 4, 0, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[1], out.data(), len, nullptr, w[1].peer[0], 4, &sent); }));
    w.done(w[0].rx, received);
    w.done(w[1].tx, sent);
    WEFT_EXPECT_PATTERN(in.data(), len, 8);
  }
  WEFT_ASSERT_OK(commit(w, room.handle, 0, 1));
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], take(w, 1).handle));
}

TEST_F(InPlace, wrong_calls_say_so) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  // Handles that are none, or are over.
  put(w, 8, 1, 1);
  weft_shm_message m = take(w, 1);
  EXPECT_EQ(weft_shm_release(ops_, w[0], m.handle), -FI_EINVAL) << "of the other endpoint";
  EXPECT_EQ(commit(w, m.handle, 8, 1), -FI_EINVAL);
  EXPECT_EQ(weft_shm_abandon(ops_, w[1], m.handle), -FI_EINVAL);
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], m.handle));
  EXPECT_EQ(weft_shm_release(ops_, w[1], m.handle), -FI_EINVAL);
  for (const uint64_t wrong : {uint64_t{0}, ~uint64_t{0}, m.handle + 1}) {
    EXPECT_EQ(weft_shm_release(ops_, w[1], wrong), -FI_EINVAL);
    EXPECT_EQ(commit(w, wrong, 8, 1), -FI_EINVAL);
    EXPECT_EQ(weft_shm_abandon(ops_, w[0], wrong), -FI_EINVAL);
  }
  weft_shm_room room = reserve(w, 16);
  EXPECT_EQ(weft_shm_release(ops_, w[0], room.handle), -FI_EINVAL);
  EXPECT_EQ(commit(w, room.handle, 17, 1), -FI_EMSGSIZE);
  EXPECT_EQ(commit(w, room.handle, 8, 1, FI_TAGGED | FI_MSG), -FI_EINVAL);
  EXPECT_EQ(commit(w, room.handle, 8, 1, 0), -FI_EINVAL);
  WEFT_EXPECT_OK(commit(w, room.handle, 16, 1));
  EXPECT_EQ(commit(w, room.handle, 16, 1), -FI_EINVAL);
  EXPECT_EQ(weft_shm_abandon(ops_, w[0], room.handle), -FI_EINVAL);
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], take(w, 1).handle));
  // Sizes.
  weft_shm_limits limits = sized<weft_shm_limits>();
  WEFT_ASSERT_OK(weft_shm_query_limits(ops_, w[0], &limits));
  EXPECT_EQ(weft_shm_reserve(ops_, w[0], w[0].peer[1], limits.write_max + 1, &room), -FI_EMSGSIZE);
  EXPECT_EQ(weft_shm_reserve(ops_, w[0], 12345, 8, &room), -FI_EINVAL);
  EXPECT_EQ(weft_shm_reserve(ops_, w[0], w[0].peer[1], 8, nullptr), -FI_EINVAL);
  m.size = 0;
  EXPECT_EQ(try_take(w, m, 1), -FI_EINVAL);
  room.size = 8;
  EXPECT_EQ(weft_shm_reserve(ops_, w[0], w[0].peer[1], 8, &room), -FI_EINVAL);
  EXPECT_EQ(weft_shm_take(ops_, w[1], nullptr, &m), -FI_EINVAL);
  EXPECT_EQ(weft_shm_commit(ops_, w[0], 1, nullptr), -FI_EINVAL);
  m.size = sizeof m;
  EXPECT_EQ(try_take(w, m, 1, 0, FI_TAGGED | FI_PEEK), -FI_EINVAL);
  // Endpoints of somebody else.
  fi_ops foreign_ops{};
  fid_ep foreign{};
  EXPECT_EQ(weft_shm_release(ops_, &foreign, 1), -FI_EINVAL);
  foreign.fid.ops = &foreign_ops;
  EXPECT_EQ(weft_shm_release(ops_, &foreign, 1), -FI_EINVAL);
  EXPECT_EQ(weft_shm_release(ops_, nullptr, 1), -FI_EINVAL);
  Handle<fid_ep> closed;
  WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), closed.out(), nullptr));
  EXPECT_EQ(weft_shm_query_limits(ops_, closed.get(), &limits), -FI_EOPBADSTATE);
}

// A program that was built with a later header: what it does not ask for costs nothing, and what it asks for is refused.
TEST_F(InPlace, structures_of_another_size) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  struct LaterWanted {
    weft_shm_wanted known;
    uint64_t later;
  } wanted{};
  wanted.known.size = sizeof wanted;
  wanted.known.flags = FI_TAGGED;
  wanted.known.source = FI_ADDR_UNSPEC;
  wanted.known.tag = 1;
  struct LaterMessage {
    weft_shm_message known;
    uint64_t later;
  } message{};
  message.known.size = sizeof message;
  message.later = 5;
  put(w, 8, 1, 1);
  WEFT_ASSERT_OK(w.post([&] { return weft_shm_take(ops_, w[1], &wanted.known, &message.known); }));
  EXPECT_EQ(message.later, 0u);
  EXPECT_EQ(message.known.size, sizeof message);
  EXPECT_EQ(message.known.length, 8u);
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], message.known.handle));
  wanted.later = 1;
  EXPECT_EQ(weft_shm_take(ops_, w[1], &wanted.known, &message.known), -FI_ENOSYS);
}

TEST_F(InPlace, closing_ends_what_is_open) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  meet(w);
  put(w, 8, 1, 1);
  put(w, 2000, 2, 1);
  w.progress_for(milliseconds(1));
  put(w, 2000, 3, 1);
  for (const uint64_t tag : {1, 2, 3}) (void)take(w, tag);
  weft_shm_room room = reserve(w, 1000);
  fill(room.data, 1000, 1);
  put(w, 8, 4, 1);  // goes out when the room is given back
  WEFT_ASSERT_OK(w.close_endpoint(0));
  WEFT_EXPECT_OK(weft_shm_release(ops_, w[1], take(w, 4).handle));
  w.progress_for(milliseconds(30));  // the peer has gone; what was taken is still there
  WEFT_ASSERT_OK(w.close_endpoint(1));
}

}  // namespace
}  // namespace weft::conformance
