// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How addresses of a program and those of an author's packet link (weft/provider.hpp) become each other: the program's are the text "fi_NAME://TEXT",
// NUL padded to 64 bytes. Must not know packets.
#pragma once

#include <weft/provider.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::link::kit {

// Bytes that the packet link alone understands.
class Address {
 public:
  Address() = default;
  // At most address_bytes_limit bytes.
  explicit Address(std::span<const std::byte> from) noexcept : length_(from.size()) {
    std::ranges::copy(from, bytes_.begin());
  }
  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), length_}; }
  bool is_any() const noexcept { return length_ == 0; }

 private:
  std::array<std::byte, address_bytes_limit> bytes_{};
  size_t length_ = 0;
};

// `Named` has `name`, the provider's.
template <class P, class Named>
class TextNames {
 public:
  static constexpr size_t address_length = 64;

  struct Name {
    std::array<std::byte, address_length> bytes{};
    size_t length = address_length;
    std::span<const std::byte> span() const noexcept { return {bytes.data(), length}; }
  };

  static std::string scheme() { return std::string("fi_") + Named::name + "://"; }

  // Why an own address is none, as a sentence for the author of the packet link; empty when it is one.
  static std::string fault(std::span<const std::byte> own) {
    const std::string text = P::address_text(own);
    if (text.empty()) return "address_text() has no text for the own address";
    const auto odd = [](char c) { return c <= ' ' || c >= 0x7f; };
    if (std::ranges::any_of(text, odd))
      return "address_text() has a space or what cannot be printed in the text of the own address: \"" +
             text + '"';
    if (scheme().size() + text.size() >= address_length)
      return "the text of the own address is too long: " + scheme() + text + " has " +
             std::to_string(scheme().size() + text.size()) + " characters, and may have " +
             std::to_string(address_length - 1);
    const auto read = P::address_from_text(text);
    if (!std::ranges::equal(read, own))
      return "address_from_text() reads \"" + text + "\", which address_text() wrote, as " +
             (read.empty() ? "no address" : "another address");
    return {};
  }
  static std::string text_of(const Address& address) { return scheme() + P::address_text(address.bytes()); }

  // As the packet link has it. Nothing when these bytes are no address, not the one form of it, or one whose text is too long.
  static std::optional<Address> from(std::span<const std::byte> bytes) noexcept try {
    if (bytes.empty() || bytes.size() > P::address_bytes_max) return {};
    const std::string text = P::address_text(bytes);
    if (text.empty() || scheme().size() + text.size() >= address_length) return {};
    if (!std::ranges::equal(P::address_from_text(text), bytes)) return {};
    return Address(bytes);
  } catch (const std::bad_alloc&) {
    return {};
  }
  // Of a text without the scheme.
  static std::optional<Address> from_text(std::string_view text) noexcept try {
    return from(P::address_from_text(text));
  } catch (const std::bad_alloc&) {
    return {};
  }

  void set_format(uint32_t) noexcept {}  // there is one
  Address anywhere() const noexcept { return {}; }
  static bool is_destination(const Address& address) noexcept { return !address.is_any(); }
  // As the program has it.
  std::optional<Address> read(std::span<const std::byte> name) const noexcept try {
    const std::string_view text(reinterpret_cast<const char*>(name.data()),
                                ::strnlen(reinterpret_cast<const char*>(name.data()), name.size()));
    const std::string own = scheme();
    if (!text.starts_with(own)) return {};
    return from_text(text.substr(own.size()));
  } catch (const std::bad_alloc&) {
    return {};
  }
  Name write(const Address& address) const {
    Name name;
    const std::string text = scheme() + P::address_text(address.bytes());
    std::memcpy(name.bytes.data(), text.data(), std::min(text.size(), address_length - 1));
    return name;
  }
};

}  // namespace weft::link::kit
