// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What Reliable needs of addresses: how those of the program (in its address format) and those of the packet link
// become each other. Must not know packets.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace weft::link::reliable {

template <class N>
concept PacketNames = requires(N& names, std::span<const std::byte> bytes, uint32_t format) {
  // The longest address of the program.
  { N::address_length } -> std::convertible_to<size_t>;
  // Before everything else: the address format of the domain (FI_SOCKADDR_IN, FI_ADDR_STR ...).
  names.set_format(format);
  // What an endpoint without an address is opened at.
  { names.anywhere().bytes() } -> std::same_as<std::span<const std::byte>>;
  // From the bytes of the packet link; nothing when they are no address.
  { *N::from(bytes) } -> std::convertible_to<decltype(names.anywhere())>;
  // From the program's bytes, and to them.
  { *names.read(bytes) } -> std::convertible_to<decltype(names.anywhere())>;
  { names.write(names.anywhere()).span() } -> std::same_as<std::span<const std::byte>>;
  // For the log.
  { N::text_of(names.anywhere()) } -> std::same_as<std::string>;
  // Whether packets can be sent there: a wildcard is an address, and no destination.
  { N::is_destination(names.anywhere()) } -> std::same_as<bool>;
};

// Some addresses are valid on one interface of one machine only (IPv6 link-local, RFC 4007). in_scope_of(address,
// source): such an address, as it is called here when it came in a packet from `source`; nothing for all others. on_link_of(address, own): as it is called
// here by an endpoint at `own`; nothing for all others.
template <class N>
concept HasScopedAddresses = requires(std::span<const std::byte> bytes) {
  { (*N::in_scope_of(bytes, bytes)).bytes() } -> std::same_as<std::span<const std::byte>>;
  { *N::on_link_of(bytes, bytes) } -> std::convertible_to<decltype(N().anywhere())>;
};

// fault(own): why the address() of a packet link is none, as a sentence for its author; empty when it is one.
template <class N>
concept ExplainsAddresses = requires(std::span<const std::byte> own) {
  { N::fault(own) } -> std::same_as<std::string>;
};

}  // namespace weft::link::reliable
