// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cards out of weft/pci.hpp and the network; the table, the page of one card.
#include "nic_card.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "failure.hpp"

namespace weft::tool::cards {
namespace {

struct Known {
  uint16_t vendor, device;
  const char* driver;
};
constexpr std::array known = {
    Known{0x8086, 0x10d3, "e1000e"},      // 82574L
    Known{0x8086, 0x10f6, "e1000e"},      // 82574LA
    Known{0x1af4, 0x1041, "virtio_net"},  // virtio 1.0 and later
    Known{0x1af4, 0x1000, "virtio_net"},  // the same, and the interface of before
};

std::string joined(const std::vector<std::string>& words, std::string_view between = ",") {
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, between));
}

std::string or_dash(std::string_view text) { return text.empty() ? "-" : std::string(text); }

bool is_bound(const Card& card) { return card.function.is_handed_over(); }

std::string state_text(const Card& card) {
  if (!card.holders.empty())
    return fmt::format("in use by process {} ({})", card.holders[0].pid, card.holders[0].name);
  if (card.obstacles.empty()) return "ready";
  for (const pci::Obstacle& one : card.obstacles) switch (one.need) {
      case pci::Need::iommu:
        return "needs an IOMMU";
      case pci::Need::group:
        return "not behind the IOMMU";
      case pci::Need::isolation:
        return "not isolated";
      case pci::Need::modules:
        return "needs vfio-pci";
      case pci::Need::driver:
        return card.reasons_to_leave().empty() ? "can be bound" : "the kernel's network uses it";
      case pci::Need::group_mates:
        return "its group is not viable";
      case pci::Need::character_device:
      case pci::Need::permission:
        return "not for this user";
    }
  return "";
}

using Row = std::array<std::string, 8>;

std::string table_text(const std::vector<Row>& rows) {
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string_view driver_for(uint16_t vendor, uint16_t device) {
  const auto found = std::ranges::find_if(
      known, [&](const Known& one) { return one.vendor == vendor && one.device == device; });
  return found == known.end() ? std::string_view() : found->driver;
}

std::vector<std::string> Card::reasons_to_leave() const {
  std::vector<std::string> reasons;
  if (is_bound(*this) || function.driver.empty()) return reasons;
  for (const InterfaceState& one : interfaces) {
    if (!one.addresses.empty())
      reasons.push_back(fmt::format("{} has the address {}", one.name, joined(one.addresses, ", ")));
    if (!one.routes.empty())
      reasons.push_back(fmt::format("the route {} goes through {}", joined(one.routes, ", "), one.name));
    if (!one.uppers.empty())
      reasons.push_back(fmt::format("{} carries {}", one.name, joined(one.uppers, ", ")));
  }
  if (interfaces.empty())
    reasons.emplace_back("its driver shows no interface here: it may be in another network namespace");
  return reasons;
}

Card card_of(const pci::Function& function, const std::string& root) {
  Card card;
  card.function = function;
  if (function.group) card.group = pci::group_members(*function.group, root);
  for (const std::string& name : function.interfaces) card.interfaces.push_back(state_of(name));
  card.obstacles = pci::obstacles(function, root);
  if (function.is_handed_over()) card.holders = pci::group_holders(function, root);
  card.before = nic_binding::read(function.address, root);
  return card;
}

std::vector<Card> all_cards(const std::string& root) {
  std::vector<Card> all;
  for (const pci::Function& one : pci::functions(root))
    if (one.is_network()) all.push_back(card_of(one, root));
  return all;
}

Card find_card(const std::string& name, const std::string& root) {
  const auto address = pci::address_of(name);
  for (const pci::Function& one : pci::functions(root)) {
    const bool is_named = std::ranges::find(one.interfaces, name) != one.interfaces.end();
    if (!is_named && one.address != address) continue;
    if (!one.is_network())
      fail("{} is not a network card (class {:06x}, driver {})", one.address, one.class_code,
           or_dash(one.driver));
    return card_of(one, root);
  }
  fail("there is no network card '{}' on the PCI bus (weft nic list)", name);
}

std::string list_text(const std::vector<Card>& all) {
  if (all.empty()) return "no network card on the PCI bus\n";
  std::vector<Row> rows = {{"ADDRESS", "ID", "DRIVER", "GROUP", "INTERFACE", "IP", "WEFT'S DRIVER", "STATE"}};
  std::set<std::string> machine;  // what keeps all of them back, each once
  for (const Card& card : all) {
    std::vector<std::string> names, addresses;
    for (const InterfaceState& one : card.interfaces) {
      names.push_back(one.name);
      addresses.insert(addresses.end(), one.addresses.begin(), one.addresses.end());
    }
    const pci::Function& f = card.function;
    rows.push_back({f.address, fmt::format("{:04x}:{:04x}", f.vendor, f.device), or_dash(f.driver),
                    f.group ? std::to_string(*f.group) : "-", joined(names), joined(addresses),
                    or_dash(driver_for(f.vendor, f.device)), state_text(card)});
    for (const pci::Obstacle& one : card.obstacles)
      if (one.need == pci::Need::iommu || one.need == pci::Need::modules)
        machine.insert(fmt::format("{}: {}\n", one.what, one.remedy));
  }
  std::string text = table_text(rows);
  for (const std::string& one : machine) text += "\n" + one;
  return text;
}

std::string info_text(const Card& card) {
  const pci::Function& f = card.function;
  std::string text;
  auto to = std::back_inserter(text);
  const auto line = [&](std::string_view name, const std::string& value) {
    fmt::format_to(to, "{:<14}{}\n", name, value);
  };
  line("address", f.address);
  line("id", fmt::format("{:04x}:{:04x}, class {:06x}", f.vendor, f.device, f.class_code));
  line("driver", or_dash(f.driver));
  const auto ours = driver_for(f.vendor, f.device);
  line("Weft's driver", ours.empty() ? "none: Weft cannot drive this card" : std::string(ours));
  line("IOMMU group", f.group ? fmt::format("{} ({})", *f.group, joined(card.group, ", ")) : "-");
  for (const InterfaceState& one : card.interfaces) {
    line("interface", fmt::format("{}, {}, MAC {}, MTU {}", one.name, one.is_up ? "up" : "down",
                                  or_dash(one.mac), one.mtu));
    if (!one.addresses.empty()) line("  addresses", joined(one.addresses, ", "));
    if (!one.routes.empty()) line("  routes", joined(one.routes, ", "));
    if (!one.gateways.empty()) line("  gateways", joined(one.gateways, ", "));
  }
  if (card.before) {
    line("before", "driver " + or_dash(card.before->driver));
    for (const nic_binding::Interface& one : card.before->interfaces)
      line("", fmt::format("{}, MAC {}, MTU {}, addresses {}", one.name, or_dash(one.mac), one.mtu,
                           joined(one.addresses, ", ")));
  }
  for (const pci::Holder& one : card.holders)
    line("in use", fmt::format("by process {} ({})", one.pid, one.name));
  line("state", state_text(card));
  if (!card.obstacles.empty()) text += "\nto use it:\n";
  size_t number = 0;
  for (const pci::Obstacle& one : card.obstacles)
    fmt::format_to(to, "  {}. {}\n     {}\n", ++number, one.what, one.remedy);
  if (const auto reasons = card.reasons_to_leave(); !reasons.empty()) {
    text += "\nthe kernel's network uses it, so that bind wants --force twice:\n";
    for (const std::string& one : reasons) fmt::format_to(to, "  {}\n", one);
  }
  return text;
}

nlohmann::json to_json(const Card& card) {
  using nlohmann::json;
  const auto interface = [](const nic_binding::Interface& one) {
    return json{{"name", one.name},           {"mac", one.mac},          {"mtu", one.mtu}, {"up", one.is_up},
                {"addresses", one.addresses}, {"gateways", one.gateways}};
  };
  const pci::Function& f = card.function;
  json interfaces = json::array(), needs = json::array(), holders = json::array(), before = nullptr;
  for (const InterfaceState& one : card.interfaces) {
    interfaces.push_back(interface(one));
    interfaces.back()["routes"] = one.routes;
    interfaces.back()["uppers"] = one.uppers;
  }
  for (const pci::Obstacle& one : card.obstacles)
    needs.push_back({{"what", one.what}, {"remedy", one.remedy}});
  for (const pci::Holder& one : card.holders) holders.push_back({{"pid", one.pid}, {"name", one.name}});
  if (card.before) {
    before = {{"driver", card.before->driver}, {"interfaces", json::array()}};
    for (const nic_binding::Interface& one : card.before->interfaces)
      before["interfaces"].push_back(interface(one));
  }
  return {{"address", f.address},
          {"vendor", fmt::format("{:04x}", f.vendor)},
          {"device", fmt::format("{:04x}", f.device)},
          {"driver", f.driver.empty() ? json(nullptr) : json(f.driver)},
          {"weft_driver",
           driver_for(f.vendor, f.device).empty() ? json(nullptr) : json(driver_for(f.vendor, f.device))},
          {"iommu_group", f.group ? json(*f.group) : json(nullptr)},
          {"group_members", card.group},
          {"interfaces", interfaces},
          {"holders", holders},
          {"before", before},
          {"state", state_text(card)},
          {"needs", needs},
          {"kernel_uses_it", card.reasons_to_leave()}};
}

}  // namespace weft::tool::cards
