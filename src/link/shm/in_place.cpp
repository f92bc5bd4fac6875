// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/in_place.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace weft::link::shm {

Loan InPlace::loan(Peer& peer) noexcept try {
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

void InPlace::release(const Loan& loan) noexcept {
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
  peer.in.return_loan();
}

void InPlace::retain_ring(Peer& peer) noexcept {
  LentFrames* const all = std::exchange(peer.lent, nullptr);
  if (all == nullptr) return;
  all->peer = nullptr;
  all->map = peer.in.extract_mapping();
  if (all->frames.empty()) std::erase_if(lent_, [&](const auto& entry) { return entry.get() == all; });
}

ReservedBuffer* InPlace::reserve(Peer& peer, size_t bytes) noexcept try {
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

SendRing::Put InPlace::commit(ReservedBuffer& buffer, const wire::FrameHead& head) noexcept {
  Peer* const peer = buffer.peer;
  const uint64_t start = buffer.start;
  WEFT_ASSERT(head.length <= buffer.capacity);
  end(buffer);
  if (peer == nullptr) return SendRing::Put::Refused;
  return peer->out.put_reserved(head, start) ? SendRing::Put::Seen : SendRing::Put::Unseen;
}

void InPlace::end(ReservedBuffer& buffer) noexcept {
  if (buffer.peer != nullptr) {
    WEFT_ASSERT(buffer.peer->reserved == &buffer);
    buffer.peer->reserved = nullptr;
    buffer.peer->out.end_reservation();
  } else if (buffer.reusable) {  // the program wrote there after the channel had been emptied
    file_.discard(buffer.channel);
    file_.release(buffer.channel);
  }
  std::erase_if(reserved_, [&](const auto& entry) { return entry.get() == &buffer; });
}

bool InPlace::retain_channel(Peer& peer, bool reusable) noexcept {
  ReservedBuffer* const buffer = std::exchange(peer.reserved, nullptr);
  if (buffer == nullptr) return false;
  WEFT_ASSERT(buffer->peer == &peer);
  buffer->peer = nullptr;
  buffer->map = peer.out.extract_mapping();
  buffer->channel = peer.channel;
  buffer->reusable = reusable;
  return true;
}

proto::RingUse InPlace::rings(const Peer& peer) noexcept {
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
