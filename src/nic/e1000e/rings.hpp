// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two descriptor rings of an 82574 and what the driver remembers of them. Must not know registers: who calls writes the doorbells.
//
// Descriptors are of the legacy formats (datasheet 7.1, "Legacy Receive Descriptor Format", and 7.2, "Legacy Transmit Descriptor
// Format"): 16 bytes that hold all that this driver uses. The device leaves the address of a receive descriptor alone, so one store of 8
// bytes gives a buffer back; the extended format overwrites it. RFCTL.EXTEN is 0, TDESC.DEXT is 0.
//
// Contract:
//   - Positions count on for ever; `position & mask` is a descriptor. Only the device's word is read back, once, into a local.
//   - dma_release() before a doorbell is the caller's.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "arch/cpu.hpp"
#include "nic/driver.hpp"
#include "nic/e1000e/registers.hpp"

namespace weft::nic::e1000e {

static_assert(std::endian::native == std::endian::little, "descriptors are little endian");

struct Descriptor {
  uint64_t address;  // of the buffer
  uint64_t word;     // the rest
};
static_assert(sizeof(Descriptor) == 16);

inline constexpr unsigned descriptors_min = 64;  // more than a frame can need
inline constexpr unsigned descriptors_max = 4096;
// A power of two that both ring lengths allow (RDLEN, TDLEN: 8 descriptors).
constexpr unsigned ring_size(unsigned wanted) {
  return std::bit_ceil(std::clamp(wanted, descriptors_min, descriptors_max));
}

// Memory that the device writes at any time.
inline uint64_t load_device_word(const uint64_t& word) noexcept {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

// --- transmit ---

// TDESC, second half: length, then a command byte, then a status byte that the device writes.
struct TransmitWord {
  static constexpr uint64_t end_of_packet = uint64_t{1} << 24;  // EOP
  static constexpr uint64_t insert_fcs = uint64_t{1} << 25;     // IFCS
  static constexpr uint64_t report_status = uint64_t{1} << 27;  // RS
  static constexpr uint64_t done = uint64_t{1} << 32;           // DD
  static constexpr uint64_t length = 0xffff;
};
inline constexpr uint64_t border_bytes = 4096;

// The device writes the status of one descriptor for each batch (RS): batches are reclaimed as a whole. A batch is what was posted
// between two doorbells, at most a quarter of the ring.
class TransmitRing {
 public:
  // `memory`: zeroed, of `descriptors` (a power of two) descriptors.
  void open(std::byte* memory, unsigned descriptors, size_t frame_bytes_max) {
    ring_ = reinterpret_cast<Descriptor*>(memory);
    mask_ = descriptors - 1;
    batch_max_ = descriptors / 4;
    frame_bytes_max_ = frame_bytes_max;
    head_ = shown_ = batch_ = tail_ = 0;
    slots_.assign(descriptors, {});
  }

  // One descriptor stays free: TDT equal to TDH means empty.
  size_t room() const noexcept { return mask_ - (tail_ - head_); }
  bool has_unshown() const noexcept { return shown_ != tail_; }
  uint32_t tail() const noexcept { return tail_ & mask_; }  // for TDT

  // The bytes of the frame; 0: it was not taken. No descriptor crosses a border of 4 KiB: pages that are neighbours for the device are
  // not so in memory, and QEMU's card, which wants a buffer in one piece, loses such a frame without a word.
  size_t post(std::span<const Fragment> frame, uint64_t token) noexcept {
    if (frame.size() > fragments_max) return 0;
    const uint32_t end = tail_ + static_cast<uint32_t>(room());
    uint32_t position = tail_;
    size_t bytes = 0;
    for (const Fragment& fragment : frame) {
      bytes += fragment.bytes;
      if (bytes > frame_bytes_max_) return 0;
      if (fragment.bytes == 0) continue;
      if (fragment.address % border_bytes + fragment.bytes <= border_bytes) [[likely]] {
        if (position == end) return 0;
        ring_[position++ & mask_] = {fragment.address, fragment.bytes | TransmitWord::insert_fcs};
      } else {
        const uint32_t next = split(fragment, position, end);
        if (next == position) return 0;
        position = next;
      }
    }
    // Nothing is taken until tail_ moves.
    if (bytes < frame_bytes_smallest) return 0;
    ring_[(position - 1) & mask_].word |= TransmitWord::end_of_packet;
    Slot& slot = slots_[tail_ & mask_];
    slot.token = token;
    slot.next = position;
    tail_ = position;
    if (tail_ - batch_ >= batch_max_) end_batch();
    return bytes;
  }

  // Before the doorbell.
  void show() noexcept {
    end_batch();
    shown_ = tail_;
  }

  template <class Tokens>
  size_t reclaim(Tokens&& tokens) noexcept {
    size_t frames = 0;
    while (head_ != shown_) {
      const uint32_t end = slots_[head_ & mask_].batch_end;
      if (!(load_device_word(ring_[(end - 1) & mask_].word) & TransmitWord::done)) break;
      for (; head_ != end; ++frames) {
        const Slot slot = slots_[head_ & mask_];
        head_ = slot.next;  // first: who gets the token may post
        tokens(slot.token);
      }
    }
    return frames;
  }

 private:
  // Of the first descriptor of a frame.
  struct Slot {
    uint64_t token = 0;
    uint32_t next = 0;       // where the next frame begins
    uint32_t batch_end = 0;  // of the first frame of a batch: where the next batch begins
  };

  // A descriptor for each page of the fragment, from `first` on. Where the next goes; `first` when there are not so many before `end`.
  [[gnu::noinline]] uint32_t split(const Fragment& fragment, uint32_t first, uint32_t end) noexcept {
    uint32_t position = first;
    uint64_t address = fragment.address;
    for (uint32_t left = fragment.bytes; left != 0;) {
      if (position == end) return first;
      const auto piece =
          static_cast<uint32_t>(std::min<uint64_t>(left, border_bytes - address % border_bytes));
      ring_[position++ & mask_] = {address, piece | TransmitWord::insert_fcs};
      address += piece;
      left -= piece;
    }
    return position;
  }

  void end_batch() noexcept {
    if (batch_ == tail_) return;
    ring_[(tail_ - 1) & mask_].word |= TransmitWord::report_status;
    slots_[batch_ & mask_].batch_end = tail_;
    batch_ = tail_;
  }

  Descriptor* ring_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t batch_max_ = 0;
  size_t frame_bytes_max_ = 0;
  // head_ <= shown_ <= batch_ <= tail_
  uint32_t head_ = 0;   // the oldest that was not reclaimed
  uint32_t shown_ = 0;  // the device knows what is before
  uint32_t batch_ = 0;  // where the open batch begins
  uint32_t tail_ = 0;   // free from here on
  std::vector<Slot> slots_;
};

// --- receive ---

// RDESC, second half, as the device wrote it: length, packet checksum, status, errors, VLAN tag.
class ReceiveWord {
 public:
  static constexpr uint64_t done = uint64_t{1} << 32;                   // DD
  static constexpr uint64_t end_of_packet = uint64_t{1} << 33;          // EOP
  static constexpr uint64_t ignore_checksum = uint64_t{1} << 34;        // IXSM
  static constexpr uint64_t transport_checked = uint64_t{1} << 37;      // TCPCS, for UDP too
  static constexpr uint64_t ip_checked = uint64_t{1} << 38;             // IPCS
  static constexpr uint64_t errors_of_frame = uint64_t{0x97} << 40;     // CE, SE, SEQ, CXE, RXE
  static constexpr uint64_t errors_of_checksum = uint64_t{0x60} << 40;  // TCPE, IPE

  explicit ReceiveWord(uint64_t word) noexcept : word_(word) {}
  size_t bytes() const noexcept { return word_ & 0xffff; }
  bool is_done() const noexcept { return (word_ & done) != 0; }
  bool is_end() const noexcept { return (word_ & end_of_packet) != 0; }
  bool has_error() const noexcept { return (word_ & errors_of_frame) != 0; }
  // The device looked at the checksums of IP and TCP or UDP and found them right. An IPv6 header has none.
  bool is_checked(bool is_ip6) const noexcept {
    constexpr uint64_t wrong = ignore_checksum | errors_of_checksum;
    const uint64_t wanted = transport_checked | (is_ip6 ? 0 : ip_checked);
    return (word_ & (wrong | wanted)) == wanted;
  }

 private:
  uint64_t word_;
};

// Each descriptor keeps its buffer. The device has all of them but one and those that wait for a doorbell.
class ReceiveRing {
 public:
  // `memory`: zeroed; `buffers`: `descriptors` buffers of `buffer_bytes` bytes, at the device's `address`.
  void open(std::byte* memory, unsigned descriptors, const std::byte* buffers, uint64_t address,
            size_t buffer_bytes) noexcept {
    ring_ = reinterpret_cast<Descriptor*>(memory);
    mask_ = descriptors - 1;
    buffers_ = buffers;
    buffer_bytes_ = buffer_bytes;
    next_ = shown_ = 0;
    for (unsigned i = 0; i < descriptors; ++i) ring_[i] = {address + i * buffer_bytes, 0};
  }

  uint32_t size() const noexcept { return mask_ + 1; }
  size_t buffer_bytes() const noexcept { return buffer_bytes_; }
  uint32_t tail() const noexcept { return (next_ - 1) & mask_; }  // for RDT
  // Buffers that came back and that the device does not know of.
  uint32_t unshown() const noexcept { return next_ - shown_; }
  void show() noexcept { shown_ = next_; }

  bool has_next() const noexcept {
    return ReceiveWord(load_device_word(ring_[next_ & mask_].word)).is_done();
  }
  // What the device wrote; only after has_next(). The second load is ordered behind the one that saw DD.
  ReceiveWord next() const noexcept {
    arch::dma_acquire();
    return ReceiveWord(load_device_word(ring_[next_ & mask_].word));
  }
  const std::byte* buffer() const noexcept { return buffers_ + (next_ & mask_) * buffer_bytes_; }
  void recycle() noexcept { ring_[next_++ & mask_].word = 0; }

 private:
  Descriptor* ring_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t next_ = 0;   // the descriptor that the device writes next
  uint32_t shown_ = 0;  // next_ at the last doorbell
  const std::byte* buffers_ = nullptr;
  size_t buffer_bytes_ = 0;
};

}  // namespace weft::nic::e1000e
