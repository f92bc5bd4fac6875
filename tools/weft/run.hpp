// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft run`: starts an unmodified program on our library. Must not know what the library does.
#pragma once

#include <span>
#include <string>

namespace weft::tool {

// `args` is what follows `run` on the command line. Returns only when the program could not be started, with
// the
// status that a shell would give: 127 not found, 126 not executable, 125 for our own refusal (as env(1) and
// timeout(1)).
int run(std::span<char*> args);

std::string run_help();

}  // namespace weft::tool
