// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: completions that wait until the link needs us no more for a message (HasSendCompletion). Included by engine.hpp.
//
// A message that the link has taken leaves a record with the link's sequence behind it; progress() asks the link for the completed sequences of a
// few peers and completes what they have passed. Records are bounded as operations are. Links whose sends complete at once have none of this.
//
// Of small messages in a row only the newest keeps its completion back, and stands for those before it: a program that waits for it comes again,
// and then all of them are complete. Not while the link gets nothing through (is_stuck()): perhaps nobody is there. So a stream of small messages
// is not held up by a round trip for each window.
#pragma once

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

inline constexpr size_t completing_looks_max = 32;  // peers that one progress() asks about

// Whether somebody waits for more than that the link has it.
template <Link L>
bool Engine<L>::waits(const TxContext& tx, const Request& request) const noexcept {
  if constexpr (!has_send_completion<L>) return false;
  if (request.silent || (request.flags & FI_INJECT_COMPLETE) != 0) return false;
  return tx.completes(request.flags) || tx.sends != nullptr || request.extra_counter != nullptr;
}

template <Link L>
bool Engine<L>::waits(const Op& op) const noexcept {
  if constexpr (!has_send_completion<L>) return false;
  if (op.early || op.kind != OpKind::Send || (op.flags & acknowledged_flags) != 0) return false;
  return op.completes || op.tx->sends != nullptr || op.extra_counter != nullptr;
}

template <Link L>
uint64_t Engine<L>::sent_sequence(Peer& peer) noexcept {
  return visit_side(link_, peer, []<class S>(S& side, auto& part) -> uint64_t {
    if constexpr (HasSendCompletion<S>) return side.sent_sequence(part);
    else return 0;
  });
}

template <Link L>
uint64_t Engine<L>::completed_sequence(Peer& peer) noexcept {
  return visit_side(link_, peer, []<class S>(S& side, auto& part) -> uint64_t {
    if constexpr (HasSendCompletion<S>) return side.completed_sequence(part);
    else return 0;
  });
}

template <Link L>
void Engine<L>::request_ack(Peer& peer) noexcept {
  visit_side(link_, peer, []<class S>(S& side, auto& part) {
    if constexpr (HasSendCompletion<S>) side.request_ack(part);
  });
}

template <Link L>
bool Engine<L>::is_send_complete(Peer& peer) noexcept {
  WEFT_ASSERT(!has_send_completion<L> || completed_sequence(peer) <= sent_sequence(peer));
  return !has_send_completion<L> ||
         (peer.pending_sends.empty() && completed_sequence(peer) >= sent_sequence(peer));
}

template <Link L>
bool Engine<L>::is_stuck(Peer& peer) noexcept {
  return visit_side(link_, peer, []<class S>(S& side, auto& part) {
    if constexpr (HasSendCompletion<S>) return side.is_stuck(part);
    else return false;
  });
}

template <Link L>
void Engine<L>::fill_small(PendingSend& record, TxContext& tx, const wire::FrameHead& head,
                           void* context) noexcept {
  record.context = context;
  record.tag = head.a;
  record.length = head.length;
  record.tx = &tx;
  record.extra_counter = nullptr;
  record.completes = tx.default_completes;
  record.silent = false;
  record.tagged = head.kind == wire::FrameKind::Tagged;
  record.rendezvous = false;
}

// The short way of a small message. False: nothing has happened.
template <Link L>
bool Engine<L>::send_small_tracked(TxContext& tx, Peer& peer, const wire::FrameHead& head, const void* buffer,
                                   void* context) noexcept {
  if constexpr (HasSides<L> || HasSmallFrames<L>) {
    const bool waits =
        has_send_completion<L> && !tx.default_early && (tx.default_completes || tx.sends != nullptr);
    PendingSend* record = nullptr;
    PendingSend* before = nullptr;
    WEFT_ASSERT(peer.newest == nullptr || (!peer.pending_sends.empty() && !peer.newest->rendezvous));
    if (waits) {
      if (peer.newest != nullptr && peer.newest->tx == &tx &&
          (tx.default_completes || !peer.newest->completes) && !is_stuck(peer))
        before = peer.newest;
      if (before == nullptr) record = pending_send_pool_.take();
      if (before == nullptr && record == nullptr) return false;
      request_ack(peer);
    }
    const SmallSend sent = send_small_to_side(peer, head, buffer);
    if (sent == SmallSend::Refused) [[unlikely]] {
      if (record != nullptr) pending_send_pool_.give(*record);
      return false;
    }
    if (sent == SmallSend::Unseen) tell(peer);
    const bool tagged = head.kind == wire::FrameKind::Tagged;
    mind_kept(tx, peer, !tx.default_completes);
    if (before !=
        nullptr) {  // this one is now waited for: the program comes again, so the one before needs no promise of its own
      complete_record(peer, *before, 0, core::ProviderError::None);
      peer.quiet = before->sequence;
      peer.quiet_kinds |= kind_of(before->tagged);
      WEFT_ASSERT(sent_sequence(peer) >= before->sequence);
      before->sequence = sent_sequence(peer);
      fill_small(*before, tx, head, context);
      return true;
    }
    if (record != nullptr && !is_send_complete(peer)) {
      fill_small(*record, tx, head, context);
      hold(peer, *record);
      peer.newest = record;
      return true;
    }
    if (record != nullptr) pending_send_pool_.give(*record);
    note_quiet(peer, tagged);
    if (tx.default_completes)
      tx.cq->push_plain({context, tagged ? FI_SEND | FI_TAGGED : FI_SEND | FI_MSG, head.length, nullptr, 0,
                         head.a, FI_ADDR_NOTAVAIL});
    if (tx.sends != nullptr) tx.sends->add(1);
    return true;
  } else {
    return false;
  }
}

template <Link L>
bool Engine<L>::send_payload(Peer& peer, [[maybe_unused]] bool waits, [[maybe_unused]] bool last,
                             [[maybe_unused]] uint64_t flags, const wire::FrameHead& head,
                             std::span<const std::byte> prefix, const iovec* parts,
                             size_t part_count) noexcept {
  if constexpr (has_send_completion<L>) {
    if (waits && last) request_ack(peer);
    if (waits && (flags & FI_INJECT) == 0)
      return visit_side_to_send(link_, peer, [&]<class S>(S& side, auto& part) {
        if constexpr (HasZeroCopyFrames<S>) return side.send_zero_copy(part, head, prefix, parts, part_count);
        else return side.send(part, head, prefix, parts, part_count);
      });
  }
  return link_.send(peer, head, prefix, parts, part_count);
}

template <Link L>
void Engine<L>::hold(Peer& peer, PendingSend& record) noexcept {
  record.sequence = sent_sequence(peer);
  WEFT_ASSERT(record.tx != nullptr || record.rendezvous);
  WEFT_ASSERT(peer.pending_sends.empty() == !List<PeerState, PendingSendsHook>::linked(peer));
  WEFT_ASSERT(peer.pending_sends.empty() || peer.pending_sends.front()->sequence <= record.sequence);
  peer.newest = nullptr;
  if (peer.pending_sends.empty()) completing_.push_back(peer);
  peer.pending_sends.push_back(record);
}

// False: it is complete, or there is no memory to remember that it is not.
template <Link L>
bool Engine<L>::hold(Peer& peer, const Op& op) noexcept {
  if (is_send_complete(peer)) return false;
  PendingSend* record = pending_send_pool_.take_beyond();
  if (record == nullptr) {
    copy_out(peer);
    return false;
  }
  record->context = op.context;
  record->tag = op.tag;
  record->length = op.length;
  record->tx = op.tx;
  record->extra_counter = op.extra_counter;
  record->completes = op.completes;
  record->silent = op.silent;
  record->tagged = op.tagged;
  record->rendezvous = false;
  hold(peer, *record);
  return true;
}

// The bytes of a rendezvous are all with the peer. The operation stays for its Done, which may be lost as long as the peer does other things.
template <Link L>
void Engine<L>::complete_rendezvous(Op& op) noexcept {
  WEFT_ASSERT(op.kind == OpKind::Send && op.done == op.total && op.stage != OpStage::Idle);
  complete_transmit(*op.tx, op, 0, core::ProviderError::None);
  op.tx = &retired_;
  op.completes = false;
  op.extra_counter = nullptr;
}

// All its segments are with the link.
template <Link L>
void Engine<L>::hold_rendezvous(Peer& peer, Op& op) noexcept {
  if (!waits(op)) return;
  if (is_send_complete(peer)) return complete_rendezvous(op);
  PendingSend* record = pending_send_pool_.take_beyond();
  if (record == nullptr) return;  // then Done completes it
  record->rendezvous = true;
  record->tagged = op.tagged;
  record->tag = transmit_ops_.id(op);
  hold(peer, *record);
}

template <Link L>
void Engine<L>::complete_record(Peer& peer, const PendingSend& record, int status,
                                core::ProviderError why) noexcept {
  if (record.rendezvous) {
    Op* op = status == 0 ? transmit_ops_.find(record.tag) : nullptr;
    if (op != nullptr && op->stage == OpStage::Waiting) complete_rendezvous(*op);
    return;
  }
  TxContext& tx = *record.tx;
  WEFT_ASSERT(!record.completes || (tx.cq != nullptr && !record.silent));
  const uint64_t flags = FI_SEND | (record.tagged ? FI_TAGGED : FI_MSG);
  if (status != 0) {
    push_failure({peer, tx, record.context, flags, record.tag, record.silent}, status, why);
    if (tx.sends != nullptr) tx.sends->add_error(1);
    if (record.extra_counter != nullptr) record.extra_counter->add_error(1);
    return;
  }
  if (record.completes)
    tx.cq->push({record.context, flags, record.length, nullptr, 0, record.tag, FI_ADDR_NOTAVAIL});
  if (tx.sends != nullptr) tx.sends->add(1);
  if (record.extra_counter != nullptr) record.extra_counter->add(1);
}

template <Link L>
void Engine<L>::complete_sends(Peer& peer) noexcept {
  if constexpr (has_send_completion<L>) {
    const uint64_t completed = completed_sequence(peer);
    WEFT_ASSERT(completed <= sent_sequence(peer));
    for (PendingSend* record = peer.pending_sends.front(); record != nullptr && record->sequence <= completed;
         record = peer.pending_sends.front()) {
      (void)peer.pending_sends.pop_front();
      if (record == peer.newest) peer.newest = nullptr;
      peer.quiet = std::max(peer.quiet, record->sequence);
      peer.quiet_kinds |= kind_of(record->tagged);
      complete_record(peer, *record, 0, core::ProviderError::None);
      pending_send_pool_.give(*record);
    }
    if (peer.pending_sends.empty() && List<PeerState, PendingSendsHook>::linked(peer))
      List<PeerState, PendingSendsHook>::remove(peer);
    WEFT_ASSERT(peer.pending_sends.empty() == !List<PeerState, PendingSendsHook>::linked(peer));
    WEFT_ASSERT(!peer.pending_sends.empty() || peer.newest == nullptr);
  }
}

// A few peers at a time, in turn.
template <Link L>
void Engine<L>::complete_sends() noexcept {
  const PeerState* const last = completing_.back();
  for (size_t looks = completing_looks_max; looks > 0; --looks) {
    PeerState* peer = completing_.front();
    if (peer == nullptr) return;
    complete_sends(full(*peer));
    if (List<PeerState, PendingSendsHook>::linked(*peer)) {
      List<PeerState, PendingSendsHook>::remove(*peer);
      completing_.push_back(*peer);
    }
    if (peer == last) return;
  }
}

// The peer is gone: what it had said it has is complete, the rest has failed.
template <Link L>
void Engine<L>::end_pending_sends(Peer& peer, int status, core::ProviderError why) noexcept {
  complete_sends(peer);
  peer.newest = nullptr;
  while (PendingSend* record = peer.pending_sends.pop_front()) {
    complete_record(peer, *record, status, why);
    pending_send_pool_.give(*record);
  }
  if (List<PeerState, PendingSendsHook>::linked(peer)) List<PeerState, PendingSendsHook>::remove(peer);
  WEFT_ASSERT(pending_send_pool_.in_use() != 0 || completing_.empty());
}

template <Link L>
void Engine<L>::drop_pending_sends(Peer& peer) noexcept {
  peer.newest = nullptr;
  while (PendingSend* record = peer.pending_sends.pop_front()) pending_send_pool_.give(*record);
  if (List<PeerState, PendingSendsHook>::linked(peer)) List<PeerState, PendingSendsHook>::remove(peer);
}

template <Link L>
bool Engine<L>::has_completed_sends() noexcept {
  bool any = false;
  if constexpr (has_send_completion<L>)
    completing_.for_each([&](PeerState& state) {
      Peer& peer = full(state);
      WEFT_ASSERT(!peer.pending_sends.empty());
      any = any || peer.pending_sends.front()->sequence <= completed_sequence(peer);
    });
  return any;
}

}  // namespace weft::proto
