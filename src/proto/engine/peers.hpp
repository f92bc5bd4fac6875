// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: who is who and who is gone. Included by engine.hpp.
#pragma once

#include <algorithm>

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

template <Link L>
Engine<L>::~Engine() {
  abandon();
  (void)stop_serving(true);
  link_.close();
}

// Takes no new frame. The rest of one that has begun to arrive goes where it belongs.
template <Link L>
struct Engine<L>::FrameRefuser {
  Engine& engine;
  bool on_frame(typename L::PeerBase&, const wire::FrameHead&, const std::byte*) noexcept { return false; }
  Land land(typename L::PeerBase& peer, wire::FrameHead& head, const std::byte* payload, size_t arrived,
            Landing& out) noexcept {
    return payload == nullptr ? engine.land(peer, head, payload, arrived, out) : Land::Later;
  }
  void landed(typename L::PeerBase& peer, wire::FrameHead& head, size_t bytes) noexcept {
    engine.landed(peer, head, bytes);
  }
  bool awaits(const typename L::PeerBase& peer) const noexcept { return engine.awaits(peer); }
};

template <Link L>
void Engine<L>::poll_without_frames() noexcept {
  if constexpr (may_have_background_work<L>) {
    FrameRefuser refuser{*this};
    (void)link_.poll(refuser);
  }
}

template <Link L>
void Engine<L>::set_receive_context(size_t index, RxContext* context) {
  if (rx_storage_.size() <= index) rx_storage_.resize(index + 1, nullptr);
  rx_storage_[index] = context;
  rx_ = rx_storage_.data();
  rx_count_ = rx_storage_.size();
  rx_first_ = rx_[0];
}

template <Link L>
EngineCounts Engine<L>::counts() const noexcept {
  EngineCounts now;
  now.sent = sent_;
  now.received = received_before_;
  now.bytes_sent = sent_bytes_;
  now.unreported = unreported_;
  now.bytes_received = received_bytes_before_ + fetched_bytes_;
  now.send_queue = transmit_ops_.in_use() + pending_send_pool_.in_use();
  for (size_t i = 0; i < rx_count_; ++i) {
    if (rx_[i] == nullptr) continue;
    now.shares_receives = now.shares_receives || rx_[i]->shared;
    now.received += rx_[i]->received();
    now.bytes_received += rx_[i]->received_bytes();
    now.receive_queue += rx_[i]->posted();
    now.unexpected += rx_[i]->unexpected();
  }
  for (const core::CompletionQueue* queue : queues_) now.completions += queue->pending();
  return now;
}

template <Link L>
void Engine<L>::release_receive_context(size_t index) noexcept {
  if (index >= rx_count_ || rx_[index] == nullptr) return;
  RxContext* context = rx_[index];
  drop_taken(*context);
  received_before_ += context->received();
  received_bytes_before_ += context->received_bytes();
  rx_[index] = nullptr;
  rx_first_ = rx_[0];
  if (is_forked_copy())
    for (auto& peer : peers_) peer->lost = true;
  for (auto& peer : peers_) {
    context->refuse_unexpected(*peer);
    if (context->forget_peer(*peer)) {  // nobody else would tell it to go on
      peer->pausing = false;
      peer->unheeded = 0;
      set_pause(*peer, false);
    }
    peer->in_flight.for_each([&](Op& op) {
      if (op.rx != context) return;
      op.rx = nullptr;
      if (op.kind != OpKind::Receive) return;
      if (peer->fragmented_receive == &op) peer->fragmented_receive = nullptr;
      if (!is_forked_copy()) end_meeting(op);
      List<Op, InFlightHook>::remove(op);
      acknowledge(*peer, op.remote, FI_EINVAL);
      context->ops.give(op);
    });
  }
}

// The program has the buffers of this operation back: what is still to be sent is copied, what is still to come goes nowhere. False: no memory.
template <Link L>
bool Engine<L>::give_back(Op& op) noexcept {
  const bool to_send = (!op.acked || op.announced || op.stage == OpStage::Streaming) && !is_forked_copy();
  if (to_send && !op.bounce && !own_bytes(op)) return false;
  if (op.kind == OpKind::Read) op.iov_count = 0;
  op.result_count = 0;
  return true;
}

// What was accepted goes on without its buffers, and completes in silence.
template <Link L>
void Engine<L>::release_transmit_context(const TxContext& context) noexcept {
  const auto belongs = [&](const Op& op) {
    return op.tx == &context && (op.kind == OpKind::Send || op.kind == OpKind::Write ||
                                 op.kind == OpKind::Read || op.kind == OpKind::Atomic);
  };
  const auto retire = [&](Op& op) {
    if (!belongs(op)) return;
    (void)give_back(op);
    op.tx = &retired_;
    op.completes = false;
    op.extra_counter = nullptr;
    note_unwatched(op);
  };
  // There was no memory for what it sends: it is dropped, unless the peer waits for the rest.
  const auto is_stuck = [&](const Op& op) {
    return op.tx == &retired_ && op.kind != OpKind::Read && op.length != 0 && op.done == 0 && !op.bounce;
  };
  if (reporting_ == &context) reporting_ = &retired_;
  for (auto& peer : peers_) {
    if (!is_forked_copy()) end_collection(*peer);
    copy_out(*peer);
    peer->queue.for_each(retire);
    while (Op* op = peer->queue.find(is_stuck)) {
      List<Op, QueueHook>::remove(*op);
      give_transmit(*op);
    }
    peer->in_flight.for_each(retire);
    for (PendingSend* record = peer->pending_sends.front(); record != nullptr;
         record = Fifo<PendingSend>::next(*record)) {
      if (record->rendezvous || record->tx != &context) continue;
      record->tx = &retired_;
      record->completes = false;
      record->extra_counter = nullptr;
    }
  }
}

template <Link L>
void Engine<L>::add_queue(core::CompletionQueue* queue) {
  if (std::find(queues_.begin(), queues_.end(), queue) == queues_.end()) queues_.push_back(queue);
  choose_sole_queue();
}

template <Link L>
void Engine<L>::drop_cache() noexcept {
  drop_cached_destination();
  std::fill(cache_storage_.begin(), cache_storage_.end(), nullptr);
  removals_seen_ = av_removals();
}

// The peer of an address that is sent to for the first time. Where addresses have been removed it may be one that was
// inserted again, for another endpoint: that the old one has left may be behind other packets.
template <Link L>
typename Engine<L>::Peer* Engine<L>::connect(core::Address address, int& error) {
  const std::span<const std::byte> bytes(address.bytes.data(), address.len);
  const size_t known = peers_.size();
  auto* peer = static_cast<Peer*>(link_.connect(bytes, error));
  if (peer == nullptr || peers_.size() != known || removals_seen_ == 0) return peer;
  for (unsigned i = 0; i < looks_for_leaving && !attending_; ++i) progress();
  peer = static_cast<Peer*>(link_.connect(bytes, error));
  if (peer == nullptr) return nullptr;
  if (!visit_side(link_, *peer, [](auto& side, const auto& part) { return side.has_left(part); }))
    return peer;
  error = FI_EAGAIN;
  return nullptr;
}

// The slow half of looking up a destination: receive context bits, first contact, a changed address vector.
template <Link L>
typename Engine<L>::Peer* Engine<L>::find_peer(fi_addr_t dest, uint8_t& context, int& error) noexcept try {
  error = 0;
  context = 0;
  if constexpr (SolePeer<L>) {
    if (sole_ == nullptr) error = FI_ENOTCONN;
    return sole_;
  }
  if (av_ == nullptr) {
    error = FI_EOPBADSTATE;
    return nullptr;
  }
  if (av_removals() != removals_seen_) drop_cache();
  if (av_->rx_ctx_bits() != 0) {
    const unsigned index = av_->rx_index(dest);
    if (index > 0xff) {
      error = FI_EINVAL;
      return nullptr;
    }
    context = static_cast<uint8_t>(index);
    dest = av_->peer_index(dest);
  }
  if (dest < cache_size_ && cache_[dest] != nullptr) return cache_[dest];
  if (is_forked_copy()) {
    error = FI_EOPBADSTATE;
    return nullptr;
  }
  const core::Address* address = av_->lookup(dest);
  if (address == nullptr) {
    error = FI_EINVAL;
    return nullptr;
  }
  if (dest >= cache_storage_.size()) {
    cache_storage_.resize(std::max<size_t>(dest + 1, 2 * cache_storage_.size()), nullptr);
    cache_ = cache_storage_.data();
    cache_size_ = cache_storage_.size();
  }
  const uint32_t seen = removals_seen_;
  Peer* peer = connect(*address, error);
  if (peer == nullptr) return nullptr;
  if (removals_seen_ !=
      seen) {  // in the meantime, by another thread or process: the number may mean somebody else
    error = FI_EAGAIN;
    return nullptr;
  }
  if (peer->fi_addr == FI_ADDR_NOTAVAIL) rename(*peer, dest);
  cache_[dest] = peer;
  return peer;
} catch (const std::bad_alloc&) {
  error = FI_ENOMEM;
  return nullptr;
}

// The index of a peer's address in the address vector, or FI_ADDR_NOTAVAIL.
template <Link L>
fi_addr_t Engine<L>::number_of(const core::Address& address) const noexcept {
  const fi_addr_t number = av_->find(address);
  if (number != FI_ADDR_NOTAVAIL || !link_.names_differ()) [[likely]]
    return number;
  const auto bytes = [](const core::Address& a) { return std::span(a.bytes.data(), a.len); };
  return av_->find_if(
      [&](const core::Address& name) { return link_.is_name_of(bytes(name), bytes(address)); });
}

template <Link L>
typename L::PeerBase* Engine<L>::make_peer(std::span<const std::byte> address) {
  auto peer = std::make_unique<Peer>();
  peer->owner = this;
  peer->sink = sink_;
  peer->av_address = core::Address(address.data(), address.size());
  if (av_ != nullptr) peer->fi_addr = number_of(peer->av_address);
  blocked_peers_.reserve(peers_.size() + 1);  // so that putting a peer there never fails
  failed_.reserve(peers_.size() + 1);
  WEFT_ASSERT(!SolePeer<L> || sole_ == nullptr);
  peers_.push_back(std::move(peer));
  if constexpr (SolePeer<L>) sole_ = peers_.back().get();
  return peers_.back().get();
}

// The address vector has changed: peers may have got or lost a number.
template <Link L>
void Engine<L>::refresh_peers() noexcept {
  av_seen_ = av_version();
  if (av_removals() != removals_seen_) drop_cache();
  for (auto& peer : peers_) {
    const fi_addr_t now = number_of(peer->av_address);
    if (now != peer->fi_addr) rename(*peer, now);
  }
}

// What came from the peer and waits has the new index, too.
template <Link L>
void Engine<L>::rename(Peer& peer, fi_addr_t index) noexcept {
  WEFT_ASSERT(peer.fi_addr != index);
  peer.fi_addr = index;
  for (size_t i = 0; i < rx_count_; ++i)
    if (rx_[i] != nullptr) rx_[i]->rename_peer(peer);
}

template <Link L>
void Engine<L>::fail_peer(Peer& peer, core::ProviderError why) noexcept {
  if (peer.lost) return;
  peer.lost = true;
  shut(peer, PeerState::gate_lost);
  WEFT_ASSERT(std::find_if(peers_.begin(), peers_.end(),
                           [&](const auto& one) { return one.get() == &peer; }) != peers_.end());
  if (open_ != nullptr) open_->forget(peer);
  const int status = why == core::ProviderError::PeerUnreachable        ? FI_EHOSTUNREACH
                     : why == core::ProviderError::OwnShortage          ? FI_EHOSTUNREACH
                     : why == core::ProviderError::PeerShortage         ? FI_EHOSTUNREACH
                     : why == core::ProviderError::DescriptorsNotPassed ? FI_EHOSTUNREACH
                     : why == core::ProviderError::PeerOfOtherUser      ? FI_EACCES
                     : why == core::ProviderError::Cancelled            ? FI_ECANCELED
                                                                        : FI_EIO;
  complete_sends(peer);  // what the link has finished is complete, and perhaps not delivered
  begin_losing(peer, status, why);
  end_pending_sends(peer, status, why);
  while (Op* op = peer.control.pop_front()) give_service(*op);
  peer.collected = 0;
  while (Op* op = peer.queue.pop_front()) finish_transmit(*op, status, why);
  WEFT_ASSERT(((peer.gate & PeerState::gate_queued) != 0) ==
              (std::find(blocked_peers_.begin(), blocked_peers_.end(), &peer) != blocked_peers_.end()));
  if (std::erase(blocked_peers_, &peer) != 0) --busy_;
  losing_.in_flight = true;
  while (Op* op = peer.in_flight.front()) {
    if (op->stage == OpStage::Streaming) {
      WEFT_ASSERT(busy_ != 0);
      List<Op, QueueHook>::remove(*op);
      --busy_;
    }
    if (op->kind == OpKind::Receive || op->kind == OpKind::Inbound || op->kind == OpKind::Outbound)
      finish_inbound(*op, status, why);
    else finish_transmit(*op, status, why);
  }
  for (size_t i = 0; i < rx_count_; ++i)
    if (rx_[i] != nullptr) {
      (void)rx_[i]->forget_peer(peer);
      if (why == core::ProviderError::PeerDied) rx_[i]->fail_directed(peer.fi_addr, why);
    }
  WEFT_ASSERT(peer.queue.empty() && peer.control.empty() && peer.in_flight.empty() &&
              peer.pending_sends.empty());
  WEFT_ASSERT(peer.unacknowledged == 0 && peer.accesses == 0 && peer.served == 0);
  WEFT_ASSERT(peer.fragmented_receive == nullptr && peer.fragmented_message == nullptr);
  end_losing(status, why);
  for (Peer*& entry : cache_storage_)
    if (entry == &peer) entry = nullptr;
  busy_ -= std::erase(failed_, &peer);
  if constexpr (SolePeer<L>) {
    sole_ = nullptr;
    gone_ = true;
    end_receives(why);
  }
}

// Nobody can send to receives of a connection that has ended. Those of a shared context stay: other connections may.
template <Link L>
void Engine<L>::end_receives(core::ProviderError why) noexcept {
  for (size_t i = 0; i < rx_count_; ++i)
    if (rx_[i] != nullptr && !rx_[i]->shared) rx_[i]->end_posted(FI_ECANCELED, why);
}

template <Link L>
void Engine<L>::shut_down() noexcept {
  if constexpr (SolePeer<L>) {
    if (sole_ == nullptr) return;
    Peer& peer = *sole_;
    link_.shut_down();  // it still writes what it has collected: that is not cancelled
    copy_out(peer);
    fail_peer(peer, core::ProviderError::Cancelled);
    release_peer(peer);
  }
}

template <Link L>
void Engine<L>::release_peer(Peer& peer) noexcept {
  WEFT_ASSERT(peer.lost && peer.queue.empty() && peer.in_flight.empty());
  WEFT_ASSERT(!List<PeerState, PendingSendsHook>::linked(peer));
  drop_cached_destination();
  std::erase_if(peers_, [&](const std::unique_ptr<Peer>& entry) { return entry.get() == &peer; });
}

template <Link L>
void Engine<L>::peer_lost(typename L::PeerBase& base, core::ProviderError why) noexcept {
  Peer& peer = static_cast<Peer&>(base);
  fail_peer(peer, why);
  release_peer(peer);
}

template <Link L>
bool Engine<L>::has_unsent() const noexcept {
  return busy_ != 0 || has_uncredited();
}

template <Link L>
void Engine<L>::abandon() noexcept {
  for (auto& peer : peers_) peer->lost = true;  // nothing more is said to them
  drop_cached_destination();
  for (auto& peer : peers_) {
    copy_out(*peer);
    drop_pending_sends(*peer);
    while (Op* op = peer->control.pop_front()) give_service(*op);
    peer->collected = 0;
    while (Op* op = peer->queue.pop_front()) give_transmit(*op);
    while (Op* op = peer->in_flight.front()) {
      if (!is_forked_copy()) end_meeting(*op);
      if (op->kind == OpKind::Receive && op->rx->shared) {  // the receive belongs to a context that stays
        op->rx->finish(*op, FI_ECANCELED, core::ProviderError::Cancelled);
        continue;
      }
      List<Op, InFlightHook>::remove(*op);
      if (op->stage == OpStage::Streaming) List<Op, QueueHook>::remove(*op);
      for (uint8_t i = 0; i < op->region_count; ++i) regions_->release(*op->regions[i]);
      op->region_count = 0;
      if (op->kind == OpKind::Receive) op->rx->ops.give(*op);
      else if (op->kind == OpKind::Inbound || op->kind == OpKind::Outbound) give_service(*op);
      else give_transmit(*op);
    }
    for (size_t i = 0; i < rx_count_; ++i)
      if (rx_[i] != nullptr) (void)rx_[i]->forget_peer(*peer);
  }
  for (size_t i = 0; i < rx_count_; ++i)
    if (rx_[i] != nullptr && rx_[i]->shared) rx_[i]->forget_sink(sink_);
  WEFT_ASSERT(streams_.empty() && completing_.empty());
  WEFT_ASSERT(transmit_ops_.in_use() == 0 && service_ops_.in_use() == 0 && pending_send_pool_.in_use() == 0);
  blocked_peers_.clear();
  failed_.clear();
  assist_count_ = 0;
  copy_count_ = 0;
  busy_ = 0;
  rx_count_ = 0;  // the contexts may go before us
  rx_first_ = nullptr;
}

template <Link L>
ssize_t Engine<L>::cancel(const void* context) noexcept {
  for (auto& peer : peers_) {
    end_collection(*peer);
    // Not a fragmented message that is under way: the peer waits for the rest of it.
    Op* found = peer->queue.find([context](const Op& op) { return op.context == context && op.done == 0; });
    if (found == nullptr) continue;
    List<Op, QueueHook>::remove(*found);
    finish_transmit(*found, FI_ECANCELED, core::ProviderError::Cancelled);
    return 0;
  }
  return -FI_ENOENT;
}

}  // namespace weft::proto
