// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread of ours (pthreads(7)). Signals of the program are never delivered to it. Must not know what it does.
#pragma once

#include <pthread.h>

#include "os/origin.hpp"

namespace weft::os {

class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() { join(); }

  // Runs `run(argument)`. `name`: at most 15 characters, as ps(1) and gdb show it. False: the system gives no thread. While it runs, dlclose(3)
  // does not unload the library.
  bool start(const char* name, void (*run)(void*), void* argument) noexcept;
  // Waits for its end. In a forked child, which has no such thread: at once.
  void join() noexcept;
  bool running() const noexcept { return started_ && origin_.is_here(); }

 private:
  static void* enter(void* self);

  pthread_t thread_{};
  void (*run_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* library_ = nullptr;  // dlopen(3): a reference to the library that holds this code
  bool started_ = false;
  Origin origin_;
};

}  // namespace weft::os
