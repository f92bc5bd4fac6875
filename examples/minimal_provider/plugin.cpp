// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one source that knows more of Weft than weft/provider.hpp.
#include <weft/plugin.hpp>

#include "unix_packets.hpp"

WEFT_PROVIDER_OVER_PACKETS(UnixPackets, "minimal");
