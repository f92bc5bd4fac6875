// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The command line of `weft perf`. Calls no library that is measured.
#include "perf_options.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "cli.hpp"
#include "failure.hpp"
#include "install_tree.hpp"
#include "leader.hpp"
#include "names.hpp"
#include "perf_compare.hpp"
#include "runner.hpp"
#include "worker.hpp"

namespace weft::tool {

namespace {

constexpr uint64_t messages_most = 1'000'000'000'000;       // of a repeat: more is a slip of the finger
constexpr uint64_t window_bytes_most = uint64_t{16} << 30;  // of one that nobody asked for

std::string test_lines() {
  std::string text;
  for (const Test& test : all_tests()) text += fmt::format("  {:<23} {}\n", test.name, test.about);
  return text;
}

}  // namespace

void declare(CLI::App& app, Options& o) {
  app.add_option("-p,--provider", o.providers,
                 "Provider to measure; may be given more than once (default: shm)")
      ->allow_extra_args(false)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-t,--tests", o.test_words,
                 "Tests, separated by commas; verbs: all of verbs (default: all of libfabric)")
      ->allow_extra_args(false)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-s,--sizes", o.sizes_text,
                 "Message sizes: 8,64k or 8:1m for doubling (default: what suits the test)");
  app.add_option("-n,--iters", o.iters, "Messages per repeat (default: as many as take about --time)")
      ->check(CLI::Range(uint64_t{1}, messages_most));
  app.add_option("--time", o.repeat_ms, "Milliseconds that a repeat takes about (default: 100)")
      ->check(CLI::Range(1u, 60'000u));
  app.add_option("-w,--warmup", o.warmup, "Messages before each repeat (default: a tenth, after warming up)")
      ->check(CLI::Range(int64_t{0}, static_cast<int64_t>(messages_most)));
  app.add_option("--window", o.window, "Operations outstanding at once (default: 64)")
      ->check(CLI::Range(1u, 16384u));
  app.add_option("-r,--repeat", o.repeat, "Repeats, of which the median is shown (default: 5)")
      ->check(CLI::Range(1u, 1000u));
  app.add_option("--buffers", o.buffers,
                 "Distinct buffers used in turn (default: 1, which stays in the cache)")
      ->check(CLI::Range(1u, 16384u));
  app.add_option("--pin", o.pin_text, "CPU,CPU for the two processes, or none (default: two cores)");
  app.add_option("--threading", o.threading, "Threading level asked for: domain, safe ... (default: domain)");
  app.add_option("--threads", o.threads,
                 "Pairs of endpoints at once, each in threads of its own (default: 1)")
      ->check(CLI::Range(1u, lanes_most));
  app.add_option("--peers", o.peers, "Client processes at once against one server endpoint (default: 1)")
      ->check(CLI::Range(1u, lanes_most));
  app.add_flag("--verify", o.verify, "Check every byte received (the figures are then of the checking)");
  app.add_flag("--stock", o.stock, "Measure the system's libfabric instead of Weft");
  app.add_flag("--percentiles", o.percentiles,
               "Latency tests: time each operation, for percentiles and (as JSON) a histogram; it costs a "
               "look at the clock each");
  app.add_option("--compare", o.compare_with,
                 "Measure Weft and another libfabric in turns, --repeat times each: stock, or its file or "
                 "folder (tests of "
                 "verbs: of a libibverbs); of a --server: the other library that it may run for clients");
  app.add_option("--batch", o.batch,
                 "Measure what each line of this file asks for: options, added to those of the command line");
  app.add_option("-f,--format", o.format, "text, json or csv")->check(CLI::IsMember({"text", "json", "csv"}));
  app.add_option("-o,--output", o.output, "Write the report there");
  app.add_option("--plot", o.plot_file,
                 "Draw a picture with gnuplot: PNG if the name ends in .png, else SVG");
  app.add_option("--node", o.local.node,
                 "Local address for providers over IP (default: the library's choice)");
  app.add_option("-d,--device", o.local.device,
                 "Tests of verbs: the device (default: the first with an active port)");
  app.add_option("--gid-index", o.local.gid_index,
                 "Tests of verbs: the device's GID (default: Weft's, or RoCEv2 over IPv4)")
      ->check(CLI::Range(0, 255));
  app.add_flag("--server", o.server, "Two hosts: wait for one --client, do its half of the work, and end");
  app.add_flag("--keep", o.keep, "Let the --server stay, for one client after the other");
  app.add_option("--client", o.client, "Two hosts: measure against the --server on that host");
  app.add_option("--port", o.port,
                 fmt::format("Control port of --server and --client (default: {})", usual_port));
  set_manual(app, {R"(NAME
  weft perf - latency, message rate and bandwidth of a provider

SYNOPSIS
  weft perf [-p PROVIDER]... [-t TESTS] [-s SIZES] [OPTION]...
  weft perf --compare stock|LIBRARY [-p PROVIDER]... [OPTION]...
  weft perf --batch FILE [OPTION]...
  weft perf --server [--keep] [--compare LIBRARY] [--port PORT]
  weft perf --client HOST [--compare stock|LIBRARY] [--port PORT] [OPTION]...

DESCRIPTION
  Starts two processes on two CPUs, and measures between them through the standard API and nothing else, so
  that the figures of Weft and of a stock libfabric (--stock) can be compared. Both poll fi_cq_read(3) without
  sleeping. With one CPU the figures are those of the scheduler.

  Before and after each test the bare transfer of a cache line between the two CPUs is timed. The host of a
  virtual machine may place its CPUs near (below 130 ns) or far (200 ns and more), and change that at any
  time: compare figures of one placement only. "moved" says that it changed within the test,
  "shared with other work" that other programs had a CPU meanwhile.

  Before the first repeat, runs of an eighth of a repeat warm up the connection until three in a row take the same
  time but for a tenth, for half a second at most. A figure is marked "cold" when they did not. With -n or -w what
  is asked for is run and nothing more; then a figure is cold unless the repeats agree within a quarter. It is
  marked "CPUs shared with other work" when a side was ready to run and waited for its CPU for more than 2 % of the
  measured time (/proc/thread-self/schedstat). Figures and ratios with such a mark say little about the library.
  --threads and --peers warm up for a tenth of a repeat, and have no marks.

  Names and sizes are looked at before the first measurement: tests, providers, CPUs, sizes that are 0, too
  large for the provider, the device or the memory, sizes that a test does not take, and such of which 64 messages
  at once would take minutes.

  The tests -unexpected- show what it costs when a receive is posted after its message has come; compare them
  with -posted-, whose messages go in the same way into receives that are posted ahead.

  --threads measures so many pairs at once, each with a domain of its own in a thread of either process;
  --peers so many client processes against one endpoint of a server. Latencies are the mean of all, rates and
  bandwidths what all moved from the first start to the last end; percentiles are those of all operations. A line
  below has the slowest and the fastest of them.

  Of two hosts, the server waits and the client says what is measured. The server runs the library that the
  client runs: Weft, the system's (--stock), or with --compare the file that --compare of the server names. A
  server with --stock runs that alone. The client is told of another version or build on the other side and of
  settings that differ, and ends when the libraries do not understand each other. Everyone who reaches the
  server's port can make it measure.

  Tests of verbs go over RC queue pairs of a device, through the libibverbs.so.1 of Weft or, with --stock, of
  the system. Each side chooses its own device.

  A file for --batch has the options of one measurement in each line; ' and " keep blanks in a word, # begins
  a comment. All lines are looked at before the first is measured. Each makes a report of its own; an option that
  stands once stands on the command line or in the line.

TESTS
)" + test_lines(),
                   R"(EXIT STATUS
  0 if everything asked for was measured, 1 if not, 2 if the command line makes no sense.

EXAMPLES
  weft perf
  weft perf -t tagged-pingpong,tagged-bw -s 8:1m --plot shm.svg
  weft perf --stock -p 'tcp;ofi_rxm' -t tagged-rate --format json -o tcp.json
  weft perf --compare stock -p shm -t tagged-pingpong -s 8:64k --plot compared.svg
  weft perf -t tagged-pingpong,rma-read-lat,atomic-lat -s 8 --percentiles -f csv
  weft perf --threads 4 -t tagged-rate,rma-write-bw
  weft perf -p tcp --peers 8 -t tagged-pingpong,tagged-bw
  weft perf --server --keep                                     # on one host, and on the other:
  weft perf --client HOST --compare stock -p tcp -t tagged-pingpong,tagged-bw
  weft perf -t verbs -d weft_lo
  weft perf --batch nightly.txt -r 9
)"});
}

namespace {

// The words between commas. An empty one is a mistake of the caller's.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items;
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    if (end == text.size()) return items;
    begin = end + 1;
  }
}

bool is_in_path(const std::string& program) {
  const char* value = std::getenv("PATH");
  std::string list = value ? value : "/usr/bin:/bin";
  std::replace(list.begin(), list.end(), ':', ',');
  const std::vector<std::string> folders = split(list);
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return access((folder + "/" + program).c_str(), X_OK) == 0;
  });
}

// Of this host, for buffers; 0: unknown.
uint64_t memory_available() {
  std::ifstream file("/proc/meminfo");
  constexpr std::string_view name = "MemAvailable:";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10) * 1024;  // kB
  return 0;
}

void check_plot(const Options& o) {
  const std::filesystem::path folder = std::filesystem::path(o.plot_file).parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
    fail("cannot write {}: {}", o.plot_file, std::strerror(errno));
  if (!is_in_path("gnuplot")) fail("--plot needs gnuplot (package gnuplot-nox)");
}

void add_tests(Options& o, const std::string& name) {
  if (name != "verbs") return o.tests.emplace_back(test_named(name).name), void();
  for (const Test& test : all_tests())
    if (test.is_verbs()) o.tests.emplace_back(test.name);
}

// The names of tests, and the sizes that a named test does not take.
void interpret_tests(Options& o) {
  const bool named = !o.test_words.empty();
  for (const std::string& word : o.test_words)
    for (const std::string& name : split(word)) add_tests(o, name);
  if (!named) {
    for (const Test& test : all_tests()) {
      const bool fits = o.sizes.empty() || test.api != Api::atomic ||
                        std::find(o.sizes.begin(), o.sizes.end(), atomic_bytes) != o.sizes.end();
      if (fits && !test.is_verbs() && (o.peers == 1 || test.takes_peers())) o.tests.emplace_back(test.name);
    }
    return;
  }
  for (const std::string& name : o.tests)
    if (test_named(name).is_verbs() != o.is_verbs())
      fail_usage("tests of verbs are measured by themselves: leave out {}, or write a --batch", name);
  for (const std::string& name : o.tests)
    if (o.peers > 1 && !test_named(name).takes_peers())
      fail_usage("{} is for one peer, not for --peers", name);
  for (const std::string& name : o.tests)
    for (const size_t size : o.sizes)
      if (test_named(name).api == Api::atomic && size != atomic_bytes)
        fail_usage("{} of {}: atomic operations are of {} bytes", name, size_text(size), atomic_bytes);
}

// What a server does not decide: the client says what is measured.
void check_server(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    if (name != "--server" && name != "--port" && name != "--node" && name != "--pin" && name != "--stock" &&
        name != "--keep" && name != "--device" && name != "--gid-index" && name != "--compare")
      fail_usage("{} is the client's to say, not that of --server", name);
  }
}

int parse_cpu(std::string_view text) {
  int cpu = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  if (error != std::errc{} || stop != text.data() + text.size() || cpu < 0)
    fail_usage("'{}' is not the number of a CPU; --pin takes two, as in --pin 0,1, or none", text);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= CPU_SETSIZE || (sched_getaffinity(0, sizeof set, &set) == 0 && !CPU_ISSET(cpu, &set)))
    fail_usage("--pin {}: this process may not run on that CPU", cpu);
  return cpu;
}

}  // namespace

std::pair<int, int> parse_cpus(const std::string& text) {
  if (text == "none") return {-1, -1};
  const std::vector<std::string> words = split(text);
  if (words.size() > 2) fail_usage("--pin takes two CPU numbers, as in --pin 0,1, or none; not '{}'", text);
  return {parse_cpu(words.front()), parse_cpu(words.back())};
}

void check_memory(const Options& o, const std::vector<Step>& steps, uint64_t available) {
  const uint64_t processes = (o.client.empty() ? 2 : 1) * o.lanes();
  for (const Step& step : steps) {
    const uint64_t each = std::max<uint64_t>(step.size, 64);
    const uint64_t needed = 2 * processes * o.buffers * each;  // no overflow: sizes and buffers have limits
    if (available != 0 && needed > available)
      fail_usage("{} of {} with {} buffers needs {} MiB of memory; {} MiB are free", step.test->name,
                 size_text(step.size), o.buffers, needed >> 20, available >> 20);
  }
}

void check_windows(const Options& o, const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    const uint64_t window = window_of(o, step);
    if (whole_iterations(step, o.window, 1) > 1 && step.size > window_bytes_most / window)
      fail_usage(
          "{} of {}: a window of {} messages, the least that is measured, moves {}; say --window {} if that "
          "is meant, "
          "or less",
          step.test->name, size_text(step.size), window, size_text(window * step.size), window);
  }
}

void interpret(const CLI::App& app, Options& o) {
  if (o.server && !o.client.empty()) fail_usage("--server and --client are for two different hosts");
  if (o.keep && !o.server) fail_usage("--keep is for --server");
  if (o.server) check_server(app);
  for (const std::string& provider : o.providers)
    if (provider.empty()) fail_usage("-p names no provider; weft info -l lists them");
  if (app.count("--sizes") != 0) o.sizes = parse_sizes(o.sizes_text);
  if (app.count("--client") != 0 && o.client.empty()) fail_usage("--client names no host");
  if (!o.client.empty() && o.port == 0) fail_usage("--client needs the port that the server says, not 0");
  if (o.threads > 1 && o.peers > 1) fail_usage("--threads and --peers do not go together");
  if (o.peers > 1 && o.verify)
    fail_usage("--verify is for pairs, not for --peers: clients share the server's buffers");
  interpret_tests(o);
  if (o.is_verbs() && !o.providers.empty())
    fail_usage("-p names providers of libfabric; tests of verbs take a --device");
  if (o.is_verbs() && o.verify) fail_usage("--verify is for tests of libfabric");
  if (!o.is_verbs() && !o.server && (app.count("--device") != 0 || app.count("--gid-index") != 0))
    fail_usage("--device and --gid-index are for tests of verbs (-t verbs)");
  const std::string device = o.local.device.empty() ? "verbs" : o.local.device;
  if (o.providers.empty()) o.providers = {o.is_verbs() ? device : "shm"};
  parse_one(o.threading, threading_names(), "a threading level");
  if (app.count("--plot") != 0) check_plot(o);
  if (app.count("--compare") != 0) {
    if (o.stock) fail_usage("--compare measures both libraries; --stock only the system's");
    (void)folder_of_library(o.compare_with, o.is_verbs());
  }
  if (!o.pin_text.empty()) {
    o.cpus = parse_cpus(o.pin_text);
  } else {
    o.cpus = choose_cpus();
    if (o.cpus.first < 0 && !is_executed_again()) {
      fmt::print(stderr,
                 "weft perf: warning: there is only one CPU; the figures will be those of the scheduler\n");
    }
  }
  if (!o.server) check_memory(o, steps_of(o), memory_available());
  if (!o.server && app.count("--window") == 0) check_windows(o, steps_of(o));
}

}  // namespace weft::tool
