// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tabled: the one provider of a plugin, known by the table that its objects were compiled with (weft/plugin.hpp), as weft::Packets and as a PacketLink.
// So a core is compiled once, for every provider. Must not know what is in the packets.
#pragma once

#include <weft/plugin.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "link/kit/over_packets.hpp"

namespace weft::link::kit {

// What PacketsTable had in version 1.0: no table is smaller.
inline constexpr size_t table_bytes_least = offsetof(PacketsTable, is_available) + sizeof(void*);

// Why this core cannot have a provider with this table, as a sentence for its author; empty when it can. Reads nothing but the first three members
// before it knows that the rest is there.
std::string fault_of_table(const PacketsTable& table);

// The table of the plugin, what it does not have being zero.
inline PacketsTable provider_table{};
// The part of the table that this core knows.
inline void use_table(const PacketsTable& table) noexcept {
  provider_table = {};
  std::memcpy(&provider_table, &table, std::min<size_t>(table.bytes, sizeof provider_table));
}

class Tabled {
 public:
  static constexpr size_t address_bytes_max = address_bytes_limit;
  static constexpr bool alters_packets = false;    // traits() has what the table says
  static constexpr size_t train_packets_max = 64;  // likewise

  Tabled() : self_(provider_table.make()) {
    if (self_ == nullptr) throw std::bad_alloc();
  }
  Tabled(const Tabled&) = delete;
  Tabled& operator=(const Tabled&) = delete;
  ~Tabled() { provider_table.destroy(self_); }

  int open(Bytes address) { return provider_table.open(self_, address.data(), address.size()); }
  void close() noexcept { provider_table.close(self_); }
  static size_t longest_address() noexcept { return provider_table.address_bytes_max; }
  Bytes address() noexcept {
    size_t bytes = 0;
    const std::byte* own = provider_table.address(self_, &bytes);
    return {own, bytes};
  }
  size_t packet_bytes_max(Bytes to) noexcept {
    return provider_table.packet_bytes_max(self_, to.data(), to.size());
  }
  int send(Bytes to, const iovec* parts, size_t count) noexcept {
    return provider_table.send(self_, to.data(), to.size(), parts, count);
  }
  int receive(PacketSink& sink) noexcept { return provider_table.receive(self_, &sink); }
  static std::string address_text(Bytes address) {
    if (address.size() > provider_table.address_bytes_max) return {};
    return taken<std::string, char>([&](char* place, size_t room) noexcept {
      return provider_table.address_text(address.data(), address.size(), place, room);
    });
  }
  static std::vector<std::byte> address_from_text(std::string_view text) {
    return taken<std::vector<std::byte>, std::byte>([&](std::byte* place, size_t room) noexcept {
      return provider_table.address_from_text(text.data(), text.size(), place, room);
    });
  }

  int send_train(Bytes to, const iovec* parts, size_t count, size_t packet_bytes) noexcept {
    return provider_table.send_train(self_, to.data(), to.size(), parts, count, packet_bytes);
  }
  int wait_fd() noexcept { return provider_table.wait_fd != nullptr ? provider_table.wait_fd(self_) : -1; }
  size_t take_refusal(std::span<std::byte> place) noexcept {
    if (provider_table.take_refusal == nullptr) return 0;
    return provider_table.take_refusal(self_, place.data(), place.size());
  }
  std::string reason() {
    if (provider_table.reason == nullptr) return {};
    return taken<std::string, char>(
        [&](char* place, size_t room) noexcept { return provider_table.reason(self_, place, room); });
  }
  static bool resolves() noexcept { return provider_table.resolve != nullptr; }
  static std::vector<std::byte> resolve(const char* node, const char* service, bool source) {
    return taken<std::vector<std::byte>, std::byte>([&](std::byte* place, size_t room) noexcept {
      return provider_table.resolve(node, service, source, place, room);
    });
  }
  static bool is_available() noexcept {
    return provider_table.is_available == nullptr || provider_table.is_available();
  }
  proto::PacketLinkTraits traits(proto::PacketLinkTraits traits) noexcept {
    traits.checks_packets = (provider_table.flags & table_alters_packets) == 0;
    traits.segments_max =
        provider_table.send_train != nullptr ? std::clamp(provider_table.train_packets_max, 1u, 64u) : 1;
    if (provider_table.receive_bytes_max != nullptr)  // half of a buffer counts as bookkeeping
      traits.receive_buffer_bytes =
          2 * std::min<size_t>(provider_table.receive_bytes_max(self_), SIZE_MAX / 2);
    if (provider_table.receive_slot_bytes != nullptr)
      traits.receive_packet_bytes = provider_table.receive_slot_bytes(self_);
    return traits;
  }

 private:
  // What does not fit is nothing: no address and no text that libfabric has a use for is as long.
  template <class Made, class Unit, class Fn>
  static Made taken(Fn&& write) {
    std::array<Unit, 256> place;
    const size_t length = write(place.data(), place.size());
    return length <= place.size() ? Made(place.data(), place.data() + length) : Made();
  }

  void* self_;
};
static_assert(Packets<Tabled>);

// Its packets.
class TabledPackets : public OverPackets<Tabled> {
 public:
  proto::PacketLinkTraits traits(const proto::PacketLinkTraits& constants) noexcept {
    return packets().traits(constants);
  }
  static bool arm() noexcept { return provider_table.wait_fd != nullptr; }
};

}  // namespace weft::link::kit
