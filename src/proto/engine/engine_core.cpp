// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EngineCore, part: contexts, queues, counts, closing.
#include "proto/engine/engine_core.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace weft::proto {

void EngineCore::set_receive_context(size_t index, RxContext* context) {
  if (rx_storage_.size() <= index) rx_storage_.resize(index + 1, nullptr);
  rx_storage_[index] = context;
  rx_ = rx_storage_.data();
  rx_count_ = rx_storage_.size();
  rx_first_ = rx_[0];
}

EngineCounts EngineCore::counts() const noexcept {
  EngineCounts now;
  now.sent = sent_;
  now.received = received_before_;
  now.bytes_sent = sent_bytes_;
  now.unreported = errors_.unreported();
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

void EngineCore::release_receive_context(size_t index) noexcept {
  if (index >= rx_count_ || rx_[index] == nullptr) return;
  RxContext* context = rx_[index];
  drop_loans(*context);
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
      if (!is_forked_copy()) copy_.end_meeting(op);
      List<Op, InFlightHook>::remove(op);
      acknowledge(*peer, op.remote, FI_EINVAL);
      context->ops.release(op);
    });
  }
}

// What was accepted goes on without its buffers, and completes in silence.
void EngineCore::release_transmit_context(const TxContext& context) noexcept {
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
  errors_.release(context);
  for (auto& peer : peers_) {
    if (!is_forked_copy()) end_collection(*peer);
    copy_out(*peer);
    peer->queue.for_each(retire);
    while (Op* op = peer->queue.find(is_stuck)) {
      List<Op, QueueHook>::remove(*op);
      release_transmit(*op);
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

void EngineCore::add_queue(core::CompletionQueue* queue) {
  if (std::find(queues_.begin(), queues_.end(), queue) == queues_.end()) queues_.push_back(queue);
  choose_sole_queue();
}

void EngineCore::abandon() noexcept {
  for (auto& peer : peers_) peer->lost = true;  // nothing more is said to them
  drop_cached_destination();
  for (auto& peer : peers_) {
    copy_out(*peer);
    drop_pending_sends(*peer);
    while (Op* op = peer->control.pop_front()) release_service(*op);
    peer->collected = 0;
    while (Op* op = peer->queue.pop_front()) release_transmit(*op);
    while (Op* op = peer->in_flight.front()) {
      if (!is_forked_copy()) copy_.end_meeting(*op);
      if (op->kind == OpKind::Receive && op->rx->shared) {  // the receive belongs to a context that stays
        op->rx->finish(*op, FI_ECANCELED, core::ProviderError::Cancelled);
        continue;
      }
      List<Op, InFlightHook>::remove(*op);
      if (op->stage == OpStage::Streaming) List<Op, QueueHook>::remove(*op);
      responder_.release_regions(*op);
      if (op->kind == OpKind::Receive) op->rx->ops.release(*op);
      else if (op->kind == OpKind::Inbound || op->kind == OpKind::Outbound) release_service(*op);
      else release_transmit(*op);
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
  copy_.clear();
  busy_ = 0;
  rx_count_ = 0;  // the contexts may go before us
  rx_first_ = nullptr;
}

ssize_t EngineCore::cancel(const void* context) noexcept {
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
