// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// pthread_create(3) with all signals blocked and a small stack.
#include "os/thread.hpp"

#include <dlfcn.h>
#include <signal.h>

#include <cstddef>

namespace weft::os {
namespace {

constexpr size_t stack_bytes = size_t{256} << 10;

void* hold_library() noexcept {
  static const char here = 0;
  Dl_info library{};
  if (::dladdr(&here, &library) == 0 || library.dli_fname == nullptr) return nullptr;
  return ::dlopen(library.dli_fname,
                  RTLD_NOW | RTLD_NOLOAD);  // null for the program itself, which stays anyway
}

}  // namespace

void* Thread::enter(void* self) {
  auto& thread = *static_cast<Thread*>(self);
  thread.run_(thread.argument_);
  return nullptr;
}

bool Thread::start(const char* name, void (*run)(void*), void* argument) noexcept {
  if (started_) return origin_.is_here();
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  (void)::pthread_attr_setstacksize(&attributes, stack_bytes);
  run_ = run;
  argument_ = argument;
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
  started_ = ::pthread_create(&thread_, &attributes, &Thread::enter, this) == 0;
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  (void)::pthread_attr_destroy(&attributes);
  if (!started_) return false;
  origin_ = Origin();
  library_ = hold_library();
  (void)::pthread_setname_np(thread_, name);
  return true;
}

void Thread::join() noexcept {
  if (!started_) return;
  started_ = false;
  if (!origin_.is_here()) return;
  (void)::pthread_join(thread_, nullptr);
  if (library_ != nullptr) (void)::dlclose(library_);
  library_ = nullptr;
}

}  // namespace weft::os
