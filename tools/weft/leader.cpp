// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The leading side of one pair. Knows neither processes nor reports.
#include "leader.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "failure.hpp"
#include "session.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds answer_limit{60'000};  // opening an endpoint, or the other half of a run
constexpr size_t verify_memory_most = size_t{256} << 20;
constexpr uint64_t first_bytes_most = uint64_t{1} << 30;  // to find out how many iterations a repeat has

Shape shape_of(const PerfOptions& options, const Step& step) {
  Shape shape;
  shape.test = step.test;
  shape.size = step.size;
  shape.window = window_of(options, step);
  shape.buffers = options.buffers;
  shape.verify = options.verify;
  if (shape.verify) shape.buffers = std::max(8u, 2 * shape.window);
  return shape;
}

}  // namespace

Switches switches_now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Switches now{usage.ru_nvcsw, usage.ru_nivcsw};
  // Time on the CPU, time ready and waiting, slices (Documentation/scheduler/sched-stats.rst).
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t ran = 0, waited = 0;
  if (file >> ran >> waited) now.waited_ns = waited;
  return now;
}

unsigned window_of(const PerfOptions& options, const Step& step) {
  if (!options.verify) return options.window;
  // Every message under way needs a buffer of its own, or its bytes would be written over before they are
  // checked.
  const size_t each = std::max<size_t>(step.size, 64);
  const size_t most = std::max<size_t>(2, verify_memory_most / each / 4);
  return static_cast<unsigned>(std::min<size_t>(options.window, most));
}

Leader::Leader(Channel& follower, const PerfOptions& options, const Step& step, LineTransfer* line,
               unsigned lane)
    : follower_(follower), options_(options), step_(step), line_(line), shape_(shape_of(options, step)) {
  shape_.lane = lane;
}

void Leader::open() {
  Agreement agreement;
  agreement.provider = step_.provider;
  agreement.threading = options_.threading;
  agreement.shape = shape_;
  follower_.send(agreement.message());
  agreement.shape.initiator = true;
  agreement.shape.timed = options_.percentiles && step_.test->unit == Unit::latency;
  shape_ = agreement.shape;
  // The answer must be taken even if our own side refuses, or it would be mistaken for the next one.
  std::string refusal;
  try {
    side_ = open_side(agreement, options_.local, follower_);
  } catch (const Refused& reason) {
    refusal = reason.what();
  }
  peer_ = follower_.receive(answer_limit);
  if (!refusal.empty()) throw Refused(refusal);
  if (peer_.contains("refused")) throw Refused("the other side: " + peer_.at("refused").get<std::string>());
  identity_ = side_->identity();
}

void Leader::join() {
  json mine = side_->introduction();
  mine["command"] = "connect";
  side_->connect(peer_);
  follower_.send(mine);
  follower_.receive(answer_limit, [this] { side_->poll(); });
}

Run Leader::run(uint64_t warmup, uint64_t iters, const std::function<void()>& start) {
  const auto idle = [this] { side_->poll(); };
  follower_.send({{"command", "run"}, {"warmup", warmup}, {"iters", iters}});
  follower_.receive(answer_limit, idle);
  if (start) start();
  const Switches before = switches_now();
  const double seconds = side_->run(warmup, iters);
  Run run;
  run.end_ns = now_ns();
  run.begin_ns = run.end_ns - static_cast<int64_t>(seconds * 1e9);
  const Switches after = switches_now();
  const json done = follower_.receive(answer_limit, idle);
  run.switches = {after.voluntary - before.voluntary + done.at("voluntary").get<long>(),
                  after.involuntary - before.involuntary + done.at("involuntary").get<long>(),
                  done.value("waited_ns", int64_t{-1})};
  if (before.waited_ns >= 0)
    run.switches.waited_ns = std::max(run.switches.waited_ns, after.waited_ns - before.waited_ns);
  return run;
}

json Leader::close() {
  follower_.send({{"command", "close"}});
  json answer = follower_.receive(answer_limit, [this] { poll(); });
  if (side_) {
    packets_ = side_->packets();
    copies_ = side_->copies();
  }
  side_.reset();
  return answer;
}

Result Leader::description() const {
  Result result;
  result.provider = identity_.provider;
  result.fabric = identity_.fabric;
  result.domain = identity_.domain;
  result.test = step_.test->name;
  result.size = step_.size;
  result.unit = step_.test->unit;
  result.operation = side_->operation();
  return result;
}

void Leader::add_counts(Result& result, const json& closed) const {
  result.packets = packets_;
  result.copies = copies_;
  const auto copied = copies_from(closed.value("copies", json()));
  if (copied && (!result.copies || copied->messages() >= result.copies->messages())) result.copies = copied;
  const auto theirs = packets_from(closed.value("packets", json()));
  if (result.packets && theirs) {
    result.packets->sent += theirs->sent;
    result.packets->sent_again += theirs->sent_again;
    result.packets->lost += theirs->lost;
    result.packets->duplicates += theirs->duplicates;
    result.packets->damaged += theirs->damaged;
  }
}

const Histogram* Leader::times() const { return shape_.timed ? &side_->times() : nullptr; }

double Leader::time_line() {
  if (line_ == nullptr) return 0;
  follower_.send({{"command", "line"}});
  return line_->time(true);
}

void Leader::poll() {
  if (side_) side_->poll();
}

uint64_t warmup_of(const PerfOptions& options, uint64_t iters) {
  return options.warmup >= 0 ? static_cast<uint64_t>(options.warmup) : iters / 10;
}

uint64_t whole_iterations(const Step& step, unsigned window, uint64_t iters) {
  if (step.test->unit == Unit::latency || step.test->is_one_sided()) return iters;
  return (iters + window - 1) / window * window;
}

uint64_t calibrate(const PerfOptions& options, const Step& step, unsigned window,
                   const std::function<double(uint64_t, uint64_t)>& run) {
  const double wanted = options.repeat_ms * 1e-3;
  uint64_t iters = step.test->unit == Unit::latency ? 16 : window;
  if (whole_iterations(step, window, 1) == 1)
    iters = std::clamp<uint64_t>(first_bytes_most / step.size, 1, iters);
  double seconds = run(iters, iters);
  while (seconds < wanted / 16 && iters < (uint64_t{1} << 32)) {
    iters *= 4;
    seconds = run(0, iters);
  }
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(iters) * wanted / seconds));
}

Warmth warm_up(const PerfOptions& options, const Step& step, unsigned window, uint64_t iters,
               const std::function<double(uint64_t, uint64_t)>& run) {
  constexpr int alike_wanted = 2;
  const double wanted = options.repeat_ms * 1e-3;
  const uint64_t batch = whole_iterations(step, window, std::max<uint64_t>(1, iters / 8));
  double before = 0;
  double each = 0;
  int alike = 0;
  double spent = 0;
  while (alike < alike_wanted && spent < warming_s_max) {
    const double took = run(0, batch);
    spent += took;
    each = took / static_cast<double>(batch);
    alike = std::abs(each - before) <= before / 10 ? alike + 1 : 0;
    before = each;
  }
  return {std::max<uint64_t>(1, static_cast<uint64_t>(wanted / each)), alike == alike_wanted};
}

double figure_of(const Step& step, double seconds, uint64_t iters) {
  const double each = seconds / static_cast<double>(iters);
  switch (step.test->unit) {
    case Unit::latency:
      return each * 1e9 / (step.test->is_round_trip() ? 1 : 2);
    case Unit::rate:
      return 1e-6 / each;
    case Unit::bandwidth:
      return static_cast<double>(step.size) * 1e-9 / each;
  }
  return 0;
}

Result measure(Leader& leader, const PerfOptions& options, const Step& step) {
  leader.open();
  leader.join();
  Result result = leader.description();
  const unsigned window = window_of(options, step);
  const auto seconds = [&](uint64_t warmup, uint64_t iters) { return leader.run(warmup, iters).seconds(); };
  uint64_t iters = options.iters ? options.iters : calibrate(options, step, window, seconds);
  // Numbers that were asked for stay, and then the repeats tell whether it was warm.
  const bool as_asked = options.iters != 0 || options.warmup >= 0;
  if (!as_asked) {
    const Warmth warmth = warm_up(options, step, window, iters, seconds);
    iters = warmth.iters;
    result.is_cold = !warmth.is_stable;
  }
  result.iters = whole_iterations(step, window, iters);
  double measured_s = 0;
  int64_t waited_ns = -1;
  result.line_before_ns = leader.time_line();
  for (unsigned i = 0; i < options.repeat; ++i) {
    const Run run = leader.run(warmup_of(options, result.iters), result.iters);
    result.samples.push_back(figure_of(step, run.seconds(), result.iters));
    result.voluntary_switches += run.switches.voluntary;
    result.involuntary_switches += run.switches.involuntary;
    measured_s += run.seconds();
    if (run.switches.waited_ns >= 0) waited_ns = std::max<int64_t>(waited_ns, 0) + run.switches.waited_ns;
    if (const Histogram* times = leader.times()) {
      if (!result.times) result.times.emplace();
      result.times->add(*times);
    }
  }
  if (waited_ns >= 0 && measured_s > 0) result.waited = static_cast<double>(waited_ns) * 1e-9 / measured_s;
  if (as_asked) result.is_cold = result.samples.size() < 2 || result.most() > 1.25 * result.least();
  result.line_after_ns = leader.time_line();
  leader.add_counts(result, leader.close());
  return result;
}

}  // namespace weft::tool
