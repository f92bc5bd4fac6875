// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: the other half of small messages, and posting. Included by engine.hpp. What does not go at once is in transmit.cpp.
#pragma once

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

// A small frame is out; what is left is rare.
template <Link L>
ssize_t Engine<L>::after_small(TxContext& tx, PeerState& peer, size_t length, SmallSend sent, bool tagged,
                               bool silent) noexcept {
  if (sent == SmallSend::Unseen) wake_receiver(peer);
  if (silent) note_quiet(peer, tagged);
  note_deferred(tx, peer, silent);
  count_sent(length);
  if (tx.sends != nullptr) tx.sends->add(1);
  return 0;
}

// The receiver is told of a small frame that it does not see by itself.
template <Link L>
void Engine<L>::wake_receiver(PeerState& peer) noexcept {
  visit_side(link_, full(peer), []<class S>(S& side, auto& part) {
    if constexpr (HasSmallFrames<S>) side.wake_receiver(part);
  });
}

// A small frame by the side that the peer is reached through. Refused: also when it is too long for a small one there.
template <Link L>
SmallSend Engine<L>::send_small_to_side(PeerState& peer, const wire::FrameHead& head,
                                        const void* buffer) noexcept {
  return visit_side_to_send(link_, full(peer), [&]<class S>(S& side, auto& part) {
    if constexpr (HasSmallFrames<S>)
      if (head.length <= S::small_bytes_max) return side.send_small(part, head, buffer);
    return SmallSend::Refused;
  });
}

template <Link L>
ssize_t Engine<L>::inject_slow(TxContext& tx, bool tagged, const void* buffer, size_t length, fi_addr_t dest,
                               uint64_t tag) noexcept {
  if constexpr (has_small_credit<L>) {
    PeerState* peer = cached_peer(dest);
    // Counted like a post(), which polls when there were enough of them.
    if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max &&
        ++calls_since_poll_ <= calls_without_poll_max && link_.more_room(full(*peer))) {
      const wire::FrameHead head{tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                                 0,
                                 0,
                                 static_cast<uint32_t>(length),
                                 tag,
                                 0};
      const SmallSend sent = link_.send_small(full(*peer), head, buffer);
      if (sent != SmallSend::Refused) return after_small(tx, *peer, length, sent, tagged, true);
    }
  }
  if constexpr (HasSides<L>) {  // the peer of another side than SmallSide
    PeerState* peer = cached_peer(dest);
    if (peer != nullptr && peer->gate == 0 && ++calls_since_poll_ <= small_calls_without_poll_max) {
      const SmallSend sent = send_small_to_side(*peer, small_head(tagged, length, tag), buffer);
      if (sent != SmallSend::Refused) return after_small(tx, *peer, length, sent, tagged, true);
    }
  }
  const iovec part{const_cast<void*>(buffer), length};
  Request request;
  request.tagged = tagged;
  request.iov = &part;
  request.iov_count = 1;
  request.dest = dest;
  request.tag = tag;
  request.flags = (tx.op_flags & ~(acknowledged_flags | FI_COMPLETION)) | FI_INJECT;
  request.silent = true;
  return post(tx, request);
}

template <Link L>
ssize_t Engine<L>::inject_and_cache(TxContext& tx, bool tagged, const void* buffer, size_t length,
                                    fi_addr_t dest, uint64_t tag) noexcept {
  const ssize_t status =
      tagged ? inject<true>(tx, buffer, length, dest, tag) : inject<false>(tx, buffer, length, dest, tag);
  PeerState* peer = cached_peer(dest);
  if (peer != nullptr && peer->gate == 0 && !counts_sends_)
    cached_destination_ = {dest, static_cast<typename L::PeerBase*>(&full(*peer))};
  else drop_cached_destination();
  return status;
}

template <Link L>
ssize_t Engine<L>::send_slow(TxContext& tx, bool tagged, const void* buffer, size_t length, fi_addr_t dest,
                             uint64_t tag, void* context) noexcept {
  if constexpr (HasSides<L>) {
    PeerState* peer = cached_peer(dest);
    if (peer != nullptr && peer->gate == 0 && tx.default_plain && (!tx.default_completes || tx.cq->plain()) &&
        ++calls_since_poll_ <= small_calls_without_poll_max &&
        send_small_tracked(tx, *peer, small_head(tagged, length, tag), buffer, context)) {
      count_sent(length);
      return 0;
    }
  }
  const iovec part{const_cast<void*>(buffer), length};
  Request request;
  request.tagged = tagged;
  request.iov = &part;
  request.iov_count = 1;
  request.dest = dest;
  request.tag = tag;
  request.flags = tx.op_flags;
  request.context = context;
  return post(tx, request);
}

template <Link L>
ssize_t Engine<L>::post(TxContext& tx, const Request& request) noexcept {
  const size_t length = total_bytes(request.iov, request.iov_count);
  if (const int refused = validate(request, length); refused != 0) return refused;
  // A program that only sends must hear when its peer asks for a pause.
  if (++calls_since_poll_ > calls_without_poll_max && !attending_) [[unlikely]]
    progress();
  if (tx.cq != nullptr && tx.cq->full()) {
    progress();
    return -FI_EAGAIN;
  }
  if (pending_send_pool_.exhausted() && request.kind == OpKind::Send && waits(tx, request)) [[unlikely]] {
    progress();
    return -FI_EAGAIN;
  }
  uint8_t context = 0;
  int error = 0;
  PeerState* peer = find_peer(request.dest, context, error);
  if (peer == nullptr) return -error;
  errors_.report_to(tx);
  const bool acked = (request.flags & acknowledged_flags) != 0 || (request.flags & FI_FENCE) != 0;
  if (request.kind == OpKind::Send && peer->gate == 0 && length <= any_link_.limits(*peer).eager_bytes_max &&
      !acked && send_at_once(tx, *peer, context, request, length)) {
    count_sent(length);
    return 0;
  }
  const ssize_t status = post_op(tx, *peer, context, request, length);
  if (status == 0) count_sent(request.kind == OpKind::Read ? 0 : length);
  return status;
}

// The common message: no operation object, complete when the link has it, or needs us no more for it.
template <Link L>
bool Engine<L>::send_at_once(TxContext& tx, PeerState& peer, uint8_t context, const Request& request,
                             size_t length) noexcept {
  const bool with_data = (request.flags & FI_REMOTE_CQ_DATA) != 0;
  const wire::FrameHead head{request.tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                             static_cast<uint8_t>(with_data ? wire::has_b | wire::has_data : 0),
                             context,
                             static_cast<uint32_t>(length),
                             request.tag,
                             request.data};
  PendingSend* record = nullptr;
  if constexpr (has_send_completion<L>) {
    if (waits(tx, request)) {
      record = pending_send_pool_.acquire();
      if (record == nullptr) return false;
    }
  }
  if (!any_link_.send_payload(peer, record != nullptr, true, request.flags, head, {}, request.iov,
                              request.iov_count)) {
    if (record != nullptr) pending_send_pool_.release(*record);
    return false;
  }
  if (record != nullptr && !is_send_complete(any_link_, peer)) {
    record->context = request.context;
    record->tag = request.tag;
    record->length = length;
    record->tx = &tx;
    record->extra_counter = request.extra_counter;
    record->completes = !request.silent && tx.completes(request.flags);
    record->silent = request.silent;
    record->tagged = request.tagged;
    record->rendezvous = false;
    hold(peer, *record, any_link_.sent_sequence(peer));
    note_deferred(tx, peer, !record->completes);
    return true;
  }
  if (record != nullptr) pending_send_pool_.release(*record);
  note_quiet(peer, request.tagged);
  if (!request.silent && tx.completes(request.flags))
    tx.cq->push({request.context, request.tagged ? FI_SEND | FI_TAGGED : FI_SEND | FI_MSG, length, nullptr, 0,
                 request.tag, FI_ADDR_NOTAVAIL});
  if (tx.sends != nullptr) tx.sends->add(1);
  if (request.extra_counter != nullptr) request.extra_counter->add(1);
  note_deferred(tx, peer, request.silent || !tx.completes(request.flags));
  return true;
}

}  // namespace weft::proto
