// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two channels over the loopback interface: handshake, refusals, frames of all sizes, both ends.
#include "link/tcp/channel.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "os/traffic_class.hpp"

namespace weft::link::tcp {
namespace {

constexpr size_t frame_max = size_t{1} << 18;

struct NoPeer {};

struct Frame {
  wire::FrameHead head;
  std::vector<std::byte> payload;
};

struct Collector {
  bool on_frame(NoPeer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (refusing) return false;
    frames.push_back({head, {payload, payload + head.length}});
    return true;
  }
  bool refusing = false;
  std::vector<Frame> frames;
};

// Takes everything in parts that it can.
struct Lander : Collector {
  proto::Land land(NoPeer&, wire::FrameHead& head, const std::byte* payload, size_t arrived,
                   proto::Landing& out) noexcept {
    if (payload != nullptr) {
      frames.push_back({head, std::vector<std::byte>(head.length)});
      std::copy_n(payload, arrived, frames.back().payload.begin());
      head.length -= static_cast<uint32_t>(arrived);
      ++landings;
    }
    auto& all = frames.back().payload;
    out.pieces[0] = {all.data() + all.size() - head.length, head.length};
    out.count = 1;
    out.bytes = head.length;
    return proto::Land::Here;
  }
  void landed(NoPeer&, wire::FrameHead& head, size_t bytes) noexcept {
    head.length -= static_cast<uint32_t>(bytes);
  }
  int landings = 0;
};

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    listener_ = os::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto here = os::SocketAddress::loopback(AF_INET);
    ASSERT_EQ(::bind(listener_.get(), here.get(), here.size()), 0);
    ASSERT_EQ(::listen(listener_.get(), 8), 0);
    place_ = os::local_address(listener_.get());
  }
  void start_connect(uint8_t dscp = 0) {
    ASSERT_EQ(near_.connect(place_, {}, dscp), 0);
    far_.adopt(os::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK)));
  }
  void send_hello(const Handshake& handshake, const Handshake& answer) {
    start_connect();
    near_.send_hello(handshake);
    until([&] {
      return far_.advance() != Channel::State::Handshaking || far_.theirs() != nullptr ||
             (near_.advance(), false);
    });
    ASSERT_NE(far_.theirs(), nullptr);
    far_.send_hello(answer);
    until([&] { return near_.advance() != Channel::State::Handshaking || near_.theirs() != nullptr; });
  }
  void open() {
    Handshake welcome;
    welcome.type = HandshakeType::Welcome;
    send_hello({}, welcome);
    ASSERT_NE(near_.theirs(), nullptr);
    near_.open();
    far_.open();
  }
  static void until(const std::function<bool()>& done) {
    for (int i = 0; i < 2000; ++i) {
      if (done()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "nothing happens";
  }
  static bool send(Channel& channel, uint64_t a, const std::vector<std::byte>& payload) {
    const size_t prefix = std::min<size_t>(payload.size(), 3);
    const iovec parts[] = {{const_cast<std::byte*>(payload.data()) + prefix, payload.size() - prefix}};
    return channel.send({wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(payload.size()), a, 0},
                        std::span(payload).first(prefix), parts, 1);
  }

  os::Fd listener_;
  os::SocketAddress place_;
  Channel near_{frame_max};
  Channel far_{frame_max};
  NoPeer peer_;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(Channel::receive_bytes);
};

int type_of_service(const os::Fd& socket) {
  int octet = -1;
  socklen_t length = sizeof(octet);
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_IP, IP_TOS, &octet, &length), 0);
  return octet;
}

// RFC 2474: the code point is the upper six bits. What is accepted has the mark of its listener.
TEST_F(ChannelTest, TrafficClass) {
  os::mark_traffic(listener_.get(), 10);
  start_connect(46);
  EXPECT_EQ(type_of_service(near_.fd()), 46 << 2);
  EXPECT_EQ(type_of_service(far_.fd()), 10 << 2);
}

TEST_F(ChannelTest, HandshakeCarriesEverything) {
  Handshake handshake;
  handshake.kind = ConnectionKind::Msg;
  handshake.incarnation = 0x1122334455667788;
  handshake.address = *os::SocketAddress::from_text("[fe80::1%3]:77");
  handshake.target = place_;
  handshake.set_data("connection data", 15);
  Handshake welcome;
  welcome.type = HandshakeType::Welcome;
  welcome.set_data("answer", 6);
  send_hello(handshake, welcome);
  const Handshake& got = *far_.theirs();
  EXPECT_EQ(got.type, HandshakeType::Hello);
  EXPECT_EQ(got.kind, ConnectionKind::Msg);
  EXPECT_EQ(got.incarnation, handshake.incarnation);
  EXPECT_EQ(got.address, handshake.address);
  EXPECT_EQ(got.target, place_);
  EXPECT_EQ(std::memcmp(got.data.data(), "connection data", 15), 0);
  EXPECT_EQ(got.data_bytes, 15);
  ASSERT_NE(near_.theirs(), nullptr);
  EXPECT_EQ(near_.theirs()->type, HandshakeType::Welcome);
  EXPECT_EQ(near_.theirs()->data_bytes, 6);
}

TEST_F(ChannelTest, ARefusalHasAReason) {
  start_connect();
  near_.send_hello({});
  until([&] {
    return near_.advance() == Channel::State::Handshaking && (far_.advance(), far_.theirs() != nullptr);
  });
  Handshake no;
  no.set_data("not today", 9);
  far_.refuse(no, RefusalReason::Program);
  EXPECT_EQ(far_.state(), Channel::State::Failed);
  until([&] { return near_.advance(), near_.theirs() != nullptr; });
  EXPECT_EQ(near_.theirs()->type, HandshakeType::Refusal);
  EXPECT_EQ(near_.theirs()->reason, RefusalReason::Program);
  EXPECT_EQ(near_.theirs()->data_bytes, 9);
}

TEST_F(ChannelTest, AnotherVersionIsRefused) {
  start_connect();
  std::byte bytes[handshake_bytes_max];
  const size_t size = pack_handshake({}, bytes);
  bytes[4] = std::byte{99};
  until([&] { return near_.advance() == Channel::State::Handshaking; });
  ASSERT_EQ(::send(near_.fd().get(), bytes, size, 0), static_cast<ssize_t>(size));
  until([&] { return far_.advance() == Channel::State::Failed; });
  EXPECT_EQ(far_.refusal(), RefusalReason::Version);
  until([&] { return near_.advance(), near_.theirs() != nullptr; });
  EXPECT_EQ(near_.theirs()->reason, RefusalReason::Version);
}

TEST_F(ChannelTest, SomethingElseOnThePortIsRefused) {
  start_connect();
  until([&] { return near_.advance() == Channel::State::Handshaking; });
  ASSERT_GT(::send(near_.fd().get(), "GET / HTTP/1.0\r\n", 16, 0), 0);
  until([&] { return far_.advance() == Channel::State::Failed; });
  EXPECT_EQ(far_.refusal(), RefusalReason::Malformed);
}

TEST_F(ChannelTest, NobodyListens) {
  listener_.reset();
  (void)near_.connect(place_, {});
  near_.send_hello({});
  until([&] { return near_.advance() == Channel::State::Failed; });
  EXPECT_EQ(near_.error(), ECONNREFUSED);
}

template <class Handler>
void all_sizes(Channel& from, Channel& to, std::span<std::byte> scratch, bool polls) {
  std::mt19937_64 random(7);
  std::deque<Frame> expected;
  Handler handler;
  NoPeer peer;
  size_t seen = 0;
  const auto receive = [&] {
    to.receive(handler, peer, scratch);
    // Not the last one: it may still be landing.
    for (; seen + 1 < handler.frames.size(); ++seen) {
      ASSERT_EQ(handler.frames[seen].head.a, seen);
      ASSERT_EQ(handler.frames[seen].payload, expected.front().payload);
      expected.pop_front();
    }
  };
  for (uint64_t i = 0; i < 600; ++i) {
    const size_t sizes[] = {0, 8, random() % 200, random() % 5000, random() % 70'000, frame_max};
    Frame frame{{}, std::vector<std::byte>(sizes[random() % (i % 7 == 0 ? 6 : 5)])};
    for (auto& byte : frame.payload) byte = static_cast<std::byte>(random());
    const iovec part{frame.payload.data(), frame.payload.size()};
    const wire::FrameHead head{
        wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(frame.payload.size()), i, 0};
    while (!from.send(head, {}, &part, 1)) {
      ASSERT_EQ(from.state(), Channel::State::Open);
      receive();
      from.flush();
    }
    expected.push_back(std::move(frame));
    if (polls && i % 5 == 0) from.flush();
    if (i % 11 == 0) receive();
  }
  from.say_bye();
  for (int i = 0; i < 5000 && !to.said_bye(); ++i) {
    from.flush();
    receive();
  }
  EXPECT_TRUE(to.said_bye());
  EXPECT_EQ(seen + 1, handler.frames.size());
  EXPECT_EQ(expected.size(), 1u);
}

TEST_F(ChannelTest, FramesOfAllSizesWhole) {
  open();
  all_sizes<Collector>(near_, far_, scratch_, true);
}
TEST_F(ChannelTest, FramesOfAllSizesInParts) {
  open();
  all_sizes<Lander>(far_, near_, scratch_, false);
}

TEST_F(ChannelTest, LoneFramesGoAtOnceAndABurstIsCollected) {
  open();
  Collector handler;
  for (size_t sent = 1; sent <= 4; ++sent) {
    ASSERT_TRUE(send(near_, sent, std::vector<std::byte>(8)));
    EXPECT_FALSE(near_.unflushed());
    until([&] { return far_.receive(handler, peer_, scratch_), handler.frames.size() == sent; });
  }
  for (size_t sent = 5; sent <= 40; ++sent) ASSERT_TRUE(send(near_, sent, std::vector<std::byte>(8)));
  EXPECT_TRUE(near_.unflushed());
  EXPECT_TRUE(near_.flush());
  until([&] { return far_.receive(handler, peer_, scratch_), handler.frames.size() == 40; });
  // The next burst is expected: its first frame goes, for it may be a lone one.
  ASSERT_TRUE(send(near_, 41, std::vector<std::byte>(8)));
  EXPECT_FALSE(near_.unflushed());
  ASSERT_TRUE(send(near_, 42, std::vector<std::byte>(8)));
  EXPECT_TRUE(near_.unflushed());
}

TEST_F(ChannelTest, FramesGoWithTheHandshakeOfOneWhoLeaves) {
  ASSERT_EQ(near_.connect(place_, {}), 0);
  near_.send_hello({});
  EXPECT_FALSE(send(near_, 1, std::vector<std::byte>(8)));
  near_.allow_early();
  ASSERT_TRUE(send(near_, 1, std::vector<std::byte>(8)));
  near_.say_bye();
  EXPECT_GT(near_.early_bytes().size(), 8u);
  until([&] { return near_.advance() == Channel::State::Handshaking && !near_.unflushed(); });
  EXPECT_TRUE(near_.sent_early());
  near_.close();
  far_.adopt(os::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK)));
  until([&] { return far_.advance(), far_.theirs() != nullptr; });
  far_.send_hello({});
  far_.open();
  Collector handler;
  until([&] { return far_.receive(handler, peer_, scratch_), far_.state() == Channel::State::Failed; });
  EXPECT_EQ(handler.frames.size(), 1u);
  EXPECT_TRUE(far_.said_bye());
}

TEST_F(ChannelTest, AReceiverThatDoesNotReadStopsTheSender) {
  open();
  size_t sent = 0;
  for (int i = 0; i < 10'000; ++i, near_.flush())
    while (sent < 200'000 && send(near_, sent, std::vector<std::byte>(4000))) ++sent;
  EXPECT_LT(sent, 20'000u);  // sockets and Channel::collected_bytes_max hold some
  EXPECT_TRUE(near_.full());
  Collector handler;
  handler.refusing = true;
  (void)far_.receive(handler, peer_, scratch_);
  EXPECT_TRUE(far_.stalled());
  handler.refusing = false;
  until([&] {
    near_.flush();
    far_.receive(handler, peer_, scratch_);
    return handler.frames.size() == sent;
  });
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(handler.frames[i].head.a, i);
}

TEST_F(ChannelTest, TheEndInGoodOrderAndTheOther) {
  open();
  ASSERT_TRUE(send(near_, 1, std::vector<std::byte>(8)));
  near_.say_bye();
  near_.close();
  Collector handler;
  until([&] { return far_.receive(handler, peer_, scratch_), far_.state() == Channel::State::Failed; });
  EXPECT_EQ(handler.frames.size(), 1u);
  EXPECT_EQ(far_.error(), ESHUTDOWN);
  near_ = Channel(frame_max);
  far_ = Channel(frame_max);
  open();
  near_.drop();
  until([&] { return far_.receive(handler, peer_, scratch_), far_.state() == Channel::State::Failed; });
  EXPECT_EQ(far_.error(), ECONNRESET);
}

TEST_F(ChannelTest, NonsenseEndsTheConnection) {
  open();
  const uint8_t nonsense[] = {1, 0xff, 0, 0};
  ASSERT_EQ(::send(near_.fd().get(), nonsense, sizeof nonsense, 0), 4);
  Collector handler;
  until([&] { return far_.receive(handler, peer_, scratch_), far_.state() == Channel::State::Failed; });
  EXPECT_EQ(far_.error(), EBADMSG);
  EXPECT_TRUE(near_.alive());
}

// Large frames whose payload stays with the program.
class InPlaceTest : public ChannelTest {
 protected:
  static constexpr size_t each = 20'000;
  static constexpr size_t count = 24;

  void SetUp() override {
    ChannelTest::SetUp();
    open();
    for (size_t i = 0; i < count; ++i) payloads_.emplace_back(each, static_cast<std::byte>(i + 1));
  }
  bool send_in_place(size_t i) {
    const auto& payload = payloads_[i];
    const iovec parts[] = {{const_cast<std::byte*>(payload.data()) + 3, 1000},
                           {const_cast<std::byte*>(payload.data()) + 1003, each - 1003}};
    return near_.send_in_place({wire::FrameKind::Tagged, 0, 0, each, i, 0}, std::span(payload).first(3),
                               parts, 2);
  }
  // The socket takes few bytes at a time from now on, and what is not read stays here.
  void make_narrow() {
    const int few = 4096;
    ASSERT_EQ(::setsockopt(near_.fd().get(), SOL_SOCKET, SO_SNDBUF, &few, sizeof(few)), 0);
  }
  void expect_frames(size_t wanted) {
    until([&] {
      (void)near_.flush();
      (void)far_.receive(got_, peer_, scratch_);
      return got_.frames.size() >= wanted;
    });
    ASSERT_EQ(got_.frames.size(), wanted);
    for (size_t i = 0; i < wanted; ++i) {
      EXPECT_EQ(got_.frames[i].head.a, i);
      EXPECT_TRUE(got_.frames[i].payload == std::vector<std::byte>(each, static_cast<std::byte>(i + 1))) << i;
    }
  }

  std::vector<std::vector<std::byte>> payloads_;
  Lander got_;
};

TEST_F(InPlaceTest, ALoneFrameLeavesAtOnce) {
  const uint64_t before = near_.written();
  ASSERT_TRUE(send_in_place(0));
  EXPECT_GE(near_.written() - before, each);
  EXPECT_EQ(near_.taken(), near_.written());
}

TEST_F(InPlaceTest, ABurstIsGatheredUntilThePoll) {
  size_t sent = 0;
  while (sent < count && near_.referred() == 0) ASSERT_TRUE(send_in_place(sent++));
  ASSERT_LT(sent, 8u);
  while (sent < count) ASSERT_TRUE(send_in_place(sent++));
  EXPECT_GE(near_.referred(), (count - 8) * each);
  EXPECT_GT(near_.taken() - near_.written(), near_.referred());
  EXPECT_TRUE(near_.flush() || near_.full());
  expect_frames(count);
  EXPECT_EQ(near_.taken(), near_.written());
  EXPECT_EQ(near_.referred(), 0u);
}

TEST_F(InPlaceTest, ANarrowSocketTakesThemInPieces) {
  make_narrow();
  size_t sent = 0;
  until([&] {
    while (sent < count && send_in_place(sent)) ++sent;
    (void)near_.flush();
    (void)far_.receive(got_, peer_, scratch_);
    return sent == count;
  });
  expect_frames(count);
}

TEST_F(InPlaceTest, SmallFramesKeepTheirPlaceBetween) {
  make_narrow();
  for (size_t i = 0; i < count; ++i) {
    if (i % 3 != 2) {
      ASSERT_TRUE(send_in_place(i));
    } else {
      payloads_[i].resize(100);
      ASSERT_TRUE(send(near_, i, payloads_[i]));
    }
  }
  until([&] {
    (void)near_.flush();
    (void)far_.receive(got_, peer_, scratch_);
    return got_.frames.size() == count;
  });
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(got_.frames[i].head.a, i);
    EXPECT_TRUE(got_.frames[i].payload == payloads_[i]) << i;
  }
}

TEST_F(InPlaceTest, WhatIsKeptIsTheProgramsAgain) {
  make_narrow();
  size_t sent = 0;
  while (sent < count && send_in_place(sent)) ++sent;
  ASSERT_GT(near_.referred(), 0u);
  const uint64_t taken = near_.taken();
  near_.keep();
  EXPECT_EQ(near_.referred(), 0u);
  EXPECT_EQ(near_.taken(), taken);
  payloads_.clear();  // a sanitizer sees who looks there
  expect_frames(sent);
}

TEST_F(InPlaceTest, WhoWaitsTooLongIsRefused) {
  make_narrow();
  std::vector<std::byte> large(frame_max);
  const iovec part{large.data(), large.size()};
  size_t taken = 0;
  while (taken < 100 && near_.send_in_place({wire::FrameKind::Tagged, 0, 0, frame_max, 0, 0}, {}, &part, 1))
    ++taken;
  EXPECT_LT(taken, 10u);
  EXPECT_LE(near_.referred(), Channel::gathered_bytes + frame_max);
}

TEST_F(InPlaceTest, NobodyLooksAtThemWhenItIsOver) {
  make_narrow();
  size_t sent = 0;
  while (sent < count && send_in_place(sent)) ++sent;
  far_.drop();
  until([&] {
    (void)near_.flush();
    (void)near_.receive(got_, peer_, scratch_);
    return near_.state() == Channel::State::Failed;
  });
  EXPECT_LT(near_.written(), near_.taken());
  near_.close();
  payloads_.clear();
  EXPECT_EQ(near_.referred(), 0u);
  (void)near_.flush();
}

}  // namespace
}  // namespace weft::link::tcp
