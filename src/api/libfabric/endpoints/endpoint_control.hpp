// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is done to an endpoint apart from moving data: binding, enabling, options, names, closing (fi_endpoint(3),
// fi_cm(3)). One set of calls for all engines: the entries of fi_ops, fi_ops_ep and fi_ops_cm, and what opening and
// connecting need of them. Must not know which engines exist.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/libfabric/endpoints/endpoint.hpp"

namespace weft::fi {

inline constexpr uint64_t close_linger_ns =
    500'000'000;  // for operations that were accepted and not handed over yet

// --- fi_ops of a port ---
int bind_port(::fid* fid, ::fid* other, uint64_t flags);
int control_port(::fid* fid, int command, void* arg);
int close_port(::fid* fid);

// --- fi_ops_ep ---
ssize_t cancel(::fid* fid, void* context);
int getopt(::fid* fid, int level, int name, void* value, size_t* length);
int setopt(::fid* fid, int level, int name, const void* value, size_t length);
ssize_t rx_size_left(fid_ep* ep);
ssize_t tx_size_left(fid_ep* ep);

// --- fi_ops_cm ---
int getname(::fid* fid, void* address, size_t* length);
// Another name, before the endpoint is enabled. The old one stays when the new one is taken.
int setname(::fid* fid, void* address, size_t length);

// fi_enable, under the domain lock: 0 or -FI_E*, with a line in the log. Nothing happens when the port is enabled.
int enable(Port& port);
// The port's data vectors by lock and default flags, and refusing ones before it is enabled.
void set_data_vectors(Port& port) noexcept;
// Gives what was accepted a chance to leave (an injected message belongs to us), within a bound. Under the domain lock.
void linger(Core& core) noexcept;

}  // namespace weft::fi
