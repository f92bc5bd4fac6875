// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Files of /proc and /sys, and why one is not there. Knows Linux and no fabric.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

// Without blanks and newlines at its end; empty: it cannot be read, or is empty.
std::string text_of(const std::filesystem::path& path);
// Of a folder's entries; empty: it cannot be read, or is empty.
std::vector<std::string> names_in(const std::filesystem::path& folder);
// "/proc is not mounted", or the path and the system's reason. Ask only after a file was found wanting.
std::string why_unreadable(const std::filesystem::path& path);
// "unknown (/proc is not mounted)".
std::string unknown(const std::filesystem::path& path);

struct CgroupLimits {
  std::optional<double> processors;
  std::optional<uint64_t> memory_bytes;
};
// The tightest limits of the control groups of a process, versions 1 and 2. `mounted` is /sys/fs/cgroup, `memberships` what /proc/PID/cgroup says.
CgroupLimits cgroup_limits(const std::filesystem::path& mounted, std::string_view memberships);

}  // namespace weft::tool
