// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft nic bind` remembers of a network card that it took from the kernel: the driver, and what its interfaces had. One text file
// for each card in /run/weft/nic, readable by everybody, so that a program can give the card the addresses it had. Includes nothing of Weft.
//
// Lines of a key, a blank and a value; `interface` begins another interface, to which the lines up to the next one belong:
//   driver e1000e
//   interface eth1
//   mac 52:54:00:12:34:56
//   mtu 1500
//   up 1
//   address 10.0.0.5/24
//   gateway 10.0.0.1
// Unknown keys are skipped; a file longer than text_max, or a value that cannot be, is refused.
#pragma once

#include <arpa/inet.h>

#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/pci.hpp>

namespace weft::nic_binding {

inline constexpr size_t text_max = 65536;

struct Interface {
  std::string name;
  std::string mac;  // of six pairs of hexadecimal digits; empty: not known
  uint32_t mtu = 0;
  bool is_up = false;
  std::vector<std::string> addresses;  // ADDRESS/PREFIX, IPv4 and IPv6, link-local ones left out
  std::vector<std::string> gateways;   // of default routes through it
};

struct Binding {
  std::string driver;  // that had the function before; empty: none
  std::vector<Interface> interfaces;
};

inline std::string path_of(const std::string& address, const std::string& root = {}) {
  return root + "/run/weft/nic/" + address;
}

inline std::string to_text(const Binding& binding) {
  std::string text = "driver " + binding.driver + "\n";
  for (const Interface& one : binding.interfaces) {
    text += "interface " + one.name + "\nmac " + one.mac + "\nmtu " + std::to_string(one.mtu) + "\nup " +
            (one.is_up ? "1" : "0") + "\n";
    for (const std::string& address : one.addresses) text += "address " + address + "\n";
    for (const std::string& gateway : one.gateways) text += "gateway " + gateway + "\n";
  }
  return text;
}

namespace detail {

inline bool is_address(const std::string& text) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, text.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

inline bool is_network(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || !is_address(text.substr(0, slash))) return false;
  const auto prefix = pci::detail::number(std::string_view(text).substr(slash + 1), 10);
  return prefix && *prefix <= (text.find(':') == std::string::npos ? 32U : 128U);
}

inline bool is_mac(const std::string& text) {
  if (text.size() != 17) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (i % 3 == 2 ? text[i] != ':' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
  return true;
}

// A name that can stand in a path and in a line: of a driver or an interface.
inline bool is_name(const std::string& text) {
  return text.size() < 64 && text.find('/') == std::string::npos && text.find("..") == std::string::npos;
}

inline bool take_line(Binding& to, const std::string& key, const std::string& value) {
  if (key == "driver") {
    to.driver = value;
    return is_name(value);
  }
  if (key == "interface") {
    to.interfaces.emplace_back().name = value;
    return !value.empty() && is_name(value);
  }
  const bool is_known = key == "mac" || key == "mtu" || key == "up" || key == "address" || key == "gateway";
  if (!is_known) return true;
  if (to.interfaces.empty()) return false;
  Interface& one = to.interfaces.back();
  if (key == "mac") {
    one.mac = value;
    return value.empty() || is_mac(value);
  }
  if (key == "mtu") {
    const auto mtu = pci::detail::number(value, 10);
    one.mtu = mtu.value_or(0);
    return mtu.has_value() && *mtu <= 65536;
  }
  if (key == "up") {
    one.is_up = value == "1";
    return value == "0" || value == "1";
  }
  (key == "address" ? one.addresses : one.gateways).push_back(value);
  return key == "address" ? is_network(value) : is_address(value);
}

}  // namespace detail

inline std::optional<Binding> from_text(std::string_view text) {
  if (text.size() > text_max) return std::nullopt;
  Binding binding;
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    const std::string value = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (!detail::take_line(binding, line.substr(0, blank), value)) return std::nullopt;
  }
  return binding;
}

// What was remembered of a card; nothing: `weft nic bind` has not bound it, or the file is damaged.
inline std::optional<Binding> read(const std::string& address, const std::string& root = {}) {
  if (pci::address_of(address) != address) return std::nullopt;
  const auto text = pci::detail::read_file(path_of(address, root), text_max + 1);
  return text ? from_text(*text) : std::nullopt;
}

}  // namespace weft::nic_binding
