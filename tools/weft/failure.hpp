// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the command says that it cannot go on. Knows nothing of what the command does.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace weft::tool {

// Exit statuses of every subcommand except `run`, which answers like a shell.
enum Exit : int {
  exit_ok = 0,
  exit_failed = 1,  // the answer is no, or the work failed
  exit_usage = 2,   // the command line makes no sense
  exit_unable =
      3,  // the question could not be asked, so that there is no answer; where a command tells it from exit_failed
};

// Thrown with one sentence for the user; main() prints it and leaves with `status`.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& sentence, int status = exit_failed)
      : std::runtime_error(sentence), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

// A signal asked for the end.
struct Interrupted : Failure {
  explicit Interrupted(int signal) : Failure("was interrupted", 128 + signal) {}
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...), exit_usage);
}

}  // namespace weft::tool
