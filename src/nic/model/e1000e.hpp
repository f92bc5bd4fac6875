// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// E1000e: an Intel 82574 in memory, as far as a driver with one queue each way and legacy descriptors sees one: registers, NVM, PHY, both
// rings, filters, receive checksums, interrupts by MSI or MSI-X, link. Sections of the datasheet stand at the registers
// (nic/e1000e/registers.hpp). Must not know the driver.
//
// Contract: one thread with all stations of its hub. A doorbell is served before the write returns; a frame from the hub lies in memory
// before on_wire() returns. Time does not pass: resets, NVM and PHY answer at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nic/e1000e/registers.hpp"
#include "nic/e1000e/rings.hpp"
#include "nic/model/bus.hpp"
#include "nic/model/host.hpp"
#include "nic/model/hub.hpp"
#include "wire/neighbor.hpp"

namespace weft::nic::model {

class E1000e final : public Station {
 public:
  struct Settings {
    wire::Mac mac{std::byte{0x52}, std::byte{0x54}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
    bool has_msix = true;              // else MSI
    bool loads_mac = true;             // into receive address 0 after a reset; else only the NVM has it
    bool is_phy_powered_down = false;  // as a driver before may have left it
  };

  explicit E1000e(Hub& hub) : E1000e(hub, Settings()) {}
  E1000e(Hub& hub, const Settings& settings);
  ~E1000e();
  E1000e(const E1000e&) = delete;
  E1000e& operator=(const E1000e&) = delete;

  // --- Model ---
  void attach(Host* host) noexcept { host_ = host; }
  ConfigSpace& config() noexcept { return config_; }
  size_t bar_bytes(unsigned bar) const noexcept { return bar == 0 ? e1000e::register_bytes : 0; }
  uint32_t read(unsigned bar, size_t offset, size_t width) noexcept;
  void write(unsigned bar, size_t offset, size_t width, uint64_t value) noexcept;
  bool reset() noexcept;

  // --- Station ---
  void on_wire(std::span<const std::byte> frame) noexcept override;
  void on_carrier(bool is_up) noexcept override;

  // --- for tests ---
  // A register as it is, without what a read does.
  uint32_t peek(size_t offset) const noexcept { return registers_[offset / 4]; }
  unsigned resets() const noexcept { return resets_; }
  // Holds doorbells of the transmit ring: frames stay there until it is false again.
  void hold_transmit(bool on) noexcept;
  // What the next frames are written back with besides what is true.
  void set_errors(uint8_t errors) noexcept { errors_ = errors; }

 private:
  uint32_t& at(size_t offset) noexcept { return registers_[offset / 4]; }

  void restart() noexcept;  // CTRL.RST
  void update_link() noexcept;
  void set_causes(uint32_t causes) noexcept;
  void update_interrupts() noexcept;
  void read_nvm(uint32_t command) noexcept;
  void access_phy(uint32_t command) noexcept;

  void transmit() noexcept;
  bool passes_filter(std::span<const std::byte> frame) const noexcept;
  bool passes_address(const wire::Mac& to) const noexcept;
  size_t buffer_bytes() const noexcept;
  void receive(std::span<const std::byte> frame) noexcept;
  uint64_t checksum_status(std::span<const std::byte> frame) const noexcept;

  Hub& hub_;
  Settings settings_;
  ConfigSpace config_;
  Host* host_ = nullptr;
  std::vector<uint32_t> registers_;
  std::array<uint16_t, 64> nvm_{};
  std::array<uint16_t, 32> phy_{};
  std::vector<std::byte> sending_;  // fragments of a frame so far
  bool is_lost_ = false;  // one of them crosses a border of 4 KiB, which QEMU's card does not survive
  bool has_carrier_ = false;
  bool is_held_ = false;
  uint32_t sent_causes_ = 0;  // for which a message went; a message is an edge
  uint8_t errors_ = 0;
  unsigned resets_ = 0;
};

static_assert(Model<E1000e>);

}  // namespace weft::nic::model
