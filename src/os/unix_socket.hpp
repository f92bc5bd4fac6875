// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A datagram socket in the abstract Unix name space: the name vanishes with its owner, and file descriptors travel in messages.
// Must not know what the messages mean.
#pragma once

#include <sys/types.h>

#include <cerrno>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "os/disposal.hpp"
#include "os/fd.hpp"

namespace weft::os {

inline constexpr size_t passed_fds_max = 2;

// What is known of a datagram before any of its descriptors is received.
struct Sender {
  size_t bytes = 0;  // of the message
  pid_t pid = 0;     // as the kernel vouches, 0 when it is not visible from our pid namespace
  uid_t uid = static_cast<uid_t>(-1);  // likewise
  bool passes_fds = false;             // true also where it cannot be told
};

struct Datagram {
  size_t bytes = 0;                    // of the message
  std::array<Fd, passed_fds_max> fds;  // in the order sent; empty where none was passed
  bool cut = false;                    // not all of them have come
  int lack = 0;                        // EMFILE or ENFILE, where that is why
};

// Binds @name. Errno EADDRINUSE when somebody has it. With `word`, the kernel drops every datagram that does not have these eight bytes at
// `word_offset`, in the sender's call and before it takes room in the queue.
Result<Fd> bind_datagram(std::string_view name, size_t word_offset = 0, uint64_t word = 0);

// The user who has bound @name, from sock_diag(7). Empty: nobody has, or it cannot be told; `error` is why the kernel could not be asked, else 0.
// Looks at every Unix socket of the network namespace.
std::optional<uid_t> owner_of_name(std::string_view name, int* error = nullptr) noexcept;

// Whether somebody has that name. True when that cannot be told.
bool is_bound(std::string_view name) noexcept;

// A socket that is connected to who has @name now, and to nobody after him. Empty: a positive errno in `error`, ECONNREFUSED when nobody has
// it.
Fd connect_datagram(std::string_view name, int& error) noexcept;

// A (positive) errno of send_datagram() that may be about the descriptors rather than about the receiver.
inline bool may_refuse_descriptors(int code) noexcept {
  return code == EPERM || code == EACCES || code == EINVAL || code == ENOSYS || code == EOPNOTSUPP;
}

// Sends without blocking; no name for a connected socket. 0, or a negative errno: -EAGAIN when the other queue is full, -ECONNREFUSED when nobody has that name.
int send_datagram(const Fd& socket, std::string_view name, std::span<const std::byte> message,
                  std::span<const int> fds) noexcept;
// One byte over a connection, as a wake-up: without the sender's credentials. Lost where the other side's queue is full.
void send_byte(const Fd& socket) noexcept;

// Looks at the first datagram and leaves it and its descriptors where they are: 1 and the message, 0 when there is none, or a negative
// errno. Never blocks.
int peek_datagram(const Fd& socket, std::span<std::byte> buffer, Sender& out) noexcept;
// Drops the first datagram. Only one without descriptors: to drop these may sleep.
void skip_datagram(const Fd& socket) noexcept;
// Receives without blocking: 1 and a message, 0 when there is none, or a negative errno. Descriptors beyond passed_fds_max go to
// `disposal`.
int receive_datagram(const Fd& socket, std::span<std::byte> buffer, Datagram& out,
                     Disposal& disposal) noexcept;
// Nobody can send to the socket any more. What is in its queue stays.
void stop_datagrams(const Fd& socket) noexcept;

}  // namespace weft::os
