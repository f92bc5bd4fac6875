// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PackedQueue: one ring of descriptors that the driver makes available and the device overwrites when it has used them
// (VIRTIO 1.2, section 2.8). Two bits of each descriptor are the wrap counters of those who wrote it; they flip with
// each pass over the ring.
#pragma once

#include <algorithm>
#include <vector>

#include "nic/virtio_net/queue.hpp"

namespace weft::nic::virtio_net {

class PackedQueue {
 public:
  // Any size (2.8).
  static unsigned size_for(unsigned wanted, unsigned most) noexcept {
    return std::min({std::max(wanted, 1u), most, queue_size_max});
  }

  static QueueLayout layout(unsigned size) noexcept {
    const size_t driver_area = sizeof(PackedDescriptor) * size;
    // The device's structure has a cache line of its own.
    const size_t device_area = driver_area + arch::cache_line_bytes;
    return {driver_area, device_area, device_area + sizeof(EventSuppression)};
  }

  void open(std::byte* memory, unsigned size, bool has_event_index) {
    const QueueLayout at = layout(size);
    size_ = size;
    has_event_index_ = has_event_index;
    ring_ = reinterpret_cast<PackedDescriptor*>(memory);
    driver_event_ = reinterpret_cast<EventSuppression*>(memory + at.driver_area);
    device_event_ = reinterpret_cast<EventSuppression*>(memory + at.device_area);
    pieces_.assign(size, 0);
    available_ = used_ = {};
    added_ = 0;
    is_broken_ = false;
    disarm();
  }

  unsigned size() const noexcept { return size_; }
  bool is_broken() const noexcept { return is_broken_; }

  void add(uint16_t id, Fragment first, std::span<const Fragment> rest, size_t writable) noexcept {
    const size_t count = 1 + rest.size();
    for (size_t i = 0; i < count; ++i) {
      const Fragment& piece = i == 0 ? first : rest[i - 1];
      PackedDescriptor& slot = ring_[available_.offset];
      slot.address = piece.address;
      slot.bytes = piece.bytes;
      slot.id = id;  // of the last descriptor of a chain (2.8.6); the others' has no meaning
      const auto flags = static_cast<uint16_t>((i + 1 < count ? descriptor::next : 0) |
                                               (count - i <= writable ? descriptor::write : 0) |
                                               (available_.wrap ? descriptor::avail : descriptor::used));
      // The device comes to the first descriptor of a batch first: without it, it sees none of the others.
      if (added_ == 0) first_flags_ = flags, first_ = &slot;
      else store(slot.flags, flags);
      ++added_;
      available_.advance(1, size_);
    }
    pieces_[id] = static_cast<uint16_t>(count);
  }

  bool publish() noexcept {
    if (added_ == 0) return false;
    arch::dma_release();  // all of the batch before the flags of its first descriptor (2.8.21.1)
    store(first_->flags, first_flags_);
    arch::dma_fence();  // the flags before the look at what the device wants (2.8.21.3.1)
    const unsigned added = added_;
    added_ = 0;
    const uint16_t wanted = load(device_event_->flags) & 3u;
    if (wanted != EventSuppression::at) return wanted != EventSuppression::disable;
    // The device waits for the descriptor at `position`: is it one of those just added?
    const uint16_t position = load(device_event_->position);
    const RingPosition event{.offset = position & 0x7fffu, .wrap = position >> 15 != 0};
    const unsigned behind =
        (available_.of_two_passes(size_) + 2 * size_ - event.of_two_passes(size_) % (2 * size_)) %
        (2 * size_);
    return behind != 0 && behind <= added;
  }

  // Both bits are the device's counter (2.8.1).
  bool has_used() const noexcept {
    const uint16_t flags = load(ring_[used_.offset].flags);
    return ((flags & descriptor::avail) != 0) == used_.wrap &&
           ((flags & descriptor::used) != 0) == used_.wrap;
  }

  bool pop(Used& used) noexcept {
    if (is_broken_ || !has_used()) return false;
    arch::dma_acquire();
    const PackedDescriptor& slot = ring_[used_.offset];
    const uint16_t id = load(slot.id);
    if (id >= size_ || pieces_[id] == 0) {
      is_broken_ = true;
      return false;
    }
    used = {.id = id, .bytes = load(slot.bytes)};
    used_.advance(pieces_[id], size_);
    pieces_[id] = 0;
    return true;
  }

  bool arm() noexcept {
    if (has_event_index_) store(driver_event_->position, used_.position());
    arch::dma_release();  // the position before the flags that point to it
    store(driver_event_->flags, has_event_index_ ? EventSuppression::at : EventSuppression::enable);
    arch::dma_fence();
    if (!has_used()) return true;
    disarm();
    return false;
  }

  void disarm() noexcept { store(driver_event_->flags, EventSuppression::disable); }

 private:
  // A descriptor and the wrap counter of whoever comes to it.
  struct RingPosition {
    unsigned offset = 0;
    bool wrap = true;  // 2.8.1: both counters start at 1

    void advance(unsigned count, unsigned size) noexcept {
      offset += count;
      if (offset < size) return;
      offset -= size;
      wrap = !wrap;
    }
    // As a number that runs through two passes.
    unsigned of_two_passes(unsigned size) const noexcept { return offset + (wrap ? 0 : size); }
    uint16_t position() const noexcept { return static_cast<uint16_t>(offset | (wrap ? 1u << 15 : 0)); }
  };

  PackedDescriptor* ring_ = nullptr;
  EventSuppression* driver_event_ = nullptr;
  EventSuppression* device_event_ = nullptr;
  unsigned size_ = 0;
  RingPosition available_;
  RingPosition used_;
  unsigned added_ = 0;  // descriptors that are not published
  PackedDescriptor* first_ = nullptr;
  uint16_t first_flags_ = 0;
  bool has_event_index_ = false;
  bool is_broken_ = false;
  std::vector<uint16_t> pieces_;  // of the buffer with this id; 0: the device does not have it
};

static_assert(Queue<PackedQueue>);

}  // namespace weft::nic::virtio_net
