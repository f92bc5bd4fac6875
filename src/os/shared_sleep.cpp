// The descriptor of an endpoint of a shared device.
#include "os/shared_sleep.hpp"

namespace weft::os {

void SharedSleep::make(core::Progressor& device) noexcept {
  const int device_fd = device.wait_fd();
  if (device_fd < 0) return;
  Result<Event> bell = Event::create();
  if (!bell) return;
  Result<PollSet> set = PollSet::create();
  if (!set || !set->add(bell->fd()) || !set->add(device_fd)) return;
  bell_.emplace(std::move(*bell));
  set_.emplace(std::move(*set));
}

}  // namespace weft::os
