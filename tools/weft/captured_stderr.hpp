// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Takes what a library writes to standard error during a scope. Knows nothing of what is written.
#pragma once

#include <string>

namespace weft::tool {

// The descriptor is redirected into an unnamed file, so nothing can fill up and block, and nothing is left
// behind.
// Affects the whole process; use it from one thread.
class CapturedStderr {
 public:
  CapturedStderr();
  ~CapturedStderr();
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;

  // Ends the redirection and returns the text. Once.
  std::string take();

 private:
  void restore() noexcept;

  int saved_ = -1;
  int file_ = -1;
};

}  // namespace weft::tool
