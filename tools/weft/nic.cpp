// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The command line of `weft nic`. Must not know how a card is found or bound.
#include "nic.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli.hpp"
#include "failure.hpp"
#include "nic_binder.hpp"
#include "nic_card.hpp"

namespace weft::tool {
namespace {

const Manual manual = {
    R"(NAME
  weft nic - network cards that Weft can drive by itself (VFIO), and handing them over

SYNOPSIS
  weft nic list [--json]
  weft nic info [--json] CARD...
  weft nic bind [--user USER] [--force --force] CARD...
  weft nic unbind CARD...

DESCRIPTION
  CARD is an address on the PCI bus (0000:00:04.0, 00:04.0) or the name of an interface.

  list    The network cards of this machine: driver, IOMMU group, interfaces, whether Weft has a driver, and whether
          a program can use it.
  info    All that is known of a card, and step by step what it takes to use it.
  bind    Takes a card from its driver and hands it to vfio-pci (driver_override, drivers_probe), loading the
          modules when they are missing. A card is left alone unless --force is given twice when its interface
          has an address or a route, is a port of a bridge or a bond, carries a VLAN or a macvlan, or is in
          another network namespace. Link-local addresses do not count. Driver, MAC, MTU,
          addresses and gateways are remembered in /run/weft/nic/.
  unbind  Gives a card back to the driver that it had, and its interface what it had. A card that a process
          uses is left alone.

  A card that is with vfio-pci is used by its address: WEFT_NIC gives it to udp and udp;ofi_rxd,
  WEFT_VERBS_DEVICES=NAME=nic:ADDRESS to RDMA programs; weft-settings(7) has their form. There are drivers for
  the Intel 82574 (e1000e) and for virtio network cards.

  Only root can bind and unbind. All devices of an IOMMU group are handed over together: bind says which of
  them still have a driver of the kernel.
)",
    R"(EXIT STATUS
  0  done; for info also when the card cannot be used: what is missing is in the text, and in "needs" of the JSON
  1  there is no such card, or it cannot be bound or given back
  2  the command line makes no sense

FILES
  /run/weft/nic/ADDRESS  what the card had before, one line each; read by everybody (weft/nic_binding.hpp)
  /dev/vfio/GROUP        who may open it may use the cards of the group

EXAMPLES
  weft nic list
  weft nic bind --user alice 00:04.0
  weft nic unbind 00:04.0
)"};

struct Options {
  std::string action;
  std::vector<std::string> names;
  bool json = false;
  cards::BindOptions bind;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("ACTION", o.action, "list, info, bind or unbind")
      ->required()
      ->check(CLI::IsMember({"list", "info", "bind", "unbind"}))
      ->option_text("list|info|bind|unbind");
  app.add_option("CARD", o.names, "Address on the PCI bus, or interface")->option_text("CARD");
  app.add_flag("-j,--json", o.json, "list, info: as JSON");
  app.add_flag("--force", o.bind.force, "bind: twice, also a card that the kernel's network uses")
      ->default_str("");  // CLI11 2.4 shows that of a flag that is counted
  app.add_option("--user", o.bind.user, "bind: gives the group to this user (name or number)")
      ->option_text("USER");
  set_manual(app, manual);
}

int show(const Options& o) {
  std::vector<cards::Card> found;
  if (o.action == "list") {
    found = cards::all_cards();
  } else {
    for (const std::string& name : o.names) found.push_back(cards::find_card(name));
  }
  if (o.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const cards::Card& card : found) all.push_back(cards::to_json(card));
    fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return exit_ok;
  }
  if (o.action == "list") {
    fmt::print("{}", cards::list_text(found));
    return exit_ok;
  }
  for (size_t i = 0; i < found.size(); ++i)
    fmt::print("{}{}", i == 0 ? "" : "\n", cards::info_text(found[i]));
  return exit_ok;
}

}  // namespace

int nic(int argc, char** argv) {
  CLI::App app("weft nic", "nic");
  Options options;
  declare(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (options.action == "list" && !options.names.empty()) fail_usage("list takes no card; info does");
  if (options.action != "list" && options.names.empty())
    fail_usage("{} which card? (weft nic list)", options.action);
  const bool is_bind = options.action == "bind";
  if (!is_bind && (options.bind.force != 0 || options.bind.user))
    fail_usage("--force and --user belong to bind");
  if (options.action == "list" || options.action == "info") return show(options);
  if (options.json) fail_usage("--json belongs to list and info");
  for (const std::string& name : options.names) (void)cards::find_card(name);  // before the first is changed
  for (const std::string& name : options.names) {
    const cards::Card card = cards::find_card(name);
    for (const std::string& one : is_bind ? cards::bind(card, options.bind) : cards::unbind(card))
      fmt::print("{}\n", one);
  }
  return exit_ok;
}

}  // namespace weft::tool
