// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where a virtio device has its registers: the list of capabilities in PCI configuration space (VIRTIO 1.2, section
// 4.1.4). The bytes come from the device and are hostile: the list may be a circle, a capability may reach beyond the
// space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"

namespace weft::nic::virtio_net {

inline constexpr size_t pci_config_bytes = 256;

// A piece of a BAR. The parser has checked BAR and alignment; who maps the BAR checks that the piece lies in it.
struct Region {
  unsigned bar = 0;
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

struct Regions {
  Region common;
  Region notify;
  uint32_t notify_multiplier = 0;  // 0: all queues have one doorbell
  Region device;
};

// The first usable capability of each type counts (4.1.4.1). ENODEV: one that the driver needs is not there.
Result<Regions> find_regions(std::span<const std::byte, pci_config_bytes> config);

}  // namespace weft::nic::virtio_net
