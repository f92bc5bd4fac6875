// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider udp;ofi_rxd, compiled.
#include "providers/udp_rxd.hpp"
#include "api/libfabric/entry/provider_of.hpp"

template struct weft::fi::Compiled<weft::providers::UdpRxd>;
