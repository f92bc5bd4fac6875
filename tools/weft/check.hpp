// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft check`: whether a provider shows what it claims.
#pragma once

namespace weft::tool {

// `all` is the command line of the whole process.
int check(int argc, char** argv);

}  // namespace weft::tool
