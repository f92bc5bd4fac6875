// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The verbs devices of Weft's libibverbs.so.1, for `weft info`. Knows the library's interface and nothing of its insides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::tool {

struct VerbsDevice {
  std::string name;
  std::string error;  // why it does not open; empty: it does
  std::string state;
  unsigned port = 0;
  unsigned active_mtu = 0;  // bytes
  struct Gid {
    unsigned index = 0;
    std::string text;  // as of IPv6
    std::string type;
    std::string socket;  // address and UDP port that it means
  };
  std::vector<Gid> gids;
  std::string shared_memory;  // whether devices of this host and user are reached by it
};

// Opens each device for a moment. Throws Failure when the library is not installed.
std::vector<VerbsDevice> verbs_devices();

void print_verbs_table(const std::vector<VerbsDevice>& devices);
void print_verbs_json(const std::vector<VerbsDevice>& devices);

}  // namespace weft::tool
