// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft perf` measures: the tests, the user's wishes, one step of work and one result. No I/O, no
// fabric.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace weft::tool {

enum class Api { tagged, msg, rma, atomic, verbs };  // verbs: of libibverbs, the others of libfabric
enum class Verbs { send, write, read };
enum class Unit { latency, rate, bandwidth };  // ns, M messages/s, GB/s (1e9)

// Of an atomic operation: one element of FI_UINT64.
constexpr size_t atomic_bytes = 8;

// When the receives of messages are posted.
enum class Receives {
  usual,       // ahead, and nobody says so
  posted,      // ahead; a short message follows the data, as for the next one
  unexpected,  // after the data has come, which a short message that follows it tells
};

struct Test {
  std::string_view name;
  Api api;
  Unit unit;
  bool read = false;  // RMA: the initiator reads
  std::string_view about;
  Receives receives = Receives::usual;
  Verbs verbs = Verbs::send;  // of Api::verbs

  bool is_verbs() const { return api == Api::verbs; }
  // The server has to know whose message came: by its tag or its data, or it need not know.
  bool takes_peers() const { return api != Api::msg && !is_verbs() && !has_notices(); }
  bool has_notices() const { return receives != Receives::usual; }
  bool is_one_sided() const {
    return api == Api::rma || api == Api::atomic || (is_verbs() && verbs != Verbs::send);
  }
  // Latency from the call to the completion with the result, not of one way.
  bool is_round_trip() const { return unit == Unit::latency && (read || api == Api::atomic); }
};

std::span<const Test> all_tests();
const Test& test_named(std::string_view name);  // throws a usage Failure that lists the tests
std::string_view unit_name(Unit unit);

// What each side decides for itself.
struct Local {
  std::string node;    // address to bind to, for providers over IP; empty: the library's choice
  std::string device;  // of verbs; empty: the first one whose port is active
  int gid_index = -1;  // -1: the side's choice
};

struct PerfOptions {
  std::vector<std::string> providers;
  std::vector<std::string> tests;
  std::vector<size_t> sizes;  // bytes; empty: what suits the test
  uint64_t iters = 0;         // messages per repeat; 0: as many as take about `repeat_ms`
  int64_t warmup = -1;        // messages before each repeat; -1: a tenth
  unsigned window = 64;       // most operations outstanding at once
  unsigned repeat = 5;
  unsigned buffers = 1;  // distinct buffers used in turn
  unsigned repeat_ms = 100;
  bool verify = false;
  bool stock = false;
  bool percentiles = false;  // time each operation of a latency test
  std::string threading = "domain";
  Local local;
  unsigned threads = 1;  // pairs, each of two threads
  unsigned peers = 1;    // clients of one server
  unsigned lanes() const { return std::max(threads, peers); }
};

// "8", "8,64,1k", "8:64k" (doubling) and any mixture, each from 1 to 4g. Throws a usage Failure.
std::vector<size_t> parse_sizes(const std::string& text);
std::string size_text(size_t bytes);

struct Step {
  std::string provider;
  const Test* test = nullptr;
  size_t size = 0;
};

// Every provider with every test with every size, in this order.
std::vector<Step> steps_of(const PerfOptions& options);

// How often which time was taken: 16 steps for each power of two, so a step is at most 6.25 % wide.
class Histogram {
 public:
  static constexpr unsigned steps = 16;
  static constexpr size_t buckets_count = 61 * steps;

  void add(uint64_t ns, uint64_t times = 1);
  void add(const Histogram& other);
  uint64_t count() const { return count_; }
  uint64_t largest() const { return largest_; }
  // The time that this share of all, from 0 to 1, did not exceed: the upper end of its step, at most largest().
  double quantile(double share) const;
  // Lower end of each step that has something, and how much.
  std::vector<std::pair<uint64_t, uint64_t>> steps_taken() const;

  static size_t bucket_of(uint64_t ns);
  static uint64_t begin_of(size_t bucket);

 private:
  std::vector<uint64_t> buckets_;  // empty before the first
  uint64_t count_ = 0, largest_ = 0;
};
inline constexpr std::array<std::pair<std::string_view, double>, 4> shown_quantiles = {
    {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}}};

// Figures of one step, all repeats. JSON in between the processes and in the report.
// What became of packets, where the provider can tell (WEFT_RELIABLE_OPS).
struct Packets {
  uint64_t sent = 0, sent_again = 0, lost = 0, duplicates = 0, damaged = 0;
};

// How the receiver of the data copied messages of the size that was measured, where the provider chooses that (weft_shm_query_copies).
struct CopyPathCounts {
  struct PathCount {
    uint64_t messages = 0, ns = 0;  // ns: of one message when it was measured; 0: it was not
  };
  std::string path, reason;
  std::array<PathCount, 3> paths;  // ring, receiver, both
  uint64_t trials = 0, trial_messages = 0, changes = 0, measured_ns = 0, lost_ns = 0;
  uint64_t messages() const { return paths[0].messages + paths[1].messages + paths[2].messages; }
};
inline constexpr std::array<std::string_view, 3> copy_path_names = {"ring", "receiver", "both"};

// Waiting for the processor beyond this share of the measured time is other work.
inline constexpr double shared_share = 0.02;

struct Result {
  std::string provider, fabric, domain;
  std::string test;
  size_t size = 0;
  Unit unit = Unit::latency;
  uint64_t iters = 0;           // of one repeat
  std::string operation;        // the call that carried the data
  std::vector<double> samples;  // one per repeat, in the order in which they were taken
  long voluntary_switches = 0, involuntary_switches = 0;  // of both processes, over all repeats
  std::optional<Packets> packets;                         // of both, from opening to closing
  std::optional<CopyPathCounts> copies;                   // of the side that received more
  std::optional<Histogram> times;  // ns of each operation, all repeats, if it was asked for
  std::vector<double> lanes;       // of several pairs or clients: the figure of each; empty: there is one
  double line_before_ns = 0, line_after_ns = 0;  // a cache line between the two processors; 0: not measured
  bool is_cold = false;                          // the times were not stable when the measurement began
  double waited = -1;  // share of the measured time that a side waited for its processor; -1: unknown

  // Other programs had a processor of it for a time that shows in the figures.
  bool is_shared() const { return waited > shared_share; }
  double median() const;
  // The least and the most of the lanes; the quotient of the two, 1 when all are alike.
  double lane_least() const;
  double lane_most() const;
  double fairness() const;
  double least() const;
  double most() const;
};

// What makes a figure, or the ratio of two, doubtful: "cold", "CPUs shared with other work"; empty: nothing that is known.
std::string marks_text(const Result& result);
std::string marks_text(const Result& weft, const Result& other);
double median_of(std::vector<double> samples);  // 0 of nothing
nlohmann::json to_json(const std::optional<Packets>& packets);
std::optional<Packets> packets_from(const nlohmann::json& value);
// "copied by both (measured): ring 40 messages of 12.30 us, ..."
std::string copies_text(const CopyPathCounts& copies);
nlohmann::json to_json(const std::optional<CopyPathCounts>& copies);
std::optional<CopyPathCounts> copies_from(const nlohmann::json& value);
nlohmann::json to_json(const std::optional<Histogram>& times);
std::optional<Histogram> times_from(const nlohmann::json& value);
// "p50 310, p90 320, p99 400, p99.9 1200, most 30000 ns"
std::string times_text(const Histogram& times);
nlohmann::json to_json(const Result& result);
// A line of CSV, RFC 4180, and the names of its columns.
std::string csv_head();
std::string csv_line(const Result& result, std::string_view library);
Result result_from(const nlohmann::json& value);

}  // namespace weft::tool
