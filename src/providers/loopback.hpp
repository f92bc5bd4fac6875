// The provider loopback: the engine over the in-process link. For tests, and the smallest example of a provider.
#pragma once

#include <rdma/fabric.h>

#include "link/loopback/link.hpp"
#include "providers/local_address.hpp"

namespace weft::providers {

struct Loopback {
  using Link = link::loopback::Link;
  static constexpr const char* name = "loopback";
  static constexpr uint32_t version = FI_VERSION(1, 0);
  static constexpr uint32_t protocol = FI_PROTO_UNSPEC;
  static constexpr uint32_t addr_format = FI_ADDR_STR;

  static Result<std::vector<std::byte>> resolve(const char* node, const char* service, bool source) {
    return resolve_local(node, service, source, Link::address_length);
  }
  static std::string to_string(const void* bytes) { return local_to_string(bytes, Link::address_length); }
};

}  // namespace weft::providers
