// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// unix(7): abstract addresses, SCM_RIGHTS and SCM_CREDENTIALS. sock_diag(7): whose a name is.
#include "os/unix_socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "os/abstract_address.hpp"
#include "os/shortage.hpp"

namespace weft::os {
namespace {

// Only datagrams with that word pass. Without the filter every datagram passes, and the receiver looks at the word itself.
void accept_word_only(const Fd& socket, size_t offset, uint64_t word) noexcept {
  std::array<uint32_t, 2> halves{};  // a filter loads 32 bits in network order
  std::memcpy(halves.data(), &word, sizeof(word));
  const auto at = static_cast<uint32_t>(offset);
  std::array<sock_filter, 6> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(halves[0]), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(halves[1]), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

// Room for the control part of a datagram that is looked at: the credentials and not one byte more. Then the kernel installs no descriptor and
// sets MSG_CTRUNC when the datagram has some.
constexpr size_t room_for_credentials = CMSG_SPACE(sizeof(ucred));
// qemu-user gives the kernel twice the room that the program gave. With room_for_credentials the kernel installs two descriptors at each look, qemu
// drops their numbers, and MSG_CTRUNC is not set. Twice half_room holds the credentials and the header of the descriptors, but no descriptor. The
// program gets the first 8 bytes of the credentials, pid and uid.
constexpr size_t half_room = CMSG_LEN(2 * sizeof(uint32_t));
static_assert(2 * half_room >= room_for_credentials &&
              2 * half_room <= room_for_credentials + sizeof(cmsghdr));

enum class Room : uint8_t { Unknown, AsGiven, Doubled };

// Sends a byte to itself and looks at it with half_room, which cuts the credentials. Unknown: no descriptors for that now.
Room try_room() noexcept {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return Room::Unknown;
  const Fd from(ends[0]), to(ends[1]);
  const int on = 1;
  std::byte byte{1};
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<std::byte, 2 * room_for_credentials> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = half_room;
  if (::setsockopt(to.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      ::send(from.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1 ||
      ::recvmsg(to.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
    return Room::Unknown;
  return (header.msg_flags & MSG_CTRUNC) != 0 ? Room::AsGiven : Room::Doubled;
}

size_t room_to_peek() noexcept {
  static std::atomic<Room> room{Room::Unknown};
  Room known = room.load(std::memory_order_relaxed);
  if (known == Room::Unknown) {
    known = try_room();
    room.store(known, std::memory_order_relaxed);
  }
  // Unknown: half_room installs nothing either way. Where it is not doubled the credentials are cut, and each datagram seems to pass descriptors.
  return known == Room::AsGiven ? room_for_credentials : half_room;
}

}  // namespace

Result<Fd> bind_datagram(std::string_view name, size_t word_offset, uint64_t word) {
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return Error{errno, "no Unix socket: " + with_remedy(errno)};
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0)
    return Error{errno, std::string("no credentials of senders (SO_PASSCRED): ") + std::strerror(errno)};
  if (word != 0) accept_word_only(socket, word_offset, word);
  (void)room_to_peek();  // found out while there are descriptors
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

Fd connect_datagram(std::string_view name, int& error) noexcept {
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  error = length == 0 ? ENAMETOOLONG : 0;
  if (error == 0 &&
      (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0))
    error = errno;
  return error == 0 ? std::move(socket) : Fd{};
}

int send_datagram(const Fd& socket, std::string_view name, std::span<const std::byte> message,
                  std::span<const int> fds) noexcept {
  sockaddr_un address;
  const socklen_t length = name.empty() ? socklen_t{0} : abstract_address(name, address);
  if (length == 0 && !name.empty()) return -ENAMETOOLONG;
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * passed_fds_max) + CMSG_SPACE(sizeof(ucred))>
      control{};
  msghdr header{};
  header.msg_name = length != 0 ? &address : nullptr;
  header.msg_namelen = length;
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  const auto attach = [&](int type, const void* data, size_t bytes) {
    auto* entry = reinterpret_cast<cmsghdr*>(control.data() + header.msg_controllen);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = type;
    entry->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(entry), data, bytes);
    header.msg_controllen += CMSG_SPACE(bytes);
  };
  if (!fds.empty()) attach(SCM_RIGHTS, fds.data(), sizeof(int) * fds.size());
  // By itself the kernel names the real user. What we open belongs to the effective one.
  if (const ucred self{::getpid(), ::geteuid(), ::getgid()}; self.uid != ::getuid())
    attach(SCM_CREDENTIALS, &self, sizeof(self));
  if (header.msg_controllen == 0) header.msg_control = nullptr;
  for (;;) {
    if (::sendmsg(socket.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
    if (errno != EINTR) return -errno;
  }
}

void send_byte(const Fd& socket) noexcept {
  const std::byte byte{1};
  while (::send(socket.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

int peek_datagram(const Fd& socket, std::span<std::byte> buffer, Sender& out) noexcept {
  out = {};
  iovec part{buffer.data(), buffer.size()};
  // No descriptor is installed. The message in the queue keeps them, so nothing is closed here either.
  alignas(cmsghdr) std::array<std::byte, 2 * room_for_credentials> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = room_to_peek();
  ssize_t got;
  do got = ::recvmsg(socket.get(), &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN ? 0 : -errno;
  out.bytes = static_cast<size_t>(got);
  out.passes_fds = (header.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* entry = CMSG_FIRSTHDR(&header);
  if (entry != nullptr && entry->cmsg_level == SOL_SOCKET && entry->cmsg_type == SCM_CREDENTIALS) {
    ucred credentials{};
    std::memcpy(&credentials, CMSG_DATA(entry), 2 * sizeof(uint32_t));
    out.pid = credentials.pid;
    out.uid = credentials.uid;
  }
  return 1;
}

void skip_datagram(const Fd& socket) noexcept {
  msghdr nothing{};
  while (::recvmsg(socket.get(), &nothing, MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

int receive_datagram(const Fd& socket, std::span<std::byte> buffer, Datagram& out,
                     Disposal& disposal) noexcept {
  constexpr size_t passed_most = 253;  // SCM_MAX_FD
  static_assert(passed_most < Disposal::fds_max);
  out = {};
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * passed_most) + CMSG_SPACE(sizeof(ucred))>
      control;
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
  out.cut = (header.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr; entry = CMSG_NXTHDR(&header, entry)) {
    if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(entry) + i * sizeof(int), sizeof(int));
      if (i < passed_fds_max) out.fds[i] = Fd(fd);
      else disposal.close(Fd(fd));
    }
  }
  // Asked while those that came are held.
  if (out.cut && !Fd(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0))) out.lack = errno;
  return 1;
}

void stop_datagrams(const Fd& socket) noexcept { (void)::shutdown(socket.get(), SHUT_RD); }

// --- sock_diag(7), unix ---

namespace {

struct OwnerQuery {
  nlmsghdr head;
  unix_diag_req request;
};

// The attributes of one socket: its user when it has that name.
std::optional<uid_t> owner_in(const nlmsghdr& message, std::string_view name) noexcept {
  const auto* at = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(&message) +
                                                   NLMSG_LENGTH(NLMSG_ALIGN(sizeof(unix_diag_msg))));
  int left = static_cast<int>(message.nlmsg_len) - static_cast<int>(NLMSG_LENGTH(sizeof(unix_diag_msg)));
  bool same = false;
  std::optional<uid_t> owner;
  for (; RTA_OK(at, left); at = RTA_NEXT(at, left)) {
    const std::string_view value(static_cast<const char*>(RTA_DATA(at)), RTA_PAYLOAD(at));
    if (at->rta_type == UNIX_DIAG_NAME)
      same = value.size() == name.size() + 1 && value.front() == 0 && value.substr(1) == name;
    if (at->rta_type == UNIX_DIAG_UID && value.size() == sizeof(uid_t)) {
      uid_t uid;
      std::memcpy(&uid, value.data(), sizeof(uid));
      owner = uid;
    }
  }
  return same ? owner : std::nullopt;
}

}  // namespace

std::optional<uid_t> owner_of_name(std::string_view name, int* error) noexcept {
  if (error != nullptr) *error = 0;
  constexpr uint16_t by_family = 20;  // SOCK_DIAG_BY_FAMILY
  const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
  if (!socket) {
    if (error != nullptr) *error = errno;
    return std::nullopt;
  }
  OwnerQuery query{};
  query.head = {sizeof(query), by_family, NLM_F_REQUEST | NLM_F_DUMP, 1, 0};
  query.request.sdiag_family = AF_UNIX;
  query.request.udiag_states = UINT32_MAX;
  query.request.udiag_show = UDIAG_SHOW_NAME | 0x40;  // UDIAG_SHOW_UID, newer than some headers
  if (::send(socket.get(), &query, sizeof(query), 0) != sizeof(query)) return std::nullopt;
  std::optional<uid_t> owner;
  // A dump is made as it is read, so every read finds a part of it.
  for (;;) {
    alignas(nlmsghdr) std::array<char, 16384> part;
    const ssize_t got = ::recv(socket.get(), part.data(), part.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return owner;
    auto left = static_cast<size_t>(got);
    for (const auto* at = reinterpret_cast<const nlmsghdr*>(part.data()); NLMSG_OK(at, left);
         at = NLMSG_NEXT(at, left)) {
      if (at->nlmsg_type == NLMSG_DONE || at->nlmsg_type == NLMSG_ERROR) return owner;
      if (at->nlmsg_type == by_family)
        if (const auto found = owner_in(*at, name)) owner = found;
    }
  }
}

}  // namespace weft::os
