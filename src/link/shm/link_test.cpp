// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the shared memory link: frames between two links in one process, in two threads and in two processes. What becomes of peers is in
// peers_test.cpp.
#include "link/shm/test_node.hpp"

namespace weft::link::shm {
namespace {

INSTANTIATE_TEST_SUITE_P(ShmLink, Meeting, testing::Bool(),
                         [](const auto& which) { return which.param ? "ByDatagramsOnly" : "ThroughProc"; });

TEST_P(Meeting, CarriesEverySizeBothWays) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  const size_t sizes[] = {
      0, 1, 8, 39, 40, 41, 47, 48, 49, 63, 64, 65, 4095, 4096, 8192, 40000, Link::frame_bytes_max};
  uint64_t id = 0;
  for (const bool with_b : {false, true}) {
    for (const size_t size : sizes) {
      ++id;
      ASSERT_TRUE(a.send(*to_b, id, pattern(id, size), with_b));
      ASSERT_TRUE(b.poll_for_frames(1)) << size;
      expect_frame(b.frames.front(), id, size, with_b);
      // And back, through the peer object that the frame came with.
      ASSERT_TRUE(b.send(*b.frames.front().from, id + 1000, pattern(id + 1000, size), with_b));
      b.frames.clear();
      ASSERT_TRUE(a.poll_for_frames(1)) << size;
      EXPECT_EQ(a.frames.front().from, to_b);
      expect_frame(a.frames.front(), id + 1000, size, with_b);
      a.frames.clear();
    }
  }
  EXPECT_TRUE(a.lost.empty());
  EXPECT_TRUE(b.lost.empty());
}

// They do not go through the ring, so a class that took that over from its neighbour would never be measured.
TEST_P(Meeting, TheLongestMessagesDoNotBeginWithTheRing) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* const peer = a.connect(b);
  ASSERT_NE(peer, nullptr);
  peer->memory.allow();
  peer->copies = std::make_unique<Copies>();
  auto& neighbour = peer->copies->choosers[copy_classes - 2];
  neighbour = std::make_unique<CopyChooser>(proto::CopyPath::Both, 7);
  for (int i = 0; i < 1000 && !neighbour->is_informed(); ++i)
    (void)neighbour->note(neighbour->path(), neighbour->path() == proto::CopyPath::Ring ? 1000 : 9000,
                          1 << 20);
  ASSERT_TRUE(neighbour->is_informed());
  ASSERT_EQ(neighbour->best(), proto::CopyPath::Ring);
  constexpr uint64_t bytes = uint64_t{64} << 20;
  for (int i = 0; i < 100; ++i) {  // one that is looked at late is not measured
    const uint64_t now = a.link.stamp();
    const proto::CopyChoice choice = a.link.choose_copy(*peer, bytes, now, now);
    EXPECT_NE(choice.path, proto::CopyPath::Ring);
    a.link.copied(*peer, choice.path, bytes, choice.start);
  }
  EXPECT_NE(peer->copies->choosers[copy_classes - 1]->messages(), 0u);
}

TEST_P(Meeting, BothMayConnectAtOnce) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  Peer* to_a = b.connect(a);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 10)));
  ASSERT_TRUE(b.send(*to_a, 2, pattern(2, 10)));
  ASSERT_TRUE(b.poll_for_frames(1));
  ASSERT_TRUE(a.poll_for_frames(1));
  EXPECT_EQ(b.frames.front().from, to_a);
  EXPECT_EQ(a.frames.front().from, to_b);
  EXPECT_EQ(a.peers.size(), 1u);
  EXPECT_EQ(b.peers.size(), 1u);
}

TEST_P(Meeting, SmallFramesGoInlined) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  for (uint64_t id = 0; id < 1000; ++id) {
    const auto bytes = pattern(id, id % (Link::small_bytes_max + 1));
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 3, static_cast<uint32_t>(bytes.size()), id, 0};
    const proto::SmallSend sent = a.link.send_small(*to_b, head, bytes.data());
    ASSERT_NE(sent, proto::SmallSend::Refused);
    if (sent == proto::SmallSend::Unseen) a.link.wake_receiver(*to_b);
    ASSERT_TRUE(b.poll_for_frames(1));
    expect_frame(b.frames.front(), id, bytes.size(), false);
    b.frames.clear();
    a.link.poll(a);
    if (!to_b->out.has_slot() && !a.link.more_room(*to_b)) {  // send() looks for credit
      ASSERT_TRUE(a.send(*to_b, 5000, pattern(5000, 1)));
      ASSERT_TRUE(b.poll_for_frames(1));
      b.frames.clear();
    }
  }
}

TEST_P(Meeting, ALinkMayTalkToItself) {
  Node a(name("a"));
  Peer* to_a = a.connect(a);
  for (uint64_t id = 0; id < 300; ++id) {
    ASSERT_TRUE(a.send(*to_a, id, pattern(id, id * 20)));
    ASSERT_TRUE(a.poll_for_frames(1));
    expect_frame(a.frames.front(), id, id * 20, false);
    a.frames.clear();
  }
}

// Random sizes and random polls: slots and bulk wrap many times, refusals come and go, order stays.
TEST_P(Meeting, RingsWrapInOrder) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  std::mt19937_64 random(7);
  uint64_t next = 0;
  uint64_t seen = 0;
  size_t refused = 0;
  constexpr uint64_t count = 6000;
  const auto size_of = [](uint64_t id) {
    std::mt19937_64 one(id);
    const uint64_t kind = one() % 4;
    return kind < 2 ? one() % 64 : kind == 2 ? one() % 9000 : one() % (Link::frame_bytes_max + 1);
  };
  const uint64_t until = os::monotonic_ns() + 20'000 * ms;
  while (seen < count && os::monotonic_ns() < until) {
    for (uint64_t n = random() % 200; n > 0 && next < count; --n) {
      if (!a.send(*to_b, next, pattern(next, size_of(next)), next % 3 == 0)) {
        ++refused;
        break;
      }
      ++next;
    }
    b.refusals = random() % 8 == 0 ? 1 : 0;
    for (uint64_t n = random() % 12; n > 0; --n) b.link.poll(b);
    a.link.poll(a);
    for (; !b.frames.empty(); b.frames.pop_front(), ++seen) {
      expect_frame(b.frames.front(), seen, size_of(seen), seen % 3 == 0);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(seen, count);
  EXPECT_GT(refused, 0u);
}

TEST_P(Meeting, AFullRingRefusesAndGoesOnLater) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  uint64_t sent = 0;
  while (a.send(*to_b, sent, pattern(sent, 8))) ++sent;
  EXPECT_EQ(sent, slot_count);
  EXPECT_EQ(a.link.send_small(*to_b, {wire::FrameKind::Tagged, 0, 3, 0, 0, 0}, nullptr),
            proto::SmallSend::Refused);
  ASSERT_TRUE(b.poll_for_frames(sent));
  for (uint64_t id = 0; id < sent; ++id) expect_frame(b.frames[id], id, 8, false);
  EXPECT_TRUE(a.send(*to_b, sent, pattern(sent, 8)));
  b.frames.clear();
  ASSERT_TRUE(b.poll_for_frames(1));
  expect_frame(b.frames.front(), sent, 8, false);
}

TEST_P(Meeting, AFullBulkRingRefusesAndGoesOnLater) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  for (int round = 0; round < 20; ++round) {
    uint64_t sent = 0;
    while (a.send(*to_b, sent, pattern(sent, 50'000))) ++sent;
    EXPECT_GE(sent, 3u);
    EXPECT_LE(sent, bulk_bytes / 50'000);
    EXPECT_TRUE(a.send(*to_b, sent, pattern(sent, 48))) << "a small frame needs no bulk";
    ASSERT_TRUE(b.poll_for_frames(sent + 1));
    for (uint64_t id = 0; id < sent; ++id) expect_frame(b.frames[id], id, 50'000, false);
    b.frames.clear();
    // The credit of the last bytes comes with a look at the clock at the latest.
    const uint64_t until = os::monotonic_ns() + 1000 * ms;
    while (!a.send(*to_b, 9, pattern(9, 60'000)) && os::monotonic_ns() < until) b.link.poll(b);
    ASSERT_TRUE(b.poll_for_frames(1));
    expect_frame(b.frames.front(), 9, 60'000, false);
    b.frames.clear();
    b.poll_until([] { return false; }, 25);
  }
}

TEST_P(Meeting, ARefusedFrameIsShownAgain) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  b.refusals = 5;
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(a.send(*to_b, id, pattern(id, id * 100)));
  ASSERT_TRUE(b.poll_for_frames(3));
  for (uint64_t id = 0; id < 3; ++id) expect_frame(b.frames[id], id, id * 100, false);
}

// --- many peers ---

TEST_P(Meeting, MorePeersThanArePolled) {
  constexpr size_t count = 40;
  Node hub(name("hub"));
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Peer*> to_hub;
  for (size_t i = 0; i < count; ++i) {
    nodes.push_back(std::make_unique<Node>(name("n")));
    to_hub.push_back(nodes[i]->connect(hub));
  }
  std::mt19937_64 random(3);
  std::vector<uint64_t> sent(count, 0);
  std::vector<uint64_t> seen(count, 0);
  const auto take = [&] {
    for (; !hub.frames.empty(); hub.frames.pop_front()) {
      const uint64_t from = hub.frames.front().head.a >> 32;
      ASSERT_LT(from, count);
      ASSERT_EQ(static_cast<uint32_t>(hub.frames.front().head.a), seen[from]) << "from " << from;
      ++seen[from];
    }
  };
  for (int round = 0; round < 300; ++round) {
    // Favourites change, so that peers enter and leave the list of polled ones.
    const size_t favourite = (static_cast<size_t>(round) / 30 * 7) % count;
    for (int n = 0; n < 30; ++n) {
      const size_t i = random() % 3 != 0 ? (favourite + random() % 10) % count : random() % count;
      const uint64_t a = uint64_t{i} << 32 | sent[i];
      if (nodes[i]->send(*to_hub[i], a, pattern(a, random() % 100))) ++sent[i];
      if (random() % 8 == 0) nodes[i]->link.poll(*nodes[i]);
    }
    hub.link.poll(hub);
    take();
    if (round % 30 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      hub.poll_until([] { return false; }, 3);
    }
  }
  EXPECT_TRUE(hub.poll_until([&] {
    for (auto& node : nodes) node->link.poll(*node);  // hellos that found the hub's socket full
    take();
    return HasFatalFailure() || seen == sent;
  }));
  EXPECT_EQ(seen, sent);
  EXPECT_TRUE(hub.lost.empty());
}

// --- reading the peer's memory ---

TEST_P(Meeting, ReadsThePeersMemory) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
  ASSERT_TRUE(b.poll_for_frames(1));
  ASSERT_TRUE(a.poll_until([&] { return to_b->remote != nullptr; }));
  a.poll_until([] { return false; }, 5);
  if (!a.link.can_read(*to_b)) GTEST_SKIP() << "cross-memory attach is not allowed here";
  const auto source = pattern(9, 100'000);
  std::vector<std::byte> target(100'000);
  const wire::SourceSegment from[] = {{reinterpret_cast<uint64_t>(source.data()), 30'000},
                                      {reinterpret_cast<uint64_t>(source.data()) + 30'000, 70'000}};
  const iovec to[] = {{target.data(), 99'999}, {target.data() + 99'999, 1}};
  EXPECT_EQ(a.link.read(*to_b, to, 2, from, 2, source.size()), 0);
  EXPECT_TRUE(target == source);
  const wire::SourceSegment bad[] = {{16, 100}};
  EXPECT_LT(a.link.read(*to_b, to, 2, bad, 1, 100), 0);
  const wire::SourceSegment little[] = {{reinterpret_cast<uint64_t>(source.data()), 50}};
  EXPECT_LT(a.link.read(*to_b, to, 2, little, 1, 100), 0);
}

// --- two processes, two threads ---

TEST_P(Meeting, TwoProcessesEcho) {
  Node a(name("a"));
  const std::string mine = name("b");
  constexpr uint64_t count = 3000;
  const auto size_of = [](uint64_t id) {
    return id % 7 == 0 ? (id * 131) % (Link::frame_bytes_max + 1) : (id * 13) % 300;
  };
  const pid_t child = spawn([&] {
    Node b(mine);
    Peer* to_a = b.connect(a);
    if (!b.send(*to_a, 0, {})) return 2;
    for (uint64_t id = 0; id < count;) {
      if (!b.poll_for_frames(1, 10'000)) return 3;
      for (; !b.frames.empty(); b.frames.pop_front(), ++id) {
        const Received& frame = b.frames.front();
        if (frame.head.a != id || frame.payload != pattern(id, size_of(id))) return 4;
        const uint64_t until = os::monotonic_ns() + 10'000 * ms;
        while (!b.send(*to_a, frame.head.a, frame.payload)) {
          if (os::monotonic_ns() > until) return 5;
          std::this_thread::yield();
        }
      }
    }
    return 0;
  });
  ASSERT_TRUE(a.poll_for_frames(1, 10'000));
  Peer* to_b = a.frames.front().from;
  a.frames.clear();
  uint64_t seen = 0;
  const uint64_t until = os::monotonic_ns() + 30'000 * ms;
  for (uint64_t id = 0; seen < count && os::monotonic_ns() < until;) {
    if (id < count && a.send(*to_b, id, pattern(id, size_of(id)))) ++id;
    a.link.poll(a);
    for (; !a.frames.empty(); a.frames.pop_front(), ++seen)
      expect_frame(a.frames.front(), seen, size_of(seen), false);
    if (HasFailure()) break;
  }
  EXPECT_EQ(seen, count);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 1000));
}

TEST_P(Meeting, TwoThreads) {
  constexpr uint64_t count = 20'000;
  Node a(name("a"));
  Node b(name("b"));
  const auto size_of = [](uint64_t id) { return id % 50 == 0 ? (id * 131) % 9000 : id % 49; };
  const auto run = [&](Node& me, const Node& other) {
    Peer* to = me.connect(other);
    uint64_t sent = 0;
    uint64_t seen = 0;
    const uint64_t until = os::monotonic_ns() + 60'000 * ms;
    while ((sent < count || seen < count) && os::monotonic_ns() < until) {
      const bool sends = sent < count && me.send(*to, sent, pattern(sent, size_of(sent)));
      if (sends) ++sent;
      // A yield costs the time slices of all that runs on the processor.
      if (me.link.poll(me) == 0 && !sends) std::this_thread::yield();
      for (; !me.frames.empty(); me.frames.pop_front(), ++seen) {
        const Received& frame = me.frames.front();
        if (frame.head.a != seen || frame.payload != pattern(seen, size_of(seen))) return false;
      }
    }
    return sent == count && seen == count;
  };
  bool other_side = false;
  std::thread second([&] { other_side = run(b, a); });
  const bool this_side = run(a, b);
  second.join();
  EXPECT_TRUE(this_side);
  EXPECT_TRUE(other_side);
}

// One sleeps whenever it has nothing to do, the other sends now and then: no wake-up is lost.
TEST_P(Meeting, NoWakeUpIsLost) {
  constexpr uint64_t count = 3000;
  Node a(name("a"));
  Node b(name("b"));
  std::atomic<uint64_t> seen{0};
  std::atomic<int> late{0};
  std::thread sleeper([&] {
    while (seen.load() < count && late.load() == 0) {
      b.link.poll(b);
      seen += b.frames.size();
      if (!b.frames.empty()) {
        b.frames.clear();
        continue;
      }
      if (!b.link.arm()) continue;
      if (!readable(b.link.wait_fd(), 5000) && seen.load() < count) ++late;
      b.link.disarm();
    }
  });
  Peer* to_b = a.connect(b);
  std::mt19937_64 random(23);
  for (uint64_t id = 0; id < count && late.load() == 0; ++id) {
    while (!a.send(*to_b, id, {}) && late.load() == 0) a.link.poll(a);
    if (random() % 4 == 0) {  // wait until it has everything, so that it falls asleep
      while (seen.load() <= id && late.load() == 0) std::this_thread::yield();
      for (uint64_t n = random() % 3000; n > 0; --n) arch::pause();
    }
  }
  sleeper.join();
  EXPECT_EQ(late.load(), 0);
  EXPECT_EQ(seen.load(), count);
}

// The same at the first contact, when the hello, its marks and the first frame cross the receiver's falling asleep.
TEST_P(Meeting, AFirstContactWakesASleeper) {
  constexpr int count = 400;
  Node b(name("b"));
  std::atomic<int> seen{0};
  std::atomic<int> late{0};
  std::thread sleeper([&] {
    while (seen.load() < count && late.load() == 0) {
      b.link.poll(b);
      seen += static_cast<int>(b.frames.size());
      b.frames.clear();
      if (!b.link.arm()) continue;
      if (seen.load() < count && !readable(b.link.wait_fd(), 5000)) ++late;
      b.link.disarm();
    }
  });
  const auto address = b.link.address();
  for (int i = 0; i < count && late.load() == 0; ++i) {
    Node a(name("a"));
    int error = 0;
    Peer* to_b = a.link.connect(address, error);
    if (to_b == nullptr) break;
    for (int n = i % 50; n > 0; --n) arch::pause();
    (void)a.send(*to_b, 1, {});
    const uint64_t until = os::monotonic_ns() + 6000 * ms;
    while (seen.load() <= i && late.load() == 0 && os::monotonic_ns() < until) std::this_thread::yield();
  }
  sleeper.join();
  EXPECT_EQ(late.load(), 0);
  EXPECT_EQ(seen.load(), count);
}

}  // namespace
}  // namespace weft::link::shm
