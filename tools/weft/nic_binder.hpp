// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Takes a card from the kernel's driver and gives it back (driver_override and drivers_probe,
// Documentation/ABI/testing/sysfs-bus-pci). Must not know the command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nic_card.hpp"

namespace weft::tool::cards {

struct BindOptions {
  unsigned force = 0;               // twice: also a card that the kernel's network uses
  std::optional<std::string> user;  // gets the group's character device
};

// What was done, in sentences. Throws Failure; a card whose binding failed has its driver again.
std::vector<std::string> bind(const Card& card, const BindOptions& options);
// Likewise; the interfaces have what they had.
std::vector<std::string> unbind(const Card& card);

}  // namespace weft::tool::cards
