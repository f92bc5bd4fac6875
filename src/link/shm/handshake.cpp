// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What addresses say, the names of sockets, tokens.
#include "link/shm/handshake.hpp"

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdio>

#include "base/siphash.hpp"

namespace weft::link::shm {
namespace {

// Hashes of an address, each of its own.
enum class Use : uint64_t { Name = 0x656d616e2d6d6873, Token = 0x6e656b6f742d6d68 };
uint64_t hash_of(std::string_view address, Use use) noexcept {
  ChosenAddress chosen;
  (void)parse_chosen(address, chosen);
  return siphash({chosen.nonce, static_cast<uint64_t>(use)}, std::as_bytes(std::span(address)));
}

}  // namespace

bool parse_chosen(std::string_view address, ChosenAddress& out) noexcept {
  constexpr std::string_view scheme = "fi_shm://";
  if (!address.starts_with(scheme)) return false;
  const char* at = address.data() + scheme.size();
  const char* end = address.data() + address.size();
  const auto number = [&](auto& value, int base, char stop) {
    const auto parsed = std::from_chars(at, end, value, base);
    const bool sound = parsed.ec == std::errc() &&
                       (stop == 0 ? parsed.ptr == end : parsed.ptr != end && *parsed.ptr == stop);
    at = sound ? parsed.ptr + 1 : end;
    return sound;
  };
  return number(out.pid, 10, ':') && number(out.fd, 10, ':') && number(out.nonce, 16, 0) && out.pid > 0 &&
         out.fd >= 0;
}

SocketName::SocketName(std::string_view address) noexcept {
  std::array<char, 26> text{};
  std::snprintf(text.data(), text.size(), "weft-shm/%016llx",
                static_cast<unsigned long long>(hash_of(address, Use::Name)));
  std::copy_n(text.begin(), text_.size(), text_.begin());
}

uint64_t token_of(std::string_view address) noexcept {
  return std::max<uint64_t>(hash_of(address, Use::Token), 1);
}

Line::Line(const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(text_.data(), text_.size(), format, arguments);
  va_end(arguments);
}

}  // namespace weft::link::shm
