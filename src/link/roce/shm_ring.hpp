// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ShmRing: packets from one device to another of the same host, in memory that both have mapped. One side puts
// packets in, the other takes them out of the slots in place. Must not know sockets, GIDs or who made the memory.
//
// The other side can write anything, at any time: each value is loaded once and checked, the receiver's place is its
// own, and headers are copied before they are read. The payload stays where it is: who changes it there changes its
// own data.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "arch/cpu.hpp"
#include "base/assert.hpp"
#include "os/ip_marks.hpp"
#include "proto/roce/work.hpp"
#include "wire/roce/packet.hpp"

namespace weft::link::roce {

inline constexpr size_t shm_slots = 128;
// Of ShmSlot::bytes: marks follow the packet, as they are in memory. A datagram has them where they are not the default ones.
inline constexpr uint32_t shm_marked = 1u << 31;
// Likewise: Arrival::psns, at most shm_psns_max; 0 where it is 1. The bits between the two are 0.
inline constexpr uint32_t shm_psns_at = 16;
inline constexpr uint32_t shm_psns_max = proto::roce::mtu_bytes_max / proto::roce::mtu_bytes_least;
// From the BTH to the pad.
inline constexpr size_t shm_packet_bytes_max = proto::roce::mtu_bytes_max + wire::roce::headers_bytes_max + 4;

// Its first cache line holds a SEND of up to 44 bytes.
struct alignas(64) ShmSlot {
  std::atomic<uint32_t> turn;  // the lap of the ring that it is filled in, from 1 on; stored last
  std::atomic<uint32_t> bytes;
  std::array<std::byte, shm_packet_bytes_max> packet;
};

// All zeros at first.
struct ShmMemory {
  // Written by the receiver.
  alignas(64) std::atomic<uint64_t> head;      // packets that it has taken
  alignas(64) std::atomic<uint32_t> attached;  // 1: it looks
  std::atomic<uint32_t> asleep;                // 1: it wants to be woken; whoever wakes it stores 0
  std::atomic<uint32_t>
      fences_for_both;  // 1: before it sleeps it has the sender's process fence (membarrier(2))
  std::atomic<uint32_t> takes_aggregates;  // 1: PacketOutput::payload_max() may be mtu_bytes_max
  std::array<ShmSlot, shm_slots> slots;
};
static_assert(shm_packet_bytes_max < 1u << shm_psns_at && shm_psns_max << shm_psns_at < shm_marked);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

class ShmSender {
 public:
  enum class Put : uint8_t { Done, Full, Broken };

  // `is_registered`: a receiver can have this process fence.
  explicit ShmSender(ShmMemory& memory, bool is_registered = false) noexcept
      : memory_(memory), is_registered_(is_registered) {}
  bool is_attached() const noexcept { return memory_.attached.load(std::memory_order_acquire) == 1; }
  bool may_aggregate() const noexcept {
    return memory_.takes_aggregates.load(std::memory_order_relaxed) == 1;
  }
  // `bytes` is the sum of the parts, at most shm_packet_bytes_max. Broken: the receiver's side makes no sense.
  // Marks that find no room behind the packet are left out; null: the default ones.
  Put put(const iovec* parts, size_t count, size_t bytes, const os::IpMarks* marks = nullptr,
          uint32_t psns = 1) noexcept {
    if (tail_ - head_ >= shm_slots) {
      const uint64_t head = memory_.head.load(std::memory_order_acquire);
      if (head - head_ > tail_ - head_) return Put::Broken;
      head_ = head;
      if (tail_ - head_ >= shm_slots) return Put::Full;
    }
    WEFT_ASSERT(tail_ - head_ < shm_slots && bytes <= shm_packet_bytes_max);
    ShmSlot& slot = memory_.slots[tail_ % shm_slots];
    std::byte* at = slot.packet.data();
    for (size_t i = 0; i < count; ++i) {
      if (parts[i].iov_len <= 64) {
        arch::copy_small(at, parts[i].iov_base, parts[i].iov_len);
      } else {
        std::memcpy(at, parts[i].iov_base, parts[i].iov_len);
      }
      at += parts[i].iov_len;
    }
    auto length = static_cast<uint32_t>(bytes);
    if (psns > 1) length |= psns << shm_psns_at;
    WEFT_ASSERT(psns <= shm_psns_max);
    WEFT_ASSERT(static_cast<size_t>(at - slot.packet.data()) == bytes);
    if (marks != nullptr && bytes + sizeof *marks <= shm_packet_bytes_max) [[unlikely]] {
      std::memcpy(at, marks, sizeof *marks);
      length |= shm_marked;
    }
    slot.bytes.store(length, std::memory_order_relaxed);
    slot.turn.store(static_cast<uint32_t>(tail_ / shm_slots + 1), std::memory_order_release);
    ++tail_;
    return Put::Done;
  }
  // After put(). True: the receiver sleeps, and this caller is the one to wake it.
  bool must_wake() noexcept {
    // Either the load of `asleep` sees the flag, or the receiver's last look before its sleep sees the packet.
    if (is_registered_ && memory_.fences_for_both.load(std::memory_order_relaxed) == 1) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    return memory_.asleep.load(std::memory_order_relaxed) != 0 &&
           memory_.asleep.exchange(0, std::memory_order_relaxed) != 0;
  }

 private:
  ShmMemory& memory_;
  bool is_registered_;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;  // as last seen
};

class ShmReceiver {
 public:
  explicit ShmReceiver(ShmMemory& memory) noexcept : memory_(memory) {}
  // `fences_for_both`: a look after set_asleep(true) comes behind a fence of the sender's process as well.
  void attach(bool fences_for_both = false, bool takes_aggregates = false) noexcept {
    set_fences_for_both(fences_for_both);
    memory_.takes_aggregates.store(takes_aggregates ? 1 : 0, std::memory_order_relaxed);
    memory_.attached.store(1, std::memory_order_release);
  }
  void set_fences_for_both(bool on) noexcept {
    memory_.fences_for_both.store(on ? 1 : 0, std::memory_order_relaxed);
  }
  bool is_empty() const noexcept {
    return memory_.slots[head_ % shm_slots].turn.load(std::memory_order_acquire) != turn();
  }
  // At most `most` packets: on_packet(bytes, headers), where `headers` is a copy of the first of them. Returns how
  // many; -1: what lies there is no packet, and the ring is of no use any more.
  template <class OnPacket>
  int drain(int most, OnPacket&& on_packet) noexcept {
    int count = 0;
    for (; count < most && !is_empty(); ++count) {
      const ShmSlot& slot = memory_.slots[head_ % shm_slots];
      const uint32_t length = slot.bytes.load(std::memory_order_relaxed);
      const uint32_t bytes = length & ((1u << shm_psns_at) - 1);
      const uint32_t psns = (length & ~shm_marked) >> shm_psns_at;
      if (bytes < wire::roce::bth_bytes || bytes > shm_packet_bytes_max || psns > shm_psns_max) return -1;
      psns_ = static_cast<uint8_t>(std::max(psns, 1u));
      std::array<std::byte, wire::roce::headers_bytes_max> headers;
      const size_t head_bytes = std::min<size_t>(bytes, headers.size());
      std::memcpy(headers.data(), slot.packet.data(), headers.size());  // the slot has that many
      marks_ = os::IpMarks();
      if ((length & shm_marked) != 0) [[unlikely]] {
        if (bytes + sizeof marks_ > shm_packet_bytes_max) return -1;
        std::memcpy(&marks_, slot.packet.data() + bytes, sizeof marks_);
      }
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the copy is made once, and not again
      on_packet(std::span<const std::byte>(slot.packet.data(), bytes),
                std::span<const std::byte>(headers.data(), head_bytes));
      ++head_;
      if (head_ % (shm_slots / 4) == 0) return_consumed();
    }
    if (count != 0) return_consumed();
    return count;
  }
  // Of the packet that on_packet() is given.
  const os::IpMarks& marks() const noexcept { return marks_; }
  uint8_t psns() const noexcept { return psns_; }
  void set_asleep(bool asleep) noexcept { memory_.asleep.store(asleep ? 1 : 0, std::memory_order_relaxed); }

 private:
  uint32_t turn() const noexcept { return static_cast<uint32_t>(head_ / shm_slots + 1); }
  void return_consumed() noexcept { memory_.head.store(head_, std::memory_order_release); }

  ShmMemory& memory_;
  uint64_t head_ = 0;
  os::IpMarks marks_;
  uint8_t psns_ = 1;
};

}  // namespace weft::link::roce
