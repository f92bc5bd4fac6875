// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: frames that come in, apart from the eager tagged message. Included by engine.hpp.
//
// Everything in a frame is hostile: ids are looked up with generation and peer, lengths and counts are checked against our own state,
// keys and addresses against the registered regions.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

inline core::ProviderError provider_error_of(int status) noexcept {
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

template <Link L>
bool Engine<L>::on_other_frame(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
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
      on_write(peer, head, payload, false);
      return true;
    case WriteRts:
      on_write(peer, head, payload, true);
      return true;
    case Read:
      on_read(peer, head, payload);
      return true;
    case Atomic:
      on_atomic(peer, head, payload);
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
      on_window(peer, head, payload);
      return true;
    case Met:
      on_met(peer, head);
      return true;
  }
  malformed(peer);
  return true;
}

template <Link L>
void Engine<L>::malformed(Peer& peer) noexcept {
  if (peer.lost || std::find(failed_.begin(), failed_.end(), &peer) != failed_.end()) return;
  WEFT_ASSERT(failed_.size() < failed_.capacity());
  failed_.push_back(&peer);
  ++busy_;
  constexpr const char* what = "a frame does not belong to any operation or breaks the protocol";
  link_.warn_of_malformed(peer, what);
}

// --- messages ---

template <Link L>
bool Engine<L>::on_message(Peer& peer, const wire::FrameHead& head, const std::byte* payload, bool tagged,
                           bool acked) noexcept {
  size_t left = head.length;
  wire::AckPrefix ack{0};
  if (acked && !wire::take(payload, left, ack)) {
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

template <Link L>
bool Engine<L>::on_first(Peer& peer, const wire::FrameHead& head, const std::byte* payload,
                         bool tagged) noexcept {
  size_t left = head.length;
  wire::FirstPrefix first;
  if (!wire::take(payload, left, first)) {
    malformed(peer);
    return true;
  }
  return begin_fragmented(peer, head, payload, left, first.total, tagged);
}

// A message of `total` bytes begins, of which the first ones are here (none, perhaps). False: no memory.
template <Link L>
bool Engine<L>::begin_fragmented(Peer& peer, const wire::FrameHead& head, const std::byte* payload,
                                 size_t arrived, uint64_t total, bool tagged) noexcept {
  if (arrived > total || total == 0 || total > L::fragmented_eager_bytes_max || peer.fragmented_left != 0) {
    malformed(peer);
    return true;
  }
  WEFT_ASSERT(peer.fragmented_receive == nullptr && peer.fragmented_message == nullptr);
  RxContext* rx = context_for(head);
  if (rx != nullptr) {
    Op* op = rx->match(tagged, head.a, peer.fi_addr);
    if (op == nullptr) {
      peer.fragmented_message = rx->keep_fragmented(peer, head, tagged, total);
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
      visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
        if constexpr (HasRemoteMemory<S>)
          peer.fragmented_start =
              stamped && peer.fragmented_receive != nullptr && peer.fragmented_receive->total == total
                  ? side.begin_copy(part, head.b)
                  : 0;
      });
    }
  }
  peer.fragmented_left = total;
  if (arrived == 0) return true;
  wire::FrameHead rest = head;
  rest.length = static_cast<uint32_t>(arrived);
  on_more(peer, rest, payload);
  return true;
}

template <Link L>
void Engine<L>::on_more(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
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
template <Link L>
void Engine<L>::more_arrived(Peer& peer, size_t bytes) noexcept {
  WEFT_ASSERT(bytes != 0 && bytes <= peer.fragmented_left);
  WEFT_ASSERT(peer.fragmented_receive == nullptr || peer.fragmented_message == nullptr);
  peer.fragmented_left -= bytes;
  if (Op* op = peer.fragmented_receive; op != nullptr) {
    op->done += std::min<uint64_t>(bytes, op->total - op->done);
    if (peer.fragmented_left != 0) return;
    peer.fragmented_receive = nullptr;
    note_copied(peer, CopyPath::Ring, op->total, std::exchange(peer.fragmented_start, 0));
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

template <Link L>
Land Engine<L>::land(typename L::PeerBase& base, wire::FrameHead& head, const std::byte* payload,
                     size_t arrived, Landing& out) noexcept {
  using enum wire::FrameKind;
  Peer& peer = static_cast<Peer&>(base);
  wire::FrameHead part = head;
  part.length = static_cast<uint32_t>(arrived);
  switch (head.kind) {
    case Tagged:
    case Msg:
      if (head.length > L::fragmented_eager_bytes_max) return Land::Whole;
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

template <Link L>
void Engine<L>::landed(typename L::PeerBase& base, wire::FrameHead& head, size_t bytes) noexcept {
  Peer& peer = static_cast<Peer&>(base);
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

template <Link L>
bool Engine<L>::take_rts(const std::byte*& at, size_t& left, wire::RtsPrefix& rts,
                         wire::SourceSegment* segments) noexcept {
  if (!wire::take(at, left, rts) || rts.segments > iov_max) return false;
  for (uint32_t i = 0; i < rts.segments; ++i)
    if (!wire::take(at, left, segments[i])) return false;
  return true;
}

template <Link L>
bool Engine<L>::on_rts(Peer& peer, const wire::FrameHead& head, const std::byte* payload,
                       bool tagged) noexcept {
  size_t left = head.length;
  wire::RtsPrefix rts;
  std::array<wire::SourceSegment, iov_max> segments{};
  if (!take_rts(payload, left, rts, segments.data())) {
    malformed(peer);
    return true;
  }
  RxContext* rx = context_for(head);
  if (rx == nullptr) {
    acknowledge(peer, rts.operation, FI_EINVAL);
    return true;
  }
  Op* op = rx->match(tagged, head.a, peer.fi_addr);
  if (op == nullptr) return rx->keep_rendezvous(peer, head, tagged, rts, segments.data());
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

template <Link L>
void Engine<L>::start_rendezvous(Op& receive, const Unexpected& message) noexcept {
  pull(receive, message.stamp, message.source_segments.data(), message.segments);
}

// Fetches the bytes of a rendezvous: by reading the peer's memory, alone or while the peer writes ours, or by asking it for segments.
template <Link L>
void Engine<L>::pull(Op& op, uint64_t stamp, const wire::SourceSegment* segments,
                     uint32_t segment_count) noexcept {
  WEFT_ASSERT(op.stage == OpStage::Waiting && op.done == 0 && List<Op, InFlightHook>::linked(op));
  op.copy_path = CopyPath::Ring;
  op.copy_start = 0;
  op.meeting = 0;
  if (op.total == 0) return finish_inbound(op, 0, core::ProviderError::None);
  if (segment_count == 0) return ask_for_segments(op);
  copy_ended(op, copy_remote(op, stamp, segments, segment_count));
}

// The link reads the source. Failed: it cannot, or would rather not, or the peer is not there; when it is dying that is noticed soon.
template <Link L>
CopyState Engine<L>::copy_remote(Op& op, uint64_t stamp, const wire::SourceSegment* segments,
                                 uint32_t segment_count) noexcept {
  Peer& peer = full(*op.peer);
  return visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasRemoteMemory<S>) {
      const CopyChoice choice = side.choose_copy(part, op.total, stamp, peer.heard);
      op.copy_path = choice.path;
      op.copy_start = choice.start;
      if (choice.path == CopyPath::Ring) return CopyState::Failed;
      std::array<iovec, 16> local;
      const size_t count = slice(op.memory(), op.memory_count(), 0, op.total, local.data(), local.size());
      if (total_bytes(local.data(), count) != op.total) return CopyState::Failed;
      if (choice.path == CopyPath::Both && op.memory_count() <= iov_max && copy_count_ < copies_.size()) {
        op.meeting = side.open_meeting(part, op.total);
        while (op.meeting == 0 && copy_count_ != 0 && copy_on())
          op.meeting = side.open_meeting(part, op.total);
      }
      if (op.meeting != 0) {
        op.target_count = static_cast<uint8_t>(segment_count);
        for (uint32_t i = 0; i < segment_count; ++i)
          op.targets[i] = {segments[i].address, segments[i].length, 0};
        open_window(peer, op);
        return begin_together(peer, op);
      }
      if (choice.path == CopyPath::Both) {  // not what is measured
        op.copy_path = CopyPath::Receiver;
        op.copy_start = 0;
      }
      return side.read(part, local.data(), count, segments, segment_count, op.total) == 0 ? CopyState::Done
                                                                                          : CopyState::Failed;
    } else {
      return CopyState::Failed;
    }
  });
}

// The sender knows where the bytes belong and may begin. We do at the end of this poll, or with the next one: until then more
// messages may come, of which each side then copies another one. But while somebody sleeps nobody may poll soon: a Met wakes,
// what is left for the next poll does not.
template <Link L>
CopyState Engine<L>::begin_together(Peer& peer, Op& op) noexcept {
  if (limits_.driven || sleepers() != 0) return copy_together(peer, op, true);
  const OpTable& table = op.kind == OpKind::Receive ? op.rx->ops : service_ops_;
  WEFT_ASSERT(copy_count_ < copies_.size() && op.meeting != 0);
  copies_[copy_count_++] = {table.id(op), false};
  ++busy_;
  return CopyState::Later;
}

// Ends the copies that the sender is through with, and begins the next one. False: all of them wait for the sender.
template <Link L>
bool Engine<L>::copy_on() noexcept {
  bool moved = false;
  bool began = false;
  for (size_t i = 0; i < copy_count_;) {
    Op* const op = find_op(copies_[i].op);
    const bool ended = op == nullptr || op->meeting == 0;
    if (!ended && began && !copies_[i].begun) break;  // in order
    CopyState state = CopyState::Done;
    if (!ended) {
      began = began || !copies_[i].begun;
      copies_[i].begun = true;
      state = copy_together(full(*op->peer), *op, false);
    }
    if (state == CopyState::Later) {
      ++i;
      continue;
    }
    moved = true;
    WEFT_ASSERT(copy_count_ != 0 && busy_ != 0);
    --copy_count_;
    for (size_t k = i; k < copy_count_; ++k) copies_[k] = copies_[k + 1];
    --busy_;
    if (!ended) copy_ended(*op, state);
  }
  return moved || began;
}

template <Link L>
CopyState Engine<L>::copy_together(Peer& peer, Op& op, bool patient) noexcept {
  std::array<wire::SourceSegment, iov_max> segments{};
  const uint32_t segment_count = op.target_count;
  WEFT_ASSERT(op.meeting != 0 && segment_count <= iov_max);
  for (size_t i = 0; i < segment_count; ++i) segments[i] = {op.targets[i].address, op.targets[i].length};
  return visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasRemoteMemory<S>) {
      std::array<iovec, 16> local;
      const size_t count = slice(op.memory(), op.memory_count(), 0, op.total, local.data(), local.size());
      const CopyState state =
          side.copy(part, op.meeting, local.data(), count, segments.data(), segment_count, op.total, patient);
      if (state == CopyState::Done || state == CopyState::Failed) op.meeting = 0;
      return state;
    } else {
      return CopyState::Failed;
    }
  });
}

// Tells the sender where the bytes belong.
template <Link L>
void Engine<L>::open_window(Peer& peer, Op& op) noexcept {
  const OpTable& table = op.kind == OpKind::Receive ? op.rx->ops : service_ops_;
  std::array<iovec, iov_max> local;
  const size_t count = slice(op.memory(), op.memory_count(), 0, op.total, local.data(), local.size());
  WEFT_ASSERT(count <= iov_max && op.meeting != 0);
  const wire::WindowPrefix window{table.id(op), op.total, op.meeting, static_cast<uint32_t>(count), 0};
  std::array<std::byte, sizeof(window) + iov_max * sizeof(wire::SourceSegment)> payload;
  std::memcpy(payload.data(), &window, sizeof(window));
  size_t bytes = sizeof(window);
  for (size_t i = 0; i < count; ++i) {
    const wire::SourceSegment segment{reinterpret_cast<uint64_t>(local[i].iov_base), local[i].iov_len};
    std::memcpy(payload.data() + bytes, &segment, sizeof(segment));
    bytes += sizeof(segment);
  }
  send_control(peer, wire::FrameKind::Window, 0, op.remote, 0, std::span(payload.data(), bytes));
}

template <Link L>
void Engine<L>::copy_ended(Op& op, CopyState state) noexcept {
  if (state == CopyState::Busy || state == CopyState::Later) return;  // Met comes, or copy_on() asks again
  if (state == CopyState::Failed) {
    if (op.copy_path != CopyPath::Ring) op.copy_start = 0;  // both ways together say nothing about either
    op.copy_path = CopyPath::Ring;
    return ask_for_segments(op);
  }
  WEFT_ASSERT(op.meeting == 0 && op.stage == OpStage::Waiting);
  op.done = op.total;
  note_copied(full(*op.peer), op.copy_path, op.total, op.copy_start);
  finish_inbound(op, 0, core::ProviderError::None);
}

template <Link L>
void Engine<L>::ask_for_segments(Op& op) noexcept {
  WEFT_ASSERT(op.done == 0 && op.stage == OpStage::Waiting && op.meeting == 0);
  const OpTable& table = op.kind == OpKind::Receive ? op.rx->ops : service_ops_;
  const wire::CtsPrefix cts{table.id(op), op.total};
  send_control(full(*op.peer), wire::FrameKind::Cts, 0, op.remote, 0, std::as_bytes(std::span(&cts, 1)));
}

template <Link L>
void Engine<L>::note_copied(Peer& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept {
  visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasRemoteMemory<S>) side.copied(part, path, bytes, start);
  });
}

// The program has the buffer back before all of it is there.
template <Link L>
void Engine<L>::end_meeting(Op& op) noexcept {
  if (op.meeting == 0) return;
  visit_side(link_, full(*op.peer), [&]<class S>(S& side, auto& part) {
    if constexpr (HasRemoteMemory<S>) side.end_meeting(part, op.meeting);
  });
  op.meeting = 0;
}

// At the sender: where the bytes of an announced message belong.
template <Link L>
void Engine<L>::on_window(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  size_t left = head.length;
  Assist help;
  wire::WindowPrefix& window = help.window;
  Op* op = find_op(head.a, peer);
  bool sound = wire::take(payload, left, window) && op != nullptr && window.segments <= iov_max &&
               OpTable::kind_of(head.a) == OpTableKind::Transmit && op->announced && !op->windowed &&
               op->stage == OpStage::Waiting && window.length <= op->length;
  uint64_t room = 0;
  for (uint32_t i = 0; sound && i < window.segments; ++i)
    sound = wire::take(payload, left, help.to[i]) && !__builtin_add_overflow(room, help.to[i].length, &room);
  if (!sound || room != window.length) return malformed(peer);
  op->windowed = true;  // once: each may cost the whole message
  help.op = head.a;
  if (!assist(*op, help) || assist_count_ == assists_.size()) return;  // the receiver does the rest alone
  assists_[assist_count_++] = help;
  ++busy_;
}

// True: there may be more to do.
template <Link L>
bool Engine<L>::assist(Op& op, Assist& help) noexcept {
  Peer& peer = full(*op.peer);
  const Assistance state = visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasRemoteMemory<S>)
      return side.assist(part, help.window.meeting, help.window.length, help.to.data(), help.window.segments,
                         op.iov.data(), op.iov_count, help.taken);
    else return Assistance::Ended;
  });
  if (state == Assistance::Asked) send_control(peer, wire::FrameKind::Met, 0, help.window.operation, 0, {});
  return state == Assistance::More;
}

// What was too long for one call.
template <Link L>
void Engine<L>::assist_on() noexcept {
  for (size_t i = assist_count_; i-- > 0;) {
    Op* op = transmit_ops_.find(assists_[i].op);
    const bool waits = op != nullptr && op->announced && op->stage == OpStage::Waiting;
    if (waits && assist(*op, assists_[i])) continue;
    WEFT_ASSERT(assist_count_ != 0 && busy_ != 0);
    assists_[i] = assists_[--assist_count_];
    --busy_;
  }
}

// The sender is through with its part. Nothing of ours: the receive has ended meanwhile.
template <Link L>
void Engine<L>::on_met(Peer& peer, const wire::FrameHead& head) noexcept {
  Op* op = find_op(head.a, peer);
  if (op == nullptr || OpTable::kind_of(head.a) == OpTableKind::Transmit || op->meeting == 0) return;
  copy_ended(*op, copy_together(peer, *op, true));
}

template <Link L>
Op* Engine<L>::find_op(uint64_t id, const Peer& peer) noexcept {
  Op* const op = find_op(id);
  return op != nullptr && op->peer == &peer ? op : nullptr;
}

template <Link L>
Op* Engine<L>::find_op(uint64_t id) noexcept {
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

template <Link L>
void Engine<L>::on_cts(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  size_t left = head.length;
  wire::CtsPrefix cts;
  Op* op = find_op(head.a, peer);
  const bool sound = wire::take(payload, left, cts) && op != nullptr &&
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
template <Link L>
Op* Engine<L>::segment_op(Peer& peer, const wire::FrameHead& head) noexcept {
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

template <Link L>
void Engine<L>::on_segment(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  Op* op = segment_op(peer, head);
  if (op == nullptr) return;
  if (op->memory_count() == 1)
    std::memcpy(static_cast<std::byte*>(op->memory()->iov_base) + op->done, payload, head.length);
  else (void)scatter(op->memory(), op->memory_count(), op->done, payload, head.length);
  segment_arrived(peer, *op, head.length);
}

// The next bytes of a transfer are where they belong.
template <Link L>
void Engine<L>::segment_arrived(Peer& peer, Op& op, size_t bytes) noexcept {
  WEFT_ASSERT(bytes <= op.total - op.done);
  op.done += bytes;
  visit_side(link_, peer, [&]<class S>(S& side, auto&) {
    if constexpr (HasRemoteMemory<S>) peer.heard = side.stamp();
  });
  if (op.done < op.total) return;
  if (op.kind != OpKind::Read) note_copied(peer, CopyPath::Ring, op.total, op.copy_start);
  if (op.kind == OpKind::Read) finish_transmit(op, 0, core::ProviderError::None);
  else finish_inbound(op, 0, core::ProviderError::None);
}

template <Link L>
void Engine<L>::on_done(Peer& peer, const wire::FrameHead& head) noexcept {
  Op* op = find_op(head.a, peer);
  if (op == nullptr || OpTable::kind_of(head.a) != OpTableKind::Transmit || op->stage == OpStage::Queued) {
    malformed(peer);
    return;
  }
  const int status = (head.flags & wire::has_b) != 0 ? static_cast<int>(head.b & 0xffff) : 0;
  // A peer that wants no more, or lies: segments may still wait by reference.
  if (op->zero_copy_sequence > completed_sequence(peer)) copy_out(peer);
  if (status == 0 && op->announced && op->done < op->length)
    visit_side(link_, peer, [&](auto& side, auto& part) { side.fetched_by(part, op->length - op->done); });
  finish_transmit(*op, status, provider_error_of(status));
}

template <Link L>
void Engine<L>::acknowledge(PeerState& peer, uint64_t operation, int status) noexcept {
  if (operation == 0) return;
  send_control(full(peer), wire::FrameKind::Done, status != 0 ? wire::has_b : 0, operation,
               static_cast<uint64_t>(status), {});
}

template <Link L>
void Engine<L>::set_pause(PeerState& peer, bool pause) noexcept {
  send_control(full(peer), pause ? wire::FrameKind::Pause : wire::FrameKind::Resume, 0, 0, 0, {});
}

template <Link L>
void Engine<L>::set_peer_pause(Peer& peer, bool pause) noexcept {
  if (pause) shut(peer, PeerState::gate_paused);
  else peer.gate &= ~static_cast<uint32_t>(PeerState::gate_paused);
}

// --- regions that peers reach by themselves ---

template <Link L>
struct Engine<L>::Exposure final : core::RegionObserver {
  Exposure(L& to, bool reads, bool writes) noexcept : link(to), count_reads(reads), count_writes(writes) {}
  void reachable(const core::MemoryRegion& region) noexcept override {
    if (region.iov_count() != 1) return;
    const auto rights = core::rights_of(region.access());
    const ExposedRegion exposed{
        region.key(),
        region.base(),
        region.length(),
        reinterpret_cast<uint64_t>(region.iov()->iov_base),
        rights.remote_read && !count_reads && region.remote_read_counter() == nullptr,
        rights.remote_write && !count_writes && region.remote_write_counter() == nullptr};
    if (!exposed.readable && !exposed.writable) return;
    visit_all_sides(link, [&]<class S>(S& side) {
      if constexpr (HasRemoteMemory<S>) side.expose(exposed);
    });
  }
  int unreachable(const core::MemoryRegion& region) noexcept override {
    int status = 0;
    visit_all_sides(link, [&]<class S>(S& side) {
      if constexpr (HasRemoteMemory<S>)
        if (const int busy = side.conceal(region.key()); busy != 0) status = busy;
    });
    return status;
  }
  int all_unreachable() noexcept override {
    int status = 0;
    visit_all_sides(link, [&]<class S>(S& side) {
      if constexpr (HasRemoteMemory<S>)
        if (const int busy = side.conceal_all(); busy != 0) status = busy;
    });
    return status;
  }
  L& link;
  const bool count_reads, count_writes;
};

template <Link L>
int Engine<L>::serve_regions(bool count_reads, bool count_writes) noexcept {
  if (regions_ == nullptr || exposure_ != nullptr) return 0;
  bool wanted = false;
  visit_all_sides(link_, [&]<class S>(S&) { wanted = wanted || HasRemoteMemory<S>; });
  if (!wanted) return 0;
  try {
    exposure_ = std::make_unique<Exposure>(link_, count_reads, count_writes);
    regions_->attach(*exposure_);
  } catch (const std::bad_alloc&) {
    exposure_.reset();
    return -FI_ENOMEM;
  }
  return 0;
}

template <Link L>
int Engine<L>::stop_serving([[maybe_unused]] bool closing) noexcept {
  int writing = 0;
  visit_all_sides(link_, [&]<class S>(S& side) {
    if constexpr (HasRemoteMemory<S>)
      if (const int busy = closing ? side.pause_meetings() : 0; busy != 0) writing = busy;
  });
  if (writing != 0) return writing;
  if (exposure_ == nullptr) return 0;
  if (const int status = regions_->detach(*exposure_); status != 0) return status;
  exposure_.reset();
  return 0;
}

// --- RMA and atomics at the target ---

template <Link L>
struct Engine<L>::Access {
  std::array<core::MemoryRegion*, rma_iov_max> regions{};
  size_t region_count = 0;
  std::array<iovec, rma_iov_max * core::MemoryRegion::iov_max> pieces{};
  size_t piece_count = 0;
  uint64_t bytes = 0;
};

// Checks and pins what the peer named. 0, or a positive FI_E* for it. -1: the frame is malformed.
template <Link L>
int Engine<L>::open_access(const std::byte*& at, size_t& left, uint32_t targets, uint64_t access,
                           Access& out) noexcept {
  if (targets == 0 || targets > rma_iov_max) return -1;
  int status = regions_ != nullptr ? 0 : FI_EKEYREJECTED;
  for (uint32_t i = 0; i < targets; ++i) {
    wire::RmaTarget target;
    if (!wire::take(at, left, target)) {
      close_access(out);
      return -1;
    }
    if (status != 0) continue;
    core::MemoryRegion* region = nullptr;
    status = -regions_->acquire(target.key, target.address, target.length, access, region);
    if (status != 0) continue;
    out.regions[out.region_count++] = region;
    size_t room = out.pieces.size() - out.piece_count;
    (void)region->translate(target.address, target.length, out.pieces.data() + out.piece_count, room);
    out.piece_count += room;
    WEFT_ASSERT(out.piece_count <= out.pieces.size() && out.region_count <= rma_iov_max);
    if (__builtin_add_overflow(out.bytes, target.length, &out.bytes)) status = FI_EINVAL;
  }
  if (status != 0) close_access(out);
  return status;
}

template <Link L>
void Engine<L>::close_access(Access& access) noexcept {
  for (size_t i = 0; i < access.region_count; ++i) regions_->release(*access.regions[i]);
  access.region_count = 0;
}

// The operation has the regions until it ends. False: no memory, and nothing has happened.
template <Link L>
bool Engine<L>::keep_access(Op& op, const Access& access) noexcept try {
  WEFT_ASSERT(op.region_count == 0);
  op.pieces.assign(access.pieces.begin(),
                   access.pieces.begin() + static_cast<std::ptrdiff_t>(access.piece_count));
  op.region_count = static_cast<uint8_t>(access.region_count);
  std::copy_n(access.regions.begin(), access.region_count, op.regions.begin());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// What the target program sees of an access: counters, and an entry when data came along (fi_rma(3), FI_REMOTE_CQ_DATA).
template <Link L>
void Engine<L>::note_remote(const Access& access, const Peer& peer, RxContext* rx, bool write,
                            const wire::FrameHead& head, uint64_t bytes) noexcept {
  for (size_t i = 0; i < access.region_count; ++i) {
    core::Counter* counter =
        write ? access.regions[i]->remote_write_counter() : access.regions[i]->remote_read_counter();
    if (counter != nullptr) counter->add(1);
  }
  if (rx == nullptr) return;
  const RxSink& to = rx->sink(&peer);
  if (core::Counter* counter = write ? to.remote_writes : to.remote_reads; counter != nullptr)
    counter->add(1);
  if ((head.flags & wire::has_data) != 0 && to.cq != nullptr) {
    void* where = access.piece_count > 0 ? access.pieces[0].iov_base : nullptr;
    to.cq->push(
        {nullptr, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, bytes, where, head.b, 0, FI_ADDR_NOTAVAIL});
  }
}

template <Link L>
void Engine<L>::on_write(Peer& peer, const wire::FrameHead& head, const std::byte* payload,
                         bool rendezvous) noexcept {
  size_t left = head.length;
  wire::RmaPrefix rma;
  Access access;
  if (!wire::take(payload, left, rma)) return malformed(peer);
  const int status = open_access(payload, left, rma.targets, FI_REMOTE_WRITE, access);
  if (status < 0) return malformed(peer);
  if (status > 0) return acknowledge(peer, head.a, status);
  RxContext* rx = context_for(head);
  if (!rendezvous) {
    const bool sound = left == rma.total && access.bytes == rma.total;
    if (sound) {
      (void)scatter(access.pieces.data(), access.piece_count, 0, payload, left);
      note_remote(access, peer, rx, true, head, left);
    }
    close_access(access);
    if (!sound) return malformed(peer);
    return acknowledge(peer, head.a, 0);
  }
  wire::RtsPrefix rts;
  std::array<wire::SourceSegment, iov_max> segments{};
  if (!take_rts(payload, left, rts, segments.data()) || rts.total != access.bytes || rts.total != rma.total) {
    close_access(access);
    return malformed(peer);
  }
  Op* op = take_service(peer);
  if (op != nullptr && !keep_access(*op, access)) {
    give_service(*op);
    op = nullptr;
  }
  if (op == nullptr) {
    close_access(access);
    return acknowledge(peer, head.a, FI_ENOMEM);
  }
  op->kind = OpKind::Inbound;
  op->stage = OpStage::Waiting;
  op->rx = rx;
  op->remote = head.a;
  op->total = rts.total;
  op->length = rts.total;
  op->done = 0;
  op->has_data = (head.flags & wire::has_data) != 0;
  op->data = head.b;
  op->flags = 0;
  peer.in_flight.push_back(*op);
  pull(*op, rts.stamp, segments.data(), rts.segments);
}

// The receiving half of a transfer (or the serving half of a read) has ended.
template <Link L>
void Engine<L>::finish_inbound(Op& op, int status, core::ProviderError why) noexcept {
  Peer& peer = full(*op.peer);
  const uint64_t remote = op.remote;
  end_meeting(op);
  WEFT_ASSERT(List<Op, InFlightHook>::linked(op) && !List<Op, QueueHook>::linked(op));
  WEFT_ASSERT(status != 0 || op.done == op.total);
  if (op.kind == OpKind::Receive) {
    if (peer.fragmented_receive == &op) peer.fragmented_receive = nullptr;
    op.rx->finish(op, status, why);
    if (status == 0) acknowledge(peer, remote, 0);
    return;
  }
  const bool inbound = op.kind == OpKind::Inbound;
  Access access;
  access.region_count = op.region_count;
  std::copy_n(op.regions.begin(), op.region_count, access.regions.begin());
  if (status == 0) {
    access.piece_count = op.pieces.empty() ? 0 : 1;
    if (!op.pieces.empty()) access.pieces[0] = op.pieces[0];
    const wire::FrameHead head{
        wire::FrameKind::WriteRts, static_cast<uint8_t>(op.has_data ? wire::has_data : 0), 0, 0, 0, op.data};
    note_remote(access, peer, op.rx, inbound, head, op.total);
  }
  close_access(access);
  op.region_count = 0;
  op.pieces.clear();
  op.bounce.reset();
  List<Op, InFlightHook>::remove(op);
  give_service(op);
  if (inbound && status == 0) acknowledge(peer, remote, 0);
}

template <Link L>
void Engine<L>::on_read(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  size_t left = head.length;
  wire::RmaPrefix rma;
  Access access;
  if (!wire::take(payload, left, rma)) return malformed(peer);
  const int status = open_access(payload, left, rma.targets, FI_REMOTE_READ, access);
  if (status < 0) return malformed(peer);
  if (status > 0) return acknowledge(peer, head.a, status);
  Op* op = access.bytes == rma.total ? take_service(peer) : nullptr;
  if (op != nullptr && !keep_access(*op, access)) {
    give_service(*op);
    op = nullptr;
  }
  if (op == nullptr) {
    close_access(access);
    return acknowledge(peer, head.a, access.bytes == rma.total ? FI_ENOMEM : FI_EINVAL);
  }
  op->kind = OpKind::Outbound;
  op->stage = OpStage::Streaming;
  op->rx = context_for(head);
  op->remote = head.a;
  op->total = rma.total;
  op->length = rma.total;
  op->done = 0;
  op->has_data = false;
  op->flags = 0;
  peer.in_flight.push_back(*op);
  if (op->total == 0) {
    finish_inbound(*op, 0, core::ProviderError::None);
    return acknowledge(peer, head.a, 0);
  }
  if ((peer.gate & PeerState::gate_queued) == 0 && stream(*op))
    return finish_inbound(*op, 0, core::ProviderError::None);
  if (op->total <= limits_for(peer).eager_bytes_max) {
    // A later write must not change what this read returns (FI_ORDER_WAR up to this size): keep the bytes of now.
    op->bounce.reset(new (std::nothrow) std::byte[op->total]);
    if (op->bounce) {
      (void)gather(op->bounce.get(), op->pieces.data(), op->pieces.size(), 0, op->total);
      op->pieces.assign(1, iovec{op->bounce.get(), op->total});
    }
  }
  streams_.push_back(*op);
  ++busy_;
}

template <Link L>
void Engine<L>::on_atomic(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  size_t left = head.length;
  wire::AtomicPrefix atomic;
  Access access;
  if (!wire::take(payload, left, atomic) || atomic.kind > static_cast<uint32_t>(core::AtomicKind::Compare))
    return malformed(peer);
  const auto kind = static_cast<core::AtomicKind>(atomic.kind);
  const bool reads_only = atomic.op == FI_ATOMIC_READ;
  uint64_t rights = reads_only ? 0 : FI_REMOTE_WRITE;
  if (kind != core::AtomicKind::Write) rights |= FI_REMOTE_READ;
  const int status = open_access(payload, left, atomic.targets, rights, access);
  if (status < 0) return malformed(peer);
  if (status > 0) return acknowledge(peer, head.a, status);
  const size_t element = core::datatype_size(atomic.datatype);
  const size_t bytes = access.bytes;
  const size_t operand_bytes = reads_only ? 0 : bytes;
  const size_t compare_bytes = kind == core::AtomicKind::Compare ? bytes : 0;
  bool sound = bytes == atomic.bytes && bytes <= atomic_bytes_max && left == operand_bytes + compare_bytes &&
               element != 0;
  for (size_t i = 0; sound && i < access.piece_count; ++i) sound = access.pieces[i].iov_len % element == 0;
  if (!sound || !core::atomic_supported(atomic.datatype, atomic.op, kind)) {
    close_access(access);
    return acknowledge(peer, head.a, sound ? FI_EOPNOTSUPP : FI_EINVAL);
  }
  std::array<std::byte, atomic_bytes_max> result;
  size_t done = 0;
  for (size_t i = 0; i < access.piece_count; ++i) {
    const std::byte* operand = reads_only ? nullptr : payload + done;
    const std::byte* compare = compare_bytes != 0 ? payload + operand_bytes + done : nullptr;
    (void)core::atomic_apply(atomic.datatype, atomic.op, kind, access.pieces[i].iov_base, operand, compare,
                             result.data() + done, access.pieces[i].iov_len / element);
    done += access.pieces[i].iov_len;
    WEFT_ASSERT(done <= bytes);
  }
  note_remote(access, peer, context_for(head), !reads_only, head, bytes);
  close_access(access);
  if (kind == core::AtomicKind::Write) return acknowledge(peer, head.a, 0);
  send_control(peer, wire::FrameKind::Reply, 0, head.a, 0, std::span(result.data(), done));
}

template <Link L>
void Engine<L>::on_reply(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  Op* op = find_op(head.a, peer);
  if (op == nullptr || op->kind != OpKind::Atomic || op->stage != OpStage::Waiting) return malformed(peer);
  const bool wanted = op->tx != &retired_;  // else its context was closed
  if (wanted && head.length != total_bytes(op->result.data(), op->result_count)) return malformed(peer);
  (void)scatter(op->result.data(), op->result_count, 0, payload, head.length);
  finish_transmit(*op, 0, core::ProviderError::None);
}

}  // namespace weft::proto
