// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/rdmacm/library/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/settings.hpp"

namespace weft::rdmacm {
namespace {

constexpr std::array<const char*, 3> level_names{"error", "warning", "information"};

// Words of WEFT_VERBS_LOG from 1: none, error, warn, info. 0, not set: warn.
bool wanted(Level level) noexcept {
  const auto word = static_cast<int>(settings::number("WEFT_VERBS_LOG"));
  return static_cast<int>(level) < (word == 0 ? 2 : word - 1);
}

void print(Level level, const char* format, va_list arguments, const char* behind) noexcept {
  std::array<char, 1024> line;
  const size_t most = line.size() - 2;
  size_t end = 0;
  const auto add = [&](int count) { end = std::min(end + static_cast<size_t>(std::max(count, 0)), most); };
  add(snprintf(line.data(), most, "weft: rdmacm: %s: ", level_names[static_cast<size_t>(level)]));
  add(vsnprintf(line.data() + end, most - end, format, arguments));
  if (behind != nullptr) add(snprintf(line.data() + end, most - end, " (%s)", behind));
  line[end] = '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), end + 1);
}

}  // namespace

void log(Level level, const char* format, ...) noexcept {
  if (!wanted(level)) return;
  const int before = errno;
  va_list arguments;
  va_start(arguments, format);
  print(level, format, arguments, nullptr);
  va_end(arguments);
  errno = before;
}

int refuse(int code, const char* format, ...) noexcept {
  if (wanted(Level::Information)) {
    va_list arguments;
    va_start(arguments, format);
    print(Level::Information, format, arguments, strerrordesc_np(code));
    va_end(arguments);
  }
  errno = code;
  return -1;
}

}  // namespace weft::rdmacm
