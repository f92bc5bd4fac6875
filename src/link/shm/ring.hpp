// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two halves of a channel (layout.hpp): SendRing writes slots and the bulk ring, ReceiveRing reads them. Must not know peers, doorbells, files or
// system calls but that for pages: whose frames these are is a template parameter, and what rings a doorbell is told by a return value.
//
// The other half is another process that may write anything: each word is loaded once into a local, then checked. Hot fields first.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "arch/cpu.hpp"
#include "base/assert.hpp"
#include "link/shm/layout.hpp"
#include "os/shared_memory.hpp"
#include "proto/engine/link.hpp"
#include "wire/frame.hpp"

namespace weft::link::shm {

inline constexpr size_t payload_bytes_max = size_t{1} << 16;  // of a frame
// A sender looks for an empty bulk ring again after each stride while payloads have at most so many bytes.
inline constexpr size_t stride_payload_max = size_t{1} << 13;

// The receiver's half. The owner calls drain(), or is_fresh() first; credit goes back within it, and by return_consumed().
// Valid from open() to leave(); between stop() and leave() it takes no frames.
class ReceiveRing {
 public:
  static constexpr size_t read_ahead = 8;  // slots

  bool is_open() const noexcept { return control_ != nullptr; }
  bool takes_frames() const noexcept { return slots_ != nullptr; }
  ChannelControl* control() const noexcept { return control_; }  // null: not open
  // Frames taken so far: the position of the next one.
  uint64_t next() const noexcept { return next_; }
  // Bytes of the bulk ring consumed so far, and what of them was payload.
  uint64_t bulk() const noexcept { return bulk_; }
  uint64_t bulk_taken() const noexcept { return bulk_taken_; }

  void open(os::Mapping map) noexcept {
    map_ = std::move(map);
    control_ = map_.as<ChannelControl>();
    slots_ = map_.as<Slot>(channel_slots_offset);
    bulk_base_ = map_.as<std::byte>(channel_bulk_offset);
  }
  // Reads the pages that the sender says it has.
  void warm() noexcept;
  void stop() noexcept { slots_ = nullptr; }
  // The mapping stays until it is taken.
  void leave() noexcept {
    control_ = nullptr;
    slots_ = nullptr;
  }
  os::Mapping extract_mapping() noexcept { return std::move(map_); }

  // While it takes frames.
  bool is_fresh() const noexcept {
    const Slot& slot = slots_[next_ % slot_count];
    return static_cast<uint8_t>(slot.header.load(std::memory_order_acquire)) == sequence_of(next_);
  }
  bool has_frame() const noexcept { return slots_ != nullptr && is_fresh(); }
  Slot& next_slot() const noexcept { return slots_[next_ % slot_count]; }
  // The frame of next_slot() has been taken by the caller, all of it from the slot.
  [[gnu::always_inline]] void consumed_short() noexcept {
    consumed_slot(next_);
    return_slots();
  }

  // Shows at most `budget` frames to the handler, as frames of `peer`. What makes no sense goes to reject(text), whose result is added to the
  // frames taken.
  template <class Peer, class Handler, class Reject>
  [[gnu::always_inline]] int drain(Peer& peer, Handler& handler, int budget, Reject&& reject) noexcept {
    int taken = 0;
    for (; taken < budget; ++taken) {
      const uint64_t next = next_;
      Slot& slot = slots_[next % slot_count];
      const SlotHeader header = slot.header.load(std::memory_order_acquire);
      if constexpr (proto::TakesShortFrames<Handler, Peer>) {
        const auto length = static_cast<uint32_t>(header >> 32);
        if (static_cast<uint32_t>(header) == header_start(next, Handler::short_head) && length <= inline_max)
            [[likely]] {
          if (taken > 0) arch::prefetch_for_read(&slots_[(next + read_ahead) % slot_count]);
          if (handler.on_short_frame(peer, slot.a, slot.payload.data(), length)) [[likely]] {
            consumed_slot(next);
            continue;
          }
        }
      }
      if (static_cast<uint8_t>(header) != sequence_of(next)) break;
      if constexpr (proto::TakesShortFrames<Handler, Peer>) {
        const auto length = static_cast<uint32_t>(header >> 32);
        if (static_cast<uint32_t>(header) == header_start(next, Handler::short_head_with_b) &&
            length <= inline_max_with_b) {
          uint64_t b;
          std::memcpy(&b, slot.payload.data(), sizeof(b));
          if (handler.on_short_frame_with_b(peer, slot.a, b, slot.payload.data() + sizeof(b), length))
              [[likely]] {
            if (taken > 0) arch::prefetch_for_read(&slots_[(next + read_ahead) % slot_count]);
            consumed_slot(next);
            continue;
          }
        }
      }
      if (taken > 0) arch::prefetch_for_read(&slots_[(next + read_ahead) % slot_count]);
      wire::FrameHead head{static_cast<wire::FrameKind>(static_cast<uint8_t>(header >> 8)),
                           static_cast<uint8_t>(header >> 16),
                           static_cast<uint8_t>(header >> 24),
                           static_cast<uint32_t>(header >> 32),
                           slot.a,
                           0};
      const std::byte* payload = slot.payload.data();
      uint64_t bulk_after = bulk_;
      if ((head.flags & (wire::has_b | payload_in_bulk)) != 0) {
        std::memcpy(&head.b, payload, sizeof(head.b));
        payload += sizeof(head.b);
      }
      if ((head.flags & payload_in_bulk) != 0) {
        head.flags &= static_cast<uint8_t>(~payload_in_bulk);
        BulkPosition place;
        std::memcpy(&place, payload, sizeof(place));
        if (!bulk_is_sound(place, head.length)) [[unlikely]]
          return taken + reject("a frame's payload lies outside of the bulk ring");
        payload = bulk_base_ + place.offset;
        bulk_after = place.end;
      } else if (head.length > ((head.flags & wire::has_b) != 0 ? inline_max_with_b : inline_max))
          [[unlikely]] {
        return taken + reject("a frame is longer than its slot");
      }
      if (!handler.on_frame(peer, head, payload)) [[unlikely]]
        break;
      if (bulk_after != bulk_) {
        bulk_ = bulk_after;
        bulk_taken_ += head.length;
      }
      consumed_slot(next_);
      return_bulk_if_due();
    }
    // Of the bulk ring, too, in the same line: a sender that finds its ring empty stays in the pages that it has used.
    if (taken > 0) return_consumed();
    return taken;
  }

  // All credit, at the end of a poll: the peer is to know how far we were when we are gone. It reads the line only when it is out of credit.
  void return_consumed() noexcept {
    if (bulk_ != bulk_published_) return_bulk_space();
    return_slots();
  }
  void return_slots() noexcept {
    control_->slots_consumed.store(std::min(next_, lent_), std::memory_order_release);
  }

  // Frames from these positions on are still read in place: no credit goes back for them. UINT64_MAX: none is.
  void lend_from(uint64_t slot, uint64_t bulk) noexcept {
    lent_ = slot;
    bulk_lent_ = bulk;
  }
  // After lend_from() has moved on: the last quarter of the ring that is through, as consumed_slot() gives it back.
  void return_loan() noexcept;

  // Frames that wait, and bytes that these have in the bulk ring, without what the sender left out at its end.
  struct Waiting {
    size_t frames = 0;
    uint64_t bulk = 0;
  };
  Waiting waiting() const noexcept;

 private:
  // The lower half of the header that a slot has in that position: sequence, kind, flags, context.
  static uint32_t header_start(uint64_t position, wire::HeadWord head) noexcept {
    return uint32_t{sequence_of(position)} | head << 8;
  }
  bool bulk_is_sound(const BulkPosition& place, size_t bytes) const noexcept {
    return bytes <= payload_bytes_max && place.offset <= bulk_bytes - bytes &&
           place.end - bulk_ <= bulk_bytes;
  }
  void consumed_slot(uint64_t position) noexcept {
    WEFT_ASSERT(position == next_);
    next_ = position + 1;
    // Credit goes back in quarters of the ring: the line is written rarely and the sender never starves.
    // Release: our reads of the slots come before the sender's next writes (pairs with SendRing::refresh()).
    if ((position + 1) % (slot_count / 4) == 0) [[unlikely]]
      control_->slots_consumed.store(std::min(position + 1, lent_), std::memory_order_release);
  }
  void return_bulk_if_due() noexcept {
    if (bulk_ - bulk_published_ >= bulk_bytes / 8) return_bulk_space();
  }
  void return_bulk_space() noexcept {
    WEFT_ASSERT(std::min(bulk_, bulk_lent_) >= bulk_published_);
    bulk_published_ = std::min(bulk_, bulk_lent_);
    control_->bulk_consumed.store(bulk_published_, std::memory_order_release);
  }

  Slot* slots_ = nullptr;  // null: takes no frames
  uint64_t next_ = 0;
  uint64_t bulk_ = 0;            // bytes consumed
  uint64_t bulk_published_ = 0;  // and of these, given back
  uint64_t bulk_taken_ = 0;      // bytes of payload
  const std::byte* bulk_base_ = nullptr;
  ChannelControl* control_ = nullptr;
  uint64_t lent_ = UINT64_MAX;       // position of the oldest frame on loan
  uint64_t bulk_lent_ = UINT64_MAX;  // and of its payload
  // --- cold below this line ---
  os::Mapping map_;
};

// The sender's half. A frame takes the slot at `at_` and, when it is longer than a slot, room in the bulk ring. put_small() and put() return
// whether the receiver looks by itself; if it does not, the caller rings its doorbell. Valid from open() to leave().
class SendRing {
 public:
  static constexpr uint64_t write_ahead = 16;  // slots
  enum class Put : uint8_t { Refused, Seen, Unseen };

  bool is_open() const noexcept { return control_ != nullptr; }
  ChannelControl* control() const noexcept { return control_; }  // null: not open
  // Frames sent so far: the position of the next one.
  uint64_t next() const noexcept { return first_ + static_cast<uint64_t>(at_ - slots_); }
  uint64_t bulk_next() const noexcept { return bulk_next_; }  // the position behind the last payload
  uint64_t bulk_sent() const noexcept { return bulk_sent_; }  // bytes of payload
  size_t bulk_ready() const noexcept {
    return bulk_ready_;
  }  // bytes from the start of the bulk ring that have pages
  Slot* next_slot() const noexcept { return at_; }

  void open(os::Mapping map) noexcept;
  // Before the receiver hears of the channel, which has no contents yet: pages for the slots and the first window of the bulk ring.
  void warm() noexcept;
  // The mapping stays until it is taken.
  void leave() noexcept {
    control_ = nullptr;
    at_ = stop_ = slots_ = nullptr;
  }
  os::Mapping extract_mapping() noexcept { return std::move(map_); }

  // True: put_small() takes the next frame.
  [[gnu::always_inline]] bool has_slot() const noexcept { return at_ != stop_; }
  // The same, after a look for new credit.
  bool more_room() noexcept {
    if (slots_ == nullptr) return false;
    return next() == end_ ? refresh() : set_stop();
  }
  // A frame of at most inline_max bytes (inline_max_with_b with a b field), while has_slot(). In a burst the lines that come next are fetched
  // early; a lone message must not pay for that. True: the receiver looks at this ring in every poll.
  [[gnu::always_inline]] bool put_small(const wire::FrameHead& head, const void* bytes,
                                        bool is_burst) noexcept {
    if (is_burst) arch::prefetch_for_write(reinterpret_cast<std::byte*>(at_) + ahead_);
    Slot& slot = *at_;
    const SlotHeader header = header_of(head, 0);
    slot.a = head.a;
    std::byte* to = slot.payload.data();
    if ((head.flags & wire::has_b) != 0) {
      std::memcpy(to, &head.b, sizeof(head.b));
      to += sizeof(head.b);
    }
    arch::copy_small(to, bytes, head.length);
    return publish(slot, header);
  }
  // Prefix and gathered bytes as one frame; head.length is their sum. Refused: no room now. `answers` is the other direction: a receiver that has
  // sent something since the last look may have emptied the ring.
  Put put(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
          size_t part_count, const ReceiveRing& answers) noexcept;

  // One slot and all the rest of the bulk ring are kept for a frame that the program writes in place: the next frame that needs the bulk ring is it.
  // Null: no room now. `start` is its position. While has_slot().
  std::byte* reserve(size_t bytes, const ReceiveRing& answers, uint64_t& start) noexcept;
  void end_reservation() noexcept;
  // After end_reservation(): sends what lies at `start`. True: the receiver looks by itself.
  bool put_reserved(const wire::FrameHead& head, uint64_t start) noexcept;
  bool is_reserved() const noexcept { return is_reserved_; }

  // Frames that the receiver has not consumed, by what it says; it may say anything.
  uint64_t unread_slots(std::memory_order order) const noexcept {
    return next() - control_->slots_consumed.load(order);
  }
  // The same of the bulk ring, in bytes.
  uint64_t unread_bulk() const noexcept { return bulk_next_ - bulk_consumed(); }
  // Which kinds of messages that need no answer are in frames that it has not consumed (proto::Unread).
  uint8_t unread_messages() const noexcept;
  // The receiver has the channel.
  bool is_attached() const noexcept {
    return control_ != nullptr && control_->doorbell.load(std::memory_order_relaxed) != 0;
  }

  // True: the bulk ring is empty and has not moved for idle_ns, so its pages may go. Asked from time to time.
  bool is_bulk_idle(uint64_t now_ns) noexcept;
  // They have gone, but for the first `kept` bytes: the next payload goes to the start of the ring.
  void forget_pages(size_t kept) noexcept;

 private:
  [[gnu::always_inline]] SlotHeader header_of(const wire::FrameHead& head,
                                              uint8_t more_flags) const noexcept {
    const uint8_t flags = static_cast<uint8_t>(head.flags | more_flags);
    return sequence_ |
           (uint64_t{wire::head_word(head.kind, flags, head.context)} << 8 | uint64_t{head.length} << 32);
  }
  [[gnu::always_inline]] bool publish(Slot& slot, SlotHeader header) noexcept {
    // Orders the slot's contents before its header; pairs with the acquire load in ReceiveRing::drain().
    slot.header.store(header, std::memory_order_release);
    at_ = &slot + 1;
    // Where the receiver fences for both (ActivePeers), the compiler alone has to keep the load behind the store.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return control_->polled.load(std::memory_order_relaxed) != 0;
  }
  // After each change of end_, and at stop_. False: no credit. end_ lies at most a ring behind next(), never before it.
  bool set_stop() noexcept {
    if (slots_ == nullptr) return false;
    const uint64_t position = next();
    WEFT_ASSERT(end_ - position <= slot_count);
    const uint64_t index = position % slot_count;
    // Near the end of a pass the slots that are fetched early lie at its beginning.
    const bool turns = index >= slot_count - write_ahead;
    const uint64_t border = turns ? slot_count : slot_count - write_ahead;
    first_ = position - index;
    at_ = slots_ + index;
    stop_ = slots_ + std::min(border, index + (end_ - position));
    sequence_ = sequence_bits(position);
    ahead_ = (static_cast<ptrdiff_t>(write_ahead) - (turns ? static_cast<ptrdiff_t>(slot_count) : 0)) *
             static_cast<ptrdiff_t>(sizeof(Slot));
    WEFT_ASSERT(at_ <= stop_ && stop_ <= slots_ + slot_count);
    return at_ != stop_;
  }
  [[gnu::noinline]] bool refresh() noexcept;
  static constexpr size_t room_of(size_t bytes) noexcept { return (bytes + 63) & ~size_t{63}; }
  std::byte* reserve_bulk(size_t bytes, const ReceiveRing& answers, BulkPosition& place) noexcept;
  [[gnu::noinline]] uint64_t restart_bulk(uint64_t start, size_t room, uint64_t answers) noexcept;
  [[gnu::noinline]] void ready_bulk(size_t end) noexcept;
  // The position before which the receiver has consumed everything. What a restart has left out was never used.
  uint64_t bulk_consumed() const noexcept {
    // Acquire: pairs with ReceiveRing::return_bulk_space(); the receiver has finished reading the bytes that we write next.
    const uint64_t consumed = control_->bulk_consumed.load(std::memory_order_acquire);
    return consumed == bulk_empty_at_ ? bulk_restart_ : consumed;
  }

  // The next slot, and what set_stop() makes of its position, so that a frame computes none of it.
  Slot* at_ = nullptr;
  Slot* stop_ = nullptr;     // what at_ must not reach without set_stop(); null, as at_: there is no channel
  SlotHeader sequence_ = 0;  // sequence_bits() of at_
  ptrdiff_t ahead_ = 0;      // bytes from at_ to the slot that a burst fetches early
  ChannelControl* control_ = nullptr;
  Slot* slots_ = nullptr;
  uint64_t first_ = 0;         // position of slots_[0] in this pass
  uint64_t end_ = slot_count;  // first position that may not be used yet
  std::byte* bulk_ = nullptr;
  uint64_t bulk_next_ = 0;
  uint64_t bulk_end_ = bulk_bytes;           // first position that may not be used yet
  uint64_t bulk_check_ = bulk_stride_bytes;  // beyond it the sender looks whether the ring is empty
  // The last time that the ring began again because it was empty: the position until which all was consumed, and that of its new start.
  uint64_t bulk_empty_at_ = 0;
  uint64_t bulk_restart_ = 0;
  // After a look that found the ring not empty: how many frames had come back at that time. Up to position `bulk_check_waits_` there is no other look
  // while no more have; 0: no limit.
  uint64_t bulk_check_answers_ = 0;
  uint64_t bulk_check_waits_ = 0;
  uint32_t bulk_ready_ = 0;   // bytes from the start of the ring that have pages
  bool is_reserved_ = false;  // by reserve()
  bool is_touched_ = false;   // pages of the bulk ring may be in memory
  uint64_t bulk_sent_ = 0;    // bytes of payload
  // --- cold below this line ---
  os::Mapping map_;
  uint64_t idle_next_ = 0;      // bulk_next_ when is_bulk_idle() last saw it move
  uint64_t idle_since_ns_ = 0;  // and when that was
};

inline std::byte* SendRing::reserve_bulk(size_t bytes, const ReceiveRing& answers,
                                         BulkPosition& place) noexcept {
  const size_t room = room_of(bytes);
  uint64_t start = bulk_next_;
  WEFT_ASSERT(room <= bulk_bytes);
  const size_t offset = start % bulk_bytes;
  if (offset + room > bulk_bytes) start += bulk_bytes - offset;  // a payload does not wrap
  if (start + room > bulk_check_) [[unlikely]]
    start = restart_bulk(start, room, answers.next());
  if (start + room > bulk_end_) {
    const uint64_t consumed = bulk_consumed();
    if (bulk_next_ - consumed > bulk_bytes) return nullptr;
    bulk_end_ = consumed + bulk_bytes;
    if (start + room > bulk_end_) return nullptr;
  }
  place.end = start + room;
  place.offset = start % bulk_bytes;
  WEFT_ASSERT(place.end > bulk_next_ || bytes == 0);
  WEFT_ASSERT(place.offset + room <= bulk_bytes);
  if (place.offset + room > bulk_ready_) [[unlikely]]
    ready_bulk(place.offset + room);
  return bulk_ + place.offset;
}

[[gnu::always_inline]] inline SendRing::Put SendRing::put(const wire::FrameHead& head,
                                                          std::span<const std::byte> prefix,
                                                          const iovec* parts, size_t part_count,
                                                          const ReceiveRing& answers) noexcept {
  if (!has_slot() && !more_room()) return Put::Refused;
  const bool with_b = (head.flags & wire::has_b) != 0;
  const bool fits = head.length <= (with_b ? inline_max_with_b : inline_max);
  Slot& slot = *at_;
  std::byte* to = slot.payload.data() + (with_b ? sizeof(head.b) : 0);
  BulkPosition place{};
  if (!fits) {
    to = is_reserved_ ? nullptr : reserve_bulk(head.length, answers, place);
    if (to == nullptr) return Put::Refused;
  }
  slot.a = head.a;
  if (with_b || !fits) std::memcpy(slot.payload.data(), &head.b, sizeof(head.b));
  if (!prefix.empty()) std::memcpy(to, prefix.data(), prefix.size());
  to += prefix.size();
  size_t left = head.length - prefix.size();
  for (size_t i = 0; i < part_count && left > 0; ++i) {
    const size_t bytes = std::min(left, parts[i].iov_len);
    if (bytes == 0) continue;
    std::memcpy(to, parts[i].iov_base, bytes);
    to += bytes;
    left -= bytes;
  }
  if (!fits) {
    std::memcpy(slot.payload.data() + bulk_position_offset, &place, sizeof(place));
    bulk_next_ = place.end;
    bulk_sent_ += head.length;
    is_touched_ = true;
  }
  return publish(slot, header_of(head, fits ? 0 : payload_in_bulk)) ? Put::Seen : Put::Unseen;
}

}  // namespace weft::link::shm
