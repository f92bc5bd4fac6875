// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "nic/virtio_net/capabilities.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "nic/virtio_net/spec.hpp"

namespace weft::nic::virtio_net {
namespace {

using Config = std::span<const std::byte, pci_config_bytes>;

// PCI Local Bus Specification 3.0, sections 6.2.3 and 6.7.
constexpr size_t pci_status = 0x06;
constexpr unsigned pci_status_has_list = 1u << 4;
constexpr size_t pci_list = 0x34;
constexpr size_t pci_header_bytes = 0x40;
constexpr unsigned capabilities_max = (pci_config_bytes - pci_header_bytes) / 4;
constexpr unsigned bars = 6;

template <class T>
T load(Config config, size_t at) {
  T value;
  std::memcpy(&value, config.data() + at, sizeof value);
  return value;
}

bool is_usable(uint8_t type, const Region& region) {
  if (region.bar >= bars || uint64_t{region.offset} + region.bytes > UINT32_MAX) return false;
  switch (type) {
    case capability::common:  // 4.1.4.3.1
      return region.offset % 4 == 0 && region.bytes >= common::bytes;
    case capability::notify:  // 4.1.4.4.1
      return region.offset % 2 == 0 && region.bytes >= 2;
    default:  // the device's configuration, 4.1.4.6.1
      return region.offset % 4 == 0 && region.bytes >= config::bytes_min;
  }
}

}  // namespace

Result<Regions> find_regions(Config config) {
  std::optional<Region> found[capability::device + 1];
  uint32_t multiplier = 0;
  size_t at = (load<uint16_t>(config, pci_status) & pci_status_has_list) != 0
                  ? load<uint8_t>(config, pci_list) & ~size_t{3}
                  : 0;
  for (unsigned seen = 0; seen < capabilities_max && at >= pci_header_bytes; ++seen) {
    const size_t here = at;
    at = load<uint8_t>(config, here + capability::next) & ~size_t{3};
    const size_t room = pci_config_bytes - here;
    if (load<uint8_t>(config, here) != capability::vendor_specific || room < capability::bytes_min) continue;
    const auto bytes = load<uint8_t>(config, here + capability::bytes);
    const auto type = load<uint8_t>(config, here + capability::type);
    const bool is_notify = type == capability::notify;
    if (type != capability::common && !is_notify && type != capability::device) continue;
    const size_t needed = is_notify ? capability::notify_bytes_min : capability::bytes_min;
    if (bytes < needed || bytes > room || found[type]) continue;
    const Region region{.bar = load<uint8_t>(config, here + capability::bar),
                        .offset = load<uint32_t>(config, here + capability::offset),
                        .bytes = load<uint32_t>(config, here + capability::length)};
    if (!is_usable(type, region)) continue;
    if (is_notify) {
      multiplier = load<uint32_t>(config, here + capability::notify_multiplier);
      if (multiplier != 0 && (multiplier % 2 != 0 || !std::has_single_bit(multiplier))) continue;
    }
    found[type] = region;
  }
  for (const auto& [type, what] :
       {std::pair{capability::common, "common configuration"}, std::pair{capability::notify, "notification"},
        std::pair{capability::device, "device configuration"}}) {
    if (!found[type])
      return Error{ENODEV, std::string("the device has no usable virtio capability for its ") + what +
                               " (a device of before virtio 1.0?)"};
  }
  return Regions{.common = *found[capability::common],
                 .notify = *found[capability::notify],
                 .notify_multiplier = multiplier,
                 .device = *found[capability::device]};
}

}  // namespace weft::nic::virtio_net
