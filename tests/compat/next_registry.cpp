// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The providers of the library of a next version, for extensions_test.sh: shm alone. Linked before the rooms, in the place of their list.
#include <array>

#include "api/libfabric/entry/provider_of.hpp"
#include "providers/shm.hpp"

// Compiled here, as the next version has it.
template struct weft::fi::Compiled<weft::providers::Shm>;

namespace weft::fi {
namespace {
constexpr std::array<const Provider*, 1> all = {&provider_of<providers::Shm>};
}  // namespace

std::span<const Provider* const> providers() { return all; }

}  // namespace weft::fi
