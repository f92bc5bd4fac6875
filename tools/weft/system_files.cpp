// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// proc(5), sysfs(5), cgroups(7).
#include "system_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number <= 0) return {};
  return number;
}

template <class Value>
void tighten(std::optional<Value>& limit, std::optional<Value> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// "max 100000", "150000 100000".
std::optional<double> processors_of(const fs::path& group) {
  const std::string both = text_of(group / "cpu.max");
  const size_t blank = both.find(' ');
  auto quota = number_in(both);
  auto period = blank != std::string::npos ? number_in(both.substr(blank + 1)) : std::nullopt;
  if (both.empty()) {
    quota = number_in(text_of(group / "cpu.cfs_quota_us"));
    period = number_in(text_of(group / "cpu.cfs_period_us"));
  }
  if (!quota || !period) return {};
  return *quota / *period;
}

std::optional<uint64_t> memory_of(const fs::path& group) {
  std::string text = text_of(group / "memory.max");
  if (text.empty()) text = text_of(group / "memory.limit_in_bytes");
  const auto bytes = number_in(text);
  constexpr double unlimited = 1e18;  // version 1 says the largest number of pages
  if (!bytes || *bytes >= unlimited) return {};
  return static_cast<uint64_t>(*bytes);
}

// The folder of a controller: version 1 has one for each, or for a few together, version 2 one for all.
fs::path folder_of(const fs::path& mounted, std::string_view controllers) {
  std::error_code ignored;
  if (controllers.empty()) return fs::exists(mounted / "unified", ignored) ? mounted / "unified" : mounted;
  return mounted / controllers;
}

}  // namespace

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  return names;
}

std::string why_unreadable(const fs::path& path) {
  if (path.string().starts_with("/proc") && access("/proc/self", F_OK) != 0) return "/proc is not mounted";
  if (path.string().starts_with("/sys") && access("/sys/kernel", F_OK) != 0) return "/sys is not mounted";
  if (access(path.c_str(), R_OK) != 0) return fmt::format("{}: {}", path.string(), std::strerror(errno));
  return path.string() + " does not say";
}

std::string unknown(const fs::path& path) { return fmt::format("unknown ({})", why_unreadable(path)); }

CgroupLimits cgroup_limits(const fs::path& mounted, std::string_view memberships) {
  CgroupLimits limits;
  while (!memberships.empty()) {
    // "4:memory:/path", of version 2 "0::/path".
    const std::string_view line = memberships.substr(0, memberships.find('\n'));
    memberships.remove_prefix(std::min(line.size() + 1, memberships.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const fs::path folder = folder_of(mounted, line.substr(first + 1, second - first - 1));
    // In a container the path may be one of the host, which is not there; its root is.
    for (fs::path below = fs::path(line.substr(second + 1)).relative_path();; below = below.parent_path()) {
      tighten(limits.processors, processors_of(folder / below));
      tighten(limits.memory_bytes, memory_of(folder / below));
      if (below.empty()) break;
    }
  }
  return limits;
}

}  // namespace weft::tool
