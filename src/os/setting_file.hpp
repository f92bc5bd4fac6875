// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The texts of configuration variables: from the environment, else from the configuration file. Must not know which variables exist.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace weft::os {

// The value of FI_PROVIDER, FI_LOG_LEVEL and the like; null: it is set nowhere. The environment wins, and the name over its former one
// (settings::former_names()). The file is read once, at the first
// call: the one that WEFT_CONFIG names, else /etc/weft.conf, if it is there. The text stays valid as getenv's does. Any thread.
const char* setting(const char* name) noexcept;

// What the configuration file sets, whatever the environment has. Any thread.
const std::map<std::string, std::string, std::less<>>& setting_file_values() noexcept;

// What was wrong with the file, for one line of the log; empty: nothing. Any thread.
const std::string& setting_problem() noexcept;

// A file's lines are "NAME = value": the name in capitals, digits and "_", the value without the space around it. Empty lines and lines
// that start with "#" say nothing. Of two lines with one name the later counts.
struct SettingFile {
  std::map<std::string, std::string, std::less<>> values;
  std::string
      problem;  // the first line that is none of these, with its number, or why the file cannot be read
  bool missing = false;  // there is no such file
};
SettingFile parse_settings(std::string_view text);
// A regular file of 64 KiB at most; anything else is a problem, and not waited for.
SettingFile read_setting_file(const char* path);

}  // namespace weft::os
