// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/settings.hpp"

namespace weft::verbs {
namespace {

constexpr const char* level_names[] = {"error", "warning", "information"};

// Words of WEFT_VERBS_LOG from 1: none, error, warn, info. 0, not set: warn.
bool wanted(Level level) noexcept {
  const auto word = static_cast<int>(settings::number("WEFT_VERBS_LOG"));
  return static_cast<int>(level) < (word == 0 ? 2 : word - 1);
}

}  // namespace

void log(Level level, const char* format, ...) noexcept {
  if (!wanted(level)) return;
  char line[1024];
  const int head = snprintf(line, sizeof line, "weft: verbs: %s: ", level_names[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  const int tail = vsnprintf(line + head, sizeof line - static_cast<size_t>(head) - 1, format, arguments);
  va_end(arguments);
  const size_t end =
      std::min(static_cast<size_t>(head) + static_cast<size_t>(std::max(tail, 0)), sizeof line - 2);
  line[end] = '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, end + 1);
}

}  // namespace weft::verbs
