// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PacketRing: the receive ring of a packet socket, shared with the kernel (packet(7), PACKET_RX_RING, TPACKET_V2). The
// kernel copies each frame into the next slot and sets TP_STATUS_USER, so a look for frames is a load. Must not know what
// is in the frames.
//
// Frames are taken in order, one at a time: front(), then pop(), which gives the slot back to the kernel. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "os/origin.hpp"

namespace weft::os {

struct PacketFrame {
  std::span<const std::byte> bytes;  // empty: the frame is to be dropped
  uint16_t vlan = 0;                 // the tag that the kernel took out (802.1Q TCI)
  bool is_checksum_good = false;     // verified, or of this machine and not computed yet
};

// Slots do not cross blocks, which are contiguous for the kernel.
struct PacketRingLayout {
  size_t block_bytes = 0;
  size_t blocks = 0;
  size_t slot_bytes = 0;
  size_t block_slots = 0;

  size_t slots() const noexcept { return blocks * block_slots; }
  size_t bytes() const noexcept { return blocks * block_bytes; }
  // Of slots for frames of that length, from the destination's MAC on, in at most so many bytes. No blocks: not one fits.
  static PacketRingLayout within(size_t memory_bytes, size_t frame_bytes) noexcept;
};

class PacketRing {
 public:
  PacketRing() = default;
  // Over memory of somebody else, for tests.
  PacketRing(std::byte* memory, const PacketRingLayout& layout) noexcept : memory_(memory), layout_(layout) {
    rewind();
  }
  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;
  ~PacketRing() { close(); }

  // Of a packet socket that is not bound yet. Where the kernel has no memory for all of it, half, and so on.
  Result<void> open(int fd, size_t memory_bytes, size_t frame_bytes);
  // Before the socket is closed: the kernel keeps the ring as long as it is mapped.
  void close() noexcept;
  explicit operator bool() const noexcept { return memory_ != nullptr; }
  const PacketRingLayout& layout() const noexcept { return layout_; }

  bool has_frame() const noexcept;
  // With has_frame(). The kernel's lengths are checked against the slot: what was cut off or does not fit is shown empty.
  PacketFrame front() noexcept;
  void pop() noexcept;
  uint64_t cut() const noexcept { return cut_; }  // frames that were shown empty

 private:
  void rewind() noexcept {
    slot_ = block_ = memory_;
    left_ = layout_.block_slots;
  }

  std::byte* slot_ = nullptr;  // the next one
  size_t left_ = 0;            // slots of its block, with it
  std::byte* block_ = nullptr;
  std::byte* memory_ = nullptr;
  PacketRingLayout layout_;
  uint64_t cut_ = 0;
  // Cold below.
  bool is_mapped_ = false;
  Origin origin_;
};

}  // namespace weft::os
