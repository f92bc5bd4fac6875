// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Compares the environment and the configuration file with the list of settings.
#include "api/libfabric/text/setting_report.hpp"

#include <unistd.h>
#include <weft/libfabric_retired.hpp>

#include <cstring>
#include <string>
#include <string_view>

#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/param.hpp"
#include "api/libfabric/text/provider_names.hpp"
#include "api/libfabric/text/tostr.hpp"
#include "base/settings.hpp"
#include "os/setting_file.hpp"
#include "providers/interface_domains.hpp"

namespace weft::fi {
namespace {

// A value that is not taken, and what is taken instead.
void report_value(const settings::Setting& one) {
  const char* text = os::setting(one.name.data());
  if (text == nullptr || *text == 0 || settings::parse(one, text)) return;
  log_warn(kCore, FI_LOG_CORE, "%s=%s is not %s; %s is used", one.name.data(), text,
           settings::accepted(one).c_str(), settings::used_instead(one).c_str());
}

// The same for the list of subsystems (log.cpp).
void report_subsystems() {
  const char* text = os::setting("FI_LOG_SUBSYS");
  if (text == nullptr || text[strspn(text, " ")] == '^') return;
  std::string names;
  for (int subsystem = 0; subsystem < retired::log_subsystems; ++subsystem) {
    char name[32];
    to_text(name, sizeof name, &subsystem, FI_TYPE_LOG_SUBSYS);
    if (name_passes(text, name)) return;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  log_warn(kCore, FI_LOG_CORE, "FI_LOG_SUBSYS=%s names none of %s; all are used", text, names.c_str());
}

// An interface that is not there: the list is as without it, as libfabric has it.
void report_interfaces() {
  for (const char* name : {"FI_TCP_IFACE", "FI_UDP_IFACE"}) {
    const char* text = os::setting(name);
    if (text == nullptr || *text == 0 || providers::is_listable_interface(text)) continue;
    log_warn(kCore, FI_LOG_CORE, "%s=%s: no interface of that name is up and has an address; all are listed",
             name, text);
  }
}

// FI_WEFT_... are ours alone. Of other names that begin like ours (a stock library's, those of tests and scripts) only misspelt ones are told.
void report_name(std::string_view name, const char* where) {
  if (!name.starts_with("FI_") && !name.starts_with("WEFT_")) return;
  if (settings::find(name) != nullptr || param_is_defined(name)) return;
  const int length = static_cast<int>(name.size());
  if (const std::string_view today = settings::name_of_former(name); !today.empty()) {
    log_warn(kCore, FI_LOG_CORE, "%.*s in the %s: the setting is called %s now", length, name.data(), where,
             today.data());
    return;
  }
  const std::string_view meant = settings::nearest(name);
  if (!meant.empty())
    log_warn(kCore, FI_LOG_CORE, "%.*s in the %s is no setting: is %s meant? (weft info --settings)", length,
             name.data(), where, meant.data());
  else if (name.starts_with("FI_WEFT_"))
    log_warn(kCore, FI_LOG_CORE, "%.*s in the %s is no setting (weft info --settings)", length, name.data(),
             where);
}

}  // namespace

void report_settings_now() noexcept try {
  const std::string& problem = os::setting_problem();
  if (!problem.empty()) log_warn(kCore, FI_LOG_CORE, "configuration: %s", problem.c_str());
  const char* level = os::setting("FI_LOG_LEVEL");
  if (level != nullptr && *level != 0 && !is_log_level(level))
    log_warn(kCore, FI_LOG_CORE,
             "FI_LOG_LEVEL: '%s' is none of warn, trace, info, debug, none; it is taken for warn", level);
  for (const settings::Setting& one : settings::all()) report_value(one);
  report_subsystems();
  report_interfaces();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    report_name(line.substr(0, line.find('=')), "environment");
  }
  for (const auto& [name, value] : os::setting_file_values()) report_name(name, "configuration file");
} catch (...) {
  return;
}

void read_settings() noexcept {
  static const bool ready = [] {
    settings::look_up_with(os::setting);
    return true;
  }();
  (void)ready;
}

void report_settings() noexcept {
  read_settings();
  static const bool reported = [] {
    report_settings_now();
    return true;
  }();
  (void)reported;
}

}  // namespace weft::fi
