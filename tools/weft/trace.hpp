// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft trace`: runs a program with libweft-trace.so before its libraries and writes the timeline.
#pragma once

#include <span>
#include <string>

namespace weft::tool {

// `args` is what follows `trace` on the command line. The status is the program's.
int trace_program(std::span<char*> args);

std::string trace_help();

}  // namespace weft::tool
