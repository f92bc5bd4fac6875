// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The processes of a measurement and the parent that watches over them. Knows neither the fabric nor what is measured.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "channel.hpp"
#include "failure.hpp"
#include "report.hpp"
#include "worker.hpp"

namespace weft::tool {

struct Child {
  pid_t pid = -1;
  Channel reports;
  std::string role;
  bool open = true;  // may still report
  bool ended = false;
  int status = 0;
};

// Runs `work` in a new process on that CPU (-1: any). What it throws goes to the parent as a report.
Child start(const std::string& role, int cpu, const std::function<void(Channel& parent)>& work);

// A process died, which is why others fail: told beside what these say.
struct Died : Failure {
  using Failure::Failure;
};

// The signal that ended it, if one does within that time.
std::optional<int> died_of(Child& child, std::chrono::milliseconds limit);

// Tells the parent what a leading process does.
Progress progress_over(Channel& parent);

// Until all have ended: what they tell goes to the reporter. When one has ended the others have a few seconds.
void watch(std::span<Child> children, Reporter& reporter, const std::string& provider);

}  // namespace weft::tool
