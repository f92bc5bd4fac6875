// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Hardware: the control path of an 82574: reset, link, MAC address, quiet. Everything here may be slow. Must not know rings' contents.
//
// Nothing waits without a bound: a device that never answers costs milliseconds and a refusal.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "nic/bus.hpp"
#include "nic/e1000e/registers.hpp"
#include "wire/neighbor.hpp"

namespace weft::nic::e1000e {

inline constexpr unsigned checks_max = 100;  // of one wait
inline constexpr unsigned check_us = 100;    // between two

// Of one station: not a group's, not zero.
bool is_station(const wire::Mac& mac) noexcept;
wire::Mac mac_of(uint32_t low, uint32_t high) noexcept;
uint32_t low_of(const wire::Mac& mac) noexcept;
uint32_t high_of(const wire::Mac& mac) noexcept;

template <nic::Bus B>
class Hardware {
 public:
  using Registers = typename B::Registers;

  Hardware(B& bus, Registers registers) noexcept : bus_(bus), registers_(registers) {}

  // Datasheet 4.6.2: interrupts off, reset, interrupts off again. The device neither reads nor writes memory afterwards.
  Result<void> reset() noexcept {
    registers_.write32(Imc::at, all_ones);
    stop_requests();
    registers_.write32(Ctrl::at, registers_.read32(Ctrl::at) | Ctrl::reset);
    bus_.wait_us(check_us);  // the register must not be read at once
    if (!wait_for([&] { return (registers_.read32(Ctrl::at) & Ctrl::reset) == 0; }))
      return Error{EIO, "the 82574 does not come out of its reset"};
    // It loads its defaults from the NVM. One without an NVM never says so, and works.
    wait_for([&] { return (registers_.read32(Eec::at) & Eec::auto_read_done) != 0; });
    registers_.write32(Imc::at, all_ones);
    static_cast<void>(registers_.read32(Icr::at));  // forgets causes
    if (registers_.read32(Status::at) == all_ones)
      return Error{ENODEV, "the 82574 does not answer: is it unplugged?"};
    return {};
  }

  // No more requests on PCIe, so that none is under way when the reset comes (CTRL.GIO Master Disable, 10.2.2.1).
  void stop_requests() noexcept {
    registers_.write32(Rctl::at, 0);
    registers_.write32(Tctl::at, 0);
    registers_.write32(Ctrl::at, registers_.read32(Ctrl::at) | Ctrl::gio_master_disable);
    wait_for([&] { return (registers_.read32(Status::at) & Status::gio_master_enable) == 0; });
  }

  // 4.6.4: the PHY negotiates, the MAC takes over what it found. No flow control: a stopped program would stop its peers.
  void bring_link_up() noexcept {
    uint32_t ctrl = registers_.read32(Ctrl::at);
    ctrl &=
        ~(Ctrl::force_speed | Ctrl::force_duplex | Ctrl::receive_flow_control | Ctrl::transmit_flow_control |
          Ctrl::vlan_mode | Ctrl::gio_master_disable | Ctrl::reset | Ctrl::phy_reset);
    registers_.write32(Ctrl::at, ctrl | Ctrl::set_link_up | Ctrl::full_duplex);
    wake_phy();
  }

  // Of receive address 0, which the reset loaded from the NVM; else from the NVM itself (words 0 to 2, datasheet 6.1.1.1).
  Result<wire::Mac> mac() noexcept {
    const uint32_t high = registers_.read32(Rah::at);
    if (const wire::Mac mac = mac_of(registers_.read32(Ral::at), high);
        (high & Rah::valid) && is_station(mac))
      return mac;
    std::array<uint16_t, 3> words{};
    for (unsigned i = 0; i < words.size(); ++i)
      if (!read_nvm(i, words[i]))
        return Error{EADDRNOTAVAIL, "the 82574 has no MAC address, and its NVM does not answer"};
    const wire::Mac mac = mac_of(words[0] | uint32_t{words[1]} << 16, words[2]);
    if (!is_station(mac)) return Error{EADDRNOTAVAIL, "the NVM of the 82574 has no MAC address"};
    return mac;
  }

 private:
  // True when `is_done` was. Looks at least once.
  template <class F>
  bool wait_for(F is_done) noexcept {
    for (unsigned checks = 0; checks < checks_max; ++checks) {
      if (is_done()) return true;
      bus_.wait_us(check_us);
    }
    return false;
  }

  bool read_nvm(unsigned address, uint16_t& out) noexcept {
    registers_.write32(Eerd::at, address << Eerd::address_shift | Eerd::start);
    uint32_t value = 0;
    const bool is_done = wait_for([&] { return ((value = registers_.read32(Eerd::at)) & Eerd::done) != 0; });
    out = static_cast<uint16_t>(value >> Eerd::data_shift);
    return is_done && value != all_ones;
  }

  // Negotiation is on after a power-up. A driver before us may have powered the PHY down or forced it; otherwise it is left alone,
  // since a new negotiation takes seconds.
  void wake_phy() noexcept {
    registers_.write32(ExtcnfCtrl::at, registers_.read32(ExtcnfCtrl::at) | ExtcnfCtrl::mdio_software);
    const bool has_phy =
        wait_for([&] { return (registers_.read32(ExtcnfCtrl::at) & ExtcnfCtrl::mdio_software) != 0; });
    if (!has_phy) return;  // the firmware has the PHY, and keeps it awake
    uint16_t control = 0;
    if (read_phy(PhyControl::number, control)) {
      const uint16_t awake =
          static_cast<uint16_t>((control & ~PhyControl::power_down) | PhyControl::negotiate);
      if (awake != control) write_phy(PhyControl::number, awake | PhyControl::restart_negotiation);
    }
    registers_.write32(ExtcnfCtrl::at, registers_.read32(ExtcnfCtrl::at) & ~ExtcnfCtrl::mdio_software);
  }

  bool read_phy(unsigned number, uint16_t& out) noexcept {
    const uint32_t value = phy_access(number, Mdic::read);
    out = static_cast<uint16_t>(value & Mdic::data);
    return (value & (Mdic::ready | Mdic::error)) == Mdic::ready;
  }
  void write_phy(unsigned number, uint16_t value) noexcept { phy_access(number, Mdic::write | value); }
  uint32_t phy_access(unsigned number, uint32_t operation) noexcept {
    registers_.write32(Mdic::at, operation | Mdic::phy | number << Mdic::register_shift);
    uint32_t value = 0;
    wait_for([&] { return ((value = registers_.read32(Mdic::at)) & Mdic::ready) != 0; });
    return value;
  }

  B& bus_;
  Registers registers_;
};

}  // namespace weft::nic::e1000e
