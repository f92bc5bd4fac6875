// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The command line of `weft perf`: what it takes, its manual, and what it refuses before anything is measured. Calls no
// library that is measured.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "perf_plan.hpp"

namespace weft::tool {

constexpr uint16_t usual_port = 7470;

struct Options : PerfOptions {
  std::string sizes_text, pin_text, format = "text", output, plot_file, client, compare_with, batch;
  std::vector<std::string> test_words;
  bool server = false, keep = false;
  uint16_t port = usual_port;
  std::pair<int, int> cpus{-1, -1};

  // Tests are all of libfabric or all of verbs.
  bool is_verbs() const { return !tests.empty() && test_named(tests.front()).is_verbs(); }
};

void declare(CLI::App& app, Options& options);

// Reads the words of the options and refuses what cannot be measured. `app` has parsed the command line. Throws Failure.
void interpret(const CLI::App& app, Options& options);

// "0,1": two CPUs, "1": one for both, "none": {-1, -1}. Throws a usage Failure, also for CPUs that this process may not use.
std::pair<int, int> parse_cpus(const std::string& text);

// Refuses what needs more than `available` bytes of memory for its buffers on this host. 0: unknown.
void check_memory(const Options& options, const std::vector<Step>& steps, uint64_t available);

// Refuses a usual window of messages so large that it would take minutes.
void check_windows(const Options& options, const std::vector<Step>& steps);

}  // namespace weft::tool
