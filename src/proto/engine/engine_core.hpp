// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EngineCore: the part of Engine<Link> that is the same for every link, compiled once: tables of operations, peers, queueing, rendezvous, RMA and
// atomics, errors. It reaches the link through AnyLink. Must not know any Link, system calls, clocks or threads.
//
// Sources: engine_core.cpp (set-up, contexts, closing), peers.cpp, transmit.cpp (operations on their way out), collected_access.cpp,
// send_completion.cpp, remote.cpp (frames that come in). Parts that are classes: RmaResponder (target.hpp), RendezvousCopy (copying.hpp), TransmitErrors (unreported.hpp).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "core/address_vector.hpp"
#include "core/atomic.hpp"
#include "core/progress.hpp"
#include "proto/engine/any_link.hpp"
#include "proto/engine/context.hpp"
#include "proto/engine/copying.hpp"
#include "proto/engine/endpoint_engine.hpp"
#include "proto/engine/link.hpp"
#include "proto/engine/op.hpp"
#include "proto/engine/target.hpp"
#include "proto/engine/unreported.hpp"

namespace weft::proto {

inline constexpr unsigned checks_for_leaving = 4;  // polls, where addresses have been removed
inline constexpr uint32_t calls_without_poll_max = 16;
// Of one peer; an endpoint has far fewer operations under way.
inline constexpr uint32_t served_max = 1U << 16;
inline constexpr size_t prefix_bytes_max = 256;  // RmaPrefix, targets, RtsPrefix and source segments together

// About 120 functions and 50 members, most of which concern an operation in one of the queues of its peer: steps, frames and endings of it work on the
// same lists, tables and count of unfinished work (busy_). What has a state of its own is a class: RendezvousCopy, RmaResponder, TransmitErrors. The
// members down to sole_ are those that a small message or a poll touches, and lie together for that.
class EngineCore : public core::Progressor, public Conversation {
 public:
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // --- set-up, before the first operation ---
  // Peers may reach the domain's regions without us, as far as the link can, and nobody wants to hear of it: not the counters of the endpoint, which
  // count reads or writes of peers, nor those of a region. Once, after the counters are bound. 0 or -FI_ENOMEM.
  int serve_regions(bool count_reads, bool count_writes) noexcept {
    return responder_.serve_regions(count_reads, count_writes);
  }
  // Peers ask us again. 0; -FI_EBUSY: one is still copying, after a bounded time, and nothing has changed but that no other begins.
  // `closing`: nor does any peer write what it sends us, from now on.
  int stop_serving(bool closing) noexcept { return responder_.stop_serving(closing); }
  void set_address_vector(core::AddressVector* av) noexcept {
    av_ = av;
    av_changes_ = av != nullptr ? &av->changes() : nullptr;
    choose_sole_queue();
  }
  void set_regions(core::MemoryRegionTable* regions) noexcept { responder_.set_regions(regions); }
  // Receive contexts are owned by the caller (an SRX belongs to several engines). Index as in fi_rx_addr(3).
  void set_receive_context(size_t index, RxContext* context);
  bool has_receive_context(size_t index) const noexcept { return index < rx_count_ && rx_[index] != nullptr; }
  // The context goes: what was on its way into it ends without a completion here, and with an error at its sender.
  void release_receive_context(size_t index) noexcept;
  // Where completions go when the receive context is a shared one.
  void set_sink(const RxSink* sink) noexcept { sink_ = sink; }
  // The transmit context goes, and the program has the buffers of its operations back. They go on, and end without a completion.
  void release_transmit_context(const TxContext& context) noexcept;
  // A queue that must not overflow: while it is full no frames are taken.
  void add_queue(core::CompletionQueue* queue);
  void remove_queue(core::CompletionQueue* queue) noexcept {
    std::erase(queues_, queue);
    choose_sole_queue();
  }
  const EngineLimits& limits() const noexcept { return limits_; }
  // A counter of sends is bound to one of the transmit contexts, perhaps after it has sent.
  void count_sends() noexcept {
    counts_sends_ = true;
    drop_cached_destination();
  }
  // Until close(); null: nobody.
  void set_watcher(core::Watcher* watcher, uint32_t entry) noexcept {
    errors_.set_watcher(watcher);
    entry_ = entry;
  }
  EngineCounts counts() const noexcept;
  // Any thread may store 1 into deferred_due(); the next progress() then ends with run(). The runner outlives the last store.
  void set_deferred_runner(DeferredRunner* runner) noexcept { deferred_runner_ = runner; }
  std::atomic<uint32_t>& deferred_due() noexcept { return deferred_due_; }

  // --- Conversation: called by receive contexts ---
  void start_rendezvous(Op& receive, const Unexpected& message) noexcept override;
  void acknowledge(PeerState& peer, uint64_t operation, int status) noexcept override;
  void set_pause(PeerState& peer, bool pause) noexcept override;

  // A connected link: its peer has been there and has left, for good.
  bool gone() const noexcept { return gone_; }
  // Drops every operation without a completion, before the queues go away.
  void abandon() noexcept;
  size_t transmit_in_use() const noexcept { return transmit_ops_.in_use(); }
  size_t service_in_use() const noexcept { return service_ops_.in_use(); }
  // Takes back an operation that has not been sent yet. 0 or -FI_ENOENT.
  ssize_t cancel(const void* context) noexcept;

 protected:
  friend class RendezvousCopy;
  friend class RmaResponder;

  enum class Step { Sent, Blocked };

  // What the core needs to know of the type of the link.
  struct LinkTraits {
    bool sole_peer;            // SolePeer
    bool has_send_completion;  // some peers have it
    size_t fragmented_eager_bytes_max;
  };
  using OwnedPeer = std::unique_ptr<PeerState, void (*)(PeerState*) noexcept>;

  EngineCore(const EngineLimits& limits, AnyLink& link, const LinkTraits& traits) noexcept
      : any_link_(link),
        traits_(traits),
        copy_(*this),
        responder_(*this),
        transmit_ops_(OpTableKind::Transmit, 0, limits.transmit_size),
        service_ops_(OpTableKind::Service, 0, size_t{1} << 20),
        pending_send_pool_(limits.transmit_size),
        errors_(retired_, limits.inject_errors, !traits.sole_peer),
        limits_(limits) {}
  virtual ~EngineCore() = default;

  // --- the engine of the link has these ---
  // `silent`: no completion brings the program to its queue. See Coalesces.
  virtual void note_deferred(TxContext& tx, PeerState& peer, bool silent) noexcept = 0;
  // What is open in place (in_place.hpp) of the peer, which is gone, or of a receive context that goes.
  virtual void forget_open(const PeerState& peer) noexcept = 0;
  virtual void drop_loans(const RxContext& rx) noexcept = 0;

  // Where inject_cached() sends to without another look: nothing waits before it (gate), nothing counts sends. Dropped by drop_cached_destination().
  struct CachedDestination {
    fi_addr_t dest = FI_ADDR_NOTAVAIL;
    void* peer =
        nullptr;  // L::PeerBase; without a destination one that refuses every frame, where there is such a cache
  };
  void drop_cached_destination() noexcept { cached_destination_ = nowhere_; }
  // From now on operations to the peer wait, or fail.
  void shut(PeerState& peer, PeerState::Gate bit) noexcept {
    peer.gate |= bit;
    drop_cached_destination();
  }
  RxContext* context_for(const wire::FrameHead& head) const noexcept {
    return head.context < rx_count_ ? rx_[head.context] : nullptr;
  }
  // In a forked child, which must not speak for its parent.
  bool is_forked_copy() const noexcept { return !any_link_.belongs_here(); }
  [[gnu::always_inline]] void count_sent(size_t length) noexcept {
    ++sent_;
    sent_bytes_ += length;
  }
  void report_background_work() noexcept {
    if (background_ != nullptr && has_background_work()) [[unlikely]]
      std::exchange(background_, nullptr)->notify();
  }

  // peers.cpp
  uint32_t av_removals() const noexcept { return av_changes_->removals.load(std::memory_order_acquire); }
  uint32_t av_version() const noexcept { return av_changes_->version.load(std::memory_order_acquire); }
  void choose_sole_queue() noexcept {
    sole_queue_ = queues_.size() == 1 && av_ != nullptr ? queues_.front() : nullptr;
  }
  PeerState* find_peer(fi_addr_t dest, uint8_t& context, int& error) noexcept;
  [[gnu::noinline, gnu::cold]] PeerState* connect(core::Address address, int& error);
  [[gnu::noinline, gnu::cold]] void refresh_peers() noexcept;
  fi_addr_t number_of(const core::Address& address) const noexcept;
  void rename(PeerState& peer, fi_addr_t index) noexcept;
  void drop_cache() noexcept;
  void adopt_peer(OwnedPeer peer, std::span<const std::byte> address);
  void lose_peer(PeerState& peer, core::ProviderError why) noexcept;
  void fail_peer(PeerState& peer, core::ProviderError why) noexcept;
  void end_receives(core::ProviderError why) noexcept;
  void release_peer(PeerState& peer) noexcept;

  // transmit.cpp
  void note_unwatched(Op& op) noexcept {
    if (op.completes || std::exchange(op.unwatched, true)) return;
    ++unwatched_ops_;
    report_background_work();
  }
  void release_transmit(Op& op) noexcept {
    if (std::exchange(op.unwatched, false)) --unwatched_ops_;
    WEFT_ASSERT(unwatched_ops_ <= transmit_ops_.in_use());
    transmit_ops_.release(op);
  }
  int validate(const Request& request, size_t length) const noexcept {
    if (request.iov_count > iov_max || request.compare_count > iov_max || request.result_count > iov_max)
      return -FI_EINVAL;
    if ((request.flags & FI_INJECT) != 0 && length > limits_.inject_bytes) return -FI_EMSGSIZE;
    return request.kind == OpKind::Send ? 0 : validate_access(request, length);
  }
  static int validate_access(const Request& request, size_t length) noexcept;
  ssize_t post_op(TxContext& tx, PeerState& peer, uint8_t context, const Request& request,
                  size_t length) noexcept;
  bool copy_source(Op& op) noexcept;
  bool give_back(Op& op) noexcept;
  void enqueue(PeerState& peer, Op& op) noexcept;
  Step step(PeerState& peer, Op& op) noexcept;
  Step step_message(PeerState& peer, Op& op) noexcept;
  Step step_fragments(PeerState& peer, Op& op) noexcept;
  Step finish_sent(PeerState& peer, Op& op) noexcept;
  bool access_memory(PeerState& peer, Op& op) noexcept;
  Step step_rma(PeerState& peer, Op& op) noexcept;
  Step step_atomic(PeerState& peer, Op& op) noexcept;
  Step step_control(PeerState& peer, Op& op) noexcept;
  bool is_wanted_announced(PeerState& peer, const Op& op) noexcept;
  size_t fill_rts(const PeerState& peer, const Op& op, uint64_t id, std::byte* out) const noexcept;
  size_t fill_targets(const Op& op, std::byte* out) const noexcept;
  void wait_for_peer(PeerState& peer, Op& op) noexcept;
  [[gnu::noinline]] void attend() noexcept;
  void work() noexcept;
  void flush(PeerState& peer) noexcept;
  bool stream(Op& op) noexcept;
  void send_control(PeerState& peer, wire::FrameKind kind, uint8_t flags, uint64_t a, uint64_t b,
                    std::span<const std::byte> payload) noexcept;
  Op* acquire_service(PeerState& peer) noexcept;
  void release_service(Op& op) noexcept;
  void finish_transmit(Op& op, int status, core::ProviderError why) noexcept;
  void complete_transmit(TxContext& tx, const Op& op, int status, core::ProviderError why) noexcept;

  // collected_access.cpp
  bool may_collect(const TxContext& tx, PeerState& peer, const Request& request, size_t length) noexcept;
  void collect(PeerState& peer, Op& op) noexcept;
  void access_collected(PeerState& peer) noexcept;
  void end_collection(PeerState& peer) noexcept;

  // send_completion.cpp
  // Whether somebody waits for more than that the link has it.
  bool waits(const TxContext& tx, const Request& request) const noexcept {
    if (!traits_.has_send_completion) return false;
    if (request.silent || (request.flags & FI_INJECT_COMPLETE) != 0) return false;
    return tx.completes(request.flags) || tx.sends != nullptr || request.extra_counter != nullptr;
  }
  bool waits(const Op& op) const noexcept;
  template <class AnyLinkType>  // AnyLink, or AnyLinkOf<L>, whose calls are inlined
  bool is_send_complete(AnyLinkType& link, PeerState& peer) const noexcept {
    WEFT_ASSERT(link.completed_sequence(peer) <= link.sent_sequence(peer));
    return peer.pending_sends.empty() && link.completed_sequence(peer) >= link.sent_sequence(peer);
  }
  // The program gets its memory back before the link is done with it.
  void copy_out(PeerState& peer) noexcept {
    // A forked child sends nothing, and may not have that memory (MADV_DONTFORK).
    if (!is_forked_copy()) any_link_.copy_out(peer);
  }
  void hold(PeerState& peer, PendingSend& record, uint64_t sequence) noexcept;
  bool hold(PeerState& peer, const Op& op) noexcept;
  void complete_rendezvous(Op& op) noexcept;
  void hold_rendezvous(PeerState& peer, Op& op) noexcept;
  void complete_record(PeerState& peer, const PendingSend& record, int status,
                       core::ProviderError why) noexcept;
  void complete_sends(PeerState& peer) noexcept;
  [[gnu::noinline]] void complete_sends() noexcept;
  void end_pending_sends(PeerState& peer, int status, core::ProviderError why) noexcept;
  void drop_pending_sends(PeerState& peer) noexcept;
  bool has_completed_sends() noexcept;
  // Everything that the link has taken for the peer, up to that sequence, has no completion to come any more, or never had one. Last such a message.
  static void note_quiet(PeerState& peer, bool tagged, uint64_t sequence) noexcept {
    peer.quiet = sequence;
    peer.quiet_kinds |= kind_of(tagged);
  }
  static constexpr uint8_t kind_of(bool tagged) noexcept { return tagged ? unread_tagged : unread_untagged; }

  // remote.cpp
  [[gnu::noinline]] bool on_other_frame(PeerState& peer, const wire::FrameHead& head,
                                        const std::byte* payload) noexcept;
  bool on_message(PeerState& peer, const wire::FrameHead& head, const std::byte* payload, bool tagged,
                  bool acked) noexcept;
  bool on_first(PeerState& peer, const wire::FrameHead& head, const std::byte* payload, bool tagged) noexcept;
  bool begin_fragmented(PeerState& peer, const wire::FrameHead& head, const std::byte* payload,
                        size_t arrived, uint64_t total, bool tagged) noexcept;
  void on_more(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void more_arrived(PeerState& peer, size_t bytes) noexcept;
  // See TakesParts.
  Land land(PeerState& peer, wire::FrameHead& head, const std::byte* payload, size_t arrived,
            Landing& out) noexcept;
  void landed(PeerState& peer, wire::FrameHead& head, size_t bytes) noexcept;
  Op* segment_op(PeerState& peer, const wire::FrameHead& head) noexcept;
  void segment_arrived(PeerState& peer, Op& op, size_t bytes) noexcept;
  bool on_rts(PeerState& peer, const wire::FrameHead& head, const std::byte* payload, bool tagged) noexcept;
  void on_cts(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_segment(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_done(PeerState& peer, const wire::FrameHead& head) noexcept;
  void on_reply(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void set_peer_pause(PeerState& peer, bool pause) noexcept;
  void malformed(PeerState& peer) noexcept;
  Op* find_op(uint64_t id, const PeerState& peer) noexcept;
  Op* find_op(uint64_t id) noexcept;  // of whichever peer
  static bool parse_rts(const std::byte*& at, size_t& left, wire::RtsPrefix& rts,
                        wire::SourceSegment* segments) noexcept;
  void finish_inbound(Op& op, int status, core::ProviderError why) noexcept;

  alignas(64) CachedDestination cached_destination_;  // to av_seen_: one cache line
  bool counts_sends_ = false;
  PeerState** cache_ = nullptr;  // peers by fi_addr_t without receive context bits
  size_t cache_size_ = 0;
  core::AddressVector* av_ = nullptr;
  const core::AddressChanges* av_changes_ = nullptr;  // of av_
  uint32_t removals_seen_ = 0;
  uint32_t av_seen_ = 0;
  size_t busy_ = 0;    // peers with queues, and streams
  uint64_t sent_ = 0;  // see EngineCounts
  uint64_t sent_bytes_ = 0;
  uint32_t polls_since_check_ = 0;
  uint32_t calls_since_poll_ = 0;  // post() calls of a program that never reads its queues
  bool attending_ = false;         // in attend(): no second progress() inside it
  std::atomic<uint32_t> deferred_due_{0};
  RxContext* rx_first_ = nullptr;  // rx_[0]
  RxContext** rx_ = nullptr;
  size_t rx_count_ = 0;
  std::vector<core::CompletionQueue*> queues_;
  core::CompletionQueue* sole_queue_ = nullptr;  // the one there is, once there is an address vector
  CachedDestination nowhere_;                    // what there is without a cached destination
  PeerState* sole_ = nullptr;                    // SolePeer: the one there is

  // --- cold below this line ---
  // Engine<L>'s, and destroyed before all of these: none calls it in a destructor.
  AnyLink& any_link_;
  const LinkTraits traits_;
  RendezvousCopy copy_;
  RmaResponder responder_;
  OpTable transmit_ops_;
  OpTable service_ops_;
  PendingSendPool pending_send_pool_;
  List<PeerState, PendingSendsHook> completing_;  // those with pending sends
  const RxSink* sink_ = nullptr;
  TxContext retired_;  // of operations whose context was closed
  TransmitErrors errors_;
  EngineLimits limits_;
  DeferredRunner* deferred_runner_ = nullptr;
  uint32_t entry_ = 0;
  uint64_t received_before_ = 0;        // by contexts that have been released
  uint64_t received_bytes_before_ = 0;  // likewise
  uint64_t fetched_bytes_ = 0;          // by RMA reads and atomics
  core::Signal* background_ = nullptr;  // notified once when has_background_work() becomes true
  size_t unwatched_ops_ = 0;            // see Op::unwatched
  std::vector<PeerState*> cache_storage_;
  std::vector<RxContext*> rx_storage_;
  std::vector<OwnedPeer> peers_;
  std::vector<PeerState*> blocked_peers_;  // with a queue
  List<Op, QueueHook> streams_;
  std::vector<PeerState*> failed_;  // sent nonsense
  bool gone_ = false;               // SolePeer: there was one
};

}  // namespace weft::proto
