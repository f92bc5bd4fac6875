// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft run`: starts an unmodified program on our library. Must not know what the library does.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft::tool {

// `args` is what follows `run` on the command line. Returns only when the program could not be started, with
// the
// status that a shell would give: 127 not found, 126 not executable, 125 for our own refusal (as env(1) and
// timeout(1)).
int run(std::span<char*> args);

std::string run_help();

enum class LoadMode {
  drop_in,   // our libraries first
  plugin,    // the stock library, with our providers
  as_it_is,  // what the program finds by itself
};

constexpr int status_refused = 125;

// Executes a program with its arguments, as `run` does; `command` begins the sentences of errors. Returns only when it
// could not be executed.
int start_program(std::string_view command, std::span<char*> args, LoadMode mode);

}  // namespace weft::tool
