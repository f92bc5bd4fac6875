// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "nic/e1000e/driver.hpp"

#include <string>

namespace weft::nic::e1000e {

bool is_station(const wire::Mac& mac) noexcept {
  const bool is_zero = std::all_of(mac.begin(), mac.end(), [](std::byte b) { return b == std::byte{0}; });
  return !is_zero && (mac[0] & std::byte{1}) == std::byte{0};
}

wire::Mac mac_of(uint32_t low, uint32_t high) noexcept {
  wire::Mac mac;
  for (size_t i = 0; i < mac.size(); ++i)
    mac[i] = static_cast<std::byte>(i < 4 ? low >> (8 * i) : high >> (8 * (i - 4)));
  return mac;
}

uint32_t low_of(const wire::Mac& mac) noexcept {
  uint32_t low = 0;
  for (unsigned i = 0; i < 4; ++i) low |= std::to_integer<uint32_t>(mac[i]) << (8 * i);
  return low;
}

uint32_t high_of(const wire::Mac& mac) noexcept {
  return std::to_integer<uint32_t>(mac[4]) | std::to_integer<uint32_t>(mac[5]) << 8;
}

// On a page of its own, so that no buffer shares one with a ring.
size_t Shape::buffers_at() const noexcept {
  constexpr size_t page = 4096;
  return (receive_ring_at() + receive_descriptors * sizeof(Descriptor) + page - 1) / page * page;
}

Result<Shape> shape_of(const DriverSettings& settings) {
  if (settings.frame_bytes_max < 60 || settings.frame_bytes_max > frame_bytes_largest)
    return Error{EINVAL, "an 82574 takes frames of 60 to " + std::to_string(frame_bytes_largest) +
                             " bytes, not " + std::to_string(settings.frame_bytes_max)};
  Shape shape;
  shape.transmit_descriptors = ring_size(settings.transmit_descriptors);
  shape.receive_descriptors = ring_size(settings.receive_descriptors);
  shape.receive_control = Rctl::enable | Rctl::accept_broadcast | Rctl::strip_fcs;
  // A buffer holds a whole frame. 2 KiB is what BSIZE 0 says; more is told in KiB.
  constexpr size_t kib = 1024;
  shape.buffer_bytes = 2 * kib;
  if (settings.frame_bytes_max > frame_bytes_plain) {
    shape.receive_control |= Rctl::long_packets;
    const size_t units = std::max<size_t>(2, (settings.frame_bytes_max + kib - 1) / kib);
    shape.receive_control |= static_cast<uint32_t>(units & Rctl::flexible_buffer)
                             << Rctl::flexible_buffer_shift;
    shape.buffer_bytes = units * kib;
  }
  return shape;
}

}  // namespace weft::nic::e1000e
