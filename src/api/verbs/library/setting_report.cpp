// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/setting_report.hpp"

#include <unistd.h>

#include <string>
#include <string_view>

#include "api/verbs/library/log.hpp"
#include "base/settings.hpp"
#include "os/setting_file.hpp"

namespace weft::verbs {
namespace {

bool is_weft_setting(std::string_view name) noexcept { return name.starts_with("WEFT_"); }

void report_value(const settings::Setting& one) {
  const char* text = settings::text(one.name);
  if (text == nullptr || *text == 0 || settings::parse(one, text)) return;
  log(Level::Warning, "%s=%s is not %s; %s is used", one.name.data(), text, settings::accepted(one).c_str(),
      settings::used_instead(one).c_str());
}

// Of unknown names only misspelt ones: others may be of tests and scripts.
void report_name(std::string_view name, const char* where) {
  if (!is_weft_setting(name) || settings::find(name) != nullptr) return;
  if (const std::string_view today = settings::name_of_former(name); !today.empty()) {
    log(Level::Warning, "%.*s in the %s: the setting is called %s now", static_cast<int>(name.size()),
        name.data(), where, today.data());
    return;
  }
  const std::string_view meant = settings::nearest(name);
  if (meant.empty()) return;
  log(Level::Warning, "%.*s in the %s is no setting: is %s meant? (weft info --settings)",
      static_cast<int>(name.size()), name.data(), where, meant.data());
}

void report_now() noexcept try {
  const std::string& problem = os::setting_problem();
  if (!problem.empty()) log(Level::Warning, "configuration: %s", problem.c_str());
  for (const settings::Setting& one : settings::all())
    if (is_weft_setting(one.name)) report_value(one);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    report_name(line.substr(0, line.find('=')), "environment");
  }
  for (const auto& [name, value] : os::setting_file_values()) report_name(name, "configuration file");
} catch (...) {
  return;
}

}  // namespace

void report_settings() noexcept {
  static const bool reported = [] {
    settings::look_up_with(os::setting);
    report_now();
    return true;
  }();
  (void)reported;
}

}  // namespace weft::verbs
