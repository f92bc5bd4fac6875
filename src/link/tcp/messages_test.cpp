// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages over TCP under a MessageLink, on the loopback interface: what crosses is right and in order, full sockets lose nothing, ends are noticed.
#include "link/tcp/messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "link/message/link.hpp"
#include "os/clock.hpp"

namespace weft::link::tcp {
namespace {

using core::ProviderError;
using testing::ElementsAre;
using TcpLink = message::MessageLink<Messages>;

// A link and what it said.
struct Node final : TcpLink::Events {
  explicit Node(const os::SocketAddress& at = os::SocketAddress::loopback(AF_INET)) {
    link.set_address_format(FI_SOCKADDR_IN);
    const auto bytes = at.bytes();
    EXPECT_TRUE(link.open({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, *this));
  }
  ~Node() { link.close(); }

  TcpLink::Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<TcpLink::Peer>());
    return peers.back().get();
  }
  void peer_lost(TcpLink::Peer& peer, ProviderError why) noexcept override {
    losses.push_back(why);
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(TcpLink::Peer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (refusing) return false;
    frames.emplace_back(reinterpret_cast<const char*>(payload), head.length);
    return true;
  }
  TcpLink::Peer* connect(const Node& to) {
    int error = 0;
    return link.connect(to.link.address(), error);
  }
  bool send(TcpLink::Peer& peer, const std::string& text) {
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(text.size()), 7, 0};
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return link.send(peer, head, {}, &part, 1);
  }
  void poll() { link.poll(*this); }

  TcpLink link;
  std::vector<std::unique_ptr<TcpLink::Peer>> peers;
  std::vector<ProviderError> losses;
  std::vector<std::string> frames;
  bool refusing = false;
};

template <class... Nodes>
bool poll_until(const std::function<bool()>& done, Nodes&... nodes) {
  const uint64_t until = os::monotonic_ns() + 10'000'000'000;
  while (!done()) {
    if (os::monotonic_ns() > until) return false;
    (nodes.poll(), ...);
  }
  return true;
}

std::string text_of(size_t number, size_t bytes) {
  std::string text(bytes, static_cast<char>('a' + number % 26));
  const std::string mark = std::to_string(number);
  return text.replace(0, std::min(mark.size(), bytes), mark.substr(0, bytes));
}

// Sends `count` frames of many sizes and polls meanwhile.
void send_all(Node& from, TcpLink::Peer& peer, size_t count, std::vector<std::string>& sent, Node& to) {
  for (size_t i = 0; i < count; ++i) {
    sent.push_back(text_of(i, i * 7919 % (TcpLink::frame_bytes_max + 1)));
    ASSERT_TRUE(poll_until([&] { return from.send(peer, sent.back()); }, from, to)) << i;
  }
}

TEST(TcpMessages, FramesOfAllSizesBothWays) {
  Node a, b;
  auto* to_b = a.connect(b);
  ASSERT_NE(to_b, nullptr);
  std::vector<std::string> there, back;
  send_all(a, *to_b, 500, there, b);
  ASSERT_TRUE(poll_until([&] { return b.frames.size() == there.size(); }, a, b));
  EXPECT_EQ(b.frames, there);
  send_all(b, *b.peers.at(0), 500, back, a);
  ASSERT_TRUE(poll_until([&] { return a.frames.size() == back.size(); }, a, b));
  EXPECT_EQ(a.frames, back);
}

TEST(TcpMessages, AReceiverThatTakesNothingGetsAllOfItLater) {
  Node a, b;
  auto* to_b = a.connect(b);
  ASSERT_TRUE(poll_until([&] { return b.peers.size() == 1; }, a, b));
  b.refusing = true;
  const std::string large(TcpLink::frame_bytes_max, 'x');
  size_t sent = 0;
  for (int i = 0; i < 10'000; ++i) {
    if (a.send(*to_b, large)) ++sent;
    a.poll();
    b.poll();
  }
  EXPECT_LE(sent, TcpLink::local_credits + 1) << "more than there are credits for";
  EXPECT_TRUE(b.frames.empty());
  b.refusing = false;
  ASSERT_TRUE(poll_until([&] { return b.frames.size() == sent; }, a, b));
  for (const std::string& frame : b.frames) ASSERT_EQ(frame, large);
  std::vector<std::string> more;
  b.frames.clear();
  send_all(a, *to_b, 100, more, b);
  ASSERT_TRUE(poll_until([&] { return b.frames.size() == more.size(); }, a, b));
  EXPECT_EQ(b.frames, more);
}

// A handler that takes what is still arriving, as the engine does.
struct PartsHandler {
  bool on_frame(TcpLink::Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
    return node.on_frame(peer, head, payload);
  }
  proto::Land land(TcpLink::Peer&, wire::FrameHead& head, const std::byte* payload, size_t arrived,
                   proto::Landing& out) noexcept {
    if (payload != nullptr) {
      if (node.refusing) return proto::Land::Later;
      ++parts;
      node.frames.emplace_back(reinterpret_cast<const char*>(payload), arrived);
      node.frames.back().resize(head.length);
      head.length -= static_cast<uint32_t>(arrived);
    }
    if (head.length == 0) return proto::Land::Here;
    out.pieces[0] = {node.frames.back().data() + node.frames.back().size() - head.length, head.length};
    out.count = 1;
    out.bytes = head.length;
    return proto::Land::Here;
  }
  void landed(TcpLink::Peer&, wire::FrameHead& head, size_t bytes) noexcept {
    head.length -= static_cast<uint32_t>(bytes);
  }
  void poll() { node.link.poll(*this); }

  Node& node;
  size_t parts = 0;
};
static_assert(proto::HasZeroCopyFrames<TcpLink> && proto::TakesParts<PartsHandler, TcpLink::Peer>);

// Large frames that leave from where they lie: their bytes are free when they are complete, or were kept. They arrive where they belong.
TEST(TcpMessages, LargeFramesLieWhereTheyAreUntilTheyHaveSettled) {
  Node a, b;
  PartsHandler into{b};
  auto* to_b = a.connect(b);
  ASSERT_TRUE(poll_until([&] { return b.peers.size() == 1; }, a, into));
  constexpr size_t count = 400;
  std::vector<std::string> out, expected;
  std::vector<uint64_t> marks;
  size_t freed = 0;
  const auto release = [&] {
    for (; freed < marks.size() && a.link.completed_sequence(*to_b) >= marks[freed]; ++freed)
      out[freed].assign(out[freed].size(), '!');
  };
  for (size_t i = 0; i < count; ++i) {
    out.push_back(text_of(i, i % 5 == 4 ? 100 : 4'000 + i * 7919 % (TcpLink::frame_bytes_max - 4'000)));
    expected.push_back(out.back());
  }
  for (size_t i = 0; i < count; ++i) {
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(out[i].size()), 7, 0};
    const size_t prefix = i % 3;
    const iovec part{out[i].data() + prefix, out[i].size() - prefix};
    b.refusing = i % 50 > 40;
    ASSERT_TRUE(poll_until(
        [&] {
          release();
          if (i % 50 == 49) b.refusing = false;
          if (a.link.send_zero_copy(*to_b, head, std::as_bytes(std::span(out[i])).first(prefix), &part, 1))
            return true;
          b.refusing = false;
          return false;
        },
        a, into))
        << i;
    marks.push_back(a.link.sent_sequence(*to_b));
    if (i % 100 == 99) {  // the program takes everything back
      a.link.copy_out(*to_b);
      for (; freed < marks.size(); ++freed) out[freed].assign(out[freed].size(), '!');
    }
  }
  b.refusing = false;
  ASSERT_TRUE(poll_until(
      [&] { return b.frames.size() == count && a.link.completed_sequence(*to_b) == marks.back(); }, a, b));
  for (int i = 0; i < 100; ++i) into.poll();
  EXPECT_EQ(b.frames, expected);
  EXPECT_GT(into.parts, 0u);
  EXPECT_TRUE(a.losses.empty() && b.losses.empty());
}

// Somebody at `from` who says that he is the endpoint at `name` after a restart.
void call_as(
    const std::string& from, const Node& name, uint64_t incarnation, Node& callee, Node& other,
    const std::function<void()>& meanwhile = [] {}) {
  const auto bytes = callee.link.address();
  const auto place = *os::SocketAddress::from(bytes.data(), bytes.size());
  Channel channel(connection_frame_bytes_max);
  ASSERT_EQ(channel.connect(place, *os::SocketAddress::from_text(from)), 0);
  Handshake handshake;
  handshake.kind = ConnectionKind::Msg;
  handshake.features = 0x80000001;  // of a later version, which can do without
  channel.send_hello(handshake);
  ASSERT_TRUE(poll_until(
      [&] {
        (void)channel.advance();
        return channel.theirs() != nullptr;
      },
      callee, other));
  ASSERT_EQ(channel.theirs()->type, HandshakeType::Welcome);
  channel.open();
  const auto own = name.link.address();
  const message::Handshake hello{message::handshake_version, Messages::receive_count, incarnation,
                                 std::string(reinterpret_cast<const char*>(own.data()), own.size())};
  std::array<std::byte, message::handshake_bytes_min + message::address_bytes_max> said{};
  const size_t count = write_handshake(message::Kind::Hello, hello, said.data());
  const iovec part{said.data(), count};
  ASSERT_TRUE(channel.send({wire::FrameKind::Msg, 0, 0, static_cast<uint32_t>(count), 0, 0}, {}, &part, 1));
  for (int i = 0; i < 1000; ++i) {
    callee.poll();
    other.poll();
  }
  meanwhile();
  channel.close();
}

// A large frame is a message of its own. Peers that do not say in their handshake that they take such get shorter ones.
TEST(TcpMessages, LargeFramesGoToPeersThatTakeThem) {
  Node a, b, c;
  auto* to_b = a.connect(b);
  ASSERT_NE(to_b, nullptr);
  EXPECT_EQ(a.link.limits(*to_b).segment_bytes, TcpLink::usual_limits.segment_bytes) << "it has said nothing";
  const std::string large(TcpLink::large_frame_bytes, 'l');
  ASSERT_TRUE(poll_until([&] { return a.send(*to_b, "small"); }, a, b));
  EXPECT_EQ(a.link.limits(*to_b).segment_bytes, TcpLink::large_frame_bytes);
  ASSERT_TRUE(poll_until([&] { return a.send(*to_b, large); }, a, b));
  ASSERT_TRUE(poll_until([&] { return b.frames.size() == 2; }, a, b));
  EXPECT_EQ(b.frames[1], large);
  EXPECT_EQ(b.link.limits(*b.peers.at(0)).fragment_bytes, TcpLink::large_frame_bytes);
  call_as("127.0.0.1:0", c, 77, b, a, [&] {
    ASSERT_EQ(b.peers.size(), 2u);
    EXPECT_EQ(b.link.limits(*b.peers.at(1)).segment_bytes, TcpLink::usual_limits.segment_bytes);
    EXPECT_EQ(b.link.limits(*b.peers.at(1)).fragmented_eager_bytes_max,
              TcpLink::usual_limits.fragmented_eager_bytes_max);
  });
  EXPECT_TRUE(a.losses.empty());
}

TEST(TcpMessages, ConnectsThatCrossSettleOnOneConnection) {
  Node a, b;
  auto* to_b = a.connect(b);
  auto* to_a = b.connect(a);
  std::vector<std::string> there, back;
  send_all(a, *to_b, 50, there, b);
  send_all(b, *to_a, 50, back, a);
  ASSERT_TRUE(
      poll_until([&] { return b.frames.size() == there.size() && a.frames.size() == back.size(); }, a, b));
  ASSERT_TRUE(poll_until(
      [&] { return a.link.endpoints().connections() == 1 && b.link.endpoints().connections() == 1; }, a, b));
  EXPECT_TRUE(a.losses.empty() && b.losses.empty());
}

// A new incarnation at a known address is the peer after a restart, when it comes from where the peer is; else anybody could end
// anybody's connection.
TEST(TcpMessages, AnUnknownPeerDoesNotReplaceAPeer) {
  Node a, b;
  auto* to_b = a.connect(b);
  ASSERT_TRUE(poll_until([&] { return a.send(*to_b, "one"); }, a, b));
  ASSERT_TRUE(poll_until([&] { return b.frames.size() == 1; }, a, b));
  call_as("127.0.0.3:0", a, 77, b, a);
  EXPECT_TRUE(b.losses.empty());
  ASSERT_TRUE(poll_until([&] { return a.send(*to_b, "two"); }, a, b));
  ASSERT_TRUE(poll_until([&] { return b.frames.size() == 2; }, a, b));
  call_as("127.0.0.1:0", a, 78, b, a);
  ASSERT_FALSE(b.losses.empty());
  EXPECT_EQ(b.losses[0], ProviderError::PeerReplaced);
}

TEST(TcpMessages, ManyPeersOfOne) {
  Node hub;
  std::vector<std::unique_ptr<Node>> others;
  std::vector<TcpLink::Peer*> ways;
  for (int i = 0; i < 50; ++i) {
    others.push_back(std::make_unique<Node>());
    ways.push_back(others.back()->connect(hub));
  }
  const auto all_poll = [&](const std::function<bool()>& done) {
    return poll_until(
        [&] {
          for (auto& other : others) other->poll();
          return done();
        },
        hub);
  };
  for (size_t i = 0; i < others.size(); ++i)
    ASSERT_TRUE(all_poll([&] { return others[i]->send(*ways[i], "hello"); }));
  ASSERT_TRUE(all_poll([&] { return hub.frames.size() == others.size(); }));
  for (auto& peer : hub.peers) ASSERT_TRUE(hub.send(*peer, "answer"));
  ASSERT_TRUE(all_poll([&] {
    return std::ranges::all_of(others, [](const auto& other) { return other->frames.size() == 1; });
  }));
  others.clear();
  ASSERT_TRUE(poll_until([&] { return hub.losses.size() == 50; }, hub));
  EXPECT_THAT(hub.losses, testing::Each(ProviderError::PeerClosed));
  EXPECT_EQ(hub.link.endpoints().connections(), 0u);
}

TEST(TcpMessages, NobodyThere) {
  Node a;
  os::SocketAddress nowhere;
  {
    Node gone;
    nowhere = *os::SocketAddress::from(gone.link.address().data(), gone.link.address().size());
  }
  int error = 0;
  ASSERT_NE(a.link.connect(nowhere.bytes(), error), nullptr);
  ASSERT_TRUE(poll_until([&] { return !a.losses.empty(); }, a));
  EXPECT_THAT(a.losses, ElementsAre(ProviderError::PeerUnreachable));
  EXPECT_EQ(a.link.endpoints().connections(), 0u);
}

// What waits for the next poll is the parent's to write.
TEST(TcpMessages, AForkedChildWritesNothing) {
  Node a, b;
  auto* to_b = a.connect(b);
  ASSERT_TRUE(poll_until([&] { return a.send(*to_b, "one"); }, a, b));
  ASSERT_TRUE(poll_until([&] { return b.frames.size() == 1; }, a, b));
  std::vector<std::string> sent{"one"};
  for (size_t i = 0; i < 8; ++i) {
    sent.push_back(text_of(i, TcpLink::collected_frame_bytes_max + 1));
    ASSERT_TRUE(a.send(*to_b, sent.back()));
  }
  ASSERT_TRUE(a.link.endpoints().has_deferred_sends());
  const pid_t child = ::fork();
  if (child == 0) {
    a.link.close();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  sent.emplace_back("two");
  ASSERT_TRUE(poll_until([&] { return a.send(*to_b, sent.back()); }, a, b));
  ASSERT_TRUE(poll_until([&] { return b.frames.size() >= sent.size() || !b.losses.empty(); }, a, b));
  EXPECT_TRUE(b.frames == sent) << b.frames.size() << " of " << sent.size();
  EXPECT_TRUE(a.losses.empty() && b.losses.empty());
}

// Whoever connects and does not keep to the rules goes, and others stay.
TEST(TcpMessages, FramesThatAreNoMessages) {
  Node a, b;
  auto* to_b = a.connect(b);
  ASSERT_TRUE(poll_until([&] { return b.peers.size() == 1; }, a, b));
  for (const wire::FrameHead head : {wire::FrameHead{wire::FrameKind::Tagged, 0, 0, 8, 1, 0},
                                     wire::FrameHead{wire::FrameKind::MsgFirst, 0, 0, 8, 0, 0},
                                     wire::FrameHead{wire::FrameKind::Msg, 0, 0, 20'000, 0, 0}}) {
    Channel unknown_peer(connection_frame_bytes_max);
    const auto to = os::SocketAddress::from(b.link.address().data(), b.link.address().size());
    ASSERT_EQ(unknown_peer.connect(*to, {}), 0);
    Handshake handshake;
    handshake.kind = ConnectionKind::Msg;
    handshake.target = *to;
    unknown_peer.send_hello(handshake);
    ASSERT_TRUE(poll_until(
        [&] {
          return unknown_peer.advance() == Channel::State::Handshaking && unknown_peer.theirs() != nullptr;
        },
        a, b));
    ASSERT_EQ(unknown_peer.theirs()->type, HandshakeType::Welcome);
    unknown_peer.open();
    const std::vector<std::byte> payload(head.length, std::byte{0x55});
    const iovec part{const_cast<std::byte*>(payload.data()), payload.size()};
    ASSERT_TRUE(unknown_peer.send(head, {}, &part, 1));
    (void)unknown_peer.flush();
    struct {
      bool on_frame(int&, const wire::FrameHead&, const std::byte*) noexcept { return true; }
    } nothing;
    int nobody = 0;
    std::vector<std::byte> buffer(Channel::receive_bytes);
    ASSERT_TRUE(poll_until(
        [&] {
          (void)unknown_peer.receive(nothing, nobody, buffer);
          return unknown_peer.state() == Channel::State::Failed;
        },
        a, b));
  }
  ASSERT_TRUE(poll_until([&] { return b.link.endpoints().connections() == 1; }, a, b));
  ASSERT_TRUE(a.send(*to_b, "still here"));
  ASSERT_TRUE(poll_until([&] { return !b.frames.empty(); }, a, b));
  EXPECT_THAT(b.frames, ElementsAre("still here"));
  EXPECT_TRUE(a.losses.empty() && b.losses.empty());
}

TEST(TcpMessages, Sleeping) {
  Node a, b;
  auto* to_b = a.connect(b);
  ASSERT_TRUE(poll_until([&] { return b.peers.size() == 1; }, a, b));
  for (int i = 0; i < 100; ++i) a.poll(), b.poll();
  ASSERT_TRUE(b.link.arm());
  auto waiter = os::PollSet::create();
  ASSERT_TRUE(waiter);
  ASSERT_TRUE(waiter->add(b.link.wait_fd()));
  EXPECT_FALSE(waiter->wait(0));
  ASSERT_TRUE(a.send(*to_b, "wake up"));
  EXPECT_TRUE(waiter->wait(5000));
  b.link.disarm();
  ASSERT_TRUE(poll_until([&] { return !b.frames.empty(); }, b));
}

}  // namespace
}  // namespace weft::link::tcp
