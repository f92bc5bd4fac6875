// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SplitQueue: a table of descriptors, a ring of buffers that are available, a ring of those that were used (VIRTIO 1.2,
// section 2.7).
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "nic/virtio_net/queue.hpp"

namespace weft::nic::virtio_net {

class SplitQueue {
 public:
  // A power of 2 (2.7).
  static unsigned size_for(unsigned wanted, unsigned most) noexcept {
    most = std::bit_floor(std::min(most, queue_size_max));
    return std::min(std::bit_ceil(std::clamp(wanted, 1u, queue_size_max)), most);
  }

  static QueueLayout layout(unsigned size) noexcept {
    const size_t driver_area = sizeof(SplitDescriptor) * size;
    const size_t device_area =
        (driver_area + split::used_event(size) + sizeof(uint16_t) + arch::cache_line_bytes - 1) &
        ~(arch::cache_line_bytes - 1);
    return {driver_area, device_area, device_area + split::available_event(size) + sizeof(uint16_t)};
  }

  void open(std::byte* memory, unsigned size, bool has_event_index) {
    const QueueLayout at = layout(size);
    size_ = size;
    has_event_index_ = has_event_index;
    descriptors_ = reinterpret_cast<SplitDescriptor*>(memory);
    available_ = memory + at.driver_area;
    used_ = memory + at.device_area;
    pieces_.assign(size, 0);
    next_available_ = next_used_ = added_ = 0;
    is_broken_ = false;
    disarm();
  }

  unsigned size() const noexcept { return size_; }
  bool is_broken() const noexcept { return is_broken_; }

  void add(uint16_t id, Fragment first, std::span<const Fragment> rest, size_t writable) noexcept {
    const size_t count = 1 + rest.size();
    unsigned at = id;
    for (size_t i = 0; i < count; ++i) {
      const Fragment& piece = i == 0 ? first : rest[i - 1];
      const unsigned next = (at + 1) & (size_ - 1);
      const bool is_last = i + 1 == count;
      descriptors_[at] = {.address = piece.address,
                          .bytes = piece.bytes,
                          .flags = static_cast<uint16_t>((is_last ? 0 : descriptor::next) |
                                                         (count - i <= writable ? descriptor::write : 0)),
                          .next = static_cast<uint16_t>(is_last ? 0 : next)};
      at = next;
    }
    pieces_[id] = static_cast<uint16_t>(count);
    const auto slot = static_cast<uint16_t>(next_available_ + added_++) & (size_ - 1);
    store(word(available_, split::entries + sizeof(uint16_t) * slot), id);
  }

  bool publish() noexcept {
    if (added_ == 0) return false;
    const uint16_t before = next_available_;
    next_available_ = static_cast<uint16_t>(before + added_);
    added_ = 0;
    arch::dma_release();  // entries and descriptors before the index (2.7.13.2)
    store(word(available_, split::index), next_available_);
    arch::dma_fence();  // the index before the look at what the device wants (2.7.13.4.1)
    if (!has_event_index_) return (load(word(used_, split::flags)) & split::no_notify) == 0;  // 2.7.10
    // The device waits for the entry at `event`: is it one of those just added?
    const uint16_t event = load(word(used_, split::available_event(size_)));
    return static_cast<uint16_t>(next_available_ - event - 1) <
           static_cast<uint16_t>(next_available_ - before);
  }

  bool has_used() const noexcept { return load(word(used_, split::index)) != next_used_; }

  bool pop(Used& used) noexcept {
    if (is_broken_ || !has_used()) return false;
    arch::dma_acquire();
    const auto& element = *reinterpret_cast<const UsedElement*>(
        used_ + split::entries + sizeof(UsedElement) * (next_used_ & (size_ - 1)));
    const uint32_t id = load(element.id);
    if (id >= size_ || pieces_[id] == 0) {
      is_broken_ = true;
      return false;
    }
    pieces_[id] = 0;
    ++next_used_;
    used = {.id = static_cast<uint16_t>(id), .bytes = load(element.bytes)};
    return true;
  }

  bool arm() noexcept {
    if (has_event_index_) store(word(available_, split::used_event(size_)), next_used_);
    else store(word(available_, split::flags), uint16_t{0});
    arch::dma_fence();
    if (!has_used()) return true;
    disarm();
    return false;
  }

  void disarm() noexcept {
    // With event indices the flag has no meaning (2.7.7.1): name the entry that comes last, 2^16 ahead.
    if (has_event_index_)
      store(word(available_, split::used_event(size_)), static_cast<uint16_t>(next_used_ - 1));
    else store(word(available_, split::flags), split::no_interrupt);
  }

 private:
  static uint16_t& word(std::byte* ring, size_t offset) noexcept {
    return *reinterpret_cast<uint16_t*>(ring + offset);
  }

  SplitDescriptor* descriptors_ = nullptr;
  std::byte* available_ = nullptr;
  std::byte* used_ = nullptr;
  unsigned size_ = 0;
  uint16_t next_available_ = 0;  // indices run through all 2^16 (2.7.6)
  uint16_t next_used_ = 0;
  uint16_t added_ = 0;  // entries behind next_available_ that are not published
  bool has_event_index_ = false;
  bool is_broken_ = false;
  std::vector<uint16_t> pieces_;  // of the buffer with this id; 0: the device does not have it
};

static_assert(Queue<SplitQueue>);

}  // namespace weft::nic::virtio_net
