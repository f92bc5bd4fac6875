// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Bus<Model>: nic::Bus over a model of a device in memory, so that a driver runs natively in tests, fuzzers and benchmarks. Counts
// accesses to registers. Must not know which device.
//
// Contract: one thread. The model outlives the bus. What a driver did not release is counted when the bus goes (leaked()).
#pragma once

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>

#include "base/result.hpp"
#include "nic/bus.hpp"
#include "nic/model/host.hpp"

namespace weft::nic::model {

template <class M>
concept Model = requires(M& model, Host* host, unsigned bar, size_t offset, size_t width, uint64_t value) {
  // From now on the device is plugged into this host; null: into none.
  { model.attach(host) }
  noexcept;
  { model.config() }
  noexcept->std::same_as<ConfigSpace&>;
  // 0: the function has no such BAR.
  { model.bar_bytes(bar) }
  noexcept->std::convertible_to<size_t>;
  // The offset is within the BAR and aligned to the width: 1, 2, 4 or 8 bytes.
  { model.read(bar, offset, width) }
  noexcept->std::same_as<uint32_t>;
  { model.write(bar, offset, width, value) }
  noexcept;
  // Power-on state; false: the function cannot be reset from outside (no FLR).
  { model.reset() }
  noexcept->std::same_as<bool>;
};

struct Accesses {
  uint64_t reads = 0;
  uint64_t writes = 0;
};

template <Model M>
class Bus {
 public:
  class Registers {
   public:
    Registers(Bus& bus, unsigned bar) noexcept : bus_(&bus), bar_(bar) {}
    size_t size() const noexcept { return bus_->model_.bar_bytes(bar_); }
    uint8_t read8(size_t offset) const noexcept { return static_cast<uint8_t>(bus_->load(bar_, offset, 1)); }
    uint16_t read16(size_t offset) const noexcept {
      return static_cast<uint16_t>(bus_->load(bar_, offset, 2));
    }
    uint32_t read32(size_t offset) const noexcept { return bus_->load(bar_, offset, 4); }
    void write8(size_t offset, uint8_t value) const noexcept { bus_->store(bar_, offset, 1, value); }
    void write16(size_t offset, uint16_t value) const noexcept { bus_->store(bar_, offset, 2, value); }
    void write32(size_t offset, uint32_t value) const noexcept { bus_->store(bar_, offset, 4, value); }
    void write64(size_t offset, uint64_t value) const noexcept { bus_->store(bar_, offset, 8, value); }

   private:
    Bus* bus_;
    unsigned bar_;
  };

  explicit Bus(M& model) : model_(model) { model_.attach(&host_); }
  ~Bus() {
    host_.is_master = false;
    host_.enable(0, false);
    model_.reset();
    model_.attach(nullptr);
  }
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;

  // --- nic::Bus ---
  Result<Registers> registers(unsigned bar) {
    if (model_.bar_bytes(bar) == 0) return Error{ENODEV, "the device has no BAR " + std::to_string(bar)};
    return Registers(*this, bar);
  }
  uint32_t read_config(size_t offset, size_t bytes) {
    return host_.is_unplugged ? 0xffffffff >> (8 * (4 - bytes)) : model_.config().read(offset, bytes);
  }
  void write_config(size_t offset, size_t bytes, uint32_t value) {
    if (!host_.is_unplugged) model_.config().write(offset, bytes, value);
    if (offset == ConfigSpace::command) host_.is_master = model_.config().is_master();
  }
  Result<void> set_master(bool on) {
    const uint32_t command = model_.config().read(ConfigSpace::command, 2);
    const uint32_t master = ConfigSpace::command_master;
    write_config(ConfigSpace::command, 2, on ? command | master : command & ~master);
    return {};
  }
  Result<void> reset() {
    if (!model_.reset()) return Error{ENOTSUP, "the device has no function-level reset"};
    return {};
  }
  void wait_us(unsigned microseconds) noexcept { waited_us_ += microseconds; }

  Result<DmaMemory> allocate(size_t bytes) {
    const size_t size = (bytes + Iommu::page_bytes - 1) / Iommu::page_bytes * Iommu::page_bytes;
    Memory memory(static_cast<std::byte*>(std::aligned_alloc(Iommu::page_bytes, size)));
    if (size == 0 || !memory) return Error{ENOMEM, "no memory for DMA"};
    std::memset(memory.get(), 0, size);
    const uint64_t address = host_.iommu.map(memory.get(), size, {});
    DmaMemory out{memory.get(), address, size};
    allocated_.emplace(address, std::move(memory));
    return out;
  }
  void release(DmaMemory& held) noexcept {
    host_.iommu.unmap(held.address);
    allocated_.erase(held.address);
    held = {};
  }
  Result<uint64_t> map(const void* memory, size_t bytes, DmaAccess access) {
    if (bytes == 0) return Error{EINVAL, "nothing to map"};
    // The device may write where the access says so; the caller owns the memory.
    return host_.iommu.map(const_cast<std::byte*>(static_cast<const std::byte*>(memory)), bytes, access);
  }
  void unmap(uint64_t address) noexcept { host_.iommu.unmap(address); }

  Result<unsigned> enable_interrupts(unsigned count) {
    const ConfigSpace& config = model_.config();
    unsigned most = 0;
    const size_t msix = config.find_capability(capability_msix);
    if (msix) most = (config.read(msix + 2, 2) & 0x7ff) + 1;  // message control: size of the table, less 1
    else if (config.find_capability(capability_msi)) most = 1;
    if (most == 0 || count == 0) return Error{ENOTSUP, "the device has no message-signalled interrupts"};
    host_.enable(count < most ? count : most, msix != 0);
    return host_.vectors();
  }
  int interrupt_fd(unsigned) noexcept { return -1; }
  void clear_interrupt(unsigned vector) noexcept { host_.clear(vector); }
  void disable_interrupts() noexcept { host_.enable(0, false); }

  // --- for tests ---
  Host& host() noexcept { return host_; }
  M& model() noexcept { return model_; }
  Accesses& accesses() noexcept { return accesses_; }
  uint64_t waited_us() const noexcept { return waited_us_; }
  // Memory and mappings that nobody gave back.
  size_t leaked() const noexcept { return host_.iommu.mappings().size(); }
  // The device is pulled out: registers read all ones, nothing it does reaches memory.
  void unplug() noexcept { host_.is_unplugged = true; }
  // Another one of the kind, as it comes out of its box.
  void plug() noexcept {
    if (!host_.is_unplugged) return;
    host_.is_unplugged = false;
    model_.reset();
    write_config(ConfigSpace::command, 2, 0);
  }
  // Called before each access to a register: tests let things happen then.
  std::function<void()> on_access;
  // For fuzzers: changes what the driver reads of a register.
  std::function<uint32_t(unsigned bar, size_t offset, uint32_t value)> tamper_read;

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  uint32_t load(unsigned bar, size_t offset, size_t width) noexcept {
    ++accesses_.reads;
    if (on_access) on_access();
    const uint32_t ones = 0xffffffff >> (8 * (4 - width));
    if (host_.is_unplugged || !fits(bar, offset, width)) return ones;
    const uint32_t value = model_.read(bar, offset, width);
    return tamper_read ? tamper_read(bar, offset, value) & ones : value;
  }
  void store(unsigned bar, size_t offset, size_t width, uint64_t value) noexcept {
    ++accesses_.writes;
    if (on_access) on_access();
    if (!host_.is_unplugged && fits(bar, offset, width)) model_.write(bar, offset, width, value);
  }
  // A driver that misses the BAR or the alignment is wrong: no device would take it.
  bool fits(unsigned bar, size_t offset, size_t width) noexcept {
    if (offset % width == 0 && offset + width <= model_.bar_bytes(bar)) return true;
    ++bad_accesses_;
    return false;
  }

 public:
  uint64_t bad_accesses() const noexcept { return bad_accesses_; }

 private:
  M& model_;
  Host host_;
  Accesses accesses_;
  std::map<uint64_t, Memory> allocated_;
  uint64_t waited_us_ = 0;
  uint64_t bad_accesses_ = 0;
};

}  // namespace weft::nic::model
