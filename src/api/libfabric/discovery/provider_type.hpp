// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a provider's type may name besides its name and addresses (src/providers/). Must not know which providers exist.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "providers/interface_domains.hpp"

namespace weft::fi {

// The link of its endpoints: all of fi_* over it.
template <class P>
concept BringsLink = requires {
  typename P::Link;
};
// An engine of its own instead.
template <class P>
concept BringsEngine = requires {
  typename P::Engine;
};
// Or packets: datagrams over them.
template <class P>
concept BringsPackets = requires {
  typename P::Packets;
};
// The link of its connected endpoints, besides the others.
template <class P>
concept BringsConnections = requires {
  typename P::Connection;
};
// What its endpoints share in a domain (proto/device.hpp).
template <class P>
concept BringsDevice = requires {
  typename P::Device;
};
// Switches: FI_<PROVIDER>_<NAME> in the environment.
template <class P>
concept BringsParameters = requires {
  { P::parameters.size() } -> std::convertible_to<size_t>;
};
// Offers one domain for each device, with names of their own; none: nothing is offered. The fabric has another name
// than the provider.
template <class P>
concept NamesDomains = requires(uint32_t format) {
  { P::domains(format) } -> std::same_as<std::vector<std::string>>;
  { P::fabric } -> std::convertible_to<const char*>;
};
// Says whether processes on the same host exchange by shared memory; those that do not say it do not.
template <class P>
concept SaysSharesMemory = requires {
  { P::shares_memory } -> std::convertible_to<bool>;
};
// Offers a domain for each interface beside the one that has its name.
template <class P>
concept HasInterfaceDomains = requires(uint32_t format, std::span<const std::byte> address) {
  { P::interface_domains(format, address, address) } -> std::same_as<std::vector<providers::InterfaceDomain>>;
};
// The longest message depends on the network.
template <class P>
concept LimitsDatagrams = requires(uint32_t format) {
  { P::datagram_bytes(format) } -> std::convertible_to<size_t>;
};

}  // namespace weft::fi
