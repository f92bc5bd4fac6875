// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Multicast groups over real sockets: devices with ports of their own, who hear each other's groups, and plain sockets
// as strangers at port 4791.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "link/roce/headers.hpp"
#include "link/roce/test_side.hpp"
#include "wire/bytes.hpp"
#include "wire/roce/icrc.hpp"

namespace weft::link::roce {
namespace {

using namespace proto::roce;
using testing::Counting;

constexpr uint32_t qkey = 0x11111111;

Gid group_of(const char* text) { return standard_gid(*os::SocketAddress::from_text(text)); }

// A device with a UD queue pair.
struct Talker {
  explicit Talker(const char* host, uint16_t port = 0) : memory(8192) {
    DeviceSettings settings;
    settings.ipv4 = *os::SocketAddress::from_text(host);
    settings.port = port;
    settings.has_standard = false;
    auto opened = Device::open(settings, events);
    if (!opened) return;
    device = std::move(*opened);
    {
      const std::scoped_lock guard(device->lock());
      cq = *device->adapter().create_cq(64);
      region = *device->adapter().memory().add(1, memory.data(), reinterpret_cast<uint64_t>(memory.data()),
                                               memory.size(), local_write);
    }
    qp = make();
  }
  QueuePair* make() {
    const std::scoped_lock guard(device->lock());
    QueuePairRequest request;
    request.type = QpType::Ud;
    request.pd = 1;
    request.send_cq = request.receive_cq = cq;
    request.capacities = {16, 16, 1, 1, 64};
    QueuePair* const made = *device->adapter().create_qp(request);
    Attributes a;
    a.qkey = qkey;
    const auto step = [&](QpState state, uint32_t mask) {
      a.state = state;
      EXPECT_TRUE(device->adapter().modify(*made, a, mask | attr_state, os::monotonic_ns()));
    };
    step(QpState::Init, attr_pkey_index | attr_port | attr_qkey);
    step(QpState::ReadyToReceive, 0);
    step(QpState::ReadyToSend, attr_sq_psn);
    return made;
  }
  void receive(QueuePair& by, uint64_t id) {
    const std::scoped_lock guard(device->lock());
    const Element element{reinterpret_cast<uint64_t>(memory.data()) + id * 128, 128, region->key};
    ASSERT_EQ(device->adapter().post_receive(by, {id, {&element, 1}}, os::monotonic_ns()), 0);
  }
  Result<void> attach(QueuePair& whom, const Gid& group) {
    const std::scoped_lock guard(device->lock());
    return device->groups().attach(whom, group);
  }
  void send(const Gid& group) {
    const std::scoped_lock guard(device->lock());
    auto to = device->groups().reach(0, group);
    ASSERT_TRUE(to) << to.error().why;
    send_as(*to, group_qpn);
  }
  void send_as(const Gid& to, uint32_t qpn) {
    const Element element{reinterpret_cast<uint64_t>("to all of you"), 14, 0};
    SendRequest q;
    q.id = 100;
    q.flags = signaled | inline_data;
    q.elements = {&element, 1};
    q.to.destination = to;
    q.remote_qpn = qpn;
    q.remote_qkey = qkey;
    ASSERT_EQ(device->adapter().post_send(*qp, q, os::monotonic_ns()), 0);
    device->posted();
  }
  // The completions of receives that come within that time, until there are `count`.
  std::vector<Completion> received(size_t count, uint64_t within_ns = 5'000'000'000) {
    std::vector<Completion> all;
    Completion c;
    for (const uint64_t end = os::monotonic_ns() + within_ns;
         all.size() < count && os::monotonic_ns() < end;) {
      const std::scoped_lock guard(device->lock());
      (void)device->poll();
      while (cq->poll({&c, 1}) == 1)
        if (c.opcode == CompletionOpcode::Receive) all.push_back(c);
    }
    return all;
  }

  Counting events;
  std::vector<std::byte> memory;
  std::unique_ptr<Device> device;
  CompletionQueue* cq = nullptr;
  Region* region = nullptr;
  QueuePair* qp = nullptr;
};

TEST(RoceGroups, NamesAndPorts) {
  const Gid ip4 = group_of("239.1.2.3:0"), ip6 = group_of("[ff0e::5]:0");
  EXPECT_TRUE(is_group(ip4) && is_group(ip6));
  EXPECT_FALSE(is_group(group_of("10.1.2.3:0")) || is_group(group_of("[fe80::1]:0")) || is_group(Gid{}));
  const Gid own = *gid_with_port(*os::SocketAddress::from_text("10.0.0.1:700"));
  EXPECT_FALSE(is_group(own));
  EXPECT_EQ(address_of(group_for(ip4, own)), *os::SocketAddress::from_text("239.1.2.3:22341"));
  EXPECT_EQ(address_of(group_for(ip4, group_of("10.0.0.1:0"))),
            *os::SocketAddress::from_text("239.1.2.3:4791"));
  EXPECT_TRUE(is_group(group_for(ip4, own)));
  EXPECT_EQ(group_for(ip6, own), ip6);
}

TEST(RoceGroups, TwoDevicesOfOneHostWithPortsOfTheirOwn) {
  Talker a("127.0.0.1:0"), b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  const Gid group = group_of("239.7.4.1:0");
  QueuePair* const second = a.make();
  ASSERT_TRUE(a.attach(*a.qp, group));
  ASSERT_TRUE(a.attach(*second, group));
  ASSERT_TRUE(b.attach(*b.qp, group));
  a.receive(*a.qp, 1);
  a.receive(*second, 2);
  b.receive(*b.qp, 3);
  a.send(group);
  const auto at_b = b.received(1);
  ASSERT_EQ(at_b.size(), 1u);
  EXPECT_EQ(at_b[0].bytes, grh_bytes + 14);
  const std::byte* const slot = b.memory.data() + 3 * 128;
  EXPECT_STREQ(reinterpret_cast<const char*>(slot + grh_bytes), "to all of you");
  const auto at_a = a.received(1);
  ASSERT_EQ(at_a.size(), 1u);  // not the sender itself
  EXPECT_EQ(at_a[0].qpn, second->number);
  EXPECT_TRUE(a.received(1, 20'000'000).empty());
  // The GRH names the sender, so that it can be answered.
  Gid from, to;
  std::memcpy(from.data(), slot + 8, from.size());
  std::memcpy(to.data(), slot + 24, to.size());
  EXPECT_EQ(from, a.device->gid(0));
  EXPECT_EQ(to, group);
  {
    const std::scoped_lock guard(b.device->lock());
    b.send_as(from, at_b[0].source_qpn);
  }
  EXPECT_EQ(a.received(1).size(), 1u);
}

TEST(RoceGroups, WhoHasLeftHearsNothing) {
  Talker a("127.0.0.1:0"), b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  const Gid group = group_of("239.7.4.2:0");
  b.receive(*b.qp, 1);
  a.send(group);
  EXPECT_TRUE(b.received(1, 20'000'000).empty());
  ASSERT_TRUE(b.attach(*b.qp, group));
  a.send(group);
  EXPECT_EQ(b.received(1).size(), 1u);
  b.receive(*b.qp, 2);
  {
    const std::scoped_lock guard(b.device->lock());
    EXPECT_TRUE(b.device->groups().detach(*b.qp, group));
    EXPECT_FALSE(b.device->groups().detach(*b.qp, group));
  }
  a.send(group);
  EXPECT_TRUE(b.received(1, 20'000'000).empty());
  // Who has sent to a group may join it later.
  ASSERT_TRUE(a.attach(*a.make(), group));
  ASSERT_TRUE(b.attach(*b.qp, group));
  a.send(group);
  EXPECT_EQ(b.received(1).size(), 1u);
}

TEST(RoceGroups, WhatIsNoGroupOrHasNoPortIsRefused) {
  Talker a("127.0.0.1:0");
  ASSERT_TRUE(a.device);
  const auto code = [&](const char* text) {
    const auto attached = a.attach(*a.qp, group_of(text));
    return attached ? 0 : attached.error().code;
  };
  EXPECT_EQ(code("127.0.0.1:0"), EINVAL);
  EXPECT_EQ(code("[fe80::1]:0"), EINVAL);
  EXPECT_EQ(code("[ff0e::1]:0"), EAFNOSUPPORT);
  EXPECT_EQ(code("239.7.4.3:0"), 0);
  const std::scoped_lock guard(a.device->lock());
  a.device->groups().detach_all(*a.qp);
  EXPECT_FALSE(a.device->adapter().first_group(*a.qp));
}

// A stranger is a UDP socket that sends what a RoCEv2 device would, and one that listens to the group at 4791.
TEST(RoceGroups, ThirdPartyPeersAtTheStandardPort) {
  Talker a("127.0.0.1:0", standard_port);
  if (!a.device) GTEST_SKIP() << "port 4791 belongs to another process";
  const Gid group = group_of("239.7.4.4:0");
  ASSERT_TRUE(a.attach(*a.qp, group));
  a.receive(*a.qp, 0);
  const os::SocketAddress own = *os::SocketAddress::from_text("127.0.0.1:50123");
  const os::SocketAddress there = *os::SocketAddress::from_text("239.7.4.4:4791");
  auto listener = udp::Packets();
  ASSERT_TRUE(listener.open(os::SocketAddress::from_text("127.0.0.1:0")->bytes()));
  ASSERT_EQ(listener.join(there.bytes(), true), 0);
  udp::Packets stranger;
  ASSERT_TRUE(stranger.open(own.bytes()));
  ASSERT_EQ(stranger.join(there.bytes(), false), 0);
  const auto send = [&](uint32_t qpn) {
    wire::roce::Packet packet;
    packet.bth.opcode = 0x64;
    packet.bth.destination = qpn;
    packet.deth = {qkey, 77};
    std::vector<std::byte> bytes(64);
    bytes.resize(wire::roce::write_headers(packet, bytes.data()) + 8);
    const iovec part{bytes.data(), bytes.size()};
    const Headers headers = headers_between(own, there, bytes.size() + wire::roce::icrc_bytes);
    const uint32_t icrc = wire::roce::icrc(headers.span(), &part, 1);
    bytes.resize(bytes.size() + wire::roce::icrc_bytes);
    wire::store_big(bytes.data() + bytes.size() - wire::roce::icrc_bytes, wire::swap_bytes(icrc));
    const iovec whole{bytes.data(), bytes.size()};
    ASSERT_TRUE(stranger.send(there.bytes(), &whole, 1));
  };
  send(a.qp->number);  // to a group's address, and not to the QPN of groups
  send(group_qpn);
  const auto got = a.received(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].source_qpn, 77u);
  EXPECT_EQ(a.memory[20], std::byte{0x45});  // annex A17: the IPv4 header is in the second half
  EXPECT_EQ(std::memcmp(a.memory.data() + 36, "\xef\x07\x04\x04", 4), 0);
  a.receive(*a.qp, 1);
  EXPECT_TRUE(a.received(1, 20'000'000).empty());
  a.send(group);
  struct {
    size_t packets = 0;
    void on_packet(const proto::ReceivedPacket& packet) noexcept {
      if (packet.bytes.size() > 24 && wire::roce::Bth::read(packet.bytes.data()).destination == group_qpn)
        ++packets;
    }
  } heard;
  for (const uint64_t end = os::monotonic_ns() + 5'000'000'000;
       heard.packets < 2 && os::monotonic_ns() < end;)
    (void)listener.poll(heard);
  EXPECT_EQ(heard.packets, 2u);  // the stranger's and ours
}

}  // namespace
}  // namespace weft::link::roce
