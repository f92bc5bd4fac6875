// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Bus: how a driver reaches one PCI function: registers, configuration space, memory for DMA, interrupts. The same driver runs
// over VFIO (os/vfio) and over a model of the device in memory (nic/model). Must not know any device.
//
// Contract:
//   - One thread at a time, as the driver's owner.
//   - A device address (IOVA) is what the device uses; it says nothing about pointers. What is not mapped the device cannot reach.
//   - Everything a driver allocated and mapped it releases before the bus goes. A bus that goes has first taken the device's
//     right to DMA (bus master) and reset it, so a driver that was destroyed in a bad state cannot be written through.
//   - Control path but for Registers: calls may sleep and make system calls.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"

namespace weft::nic {

// Memory that the program and the device share: zeroed, of whole pages, contiguous for both.
struct DmaMemory {
  std::byte* bytes = nullptr;
  uint64_t address = 0;  // the device's
  size_t size = 0;
};

// What the device may do with mapped memory.
struct DmaAccess {
  bool device_reads = true;
  bool device_writes = true;
};

// One base address register's space. Offsets are in bytes, aligned to the width; little endian, as PCI is. A copy refers to the same space.
template <class R>
concept Registers = std::copyable<R> &&
    requires(const R registers, size_t offset, uint32_t value, uint64_t wide) {
  { registers.size() }
  noexcept->std::convertible_to<size_t>;
  { registers.read8(offset) }
  noexcept->std::same_as<uint8_t>;
  { registers.read16(offset) }
  noexcept->std::same_as<uint16_t>;
  { registers.read32(offset) }
  noexcept->std::same_as<uint32_t>;
  { registers.write8(offset, uint8_t(value)) }
  noexcept;
  { registers.write16(offset, uint16_t(value)) }
  noexcept;
  { registers.write32(offset, value) }
  noexcept;
  { registers.write64(offset, wide) }
  noexcept;
};

template <class B>
concept Bus = Registers<typename B::Registers> &&
    requires(B& bus, unsigned bar, size_t offset, const void* memory, size_t bytes, DmaAccess access,
             DmaMemory& held, uint64_t address, unsigned count, bool on) {
  // The space of BAR 0 to 5, from open to the end of the bus.
  { bus.registers(bar) } -> std::same_as<Result<typename B::Registers>>;
  // Configuration space: a little-endian word of 1, 2 or 4 bytes; all ones beyond its end.
  { bus.read_config(offset, bytes) } -> std::same_as<uint32_t>;
  { bus.write_config(offset, bytes, uint32_t{}) } -> std::same_as<void>;
  // The device may read and write memory and raise interrupts (PCI command register, bit 2).
  { bus.set_master(on) } -> std::same_as<Result<void>>;
  // A function-level reset; ENOTSUP where the device has none: the driver then uses the device's own.
  { bus.reset() } -> std::same_as<Result<void>>;
  // Returns after at least so long. Drivers have no clock: what they wait for they look at between such pauses, a bounded number of times.
  { bus.wait_us(count) }
  noexcept->std::same_as<void>;

  { bus.allocate(bytes) } -> std::same_as<Result<DmaMemory>>;
  { bus.release(held) }
  noexcept->std::same_as<void>;
  // Memory of the program, of any alignment; its pages are pinned. The address is that of its first byte.
  { bus.map(memory, bytes, access) } -> std::same_as<Result<uint64_t>>;
  // What map() returned. The device cannot reach it afterwards: a late access faults in the IOMMU.
  { bus.unmap(address) }
  noexcept->std::same_as<void>;

  // MSI-X or MSI: how many vectors there are now, at most `count`; each raises a descriptor of its own.
  { bus.enable_interrupts(count) } -> std::same_as<Result<unsigned>>;
  // A bus that has no descriptors (a model) says -1.
  { bus.interrupt_fd(count) }
  noexcept->std::same_as<int>;
  { bus.clear_interrupt(count) }
  noexcept->std::same_as<void>;  // the descriptor is quiet again
  { bus.disable_interrupts() }
  noexcept->std::same_as<void>;
};

}  // namespace weft::nic
