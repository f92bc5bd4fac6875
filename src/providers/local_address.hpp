// Addresses of providers that stay on one machine. Must not know links.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace weft::providers {

// Addresses on one machine are text (FI_ADDR_STR), NUL padded to a fixed length:
//   fi_shm://PID:FD:NONCE   chosen by the library
//   fi_ns://NAME            from a service (or a node) that the program names
// A node that is such an address is taken as it is. Other nodes only say that the peer is here and are not part of the name.
Result<std::vector<std::byte>> resolve_local(const char* node, const char* service, bool source,
                                             size_t address_bytes);
std::string local_to_string(const void* bytes, size_t address_bytes);

}  // namespace weft::providers
