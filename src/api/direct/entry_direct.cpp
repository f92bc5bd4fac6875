// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The archive that a directly linked program takes: fi_getinfo and the other calls that are functions in every libfabric, for the one
// provider WEFT_DIRECT_PROVIDER. Must not know another.
#include <array>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/entry/providers.hpp"

namespace weft::fi {

std::span<const Provider* const> providers() {
  static constexpr std::array<const Provider*, 1> all = {&provider_of<providers::WEFT_DIRECT_PROVIDER>};
  return all;
}

}  // namespace weft::fi

namespace {
weft::fi::Catalogue catalogue() { return {weft::fi::providers(), false}; }
}  // namespace

// For this program only: a library that it loads may need a libfabric of its own.
#define WEFT_EXPORT __attribute__((visibility("hidden"), used))

extern "C" {
// What objects that were compiled for this provider refer to (weft/direct/<provider>/program.h).
extern const char WEFT_DIRECT_PROGRAM __attribute__((visibility("hidden")));
__attribute__((used)) const char WEFT_DIRECT_PROGRAM = 0;
// In every archive: a program that is linked to two of them is told so.
extern const char weft_direct_a_program_is_linked_to_one_provider __attribute__((visibility("hidden")));
__attribute__((used)) const char weft_direct_a_program_is_linked_to_one_provider = 0;
}

#include "api/libfabric/entry/exported_calls.inc"
#include "api/libfabric/entry/exported_objects.inc"
