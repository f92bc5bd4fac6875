// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A bounded text in a caller's buffer: what does not fit is left out, the end is always marked. Knows nothing
// of libfabric.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace weft::fi {

class Text {
 public:
  Text(char* buffer, size_t capacity) noexcept : buffer_(buffer), capacity_(capacity) {
    if (capacity_ > 0) buffer_[0] = 0;
  }

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) noexcept {
    if (used_ + 1 >= capacity_) return;
    va_list args;
    va_start(args, format);
    const int wanted = vsnprintf(buffer_ + used_, capacity_ - used_, format, args);
    va_end(args);
    if (wanted > 0) used_ = std::min(used_ + static_cast<size_t>(wanted), capacity_ - 1);
  }

  // Bytes up to `length` or the first zero: what a peer or a program may have left without an end.
  void add_bounded(const char* text, size_t length) noexcept {
    if (used_ + 1 >= capacity_) return;
    const size_t count = std::min(strnlen(text, length), capacity_ - 1 - used_);
    memcpy(buffer_ + used_, text, count);
    used_ += count;
    buffer_[used_] = 0;
  }

  void indent(int depth) noexcept { add("%*s", depth * 4, ""); }
  size_t size() const noexcept { return used_; }

 private:
  char* buffer_;
  size_t capacity_;
  size_t used_ = 0;  // without the zero
};

}  // namespace weft::fi
