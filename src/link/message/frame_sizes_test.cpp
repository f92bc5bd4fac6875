// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Peers agree on the largest frame: payloads of every size arrive both ways, between endpoints that take large frames,
// endpoints that do not, and one of each. FakeEndpoints refuse messages that are too long for their receiver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "link/message/fake_engine.hpp"

namespace weft::link::message {
namespace {

using Bytes = std::vector<std::byte>;

// Around each limit of either kind of peer, beginning with nothing.
const std::vector<size_t>& sizes() {
  static const std::vector<size_t> all = [] {
    const proto::LinkLimits& usual = FakeLink::usual_limits;
    std::vector<size_t> made{0, 1, 100};
    for (const size_t limit : {usual.eager_bytes_max, usual.segment_bytes, FakeLink::usual_frame_bytes_max,
                               usual.fragmented_eager_bytes_max, FakeLargeLink::large_frame_bytes,
                               4 * FakeLargeLink::large_frame_bytes})
      for (const size_t size : {limit - 1, limit, limit + 1}) made.push_back(size);
    made.push_back(3 * FakeLargeLink::large_frame_bytes + 12'345);
    return made;
  }();
  return all;
}
Bytes pattern(size_t size, size_t seed) {
  Bytes made(size);
  uint64_t x = seed * 0x9e3779b97f4a7c15u + size + 1;
  for (std::byte& byte : made) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(x >> 56);
  }
  return made;
}

template <class A, class B>
struct Pair {
  using Left = A;
  using Right = B;
};

template <class P>
struct FrameSizes : testing::Test {
  using A = FakeEnd<typename P::Left>;
  using B = FakeEnd<typename P::Right>;
  static constexpr bool both_large = P::Left::sends_large && P::Right::sends_large;

  struct World {
    FakeNet net;
    A a{net, "a"};
    B b{net, "b"};
    fi_addr_t to_b = a.meet(b);
    fi_addr_t to_a = b.meet(a);
    size_t a_done = 0, b_done = 0;

    // Both move until they have so many completions, counted from the beginning.
    bool turn_until(size_t a_wanted, size_t b_wanted) {
      for (int i = 0; i < 5'000 && (a_done < a_wanted || b_done < b_wanted); ++i) {
        a.engine.progress();
        b.engine.progress();
        a_done += a.completed();
        b_done += b.completed();
      }
      return a_done == a_wanted && b_done == b_wanted && a.failed + b.failed == 0;
    }
  };

  template <class From>
  static ssize_t send(From& from, fi_addr_t to, const Bytes& bytes, uint64_t tag) {
    return from.engine.template send<true>(from.tx, bytes.data(), bytes.size(), to, tag, nullptr);
  }
  template <class To>
  static ssize_t receive(To& to, Bytes& into, uint64_t tag) {
    return to.rx.receive_tagged(into.data(), into.size(), FI_ADDR_UNSPEC, tag, 0, nullptr);
  }

  // The first message between two ends has that size; then the other side answers with one of the same.
  template <class From, class To>
  static void exchange(World& world, From& from, fi_addr_t there, To& to, fi_addr_t back, size_t size,
                       bool expected) {
    const Bytes first = pattern(size, 1), second = pattern(size, 2);
    Bytes got_first(size), got_second(size);
    if (expected) {
      ASSERT_EQ(receive(to, got_first, 1), 0);
      ASSERT_EQ(receive(from, got_second, 2), 0);
    }
    ASSERT_EQ(send(from, there, first, 1), 0);
    for (int i = 0; i < 100; ++i) {
      world.a.engine.progress();
      world.b.engine.progress();
    }
    if (!expected) {
      ASSERT_EQ(receive(to, got_first, 1), 0);
    }
    ASSERT_TRUE(world.turn_until(1, 1)) << world.a_done << " " << world.b_done;
    ASSERT_EQ(send(to, back, second, 2), 0);
    if (!expected) {
      ASSERT_EQ(receive(from, got_second, 2), 0);
    }
    ASSERT_TRUE(world.turn_until(2, 2)) << world.a_done << " " << world.b_done;
    EXPECT_EQ(first, got_first);
    EXPECT_EQ(second, got_second);
    // Large frames among those who take them, and among them only.
    if (both_large && size <= FakeEndpoints::message_bytes_max) return;
    EXPECT_EQ(from.engine.link().endpoints().longest() > FakeEndpoints::message_bytes_max, both_large);
    EXPECT_EQ(to.engine.link().endpoints().longest() > FakeEndpoints::message_bytes_max, both_large);
  }
};
using Pairs = testing::Types<Pair<FakeLink, FakeLink>, Pair<FakeLargeLink, FakeLink>,
                             Pair<FakeLink, FakeLargeLink>, Pair<FakeLargeLink, FakeLargeLink>>;
struct PairNames {
  template <class P>
  static std::string GetName(int) {
    const auto name = [](bool large) { return std::string(large ? "Large" : "Usual"); };
    return name(P::Left::sends_large) + "To" + name(P::Right::sends_large);
  }
};
TYPED_TEST_SUITE(FrameSizes, Pairs, PairNames);

TYPED_TEST(FrameSizes, TheFirstMessageOfEverySizeArrivesAndSoDoesTheAnswer) {
  for (const bool expected : {true, false})
    for (const size_t size : sizes()) {
      SCOPED_TRACE(testing::Message() << size << (expected ? " expected" : " unexpected"));
      typename TestFixture::World world;
      this->exchange(world, world.a, world.to_b, world.b, world.to_a, size, expected);
      if (this->HasFatalFailure()) return;
    }
}

// Also when both connect at once, and with all sizes under way together.
TYPED_TEST(FrameSizes, AllSizesUnderWayBothWays) {
  typename TestFixture::World world;
  const size_t count = sizes().size();
  std::vector<Bytes> from_a, from_b, at_a, at_b;
  for (const size_t size : sizes()) {
    from_a.push_back(pattern(size, 3));
    from_b.push_back(pattern(size, 4));
    at_a.emplace_back(size);
    at_b.emplace_back(size);
  }
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(this->send(world.a, world.to_b, from_a[i], i), 0) << i;
    ASSERT_EQ(this->send(world.b, world.to_a, from_b[i], i), 0) << i;
    if (i % 2 == 0) continue;  // every second one finds its receive
    ASSERT_EQ(this->receive(world.b, at_b[i], i), 0);
    ASSERT_EQ(this->receive(world.a, at_a[i], i), 0);
  }
  for (int i = 0; i < 200; ++i) {
    world.a.engine.progress();
    world.b.engine.progress();
  }
  for (size_t i = 0; i < count; i += 2) {
    ASSERT_EQ(this->receive(world.b, at_b[i], i), 0);
    ASSERT_EQ(this->receive(world.a, at_a[i], i), 0);
  }
  ASSERT_TRUE(world.turn_until(2 * count, 2 * count)) << world.a_done << " " << world.b_done;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(at_b[i], from_a[i]) << sizes()[i];
    EXPECT_EQ(at_a[i], from_b[i]) << sizes()[i];
  }
}

// RMA: the payload goes from the initiator (write) and to it (read).
TYPED_TEST(FrameSizes, WritesAndReadsOfEverySize) {
  const auto access = [](auto& from, fi_addr_t to, proto::OpKind kind, Bytes& local, uint64_t key) {
    const iovec part{local.data(), local.size()};
    const fi_rma_iov target{0, local.size(), key};
    proto::Request request;
    request.kind = kind;
    request.iov = &part;
    request.iov_count = 1;
    request.dest = to;
    request.targets = &target;
    request.target_count = 1;
    return from.engine.post(from.tx, request);
  };
  const auto expose = [](auto& at, Bytes& bytes, uint64_t key) {
    const iovec part{bytes.data(), bytes.size()};
    core::RegionRequest region;
    region.iov = &part;
    region.iov_count = 1;
    region.access = FI_REMOTE_WRITE | FI_REMOTE_READ;
    region.requested_key = key;
    return static_cast<bool>(at.regions.add(region));
  };
  typename TestFixture::World world;
  uint64_t key = 0;
  for (const size_t size : sizes()) {
    if (size == 0) continue;
    SCOPED_TRACE(size);
    Bytes at_a(size), at_b(size);
    ASSERT_TRUE(expose(world.a, at_a, ++key) && expose(world.b, at_b, key));
    Bytes a_writes = pattern(size, 5), b_writes = pattern(size, 6);
    ASSERT_EQ(access(world.a, world.to_b, proto::OpKind::Write, a_writes, key), 0);
    ASSERT_EQ(access(world.b, world.to_a, proto::OpKind::Write, b_writes, key), 0);
    ASSERT_TRUE(world.turn_until(2 * key - 1, 2 * key - 1));
    EXPECT_EQ(at_b, a_writes);
    EXPECT_EQ(at_a, b_writes);
    Bytes a_reads(size), b_reads(size);
    ASSERT_EQ(access(world.a, world.to_b, proto::OpKind::Read, a_reads, key), 0);
    ASSERT_EQ(access(world.b, world.to_a, proto::OpKind::Read, b_reads, key), 0);
    ASSERT_TRUE(world.turn_until(2 * key, 2 * key));
    EXPECT_EQ(a_reads, a_writes);
    EXPECT_EQ(b_reads, b_writes);
  }
}

}  // namespace
}  // namespace weft::link::message
