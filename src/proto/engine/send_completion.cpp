// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EngineCore, part: completions that wait until the link needs us no more for a message (HasSendCompletion). See send_completion.hpp.
#include "proto/engine/engine_core.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace weft::proto {

namespace {

constexpr size_t completing_checks_max = 32;  // peers that one progress() asks about

}  // namespace

bool EngineCore::waits(const Op& op) const noexcept {
  if (!traits_.has_send_completion) return false;
  if (op.early || op.kind != OpKind::Send || (op.flags & acknowledged_flags) != 0) return false;
  return op.completes || op.tx->sends != nullptr || op.extra_counter != nullptr;
}

void EngineCore::hold(PeerState& peer, PendingSend& record, uint64_t sequence) noexcept {
  record.sequence = sequence;
  WEFT_ASSERT(record.tx != nullptr || record.rendezvous);
  WEFT_ASSERT(peer.pending_sends.empty() == !List<PeerState, PendingSendsHook>::linked(peer));
  WEFT_ASSERT(peer.pending_sends.empty() || peer.pending_sends.front()->sequence <= record.sequence);
  peer.newest = nullptr;
  if (peer.pending_sends.empty()) completing_.push_back(peer);
  peer.pending_sends.push_back(record);
}

// False: it is complete, or there is no memory to remember that it is not.
bool EngineCore::hold(PeerState& peer, const Op& op) noexcept {
  if (is_send_complete(any_link_, peer)) return false;
  PendingSend* record = pending_send_pool_.acquire_beyond();
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
  hold(peer, *record, any_link_.sent_sequence(peer));
  return true;
}

// The bytes of a rendezvous are all with the peer. The operation stays for its Done, which may be lost as long as the peer does other things.
void EngineCore::complete_rendezvous(Op& op) noexcept {
  WEFT_ASSERT(op.kind == OpKind::Send && op.done == op.total && op.stage != OpStage::Idle);
  complete_transmit(*op.tx, op, 0, core::ProviderError::None);
  op.tx = &retired_;
  op.completes = false;
  op.extra_counter = nullptr;
}

// All its segments are with the link.
void EngineCore::hold_rendezvous(PeerState& peer, Op& op) noexcept {
  if (!waits(op)) return;
  if (is_send_complete(any_link_, peer)) return complete_rendezvous(op);
  PendingSend* record = pending_send_pool_.acquire_beyond();
  if (record == nullptr) return;  // then Done completes it
  record->rendezvous = true;
  record->tagged = op.tagged;
  record->tag = transmit_ops_.id(op);
  hold(peer, *record, any_link_.sent_sequence(peer));
}

void EngineCore::complete_record(PeerState& peer, const PendingSend& record, int status,
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
    errors_.push({peer, tx, record.context, flags, record.tag, record.silent}, status, why);
    if (tx.sends != nullptr) tx.sends->add_error(1);
    if (record.extra_counter != nullptr) record.extra_counter->add_error(1);
    return;
  }
  if (record.completes)
    tx.cq->push({record.context, flags, record.length, nullptr, 0, record.tag, FI_ADDR_NOTAVAIL});
  if (tx.sends != nullptr) tx.sends->add(1);
  if (record.extra_counter != nullptr) record.extra_counter->add(1);
}

void EngineCore::complete_sends(PeerState& peer) noexcept {
  if (!traits_.has_send_completion) return;
  const uint64_t completed = any_link_.completed_sequence(peer);
  WEFT_ASSERT(completed <= any_link_.sent_sequence(peer));
  for (PendingSend* record = peer.pending_sends.front(); record != nullptr && record->sequence <= completed;
       record = peer.pending_sends.front()) {
    (void)peer.pending_sends.pop_front();
    if (record == peer.newest) peer.newest = nullptr;
    peer.quiet = std::max(peer.quiet, record->sequence);
    peer.quiet_kinds |= kind_of(record->tagged);
    complete_record(peer, *record, 0, core::ProviderError::None);
    pending_send_pool_.release(*record);
  }
  if (peer.pending_sends.empty() && List<PeerState, PendingSendsHook>::linked(peer))
    List<PeerState, PendingSendsHook>::remove(peer);
  WEFT_ASSERT(peer.pending_sends.empty() == !List<PeerState, PendingSendsHook>::linked(peer));
  WEFT_ASSERT(!peer.pending_sends.empty() || peer.newest == nullptr);
}

// A few peers at a time, in turn.
void EngineCore::complete_sends() noexcept {
  const PeerState* const last = completing_.back();
  for (size_t checks = completing_checks_max; checks > 0; --checks) {
    PeerState* peer = completing_.front();
    if (peer == nullptr) return;
    complete_sends(*peer);
    if (List<PeerState, PendingSendsHook>::linked(*peer)) {
      List<PeerState, PendingSendsHook>::remove(*peer);
      completing_.push_back(*peer);
    }
    if (peer == last) return;
  }
}

// The peer is gone: what it had said it has is complete, the rest has failed.
void EngineCore::end_pending_sends(PeerState& peer, int status, core::ProviderError why) noexcept {
  complete_sends(peer);
  peer.newest = nullptr;
  while (PendingSend* record = peer.pending_sends.pop_front()) {
    complete_record(peer, *record, status, why);
    pending_send_pool_.release(*record);
  }
  if (List<PeerState, PendingSendsHook>::linked(peer)) List<PeerState, PendingSendsHook>::remove(peer);
  WEFT_ASSERT(pending_send_pool_.in_use() != 0 || completing_.empty());
}

void EngineCore::drop_pending_sends(PeerState& peer) noexcept {
  peer.newest = nullptr;
  while (PendingSend* record = peer.pending_sends.pop_front()) pending_send_pool_.release(*record);
  if (List<PeerState, PendingSendsHook>::linked(peer)) List<PeerState, PendingSendsHook>::remove(peer);
}

bool EngineCore::has_completed_sends() noexcept {
  bool any = false;
  completing_.for_each([&](PeerState& peer) {
    WEFT_ASSERT(!peer.pending_sends.empty());
    any = any || peer.pending_sends.front()->sequence <= any_link_.completed_sequence(peer);
  });
  return any;
}

}  // namespace weft::proto
