// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft perf`: measures providers through the standard API. Knows nothing of any library but that API.
#pragma once

namespace weft::tool {

// argv[0] is the name of the subcommand, `all` the whole command line (to execute it again on the wanted
// library).
int perf(int argc, char** argv, char** all);

}  // namespace weft::tool
