// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Starting processes and hearing what they tell.
#include "perf_children.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "failure.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds grace{5};  // for a process whose other half has ended

class Supervisor {
 public:
  Supervisor(Reporter& reporter, std::string provider)
      : reporter_(reporter), provider_(std::move(provider)) {}

  void watch(std::span<Child> children) {
    Clock::time_point first_end{};
    std::vector<pollfd> polls(children.size());
    while (!std::all_of(children.begin(), children.end(), [](const Child& c) { return c.ended; })) {
      for (size_t i = 0; i < polls.size(); ++i)
        polls[i] = {children[i].open ? children[i].reports.fd() : -1, POLLIN, 0};
      poll(polls.data(), polls.size(), 50);
      for (size_t i = 0; i < polls.size(); ++i) {
        if (polls[i].revents) hear(children[i]);
      }
      for (Child& child : children) {
        if (reap(child) && first_end == Clock::time_point{}) first_end = Clock::now();
      }
      if (first_end != Clock::time_point{} && Clock::now() - first_end > grace) {
        for (const Child& child : children) {
          if (!child.ended) kill(child.pid, SIGKILL);
        }
      }
    }
    for (Child& child : children) {
      while (child.open) hear(child);  // what was still in the channel
    }
    report_deaths(children);
  }

 private:
  void hear(Child& child) {
    json message;
    try {
      message = child.reports.receive(std::chrono::seconds(5));
    } catch (const Failure&) {
      child.open = false;  // it has ended; how, waitpid says
      return;
    }
    if (message.contains("begin")) {
      const json& b = message["begin"];
      reporter_.begin(b["provider"], b["test"], b["size"], b["index"], b["count"]);
    } else if (message.contains("result")) {
      reporter_.result(result_from(message["result"]));
    } else if (message.contains("refused")) {
      const json& r = message["refused"];
      reporter_.refused(r["provider"], r["test"], r["size"], r["reason"]);
    } else if (message.contains("failed")) {
      // Each half tells the other why it goes; the first is enough.
      if (!told_ || message.at("is_cause")) reporter_.failed(provider_, message["failed"]);
      told_ = true;
    }
  }

  static bool reap(Child& child) {
    if (!child.ended && waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.ended = true;
    return child.ended;
  }

  void report_deaths(std::span<const Child> children) {
    for (const Child& child : children) {
      if (WIFSIGNALED(child.status)) {
        reporter_.failed(provider_, fmt::format("the {} process died of signal {} ({})", child.role,
                                                WTERMSIG(child.status), strsignal(WTERMSIG(child.status))));
      } else if (WEXITSTATUS(child.status) != 0 && !told_) {
        reporter_.failed(provider_, fmt::format("the {} process ended with status {}", child.role,
                                                WEXITSTATUS(child.status)));
      }
    }
  }

  Reporter& reporter_;
  const std::string provider_;
  bool told_ = false;
};

}  // namespace

Child start(const std::string& role, int cpu, const std::function<void(Channel&)>& work) {
  auto [parent_end, child_end] = local_channel();
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail("cannot fork: {}", std::strerror(errno));
  if (pid > 0) {
    Child child;
    child.pid = pid;
    child.reports = std::move(parent_end);
    child.role = role;
    return child;
  }
  parent_end.close();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(exit_failed);
  int status = exit_ok;
  try {
    pin_to(cpu);
    work(child_end);
  } catch (const std::exception& error) {
    status = exit_failed;
    try {
      const bool is_cause = dynamic_cast<const Died*>(&error) != nullptr;
      child_end.send({{"failed", error.what()}, {"is_cause", is_cause}});
    } catch (const Failure&) {
      fmt::print(stderr, "weft perf: {}: {}\n", role, error.what());
    }
  }
  if (status == exit_ok) std::exit(status);
  // Threads of a measurement that failed may still be in the library.
  std::fflush(nullptr);
  _exit(status);
}

std::optional<int> died_of(Child& child, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!child.ended && waitpid(child.pid, &child.status, WNOHANG) != child.pid) {
    if (Clock::now() > end) return {};
    poll(nullptr, 0, 10);
  }
  child.ended = true;
  if (WIFSIGNALED(child.status)) return WTERMSIG(child.status);
  return {};
}

Progress progress_over(Channel& parent) {
  return {[&parent](const Step& step, size_t index, size_t count) {
            parent.send({{"begin",
                          {{"provider", step.provider},
                           {"test", step.test->name},
                           {"size", step.size},
                           {"index", index},
                           {"count", count}}}});
          },
          [&parent](const Result& result) {
            parent.send({{"result", to_json(result)}});
          },
          [&parent](const Step& step, const std::string& reason) {
            parent.send({{"refused",
                          {{"provider", step.provider},
                           {"test", step.test->name},
                           {"size", step.size},
                           {"reason", reason}}}});
          }};
}

void watch(std::span<Child> children, Reporter& reporter, const std::string& provider) {
  Supervisor(reporter, provider).watch(children);
}

}  // namespace weft::tool
