// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider udp;ofi_rxd over network cards, compiled.
#include "api/libfabric/entry/provider_of.hpp"
#include "providers/nic.hpp"

template struct weft::fi::Compiled<weft::providers::NicUdpRxd>;
