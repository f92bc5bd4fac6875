// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft top`: what processes of this user show of themselves while they run.
#pragma once

namespace weft::tool {

int top(int argc, char** argv);

}  // namespace weft::tool
