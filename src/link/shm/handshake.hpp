// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How endpoints of the shared memory link find each other: what addresses say, the names of sockets, tokens. Must not know frames.
//
// /proc/net/unix shows every user the name of every abstract socket. So the name is a hash of the address, keyed with its nonce, and every
// datagram has to carry a second such hash, the token: the kernel drops what does not (os::bind_datagram). Of an address that the library
// chose, 64 random bits are the key. A name that a program chose has no key, and who knows or guesses it can send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "link/shm/layout.hpp"

namespace weft::link::shm {

inline std::string_view text_of(const std::array<char, address_bytes>& address) noexcept {
  size_t length = 0;
  while (length < address.size() && address[length] != 0) ++length;
  return {address.data(), length};
}

// "fi_shm://PID:FD:NONCE", as the library chooses it.
struct ChosenAddress {
  int pid = 0;
  int fd = -1;
  uint64_t nonce = 0;
};
bool parse_chosen(std::string_view address, ChosenAddress& out) noexcept;

// The abstract name of an address's socket: "weft-shm/" and 16 hexadecimal digits, without memory of its own: it is asked for on paths that
// may not throw.
class SocketName {
 public:
  explicit SocketName(std::string_view address) noexcept;
  operator std::string_view() const noexcept {
    return {text_.data(), text_.size()};
  }  // NOLINT: a name is text

 private:
  std::array<char, 25> text_{};
};

// What a datagram to that address has to carry. Never 0.
uint64_t token_of(std::string_view address) noexcept;

// Room for an error line of a few hundred characters on paths that may not throw.
class Line {
 public:
  [[gnu::format(printf, 2, 3)]] explicit Line(const char* format, ...) noexcept;
  const char* get() const noexcept { return text_.data(); }

 private:
  std::array<char, 384> text_{};
};

}  // namespace weft::link::shm
