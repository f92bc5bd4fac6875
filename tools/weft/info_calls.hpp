// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// System calls that Weft makes and that a filter (seccomp) or an old kernel may refuse: each is tried. Knows Linux and no fabric.
#pragma once

#include <vector>

#include "info_system.hpp"

namespace weft::tool {

std::vector<SystemFact> tried_calls();

}  // namespace weft::tool
