// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EngineCore, part: operations on their way out.
//
// An operation goes at once when nothing stands before it and the link has room; else it waits in its peer's queue, in order. Messages up
// to eager_bytes_max carry their payload; larger ones (and all, when the peer asked for a pause) announce themselves with a
// ready-to-send frame and keep the payload until the receiver fetches it or asks for segments.
#include "proto/engine/engine_core.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/assert.hpp"

namespace weft::proto {

int EngineCore::validate_access(const Request& request, size_t length) noexcept {
  if (request.target_count == 0 || request.target_count > rma_iov_max) return -FI_EINVAL;
  size_t remote = 0;
  for (size_t i = 0; i < request.target_count; ++i) remote += request.targets[i].len;
  if (request.kind != OpKind::Atomic) return remote == length ? 0 : -FI_EINVAL;
  if (remote > atomic_bytes_max) return -FI_EMSGSIZE;
  if (!core::atomic_supported(request.datatype, request.atomic_op, request.atomic_kind))
    return -FI_EOPNOTSUPP;
  const bool has_operand = request.atomic_op != FI_ATOMIC_READ;
  if (has_operand && remote != length) return -FI_EINVAL;
  if (request.atomic_kind == core::AtomicKind::Compare &&
      total_bytes(request.compare, request.compare_count) != remote)
    return -FI_EINVAL;
  if (request.atomic_kind != core::AtomicKind::Write &&
      total_bytes(request.result, request.result_count) != remote)
    return -FI_EINVAL;
  return 0;
}

ssize_t EngineCore::post_op(TxContext& tx, PeerState& peer, uint8_t context, const Request& request,
                            size_t length) noexcept {
  const bool collects = may_collect(tx, peer, request, length);
  if (peer.collected != 0 && !collects) end_collection(peer);
  Op* taken = transmit_ops_.acquire();
  if (taken == nullptr) {
    progress();  // a program that only retries must still move
    return -FI_EAGAIN;
  }
  Op& op = *taken;
  WEFT_ASSERT(!op.acked && !op.unwatched && op.bounce == nullptr && op.region_count == 0);
  op.kind = request.kind;
  op.stage = OpStage::Queued;
  op.context = request.context;
  op.length = length;
  op.total = length;
  op.done = 0;
  op.zero_copy_sequence = 0;
  op.target_context = context;
  op.silent = request.silent;
  op.completes = !request.silent && tx.completes(request.flags);
  op.tagged = request.tagged;
  op.flags = request.flags;
  op.peer = &peer;
  op.tx = &tx;
  op.tag = request.tag;
  op.data = request.data;
  op.has_data = (request.flags & FI_REMOTE_CQ_DATA) != 0;
  op.acked = false;
  op.announced = op.windowed = false;
  op.early = request.silent || (request.flags & FI_INJECT_COMPLETE) != 0;
  op.extra_counter = request.extra_counter;
  op.iov_count = static_cast<uint8_t>(request.iov_count);
  std::copy_n(request.iov, request.iov_count, op.iov.begin());
  op.target_count = static_cast<uint8_t>(request.target_count);
  for (size_t i = 0; i < request.target_count; ++i)
    op.targets[i] = {request.targets[i].addr, request.targets[i].len, request.targets[i].key};
  if (op.kind == OpKind::Atomic) {
    op.datatype = request.datatype;
    op.atomic_op = request.atomic_op;
    op.atomic_kind = static_cast<uint32_t>(request.atomic_kind);
    op.compare_count = static_cast<uint8_t>(request.compare_count);
    op.result_count = static_cast<uint8_t>(request.result_count);
    std::copy_n(request.compare, request.compare_count, op.compare.begin());
    std::copy_n(request.result, request.result_count, op.result.begin());
  }
  if (collects) {
    collect(peer, op);
    return 0;
  }
  const bool copies_payload = length > any_link_.limits(peer).eager_bytes_max || peer.gate != 0;
  if ((op.flags & FI_INJECT) != 0 && copies_payload && !copy_source(op)) {
    release_transmit(op);
    return -FI_ENOMEM;
  }
  const bool fenced = (op.flags & FI_FENCE) != 0 && peer.unacknowledged > 0;
  if ((peer.gate & (PeerState::gate_queued | PeerState::gate_reserved)) == 0 && !fenced &&
      step(peer, op) == Step::Sent)
    return 0;
  if ((op.flags & FI_INJECT) != 0 && !op.bounce && !copy_source(op)) {
    release_transmit(op);
    return -FI_ENOMEM;
  }
  note_unwatched(op);
  enqueue(peer, op);
  return 0;
}

// Copies the source, and what a compare-and-swap compares with, so that the program has its buffers back (FI_INJECT).
bool EngineCore::copy_source(Op& op) noexcept {
  const size_t bytes = op.kind == OpKind::Read ? 0 : op.length;
  const bool compares =
      op.kind == OpKind::Atomic && op.atomic_kind == static_cast<uint32_t>(core::AtomicKind::Compare);
  const size_t compare_bytes = compares ? total_bytes(op.compare.data(), op.compare_count) : 0;
  if (bytes + compare_bytes == 0) return true;
  op.bounce.reset(new (std::nothrow) std::byte[bytes + compare_bytes]);
  if (!op.bounce) return false;
  (void)gather(op.bounce.get(), op.iov.data(), op.iov_count, 0, bytes);
  op.iov[0] = {op.bounce.get(), bytes};
  op.iov_count = 1;
  if (compares) {
    std::byte* behind = op.bounce.get() + bytes;
    (void)gather(behind, op.compare.data(), op.compare_count, 0, compare_bytes);
    op.compare[0] = {behind, compare_bytes};
    op.compare_count = 1;
  }
  return true;
}

// The program has the buffers of this operation back: what is still to be sent is copied, what is still to come goes nowhere. False: no memory.
bool EngineCore::give_back(Op& op) noexcept {
  const bool to_send = (!op.acked || op.announced || op.stage == OpStage::Streaming) && !is_forked_copy();
  if (to_send && !op.bounce && !copy_source(op)) return false;
  if (op.kind == OpKind::Read) op.iov_count = 0;
  op.result_count = 0;
  return true;
}

void EngineCore::enqueue(PeerState& peer, Op& op) noexcept {
  WEFT_ASSERT(!peer.lost && op.peer == &peer && !op.acked);
  op.stage = OpStage::Queued;
  if ((peer.gate & PeerState::gate_queued) == 0) {
    WEFT_ASSERT(blocked_peers_.size() < blocked_peers_.capacity());
    blocked_peers_.push_back(&peer);
    ++busy_;
    shut(peer, PeerState::gate_queued);
  }
  (op.kind == OpKind::Control ? peer.control : peer.queue).push_back(op);
}

EngineCore::Step EngineCore::step(PeerState& peer, Op& op) noexcept {
  WEFT_ASSERT(op.stage == OpStage::Queued && op.peer == &peer);
  switch (op.kind) {
    case OpKind::Send:
      return step_message(peer, op);
    case OpKind::Write:
    case OpKind::Read:
      return step_rma(peer, op);
    case OpKind::Atomic:
      return step_atomic(peer, op);
    default:
      return step_control(peer, op);
  }
}

void EngineCore::wait_for_peer(PeerState& peer, Op& op) noexcept {
  WEFT_ASSERT(!op.acked && op.stage == OpStage::Queued && op.peer == &peer);
  op.stage = OpStage::Waiting;
  note_unwatched(op);
  op.acked = true;
  ++peer.unacknowledged;
  if (op.kind != OpKind::Send) ++peer.accesses;
  peer.in_flight.push_back(op);
}

size_t EngineCore::fill_rts(const PeerState& peer, const Op& op, uint64_t id, std::byte* out) const noexcept {
  wire::RtsPrefix rts{id, op.length, 0, 0, 0};
  std::array<wire::SourceSegment, iov_max> segments{};
  if (any_link_.reads_memory(peer)) {
    rts.stamp = any_link_.stamp(peer);
    for (size_t i = 0; i < op.iov_count; ++i) {
      if (op.iov[i].iov_len == 0) continue;
      segments[rts.segments++] = {reinterpret_cast<uint64_t>(op.iov[i].iov_base), op.iov[i].iov_len};
    }
  }
  std::memcpy(out, &rts, sizeof(rts));
  std::memcpy(out + sizeof(rts), segments.data(), rts.segments * sizeof(wire::SourceSegment));
  return sizeof(rts) + rts.segments * sizeof(wire::SourceSegment);
}

EngineCore::Step EngineCore::step_message(PeerState& peer, Op& op) noexcept {
  const uint8_t flags = op.has_data ? wire::has_b | wire::has_data : 0;
  const bool wants_ack = (op.flags & acknowledged_flags) != 0;
  WEFT_ASSERT(op.kind == OpKind::Send && op.done <= op.length);
  const uint64_t id = transmit_ops_.id(op);
  std::array<std::byte, prefix_bytes_max> prefix;
  if (op.length <= any_link_.limits(peer).eager_bytes_max && (peer.gate & PeerState::gate_paused) == 0) {
    size_t prefix_bytes = 0;
    if (wants_ack) {
      const wire::AckPrefix ack{id};
      std::memcpy(prefix.data(), &ack, sizeof(ack));
      prefix_bytes = sizeof(ack);
    }
    const auto kind = wants_ack ? (op.tagged ? wire::FrameKind::TaggedAck : wire::FrameKind::MsgAck)
                                : (op.tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg);
    const wire::FrameHead head{
        kind, flags, op.target_context, static_cast<uint32_t>(op.length + prefix_bytes), op.tag, op.data};
    if (!any_link_.send_payload(peer, waits(op), true, op.flags, head, std::span(prefix.data(), prefix_bytes),
                                op.iov.data(), op.iov_count))
      return Step::Blocked;
    if (wants_ack) wait_for_peer(peer, op);
    else return finish_sent(peer, op);
    return Step::Sent;
  }
  if (op.length <= any_link_.limits(peer).fragmented_eager_bytes_max && !wants_ack &&
      (op.done > 0 || ((peer.gate & PeerState::gate_paused) == 0 && !is_wanted_announced(peer, op))))
    return step_fragments(peer, op);
  const size_t prefix_bytes = fill_rts(peer, op, id, prefix.data());
  const auto kind = op.tagged ? wire::FrameKind::TaggedRts : wire::FrameKind::MsgRts;
  const wire::FrameHead head{kind,   flags,  op.target_context, static_cast<uint32_t>(prefix_bytes),
                             op.tag, op.data};
  if (!any_link_.send(peer, head, std::span(prefix.data(), prefix_bytes), nullptr, 0)) return Step::Blocked;
  op.announced = true;
  wait_for_peer(peer, op);
  return Step::Sent;
}

// The peer would rather copy it from where it lies. Only when somebody waits for the completion: without, the program may close the endpoint any time.
bool EngineCore::is_wanted_announced(PeerState& peer, const Op& op) noexcept {
  if (op.early || !(op.completes || op.tx->sends != nullptr)) return false;
  return any_link_.announces(peer, op.length);
}

// A message of several frames that goes without asking: the receiver copies the first pieces while we copy the next. When room runs out
// the operation stays first in its peer's queue, so that nothing comes between its frames.
EngineCore::Step EngineCore::step_fragments(PeerState& peer, Op& op) noexcept {
  std::array<iovec, iov_max> parts;
  const size_t fragment = any_link_.limits(peer).fragment_bytes;
  while (op.done < op.length) {
    // The first piece is shorter, so that the receiver begins early.
    const size_t piece = op.done == 0 ? fragment / 2 : fragment;
    const size_t bytes = std::min<uint64_t>(piece, op.length - op.done);
    const size_t count = slice(op.iov.data(), op.iov_count, op.done, bytes, parts.data(), parts.size());
    WEFT_ASSERT(bytes != 0 && total_bytes(parts.data(), count) == bytes);
    const bool first = op.done == 0;
    const wire::FirstPrefix prefix{op.length};
    const size_t prefix_bytes = first ? sizeof(prefix) : 0;
    const auto kind = !first      ? wire::FrameKind::More
                      : op.tagged ? wire::FrameKind::TaggedFirst
                                  : wire::FrameKind::MsgFirst;
    const uint64_t stamp = first && !op.has_data ? any_link_.stamp(peer) : 0;
    const uint8_t flags = first && op.has_data ? wire::has_b | wire::has_data : stamp != 0 ? wire::has_b : 0;
    const wire::FrameHead head{kind,
                               flags,
                               op.target_context,
                               static_cast<uint32_t>(bytes + prefix_bytes),
                               op.tag,
                               op.has_data ? op.data : stamp};
    if (!any_link_.send_payload(peer, waits(op), op.done + bytes == op.length, op.flags, head,
                                std::as_bytes(std::span(&prefix, 1)).first(prefix_bytes), parts.data(),
                                count))
      return Step::Blocked;
    op.done += bytes;
  }
  return finish_sent(peer, op);
}

// The link has all of it.
EngineCore::Step EngineCore::finish_sent(PeerState& peer, Op& op) noexcept {
  WEFT_ASSERT(op.kind == OpKind::Send && !op.acked);
  if (waits(op) && hold(peer, op)) {
    note_deferred(*op.tx, peer, !op.completes);
    op.bounce.reset();
    release_transmit(op);
    return Step::Sent;
  }
  if (traits_.has_send_completion) note_quiet(peer, op.tagged, any_link_.sent_sequence(peer));
  finish_transmit(op, 0, core::ProviderError::None);
  return Step::Sent;
}

size_t EngineCore::fill_targets(const Op& op, std::byte* out) const noexcept {
  std::memcpy(out, op.targets.data(), op.target_count * sizeof(wire::RmaTarget));
  return op.target_count * sizeof(wire::RmaTarget);
}

// Moves the bytes without the peer, where the link can. True: the operation has ended.
bool EngineCore::access_memory(PeerState& peer, Op& op) noexcept {
  if (peer.accesses != 0 || op.has_data) return false;
  const bool done = any_link_.access(peer, op.kind == OpKind::Write, op.iov.data(), op.iov_count,
                                     op.targets.data(), op.target_count, op.length);
  WEFT_ASSERT(!op.acked);
  if (done) finish_transmit(op, 0, core::ProviderError::None);
  return done;
}

EngineCore::Step EngineCore::step_rma(PeerState& peer, Op& op) noexcept {
  if (access_memory(peer, op)) return Step::Sent;
  std::array<std::byte, prefix_bytes_max> prefix;
  const uint64_t id = transmit_ops_.id(op);
  const wire::RmaPrefix rma{op.length, op.target_count, 0};
  std::memcpy(prefix.data(), &rma, sizeof(rma));
  size_t prefix_bytes = sizeof(rma) + fill_targets(op, prefix.data() + sizeof(rma));
  const bool write = op.kind == OpKind::Write;
  const bool eager = write && op.length <= any_link_.limits(peer).eager_bytes_max;
  if (write && !eager) prefix_bytes += fill_rts(peer, op, id, prefix.data() + prefix_bytes);
  const auto kind = !write  ? wire::FrameKind::Read
                    : eager ? wire::FrameKind::Write
                            : wire::FrameKind::WriteRts;
  const uint8_t flags = write && op.has_data ? wire::has_b | wire::has_data : 0;
  const size_t payload = eager ? op.length : 0;
  const wire::FrameHead head{kind, flags,  op.target_context, static_cast<uint32_t>(prefix_bytes + payload),
                             id,   op.data};
  if (!any_link_.send(peer, head, std::span(prefix.data(), prefix_bytes), op.iov.data(),
                      eager ? op.iov_count : 0))
    return Step::Blocked;
  op.announced = write && !eager;
  wait_for_peer(peer, op);
  return Step::Sent;
}

EngineCore::Step EngineCore::step_atomic(PeerState& peer, Op& op) noexcept {
  std::array<std::byte, prefix_bytes_max> prefix;
  size_t remote = 0;
  for (size_t i = 0; i < op.target_count; ++i) remote += op.targets[i].length;
  const wire::AtomicPrefix atomic{op.datatype, op.atomic_op, op.atomic_kind, op.target_count, remote};
  std::memcpy(prefix.data(), &atomic, sizeof(atomic));
  const size_t prefix_bytes = sizeof(atomic) + fill_targets(op, prefix.data() + sizeof(atomic));
  std::array<iovec, 2 * iov_max> parts{};
  size_t count = 0;
  size_t payload = 0;
  const auto add = [&](const iovec* list, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      parts[count++] = list[i];
      payload += list[i].iov_len;
    }
  };
  if (op.atomic_op != FI_ATOMIC_READ) add(op.iov.data(), op.iov_count);
  if (op.atomic_kind == static_cast<uint32_t>(core::AtomicKind::Compare))
    add(op.compare.data(), op.compare_count);
  const uint8_t flags = op.has_data ? wire::has_b | wire::has_data : 0;
  const wire::FrameHead head{wire::FrameKind::Atomic, flags,
                             op.target_context,       static_cast<uint32_t>(prefix_bytes + payload),
                             transmit_ops_.id(op),    op.data};
  if (!any_link_.send(peer, head, std::span(prefix.data(), prefix_bytes), parts.data(), count))
    return Step::Blocked;
  wait_for_peer(peer, op);
  return Step::Sent;
}

EngineCore::Step EngineCore::step_control(PeerState& peer, Op& op) noexcept {
  WEFT_ASSERT(op.kind == OpKind::Control && (op.length == 0 || op.bounce != nullptr));
  const wire::FrameHead head{static_cast<wire::FrameKind>(op.frame_kind),
                             op.frame_flags,
                             0,
                             static_cast<uint32_t>(op.length),
                             op.remote,
                             op.data};
  if (!any_link_.send(peer, head, std::span(op.bounce.get(), op.length), nullptr, 0)) return Step::Blocked;
  op.bounce.reset();
  release_service(op);
  return Step::Sent;
}

// What is done for a peer. Null: it asks for more than an endpoint can, or memory is out.
Op* EngineCore::acquire_service(PeerState& peer) noexcept {
  Op* op = peer.served < served_max ? service_ops_.acquire() : nullptr;
  if (op == nullptr) return nullptr;
  op->peer = &peer;
  ++peer.served;
  WEFT_ASSERT(peer.served <= served_max);
  return op;
}

void EngineCore::release_service(Op& op) noexcept {
  WEFT_ASSERT(op.peer != nullptr && op.peer->served != 0);
  WEFT_ASSERT(op.region_count == 0 && op.meeting == 0);
  --op.peer->served;
  service_ops_.release(op);
}

// A frame of the protocol itself: goes at once or waits in the queue, never fails while there is memory.
void EngineCore::send_control(PeerState& peer, wire::FrameKind kind, uint8_t flags, uint64_t a, uint64_t b,
                              std::span<const std::byte> payload) noexcept {
  if (peer.lost) return;
  const wire::FrameHead head{kind, flags, 0, static_cast<uint32_t>(payload.size()), a, b};
  // Past operations that wait: behind one that is fenced it would wait for the peer, and the peer for it.
  if (peer.control.empty() && any_link_.send(peer, head, payload, nullptr, 0)) return;
  Op* op = acquire_service(peer);
  if (op != nullptr) {
    op->bounce.reset(payload.empty() ? nullptr : new (std::nothrow) std::byte[payload.size()]);
    if (!payload.empty() && !op->bounce) {
      release_service(*op);
      op = nullptr;
    }
  }
  if (op == nullptr) {
    malformed(peer);  // nothing can be said to it any more: cutting it off is the honest end
    return;
  }
  op->kind = OpKind::Control;
  op->frame_kind = static_cast<uint8_t>(kind);
  op->frame_flags = flags;
  op->remote = a;
  op->data = b;
  op->flags = 0;
  op->length = payload.size();
  if (!payload.empty()) std::memcpy(op->bounce.get(), payload.data(), payload.size());
  enqueue(peer, *op);
}

// --- work that waits for room ---

void EngineCore::attend() noexcept {
  if (attending_) return;
  attending_ = true;
  if (busy_ != 0) work();
  if (deferred_due_.exchange(0, std::memory_order_acquire) != 0 && deferred_runner_ != nullptr)
    deferred_runner_->run();
  attending_ = false;
}

void EngineCore::work() noexcept {
  for (size_t i = failed_.size(); i-- > 0;) {
    PeerState& peer = *failed_[i];
    WEFT_ASSERT(busy_ != 0);
    failed_.erase(failed_.begin() + static_cast<std::ptrdiff_t>(i));
    --busy_;
    any_link_.forget(peer);  // first: it then knows what has arrived
    fail_peer(peer, core::ProviderError::PeerMisbehaved);
    release_peer(peer);
  }
  copy_.go_on();
  for (size_t i = blocked_peers_.size(); i-- > 0;) flush(*blocked_peers_[i]);
  streams_.for_each([this](Op& op) {
    Op* moving = &op;
    WEFT_ASSERT(moving->stage == OpStage::Streaming && !moving->peer->lost);
    if (!stream(*moving)) return;
    List<Op, QueueHook>::remove(*moving);
    WEFT_ASSERT(busy_ != 0);
    --busy_;
    if (moving->kind == OpKind::Outbound) {
      finish_inbound(*moving, 0, core::ProviderError::None);
    } else {
      moving->stage = OpStage::Waiting;  // for Done
      hold_rendezvous(*moving->peer, *moving);
    }
  });
}

void EngineCore::flush(PeerState& peer) noexcept {
  WEFT_ASSERT((peer.gate & PeerState::gate_queued) != 0 && busy_ != 0);
  while (Op* op = peer.control.front()) {
    List<Op, QueueHook>::remove(*op);
    if (step_control(peer, *op) == Step::Blocked) {
      peer.control.push_front(*op);
      return;
    }
  }
  if (peer.collected != 0) access_collected(peer);
  while (Op* op = peer.queue.front()) {
    if ((peer.gate & PeerState::gate_reserved) != 0) return;  // behind what is written in place
    if ((op->flags & FI_FENCE) != 0 && peer.unacknowledged > 0) return;
    List<Op, QueueHook>::remove(*op);
    if (step(peer, *op) == Step::Blocked) {
      peer.queue.push_front(*op);
      return;
    }
  }
  peer.gate &= ~static_cast<uint32_t>(PeerState::gate_queued);
  std::erase(blocked_peers_, &peer);
  --busy_;
}

// Sends segments while there is room. True: all of them are on their way.
bool EngineCore::stream(Op& op) noexcept {
  WEFT_ASSERT(op.stage == OpStage::Streaming && op.done <= op.total);
  PeerState& peer = *op.peer;
  std::array<iovec, 16> parts;
  const size_t segment = any_link_.limits(peer).segment_bytes;
  while (op.done < op.total) {
    const size_t bytes = std::min<uint64_t>(segment, op.total - op.done);
    size_t count = slice(op.memory(), op.memory_count(), op.done, bytes, parts.data(), parts.size());
    const size_t covered = total_bytes(parts.data(), count);  // less when the pieces are many and small
    WEFT_ASSERT(covered != 0 && covered <= bytes);            // or there would be no end
    const wire::FrameHead head{wire::FrameKind::Segment,       wire::has_b, 0,
                               static_cast<uint32_t>(covered), op.remote,   op.done};
    if (op.done + covered == op.total && waits(op)) any_link_.request_ack(peer);
    if (!any_link_.send_segment(peer, op, head, parts.data(), count)) return false;
    op.done += covered;
  }
  return true;
}

// --- the end of an operation ---

void EngineCore::complete_transmit(TxContext& tx, const Op& op, int status,
                                   core::ProviderError why) noexcept {
  WEFT_ASSERT(!op.completes || (tx.cq != nullptr && !op.silent));
  WEFT_ASSERT(op.kind == OpKind::Send || op.kind == OpKind::Write || op.kind == OpKind::Read ||
              op.kind == OpKind::Atomic);
  const bool reads =
      op.kind == OpKind::Read ||
      (op.kind == OpKind::Atomic && op.atomic_kind != static_cast<uint32_t>(core::AtomicKind::Write));
  uint64_t flags = 0;
  core::Counter* counter = nullptr;
  switch (op.kind) {
    case OpKind::Send:
      flags = FI_SEND | (op.tagged ? FI_TAGGED : FI_MSG);
      counter = tx.sends;
      break;
    case OpKind::Atomic:
      flags = FI_ATOMIC | (reads ? FI_READ : FI_WRITE);
      counter = reads ? tx.reads : tx.writes;
      break;
    default:
      flags = FI_RMA | (reads ? FI_READ : FI_WRITE);
      counter = reads ? tx.reads : tx.writes;
  }
  if (status != 0) {
    errors_.push({*op.peer, tx, op.context, flags, op.tag, op.silent}, status, why);
    if (counter != nullptr) counter->add_error(1);
    if (op.extra_counter != nullptr) op.extra_counter->add_error(1);
    return;
  }
  if (!op.peer->lost) note_deferred(tx, *op.peer, !op.completes);  // of a lost one the link has nothing left
  if (op.completes)
    tx.cq->push(
        {op.context, flags, op.length, nullptr, 0, op.kind == OpKind::Send ? op.tag : 0, FI_ADDR_NOTAVAIL});
  if (counter != nullptr) counter->add(1);
  if (op.extra_counter != nullptr) op.extra_counter->add(1);
}

void EngineCore::finish_transmit(Op& op, int status, core::ProviderError why) noexcept {
  if (status == 0 && op.kind == OpKind::Read) fetched_bytes_ += op.length;
  if (status == 0 && op.kind == OpKind::Atomic)
    fetched_bytes_ += total_bytes(op.result.data(), op.result_count);
  if (op.acked) {
    if (status == 0) errors_.reached(op.peer->av_address);
    WEFT_ASSERT(op.peer->unacknowledged != 0 && (op.kind == OpKind::Send || op.peer->accesses != 0));
    List<Op, InFlightHook>::remove(op);
    --op.peer->unacknowledged;
    if (op.kind != OpKind::Send) --op.peer->accesses;
    op.acked = false;
  }
  if (op.stage == OpStage::Streaming && List<Op, QueueHook>::linked(op)) {
    List<Op, QueueHook>::remove(op);  // the peer ended it early
    --busy_;
  }
  complete_transmit(*op.tx, op, status, why);
  op.bounce.reset();
  release_transmit(op);
}

}  // namespace weft::proto
