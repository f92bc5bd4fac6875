// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How results are shown: text while they come, JSON and a plot at the end. Knows neither fabric nor
// processes.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "perf_plan.hpp"

namespace weft::tool {

enum class Format { text, json, csv };

// Where the figures come from.
struct Circumstances {
  std::string library;  // file of libfabric.so.1, or of libibverbs.so.1
  std::string version;  // what it says of itself; empty: it does not
  std::string api;      // fi_version(3), or "verbs"
  std::string where;    // "CPUs 0 and 1", "this host and ..."
  std::vector<int> cpus;
  std::string threading;
  unsigned window = 0, repeat = 0, buffers = 1;
  bool verify = false;
};

class Reporter {
 public:
  // `output` empty: standard output.
  Reporter(Format format, const std::string& output, Circumstances circumstances);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // A step begins; shown on standard error if that is a terminal, and otherwise every two seconds.
  void begin(const std::string& provider, const std::string& test, size_t size, size_t index, size_t count);
  void result(const Result& result);
  void refused(const std::string& provider, const std::string& test, size_t size, const std::string& reason);
  // Something to know beside the figures.
  void note(const std::string& text);
  void failed(const std::string& provider, const std::string& reason);
  void finish();

  // Of a plot: the host, the library, the CPUs.
  std::string title() const;
  const std::vector<Result>& results() const { return results_; }
  bool anything_missing() const { return !refused_.empty() || !failed_.empty(); }

 private:
  void print_head();
  void clear_progress();

  Format format_;
  Circumstances circumstances_;
  std::FILE* out_ = stdout;
  bool to_terminal_;
  bool line_shown_ = false;
  std::chrono::steady_clock::time_point last_progress_;
  std::vector<Result> results_;
  nlohmann::json notes_ = nlohmann::json::array();
  nlohmann::json refused_ = nlohmann::json::array(), failed_ = nlohmann::json::array();
};

// With as many digits as are worth showing.
std::string short_figure(double value);

// Draws a PNG if the file's name ends so, else an SVG:
// what there is of latency, rate and bandwidth over the size, one line per provider and test, over a band from the
// least to the most. Needs
// gnuplot; throws Failure.
void plot(const std::vector<Result>& results, const std::string& file, const std::string& title);

}  // namespace weft::tool
