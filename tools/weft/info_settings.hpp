// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The settings that there are, for `weft info --settings`: what fi_getparams(3) tells, and where each value comes from. Knows the public interface
// and the configuration file, nothing of the library's insides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

struct ShownSetting {
  std::string name;
  std::string type;           // "text", "number", "flag"
  std::string value;          // as it counts now; empty: not set
  std::string from;           // "environment", the file's path, or "default"
  std::string fallback;       // what counts when it is not set, where the help says so
  std::string unit;           // of a number: "ms", "KiB", ...
  bool is_malformed = false;  // the library does not use the value
  std::string help;
};

// Asks the library that is loaded. Throws Failure.
std::vector<ShownSetting> shown_settings();

// "(default: 60)" at the end of a help text; empty: it says none. The other form takes it out.
std::string default_in(std::string_view help);
// Takes the unit off a number: "60 s" becomes "60".
std::string take_unit(std::string& number);

void print_settings_table(const std::vector<ShownSetting>& settings);
void print_settings_json(const std::vector<ShownSetting>& settings);
// As a file that WEFT_CONFIG reads back: what is set as lines, the rest as comments.
void print_settings_file(const std::vector<ShownSetting>& settings);

}  // namespace weft::tool
