// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/shared_copies.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "arch/cpu.hpp"
#include "os/clock.hpp"
#include "os/event.hpp"
#include "proto/engine/op.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t grain_least = uint64_t{1} << 15;
constexpr uint64_t grains_usual = 1U << 12;
constexpr uint64_t crowded_grain_max = uint64_t{1} << 18;
constexpr uint64_t assist_bytes_max = uint64_t{1} << 22;  // in one call
constexpr int64_t close_timeout_ms = 200;
constexpr size_t list_max = 16;

uint32_t grain_of(uint64_t bytes) noexcept {
  const uint64_t grain = std::max(grain_least, bytes / grains_usual);
  return static_cast<uint32_t>((grain + MeetingName::grain_unit - 1) / MeetingName::grain_unit *
                               MeetingName::grain_unit);
}

// Of one of several messages: each side copies another one, and enters the kernel once for it.
uint32_t crowded_grain_of(uint64_t bytes) noexcept {
  const uint64_t whole =
      (bytes + MeetingName::grain_unit - 1) / MeetingName::grain_unit * MeetingName::grain_unit;
  return std::max(grain_of(bytes), static_cast<uint32_t>(std::min(whole, crowded_grain_max)));
}

// [offset, offset + bytes) of a list in the peer's memory. 0: it is not all there, or in too many pieces.
size_t slice_remote(const wire::SourceSegment* list, size_t count, uint64_t offset, uint64_t bytes,
                    std::array<iovec, list_max>& out) noexcept {
  size_t used = 0;
  for (size_t i = 0; i < count && bytes > 0; ++i) {
    if (offset >= list[i].length) {
      offset -= list[i].length;
      continue;
    }
    const uint64_t here = std::min(list[i].length - offset, bytes);
    if (used == out.size()) return 0;
    out[used++] = {reinterpret_cast<void*>(list[i].address + offset), static_cast<size_t>(here)};
    offset = 0;
    bytes -= here;
  }
  return bytes == 0 ? used : 0;
}

}  // namespace

// --- the receiver's part ---

int SharedCopies::read(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
                       size_t remote_count, size_t bytes) noexcept {
  const int status = read_range(peer, local, local_count, remote, remote_count, {0, bytes, 0});
  if (status != 0) return status;
  return was_source(peer) ? 0 : -ESRCH;
}

// After the last byte: what was read is what the sender had announced, if it had not closed its endpoint (then the program may use the memory again).
// That it was the sender's memory is known of each read.
bool SharedCopies::was_source(Peer& peer) noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!peer.has_closed()) return true;
  dying_.add(peer);
  return false;
}

void SharedCopies::lose_gone(Peer& peer) noexcept {
  peer.gone = true;
  dying_.add(peer);
}

// A sender that we wait for may have become another program, which nothing else tells.
void SharedCopies::check_for_gone_sender(Peer& peer) noexcept {
  if (peer.copies == nullptr || peer.gone) return;
  const auto& meetings = peer.copies->meetings;
  if (std::any_of(meetings.begin(), meetings.end(), [](const auto& meeting) { return meeting.waits; }) &&
      peer.has_gone())
    lose_gone(peer);
}

// What a copy failed with. Memory of the program that is not there says nothing about the next message; anything else will not get better.
void SharedCopies::note_failure(Peer& peer, ssize_t error) noexcept {
  if (error != -EFAULT && error != -EINVAL) paths_.forbid(peer);
}

int SharedCopies::read_range(Peer& peer, const iovec* local, size_t local_count,
                             const wire::SourceSegment* remote, size_t remote_count,
                             const MeetingRange& range) noexcept {
  std::array<iovec, list_max> here;
  std::array<iovec, list_max> there;
  const size_t count = proto::slice(local, local_count, range.offset, range.bytes, here.data(), here.size());
  const size_t source = slice_remote(remote, remote_count, range.offset, range.bytes, there);
  if (source == 0 || proto::total_bytes(here.data(), count) != range.bytes) return -EINVAL;
  const ssize_t moved = peer.memory.read(here.data(), count, there.data(), source, range.bytes);
  if (moved >= 0) return 0;
  note_failure(peer, moved);
  if (peer.has_gone()) lose_gone(peer);
  return static_cast<int>(moved);
}

uint64_t SharedCopies::open(Peer& peer, uint64_t bytes) noexcept {
  if (closing_) return 0;
  Copies* const copies = CopyPaths::copies_of(peer);
  if (copies == nullptr) return 0;
  const bool crowded =
      bytes <= crowded_grain_max && std::any_of(copies->meetings.begin(), copies->meetings.end(),
                                                [](const auto& meeting) { return meeting.name != 0; });
  const MeetingCut cut{bytes, crowded ? crowded_grain_of(bytes) : grain_of(bytes)};
  if (!peer.in.is_open() || !cut.is_sound()) return 0;
  for (uint32_t index = 0; index < meeting_count; ++index) {
    Copies::Meeting& meeting = copies->meetings[index];
    if (meeting.name != 0) continue;
    if (meeting.kept && meeting.front.sender() == MeetingFront::Sender::Busy) continue;
    if (++generation_ == 0) ++generation_;
    meeting = {};
    meeting.front = MeetingFront(peer.in.control()->meetings[index], generation_, cut);
    meeting.name = MeetingName{generation_, cut.grain, index}.word();
    meeting.crowded = crowded;
    return meeting.name;
  }
  return 0;
}

Copies::Meeting* SharedCopies::find(Peer& peer, uint64_t name) noexcept {
  const uint32_t index = MeetingName::of(name).index;
  if (name == 0 || peer.copies == nullptr || index >= meeting_count) return nullptr;
  Copies::Meeting& meeting = peer.copies->meetings[index];
  return meeting.name == name ? &meeting : nullptr;
}

proto::CopyState SharedCopies::copy(Peer& peer, uint64_t name, const iovec* local, size_t local_count,
                                    const wire::SourceSegment* remote, size_t remote_count, uint64_t bytes,
                                    bool patient) noexcept {
  using enum proto::CopyState;
  Copies::Meeting* const meeting = find(peer, name);
  if (meeting == nullptr)
    return read(peer, local, local_count, remote, remote_count, bytes) == 0 ? Done : Failed;
  MeetingFront& front = meeting->front;
  const auto reads = [&](const MeetingRange& range) {
    return read_range(peer, local, local_count, remote, remote_count, range) == 0;
  };
  while (!meeting->failed) {
    const MeetingRange range = front.claim();
    if (range.bytes == 0) break;
    if (!reads(range)) meeting->failed = true;
  }
  front.close();
  // The sender is at its last piece, as a rule.
  const uint64_t now = arch::ticks();
  if (meeting->until == 0) meeting->until = now + rate_.stale_ticks();
  if (!patient && meeting->crowded && now < meeting->until && front.sender() == MeetingFront::Sender::Busy)
    return Later;
  while (front.sender() == MeetingFront::Sender::Busy && arch::ticks() < meeting->until) arch::pause();
  if (front.ask() == MeetingFront::Sender::Busy) {
    meeting->waits = true;
    return Busy;
  }
  if (front.refused()) paths_.forbid_shared(peer);
  if (const MeetingRange rest = front.rest(); rest.bytes != 0 && !meeting->failed)
    meeting->failed = !reads(rest);
  const bool failed = meeting->failed || !was_source(peer);
  if (!meeting->crowded || front.written() != 0) peer.copies->alone = front.written() == 0;
  paths_.written_by_sender(uint64_t{front.written()} * MeetingName::of(name).grain);
  *meeting = {};
  return failed ? Failed : Done;
}

// Nobody writes when this returns 0. -EBUSY: the sender is in the middle of it, perhaps stopped; ask again.
int SharedCopies::close(Peer& peer, Copies::Meeting& meeting, int64_t until_ms) noexcept {
  meeting.front.close();
  while (meeting.front.sender() == MeetingFront::Sender::Busy) {
    // Who was killed in the middle has left its words; its copy ended with it.
    if (peer.has_gone()) break;
    meeting.waits = true;
    if (os::now_ms() > until_ms) return -EBUSY;
    os::yield_processor();
  }
  return 0;
}

// The place of a sender that still writes is not free: what it says at last would be taken for the next message's.
void SharedCopies::end(Peer& peer, uint64_t name) noexcept {
  Copies::Meeting* const meeting = find(peer, name);
  if (meeting == nullptr) return;
  // Who is stuck in one is not waited for again.
  const auto& all = peer.copies->meetings;
  const bool stuck = std::any_of(all.begin(), all.end(), [](const auto& other) { return other.kept; });
  if (close(peer, *meeting, os::now_ms() + (stuck ? 0 : close_timeout_ms)) != 0) {
    meeting->name = 0;
    meeting->kept = true;
  } else {
    *meeting = {};
  }
}

// Of a peer that is given up, with its channel.
void SharedCopies::end_all(Peer& peer) noexcept {
  if (peer.copies == nullptr || !peer.in.is_open()) return;
  const int64_t until = os::now_ms() + close_timeout_ms;
  for (Copies::Meeting& meeting : peer.copies->meetings) {
    if (meeting.is_open()) (void)close(peer, meeting, until);
    meeting = {};
  }
}

int SharedCopies::pause(const PeerTable& peers) noexcept {
  closing_ = true;
  const int64_t until = os::now_ms() + close_timeout_ms;
  int status = 0;
  for (auto& [name, peer] : peers) {
    if (peer->copies == nullptr || !peer->in.is_open()) continue;
    for (Copies::Meeting& meeting : peer->copies->meetings)
      if (meeting.is_open() && close(*peer, meeting, until) != 0) status = -EBUSY;
  }
  return status;
}

// --- the sender's part ---

proto::Assistance SharedCopies::assist(Peer& peer, uint64_t name, uint64_t bytes,
                                       const wire::SourceSegment* to, size_t to_count, const iovec* local,
                                       size_t local_count, uint32_t& taken) noexcept {
  using enum proto::Assistance;
  const MeetingName meeting = MeetingName::of(name);
  const MeetingCut cut{bytes, meeting.grain};
  if (meeting.index >= meeting_count || !cut.is_sound() || !peer.out.is_open()) return Ended;
  if (!peer.memory.can_write()) return Ended;
  if (!paths_.may_assist()) return Ended;
  MeetingBack back(peer.out.control()->meetings[meeting.index], meeting.generation, cut, taken);
  for (uint64_t written = 0; !back.asked();) {  // who has asked takes no more, and leaves nothing
    if (written >= assist_bytes_max) {
      taken = back.taken();
      return More;
    }
    if (back.is_over() || !peer.memory.was_there(rate_.stale_ticks())) break;
    const MeetingRange range = back.claim();
    if (range.bytes == 0) break;
    std::array<iovec, list_max> here;
    std::array<iovec, list_max> there;
    const size_t count =
        proto::slice(local, local_count, range.offset, range.bytes, here.data(), here.size());
    const size_t target = slice_remote(to, to_count, range.offset, range.bytes, there);
    ssize_t moved = -EINVAL;
    if (target != 0 && proto::total_bytes(here.data(), count) == range.bytes)
      moved = peer.memory.write(here.data(), count, there.data(), target, range.bytes);
    if (moved < 0) {
      if (moved != -EFAULT && moved != -EINVAL) peer.memory.forbid_writing();
      back.fail();
      break;
    }
    back.finish(range);
    written += range.bytes;
  }
  return back.asked() ? Asked : Ended;
}

}  // namespace weft::link::shm
