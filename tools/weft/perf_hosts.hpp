// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two hosts: how a client and a server of `weft perf` meet, what they tell each other about themselves, and what of it differs.
// Knows nothing of what is measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "channel.hpp"

namespace weft::tool {

struct Options;

// The library that this process has loaded, what it calls itself, and the settings in the environment.
struct Identification {
  std::string tool;                                    // version of this command
  std::string library;                                 // file
  std::string version;                                 // what fi_tostr(FI_TYPE_VERSION) says
  std::string build;                                   // the build id of the file; empty: it has none
  nlohmann::json settings = nlohmann::json::object();  // FI_* and WEFT_* of the environment

  bool is_weft() const;
};
Identification own_identification();
nlohmann::json to_json(const Identification& one);
Identification identification_from(const nlohmann::json& value);  // checked: it comes over a network

// One sentence for each thing in which the two sides differ. Throws Failure when the libraries do not
// understand each other; those of verbs do.
std::vector<std::string> differences(const Identification& here, const Identification& there,
                                     bool is_verbs = false);

// What a client wants of a server.
struct Hello {
  unsigned lanes = 1;
  bool one_server = false;       // all lanes lead to one endpoint
  std::string library = "weft";  // "weft", "stock", or "other": the one that the server was told of
  bool again = false;            // more clients will follow (--compare)
  std::string token;             // the same of all channels of a client
};
nlohmann::json to_json(const Hello& hello);
Hello hello_from(const nlohmann::json& message);  // throws Failure, also for another protocol

// Reaches a server, one channel for each lane; `there` becomes what it is.
std::vector<Channel> reach_server(const std::string& host, uint16_t port, Hello hello, Identification& there);

// Waits for clients, one after the other, and starts a process for each. With `keep` it stays. Returns the exit status.
int run_server(const Options& options);

// The process that run_server() started for a client, if this is it.
bool is_server_process();
int serve_client(const Options& options);

}  // namespace weft::tool
