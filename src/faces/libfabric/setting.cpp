// Configuration variables from the environment and from one file. Must not log: the log asks for its own level here.
#include "faces/libfabric/setting.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/lasting.hpp"

namespace weft::fi {
namespace {

constexpr const char* default_path = "/etc/weft.conf";

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

SettingFile load() {
  // A program that runs with more rights than its user takes no file from that user.
  const char* named = secure_getenv("WEFT_CONFIG");
  const char* path = named != nullptr && *named != 0 ? named : default_path;
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    SettingFile none;
    if (path == named || errno != ENOENT) none.problem = std::string(path) + ": " + std::strerror(errno);
    return none;
  }
  stream.peek();  // a directory opens as well, and says so when it is read
  if (stream.bad() || (stream.fail() && !stream.eof())) {
    SettingFile none;
    none.problem = std::string(path) + ": " + std::strerror(errno != 0 ? errno : EIO);
    return none;
  }
  stream.clear();
  SettingFile made = parse_settings(std::string(std::istreambuf_iterator<char>(stream), {}));
  if (!made.problem.empty()) made.problem = std::string(path) + ": " + made.problem;
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

const char* setting(const char* name) noexcept {
  if (const char* text = std::getenv(name)) return text;
  const auto& values = file().values;
  const auto found = values.find(std::string_view(name));
  return found == values.end() ? nullptr : found->second.c_str();
}

const std::map<std::string, std::string, std::less<>>& setting_file_values() noexcept {
  return file().values;
}

const std::string& setting_problem() noexcept { return file().problem; }

}  // namespace weft::fi
