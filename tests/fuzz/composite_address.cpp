// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of the provider weft, as programs insert them and peers call themselves: what is read has one spelling, and is read again.
#include <cstdlib>
#include <cstring>
#include <string>

#include "link/composite/address.hpp"
#include "providers/weft.hpp"

namespace {

using weft::link::composite::Address;
using weft::link::composite::Names;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto address = Address::from_text(text)) {
    const std::string spelling = address->text();
    require(spelling.size() < Address::text_bytes);
    const auto again = Address::from_text(spelling);
    require(again && again->where == address->where && again->local == address->local);
    require(again->text() == spelling);
  }
  Names::Parts parts;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (Names::split(bytes, parts)) {
    std::array<std::byte, Names::address_length> joined;
    Names::Parts again;
    require(Names::join(parts, joined) && Names::split(joined, again));
    require(again.remote == parts.remote && again.local == parts.local && again.host == parts.host);
  }
  if (size >= Address::text_bytes) {
    std::array<std::byte, Address::text_bytes> place;
    std::memcpy(place.data(), data, place.size());
    if (weft::providers::WeftAddresses::normalise(0, place.data()))
      require(!weft::providers::WeftAddresses::to_string(0, place.data()).empty());
  }
  return 0;
}
