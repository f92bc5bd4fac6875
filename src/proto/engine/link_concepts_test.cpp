// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The contract of a Link (link.hpp), concept by concept: a link with the required part alone carries messages, and for each optional concept a link
// that has only that one shows what the engine does with it.
#include <gtest/gtest.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "core/memory_region.hpp"
#include "proto/engine/connection.hpp"
#include "proto/engine/sim_engines.hpp"

namespace weft::proto {
namespace {

using sim::PeerBase;
using sim::PlainLink;
using Bytes = std::vector<std::byte>;

template <class L>
constexpr int concepts_of() {
  return HasSleep<L> + SolePeer<L> + HasSmallFrames<L> + HasRemoteMemory<L> + HasSendCompletion<L> +
         HasZeroCopyFrames<L> + Coalesces<L> + HasBackgroundWork<L> + HasLoans<L> + HasFastPoll<L> +
         HasSides<L>;
}

Bytes pattern(size_t bytes) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

// An engine with one queue and one receive context.
template <class L>
struct End {
  template <class... Net>
  explicit End(int id, Net&... nets) : rx(0, 64, 1), engine(EngineLimits()) {
    (nets.dead.resize(3, false), ...);
    engine.link().join(nets..., id);
    if constexpr (SolePeer<L>) {
      EXPECT_TRUE(engine.open("", observer));
    } else {
      EXPECT_TRUE(engine.open(""));
      engine.set_address_vector(&av);
    }
    engine.set_regions(&regions);
    engine.add_queue(&cq);
    cq.add(engine);
    tx.cq = rx.cq = &cq;
    tx.apply_bindings();
    rx.apply_bindings();
    engine.set_receive_context(0, &rx);
    for (int other = 0; other < 3; ++other) {
      const auto address = sim::address_of(other);
      (void)av.insert(core::Address(address.data(), address.size()));
    }
  }
  L& link() { return engine.link(); }
  void send(fi_addr_t to, const Bytes& bytes) {
    ASSERT_EQ(engine.template send<true>(tx, bytes.data(), bytes.size(), to, 7, nullptr), 0);
  }
  void inject(fi_addr_t to, const Bytes& bytes) {
    ASSERT_EQ(engine.template inject<true>(tx, bytes.data(), bytes.size(), to, 7), 0);
  }
  void receive(Bytes& into) {
    ASSERT_EQ(rx.receive_tagged(into.data(), into.size(), FI_ADDR_UNSPEC, 7, 0, nullptr), 0);
  }
  // Completions that are there; with `drive` false the engine is not driven for more.
  size_t completions(bool drive = true) {
    size_t count = 0;
    fi_cq_tagged_entry entry;
    while ((drive || cq.pending() != 0) &&
           cq.template read<fi_cq_tagged_entry, false>(&entry, 1, nullptr) == 1)
      ++count;
    return count;
  }

  struct Observer final : ConnectionObserver {
    void connected(std::span<const std::byte>) noexcept override {}
    void refused(int, core::ProviderError, std::span<const std::byte>) noexcept override {}
    void disconnected(core::ProviderError) noexcept override {}
  } observer;
  core::AddressVector av;
  core::MemoryRegionTable regions{{false, false, false}, nullptr};
  core::CompletionQueue cq{16};
  TxContext tx;
  RxContext rx;
  Engine<L> engine;  // after what it uses
};

template <class L>
struct Pair {
  // The message gets there, whatever its size makes of it.
  void expect_carried(size_t size) {
    const Bytes bytes = pattern(size);
    Bytes into(size);
    b.receive(into);
    a.send(1, bytes);
    turn();
    EXPECT_EQ(b.completions(), 1u) << size;
    EXPECT_EQ(into, bytes) << size;
    (void)a.completions();
  }
  void turn() {
    for (int i = 0; i < 20; ++i) {
      a.engine.progress();
      b.engine.progress();
    }
  }
  sim::Net net{1};
  End<L> a{0, net}, b{1, net};
};

// --- the required part ---

static_assert(Link<PlainLink> && concepts_of<PlainLink>() == 0);

TEST(LinkConcepts, TheRequiredPartCarriesEveryMessage) {
  Pair<PlainLink> pair;
  for (const size_t size : {1, 100, 1000, 5000}) pair.expect_carried(size);
}

// --- HasSleep ---

struct SleepingLink : PlainLink {
  int wait_fd() const noexcept { return 77; }
  bool arm() noexcept { return armed = true; }
  void disarm() noexcept { armed = false; }
  bool armed = false;
};
static_assert(HasSleep<SleepingLink> && concepts_of<SleepingLink>() == 1);

TEST(LinkConcepts, SleepIsTheLinks) {
  Pair<SleepingLink> pair;
  EXPECT_EQ(pair.a.engine.wait_fd(), 77);
  EXPECT_TRUE(pair.a.engine.arm());
  EXPECT_TRUE(pair.a.link().armed);
  pair.a.engine.disarm();
  EXPECT_FALSE(pair.a.link().armed);
  Pair<PlainLink> plain;
  EXPECT_EQ(plain.a.engine.wait_fd(), -1);
  EXPECT_FALSE(plain.a.engine.arm()) << "nobody would wake it";
}

// --- SolePeer ---

struct ConnectedLink : PlainLink {
  static constexpr bool sole_peer = true;
  Result<void> open(std::string_view name, Events& events, ConnectionObserver&) {
    (void)PlainLink::open(name, events);
    int error = 0;
    other = connect(sim::address_of(1 - id_), error);
    return {};
  }
  PeerBase* other = nullptr;
};
static_assert(SolePeer<ConnectedLink> && concepts_of<ConnectedLink>() == 1);

TEST(LinkConcepts, ASolePeerNeedsNoAddress) {
  Pair<ConnectedLink> pair;
  const Bytes bytes = pattern(50);
  Bytes into(50);
  pair.b.receive(into);
  pair.a.send(FI_ADDR_UNSPEC, bytes);
  pair.turn();
  EXPECT_EQ(pair.b.completions(), 1u);
  EXPECT_EQ(into, bytes);
}

// --- HasSmallFrames ---

struct SmallLink : PlainLink {
  static constexpr size_t small_bytes_max = 32;
  SmallSend send_small(PeerBase& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    const iovec part{const_cast<void*>(bytes), head.length};
    if (!send(peer, head, {}, &part, 1)) return SmallSend::Refused;
    ++small;
    return SmallSend::Unseen;
  }
  void wake_receiver(PeerBase&) noexcept { ++told; }
  int small = 0, told = 0;
};
static_assert(HasSmallFrames<SmallLink> && concepts_of<SmallLink>() == 1);
static_assert(!has_small_credit<SmallLink>);

TEST(LinkConcepts, SmallFramesTakeTheFastPath) {
  Pair<SmallLink> pair;
  pair.expect_carried(32);  // makes the peer
  EXPECT_EQ(pair.a.link().small, 0);
  pair.expect_carried(32);
  EXPECT_EQ(pair.a.link().small, 1);
  EXPECT_EQ(pair.a.link().told, 1);
  pair.expect_carried(33);
  EXPECT_EQ(pair.a.link().small, 1);
}

struct SmallCreditLink : SmallLink {
  static constexpr bool small_credit = true;
  SmallSend send_small(PeerBase& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    if (peer.id < 0 || credit == 0) return SmallSend::Refused;
    --credit;
    return SmallLink::send_small(peer, head, bytes);
  }
  bool more_room(PeerBase&) noexcept {
    credit = 2;
    return true;
  }
  int credit = 0;
};
static_assert(HasSmallFrames<SmallCreditLink> && has_small_credit<SmallCreditLink>);

TEST(LinkConcepts, TheEngineLooksForNewCredit) {
  Pair<SmallCreditLink> pair;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.a.engine.inject_cached<true>(pair.a.tx, "12345678", 8, 1, 7), 0);
  }
  EXPECT_GE(pair.a.link().small, 4) << "the first one makes the peer";
}

// --- HasRemoteMemory ---

struct ReadableLink : PlainLink {
  CopyChoice choose_copy(const PeerBase&, uint64_t, uint64_t, uint64_t) const noexcept {
    return {CopyPath::Receiver, 0};
  }
  uint64_t stamp() const noexcept { return 1; }
  int read(PeerBase&, const iovec* local, size_t count, const wire::SourceSegment* remote, size_t,
           size_t bytes) noexcept {
    EXPECT_EQ(count, 1u);
    std::memcpy(local[0].iov_base, reinterpret_cast<const void*>(remote[0].address), bytes);
    ++reads;
    return 0;
  }
  int reads = 0;
};
static_assert(HasRemoteMemory<ReadableLink> && concepts_of<ReadableLink>() == 1);

TEST(LinkConcepts, ARendezvousIsReadAtItsSource) {
  Pair<ReadableLink> pair;
  pair.expect_carried(5000);
  EXPECT_EQ(pair.b.link().reads, 1);
  pair.expect_carried(1000);
  EXPECT_EQ(pair.b.link().reads, 1);
}

// The sender has taken the second half when the receiver begins, and writes it when it is told where to.
struct SharingLink : ReadableLink {
  static inline bool writing = false;  // of the only meeting
  CopyChoice choose_copy(const PeerBase&, uint64_t, uint64_t, uint64_t) const noexcept {
    return {CopyPath::Both, 1};
  }
  void copied(PeerBase&, CopyPath path, uint64_t bytes, uint64_t start) noexcept {
    EXPECT_EQ(path, CopyPath::Both);
    EXPECT_EQ(start, 1u);
    counted += bytes;
  }
  uint64_t open_meeting(PeerBase&, uint64_t) noexcept {
    writing = true;
    return 77;
  }
  CopyState copy(PeerBase&, uint64_t meeting, const iovec* local, size_t, const wire::SourceSegment* remote,
                 size_t, uint64_t bytes, bool patient) noexcept {
    EXPECT_EQ(meeting, 77u);
    if (writing) {
      std::memcpy(local[0].iov_base, reinterpret_cast<const void*>(remote[0].address), bytes / 2);
      return !patient && calls++ == 0 ? CopyState::Later : CopyState::Busy;
    }
    ++shared;
    return CopyState::Done;
  }
  void end_meeting(PeerBase&, uint64_t) noexcept { writing = false; }
  int pause_meetings() noexcept { return writing ? -EBUSY : 0; }
  Assistance assist(PeerBase&, uint64_t meeting, uint64_t bytes, const wire::SourceSegment* to, size_t count,
                    const iovec* local, size_t, uint32_t& taken) noexcept {
    EXPECT_EQ(meeting, 77u);
    EXPECT_EQ(count, 1u);
    if (taken < 2) {  // as if the first calls had been long
      ++taken;
      return Assistance::More;
    }
    const size_t half = bytes / 2;
    std::memcpy(reinterpret_cast<std::byte*>(to[0].address) + half,
                static_cast<const std::byte*>(local[0].iov_base) + half, bytes - half);
    writing = false;
    return Assistance::Asked;
  }
  uint64_t counted = 0;
  int shared = 0, calls = 0;
};
static_assert(HasRemoteMemory<SharingLink> && concepts_of<SharingLink>() == 1);

TEST(LinkConcepts, BothSidesCopyOneMessage) {
  Pair<SharingLink> pair;
  pair.expect_carried(5000);
  EXPECT_EQ(pair.b.link().shared, 1);
  EXPECT_EQ(pair.b.link().counted, 5000u);
  EXPECT_EQ(pair.b.link().reads, 0);
}

// Who sleeps hears of a Met, and of nothing that is left for the next poll.
struct SleepingSharingLink : SharingLink {
  int wait_fd() const noexcept { return 77; }
  bool arm() const noexcept { return true; }
  void disarm() noexcept {}
};
static_assert(concepts_of<SleepingSharingLink>() == 2);

TEST(LinkConcepts, ACopyIsNotLeftForTheNextPollWhileSomebodySleeps) {
  Pair<SleepingSharingLink> pair;
  const Bytes bytes = pattern(5000);
  Bytes into(5000);
  pair.a.send(1, bytes);
  pair.turn();
  ASSERT_TRUE(pair.b.engine.begin_sleep());
  pair.b.receive(into);
  EXPECT_FALSE(pair.b.engine.has_unsent()) << "the copy has begun, and the sender will tell";
  for (int i = 0; i < 5; ++i) pair.a.engine.progress();
  pair.b.engine.end_sleep();
  EXPECT_EQ(pair.b.completions(), 1u);
  EXPECT_EQ(pair.b.link().calls, 0) << "nobody was asked to come again";
  EXPECT_EQ(into, bytes);
}

// --- HasSendCompletion ---

struct CompletingLink : PlainLink {
  uint64_t sent_sequence(const PeerBase& peer) const noexcept { return peer.sent; }
  uint64_t completed_sequence(const PeerBase& peer) const noexcept { return peer.completed; }
  uint64_t delivered_sequence(const PeerBase&) const noexcept { return 0; }
  void request_ack(PeerBase&) noexcept { ++asked; }
  void complete_all() {
    for (const auto& [id, peer] : peers_) peer->completed = peer->sent;
  }
  int asked = 0;
};
static_assert(HasSendCompletion<CompletingLink> && concepts_of<CompletingLink>() == 1);

TEST(LinkConcepts, ASendCompletesWhenTheLinkSaysSo) {
  Pair<CompletingLink> pair;
  pair.a.send(1, pattern(50));
  pair.turn();
  EXPECT_EQ(pair.a.completions(), 0u);
  EXPECT_EQ(pair.a.link().asked, 1);
  pair.a.link().complete_all();
  EXPECT_EQ(pair.a.completions(), 1u);
}

TEST(LinkConcepts, WhatIsNotDeliveredIsCounted) {
  Pair<CompletingLink> pair;
  core::Counter sends;
  pair.a.tx.sends = &sends;
  pair.a.tx.apply_bindings();
  pair.a.inject(1, pattern(50));
  pair.net.kill(1);
  pair.a.engine.progress();
  core::CompletionError error;
  EXPECT_NE(pair.a.cq.read_error(error), 0);
  EXPECT_EQ(sends.errors(), 1u);
}

// --- HasZeroCopyFrames, which needs HasSendCompletion ---

struct ZeroCopyLink : CompletingLink {
  bool send_zero_copy(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                      const iovec* parts, size_t part_count) noexcept {
    EXPECT_TRUE(prefix.empty());
    waiting.push_back({&peer, head, {parts, parts + part_count}, {}});
    ++peer.sent;
    return true;
  }
  void copy_out(PeerBase&) noexcept {
    for (Waiting& one : waiting) {
      for (const iovec& part : one.parts) {
        const auto* bytes = static_cast<const std::byte*>(part.iov_base);
        one.copied.insert(one.copied.end(), bytes, bytes + part.iov_len);
      }
      one.parts.clear();
    }
  }
  void complete_all() {
    for (Waiting& one : waiting) {
      const iovec copy{one.copied.data(), one.copied.size()};
      if (one.parts.empty()) one.parts.push_back(copy);
      (void)put(*one.peer, one.head, {}, one.parts.data(), one.parts.size(), true);
      --one.peer->sent;  // it was counted
    }
    waiting.clear();
    CompletingLink::complete_all();
  }
  struct Waiting {
    PeerBase* peer;
    wire::FrameHead head;
    std::vector<iovec> parts;
    Bytes copied;
  };
  std::vector<Waiting> waiting;
};
static_assert(HasZeroCopyFrames<ZeroCopyLink> && concepts_of<ZeroCopyLink>() == 2);

TEST(LinkConcepts, AZeroCopySendLeavesFromTheProgramsBuffer) {
  Pair<ZeroCopyLink> pair;
  const Bytes bytes = pattern(100);
  Bytes into(100);
  pair.b.receive(into);
  pair.a.send(1, bytes);
  pair.turn();
  ASSERT_EQ(pair.a.link().waiting.size(), 1u);
  EXPECT_EQ(pair.a.link().waiting[0].parts[0].iov_base, bytes.data());
  EXPECT_EQ(pair.a.completions(), 0u);
  pair.a.link().complete_all();
  EXPECT_EQ(pair.a.completions(), 1u);
  EXPECT_EQ(pair.b.completions(), 1u);
  EXPECT_EQ(into, bytes);
}

TEST(LinkConcepts, AClosedContextHasItsBuffersCopied) {
  Pair<ZeroCopyLink> pair;
  auto bytes = std::make_unique<Bytes>(pattern(100));
  Bytes into(100);
  pair.b.receive(into);
  pair.a.send(1, *bytes);
  pair.a.engine.release_transmit_context(pair.a.tx);
  bytes.reset();
  pair.a.link().complete_all();
  pair.turn();
  EXPECT_EQ(into, pattern(100));
}

// --- Coalesces ---

struct KeepingLink : PlainLink {
  bool send(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
            const iovec* parts, size_t part_count) noexcept {
    Bytes bytes(prefix.begin(), prefix.end());
    for (size_t i = 0; i < part_count; ++i) {
      const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
      bytes.insert(bytes.end(), at, at + parts[i].iov_len);
    }
    kept.push_back({&peer, head, std::move(bytes)});
    return true;
  }
  bool has_deferred_sends() const noexcept { return !kept.empty(); }
  bool has_uncredited() const noexcept { return !credit && !kept.empty(); }
  void push(PeerBase&) noexcept { push_all(); }
  void push_all() noexcept {
    if (!credit) return;
    for (const Kept& one : kept) (void)put(*one.peer, one.head, one.bytes, nullptr, 0, true);
    kept.clear();
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    push_all();
    return PlainLink::poll(handler);
  }
  struct Kept {
    PeerBase* peer;
    wire::FrameHead head;
    Bytes bytes;
  };
  std::deque<Kept> kept;
  bool credit = true;
};
static_assert(Coalesces<KeepingLink> && concepts_of<KeepingLink>() == 1);

TEST(LinkConcepts, DeferredSendsGoWithoutAPoll) {
  Pair<KeepingLink> pair;
  pair.a.inject(1, pattern(50));
  EXPECT_TRUE(pair.a.link().kept.empty()) << "nobody may come to poll: pushed";
  pair.a.send(1, pattern(50));
  EXPECT_EQ(pair.a.link().kept.size(), 1u) << "the program reads its completion";
  EXPECT_EQ(pair.a.completions(), 1u);
  EXPECT_TRUE(pair.a.link().kept.empty()) << "a read polls though the queue has something";
}

TEST(LinkConcepts, WhatWaitsForThePeerIsUnsent) {
  Pair<KeepingLink> pair;
  pair.a.link().credit = false;
  pair.a.inject(1, pattern(50));
  EXPECT_TRUE(pair.a.engine.has_unsent());
  EXPECT_TRUE(pair.a.engine.has_background_work());
  pair.a.link().credit = true;
  pair.a.engine.push_unsent();
  EXPECT_FALSE(pair.a.engine.has_unsent());
}

// --- HasBackgroundWork ---

struct WorkingLink : PlainLink {
  bool has_background_work() const noexcept { return work; }
  void notify_background_work(core::Signal* to) noexcept { signal = to; }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    ++polls;
    return PlainLink::poll(handler);
  }
  bool work = false;
  core::Signal* signal = nullptr;
  int polls = 0;
};
static_assert(HasBackgroundWork<WorkingLink> && concepts_of<WorkingLink>() == 1);
static_assert(may_have_background_work<WorkingLink> && !repeats_packets<WorkingLink>);

TEST(LinkConcepts, BackgroundWorkIsPolledForThoughNoFrameIsTaken) {
  struct Silent final : core::Signal {
    void notify() noexcept override {}
  } signal;
  Pair<WorkingLink> pair;
  EXPECT_FALSE(pair.a.engine.has_background_work());
  pair.a.link().work = true;
  EXPECT_TRUE(pair.a.engine.has_background_work());
  pair.a.engine.notify_background_work(&signal);
  EXPECT_EQ(pair.a.link().signal, &signal);
  for (int i = 0; i < 16; ++i) pair.b.send(0, pattern(8));
  ASSERT_TRUE(pair.b.cq.full());
  pair.a.send(1, pattern(8));
  const int polls = pair.b.link().polls;
  pair.b.engine.progress();
  EXPECT_EQ(pair.b.link().polls, polls + 1);
  const auto& wire = pair.net.wires[{0, 1}];
  EXPECT_EQ(wire.size(), 1u) << "a full queue takes no frames";
}

// --- HasLoans ---

using LoanLink = sim::WithLoans<PlainLink>;
static_assert(HasLoans<LoanLink> && concepts_of<LoanLink>() == 1);

TEST(LinkConcepts, MessagesAreReadAndWrittenInPlace) {
  Pair<LoanLink> pair;
  uint64_t handle = 0;
  std::byte* at = nullptr;
  ASSERT_EQ(pair.a.engine.reserve(1, 100, handle, at), 0);
  const Bytes bytes = pattern(100);
  std::memcpy(at, bytes.data(), bytes.size());
  WrittenMessage message;
  message.tagged = true;
  message.tag = 7;
  message.length = bytes.size();
  ASSERT_EQ(pair.a.engine.commit(pair.a.tx, handle, message), 0);
  ReceiveRequest request;
  request.tagged = true;
  request.tag = 7;
  LoanedMessage taken;
  ASSERT_EQ(pair.b.engine.take(pair.b.rx, request, taken), 0);
  EXPECT_TRUE(taken.in_link);
  EXPECT_EQ(Bytes(taken.data, taken.data + taken.length), bytes);
  EXPECT_EQ(pair.b.engine.release(taken.handle), 0);
}

// --- HasFastPoll ---

using FastPollLink = sim::WithFastPoll<PlainLink>;
static_assert(HasFastPoll<FastPollLink> && concepts_of<FastPollLink>() == 1);

TEST(LinkConcepts, AFastPollTakesAShortFramePastTheQueue) {
  Pair<FastPollLink> pair;
  FastPollLink::Seen seen{};
  pair.turn();  // the address vector has changed
  EXPECT_EQ(pair.b.engine.fast_poll(pair.b.cq, seen), FastPoll::Nothing);
  const Bytes bytes = pattern(20);
  Bytes into(20);
  pair.b.receive(into);
  pair.a.send(1, bytes);
  ASSERT_EQ(pair.b.engine.fast_poll(pair.b.cq, seen), FastPoll::Frame);
  size_t got = 0;
  const auto give = [&](void*, size_t length, void*, uint64_t, fi_addr_t) { got = length; };
  ASSERT_TRUE(pair.b.engine.take_short(pair.b.cq, seen, give));
  EXPECT_EQ(got, 20u);
  EXPECT_EQ(into, bytes);
  EXPECT_EQ(pair.b.cq.pending(), 0u);
  pair.a.send(1, pattern(60));  // too long for a short one
  ASSERT_EQ(pair.b.engine.fast_poll(pair.b.cq, seen), FastPoll::Frame);
  EXPECT_FALSE(pair.b.engine.take_short(pair.b.cq, seen, give));
}

// --- HasSides ---

// A link of two: whoever talks to link 2 does so over another net.
class SidedLink : public LinkBase {
 public:
  struct Near : SmallLink {};
  struct Far : CompletingLink {
    static constexpr size_t eager_bytes_max = 60;
    static constexpr size_t fragmented_eager_bytes_max = 60;
  };
  using PeerBase = sim::PeerBase;
  using Events = sim::SimEvents;
  using Sides = SideTypes<Near, Far>;
  using SmallSide = Near;
  static constexpr size_t frame_bytes_max = PlainLink::frame_bytes_max;
  static constexpr size_t eager_bytes_max = PlainLink::eager_bytes_max;
  static constexpr size_t fragmented_eager_bytes_max = PlainLink::fragmented_eager_bytes_max;
  static constexpr size_t fragment_bytes = PlainLink::fragment_bytes;
  static constexpr size_t segment_bytes = PlainLink::segment_bytes;
  static constexpr size_t address_length = PlainLink::address_length;

  void join(sim::Net& near_net, sim::Net& far_net, int id) {
    near.join(near_net, id);
    far.join(far_net, id);
    id_ = id;
  }
  Result<void> open(std::string_view name, Events& events) {
    (void)near.open(name, events);
    return far.open(name, events);
  }
  std::span<const std::byte> address() const noexcept { return near.address(); }
  PeerBase* connect(std::span<const std::byte> address, int& error) {
    int to = 0;
    std::memcpy(&to, address.data() + 4, sizeof(to));
    return is_far(to) ? far.connect(address, error) : near.connect(address, error);
  }
  template <class F>
  decltype(auto) visit(PeerBase& peer, F&& f) {
    if (is_far(peer.id)) return f(far, peer);
    return f(near, peer);
  }
  template <class F>
  decltype(auto) visit(const PeerBase& peer, F&& f) const {
    if (is_far(peer.id)) return f(far, peer);
    return f(near, peer);
  }
  template <class F>
  decltype(auto) visit_to_send(PeerBase& peer, F&& f) {
    return visit(peer, f);
  }
  template <class F>
  void each_side(F&& f) {
    f(near);
    f(far);
  }
  template <class F>
  void each_side(F&& f) const {
    f(near);
    f(far);
  }

  void forget(PeerBase& peer) noexcept {
    visit(peer, [](auto& side, auto& part) { side.forget(part); });
  }
  bool send(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
            const iovec* parts, size_t part_count) noexcept {
    return visit_to_send(
        peer, [&](auto& side, auto& part) { return side.send(part, head, prefix, parts, part_count); });
  }
  void close() noexcept {
    each_side([](auto& side) { side.close(); });
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    return near.poll(handler) + far.poll(handler);
  }
  Near near;
  Far far;

 private:
  bool is_far(int other) const { return id_ == 2 || other == 2; }
  int id_ = -1;
};
static_assert(Link<SidedLink> && HasSides<SidedLink> && concepts_of<SidedLink>() == 1);
static_assert(has_send_completion<SidedLink> && !may_have_background_work<SidedLink>);

TEST(LinkConcepts, EachPeerHasTheAbilitiesOfItsSide) {
  sim::Net near_net(1), far_net(2);
  End<SidedLink> a(0, near_net, far_net), b(1, near_net, far_net), c(2, near_net, far_net);
  const Bytes bytes = pattern(20);
  Bytes at_b(20), at_c(20);
  b.receive(at_b);
  c.receive(at_c);
  a.send(1, bytes);
  EXPECT_EQ(a.completions(), 1u) << "the near side completes at once";
  a.send(1, bytes);
  EXPECT_EQ(a.link().near.small, 1) << "the first one makes the peer";
  EXPECT_EQ(a.link().near.told, 1);
  a.send(2, bytes);
  EXPECT_EQ(a.completions(), 1u) << "the far side does not";
  b.engine.progress();
  c.engine.progress();
  EXPECT_EQ(b.completions(), 1u);
  EXPECT_EQ(c.completions(), 1u);
  EXPECT_EQ(at_b, bytes);
  EXPECT_EQ(at_c, bytes);
  a.link().far.complete_all();
  EXPECT_EQ(a.completions(), 1u);
  // 100 bytes are eager on one side only.
  a.send(1, pattern(100));
  a.send(2, pattern(100));
  EXPECT_EQ((near_net.wires[{0, 1}].back().head.kind), wire::FrameKind::Tagged);
  EXPECT_EQ((far_net.wires[{0, 2}].back().head.kind), wire::FrameKind::TaggedRts);
}

}  // namespace
}  // namespace weft::proto
