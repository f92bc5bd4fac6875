// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider tcp, compiled.
#include "providers/tcp.hpp"
#include "api/libfabric/entry/provider_of.hpp"

template struct weft::fi::Compiled<weft::providers::Tcp>;
