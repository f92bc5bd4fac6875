// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A PCI function that VFIO hands over: what nic::Bus asks for, by system calls. Must not know what the device is.
//
// One thread at a time. Registers may be used by whoever keeps the order that the device wants. A child of fork(2) has neither registers nor
// memory for DMA (MADV_DONTFORK); it may destroy the object, which closes its descriptors and leaves the device alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/pci.hpp>

#include "base/result.hpp"
#include "nic/bus.hpp"
#include "os/event.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"
#include "os/vfio/container.hpp"
#include "os/vfio/group.hpp"
#include "os/vfio/region.hpp"

namespace weft::os::vfio {

struct DeviceSettings {
  unsigned address_bits = 64;  // that the device can put on the bus
  bool use_msix = true;        // false: MSI, even where the device has MSI-X
  std::string root = {};       // before /sys and /dev: of a tree that looks like them (tests)
};

class Device {
 public:
  using Registers = vfio::Registers;
  enum class Interrupts { none, msi, msix };

  // "0000:00:04.0" or "00:04.0". The device has been reset, may not do DMA, and raises nothing. Every refusal says what is in the way.
  static Result<std::unique_ptr<Device>> open(std::string_view address, const DeviceSettings& settings = {});
  // Takes the right to DMA, resets, unmaps everything.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const pci::Function& function() const noexcept { return function_; }
  const IommuLimits& limits() const noexcept { return container_.limits(); }
  size_t mappings() const noexcept { return container_.mappings(); }
  bool has_reset() const noexcept { return has_reset_; }
  Interrupts interrupts() const noexcept { return interrupts_; }
  // Vectors that the device has of a kind.
  unsigned vectors_max(Interrupts kind) const noexcept;
  // How many bytes of a BAR are mapped; 0 before registers() of it.
  uint64_t mapped_bytes(unsigned bar) const noexcept {
    return bar < bars_max ? bars_[bar].mapped_bytes() : 0;
  }

  // nic::Bus.
  Result<Registers> registers(unsigned bar);
  uint32_t read_config(size_t offset, size_t bytes) const;
  // The bit that lets the registers be reached (command register, bit 1) stays on: without it they raise SIGBUS.
  void write_config(size_t offset, size_t bytes, uint32_t value);
  Result<void> set_master(bool on);
  Result<void> reset();
  void wait_us(unsigned us) noexcept;
  Result<nic::DmaMemory> allocate(size_t bytes);
  void release(nic::DmaMemory& memory) noexcept;
  Result<uint64_t> map(const void* memory, size_t bytes, nic::DmaAccess access);
  void unmap(uint64_t address) noexcept { container_.unmap(address); }
  Result<unsigned> enable_interrupts(unsigned count);
  int interrupt_fd(unsigned vector) const noexcept;
  void clear_interrupt(unsigned vector) noexcept;
  void disable_interrupts() noexcept;

 private:
  static constexpr unsigned bars_max = 6;

  Device(pci::Function function, Container container, Group group, Fd fd);
  Result<void> check_all();
  Error refused(int code, const std::string& what) const;
  // Arms the vectors. 0, a negative errno, or how many vectors there are instead.
  int set_vectors(uint32_t index, const std::vector<int>& fds) noexcept;

  pci::Function function_;
  Origin origin_;
  // Closed in the reverse order: the device, then its group, then the container.
  Container container_;
  Group group_;
  Fd fd_;
  bool has_reset_ = false;
  bool use_msix_ = true;
  unsigned msi_vectors_ = 0;
  unsigned msix_vectors_ = 0;
  Region config_;
  std::array<Region, bars_max> bars_;
  std::map<uint64_t, nic::DmaMemory> memory_;  // what allocate() gave, by address
  Interrupts interrupts_ = Interrupts::none;
  std::vector<Event> events_;
};

static_assert(nic::Bus<Device>);

}  // namespace weft::os::vfio
