// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft perf` measures: the tests, the user's wishes, one step of work and one result. No I/O, no
// fabric.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace weft::tool {

enum class Api { tagged, msg, rma };
enum class Unit { latency, rate, bandwidth };  // ns one way, M messages/s, GB/s (1e9)

struct Test {
  std::string_view name;
  Api api;
  Unit unit;
  bool read = false;  // RMA: the initiator reads
  std::string_view about;
};

std::span<const Test> all_tests();
const Test& test_named(std::string_view name);  // throws a usage Failure that lists the tests
std::string_view unit_name(Unit unit);

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
  std::string threading = "domain";
  std::string node;  // local address to bind to
};

// "8", "8,64,1k", "8:64k" (doubling) and any mixture. Throws a usage Failure.
std::vector<size_t> parse_sizes(const std::string& text);
std::string size_text(size_t bytes);

struct Step {
  std::string provider;
  const Test* test = nullptr;
  size_t size = 0;
};

// Every provider with every test with every size, in this order.
std::vector<Step> steps_of(const PerfOptions& options);

// Figures of one step, all repeats. JSON in between the processes and in the report.
// What became of packets, where the provider can tell (WEFT_RELIABLE_OPS).
struct Packets {
  uint64_t sent = 0, sent_again = 0, lost = 0, duplicates = 0, damaged = 0;
};

// How the receiver of the data copied messages of the size that was measured, where the provider chooses that (weft_shm_query_copies).
struct CopyWays {
  struct Way {
    uint64_t messages = 0, ns = 0;  // ns: of one message when it was measured; 0: it was not
  };
  std::string path, reason;
  std::array<Way, 3> ways;  // ring, receiver, both
  uint64_t trials = 0, trial_messages = 0, changes = 0, measured_ns = 0, lost_ns = 0;
  uint64_t messages() const { return ways[0].messages + ways[1].messages + ways[2].messages; }
};
inline constexpr std::array<std::string_view, 3> copy_way_names = {"ring", "receiver", "both"};

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
  std::optional<CopyWays> copies;                         // of the side that received more
  double line_before_ns = 0, line_after_ns = 0;  // a cache line between the two processors; 0: not measured

  double median() const;
  double least() const;
  double most() const;
};

nlohmann::json to_json(const std::optional<Packets>& packets);
std::optional<Packets> packets_from(const nlohmann::json& value);
// "copied by both (measured): ring 40 messages of 12.30 us, ..."
std::string copies_text(const CopyWays& copies);
nlohmann::json to_json(const std::optional<CopyWays>& copies);
std::optional<CopyWays> copies_from(const nlohmann::json& value);
nlohmann::json to_json(const Result& result);
Result result_from(const nlohmann::json& value);

}  // namespace weft::tool
