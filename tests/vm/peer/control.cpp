// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "control.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace weft::vm {
namespace {

constexpr int connect_ms = 30'000;
constexpr int answer_ms = 60'000;
constexpr uint32_t frame_bytes_max = 1 << 20;

std::string formatted(const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  return line;
}

sockaddr_in place(const std::string& address, uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  require(inet_pton(AF_INET, address.c_str(), &at.sin_addr) == 1, "no IPv4 address: %s", address.c_str());
  return at;
}

void read_all(int socket, void* to, size_t count) {
  auto* at = static_cast<char*>(to);
  while (count > 0) {
    pollfd wait{socket, POLLIN, 0};
    require(poll(&wait, 1, answer_ms) == 1, "the peer said nothing for %d s", answer_ms / 1000);
    const ssize_t n = recv(socket, at, count, 0);
    require(n > 0, "the peer is gone");
    at += n;
    count -= static_cast<size_t>(n);
  }
}

}  // namespace

std::string text(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string result = formatted(format, arguments);
  va_end(arguments);
  return result;
}

void require(bool holds, const char* format, ...) {
  if (holds) return;
  va_list arguments;
  va_start(arguments, format);
  const std::string why = formatted(format, arguments);
  va_end(arguments);
  throw Failure(why);
}

Control Control::listen(const std::string& address, uint16_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in at = place(address, port);
  require(
      bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && ::listen(listener, 1) == 0,
      "cannot listen at %s:%u: %s", address.c_str(), port, strerror(errno));
  pollfd wait{listener, POLLIN, 0};
  const int socket = poll(&wait, 1, connect_ms) == 1 ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  close(listener);
  require(socket >= 0, "nobody connected");
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return Control(socket);
}

Control Control::connect(const std::string& address, uint16_t port) {
  const sockaddr_in at = place(address, port);
  for (int waited_ms = 0; waited_ms < connect_ms; waited_ms += 50) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) {
      const int yes = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      return Control(socket);
    }
    close(socket);
    usleep(50'000);
  }
  throw Failure(text("nobody listens at %s:%u", address.c_str(), port));
}

Control::~Control() {
  if (socket_ >= 0) close(socket_);
}

void Control::send_frame(char kind, const void* bytes, size_t count) {
  std::vector<char> frame(5 + count);
  const auto length = static_cast<uint32_t>(count);
  frame[0] = kind;
  std::memcpy(&frame[1], &length, sizeof length);
  if (count > 0) std::memcpy(&frame[5], bytes, count);
  require(::send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size()),
          "the peer is gone");
}

char Control::receive_frame(std::vector<char>& bytes) {
  char kind = 0;
  uint32_t length = 0;
  read_all(socket_, &kind, sizeof kind);
  read_all(socket_, &length, sizeof length);
  require(length <= frame_bytes_max, "a frame of %u bytes", length);
  bytes.resize(length);
  if (length > 0) read_all(socket_, bytes.data(), length);
  return kind;
}

void Control::receive_data(void* to, size_t count) {
  std::vector<char> bytes;
  if (!peer_finished_ && receive_frame(bytes) != 'd') {
    peer_finished_ = true;
    peer_verdict_.assign(bytes.begin(), bytes.end());
  }
  require(!peer_finished_, "the peer ended early");
  require(bytes.size() == count, "a frame of %zu bytes instead of %zu", bytes.size(), count);
  std::memcpy(to, bytes.data(), count);
}

std::string Control::finish(const std::string& verdict) {
  send_frame('e', verdict.data(), verdict.size());
  std::vector<char> bytes;
  while (!peer_finished_) {
    if (receive_frame(bytes) != 'e') continue;  // what a failed scenario left
    peer_finished_ = true;
    peer_verdict_.assign(bytes.begin(), bytes.end());
  }
  peer_finished_ = false;
  return std::move(peer_verdict_);
}

}  // namespace weft::vm
