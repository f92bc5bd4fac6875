// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From a setting and interfaces to devices.
#include "api/verbs/roce/named_devices.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "api/verbs/roce/instance.hpp"
#include "base/settings.hpp"

namespace weft::verbs::soft {
namespace {

constexpr size_t name_bytes_max = IBV_SYSFS_NAME_MAX - 1;

// Names appear in paths and in lists with commas and colons between.
bool is_name(std::string_view text) noexcept {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !text.empty() && text.size() <= name_bytes_max && text.front() != '.' &&
         std::ranges::all_of(text, fits);
}

// As its first one of IPv4 or IPv6.
bool has_first(const os::Interface& one, const os::SocketAddress& address) noexcept {
  return (one.ipv4 && os::same_host(one.ipv4, address)) || (one.ipv6 && os::same_host(one.ipv6, address));
}

bool has_address(const os::Interface& one, const os::SocketAddress& address) noexcept {
  return has_first(one, address) ||
         std::ranges::any_of(one.addresses, [&](const os::InterfaceAddress& other) {
           return os::same_host(other.address, address);
         });
}

const os::Interface* interface_of(const os::SocketAddress& address,
                                  std::span<const os::Interface> interfaces) noexcept {
  for (const auto has_it : {has_first, has_address}) {
    const auto found =
        std::ranges::find_if(interfaces, [&](const os::Interface& one) { return has_it(one, address); });
    if (found != interfaces.end()) return &*found;
  }
  if (!address.is_loopback()) return nullptr;
  const auto loopback = std::ranges::find_if(interfaces, &os::Interface::is_loopback);
  return loopback == interfaces.end() ? nullptr : &*loopback;
}

// "1.2.3.4" or "fd00::1".
std::optional<os::SocketAddress> host_of(const std::string& text) {
  const bool is_ip6 = text.find(':') != std::string::npos;
  return os::SocketAddress::from_text(is_ip6 ? "[" + text + "]:0" : text + ":0");
}

// "INTERFACE/ADDRESS[/PREFIX[/GATEWAY]]"; the address is of no interface.
std::string read_packet_entry(std::string_view text, Named& out) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == '/') words.emplace_back();
    else words.back() += c;
  }
  if (words.size() < 2 || words.size() > 4) return "packet:INTERFACE/ADDRESS[/PREFIX[/GATEWAY]] is expected";
  const auto interface = os::interface_named(words[0]);
  if (!interface) return "no interface is named \"" + words[0] + "\"";
  const auto address = host_of(words[1]);
  if (!address || address->is_any()) return "\"" + words[1] + "\" is no IPv4 or IPv6 address of a host";
  out.is_packet = true;
  out.interface = *interface;
  (address->family() == AF_INET ? out.interface.ipv4 : out.interface.ipv6) = *address;
  if (words.size() > 2) {
    const std::string& bits = words[2];
    const auto end = std::from_chars(bits.data(), bits.data() + bits.size(), out.network.prefix_bits);
    if (end.ec != std::errc() || end.ptr != bits.data() + bits.size())
      return "\"" + bits + "\" is no length of a prefix";
  }
  if (words.size() > 3) {
    const auto gateway = host_of(words[3]);
    if (!gateway) return "\"" + words[3] + "\" is no address of a gateway";
    out.network.gateway = *gateway;
  }
  return {};
}

// "PCI-ADDRESS", which WEFT_NIC has, or "PCI-ADDRESS/ADDRESS/PREFIX[/GATEWAY]".
std::string read_card_entry(std::string_view text, Named& out) {
  const size_t slash = text.find('/');
  std::string card(text.substr(0, slash));
  if (slash == std::string_view::npos) {
    auto known = link::nic::configured_card(card);
    if (!known) return known.error().why;
    out.card = *known;
  } else {
    std::string network(text.substr(slash + 1));
    const size_t prefix = network.find('/');
    const size_t gateway = prefix == std::string::npos ? prefix : network.find('/', prefix + 1);
    if (gateway != std::string::npos) network.replace(gateway, 1, ",gateway=");
    auto parsed = link::nic::parse_card(card.append("=").append(network));
    if (!parsed) return "nic:PCI-ADDRESS[/ADDRESS/PREFIX[/GATEWAY]] is expected: " + parsed.error().why;
    out.card = *parsed;
  }
  out.interface.name = link::nic::domain_name(*out.card);
  out.interface.mtu_bytes = static_cast<unsigned>(out.card->mtu_bytes);
  (out.card->address.family() == AF_INET ? out.interface.ipv4 : out.interface.ipv6) = out.card->address;
  return {};
}

// The interface of a link-local address: other interfaces may have the same one. `named`: by name or number, or empty. Null, and why.
const os::Interface* link_local_interface(const os::SocketAddress& address, const std::string& host,
                                          const std::string& named, std::span<const os::Interface> interfaces,
                                          std::string& why) {
  const os::Interface* found = nullptr;
  for (const os::Interface& one : interfaces) {
    if (!has_address(one, address)) continue;
    if (!named.empty() && named != one.name && named != std::to_string(one.index)) continue;
    if (found != nullptr) {
      why = found->name + " and " + one.name + " have the address " + host + ": name one, " + host + "%" +
            one.name;
      return nullptr;
    }
    found = &one;
  }
  if (found == nullptr)
    why = "no interface of this machine that is up has the address " + host +
          (named.empty() ? "" : " and the name " + named);
  return found;
}

// Why the entry is no device; empty: `out` is one.
std::string read_entry(std::string_view text, std::span<const os::Interface> interfaces,
                       std::span<const Named> before, Named& out) {
  const size_t at = text.find('=');
  if (at == std::string_view::npos) return "NAME=ADDRESS is expected";
  out.name = text.substr(0, at);
  if (!is_name(out.name))
    return "a name has 1 to " + std::to_string(name_bytes_max) +
           " letters, digits, '_', '-' and '.', and does not begin with '.'";
  if (std::ranges::find(before, out.name, &Named::name) != before.end())
    return "an entry before it has that name";
  const std::string host(text.substr(at + 1));
  constexpr std::string_view packet = "packet:";
  if (host.starts_with(packet)) return read_packet_entry(std::string_view(host).substr(packet.size()), out);
  constexpr std::string_view card = "nic:";
  if (host.starts_with(card)) return read_card_entry(std::string_view(host).substr(card.size()), out);
  const size_t percent = host.find('%');
  const std::string bare = host.substr(0, percent);
  auto address = host_of(bare);
  if (!address || percent + 1 == host.size()) return "\"" + host + "\" is no IPv4 or IPv6 address";
  const os::Interface* interface = nullptr;
  if (address->is_link_local()) {
    std::string why;
    const std::string named = percent == std::string::npos ? "" : host.substr(percent + 1);
    interface = link_local_interface(*address, bare, named, interfaces, why);
    if (interface == nullptr) return why;
    address->set_scope(interface->index);
  } else {
    if (percent != std::string::npos) return "only a link-local address has an interface behind '%'";
    interface = interface_of(*address, interfaces);
    if (interface == nullptr) return "no interface of this machine that is up has the address " + bare;
  }
  out.interface = *interface;
  const bool is_ip6 = address->family() == AF_INET6;
  out.interface.ipv4 = is_ip6 ? os::SocketAddress() : *address;
  if (is_ip6) out.interface.ipv6 = *address;
  return {};
}

// One warning for each mistake of this process: devices are listed often.
void log_mistakes(const std::vector<std::string>& mistakes) {
  static std::mutex mutex;
  static auto* const logged = new std::set<std::string>;  // exit handlers may list devices
  const std::scoped_lock guard(mutex);
  for (const std::string& mistake : mistakes)
    if (logged->insert(mistake).second) log(1, "WEFT_VERBS_DEVICES: " + mistake);
}

}  // namespace

NamedDevices parse_devices(std::string_view text, std::span<const os::Interface> interfaces) {
  NamedDevices all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view entry = text.substr(at, end - at);
    at = end + 1;
    if (entry.empty()) continue;
    Named named;
    const std::string why = read_entry(entry, interfaces, all.devices, named);
    if (why.empty()) all.devices.push_back(std::move(named));
    else all.mistakes.push_back(std::string("\"").append(entry).append("\" is no device: ").append(why));
  }
  return all;
}

std::vector<Named> named_devices() {
  const std::vector<os::Interface> interfaces = os::interfaces();
  if (const char* text = settings::text("WEFT_VERBS_DEVICES"); text != nullptr && *text != 0) {
    NamedDevices wanted = parse_devices(text, interfaces);
    if (wanted.devices.empty()) wanted.mistakes.emplace_back("no entry is a device, so there is none");
    log_mistakes(wanted.mistakes);
    return std::move(wanted.devices);
  }
  std::vector<Named> devices;
  devices.reserve(interfaces.size());
  for (const os::Interface& one : interfaces) devices.push_back({"weft_" + one.name, one});
  return devices;
}

}  // namespace weft::verbs::soft
