// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames of the engine: what travels over a Link. A plain struct for the head and for each prefix; checked reads.
// Stateless; must not know who sends or receives.
//
// A frame is a head and `length` bytes of payload. Kinds that need more than the head begin their payload with a prefix
// struct from below. Numbers are in native byte order; on
// links that leave the machine they are little-endian (proto/stream/head.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace weft::wire {

enum class FrameKind : uint8_t {
  Tagged = 1,     // a = tag, [b = cq data], payload: the message
  Msg = 2,        // [b = cq data], payload: the message
  TaggedAck = 3,  // as Tagged; payload begins with AckPrefix: the sender waits for Done
  MsgAck = 4,     // as Msg; likewise
  TaggedRts = 5,  // a = tag, [b = cq data], payload: RtsPrefix, then its segments of the source
  MsgRts = 6,     // likewise without a tag
  Cts = 7,        // a = sender's operation id, payload: CtsPrefix
  Segment = 8,    // a = receiving operation id, b = offset, payload: bytes
  Done = 9,       // a = operation id of the other side, b = status (0 or a positive FI_E* value)
  Write = 10,     // a = initiator's operation id, [b = cq data], payload: RmaPrefix, RmaTargets, bytes
  WriteRts = 11,  // as Write, but RtsPrefix follows the targets and the bytes stay with the initiator
  Read = 12,      // a = initiator's operation id, payload: RmaPrefix, RmaTargets
  Atomic = 13,    // a = initiator's operation id, payload: AtomicPrefix, RmaTargets, operand, compare
  Reply = 14,     // a = initiator's operation id, payload: the old values of a fetching atomic
  Pause = 15,     // the receiver's buffer for unexpected messages is full: keep payloads with you
  Resume = 16,    // it has room again
  TaggedFirst =
      17,  // a = tag, [b = cq data, or link time], payload: FirstPrefix, bytes; the rest follows in More
  MsgFirst = 18,  // likewise without a tag
  More = 19,      // payload: the next bytes of the message that the last First began
  Window =
      20,    // a = sender's operation id, payload: WindowPrefix, then segments of the destination: both copy
  Met = 21,  // a = receiving operation id: the sender writes no more of that
};

enum FrameFlag : uint8_t {
  has_b = 1,     // the field b is meant
  has_data = 2,  // b carries FI_REMOTE_CQ_DATA
};
inline constexpr uint8_t frame_flags = has_b | has_data;  // a link may use the other bits for itself

struct FrameHead {
  FrameKind kind;
  uint8_t flags;
  uint8_t context;  // receive context index at the target
  uint32_t length;  // payload bytes
  uint64_t a;
  uint64_t b;
};

// What a head says besides its length and its fields, as one word of 24 bits: [0..7] kind, [8..15] flags, [16..23] context.
using HeadWord = uint32_t;
constexpr HeadWord head_word(FrameKind kind, uint8_t flags, uint8_t context) noexcept {
  return HeadWord{static_cast<uint8_t>(kind)} | HeadWord{flags} << 8 | HeadWord{context} << 16;
}

struct AckPrefix {
  uint64_t operation;  // sender's operation id, for Done
};

struct FirstPrefix {
  uint64_t total;  // bytes of the message
};

// One stretch of the source of a rendezvous, in the sender's address space, or of its destination, in the receiver's.
struct SourceSegment {
  uint64_t address;
  uint64_t length;
};

struct RtsPrefix {
  uint64_t operation;  // sender's operation id
  uint64_t total;      // bytes of the message
  uint64_t stamp;      // link time of sending; 0 when the link has none
  uint32_t segments;   // SourceSegments that follow; 0 when the source cannot be read remotely
  uint32_t reserved;
};

struct CtsPrefix {
  uint64_t operation;  // receiving operation id, for Segment
  uint64_t length;     // bytes to send: the message or what fits
};

struct WindowPrefix {
  uint64_t operation;  // receiving operation id, for Met
  uint64_t length;     // bytes to copy: the message or what fits
  uint64_t meeting;    // the receiving link's name for it
  uint32_t segments;   // SourceSegments that follow, in the receiver's address space
  uint32_t reserved;
};

struct RmaPrefix {
  uint64_t total;    // bytes of the operation
  uint32_t targets;  // RmaTargets that follow
  uint32_t flags;    // RmaFlag
};

struct RmaTarget {
  uint64_t address;  // as the target's mr_mode says: virtual or offset
  uint64_t length;   // bytes
  uint64_t key;
};

struct AtomicPrefix {
  uint32_t datatype;  // fi_datatype
  uint32_t op;        // fi_op
  uint32_t kind;      // core::AtomicKind
  uint32_t targets;
  uint64_t bytes;  // of the operand (and of the compare values)
};

// Reads a struct from the front of a payload; false when it is too short.
template <class T>
[[nodiscard]] inline bool consume(const std::byte*& at, size_t& left, T& out) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if (left < sizeof(T)) return false;
  std::memcpy(&out, at, sizeof(T));
  at += sizeof(T);
  left -= sizeof(T);
  return true;
}

}  // namespace weft::wire
