// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>: messages, tags, RMA and atomics over any Link. A state machine: calls and frames in, frames and completions out.
// Must not know system calls, clocks or threads; the owner serialises every call (domain lock or program).
//
// The fast path is here: a small message goes out in inject()/send(), comes in through on_frame(). What is the same for every link is in EngineCore
// (engine_core.hpp). The rest of the template is in transmit.hpp (posting), send_completion.hpp (completions that wait for the link), in_place.hpp
// (messages read and written where the link has them) and peers.hpp (connections that end).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "core/address_vector.hpp"
#include "core/atomic.hpp"
#include "core/progress.hpp"
#include "proto/engine/any_link.hpp"
#include "proto/engine/context.hpp"
#include "proto/engine/endpoint_engine.hpp"
#include "proto/engine/engine_core.hpp"
#include "proto/engine/link.hpp"
#include "proto/engine/op.hpp"
#include "proto/engine/open_table.hpp"

namespace weft::proto {

inline constexpr uint32_t small_calls_without_poll_max = 256;

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

// About 70 functions and four members: each short call exists for itself, since a common head cost fi_tinject 2.8 % instructions, and the front end, the
// queues, the receive contexts and the link each have an interface of their own that it implements.
template <Link L>
class Engine final : public EngineCore, public L::Events {
 public:
  using Peer = PeerOf<L>;
  using Link = L;
  using Connection = L;  // SolePeer
  using Receive = RxContext;
  static constexpr EngineAbilities abilities = abilities_over<L>();

  explicit Engine(const EngineLimits& limits)
      : EngineCore(limits, any_link_, {SolePeer<L>, has_send_completion<L>, L::fragmented_eager_bytes_max}),
        any_link_(link_) {
    if constexpr (has_small_credit<L>) nowhere_.peer = static_cast<typename L::PeerBase*>(&nobody_);
    drop_cached_destination();
  }
  ~Engine();

  // --- set-up, before the first operation ---
  L& link() noexcept { return link_; }
  const L& link() const noexcept { return link_; }
  Result<void> open(std::string_view name) requires(!SolePeer<L>) { return link_.open(name, *this); }
  Result<void> open(std::string_view name, ConnectionObserver& observer) requires SolePeer<L> {
    return link_.open(name, *this, observer);
  }
  L& connection() noexcept requires SolePeer<L> { return link_; }
  void close() noexcept { link_.close(); }
  std::span<const std::byte> address() noexcept { return link_.address(); }

  // --- the program's calls: 0 or a negative errno; -FI_EAGAIN means nothing happened ---
  template <bool tagged>
  ssize_t inject(TxContext& tx, const void* buffer, size_t length, fi_addr_t dest, uint64_t tag) noexcept {
    if constexpr (HasSmallFrames<L>) {
      PeerState* peer = cached_peer(dest);
      if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max && may_go_on()) [[likely]] {
        const wire::FrameHead head{tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                                   0,
                                   0,
                                   static_cast<uint32_t>(length),
                                   tag,
                                   0};
        const SmallSend sent = link_.send_small(full(*peer), head, buffer);
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
        const SmallSend sent = link_.send_small(cached_peer_base(), head, buffer);
        if (sent == SmallSend::Sent) [[likely]] {
          count_sent(length);
          return 0;
        }
        if (sent == SmallSend::Unseen)
          return after_small(tx, static_cast<Peer&>(cached_peer_base()), length, sent, tagged, true);
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
      PeerState* peer = cached_peer(dest);
      if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max - sizeof(data) && may_go_on())
          [[likely]] {
        const SmallSend sent = link_.send_small(full(*peer), data_head<tagged>(length, tag, data), buffer);
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
      PeerState* peer = cached_peer(dest);
      if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max - sizeof(data) &&
          tx.default_plain && (!tx.default_completes || tx.cq->plain()) && may_go_on()) [[likely]] {
        const SmallSend sent = link_.send_small(full(*peer), data_head<tagged>(length, tag, data), buffer);
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
      PeerState* peer = cached_peer(dest);
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
        const SmallSend sent = link_.send_small(full(*peer), head, buffer);
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
  int take(RxContext& rx, const ReceiveRequest& request, LoanedMessage& out) noexcept requires HasLoans<L>;
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
    if constexpr (!HasHousekeeping<L>)
      if (++polls_since_check_ % polls_per_check == 0) [[unlikely]]
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
            Landing& out) noexcept {
    return EngineCore::land(static_cast<Peer&>(peer), head, payload, arrived, out);
  }
  void landed(typename L::PeerBase& peer, wire::FrameHead& head, size_t bytes) noexcept {
    EngineCore::landed(static_cast<Peer&>(peer), head, bytes);
  }
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
  typename L::PeerBase* make_peer(std::span<const std::byte> address) override {
    auto* const peer = new Peer();
    adopt_peer(OwnedPeer(peer, [](PeerState* owned) noexcept { delete static_cast<Peer*>(owned); }), address);
    return peer;
  }
  void peer_lost(typename L::PeerBase& peer, core::ProviderError why) noexcept override {
    lose_peer(static_cast<Peer&>(peer), why);
  }
  void time_passes() noexcept override {
    if (errors_.watcher() != nullptr) errors_.watcher()->check();
  }
  uint32_t shown_as() const noexcept override { return entry_; }

  bool belongs_here() const noexcept { return link_.belongs_here(); }
  void hurry() noexcept { link_.hurry(); }
  // Operations that were accepted and are not handed to the link yet, or that wait there for the peer. An endpoint that closes waits for these, for a while.
  bool has_unsent() const noexcept;
  // Hands over what there is room for, even while a completion queue is full and progress() does nothing.
  void push_unsent() noexcept {
    visit_all_sides(link_, []<class S>(S& side) {
      if constexpr (Coalesces<S>) side.push_all();
    });
    if (busy_ != 0) attend();
  }
  // A connected link: what is under way ends as cancelled, nothing is sent any more.
  void shut_down() noexcept;

 private:
  static Peer& full(PeerState& state) noexcept { return static_cast<Peer&>(state); }

  // Null where there is something to look up.
  PeerState* cached_peer(fi_addr_t dest) const noexcept {
    if constexpr (SolePeer<L>) return sole_;
    if (dest >= cache_size_ || av_removals() != removals_seen_) [[unlikely]]
      return nullptr;
    return cache_[dest];
  }
  typename L::PeerBase& cached_peer_base() const noexcept {
    return *static_cast<typename L::PeerBase*>(cached_destination_.peer);
  }
  // A program that only sends small messages must hear when its peer asks for a pause. False: the slow path, which polls.
  bool may_go_on() noexcept {
    if constexpr (has_small_credit<L>) return true;
    else return ++calls_since_poll_ <= small_calls_without_poll_max;
  }
  // in_place.hpp
  struct Taker;
  bool make_open_table() noexcept;
  void drop_loans(const RxContext& rx) noexcept override;
  void forget_open(const PeerState& peer) noexcept override {
    if (open_ != nullptr) open_->forget(peer);
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

  // A completion queue is full: no frame is taken, but what was sent is still acknowledged and sent again.
  struct FrameRefuser;
  [[gnu::noinline, gnu::cold]] void poll_without_frames() noexcept;
  // transmit.hpp
  void note_deferred(TxContext& tx, PeerState& peer, bool silent) noexcept override {
    visit_side(link_, full(peer), [&]<class S>(S& side, auto& part) {
      if constexpr (Coalesces<S>) {
        report_background_work();
        if (!side.has_deferred_sends()) return;
        if (silent || tx.cq == nullptr) side.push(part);
        else tx.cq->drive_at_next_read();
      }
    });
  }
  // A side of the link has frames that wait for a peer.
  bool has_uncredited() const noexcept {
    bool any = false;
    visit_all_sides(link_, [&](auto& side) {
      if constexpr (Coalesces<Bare<decltype(side)>>) any = any || side.has_uncredited();
    });
    return any;
  }
  [[gnu::noinline]] ssize_t after_small(TxContext& tx, PeerState& peer, size_t length, SmallSend sent,
                                        bool tagged, bool silent) noexcept;
  SmallSend send_small_to_side(PeerState& peer, const wire::FrameHead& head, const void* buffer) noexcept;
  void wake_receiver(PeerState& peer) noexcept;
  [[gnu::noinline]] ssize_t inject_slow(TxContext& tx, bool tagged, const void* buffer, size_t length,
                                        fi_addr_t dest, uint64_t tag) noexcept;
  [[gnu::noinline]] ssize_t inject_and_cache(TxContext& tx, bool tagged, const void* buffer, size_t length,
                                             fi_addr_t dest, uint64_t tag) noexcept;
  [[gnu::noinline]] ssize_t send_slow(TxContext& tx, bool tagged, const void* buffer, size_t length,
                                      fi_addr_t dest, uint64_t tag, void* context) noexcept;
  bool send_at_once(TxContext& tx, PeerState& peer, uint8_t context, const Request& request,
                    size_t length) noexcept;
  // send_completion.hpp
  bool is_stuck(PeerState& peer) noexcept;
  static void fill_small(PendingSend& record, TxContext& tx, const wire::FrameHead& head,
                         void* context) noexcept;
  bool send_small_tracked(TxContext& tx, PeerState& peer, const wire::FrameHead& head, const void* buffer,
                          void* context) noexcept;
  // Everything that the link has taken for the peer has no completion to come any more, or never had one. Last such a message.
  void note_quiet(PeerState& peer, bool tagged) noexcept {
    if constexpr (has_send_completion<L>) EngineCore::note_quiet(peer, tagged, any_link_.sent_sequence(peer));
  }

  struct NoPeer {};
  using Nobody = std::conditional_t<has_small_credit<L>, typename L::PeerBase, NoPeer>;

  // The link begins 40 bytes behind a cache line, whatever grows above: what a small message touches of shm's link then lies in two lines.
  [[maybe_unused]] alignas(64) std::array<std::byte, 40> before_link_;
  L link_;
  AnyLinkOf<L> any_link_;
  std::unique_ptr<OpenTable<L>> open_;   // what the program reads and writes in place; made at the first use
  [[no_unique_address]] Nobody nobody_;  // refuses every frame: what there is without a cached destination
};

}  // namespace weft::proto

#include "proto/engine/in_place.hpp"
#include "proto/engine/peers.hpp"
#include "proto/engine/send_completion.hpp"
#include "proto/engine/transmit.hpp"
