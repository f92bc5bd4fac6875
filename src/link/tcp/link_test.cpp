// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TCP links in one process: meeting in every format, crossing calls, many callers, comings back, deaths.
#include "link/tcp/link.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/clock.hpp"
#include "os/process.hpp"

namespace weft::link::tcp {
namespace {

static_assert(proto::Link<Link> && proto::HasSmallFrames<Link> && proto::HasSleep<Link> &&
              !proto::HasRemoteMemory<Link>);

// An endpoint that remembers what came, by sender.
struct End final : Events {
  ~End() { link->close(); }
  Result<void> open(uint32_t format = FI_SOCKADDR_IN, const std::string& name = "") {
    link->set_address_format(format);
    return link->open(name, *this);
  }
  Peer* make_peer(std::span<const std::byte> address) override {
    peers.push_back(std::make_unique<Peer>());
    names[peers.back().get()] = std::string(reinterpret_cast<const char*>(address.data()), address.size());
    return peers.back().get();
  }
  void peer_lost(Peer& peer, core::ProviderError why) noexcept override {
    lost.push_back(why);
    completed_when_lost = link->completed_sequence(peer);
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(Peer& peer, const wire::FrameHead& head, const std::byte*) noexcept {
    came[names[&peer]].push_back(head.a);
    ++frames;
    last = &peer;
    return true;
  }
  Peer* to(const End& other) {
    int error = 0;
    const auto address = other.link->address();
    return link->connect(address, error);
  }
  bool send(Peer* peer, uint64_t a) {
    return link->send(*peer, {wire::FrameKind::Tagged, 0, 0, 0, a, 0}, {}, nullptr, 0);
  }
  void poll() { link->poll(*this); }
  std::string name() const {
    const auto bytes = link->address();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::unique_ptr<Link> link = std::make_unique<Link>();
  std::vector<std::unique_ptr<Peer>> peers;
  std::map<const Peer*, std::string> names;
  std::map<std::string, std::vector<uint64_t>> came;
  std::vector<core::ProviderError> lost;
  uint64_t completed_when_lost = 0;
  size_t frames = 0;
  Peer* last = nullptr;
};

void until(const std::function<bool()>& done, const std::vector<End*>& ends, uint64_t ms = 5000) {
  const uint64_t end = os::monotonic_ns() + ms * 1'000'000;
  while (!done()) {
    if (os::monotonic_ns() > end) {
      ADD_FAILURE() << "nothing happens";
      return;
    }
    for (End* one : ends) one->poll();
  }
}

void talk(End& a, End& b) {
  Peer* peer = a.to(b);
  ASSERT_NE(peer, nullptr);
  const size_t before = b.frames;
  until([&] { return a.send(peer, 7); }, {&a, &b});
  until([&] { return b.frames == before + 1; }, {&a, &b});
  until([&] { return b.send(b.last, 8); }, {&a, &b});
  until([&] { return a.frames != 0; }, {&a, &b});
  EXPECT_EQ(b.came[a.name()].back(), 7u);
  EXPECT_EQ(a.came[b.name()].back(), 8u);
}

class LinkFormats : public testing::TestWithParam<uint32_t> {};
TEST_P(LinkFormats, MeetAndTalk) {
  if (GetParam() == FI_SOCKADDR_IN6 && !os::has_family(AF_INET6)) GTEST_SKIP() << "no IPv6 here";
  End a, b;
  ASSERT_TRUE(a.open(GetParam()));
  ASSERT_TRUE(b.open(GetParam()));
  talk(a, b);
  EXPECT_EQ(a.peers.size(), 1u);
  EXPECT_EQ(b.peers.size(), 1u);
  EXPECT_EQ(b.to(a), b.last) << "one connection for both ways";
}
INSTANTIATE_TEST_SUITE_P(Formats, LinkFormats, testing::Values(FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_STR));

// An endpoint that is driven once a millisecond, as by a progress thread, and has a busy peer.
TEST(TcpLink, APeerIsMetInAFewPolls) {
  End a, b, c;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  ASSERT_TRUE(c.open());
  talk(a, b);
  for (int i = 0; i < 1000; ++i) a.poll();  // looks at others become rare
  Peer* peer = c.to(a);
  const size_t before = a.frames;
  int polls = 0;
  const uint64_t end = os::monotonic_ns() + 5'000'000'000;
  while (a.frames == before && os::monotonic_ns() < end) {
    for (int i = 0; i < 100; ++i) c.poll();
    if (peer != nullptr && c.send(peer, 1)) peer = nullptr;
    ::usleep(1000);
    a.poll();
    ++polls;
  }
  EXPECT_LE(polls, 20);
}

// A connection that was closed again before the listener read its handshake makes no peer, and does not take the place of a new one.
TEST(TcpLink, AConnectionThatWasGivenUpIsNotAdmitted) {
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  Peer* peer = b.to(a);
  until([&] { return peer->channel.state() == Channel::State::Handshaking && !peer->channel.unflushed(); },
        {&b});
  b.link->forget(*peer);
  b.peers.clear();
  for (int i = 0; i < 1000; ++i) a.poll();
  EXPECT_TRUE(a.peers.empty());
  EXPECT_TRUE(a.lost.empty());
  b.names.clear();
  talk(a, b);
  EXPECT_EQ(a.peers.size(), 1u);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

// Two endpoints connect to each other at the same time, in any order of events, and both forget each other in between.
TEST(TcpLink, TenThousandCrossings) {
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  uint64_t state = 36;
  const auto random = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
  };
  uint64_t slowest = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t began = os::monotonic_ns();
    std::array<End*, 2> ends = {&a, &b};
    if (random() % 2 == 0) std::swap(ends[0], ends[1]);
    std::array<Peer*, 2> peers = {ends[0]->to(*ends[1]), nullptr};
    for (uint64_t polls = random() % 4; polls > 0; --polls) ends[random() % 2]->poll();
    peers[1] = ends[1]->to(*ends[0]);
    const size_t frames[2] = {ends[0]->frames, ends[1]->frames};
    bool sent[2] = {};
    bool done = false;
    while (!done && os::monotonic_ns() - began < 10'000'000'000) {
      const size_t one = random() % 2;
      for (uint64_t polls = 1 + random() % 3; polls > 0; --polls) ends[one]->poll();
      if (!sent[one]) sent[one] = ends[one]->send(peers[one], i);
      done = ends[0]->frames == frames[0] + 1 && ends[1]->frames == frames[1] + 1;
    }
    ASSERT_TRUE(done) << "crossing " << i;
    ASSERT_EQ(a.peers.size(), 1u);
    ASSERT_EQ(b.peers.size(), 1u);
    ASSERT_TRUE(a.lost.empty() && b.lost.empty());
    slowest = std::max(slowest, os::monotonic_ns() - began);
    for (size_t one : {0, 1}) {
      ends[one]->link->forget(*peers[one]);
      ends[one]->peers.clear();
      ends[one]->names.clear();
    }
  }
  RecordProperty("slowest_us", static_cast<int>(slowest / 1000));
}

TEST(TcpLink, AChosenAddressIsConcreteAndKept) {
  End a, b;
  ASSERT_TRUE(a.open());
  const auto own = os::SocketAddress::from(a.name().data(), a.name().size());
  ASSERT_TRUE(own);
  EXPECT_FALSE(own->is_any());
  EXPECT_NE(own->port(), 0);
  const auto taken = b.open(FI_SOCKADDR_IN, a.name());
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, EADDRINUSE);
  EXPECT_NE(taken.error().why.find("fi_sockaddr_in://"), std::string::npos);
}

TEST(TcpLink, CrossingCallsSettleOnOneConnection) {
  for (int round = 0; round < 30; ++round) {
    End a, b;
    ASSERT_TRUE(a.open());
    ASSERT_TRUE(b.open());
    Peer* to_b = a.to(b);
    for (int i = 0; i < round % 5; ++i) a.poll();
    Peer* to_a = b.to(a);
    // Polls in different orders, so that every interleaving of the two handshakes is met.
    uint64_t sent_a = 0, sent_b = 0;
    const uint64_t end = os::monotonic_ns() + 5'000'000'000;
    while ((a.frames < 20 || b.frames < 20) && os::monotonic_ns() < end) {
      if (sent_a < 20 && a.send(to_b, sent_a)) ++sent_a;
      if (sent_b < 20 && b.send(to_a, sent_b)) ++sent_b;
      if ((round & 1) != 0) a.poll();
      b.poll();
      if ((round & 1) == 0) a.poll();
    }
    ASSERT_EQ(a.frames, 20u) << round;
    ASSERT_EQ(b.frames, 20u) << round;
    for (uint64_t i = 0; i < 20; ++i) {
      ASSERT_EQ(a.came[b.name()][i], i);
      ASSERT_EQ(b.came[a.name()][i], i);
    }
    EXPECT_EQ(a.peers.size(), 1u);
    EXPECT_EQ(b.peers.size(), 1u);
    EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  }
}

TEST(TcpLink, ToItself) {
  End a;
  ASSERT_TRUE(a.open());
  Peer* self = a.to(a);
  until([&] { return a.send(self, 3); }, {&a});
  until([&] { return a.frames == 1; }, {&a});
  EXPECT_EQ(a.came[a.name()], std::vector<uint64_t>{3});
}

TEST(TcpLink, AnotherAddressOfTheSameEndpoint) {
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  talk(a, b);
  auto alias = *os::SocketAddress::from(b.name().data(), b.name().size());
  alias = os::SocketAddress::loopback(AF_INET, alias.port());
  int error = 0;
  Peer* other = a.link->connect(alias.bytes(), error);
  until([&] { return a.send(other, 9); }, {&a, &b});
  until([&] { return b.frames == 2; }, {&a, &b});
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

TEST(TcpLink, ManyCallAtOnce) {
  constexpr size_t count = 300;
  End server;
  ASSERT_TRUE(server.open());
  std::vector<std::unique_ptr<End>> clients;
  std::vector<Peer*> peers;
  std::vector<bool> sent(count);
  for (size_t i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<End>());
    ASSERT_TRUE(clients.back()->open());
    peers.push_back(clients.back()->to(server));
  }
  const uint64_t end = os::monotonic_ns() + 20'000'000'000;
  while (server.frames < count && os::monotonic_ns() < end) {
    for (size_t i = 0; i < count; ++i) {
      if (!sent[i]) sent[i] = clients[i]->send(peers[i], i);
      clients[i]->poll();
    }
    server.poll();
  }
  EXPECT_EQ(server.frames, count);
  EXPECT_EQ(server.peers.size(), count);
}

TEST(TcpLink, OneCallsMany) {
  constexpr size_t count = 200;
  End caller;
  ASSERT_TRUE(caller.open());
  std::vector<std::unique_ptr<End>> others;
  std::vector<End*> all{&caller};
  std::vector<Peer*> peers;
  for (size_t i = 0; i < count; ++i) {
    others.push_back(std::make_unique<End>());
    ASSERT_TRUE(others.back()->open());
    all.push_back(others.back().get());
    peers.push_back(caller.to(*others.back()));
  }
  std::vector<bool> sent(count);
  until(
      [&] {
        size_t there = 0;
        for (size_t i = 0; i < count; ++i) {
          if (!sent[i]) sent[i] = caller.send(peers[i], i);
          there += others[i]->frames;
        }
        return there == count;
      },
      all, 20'000);
}

// A slow reader: now and then the socket takes nothing at all of a large frame, and must be asked again all the same.
TEST(TcpLink, LargeFramesToASlowReader) {
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  talk(a, b);
  const std::vector<std::byte> bytes(Link::segment_bytes);
  Peer* peer = a.to(b);
  const size_t before = b.frames;
  constexpr size_t count = 3000;
  for (size_t i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    const iovec part{const_cast<std::byte*>(bytes.data()), 5'000 + i * 7'919 % 250'000};
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 0, uint32_t(part.iov_len), 9, 0};
    size_t refusals = 0;
    until(
        [&] {
          if (a.link->send(*peer, head, {}, &part, 1)) return true;
          if (++refusals % 4 == 0) b.poll();
          return false;
        },
        {&a});
    if (i % 3 != 0) a.poll();
  }
  until([&] { return b.frames == before + count; }, {&a, &b});
}

TEST(TcpLink, ClosedPeersAreToldAndComeBack) {
  End a;
  ASSERT_TRUE(a.open());
  auto b = std::make_unique<End>();
  ASSERT_TRUE(b->open());
  talk(a, *b);
  const std::string name = b->name();
  const uint64_t sent = a.link->completed_sequence(*a.to(*b));
  EXPECT_GT(sent, 0u);
  b.reset();
  until([&] { return !a.lost.empty(); }, {&a});
  EXPECT_EQ(a.lost[0], core::ProviderError::PeerClosed);
  EXPECT_EQ(a.completed_when_lost, sent) << "what the socket took has not failed";
  EXPECT_TRUE(a.peers.empty());
  End again;
  ASSERT_TRUE(again.open(FI_SOCKADDR_IN, name));
  a.frames = 0;
  talk(a, again);
}

TEST(TcpLink, NobodyThere) {
  End a;
  ASSERT_TRUE(a.open());
  std::string name;
  {
    End gone;
    ASSERT_TRUE(gone.open());
    name = gone.name();
  }
  int error = 0;
  Peer* peer = a.link->connect(std::as_bytes(std::span(name.data(), name.size())), error);
  ASSERT_NE(peer, nullptr);
  const uint64_t start = os::monotonic_ns();
  until([&] { return !a.lost.empty(); }, {&a});
  EXPECT_EQ(a.lost[0], core::ProviderError::PeerUnreachable);
  EXPECT_LT(os::monotonic_ns() - start, 3'000'000'000u);
  EXPECT_EQ(a.link->connect(std::as_bytes(std::span("nonsense", 8)), error), nullptr);
  EXPECT_EQ(error, EINVAL);
}

TEST(TcpLink, AKilledProcessIsNoticed) {
  End a;
  ASSERT_TRUE(a.open());
  const std::string name = a.name();
  const pid_t child = ::fork();
  if (child == 0) {
    End b;
    if (!b.open()) ::_exit(1);
    int error = 0;
    Peer* peer = b.link->connect(std::as_bytes(std::span(name.data(), name.size())), error);
    while (true) {
      (void)b.send(peer, 1);
      b.poll();
    }
  }
  until([&] { return a.frames > 10; }, {&a});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  until([&] { return !a.lost.empty(); }, {&a});
  EXPECT_EQ(a.lost[0], core::ProviderError::PeerDied);
}

// Nobody may take it for sent: the socket never had it.
TEST(TcpLink, WhatABrokenSocketRefusesNeverSettles) {
  for (const size_t bytes : {size_t{0}, Channel::small_frame_max + 1}) {
    End a, b;
    ASSERT_TRUE(a.open());
    ASSERT_TRUE(b.open());
    talk(a, b);
    Peer* peer = a.to(b);
    const os::Fd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::dup2(nothing.get(), peer->channel.fd().get()), peer->channel.fd().get());  // fails otherwise
    const std::vector<std::byte> payload(bytes);
    const iovec part{const_cast<std::byte*>(payload.data()), bytes};
    ASSERT_TRUE(a.link->send(*peer, {wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(bytes), 1, 0}, {},
                             &part, 1));
    const uint64_t mark = a.link->sent_sequence(*peer);
    EXPECT_LT(a.link->completed_sequence(*peer), mark);
    until([&] { return !a.lost.empty(); }, {&a, &b});
    EXPECT_LT(a.completed_when_lost, mark);
  }
}

TEST(TcpLink, AForkedChildSaysNothing) {
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  talk(a, b);
  const pid_t child = ::fork();
  if (child == 0) {
    a.link->close();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  a.frames = 0;
  talk(a, b);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

// What somebody who connects and says these bytes gets to hear.
Handshake answer_to(End& at, std::string_view bytes) {
  const auto place = *os::SocketAddress::from(at.name().data(), at.name().size());
  const os::Fd unknown_peer(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(unknown_peer.get(), place.get(), place.size()), 0);
  EXPECT_EQ(::send(unknown_peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  std::byte answer[handshake_bytes_max];
  ssize_t got = -1;
  until(
      [&] {
        got = ::recv(unknown_peer.get(), answer, sizeof answer, MSG_DONTWAIT);
        return got > 0;
      },
      {&at});
  Handshake handshake;
  EXPECT_EQ(
      unpack_handshake(std::span(answer).first(static_cast<size_t>(std::max<ssize_t>(got, 0))), handshake),
      RefusalReason::None);
  EXPECT_EQ(handshake.type, HandshakeType::Refusal);
  return handshake;
}

TEST(TcpLink, UnknownPeersAreRefused) {
  End a;
  ASSERT_TRUE(a.open());
  EXPECT_EQ(answer_to(a, "hello, world").reason, RefusalReason::Malformed);
  End b;
  ASSERT_TRUE(b.open());
  talk(b, a);
}

// A later version may have longer handshakes: it is told that the versions differ, as the format promises, and not that it talks nonsense.
TEST(TcpLink, ALongerHandshakeOfAnotherVersion) {
  End a;
  ASSERT_TRUE(a.open());
  const char prefix[] = {'W', 'E', 'F', 'T', 2, 0, 0, 2, 1, 1, 0, 0};
  EXPECT_EQ(answer_to(a, {prefix, sizeof prefix}).reason, RefusalReason::Version);
}

// Sends a handshake from `source` in the name of `who`; returns the answer.
Handshake call(End& at, const os::SocketAddress& source, const std::string& who, uint64_t incarnation) {
  const auto place = *os::SocketAddress::from(at.name().data(), at.name().size());
  Channel channel(tcp::frame_bytes_max);
  EXPECT_EQ(channel.connect(place, source), 0);
  Handshake handshake;
  handshake.incarnation = incarnation;
  handshake.address = *os::SocketAddress::from(who.data(), who.size());
  handshake.target = place;
  channel.send_hello(handshake);
  until(
      [&] {
        (void)channel.advance();
        return channel.theirs() != nullptr;
      },
      {&at});
  return channel.theirs() != nullptr ? *channel.theirs() : Handshake();
}

// Who completes the handshake and then sends no frames is cut off, and the log says who and why.
TEST(TcpLink, AMalformedFrameIsSaidInTheLog) {
  End a;
  ASSERT_TRUE(a.open());
  std::vector<std::string> lines;
  a.link->set_warning(
      [](const void* who, const char* what) {
        static_cast<std::vector<std::string>*>(const_cast<void*>(who))->emplace_back(what);
      },
      &lines);
  const auto place = *os::SocketAddress::from(a.name().data(), a.name().size());
  const auto caller = *os::SocketAddress::from_text("127.0.0.1:9");
  for (int i = 0; i < 2; ++i) {
    Channel channel(tcp::frame_bytes_max);
    ASSERT_EQ(channel.connect(place, os::SocketAddress::loopback(AF_INET)), 0);
    Handshake handshake;
    handshake.incarnation = 77 + static_cast<uint64_t>(i);
    handshake.address = caller;
    handshake.target = place;
    channel.send_hello(handshake);
    until(
        [&] {
          (void)channel.advance();
          return channel.theirs() != nullptr;
        },
        {&a});
    ASSERT_NE(channel.theirs(), nullptr);
    const std::array<char, 64> nonsense = [] {
      std::array<char, 64> bytes{};
      bytes.fill('\xff');
      return bytes;
    }();
    ASSERT_EQ(::send(channel.fd().get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 64);
    until([&] { return a.lost.size() == static_cast<size_t>(i) + 1; }, {&a});
  }
  EXPECT_EQ(a.lost, std::vector(2, core::ProviderError::PeerMisbehaved));
  ASSERT_EQ(lines.size(), 1u) << "not more than one line in ten seconds";
  EXPECT_NE(lines[0].find(caller.text()), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("cut off"), std::string::npos) << lines[0];
}

// A new incarnation at a known address is the peer after a restart, when it comes from where the peer is; else anybody could end
// anybody's connection.
TEST(TcpLink, AnUnknownPeerDoesNotReplaceAPeer) {
  End a, b;
  const os::SocketAddress here = os::SocketAddress::loopback(AF_INET);
  const std::string name(reinterpret_cast<const char*>(here.bytes().data()), here.size());
  ASSERT_TRUE(a.open(FI_SOCKADDR_IN, name));
  ASSERT_TRUE(b.open(FI_SOCKADDR_IN, name));
  talk(a, b);
  const Handshake answer = call(b, *os::SocketAddress::from_text("127.0.0.3:0"), a.name(), 77);
  EXPECT_EQ(answer.type, HandshakeType::Refusal);
  EXPECT_TRUE(b.lost.empty());
  a.frames = 0;
  talk(a, b);
  EXPECT_EQ(call(b, here, a.name(), 78).type, HandshakeType::Welcome);
  EXPECT_EQ(b.lost, std::vector{core::ProviderError::PeerReplaced});
}

// Processes that compute, or are stopped, accept in their kernel and say nothing for long: others are reached meanwhile.
TEST(TcpLink, SilentOnesHoldNobodyUp) {
  std::vector<os::Fd> silent;
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  int error = 0;
  for (size_t i = 0; i < Link::connecting_max + 5; ++i) {
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const os::SocketAddress here = os::SocketAddress::loopback(AF_INET);
    ASSERT_EQ(::bind(silent.back().get(), here.get(), here.size()), 0);
    ASSERT_EQ(::listen(silent.back().get(), 8), 0);
    ASSERT_NE(a.link->connect(os::local_address(silent.back().get()).bytes(), error), nullptr);
  }
  talk(a, b);
}

// Without descriptors who knocks waits, and whoever sleeps is not woken for it all the time.
TEST(TcpLink, NoDescriptorIsLeft) {
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  Peer* peer = b.to(a);
  std::vector<os::Fd> all;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  while (true) {
    const int fd = ::dup(0);
    if (fd < 0) break;
    all.emplace_back(fd);
  }
  for (int i = 0; i < 10; ++i) b.poll();
  for (int i = 0; i < 200; ++i) a.poll();
  pollfd sleeper{a.link->wait_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&sleeper, 1, 20), 0);
  all.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  until([&] { return b.send(peer, 4); }, {&a, &b});
  until([&] { return a.frames == 1; }, {&a, &b});
}

// Pending connections that say nothing keep nobody out.
TEST(TcpLink, SilentGuestsMakeRoom) {
  os::raise_descriptor_limit();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 2 * Link::pending_max + 200) GTEST_SKIP() << "not enough descriptors";
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  const auto place = *os::SocketAddress::from(a.name().data(), a.name().size());
  std::vector<os::Fd> pending;
  for (size_t i = 0; i < Link::pending_max; ++i) {
    pending.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(pending.back().get(), place.get(), place.size()), 0);
    if (i % 32 == 0) a.poll();
  }
  talk(b, a);
}

TEST(TcpLink, SleepsUntilSomethingComes) {
  End a, b;
  ASSERT_TRUE(a.open());
  ASSERT_TRUE(b.open());
  talk(a, b);
  for (int i = 0; i < 100; ++i) b.poll();
  ASSERT_TRUE(b.link->arm());
  os::PollSet set = std::move(*os::PollSet::create());
  ASSERT_TRUE(set.add(b.link->wait_fd()));
  void* tags[1];
  EXPECT_EQ(set.ready(tags), 0u);
  ASSERT_TRUE(a.send(a.peers[0].get(), 5));
  until([&] { return set.ready(tags) == 1; }, {&a});
  b.link->disarm();
  until([&] { return b.frames == 2; }, {&b});
}

}  // namespace
}  // namespace weft::link::tcp
