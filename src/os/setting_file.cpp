// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Configuration variables from the environment and from one file. Must not log: the log asks for its own level here.
#include "os/setting_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/lasting.hpp"
#include "base/settings.hpp"
#include "os/fd.hpp"

namespace weft::os {
namespace {

constexpr const char* default_path = "/etc/weft.conf";
constexpr size_t file_bytes_max = size_t{1} << 16;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r";
  const size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

// All of a file. Null with errno 0, else errno or a reason. Nothing else than a regular file is read: a FIFO may block, a device may have no end.
const char* read_regular(const char* path, std::string& text) {
  const Fd file(::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return nullptr;
  errno = 0;
  if (S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3)) return nullptr;  // /dev/null: no settings
  if (!S_ISREG(status.st_mode)) return "it is no regular file, and is ignored";
  text.resize(file_bytes_max + 1);
  size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return nullptr;
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  errno = 0;
  if (bytes > file_bytes_max) return "it is longer than 65536 bytes, and is ignored";
  text.resize(bytes);
  return nullptr;
}

SettingFile load() {
  // A program that runs with more rights than its user takes no file from that user.
  const char* named = secure_getenv("WEFT_CONFIG");
  if (named != nullptr && *named != 0) return read_setting_file(named);
  SettingFile made = read_setting_file(default_path);
  if (made.missing) made.problem.clear();
  return made;
}

const SettingFile& file() noexcept {
  static const SettingFile* there = []() noexcept -> const SettingFile* {
    try {
      const int kept = errno;                                 // who logs an error has it there
      const auto* made = &make_lasting<SettingFile>(load());  // programs ask from their own destructors
      errno = kept;
      return made;
    } catch (...) {
      static const SettingFile none;
      return &none;
    }
  }();
  return *there;
}

}  // namespace

SettingFile read_setting_file(const char* path) {
  std::string text;
  const char* problem = read_regular(path, text);
  SettingFile made;
  made.missing = problem == nullptr && errno == ENOENT;
  if (problem == nullptr && errno != 0) problem = std::strerror(errno);
  if (problem != nullptr) made.problem = problem;
  else made = parse_settings(text);
  if (!made.problem.empty()) made.problem = std::string(path) + ": " + made.problem;
  return made;
}

SettingFile parse_settings(std::string_view text) {
  SettingFile made;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    const std::string_view name = trimmed(line.substr(0, equals));
    if (equals != std::string_view::npos && is_name(name) && line.find('\0') == std::string_view::npos)
      made.values.insert_or_assign(std::string(name), trimmed(line.substr(equals + 1)));
    else if (made.problem.empty())
      made.problem = "line " + std::to_string(number) + " is not NAME = value; it is ignored";
  }
  return made;
}

static const char* setting_of_that_name(const char* name) noexcept {
  if (const char* text = std::getenv(name)) return text;
  const auto& values = file().values;
  const auto found = values.find(std::string_view(name));
  return found == values.end() ? nullptr : found->second.c_str();
}

const char* setting(const char* name) noexcept {
  if (const char* text = setting_of_that_name(name)) return text;
  const char* former = settings::former_name_of(name);
  return former != nullptr ? setting_of_that_name(former) : nullptr;
}

const std::map<std::string, std::string, std::less<>>& setting_file_values() noexcept {
  return file().values;
}

const std::string& setting_problem() noexcept { return file().problem; }

}  // namespace weft::os
