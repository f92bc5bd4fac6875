// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Intrusive lists: a doubly linked list with O(1) removal, and a singly linked queue. They own nothing and
// allocate nothing. Knows nothing of ours. Not thread-safe: the caller's lock (or its absence) covers them.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/assert.hpp"

namespace weft {

// The links of a List. Zero when not in a list, so an object can say whether it is queued.
struct ListHook {
  ListHook* prev = nullptr;
  ListHook* next = nullptr;

  bool linked() const noexcept { return next != nullptr; }

  // Takes this out of its list. Only when linked().
  void unlink() noexcept {
    WEFT_ASSERT(linked());
    WEFT_ASSERT(prev->next == this && next->prev == this);
    prev->next = next;
    next->prev = prev;
    prev = nullptr;
    next = nullptr;
  }

  // Puts this before `where`, which is in a list.
  void link_before(ListHook& where) noexcept {
    WEFT_ASSERT(!linked() && &where != this && where.linked());
    prev = where.prev;
    next = &where;
    where.prev->next = this;
    where.prev = this;
  }
};

// Base class for an object that is in several lists at once: one hook type per list, told apart by any type
// as a name.
template <class Name>
struct NamedHook : ListHook {};

// Doubly linked, circular around a sentinel, so insertion and removal have no branches. T derives from Hook,
// and Hook from ListHook. The list neither moves nor copies. Destruction leaves the hooks of remaining
// objects dangling: empty it first.
template <class T, class Hook = ListHook>
class List {
 public:
  template <class Value>
  class Iterator {
   public:
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(ListHook* at) noexcept : at_(at) {}
    Value& operator*() const noexcept { return *from_hook(at_); }
    Value* operator->() const noexcept { return from_hook(at_); }
    Iterator& operator++() noexcept {
      at_ = at_->next;
      return *this;
    }
    Iterator operator++(int) noexcept {
      Iterator before = *this;
      at_ = at_->next;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    ListHook* at_ = nullptr;
  };

  List() noexcept { clear(); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  bool empty() const noexcept { return head_.next == &head_; }

  T* front() const noexcept { return empty() ? nullptr : from_hook(head_.next); }
  T* back() const noexcept { return empty() ? nullptr : from_hook(head_.prev); }

  void push_back(T& item) noexcept { hook(item).link_before(head_); }
  void push_front(T& item) noexcept { hook(item).link_before(*head_.next); }
  // `where` is in this list.
  void insert_before(T& where, T& item) noexcept { hook(item).link_before(hook(where)); }

  // Puts `item` behind the last object that is not after it: before(item, other) tells that it belongs in
  // front of `other`. Searches from the back.
  template <class Before>
  void insert_sorted(T& item, Before&& before) noexcept {
    ListHook* where = &head_;
    while (where->prev != &head_ && before(std::as_const(item), std::as_const(*from_hook(where->prev))))
      where = where->prev;
    hook(item).link_before(*where);
  }

  // The first object for which is_it(const T&) holds, or null.
  template <class Predicate>
  T* find(Predicate&& is_it) const noexcept {
    for (ListHook* at = head_.next; at != &head_; at = at->next) {
      T* item = from_hook(at);
      if (is_it(std::as_const(*item))) return item;
    }
    return nullptr;
  }

  // The first object, taken out, or null.
  T* pop_front() noexcept {
    if (empty()) return nullptr;
    ListHook* first = head_.next;
    first->unlink();
    return from_hook(first);
  }

  // `item` is in this list.
  static void remove(T& item) noexcept { hook(item).unlink(); }
  static bool linked(const T& item) noexcept { return static_cast<const Hook&>(item).linked(); }

  // Appends all of `other`, which is empty afterwards.
  void splice_back(List& other) noexcept {
    WEFT_ASSERT(&other != this);
    if (other.empty()) return;
    ListHook* first = other.head_.next;
    ListHook* last = other.head_.prev;
    first->prev = head_.prev;
    head_.prev->next = first;
    last->next = &head_;
    head_.prev = last;
    other.clear();
  }

  // Calls fn(T&) for each, front to back. fn may remove the object that it was given.
  template <class Fn>
  void for_each(Fn&& fn) {
    for (ListHook* at = head_.next; at != &head_;) {
      ListHook* next = at->next;
      fn(*from_hook(at));
      at = next;
    }
  }

  Iterator<T> begin() noexcept { return Iterator<T>(head_.next); }
  Iterator<T> end() noexcept { return Iterator<T>(&head_); }
  Iterator<const T> begin() const noexcept { return Iterator<const T>(head_.next); }
  Iterator<const T> end() const noexcept { return Iterator<const T>(const_cast<ListHook*>(&head_)); }

  static T* from_hook(ListHook* hook) noexcept { return static_cast<T*>(static_cast<Hook*>(hook)); }

 private:
  static ListHook& hook(T& item) noexcept {
    static_assert(std::is_base_of_v<ListHook, Hook> && std::is_base_of_v<Hook, T>);
    return static_cast<Hook&>(item);
  }
  // Forgets what is in the list without touching it.
  void clear() noexcept { head_.prev = head_.next = &head_; }

  ListHook head_;
};

// The link of a Fifo.
struct FifoHook {
  FifoHook* next = nullptr;
};

// Singly linked queue: half the links of a List, no removal from the middle. T derives from Hook, and Hook
// from FifoHook.
template <class T, class Hook = FifoHook>
class Fifo {
 public:
  Fifo() = default;
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;

  bool empty() const noexcept { return first_ == nullptr; }
  T* front() const noexcept { return first_ == nullptr ? nullptr : from_hook(first_); }
  // The object after `item`, or null.
  static T* next(const T& item) noexcept {
    FifoHook* after = static_cast<const Hook&>(item).next;
    return after == nullptr ? nullptr : from_hook(after);
  }

  void push_back(T& item) noexcept {
    FifoHook& hook = static_cast<Hook&>(item);
    hook.next = nullptr;
    *(first_ == nullptr ? &first_ : &last_->next) = &hook;
    last_ = &hook;
  }

  void push_front(T& item) noexcept {
    FifoHook& hook = static_cast<Hook&>(item);
    hook.next = first_;
    if (first_ == nullptr) last_ = &hook;
    first_ = &hook;
  }

  // The first object, taken out, or null.
  T* pop_front() noexcept {
    FifoHook* first = first_;
    if (first == nullptr) return nullptr;
    first_ = first->next;
    first->next = nullptr;
    return from_hook(first);
  }

  // Appends all of `other`, which is empty afterwards.
  void splice_back(Fifo& other) noexcept {
    WEFT_ASSERT(&other != this);
    if (other.first_ == nullptr) return;
    *(first_ == nullptr ? &first_ : &last_->next) = other.first_;
    last_ = other.last_;
    other.first_ = nullptr;
  }

 private:
  static T* from_hook(FifoHook* hook) noexcept { return static_cast<T*>(static_cast<Hook*>(hook)); }

  FifoHook* first_ = nullptr;
  FifoHook* last_ = nullptr;  // valid only while first_ is not null
};

}  // namespace weft
