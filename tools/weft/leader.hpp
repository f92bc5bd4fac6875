// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One step on the leading side of one pair, in phases, so that several pairs can go through them together.
// Knows neither processes nor reports.
#pragma once

#include <functional>
#include <memory>

#include <nlohmann/json.hpp>

#include "channel.hpp"
#include "line_transfer.hpp"
#include "perf_plan.hpp"
#include "side.hpp"

namespace weft::tool {

struct Switches {
  long voluntary = 0, involuntary = 0;
  int64_t waited_ns = -1;  // for a processor, while it was ready to run; -1: the kernel does not say
};
Switches switches_now();  // of this process; the waiting of this thread

// Of one run: the measured part of it, in ns of CLOCK_MONOTONIC.
struct Run {
  int64_t begin_ns = 0, end_ns = 0;
  Switches switches;  // of both sides; the waiting of the one that waited longer
  double seconds() const { return static_cast<double>(end_ns - begin_ns) * 1e-9; }
};

class Leader {
 public:
  Leader(Channel& follower, const PerfOptions& options, const Step& step, LineTransfer* line,
         unsigned lane = 0);

  // In this order; close() also after a refusal of open(). Throw Refused (open) or Failure.
  void open();
  void join();
  // `start` is called when the other side is ready; it may wait.
  Run run(uint64_t warmup, uint64_t iters, const std::function<void()>& start = {});
  nlohmann::json close();

  Result description() const;  // without figures
  // Adds what the side and its peer (an answer of close()) counted.
  void add_counts(Result& result, const nlohmann::json& closed) const;
  const Histogram* times() const;  // of the last run; null: not wanted
  double time_line();              // 0: unknown
  void poll();

 private:
  Channel& follower_;
  const PerfOptions& options_;
  const Step step_;
  LineTransfer* const line_;
  Shape shape_;
  std::unique_ptr<Side> side_;
  nlohmann::json peer_;  // its introduction
  Identity identity_;
  std::optional<Packets> packets_;
  std::optional<CopyPathCounts> copies_;
};

// The whole step with one pair.
Result measure(Leader& leader, const PerfOptions& options, const Step& step);

// As many iterations as take about the wanted time; `run` does so many and says how long it took. Also the first warming.
uint64_t calibrate(const PerfOptions& options, const Step& step, unsigned window,
                   const std::function<double(uint64_t warmup, uint64_t iters)>& run);
// Warming up, after calibrate(): runs of an eighth of a repeat until three in a row take the same time but for a tenth, or half a second is over.
struct Warmth {
  uint64_t iters = 0;  // of a repeat, by what the last run took
  bool is_stable = false;
};
inline constexpr double warming_s_max = 0.5;
Warmth warm_up(const PerfOptions& options, const Step& step, unsigned window, uint64_t iters,
               const std::function<double(uint64_t warmup, uint64_t iters)>& run);
// Rounded to whole windows, of which streams consist.
uint64_t whole_iterations(const Step& step, unsigned window, uint64_t iters);
uint64_t warmup_of(const PerfOptions& options, uint64_t iters);
// In the unit of the test, of so many iterations in so many seconds.
double figure_of(const Step& step, double seconds, uint64_t iters);
// Bounds of a step that a follower needs, too.
unsigned window_of(const PerfOptions& options, const Step& step);

}  // namespace weft::tool
