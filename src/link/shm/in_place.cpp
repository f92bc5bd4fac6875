// Reading and writing frames in place. A held frame and all behind it keep their room in the ring, because credit is one position; a room keeps
// one slot, so that a commit never finds the ring full, and the bulk ring from its start on.
#include "link/shm/in_place.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace weft::link::shm {

Link::Held Link::hold(Peer& peer) noexcept try {
  if (peer.held == nullptr) {
    held_.push_back(std::make_unique<HeldFrames>());
    held_.back()->peer = &peer;
    peer.held = held_.back().get();
  }
  std::vector<HeldFrames::Frame>& frames = peer.held->frames;
  frames.push_back({peer.rx_next, peer.rx_bulk, false});
  peer.rx_hold = frames.front().slot;
  peer.rx_bulk_hold = frames.front().bulk;
  return {peer.held, peer.rx_next};
} catch (const std::bad_alloc&) {
  return {};
}

void Link::release(const Held& held) noexcept {
  HeldFrames& all = *held.frames;
  for (HeldFrames::Frame& frame : all.frames)
    if (frame.slot == held.slot) frame.released = true;
  const auto kept = std::find_if(all.frames.begin(), all.frames.end(),
                                 [](const HeldFrames::Frame& frame) { return !frame.released; });
  all.frames.erase(all.frames.begin(), kept);
  if (all.peer == nullptr) {
    if (all.frames.empty()) std::erase_if(held_, [&](const auto& entry) { return entry.get() == &all; });
    return;
  }
  Peer& peer = *all.peer;
  peer.rx_hold = all.frames.empty() ? UINT64_MAX : all.frames.front().slot;
  peer.rx_bulk_hold = all.frames.empty() ? UINT64_MAX : all.frames.front().bulk;
  if (peer.rx_control == nullptr) return;
  // What was held back: the last quarter of the ring that is through, as consumed_slot() says it.
  const uint64_t quarter = peer.rx_next / (slot_count / 4) * (slot_count / 4);
  const uint64_t due = std::min(quarter, peer.rx_hold);
  if (peer.rx_control->slots_consumed.load(std::memory_order_relaxed) < due)
    peer.rx_control->slots_consumed.store(due, std::memory_order_release);
  if (peer.rx_bulk - peer.rx_bulk_published >= bulk_bytes / 8) give_bulk_back(peer);
}

// The peer goes: frames that are still read keep its ring.
void Link::keep_ring(Peer& peer) noexcept {
  HeldFrames* const all = std::exchange(peer.held, nullptr);
  if (all == nullptr) return;
  all->peer = nullptr;
  all->map = std::move(peer.rx_map);
  if (all->frames.empty()) std::erase_if(held_, [&](const auto& entry) { return entry.get() == all; });
}

Room* Link::reserve(Peer& peer, size_t bytes) noexcept try {
  if (peer.room != nullptr || peer.state == PeerState::Lost) return nullptr;
  if (peer.tx_control == nullptr) {  // it spoke first
    if (!open_channel(peer)) return nullptr;
    greet(peer);
  }
  if (peer.tx_at == peer.tx_stop && !more_room(peer)) return nullptr;
  BulkPlace place{};
  std::byte* const at = reserve_bulk(peer, bytes, place);
  if (at == nullptr) return nullptr;
  auto room = std::make_unique<Room>();
  room->peer = &peer;
  room->bytes = at;
  room->capacity = bytes;
  room->start = place.end - ((bytes + 63) & ~size_t{63});
  rooms_.push_back(std::move(room));
  peer.room = rooms_.back().get();
  peer.bulk_touched = true;
  --peer.tx_end;
  (void)peer.set_stop();
  return peer.room;
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::byte* Link::bytes_of(const Room& room) noexcept { return room.bytes; }

bool Link::commit(Room& room, const wire::FrameHead& head) noexcept {
  Peer* const peer = room.peer;
  const BulkPlace place{room.start + ((head.length + 63) & ~size_t{63}), room.start % bulk_bytes};
  end_room(room);
  if (peer == nullptr) return false;
  Slot& slot = *peer->tx_at;
  slot.a = head.a;
  std::memcpy(slot.payload.data(), &head.b, sizeof(head.b));
  std::memcpy(slot.payload.data() + bulk_place_offset, &place, sizeof(place));
  peer->bulk_next = place.end;
  if (!publish(*peer, slot, header_of(*peer, head, wire::in_bulk))) ring_doorbell(*peer);
  return true;
}

void Link::abandon(Room& room) noexcept { end_room(room); }

void Link::end_room(Room& room) noexcept {
  if (room.peer != nullptr) {
    room.peer->room = nullptr;
    ++room.peer->tx_end;
    (void)room.peer->set_stop();
  } else if (room.reusable) {  // the program wrote there after the channel had been emptied
    os::discard_memory(file_, header_bytes + room.channel * channel_bytes, channel_bytes);
    free_channels_.push_back(room.channel);
  }
  std::erase_if(rooms_, [&](const auto& entry) { return entry.get() == &room; });
}

// The peer goes: what is still written keeps its channel. False: nothing is.
bool Link::keep_channel(Peer& peer, bool reusable) noexcept {
  Room* const room = std::exchange(peer.room, nullptr);
  if (room == nullptr) return false;
  room->peer = nullptr;
  room->map = std::move(peer.tx_map);
  room->channel = peer.tx_channel;
  room->reusable = reusable;
  return true;
}

proto::RingUse Link::rings(const Peer& peer) const noexcept {
  proto::RingUse use{};
  if (peer.tx_control != nullptr) {
    // The receiver may write anything there: no more than there is.
    const uint64_t slots = peer.tx_next() - peer.tx_control->slots_consumed.load(std::memory_order_acquire);
    uint64_t bytes = peer.bulk_next - peer.tx_control->bulk_consumed.load(std::memory_order_acquire);
    if (peer.room != nullptr) bytes = peer.room->start + peer.room->capacity - (peer.bulk_next - bytes);
    use.out_entries = std::min<uint64_t>(slots, slot_count);
    use.out_bytes = std::min<uint64_t>(bytes, bulk_bytes);
  }
  if (peer.rx_slots != nullptr) {
    uint64_t end = peer.rx_bulk;
    for (uint64_t next = peer.rx_next; next - peer.rx_next < slot_count; ++next) {
      const Slot& slot = peer.rx_slots[next % slot_count];
      const SlotHeader header = slot.header.load(std::memory_order_acquire);
      if (static_cast<uint8_t>(header) != sequence_of(next)) break;
      ++use.in_entries;
      if ((static_cast<uint8_t>(header >> 16) & wire::in_bulk) == 0) continue;
      BulkPlace place;
      std::memcpy(&place, slot.payload.data() + bulk_place_offset, sizeof(place));
      end = place.end;
    }
    use.in_bytes = std::min<uint64_t>(end - peer.rx_bulk, bulk_bytes);
  }
  if (peer.held != nullptr)
    use.in_taken =
        static_cast<size_t>(std::count_if(peer.held->frames.begin(), peer.held->frames.end(),
                                          [](const HeldFrames::Frame& frame) { return !frame.released; }));
  return use;
}

}  // namespace weft::link::shm
