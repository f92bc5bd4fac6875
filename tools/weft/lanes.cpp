// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The conductor and the workers of several lanes.
#include "lanes.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "failure.hpp"
#include "leader.hpp"
#include "session.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds command_limit{86'400'000};  // if the conductor dies, the channel closes
constexpr milliseconds answer_limit{120'000};      // a run that stalls says so after half a minute

class LaneWorker {
 public:
  LaneWorker(Channel& conductor, Channel& follower, const PerfOptions& options, unsigned lane)
      : conductor_(conductor), follower_(follower), options_(options), lane_(lane) {}

  // False after goodbye.
  bool obey() {
    const json message = conductor_.receive(command_limit, idle());
    const std::string command = message.at("command").get<std::string>();
    if (command == "open") return open(message);
    if (command == "join") return join();
    if (command == "run") return run(message);
    if (command == "close") return close();
    follower_.send({{"command", "bye"}});
    return false;
  }

 private:
  std::function<void()> idle() {
    return [this] {
      if (leader_) leader_->poll();
    };
  }

  bool open(const json& message) {
    step_.provider = message.at("provider");
    step_.test = &test_named(message.at("test").get<std::string>());
    step_.size = message.at("size");
    leader_ = std::make_unique<Leader>(follower_, options_, step_, nullptr, lane_);
    return answer([this] { leader_->open(); });
  }

  bool join() {
    return answer([this] {
      leader_->join();
      is_joined_ = true;
    });
  }

  bool run(const json& message) {
    const Run run = leader_->run(message.at("warmup"), message.at("iters"), [this] {
      conductor_.send({{"ready", true}});
      conductor_.receive(command_limit, idle());
    });
    json done = {{"begin_ns", run.begin_ns},
                 {"end_ns", run.end_ns},
                 {"voluntary", run.switches.voluntary},
                 {"involuntary", run.switches.involuntary}};
    if (const Histogram* times = leader_->times())
      done["times_ns"] = to_json(std::optional<Histogram>(*times));
    conductor_.send(done);
    return true;
  }

  bool close() {
    Result result;
    result.test = step_.test->name;
    if (is_joined_) result = leader_->description();
    leader_->add_counts(result, leader_->close());
    leader_.reset();
    is_joined_ = false;
    conductor_.send({{"result", to_json(result)}});
    return true;
  }

  template <class Work>
  bool answer(Work&& work) {
    try {
      work();
      conductor_.send({{"done", true}});
    } catch (const Refused& reason) {
      conductor_.send({{"refused", reason.what()}});
    }
    return true;
  }

  Channel& conductor_;
  Channel& follower_;
  const PerfOptions& options_;
  const unsigned lane_;
  Step step_;
  std::unique_ptr<Leader> leader_;
  bool is_joined_ = false;
};

// One step with all lanes.
class Conductor {
 public:
  Conductor(std::vector<Channel>& lanes, const PerfOptions& options, const Step& step)
      : lanes_(lanes), options_(options), step_(step), figures_(lanes.size()) {}

  Result measure() {
    send_line({{"command", "open"},
               {"provider", step_.provider},
               {"test", step_.test->name},
               {"size", step_.size}});
    check(answers());
    send_line({{"command", "join"}});
    check(answers());
    Result result;
    const unsigned window = window_of(options_, step_);
    const auto slowest = [this](uint64_t warmup, uint64_t iters) {
      double seconds = 0;
      for (const LaneRun& one : run(warmup, iters)) seconds = std::max(seconds, one.seconds());
      return seconds;
    };
    result.iters = whole_iterations(
        step_, window, options_.iters ? options_.iters : calibrate(options_, step_, window, slowest));
    times_.reset();
    voluntary_ = involuntary_ = 0;
    for (unsigned i = 0; i < options_.repeat; ++i) {
      const std::vector<LaneRun> runs = run(warmup_of(options_, result.iters), result.iters);
      result.samples.push_back(figure_of_all(step_, runs, result.iters));
      for (size_t lane = 0; lane < runs.size(); ++lane)
        figures_[lane].push_back(figure_of(step_, runs[lane].seconds(), result.iters));
    }
    const std::vector<Result> lane_results = close();
    Result whole = lane_results.front();
    whole.iters = result.iters;
    whole.samples = result.samples;
    whole.times = times_;
    whole.voluntary_switches = voluntary_;
    whole.involuntary_switches = involuntary_;
    for (const std::vector<double>& figures : figures_) whole.lanes.push_back(median_of(figures));
    for (size_t i = 1; i < lane_results.size() && whole.packets; ++i)
      if (lane_results[i].packets) add(*whole.packets, *lane_results[i].packets);
    whole.copies.reset();  // of one pair only
    return whole;
  }

  std::vector<Result> close() {
    send_line({{"command", "close"}});
    std::vector<Result> results;
    for (const json& answer : answers()) results.push_back(result_from(answer.at("result")));
    return results;
  }

 private:
  void send_line(const json& message) {
    for (Channel& lane : lanes_) lane.send(message);
  }

  std::vector<json> answers() {
    std::vector<json> all;
    for (Channel& lane : lanes_) all.push_back(lane.receive(answer_limit));
    return all;
  }

  static void check(const std::vector<json>& answers) {
    for (const json& answer : answers)
      if (answer.contains("refused")) throw Refused(answer.at("refused").get<std::string>());
  }

  static void add(Packets& to, const Packets& more) {
    to.sent += more.sent;
    to.sent_again += more.sent_again;
    to.lost += more.lost;
    to.duplicates += more.duplicates;
    to.damaged += more.damaged;
  }

  std::vector<LaneRun> run(uint64_t warmup, uint64_t iters) {
    send_line({{"command", "run"}, {"warmup", warmup}, {"iters", iters}});
    (void)answers();  // all are ready
    send_line({{"command", "go"}});
    std::vector<LaneRun> runs;
    for (const json& done : answers()) {
      runs.push_back({done.at("begin_ns"), done.at("end_ns")});
      voluntary_ += done.at("voluntary").get<long>();
      involuntary_ += done.at("involuntary").get<long>();
      if (!done.contains("times_ns")) continue;
      if (!times_) times_.emplace();
      if (const auto times = times_from(done.at("times_ns"))) times_->add(*times);
    }
    return runs;
  }

  std::vector<Channel>& lanes_;
  const PerfOptions& options_;
  const Step step_;
  std::vector<std::vector<double>> figures_;  // of each lane, one per repeat
  std::optional<Histogram> times_;
  long voluntary_ = 0, involuntary_ = 0;
};

}  // namespace

double figure_of_all(const Step& step, const std::vector<LaneRun>& runs, uint64_t iters) {
  if (runs.empty()) return 0;
  if (step.test->unit == Unit::latency) {
    double sum = 0;
    for (const LaneRun& run : runs) sum += figure_of(step, run.seconds(), iters);
    return sum / static_cast<double>(runs.size());
  }
  LaneRun all = runs.front();
  for (const LaneRun& run : runs) {
    all.begin_ns = std::min(all.begin_ns, run.begin_ns);
    all.end_ns = std::max(all.end_ns, run.end_ns);
  }
  return figure_of(step, all.seconds(), iters * runs.size());
}

void work_lane(Channel& conductor, Channel& follower, const PerfOptions& options, unsigned lane) {
  LaneWorker worker(conductor, follower, options, lane);
  try {
    while (worker.obey()) {
    }
  } catch (const std::exception& error) {
    for (Channel* channel : {&conductor, &follower}) {
      try {
        channel->send({{"error", fmt::format("(of {}) {}", lane, error.what())}});
      } catch (const Failure&) {
        // It has left already; the first error is the one to tell.
      }
    }
    throw;
  }
}

void conduct(std::vector<Channel>& lanes, const PerfOptions& options, const std::vector<Step>& steps,
             const Progress& progress) {
  for (size_t i = 0; i < steps.size(); ++i) {
    progress.begin(steps[i], i, steps.size());
    Conductor conductor(lanes, options, steps[i]);
    try {
      progress.result(conductor.measure());
    } catch (const Refused& reason) {
      (void)conductor.close();
      progress.refused(steps[i], reason.what());
    }
  }
  for (Channel& lane : lanes) lane.send({{"command", "bye"}});
}

}  // namespace weft::tool
