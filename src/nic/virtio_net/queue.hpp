// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue: a virtqueue as the driver sees it, of either layout (VIRTIO 1.2, section 2.6). Must not know what the buffers
// carry.
//
// The caller names each buffer that it makes available by an id below the size, and knows which descriptors are free:
//   - add() takes as many descriptors as the buffer has pieces; a split ring puts them at id, id + 1, ..., modulo its
//     size, so these must be free. Whoever numbers buffers one after the other by their pieces, and frees them in that
//     order, satisfies both layouts.
//   - Nothing is shown to the device before publish(), which says whether it wants a doorbell.
//   - pop() gives back what the device has used, in the order in which it did. An id that the device does not have
//     breaks the queue: is_broken() from then on, and nothing is taken any more.
//   - What lies in memory that the device can write is read once, and never used as the driver's own state.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "arch/cpu.hpp"
#include "nic/driver.hpp"
#include "nic/virtio_net/spec.hpp"

namespace weft::nic::virtio_net {

// A word that the device reads or writes at the same time.
template <class T>
[[gnu::always_inline]] inline T load(const T& at) noexcept {
  return __atomic_load_n(&at, __ATOMIC_RELAXED);
}
template <class T>
[[gnu::always_inline]] inline void store(T& at, T value) noexcept {
  __atomic_store_n(&at, value, __ATOMIC_RELAXED);
}

struct QueueLayout {
  size_t driver_area = 0;  // offsets; the descriptors begin at 0
  size_t device_area = 0;
  size_t bytes = 0;
};

// A buffer that the device has used.
struct Used {
  uint16_t id = 0;
  uint32_t bytes = 0;  // that the device says it wrote; not checked
};

template <class Q>
concept Queue = std::default_initializable<Q> &&
    requires(Q& queue, const Q& steady, unsigned size, std::byte* memory, bool has_event_index, uint16_t id,
             Fragment first, std::span<const Fragment> rest, size_t writable, Used& used) {
  // The size that a queue gets of which `size` descriptors are wanted and the device takes at most `size`.
  { Q::size_for(size, size) }
  noexcept->std::same_as<unsigned>;
  { Q::layout(size) }
  noexcept->std::same_as<QueueLayout>;
  // Memory of that layout, zeroed. The device is asked not to interrupt.
  { queue.open(memory, size, has_event_index) } -> std::same_as<void>;
  { steady.size() }
  noexcept->std::same_as<unsigned>;
  { steady.is_broken() }
  noexcept->std::same_as<bool>;
  // A buffer of 1 + rest.size() pieces; the device writes the last `writable` ones and reads the others.
  { queue.add(id, first, rest, writable) }
  noexcept->std::same_as<void>;
  { queue.publish() }
  noexcept->std::same_as<bool>;
  // Whether there is something to take.
  { steady.has_used() }
  noexcept->std::same_as<bool>;
  { queue.pop(used) }
  noexcept->std::same_as<bool>;
  // Interrupt with the next used buffer: true. There is one already: false, and the device is not asked to interrupt.
  { queue.arm() }
  noexcept->std::same_as<bool>;
  { queue.disarm() }
  noexcept->std::same_as<void>;
};

}  // namespace weft::nic::virtio_net
