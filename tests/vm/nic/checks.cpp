// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lines of results.
#include "checks.hpp"

#include <sched.h>

#include <cstdarg>
#include <cstdio>
#include <vector>

namespace weft::vm {
namespace {

unsigned failed = 0;

std::string format_text(const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int bytes = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  std::vector<char> out(static_cast<size_t>(bytes < 0 ? 0 : bytes) + 1);
  std::vsnprintf(out.data(), out.size(), format, arguments);
  return {out.data()};
}

}  // namespace

std::string text(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string out = format_text(format, arguments);
  va_end(arguments);
  return out;
}

void require(bool holds, const char* format, ...) {
  if (holds) return;
  va_list arguments;
  va_start(arguments, format);
  const std::string why = format_text(format, arguments);
  va_end(arguments);
  throw Failure(why);
}

void check(const std::string& name, const std::function<std::string()>& run) {
  const auto begin = Clock::now();
  std::string line;
  try {
    const std::string note = run();
    line = "ok " + name + (note.empty() ? "" : ": " + note);
  } catch (const std::exception& failure) {
    ++failed;
    line = "FAILED " + name + ": " + failure.what();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%s (%.2f s)\n", line.c_str(), seconds);
  std::fflush(stdout);
}

unsigned failures() { return failed; }

bool within(milliseconds time, const std::function<bool()>& done) {
  const auto end = Clock::now() + time;
  do {
    if (done()) return true;
    ::sched_yield();
  } while (Clock::now() < end);
  return done();
}

}  // namespace weft::vm
