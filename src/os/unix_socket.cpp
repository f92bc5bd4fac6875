// unix(7): abstract addresses, SCM_RIGHTS and SCM_CREDENTIALS.
#include "os/unix_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace weft::os {
namespace {

// Fills an abstract address; its length, or 0 when the name is too long.
socklen_t abstract_address(std::string_view name, sockaddr_un& out) noexcept {
  out = {};
  out.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(out.sun_path)) return 0;
  std::memcpy(out.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Result<Fd> bind_datagram(std::string_view name) {
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return Error{errno, std::string("no Unix socket: ") + std::strerror(errno)};
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (length == 0) return Error{ENAMETOOLONG, "the name is too long for a Unix socket"};
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return Error{errno,
                 std::string("cannot bind the Unix socket @").append(name) + ": " + std::strerror(errno)};
  return socket;
}

bool is_bound(std::string_view name) noexcept {
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  const Fd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (length == 0 || !probe) return true;
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 ||
         errno != ECONNREFUSED;
}

int send_datagram(const Fd& socket, std::string_view name, std::span<const std::byte> message,
                  std::span<const int> fds) noexcept {
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (length == 0) return -ENAMETOOLONG;
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * passed_fds_max)> control{};
  msghdr header{};
  header.msg_name = &address;
  header.msg_namelen = length;
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* entry = CMSG_FIRSTHDR(&header);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(entry), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    if (::sendmsg(socket.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
    if (errno != EINTR) return -errno;
  }
}

int receive_datagram(const Fd& socket, std::span<std::byte> buffer, Datagram& out) noexcept {
  out = {};
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * passed_fds_max) + CMSG_SPACE(sizeof(ucred))>
      control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got;
  do got = ::recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN ? 0 : -errno;
  out.bytes = static_cast<size_t>(got);
  for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr; entry = CMSG_NXTHDR(&header, entry)) {
    if (entry->cmsg_level != SOL_SOCKET) continue;
    if (entry->cmsg_type == SCM_RIGHTS) {
      const size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(entry) + i * sizeof(int), sizeof(int));
        if (i < passed_fds_max) out.fds[i] = Fd(fd);
        else ::close(fd);
      }
    } else if (entry->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials;
      std::memcpy(&credentials, CMSG_DATA(entry), sizeof(credentials));
      out.pid = credentials.pid;
      out.uid = credentials.uid;
    }
  }
  return 1;
}

}  // namespace weft::os
