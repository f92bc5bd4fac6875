// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two processes of a measurement: the one that leads and the one that follows. Knows neither how they
// were started nor how the
// results are shown.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "channel.hpp"
#include "line_transfer.hpp"
#include "perf_plan.hpp"

namespace weft::tool {

// What the leader tells while it works.
struct Progress {
  std::function<void(const Step& step, size_t index, size_t count)> begin;
  std::function<void(const Result& result)> result;
  std::function<void(const Step& step, const std::string& reason)>
      refused;  // the provider cannot do this one
};

// Obeys the leader until it says goodbye. `line`, of both or neither, is timed before and
// after each step.
void follow(Channel& leader, const Local& local, LineTransfer* line = nullptr);

// Does all steps. Throws Failure when one breaks.
void lead(Channel& follower, const PerfOptions& options, const std::vector<Step>& steps,
          const Progress& progress, LineTransfer* line = nullptr);

// Binds this process to one CPU; a negative number leaves it free. Throws Failure.
void pin_to(int cpu);

// Those of this process's affinity mask.
std::vector<int> usable_cpus();

// Two CPUs of this process's affinity mask, on different cores where there are such. {-1, -1} when there is
// only one.
std::pair<int, int> choose_cpus();

}  // namespace weft::tool
