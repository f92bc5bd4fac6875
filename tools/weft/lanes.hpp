// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Several pairs, or several clients of one server, that are measured at once: a conductor and a worker for each lane, which
// is a thread or a process. Knows neither how they were started nor how the results are shown.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "channel.hpp"
#include "perf_plan.hpp"
#include "worker.hpp"

namespace weft::tool {

// Does what the conductor says with the follower of one lane, until it says goodbye. Throws Failure.
void work_lane(Channel& conductor, Channel& follower, const PerfOptions& options, unsigned lane);

// Does all steps, each with all lanes at once. `lanes` lead to the workers. Throws Failure when one breaks.
void conduct(std::vector<Channel>& lanes, const PerfOptions& options, const std::vector<Step>& steps,
             const Progress& progress);

// One run of one lane, as its worker told.
struct LaneRun {
  int64_t begin_ns = 0, end_ns = 0;
  double seconds() const { return static_cast<double>(end_ns - begin_ns) * 1e-9; }
};

// All lanes in the unit of the test: the mean of latencies; of rates and bandwidths what all moved in the time from the first
// start to the last end.
double figure_of_all(const Step& step, const std::vector<LaneRun>& runs, uint64_t iters);

}  // namespace weft::tool
