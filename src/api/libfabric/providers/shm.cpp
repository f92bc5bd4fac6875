// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider shm, compiled.
#include "providers/shm.hpp"
#include "api/libfabric/entry/provider_of.hpp"

template struct weft::fi::Compiled<weft::providers::Shm>;
