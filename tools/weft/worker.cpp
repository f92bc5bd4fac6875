// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The leading and the following process of a measurement. Knows neither how they were started nor how the
// results are shown.
#include "worker.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "leader.hpp"
#include "side.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds command_limit{
    86'400'000};  // the leader may be at work elsewhere; if it dies, the channel closes

// One step on the following side: open, connect, runs, close.
class Follower {
 public:
  Follower(Channel& leader, Local local, LineTransfer* line)
      : leader_(leader), local_(std::move(local)), line_(line) {}

  // False when the leader has said goodbye.
  bool obey() {
    const json message = leader_.receive(command_limit, [this] {
      if (side_) side_->poll();
    });
    const std::string command = message.at("command").get<std::string>();
    if (command == "open") {
      open(message);
    } else if (command == "connect" && side_) {
      side_->connect(message);
      is_connected_ = true;
      leader_.send({{"ready", true}});
    } else if (command == "run" && is_connected_) {
      run(message);
    } else if (command == "close") {
      const auto packets = side_ ? side_->packets() : std::nullopt;
      const auto copies = side_ ? side_->copies() : std::nullopt;
      side_.reset();
      is_connected_ = false;
      leader_.send({{"closed", true}, {"packets", to_json(packets)}, {"copies", to_json(copies)}});
    } else if (command == "line" && line_ != nullptr) {
      (void)line_->time(false);
    } else if (command == "bye") {
      return false;
    } else {
      fail("unexpected command '{}'", command);
    }
    return true;
  }

 private:
  void open(const json& message) {
    try {
      side_ = open_side(Agreement::from(message), local_, leader_);
      leader_.send(side_->introduction());
    } catch (const Refused& reason) {
      leader_.send({{"refused", reason.what()}});
    }
  }

  void run(const json& message) {
    leader_.send({{"ready", true}});
    const Switches before = switches_now();
    side_->run(message.at("warmup").get<uint64_t>(), message.at("iters").get<uint64_t>());
    const Switches after = switches_now();
    leader_.send({{"voluntary", after.voluntary - before.voluntary},
                  {"involuntary", after.involuntary - before.involuntary},
                  {"waited_ns", before.waited_ns < 0 ? int64_t{-1} : after.waited_ns - before.waited_ns}});
  }

  Channel& leader_;
  const Local local_;
  LineTransfer* const line_;
  std::unique_ptr<Side> side_;
  bool is_connected_ = false;
};

// "0", "0-1" or "0,2": the CPUs that share a core with `cpu`. Empty when the kernel does not say.
std::string siblings_of(int cpu) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

void follow(Channel& leader, const Local& local, LineTransfer* line) {
  Follower follower(leader, local, line);
  try {
    while (follower.obey()) {
    }
  } catch (const std::exception& error) {
    try {
      leader.send({{"error", fmt::format("(on the other side) {}", error.what())}});
    } catch (const Failure&) {
      // It has left already; the first error is the one to tell.
    }
    throw;
  }
}

void lead(Channel& follower, const PerfOptions& options, const std::vector<Step>& steps,
          const Progress& progress, LineTransfer* line) {
  try {
    for (size_t i = 0; i < steps.size(); ++i) {
      progress.begin(steps[i], i, steps.size());
      Leader leader(follower, options, steps[i], line);
      try {
        progress.result(measure(leader, options, steps[i]));
      } catch (const Refused& reason) {
        (void)leader.close();
        progress.refused(steps[i], reason.what());
      }
    }
    follower.send({{"command", "bye"}});
  } catch (const std::exception& error) {
    try {
      follower.send({{"error", fmt::format("(on the other side) {}", error.what())}});
    } catch (const Failure&) {
      // It has left already; the first error is the one to tell.
    }
    throw;
  }
}

void pin_to(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    fail("cannot pin to CPU {}: {}", cpu, std::strerror(errno));
}

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cpus.push_back(i);
  }
  return cpus;
}

std::pair<int, int> choose_cpus() {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) return {-1, -1};
  const std::string siblings = siblings_of(cpus[0]);
  for (size_t i = 1; i < cpus.size(); ++i) {
    if (siblings.empty() || siblings_of(cpus[i]) != siblings) return {cpus[0], cpus[i]};
  }
  return {cpus[0], cpus[1]};
}

}  // namespace weft::tool
