// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One server endpoint for several clients, each of which is an ordinary leading side with a lane of its own. Knows neither
// processes nor reports.
#pragma once

#include <string>
#include <vector>

#include "channel.hpp"

namespace weft::tool {

// Obeys the clients, which go through each step together, until they say goodbye. `node` is the local address for
// providers over IP, or empty. Throws Failure.
void serve(std::vector<Channel>& clients, const std::string& node);

}  // namespace weft::tool
