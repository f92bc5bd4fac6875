// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the modules of kernel/ show in debugfs and take in configfs (docs/kofi.md). Must not know the command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft::tool::kofi_system {

// Where it is: other folders in tests.
struct Paths {
  std::string debug = "/sys/kernel/debug";
  std::string config = "/sys/kernel/config";
};

struct Provider {
  std::string name, version;
  unsigned objects = 0;  // open ones
};

struct BlockDevice {
  std::string name;  // of its folder in configfs
  std::string provider, address, service, queues, depth;
  std::string device;  // "" when it is not connected
  std::string state;
};

// Modules in the order in which they can be loaded: those that each of `wanted` needs stand before it.
std::vector<std::string> load_order(const std::vector<std::string>& wanted);
// Loads modules that are missing: out of `folder`, or with modprobe when it is empty. What was done, in sentences.
std::vector<std::string> load(const std::vector<std::string>& wanted, const std::string& folder);

std::vector<Provider> parse_providers(const std::string& text);
// Throws Failure when the module is not loaded.
std::vector<Provider> providers(const Paths& paths);
// Empty when the module is not loaded.
std::vector<BlockDevice> block_devices(const Paths& paths);

using Settings = std::vector<std::pair<std::string, std::string>>;  // file of configfs, what is written
// Makes a device and connects it; what failed leaves nothing. The path of the disk.
std::string connect(const Paths& paths, const std::string& name, const Settings& settings);
// By its name, or by the path of its disk.
void disconnect(const Paths& paths, const std::string& which);
// "disk0", or the first of its kind that nobody has.
std::string free_name(const Paths& paths);

}  // namespace weft::tool::kofi_system
