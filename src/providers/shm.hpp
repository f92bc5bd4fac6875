// The provider shm: the engine over the shared memory link. A provider is a type: its link, its name, its addresses.
#pragma once

#include <rdma/fabric.h>

#include "link/shm/link.hpp"
#include "providers/local_address.hpp"

namespace weft::providers {

struct Shm {
  using Link = link::shm::Link;
  static constexpr const char* name = "shm";
  static constexpr uint32_t version =
      FI_VERSION(118, 0);  // above the 117.0 of the library that this one stands in for
  static constexpr uint32_t protocol = FI_PROTO_SHM;
  static constexpr uint32_t addr_format = FI_ADDR_STR;

  static Result<std::vector<std::byte>> resolve(const char* node, const char* service, bool source) {
    return resolve_local(node, service, source, Link::address_length);
  }
  static std::string to_string(const void* bytes) { return local_to_string(bytes, Link::address_length); }
};

}  // namespace weft::providers
