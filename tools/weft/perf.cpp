// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft perf`: its command line, and the parent that starts the two processes and watches over them.
#include "perf.hpp"

#include <rdma/fabric.h>
#include <signal.h>
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
#include <fmt/ranges.h>

#include "channel.hpp"
#include "cli.hpp"
#include "failure.hpp"
#include "install_tree.hpp"
#include "line_transfer.hpp"
#include "perf_batch.hpp"
#include "perf_children.hpp"
#include "perf_compare.hpp"
#include "perf_hosts.hpp"
#include "perf_lanes.hpp"
#include "perf_options.hpp"
#include "perf_plan.hpp"
#include "report.hpp"
#include "verbs_side.hpp"
#include "worker.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;

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
    const json answer = ours.receive(std::chrono::seconds(30));
    offer.is_there = answer.at("is_there");
    // Without RDM endpoints: each step says so when it is opened.
    if (const uint64_t most = answer.at("message_most"); most != 0) offer.message_most = most;
  } catch (const Failure&) {
    // It died in the library: so will the measurement, and say how.
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return offer;
}

// Returns the file of the library.
std::string check_device(const Options& options) {
  std::error_code ignored;
  if (!options.stock && !std::filesystem::exists(compat_dir() / "libibverbs.so.1", ignored))
    fail("Weft's libibverbs.so.1 is not at {} (package weft-verbs); --stock measures the system's",
         compat_dir().string());
  const std::string& wanted = options.local.device;
  auto [ours, theirs] = local_channel();
  const Child child = start("verbs", -1, [&end = theirs, &wanted](Channel&) {
    end.send({{"names", verbs_device_names()},
              {"message_most", verbs_message_most(wanted)},
              {"library", verbs_library()}});
  });
  theirs.close();
  std::vector<std::string> names;
  uint64_t most = UINT64_MAX;
  std::string library;
  try {
    const json answer = ours.receive(std::chrono::seconds(30));
    names = answer.at("names").get<std::vector<std::string>>();
    most = answer.at("message_most");
    library = answer.at("library");
  } catch (const Failure&) {
    // It died in the library: so will the measurement, and say how.
    names = {wanted};
  }
  waitpid(child.pid, nullptr, 0);
  if (names.empty()) fail("libibverbs.so.1 has no device here (weft info --verbs lists those of Weft)");
  if (!wanted.empty() && std::find(names.begin(), names.end(), wanted) == names.end())
    fail("there is no verbs device '{}'; there are: {}", wanted, fmt::join(names, " "));
  for (const Step& step : steps_of(options))
    if (step.size > most)
      fail_usage("{} of {}: {} takes messages of at most {} bytes", step.test->name, size_text(step.size),
                 wanted.empty() ? "the device" : wanted, most);
  return library;
}

// Before anything is measured: providers that are not there, sizes that one does not take. Returns the file of the library.
std::string check_offers(const Options& options) {
  if (options.is_verbs()) return check_device(options);
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
  return library_path();
}

// The CPU of each lane on either side: two for each thread, one for the server and each client. -1: not so many.
struct LaneCpus {
  std::vector<int> leading, following;
};
LaneCpus lane_cpus(const Options& o) {
  const size_t lanes = o.lanes();
  LaneCpus cpus{std::vector<int>(lanes, -1), std::vector<int>(lanes, -1)};
  if (!o.pin_text.empty()) {
    std::fill(cpus.leading.begin(), cpus.leading.end(), o.cpus.first);
    std::fill(cpus.following.begin(), cpus.following.end(), o.cpus.second);
    return cpus;
  }
  const std::vector<int> there = usable_cpus();
  const size_t needed = o.peers > 1 ? lanes + 1 : 2 * lanes;
  if (there.size() < needed) {
    fmt::print(
        stderr,
        "weft perf: warning: {} processes or threads poll on {} CPUs; the figures are partly those of the "
        "scheduler\n",
        needed, there.size());
    return cpus;
  }
  for (size_t i = 0; i < lanes; ++i) {
    cpus.leading[i] = o.peers > 1 ? there[i + 1] : there[2 * i];
    cpus.following[i] = o.peers > 1 ? there[0] : there[2 * i + 1];
  }
  return cpus;
}

void measure_lanes_here(const PerfOptions& one, const LaneCpus& cpus, const std::vector<Step>& steps,
                        Reporter& reporter) {
  std::vector<Channel> leading;
  std::vector<Channel> following;
  for (unsigned i = 0; i < one.lanes(); ++i) {
    std::pair<Channel, Channel> ends = local_channel();
    leading.push_back(std::move(ends.first));
    following.push_back(std::move(ends.second));
  }
  std::array<Child, 2> children;
  children[1] = start(one.peers > 1 ? "server" : "following", -1, [&](Channel&) {
    leading.clear();
    follow_lanes(following, one.peers > 1, one.local, cpus.following);
  });
  children[0] = start("leading", -1, [&](Channel& parent) {
    following.clear();
    lead_lanes(leading, one, steps, cpus.leading, progress_over(parent));
  });
  leading.clear();
  following.clear();
  watch(children, reporter, one.providers.front());
}

void measure_here(const Options& options, const std::string& provider, Reporter& reporter) {
  PerfOptions one = options;
  one.providers = {provider};
  const std::vector<Step> steps = steps_of(one);
  if (one.lanes() > 1) return measure_lanes_here(one, lane_cpus(options), steps, reporter);
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
    follow(following, options.local, shared);
  });
  children[0] = start("leading", options.cpus.first, [&](Channel& parent) {
    following.close();
    lead(leading, one, steps, progress_over(parent), shared);
  });
  leading.close();
  following.close();
  watch(children, reporter, provider);
}

Circumstances circumstances_of(const Options& o, const std::string& where, const std::string& library) {
  Circumstances c;
  c.library = library;
  const uint32_t version = fi_version();
  c.api = o.is_verbs() ? "verbs" : fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
  if (!o.is_verbs() || !o.stock) c.version = own_identification().version;
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
  const std::string library = check_offers(options);
  if (std::getenv(look_name)) return exit_ok;
  std::string where = options.cpus.first < 0 ? "two, not pinned"
                                             : fmt::format("two, pinned to CPUs {} and {}",
                                                           options.cpus.first, options.cpus.second);
  if (options.threads > 1) where = fmt::format("two of {} threads each", options.threads);
  if (options.peers > 1) where = fmt::format("a server and {} clients", options.peers);
  Reporter reporter(format_of(options), options.output, circumstances_of(options, where, library));
  for (const std::string& provider : options.providers) measure_here(options, provider, reporter);
  return finish(reporter, options);
}

// What a server has to be for this process.
Hello hello_of(const Options& options) {
  Hello hello;
  hello.lanes = options.lanes();
  hello.one_server = options.peers > 1;
  hello.library = options.stock ? "stock" : "weft";
  if (const char* side = std::getenv(side_name)) {  // one round of a comparison
    hello.again = true;
    if (options.stock) hello.library = side;
    unsetenv(side_name);
  }
  return hello;
}

int perf_client(Options& options) {
  const std::string library = check_offers(options);
  if (std::getenv(look_name)) return exit_ok;
  Identification there;
  std::vector<Channel> followers = reach_server(options.client, options.port, hello_of(options), there);
  const std::vector<std::string> notes = differences(own_identification(), there, options.is_verbs());
  if (options.local.node.empty()) options.local.node = local_address(followers[0]);
  std::string where = "this host and " + options.client;
  if (options.threads > 1) where += fmt::format(", {} threads each", options.threads);
  if (options.peers > 1) where += fmt::format(", {} clients", options.peers);
  Reporter reporter(format_of(options), options.output, circumstances_of(options, where, library));
  for (const std::string& note : notes) reporter.note(note);
  if (options.lanes() > 1) {
    const std::vector<int> cpus(options.lanes(), options.pin_text.empty() ? -1 : options.cpus.first);
    std::array<Child, 1> children{start("leading", -1, [&](Channel& parent) {
      lead_lanes(followers, options, steps_of(options), cpus, progress_over(parent));
    })};
    followers.clear();
    watch(children, reporter, options.client);
    return finish(reporter, options);
  }
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
    lead(followers[0], options, steps_of(options), progress);
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
  c.host = o.client;
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
  if (!o.local.node.empty()) add("--node", o.local.node);
  if (!o.local.device.empty()) add("--device", o.local.device);
  if (o.local.gid_index >= 0) add("--gid-index", std::to_string(o.local.gid_index));
  c.is_verbs = o.is_verbs();
  if (!o.client.empty()) {
    add("--client", o.client);
    add("--port", std::to_string(o.port));
  }
  if (o.verify) c.options.emplace_back("--verify");
  if (o.percentiles) c.options.emplace_back("--percentiles");
  if (o.threads > 1) add("--threads", std::to_string(o.threads));
  if (o.peers > 1) add("--peers", std::to_string(o.peers));
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
  if (!options.compare_with.empty() && !options.server) return compare(comparison_of(options));
  choose_library(options.stock ? Library::stock : Library::ours, all);
  if (options.server) return is_server_process() ? serve_client(options) : run_server(options);
  if (!options.client.empty()) return perf_client(options);
  return perf_here(options);
}

}  // namespace weft::tool
