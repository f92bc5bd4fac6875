// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Transmit and receive contexts: where completions go, what is posted, what arrived too early. Must not know links: what has to be said to a
// peer goes through PeerState::owner.
//
// Threads: the owner of the endpoint serialises (domain lock or program).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "arch/cpu.hpp"
#include "base/assert.hpp"
#include "base/pool.hpp"
#include "core/address_vector.hpp"
#include "core/completion_queue.hpp"
#include "core/counter.hpp"
#include "core/matching.hpp"
#include "core/provider_error.hpp"
#include "proto/engine/op.hpp"

namespace weft::proto {

struct Unexpected;
struct RxSink;

// What a receive context asks of the engine that a message came through.
struct Conversation {
  // A rendezvous has found its receive: fetch or ask for `receive.total` bytes.
  virtual void start_rendezvous(Op& receive, const Unexpected& message) noexcept = 0;
  // Tells the sender of `operation` that it is finished.
  virtual void acknowledge(PeerState& peer, uint64_t operation, int status) noexcept = 0;
  // Memory for unexpected messages is short (true) or not (false).
  virtual void set_pause(PeerState& peer, bool pause) noexcept = 0;

 protected:
  ~Conversation() = default;
};

using PendingSendsHook = NamedHook<struct PendingSendsName>;

// What the engine knows of a peer, whatever the link.
struct PeerState : PendingSendsHook {
  // Not zero: the fast path must not be taken.
  enum Gate : uint32_t { gate_queued = 1, gate_paused = 2, gate_lost = 4, gate_reserved = 8 };
  uint32_t gate = 0;
  fi_addr_t fi_addr = FI_ADDR_NOTAVAIL;  // in the endpoint's address vector
  Conversation* owner = nullptr;
  const RxSink* sink = nullptr;      // of the endpoint, for shared receive contexts
  List<Op, QueueHook> control;       // frames of the protocol, waiting for room; they go before the queue
  List<Op, QueueHook> queue;         // operations in order, waiting for room, or for others (FI_FENCE)
  List<Op, InFlightHook> in_flight;  // every operation that names it
  Fifo<PendingSend> pending_sends;   // messages that the link has, in order, whose completions wait for it
  PendingSend* newest = nullptr;  // the last of them, when it is a small message: it stands for all before it
  uint64_t quiet = 0;       // the link's sequence behind the last message that has no completion to come
  uint8_t quiet_kinds = 0;  // Unread: what such messages were
  uint32_t accesses =
      0;  // RMA and atomic operations whose answer has not come: a later one keeps its place behind them
  uint64_t unacknowledged = 0;  // operations whose Done has not come (FI_FENCE waits for zero)
  // A message that comes in several frames: where its bytes go (neither: nowhere) and how many are still to come.
  Op* fragmented_receive = nullptr;
  Unexpected* fragmented_message = nullptr;
  uint64_t fragmented_left = 0;
  uint64_t fragmented_start = 0;  // link time; 0: how long it takes is not measured
  uint64_t heard = 0;             // link time of its last segment: it is there and copying
  bool pausing = false;           // we asked it to keep payloads
  uint64_t unheeded = 0;          // bytes that came unasked since then
  uint32_t announced = 0;         // messages of it that wait with it for a receive
  uint32_t served = 0;  // what we do for it: transfers, and frames of the protocol that wait for room
  bool lost = false;
  core::Address av_address;
  // All operations of the queue, while they wait for each other to reach the peer's memory together; 0: they do not.
  uint32_t collected = 0;
  uint32_t collected_pieces = 0;
  uint64_t collected_bytes = 0;
};

struct TxContext {
  core::CompletionQueue* cq = nullptr;
  bool selective = false;          // FI_SELECTIVE_COMPLETION at bind
  bool default_completes = false;  // what a call without flags does
  bool default_plain = true;       // op_flags ask for nothing beyond transmit complete
  bool default_early = false;      // nor for that: inject complete will do
  uint64_t op_flags = 0;           // of the endpoint
  core::Counter* sends = nullptr;
  core::Counter* reads = nullptr;
  core::Counter* writes = nullptr;

  void apply_bindings() noexcept {  // after binding
    default_completes = cq != nullptr && (!selective || (op_flags & FI_COMPLETION) != 0);
    default_plain =
        (op_flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE | FI_FENCE)) == 0;
    default_early = default_plain && (op_flags & FI_INJECT_COMPLETE) != 0;
  }
  bool completes(uint64_t flags) const noexcept {
    return cq != nullptr && (!selective || (flags & FI_COMPLETION) != 0);
  }
};

// Where receive completions go. A shared receive context takes the sink of the endpoint that the message came to (fi_endpoint(3)).
struct RxSink {
  core::CompletionQueue* cq = nullptr;
  bool selective = false;
  uint64_t op_flags = 0;
  // ORed into Completion::source: 0 with FI_SOURCE, otherwise FI_ADDR_NOTAVAIL (all bits set).
  fi_addr_t hidden_source = 0;
  core::Counter* receives = nullptr;
  core::Counter* remote_writes = nullptr;
  core::Counter* remote_reads = nullptr;

  bool completes(uint64_t flags) const noexcept {
    return cq != nullptr && (!selective || (flags & FI_COMPLETION) != 0);
  }
  bool bound() const noexcept {
    return cq != nullptr || receives != nullptr || remote_writes != nullptr || remote_reads != nullptr;
  }
};

// A message that no posted receive wanted.
struct Unexpected : core::UnexpectedBase {
  PeerState* peer = nullptr;     // null once it has gone
  const RxSink* sink = nullptr;  // the peer's, which stays as long as the endpoint
  uint64_t operation = 0;        // the sender's, when it waits for us
  uint64_t data = 0;
  uint64_t length = 0;  // of the message
  uint64_t stamp = 0;
  bool tagged = false;
  bool has_data = false;
  bool rendezvous = false;  // the payload is still with the sender
  uint64_t arrived = 0;     // bytes of the payload; less than length while the rest is on its way
  bool wants_ack = false;
  bool claimed = false;
  uint32_t segments = 0;
  std::array<wire::SourceSegment, iov_max> source_segments{};
  std::byte* payload = nullptr;
  std::unique_ptr<std::byte[]> heap;
  std::array<std::byte, 64> small{};
};

// A receive as a program asks for it.
struct ReceiveRequest {
  const iovec* iov = nullptr;
  size_t iov_count = 0;
  fi_addr_t source = FI_ADDR_UNSPEC;
  uint64_t tag = 0;
  uint64_t ignore = 0;
  void* context = nullptr;
  uint64_t flags = 0;
  bool tagged = false;
  core::Counter* extra_counter = nullptr;
};

inline constexpr size_t unexpected_bytes_default = size_t{32} << 20;

struct EngineLimits {
  size_t transmit_size = 1024;  // operations in flight per endpoint
  size_t receive_size = 1024;   // posted receives per context
  size_t inject_bytes = 4096;   // FI_INJECT and fi_inject
  size_t unexpected_bytes = unexpected_bytes_default;
  bool driven = false;                  // somebody polls while the program does not (FI_PROGRESS_AUTO)
  size_t message_bytes = SIZE_MAX / 2;  // for engines that do not cut messages into pieces
  bool inject_errors = false;           // error entries, with a null context, also of what has no completion
};

struct RxContext : RxSink {
  static constexpr size_t unexpected_count_max = size_t{1} << 20;
  // Of one peer: more than any link has under way when it hears of a pause, more than any endpoint announces. Beyond that its frames wait.
  static constexpr size_t unheeded_bytes_max = size_t{64} << 20;
  static constexpr size_t announced_max = size_t{1} << 16;

  RxContext(uint8_t index, const EngineLimits& limits, uint64_t seed)
      : RxContext(index, limits.receive_size, seed) {
    unexpected_bytes_max = limits.unexpected_bytes;
  }
  RxContext(uint8_t index, size_t bound, uint64_t seed)
      : tags(seed),
        messages(seed),
        ops(OpTableKind::Receive, index, bound),
        unexpected_pool(unexpected_count_max) {}
  ~RxContext();
  RxContext(const RxContext&) = delete;
  RxContext& operator=(const RxContext&) = delete;

  bool default_completes = false;
  bool posts_plain = false;    // what Op::plain of a receive without flags is
  bool directed = false;       // FI_DIRECTED_RECV: sources of receives count
  bool source_errors = false;  // FI_SOURCE_ERR
  bool shared = false;         // several endpoints receive here
  // Shared: where is said what concerns no endpoint, such as a receive that was cancelled. A queue of one of them, or null.
  core::CompletionQueue* reports = nullptr;
  size_t multi_receive_min = 64;
  core::TagMatcher tags;
  core::MsgMatcher messages;
  OpTable ops;
  Pool<Unexpected> unexpected_pool;
  size_t unexpected_bytes = 0;
  size_t unexpected_bytes_max = unexpected_bytes_default;

  void choose(uint64_t caps) noexcept {
    directed = (caps & FI_DIRECTED_RECV) != 0;
    source_errors = (caps & FI_SOURCE_ERR) != 0;
  }
  size_t posted_max() const noexcept { return ops.bound(); }
  size_t posted() const noexcept { return ops.in_use(); }
  // Receives that have ended, and messages in buffers for several.
  uint64_t received() const noexcept { return ops.given() + parts_; }
  uint64_t received_bytes() const noexcept { return bytes_; }  // of messages
  size_t unexpected() const noexcept { return unexpected_pool.in_use(); }
  void apply_bindings() noexcept {
    default_completes = completes(op_flags);
    posts_plain = default_completes && !shared;
  }
  const RxSink& sink(const PeerState* peer) const noexcept {
    return shared && peer != nullptr && peer->sink != nullptr && peer->sink->bound() ? *peer->sink : *this;
  }

  // --- the program's side ---
  // Hot: one buffer, no flags. True: posted. False: nothing has happened, and receive_tagged() does it.
  bool post_plain(void* buffer, size_t length, fi_addr_t source, uint64_t tag, uint64_t ignore,
                  void* context) noexcept {
    Op* op = ops.peek();
    if (op == nullptr || !tags.has_room_and_no_arrivals()) [[unlikely]]
      return false;
    ops.take_peeked(*op);
    fill(*op, buffer, length, context, default_completes);
    op->stage = OpStage::Posted;
    op->tagged = true;
    op->plain = posts_plain;
    op->flags = op_flags;
    op->tag = tag;
    op->ignore = ignore;
    if (!directed && ignore == 0) [[likely]] {
      op->source = FI_ADDR_UNSPEC;
      tags.post_plain(*op);
    } else {
      op->source = directed ? source : FI_ADDR_UNSPEC;
      tags.post(*op);
    }
    return true;
  }
  ssize_t receive_tagged(void* buffer, size_t length, fi_addr_t source, uint64_t tag, uint64_t ignore,
                         void* context) noexcept {
    Op* op = ops.acquire();
    if (op == nullptr) [[unlikely]]
      return -FI_EAGAIN;
    fill(*op, buffer, length, context, default_completes);
    op->tagged = true;
    op->plain = posts_plain;
    op->flags = op_flags;
    op->tag = tag;
    op->ignore = ignore;
    op->source = directed ? source : FI_ADDR_UNSPEC;
    if (core::UnexpectedBase* found = tags.match_posted(tag, ignore, op->source); found != nullptr) {
      claim(*op, static_cast<Unexpected&>(*found));
      return 0;
    }
    op->stage = OpStage::Posted;
    tags.post(*op);
    return 0;
  }
  ssize_t receive(const ReceiveRequest& request) noexcept;
  // FI_PEEK, FI_CLAIM, FI_DISCARD of fi_tagged(3) and fi_msg(3).
  ssize_t peek(const ReceiveRequest& request) noexcept;
  // 0, or -FI_ENOENT when nothing posted has that context.
  ssize_t cancel(const void* context) noexcept;

  // --- the engine's side ---
  // The usual message, a small one for a plain receive; `flags` and `data` are those of its completion. True: delivered. False: nothing has
  // happened.
  [[gnu::always_inline]] bool deliver_plain(fi_addr_t source, uint64_t tag, const std::byte* payload,
                                            uint32_t length, uint64_t flags, uint64_t data) noexcept {
    const fi_addr_t shown = source | hidden_source;
    return deliver_plain(
        source, tag, payload, length,
        [ =, queue = cq ](void* context, void* to) __attribute__((always_inline)) {
          queue->push_tagged(context, flags, length, to, data, tag, shown);
        });
  }
  // The same; complete(context, buffer) says it.
  template <class Complete>
  [[gnu::always_inline]] bool deliver_plain(fi_addr_t source, uint64_t tag, const std::byte* payload,
                                            uint32_t length, Complete&& complete) noexcept {
    if (source == FI_ADDR_NOTAVAIL) [[unlikely]]
      return false;
    core::PostedBase* found = tags.first_plain(tag, source);
    if (found == nullptr) [[unlikely]]
      return false;
    Op& op = static_cast<Op&>(*found);
    if (!op.plain || length > op.length) [[unlikely]]
      return false;
    tags.take_plain(op);
    std::byte* const to = op.buffer();
    arch::copy_small(to, payload, length);
    complete(op.context, to);
    bytes_ += length;
    if (receives != nullptr) [[unlikely]]
      receives->add(1);
    ops.release(op);
    return true;
  }
  // An eager message for a matched receive.
  [[gnu::always_inline]] void deliver(Op& op, PeerState& peer, const wire::FrameHead& head,
                                      const std::byte* payload) noexcept {
    if (op.iov_count != 1 || head.length > op.length || op.multi || op.extra_counter != nullptr || shared)
        [[unlikely]] {
      deliver_slow(op, peer, head, payload);
      return;
    }
    WEFT_ASSERT(!op.posted() && op.kind == OpKind::Receive && op.children == 0);
    WEFT_ASSERT(!op.completes || cq != nullptr);
    if (head.length <= 48) [[likely]]
      arch::copy_small(op.buffer(), payload, head.length);
    else std::memcpy(op.buffer(), payload, head.length);
    if (op.completes) [[likely]] {
      if (peer.fi_addr == FI_ADDR_NOTAVAIL && source_errors) [[unlikely]] {
        complete_unknown_source(op, peer, head.length, (head.flags & wire::has_data) != 0, head.b, head.a);
      } else {
        const bool with_data = (head.flags & wire::has_data) != 0;
        cq->push({op.context,
                  (op.tagged ? FI_RECV | FI_TAGGED : FI_RECV | FI_MSG) | (with_data ? FI_REMOTE_CQ_DATA : 0),
                  head.length, op.buffer(), with_data ? head.b : 0, op.tagged ? head.a : 0,
                  peer.fi_addr | hidden_source});
      }
    }
    bytes_ += head.length;
    if (receives != nullptr) receives->add(1);
    ops.release(op);
  }
  // A message that nothing waits for. False: no memory; the frame stays with the link.
  bool keep(PeerState& peer, const wire::FrameHead& head, bool tagged, const std::byte* payload,
            size_t length, uint64_t ack_operation) noexcept;
  bool add_unexpected_rendezvous(PeerState& peer, const wire::FrameHead& head, bool tagged,
                                 const wire::RtsPrefix& rts, const wire::SourceSegment* segments) noexcept;
  // A message that comes in several frames, and nothing waits for it: room for all of it. Null: no memory.
  Unexpected* add_unexpected_fragmented(PeerState& peer, const wire::FrameHead& head, bool tagged,
                                        uint64_t total) noexcept;
  // A message whose bytes come later, and the receive that it goes to. Returns what receives them: `op`, or a part of it. Null: no memory for
  // a part; the message has failed, the buffer stays posted.
  Op* begin(Op& op, const Unexpected& message) noexcept;
  void start(Op& op, const Unexpected& message) noexcept;  // the same for a rendezvous, which is then fetched
  // A rendezvous receive has all its bytes (status 0) or never will.
  void finish(Op& op, int status, core::ProviderError why) noexcept;
  Op* match(bool tagged, uint64_t tag, fi_addr_t source) noexcept {
    return static_cast<Op*>(tagged ? tags.match_arrival(tag, source) : match_message(source));
  }
  // The peer has gone: what it only announced will never come. True: it had been asked to keep payloads.
  bool forget_peer(PeerState& peer) noexcept;
  // Receives that only this source could have satisfied end with an error (FI_DIRECTED_RECV).
  void fail_directed(fi_addr_t source, core::ProviderError why) noexcept;
  // Nobody is left who could send: what is posted ends with this error (connected endpoints).
  void end_posted(int error, core::ProviderError why) noexcept;
  // Whether a message waits that this receive would take.
  bool has_unexpected(const ReceiveRequest& request) noexcept {
    return find_unexpected(request, false) != nullptr;
  }
  // The oldest message that waits and that this receive would take, taken out to be read where it lies, until return_unexpected(). Null: there is none,
  // or, with `found`, one that is not here as a whole, and stays.
  Unexpected* take_whole(const ReceiveRequest& request, const Unexpected*& found) noexcept;
  void return_unexpected(Unexpected& message) noexcept;
  // The endpoint with this sink has gone, and all that came to it.
  void forget_sink(const RxSink* sink) noexcept;
  // This context goes: who waits for its unexpected messages to be received hears that they never will be.
  void refuse_unexpected(PeerState& peer) noexcept;
  // The peer's fi_addr_t has changed.
  void rename_peer(PeerState& peer) noexcept;

 private:
  static void fill(Op& op, void* buffer, size_t length, void* context, bool completes) noexcept {
    op.kind = OpKind::Receive;
    op.stage = OpStage::Idle;
    op.iov_count = 1;
    op.completes = completes;
    op.tagged = false;
    op.multi = false;
    op.exhausted = false;
    op.plain = false;
    op.length = length;
    op.iov[0] = {buffer, length};
    op.context = context;
    op.children = 0;
    op.parent = nullptr;
    op.extra_counter = nullptr;
  }
  core::PostedBase* match_message(fi_addr_t source) noexcept;
  [[gnu::noinline]] void claim(Op& op, Unexpected& message) noexcept;
  void consume(Unexpected& message) noexcept;
  void release(Unexpected& message) noexcept;
  void account(PeerState& peer, size_t bytes) noexcept;
  [[gnu::noinline]] void deliver_slow(Op& op, PeerState& peer, const wire::FrameHead& head,
                                      const std::byte* payload) noexcept;
  void place(Op& op, PeerState& peer, const std::byte* payload, size_t length, bool has_data, uint64_t data,
             uint64_t tag) noexcept;
  void complete(Op& op, fi_addr_t source, PeerState* peer, size_t length, size_t full_length, void* buffer,
                bool has_data, uint64_t data, uint64_t tag, int error,
                core::ProviderError why = core::ProviderError::None) noexcept;
  [[gnu::noinline, gnu::cold]] void complete_unknown_source(Op& op, PeerState& peer, size_t length,
                                                            bool has_data, uint64_t data,
                                                            uint64_t tag) noexcept;
  void multi_part_done(Op& parent, uint64_t& flags) noexcept;
  bool take_part(Op& parent, size_t length, std::byte*& at, size_t& room) noexcept;
  Unexpected* make_unexpected(PeerState& peer, const wire::FrameHead& head, bool tagged,
                              uint64_t length) noexcept;
  void insert(Unexpected& message) noexcept;
  Unexpected* find_unexpected(const ReceiveRequest& request, bool take) noexcept;
  void discard(Unexpected& message) noexcept;

  uint64_t bytes_ = 0;                // of messages that were received
  uint64_t parts_ = 0;                // messages in buffers that still have room (FI_MULTI_RECV)
  std::vector<PeerState*> paused_;    // asked to keep payloads
  std::vector<Unexpected*> claimed_;  // taken out by FI_PEEK with FI_CLAIM, or by take_whole()
};

}  // namespace weft::proto
