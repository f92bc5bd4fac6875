// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The list of the settings that exist: environment variables, or lines of the configuration file. What each accepts, what a malformed value is
// replaced by, and which one a misspelt name comes nearest to. Must not log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weft::settings {

enum class Kind : uint8_t {
  Text,    // anything
  Flag,    // 0, 1, on, off, true, false, yes, no
  Number,  // a decimal number from `least` to `most`
  Word,    // one of `words`; its number is its place there, from 1
};

struct Setting {
  std::string_view name;
  Kind kind;
  uint64_t least, most;  // of a number
  uint64_t otherwise;    // a number or flag that is not set, or malformed; 0 for a word
  // For fi_getparams(3). Null: the provider that reads the setting defines it there.
  const char* help;
  std::span<const std::string_view> words = {};
};

std::span<const Setting> all() noexcept;
const Setting* find(std::string_view name) noexcept;

// Names that settings had in earlier versions. They are still read where the new name is not set, with a warning.
struct FormerName {
  std::string_view former, name;
};
std::span<const FormerName> former_names() noexcept;
const char* former_name_of(std::string_view name) noexcept;         // null: it had no other
std::string_view name_of_former(std::string_view former) noexcept;  // empty: none had this one

// Null when the text is not of the setting's kind, or out of its range. A flag is 0 or 1.
std::optional<uint64_t> parse(const Setting& setting, std::string_view text) noexcept;
std::optional<bool> parse_flag(std::string_view text) noexcept;
// "a number from 1 to 999999", for messages.
std::string accepted(const Setting& setting);
// "60", "yes", "the default": what is used in place of a malformed value, for messages.
std::string used_instead(const Setting& setting);

// The value of a setting of the list; `otherwise` when it is not set or malformed. Any thread.
uint64_t number(std::string_view name) noexcept;
bool flag(std::string_view name) noexcept;
// The text of a setting of the list; null when it is not set.
const char* text(std::string_view name) noexcept;

// Where number(), flag() and text() find a text: std::getenv, until somebody who knows the configuration file says otherwise.
using Lookup = const char* (*)(const char* name) noexcept;
void look_up_with(Lookup lookup) noexcept;

// The name of the list that is at most two insertions, deletions or replacements of a letter away, in a short name one; empty: none is.
std::string_view nearest(std::string_view name) noexcept;

}  // namespace weft::settings
