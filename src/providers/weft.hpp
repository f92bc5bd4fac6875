// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider weft: one endpoint for peers on this host, by shared memory, and for others, by TCP. docs/composite.md. Must not know the
// front end.
#pragma once

#include <rdma/fabric.h>
#include <weft/libfabric_retired.hpp>

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "link/composite/address.hpp"
#include "link/composite/link.hpp"
#include "link/shm/link.hpp"
#include "link/tcp/link.hpp"
#include "providers/endpoint_kind.hpp"
#include "providers/interface_domains.hpp"

namespace weft::providers {

// Addresses are text (link/composite/address.hpp), NUL padded to 64 bytes. A node and a service name a network address; then the peer is
// reached by the network.
struct WeftAddresses {
  static constexpr std::array<uint32_t, 1> formats = {FI_ADDR_STR};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_ADDR_STR ? link::composite::Address::text_bytes : 0;
  }
  static bool available(uint32_t) noexcept { return true; }
  static Result<std::vector<std::byte>> resolve(uint32_t format, const char* node, const char* service,
                                                bool source);
  static std::vector<std::byte> unnamed(uint32_t format);  // "weft://0.0.0.0:0"
  static bool normalise(uint32_t format, std::byte* bytes) noexcept;
  static std::string to_string(uint32_t format, const void* bytes);

  // Of the network address: the peers on this host are reached whatever the interface.
  static std::optional<os::SocketAddress> parse(uint32_t format, const void* bytes) noexcept;
  static std::vector<std::byte> form(uint32_t format, const os::SocketAddress& address);
};

struct Weft : WeftAddresses {
  using Link = link::composite::Link<link::shm::Link, link::tcp::Link, link::composite::Names>;
  static constexpr bool shares_memory = true;
  static constexpr const char* name = "weft";
  static constexpr uint32_t version = FI_VERSION(1, 0);
  static constexpr uint32_t protocol = retired::prov_specific | 0x77656674;  // "weft"
  static constexpr std::array<EndpointKind, 1> kinds = {
      {{FI_EP_RDM, protocol, 1, FI_LOCAL_COMM | FI_REMOTE_COMM}}};
  static constexpr std::array<Parameter, 1> parameters = {
      {{"shm",
        "Whether peers on this host are reached by shared memory; no: by the network, as all others "
        "(default: yes)"}}};

  // All interfaces are one domain, which has the provider's name, unless one is asked for: by a domain's name or by FI_TCP_IFACE.
  static std::vector<InterfaceDomain> interface_domains(uint32_t format, std::span<const std::byte> source,
                                                        std::span<const std::byte> destination);
};

}  // namespace weft::providers
