// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What reports to an event queue and is driven by whoever reads it: listeners, and endpoints with a connection (docs/progress.md). Must not
// know links.
#pragma once

#include <mutex>
#include <vector>

#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/sleeper.hpp"

namespace weft::fi {

class ControlSource {
 public:
  // Moves what is on its way. Takes the lock that its object needs; the set's mutex is held.
  virtual void drive() noexcept = 0;
  // Readable when drive() has something to do.
  virtual int control_fd() noexcept = 0;

 protected:
  ~ControlSource() = default;
};

// Lock order: the set's mutex, then the object's (a domain's, a passive endpoint's), then the queue's.
class ControlSet {
 public:
  ControlSet() = default;
  ControlSet(const ControlSet&) = delete;
  ControlSet& operator=(const ControlSet&) = delete;

  // `sleeper` (or null) wakes up for the sources, too. 0 or a negative errno. May throw std::bad_alloc.
  int add(ControlSource& source, os::Sleeper* sleeper);
  // It is not driven any more when this returns.
  void remove(ControlSource& source) noexcept;
  void close(os::Sleeper* sleeper) noexcept;
  // Drives those that have something to do.
  void drive() noexcept;
  bool empty() noexcept;

 private:
  std::mutex mutex_;
  os::PollSet set_;
  std::vector<ControlSource*> sources_;
};

}  // namespace weft::fi
