// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Transport: a virtio device behind a PCI bus (VIRTIO 1.2, section 4.1): where its registers are, reset and status,
// features, queues, doorbells. Must not know what the queues carry.
//
// Every wait for the device ends: after `reads_max` reads of a register, 10 us apart. A device that was pulled out reads as all ones.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "nic/bus.hpp"
#include "nic/virtio_net/capabilities.hpp"
#include "nic/virtio_net/spec.hpp"

namespace weft::nic::virtio_net {

template <Bus B>
class Transport {
 public:
  using Registers = typename B::Registers;
  static constexpr unsigned pause_us = 10;

  // What tells the device to look at a queue (4.1.5.2).
  struct Doorbell {
    std::optional<Registers> registers;
    size_t offset = 0;
    uint16_t queue = 0;

    [[gnu::always_inline]] void ring() noexcept { registers->write16(offset, queue); }
  };

  // Where the three areas of a queue are, for the device.
  struct Addresses {
    uint64_t descriptors = 0;
    uint64_t driver_area = 0;
    uint64_t device_area = 0;
  };

  Result<void> open(B& bus, unsigned reads_max) {
    bus_ = &bus;
    reads_max_ = reads_max;
    std::array<uint32_t, pci_config_bytes / sizeof(uint32_t)> config{};
    for (size_t i = 0; i < config.size(); ++i)
      config[i] = bus.read_config(i * sizeof(uint32_t), sizeof(uint32_t));
    auto found = find_regions(std::as_bytes(std::span(config)));
    if (!found) return found.error();
    regions_ = *found;
    for (const auto& [region, space] :
         {std::pair{&regions_.common, &common_}, std::pair{&regions_.notify, &notify_},
          std::pair{&regions_.device, &device_}}) {
      auto registers = bus.registers(region->bar);
      if (!registers) return registers.error();
      if (registers->size() < size_t{region->offset} + region->bytes)
        return Error{ENODEV, "the device says that it has registers beyond the end of BAR " +
                                 std::to_string(region->bar)};
      space->emplace(*registers);
    }
    return {};
  }

  bool is_open() const noexcept { return common_ && notify_ && device_; }
  void close() noexcept { common_.reset(), notify_.reset(), device_.reset(); }

  void pause() noexcept { bus_->wait_us(pause_us); }

  // --- status ---

  uint8_t status() const noexcept { return common_->read8(at(common::status)); }
  bool is_well() const noexcept {
    const uint8_t now = status();  // all ones have the bit, too
    return (now & (status::needs_reset | status::driver_ok)) == status::driver_ok;
  }
  void add_status(uint8_t bits) noexcept { common_->write8(at(common::status), status() | bits); }
  // The device is to stop; it may take a while (2.4, 4.1.4.3.2).
  void begin_reset() noexcept { common_->write8(at(common::status), 0); }
  // False: it has not come to an end, or the device is gone.
  bool reset() noexcept {
    begin_reset();
    for (unsigned i = 0; i < reads_max_; ++i) {
      const uint8_t now = status();
      if (now == 0 || now == 0xff) return now == 0;
      pause();
    }
    return false;
  }

  // --- features (2.2) ---

  uint64_t offered_features() noexcept {
    uint64_t features = 0;
    for (unsigned word = 0; word < 2; ++word) {
      common_->write32(at(common::device_feature_select), word);
      features |= uint64_t{common_->read32(at(common::device_feature))} << (32 * word);
    }
    return features;
  }
  // False: the device does not work with these.
  bool accept_features(uint64_t features) noexcept {
    for (unsigned word = 0; word < 2; ++word) {
      common_->write32(at(common::driver_feature_select), word);
      common_->write32(at(common::driver_feature), static_cast<uint32_t>(features >> (32 * word)));
    }
    add_status(status::features_ok);
    return (status() & status::features_ok) != 0;
  }

  // --- queues ---

  // The most descriptors that the queue takes; 0: there is no such queue.
  unsigned queue_size_max(uint16_t queue) noexcept {
    if (queue >= common_->read16(at(common::queue_count))) return 0;
    common_->write16(at(common::queue_select), queue);
    return common_->read16(at(common::queue_size));
  }
  Result<Doorbell> enable_queue(uint16_t queue, unsigned size, const Addresses& addresses, uint16_t vector) {
    common_->write16(at(common::queue_select), queue);
    common_->write16(at(common::queue_size), static_cast<uint16_t>(size));
    common_->write16(at(common::queue_vector), vector);
    if (common_->read16(at(common::queue_vector)) != vector)  // 4.1.5.1.2.1
      return Error{ENOSPC, "the device has no interrupt vector for queue " + std::to_string(queue)};
    write_address(common::queue_descriptors, addresses.descriptors);
    write_address(common::queue_driver, addresses.driver_area);
    write_address(common::queue_device, addresses.device_area);
    const uint64_t offset =
        uint64_t{common_->read16(at(common::queue_notify_offset))} * regions_.notify_multiplier;
    if (offset + sizeof(uint16_t) > regions_.notify.bytes)  // 4.1.4.4
      return Error{EPROTO, "the device says that the doorbell of queue " + std::to_string(queue) +
                               " is outside of its registers"};
    common_->write16(at(common::queue_enable), 1);
    return Doorbell{notify_, regions_.notify.offset + static_cast<size_t>(offset), queue};
  }
  // Whom configuration changes interrupt.
  bool set_config_vector(uint16_t vector) noexcept {
    common_->write16(at(common::config_vector), vector);
    return common_->read16(at(common::config_vector)) == vector;
  }

  // --- the device's own configuration; a field beyond its end is all ones ---

  uint8_t config8(size_t offset) const noexcept {
    return offset < regions_.device.bytes ? device_->read8(regions_.device.offset + offset) : 0xff;
  }
  uint16_t config16(size_t offset) const noexcept {
    return offset + 1 < regions_.device.bytes ? device_->read16(regions_.device.offset + offset) : 0xffff;
  }
  // Changes when any field does: fields that are read one after the other belong together if it is the same before and
  // after (2.5.1).
  uint8_t config_generation() const noexcept { return common_->read8(at(common::config_generation)); }

 private:
  size_t at(size_t field) const noexcept { return regions_.common.offset + field; }
  void write_address(size_t field, uint64_t address) noexcept {
    common_->write32(at(field), static_cast<uint32_t>(address));
    common_->write32(at(field) + sizeof(uint32_t), static_cast<uint32_t>(address >> 32));
  }

  B* bus_ = nullptr;
  Regions regions_;
  std::optional<Registers> common_;
  std::optional<Registers> notify_;
  std::optional<Registers> device_;
  unsigned reads_max_ = 0;
};

}  // namespace weft::nic::virtio_net
