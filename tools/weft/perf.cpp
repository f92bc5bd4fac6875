// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft perf`: its command line, and the parent that starts the two processes and watches over them.
#include "perf.hpp"

#include <poll.h>
#include <rdma/fabric.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "channel.hpp"
#include "cli.hpp"
#include "failure.hpp"
#include "line_transfer.hpp"
#include "names.hpp"
#include "perf_batch.hpp"
#include "perf_compare.hpp"
#include "perf_options.hpp"
#include "perf_plan.hpp"
#include "place.hpp"
#include "report.hpp"
#include "worker.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds grace{5};  // for a process whose other half has ended

// ---- one process of the two ----

struct Child {
  pid_t pid = -1;
  Channel reports;
  std::string role;
  bool open = true;  // may still report
  bool ended = false;
  int status = 0;
};

// Runs `work` in a new process. What it throws goes to the parent as a report.
template <class Work>
Child start(const std::string& role, int cpu, Work&& work) {
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
      child_end.send({{"failed", error.what()}});
    } catch (const Failure&) {
      fmt::print(stderr, "weft perf: {}: {}\n", role, error.what());
    }
  }
  std::exit(status);
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

// ---- the parent ----

class Supervisor {
 public:
  Supervisor(Reporter& reporter, std::string provider)
      : reporter_(reporter), provider_(std::move(provider)) {}

  void watch(std::array<Child, 2>& children) {
    Clock::time_point first_end{};
    while (!children[0].ended || !children[1].ended) {
      std::array<pollfd, 2> polls{};
      for (size_t i = 0; i < 2; ++i) polls[i] = {children[i].open ? children[i].reports.fd() : -1, POLLIN, 0};
      poll(polls.data(), polls.size(), 50);
      for (size_t i = 0; i < 2; ++i) {
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
    tell_of_deaths(children);
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
      if (!told_) reporter_.failed(provider_, message["failed"]);
      told_ = true;
    }
  }

  static bool reap(Child& child) {
    if (!child.ended && waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.ended = true;
    return child.ended;
  }

  void tell_of_deaths(const std::array<Child, 2>& children) {
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

// What a library says of a provider. Asked by a process of its own: this one is not to have called the library.
struct Offer {
  bool is_there = true;
  uint64_t message_most = UINT64_MAX;  // bytes of a message, the largest of its RDM endpoints
};

Offer offer_of(const std::string& provider) {
  auto [ours, theirs] = local_channel();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return {};  // then it shows later
  if (child == 0) {
    setenv("FI_LOG_LEVEL", "none", 0);
    fi_info* hints = fi_allocinfo();
    fi_info* found = nullptr;
    hints->mode = ~uint64_t{0};
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    const int status = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &found);
    uint64_t most = 0;
    for (const fi_info* info = found; info; info = info->next)
      if (info->ep_attr->type == FI_EP_RDM) most = std::max<uint64_t>(most, info->ep_attr->max_msg_size);
    try {
      theirs.send({{"is_there", status != -FI_ENODATA}, {"message_most", most}});
    } catch (const Failure&) {
    }
    _exit(0);
  }
  theirs.close();
  Offer offer;
  try {
    const json told = ours.receive(std::chrono::seconds(30));
    offer.is_there = told.at("is_there");
    // Without RDM endpoints: each step says so when it is opened.
    if (const uint64_t most = told.at("message_most"); most != 0) offer.message_most = most;
  } catch (const Failure&) {
    // It died in the library: so will the measurement, and say how.
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return offer;
}

// Before anything is measured: providers that are not there, sizes that one does not take.
void check_offers(const Options& options) {
  for (const std::string& provider : options.providers) {
    const Offer offer = offer_of(provider);
    if (!offer.is_there)
      fail("the library has no provider '{}' here (weft info -l lists them, weft info --why says more)",
           provider);
    PerfOptions one = options;
    one.providers = {provider};
    for (const Step& step : steps_of(one))
      if (step.size > offer.message_most)
        fail_usage("{} of {}: {} takes messages of at most {} bytes", step.test->name, size_text(step.size),
                   provider, offer.message_most);
  }
}

void measure_here(const Options& options, const std::string& provider, Reporter& reporter) {
  PerfOptions one = options;
  one.providers = {provider};
  const std::vector<Step> steps = steps_of(one);
  // No call of the library before the fork: each process is to have a library of its own, as two programs
  // would.
  std::pair<Channel, Channel> ends = local_channel();
  Channel &leading = ends.first, &following = ends.second;
  // Two processors, else the figure is the scheduler's.
  std::optional<LineTransfer> line;
  if (options.cpus.first >= 0 && options.cpus.first != options.cpus.second) line.emplace();
  LineTransfer* const shared = line ? &*line : nullptr;
  std::array<Child, 2> children;
  children[1] = start("following", options.cpus.second, [&](Channel&) {
    leading.close();
    follow(following, options.node, shared);
  });
  children[0] = start("leading", options.cpus.first, [&](Channel& parent) {
    following.close();
    lead(leading, one, steps, progress_over(parent), shared);
  });
  leading.close();
  following.close();
  Supervisor(reporter, provider).watch(children);
}

Circumstances circumstances_of(const Options& o, const std::string& where) {
  Circumstances c;
  c.library = library_path();
  const uint32_t version = fi_version();
  c.api = fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
  c.where = where;
  if (o.cpus.first >= 0) c.cpus = {o.cpus.first, o.cpus.second};
  c.threading = o.threading;
  c.window = o.window;
  c.repeat = o.repeat;
  c.buffers = o.buffers;
  c.verify = o.verify;
  return c;
}

int finish(Reporter& reporter, const Options& options) {
  reporter.finish();
  if (!options.plot_file.empty() && !reporter.results().empty()) {
    plot(reporter.results(), options.plot_file, reporter.title());
  }
  return reporter.anything_missing() || reporter.results().empty() ? exit_failed : exit_ok;
}

Format format_of(const Options& options) {
  return options.format == "json" ? Format::json : options.format == "csv" ? Format::csv : Format::text;
}

int perf_here(const Options& options) {
  check_offers(options);
  const std::string where = options.cpus.first < 0 ? "two, not pinned"
                                                   : fmt::format("two, pinned to CPUs {} and {}",
                                                                 options.cpus.first, options.cpus.second);
  Reporter reporter(format_of(options), options.output, circumstances_of(options, where));
  for (const std::string& provider : options.providers) measure_here(options, provider, reporter);
  return finish(reporter, options);
}

int perf_server(const Options& options) {
  Channel leader = accept_one(options.port, [](uint16_t port) {
    fmt::print("weft perf: waiting for a client on port {}\n", port);
    std::fflush(stdout);
  });
  pin_to(options.cpus.second);
  follow(leader, options.node.empty() ? local_address(leader) : options.node);
  return exit_ok;
}

int perf_client(Options& options) {
  check_offers(options);
  Channel follower = connect_to(options.client, options.port, std::chrono::seconds(5));
  if (options.node.empty()) options.node = local_address(follower);
  Reporter reporter(format_of(options), options.output,
                    circumstances_of(options, "this host and " + options.client));
  pin_to(options.cpus.first);
  const Progress progress{[&](const Step& step, size_t index, size_t count) {
                            reporter.begin(step.provider, std::string(step.test->name), step.size, index,
                                           count);
                          },
                          [&](const Result& result) { reporter.result(result); },
                          [&](const Step& step, const std::string& reason) {
                            reporter.refused(step.provider, std::string(step.test->name), step.size, reason);
                          }};
  try {
    lead(follower, options, steps_of(options), progress);
  } catch (const Failure& error) {
    reporter.failed(options.client, error.what());
  }
  return finish(reporter, options);
}

// What the children are to do, in their own words.
Comparison comparison_of(const Options& o) {
  Comparison c;
  c.providers = o.providers;
  c.other = o.compare_with;
  c.rounds = o.repeat;
  c.format = format_of(o);
  c.output = o.output;
  c.plot_file = o.plot_file;
  const auto add = [&c](const char* name, const std::string& value) {
    c.options.emplace_back(name);
    c.options.push_back(value);
  };
  add("-t", fmt::format("{}", fmt::join(o.tests, ",")));
  if (!o.sizes_text.empty()) add("-s", o.sizes_text);
  if (o.iters != 0) add("-n", std::to_string(o.iters));
  add("--time", std::to_string(o.repeat_ms));
  if (o.warmup >= 0) add("-w", std::to_string(o.warmup));
  add("--window", std::to_string(o.window));
  add("--buffers", std::to_string(o.buffers));
  if (!o.pin_text.empty()) add("--pin", o.pin_text);
  add("--threading", o.threading);
  if (!o.node.empty()) add("--node", o.node);
  if (o.verify) c.options.emplace_back("--verify");
  if (o.percentiles) c.options.emplace_back("--percentiles");
  return c;
}

// Each line as if it stood on the command line; a mistake names its place before anything is measured.
int perf_batch(const std::string& file, int argc, char** argv) {
  std::ifstream in(file);
  if (!in) fail("cannot read {}: {}", file, std::strerror(errno));
  const std::vector<BatchLine> lines = read_batch(in, file);
  std::vector<std::string> common;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--batch") ++i;
    else if (!word.starts_with("--batch=")) common.push_back(word);
  }
  std::set<std::string> files;  // that are written: the report of the last would be all that is left
  const auto is_twice = [&files](const std::string& name) {
    return !name.empty() && name != "-" && !files.insert(name).second;
  };
  for (const BatchLine& line : lines) {
    CLI::App app("weft perf", "perf");
    Options options;
    declare(app, options);
    std::vector<std::string> words = common;
    words.insert(words.end(), line.words.begin(), line.words.end());
    std::reverse(words.begin(), words.end());  // CLI::App takes the last as the first
    try {
      app.parse(words);
      if (!options.batch.empty()) fail_usage("a batch within a batch");
      interpret(app, options);
      if (is_twice(options.output)) fail_usage("{} would be written by two lines", options.output);
      if (is_twice(options.plot_file)) fail_usage("{} would be drawn by two lines", options.plot_file);
    } catch (const CLI::Success&) {
      fail_usage("{}:{}: help is for the command line, not for a batch", file, line.number);
    } catch (const CLI::Error& error) {
      fail_usage("{}:{}: {}", file, line.number, error.what());
    } catch (const Failure& failure) {
      throw Failure(fmt::format("{}:{}: {}", file, line.number, failure.what()), exit_usage);
    }
  }
  return run_batch(lines, common);
}

}  // namespace

int perf(int argc, char** argv, char** all) {
  CLI::App app("weft perf", "perf");
  Options options;
  declare(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (app.count("--batch") != 0) return perf_batch(options.batch, argc, argv);
  interpret(app, options);
  if (!options.compare_with.empty()) return compare(comparison_of(options));
  settle_library(options.stock ? Library::stock : Library::ours, all);
  if (options.server) return perf_server(options);
  if (!options.client.empty()) return perf_client(options);
  return perf_here(options);
}

}  // namespace weft::tool
