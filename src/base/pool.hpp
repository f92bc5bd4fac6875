// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A bounded pool of equal objects: acquire() and release() cost a few instructions and never allocate once the
// memory is there. Knows nothing of ours. Not thread-safe: the caller's lock (or its absence) covers it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "base/assert.hpp"

namespace weft {

// Objects are default-constructed once, when their chunk is allocated, and destroyed with the pool. acquire()
// does NOT construct: an object comes back with whatever it held when it was given. Addresses are stable.
// Memory grows in chunks, each as large as all before it up to chunk_objects_max, and is returned to the
// system only by the destructor.
template <class T>
class Pool {
  static_assert(std::is_nothrow_default_constructible_v<T>,
                "growth happens on the data path, so construction must not throw");

 public:
  static constexpr size_t first_chunk_objects = 64;
  static constexpr size_t chunk_objects_max = 4096;

  // At most `bound` objects are in use at once. Allocates nothing yet.
  explicit Pool(size_t bound) noexcept : bound_(bound) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The object released last, or a fresh one. Null when the bound is reached or memory is out.
  T* acquire() noexcept {
    if (free_count_ == 0) [[unlikely]] {
      if (!grow()) return nullptr;
    }
    return free_[--free_count_];
  }

  // `object` came from acquire() of this pool and is released once.
  void release(T* object) noexcept {
    WEFT_ASSERT(free_count_ < made_);
    free_[free_count_++] = object;
  }

  // Makes room for `objects` in use at once without further allocation. False when that is above the bound or
  // memory is out.
  bool reserve(size_t objects) noexcept {
    if (objects > bound_) return false;
    while (made_ < objects) {
      if (!grow()) return false;
    }
    return true;
  }

  size_t in_use() const noexcept { return made_ - free_count_; }
  size_t bound() const noexcept { return bound_; }
  bool exhausted() const noexcept { return in_use() == bound_; }

 private:
  // The free stack is an array beside the objects, so that release() does not touch an object's cache line and
  // any T fits.
  [[gnu::noinline]] bool grow() noexcept {
    const size_t add = std::min({bound_ - made_, std::max(made_, first_chunk_objects), chunk_objects_max});
    if (add == 0) return false;
    try {
      if (made_ + add > room_) enlarge_stack(std::min(bound_, std::max(made_ + add, 2 * room_)));
      chunks_.reserve(chunks_.size() + 1);
      chunks_.emplace_back(new T[add]);
    } catch (const std::bad_alloc&) {
      return false;
    }
    // Pushed from the back, so that objects are first taken in the order of their addresses.
    T* chunk = chunks_.back().get();
    for (size_t i = add; i > 0; --i) free_[free_count_++] = chunk + (i - 1);
    made_ += add;
    return true;
  }

  void enlarge_stack(size_t room) {
    std::unique_ptr<T*[]> wider(new T*[room]);
    std::copy_n(free_.get(), free_count_, wider.get());
    free_ = std::move(wider);
    room_ = room;
  }

  std::unique_ptr<T*[]> free_;
  size_t free_count_ = 0;
  size_t made_ = 0;
  // Cold below.
  size_t room_ = 0;
  size_t bound_;
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace weft
