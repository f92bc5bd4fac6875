// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which host this is, in the sense of who can share memory with us. Must not know why somebody asks.
#pragma once

#include <cstdint>

namespace weft::os {

// Equal for processes that may share memory by descriptors passed over abstract sockets: same boot of the same kernel, same network namespace
// (abstract names belong to it), same user namespace and user. Other processes have another number but for bad luck of one in 2^48.
// 48 bits, never 0; 0 when /proc does not tell.
uint64_t sharing_identity() noexcept;

// Whether a name or number of a host means this one: "localhost", its own name, an address of an interface, or a name that resolves to one
// (getaddrinfo(3), which may ask the network). Nothing is known of names that do not resolve: false.
bool is_this_host(const char* node);

}  // namespace weft::os
