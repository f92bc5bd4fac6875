// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "nic/model/e1000e.hpp"

#include <algorithm>
#include <cstring>

#include "wire/bytes.hpp"
#include "wire/ip.hpp"

namespace weft::nic::model {

using namespace e1000e;

namespace {

constexpr uint16_t nvm_mac = 0;  // words 0 to 2
constexpr size_t checksum_offset_udp = 6;
constexpr size_t checksum_offset_tcp = 16;
constexpr uint8_t protocol_tcp = 6;

// RFC 768, RFC 9293 3.1, RFC 8200 8.1: over addresses, length, protocol and segment.
bool is_transport_right(const std::span<const std::byte> addresses, uint8_t protocol,
                        std::span<const std::byte> segment) {
  const size_t offset = protocol == wire::protocol_udp ? checksum_offset_udp : checksum_offset_tcp;
  if (segment.size() < offset + 2) return false;
  if (protocol == wire::protocol_udp && wire::load_big<uint16_t>(&segment[offset]) == 0)
    return false;  // none
  std::vector<std::byte> all(addresses.begin(), addresses.end());
  all.resize(all.size() + 4);
  wire::store_big(&all[all.size() - 4], static_cast<uint16_t>(segment.size()));
  wire::store_big(&all[all.size() - 2], uint16_t{protocol});
  all.insert(all.end(), segment.begin(), segment.end());
  return wire::internet_checksum(all) == 0;
}

}  // namespace

E1000e::E1000e(Hub& hub, const Settings& settings)
    : hub_(hub), settings_(settings), config_(vendor_intel, device_82574), registers_(register_bytes / 4) {
  std::array<std::byte, 22> msi{};
  msi[0] = std::byte{0x80};  // message control: 64-bit addresses, one vector
  config_.add_capability(capability_msi, msi);
  if (settings.has_msix) {
    std::array<std::byte, 10> msix{std::byte{4}};  // message control: five vectors
    msix[2] = msix[6] = std::byte{3};              // table and pending bits are in BAR 3
    config_.add_capability(capability_msix, msix);
  }
  for (unsigned i = 0; i < 3; ++i)
    nvm_[nvm_mac + i] = static_cast<uint16_t>(std::to_integer<unsigned>(settings.mac[2 * i]) |
                                              std::to_integer<unsigned>(settings.mac[2 * i + 1]) << 8);
  phy_[PhyControl::number] = settings.is_phy_powered_down ? PhyControl::power_down : PhyControl::negotiate;
  restart();
  resets_ = 0;
  hub_.plug(*this);
}

E1000e::~E1000e() { hub_.unplug(*this); }

// --- registers ---

uint32_t E1000e::read(unsigned, size_t offset, size_t width) noexcept {
  if (width != 4) return all_ones;  // 10.1.1: registers are of 32 bits
  const uint32_t value = at(offset);
  switch (offset) {
    case Icr::at:
      if (at(Ims::at) == 0) at(Icr::at) = 0;
      break;
    case Mpc::at:
      at(Mpc::at) = 0;
      break;
    default:
      break;
  }
  return value;
}

void E1000e::write(unsigned, size_t offset, size_t width, uint64_t wide) noexcept {
  if (width != 4) return;
  const auto value = static_cast<uint32_t>(wide);
  switch (offset) {
    case Status::at:
      break;  // read only
    case Ctrl::at:
      if (value & Ctrl::reset) {
        restart();
      } else {
        at(Ctrl::at) = value;
        const bool is_stopped = (value & Ctrl::gio_master_disable) != 0;
        at(Status::at) =
            (at(Status::at) & ~Status::gio_master_enable) | (is_stopped ? 0 : Status::gio_master_enable);
        update_link();
      }
      break;
    case Eerd::at:
      read_nvm(value);
      break;
    case Mdic::at:
      access_phy(value);
      break;
    case Icr::at:
      at(Icr::at) &= ~value;
      update_interrupts();
      break;
    case Ics::at:
      set_causes(value);
      break;
    case Ims::at:
      at(Ims::at) |= value;
      update_interrupts();
      break;
    case Imc::at:
      at(Ims::at) &= ~value;
      update_interrupts();
      break;
    case Tdt::at:
    case Tctl::at:
      at(offset) = value;
      transmit();
      break;
    default:
      at(offset) = value;
      break;
  }
}

bool E1000e::reset() noexcept {
  restart();
  return true;
}

void E1000e::restart() noexcept {
  ++resets_;
  std::memset(registers_.data(), 0, register_bytes);
  sending_.clear();
  is_lost_ = false;
  sent_causes_ = 0;
  at(Status::at) = Status::gio_master_enable;
  at(Eec::at) = Eec::auto_read_done;
  if (settings_.loads_mac) {
    at(Ral::at) = uint32_t{nvm_[nvm_mac]} | uint32_t{nvm_[nvm_mac + 1]} << 16;
    at(Rah::at) = uint32_t{nvm_[nvm_mac + 2]} | Rah::valid;
  }
  update_link();
}

void E1000e::read_nvm(uint32_t command) noexcept {
  const uint32_t word = (command >> Eerd::address_shift) & 0x3fff;
  if (!(command & Eerd::start)) return;
  const uint32_t data = word < nvm_.size() ? nvm_[word] : 0xffff;
  at(Eerd::at) = data << Eerd::data_shift | word << Eerd::address_shift | Eerd::done;
}

void E1000e::access_phy(uint32_t command) noexcept {
  const size_t number = (command >> Mdic::register_shift) % phy_.size();
  const bool has_phy = (at(ExtcnfCtrl::at) & ExtcnfCtrl::mdio_software) != 0;
  uint32_t answer = (command & ~Mdic::data) | Mdic::ready;
  if (!has_phy) {
    answer |= Mdic::error;
  } else if (command & Mdic::read) {
    answer |= phy_[number];
  } else {
    phy_[number] = static_cast<uint16_t>(command & Mdic::data & ~uint32_t{PhyControl::restart_negotiation});
    update_link();
  }
  at(Mdic::at) = answer;
}

// --- link and interrupts ---

void E1000e::on_carrier(bool is_up) noexcept {
  has_carrier_ = is_up;
  update_link();
}

void E1000e::update_link() noexcept {
  const bool is_awake = !(phy_[PhyControl::number] & PhyControl::power_down);
  const bool is_up = has_carrier_ && is_awake && (at(Ctrl::at) & Ctrl::set_link_up);
  const bool was_up = (at(Status::at) & Status::link_up) != 0;
  if (is_up == was_up) return;
  at(Status::at) ^= Status::link_up | Status::full_duplex | Status::speed_1000;
  set_causes(Icr::link_change);
}

void E1000e::set_causes(uint32_t causes) noexcept {
  at(Icr::at) |= causes;
  if (host_ && host_->has_msix() && (causes & (Icr::link_change | Icr::receive_overrun)))
    at(Icr::at) |= Icr::other;
  update_interrupts();
}

// A message goes when a cause that is unmasked appears, or when one that is there is unmasked.
void E1000e::update_interrupts() noexcept {
  const uint32_t causes = at(Icr::at) & at(Ims::at) & ~Icr::asserted;
  const uint32_t appeared = causes & ~sent_causes_;
  sent_causes_ = causes;
  if (!appeared || !host_) return;
  if (!host_->has_msix()) return host_->raise(0);
  const auto send = [&](uint32_t cause, unsigned shift) {
    const uint32_t entry = at(Ivar::at) >> shift;
    if ((appeared & cause) && (entry & Ivar::valid)) host_->raise(entry & Ivar::vector);
  };
  send(Icr::receive_queue_0, Ivar::receive_queue_0_shift);
  send(Icr::other, Ivar::other_shift);
}

// --- transmit ---

void E1000e::hold_transmit(bool on) noexcept {
  is_held_ = on;
  transmit();
}

void E1000e::transmit() noexcept {
  const uint32_t size = at(Tdlen::at) / sizeof(Descriptor);
  if (is_held_ || !host_ || size == 0 || !(at(Tctl::at) & Tctl::enable)) return;
  const uint64_t ring = uint64_t{at(Tdbah::at)} << 32 | at(Tdbal::at);
  for (uint32_t checked = 0; at(Tdh::at) != at(Tdt::at) % size && checked < size; ++checked) {
    const uint64_t address = ring + at(Tdh::at) % size * sizeof(Descriptor);
    Descriptor descriptor{};
    if (!host_->read_object(address, descriptor)) return;  // it would report an error by PCIe, and hang
    const size_t bytes = descriptor.word & TransmitWord::length;
    if (bytes != 0 && descriptor.address / border_bytes != (descriptor.address + bytes - 1) / border_bytes)
      is_lost_ = true;
    const size_t before = sending_.size();
    sending_.resize(before + bytes);
    if (!host_->read(descriptor.address, std::span(sending_).subspan(before))) return;
    if (descriptor.word & TransmitWord::end_of_packet) {
      if ((at(Tctl::at) & Tctl::pad) && sending_.size() < 60) sending_.resize(60);
      if ((at(Status::at) & Status::link_up) && !is_lost_) hub_.send(*this, sending_);
      sending_.clear();
      is_lost_ = false;
    }
    at(Tdh::at) = (at(Tdh::at) + 1) % size;
    if (descriptor.word & TransmitWord::report_status) {
      const auto status = static_cast<uint8_t>(TransmitWord::done >> 32);
      host_->write_object(address + offsetof(Descriptor, word) + 4, status);
      set_causes(Icr::transmit_written_back);
    }
  }
}

// --- receive ---

void E1000e::on_wire(std::span<const std::byte> frame) noexcept {
  if (!host_ || !(at(Rctl::at) & Rctl::enable) || !(at(Status::at) & Status::link_up) ||
      !passes_filter(frame))
    return;
  receive(frame);
}

bool E1000e::passes_filter(std::span<const std::byte> frame) const noexcept {
  constexpr size_t largest = 16384;
  const size_t bytes_max = peek(Rctl::at) & Rctl::long_packets ? largest : frame_bytes_plain;
  if (frame.size() < wire::Ethernet::bytes || frame.size() > bytes_max) return false;
  wire::Mac to;
  std::copy_n(frame.begin(), to.size(), to.begin());
  return passes_address(to);
}

// 7.1.1
bool E1000e::passes_address(const wire::Mac& to) const noexcept {
  const uint32_t control = peek(Rctl::at);
  const bool is_group = (to[0] & std::byte{1}) != std::byte{0};
  const bool is_broadcast =
      std::all_of(to.begin(), to.end(), [](std::byte b) { return b == std::byte{0xff}; });
  if (is_broadcast && (control & Rctl::accept_broadcast)) return true;
  if (control & (is_group ? Rctl::multicast_promiscuous : Rctl::unicast_promiscuous)) return true;
  uint32_t low = 0;
  uint16_t high = 0;
  std::memcpy(&low, &to[0], sizeof low);
  std::memcpy(&high, &to[4], sizeof high);
  for (unsigned i = 0; i < Ral::count; ++i)
    if (peek(Ral::at + i * Ral::stride) == low && peek(Rah::at + i * Ral::stride) == (Rah::valid | high))
      return true;
  const unsigned bit_number =
      (std::to_integer<unsigned>(to[5]) << 4 | std::to_integer<unsigned>(to[4]) >> 4) & 0xfff;
  return is_group && (peek(Mta::at + bit_number / 32 * 4) & bit(bit_number % 32));
}

size_t E1000e::buffer_bytes() const noexcept {
  const size_t kib = peek(Rctl::at) >> Rctl::flexible_buffer_shift & Rctl::flexible_buffer;
  return (kib ? kib : 2) * 1024;
}

void E1000e::receive(std::span<const std::byte> frame) noexcept {
  const uint32_t size = at(Rdlen::at) / sizeof(Descriptor);
  const size_t room = buffer_bytes();
  if (size == 0) return;
  const uint32_t head = at(Rdh::at) % size;
  const uint32_t free = (at(Rdt::at) % size + size - head) % size;
  if ((frame.size() + room - 1) / room > free) {
    ++at(Mpc::at);
    return set_causes(Icr::receive_overrun);
  }
  const uint64_t ring = uint64_t{at(Rdbah::at)} << 32 | at(Rdbal::at);
  const uint64_t status = ReceiveWord::done | checksum_status(frame);
  while (!frame.empty()) {
    const uint64_t address = ring + at(Rdh::at) % size * sizeof(Descriptor);
    Descriptor descriptor{};
    const auto piece = frame.first(std::min(room, frame.size()));
    frame = frame.subspan(piece.size());
    if (!host_->read_object(address, descriptor) || !host_->write(descriptor.address, piece)) return;
    const uint64_t end = frame.empty() ? ReceiveWord::end_of_packet | uint64_t{errors_} << 40 : 0;
    host_->write_object(address + offsetof(Descriptor, word), piece.size() | status | end);
    at(Rdh::at) = (at(Rdh::at) + 1) % size;
  }
  set_causes(host_->has_msix() ? Icr::receive_queue_0 : Icr::receive_timer);
}

// 7.1.10: what RXCSUM asks for, of packets that it understands.
uint64_t E1000e::checksum_status(std::span<const std::byte> frame) const noexcept {
  wire::Ethernet ethernet;
  wire::Bytes packet;
  if (!wire::Ethernet::read(frame, ethernet, packet)) return ReceiveWord::ignore_checksum;
  uint64_t status = 0;
  uint8_t protocol = 0;
  std::span<const std::byte> addresses;
  wire::Bytes segment;
  if (ethernet.type == wire::Ethernet::type_ip4 && packet.size() >= wire::Ip4::bytes) {
    wire::Ip4 ip;
    if (peek(Rxcsum::at) & Rxcsum::ip) status |= ReceiveWord::ip_checked;
    if (!wire::Ip4::read(packet, ip, segment)) return status | uint64_t{0x40} << 40;  // IPE
    if (ip.is_fragment()) return status;
    protocol = ip.protocol;
    addresses = packet.subspan(12, 8);
  } else if (ethernet.type == wire::Ethernet::type_ip6 && packet.size() >= wire::Ip6::bytes) {
    wire::Ip6 ip;
    if (!wire::Ip6::read(packet, ip, segment)) return ReceiveWord::ignore_checksum;
    protocol = ip.next_header;
    addresses = packet.subspan(8, 32);
  } else {
    return ReceiveWord::ignore_checksum;
  }
  if ((protocol != wire::protocol_udp && protocol != protocol_tcp) || !(peek(Rxcsum::at) & Rxcsum::tcp_udp))
    return status;
  if (protocol == wire::protocol_udp && segment.size() >= 8 &&
      wire::load_big<uint16_t>(&segment[checksum_offset_udp]) == 0)
    return status;
  status |= ReceiveWord::transport_checked;
  return is_transport_right(addresses, protocol, segment) ? status : status | uint64_t{0x20} << 40;  // TCPE
}

}  // namespace weft::nic::model
