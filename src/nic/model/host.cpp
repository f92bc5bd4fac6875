// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "nic/model/host.hpp"

#include <algorithm>
#include <cstring>

namespace weft::nic::model {

uint64_t Iommu::map(std::byte* memory, size_t bytes, DmaAccess access) {
  const uint64_t offset = reinterpret_cast<uintptr_t>(memory) % page_bytes;
  const uint64_t address = next_ + offset;
  mappings_.emplace(address, Mapping{memory, bytes, access});
  next_ += (offset + bytes + page_bytes - 1) / page_bytes * page_bytes + page_bytes;  // a page between
  return address;
}

void Iommu::unmap(uint64_t address) noexcept { mappings_.erase(address); }

std::byte* Iommu::find(uint64_t address, size_t bytes, bool is_write) noexcept {
  auto next = mappings_.upper_bound(address);
  if (next != mappings_.begin()) {
    const auto& [start, mapping] = *std::prev(next);
    const uint64_t offset = address - start;
    const bool is_allowed = is_write ? mapping.access.device_writes : mapping.access.device_reads;
    if (is_allowed && offset <= mapping.bytes && bytes <= mapping.bytes - offset)
      return mapping.memory + offset;
  }
  ++faults_;
  return nullptr;
}

namespace {

void put16(std::byte* at, uint16_t value) { std::memcpy(at, &value, sizeof value); }

}  // namespace

ConfigSpace::ConfigSpace(uint16_t vendor, uint16_t device, uint16_t subsystem, uint8_t revision) {
  put16(&space_[0x00], vendor);
  put16(&space_[0x02], device);
  put16(&space_[0x06], 1 << 4);  // status: there are capabilities
  space_[0x08] = std::byte{revision};
  put16(&space_[0x0a], 0x0200);  // class: Ethernet controller
  put16(&space_[0x2c], vendor);
  put16(&space_[0x2e], subsystem);
}

size_t ConfigSpace::add_capability(uint8_t id, std::span<const std::byte> body) {
  const size_t at = free_;
  if (at + 2 + body.size() > bytes) return 0;
  space_[at] = std::byte{id};
  std::copy(body.begin(), body.end(), space_.begin() + static_cast<ptrdiff_t>(at) + 2);
  space_[last_ ? last_ + 1 : capabilities] = static_cast<std::byte>(at);
  last_ = at;
  free_ = (at + 2 + body.size() + 3) & ~size_t{3};
  return at;
}

size_t ConfigSpace::find_capability(uint8_t id) const noexcept {
  size_t at = read(capabilities, 1);
  for (size_t checked = 0; at != 0 && checked < bytes / 4; ++checked) {
    if (read(at, 1) == id) return at;
    at = read(at + 1, 1);
  }
  return 0;
}

uint32_t ConfigSpace::read(size_t offset, size_t width) const noexcept {
  uint32_t value = 0xffffffff >> (8 * (4 - std::clamp<size_t>(width, 1, 4)));
  if (width >= 1 && width <= 4 && offset <= bytes - width) {
    value = 0;
    std::memcpy(&value, &space_[offset], width);
  }
  return value;
}

void ConfigSpace::write(size_t offset, size_t width, uint32_t value) noexcept {
  // Of the header only the command register is the driver's; of capabilities everything but id and next pointer is left to it.
  const bool is_command = offset == command && width == 2;
  if (width >= 1 && width <= 4 && offset <= bytes - width && (is_command || offset >= 64))
    std::memcpy(&space_[offset], &value, width);
}

bool Host::read(uint64_t address, std::span<std::byte> out) noexcept {
  if (!is_master || is_unplugged) return false;
  const std::byte* at = iommu.find(address, out.size(), false);
  if (at && !out.empty()) std::memcpy(out.data(), at, out.size());
  return at != nullptr;
}

bool Host::write(uint64_t address, std::span<const std::byte> bytes) noexcept {
  if (!is_master || is_unplugged) return false;
  if (tamper) {
    scratch_.assign(bytes.begin(), bytes.end());
    bytes = std::span(scratch_).first(std::min(tamper(address, scratch_), scratch_.size()));
  }
  std::byte* at = iommu.find(address, bytes.size(), true);
  if (at && !bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  return at != nullptr;
}

void Host::raise(unsigned vector) noexcept {
  if (vector >= vectors_ || !is_master || is_unplugged) return;
  ++interrupts_[vector].count;
  interrupts_[vector].is_pending = true;
  if (on_interrupt) on_interrupt(vector);
}

void Host::enable(unsigned vectors, bool msix) noexcept {
  vectors_ = std::min(vectors, vectors_max);
  has_msix_ = msix && vectors_ > 0;
  for (Interrupt& interrupt : interrupts_) interrupt.is_pending = false;
}

}  // namespace weft::nic::model
