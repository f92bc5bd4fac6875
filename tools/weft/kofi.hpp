// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft kofi`: the fabric interface in the kernel: its modules, providers, block devices. Must not know any provider.
#pragma once

namespace weft::tool {

// argv[0] is the name of the subcommand.
int kofi(int argc, char** argv);

}  // namespace weft::tool
