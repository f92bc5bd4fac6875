// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// unix(7): SOCK_SEQPACKET, SO_PEERCRED.
#include "os/unix_connection.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "os/abstract_address.hpp"

namespace weft::os {
namespace {

constexpr int backlog = 128;

Fd new_socket() noexcept { return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

}  // namespace

Result<Fd> listen_at(std::string_view name) {
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (length == 0) return Error{ENAMETOOLONG, "the name is too long for a Unix socket"};
  Fd socket = new_socket();
  // peek_datagram() needs the credentials; connections inherit it.
  const int on = 1;
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), backlog) != 0)
    return Error{errno,
                 std::string("cannot have the Unix socket @").append(name) + ": " + std::strerror(errno)};
  return socket;
}

Fd accept_connection(const Fd& listener) noexcept {
  for (;;) {
    Fd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection && (errno == EINTR || errno == ECONNABORTED)) continue;
    const int on = 1;
    if (connection) (void)::setsockopt(connection.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    return connection;
  }
}

Fd connect_to(std::string_view name, int& error) noexcept {
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  error = length == 0 ? ENAMETOOLONG : 0;
  if (error != 0) return {};
  Fd socket = new_socket();
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    error = errno;
    socket.reset();
  }
  return socket;
}

std::optional<uid_t> peer_user(const Fd& connection) noexcept {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return std::nullopt;
  return credentials.uid;
}

void end_connection(const Fd& connection) noexcept { (void)::shutdown(connection.get(), SHUT_RDWR); }

}  // namespace weft::os
