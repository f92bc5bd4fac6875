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
  NumberTable(size_t bound, Random random) : bound_(bound), random_(random), places_(16) {}

  T* find(uint32_t number) const noexcept {
    for (size_t at = place(number);; at = (at + 1) & mask()) {
      const Place& here = places_[at];
      if (here.object == nullptr || here.number == number) return here.object;
    }
  }
  size_t size() const noexcept { return size_; }

  // Under a number that nobody has. EAGAIN: no random numbers, ENOMEM: as many as the bound. May throw std::bad_alloc.
  Result<uint32_t> add(T& object) {
    if (size_ == bound_) return Error{ENOMEM, "as many objects of this kind as a device has"};
    if (2 * (size_ + 1) > places_.size()) grow();
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
    if (2 * (size_ + 1) > places_.size()) grow();
    put(number, object);
    ++size_;
    return number;
  }

  void remove(uint32_t number) noexcept {
    size_t hole = place(number);
    while (places_[hole].object != nullptr && places_[hole].number != number) hole = (hole + 1) & mask();
    if (places_[hole].object == nullptr) return;
    WEFT_ASSERT(size_ != 0);
    --size_;
    // Those behind it move up, unless that is before the place that they hash to.
    for (size_t at = (hole + 1) & mask(); places_[at].object != nullptr; at = (at + 1) & mask()) {
      if (((at - place(places_[at].number)) & mask()) < ((at - hole) & mask())) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole].object = nullptr;
  }

  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const Place& one : places_)
      if (one.object != nullptr) fn(*one.object);
  }

 private:
  struct Place {
    T* object = nullptr;
    uint32_t number = 0;
  };
  size_t mask() const noexcept { return places_.size() - 1; }
  // The numbers are random, and a peer that asks for others cannot make them collide.
  size_t place(uint32_t number) const noexcept { return number & mask(); }
  void put(uint32_t number, T& object) noexcept {
    WEFT_ASSERT(number >= first && number <= last);
    // One place at least is free: searches end there.
    WEFT_ASSERT(2 * size_ < places_.size());
    size_t at = place(number);
    while (places_[at].object != nullptr) at = (at + 1) & mask();
    WEFT_ASSERT(places_[at].object == nullptr);
    places_[at] = {&object, number};
  }
  void grow() {
    std::vector<Place> wider(2 * places_.size());
    wider.swap(places_);
    for (const Place& one : wider)
      if (one.object != nullptr) put(one.number, *one.object);
  }

  size_t bound_;
  Random random_;
  std::vector<Place> places_;  // a power of two
  size_t size_ = 0;
};

}  // namespace weft::proto::roce
