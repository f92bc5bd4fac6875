// A datagram socket in the abstract Unix name space: the name vanishes with its owner, and file descriptors travel in messages.
// Must not know what the messages mean.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::os {

inline constexpr size_t passed_fds_max = 2;

struct Datagram {
  size_t bytes = 0;                    // of the message
  std::array<Fd, passed_fds_max> fds;  // in the order sent; empty where none was passed
  pid_t pid = 0;  // of the sender as the kernel vouches, 0 when it is not visible from our pid namespace
  uid_t uid = static_cast<uid_t>(-1);  // of the sender, likewise
};

// Binds @name. Errno EADDRINUSE when somebody has it.
Result<Fd> bind_datagram(std::string_view name);

// Whether somebody has that name. True when that cannot be told.
bool is_bound(std::string_view name) noexcept;

// Sends without blocking. 0, or a negative errno: -EAGAIN when the other queue is full, -ECONNREFUSED when nobody has that name.
int send_datagram(const Fd& socket, std::string_view name, std::span<const std::byte> message,
                  std::span<const int> fds) noexcept;

// Receives without blocking: 1 and a message, 0 when there is none, or a negative errno.
int receive_datagram(const Fd& socket, std::span<std::byte> buffer, Datagram& out) noexcept;

}  // namespace weft::os
