// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Events in order, bounded. Must not know who reports and who sleeps.
#include "core/event_queue.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace weft::core {

const fid* EventQueue::Event::object() const noexcept {
  if (is_error) return error.object;
  fi_eq_cm_entry first{};  // struct fi_eq_entry begins in the same way
  if (bytes.size() >= sizeof(first)) std::memcpy(&first, bytes.data(), sizeof(first));
  return first.fid;
}

int EventQueue::write(uint32_t number, const void* bytes, size_t len, bool reserved, size_t fixed) noexcept {
  if (len > event_bytes_max || (bytes == nullptr && len != 0)) return -FI_EINVAL;
  try {
    Event event;
    event.number = number;
    event.fixed = fixed < len ? fixed : len;
    const auto* from = static_cast<const std::byte*>(bytes);
    if (len != 0) event.bytes.assign(from, from + len);
    return put(std::move(event), reserved);
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  }
}

int EventQueue::write_error(EventError error, bool reserved) noexcept {
  try {
    Event event;
    event.is_error = true;
    event.error = std::move(error);
    return put(std::move(event), reserved);
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  }
}

int EventQueue::put(Event&& event, bool reserved) noexcept {
  Signal* wake = nullptr;
  try {
    std::scoped_lock guard(mutex_);
    if (!reserved && events_.size() + reserved_ >= size_) return -FI_EAGAIN;
    events_.push_back(std::move(event));
    WEFT_ASSERT(!reserved || reserved_ != 0);
    if (reserved) --reserved_;
    if (std::exchange(armed_, false)) wake = signal_;
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  }
  if (wake != nullptr) wake->notify();
  return 0;
}

int EventQueue::reserve(size_t count) noexcept {
  std::scoped_lock guard(mutex_);
  if (events_.size() + reserved_ + count > size_) return -FI_EAGAIN;
  reserved_ += count;
  return 0;
}

void EventQueue::unreserve(size_t count) noexcept {
  std::scoped_lock guard(mutex_);
  WEFT_ASSERT(reserved_ >= count);
  reserved_ -= count;
}

void EventQueue::widen(size_t count) noexcept {
  std::scoped_lock guard(mutex_);
  size_ += count;
}

void EventQueue::narrow(size_t count) noexcept {
  std::scoped_lock guard(mutex_);
  WEFT_ASSERT(size_ >= count);
  size_ -= count;
}

ssize_t EventQueue::read(uint32_t* number, void* buf, size_t len, bool peek) noexcept {
  std::scoped_lock guard(mutex_);
  if (events_.empty()) return -FI_EAGAIN;
  const Event& event = events_.front();
  if (event.is_error) return -FI_EAVAIL;
  if (len < event.fixed) return -FI_ETOOSMALL;
  const size_t bytes = event.bytes.size() < len ? event.bytes.size() : len;
  if (number != nullptr) *number = event.number;
  if (bytes != 0) std::memcpy(buf, event.bytes.data(), bytes);
  if (!peek) events_.pop_front();
  return ssize_t(bytes);
}

int EventQueue::read_error(EventError& out, bool peek) noexcept {
  std::scoped_lock guard(mutex_);
  if (events_.empty() || !events_.front().is_error) return -FI_EAGAIN;
  try {
    if (peek) {
      out = events_.front().error;
      return 0;
    }
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  }
  out = std::move(events_.front().error);
  events_.pop_front();
  return 0;
}

size_t EventQueue::pending() const noexcept {
  std::scoped_lock guard(mutex_);
  return events_.size();
}

bool EventQueue::arm() noexcept {
  std::scoped_lock guard(mutex_);
  if (!events_.empty()) return false;
  armed_ = signal_ != nullptr;
  return true;
}

}  // namespace weft::core
