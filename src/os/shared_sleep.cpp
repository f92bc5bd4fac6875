// The descriptor of an endpoint of a shared device.
#include "os/shared_sleep.hpp"

namespace weft::os {

void SharedSleep::make(core::Progressor& device) noexcept {
  const int device_fd = device.wait_fd();
  if (device_fd < 0) return;
  Result<Event> bell = Event::create();
  if (!bell) return;
  Result<Epoll> set = Epoll::create();
  if (!set || set->add(bell->fd()) != 0 || set->add(device_fd) != 0) return;
  bell_.emplace(std::move(*bell));
  set_.emplace(std::move(*set));
}

}  // namespace weft::os
