// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A network card as `weft nic` sees it, in words and as JSON. Knows weft/pci.hpp; must not change anything.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <weft/nic_binding.hpp>
#include <weft/pci.hpp>

#include "nic_network.hpp"

namespace weft::tool::cards {

struct Card {
  pci::Function function;
  std::vector<std::string> group;  // members of the IOMMU group, the card among them
  std::vector<InterfaceState> interfaces;
  std::vector<pci::Obstacle> obstacles;
  std::vector<pci::Holder> holders;
  std::optional<nic_binding::Binding> before;  // what it had, if `weft nic bind` took it

  // The kernel's network depends on it: why, in sentences.
  std::vector<std::string> reasons_to_leave() const;
};

// Weft's driver for a card; empty: there is none.
std::string_view driver_for(uint16_t vendor, uint16_t device);

// `root` stands before /sys, /dev, /proc and /run.
Card card_of(const pci::Function& function, const std::string& root = {});
std::vector<Card> all_cards(const std::string& root = {});
// By address, or by the name of its interface. Throws Failure.
Card find_card(const std::string& name, const std::string& root = {});

std::string list_text(const std::vector<Card>& all);
std::string info_text(const Card& card);
nlohmann::json to_json(const Card& card);

}  // namespace weft::tool::cards
