// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft info`: what the library offers, and why it refuses. Knows only fi_getinfo(3).
#pragma once

namespace weft::tool {

// argv[0] is the name of the subcommand, `all` the whole command line (to execute it again on the wanted
// library).
int info(int argc, char** argv, char** all);

}  // namespace weft::tool
