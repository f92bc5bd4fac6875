// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The control channel. Knows neither the fabric nor what is said.
#include "channel.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "failure.hpp"

namespace weft::tool {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds send_limit{10'000};
constexpr size_t message_most = 1 << 20;  // bytes; whoever sends more is not one of us

}  // namespace

void Channel::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Channel::send(const nlohmann::json& message) {
  const std::string line = message.dump() + "\n";
  size_t sent = 0;
  const auto end = Clock::now() + send_limit;
  while (sent < line.size()) {
    const ssize_t n = ::send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (Clock::now() > end) fail("the other process does not read what it is told");
      pollfd wait{fd_, POLLOUT, 0};
      poll(&wait, 1, 100);
    } else {
      fail("the other process is gone ({})", std::strerror(errno));
    }
  }
}

bool Channel::take_message(nlohmann::json& message) {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    if (buffer_.size() > message_most) fail("the other side does not speak our control protocol");
    return false;
  }
  message = nlohmann::json::parse(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(end),
                                  nullptr, false);
  buffer_.erase(0, end + 1);
  if (!message.is_object()) fail("the other side does not speak our control protocol");
  if (message.contains("error"))
    throw Failure(message["error"].is_string() ? message["error"].get<std::string>() : "?");
  return true;
}

bool Channel::read_some() {
  char block[4096];
  const ssize_t n = recv(fd_, block, sizeof block, MSG_DONTWAIT);
  if (n > 0) {
    buffer_.append(block, static_cast<size_t>(n));
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  fail("the other process is gone{}", n < 0 ? fmt::format(" ({})", std::strerror(errno)) : "");
}

nlohmann::json Channel::receive(milliseconds limit, const std::function<void()>& idle) {
  // Polling the fabric first without a sleep: the peer is mostly microseconds behind.
  constexpr milliseconds eager_time{2};
  constexpr int idle_batch = 64;
  nlohmann::json message;
  const auto begin = Clock::now();
  while (!take_message(message)) {
    const auto waited = Clock::now() - begin;
    if (waited > limit) fail("the other process has not answered for {} s", limit.count() / 1000);
    const bool eager = idle && waited < eager_time;
    for (int i = 0; idle && i < idle_batch; ++i) idle();
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, eager ? 0 : idle ? 1 : 100) > 0) read_some();
  }
  return message;
}

bool Channel::peer_is_there() const noexcept {
  pollfd wait{fd_, POLLRDHUP, 0};
  return poll(&wait, 1, 0) <= 0 || !(wait.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

std::pair<Channel, Channel> local_channel() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail("socketpair: {}", std::strerror(errno));
  return {Channel(ends[0]), Channel(ends[1])};
}

namespace {

int listen_on(uint16_t port) {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1, off = 0;
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  if (fd >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, reinterpret_cast<sockaddr*>(&any6), sizeof any6) == 0 && listen(fd, 128) == 0) return fd;
    ::close(fd);
  }
  const int fd4 = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // a machine without IPv6
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  if (fd4 >= 0) setsockopt(fd4, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd4 < 0 || bind(fd4, reinterpret_cast<sockaddr*>(&any4), sizeof any4) != 0 || listen(fd4, 128) != 0) {
    const int error = errno;
    if (fd4 >= 0) ::close(fd4);
    fail("cannot listen on port {}: {}", port, std::strerror(error));
  }
  return fd4;
}

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  // Both families keep the port at the same place.
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Channel tcp_channel(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return Channel(fd);
}

// One attempt at every address that the name has. -1 with errno.
int connect_once(const addrinfo* list) {
  int error = EHOSTUNREACH;
  for (const addrinfo* a = list; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    error = errno;
    if (fd >= 0) ::close(fd);
  }
  errno = error;
  return -1;
}

}  // namespace

Listener::Listener(uint16_t port) : fd_(listen_on(port)) {}
Listener::~Listener() { ::close(fd_); }
uint16_t Listener::port() const { return port_of(fd_); }

Channel Listener::accept(milliseconds limit) {
  int fd = -1;
  do {
    pollfd wait{fd_, POLLIN, 0};
    const int status = poll(&wait, 1, static_cast<int>(limit.count()));
    if (status == 0) fail("nobody has connected for {} s", limit.count() / 1000);
    fd = status < 0 ? -1 : accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (fd < 0) fail("accept: {}", std::strerror(errno));
  return tcp_channel(fd);
}

Channel connect_to(const std::string& host, uint16_t port, milliseconds limit) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) fail("{}: {}", host, gai_strerror(status));
  const auto end = Clock::now() + limit;
  int fd = -1;
  while ((fd = connect_once(list)) < 0 && errno == ECONNREFUSED && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(100));  // the server may be about to start
  }
  const int error = errno;
  freeaddrinfo(list);
  if (fd < 0) fail("cannot reach a weft perf --server at {} port {}: {}", host, port, std::strerror(error));
  return tcp_channel(fd);
}

std::string local_address(const Channel& channel) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST];
  if (getsockname(channel.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return {};
  }
  const std::string result = text;
  // A mapped IPv4 address is an IPv4 address to everybody else.
  return result.starts_with("::ffff:") ? result.substr(7) : result;
}

}  // namespace weft::tool
