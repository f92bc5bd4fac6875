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
  WEFT_ASSERT(frames.empty() || frames.back().slot < peer.rx_next);
  frames.push_back({peer.rx_next, peer.rx_bulk, false});
  peer.rx_lent = frames.front().slot;
  peer.rx_bulk_lent = frames.front().bulk;
  return {peer.lent, peer.rx_next};
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
  peer.rx_lent = all.frames.empty() ? UINT64_MAX : all.frames.front().slot;
  peer.rx_bulk_lent = all.frames.empty() ? UINT64_MAX : all.frames.front().bulk;
  if (peer.rx_control == nullptr) return;
  // What was held back: the last quarter of the ring that is through, as consumed_slot() says it.
  const uint64_t quarter = peer.rx_next / (slot_count / 4) * (slot_count / 4);
  const uint64_t due = std::min(quarter, peer.rx_lent);
  if (peer.rx_control->slots_consumed.load(std::memory_order_relaxed) < due)
    peer.rx_control->slots_consumed.store(due, std::memory_order_release);
  if (peer.rx_bulk - peer.rx_bulk_published >= bulk_bytes / 8) give_bulk_back(peer);
}

// The peer goes: frames that are still read keep its ring.
void Link::keep_ring(Peer& peer) noexcept {
  LentFrames* const all = std::exchange(peer.lent, nullptr);
  if (all == nullptr) return;
  all->peer = nullptr;
  all->map = std::move(peer.rx_map);
  if (all->frames.empty()) std::erase_if(lent_, [&](const auto& entry) { return entry.get() == all; });
}

ReservedBuffer* Link::reserve(Peer& peer, size_t bytes, int& error) noexcept try {
  error = EAGAIN;
  if (peer.reserved != nullptr || peer.state == PeerState::Lost) return nullptr;
  if (peer.tx_control == nullptr) {  // it spoke first
    if (!open_channel(peer)) return nullptr;
    greet(peer);
  }
  if (peer.tx_at == peer.tx_stop && !more_room(peer)) return nullptr;
  auto buffer = std::make_unique<ReservedBuffer>();
  // A frame of any size may follow a reservation that is abandoned. It must end within a ring of what was consumed (restart_bulk), so the ring begins
  // again only where that holds for all sizes.
  const bool may_restart = peer.bulk_next % bulk_bytes >= frame_bytes_max;
  const uint64_t look = peer.bulk_look;
  if (!may_restart) peer.bulk_look = UINT64_MAX;
  BulkPlace place{};
  std::byte* const at = reserve_bulk(peer, bytes, place);
  if (!may_restart) peer.bulk_look = look;
  if (at == nullptr) return nullptr;
  buffer->peer = &peer;
  buffer->bytes = at;
  buffer->capacity = bytes;
  buffer->start = place.end - ((bytes + 63) & ~size_t{63});
  reserved_.push_back(std::move(buffer));
  peer.reserved = reserved_.back().get();
  peer.bulk_touched = true;
  WEFT_ASSERT(peer.tx_end > peer.tx_next());
  --peer.tx_end;
  (void)peer.set_stop();
  return peer.reserved;
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::byte* Link::bytes_of(const ReservedBuffer& buffer) noexcept { return buffer.bytes; }

bool Link::commit(ReservedBuffer& buffer, const wire::FrameHead& head) noexcept {
  Peer* const peer = buffer.peer;
  WEFT_ASSERT(head.length <= buffer.capacity);
  const BulkPlace place{buffer.start + ((head.length + 63) & ~size_t{63}), buffer.start % bulk_bytes};
  end_reservation(buffer);
  if (peer == nullptr) return false;
  WEFT_ASSERT(peer->tx_at != peer->tx_stop && place.end >= peer->bulk_next);
  Slot& slot = *peer->tx_at;
  slot.a = head.a;
  std::memcpy(slot.payload.data(), &head.b, sizeof(head.b));
  std::memcpy(slot.payload.data() + bulk_place_offset, &place, sizeof(place));
  peer->bulk_next = place.end;
  peer->bulk_sent += head.length;
  if (!publish(*peer, slot, header_of(*peer, head, payload_in_bulk))) ring_doorbell(*peer);
  return true;
}

void Link::abandon(ReservedBuffer& buffer) noexcept { end_reservation(buffer); }

void Link::end_reservation(ReservedBuffer& buffer) noexcept {
  if (buffer.peer != nullptr) {
    WEFT_ASSERT(buffer.peer->reserved == &buffer);
    buffer.peer->reserved = nullptr;
    ++buffer.peer->tx_end;
    (void)buffer.peer->set_stop();
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
  buffer->map = std::move(peer.tx_map);
  buffer->channel = peer.tx_channel;
  buffer->reusable = reusable;
  return true;
}

proto::RingUse Link::rings(const Peer& peer) const noexcept {
  proto::RingUse use{};
  if (peer.tx_control != nullptr) {
    // The receiver may write anything there: no more than there is.
    const uint64_t slots = peer.tx_next() - peer.tx_control->slots_consumed.load(std::memory_order_acquire);
    uint64_t bytes = peer.bulk_next - peer.bulk_consumed();
    if (peer.reserved != nullptr)
      bytes = peer.reserved->start + peer.reserved->capacity - (peer.bulk_next - bytes);
    use.out_entries = std::min<uint64_t>(slots, slot_count);
    use.out_bytes = std::min<uint64_t>(bytes, bulk_bytes);
  }
  if (peer.rx_slots != nullptr) {
    uint64_t bytes = 0;  // without what the sender left out at the end of the ring
    for (uint64_t next = peer.rx_next; next - peer.rx_next < slot_count; ++next) {
      const Slot& slot = peer.rx_slots[next % slot_count];
      const SlotHeader header = slot.header.load(std::memory_order_acquire);
      if (static_cast<uint8_t>(header) != sequence_of(next)) break;
      ++use.in_entries;
      if ((static_cast<uint8_t>(header >> 16) & payload_in_bulk) == 0) continue;
      bytes += ((header >> 32) + 63) & ~uint64_t{63};
    }
    use.in_bytes = std::min<uint64_t>(bytes, bulk_bytes);
  }
  if (peer.lent != nullptr)
    use.in_taken =
        static_cast<size_t>(std::count_if(peer.lent->frames.begin(), peer.lent->frames.end(),
                                          [](const LentFrames::Frame& frame) { return !frame.released; }));
  return use;
}

}  // namespace weft::link::shm
