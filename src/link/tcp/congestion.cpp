// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Congestion control of connections within one host: the socket option.
#include "link/tcp/congestion.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string_view>

#include "os/fd.hpp"

namespace weft::link::tcp {
namespace {

constexpr std::string_view within_host = "reno";

struct Algorithm {
  std::array<char, 17> name{};  // TCP_CA_NAME_MAX is 16
  std::string_view text() const noexcept { return name.data(); }
};

Algorithm algorithm_of(int socket) noexcept {
  Algorithm found;
  socklen_t length = found.name.size() - 1;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, found.name.data(), &length) != 0) found.name[0] = 0;
  return found;
}

void use(int socket, std::string_view name) noexcept {
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

bool is_within_host(os::SocketAddress a, os::SocketAddress b) noexcept {
  a.set_port(0);
  b.set_port(0);
  return a == b || (a.is_loopback() && b.is_loopback());
}

}  // namespace

void choose_congestion_control(int socket, const os::SocketAddress& to) noexcept {
  if (is_within_host(to, to.is_loopback() ? to : os::source_toward(to))) use(socket, within_host);
}

void prepare_congestion_control(int listener) noexcept { use(listener, within_host); }

void revise_congestion_control(int accepted) noexcept {
  if (is_within_host(os::local_address(accepted), os::remote_address(accepted))) return;
  if (algorithm_of(accepted).text() != within_host) return;  // the route's
  const os::Fd fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fresh) return;
  const Algorithm system = algorithm_of(fresh.get());
  if (!system.text().empty()) use(accepted, system.text());
}

}  // namespace weft::link::tcp
