// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reading and writing frames in place. A frame on loan and all behind it keep their room in the ring, because credit is one position; a reserved
// buffer keeps one slot, so that a commit never finds the ring full, and the bulk ring from its start on.
#include "link/shm/in_place.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace weft::link::shm {

Link::Loan Link::loan(Peer& peer) noexcept try {
  if (peer.lent == nullptr) {
    lent_.push_back(std::make_unique<LentFrames>());
    lent_.back()->peer = &peer;
    peer.lent = lent_.back().get();
  }
  std::vector<LentFrames::Frame>& frames = peer.lent->frames;
  WEFT_ASSERT(frames.empty() || frames.back().slot < peer.in.next());
  frames.push_back({peer.in.next(), peer.in.bulk(), false});
  peer.in.lend_from(frames.front().slot, frames.front().bulk);
  return {peer.lent, peer.in.next()};
} catch (const std::bad_alloc&) {
  return {};
}

void Link::release(const Loan& loan) noexcept {
  LentFrames& all = *loan.frames;
  WEFT_ASSERT(std::ranges::count_if(all.frames, [&](const auto& frame) {
                return frame.slot == loan.slot && !frame.released;
              }) == 1);
  for (LentFrames::Frame& frame : all.frames)
    if (frame.slot == loan.slot) frame.released = true;
  const auto kept = std::find_if(all.frames.begin(), all.frames.end(),
                                 [](const LentFrames::Frame& frame) { return !frame.released; });
  all.frames.erase(all.frames.begin(), kept);
  if (all.peer == nullptr) {
    if (all.frames.empty()) std::erase_if(lent_, [&](const auto& entry) { return entry.get() == &all; });
    return;
  }
  Peer& peer = *all.peer;
  if (all.frames.empty()) peer.in.lend_from(UINT64_MAX, UINT64_MAX);
  else peer.in.lend_from(all.frames.front().slot, all.frames.front().bulk);
  peer.in.give_back_loan();
}

// The peer goes: frames that are still read keep its ring.
void Link::keep_ring(Peer& peer) noexcept {
  LentFrames* const all = std::exchange(peer.lent, nullptr);
  if (all == nullptr) return;
  all->peer = nullptr;
  all->map = peer.in.take_mapping();
  if (all->frames.empty()) std::erase_if(lent_, [&](const auto& entry) { return entry.get() == all; });
}

ReservedBuffer* Link::reserve(Peer& peer, size_t bytes, int& error) noexcept try {
  error = EAGAIN;
  if (peer.reserved != nullptr || peer.state == PeerState::Lost) return nullptr;
  if (!peer.out.is_open()) {  // it spoke first
    if (!open_channel(peer)) return nullptr;
    greet(peer);
  }
  if (!peer.out.has_slot() && !peer.out.more_room()) return nullptr;
  reserved_.push_back(std::make_unique<ReservedBuffer>());
  ReservedBuffer& buffer = *reserved_.back();
  buffer.bytes = peer.out.reserve(bytes, peer.in, buffer.start);
  if (buffer.bytes == nullptr) {
    reserved_.pop_back();
    return nullptr;
  }
  buffer.peer = &peer;
  buffer.capacity = bytes;
  peer.reserved = &buffer;
  return &buffer;
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::byte* Link::bytes_of(const ReservedBuffer& buffer) noexcept { return buffer.bytes; }

bool Link::commit(ReservedBuffer& buffer, const wire::FrameHead& head) noexcept {
  Peer* const peer = buffer.peer;
  const uint64_t start = buffer.start;
  WEFT_ASSERT(head.length <= buffer.capacity);
  end_reservation(buffer);
  if (peer == nullptr) return false;
  if (!peer->out.put_reserved(head, start)) ring_doorbell(*peer);
  return true;
}

void Link::abandon(ReservedBuffer& buffer) noexcept { end_reservation(buffer); }

void Link::end_reservation(ReservedBuffer& buffer) noexcept {
  if (buffer.peer != nullptr) {
    WEFT_ASSERT(buffer.peer->reserved == &buffer);
    buffer.peer->reserved = nullptr;
    buffer.peer->out.end_reservation();
  } else if (buffer.reusable) {  // the program wrote there after the channel had been emptied
    os::discard_memory(file_, header_bytes + buffer.channel * channel_bytes, channel_bytes);
    free_channels_.push_back(buffer.channel);
  }
  std::erase_if(reserved_, [&](const auto& entry) { return entry.get() == &buffer; });
}

// The peer goes: what is still written keeps its channel. False: nothing is.
bool Link::keep_channel(Peer& peer, bool reusable) noexcept {
  ReservedBuffer* const buffer = std::exchange(peer.reserved, nullptr);
  if (buffer == nullptr) return false;
  WEFT_ASSERT(buffer->peer == &peer);
  buffer->peer = nullptr;
  buffer->map = peer.out.take_mapping();
  buffer->channel = peer.channel;
  buffer->reusable = reusable;
  return true;
}

proto::RingUse Link::rings(const Peer& peer) const noexcept {
  proto::RingUse use{};
  if (peer.out.is_open()) {
    // The receiver may write anything there: no more than there is.
    const uint64_t slots = peer.out.unread_slots(std::memory_order_acquire);
    uint64_t bytes = peer.out.unread_bulk();
    if (peer.reserved != nullptr)
      bytes = peer.reserved->start + peer.reserved->capacity - (peer.out.bulk_next() - bytes);
    use.out_entries = std::min<uint64_t>(slots, slot_count);
    use.out_bytes = std::min<uint64_t>(bytes, bulk_bytes);
  }
  const ReceiveRing::Waiting waiting = peer.in.waiting();
  use.in_entries = waiting.frames;
  use.in_bytes = std::min<uint64_t>(waiting.bulk, bulk_bytes);
  if (peer.lent != nullptr)
    use.in_taken =
        static_cast<size_t>(std::count_if(peer.lent->frames.begin(), peer.lent->frames.end(),
                                          [](const LentFrames::Frame& frame) { return !frame.released; }));
  return use;
}

}  // namespace weft::link::shm
