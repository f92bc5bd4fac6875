// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The names of the API's constants, as the command line takes them. Must not know what they are used for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::tool {

struct Name {
  std::string_view text;
  uint64_t value;
};

// Flags combine, values of an enumeration do not.
std::span<const Name> capability_names();
std::span<const Name> mode_names();
std::span<const Name> mr_mode_names();
std::span<const Name> order_names();
std::span<const Name> op_flag_names();
std::span<const Name> ep_type_names();
std::span<const Name> addr_format_names();
std::span<const Name> threading_names();
std::span<const Name> progress_names();
std::span<const Name> av_type_names();

// "FI_MSG|FI_TAGGED", "msg,tagged" and 0x12 all mean the same. Upper or lower case, with or without FI_ (or
// FI_EP_, FI_THREAD_ ... where
// every name of the table begins so). Throws a usage Failure that lists the valid names; `what` says in it
// what was being read.
uint64_t parse_flags(std::string_view text, std::span<const Name> names, std::string_view what);
uint64_t parse_one(std::string_view text, std::span<const Name> names, std::string_view what);

}  // namespace weft::tool
