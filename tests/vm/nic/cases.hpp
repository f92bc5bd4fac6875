// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the program in the guest goes through. Each function prints lines of checks.hpp.
#pragma once

#include <string>

#include "surroundings.hpp"

namespace weft::vm {

struct Plan {
  std::string address;   // of the device under test
  bool is_user = false;  // without root's rights
  std::string netdev;    // QEMU's name for its end of the wire
  unsigned kills = 5;    // processes that are killed while they use it
};

// The device without a driver: limits, configuration space, registers, reset, interrupts, mappings. `is_e1000e`: some by its registers.
void device_cases(const Plan& plan, Surroundings& around, bool is_e1000e);
// Transfers by hand (82574): what is mapped arrives, what is not faults.
void transfer_cases(const Plan& plan, Surroundings& around);
// Who may not, and why.
void refusal_cases(const Plan& plan);

// Frames by the driver that fits the device.
void driver_cases(const Plan& plan, Surroundings& around);
// Only that it works: after a kill, or a change of hands.
void short_driver_cases(const Plan& plan, Surroundings& around);

}  // namespace weft::vm
