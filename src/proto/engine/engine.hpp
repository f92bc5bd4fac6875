// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>: messages, tags, RMA and atomics over any Link. A state machine: calls and frames in, frames and completions out.
// Must not know system calls, clocks or threads; the owner serialises every call (domain lock or program).
//
// The fast path is here: a small message goes out in inject()/send(), comes in through on_frame(). Everything else is in
// transmit.hpp (queueing, rendezvous), send_completion.hpp (completions that wait for the link), in_place.hpp (messages read and written where the link has them),
// remote.hpp (RMA and atomics at the target) and peers.hpp (who is who, who is gone).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "core/address_vector.hpp"
#include "core/atomic.hpp"
#include "core/progress.hpp"
#include "proto/engine/context.hpp"
#include "proto/engine/endpoint_engine.hpp"
#include "proto/engine/link.hpp"
#include "proto/engine/op.hpp"
#include "proto/engine/open_table.hpp"

namespace weft::proto {

inline constexpr uint32_t small_calls_without_poll_max = 256;
inline constexpr unsigned looks_for_leaving = 4;  // polls, where addresses have been removed

// All that fi_* has, over any link.
template <Link L>
constexpr EngineAbilities abilities_over() noexcept {
  constexpr uint64_t both = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER;
  EngineAbilities all;
  all.transmit_caps = both | FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
  all.receive_caps = both | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_RMA_EVENT;
  all.transmit_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
                       FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
  all.receive_flags = FI_COMPLETION | FI_MULTI_RECV;
  all.order = FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW | FI_ORDER_RMA_RAR |
              FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR |
              FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
  all.inject_bytes = EngineLimits().inject_bytes;
  all.ordered_bytes_max = 8192;
  all.buffered_bytes = EngineLimits().unexpected_bytes;
  all.data_bytes = sizeof(uint64_t);
  all.shares_contexts = true;
  if constexpr (SolePeer<L>) {
    all.type = FI_EP_MSG;
  } else {  // peers have numbers
    all.transmit_caps |= FI_NAMED_RX_CTX;
    all.receive_caps |= FI_DIRECTED_RECV | FI_SOURCE | FI_SOURCE_ERR;
    all.contexts_max = 256;
  }
  return all;
}

template <Link L>
class Engine final : public core::Progressor, public Conversation, public L::Events {
 public:
  struct Peer : L::PeerBase, PeerState {};
  using Link = L;
  using Connection = L;  // SolePeer
  using Receive = RxContext;
  static constexpr EngineAbilities abilities = abilities_over<L>();

  explicit Engine(const EngineLimits& limits)
      : transmit_ops_(OpTableKind::Transmit, 0, limits.transmit_size),
        service_ops_(OpTableKind::Service, 0, size_t{1} << 20),
        pending_send_pool_(limits.transmit_size),
        limits_(limits) {
    drop_cached_destination();
  }
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- set-up, before the first operation ---
  L& link() noexcept { return link_; }
  const L& link() const noexcept { return link_; }
  Result<void> open(std::string_view name) requires(!SolePeer<L>) { return link_.open(name, *this); }
  Result<void> open(std::string_view name, ConnectionObserver& observer) requires SolePeer<L> {
    return link_.open(name, *this, observer);
  }
  L& connection() noexcept requires SolePeer<L> { return link_; }
  void close() noexcept { link_.close(); }
  // Peers may reach the domain's regions without us, as far as the link can, and nobody wants to hear of it: not the counters of the endpoint, which
  // count reads or writes of peers, nor those of a region. Once, after the counters are bound. 0 or -FI_ENOMEM.
  int serve_regions(bool count_reads, bool count_writes) noexcept;
  // Peers ask us again. 0; -FI_EBUSY: one is still copying, after a bounded time, and nothing has changed but that no other begins.
  // `closing`: nor does any peer write what it sends us, from now on.
  int stop_serving(bool closing) noexcept;
  std::span<const std::byte> address() noexcept { return link_.address(); }
  void set_address_vector(core::AddressVector* av) noexcept {
    av_ = av;
    av_changes_ = av != nullptr ? &av->changes() : nullptr;
    choose_sole_queue();
  }
  void set_regions(core::MemoryRegionTable* regions) noexcept { regions_ = regions; }
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
    watcher_ = watcher;
    entry_ = entry;
  }
  EngineCounts counts() const noexcept;
  // Any thread may store 1 into deferred_due(); the next progress() then ends with run(). The runner outlives the last store.
  void set_deferred_runner(DeferredRunner* runner) noexcept { deferred_runner_ = runner; }
  std::atomic<uint32_t>& deferred_due() noexcept { return deferred_due_; }

  // --- the program's calls: 0 or a negative errno; -FI_EAGAIN means nothing happened ---
  template <bool tagged>
  ssize_t inject(TxContext& tx, const void* buffer, size_t length, fi_addr_t dest, uint64_t tag) noexcept {
    if constexpr (HasSmallFrames<L>) {
      Peer* peer = cached_peer(dest);
      if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max && may_go_on()) [[likely]] {
        const wire::FrameHead head{tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                                   0,
                                   0,
                                   static_cast<uint32_t>(length),
                                   tag,
                                   0};
        const SmallSend sent = link_.send_small(*peer, head, buffer);
        if constexpr (HasSendCompletion<SmallSide<L>>) note_quiet(*peer, tagged);
        if (sent == SmallSend::Sent && tx.sends == nullptr) [[likely]] {
          count_sent(length);
          return 0;
        }
        if (sent != SmallSend::Refused) return after_small(tx, *peer, length, sent, tagged, true);
      }
    }
    return inject_slow(tx, tagged, buffer, length, dest, tag);
  }
  // inject() for a program that sends to the same peer again, and that nobody locks out: what has to be looked at before a send was looked at
  // when the destination was cached, and whoever changes it drops the cached destination.
  template <bool tagged>
  [[gnu::always_inline]] ssize_t inject_cached(TxContext& tx, const void* buffer, size_t length,
                                               fi_addr_t dest, uint64_t tag) noexcept {
    if constexpr (has_small_credit<L>) {
      if (dest == cached_destination_.dest && av_removals() == removals_seen_ && length <= L::small_bytes_max)
          [[likely]] {
        const wire::FrameHead head{tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                                   0,
                                   0,
                                   static_cast<uint32_t>(length),
                                   tag,
                                   0};
        const SmallSend sent = link_.send_small(*cached_destination_.peer, head, buffer);
        if (sent == SmallSend::Sent) [[likely]] {
          count_sent(length);
          return 0;
        }
        if (sent == SmallSend::Unseen)
          return after_small(tx, static_cast<Peer&>(*cached_destination_.peer), length, sent, tagged, true);
      }
      return inject_and_cache(tx, tagged, buffer, length, dest, tag);
    } else {
      return inject<tagged>(tx, buffer, length, dest, tag);
    }
  }
  // inject() with data. False: nothing has happened, and post() does it.
  template <bool tagged>
  bool inject_data(TxContext& tx, const void* buffer, size_t length, uint64_t data, fi_addr_t dest,
                   uint64_t tag) noexcept {
    if constexpr (HasSmallFrames<L>) {
      Peer* peer = cached_peer(dest);
      if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max - sizeof(data) && may_go_on())
          [[likely]] {
        const SmallSend sent = link_.send_small(*peer, data_head<tagged>(length, tag, data), buffer);
        if (sent == SmallSend::Refused) return false;
        if constexpr (HasSendCompletion<SmallSide<L>>) note_quiet(*peer, tagged);
        if (sent != SmallSend::Sent || tx.sends != nullptr) [[unlikely]]
          (void)after_small(tx, *peer, length, sent, tagged, true);
        else count_sent(length);
        return true;
      }
    }
    return false;
  }
  // send() with data. False: nothing has happened, and post() does it.
  template <bool tagged>
  bool send_data(TxContext& tx, const void* buffer, size_t length, uint64_t data, fi_addr_t dest,
                 uint64_t tag, void* context) noexcept {
    if constexpr (HasSmallFrames<L> && !HasSendCompletion<SmallSide<L>>) {
      Peer* peer = cached_peer(dest);
      if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max - sizeof(data) &&
          tx.default_plain && (!tx.default_completes || tx.cq->plain()) && may_go_on()) [[likely]] {
        const SmallSend sent = link_.send_small(*peer, data_head<tagged>(length, tag, data), buffer);
        if (sent == SmallSend::Refused) return false;
        if (tx.default_completes)
          tx.cq->push_plain({context, tagged ? FI_SEND | FI_TAGGED : FI_SEND | FI_MSG, length, nullptr, 0,
                             tag, FI_ADDR_NOTAVAIL});
        if (sent != SmallSend::Sent || tx.sends != nullptr) [[unlikely]]
          (void)after_small(tx, *peer, length, sent, tagged, !tx.default_completes);
        else count_sent(length);
        return true;
      }
    }
    return false;
  }
  template <bool tagged>
  ssize_t send(TxContext& tx, const void* buffer, size_t length, fi_addr_t dest, uint64_t tag,
               void* context) noexcept {
    if constexpr (HasSmallFrames<L>) {
      Peer* peer = cached_peer(dest);
      if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max && tx.default_plain &&
          (!tx.default_completes || tx.cq->plain()) && may_go_on()) [[likely]] {
        const wire::FrameHead head{tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                                   0,
                                   0,
                                   static_cast<uint32_t>(length),
                                   tag,
                                   0};
        if constexpr (HasSendCompletion<SmallSide<L>>) {
          if (send_small_tracked(tx, *peer, head, buffer, context)) [[likely]] {
            count_sent(length);
            return 0;
          }
          return send_slow(tx, tagged, buffer, length, dest, tag, context);
        }
        const SmallSend sent = link_.send_small(*peer, head, buffer);
        if (sent != SmallSend::Refused) [[likely]] {
          if (tx.default_completes)
            tx.cq->push_plain({context, tagged ? FI_SEND | FI_TAGGED : FI_SEND | FI_MSG, length, nullptr, 0,
                               tag, FI_ADDR_NOTAVAIL});
          if (sent == SmallSend::Sent && tx.sends == nullptr) [[likely]] {
            count_sent(length);
            return 0;
          }
          return after_small(tx, *peer, length, sent, tagged, !tx.default_completes);
        }
      }
    }
    return send_slow(tx, tagged, buffer, length, dest, tag, context);
  }
  // Everything else.
  ssize_t post(TxContext& tx, const Request& request) noexcept;

  // --- reading and writing messages where the link has them (in_place.hpp). Handles are never 0 and never used again ---
  int take(RxContext& rx, const ReceiveRequest& request, TakenMessage& out) noexcept requires HasLoans<L>;
  int release(uint64_t handle) noexcept requires HasLoans<L>;
  int reserve(fi_addr_t dest, size_t bytes, uint64_t& handle, std::byte*& at) noexcept requires HasLoans<L>;
  int commit(TxContext& tx, uint64_t handle, const WrittenMessage& message) noexcept requires HasLoans<L>;
  int abandon_room(uint64_t handle) noexcept requires HasLoans<L>;
  int rings(fi_addr_t peer, RingUse& out) noexcept requires HasLoans<L>;
  // Of messages of that length. FI_ADDR_UNSPEC: of all peers.
  int copies(fi_addr_t peer, uint64_t length, CopyUse& out) noexcept requires HasLoans<L>;
  // What is open ends: the endpoint closes.
  void end_in_place() noexcept;

  // --- Progressor ---
  void progress() noexcept override {
    drive([this] { (void)link_.poll(*this); });
  }
  bool advance() noexcept override {
    int frames = 0;
    drive([&] { frames = link_.poll(*this); });
    return frames != 0;
  }
  template <class Poll>
  [[gnu::always_inline]] void drive(Poll&& poll) noexcept {
    for (core::CompletionQueue* queue : queues_)
      if (queue->full()) [[unlikely]]
        return poll_without_frames();
    if (av_ != nullptr && av_version() != av_seen_) [[unlikely]]
      refresh_peers();
    calls_since_poll_ = 0;
    poll();
    if constexpr (!KeepsHouse<L>)
      if (++polls_without_look_ % polls_per_look == 0) [[unlikely]]
        time_passes();
    if constexpr (has_send_completion<L>)
      if (!completing_.empty()) complete_sends();
    if ((busy_ | deferred_due_.load(std::memory_order_relaxed)) != 0) [[unlikely]]
      attend();
  }
  // What progress() would bring to `queue`, which is plainly empty. Nothing: it need not be called. Frame: take_short() may have it.
  template <class Seen>
  [[gnu::always_inline]] FastPoll fast_poll(const core::CompletionQueue& queue,
                                            Seen& seen) noexcept requires HasFastPoll<L> {
    if (sole_queue_ != &queue || (busy_ | deferred_due_.load(std::memory_order_relaxed)) != 0 ||
        av_version() != av_seen_) [[unlikely]]
      return FastPoll::Poll;
    calls_since_poll_ = 0;
    return link_.fast_poll(seen);
  }
  // Right after Frame: one small message, the usual case, whose completion is said by give(context, length, buffer, tag, source) instead of the queue.
  // False: nothing has happened, and progress() does it.
  template <class Seen, class Give>
  [[gnu::always_inline]] bool take_short(const core::CompletionQueue& queue, const Seen& seen,
                                         Give&& give) noexcept requires HasFastPoll<L> {
    return link_.take_frame(
        seen, short_head,
        [&](typename L::PeerBase& base, uint64_t tag, const std::byte* payload, uint32_t length) {
          if (rx_first_ == nullptr || rx_first_->cq != &queue) [[unlikely]]
            return false;
          const fi_addr_t source = static_cast<Peer&>(base).fi_addr;
          return rx_first_->deliver_plain(source, tag, payload, length, [&](void* context, void* to) {
            give(context, length, to, tag, source | rx_first_->hidden_source);
          });
        });
  }
  int wait_fd() noexcept override {
    if constexpr (HasSleep<L>) return link_.wait_fd();
    return -1;
  }
  bool arm() noexcept override {
    // The link first, whatever comes of it: others may sleep on it already.
    if constexpr (HasSleep<L>)
      return link_.arm() && busy_ == 0 && deferred_due_.load(std::memory_order_acquire) == 0 &&
             !has_completed_sends();
    return false;
  }
  void disarm() noexcept override {
    if constexpr (HasSleep<L>) link_.disarm();
  }
  bool has_background_work() noexcept override {
    if (unwatched_ops_ != 0) return true;
    bool any = has_uncredited();
    visit_all_sides(link_, [&]<class S>(S& side) {
      if constexpr (HasBackgroundWork<S>) any = any || side.has_background_work();
    });
    return any;
  }
  void notify_background_work(core::Signal* signal) noexcept override {
    background_ = signal;
    visit_all_sides(link_, [&]<class S>(S& side) {
      if constexpr (HasBackgroundWork<S>) side.notify_background_work(signal);
    });
  }

  // --- called by the link ---
  // One frame. False: show it again later.
  bool on_frame(typename L::PeerBase& base, const wire::FrameHead& head, const std::byte* payload) noexcept {
    Peer& peer = static_cast<Peer&>(base);
    if (head.kind == wire::FrameKind::Tagged) [[likely]] {
      RxContext* rx = context_for(head);
      if (rx == nullptr) [[unlikely]]
        return true;
      core::PostedBase* found = rx->tags.match_arrival(head.a, peer.fi_addr);
      if (found == nullptr) return rx->keep(peer, head, true, payload, head.length, 0);
      rx->deliver(static_cast<Op&>(*found), peer, head, payload);
      return true;
    }
    return on_other_frame(peer, head, payload);
  }
  // One frame in parts, see TakesParts.
  Land land(typename L::PeerBase& peer, wire::FrameHead& head, const std::byte* payload, size_t arrived,
            Landing& out) noexcept;
  void landed(typename L::PeerBase& peer, wire::FrameHead& head, size_t bytes) noexcept;
  // See TakesShortFrames. A tagged message to receive context 0 that carries nothing but a few bytes: the shortest way to the receive it is for.
  static constexpr wire::HeadWord short_head = wire::head_word(wire::FrameKind::Tagged, 0, 0);
  [[gnu::always_inline]] bool on_short_frame(typename L::PeerBase& base, uint64_t tag,
                                             const std::byte* payload, uint32_t length) noexcept {
    return rx_first_ != nullptr && rx_first_->deliver_plain(static_cast<Peer&>(base).fi_addr, tag, payload,
                                                            length, FI_RECV | FI_TAGGED, 0);
  }
  // The same for a frame with data: Open MPI names the sender by it.
  static constexpr wire::HeadWord short_head_with_b =
      wire::head_word(wire::FrameKind::Tagged, wire::has_b | wire::has_data, 0);
  [[gnu::always_inline]] bool on_short_frame_with_b(typename L::PeerBase& base, uint64_t tag, uint64_t data,
                                                    const std::byte* payload, uint32_t length) noexcept {
    return rx_first_ != nullptr &&
           rx_first_->deliver_plain(static_cast<Peer&>(base).fi_addr, tag, payload, length,
                                    FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, data);
  }
  // Whether something is unfinished that the peer has to go on with: a link that hears nothing from it for long asks whether it lives.
  bool awaits(const typename L::PeerBase& base) const noexcept {
    const Peer& peer = static_cast<const Peer&>(base);
    return !peer.in_flight.empty() || peer.fragmented_left != 0;
  }
  typename L::PeerBase* make_peer(std::span<const std::byte> address) override;
  void peer_lost(typename L::PeerBase& peer, core::ProviderError why) noexcept override;
  void time_passes() noexcept override {
    if (watcher_ != nullptr) watcher_->look();
  }
  uint32_t shown_as() const noexcept override { return entry_; }

  // --- Conversation: called by receive contexts ---
  void start_rendezvous(Op& receive, const Unexpected& message) noexcept override;
  void acknowledge(PeerState& peer, uint64_t operation, int status) noexcept override;
  void set_pause(PeerState& peer, bool pause) noexcept override;

  bool belongs_here() const noexcept { return link_.belongs_here(); }
  void hurry() noexcept { link_.hurry(); }
  // Operations that were accepted and are not handed to the link yet, or that wait there for the peer. An endpoint that closes waits for these, for a while.
  bool has_unsent() const noexcept;
  // Hands over what there is room for, even while a completion queue is full and progress() does nothing.
  void push_unsent() noexcept {
    visit_all_sides(link_, []<class S>(S& side) {
      if constexpr (KeepsBack<S>) side.push_all();
    });
    if (busy_ != 0) attend();
  }
  // A connected link: its peer has been there and has left, for good.
  bool gone() const noexcept { return gone_; }
  // A connected link: what is under way ends as cancelled, nothing is sent any more.
  void shut_down() noexcept;
  // Drops every operation without a completion, before the queues go away.
  void abandon() noexcept;
  size_t transmit_in_use() const noexcept { return transmit_ops_.in_use(); }
  size_t service_in_use() const noexcept { return service_ops_.in_use(); }
  // Takes back an operation that has not been sent yet. 0 or -FI_ENOENT.
  ssize_t cancel(const void* context) noexcept;

 private:
  enum class Step { Sent, Blocked };

  static Peer& full(PeerState& state) noexcept { return static_cast<Peer&>(state); }

  // Peers by fi_addr_t without receive context bits; null where there is something to look up.
  Peer* cached_peer(fi_addr_t dest) const noexcept {
    if constexpr (SolePeer<L>) return sole_;
    if (dest >= cache_size_ || av_removals() != removals_seen_) [[unlikely]]
      return nullptr;
    return cache_[dest];
  }
  // Where inject_cached() sends to without another look: nothing waits before it (gate), nothing counts sends. Dropped by drop_cached_destination().
  struct CachedDestination {
    fi_addr_t dest = FI_ADDR_NOTAVAIL;
    typename L::PeerBase* peer = nullptr;
  };
  void drop_cached_destination() noexcept {
    if constexpr (has_small_credit<L>) cached_destination_ = {FI_ADDR_NOTAVAIL, &nobody_};
  }
  // From now on operations to the peer wait, or fail.
  void shut(Peer& peer, PeerState::Gate bit) noexcept {
    peer.gate |= bit;
    drop_cached_destination();
  }
  // A program that only sends small messages must hear when its peer asks for a pause. False: the slow way, which polls.
  bool may_go_on() noexcept {
    if constexpr (has_small_credit<L>) return true;
    else return ++calls_since_poll_ <= small_calls_without_poll_max;
  }
  Peer* find_peer(fi_addr_t dest, uint8_t& context, int& error) noexcept;
  [[gnu::noinline, gnu::cold]] Peer* connect(core::Address address, int& error);
  // in_place.hpp
  struct Taker;
  bool make_open_table() noexcept;
  void drop_taken(const RxContext& rx) noexcept;
  [[gnu::always_inline]] LinkLimits limits_for(const Peer& peer) const noexcept {
    return visit_side(link_, peer, []<class S>(S& side, auto& part) {
      if constexpr (Bare<S>::limits_by_peer) return side.limits(part);
      else return limits_of_type<Bare<S>>();
    });
  }
  RxContext* context_for(const wire::FrameHead& head) const noexcept {
    return head.context < rx_count_ ? rx_[head.context] : nullptr;
  }

  static wire::FrameHead small_head(bool tagged, size_t length, uint64_t tag) noexcept {
    return {
        tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg, 0, 0, static_cast<uint32_t>(length), tag, 0};
  }
  template <bool tagged>
  static wire::FrameHead data_head(size_t length, uint64_t tag, uint64_t data) noexcept {
    return {tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
            wire::has_b | wire::has_data,
            0,
            static_cast<uint32_t>(length),
            tag,
            data};
  }

  // peers.hpp
  uint32_t av_removals() const noexcept { return av_changes_->removals.load(std::memory_order_acquire); }
  uint32_t av_version() const noexcept { return av_changes_->version.load(std::memory_order_acquire); }
  void choose_sole_queue() noexcept {
    sole_queue_ = queues_.size() == 1 && av_ != nullptr ? queues_.front() : nullptr;
  }
  [[gnu::noinline, gnu::cold]] void refresh_peers() noexcept;
  fi_addr_t number_of(const core::Address& address) const noexcept;
  void rename(Peer& peer, fi_addr_t index) noexcept;
  void drop_cache() noexcept;
  void fail_peer(Peer& peer, core::ProviderError why) noexcept;
  void end_receives(core::ProviderError why) noexcept;
  void release_peer(Peer& peer) noexcept;

  void report_background_work() noexcept {
    if (background_ != nullptr && has_background_work()) [[unlikely]]
      std::exchange(background_, nullptr)->notify();
  }
  void note_unwatched(Op& op) noexcept {
    if (op.completes || std::exchange(op.unwatched, true)) return;
    ++unwatched_ops_;
    report_background_work();
  }
  void give_transmit(Op& op) noexcept {
    if (std::exchange(op.unwatched, false)) --unwatched_ops_;
    WEFT_ASSERT(unwatched_ops_ <= transmit_ops_.in_use());
    transmit_ops_.give(op);
  }
  // A completion queue is full: no frame is taken, but what was sent is still acknowledged and sent again.
  struct FrameRefuser;
  [[gnu::noinline, gnu::cold]] void poll_without_frames() noexcept;
  struct Exposure;
  // transmit.hpp
  // `silent`: no completion brings the program to its queue.
  void mind_kept(TxContext& tx, Peer& peer, bool silent) noexcept {
    visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
      if constexpr (KeepsBack<S>) {
        report_background_work();
        if (!side.keeps_back()) return;
        if (silent || tx.cq == nullptr) side.push(part);
        else tx.cq->drive_at_next_read();
      }
    });
  }
  // A side of the link has frames that wait for a peer.
  bool has_uncredited() const noexcept {
    bool any = false;
    visit_all_sides(link_, [&](auto& side) {
      if constexpr (KeepsBack<Bare<decltype(side)>>) any = any || side.has_uncredited();
    });
    return any;
  }
  [[gnu::noinline]] ssize_t after_small(TxContext& tx, Peer& peer, size_t length, SmallSend sent, bool tagged,
                                        bool silent) noexcept;
  [[gnu::always_inline]] void count_sent(size_t length) noexcept {
    ++sent_;
    sent_bytes_ += length;
  }
  SmallSend send_small_to_side(Peer& peer, const wire::FrameHead& head, const void* buffer) noexcept;
  void tell(Peer& peer) noexcept;
  [[gnu::noinline]] ssize_t inject_slow(TxContext& tx, bool tagged, const void* buffer, size_t length,
                                        fi_addr_t dest, uint64_t tag) noexcept;
  [[gnu::noinline]] ssize_t inject_and_cache(TxContext& tx, bool tagged, const void* buffer, size_t length,
                                             fi_addr_t dest, uint64_t tag) noexcept;
  [[gnu::noinline]] ssize_t send_slow(TxContext& tx, bool tagged, const void* buffer, size_t length,
                                      fi_addr_t dest, uint64_t tag, void* context) noexcept;
  int validate(const Request& request, size_t length) const noexcept;
  bool send_at_once(TxContext& tx, Peer& peer, uint8_t context, const Request& request,
                    size_t length) noexcept;
  ssize_t post_op(TxContext& tx, Peer& peer, uint8_t context, const Request& request, size_t length) noexcept;
  bool own_bytes(Op& op) noexcept;
  bool give_back(Op& op) noexcept;
  void enqueue(Peer& peer, Op& op) noexcept;
  Step step(Peer& peer, Op& op) noexcept;
  Step step_message(Peer& peer, Op& op) noexcept;
  Step step_fragments(Peer& peer, Op& op) noexcept;
  Step finish_sent(Peer& peer, Op& op) noexcept;
  bool access_memory(Peer& peer, Op& op) noexcept;
  // collected_access.hpp
  bool may_collect(const TxContext& tx, Peer& peer, const Request& request, size_t length) noexcept;
  void collect(Peer& peer, Op& op) noexcept;
  void access_collected(Peer& peer) noexcept;
  void end_collection(Peer& peer) noexcept;
  Step step_rma(Peer& peer, Op& op) noexcept;
  Step step_atomic(Peer& peer, Op& op) noexcept;
  Step step_control(Peer& peer, Op& op) noexcept;
  void wait_for_peer(Peer& peer, Op& op) noexcept;
  [[gnu::noinline]] void attend() noexcept;
  void work() noexcept;
  void flush(Peer& peer) noexcept;
  bool stream(Op& op) noexcept;
  void send_control(Peer& peer, wire::FrameKind kind, uint8_t flags, uint64_t a, uint64_t b,
                    std::span<const std::byte> payload) noexcept;
  Op* take_service(Peer& peer) noexcept;
  void give_service(Op& op) noexcept;
  void finish_transmit(Op& op, int status, core::ProviderError why) noexcept;
  void complete_transmit(TxContext& tx, const Op& op, int status, core::ProviderError why) noexcept;
  // send_completion.hpp
  bool waits(const TxContext& tx, const Request& request) const noexcept;
  bool waits(const Op& op) const noexcept;
  uint64_t sent_sequence(Peer& peer) noexcept;
  uint64_t completed_sequence(Peer& peer) noexcept;
  void request_ack(Peer& peer) noexcept;
  bool is_send_complete(Peer& peer) noexcept;
  bool is_stuck(Peer& peer) noexcept;
  static void fill_small(PendingSend& record, TxContext& tx, const wire::FrameHead& head,
                         void* context) noexcept;
  bool send_small_tracked(TxContext& tx, Peer& peer, const wire::FrameHead& head, const void* buffer,
                          void* context) noexcept;
  // A frame of a message. One that is complete when the link is done with it (`waits`) may stay where it is until then.
  bool send_payload(Peer& peer, bool waits, bool last, uint64_t flags, const wire::FrameHead& head,
                    std::span<const std::byte> prefix, const iovec* parts, size_t part_count) noexcept;
  bool send_segment(Peer& peer, Op& op, const wire::FrameHead& head, const iovec* parts,
                    size_t part_count) noexcept;
  // The program gets its memory back before the link is done with it.
  void copy_out(Peer& peer) noexcept {
    // A forked child sends nothing, and may not have that memory (MADV_DONTFORK).
    if (is_forked_copy()) return;
    visit_side(link_, peer, []<class S>(S& side, auto& part) {
      if constexpr (HasZeroCopyFrames<S>) side.copy_out(part);
    });
  }
  // In a forked child, which must not speak for its parent.
  bool is_forked_copy() const noexcept { return !link_.belongs_here(); }
  void hold(Peer& peer, PendingSend& record) noexcept;
  bool hold(Peer& peer, const Op& op) noexcept;
  void complete_rendezvous(Op& op) noexcept;
  void hold_rendezvous(Peer& peer, Op& op) noexcept;
  void complete_record(Peer& peer, const PendingSend& record, int status, core::ProviderError why) noexcept;
  void complete_sends(Peer& peer) noexcept;
  [[gnu::noinline]] void complete_sends() noexcept;
  void end_pending_sends(Peer& peer, int status, core::ProviderError why) noexcept;
  void drop_pending_sends(Peer& peer) noexcept;
  bool has_completed_sends() noexcept;
  // Everything that the link has taken for the peer has no completion to come any more, or never had one. Last such a message.
  void note_quiet(Peer& peer, bool tagged) noexcept {
    if constexpr (has_send_completion<L>) {
      peer.quiet = sent_sequence(peer);
      peer.quiet_kinds |= kind_of(tagged);
    }
  }
  static constexpr uint8_t kind_of(bool tagged) noexcept { return tagged ? unread_tagged : unread_untagged; }

  // unreported.hpp
  struct Failed {
    Peer& peer;
    TxContext& tx;
    void* context;
    uint64_t flags;
    uint64_t tag;
    bool silent;
  };
  void push_failure(const Failed& failed, int status, core::ProviderError why) noexcept;
  static void name_peer(core::CompletionError& error, const Peer& peer) noexcept;
  void tell_unreported(const Peer& peer, uint64_t count, int status, core::ProviderError why,
                       bool is_lost) noexcept;
  void begin_losing(Peer& peer, int status, core::ProviderError why) noexcept;
  void end_losing(int status, core::ProviderError why) noexcept;
  void remember_owed(const core::Address& address) noexcept;
  bool forget_owed(const core::Address& address) noexcept;
  uint8_t unread_kinds(Peer& peer, core::ProviderError why) noexcept;

  size_t fill_rts(const Peer& peer, const Op& op, uint64_t id, std::byte* out) const noexcept;
  size_t fill_targets(const Op& op, std::byte* out) const noexcept;

  // remote.hpp
  [[gnu::noinline]] bool on_other_frame(Peer& peer, const wire::FrameHead& head,
                                        const std::byte* payload) noexcept;
  bool on_message(Peer& peer, const wire::FrameHead& head, const std::byte* payload, bool tagged,
                  bool acked) noexcept;
  bool on_first(Peer& peer, const wire::FrameHead& head, const std::byte* payload, bool tagged) noexcept;
  bool begin_fragmented(Peer& peer, const wire::FrameHead& head, const std::byte* payload, size_t arrived,
                        uint64_t total, bool tagged) noexcept;
  void on_more(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void more_arrived(Peer& peer, size_t bytes) noexcept;
  Op* segment_op(Peer& peer, const wire::FrameHead& head) noexcept;
  void segment_arrived(Peer& peer, Op& op, size_t bytes) noexcept;
  bool on_rts(Peer& peer, const wire::FrameHead& head, const std::byte* payload, bool tagged) noexcept;
  void on_cts(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_segment(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_done(Peer& peer, const wire::FrameHead& head) noexcept;
  void on_write(Peer& peer, const wire::FrameHead& head, const std::byte* payload, bool rendezvous) noexcept;
  void on_read(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_atomic(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_reply(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void set_peer_pause(Peer& peer, bool pause) noexcept;
  void malformed(Peer& peer) noexcept;
  Op* find_op(uint64_t id, const Peer& peer) noexcept;
  Op* find_op(uint64_t id) noexcept;  // of whichever peer
  bool take_rts(const std::byte*& at, size_t& left, wire::RtsPrefix& rts,
                wire::SourceSegment* segments) noexcept;
  struct Access;  // registered memory named by a peer, pinned
  int open_access(const std::byte*& at, size_t& left, uint32_t targets, uint64_t access,
                  Access& out) noexcept;
  void close_access(Access& access) noexcept;
  bool keep_access(Op& op, const Access& access) noexcept;
  void note_remote(const Access& access, const Peer& peer, RxContext* rx, bool write,
                   const wire::FrameHead& head, uint64_t bytes) noexcept;
  CopyState copy_remote(Op& op, uint64_t stamp, const wire::SourceSegment* segments,
                        uint32_t segment_count) noexcept;
  CopyState begin_together(Peer& peer, Op& op) noexcept;
  CopyState copy_together(Peer& peer, Op& op, bool patient) noexcept;
  bool copy_on() noexcept;
  void open_window(Peer& peer, Op& op) noexcept;
  void copy_ended(Op& op, CopyState state) noexcept;
  void ask_for_segments(Op& op) noexcept;
  void end_meeting(Op& op) noexcept;
  void note_copied(Peer& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept;
  struct Assist {  // help with a copy that goes on in the next call
    uint64_t op = 0;
    wire::WindowPrefix window{};
    std::array<wire::SourceSegment, iov_max> to{};
    uint32_t taken = 0;  // of the link
  };
  bool assist(Op& op, Assist& help) noexcept;
  void assist_on() noexcept;
  void on_window(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_met(Peer& peer, const wire::FrameHead& head) noexcept;
  bool is_wanted_announced(Peer& peer, const Op& op) noexcept;
  uint64_t stamp_for(Peer& peer) noexcept;
  void pull(Op& op, uint64_t stamp, const wire::SourceSegment* segments, uint32_t segment_count) noexcept;
  void finish_inbound(Op& op, int status, core::ProviderError why) noexcept;

  struct NoPeer {};
  using Nobody = std::conditional_t<has_small_credit<L>, typename L::PeerBase, NoPeer>;

  L link_;
  alignas(64)
      CachedDestination cached_destination_;  // to av_seen_: one cache line, whatever the size of the link
  bool counts_sends_ = false;
  Peer** cache_ = nullptr;
  size_t cache_size_ = 0;
  core::AddressVector* av_ = nullptr;
  const core::AddressChanges* av_changes_ = nullptr;  // of av_
  uint32_t removals_seen_ = 0;
  uint32_t av_seen_ = 0;
  size_t busy_ = 0;    // peers with queues, and streams
  uint64_t sent_ = 0;  // see EngineCounts
  uint64_t sent_bytes_ = 0;
  uint32_t polls_without_look_ = 0;
  uint32_t calls_since_poll_ = 0;  // post() calls of a program that never reads its queues
  bool attending_ = false;         // in attend(): no second progress() inside it
  std::atomic<uint32_t> deferred_due_{0};
  RxContext* rx_first_ = nullptr;  // rx_[0]
  RxContext** rx_ = nullptr;
  size_t rx_count_ = 0;
  std::vector<core::CompletionQueue*> queues_;
  core::CompletionQueue* sole_queue_ = nullptr;  // the one there is, once there is an address vector

  // --- cold below this line ---
  std::array<Assist, 8> assists_;
  size_t assist_count_ = 0;  // each counts in busy_
  struct CopyUnderWay {      // of a receive that both sides copy
    uint64_t op = 0;
    bool begun = false;  // by us
  };
  std::array<CopyUnderWay, 16> copies_{};  // in order of their announcements
  size_t copy_count_ = 0;                  // each counts in busy_
  OpTable transmit_ops_;
  OpTable service_ops_;
  PendingSendPool pending_send_pool_;
  List<PeerState, PendingSendsHook> completing_;  // those with pending sends
  core::MemoryRegionTable* regions_ = nullptr;
  std::unique_ptr<core::RegionObserver> exposure_;  // while regions are served
  const RxSink* sink_ = nullptr;
  TxContext retired_;  // of operations whose context was closed
  TxContext* reporting_ =
      &retired_;   // where is said what concerns no operation: the last context that posted one
  struct Losing {  // a peer whose operations are being ended
    Peer* peer = nullptr;
    uint64_t silent = 0;     // errors that have no entry
    bool owed = false;       // earlier ones had none, nor has an entry to this peer told of them
    bool told = false;       // by an entry of an operation
    bool in_flight = false;  // those are ended that had left before what waits
  };
  Losing losing_;
  // Peers that were lost so, and whose operations have not told it yet; of many the newest.
  std::array<core::Address, 32> owed_;
  size_t owed_count_ = 0;
  size_t owed_next_ = 0;  // which makes room where all are taken
  uint64_t unreported_ = 0;
  EngineLimits limits_;
  DeferredRunner* deferred_runner_ = nullptr;
  core::Watcher* watcher_ = nullptr;
  uint32_t entry_ = 0;
  uint64_t received_before_ = 0;        // by contexts that have been released
  uint64_t received_bytes_before_ = 0;  // likewise
  uint64_t fetched_bytes_ = 0;          // by RMA reads and atomics
  core::Signal* background_ = nullptr;  // notified once when has_background_work() becomes true
  size_t unwatched_ops_ = 0;            // see Op::unwatched
  std::vector<Peer*> cache_storage_;
  std::vector<RxContext*> rx_storage_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> blocked_peers_;  // with a queue
  List<Op, QueueHook> streams_;
  std::vector<Peer*> failed_;            // sent nonsense
  std::unique_ptr<OpenTable<L>> open_;   // what the program reads and writes in place; made at the first use
  [[no_unique_address]] Nobody nobody_;  // refuses every frame: what there is without a cached destination
  Peer* sole_ = nullptr;                 // SolePeer: the one there is
  bool gone_ = false;                    // SolePeer: there was one
};

}  // namespace weft::proto

#include "proto/engine/collected_access.hpp"
#include "proto/engine/in_place.hpp"
#include "proto/engine/peers.hpp"
#include "proto/engine/remote.hpp"
#include "proto/engine/send_completion.hpp"
#include "proto/engine/transmit.hpp"
#include "proto/engine/unreported.hpp"
