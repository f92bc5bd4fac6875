// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Link-local addresses in names of peers (RFC 4007). The scope in a name is the interface number of the host that made the name; the same
// interface, or link, may have another number here. Must not know protocols.
#pragma once

#include "os/socket_address.hpp"

namespace weft::os {

// The address by which this host reaches what `named` names. All but link-local addresses of hosts stay as they are. A link-local address gets
//   1. its own scope, if it is an address of this host on that interface;
//   2. the scope of `by`, if that is link-local: an endpoint's own address, or whom a connection or packet came from;
//   3. its own scope, if that interface is up here and has a link-local address;
//   4. the first such interface.
SocketAddress on_this_host(const SocketAddress& named, const SocketAddress& by) noexcept;

// Whether a link-local address is one of this host, on the interface of its scope.
bool is_own_link_local(const SocketAddress& address) noexcept;

}  // namespace weft::os
