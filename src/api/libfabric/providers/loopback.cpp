// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider loopback, compiled.
#include "providers/loopback.hpp"
#include "api/libfabric/entry/provider_of.hpp"

template struct weft::fi::Compiled<weft::providers::Loopback>;
