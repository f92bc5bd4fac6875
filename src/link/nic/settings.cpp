// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From a text to cards.
#include "link/nic/settings.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/settings.hpp"

namespace weft::link::nic {
namespace {

constexpr uint64_t mtu_min = 576;  // RFC 791
constexpr uint64_t mtu_max = 65535;
constexpr uint64_t vlan_max = 4094;

std::optional<uint64_t> number(std::string_view text, uint64_t least, uint64_t most) noexcept {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) return {};
  return value;
}

// An address of a host, without a port.
std::optional<os::SocketAddress> host(std::string_view text) {
  const bool is_ip6 = text.find(':') != std::string_view::npos;
  const std::string name(text);
  const auto address = os::SocketAddress::from_text(is_ip6 ? "[" + name + "]:0" : name + ":0");
  if (!address || address->is_any()) return {};
  return address;
}

bool is_hexadecimal(std::string_view text) noexcept {
  return std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  });
}

// "0000:00:04.0" as the kernel has it; empty: none.
std::string pci_address(std::string_view text) {
  std::string full(text.size() == 7 ? "0000:" : "");
  full += text;
  const std::string_view all = full;
  if (all.size() != 12 || all[4] != ':' || all[7] != ':' || all[10] != '.' ||
      !is_hexadecimal(all.substr(0, 4)) || !is_hexadecimal(all.substr(5, 2)) ||
      !is_hexadecimal(all.substr(8, 2)) || all[11] < '0' || all[11] > '7')
    return {};
  std::ranges::transform(full, full.begin(),
                         [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
  return full;
}

Error mistake(std::string why) { return {EINVAL, std::move(why)}; }

Result<void> read_option(std::string_view text, Configuration& card) {
  const size_t at = text.find('=');
  const std::string_view name = text.substr(0, at);
  const std::string_view value = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  if (name == "gateway") {
    const auto gateway = host(value);
    if (!gateway || gateway->family() != card.address.family())
      return mistake("gateway=" + std::string(value) + " is no address like the card's");
    card.network.gateway = *gateway;
  } else if (name == "mtu") {
    const auto bytes = number(value, mtu_min, mtu_max);
    if (!bytes) return mistake("an MTU is a number from 576 to 65535");
    card.mtu_bytes = *bytes;
  } else if (name == "vlan") {
    const auto id = number(value, 1, vlan_max);
    if (!id) return mistake("a VLAN is a number from 1 to 4094");
    card.network.vlan = static_cast<uint16_t>(*id);
  } else {
    return mistake("\"" + std::string(name) + "\" is none of gateway, mtu, vlan");
  }
  return {};
}

}  // namespace

Result<Configuration> parse_card(std::string_view text) {
  Configuration card;
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return mistake("PCI-ADDRESS=IP/PREFIX is expected");
  card.card = pci_address(text.substr(0, equals));
  if (card.card.empty())
    return mistake("\"" + std::string(text.substr(0, equals)) + "\" is no PCI address, as 0000:00:04.0 is");
  std::string_view rest = text.substr(equals + 1);
  size_t comma = std::min(rest.find(','), rest.size());
  const std::string_view network = rest.substr(0, comma);
  const size_t slash = network.find('/');
  const auto address = host(network.substr(0, slash));
  if (!address) return mistake("\"" + std::string(network.substr(0, slash)) + "\" is no address of a host");
  card.address = *address;
  const uint64_t bits_max = address->family() == AF_INET6 ? 128 : 32;
  const auto bits =
      slash == std::string_view::npos ? std::nullopt : number(network.substr(slash + 1), 1, bits_max);
  if (!bits)
    return mistake("a prefix of 1 to " + std::to_string(bits_max) +
                   " bits stands behind the address: IP/PREFIX");
  card.network.prefix_bits = static_cast<uint8_t>(*bits);
  while (comma < rest.size()) {
    rest = rest.substr(comma + 1);
    comma = std::min(rest.find(','), rest.size());
    if (auto ok = read_option(rest.substr(0, comma), card); !ok) return ok.error();
  }
  return card;
}

Cards parse_cards(std::string_view text) {
  Cards all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    const std::string_view entry = text.substr(at, end - at);
    at = end + 1;
    if (entry.empty()) continue;
    auto card = parse_card(entry);
    std::string why = card ? "" : card.error().why;
    if (card && std::ranges::find(all.cards, card->card, &Configuration::card) != all.cards.end())
      why = "an entry before it has that card";
    if (why.empty()) all.cards.push_back(std::move(*card));
    else all.mistakes.push_back("\"" + std::string(entry) + "\" is no card: " + why);
  }
  return all;
}

Cards configured_cards() {
  const char* const text = settings::text("WEFT_NIC");
  return text == nullptr ? Cards() : parse_cards(text);
}

Result<Configuration> configured_card(std::string_view address) {
  const std::string full = pci_address(address);
  if (full.empty()) return mistake("\"" + std::string(address) + "\" is no PCI address, as 0000:00:04.0 is");
  const Cards configured = configured_cards();
  for (const Configuration& card : configured.cards)
    if (card.card == full) return card;
  return mistake("WEFT_NIC gives the card " + full + " no address");
}

std::string domain_name(const Configuration& card) { return "nic_" + card.card; }

}  // namespace weft::link::nic
