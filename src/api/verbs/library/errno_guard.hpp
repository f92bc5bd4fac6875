// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// errno after a call of libibverbs: one that fails has set it, one that succeeds has left it as it was. Programs print errno
// (perror(3)) also where the manual page says that the error is what the call returns. Must not know which call it is.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <type_traits>

namespace weft::verbs {

// Puts errno back at its end, whatever system calls were made meanwhile.
class ErrnoGuard {
 public:
  ErrnoGuard() noexcept : errno_(errno), before_(errno_) {}
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;
  ~ErrnoGuard() { errno_ = before_; }

  // The call fails: with this errno, which is returned, or with the one that was set meanwhile.
  int fails(int code) noexcept { return before_ = code; }
  void fails() noexcept { before_ = errno_; }

 private:
  int& errno_;  // of this thread
  int before_;
};

// What `work` returns. It fails where that is a null pointer or -1 (errno is set then), a positive errno, or as ssize_t a
// negative errno.
template <class Work>
auto guard_errno(Work&& work) noexcept {
  ErrnoGuard keeper;
  using Result = decltype(work());
  if constexpr (std::is_void_v<Result>) {
    work();
  } else {
    const Result result = work();
    if constexpr (std::is_pointer_v<Result>) {
      if (result == nullptr) keeper.fails();
    } else if constexpr (std::is_same_v<Result, ssize_t>) {
      if (result < 0) keeper.fails(static_cast<int>(-result));
    } else {
      static_assert(std::is_same_v<Result, int>);
      if (result < 0) keeper.fails();
      if (result > 0) keeper.fails(result);
    }
    return result;
  }
}

template <auto function>
struct ErrnoGuarded;
template <class Result, class... Parameters, Result (*function)(Parameters...) noexcept>
struct ErrnoGuarded<function> {
  static Result call(Parameters... parameters) noexcept {
    return guard_errno([&] { return function(parameters...); });
  }
};
// The call of the library, for programs: with this errno.
template <auto function>
inline constexpr auto errno_guarded = &ErrnoGuarded<function>::call;

}  // namespace weft::verbs
