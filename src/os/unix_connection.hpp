// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections in the abstract Unix name space (unix(7), SOCK_SEQPACKET): each side knows the other's user and hears of
// its end. Messages go and come by the calls of unix_socket.hpp. Must not know what they mean.
//
// Nothing is received before peer_user() was asked, and a connection that is let go of goes to os::Disposal: what the
// other side sent and nobody received goes with it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::os {

// Has @name from now on. Errno EADDRINUSE when somebody has it.
Result<Fd> listen_at(std::string_view name);
// The next connection, which peek_datagram() can look at. Empty: there is none. Never blocks.
Fd accept_connection(const Fd& listener) noexcept;
// Empty: a positive errno in `error`, ECONNREFUSED when nobody has that name, EAGAIN when too many wait there.
Fd connect_to(std::string_view name, int& error) noexcept;
// The effective user of the other side at the time of its listen_at() or connect_to(). Empty: it cannot be told.
std::optional<uid_t> peer_user(const Fd& connection) noexcept;
// The other side hears of the end, also while a forked child holds the descriptor.
void end_connection(const Fd& connection) noexcept;

}  // namespace weft::os
