// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of what goes away while others stay: a receive context of an endpoint, an endpoint of a shared receive context, the buffers of an
// injected operation, the buffers of a message that its receiver wants no more of.
#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/engine/sim_engines.hpp"

namespace weft::proto {
namespace {

using Bytes = std::vector<std::byte>;
constexpr uint64_t tag = 7;

Bytes pattern(size_t bytes) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

// An engine without receive contexts; the tests bring theirs.
template <class Link = sim::PlainLink>
struct End {
  using Engine = proto::Engine<Link>;
  End(sim::Net& net, int id) : engine(EngineLimits{}) {
    engine.link().join(net, id);
    EXPECT_TRUE(engine.open(""));
    engine.set_address_vector(&av);
    engine.set_regions(&regions);
    engine.add_queue(&cq);
    tx.cq = &cq;
    tx.apply_bindings();
    sink.cq = &cq;
    for (int other = 0; other < 2; ++other) {
      const auto address = sim::address_of(other);
      (void)av.insert(core::Address(address.data(), address.size()));
    }
  }
  void send(const Bytes& bytes, uint8_t context, uint64_t flags = 0) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    Request request;
    request.tagged = true;
    request.iov = &part;
    request.iov_count = 1;
    request.dest = fi_rx_addr(1, context, 8);
    request.tag = tag;
    request.flags = flags;
    ASSERT_EQ(engine.post(tx, request), 0);
  }
  // Errors of what is in the queue; 0: a completion.
  std::vector<int> results() {
    std::vector<int> out;
    for (;;) {
      fi_cq_tagged_entry entry;
      const ssize_t got = cq.read<fi_cq_tagged_entry, false>(&entry, 1, nullptr);
      if (got != 1 && got != -FI_EAVAIL) return out;
      core::CompletionError error;
      if (got != 1) {
        EXPECT_EQ(cq.read_error(error), 0);
      }
      out.push_back(error.err);
    }
  }

  core::AddressVector av{8};
  core::MemoryRegionTable regions{{false, false, false}, nullptr};
  core::CompletionQueue cq{64};
  TxContext tx;
  RxSink sink;
  Engine engine;
};

struct Leaving : testing::Test {
  void turn() {
    for (int i = 0; i < 20; ++i) {
      a.engine.progress();
      b.engine.progress();
    }
  }
  void open(RxContext& context, core::CompletionQueue* cq, size_t index) {
    context.cq = cq;
    context.apply_bindings();
    b.engine.set_receive_context(index, &context);
  }
  static void receive(RxContext& context, Bytes& into) {
    ASSERT_EQ(context.receive_tagged(into.data(), into.size(), FI_ADDR_UNSPEC, tag, 0, nullptr), 0);
  }

  sim::Net net{5};
  RxContext first{0, 64, 1};
  RxContext second{1, 64, 2};
  End<> a{net, 0};
  End<> b{net, 1};
};

TEST_F(Leaving, AContextDoesNotTakeAnotherOnesFragmentsAlong) {
  open(first, &b.cq, 0);
  open(second, &b.cq, 1);
  const Bytes bytes = pattern(1000);
  net.frames_max = 2;
  a.send(bytes, 1);
  b.engine.progress();  // a part of it
  ASSERT_EQ(second.tags.unexpected_count(), 1u);
  b.engine.release_receive_context(0);
  turn();
  Bytes into(bytes.size());
  receive(second, into);
  turn();
  EXPECT_EQ(b.results(), std::vector{0});
  EXPECT_EQ(into, bytes);
}

TEST_F(Leaving, SendersHearThatAContextHasGone) {
  open(first, &b.cq, 0);
  open(second, &b.cq, 1);
  const Bytes large = pattern(5000);
  a.send(large, 1);                              // announced
  a.send(pattern(10), 1, FI_DELIVERY_COMPLETE);  // waits for its receive
  turn();
  ASSERT_EQ(second.tags.unexpected_count(), 2u);
  b.engine.release_receive_context(1);
  turn();
  EXPECT_EQ(a.results(), (std::vector{FI_EINVAL, FI_EINVAL}));
  EXPECT_EQ(a.engine.transmit_in_use(), 0u);
}

TEST_F(Leaving, ASenderThatWasPausedByAContextGoesOnWithoutIt) {
  first.unexpected_bytes_max = 100;
  open(first, &b.cq, 0);
  open(second, &b.cq, 1);
  a.send(pattern(150), 0);
  turn();
  b.engine.release_receive_context(0);
  turn();
  a.send(pattern(10), 1);
  EXPECT_EQ(a.results(), (std::vector{0, 0})) << "an announced message would wait for its receive";
}

TEST_F(Leaving, ASharedContextCompletesTheMessagesOfTheDead) {
  first.shared = true;
  core::Counter received;
  b.sink.receives = &received;
  b.engine.set_sink(&b.sink);
  open(first, nullptr, 0);
  const Bytes bytes = pattern(100);
  a.send(bytes, 0);
  net.kill(0);
  for (int i = 0; i < 20; ++i) b.engine.progress();
  Bytes into(bytes.size());
  receive(first, into);
  EXPECT_EQ(b.results(), std::vector{0});
  EXPECT_EQ(into, bytes);
  EXPECT_EQ(received.value(), 1u);
}

TEST_F(Leaving, AnEndpointGivesTheReceivesOfASharedContextBack) {
  first.shared = true;
  b.engine.set_sink(&b.sink);
  open(first, nullptr, 0);
  const Bytes large = pattern(5000);
  Bytes into(large.size());
  receive(first, into);
  a.send(large, 0);        // finds its receive
  a.send(pattern(10), 0);  // does not
  for (int i = 0; i < 20; ++i) b.engine.progress();
  b.engine.abandon();
  EXPECT_EQ(b.results(), std::vector{FI_ECANCELED});
  EXPECT_EQ(first.ops.in_use(), 0u);
  EXPECT_EQ(first.tags.unexpected_count(), 0u);
  EXPECT_EQ(first.unexpected_bytes, 0u);
}

TEST_F(Leaving, AnInjectedCompareAndSwapCopiesWhatItComparesWith) {
  open(first, &b.cq, 0);
  uint64_t word = 5;
  const iovec memory{&word, sizeof(word)};
  core::RegionRequest region;
  region.iov = &memory;
  region.iov_count = 1;
  region.access = FI_REMOTE_WRITE | FI_REMOTE_READ;
  region.requested_key = 3;
  ASSERT_TRUE(b.regions.add(region));
  net.frames_max = 0;  // no room now
  uint64_t value = 9;
  uint64_t compare = 5;
  uint64_t old = 0;
  const iovec value_part{&value, sizeof(value)};
  const iovec compare_part{&compare, sizeof(compare)};
  const iovec old_part{&old, sizeof(old)};
  const fi_rma_iov target{0, sizeof(word), 3};
  Request request;
  request.kind = OpKind::Atomic;
  request.iov = &value_part;
  request.iov_count = 1;
  request.dest = fi_rx_addr(1, 0, 8);
  request.flags = FI_INJECT;
  request.targets = &target;
  request.target_count = 1;
  request.datatype = FI_UINT64;
  request.atomic_op = FI_CSWAP;
  request.atomic_kind = core::AtomicKind::Compare;
  request.compare = &compare_part;
  request.compare_count = 1;
  request.result = &old_part;
  request.result_count = 1;
  ASSERT_EQ(a.engine.post(a.tx, request), 0);
  value = 77;
  compare = 78;
  net.frames_max = 64;
  turn();
  EXPECT_EQ(a.results(), std::vector{0});
  EXPECT_EQ(old, 5u);
  EXPECT_EQ(word, 9u);
}

// Nothing that it was given has left it.
struct NeverSettling : sim::ReferringLink {
  template <class Handler>
  int poll(Handler& handler) noexcept {
    return sim::PlainLink::poll(handler);
  }
};

// Segments lie with the program until they have left. A peer that says Done before that, be it an error, gives the
// program its memory back.
TEST(EarlyDone, SegmentsThatWaitByReferenceAreCopied) {
  for (const bool refused : {false, true}) {
    sim::Net net{3};
    net.dead.resize(2);
    End<NeverSettling> a{net, 0};
    Bytes bytes = pattern(5000);
    const Bytes sent = pattern(5000);
    a.send(bytes, 0);
    auto& out = net.wires[{0, 1}];
    auto& in = net.wires[{1, 0}];
    ASSERT_EQ(out.size(), 1u);
    wire::RtsPrefix rts{};
    std::memcpy(&rts, out.front().payload.data(), sizeof(rts));
    out.clear();
    const wire::CtsPrefix cts{77, bytes.size()};
    sim::Frame ask{{wire::FrameKind::Cts, 0, 0, sizeof(cts), rts.operation, 0}, Bytes(sizeof(cts))};
    std::memcpy(ask.payload.data(), &cts, sizeof(cts));
    in.push_back(ask);
    for (int i = 0; i < 5; ++i) a.engine.progress();
    const auto refers = [](const sim::Frame& frame) { return !frame.parts.empty(); };
    ASSERT_TRUE(std::any_of(out.begin(), out.end(), refers));
    ASSERT_TRUE(a.results().empty()) << "its bytes are still needed";
    in.push_back({{wire::FrameKind::Done, static_cast<uint8_t>(refused ? wire::has_b : 0), 0, 0,
                   rts.operation, refused ? uint64_t{FI_EINVAL} : 0},
                  {}});
    a.engine.progress();
    EXPECT_EQ(a.results(), std::vector{refused ? FI_EINVAL : 0});
    EXPECT_FALSE(std::any_of(out.begin(), out.end(), refers));
    Bytes arrived;
    for (const sim::Frame& frame : out)
      arrived.insert(arrived.end(), frame.payload.begin(), frame.payload.end());
    EXPECT_EQ(arrived, sent);
  }
}

}  // namespace
}  // namespace weft::proto
