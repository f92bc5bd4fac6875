// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The library is loaded by path: the command links none.
#include "verbs_devices.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "failure.hpp"
#include "install_tree.hpp"

// Macros of the header stand before these.
#undef ibv_query_port

namespace weft::tool {

namespace {

struct Calls {
  decltype(&::ibv_get_device_list) get_device_list;
  decltype(&::ibv_free_device_list) free_device_list;
  decltype(&::ibv_get_device_name) get_device_name;
  decltype(&::ibv_open_device) open_device;
  decltype(&::ibv_close_device) close_device;
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*);
  int (*query_gid)(ibv_context*, uint8_t, int, ibv_gid*);
};

template <class Call>
void find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  if (call == nullptr) fail("{} is not in libibverbs.so.1", name);
}

Calls load() {
  const std::string path = (compat_dir() / "libibverbs.so.1").string();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail("Weft's libibverbs.so.1 cannot be loaded: {}", dlerror());
  Calls calls{};
  find(library, "ibv_get_device_list", calls.get_device_list);
  find(library, "ibv_free_device_list", calls.free_device_list);
  find(library, "ibv_get_device_name", calls.get_device_name);
  find(library, "ibv_open_device", calls.open_device);
  find(library, "ibv_close_device", calls.close_device);
  find(library, "ibv_query_port", calls.query_port);
  find(library, "ibv_query_gid", calls.query_gid);
  return calls;
}

// GIDs of ours carry address and port (docs/verbs.md, "Devices and addresses").
VerbsDevice::Gid read_gid(unsigned index, const ibv_gid& gid) {
  constexpr std::array<uint8_t, 8> ours = {0xfd, 0x57, 0x45, 0x46, 0x54, 0x01, 0, 0};
  constexpr std::array<uint8_t, 12> mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  VerbsDevice::Gid out;
  out.index = index;
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  out.text = text.data();
  if (std::memcmp(gid.raw, ours.data(), ours.size()) == 0) {
    inet_ntop(AF_INET, gid.raw + 12, text.data(), text.size());
    out.type = "Weft";
    out.socket = fmt::format("{}:{}", text.data(), gid.raw[8] << 8 | gid.raw[9]);
  } else if (std::memcmp(gid.raw, mapped.data(), mapped.size()) == 0) {
    inet_ntop(AF_INET, gid.raw + 12, text.data(), text.size());
    out.type = "RoCEv2";
    out.socket = fmt::format("{}:4791", text.data());
  } else {
    out.type = "RoCEv2";
    out.socket = fmt::format("[{}]:4791", text.data());
  }
  return out;
}

// As the library reads the flag.
bool is_local_allowed() {
  const char* text = std::getenv("WEFT_VERBS_SHM");
  if (text == nullptr) text = std::getenv("WEFT_VERBS_NEAR");  // its former name
  if (text == nullptr) return true;
  const std::string_view value = text;
  return value != "0" && value != "no" && value != "off" && value != "false";
}

VerbsDevice read_device(const Calls& calls, ibv_device* device) {
  VerbsDevice out;
  out.name = calls.get_device_name(device);
  const auto close = [&](ibv_context* context) { calls.close_device(context); };
  errno = 0;
  const std::unique_ptr<ibv_context, decltype(close)> context(calls.open_device(device), close);
  if (!context) {
    out.error = std::strerror(errno);
    return out;
  }
  ibv_port_attr port{};
  out.port = 1;
  if (const int error = calls.query_port(context.get(), 1, &port); error != 0) {
    out.error = std::strerror(error);
    return out;
  }
  out.state = port.state == IBV_PORT_ACTIVE ? "active" : "down";
  out.active_mtu = 128U << port.active_mtu;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    constexpr ibv_gid none{};
    if (calls.query_gid(context.get(), 1, i, &gid) == 0 && std::memcmp(&gid, &none, sizeof gid) != 0)
      out.gids.push_back(read_gid(static_cast<unsigned>(i), gid));
  }
  const bool has_own = !out.gids.empty() && out.gids.front().type == "Weft";
  out.shared_memory = !has_own ? "no: GID 0 is not there" : is_local_allowed() ? "yes" : "no: WEFT_VERBS_SHM";
  return out;
}

}  // namespace

std::vector<VerbsDevice> verbs_devices() {
  const Calls calls = load();
  std::vector<VerbsDevice> all;
  int count = 0;
  ibv_device** list = calls.get_device_list(&count);
  if (list == nullptr) return all;
  for (int i = 0; i < count; ++i) all.push_back(read_device(calls, list[i]));
  calls.free_device_list(list);
  return all;
}

void print_verbs_table(const std::vector<VerbsDevice>& devices) {
  fmt::print("{:<16} {:<5} {:<7} {:<5} {:<14} {:<4} {:<8} {:<28} {}\n", "VERBS DEVICE", "PORT", "STATE",
             "MTU", "SHARED MEMORY", "GID", "TYPE", "SOCKET", "VALUE");
  for (const VerbsDevice& device : devices) {
    if (!device.error.empty()) fmt::print("{:<16} does not open: {}\n", device.name, device.error);
    bool first = true;
    for (const VerbsDevice::Gid& gid : device.gids) {
      fmt::print("{:<16} {:<5} {:<7} {:<5} {:<14} {:<4} {:<8} {:<28} {}\n", first ? device.name : "",
                 first ? fmt::to_string(device.port) : "", first ? device.state : "",
                 first ? fmt::to_string(device.active_mtu) : "", first ? device.shared_memory : "", gid.index,
                 gid.type, gid.socket, gid.text);
      first = false;
    }
  }
  if (devices.empty()) fmt::print("none\n");
}

void print_verbs_json(const std::vector<VerbsDevice>& devices) {
  nlohmann::json all = nlohmann::json::array();
  for (const VerbsDevice& device : devices) {
    nlohmann::json gids = nlohmann::json::array();
    for (const VerbsDevice::Gid& gid : device.gids)
      gids.push_back({{"index", gid.index}, {"gid", gid.text}, {"type", gid.type}, {"socket", gid.socket}});
    nlohmann::json one = {{"name", device.name}};
    if (device.error.empty())
      one.update({{"port", device.port},
                  {"state", device.state},
                  {"active_mtu", device.active_mtu},
                  {"shared_memory", device.shared_memory},
                  {"gids", std::move(gids)}});
    else one["error"] = device.error;
    all.push_back(std::move(one));
  }
  fmt::print("{}\n", all.dump(2));
}

}  // namespace weft::tool
