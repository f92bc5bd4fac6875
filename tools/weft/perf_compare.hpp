// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft perf --compare`: two libraries measured in turns by this command itself, one table and one plot. Knows the
// reports of `weft perf`, not how it measures.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "perf_plan.hpp"
#include "report.hpp"

namespace weft::tool {

struct Comparison {
  std::vector<std::string> providers;
  std::vector<std::string> options;  // of `weft perf`, for both libraries alike
  std::string other;  // "stock", or the file or folder of a libfabric.so.1; of verbs, of a libibverbs.so.1
  bool is_verbs = false;  // the providers are a device, which `options` has
  unsigned rounds = 5;
  Format format = Format::text;
  std::string output;
  std::string plot_file;
  std::string host;  // of a server that stays; empty: both sides are here
};

// In the environment of a round: the library that it runs on, "weft", "stock" or "other".
inline constexpr const char* side_name = "WEFT_PERF_SIDE";

// In the environment: ends before it measures, with a status that says whether it could.
inline constexpr const char* look_name = "WEFT_PERF_LOOK";

// The folder that has to be first in LD_LIBRARY_PATH; empty for "stock". Throws Failure when there is no such library, or
// when it is Weft's own.
std::string folder_of_library(const std::string& other, bool is_verbs = false);

// What both libraries came to, by what was asked for.
class Compared {
 public:
  static constexpr size_t sides = 2;  // Weft, and the other
  struct Row {
    std::string provider;               // as it was asked for
    std::array<Result, sides> results;  // without samples: it was not measured there
    // How often Weft is as fast: of latencies the other's over Weft's, of rates and bandwidths Weft's over the
    // other's. 0: one is missing.
    double ratio() const;
    std::string marks() const;  // what makes the ratio doubtful, in any round
  };

  // A report of `weft perf -f json` of one round.
  void add(size_t side, const std::string& provider, const nlohmann::json& report);
  const std::vector<Row>& rows() const { return rows_; }
  const std::array<std::string, sides>& libraries() const { return libraries_; }  // file and API
  const std::array<std::string, sides>& versions() const { return versions_; }
  const std::string& where() const { return where_; }
  // "near 60 ns", or what the placements of the CPUs were between.
  std::string placement() const;

 private:
  Row& row(const std::string& provider, const std::string& test, size_t size);

  std::vector<Row> rows_;
  std::array<std::string, sides> libraries_, versions_;
  std::string where_;
};

nlohmann::json to_json(const Compared& compared);

// Status 0 when both libraries measured everything.
int compare(const Comparison& comparison);

}  // namespace weft::tool
