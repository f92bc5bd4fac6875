// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One side of a step over verbs: an RC queue pair of a device, and the measured loops. libibverbs.so.1 is loaded at run time, the
// one that the loader's search path gives. Knows neither processes nor reports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "side.hpp"

namespace weft::tool {

// Throws Refused or Failure.
std::unique_ptr<Side> open_verbs_side(const Agreement& agreement, const Local& local, Channel& channel);

// Of the library that would be loaded. Throws Failure when there is none.
std::vector<std::string> verbs_device_names();
std::string verbs_library();  // its file
// The largest message of that device, or of the first that would be taken. UINT64_MAX: none opens, which its use will explain.
uint64_t verbs_message_most(const std::string& device);

}  // namespace weft::tool
