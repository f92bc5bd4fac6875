// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "proto/engine/copying.hpp"

#include <cstring>

#include "base/assert.hpp"
#include "proto/engine/engine_core.hpp"

namespace weft::proto {

// Fetches the bytes of a rendezvous: by reading the peer's memory, alone or while the peer writes ours, or by asking it for segments.
void RendezvousCopy::begin(Op& op, uint64_t stamp, const wire::SourceSegment* segments,
                           uint32_t segment_count) noexcept {
  WEFT_ASSERT(op.stage == OpStage::Waiting && op.done == 0 && List<Op, InFlightHook>::linked(op));
  op.copy_path = CopyPath::Ring;
  op.copy_start = 0;
  op.meeting = 0;
  if (op.total == 0) return engine_.finish_inbound(op, 0, core::ProviderError::None);
  if (segment_count == 0) return ask_for_segments(op);
  copy_ended(op, copy_remote(op, stamp, segments, segment_count));
}

uint64_t RendezvousCopy::id_of(const Op& op) const noexcept {
  return (op.kind == OpKind::Receive ? op.rx->ops : engine_.service_ops_).id(op);
}

// The link reads the source. Failed: it cannot, or would rather not, or the peer is not there; when it is dying that is noticed soon.
CopyState RendezvousCopy::copy_remote(Op& op, uint64_t stamp, const wire::SourceSegment* segments,
                                      uint32_t segment_count) noexcept {
  PeerState& peer = *op.peer;
  const CopyChoice choice = engine_.any_link_.choose_copy(peer, op.total, stamp);
  op.copy_path = choice.path;
  op.copy_start = choice.start;
  if (choice.path == CopyPath::Ring) return CopyState::Failed;
  std::array<iovec, 16> local;
  const size_t count = slice(op.memory(), op.memory_count(), 0, op.total, local.data(), local.size());
  if (total_bytes(local.data(), count) != op.total) return CopyState::Failed;
  if (choice.path == CopyPath::Both && op.memory_count() <= iov_max && copy_count_ < copies_.size()) {
    op.meeting = engine_.any_link_.open_meeting(peer, op.total);
    while (op.meeting == 0 && copy_count_ != 0 && copy_on())
      op.meeting = engine_.any_link_.open_meeting(peer, op.total);
  }
  if (op.meeting != 0) {
    op.target_count = static_cast<uint8_t>(segment_count);
    for (uint32_t i = 0; i < segment_count; ++i) op.targets[i] = {segments[i].address, segments[i].length, 0};
    open_window(peer, op);
    return begin_together(peer, op);
  }
  if (choice.path == CopyPath::Both) {  // not what is measured
    op.copy_path = CopyPath::Receiver;
    op.copy_start = 0;
  }
  return engine_.any_link_.read(peer, local.data(), count, segments, segment_count, op.total)
             ? CopyState::Done
             : CopyState::Failed;
}

// The sender knows where the bytes belong and may begin. We do at the end of this poll, or with the next one: until then more
// messages may come, of which each side then copies another one. But while somebody sleeps nobody may poll soon: a Met wakes,
// what is left for the next poll does not.
CopyState RendezvousCopy::begin_together(PeerState& peer, Op& op) noexcept {
  if (engine_.limits_.driven || engine_.sleepers() != 0) return copy_together(peer, op, true);
  WEFT_ASSERT(copy_count_ < copies_.size() && op.meeting != 0);
  copies_[copy_count_++] = {id_of(op), false};
  ++engine_.busy_;
  return CopyState::Later;
}

// Ends the copies that the sender is through with, and begins the next one. False: all of them wait for the sender.
bool RendezvousCopy::copy_on() noexcept {
  bool moved = false;
  bool began = false;
  for (size_t i = 0; i < copy_count_;) {
    Op* const op = engine_.find_op(copies_[i].op);
    const bool ended = op == nullptr || op->meeting == 0;
    if (!ended && began && !copies_[i].begun) break;  // in order
    CopyState state = CopyState::Done;
    if (!ended) {
      began = began || !copies_[i].begun;
      copies_[i].begun = true;
      state = copy_together(*op->peer, *op, false);
    }
    if (state == CopyState::Later) {
      ++i;
      continue;
    }
    moved = true;
    WEFT_ASSERT(copy_count_ != 0 && engine_.busy_ != 0);
    --copy_count_;
    for (size_t k = i; k < copy_count_; ++k) copies_[k] = copies_[k + 1];
    --engine_.busy_;
    if (!ended) copy_ended(*op, state);
  }
  return moved || began;
}

CopyState RendezvousCopy::copy_together(PeerState& peer, Op& op, bool patient) noexcept {
  std::array<wire::SourceSegment, iov_max> segments{};
  const uint32_t segment_count = op.target_count;
  WEFT_ASSERT(op.meeting != 0 && segment_count <= iov_max);
  for (size_t i = 0; i < segment_count; ++i) segments[i] = {op.targets[i].address, op.targets[i].length};
  std::array<iovec, 16> local;
  const size_t count = slice(op.memory(), op.memory_count(), 0, op.total, local.data(), local.size());
  const CopyState state = engine_.any_link_.copy(peer, op.meeting, local.data(), count, segments.data(),
                                                 segment_count, op.total, patient);
  if (state == CopyState::Done || state == CopyState::Failed) op.meeting = 0;
  return state;
}

// Tells the sender where the bytes belong.
void RendezvousCopy::open_window(PeerState& peer, Op& op) noexcept {
  std::array<iovec, iov_max> local;
  const size_t count = slice(op.memory(), op.memory_count(), 0, op.total, local.data(), local.size());
  WEFT_ASSERT(count <= iov_max && op.meeting != 0);
  const wire::WindowPrefix window{id_of(op), op.total, op.meeting, static_cast<uint32_t>(count), 0};
  std::array<std::byte, sizeof(window) + iov_max * sizeof(wire::SourceSegment)> payload;
  std::memcpy(payload.data(), &window, sizeof(window));
  size_t bytes = sizeof(window);
  for (size_t i = 0; i < count; ++i) {
    const wire::SourceSegment segment{reinterpret_cast<uint64_t>(local[i].iov_base), local[i].iov_len};
    std::memcpy(payload.data() + bytes, &segment, sizeof(segment));
    bytes += sizeof(segment);
  }
  engine_.send_control(peer, wire::FrameKind::Window, 0, op.remote, 0, std::span(payload.data(), bytes));
}

void RendezvousCopy::copy_ended(Op& op, CopyState state) noexcept {
  if (state == CopyState::Busy || state == CopyState::Later) return;  // Met comes, or copy_on() asks again
  if (state == CopyState::Failed) {
    if (op.copy_path != CopyPath::Ring) op.copy_start = 0;  // both ways together say nothing about either
    op.copy_path = CopyPath::Ring;
    return ask_for_segments(op);
  }
  WEFT_ASSERT(op.meeting == 0 && op.stage == OpStage::Waiting);
  op.done = op.total;
  engine_.any_link_.copied(*op.peer, op.copy_path, op.total, op.copy_start);
  engine_.finish_inbound(op, 0, core::ProviderError::None);
}

void RendezvousCopy::ask_for_segments(Op& op) noexcept {
  WEFT_ASSERT(op.done == 0 && op.stage == OpStage::Waiting && op.meeting == 0);
  const wire::CtsPrefix cts{id_of(op), op.total};
  engine_.send_control(*op.peer, wire::FrameKind::Cts, 0, op.remote, 0, std::as_bytes(std::span(&cts, 1)));
}

// The program has the buffer back before all of it is there.
void RendezvousCopy::end_meeting(Op& op) noexcept {
  if (op.meeting == 0) return;
  engine_.any_link_.end_meeting(*op.peer, op.meeting);
  op.meeting = 0;
}

// At the sender: where the bytes of an announced message belong.
void RendezvousCopy::on_window(PeerState& peer, const wire::FrameHead& head,
                               const std::byte* payload) noexcept {
  size_t left = head.length;
  Assist help;
  wire::WindowPrefix& window = help.window;
  Op* op = engine_.find_op(head.a, peer);
  bool sound = wire::consume(payload, left, window) && op != nullptr && window.segments <= iov_max &&
               OpTable::kind_of(head.a) == OpTableKind::Transmit && op->announced && !op->windowed &&
               op->stage == OpStage::Waiting && window.length <= op->length;
  uint64_t room = 0;
  for (uint32_t i = 0; sound && i < window.segments; ++i)
    sound =
        wire::consume(payload, left, help.to[i]) && !__builtin_add_overflow(room, help.to[i].length, &room);
  if (!sound || room != window.length) return engine_.malformed(peer);
  op->windowed = true;  // once: each may cost the whole message
  help.op = head.a;
  if (!assist(*op, help) || assist_count_ == assists_.size()) return;  // the receiver does the rest alone
  assists_[assist_count_++] = help;
  ++engine_.busy_;
}

// True: there may be more to do.
bool RendezvousCopy::assist(Op& op, Assist& help) noexcept {
  PeerState& peer = *op.peer;
  const Assistance state =
      engine_.any_link_.assist(peer, help.window.meeting, help.window.length, help.to.data(),
                               help.window.segments, op.iov.data(), op.iov_count, help.taken);
  if (state == Assistance::Asked)
    engine_.send_control(peer, wire::FrameKind::Met, 0, help.window.operation, 0, {});
  return state == Assistance::More;
}

// What was too long for one call.
void RendezvousCopy::assist_on() noexcept {
  for (size_t i = assist_count_; i-- > 0;) {
    Op* op = engine_.transmit_ops_.find(assists_[i].op);
    const bool waits = op != nullptr && op->announced && op->stage == OpStage::Waiting;
    if (waits && assist(*op, assists_[i])) continue;
    WEFT_ASSERT(assist_count_ != 0 && engine_.busy_ != 0);
    assists_[i] = assists_[--assist_count_];
    --engine_.busy_;
  }
}

// The sender is through with its part. Nothing of ours: the receive has ended meanwhile.
void RendezvousCopy::on_met(PeerState& peer, const wire::FrameHead& head) noexcept {
  Op* op = engine_.find_op(head.a, peer);
  if (op == nullptr || OpTable::kind_of(head.a) == OpTableKind::Transmit || op->meeting == 0) return;
  copy_ended(*op, copy_together(peer, *op, true));
}

}  // namespace weft::proto
