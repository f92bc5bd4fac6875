// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Starts the threads or processes of several lanes (lanes.hpp says what they do).
#pragma once

#include <string>
#include <vector>

#include "channel.hpp"
#include "perf_plan.hpp"
#include "worker.hpp"

namespace weft::tool {

// The leading half of several lanes: a thread or a process for each, which this one conducts. After a failure threads may
// still run: the process has to end by _exit(2).
void lead_lanes(std::vector<Channel>& followers, const PerfOptions& options, const std::vector<Step>& steps,
                const std::vector<int>& cpus, const Progress& progress);

// The following half: a thread for each, or one server of all.
void follow_lanes(std::vector<Channel>& leaders, bool one_server, const Local& local,
                  const std::vector<int>& cpus);

}  // namespace weft::tool
