// The archive that a directly linked program takes: fi_getinfo and the other calls that are functions in every libfabric, for the one
// provider WEFT_DIRECT_PROVIDER. Must not know another.
#include <array>

#include "faces/libfabric/getinfo.hpp"
#include "faces/libfabric/provider_of.hpp"
#include WEFT_DIRECT_HEADER

namespace weft::fi {

std::span<const Provider* const> providers() {
  static constexpr std::array<const Provider*, 1> all = {&any_provider_of<providers::WEFT_DIRECT_PROVIDER>()};
  return all;
}

}  // namespace weft::fi

namespace {
weft::fi::Catalogue catalogue() { return {weft::fi::providers(), false, nullptr}; }
}  // namespace

// For this program only: a library that it loads may need a libfabric of its own.
#define WEFT_EXPORT __attribute__((visibility("hidden"), used))
#include "faces/libfabric/exported_calls.inc"
#include "faces/libfabric/exported_objects.inc"
