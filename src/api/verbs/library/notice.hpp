// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The file descriptor of a completion channel: an eventfd(2) that is readable while a notice is given. Programs poll it, set O_NONBLOCK, and read it by
// ibv_get_cq_event(3). Must not know what it tells of.
#pragma once

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::verbs {

class Notice {
 public:
  static Result<Notice> create();
  int fd() const noexcept { return fd_.get(); }
  bool blocks() const noexcept;  // the program has not set O_NONBLOCK
  // Any thread; never blocks.
  void signal() const noexcept;
  // Takes it; sleeps for it unless the program has set O_NONBLOCK. False and errno: EAGAIN, EINTR.
  bool wait() const noexcept;
  // Takes it without sleeping, whatever the program has set. False: none is there, or this system cannot (Linux before 5.8).
  bool consume() const noexcept;
  bool can_consume() const noexcept { return can_consume_; }

 private:
  explicit Notice(os::Fd fd) noexcept : fd_(static_cast<os::Fd&&>(fd)) {}
  os::Fd fd_;
  bool can_consume_ = false;
};

}  // namespace weft::verbs
