// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A queue of control events (fi_eq(3)). Must not know who reports and who sleeps. Any thread may call any
// member.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "core/progress.hpp"

namespace weft::core {

struct EventError {
  fid* object = nullptr;
  void* context = nullptr;
  uint64_t data = 0;
  int err = 0;  // positive FI_E*
  int prov_errno = 0;
  std::vector<std::byte> err_data;
};

class EventQueue {
 public:
  static constexpr size_t size_default = 256;
  static constexpr size_t event_bytes_max = 512;  // one event's payload

  explicit EventQueue(size_t size = 0) : size_(size != 0 ? size : size_default) {}

  // 0, -FI_EAGAIN (full), -FI_EINVAL (too long), -FI_ENOMEM.
  int write(uint32_t event, const void* bytes, size_t len) noexcept {
    return write(event, bytes, len, false);
  }
  int write_error(EventError error) noexcept { return write_error(static_cast<EventError&&>(error), false); }

  // An event whose bytes may be cut off beyond the first `fixed` when the reader has less room (fi_eq(3), connection notification).
  int write_reserved(uint32_t event, const void* bytes, size_t len, size_t fixed) noexcept {
    return write(event, bytes, len, true, fixed);
  }

  // For an operation whose event must not be lost: room first (0 or -FI_EAGAIN), then the operation, then
  // the event.
  int reserve(size_t count) noexcept;
  void unreserve(size_t count) noexcept;
  // Room beyond the size, for an object that takes part: `count` events more, until it goes.
  void widen(size_t count) noexcept;
  void narrow(size_t count) noexcept;
  int write_reserved(uint32_t event, const void* bytes, size_t len) noexcept {
    return write(event, bytes, len, true);
  }
  int write_error_reserved(EventError error) noexcept {
    return write_error(static_cast<EventError&&>(error), true);
  }

  // Bytes read; -FI_EAGAIN empty; -FI_EAVAIL the next one is an error; -FI_ETOOSMALL `len` is less than the
  // event.
  ssize_t read(uint32_t* event, void* buf, size_t len, bool peek) noexcept;
  // 0 and the error that stands first, or -FI_EAGAIN. `out.err_data` is the caller's to keep.
  int read_error(EventError& out, bool peek) noexcept;
  size_t pending() const noexcept;
  // Takes out all events of an object that is about to go; those that name it in their first word. Each is shown to `dispose` first.
  template <class Dispose>
  void purge(const fid* object, Dispose&& dispose) {
    std::scoped_lock guard(mutex_);
    std::erase_if(events_, [&](Event& event) {
      if (event.object() != object) return false;
      if (!event.is_error) dispose(event.number, static_cast<const std::byte*>(event.bytes.data()));
      return true;
    });
  }

  void set_signal(Signal* signal) noexcept { signal_ = signal; }
  // The next event notifies once. False: there is one already.
  bool arm() noexcept;

 private:
  struct Event {
    uint32_t number = 0;
    bool is_error = false;
    size_t fixed = 0;  // bytes that a reader must have room for
    std::vector<std::byte> bytes;
    EventError error;

    const fid* object() const noexcept;
  };
  int write(uint32_t event, const void* bytes, size_t len, bool reserved, size_t fixed = SIZE_MAX) noexcept;
  int write_error(EventError error, bool reserved) noexcept;
  int put(Event&& event, bool reserved) noexcept;

  size_t size_;  // with the room that objects have brought
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  size_t reserved_ = 0;
  Signal* signal_ = nullptr;
  bool armed_ = false;
};

}  // namespace weft::core
