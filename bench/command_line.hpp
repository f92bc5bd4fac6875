// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the benchmarks share in reading their command line (CLI11, as in tools/). Must not know any benchmark.
#pragma once

#include <CLI/CLI.hpp>

#include <array>
#include <cstdlib>

namespace weft::bench {

// Ends the program: with status 0 after --help, with status 2 after a mistake.
inline void read_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
}

inline void add_cpus(CLI::App& app, std::array<int, 2>& cpus) {
  app.add_option("--cpus", cpus, "A,B: the processors of the two sides")->delimiter(',');
}

}  // namespace weft::bench
