// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PACKET_VERSION, PACKET_RX_RING and the slots of TPACKET_V2 (linux/if_packet.h).
#include "os/packet_ring.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_packet.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace weft::os {
namespace {

// In front of a frame: header and sockaddr_ll, then room so that what follows the 14 bytes of the Ethernet header is
// aligned (tpacket_rcv).
constexpr size_t head_bytes = TPACKET_ALIGN(TPACKET2_HDRLEN + 16);
constexpr size_t block_bytes_min = size_t{64} << 10;

std::atomic_ref<uint32_t> status_of(std::byte* slot) noexcept {
  static_assert(offsetof(tpacket2_hdr, tp_status) == 0 && sizeof(tpacket2_hdr::tp_status) == 4);
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(slot));
}

}  // namespace

PacketRingLayout PacketRingLayout::within(size_t memory_bytes, size_t frame_bytes) noexcept {
  PacketRingLayout layout;
  layout.slot_bytes = TPACKET_ALIGN(head_bytes + frame_bytes);
  const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  layout.block_bytes = std::max({std::bit_ceil(layout.slot_bytes), block_bytes_min, page_bytes});
  layout.block_slots = layout.block_bytes / layout.slot_bytes;
  layout.blocks = memory_bytes / layout.block_bytes;
  return layout;
}

Result<void> PacketRing::open(int fd, size_t memory_bytes, size_t frame_bytes) {
  const auto refused = [](const char* what) {
    const int code = errno;
    return Error{code, std::string(what) + ": " + std::strerror(code)};
  };
  const int version = TPACKET_V2;
  if (::setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0)
    return refused("PACKET_VERSION");
  for (;; memory_bytes /= 2) {
    layout_ = PacketRingLayout::within(std::min<size_t>(memory_bytes, INT_MAX), frame_bytes);
    if (layout_.blocks == 0) return Error{ENOMEM, "no memory for a ring of frames"};
    tpacket_req request{};
    request.tp_block_size = static_cast<unsigned>(layout_.block_bytes);
    request.tp_block_nr = static_cast<unsigned>(layout_.blocks);
    request.tp_frame_size = static_cast<unsigned>(layout_.slot_bytes);
    request.tp_frame_nr = static_cast<unsigned>(layout_.slots());
    if (::setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) == 0) break;
    if (errno != ENOMEM) return refused("PACKET_RX_RING");
  }
  void* const memory =
      ::mmap(nullptr, layout_.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) {
    const Error error = refused("mmap of the ring");
    const tpacket_req none{};
    (void)::setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &none, sizeof none);
    return error;
  }
  (void)::madvise(memory, layout_.bytes(), MADV_DONTFORK);
  memory_ = static_cast<std::byte*>(memory);
  is_mapped_ = true;
  rewind();
  return {};
}

void PacketRing::close() noexcept {
  // A forked child does not have the mapping; something else may be there.
  if (is_mapped_ && origin_.is_here()) ::munmap(memory_, layout_.bytes());
  memory_ = slot_ = block_ = nullptr;
  is_mapped_ = false;
}

// Acquire: pairs with the kernel's write barrier between the frame and its status.
bool PacketRing::has_frame() const noexcept {
  return (status_of(slot_).load(std::memory_order_acquire) & TP_STATUS_USER) != 0;
}

PacketFrame PacketRing::front() noexcept {
  tpacket2_hdr header;
  std::memcpy(&header, slot_, sizeof header);
  PacketFrame frame;
  // What is longer than the interface's MTU the kernel has joined, or it is none of ours.
  if (header.tp_len != header.tp_snaplen || header.tp_mac < sizeof header ||
      header.tp_mac > layout_.slot_bytes || header.tp_snaplen > layout_.slot_bytes - header.tp_mac) {
    ++cut_;
    return frame;
  }
  frame.bytes = {slot_ + header.tp_mac, header.tp_snaplen};
  frame.is_checksum_good = (header.tp_status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID)) != 0;
  if ((header.tp_status & TP_STATUS_VLAN_VALID) != 0) frame.vlan = header.tp_vlan_tci;
  return frame;
}

// Release: the slot's bytes were read before the kernel may write there again.
void PacketRing::pop() noexcept {
  status_of(slot_).store(TP_STATUS_KERNEL, std::memory_order_release);
  slot_ += layout_.slot_bytes;
  if (--left_ != 0) [[likely]]
    return;
  block_ += layout_.block_bytes;
  if (block_ == memory_ + layout_.bytes()) block_ = memory_;
  slot_ = block_;
  left_ = layout_.block_slots;
}

}  // namespace weft::os
