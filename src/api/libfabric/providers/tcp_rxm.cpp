// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider tcp;ofi_rxm, compiled.
#include "providers/tcp_rxm.hpp"
#include "api/libfabric/entry/provider_of.hpp"

template struct weft::fi::Compiled<weft::providers::TcpRxm>;
