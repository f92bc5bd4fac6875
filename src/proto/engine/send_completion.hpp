// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: small messages whose completions wait until the link needs us no more for them (HasSendCompletion). Included by engine.hpp.
//
// A message that the link has taken leaves a record with the link's sequence behind it; progress() asks the link for the completed sequences of a
// few peers and completes what they have passed (send_completion.cpp). Records are bounded as operations are. Links whose sends complete at once have none of this.
//
// Of small messages in a row only the newest keeps its completion back, and stands for those before it: a program that waits for it comes again,
// and then all of them are complete. Not while the link gets nothing through (is_stuck()): perhaps nobody is there. So a stream of small messages
// is not held up by a round trip for each window.
#pragma once

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

template <Link L>
bool Engine<L>::is_stuck(PeerState& peer) noexcept {
  return visit_side(link_, full(peer), []<class S>(S& side, auto& part) {
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

// The fast path of a small message. False: nothing has happened.
template <Link L>
bool Engine<L>::send_small_tracked(TxContext& tx, PeerState& peer, const wire::FrameHead& head,
                                   const void* buffer, void* context) noexcept {
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
      if (before == nullptr) record = pending_send_pool_.acquire();
      if (before == nullptr && record == nullptr) return false;
      any_link_.request_ack(peer);
    }
    const SmallSend sent = send_small_to_side(peer, head, buffer);
    if (sent == SmallSend::Refused) [[unlikely]] {
      if (record != nullptr) pending_send_pool_.release(*record);
      return false;
    }
    if (sent == SmallSend::Unseen) wake_receiver(peer);
    const bool tagged = head.kind == wire::FrameKind::Tagged;
    note_deferred(tx, peer, !tx.default_completes);
    if (before !=
        nullptr) {  // this one is now waited for: the program comes again, so the one before needs no promise of its own
      complete_record(peer, *before, 0, core::ProviderError::None);
      peer.quiet = before->sequence;
      peer.quiet_kinds |= kind_of(before->tagged);
      WEFT_ASSERT(any_link_.sent_sequence(peer) >= before->sequence);
      before->sequence = any_link_.sent_sequence(peer);
      fill_small(*before, tx, head, context);
      return true;
    }
    if (record != nullptr && !is_send_complete(any_link_, peer)) {
      fill_small(*record, tx, head, context);
      hold(peer, *record, any_link_.sent_sequence(peer));
      peer.newest = record;
      return true;
    }
    if (record != nullptr) pending_send_pool_.release(*record);
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

}  // namespace weft::proto
