// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An epoll set of control descriptors: reading an event queue costs one system call, however many endpoints report to it.
#include "api/libfabric/objects/control_set.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "os/poll_set.hpp"

namespace weft::fi {

int ControlSet::add(ControlSource& source, os::Sleeper* sleeper) {
  std::scoped_lock guard(mutex_);
  if (std::find(sources_.begin(), sources_.end(), &source) != sources_.end()) return 0;
  sources_.reserve(sources_.size() + 1);
  if (!set_) {
    auto set = os::PollSet::create();
    if (!set) return -set.error().code;
    set_ = std::move(*set);
    if (sleeper != nullptr) {
      if (const int status = sleeper->watch(set_.get()); status != 0) return status;
    }
  }
  if (!set_.add(source.control_fd(), &source)) return -errno;
  sources_.push_back(&source);
  return 0;
}

void ControlSet::remove(ControlSource& source) noexcept {
  std::scoped_lock guard(mutex_);
  if (std::erase(sources_, &source) != 0) set_.remove(source.control_fd());
}

void ControlSet::close(os::Sleeper* sleeper) noexcept {
  std::scoped_lock guard(mutex_);
  if (set_ && sleeper != nullptr) sleeper->unwatch(set_.get());
  set_.reset();
}

void ControlSet::drive() noexcept {
  std::scoped_lock guard(mutex_);
  if (sources_.empty()) return;
  std::array<void*, 64> ready{};
  const size_t count = set_.ready(ready);
  for (size_t i = 0; i < count; ++i) static_cast<ControlSource*>(ready[i])->drive();
}

bool ControlSet::empty() noexcept {
  std::scoped_lock guard(mutex_);
  return sources_.empty();
}

}  // namespace weft::fi
