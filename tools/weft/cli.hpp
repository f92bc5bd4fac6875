// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the subcommands share in reading their command line: help that reads like a manual page, and exit
// statuses.
// Must not know any subcommand.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace weft::tool {

// Sections before and after OPTIONS; each a complete text that ends in a newline.
struct Manual {
  std::string head;  // NAME, SYNOPSIS, DESCRIPTION
  std::string tail;  // EXIT STATUS, EXAMPLES
};

void set_manual(CLI::App& app, Manual manual);

// Parses argv, whose [0] is the name of the subcommand. A value is the status to leave with at once (--help,
// a mistake).
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

}  // namespace weft::tool
