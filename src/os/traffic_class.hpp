// The differentiated services code point of what a socket sends (RFC 2474). Must not know what is sent.
#pragma once

#include <cstdint>

namespace weft::os {

// Marks what the socket sends from now on; sockets that it accepts inherit the mark. 0 is the default class. A kernel that
// refuses leaves the socket unmarked: a traffic class is a request.
void mark_traffic(int socket, uint8_t dscp) noexcept;

}  // namespace weft::os
