// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets over UD queue pairs: sources, sizes, bounds, what strangers send.
#include "link/roce/datagrams.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "link/roce/test_side.hpp"
#include "os/clock.hpp"

namespace weft::link::roce {
namespace {

struct Kept {
  std::vector<std::string> bytes;
  std::vector<os::SocketAddress> sources;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    bytes.emplace_back(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
    sources.push_back(*os::SocketAddress::from(packet.source.data(), packet.source.size()));
  }
};

void open(Datagrams& link, const char* at = "127.0.0.1:0") {
  const auto address = *os::SocketAddress::from_text(at);
  auto opened = link.open(address.bytes());
  ASSERT_TRUE(opened) << opened.error().why;
}

int send(Datagrams& from, const Datagrams& to, const std::string& text) {
  const iovec part{const_cast<char*>(text.data()), text.size()};
  return from.try_send(to.address(), &part, 1);
}

void poll_until(Datagrams& link, Kept& kept, size_t count) {
  for (const uint64_t end = os::monotonic_ns() + 10'000'000'000; os::monotonic_ns() < end;) {
    (void)link.poll(kept);
    if (kept.bytes.size() >= count) return;
  }
}

TEST(RoceDatagrams, ArriveWithTheirSource) {
  Datagrams a, b;
  open(a);
  open(b);
  const std::string longest(a.packet_bytes_max(b.address()), 'x');
  for (const std::string& text : {std::string("hello"), std::string(), std::string("abc"), longest})
    EXPECT_EQ(send(a, b, text), 0);
  Kept kept;
  poll_until(b, kept, 4);
  ASSERT_EQ(kept.bytes.size(), 4U);
  EXPECT_EQ(kept.bytes[0], "hello");
  EXPECT_EQ(kept.bytes[1], "");
  EXPECT_EQ(kept.bytes[2], "abc");
  EXPECT_EQ(kept.bytes[3], longest);
  EXPECT_TRUE(std::ranges::equal(kept.sources[0].bytes(), a.address()));
}

TEST(RoceDatagrams, TooLongOrNowhereIsRefused) {
  Datagrams a, b;
  open(a);
  open(b);
  EXPECT_EQ(send(a, b, std::string(a.packet_bytes_max(b.address()) + 1, 'x')), -EMSGSIZE);
  const auto nowhere = *os::SocketAddress::from_text("127.0.0.1:0");
  const iovec part{};
  EXPECT_EQ(a.try_send(nowhere.bytes(), &part, 0), -EINVAL);
  Datagrams standard;
  EXPECT_FALSE(standard.open(os::SocketAddress::from_text("127.0.0.1:4791")->bytes()));
  EXPECT_FALSE(standard.open(os::SocketAddress::from_text("[::1]:0")->bytes()));
}

// Anybody may send a datagram that is longer than an endpoint's.
TEST(RoceDatagrams, TheLongestPacketsOfUnknownSendersAreDropped) {
  Datagrams a, b;
  open(a);
  open(b);
  testing::Side stranger("127.0.0.1:0", false, false);
  ASSERT_TRUE(stranger.device);
  {
    const std::scoped_lock guard(stranger.device->lock());
    proto::roce::Adapter& adapter = stranger.device->adapter();
    adapter.datagram_bytes_max = proto::roce::mtu_bytes_max;
    proto::roce::QueuePairRequest request;
    request.type = proto::roce::QpType::Ud;
    request.pd = 1;
    request.send_cq = request.receive_cq = stranger.cq;
    request.number = Datagrams::queue_pair_number;
    proto::roce::QueuePair& qp = **adapter.create_qp(request);
    using enum proto::roce::QpState;
    proto::roce::Attributes attributes;
    const auto step = [&](proto::roce::QpState state, uint32_t mask) {
      attributes.state = state;
      return bool(adapter.modify(qp, attributes, mask | proto::roce::attr_state, os::monotonic_ns()));
    };
    ASSERT_TRUE(step(Init, proto::roce::attr_pkey_index | proto::roce::attr_port | proto::roce::attr_qkey));
    ASSERT_TRUE(step(ReadyToReceive, 0) && step(ReadyToSend, proto::roce::attr_sq_psn));
    const proto::roce::Element all{reinterpret_cast<uint64_t>(stranger.memory.data()),
                                   proto::roce::mtu_bytes_max, stranger.region->key};
    proto::roce::SendRequest longest;
    longest.elements = {&all, 1};
    longest.to.destination = *gid_with_port(*os::SocketAddress::from(b.address().data(), b.address().size()));
    longest.remote_qpn = Datagrams::queue_pair_number;
    longest.remote_qkey = Datagrams::queue_key;
    ASSERT_EQ(adapter.post_send(qp, longest, os::monotonic_ns()), 0);
    stranger.device->posted();
  }
  const bool is_too_long = Datagrams::interface_bytes() < proto::roce::mtu_bytes_max;
  EXPECT_EQ(send(a, b, "still here"), 0);
  Kept kept;
  poll_until(b, kept, is_too_long ? 1 : 2);
  ASSERT_EQ(kept.bytes.size(), is_too_long ? 1U : 2U);
  EXPECT_EQ(kept.bytes.back(), "still here");
}

TEST(RoceDatagrams, ReceivesAndSendSlotsAreUsedAgain) {
  Datagrams a, b;
  open(a);
  open(b);
  Kept kept;
  constexpr size_t count = 3 * Datagrams::receive_slots;
  for (size_t i = 0; i < count; ++i) {
    while (send(a, b, std::to_string(i)) == -EAGAIN) (void)a.poll(kept);
    if (i % 50 == 49) poll_until(b, kept, i + 1);
  }
  poll_until(b, kept, count);
  ASSERT_EQ(kept.bytes.size(), count);
  EXPECT_EQ(kept.bytes.back(), std::to_string(count - 1));
}

TEST(RoceDatagrams, SleepsUntilAPacketComes) {
  Datagrams a, b;
  open(a);
  open(b);
  const int fd = b.wait_fd();
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(b.arm());
  pollfd ready{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 10), 0);
  EXPECT_EQ(send(a, b, "wake"), 0);
  EXPECT_EQ(::poll(&ready, 1, 10'000), 1);
  b.disarm();
  Kept kept;
  poll_until(b, kept, 1);
  EXPECT_EQ(kept.bytes.size(), 1U);
}

}  // namespace
}  // namespace weft::link::roce
