// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Settings as a table, as JSON and as a configuration file.
#include "info_settings.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "failure.hpp"

namespace weft::tool {

namespace {

constexpr std::string_view opening = "(default: ";

const char* type_name(fi_param_type type) {
  switch (type) {
    case FI_PARAM_BOOL:
      return "flag";
    case FI_PARAM_INT:
    case FI_PARAM_SIZE_T:
      return "number";
    default:
      return "text";
  }
}

std::string config_path() {
  const char* named = std::getenv("WEFT_CONFIG");
  return named != nullptr && *named != 0 ? named : "/etc/weft.conf";
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace

std::string default_in(std::string_view help) {
  const size_t at = help.rfind(opening);
  if (at == std::string_view::npos || help.back() != ')') return {};
  return std::string(help.substr(at + opening.size(), help.size() - at - opening.size() - 1));
}

std::string take_unit(std::string& number) {
  const size_t digits = number.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos || number[digits] != ' ') return {};
  std::string unit = number.substr(digits + 1);
  if (unit.empty() || unit.find(' ') != std::string::npos) return {};
  number.resize(digits);
  return unit;
}

std::vector<ShownSetting> shown_settings() {
  fi_param* params = nullptr;
  int count = 0;
  if (const int status = fi_getparams(&params, &count); status != 0)
    fail("fi_getparams: {}", fi_strerror(-status));
  std::vector<ShownSetting> settings;
  for (int i = 0; i < count; ++i) {
    const fi_param& param = params[i];
    ShownSetting one;
    one.name = param.name;
    one.type = type_name(param.type);
    one.value = param.value != nullptr ? param.value : "";
    one.help = param.help_string != nullptr ? param.help_string : "";
    // A value that is not used is told behind the help.
    const size_t refusal =
        one.value.empty() ? std::string::npos : one.help.rfind("; " + one.value + " is not ");
    one.is_malformed = refusal != std::string::npos;
    one.fallback = default_in(std::string_view(one.help).substr(0, refusal));
    one.unit = take_unit(one.fallback);
    const char* in_environment = std::getenv(param.name);
    one.from = one.value.empty() ? "default" : in_environment != nullptr ? "environment" : config_path();
    settings.push_back(std::move(one));
  }
  fi_freeparams(params);
  std::sort(settings.begin(), settings.end(),
            [](const ShownSetting& a, const ShownSetting& b) { return a.name < b.name; });
  return settings;
}

void print_settings_table(const std::vector<ShownSetting>& settings) {
  for (const ShownSetting& one : settings) {
    std::string value = one.value.empty() ? or_dash(one.fallback) : one.value;
    if (!one.unit.empty() && !one.is_malformed) value += " " + one.unit;
    fmt::print("{:<28} {:<7} {:<24} {}{}\n    {}\n", one.name, one.type, value, one.from,
               one.is_malformed ? ", malformed" : "", or_dash(one.help));
  }
}

void print_settings_json(const std::vector<ShownSetting>& settings) {
  nlohmann::json all = nlohmann::json::array();
  for (const ShownSetting& one : settings) {
    nlohmann::json entry = {{"name", one.name}, {"type", one.type}, {"from", one.from}, {"help", one.help}};
    entry["value"] = one.value.empty() ? nlohmann::json() : nlohmann::json(one.value);
    entry["default"] = one.fallback.empty() ? nlohmann::json() : nlohmann::json(one.fallback);
    entry["unit"] = one.unit.empty() ? nlohmann::json() : nlohmann::json(one.unit);
    entry["malformed"] = one.is_malformed;
    all.push_back(std::move(entry));
  }
  fmt::print("{}\n", all.dump(2));
}

void print_settings_file(const std::vector<ShownSetting>& settings) {
  fmt::print("# Settings of Weft: lines NAME = value. The environment wins over this file.\n");
  for (const ShownSetting& one : settings) {
    // It names the file, and is not read from it.
    if (one.name == "WEFT_CONFIG") continue;
    fmt::print("\n# {}\n", or_dash(one.help));
    if (one.value.empty() || one.is_malformed) {
      fmt::print("# {} =\n", one.name);
    } else {
      fmt::print("{} = {}\n", one.name, one.value);
    }
  }
}

}  // namespace weft::tool
