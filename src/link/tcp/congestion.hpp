// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Congestion control of connections within one host. Must not know frames.
//
// Between two sockets of one host there is no line that could be congested, but the kernel runs its algorithm there, too. Where the system's is
// one that paces (BBR) it costs up to a third of the bandwidth and a twentieth of the latency. So these connections use Reno, which every kernel has
// and lets everybody use. All others keep what the system or the route says.
#pragma once

#include "os/socket_address.hpp"

namespace weft::link::tcp {

// Before connect(): `socket` will connect to `to`.
void choose_congestion_control(int socket, const os::SocketAddress& to) noexcept;
// Before listen(): what will be accepted begins with Reno, for pacing that has begun stays with a socket.
void prepare_congestion_control(int listener) noexcept;
// After accept(): a connection from another host goes back to the system's.
void revise_congestion_control(int accepted) noexcept;

}  // namespace weft::link::tcp
