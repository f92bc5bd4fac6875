// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The command line of `weft kofi`. Must not know how the kernel is asked.
#include "kofi.hpp"

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli.hpp"
#include "failure.hpp"
#include "kofi_system.hpp"

namespace weft::tool {
namespace {

const Manual manual = {
    R"(NAME
  weft kofi - the fabric interface in the kernel: its modules, providers and block devices

SYNOPSIS
  weft kofi load [--from FOLDER] [MODULE]...
  weft kofi list [--json]
  weft kofi connect [--provider PROVIDER] [--name NAME] [OPTION]... ADDRESS [SERVICE]
  weft kofi disconnect DEVICE

DESCRIPTION
  load        Loads modules and what they need: kofi, kofi_loop, kofi_tcp, kofi_verbs, kofi_rdm, kofi_blk,
              kofi_blk_target, kofi_test; without a name kofi_tcp and kofi_blk. Mounts debugfs and configfs when
              they are not.
  list        The providers that are registered, and the block devices: what each is connected to, its disk, its
              state.
  connect     Makes a block device of the target at ADDRESS (numbers, no name) and SERVICE (a port; 4710), and
              prints its disk. A target is weft run block_target (examples/), or the module kofi_blk_target.
  disconnect  Takes a block device away: by its name, or by its disk. One that is open is left alone.

  Only root can do these.
)",
    R"(EXIT STATUS
  0  done
  1  it could not be done
  2  the command line makes no sense

FILES
  /sys/kernel/debug/kofi/        providers, objects, counters
  /sys/kernel/config/kofi_blk/   a folder for each block device

EXAMPLES
  weft kofi load
  weft kofi connect 10.0.0.1 4710
  weft kofi disconnect /dev/kofi0
)"};

struct Options {
  std::string action;
  std::vector<std::string> words;
  bool json = false;
  std::string from, provider, name;
  std::optional<unsigned> queues, depth, timeout, give_up;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("ACTION", o.action, "load, list, connect or disconnect")
      ->required()
      ->check(CLI::IsMember({"load", "list", "connect", "disconnect"}))
      ->option_text("load|list|connect|disconnect");
  app.add_option("WORD", o.words, "Modules; an address and a service; a device")->option_text("WORD");
  app.add_flag("-j,--json", o.json, "list: as JSON");
  app.add_option("--from", o.from, "load: modules out of this folder")->option_text("FOLDER");
  app.add_option("-p,--provider", o.provider, "connect: over this provider (kofi_tcp)")
      ->option_text("PROVIDER");
  app.add_option("--name", o.name, "connect: the name of the device (disk0, ...)")->option_text("NAME");
  app.add_option("--queues", o.queues, "connect: connections (processors, at most 4)")
      ->check(CLI::Range(1, 16))
      ->option_text("COUNT");
  app.add_option("--depth", o.depth, "connect: commands of each connection (64)")
      ->check(CLI::Range(1, 256))
      ->option_text("COUNT");
  app.add_option("--timeout", o.timeout, "connect: seconds of a command, then the connections are cut (30)")
      ->check(CLI::Range(1, 3600))
      ->option_text("SECONDS");
  app.add_option("--give-up", o.give_up, "connect: seconds without a target until requests fail (0: never)")
      ->check(CLI::Range(0, 86400))
      ->option_text("SECONDS");
  set_manual(app, manual);
}

int list(bool json) {
  const kofi_system::Paths paths;
  const auto providers = kofi_system::providers(paths);
  const auto devices = kofi_system::block_devices(paths);
  if (json) {
    nlohmann::json all = {{"providers", nlohmann::json::array()}, {"devices", nlohmann::json::array()}};
    for (const auto& one : providers)
      all["providers"].push_back({{"name", one.name}, {"version", one.version}, {"objects", one.objects}});
    for (const auto& one : devices)
      all["devices"].push_back({{"name", one.name},
                                {"device", one.device},
                                {"provider", one.provider},
                                {"address", one.address},
                                {"service", one.service},
                                {"queues", one.queues},
                                {"depth", one.depth},
                                {"state", one.state}});
    fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return exit_ok;
  }
  for (const auto& one : providers)
    fmt::print("provider {} {}: {} open objects\n", one.name, one.version, one.objects);
  for (const auto& one : devices)
    fmt::print("device {} {}: {} {} {}, {} queues of {}: {}\n", one.name,
               one.device.empty() ? "(not connected)" : one.device, one.provider, one.address, one.service,
               one.queues, one.depth, one.state);
  return exit_ok;
}

int connect(const Options& o) {
  const kofi_system::Paths paths;
  kofi_system::Settings settings;
  if (o.words.empty() || o.words.size() > 2) fail_usage("connect wants an address, and may have a service");
  if (!o.provider.empty()) settings.emplace_back("provider", o.provider);
  settings.emplace_back("address", o.words[0]);
  if (o.words.size() == 2) settings.emplace_back("service", o.words[1]);
  if (o.queues) settings.emplace_back("queues", std::to_string(*o.queues));
  if (o.depth) settings.emplace_back("depth", std::to_string(*o.depth));
  if (o.timeout) settings.emplace_back("timeout", std::to_string(*o.timeout));
  if (o.give_up) settings.emplace_back("give_up", std::to_string(*o.give_up));
  fmt::print("{}\n",
             kofi_system::connect(paths, o.name.empty() ? kofi_system::free_name(paths) : o.name, settings));
  return exit_ok;
}

}  // namespace

int kofi(int argc, char** argv) {
  CLI::App app("weft kofi", "kofi");
  Options o;
  declare(app, o);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const bool connects = o.action == "connect";
  if (!connects && (!o.provider.empty() || !o.name.empty() || o.queues || o.depth || o.timeout || o.give_up))
    fail_usage("--provider, --name, --queues, --depth, --timeout and --give-up belong to connect");
  if (o.action != "list" && o.json) fail_usage("--json belongs to list");
  if (o.action != "load" && !o.from.empty()) fail_usage("--from belongs to load");
  if (connects) return connect(o);
  if (o.action == "load") {
    if (o.words.empty()) o.words = {"kofi_tcp", "kofi_blk"};
    for (const std::string& one : kofi_system::load(o.words, o.from)) fmt::print("{}\n", one);
    return exit_ok;
  }
  if (o.action == "list") {
    if (!o.words.empty()) fail_usage("list takes no word");
    return list(o.json);
  }
  if (o.words.size() != 1) fail_usage("disconnect which device? (weft kofi list)");
  kofi_system::disconnect({}, o.words[0]);
  return exit_ok;
}

}  // namespace weft::tool
