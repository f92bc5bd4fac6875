// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// WEFT_NIC: the cards that this process may drive, and the address that each has. Must not know what is on the machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "link/nic/device.hpp"

namespace weft::link::nic {

struct Cards {
  std::vector<Configuration> cards;
  std::vector<std::string> mistakes;  // a sentence each
};

// "PCI-ADDRESS=IP/PREFIX[,gateway=IP][,mtu=BYTES][,vlan=ID]": "0000:00:04.0=10.0.0.5/24". "00:04.0" is in domain 0000.
Result<Configuration> parse_card(std::string_view text);
// Several, with ';' between. An entry with a mistake gives no card, and neither does the second one for a card.
Cards parse_cards(std::string_view text);
// Those of the setting. Any thread.
Cards configured_cards();
// The one with this PCI address.
Result<Configuration> configured_card(std::string_view address);

// The name of the libfabric domain on a card: "nic_0000:00:04.0".
std::string domain_name(const Configuration& card);

}  // namespace weft::link::nic
