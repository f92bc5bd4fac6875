// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// NumberTable: objects under unpredictable numbers of 24 bits: QPNs, SRQNs, keys of memory. Allocates in add() only.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "base/result.hpp"

namespace weft::proto::roce {

// Unguessable bytes; false: the system has none.
using Random = bool (*)(void* bytes, size_t count);

template <class T>
class NumberTable {
 public:
  static constexpr uint32_t first = 0x10;     // QP 0 and 1 are management's,
  static constexpr uint32_t last = 0xfffffe;  // and the highest is multicast
  NumberTable(size_t bound, Random random) : bound_(bound), random_(random), slots_(16) {}

  T* find(uint32_t number) const noexcept {
    for (size_t at = home_of(number);; at = (at + 1) & mask()) {
      const Slot& here = slots_[at];
      if (here.object == nullptr || here.number == number) return here.object;
    }
  }
  size_t size() const noexcept { return size_; }

  // Under a number that nobody has. EAGAIN: no random numbers, ENOMEM: as many as the bound. May throw std::bad_alloc.
  Result<uint32_t> add(T& object) {
    if (size_ == bound_) return Error{ENOMEM, "as many objects of this kind as a device has"};
    if (2 * (size_ + 1) > slots_.size()) grow();
    for (;;) {
      uint32_t number = 0;
      if (!random_(&number, sizeof number)) return Error{EAGAIN, "the system has no random numbers"};
      number &= 0xffffff;
      if (number < first || number > last || find(number) != nullptr) continue;
      put(number, object);
      ++size_;
      return number;
    }
  }

  // Under a number that is agreed upon. EADDRINUSE: somebody has it. May throw std::bad_alloc.
  Result<uint32_t> add_as(T& object, uint32_t number) {
    if (number < first || number > last)
      return Error{EINVAL, "a number that objects of this kind do not have"};
    if (find(number) != nullptr) return Error{EADDRINUSE, "another object has this number"};
    if (size_ == bound_) return Error{ENOMEM, "as many objects of this kind as a device has"};
    if (2 * (size_ + 1) > slots_.size()) grow();
    put(number, object);
    ++size_;
    return number;
  }

  void remove(uint32_t number) noexcept {
    size_t hole = home_of(number);
    while (slots_[hole].object != nullptr && slots_[hole].number != number) hole = (hole + 1) & mask();
    if (slots_[hole].object == nullptr) return;
    WEFT_ASSERT(size_ != 0);
    --size_;
    // Those behind it move up, unless that is before the place that they hash to.
    for (size_t at = (hole + 1) & mask(); slots_[at].object != nullptr; at = (at + 1) & mask()) {
      if (((at - home_of(slots_[at].number)) & mask()) < ((at - hole) & mask())) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole].object = nullptr;
  }

  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const Slot& one : slots_)
      if (one.object != nullptr) fn(*one.object);
  }

 private:
  struct Slot {
    T* object = nullptr;
    uint32_t number = 0;
  };
  size_t mask() const noexcept { return slots_.size() - 1; }
  // The numbers are random, and a peer that asks for others cannot make them collide.
  size_t home_of(uint32_t number) const noexcept { return number & mask(); }
  void put(uint32_t number, T& object) noexcept {
    WEFT_ASSERT(number >= first && number <= last);
    // One place at least is free: searches end there.
    WEFT_ASSERT(2 * size_ < slots_.size());
    size_t at = home_of(number);
    while (slots_[at].object != nullptr) at = (at + 1) & mask();
    WEFT_ASSERT(slots_[at].object == nullptr);
    slots_[at] = {&object, number};
  }
  void grow() {
    std::vector<Slot> wider(2 * slots_.size());
    wider.swap(slots_);
    for (const Slot& one : wider)
      if (one.object != nullptr) put(one.number, *one.object);
  }

  size_t bound_;
  Random random_;
  std::vector<Slot> slots_;  // a power of two
  size_t size_ = 0;
};

}  // namespace weft::proto::roce
