// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finds the statistics pages of this user's processes (weft/statistics.hpp) in /proc. What is found there belongs to
// somebody else and is not believed.
#pragma once

#include <set>
#include <vector>

#include <weft/statistics.hpp>

namespace weft::tool {

// By process; a process has a page for each library that shows something. Of these processes alone, of all when there
// are none. Processes of another effective user, and those that may not be looked into (proc(5), "ptrace access mode
// PTRACE_MODE_READ_FSCREDS"), are passed over. What is beyond the limits of one look counts as unlisted. Fails where
// /proc is missing.
std::vector<statistics::Process> read_statistics_pages(const std::set<int>& pids);

}  // namespace weft::tool
