// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the engine, one behaviour each, over links in memory. Random programs are in property_test.cpp.
#include "proto/engine/engine.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/memory_region.hpp"
#include "proto/engine/sim_engines.hpp"

namespace weft::proto {
namespace {

using sim::CreditLink;
using sim::LateLink;
using sim::PlainLink;
using sim::RichLink;
using Bytes = std::vector<std::byte>;

Bytes pattern(size_t bytes, unsigned seed = 1) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + seed);
  return out;
}

// An engine with queues and one receive context.
template <class L>
struct End {
  explicit End(sim::Net& net, int id, const EngineLimits& limits = {})
      : rx(0, limits.receive_size, 1), engine(limits) {
    engine.link().join(net, id);
    EXPECT_TRUE(engine.open(""));
    engine.set_address_vector(&av);
    engine.set_regions(&regions);
    engine.add_queue(&cq);
    tx.cq = &cq;
    tx.sends = &sends;
    tx.apply_bindings();
    rx.cq = &cq;
    rx.unexpected_bytes_max = limits.unexpected_bytes;
    rx.apply_bindings();
    engine.set_receive_context(0, &rx);
    for (int other = 0; other < 3; ++other) {
      const auto address = sim::address_of(other);
      (void)av.insert(core::Address(address.data(), address.size()));
    }
  }
  ssize_t send(fi_addr_t to, const Bytes& bytes, void* context = nullptr, uint64_t flags = 0,
               uint64_t tag = 7, bool tagged = true) {
    // The program's buffer stays until the end of the test, unless it is injected.
    const Bytes& source = (flags & FI_INJECT) != 0 ? bytes : held.emplace_back(bytes);
    const iovec part{const_cast<std::byte*>(source.data()), source.size()};
    Request request;
    request.tagged = tagged;
    request.iov = &part;
    request.iov_count = 1;
    request.dest = to;
    request.tag = tag;
    request.context = context;
    request.flags = flags;
    return engine.post(tx, request);
  }
  ssize_t receive(Bytes& into, void* context = nullptr, uint64_t flags = 0, bool tagged = true,
                  uint64_t tag = 7) {
    const iovec part{into.data(), into.size()};
    ReceiveRequest request;
    request.iov = &part;
    request.iov_count = 1;
    request.tag = tag;
    request.context = context;
    request.flags = flags;
    request.tagged = tagged;
    return (flags & FI_PEEK) != 0 ? rx.peek(request) : rx.receive(request);
  }
  // What the queue has, errors included: err 0 is a completion.
  std::vector<core::CompletionError> completions() {
    std::vector<core::CompletionError> out;
    for (;;) {
      fi_cq_tagged_entry entry;
      fi_addr_t source;
      const ssize_t got = cq.template read<fi_cq_tagged_entry, true>(&entry, 1, &source);
      if (got != 1 && got != -FI_EAVAIL) return out;
      core::CompletionError& next = out.emplace_back();
      if (got == 1)
        next.base = {entry.op_context, entry.flags, entry.len, entry.buf, entry.data, entry.tag, source};
      else EXPECT_EQ(cq.read_error(next), 0);
    }
  }

  std::deque<Bytes> held;
  core::AddressVector av;
  core::MemoryRegionTable regions{{false, false, false}, nullptr};
  core::CompletionQueue cq{256};
  core::Counter sends;
  TxContext tx;
  RxContext rx;
  Engine<L> engine;  // after what it uses
};

template <class L>
class EngineTest : public testing::Test {
 protected:
  void turn(int rounds = 20) {
    for (int i = 0; i < rounds; ++i) {
      a->engine.progress();
      b->engine.progress();
    }
  }
  static void turn_one(End<L>& end) {
    for (int i = 0; i < 20; ++i) end.engine.progress();
  }
  std::deque<sim::Frame>& wire(int from, int to) { return net.wires[{from, to}]; }
  void put(int from, int to, wire::FrameKind kind, uint64_t a_field, const Bytes& payload, uint8_t flags = 0,
           uint64_t b_field = 0) {
    net.wires[{from, to}].push_back(
        {{kind, flags, 0, static_cast<uint32_t>(payload.size()), a_field, b_field}, payload, true});
  }
  template <class T>
  static Bytes bytes_of(const T& what, const Bytes& behind = {}) {
    Bytes out(sizeof(what));
    std::memcpy(out.data(), &what, sizeof(what));
    for (const std::byte byte : behind) out.push_back(byte);
    return out;
  }
  void expect_idle(End<L>& end) {
    EXPECT_EQ(end.engine.transmit_in_use(), 0u);
    EXPECT_EQ(end.engine.service_in_use(), 0u);
    EXPECT_EQ(end.rx.ops.in_use(), 0u);
    EXPECT_EQ(end.rx.unexpected_bytes, 0u);
    EXPECT_FALSE(end.engine.has_unsent());
  }

  sim::Net net{5};
  EngineLimits limits;
  std::unique_ptr<End<L>> a = std::make_unique<End<L>>(net, 0);
  std::unique_ptr<End<L>> b = std::make_unique<End<L>>(net, 1);
};

using Links = testing::Types<PlainLink, RichLink, CreditLink>;
class LinkNames {
 public:
  template <class L>
  static std::string GetName(int) {
    return has_small_credit<L> ? "CreditLink" : HasSmallFrames<L> ? "RichLink" : "PlainLink";
  }
};
TYPED_TEST_SUITE(EngineTest, Links, LinkNames);

constexpr size_t eager = PlainLink::eager_bytes_max;
constexpr size_t fragmented_max = PlainLink::fragmented_eager_bytes_max;

TYPED_TEST(EngineTest, EverySizeArrivesExpectedAndUnexpected) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{48}, size_t{49}, eager, eager + 1, fragmented_max,
                            fragmented_max + 1, size_t{50'000}}) {
    for (const bool expected : {true, false}) {
      const Bytes bytes = pattern(size);
      Bytes into(size + 5);
      int context = 0;
      if (expected) {
        ASSERT_EQ(this->b->receive(into, &context), 0);
      }
      ASSERT_EQ(this->a->send(1, bytes), 0);
      this->turn();
      if (!expected) {
        ASSERT_EQ(this->b->receive(into, &context), 0);
      }
      this->turn();
      const auto got = this->b->completions();
      ASSERT_EQ(got.size(), 1u) << size;
      EXPECT_EQ(got[0].err, 0);
      EXPECT_EQ(got[0].base.len, size);
      EXPECT_EQ(got[0].base.source, 0u);
      EXPECT_EQ(got[0].base.context, &context);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), into.begin()));
      EXPECT_EQ(this->a->completions().size(), 1u);
      this->expect_idle(*this->a);
      this->expect_idle(*this->b);
    }
  }
  EXPECT_EQ(this->a->sends.value(), 18u);
}

// --- what statistics say ---

TYPED_TEST(EngineTest, CountsWhatWasSentAndReceivedBySizeAndByCall) {
  const auto counts = [](auto& end) { return end.engine.counts(); };
  uint64_t sent = 0;
  uint64_t bytes_sent = 0;
  for (const size_t size : {size_t{0}, size_t{8}, eager, eager + 1, fragmented_max, size_t{50'000}}) {
    const Bytes bytes = pattern(size);
    Bytes into(size);
    ASSERT_EQ(this->a->send(1, bytes), 0);
    ++sent;
    bytes_sent += size <= 8 ? 3 * size : size;
    if (size <= 8) {
      ASSERT_EQ(this->a->engine.template inject<true>(this->a->tx, bytes.data(), size, 1, 7), 0);
      ASSERT_EQ(this->a->engine.template send<true>(this->a->tx, bytes.data(), size, 1, 7, nullptr), 0);
      sent += 2;
    }
    this->turn();
    const uint64_t before = counts(*this->b).received;
    EXPECT_EQ(counts(*this->b).unexpected, sent - before);
    while (counts(*this->b).received < sent) {
      ASSERT_EQ(this->b->receive(into), 0);
      this->turn();
    }
    EXPECT_EQ(counts(*this->b).completions, sent - before);
    (void)this->a->completions();
    (void)this->b->completions();
    EXPECT_EQ(counts(*this->b).completions, 0u);
    EXPECT_EQ(counts(*this->a).sent, sent) << size;
    EXPECT_EQ(counts(*this->a).bytes_sent, bytes_sent) << size;
    EXPECT_EQ(counts(*this->b).bytes_received, bytes_sent) << size;
    EXPECT_EQ(counts(*this->a).send_queue, 0u);
  }
  EXPECT_EQ(counts(*this->a).received, 0u);
  EXPECT_EQ(counts(*this->b).sent, 0u);
  this->net.refusal = 100;  // nothing leaves
  ASSERT_EQ(this->a->send(1, pattern(50'000)), 0);
  EXPECT_EQ(counts(*this->a).send_queue, 1u);
  this->net.refusal = 0;
  Bytes into(50'000);
  ASSERT_EQ(this->b->receive(into), 0);
  EXPECT_EQ(counts(*this->b).receive_queue, 1u);
  this->turn();
  EXPECT_EQ(counts(*this->b).receive_queue, 0u);
  EXPECT_EQ(counts(*this->a).sent, sent + 1);
  // What a context has received stays when it goes.
  this->b->engine.release_receive_context(0);
  EXPECT_EQ(counts(*this->b).received, sent + 1);
  EXPECT_EQ(counts(*this->b).bytes_received, bytes_sent + 50'000);
}

TYPED_TEST(EngineTest, WhoShowsItIsCalledWhileItIsPolled) {
  struct Looks final : core::Watcher {
    void check() noexcept override { ++count; }
    int count = 0;
  } checks;
  this->a->engine.set_watcher(&checks, 5);
  for (int i = 0; i < 1000; ++i) this->a->engine.progress();
  EXPECT_GE(checks.count, 10);
  const int before = checks.count;
  this->a->engine.set_watcher(nullptr, 0);
  for (int i = 0; i < 1000; ++i) this->a->engine.progress();
  EXPECT_EQ(checks.count, before);
}

TYPED_TEST(EngineTest, AnInjectedBufferMayBeReusedAtOnce) {
  this->net.refusal = 100;
  const Bytes expected = pattern(300);
  Bytes bytes = expected;
  ASSERT_EQ(this->a->send(1, bytes, nullptr, FI_INJECT), 0);
  bytes.assign(bytes.size(), std::byte{0});
  this->net.refusal = 0;
  Bytes into(300);
  ASSERT_EQ(this->b->receive(into), 0);
  this->turn();
  EXPECT_TRUE(into == expected);
}

TYPED_TEST(EngineTest, AMessageLargerThanItsReceiveIsCut) {
  for (const size_t size : {eager, fragmented_max, size_t{5000}}) {
    const Bytes bytes = pattern(size);
    Bytes into(100);
    ASSERT_EQ(this->b->receive(into), 0);
    ASSERT_EQ(this->a->send(1, bytes), 0);
    this->turn();
    const auto got = this->b->completions();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].err, FI_ETRUNC);
    EXPECT_EQ(got[0].base.len, 100u);
    EXPECT_EQ(got[0].olen, size - 100);
    EXPECT_TRUE(std::equal(into.begin(), into.end(), bytes.begin()));
  }
  this->turn();
  this->expect_idle(*this->a);
  this->expect_idle(*this->b);
}

// --- messages of several fragments ---

TYPED_TEST(EngineTest, AReceiveBetweenTwoFragmentsGetsAllOfIt) {
  this->net.frames_max = 2;
  const Bytes bytes = pattern(fragmented_max);
  ASSERT_EQ(this->a->send(1, bytes), 0);
  this->b->engine.progress();  // the first two fragments; the rest has not been sent
  Bytes into(fragmented_max);
  ASSERT_EQ(this->b->receive(into), 0);
  this->turn();
  ASSERT_EQ(this->b->completions().size(), 1u);
  EXPECT_TRUE(into == bytes);
  this->expect_idle(*this->b);
}

TYPED_TEST(EngineTest, AFragmentedMessageMayBeDiscardedInTheMiddle) {
  this->net.frames_max = 2;
  const Bytes bytes = pattern(fragmented_max);
  ASSERT_EQ(this->a->send(1, bytes), 0);
  this->b->engine.progress();
  Bytes none;
  ASSERT_EQ(this->b->receive(none, nullptr, FI_PEEK | FI_DISCARD), 0);
  ASSERT_EQ(this->b->completions().size(), 1u);
  this->turn();
  // The next one is not disturbed by the rest.
  Bytes into(10);
  ASSERT_EQ(this->b->receive(into), 0);
  ASSERT_EQ(this->a->send(1, pattern(10)), 0);
  this->turn();
  EXPECT_TRUE(into == pattern(10));
  this->expect_idle(*this->b);
}

TYPED_TEST(EngineTest, AFragmentedMessageUnderWayCannotBeCancelled) {
  this->net.frames_max = 2;
  const Bytes bytes = pattern(fragmented_max);
  int first = 0;
  int second = 0;
  ASSERT_EQ(this->a->send(1, bytes, &first), 0);
  ASSERT_EQ(this->a->send(1, bytes, &second), 0);
  EXPECT_EQ(this->a->engine.cancel(&first), -FI_ENOENT);
  EXPECT_EQ(this->a->engine.cancel(&second), 0);
  Bytes into(fragmented_max);
  ASSERT_EQ(this->b->receive(into), 0);
  this->turn();
  EXPECT_TRUE(into == bytes);
  const auto got = this->a->completions();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].err, FI_ECANCELED);
  EXPECT_EQ(got[1].base.context, &first);
  this->expect_idle(*this->a);
}

TYPED_TEST(EngineTest, ASenderThatDiesInTheMiddleFailsItsReceive) {
  this->net.frames_max = 2;
  const Bytes bytes = pattern(fragmented_max);
  Bytes into(fragmented_max);
  ASSERT_EQ(this->b->receive(into), 0);
  ASSERT_EQ(this->a->send(1, bytes), 0);
  this->b->engine.progress();
  this->net.kill(0);
  this->b->engine.progress();
  const auto got = this->b->completions();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].err, FI_EIO);
  EXPECT_EQ(got[0].prov_errno, static_cast<int>(core::ProviderError::PeerDied));
  this->expect_idle(*this->b);
}

// A multi-receive buffer that only the dead peer could have filled is returned to the program with FI_MULTI_RECV (fi_msg(3)).
TYPED_TEST(EngineTest, AMultiReceiveBufferForADeadPeerIsGivenBack) {
  this->b->rx.directed = true;
  Bytes into(4096);
  const iovec part{into.data(), into.size()};
  ReceiveRequest request;
  request.iov = &part;
  request.iov_count = 1;
  request.source = 0;
  request.flags = FI_MULTI_RECV | FI_COMPLETION;
  ASSERT_EQ(this->b->rx.receive(request), 0);
  ASSERT_EQ(this->a->send(1, pattern(100), nullptr, 0, 0, false), 0);
  this->b->engine.progress();
  ASSERT_EQ(this->b->completions().size(), 1u);
  const auto before = this->b->engine.counts().received;
  this->net.kill(0);
  this->b->engine.progress();
  const auto got = this->b->completions();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].err, FI_EIO);
  EXPECT_NE(got[0].base.flags & FI_MULTI_RECV, 0u);
  EXPECT_EQ(this->b->engine.counts().received, before + 1);
  this->expect_idle(*this->b);
}

// A link that never proves that anything has arrived.
struct UnprovenLink : LateLink {
  uint64_t delivered_sequence(const PeerBase&) const noexcept { return 0; }
};
static_assert(HasSendCompletion<UnprovenLink>);

// Whatever ends a peer, the counter of a program that injected to it counts an error, and its queue has no entry without a context; not when
// it was the program itself that ended the peer.
TEST(Engine, WhatIsNotProvenIsCountedForEveryReason) {
  using enum core::ProviderError;
  for (const auto why : {PeerDied, PeerClosed, PeerReplaced, PeerUnreachable, PeerOfOtherUser, NoChannel,
                         PeerMisbehaved, Cancelled}) {
    sim::Net net(5);
    End<UnprovenLink> a(net, 0), b(net, 1);
    ASSERT_EQ(a.send(1, pattern(8), nullptr, FI_INJECT), 0);
    for (int i = 0; i < 20; ++i) a.engine.progress();
    ASSERT_EQ(a.completions().size(), 1u);
    int error = 0;
    auto* peer = a.engine.link().connect(sim::address_of(1), error);
    a.engine.peer_lost(*peer, why);
    EXPECT_EQ(a.completions().size(), 0u) << static_cast<int>(why);
    EXPECT_EQ(a.sends.errors(), why == Cancelled ? 0u : 1u) << static_cast<int>(why);
    EXPECT_EQ(a.engine.counts().unreported, why == Cancelled ? 0u : 1u) << static_cast<int>(why);
  }
}

struct Told final : core::Watcher {
  void check() noexcept override {}
  void unreported(const core::UnreportedErrors& errors) noexcept override {
    ++times;
    err = errors.err;
    prov_errno = errors.prov_errno;
    peer_lost = errors.peer_lost;
    peer.assign(errors.peer.begin(), errors.peer.end());
  }
  int times = 0, err = 0, prov_errno = 0;
  bool peer_lost = false;
  Bytes peer;
};

// Errors that have no entry are told once for each peer, and by its next operation that fails, once.
TEST(Engine, WhatHasNoEntryIsToldByTheNextOperation) {
  sim::Net net(5);
  net.delay = 0;
  End<UnprovenLink> a(net, 0), b(net, 1);
  Told told;
  a.engine.set_watcher(&told, 0);
  const auto turn = [&] {
    for (int i = 0; i < 20; ++i) a.engine.progress();
  };
  ASSERT_EQ(a.send(1, pattern(8), nullptr, FI_INJECT), 0);
  turn();
  ASSERT_EQ(a.completions().size(), 1u);
  net.kill(1);
  turn();
  EXPECT_EQ(a.completions().size(), 0u);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.prov_errno, static_cast<int>(core::ProviderError::PeerDied));
  EXPECT_EQ(told.err, FI_EIO);
  EXPECT_TRUE(told.peer_lost);
  const auto address = sim::address_of(1);
  EXPECT_EQ(told.peer, Bytes(address.begin(), address.end()));
  int context = 0;
  for (const bool first : {true, false}) {
    ASSERT_EQ(a.send(1, pattern(8), &context, FI_DELIVERY_COMPLETE), 0);
    turn();
    const auto got = a.completions();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].base.context, &context);
    EXPECT_NE(got[0].err, 0);
    EXPECT_EQ((got[0].prov_errno & core::earlier_unreceived) != 0, first);
  }
  EXPECT_EQ(told.times, 1);
  a.engine.set_watcher(nullptr, 0);
}

// What the link has finished when the peer is lost is complete, and was not delivered.
TEST(Engine, WhatCompletesAsThePeerIsLostIsCounted) {
  sim::Net net(5);
  End<UnprovenLink> a(net, 0), b(net, 1);
  ASSERT_EQ(a.send(1, pattern(8), nullptr, FI_TRANSMIT_COMPLETE), 0);
  int error = 0;
  auto* peer = a.engine.link().connect(sim::address_of(1), error);
  while (a.engine.link().completed_sequence(*peer) < a.engine.link().sent_sequence(*peer))
    (void)a.engine.link().poll(a.engine);
  ASSERT_EQ(a.cq.pending(), 0u);
  a.engine.peer_lost(*peer, core::ProviderError::PeerDied);
  const auto got = a.completions();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].err, 0);
  EXPECT_EQ(a.engine.counts().unreported, 1u);
}

// Of operations that fail together those behind an inject tell of it.
TEST(Engine, AnInjectThatWaitedIsToldByTheOperationBehindIt) {
  using enum core::ProviderError;
  for (const bool entries : {false, true}) {
    sim::Net net(5);
    EngineLimits limits;
    limits.inject_errors = entries;
    End<PlainLink> a(net, 0, limits), b(net, 1);
    Told told;
    a.engine.set_watcher(&told, 0);
    net.refusal = 100;
    int before = 0, behind = 0;
    ASSERT_EQ(a.send(1, pattern(64), &before, 0, 7), 0);
    const Bytes word = pattern(8);
    ASSERT_EQ(a.engine.template inject<false>(a.tx, word.data(), word.size(), 1, 0), 0);
    ASSERT_EQ(a.engine.template inject<true>(a.tx, word.data(), word.size(), 1, 9), 0);
    ASSERT_EQ(a.send(1, pattern(64), &behind, 0, 8), 0);
    ASSERT_EQ(a.completions().size(), 0u);
    int error = 0;
    a.engine.peer_lost(*a.engine.link().connect(sim::address_of(1), error), PeerDied);
    const auto got = a.completions();
    ASSERT_EQ(got.size(), entries ? 4u : 2u);
    EXPECT_EQ(got.front().base.context, &before);
    EXPECT_EQ(got.front().prov_errno, static_cast<int>(PeerDied));
    EXPECT_EQ(got.back().base.context, &behind);
    EXPECT_EQ(got.back().prov_errno, static_cast<int>(entries ? PeerDied : core::with_earlier(PeerDied)));
    EXPECT_EQ(a.sends.errors(), 4u);
    EXPECT_EQ(a.engine.counts().unreported, entries ? 0u : 2u);
    EXPECT_EQ(told.times, entries ? 0 : 1);
    a.engine.set_watcher(nullptr, 0);
    if (!entries) continue;
    EXPECT_EQ(got[1].base.context, nullptr);
    EXPECT_EQ(got[1].base.flags, FI_SEND | FI_MSG);
    EXPECT_EQ(got[2].base.flags, FI_SEND | FI_TAGGED);
    EXPECT_EQ(got[2].base.tag, 9u);
    const auto address = sim::address_of(1);
    EXPECT_EQ(got[2].err_data_size, address.size());
    EXPECT_EQ(std::memcmp(got[2].err_data.data(), address.data(), address.size()), 0);
  }
}

// With the setting, what a peer may not have read has an entry with the flags of such messages.
TEST(Engine, WhatIsNotProvenHasAnEntryWhereTheProgramAsksForIt) {
  for (const bool tagged : {true, false}) {
    sim::Net net(5);
    EngineLimits limits;
    limits.inject_errors = true;
    End<UnprovenLink> a(net, 0, limits), b(net, 1);
    const Bytes word = pattern(8);
    ASSERT_EQ(tagged ? a.engine.template inject<true>(a.tx, word.data(), word.size(), 1, 7)
                     : a.engine.template inject<false>(a.tx, word.data(), word.size(), 1, 0),
              0);
    for (int i = 0; i < 20; ++i) a.engine.progress();
    int error = 0;
    a.engine.peer_lost(*a.engine.link().connect(sim::address_of(1), error), core::ProviderError::PeerDied);
    const auto got = a.completions();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].base.context, nullptr);
    EXPECT_EQ(got[0].base.flags, FI_SEND | (tagged ? FI_TAGGED : FI_MSG));
    EXPECT_EQ(got[0].prov_errno, static_cast<int>(core::ProviderError::NotReceived));
    EXPECT_EQ(a.engine.counts().unreported, 0u);
  }
}

// A link that knows what has arrived once the connection has ended.
struct LateProofLink : LateLink {
  uint64_t delivered_sequence(const PeerBase& peer) const noexcept { return ended_ ? peer.sent : 0; }
  void forget(PeerBase& peer) noexcept {
    ended_ = true;
    LateLink::forget(peer);
  }

 private:
  bool ended_ = false;
};

TEST(Engine, APeerThatTalksNonsenseIsAskedForItsProofFirst) {
  sim::Net net(5);
  End<LateProofLink> a(net, 0), b(net, 1);
  ASSERT_EQ(a.send(1, pattern(8), nullptr, FI_INJECT), 0);
  for (int i = 0; i < 20; ++i) a.engine.progress();
  ASSERT_EQ(a.completions().size(), 1u);
  net.wires[{1, 0}].push_back({{wire::FrameKind::Segment, 0, 0, 5, 1, 0}, pattern(5), true});
  for (int i = 0; i < 20; ++i) a.engine.progress();
  EXPECT_TRUE(a.completions().empty());
}

// --- waiting and its end ---

TYPED_TEST(EngineTest, CancellingTheOnlyWaitingOperationLeavesNothing) {
  this->net.refusal = 100;
  const Bytes bytes = pattern(10);
  int first = 0;
  int second = 0;
  ASSERT_EQ(this->a->send(1, bytes, &first), 0);
  EXPECT_TRUE(this->a->engine.has_unsent());
  ASSERT_EQ(this->a->engine.cancel(&first), 0);
  ASSERT_EQ(this->a->send(1, bytes, &second), 0);
  this->net.refusal = 0;
  this->turn();
  Bytes into(10);
  ASSERT_EQ(this->b->receive(into), 0);
  this->turn();
  EXPECT_TRUE(into == bytes);
  this->expect_idle(*this->a);
}

// Both sides wait at a fence for the other's answer, which must not stand behind the fence.
TYPED_TEST(EngineTest, FencesOfBothSidesDoNotBlockEachOther) {
  const Bytes large = pattern(5000);
  Bytes into_a(5000);
  Bytes into_b(5000);
  for (auto* end : {this->a.get(), this->b.get()}) {
    const fi_addr_t other = end == this->a.get() ? 1 : 0;
    ASSERT_EQ(end->send(other, large), 0);
    ASSERT_EQ(end->send(other, pattern(3), nullptr, FI_FENCE, 8), 0);
  }
  ASSERT_EQ(this->a->receive(into_a), 0);
  ASSERT_EQ(this->b->receive(into_b), 0);
  this->turn();
  EXPECT_TRUE(into_a == large);
  EXPECT_TRUE(into_b == large);
  Bytes small(3);
  ASSERT_EQ(this->a->receive(small, nullptr, 0, true, 8), 0);
  ASSERT_EQ(this->b->receive(small, nullptr, 0, true, 8), 0);
  this->turn();
  this->expect_idle(*this->a);
  this->expect_idle(*this->b);
}

TYPED_TEST(EngineTest, AFenceInAMessageToOneselfEnds) {
  const Bytes large = pattern(5000);
  Bytes into(5000);
  Bytes small(3);
  ASSERT_EQ(this->a->send(0, large), 0);
  ASSERT_EQ(this->a->send(0, pattern(3), nullptr, FI_FENCE, 8), 0);
  ASSERT_EQ(this->a->receive(into), 0);
  ASSERT_EQ(this->a->receive(small, nullptr, 0, true, 8), 0);
  this->turn();
  EXPECT_TRUE(into == large);
  EXPECT_TRUE(small == pattern(3));
  EXPECT_EQ(this->a->completions().size(), 4u);
  this->expect_idle(*this->a);
}

TYPED_TEST(EngineTest, BeyondTheBoundSendersKeepTheirPayloads) {
  EngineLimits few;
  few.unexpected_bytes = 1000;
  this->b = std::make_unique<End<TypeParam>>(this->net, 1, few);
  constexpr size_t count = 100;
  for (unsigned i = 0; i < count; ++i) {
    ASSERT_EQ(this->a->send(1, pattern(eager, i), nullptr, FI_INJECT), 0);
    this->turn(2);
  }
  EXPECT_LT(this->b->rx.unexpected_bytes, 5000u);
  for (unsigned i = 0; i < count; ++i) {
    Bytes into(eager);
    ASSERT_EQ(this->b->receive(into), 0);
    this->turn(3);
    EXPECT_TRUE(into == pattern(eager, i)) << i;
    this->a->completions();
    this->b->completions();
  }
  this->expect_idle(*this->a);
  this->expect_idle(*this->b);
  // Payloads travel unasked again.
  ASSERT_EQ(this->a->send(1, pattern(10)), 0);
  EXPECT_EQ(this->wire(0, 1).back().head.kind, wire::FrameKind::Tagged);
}

// A program that does nothing but inject small messages hears of the pause, too.
TYPED_TEST(EngineTest, WhoOnlyInjectsHearsOfThePause) {
  EngineLimits few;
  few.unexpected_bytes = 100'000;
  this->net.frames_max = SIZE_MAX;  // a wire that never refuses
  uint64_t word = 0;
  for (const bool with_data : {false, true}) {
    this->a = std::make_unique<End<TypeParam>>(this->net, 0);
    this->b = std::make_unique<End<TypeParam>>(this->net, 1, few);
    this->net.wires.clear();
    const Bytes bytes(sizeof word);
    for (int i = 0; i < 20'000; ++i) {
      ssize_t status = 0;
      if (!with_data) status = this->a->engine.template inject<true>(this->a->tx, &word, sizeof word, 1, 7);
      else if (!this->a->engine.template inject_data<true>(this->a->tx, &word, sizeof word, 3, 1, 7))
        status = this->a->send(1, bytes, nullptr, FI_INJECT | FI_REMOTE_CQ_DATA);
      if (status == -FI_EAGAIN) break;  // the table of operations, or the queue, is full
      ASSERT_EQ(status, 0);
      if (i % 16 == 0) this->b->engine.progress();
    }
    this->turn_one(*this->b);
    EXPECT_LT(this->b->rx.unexpected_bytes, 500'000u) << with_data;
  }
}

// Counters may be bound late, and to another transmit context of the same endpoint.
TYPED_TEST(EngineTest, SendsWithAnAimAreCounted) {
  uint64_t word = 0;
  const auto inject = [&](TxContext& tx) {
    ASSERT_EQ(this->a->engine.template inject_cached<true>(tx, &word, sizeof word, 1, 7), 0);
  };
  inject(this->a->tx);
  inject(this->a->tx);
  TxContext alias = this->a->tx;
  core::Counter counter;
  alias.sends = &counter;
  this->a->engine.count_sends();
  for (int i = 0; i < 5; ++i) {
    inject(alias);
    inject(this->a->tx);
  }
  EXPECT_EQ(counter.value(), 5u);
}

// A length that wraps is no small one.
TYPED_TEST(EngineTest, AnAbsurdLengthIsNotSmall) {
  ASSERT_EQ(this->a->send(1, pattern(1)), 0);  // they have met
  uint64_t word = 0;
  for (const size_t length : {SIZE_MAX, SIZE_MAX - 3, SIZE_MAX - 7}) {
    EXPECT_FALSE(this->a->engine.template inject_data<true>(this->a->tx, &word, length, 3, 1, 7));
    EXPECT_FALSE(this->a->engine.template send_data<true>(this->a->tx, &word, length, 3, 1, 7, nullptr));
  }
}

// Neither the memory for what comes unasked nor that for what is announced is for one peer to fill.
TYPED_TEST(EngineTest, APeerThatDoesNotHeedWaits) {
  EngineLimits few;
  few.unexpected_bytes = 1000;
  this->b = std::make_unique<End<TypeParam>>(this->net, 1, few);
  const size_t most = RxContext::unheeded_bytes_max;
  for (int i = 0; i < 200; ++i) {
    for (int j = 0; j < 1000; ++j) this->put(0, 1, wire::FrameKind::Tagged, 7, pattern(eager));
    this->b->engine.progress();
  }
  this->turn_one(*this->b);
  EXPECT_GT(this->b->rx.unexpected_bytes, most);
  EXPECT_LT(this->b->rx.unexpected_bytes, most + 10'000);
  EXPECT_FALSE(this->wire(0, 1).empty());
  // What is received makes room, and nothing has been lost.
  const size_t waiting = this->wire(0, 1).size();
  Bytes into(eager);
  for (int i = 0; i < 300'000 && this->wire(0, 1).size() == waiting; ++i) {
    ASSERT_EQ(this->b->receive(into, nullptr, FI_COMPLETION), 0);
    if (i % 100 == 0) (void)this->b->completions();
    if (i % 1000 == 0) this->b->engine.progress();
  }
  EXPECT_LT(this->wire(0, 1).size(), waiting);
}

TYPED_TEST(EngineTest, APeerAnnouncesNoMoreThanAnEndpointCan) {
  const wire::RtsPrefix rts{1, 5000, 0, 0, 0};
  const Bytes payload = this->bytes_of(rts);
  for (size_t i = 0; i < RxContext::announced_max + 100; ++i)
    this->put(0, 1, wire::FrameKind::TaggedRts, 7, payload);
  this->turn_one(*this->b);
  EXPECT_EQ(this->wire(0, 1).size(), 100u);
  Bytes into(10);
  for (int i = 0; i < 40; ++i) ASSERT_EQ(this->b->receive(into), 0);
  this->turn_one(*this->b);
  EXPECT_EQ(this->wire(0, 1).size(), 60u);
}

// Answers that nobody takes are kept, but not without end.
TYPED_TEST(EngineTest, APeerThatTakesNoAnswersIsCutOff) {
  const Bytes large = pattern(5000);
  ASSERT_EQ(this->b->send(0, large), 0);
  this->wire(1, 0).clear();
  this->net.refusal = 100;
  const wire::RmaPrefix rma{8, 1, 0};
  const wire::RmaTarget target{0, 8, 77};
  Bytes payload = this->bytes_of(rma);
  const Bytes behind = this->bytes_of(target);
  payload.insert(payload.end(), behind.begin(), behind.end());
  size_t most = 0;
  std::vector<core::CompletionError> got;
  for (int i = 0; i < 100 && got.empty(); ++i) {
    for (int j = 0; j < 1000; ++j) this->put(0, 1, wire::FrameKind::Read, 5, payload);
    this->b->engine.progress();
    most = std::max(most, this->b->engine.service_in_use());
    got = this->b->completions();
  }
  EXPECT_LE(most, served_max);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].prov_errno, static_cast<int>(core::ProviderError::PeerMisbehaved));
  this->expect_idle(*this->b);
}

TYPED_TEST(EngineTest, AFullQueueTakesNoFrames) {
  core::CompletionQueue small{2};
  this->b->rx.cq = &small;
  this->b->engine.add_queue(&small);
  Bytes into(10);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(this->b->receive(into), 0);
    ASSERT_EQ(this->a->send(1, pattern(10)), 0);
    this->turn(2);
  }
  EXPECT_EQ(small.pending(), 2u);
  EXPECT_EQ(this->wire(0, 1).size(), 2u);
}

TYPED_TEST(EngineTest, AFullTableIsTriedAgain) {
  EngineLimits few;
  few.transmit_size = 3;
  this->a = std::make_unique<End<TypeParam>>(this->net, 0, few);
  this->net.refusal = 100;
  const Bytes bytes = pattern(10);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(this->a->send(1, bytes), 0);
  EXPECT_EQ(this->a->send(1, bytes), -FI_EAGAIN);
  this->net.refusal = 0;
  this->turn(1);
  EXPECT_EQ(this->a->send(1, bytes), 0);
}

// --- multi-receive buffers ---

TYPED_TEST(EngineTest, PartsOfABufferMayOutnumberTheTable) {
  EngineLimits few;
  few.receive_size = 2;
  this->b = std::make_unique<End<TypeParam>>(this->net, 1, few);
  const Bytes bytes = pattern(3000);
  Bytes buffer(100'000);
  int context = 0;
  ASSERT_EQ(this->b->receive(buffer, &context, FI_MULTI_RECV, false), 0);
  constexpr size_t count = 40;
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(this->a->send(1, bytes, nullptr, 0, 0, false), 0);
  this->b->engine.progress();  // all are announced before the first has come
  this->turn(60);
  const auto got = this->b->completions();
  // 33 fill the buffer; the last of them is cut and gives the buffer back.
  ASSERT_GE(got.size(), 33u);
  size_t ends = 0;
  for (const auto& entry : got) {
    EXPECT_EQ(entry.base.context, &context);
    ends += (entry.base.flags & FI_MULTI_RECV) != 0;
  }
  EXPECT_EQ(ends, 1u);
  EXPECT_NE(got.back().base.flags & FI_MULTI_RECV, 0u);
  for (size_t i = 0; i < 33; ++i)
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), buffer.begin() + long(i * 3000)));
}

// Without memory for a second part, that message fails alone: the buffer and the part under way end as ever.
TYPED_TEST(EngineTest, AMessageWithoutMemoryForItsPartFailsAlone) {
  for (const size_t size : {size_t{3000}, size_t{1000}}) {  // announced; in fragments over some links
    for (const bool expected : {true, false}) {
      SCOPED_TRACE(std::to_string(size) + (expected ? " expected" : " unexpected"));
      EngineLimits few;
      few.receive_size = 2;  // the buffer and one part
      this->net = sim::Net(5);
      this->a = std::make_unique<End<TypeParam>>(this->net, 0);
      this->b = std::make_unique<End<TypeParam>>(this->net, 1, few);
      End<TypeParam> c(this->net, 2);
      End<TypeParam>* const senders[] = {this->a.get(), &c};
      const auto turn_all = [&] {
        for (int i = 0; i < 60; ++i)
          for (End<TypeParam>* end : {this->a.get(), this->b.get(), &c}) end->engine.progress();
      };
      // The tables and queues that frames of the protocol wait in are made before.
      Bytes before(3000);
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(senders[i]->send(1, pattern(3000), nullptr, 0, 0, false), 0);
        this->net.refusal = 100;
        ASSERT_EQ(this->b->receive(before, nullptr, 0, false), 0);
        this->b->engine.progress();
        this->net.refusal = 0;
        turn_all();
        ASSERT_EQ(this->b->completions().size(), 1u);
        ASSERT_EQ(senders[i]->completions().size(), 1u);
      }
      Bytes buffer(100'000);
      int context = 0;
      const Bytes bytes[] = {pattern(size, 1), pattern(size, 2)};
      bool announced = false;
      const auto post = [&] { ASSERT_EQ(this->b->receive(buffer, &context, FI_MULTI_RECV, false), 0); };
      if (expected) post();
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(senders[i]->send(1, bytes[i], nullptr, 0, 0, false), 0);
        auto& wire = this->wire(i * 2, 1);
        ASSERT_FALSE(wire.empty());
        const sim::Frame first = wire.front();
        wire.pop_front();
        announced = first.head.kind == wire::FrameKind::MsgRts;
        int error = 0;
        auto* peer = this->b->engine.link().connect(sim::address_of(i * 2), error);
        this->net.refusal = 100;
        sim::out_of_memory = expected && i == 1;
        EXPECT_TRUE(this->b->engine.on_frame(*peer, first.head, first.payload.data()));
        sim::out_of_memory = false;
        this->net.refusal = 0;
      }
      if (!expected) {
        this->net.refusal = 100;
        sim::out_of_memory = true;
        post();
        sim::out_of_memory = false;
        this->net.refusal = 0;
      }
      auto got = this->b->completions();
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].err, FI_ENOMEM);
      EXPECT_EQ(got[0].olen, size);
      EXPECT_EQ(got[0].base.context, &context);
      EXPECT_EQ(got[0].base.flags, FI_RECV | FI_MSG);
      turn_all();
      got = this->b->completions();
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].err, 0);
      EXPECT_EQ(got[0].base.len, size);
      EXPECT_EQ(got[0].base.flags, FI_RECV | FI_MSG);
      EXPECT_TRUE(std::equal(bytes[0].begin(), bytes[0].end(), buffer.begin()));
      // The sender of a message that was announced hears of it.
      for (int i = 0; i < 2; ++i) {
        const auto sent = senders[i]->completions();
        ASSERT_EQ(sent.size(), 1u);
        EXPECT_EQ(sent[0].err, i == 1 && announced ? FI_ENOMEM : 0);
      }
      // The buffer goes on behind the first message.
      ASSERT_EQ(senders[1]->send(1, bytes[1], nullptr, 0, 0, false), 0);
      turn_all();
      got = this->b->completions();
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].base.flags, FI_RECV | FI_MSG);
      EXPECT_EQ(got[0].base.buf, buffer.data() + size);
      EXPECT_TRUE(std::equal(bytes[1].begin(), bytes[1].end(), buffer.begin() + long(size)));
      ASSERT_EQ(this->b->rx.cancel(&context), 0);
      got = this->b->completions();
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].base.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
      (void)senders[1]->completions();
      this->expect_idle(*this->a);
      this->expect_idle(*this->b);
      this->expect_idle(c);
    }
  }
}

// Without memory for the first part, its message takes the rest of the buffer.
TYPED_TEST(EngineTest, ABufferWithoutMemoryForItsPartEndsWithThatMessage) {
  EngineLimits few;
  few.receive_size = 1;
  this->b = std::make_unique<End<TypeParam>>(this->net, 1, few);
  Bytes before(3000);
  ASSERT_EQ(this->a->send(1, pattern(3000), nullptr, 0, 0, false), 0);
  this->net.refusal = 100;
  ASSERT_EQ(this->b->receive(before, nullptr, 0, false), 0);
  this->b->engine.progress();
  this->net.refusal = 0;
  this->turn(60);
  ASSERT_EQ(this->b->completions().size(), 1u);
  Bytes buffer(100'000);
  const Bytes bytes = pattern(3000, 2);
  int context = 0;
  ASSERT_EQ(this->b->receive(buffer, &context, FI_MULTI_RECV, false), 0);
  ASSERT_EQ(this->a->send(1, bytes, nullptr, 0, 0, false), 0);
  const sim::Frame first = this->wire(0, 1).front();
  this->wire(0, 1).pop_front();
  int error = 0;
  auto* peer = this->b->engine.link().connect(sim::address_of(0), error);
  this->net.refusal = 100;
  sim::out_of_memory = true;
  EXPECT_TRUE(this->b->engine.on_frame(*peer, first.head, first.payload.data()));
  sim::out_of_memory = false;
  this->net.refusal = 0;
  this->turn(60);
  const auto got = this->b->completions();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].err, 0);
  EXPECT_EQ(got[0].base.context, &context);
  EXPECT_EQ(got[0].base.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), buffer.begin()));
  EXPECT_EQ(this->b->rx.cancel(&context), -FI_ENOENT);
  this->expect_idle(*this->b);
}

// --- RMA at the target ---

// Parts are cut off the first piece, so there is only one.
TYPED_TEST(EngineTest, AMultiReceiveBufferIsOnePiece) {
  Bytes first(100);
  Bytes second(4000);
  const iovec parts[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  ReceiveRequest request;
  request.iov = parts;
  request.iov_count = 2;
  request.flags = FI_MULTI_RECV;
  EXPECT_EQ(this->b->rx.receive(request), -FI_EINVAL);
  this->expect_idle(*this->b);
}

// Each look is answered in the queue; a program that never reads it is told to.
TYPED_TEST(EngineTest, PeeksAreBoundedByTheQueue) {
  Bytes none;
  size_t accepted = 0;
  ssize_t status = 0;
  while (accepted < 10'000 && (status = this->b->receive(none, nullptr, FI_PEEK)) == 0) ++accepted;
  EXPECT_EQ(status, -FI_EAGAIN);
  EXPECT_EQ(accepted, this->b->cq.size());
  const auto got = this->b->completions();
  ASSERT_EQ(got.size(), accepted);
  EXPECT_EQ(got[0].err, FI_ENOMSG);
  EXPECT_EQ(this->b->receive(none, nullptr, FI_PEEK), 0);
}

TYPED_TEST(EngineTest, ATargetWithoutMemoryRefusesATransfer) {
  Bytes target(50'000);
  const iovec at{target.data(), target.size()};
  core::RegionRequest region;
  region.iov = &at;
  region.iov_count = 1;
  region.access = FI_REMOTE_WRITE | FI_REMOTE_READ;
  region.requested_key = 4;
  ASSERT_TRUE(this->b->regions.add(region));
  Bytes bytes = pattern(target.size());
  const iovec part{bytes.data(), bytes.size()};
  const fi_rma_iov whole{0, bytes.size(), 4};
  const fi_rma_iov halves[] = {{0, 25'000, 4}, {25'000, 25'000, 4}};
  Request request;
  request.iov = &part;
  request.iov_count = 1;
  request.dest = 1;
  for (const OpKind kind : {OpKind::Write, OpKind::Read}) {
    request.kind = kind;
    request.targets =
        &whole;  // a first one makes the tables, so that only what the second one needs is missing
    request.target_count = 1;
    ASSERT_EQ(this->a->engine.post(this->a->tx, request), 0);
    this->turn(200);
    auto got = this->a->completions();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].err, 0);
    request.targets = halves;
    request.target_count = 2;
    ASSERT_EQ(this->a->engine.post(this->a->tx, request), 0);
    const sim::Frame frame = this->wire(0, 1).front();
    this->wire(0, 1).clear();
    int error = 0;
    auto* peer = this->b->engine.link().connect(sim::address_of(0), error);
    this->net.refusal = 100;  // the answer waits, for the wire has no memory either
    sim::out_of_memory = true;
    EXPECT_TRUE(this->b->engine.on_frame(*peer, frame.head, frame.payload.data()));
    sim::out_of_memory = false;
    this->net.refusal = 0;
    this->turn();
    got = this->a->completions();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].err, FI_ENOMEM);
    this->expect_idle(*this->a);
    this->expect_idle(*this->b);
  }
}

// fi_cq(3), notes: what is there can be read, then every read says that something was lost.
TYPED_TEST(EngineTest, AQueueWithoutMemoryIsOverrun) {
  core::CompletionQueue queue(2);
  core::Completion entry;
  entry.len = 5;
  core::CompletionError failed;
  failed.err = FI_EIO;
  queue.push(entry);
  queue.push(entry);
  queue.push_error(failed);
  sim::out_of_memory = true;
  for (int i = 0; i < 100; ++i) queue.push(entry);
  queue.push_error(failed);
  sim::out_of_memory = false;
  queue.push(entry);  // is not to be reported any more
  EXPECT_TRUE(queue.error_pending());
  fi_cq_tagged_entry out[4];
  ASSERT_EQ((queue.read<fi_cq_tagged_entry, false>(out, 4, nullptr)), 2);
  core::CompletionError error;
  ssize_t status = queue.read<fi_cq_tagged_entry, false>(out, 4, nullptr);
  ASSERT_EQ(status, -FI_EAVAIL);
  ASSERT_EQ(queue.read_error(error), 0);
  EXPECT_EQ(error.err, FI_EIO);
  while ((status = queue.read<fi_cq_tagged_entry, false>(out, 1, nullptr)) == 1) EXPECT_EQ(out[0].len, 5u);
  EXPECT_EQ(status, -FI_EOVERRUN);
  EXPECT_EQ((queue.read<fi_cq_tagged_entry, false>(out, 1, nullptr)), -FI_EOVERRUN);
  EXPECT_EQ(queue.read_error(error), -FI_EAGAIN);
  EXPECT_NE(queue.pending(), 0u);
}

TYPED_TEST(EngineTest, AForeignKeyIsAnsweredNotObeyed) {
  Bytes memory(100);
  const iovec part{memory.data(), memory.size()};
  core::RegionRequest registration;
  registration.iov = &part;
  registration.iov_count = 1;
  registration.access = FI_REMOTE_READ;
  registration.requested_key = 4;
  ASSERT_TRUE(this->b->regions.add(registration));
  const Bytes bytes = pattern(50);
  const iovec source{const_cast<std::byte*>(bytes.data()), bytes.size()};
  struct Case {
    fi_rma_iov target;
    int error;
  };
  for (const Case& one : {Case{{0, 50, 5}, FI_EKEYREJECTED}, Case{{0, 50, 4}, FI_EACCES},
                          Case{{80, 50, 4}, FI_EACCES}, Case{{~uint64_t{0} - 10, 50, 4}, FI_EACCES}}) {
    Request request;
    request.kind = OpKind::Write;
    request.iov = &source;
    request.iov_count = 1;
    request.dest = 1;
    request.targets = &one.target;
    request.target_count = 1;
    ASSERT_EQ(this->a->engine.post(this->a->tx, request), 0);
    this->turn();
    const auto got = this->a->completions();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].err, one.error);
  }
  EXPECT_TRUE(memory == Bytes(100));
  this->expect_idle(*this->a);
  this->expect_idle(*this->b);
}

// --- what peers may do wrong ---

TYPED_TEST(EngineTest, NonsenseCutsThePeerOff) {
  using enum wire::FrameKind;
  const wire::RmaPrefix rma{8, 9, 0};
  const wire::FirstPrefix too_long{fragmented_max + 1};
  const wire::RtsPrefix many{1, 10, 0, 99, 0};
  const wire::CtsPrefix cts{1, 1};
  struct Case {
    wire::FrameKind kind;
    Bytes payload;
  };
  const Case cases[] = {{static_cast<wire::FrameKind>(0), {}},
                        {static_cast<wire::FrameKind>(200), {}},
                        {TaggedAck, pattern(7)},
                        {MsgRts, pattern(20)},
                        {MsgRts, this->bytes_of(many)},
                        {Cts, this->bytes_of(cts)},
                        {Segment, pattern(10)},
                        {Done, {}},
                        {Write, this->bytes_of(rma)},
                        {Read, pattern(3)},
                        {Atomic, pattern(100)},
                        {Reply, pattern(8)},
                        {TaggedFirst, this->bytes_of(too_long, pattern(10))},
                        {MsgFirst, pattern(4)},
                        {More, pattern(5)}};
  for (const Case& one : cases) {
    this->b = std::make_unique<End<TypeParam>>(this->net, 1);
    const Bytes large = pattern(5000);
    ASSERT_EQ(this->b->send(0, large), 0);  // something that waits for the peer
    this->wire(1, 0).clear();
    this->put(0, 1, one.kind, 12345, one.payload);
    this->b->engine.progress();
    const auto got = this->b->completions();
    ASSERT_EQ(got.size(), 1u) << int(one.kind);
    EXPECT_EQ(got[0].err, FI_EIO);
    EXPECT_EQ(got[0].prov_errno, static_cast<int>(core::ProviderError::PeerMisbehaved));
    this->expect_idle(*this->b);
  }
}

// The same when the link loses the peer before the engine has come to it.
TYPED_TEST(EngineTest, APeerThatTalksNonsenseAndDiesIsForgottenOnce) {
  this->put(0, 1, wire::FrameKind::Segment, 1, pattern(5));
  this->net.kill(0);
  this->b->engine.progress();
  this->expect_idle(*this->b);
  this->b->engine.progress();
  this->expect_idle(*this->b);
}

// An acknowledged small message has left, and its buffer is the program's: nobody may ask for it once more.
TYPED_TEST(EngineTest, NobodyAsksForWhatWasNotAnnounced) {
  auto gone = std::make_unique<Bytes>(pattern(100));
  ASSERT_EQ(this->a->send(1, *gone, nullptr, FI_INJECT | FI_DELIVERY_COMPLETE), 0);
  gone.reset();
  uint64_t id = 0;
  std::memcpy(&id, this->wire(0, 1).front().payload.data(), sizeof(id));
  this->put(1, 0, wire::FrameKind::Cts, id, this->bytes_of(wire::CtsPrefix{1, 100}));
  this->a->engine.progress();
  const auto got = this->a->completions();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].prov_errno, static_cast<int>(core::ProviderError::PeerMisbehaved));
}

// Each time would cost the whole message once more.
TYPED_TEST(EngineTest, NobodyAsksTwice) {
  ASSERT_EQ(this->a->send(1, pattern(5000)), 0);
  uint64_t id = 0;
  std::memcpy(&id, this->wire(0, 1).front().payload.data(), sizeof(id));
  this->put(1, 0, wire::FrameKind::Cts, id, this->bytes_of(wire::CtsPrefix{1, 0}));
  this->a->engine.progress();
  EXPECT_EQ(this->a->completions().size(), 0u);
  this->put(1, 0, wire::FrameKind::Cts, id, this->bytes_of(wire::CtsPrefix{1, 0}));
  this->a->engine.progress();
  const auto got = this->a->completions();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].prov_errno, static_cast<int>(core::ProviderError::PeerMisbehaved));
}

TYPED_TEST(EngineTest, AMessageForNoContextIsRefused) {
  this->net.wires[{0, 1}].push_back({{wire::FrameKind::Tagged, 0, 3, 4, 7, 0}, pattern(4), true});
  this->b->engine.progress();
  EXPECT_EQ(this->b->rx.unexpected_bytes, 0u);
  EXPECT_EQ(this->b->completions().size(), 0u);
}

// --- closing ---

TYPED_TEST(EngineTest, ClosingInTheMiddleOfEverythingLeaksNothing) {
  this->net.frames_max = 3;
  const Bytes large = pattern(5000);
  const Bytes some = pattern(fragmented_max);
  Bytes into(5000);
  Bytes buffer(20'000);
  ASSERT_EQ(this->b->receive(into), 0);
  ASSERT_EQ(this->b->receive(buffer, nullptr, FI_MULTI_RECV, false), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(this->a->send(1, large), 0);
    ASSERT_EQ(this->a->send(1, some), 0);
    ASSERT_EQ(this->a->send(1, large, nullptr, 0, 0, false), 0);
    ASSERT_EQ(this->b->send(0, some, nullptr, FI_DELIVERY_COMPLETE), 0);
  }
  this->turn(2);
  this->b->engine.abandon();
  EXPECT_EQ(this->b->engine.transmit_in_use(), 0u);
  EXPECT_EQ(this->b->engine.service_in_use(), 0u);
  EXPECT_FALSE(this->b->engine.has_unsent());
  this->b.reset();
  this->net.kill(1);
  this->turn_one(*this->a);
  this->expect_idle(*this->a);
}

TYPED_TEST(EngineTest, DeferredWorkRunsAfterTheFrames) {
  struct Count final : DeferredRunner {
    int runs = 0;
    void run() noexcept override { ++runs; }
  } count;
  this->a->engine.set_deferred_runner(&count);
  this->a->engine.progress();
  EXPECT_EQ(count.runs, 0);
  this->a->engine.deferred_due().store(1);
  this->a->engine.progress();
  this->a->engine.progress();
  EXPECT_EQ(count.runs, 1);
  this->a->engine.set_deferred_runner(nullptr);
}

using LateEngineTest = EngineTest<LateLink>;

// The newest small message of one context does not stand for that of another: its program may wait for the other one only.
TEST_F(LateEngineTest, ContextsSettleTheirOwn) {
  core::CompletionQueue other_cq{16};
  core::Counter other_sends;
  TxContext other;
  other.cq = &other_cq;
  other.sends = &other_sends;
  other.apply_bindings();
  int first = 0;
  int second = 0;
  const Bytes bytes = pattern(8);
  Bytes into(8);
  ASSERT_EQ(b->receive(into), 0);
  ASSERT_EQ(a->send(1, bytes), 0);
  for (int i = 0; i < 100; ++i) turn();
  ASSERT_EQ(a->completions().size(), 1u);
  ASSERT_EQ(a->engine.template send<true>(a->tx, bytes.data(), bytes.size(), 1, 7, &first), 0);
  ASSERT_EQ(a->engine.template send<true>(other, bytes.data(), bytes.size(), 1, 7, &second), 0);
  EXPECT_EQ(a->completions().size(), 0u) << "the link still needs us";
  for (int i = 0; i < 100; ++i) turn();
  const auto done = a->completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].base.context, &first);
  fi_cq_tagged_entry entry;
  fi_addr_t source;
  ASSERT_EQ((other_cq.read<fi_cq_tagged_entry, true>(&entry, 1, &source)), 1);
  EXPECT_EQ(entry.op_context, &second);
  EXPECT_EQ(other_sends.value(), 1u);
  a->engine.release_transmit_context(other);
}

// A link that has always something to push, and hears that all has settled when it is polled.
class KeepingLink : public LateLink {
 public:
  bool has_deferred_sends() const noexcept { return true; }
  void push(PeerBase& peer) noexcept { pushed_the_dead += peers_.contains(peer.id) ? 0 : 1; }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    for (const auto& [id, peer] : peers_) peer->completed = peer->sent;
    return PlainLink::poll(handler);
  }
  int pushed_the_dead = 0;
};
static_assert(Coalesces<KeepingLink> && HasSendCompletion<KeepingLink>);
using KeepingEngineTest = EngineTest<KeepingLink>;

// The last acknowledgement and the news that the peer has gone may come in one poll.
TEST_F(KeepingEngineTest, NothingIsPushedToThePeerThatIsGone) {
  a->tx.selective = true;
  a->tx.apply_bindings();
  Bytes into(5000);
  ASSERT_EQ(b->receive(into), 0);
  ASSERT_EQ(a->send(1, pattern(5000)), 0);
  b->engine.progress();
  a->engine.progress();  // asked for, and all of it sent
  EXPECT_EQ(a->sends.value(), 0u);
  net.kill(1);
  a->engine.progress();
  EXPECT_EQ(a->sends.value(), 1u) << "it had settled";
  EXPECT_EQ(a->sends.errors(), 0u);
  EXPECT_EQ(a->engine.link().pushed_the_dead, 0);
  expect_idle(*a);
}

}  // namespace
}  // namespace weft::proto
