// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Stand: one driver over one model on a hub, with memory to send from: what tests, fuzzers and benchmarks put together. Must not know
// which driver.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nic/driver.hpp"
#include "nic/model/bus.hpp"
#include "nic/model/hub.hpp"
#include "wire/bytes.hpp"
#include "wire/ip.hpp"
#include "wire/neighbor.hpp"

namespace weft::nic::model {

// B: a bus over the model that does more than model::Bus.
template <class M, template <class> class D, class B = Bus<M>>
class Stand {
 public:
  using Model = M;
  using Bus = B;
  using Driver = D<Bus>;
  static_assert(nic::Driver<Driver>);
  static constexpr size_t slot_bytes = 16384;

  // Frames that came, for tests that look at them.
  struct Frame {
    std::vector<std::byte> bytes;
    bool is_checked = false;
  };

  // `slots`: how many frames may be under way, for post().
  explicit Stand(std::unique_ptr<M> owned, size_t slots = 64)
      : model(std::move(owned)), bus(*model), driver(bus), memory_(slots * slot_bytes), slots_(slots) {
    address_ = *bus.map(memory_.data(), memory_.size(), {.device_reads = true, .device_writes = false});
  }
  ~Stand() {
    driver.close();
    bus.unmap(address_);
  }
  Stand(const Stand&) = delete;
  Stand& operator=(const Stand&) = delete;

  // Posts a copy of the frame. The slots are used in turn: no more of them may be under way than there are.
  bool post(std::span<const std::byte> frame, uint64_t token = 0) {
    const size_t at = next_ * slot_bytes;
    std::copy_n(frame.begin(), std::min(frame.size(), slot_bytes),
                memory_.begin() + static_cast<ptrdiff_t>(at));
    const Fragment fragment{address_ + at, static_cast<uint32_t>(frame.size())};
    if (!driver.post(std::span(&fragment, 1), token)) return false;
    next_ = (next_ + 1) % slots_;
    return true;
  }
  bool send(std::span<const std::byte> frame, uint64_t token = 0) {
    const bool is_posted = post(frame, token);
    driver.kick();
    return is_posted;
  }
  // Tokens that came back are appended to `tokens`.
  size_t reclaim() {
    return driver.reclaim([this](uint64_t token) noexcept { tokens.push_back(token); });
  }
  size_t receive(size_t count = 64) {
    struct {
      void on_frame(std::span<const std::byte> frame, bool is_checked) noexcept {
        out.push_back({{frame.begin(), frame.end()}, is_checked});
      }
      std::vector<Frame>& out;
    } handler{frames};
    return driver.receive(handler, count);
  }

  // Where the memory to send from is, for the device and for us.
  uint64_t address() const noexcept { return address_; }
  std::span<std::byte> memory() noexcept { return memory_; }

  std::unique_ptr<M> model;
  Bus bus;
  Driver driver;
  std::vector<Frame> frames;
  std::vector<uint64_t> tokens;

 private:
  std::vector<std::byte> memory_;
  uint64_t address_ = 0;
  size_t slots_;
  size_t next_ = 0;
};

inline constexpr wire::Mac broadcast{std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                     std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};

// The address of the n-th model, locally administered.
constexpr wire::Mac mac_of(unsigned n) {
  return {
      std::byte{0x52},          std::byte{0x54}, std::byte{0}, std::byte{0}, static_cast<std::byte>(n >> 8),
      static_cast<std::byte>(n)};
}

// A frame of a type that nobody knows (IEEE 802 local experimental), its payload counting on from `seed`.
inline std::vector<std::byte> frame_of(const wire::Mac& to, const wire::Mac& from, size_t bytes,
                                       unsigned seed = 0) {
  std::vector<std::byte> frame(std::max(bytes, wire::Ethernet::bytes));
  wire::Ethernet{.destination = to, .source = from, .type = 0x88b5, .vlan = 0}.write(frame.data());
  for (size_t i = wire::Ethernet::bytes; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(seed + i);
  return frame;
}

// A UDP datagram over IPv4 in a frame, its checksums right.
inline std::vector<std::byte> udp_frame_of(const wire::Mac& to, const wire::Mac& from, size_t payload) {
  constexpr size_t heads = wire::Ethernet::bytes + wire::Ip4::bytes + wire::Udp::bytes;
  std::vector<std::byte> frame = frame_of(to, from, heads + payload);
  wire::store_big(&frame[12], wire::Ethernet::type_ip4);
  const auto length = static_cast<uint16_t>(wire::Udp::bytes + payload);
  wire::Ip4 ip;
  ip.total_bytes = static_cast<uint16_t>(wire::Ip4::bytes + length);
  ip.source = {std::byte{10}, std::byte{0}, std::byte{0}, std::byte{1}};
  ip.destination = {std::byte{10}, std::byte{0}, std::byte{0}, std::byte{2}};
  std::byte* const at = frame.data() + wire::Ethernet::bytes;
  ip.write(at);
  wire::Udp{.source = 4791, .destination = 4791, .length = length, .checksum = 0}.write(at +
                                                                                        wire::Ip4::bytes);
  // RFC 768: over addresses, protocol, length and datagram.
  std::vector<std::byte> sum(at + 12, at + wire::Ip4::bytes);
  sum.resize(sum.size() + 4);
  wire::store_big(&sum[8], uint16_t{wire::protocol_udp});
  wire::store_big(&sum[10], length);
  sum.insert(sum.end(), at + wire::Ip4::bytes, at + wire::Ip4::bytes + length);
  wire::store_big(at + wire::Ip4::bytes + 6, wire::internet_checksum(sum));
  return frame;
}

}  // namespace weft::nic::model
