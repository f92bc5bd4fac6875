// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What lies in a shared memory file of the shm link. One file an endpoint: a header, then one channel per peer that it sends to.
// Must not know who reads it. Everything here may be written by a hostile peer: readers load once into a local, then check.
//
//   offset 0          RegionHeader                 (header_bytes)
//   header_bytes + i*channel_bytes:
//     ChannelControl, Slot[slot_count]             (three pages, of which a quiet peer touches one)
//     bulk ring of bulk_bytes                      (sparse; given back when idle)
//
// The sender owns the channel's memory; the receiver maps it. Each word has one writer, apart from the doorbells, which are set by
// atomic or and cleared by exchange, and the meetings: a process that dies at any instruction leaves nothing locked.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::link::shm {

inline constexpr uint64_t region_magic = 0x314d485354464557;  // "WEFTSHM1"
inline constexpr uint32_t layout_version = 6;
inline constexpr size_t address_bytes = 48;  // fixed length of an address, NUL padded
inline constexpr size_t alias_bytes = 64;    // longest other address that an endpoint is known by

inline constexpr size_t slot_count = 128;
inline constexpr size_t slot_payload_offset =
    16;  // after header and a; b (when present) is the first word of the payload area
inline constexpr size_t bulk_bytes = size_t{1} << 20;
// The first part of the bulk ring. An empty ring begins again when this much was used, so that few pages see all traffic of a ping-pong. It takes a
// message of 64 KiB with what is around its pieces: were it full in the middle of one, each look would find a ring that is not empty.
inline constexpr size_t bulk_window_bytes = size_t{72} << 10;
// A ring that was empty at the last look, and whose receiver has answered since the one before, begins again when this much was used: what a ping-pong
// writes and reads then stays in the first-level caches.
inline constexpr size_t bulk_stride_bytes = 4096;
inline constexpr size_t page_bytes = 4096;
// Header and channels are mapped one by one: each begins and ends where a page of any kernel of the processor does. Those of arm64 have 4, 16 or 64 KiB.
#if defined(__aarch64__)
inline constexpr size_t map_unit_bytes = size_t{64} << 10;
#else
inline constexpr size_t map_unit_bytes = page_bytes;
#endif
inline constexpr size_t whole_units(size_t bytes) noexcept {
  return (bytes + map_unit_bytes - 1) / map_unit_bytes * map_unit_bytes;
}
inline constexpr size_t header_bytes = whole_units(2 * page_bytes);
inline constexpr size_t doorbell_words = 62;
inline constexpr size_t doorbell_count = doorbell_words * 64;
inline constexpr uint64_t pending_socket = uint64_t{1} << 63;  // a datagram waits at the socket

// The first word of a slot, stored last: [0..7] sequence, [8..15] kind, [16..23] flags, [24..31] context, [32..63] length.
// The sequence counts passes over the ring, 1..128, so that a slot of the last pass never looks fresh; 0 is never written.
using SlotHeader = uint64_t;
inline constexpr uint64_t sequence_bits(uint64_t position) noexcept {
  return ((position / slot_count) & 0x7f) + 1;
}
inline constexpr uint8_t sequence_of(uint64_t position) noexcept {
  return static_cast<uint8_t>(sequence_bits(position));
}

inline constexpr uint8_t payload_in_bulk = 0x80;  // in flags: the payload is not in the slot

struct alignas(64) Slot {
  std::atomic<SlotHeader> header;
  uint64_t a;
  std::array<std::byte, 48> payload;  // [b] and inline bytes, or [b] and BulkPosition at bulk_position_offset
};
static_assert(sizeof(Slot) == 64);

// Where a payload lies that is not in the slot. Positions count bytes since the channel was made.
struct BulkPosition {
  uint64_t end;     // position after the payload: everything before it is free once this frame is consumed
  uint64_t offset;  // of the payload in the bulk ring
};
inline constexpr size_t bulk_position_offset = 8;  // in Slot::payload, after b
inline constexpr size_t inline_max = 48;           // without b
inline constexpr size_t inline_max_with_b = 40;

// A message that both sides copy at once (meeting.hpp). The receiver of the message opens it; both take pieces, by compare-and-swap.
struct alignas(64) MeetingWords {
  std::atomic<uint64_t>
      taken;  // [0..15] grains that the sender took, [16..31] the receiver, [32..63] generation; 0: closed
  std::atomic<uint64_t>
      finished;  // [0..15] grains that the sender has written, bits 16 and 17 below, [32..63] generation
};
inline constexpr uint64_t meeting_failed = uint64_t{1} << 16;  // the sender writes no more of it
inline constexpr uint64_t meeting_asked = uint64_t{1}
                                          << 17;  // the receiver wants to be told when the sender is through
inline constexpr size_t meeting_count = 4;        // of a channel, at a time

struct ChannelControl {
  // Written by the receiver, rarely.
  alignas(
      64) std::atomic<uint32_t> polled;  // the receiver looks at this ring in every poll: no doorbell needed
  std::atomic<uint32_t> doorbell;        // doorbell to ring, plus one; 0: the receiver has not attached yet
  // Bit c: messages of size class c (copy_chooser.hpp) are to be announced: the receiver copies them from where they lie.
  std::atomic<uint32_t> announced_classes;
  // Written by the receiver as it consumes.
  alignas(64) std::atomic<uint64_t> slots_consumed;
  std::atomic<uint64_t> bulk_consumed;
  // Written by the sender once.
  alignas(64) std::atomic<uint32_t> closed;  // nothing more will come
  std::atomic<uint32_t> ready_bytes;  // of the bulk ring, from its start, that had pages at the meeting
  // Of messages that come by this channel.
  std::array<MeetingWords, meeting_count> meetings;
};

inline constexpr size_t channel_slots_offset = sizeof(ChannelControl);
inline constexpr size_t channel_bulk_offset = 3 * page_bytes;
static_assert(channel_slots_offset % alignof(Slot) == 0);
static_assert(channel_slots_offset + slot_count * sizeof(Slot) <= channel_bulk_offset);
inline constexpr size_t channel_bytes = whole_units(channel_bulk_offset + bulk_bytes);

// What a peer checks before it maps the rest.
struct HeaderStart {
  uint64_t magic;
  uint32_t version;
  uint32_t fences;  // 1: the owner takes part in the asymmetric fence
  uint64_t nonce;   // tells this endpoint from every other that had its name
  uint64_t header_size;
  uint64_t channel_size;
  std::array<char, address_bytes> address;
};
// A peer that reaches exposed memory by itself (exposed_regions.hpp). Written by that peer, and by the next one once it has gone.
inline constexpr size_t access_slots = 48;
struct alignas(64) AccessSlot {
  std::atomic<uint64_t> owner;   // pid in the upper half, anything but 0 in the lower; 0: nobody's
  std::atomic<uint64_t> region;  // the entry that it uses, plus one; 0: none
};

struct RegionHeader : HeaderStart {
  uint64_t
      probe_address;  // in the owner's memory: a word that holds probe_value, to try cross-memory attach on
  uint64_t probe_value;
  uint64_t pid_namespace;             // of the owner; 0: not known
  std::atomic<int32_t> regions_file;  // descriptor of the table of exposed regions, plus one; 0: none yet
  alignas(64) std::atomic<uint64_t> pending;   // bit w: a doorbell of word w rang; pending_socket
  alignas(64) std::atomic<uint32_t> sleeping;  // the owner sleeps: send a wake-up datagram
  alignas(64) std::atomic<uint32_t> closed;    // the endpoint is gone
  alignas(64) std::array<std::atomic<uint64_t>, doorbell_words> doorbells;
  std::array<AccessSlot, access_slots> users;  // of our exposed memory
};
static_assert(sizeof(RegionHeader) <= header_bytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A datagram between endpoints. With Hello and Reply ride two descriptors: the memory file, then what tells of the sender's death. NotPassed: they
// did not arrive, and could not be opened through /proc either.
enum class NoteKind : uint32_t { Hello = 1, Reply = 2, Wake = 3, Refusal = 4, Shortage = 5, NotPassed = 6 };
struct Note {
  uint64_t magic;
  uint64_t
      token;  // of the receiver's address (handshake.hpp): who does not know the address does not know it
  uint32_t version;
  NoteKind kind;
  uint64_t
      nonce;  // of the sender's region; Refusal, Shortage, NotPassed: of the receiver's, from the note that is answered
  uint64_t channel_offset;                   // Hello: the channel to the receiver; 0: none
  uint32_t wants_reply;                      // the sender could not map the receiver's region by itself
  uint32_t alias_length;                     // 0: the sender's owner knows it by `address`
  int32_t file;                              // number of the memory file at the sender
  std::array<char, address_bytes> address;   // of the sender
  std::array<std::byte, alias_bytes> alias;  // what the sender's owner calls it, when that is something else
};

}  // namespace weft::link::shm
