// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The descriptor of an endpoint of a shared device.
#include "os/shared_sleep.hpp"

namespace weft::os {

void SharedSleep::make(core::Progressor& device) noexcept {
  const int device_fd = device.wait_fd();
  if (device_fd < 0) return;
  Result<Event> wakeup = Event::create();
  if (!wakeup) return;
  Result<PollSet> set = PollSet::create();
  if (!set || !set->add(wakeup->fd()) || !set->add(device_fd)) return;
  wakeup_.emplace(std::move(*wakeup));
  set_.emplace(std::move(*set));
}

}  // namespace weft::os
