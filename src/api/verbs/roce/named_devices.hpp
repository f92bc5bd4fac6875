// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The devices of this process by name: those of WEFT_VERBS_DEVICES, or one for each interface. Must not know what a
// device does.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "link/ethernet/stack.hpp"
#include "link/nic/settings.hpp"
#include "os/interfaces.hpp"

namespace weft::verbs::soft {

struct Named {
  std::string name;
  os::Interface interface;
  bool is_packet = false;                // a packet socket on the interface, with an address of its own
  link::ethernet::Network network = {};  // of that
  std::optional<link::nic::Configuration> card =
      {};  // a network card that this process drives, with an address of its own
};

struct NamedDevices {
  std::vector<Named> devices;
  std::vector<std::string> mistakes;  // a sentence each
};

// A text of NAME=ADDRESS, NAME=packet:INTERFACE/ADDRESS[/PREFIX[/GATEWAY]] and
// NAME=nic:PCI-ADDRESS[/ADDRESS/PREFIX[/GATEWAY]], with commas between; a card without an address has that of WEFT_NIC.
// An entry with a mistake gives no device. Empty entries are none.
NamedDevices parse_devices(std::string_view text, std::span<const os::Interface> interfaces);

// WEFT_VERBS_DEVICES and nothing else when it is set and not empty, even where no entry of it is usable; otherwise
// weft_INTERFACE for each interface. Each mistake is one warning of this process. Any thread.
std::vector<Named> named_devices();

}  // namespace weft::verbs::soft
