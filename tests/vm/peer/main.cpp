// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One of two programs that go through scenarios with each other over verbs: on the kernel's rxe, on Weft, on
// anything. All data is checked. Exit status 0 when all was well, 1 when a scenario failed, 2 for a wrong argument.
//
// usage: verbs_peer listen|connect CONTROL_ADDRESS PORT GID_ADDRESS NAME [--only REGEX] [--lossy]
//
// CONTROL_ADDRESS: where the two meet over TCP. GID_ADDRESS: the IPv4 or IPv6 address of the device that is used.
// NAME: what to call this side in the results, which the listening side prints: "ok SCENARIO by NAME (SECONDS s)",
// "FAILED SCENARIO by NAME: REASON", "skipped SCENARIO by NAME: REASON". A side whose name begins with "kernel" is taken to be rxe.
#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <regex>
#include <string_view>
#include <system_error>
#include <thread>

#include "scenarios.hpp"

namespace weft::vm {
namespace {

ibv_gid gid_of(const char* address) {
  ibv_gid gid{};
  if (inet_pton(AF_INET6, address, gid.raw) == 1) return gid;
  gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  require(inet_pton(AF_INET, address, gid.raw + 12) == 1, "no address: %s", address);
  return gid;
}

struct Device {
  Owned<ibv_context> context;
  uint8_t gid_index = 0;
  ibv_gid gid{};
  ibv_mtu mtu = IBV_MTU_256;
};

// The device and the index that have this GID.
Device open_by(const ibv_gid& wanted) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  require(list != nullptr, "ibv_get_device_list: errno %d", errno);
  Device found;
  for (int i = 0; i < count && !found.context; ++i) {
    Owned<ibv_context> context(ibv_open_device(list[i]));
    ibv_port_attr port{};
    if (!context || ibv_query_port(context.get(), 1, &port) != 0) continue;
    for (int at = 0; at < port.gid_tbl_len && at < 64; ++at) {
      ibv_gid gid{};
      if (ibv_query_gid(context.get(), 1, at, &gid) != 0 || std::memcmp(&gid, &wanted, sizeof gid) != 0)
        continue;
      std::printf("device %s, GID index %d, MTU %d\n", ibv_get_device_name(list[i]), at,
                  128 << port.active_mtu);
      found = {std::move(context), static_cast<uint8_t>(at), gid, port.active_mtu};
      break;
    }
  }
  ibv_free_device_list(list);
  require(found.context != nullptr, "none of %d devices has that GID", count);
  return found;
}

struct Arguments {
  bool is_listening = false, is_lossy = false;
  std::string control, gid, name;
  uint16_t port = 0;
  std::regex only{".*"};
};

// One scenario with one of the sides as the requester; true when both are content.
bool run(const Scenario& scenario, Session& session, bool is_reporting, const std::string& requester) {
  const auto start = Clock::now();
  std::string own, skipped;
  try {
    scenario.run(session);
  } catch (const Skipped& reason) {
    skipped = reason.what();
  } catch (const Failure& failure) {
    own = failure.what();
  }
  const std::string peer = session.control.finish(own);
  const bool is_ok = own.empty() && peer.empty();
  if (is_reporting && is_ok && !skipped.empty())
    std::printf("skipped %s by %s: %s\n", scenario.name, requester.c_str(), skipped.c_str());
  else if (is_reporting && is_ok)
    std::printf("ok %s by %s (%.2f s)\n", scenario.name, requester.c_str(), seconds_since(start));
  if (is_reporting && !is_ok)
    std::printf("FAILED %s by %s: here: %s; at the peer: %s\n", scenario.name, requester.c_str(),
                own.empty() ? "well" : own.c_str(), peer.empty() ? "well" : peer.c_str());
  std::fflush(stdout);
  return is_ok;
}

bool run_all(const Arguments& arguments) {
  const Device device = open_by(gid_of(arguments.gid.c_str()));
  Control control = arguments.is_listening ? Control::listen(arguments.control, arguments.port)
                                           : Control::connect(arguments.control, arguments.port);
  struct Hello {
    ibv_mtu mtu;
    char name[32];
  };
  Hello hello{device.mtu, {}};
  arguments.name.copy(hello.name, sizeof hello.name - 1);
  const Hello peer = control.swap(hello);
  bool is_ok = true;
  for (const auto scenarios :
       {message_scenarios(), one_sided_scenarios(), error_scenarios(), window_scenarios(), shared_scenarios(),
        datagram_scenarios(), traffic_scenarios()}) {
    for (const Scenario& scenario : scenarios) {
      if (!std::regex_search(scenario.name, arguments.only)) continue;
      if (scenario.network == (arguments.is_lossy ? Network::Good : Network::Lossy)) continue;
      for (const bool is_listener_requester : {true, false}) {
        const bool is_requester = is_listener_requester == arguments.is_listening;
        const std::string responder = is_requester ? peer.name : arguments.name;
        Session session{control,
                        device.context.get(),
                        device.gid_index,
                        device.gid,
                        std::min(device.mtu, peer.mtu),
                        is_requester,
                        arguments.is_lossy,
                        responder.starts_with("kernel"),
                        arguments.name.starts_with("kernel")};
        is_ok &=
            run(scenario, session, arguments.is_listening, session.is_requester ? arguments.name : peer.name);
      }
    }
  }
  return is_ok;
}

bool parse_port(std::string_view text, uint16_t& port) noexcept {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && at == end && port != 0;
}

int usage() {
  std::fprintf(
      stderr,
      "usage: verbs_peer listen|connect CONTROL_ADDRESS PORT GID_ADDRESS NAME [--only REGEX] [--lossy]\n"
      "       verbs_peer tsc    the frequency of this machine's time stamp counter in kHz\n");
  return 2;
}

// A guest whose kernel calibrates the counter while the host is busy has a clock that runs too fast, and every timeout
// fails.
int print_tsc() {
#ifdef __x86_64__
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const uint64_t first = __builtin_ia32_rdtsc();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const uint64_t last = __builtin_ia32_rdtsc();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  std::printf("%.0f\n", static_cast<double>(last - first) * 1e6 / static_cast<double>(ns));
  return 0;
#else
  return 1;
#endif
}

int run_program(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "tsc") == 0) return print_tsc();
  if (count < 6) return usage();
  Arguments a;
  a.is_listening = std::strcmp(words[1], "listen") == 0;
  if (!a.is_listening && std::strcmp(words[1], "connect") != 0) return usage();
  a.control = words[2];
  if (!parse_port(words[3], a.port)) return usage();
  a.gid = words[4];
  a.name = words[5];
  for (int i = 6; i < count; ++i) {
    if (std::strcmp(words[i], "--lossy") == 0) a.is_lossy = true;
    else if (std::strcmp(words[i], "--only") == 0 && i + 1 < count) a.only = words[++i];
    else return usage();
  }
  try {
    return run_all(a) ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("FAILED %s: %s\n", a.name.c_str(), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace weft::vm

int main(int count, char** words) { return weft::vm::run_program(count, words); }
