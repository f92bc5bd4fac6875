// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Congestion control within one host: both ends of a connection.
#include "link/tcp/congestion.hpp"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "os/fd.hpp"

namespace weft::link::tcp {
namespace {

os::Fd make_socket(int family) { return os::Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

std::string algorithm_of(const os::Fd& socket) {
  std::array<char, 17> name{};
  socklen_t length = name.size() - 1;
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length), 0);
  return name.data();
}

void connect_over(const os::SocketAddress& here) {
  SCOPED_TRACE(here.text());
  const os::Fd listener = make_socket(here.family());
  ASSERT_EQ(::bind(listener.get(), here.get(), here.size()), 0);
  prepare_congestion_control(listener.get());
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const os::SocketAddress place = os::local_address(listener.get());
  const os::Fd client = make_socket(here.family());
  choose_congestion_control(client.get(), place);
  ASSERT_EQ(::connect(client.get(), place.get(), place.size()), 0);
  const os::Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted);
  revise_congestion_control(accepted.get());
  EXPECT_EQ(algorithm_of(client), "reno");
  EXPECT_EQ(algorithm_of(accepted), "reno");
}

TEST(CongestionControl, IsRenoBetweenSocketsOfOneHost) {
  connect_over(os::SocketAddress::loopback(AF_INET));
  if (os::has_family(AF_INET6)) connect_over(os::SocketAddress::loopback(AF_INET6));
  connect_over(os::outgoing_address(AF_INET));
}

TEST(CongestionControl, IsTheSystemsTowardsOthers) {
  const os::Fd fresh = make_socket(AF_INET);
  const std::string before = algorithm_of(fresh);
  choose_congestion_control(fresh.get(), os::SocketAddress::from_text("192.0.2.1:9").value());
  EXPECT_EQ(algorithm_of(fresh), before);
  // What is connected to nobody is not connected to this host.
  prepare_congestion_control(fresh.get());
  revise_congestion_control(fresh.get());
  EXPECT_EQ(algorithm_of(fresh), before);
}

}  // namespace
}  // namespace weft::link::tcp
