// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a provider claims, asked of fi_getinfo(3) in a process of its own, since what is asked may crash. Knows the table; must not know
// how cases are run.
#pragma once

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check_table.hpp"

namespace weft::tool::checking {

struct Offer {
  std::string library;                   // the file that answered
  std::string api;                       // fi_version(3)
  std::string version;                   // of the provider
  std::vector<std::string> others;       // what else its name brings: "tcp;ofi_rxm"
  std::vector<std::string> all;          // every provider of the library, when this one is not there
  std::map<std::string, Answers> types;  // by "FI_EP_RDM" ...; empty: not offered
};

// In the child: prints the offer as one line of JSON. Asks the library that this process has loaded.
void print_offer(const std::string& provider, std::FILE* to);
// In the child: loads a plugin and prints the name of its provider. The status of the process: 0, or 1 with the reason on standard error.
int print_plugin_name(const std::string& file, std::FILE* to);

// In the parent: reads what print_offer() wrote; throws Failure when it is not that.
Offer read_offer(const std::string& json);

}  // namespace weft::tool::checking
