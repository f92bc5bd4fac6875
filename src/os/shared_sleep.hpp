// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How one endpoint of a shared device sleeps (proto/device.hpp): until the device has something, for whichever
// endpoint, or until another endpoint's poll has put something into this endpoint's inbox. Must not know devices or
// links.
#pragma once

#include <optional>
#include <utility>

#include "core/progress.hpp"
#include "os/event.hpp"
#include "os/poll_set.hpp"

namespace weft::os {

// A link with a device holds one, and builds its HasSleep calls from it. All calls are made under the lock that covers
// the device.
class SharedSleep {
 public:
  SharedSleep() = default;
  SharedSleep(const SharedSleep&) = delete;
  SharedSleep& operator=(const SharedSleep&) = delete;

  // A descriptor that is readable when the device or the inbox has something; made at the first call. -1: none.
  int fd(core::Progressor& device) noexcept {
    if (!set_) make(device);
    return set_ ? set_->get() : -1;
  }
  // True: the inbox is empty and the device has nothing, so it is safe to sleep on fd(). May be repeated.
  bool arm(core::Progressor& device, bool inbox_is_empty) noexcept {
    if (!set_ || !inbox_is_empty) return false;
    if (!armed_) armed_ = device.begin_sleep();
    return armed_;
  }
  // After a sleep; harmless without one. The device stays armed for other endpoints that sleep on it; what it has for
  // them is put into their inboxes here, which notifies their wakeup events.
  void disarm(core::Progressor& device) noexcept {
    if (wakeup_) wakeup_->drain();
    if (std::exchange(armed_, false)) device.end_sleep();
  }
  // Something was put into the inbox.
  void ring() noexcept {
    if (armed_) wakeup_->notify();
  }
  void close(core::Progressor& device) noexcept {
    disarm(device);
    set_.reset();
    wakeup_.reset();
  }

 private:
  void make(core::Progressor& device) noexcept;

  bool armed_ = false;
  std::optional<Event> wakeup_;
  std::optional<PollSet> set_;  // wakeup_ and the device
};

}  // namespace weft::os
