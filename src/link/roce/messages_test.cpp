// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints of RC connections under a MessageLink: the time that closing takes.
#include "link/roce/messages.hpp"

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <sys/socket.h>

#include <cstring>
#include <list>
#include <string_view>

#include "link/tcp/connection.hpp"
#include "os/clock.hpp"
#include "os/fd.hpp"

namespace weft::link::roce {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Accepts in the name of a queue pair that never answers.
struct Silent final : tcp::ConnectionEvents, proto::ConnectionObserver {
  tcp::Other* make_peer(std::span<const std::byte>) override { return &place; }
  void peer_lost(tcp::Other&, core::ProviderError) noexcept override {}
  void connected(std::span<const std::byte>) noexcept override {}
  void refused(int, core::ProviderError, std::span<const std::byte>) noexcept override {}
  void disconnected(core::ProviderError) noexcept override {}

  tcp::Other place;
  tcp::Connection link;
};

struct SendsOne {
  Messages& endpoints;
  size_t sent = 0;
  void on_incoming(Messages::Connection&) noexcept {}
  void on_connected(Messages::Connection& connection) noexcept {
    if (endpoints.reserve(connection) == nullptr) return;
    endpoints.commit(connection, 8);
    ++sent;
  }
  bool on_message(Messages::Connection&, std::span<const std::byte>) noexcept { return true; }
  void on_lost(Messages::Connection&) noexcept {}
};

TEST(RoceMessages, PeersThatDoNotAnswerHoldUpTheEndOnce) {
  constexpr size_t count = 6;
  const auto host = *os::SocketAddress::from_text("127.0.0.1:0");
  const os::Fd deaf(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(deaf.get(), host.get(), host.size()), 0);
  const uint32_t number = 0x123456, path_mtu = 5;
  const Gid gid = *gid_with_port(os::local_address(deaf.get()));
  MessageChannel::Name name{};
  std::memcpy(name.data(), "WRC1", 4);
  std::memcpy(name.data() + 4, &number, sizeof number);
  std::memcpy(name.data() + 8, gid.data(), gid.size());
  std::memcpy(name.data() + 28, &path_mtu, sizeof path_mtu);
  tcp::Listener listener;
  listener.set_address_format(FI_SOCKADDR_IN);
  ASSERT_TRUE(listener.open(text_of(host.bytes())));
  ASSERT_TRUE(listener.listen(count));
  std::list<Silent> others;
  Messages endpoints;
  endpoints.set_address_format(FI_SOCKADDR_IN);
  ASSERT_TRUE(endpoints.open(text_of(host.bytes())));
  int error = 0;
  for (size_t i = 0; i < count; ++i) ASSERT_NE(endpoints.connect(listener.address(), error), nullptr);
  SendsOne handler{endpoints};
  for (const uint64_t end = os::monotonic_ns() + 10'000'000'000;
       handler.sent < count && os::monotonic_ns() < end;) {
    (void)endpoints.poll(handler);
    listener.poll();
    while (auto request = listener.next()) {
      Silent& other = others.emplace_back();
      other.link.set_address_format(FI_SOCKADDR_IN);
      ASSERT_TRUE(other.link.open({}, other, other));
      ASSERT_TRUE(other.link.accept(std::move(request), name));
    }
  }
  ASSERT_EQ(handler.sent, count);
  const uint64_t begin = os::monotonic_ns();
  endpoints.close();
  EXPECT_LT(os::monotonic_ns() - begin, 4 * Connection::linger_ns);
}

}  // namespace
}  // namespace weft::link::roce
