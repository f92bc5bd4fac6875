// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What this machine has of what Weft can use, and what each lack costs, for `weft info --system`. Knows Linux and no fabric.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

struct SystemFact {
  std::string name;
  std::string value;
  std::string cost;  // empty: nothing is lacking
};

// Looks now; measures how near two processors are, which takes some milliseconds.
std::vector<SystemFact> system_facts();

// "Key:   1234 kB" of /proc/meminfo and the like; -1: it is not there.
long long number_after(std::string_view text, std::string_view key);
// "0-3,8" to 5.
unsigned count_in_list(std::string_view list);

void print_system_table(const std::vector<SystemFact>& facts);
void print_system_json(const std::vector<SystemFact>& facts);

}  // namespace weft::tool
