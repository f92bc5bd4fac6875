// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The differentiated services code point of what a socket sends (RFC 2474). Must not know what is sent.
#pragma once

#include <cstdint>

namespace weft::os {

// Marks what the socket sends from now on; sockets that it accepts inherit the mark. 0 is the default class. A kernel that
// refuses leaves the socket unmarked: a traffic class is a request. `ecn` are the two bits of RFC 3168, section 5.
void mark_traffic(int socket, uint8_t dscp, uint8_t ecn = 0) noexcept;

}  // namespace weft::os
