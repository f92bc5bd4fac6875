// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EngineCore, part: frames that come in, apart from the eager tagged message (Engine::on_frame), RMA and atomics (target.cpp).
//
// Everything in a frame is hostile: ids are looked up with generation and peer, lengths and counts are checked against our own state,
// keys and addresses against the registered regions.
#include "proto/engine/engine_core.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.hpp"

namespace weft::proto {

namespace {

core::ProviderError provider_error_of(int status) noexcept {
  switch (status) {
    case FI_EKEYREJECTED:
      return core::ProviderError::RemoteKey;
    case FI_EACCES:
      return core::ProviderError::RemoteAccess;
    case FI_ENOMEM:
      return core::ProviderError::RemoteMemory;
    default:
      return core::ProviderError::None;
  }
}

}  // namespace

bool EngineCore::on_other_frame(PeerState& peer, const wire::FrameHead& head,
                                const std::byte* payload) noexcept {
  if (peer.lost) return true;
  using enum wire::FrameKind;
  switch (head.kind) {
    case Tagged:
      return true;  // handled by on_frame()
    case Msg:
      return on_message(peer, head, payload, false, false);
    case TaggedAck:
      return on_message(peer, head, payload, true, true);
    case MsgAck:
      return on_message(peer, head, payload, false, true);
    case TaggedRts:
      return on_rts(peer, head, payload, true);
    case MsgRts:
      return on_rts(peer, head, payload, false);
    case Cts:
      on_cts(peer, head, payload);
      return true;
    case Segment:
      on_segment(peer, head, payload);
      return true;
    case Done:
      on_done(peer, head);
      return true;
    case Write:
      responder_.on_write(peer, head, payload, false);
      return true;
    case WriteRts:
      responder_.on_write(peer, head, payload, true);
      return true;
    case Read:
      responder_.on_read(peer, head, payload);
      return true;
    case Atomic:
      responder_.on_atomic(peer, head, payload);
      return true;
    case Reply:
      on_reply(peer, head, payload);
      return true;
    case Pause:
      set_peer_pause(peer, true);
      return true;
    case Resume:
      set_peer_pause(peer, false);
      return true;
    case TaggedFirst:
      return on_first(peer, head, payload, true);
    case MsgFirst:
      return on_first(peer, head, payload, false);
    case More:
      on_more(peer, head, payload);
      return true;
    case Window:
      copy_.on_window(peer, head, payload);
      return true;
    case Met:
      copy_.on_met(peer, head);
      return true;
  }
  malformed(peer);
  return true;
}

void EngineCore::malformed(PeerState& peer) noexcept {
  if (peer.lost || std::find(failed_.begin(), failed_.end(), &peer) != failed_.end()) return;
  WEFT_ASSERT(failed_.size() < failed_.capacity());
  failed_.push_back(&peer);
  ++busy_;
  constexpr const char* what = "a frame does not belong to any operation or breaks the protocol";
  any_link_.warn_of_malformed(peer, what);
}

// --- messages ---

bool EngineCore::on_message(PeerState& peer, const wire::FrameHead& head, const std::byte* payload,
                            bool tagged, bool acked) noexcept {
  size_t left = head.length;
  wire::AckPrefix ack{0};
  if (acked && !wire::consume(payload, left, ack)) {
    malformed(peer);
    return true;
  }
  RxContext* rx = context_for(head);
  if (rx == nullptr) {
    if (acked) acknowledge(peer, ack.operation, FI_EINVAL);
    return true;
  }
  Op* op = rx->match(tagged, head.a, peer.fi_addr);
  wire::FrameHead message = head;
  message.length = static_cast<uint32_t>(left);
  if (op == nullptr) return rx->keep(peer, message, tagged, payload, left, ack.operation);
  rx->deliver(*op, peer, message, payload);
  if (acked) acknowledge(peer, ack.operation, 0);
  return true;
}

bool EngineCore::on_first(PeerState& peer, const wire::FrameHead& head, const std::byte* payload,
                          bool tagged) noexcept {
  size_t left = head.length;
  wire::FirstPrefix first;
  if (!wire::consume(payload, left, first)) {
    malformed(peer);
    return true;
  }
  return begin_fragmented(peer, head, payload, left, first.total, tagged);
}

// A message of `total` bytes begins, of which the first ones are here (none, perhaps). False: no memory.
bool EngineCore::begin_fragmented(PeerState& peer, const wire::FrameHead& head, const std::byte* payload,
                                  size_t arrived, uint64_t total, bool tagged) noexcept {
  if (arrived > total || total == 0 || total > traits_.fragmented_eager_bytes_max ||
      peer.fragmented_left != 0) {
    malformed(peer);
    return true;
  }
  WEFT_ASSERT(peer.fragmented_receive == nullptr && peer.fragmented_message == nullptr);
  RxContext* rx = context_for(head);
  if (rx != nullptr) {
    Op* op = rx->match(tagged, head.a, peer.fi_addr);
    if (op == nullptr) {
      peer.fragmented_message = rx->add_unexpected_fragmented(peer, head, tagged, total);
      if (peer.fragmented_message == nullptr) return false;
    } else {
      Unexpected message;  // the same shape as one that waited
      message.peer = &peer;
      message.tag = tagged ? head.a : 0;
      message.length = total;
      message.has_data = (head.flags & wire::has_data) != 0;
      message.data = message.has_data ? head.b : 0;
      peer.fragmented_receive = rx->begin(*op, message);  // null, without memory: the bytes go nowhere
      // A frame in parts has lost its stamp, and a short receive says nothing about the copy.
      const bool stamped = (head.flags & (wire::has_b | wire::has_data)) == wire::has_b;
      peer.fragmented_start =
          stamped && peer.fragmented_receive != nullptr && peer.fragmented_receive->total == total
              ? any_link_.begin_copy(peer, head.b)
              : 0;
    }
  }
  peer.fragmented_left = total;
  if (arrived == 0) return true;
  wire::FrameHead rest = head;
  rest.length = static_cast<uint32_t>(arrived);
  on_more(peer, rest, payload);
  return true;
}

void EngineCore::on_more(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  if (head.length == 0 || head.length > peer.fragmented_left) return malformed(peer);
  if (Op* op = peer.fragmented_receive; op != nullptr) {
    const size_t bytes = std::min<uint64_t>(head.length, op->total - op->done);
    WEFT_ASSERT(op->done <= op->total && op->rx != nullptr);
    if (op->iov_count == 1 && bytes > 0)
      std::memcpy(static_cast<std::byte*>(op->iov[0].iov_base) + op->done, payload, bytes);
    else (void)scatter(op->iov.data(), op->iov_count, op->done, payload, bytes);
  } else if (Unexpected* message = peer.fragmented_message; message != nullptr) {
    WEFT_ASSERT(message->length - message->arrived == peer.fragmented_left);
    std::memcpy(message->payload + message->arrived, payload, head.length);
  }
  more_arrived(peer, head.length);
}

// The next bytes of a fragmented message are where they belong.
void EngineCore::more_arrived(PeerState& peer, size_t bytes) noexcept {
  WEFT_ASSERT(bytes != 0 && bytes <= peer.fragmented_left);
  WEFT_ASSERT(peer.fragmented_receive == nullptr || peer.fragmented_message == nullptr);
  peer.fragmented_left -= bytes;
  if (Op* op = peer.fragmented_receive; op != nullptr) {
    op->done += std::min<uint64_t>(bytes, op->total - op->done);
    if (peer.fragmented_left != 0) return;
    peer.fragmented_receive = nullptr;
    any_link_.copied(peer, CopyPath::Ring, op->total, std::exchange(peer.fragmented_start, 0));
    WEFT_ASSERT(op->done == op->total);
    op->rx->finish(*op, 0, core::ProviderError::None);
  } else if (Unexpected* message = peer.fragmented_message; message != nullptr) {
    message->arrived += bytes;
    WEFT_ASSERT(message->arrived <= message->length);
    if (peer.fragmented_left == 0) peer.fragmented_message = nullptr;
  }
}

// --- frames in parts ---
//
// A segment or a fragment is as good as two shorter ones; an eager message is as good as a fragmented one. So a part is handled as a frame
// of its own, and nothing has to be remembered between two parts.

Land EngineCore::land(PeerState& peer, wire::FrameHead& head, const std::byte* payload, size_t arrived,
                      Landing& out) noexcept {
  using enum wire::FrameKind;
  wire::FrameHead part = head;
  part.length = static_cast<uint32_t>(arrived);
  switch (head.kind) {
    case Tagged:
    case Msg:
      if (head.length > traits_.fragmented_eager_bytes_max) return Land::Whole;
      if (!peer.lost && !begin_fragmented(peer, head, payload, arrived, head.length, head.kind == Tagged))
        return Land::Later;
      head.kind = More;
      break;
    case TaggedFirst:
    case MsgFirst:
      if (arrived < sizeof(wire::FirstPrefix)) return Land::Whole;
      if (!peer.lost && !on_first(peer, part, payload, head.kind == TaggedFirst)) return Land::Later;
      head.kind = More;
      break;
    case More:
      if (arrived != 0 && !peer.lost) on_more(peer, part, payload);
      break;
    case Segment:
      if (arrived != 0 && !peer.lost) on_segment(peer, part, payload);
      head.b += arrived;
      break;
    default:
      return Land::Whole;
  }
  WEFT_ASSERT(arrived <= head.length);
  head.length -= static_cast<uint32_t>(arrived);
  if (peer.lost) return Land::Here;
  if (head.kind == Segment) {
    if (Op* op = segment_op(peer, head); op != nullptr)
      out.count =
          slice(op->memory(), op->memory_count(), op->done, head.length, out.pieces, Landing::pieces_max);
  } else if (head.length > peer.fragmented_left) {
    malformed(peer);
  } else if (Op* op = peer.fragmented_receive; op != nullptr) {
    const size_t bytes = std::min<uint64_t>(head.length, op->total - op->done);
    out.count = slice(op->iov.data(), op->iov_count, op->done, bytes, out.pieces, Landing::pieces_max);
  } else if (Unexpected* message = peer.fragmented_message; message != nullptr) {
    out.pieces[0] = {message->payload + message->arrived, head.length};
    out.count = 1;
  }
  out.bytes = total_bytes(out.pieces, out.count);
  WEFT_ASSERT(out.bytes <= head.length && out.count <= Landing::pieces_max);
  return Land::Here;
}

void EngineCore::landed(PeerState& peer, wire::FrameHead& head, size_t bytes) noexcept {
  WEFT_ASSERT(bytes <= head.length);
  if (!peer.lost) {
    if (head.kind == wire::FrameKind::Segment) {
      if (Op* op = segment_op(peer, head); op != nullptr) segment_arrived(peer, *op, bytes);
    } else if (head.length <= peer.fragmented_left) {
      more_arrived(peer, bytes);
    }
  }
  if (head.kind == wire::FrameKind::Segment) head.b += bytes;
  head.length -= static_cast<uint32_t>(bytes);
}

bool EngineCore::parse_rts(const std::byte*& at, size_t& left, wire::RtsPrefix& rts,
                           wire::SourceSegment* segments) noexcept {
  if (!wire::consume(at, left, rts) || rts.segments > iov_max) return false;
  for (uint32_t i = 0; i < rts.segments; ++i)
    if (!wire::consume(at, left, segments[i])) return false;
  return true;
}

bool EngineCore::on_rts(PeerState& peer, const wire::FrameHead& head, const std::byte* payload,
                        bool tagged) noexcept {
  size_t left = head.length;
  wire::RtsPrefix rts;
  std::array<wire::SourceSegment, iov_max> segments{};
  if (!parse_rts(payload, left, rts, segments.data())) {
    malformed(peer);
    return true;
  }
  RxContext* rx = context_for(head);
  if (rx == nullptr) {
    acknowledge(peer, rts.operation, FI_EINVAL);
    return true;
  }
  Op* op = rx->match(tagged, head.a, peer.fi_addr);
  if (op == nullptr) return rx->add_unexpected_rendezvous(peer, head, tagged, rts, segments.data());
  Unexpected message;  // the same shape as one that waited
  message.peer = &peer;
  message.tag = tagged ? head.a : 0;
  message.source = peer.fi_addr;
  message.operation = rts.operation;
  message.length = rts.total;
  message.has_data = (head.flags & wire::has_data) != 0;
  message.data = message.has_data ? head.b : 0;
  message.stamp = rts.stamp;
  message.segments = rts.segments;
  message.source_segments = segments;
  rx->start(*op, message);
  return true;
}

Op* EngineCore::find_op(uint64_t id, const PeerState& peer) noexcept {
  Op* const op = find_op(id);
  return op != nullptr && op->peer == &peer ? op : nullptr;
}

Op* EngineCore::find_op(uint64_t id) noexcept {
  Op* op = nullptr;
  switch (OpTable::kind_of(id)) {
    case OpTableKind::Transmit:
      op = transmit_ops_.find(id);
      break;
    case OpTableKind::Service:
      op = service_ops_.find(id);
      break;
    case OpTableKind::Receive: {
      const size_t context = OpTable::context_of(id);
      if (context < rx_count_ && rx_[context] != nullptr) op = rx_[context]->ops.find(id);
      break;
    }
  }
  return op != nullptr && op->stage != OpStage::Posted ? op : nullptr;
}

void EngineCore::on_cts(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  size_t left = head.length;
  wire::CtsPrefix cts;
  Op* op = find_op(head.a, peer);
  const bool sound = wire::consume(payload, left, cts) && op != nullptr &&
                     OpTable::kind_of(head.a) == OpTableKind::Transmit && op->announced &&
                     op->stage == OpStage::Waiting && cts.length <= op->length;
  if (!sound) {
    malformed(peer);
    return;
  }
  op->announced = false;  // once: each time would cost the whole message, and a record of its completion
  op->remote = cts.operation;
  op->total = cts.length;
  op->done = 0;
  op->stage = OpStage::Streaming;
  WEFT_ASSERT(op->acked && !List<Op, QueueHook>::linked(*op));
  streams_.push_back(*op);
  ++busy_;
}

// The operation that a segment (or what is left of one) goes to. Null: there is none any more, or the peer is malformed.
Op* EngineCore::segment_op(PeerState& peer, const wire::FrameHead& head) noexcept {
  Op* op = find_op(head.a, peer);
  const size_t context = OpTable::context_of(head.a);
  if (op == nullptr && OpTable::kind_of(head.a) == OpTableKind::Receive &&
      (context >= rx_count_ || rx_[context] == nullptr))
    return nullptr;  // the context was closed in the middle
  const bool sound =
      op != nullptr &&
      (op->kind == OpKind::Receive || op->kind == OpKind::Inbound || op->kind == OpKind::Read) &&
      op->stage == OpStage::Waiting && head.b == op->done && head.length > 0 &&
      head.length <= op->total - op->done;
  if (sound) return op;
  malformed(peer);
  return nullptr;
}

void EngineCore::on_segment(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  Op* op = segment_op(peer, head);
  if (op == nullptr) return;
  if (op->memory_count() == 1)
    std::memcpy(static_cast<std::byte*>(op->memory()->iov_base) + op->done, payload, head.length);
  else (void)scatter(op->memory(), op->memory_count(), op->done, payload, head.length);
  segment_arrived(peer, *op, head.length);
}

// The next bytes of a transfer are where they belong.
void EngineCore::segment_arrived(PeerState& peer, Op& op, size_t bytes) noexcept {
  WEFT_ASSERT(bytes <= op.total - op.done);
  op.done += bytes;
  peer.heard = any_link_.stamp(peer);
  if (op.done < op.total) return;
  if (op.kind != OpKind::Read) any_link_.copied(peer, CopyPath::Ring, op.total, op.copy_start);
  if (op.kind == OpKind::Read) finish_transmit(op, 0, core::ProviderError::None);
  else finish_inbound(op, 0, core::ProviderError::None);
}

void EngineCore::on_done(PeerState& peer, const wire::FrameHead& head) noexcept {
  Op* op = find_op(head.a, peer);
  if (op == nullptr || OpTable::kind_of(head.a) != OpTableKind::Transmit || op->stage == OpStage::Queued) {
    malformed(peer);
    return;
  }
  const int status = (head.flags & wire::has_b) != 0 ? static_cast<int>(head.b & 0xffff) : 0;
  // A peer that wants no more, or lies: segments may still wait by reference.
  if (op->zero_copy_sequence > any_link_.completed_sequence(peer)) copy_out(peer);
  if (status == 0 && op->announced && op->done < op->length)
    any_link_.fetched_by(peer, op->length - op->done);
  finish_transmit(*op, status, provider_error_of(status));
}

// The receiving half of a transfer (or the serving half of a read) has ended.
void EngineCore::finish_inbound(Op& op, int status, core::ProviderError why) noexcept {
  PeerState& peer = *op.peer;
  const uint64_t remote = op.remote;
  copy_.end_meeting(op);
  WEFT_ASSERT(List<Op, InFlightHook>::linked(op) && !List<Op, QueueHook>::linked(op));
  WEFT_ASSERT(status != 0 || op.done == op.total);
  if (op.kind == OpKind::Receive) {
    if (peer.fragmented_receive == &op) peer.fragmented_receive = nullptr;
    op.rx->finish(op, status, why);
    if (status == 0) acknowledge(peer, remote, 0);
    return;
  }
  responder_.finish(op, status);
}

void EngineCore::on_reply(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  Op* op = find_op(head.a, peer);
  if (op == nullptr || op->kind != OpKind::Atomic || op->stage != OpStage::Waiting) return malformed(peer);
  const bool wanted = op->tx != &retired_;  // else its context was closed
  if (wanted && head.length != total_bytes(op->result.data(), op->result_count)) return malformed(peer);
  (void)scatter(op->result.data(), op->result_count, 0, payload, head.length);
  finish_transmit(*op, 0, core::ProviderError::None);
}

void EngineCore::start_rendezvous(Op& receive, const Unexpected& message) noexcept {
  copy_.begin(receive, message.stamp, message.source_segments.data(), message.segments);
}

void EngineCore::acknowledge(PeerState& peer, uint64_t operation, int status) noexcept {
  if (operation == 0) return;
  send_control(peer, wire::FrameKind::Done, status != 0 ? wire::has_b : 0, operation,
               static_cast<uint64_t>(status), {});
}

void EngineCore::set_pause(PeerState& peer, bool pause) noexcept {
  send_control(peer, pause ? wire::FrameKind::Pause : wire::FrameKind::Resume, 0, 0, 0, {});
}

void EngineCore::set_peer_pause(PeerState& peer, bool pause) noexcept {
  if (pause) shut(peer, PeerState::gate_paused);
  else peer.gate &= ~static_cast<uint32_t>(PeerState::gate_paused);
}

}  // namespace weft::proto
