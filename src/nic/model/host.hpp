// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Host: what a device model sees of the machine it is plugged into: memory behind an IOMMU, interrupts, configuration space. For tests
// and fuzzers. Must not know which device, nor which driver.
//
// Contract: one thread. A model reaches memory by Host::read() and write() alone; what is not mapped is a fault, which is counted and
// changes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "nic/bus.hpp"

namespace weft::nic::model {

// The IOMMU of one device. Stricter than hardware: mapped to the byte, not to the page, and no two mappings touch.
class Iommu {
 public:
  static constexpr uint64_t page_bytes = 4096;
  static constexpr uint64_t address_first =
      0x1'0000'0000;  // above 4 GiB, so that a driver which forgets the high half is found

  // The address keeps the offset in the page, as with hardware.
  uint64_t map(std::byte* memory, size_t bytes, DmaAccess access);
  void unmap(uint64_t address) noexcept;
  // Where the device finds `bytes` bytes at `address`; null, and one fault more, when it may not.
  std::byte* find(uint64_t address, size_t bytes, bool is_write) noexcept;

  struct Mapping {
    std::byte* memory = nullptr;
    size_t bytes = 0;
    DmaAccess access;
  };
  const std::map<uint64_t, Mapping>& mappings() const noexcept { return mappings_; }
  uint64_t faults() const noexcept { return faults_; }

 private:
  std::map<uint64_t, Mapping> mappings_;
  uint64_t next_ = address_first;
  uint64_t faults_ = 0;
};

// PCI configuration space, type 0, with capabilities (PCI Local Bus Specification 3.0, section 6.1 and 6.7).
class ConfigSpace {
 public:
  static constexpr size_t bytes = 256;
  static constexpr size_t command = 0x04;
  static constexpr uint16_t command_master = 1 << 2;
  static constexpr size_t capabilities = 0x34;

  ConfigSpace(uint16_t vendor, uint16_t device, uint16_t subsystem = 0, uint8_t revision = 0);
  // Appends a capability: `body` is what follows id and next pointer. Returns where it begins.
  size_t add_capability(uint8_t id, std::span<const std::byte> body);
  // Where the first capability with this id begins; 0: there is none.
  size_t find_capability(uint8_t id) const noexcept;

  // All ones beyond the end.
  uint32_t read(size_t offset, size_t width) const noexcept;
  void write(size_t offset, size_t width, uint32_t value) noexcept;
  bool is_master() const noexcept { return (read(command, 2) & command_master) != 0; }

 private:
  std::array<std::byte, bytes> space_{};
  size_t last_ = 0;   // the capability that was added last
  size_t free_ = 64;  // behind the header
};

inline constexpr uint8_t capability_msi = 0x05;
inline constexpr uint8_t capability_vendor = 0x09;
inline constexpr uint8_t capability_msix = 0x11;

class Host {
 public:
  static constexpr unsigned vectors_max = 32;

  Iommu iommu;
  bool is_master = false;     // the device's right to DMA and to raise interrupts
  bool is_unplugged = false;  // reads are all ones, nothing else happens
  // For fuzzers: sees what the device is about to write and changes it; returns how many bytes really go.
  std::function<size_t(uint64_t address, std::span<std::byte> bytes)> tamper;
  std::function<void(unsigned vector)> on_interrupt;

  // The device reads or writes memory. False: a fault, or no bus master.
  bool read(uint64_t address, std::span<std::byte> out) noexcept;
  bool write(uint64_t address, std::span<const std::byte> bytes) noexcept;
  template <class T>
  bool read_object(uint64_t address, T& out) noexcept {
    return read(address, std::as_writable_bytes(std::span(&out, 1)));
  }
  template <class T>
  bool write_object(uint64_t address, const T& value) noexcept {
    return write(address, std::as_bytes(std::span(&value, 1)));
  }

  // The device sends the message of this vector; one that is not enabled goes nowhere.
  void raise(unsigned vector) noexcept;
  unsigned vectors() const noexcept { return vectors_; }
  bool has_msix() const noexcept { return has_msix_; }

  uint64_t interrupts(unsigned vector) const noexcept { return interrupts_[vector % vectors_max].count; }
  bool is_pending(unsigned vector) const noexcept { return interrupts_[vector % vectors_max].is_pending; }
  void clear(unsigned vector) noexcept { interrupts_[vector % vectors_max].is_pending = false; }
  void enable(unsigned vectors, bool msix) noexcept;

 private:
  struct Interrupt {
    uint64_t count = 0;
    bool is_pending = false;
  };
  std::array<Interrupt, vectors_max> interrupts_{};
  unsigned vectors_ = 0;
  bool has_msix_ = false;
  std::vector<std::byte> scratch_;
};

}  // namespace weft::nic::model
