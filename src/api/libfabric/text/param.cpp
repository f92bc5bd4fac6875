// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Configuration variables: one table under one lock. Must not know which variables exist, except those of the
// front end itself.
#include "api/libfabric/text/param.hpp"

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "api/libfabric/text/log.hpp"
#include "base/lasting.hpp"
#include "base/settings.hpp"
#include "link/nic/settings.hpp"
#include "os/setting_file.hpp"
#include "proto/packet/faults.hpp"

namespace weft::fi {
namespace {

struct Param {
  fi_param_type type;
  std::string help;
  // Texts handed out stay valid although the environment may change, so each different one is kept.
  std::deque<std::string> texts;
  std::string refused;  // the last text that was not of the type
};

struct Table {
  std::mutex lock;
  std::map<std::string, Param, std::less<>> params;  // by the variable's name
};

Table& table() {
  static Table& there = make_lasting<Table>();  // programs ask from their own destructors
  return there;
}

// FI_<PROVIDER>_<NAME>; empty when it cannot be a variable's name.
std::string variable_of(const char* provider, const char* name) {
  if (name == nullptr || *name == 0) return {};
  std::string variable = "FI_";
  if (provider != nullptr && *provider != 0 && strcmp(provider, kCore) != 0)
    variable.append(provider).append("_");
  variable += name;
  for (char& letter : variable) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '-' || letter == ';') letter = '_';
    else if (letter != '_' && !std::isalnum(byte)) return {};
    else letter = static_cast<char>(std::toupper(byte));
  }
  return variable;
}

const char* type_text(fi_param_type type) {
  switch (type) {
    case FI_PARAM_STRING:
      return "a text";
    case FI_PARAM_INT:
      return "an integer";
    case FI_PARAM_BOOL:
      return "one of 0, 1, on, off, true, false, yes, no";
    case FI_PARAM_SIZE_T:
      return "a number of 0 or more";
  }
  return "of an unknown type";
}

bool read_bool(const char* text, int* value) {
  const auto flag = settings::parse_flag(text);
  if (flag) *value = *flag ? 1 : 0;
  return flag.has_value();
}

// The whole text must be the number; strtol's base 0 takes 0x and 0 as C does.
bool read_int(const char* text, int* value) {
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(text, &end, 0);
  if (end == text || *end != 0 || errno != 0) return false;
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) return false;
  *value = static_cast<int>(number);
  return true;
}

bool read_size(const char* text, size_t* value) {
  // strtoull takes a sign and wraps; a size has none.
  if (!std::isdigit(static_cast<unsigned char>(*text))) return false;
  char* end = nullptr;
  errno = 0;
  const unsigned long long number =
      std::strtoull(text, &end, text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10);
  if (end == text || *end != 0 || errno != 0) return false;
  *value = number;
  return true;
}

bool read_value(Param& param, const char* text, void* value) {
  switch (param.type) {
    case FI_PARAM_STRING:
      if (param.texts.empty() || param.texts.back() != text) param.texts.emplace_back(text);
      *static_cast<char**>(value) = param.texts.back().data();
      return true;
    case FI_PARAM_INT:
      return read_int(text, static_cast<int*>(value));
    case FI_PARAM_BOOL:
      return read_bool(text, static_cast<int*>(value));
    case FI_PARAM_SIZE_T:
      return read_size(text, static_cast<size_t*>(value));
  }
  return false;
}

int define(const char* provider, const char* name, fi_param_type type, const char* help) {
  const std::string variable = variable_of(provider, name);
  if (variable.empty() || help == nullptr || *help == 0) return -FI_EINVAL;
  if (type < FI_PARAM_STRING || type > FI_PARAM_SIZE_T) return -FI_EINVAL;
  std::lock_guard guard(table().lock);
  const auto [place, fresh] = table().params.try_emplace(variable, Param{type, help, {}, {}});
  return fresh || place->second.type == type ? 0 : -FI_EINVAL;
}

int get(const char* provider, const char* name, void* value) {
  const std::string variable = variable_of(provider, name);
  if (variable.empty() || value == nullptr) return -FI_EINVAL;
  std::string text;
  fi_param_type type{};
  {
    std::lock_guard guard(table().lock);
    const auto found = table().params.find(variable);
    if (found == table().params.end()) return -FI_ENOENT;
    const char* there = os::setting(variable.c_str());
    if (there == nullptr) return -FI_ENODATA;
    // Those of the list are read as the list says, and what is malformed is told by report_settings().
    const settings::Setting* listed = settings::find(variable);
    const bool number = listed != nullptr && listed->kind == settings::Kind::Number;
    if ((!number || settings::parse(*listed, there)) && read_value(found->second, there, value)) return 0;
    if (listed != nullptr || found->second.refused == there) return -FI_EINVAL;
    text = found->second.refused = there;
    type = found->second.type;
  }
  log_warn(provider, FI_LOG_CORE, "%s=%s is not %s; it is ignored", variable.c_str(), text.c_str(),
           type_text(type));
  return -FI_EINVAL;
}

// What follows the help of a setting whose text is not used; `weft info --settings` looks for the beginning.
std::string refusal(const std::string& name, const char* text) {
  const settings::Setting* listed = settings::find(name);
  if (text == nullptr || *text == 0 || listed == nullptr) return {};
  std::string why;
  if (!settings::parse(*listed, text)) why = settings::accepted(*listed) + ", so the default is used";
  else if (name == "FI_LOG_LEVEL" && !is_log_level(text))
    why = "one of warn, trace, info, debug, none, so the default is used";
  else if (name == "WEFT_PACKET_FAULTS" && !proto::FaultPlan::parse(text))
    why = "a plan of faults, so endpoints over packets are refused";
  else if (name == "WEFT_NIC" && !link::nic::parse_cards(text).mistakes.empty())
    why = "a list of cards: " + link::nic::parse_cards(text).mistakes.front();
  if (why.empty()) return {};
  return std::string("; ") + text + " is not " + why;
}

// A malloc'ed entry, for the list that C frees.
bool fill(fi_param& entry, const std::string& name, const Param& param) {
  entry.name = strdup(name.c_str());
  entry.type = param.type;
  const char* text = os::setting(name.c_str());
  entry.help_string = strdup((param.help + refusal(name, text)).c_str());
  entry.value = text != nullptr ? strdup(text) : nullptr;
  return entry.name != nullptr && entry.help_string != nullptr && (text == nullptr || entry.value != nullptr);
}

int list(fi_param** params, int* count) {
  if (params == nullptr || count == nullptr) return -FI_EINVAL;
  std::lock_guard guard(table().lock);
  const auto& all = table().params;
  // The entry after the last stays zero and ends the list for param_list_free.
  auto* entries = static_cast<fi_param*>(std::calloc(all.size() + 1, sizeof(fi_param)));
  if (entries == nullptr) return -FI_ENOMEM;
  size_t filled = 0;
  for (const auto& [name, param] : all) {
    if (!fill(entries[filled++], name, param)) {
      param_list_free(entries);
      return -FI_ENOMEM;
    }
  }
  *params = entries;
  *count = static_cast<int>(filled);
  return 0;
}

template <class T>
T defined(const char* provider, const char* name, fi_param_type type, T otherwise,
          const char* help) noexcept {
  T value = otherwise;
  if (param_define(provider, name, type, help) == 0) (void)param_get(provider, name, &value);
  return value;
}

}  // namespace

int param_define(const char* provider, const char* name, fi_param_type type, const char* help) noexcept {
  try {
    return define(provider, name, type, help);
  } catch (...) {
    return -FI_ENOMEM;
  }
}

int param_get(const char* provider, const char* name, void* value) noexcept {
  try {
    return get(provider, name, value);
  } catch (...) {
    return -FI_ENOMEM;
  }
}

size_t param_size(const char* provider, const char* name, size_t otherwise, const char* help) noexcept {
  return defined(provider, name, FI_PARAM_SIZE_T, otherwise, help);
}

bool param_bool(const char* provider, const char* name, bool otherwise, const char* help) noexcept {
  return defined(provider, name, FI_PARAM_BOOL, otherwise ? 1 : 0, help) != 0;
}

const char* param_string(const char* provider, const char* name, const char* otherwise,
                         const char* help) noexcept {
  return defined<const char*>(provider, name, FI_PARAM_STRING, otherwise, help);
}

int param_list(fi_param** params, int* count) noexcept {
  try {
    return list(params, count);
  } catch (...) {
    return -FI_ENOMEM;
  }
}

void param_list_free(fi_param* params) noexcept {
  if (params == nullptr) return;
  for (const fi_param* entry = params; entry->name != nullptr; ++entry) {
    std::free(const_cast<char*>(entry->name));
    std::free(const_cast<char*>(entry->help_string));
    std::free(const_cast<char*>(entry->value));
  }
  std::free(params);
}

bool param_is_defined(std::string_view variable) noexcept {
  std::lock_guard guard(table().lock);
  return table().params.contains(variable);
}

void param_define_core() noexcept try {
  std::lock_guard guard(table().lock);
  for (const settings::Setting& one : settings::all()) {
    if (one.help == nullptr) continue;
    const fi_param_type type = one.kind == settings::Kind::Flag     ? FI_PARAM_BOOL
                               : one.kind == settings::Kind::Number ? FI_PARAM_SIZE_T
                                                                    : FI_PARAM_STRING;
    table().params.try_emplace(std::string(one.name), Param{type, one.help, {}, {}});
  }
} catch (...) {
  return;  // no memory: the list is shorter
}

}  // namespace weft::fi
