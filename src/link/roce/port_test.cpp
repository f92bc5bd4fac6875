// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs over real UDP sockets: in one process, between two, and against altered datagrams.
#include "link/roce/port.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "link/udp/packets.hpp"
#include "os/clock.hpp"
#include "os/event.hpp"

namespace weft::link::roce {
namespace {

using namespace proto::roce;

os::SocketAddress loopback(const char* text) { return *os::SocketAddress::from_text(text); }

struct Quiet final : Events {
  void on_completion(CompletionQueue&) noexcept override {}
  void on_async(const AsyncEvent&) noexcept override {}
};

bool random_bytes(void* bytes, size_t count) { return os::random_bytes(bytes, count); }

// An adapter with one port.
template <proto::PacketLink P>
class OnePort final : PacketOutput {
 public:
  explicit OnePort(Events& events) : adapter_(*this, events, random_bytes), port_(adapter_) {}

  Result<void> open(const os::SocketAddress& address) { return port_.open(address); }
  Gid gid() const noexcept { return port_.gid(); }
  uint8_t path_mtu_max(const Gid& to) noexcept { return port_.path_mtu_max(to); }
  Adapter& adapter() noexcept { return adapter_; }
  P& link() noexcept { return port_.link(); }
  const PortCounters& counters() const noexcept { return port_.counters(); }
  int poll(uint64_t now) noexcept {
    const int packets = port_.poll(now);
    adapter_.flush(now);
    (void)port_.flush();
    return packets;
  }
  void flush() noexcept { (void)port_.flush(); }

 private:
  bool send(const AddressVector& to, const iovec* parts, size_t count) noexcept override {
    return port_.send(to, parts, count);
  }

  Adapter adapter_;
  Port<P> port_;
};

// What two programs tell each other to connect.
struct Name {
  Gid gid{};
  uint32_t qpn = 0;
  uint32_t psn = 0;
  uint64_t address = 0;
  uint32_t key = 0;
};

struct Program {
  explicit Program(const char* where = "127.0.0.1:0") : port(events), memory(1 << 20) {
    const auto ok = port.open(loopback(where));
    if (!ok) ADD_FAILURE() << ok.error().why;
    cq = *port.adapter().create_cq(256);
    region = *port.adapter().memory().add(1, memory.data(), reinterpret_cast<uint64_t>(memory.data()),
                                          memory.size(), local_write | remote_write | remote_read);
    QueuePairRequest request;
    request.pd = 1;
    request.send_cq = request.receive_cq = cq;
    request.capacities = {64, 64, 2, 2, 64};
    qp = *port.adapter().create_qp(request);
    random_bytes(&psn, sizeof psn);
    psn &= psn_mask;
  }
  Name name() const {
    return {port.gid(), qp->number, psn, reinterpret_cast<uint64_t>(memory.data()), region->key};
  }
  bool connect(const Name& to) {
    Attributes a;
    a.access = remote_write | remote_read;
    a.path_mtu = 5;
    a.path.destination = to.gid;
    a.destination = to.qpn;
    a.rq_psn = to.psn;
    a.sq_psn = psn;
    a.min_rnr_timer = 12;
    const auto step = [&](QpState state, uint32_t mask) {
      a.state = state;
      return bool(port.adapter().modify(*qp, a, mask | attr_state, os::monotonic_ns()));
    };
    return step(QpState::Init, attr_pkey_index | attr_port | attr_access) &&
           step(QpState::ReadyToReceive, attr_path | attr_path_mtu | attr_destination | attr_rq_psn |
                                             attr_max_dest_reads | attr_min_rnr_timer) &&
           step(QpState::ReadyToSend,
                attr_sq_psn | attr_timeout | attr_retry_count | attr_rnr_retry | attr_max_reads);
  }
  Element element(size_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(memory.data()) + offset, length, region->key};
  }
  bool send(SendOpcode opcode, const Element& from, const Name& to = {}, size_t offset = 0) {
    SendRequest q;
    q.opcode = opcode;
    q.flags = signaled;
    q.elements = {&from, 1};
    q.remote_address = to.address + offset;
    q.remote_key = to.key;
    const bool posted = port.adapter().post_send(*qp, q, os::monotonic_ns()) == 0;
    port.flush();
    return posted;
  }
  bool receive(const Element& to) {
    return port.adapter().post_receive(*qp, {1, {&to, 1}}, os::monotonic_ns()) == 0;
  }
  // The next completion; false after 10 s or in error.
  bool wait(Completion& out, Program* other = nullptr) {
    const uint64_t end = os::monotonic_ns() + 10'000'000'000;
    for (;;) {
      port.poll(os::monotonic_ns());
      if (other != nullptr) other->port.poll(os::monotonic_ns());
      if (cq->poll({&out, 1}) == 1) return out.status == Status::Success;
      if (os::monotonic_ns() > end) return false;
    }
  }

  Quiet events;
  OnePort<udp::Packets> port;
  std::vector<std::byte> memory;
  CompletionQueue* cq = nullptr;
  Region* region = nullptr;
  QueuePair* qp = nullptr;
  uint32_t psn = 0;
};

TEST(RocePort, GidsNameAddresses) {
  const auto one = loopback("10.1.2.3:5000");
  EXPECT_EQ(address_of(*gid_with_port(one)), one);
  EXPECT_EQ(address_of(standard_gid(one)), loopback("10.1.2.3:4791"));
  const auto six = loopback("[fd00::5]:4791");
  EXPECT_EQ(address_of(standard_gid(six)), six);
  EXPECT_FALSE(gid_with_port(six));
  // Link-local: the prefix is known, so there is room for the port.
  const auto on_link = *os::SocketAddress::from_text("[fe80::e123:4567:89ab:e0]:40001");
  EXPECT_EQ(address_of(*gid_with_port(on_link)), on_link);
  EXPECT_TRUE(has_port(*gid_with_port(on_link)));
  EXPECT_FALSE(is_group(*gid_with_port(on_link)));
  EXPECT_FALSE(gid_with_port(*os::SocketAddress::from_text("[fe80:0:0:1::1]:40001")));
}

TEST(RocePort, AWildcardIsRefused) {
  Quiet events;
  OnePort<udp::Packets> port(events);
  EXPECT_FALSE(port.open(os::SocketAddress::any(AF_INET)));
}

TEST(RocePort, SendWriteAndReadInOneProcess) {
  Program a, b("127.0.0.2:0");
  ASSERT_TRUE(a.connect(b.name()));
  ASSERT_TRUE(b.connect(a.name()));
  EXPECT_EQ(a.port.path_mtu_max(b.port.gid()), 5);
  for (size_t i = 0; i < 300'000; ++i) a.memory[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  Completion c;
  ASSERT_TRUE(b.receive(b.element(0, 100'000)));
  ASSERT_TRUE(a.send(SendOpcode::Send, a.element(0, 99'999)));
  ASSERT_TRUE(a.wait(c, &b));
  ASSERT_TRUE(b.wait(c, &a));
  EXPECT_EQ(c.bytes, 99'999u);
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data(), 99'999), 0);
  ASSERT_TRUE(a.send(SendOpcode::Write, a.element(0, 300'000), b.name(), 200'000));
  ASSERT_TRUE(a.wait(c, &b));
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data() + 200'000, 300'000), 0);
  ASSERT_TRUE(a.send(SendOpcode::Read, a.element(600'000, 300'000), b.name(), 200'000));
  ASSERT_TRUE(a.wait(c, &b));
  EXPECT_EQ(std::memcmp(a.memory.data() + 600'000, b.memory.data() + 200'000, 300'000), 0);
  EXPECT_EQ(a.port.counters().wrong_icrc + b.port.counters().wrong_icrc, 0u);
  EXPECT_EQ(a.port.counters().solved + b.port.counters().solved, 0u);
}

// The marks of a router, made here by the sender's own socket: the responder tells, and the requester slows down.
TEST(RocePort, MarksAreAnsweredByNotices) {
  Program a, b("127.0.0.2:0");
  ASSERT_TRUE(a.connect(b.name()));
  ASSERT_TRUE(b.connect(a.name()));
  Completion c;
  ASSERT_TRUE(a.send(SendOpcode::Write, a.element(0, 100'000), b.name()));
  ASSERT_TRUE(a.wait(c, &b));
  EXPECT_EQ(b.port.adapter().counters().marked, 0u);
  a.port.link().set_ecn(proto::Ecn::CongestionExperienced);
  bool was_limited = false;
  for (int i = 0; i < 100 && !was_limited; ++i) {
    ASSERT_TRUE(a.send(SendOpcode::Write, a.element(0, 100'000), b.name()));
    ASSERT_TRUE(a.wait(c, &b));
    was_limited = a.qp->congestion->is_paced();
  }
  EXPECT_TRUE(was_limited);
  EXPECT_GT(b.port.adapter().counters().marked, 0u);
  EXPECT_GT(b.port.adapter().counters().cnps_sent, 1u);
  EXPECT_LE(b.port.adapter().counters().cnps_sent, b.port.adapter().counters().marked);
  EXPECT_GT(a.port.adapter().counters().cnps_received, 1u);
}

TEST(RocePort, AlteredDatagramsAreNotHeard) {
  Program a, b;
  ASSERT_TRUE(a.connect(b.name()));
  ASSERT_TRUE(b.connect(a.name()));
  udp::Packets stranger;
  ASSERT_TRUE(stranger.open(loopback("127.0.0.1:0").bytes()));
  std::vector<std::byte> bytes(32, std::byte{4});
  const iovec part{bytes.data(), bytes.size()};
  ASSERT_TRUE(stranger.send(address_of(b.port.gid()).bytes(), &part, 1));
  for (int i = 0; i < 1000 && b.port.counters().wrong_icrc + b.port.counters().solved == 0; ++i)
    b.port.poll(os::monotonic_ns());
  EXPECT_EQ(b.port.counters().wrong_icrc + b.port.counters().solved, 1u);
  EXPECT_EQ(b.port.adapter().counters().received, 0u);
}

// As the kernel's rxe sends: with an IP identification that our socket does not show. Needs a raw socket.
TEST(RocePort, TheIdentificationOfThirdPartyPeersIsSolvedFor) {
  const int raw = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  if (raw < 0) GTEST_SKIP() << "no raw sockets for this user";
  Program a, b;
  ASSERT_TRUE(a.connect(b.name()));
  ASSERT_TRUE(b.connect(a.name()));
  ASSERT_TRUE(b.receive(b.element(0, 100)));
  const os::SocketAddress from = address_of(a.port.gid());
  const os::SocketAddress to = address_of(b.port.gid());
  wire::roce::Packet packet;
  packet.bth.opcode =
      wire::roce::opcode(wire::roce::Transport::ReliableConnection, wire::roce::Operation::SendOnly);
  packet.bth.destination = b.qp->number;
  packet.bth.psn = b.qp->responder.expected;
  const std::vector<std::byte> payload(8, std::byte{0x5a});
  std::vector<std::byte> bytes(wire::Ip4::bytes + wire::Udp::bytes + wire::roce::headers_bytes_max);
  const size_t heads = wire::Ip4::bytes + wire::Udp::bytes;
  bytes.resize(heads + wire::roce::write_headers(packet, bytes.data() + heads));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + wire::roce::icrc_bytes);
  const Headers plain = headers_between(from, to, bytes.size() - heads);
  wire::Ip4 ip;
  wire::Bytes rest;
  std::vector<std::byte> whole(bytes.size());
  std::ranges::copy(plain.span(), whole.begin());
  ASSERT_TRUE(wire::Ip4::read(whole, ip, rest));
  ip.identification = 0x4321;
  ip.write(bytes.data());
  std::ranges::copy(plain.span().subspan(wire::Ip4::bytes), bytes.begin() + wire::Ip4::bytes);
  const wire::Bytes all(bytes);
  const uint32_t crc =
      wire::roce::icrc(all.first(heads), all.subspan(heads, all.size() - heads - wire::roce::icrc_bytes));
  wire::store_big(bytes.data() + bytes.size() - wire::roce::icrc_bytes, wire::swap_bytes(crc));
  ASSERT_EQ(::sendto(raw, bytes.data(), bytes.size(), 0, to.get(), to.size()),
            static_cast<ssize_t>(bytes.size()));
  ::close(raw);
  Completion c;
  ASSERT_TRUE(b.wait(c));
  EXPECT_EQ(c.bytes, 8u);
  EXPECT_EQ(b.memory[0], std::byte{0x5a});
  EXPECT_EQ(b.port.counters().solved, 1u);
  EXPECT_EQ(b.port.counters().wrong_icrc, 0u);
}

// The other process: an echo.
int echo(int socket) {
  Program mine;
  Name theirs;
  const Name own = mine.name();
  if (::write(socket, &own, sizeof own) != sizeof own ||
      ::read(socket, &theirs, sizeof theirs) != sizeof theirs)
    return 2;
  if (!mine.connect(theirs)) return 3;
  for (int i = 0; i < 4; ++i)
    if (!mine.receive(mine.element(static_cast<size_t>(i) * 10'000, 10'000))) return 4;
  char go = 1;
  if (::write(socket, &go, 1) != 1) return 5;
  for (int i = 0; i < 200;) {
    Completion c;
    if (!mine.wait(c)) return 6;
    if (c.opcode != CompletionOpcode::Receive) continue;
    const size_t offset = static_cast<size_t>(i % 4) * 10'000;
    if (!mine.send(SendOpcode::Send, mine.element(offset, c.bytes))) return 7;
    // Its send is complete before the buffer is posted again.
    do {
      if (!mine.wait(c)) return 8;
    } while (c.opcode != CompletionOpcode::Send);
    if (!mine.receive(mine.element(offset, 10'000))) return 9;
    ++i;
  }
  return 0;
}

TEST(RocePort, TwoProcessesExchangeSends) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(echo(sockets[1]));
  ::close(sockets[1]);
  Program mine;
  Name theirs;
  const Name own = mine.name();
  ASSERT_EQ(::read(sockets[0], &theirs, sizeof theirs), ssize_t{sizeof theirs});
  ASSERT_EQ(::write(sockets[0], &own, sizeof own), ssize_t{sizeof own});
  ASSERT_TRUE(mine.connect(theirs));
  char go = 0;
  ASSERT_EQ(::read(sockets[0], &go, 1), 1);
  for (uint32_t i = 0; i < 200; ++i) {
    const uint32_t length = i * 37 % 10'000;
    for (uint32_t k = 0; k < length; ++k) mine.memory[k] = static_cast<std::byte>(k + i);
    ASSERT_TRUE(mine.receive(mine.element(20'000, 10'000)));
    ASSERT_TRUE(mine.send(SendOpcode::Send, mine.element(0, length)));
    for (bool sent = false, back = false; !sent || !back;) {
      Completion c;
      ASSERT_TRUE(mine.wait(c)) << "message " << i << ", status " << static_cast<int>(c.status);
      sent |= c.opcode == CompletionOpcode::Send;
      back |= c.opcode == CompletionOpcode::Receive;
    }
    ASSERT_EQ(std::memcmp(mine.memory.data(), mine.memory.data() + 20'000, length), 0);
  }
  // The other side may still wait for our acknowledgement.
  int status = -1;
  while (::waitpid(child, &status, WNOHANG) == 0) mine.port.poll(os::monotonic_ns());
  EXPECT_EQ(status, 0);
  ::close(sockets[0]);
}

// A link that takes the first packets of a segmented send only, and keeps what it took.
class Narrow : public udp::Packets {
 public:
  struct Taken {
    std::vector<std::byte> bytes;
    uint16_t number;
  };
  bool send_segmented(std::span<const std::byte>, const iovec* parts, size_t count,
                      size_t segment_bytes) noexcept {
    std::vector<std::byte> all;
    for (size_t i = 0; i < count; ++i) {
      const auto* const from = static_cast<const std::byte*>(parts[i].iov_base);
      all.insert(all.end(), from, from + parts[i].iov_len);
    }
    lost_ = 0;
    uint16_t number = 0;
    for (size_t at = 0; at < all.size(); at += segment_bytes, ++number) {
      if (number >= room) {
        ++lost_;
        continue;
      }
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      const auto bytes = static_cast<std::ptrdiff_t>(std::min(segment_bytes, all.size() - at));
      taken.push_back({{begin, begin + bytes}, number});
    }
    if (room != 0) return true;
    lost_ = 0;
    return false;
  }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    const size_t usual = std::exchange(room, size_t{1});
    (void)send_segmented(to, parts, count, 65'536);
    room = usual;
    return true;
  }
  size_t lost_segments() const noexcept { return lost_; }

  size_t room = 3;
  std::vector<Taken> taken;

 private:
  size_t lost_ = 0;
};
static_assert(proto::HasLostSegments<Narrow>);

// Each packet leaves once, in order, and its ICRC is that of the number which the send that took it gives it.
TEST(RocePort, WhatASegmentedSendHadNoRoomForIsSentAgain) {
  struct Nowhere final : PacketOutput {
    bool send(const AddressVector&, const iovec*, size_t) noexcept override { return true; }
  } nowhere;
  Quiet events;
  Adapter adapter(nowhere, events, random_bytes);
  Port<Narrow> port(adapter);
  ASSERT_TRUE(port.open(loopback("127.0.0.1:0")));
  const os::SocketAddress there = loopback("127.0.0.2:4000");
  AddressVector to;
  to.destination = *gid_with_port(there);
  for (const size_t last_bytes : {size_t{100}, size_t{36}}) {
    port.link().taken.clear();
    std::vector<std::vector<std::byte>> sent;
    constexpr size_t count = 10;
    for (size_t i = 0; i < count; ++i) {
      std::vector<std::byte>& one = sent.emplace_back(i + 1 == count ? last_bytes : 100);
      for (size_t k = 0; k < one.size(); ++k) one[k] = static_cast<std::byte>(i * 31 + k);
      const iovec parts[] = {{one.data(), 12}, {one.data() + 12, one.size() - 12}};
      ASSERT_TRUE(port.send(to, parts, 2));
    }
    for (int i = 0; i < 20 && !port.flush(); ++i) {
    }
    EXPECT_FALSE(port.has_unsent());
    ASSERT_EQ(port.link().taken.size(), count);
    for (size_t i = 0; i < count; ++i) {
      const Narrow::Taken& one = port.link().taken[i];
      ASSERT_EQ(one.bytes.size(), sent[i].size() + 4) << i;
      EXPECT_TRUE(std::equal(sent[i].begin(), sent[i].end(), one.bytes.begin())) << i;
      const Headers headers = headers_between(port.address(), there, one.bytes.size(), one.number);
      EXPECT_TRUE(wire::roce::icrc_is_right(headers.span(), one.bytes)) << i;
    }
  }
  // Without any room the whole of it waits.
  port.link().taken.clear();
  port.link().room = 0;
  std::vector<std::byte> bytes(100);
  const iovec parts[] = {{bytes.data(), 12}, {bytes.data() + 12, bytes.size() - 12}};
  ASSERT_TRUE(port.send(to, parts, 2) && port.send(to, parts, 2));
  EXPECT_FALSE(port.flush());
  EXPECT_TRUE(port.has_unsent());
  port.link().room = 2;
  EXPECT_TRUE(port.flush());
  EXPECT_EQ(port.link().taken.size(), 2u);
}

// The kernel's rxe takes no FLUSH with the right ICRC (wire/roce/icrc.hpp).
TEST(RocePort, AFlushForThirdPartyPeersGoesWithBothIcrcs) {
  struct Nowhere final : PacketOutput {
    bool send(const AddressVector&, const iovec*, size_t) noexcept override { return true; }
  } nowhere;
  Quiet events;
  Adapter adapter(nowhere, events, random_bytes);
  Port<Narrow> port(adapter);
  ASSERT_TRUE(port.open(loopback("127.0.0.1:0")));
  const os::SocketAddress there = loopback("127.0.0.2:4791");
  std::vector<std::byte> bytes(32);
  const iovec part{bytes.data(), bytes.size()};
  const auto packets_of = [&](uint8_t opcode, const Gid& to) {
    port.link().taken.clear();
    port.link().room = 10;
    bytes[0] = std::byte{opcode};
    AddressVector path;
    path.destination = to;
    EXPECT_TRUE(port.send(path, &part, 1) && port.flush());
    return port.link().taken.size();
  };
  EXPECT_EQ(packets_of(0x1c, *gid_with_port(there)), 1u);
  EXPECT_EQ(packets_of(0x1d, standard_gid(there)), 1u);
  ASSERT_EQ(packets_of(0x1c, standard_gid(there)), 2u);
  const Narrow::Taken &first = port.link().taken[0], &second = port.link().taken[1];
  const Headers headers = headers_between(port.address(), there, first.bytes.size(), first.number);
  EXPECT_TRUE(wire::roce::icrc_is_right(headers.span(), first.bytes));
  EXPECT_FALSE(wire::roce::icrc_is_right(headers.span(), second.bytes));
  EXPECT_TRUE(wire::roce::is_flush_of_rxe(headers.span(), second.bytes, true));
}

}  // namespace
}  // namespace weft::link::roce
