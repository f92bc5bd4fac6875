// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: operations on their way out. Included by engine.hpp.
//
// An operation goes at once when nothing stands before it and the link has room; else it waits in its peer's queue, in order. Messages up
// to eager_bytes_max carry their payload; larger ones (and all, when the peer asked for a pause) announce themselves with a
// ready-to-send frame and keep the payload until the receiver fetches it or asks for segments.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

inline constexpr uint32_t calls_without_poll_max = 16;
inline constexpr uint32_t served_max = 1U
                                       << 16;  // of one peer; an endpoint has far fewer operations under way
inline constexpr size_t prefix_bytes_max = 256;  // RmaPrefix, targets, RtsPrefix and source segments together

// A small frame is out; what is left is rare.
template <Link L>
ssize_t Engine<L>::after_small(TxContext& tx, Peer& peer, size_t length, SmallSend sent, bool tagged,
                               bool silent) noexcept {
  if (sent == SmallSend::Unseen) tell(peer);
  if (silent) note_quiet(peer, tagged);
  mind_kept(tx, peer, silent);
  count_sent(length);
  if (tx.sends != nullptr) tx.sends->add(1);
  return 0;
}

// The receiver is told of a small frame that it does not see by itself.
template <Link L>
void Engine<L>::tell(Peer& peer) noexcept {
  visit_side(link_, peer, []<class S>(S& side, auto& part) {
    if constexpr (HasSmallFrames<S>) side.tell(part);
  });
}

// A small frame by the side that the peer is reached through. Refused: also when it is too long for a small one there.
template <Link L>
SmallSend Engine<L>::send_small_to_side(Peer& peer, const wire::FrameHead& head,
                                        const void* buffer) noexcept {
  return visit_side_to_send(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasSmallFrames<S>)
      if (head.length <= S::small_bytes_max) return side.send_small(part, head, buffer);
    return SmallSend::Refused;
  });
}

template <Link L>
ssize_t Engine<L>::inject_slow(TxContext& tx, bool tagged, const void* buffer, size_t length, fi_addr_t dest,
                               uint64_t tag) noexcept {
  if constexpr (has_small_credit<L>) {
    Peer* peer = cached_peer(dest);
    // Counted like a post(), which polls when there were enough of them.
    if (peer != nullptr && peer->gate == 0 && length <= L::small_bytes_max &&
        ++calls_since_poll_ <= calls_without_poll_max && link_.more_room(*peer)) {
      const wire::FrameHead head{tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                                 0,
                                 0,
                                 static_cast<uint32_t>(length),
                                 tag,
                                 0};
      const SmallSend sent = link_.send_small(*peer, head, buffer);
      if (sent != SmallSend::Refused) return after_small(tx, *peer, length, sent, tagged, true);
    }
  }
  if constexpr (HasSides<L>) {  // the peer of another side than SmallSide
    Peer* peer = cached_peer(dest);
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
  Peer* peer = cached_peer(dest);
  if (peer != nullptr && peer->gate == 0 && !counts_sends_) cached_destination_ = {dest, peer};
  else drop_cached_destination();
  return status;
}

template <Link L>
ssize_t Engine<L>::send_slow(TxContext& tx, bool tagged, const void* buffer, size_t length, fi_addr_t dest,
                             uint64_t tag, void* context) noexcept {
  if constexpr (HasSides<L>) {
    Peer* peer = cached_peer(dest);
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
int Engine<L>::validate(const Request& request, size_t length) const noexcept {
  if (request.iov_count > iov_max || request.compare_count > iov_max || request.result_count > iov_max)
    return -FI_EINVAL;
  if ((request.flags & FI_INJECT) != 0 && length > limits_.inject_bytes) return -FI_EMSGSIZE;
  if (request.kind == OpKind::Send) return 0;
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
  Peer* peer = find_peer(request.dest, context, error);
  if (peer == nullptr) return -error;
  reporting_ = &tx;
  const bool acked = (request.flags & acknowledged_flags) != 0 || (request.flags & FI_FENCE) != 0;
  if (request.kind == OpKind::Send && peer->gate == 0 && length <= limits_for(*peer).eager_bytes_max &&
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
bool Engine<L>::send_at_once(TxContext& tx, Peer& peer, uint8_t context, const Request& request,
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
      record = pending_send_pool_.take();
      if (record == nullptr) return false;
    }
  }
  if (!send_payload(peer, record != nullptr, true, request.flags, head, {}, request.iov, request.iov_count)) {
    if (record != nullptr) pending_send_pool_.give(*record);
    return false;
  }
  if (record != nullptr && !is_send_complete(peer)) {
    record->context = request.context;
    record->tag = request.tag;
    record->length = length;
    record->tx = &tx;
    record->extra_counter = request.extra_counter;
    record->completes = !request.silent && tx.completes(request.flags);
    record->silent = request.silent;
    record->tagged = request.tagged;
    record->rendezvous = false;
    hold(peer, *record);
    mind_kept(tx, peer, !record->completes);
    return true;
  }
  if (record != nullptr) pending_send_pool_.give(*record);
  note_quiet(peer, request.tagged);
  if (!request.silent && tx.completes(request.flags))
    tx.cq->push({request.context, request.tagged ? FI_SEND | FI_TAGGED : FI_SEND | FI_MSG, length, nullptr, 0,
                 request.tag, FI_ADDR_NOTAVAIL});
  if (tx.sends != nullptr) tx.sends->add(1);
  if (request.extra_counter != nullptr) request.extra_counter->add(1);
  mind_kept(tx, peer, request.silent || !tx.completes(request.flags));
  return true;
}

template <Link L>
ssize_t Engine<L>::post_op(TxContext& tx, Peer& peer, uint8_t context, const Request& request,
                           size_t length) noexcept {
  const bool collects = may_collect(tx, peer, request, length);
  if (peer.collected != 0 && !collects) end_collection(peer);
  Op* taken = transmit_ops_.take();
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
  const bool keeps_payload = length > limits_for(peer).eager_bytes_max || peer.gate != 0;
  if ((op.flags & FI_INJECT) != 0 && keeps_payload && !own_bytes(op)) {
    give_transmit(op);
    return -FI_ENOMEM;
  }
  const bool fenced = (op.flags & FI_FENCE) != 0 && peer.unacknowledged > 0;
  if ((peer.gate & (PeerState::gate_queued | PeerState::gate_reserved)) == 0 && !fenced &&
      step(peer, op) == Step::Sent)
    return 0;
  if ((op.flags & FI_INJECT) != 0 && !op.bounce && !own_bytes(op)) {
    give_transmit(op);
    return -FI_ENOMEM;
  }
  note_unwatched(op);
  enqueue(peer, op);
  return 0;
}

// Copies the source, and what a compare-and-swap compares with, so that the program has its buffers back (FI_INJECT).
template <Link L>
bool Engine<L>::own_bytes(Op& op) noexcept {
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

template <Link L>
void Engine<L>::enqueue(Peer& peer, Op& op) noexcept {
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

template <Link L>
typename Engine<L>::Step Engine<L>::step(Peer& peer, Op& op) noexcept {
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

template <Link L>
void Engine<L>::wait_for_peer(Peer& peer, Op& op) noexcept {
  WEFT_ASSERT(!op.acked && op.stage == OpStage::Queued && op.peer == &peer);
  op.stage = OpStage::Waiting;
  note_unwatched(op);
  op.acked = true;
  ++peer.unacknowledged;
  if (op.kind != OpKind::Send) ++peer.accesses;
  peer.in_flight.push_back(op);
}

template <Link L>
size_t Engine<L>::fill_rts(const Peer& peer, const Op& op, uint64_t id, std::byte* out) const noexcept {
  wire::RtsPrefix rts{id, op.length, 0, 0, 0};
  std::array<wire::SourceSegment, iov_max> segments{};
  visit_side(link_, peer, [&](auto& side, auto&) {
    if constexpr (HasRemoteMemory<Bare<decltype(side)>>) {
      rts.stamp = side.stamp();
      for (size_t i = 0; i < op.iov_count; ++i) {
        if (op.iov[i].iov_len == 0) continue;
        segments[rts.segments++] = {reinterpret_cast<uint64_t>(op.iov[i].iov_base), op.iov[i].iov_len};
      }
    }
  });
  std::memcpy(out, &rts, sizeof(rts));
  std::memcpy(out + sizeof(rts), segments.data(), rts.segments * sizeof(wire::SourceSegment));
  return sizeof(rts) + rts.segments * sizeof(wire::SourceSegment);
}

template <Link L>
typename Engine<L>::Step Engine<L>::step_message(Peer& peer, Op& op) noexcept {
  const uint8_t flags = op.has_data ? wire::has_b | wire::has_data : 0;
  const bool wants_ack = (op.flags & acknowledged_flags) != 0;
  WEFT_ASSERT(op.kind == OpKind::Send && op.done <= op.length);
  const uint64_t id = transmit_ops_.id(op);
  std::array<std::byte, prefix_bytes_max> prefix;
  if (op.length <= limits_for(peer).eager_bytes_max && (peer.gate & PeerState::gate_paused) == 0) {
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
    if (!send_payload(peer, waits(op), true, op.flags, head, std::span(prefix.data(), prefix_bytes),
                      op.iov.data(), op.iov_count))
      return Step::Blocked;
    if (wants_ack) wait_for_peer(peer, op);
    else return finish_sent(peer, op);
    return Step::Sent;
  }
  if (op.length <= limits_for(peer).fragmented_eager_bytes_max && !wants_ack &&
      (op.done > 0 || ((peer.gate & PeerState::gate_paused) == 0 && !is_wanted_announced(peer, op))))
    return step_fragments(peer, op);
  const size_t prefix_bytes = fill_rts(peer, op, id, prefix.data());
  const auto kind = op.tagged ? wire::FrameKind::TaggedRts : wire::FrameKind::MsgRts;
  const wire::FrameHead head{kind,   flags,  op.target_context, static_cast<uint32_t>(prefix_bytes),
                             op.tag, op.data};
  if (!link_.send(peer, head, std::span(prefix.data(), prefix_bytes), nullptr, 0)) return Step::Blocked;
  op.announced = true;
  wait_for_peer(peer, op);
  return Step::Sent;
}

// The peer would rather copy it from where it lies. Only when somebody waits for the completion: without, the program may close the endpoint any time.
template <Link L>
bool Engine<L>::is_wanted_announced(Peer& peer, const Op& op) noexcept {
  if (op.early || !(op.completes || op.tx->sends != nullptr)) return false;
  return visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasRemoteMemory<S>) return side.announces(part, op.length);
    else return false;
  });
}

// Link time, where the receiver measures copies.
template <Link L>
uint64_t Engine<L>::stamp_for(Peer& peer) noexcept {
  return visit_side(link_, peer, []<class S>(S& side, auto&) -> uint64_t {
    if constexpr (HasRemoteMemory<S>) return side.stamp();
    else return 0;
  });
}

// A message of several frames that goes without asking: the receiver copies the first pieces while we copy the next. When room runs out
// the operation stays first in its peer's queue, so that nothing comes between its frames.
template <Link L>
typename Engine<L>::Step Engine<L>::step_fragments(Peer& peer, Op& op) noexcept {
  std::array<iovec, iov_max> parts;
  const size_t fragment = limits_for(peer).fragment_bytes;
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
    const uint64_t stamp = first && !op.has_data ? stamp_for(peer) : 0;
    const uint8_t flags = first && op.has_data ? wire::has_b | wire::has_data : stamp != 0 ? wire::has_b : 0;
    const wire::FrameHead head{kind,
                               flags,
                               op.target_context,
                               static_cast<uint32_t>(bytes + prefix_bytes),
                               op.tag,
                               op.has_data ? op.data : stamp};
    if (!send_payload(peer, waits(op), op.done + bytes == op.length, op.flags, head,
                      std::as_bytes(std::span(&prefix, 1)).first(prefix_bytes), parts.data(), count))
      return Step::Blocked;
    op.done += bytes;
  }
  return finish_sent(peer, op);
}

// The link has all of it.
template <Link L>
typename Engine<L>::Step Engine<L>::finish_sent(Peer& peer, Op& op) noexcept {
  WEFT_ASSERT(op.kind == OpKind::Send && !op.acked);
  if (waits(op) && hold(peer, op)) {
    mind_kept(*op.tx, peer, !op.completes);
    op.bounce.reset();
    give_transmit(op);
    return Step::Sent;
  }
  note_quiet(peer, op.tagged);
  finish_transmit(op, 0, core::ProviderError::None);
  return Step::Sent;
}

template <Link L>
size_t Engine<L>::fill_targets(const Op& op, std::byte* out) const noexcept {
  std::memcpy(out, op.targets.data(), op.target_count * sizeof(wire::RmaTarget));
  return op.target_count * sizeof(wire::RmaTarget);
}

// Moves the bytes without the peer, where the link can. True: the operation has ended.
template <Link L>
bool Engine<L>::access_memory(Peer& peer, Op& op) noexcept {
  if (peer.accesses != 0 || op.has_data) return false;
  const bool done = visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasRemoteMemory<S>)
      return side.access(part, op.kind == OpKind::Write, op.iov.data(), op.iov_count, op.targets.data(),
                         op.target_count, op.length);
    else return false;
  });
  WEFT_ASSERT(!op.acked);
  if (done) finish_transmit(op, 0, core::ProviderError::None);
  return done;
}

template <Link L>
typename Engine<L>::Step Engine<L>::step_rma(Peer& peer, Op& op) noexcept {
  if (access_memory(peer, op)) return Step::Sent;
  std::array<std::byte, prefix_bytes_max> prefix;
  const uint64_t id = transmit_ops_.id(op);
  const wire::RmaPrefix rma{op.length, op.target_count, 0};
  std::memcpy(prefix.data(), &rma, sizeof(rma));
  size_t prefix_bytes = sizeof(rma) + fill_targets(op, prefix.data() + sizeof(rma));
  const bool write = op.kind == OpKind::Write;
  const bool eager = write && op.length <= limits_for(peer).eager_bytes_max;
  if (write && !eager) prefix_bytes += fill_rts(peer, op, id, prefix.data() + prefix_bytes);
  const auto kind = !write  ? wire::FrameKind::Read
                    : eager ? wire::FrameKind::Write
                            : wire::FrameKind::WriteRts;
  const uint8_t flags = write && op.has_data ? wire::has_b | wire::has_data : 0;
  const size_t payload = eager ? op.length : 0;
  const wire::FrameHead head{kind, flags,  op.target_context, static_cast<uint32_t>(prefix_bytes + payload),
                             id,   op.data};
  if (!link_.send(peer, head, std::span(prefix.data(), prefix_bytes), op.iov.data(),
                  eager ? op.iov_count : 0))
    return Step::Blocked;
  op.announced = write && !eager;
  wait_for_peer(peer, op);
  return Step::Sent;
}

template <Link L>
typename Engine<L>::Step Engine<L>::step_atomic(Peer& peer, Op& op) noexcept {
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
  if (!link_.send(peer, head, std::span(prefix.data(), prefix_bytes), parts.data(), count))
    return Step::Blocked;
  wait_for_peer(peer, op);
  return Step::Sent;
}

template <Link L>
typename Engine<L>::Step Engine<L>::step_control(Peer& peer, Op& op) noexcept {
  WEFT_ASSERT(op.kind == OpKind::Control && (op.length == 0 || op.bounce != nullptr));
  const wire::FrameHead head{static_cast<wire::FrameKind>(op.frame_kind),
                             op.frame_flags,
                             0,
                             static_cast<uint32_t>(op.length),
                             op.remote,
                             op.data};
  if (!link_.send(peer, head, std::span(op.bounce.get(), op.length), nullptr, 0)) return Step::Blocked;
  op.bounce.reset();
  give_service(op);
  return Step::Sent;
}

// What is done for a peer. Null: it asks for more than an endpoint can, or memory is out.
template <Link L>
Op* Engine<L>::take_service(Peer& peer) noexcept {
  Op* op = peer.served < served_max ? service_ops_.take() : nullptr;
  if (op == nullptr) return nullptr;
  op->peer = &peer;
  ++peer.served;
  WEFT_ASSERT(peer.served <= served_max);
  return op;
}

template <Link L>
void Engine<L>::give_service(Op& op) noexcept {
  WEFT_ASSERT(op.peer != nullptr && op.peer->served != 0);
  WEFT_ASSERT(op.region_count == 0 && op.meeting == 0);
  --op.peer->served;
  service_ops_.give(op);
}

// A frame of the protocol itself: goes at once or waits in the queue, never fails while there is memory.
template <Link L>
void Engine<L>::send_control(Peer& peer, wire::FrameKind kind, uint8_t flags, uint64_t a, uint64_t b,
                             std::span<const std::byte> payload) noexcept {
  if (peer.lost) return;
  const wire::FrameHead head{kind, flags, 0, static_cast<uint32_t>(payload.size()), a, b};
  // Past operations that wait: behind one that is fenced it would wait for the peer, and the peer for it.
  if (peer.control.empty() && link_.send(peer, head, payload, nullptr, 0)) return;
  Op* op = take_service(peer);
  if (op != nullptr) {
    op->bounce.reset(payload.empty() ? nullptr : new (std::nothrow) std::byte[payload.size()]);
    if (!payload.empty() && !op->bounce) {
      give_service(*op);
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

template <Link L>
void Engine<L>::attend() noexcept {
  if (attending_) return;
  attending_ = true;
  if (busy_ != 0) work();
  if (deferred_due_.exchange(0, std::memory_order_acquire) != 0 && deferred_runner_ != nullptr)
    deferred_runner_->run();
  attending_ = false;
}

template <Link L>
void Engine<L>::work() noexcept {
  for (size_t i = failed_.size(); i-- > 0;) {
    Peer& peer = *failed_[i];
    WEFT_ASSERT(busy_ != 0);
    failed_.erase(failed_.begin() + static_cast<std::ptrdiff_t>(i));
    --busy_;
    link_.forget(peer);  // first: it then knows what has arrived
    fail_peer(peer, core::ProviderError::PeerMisbehaved);
    release_peer(peer);
  }
  if (copy_count_ != 0) (void)copy_on();
  if (assist_count_ != 0) assist_on();
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
      hold_rendezvous(full(*moving->peer), *moving);
    }
  });
}

template <Link L>
void Engine<L>::flush(Peer& peer) noexcept {
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
template <Link L>
bool Engine<L>::stream(Op& op) noexcept {
  WEFT_ASSERT(op.stage == OpStage::Streaming && op.done <= op.total);
  Peer& peer = full(*op.peer);
  std::array<iovec, 16> parts;
  const size_t segment = limits_for(peer).segment_bytes;
  while (op.done < op.total) {
    const size_t bytes = std::min<uint64_t>(segment, op.total - op.done);
    size_t count = slice(op.memory(), op.memory_count(), op.done, bytes, parts.data(), parts.size());
    const size_t covered = total_bytes(parts.data(), count);  // less when the pieces are many and small
    WEFT_ASSERT(covered != 0 && covered <= bytes);            // or there would be no end
    const wire::FrameHead head{wire::FrameKind::Segment,       wire::has_b, 0,
                               static_cast<uint32_t>(covered), op.remote,   op.done};
    if (op.done + covered == op.total && waits(op)) request_ack(peer);
    if (!send_segment(peer, op, head, parts.data(), count)) return false;
    op.done += covered;
  }
  return true;
}

// The source of a message or a write stays until Done, so its segments may leave from there. What a peer reads is
// released before that.
template <Link L>
bool Engine<L>::send_segment(Peer& peer, Op& op, const wire::FrameHead& head, const iovec* parts,
                             size_t part_count) noexcept {
  return visit_side_to_send(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasZeroCopyFrames<S>) {
      if (op.kind != OpKind::Outbound) {
        if (!side.send_zero_copy(part, head, {}, parts, part_count)) return false;
        op.zero_copy_sequence = side.sent_sequence(part);
        return true;
      }
    }
    return side.send(part, head, {}, parts, part_count);
  });
}

// --- the end of an operation ---

template <Link L>
void Engine<L>::complete_transmit(TxContext& tx, const Op& op, int status, core::ProviderError why) noexcept {
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
    push_failure({full(*op.peer), tx, op.context, flags, op.tag, op.silent}, status, why);
    if (counter != nullptr) counter->add_error(1);
    if (op.extra_counter != nullptr) op.extra_counter->add_error(1);
    return;
  }
  if (!op.peer->lost)
    mind_kept(tx, full(*op.peer), !op.completes);  // of a lost one the link has nothing left
  if (op.completes)
    tx.cq->push(
        {op.context, flags, op.length, nullptr, 0, op.kind == OpKind::Send ? op.tag : 0, FI_ADDR_NOTAVAIL});
  if (counter != nullptr) counter->add(1);
  if (op.extra_counter != nullptr) op.extra_counter->add(1);
}

template <Link L>
void Engine<L>::finish_transmit(Op& op, int status, core::ProviderError why) noexcept {
  if (status == 0 && op.kind == OpKind::Read) fetched_bytes_ += op.length;
  if (status == 0 && op.kind == OpKind::Atomic)
    fetched_bytes_ += total_bytes(op.result.data(), op.result_count);
  if (op.acked) {
    if (owed_count_ != 0 && status == 0) (void)forget_owed(op.peer->av_address);  // it lives again
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
  give_transmit(op);
}

}  // namespace weft::proto
