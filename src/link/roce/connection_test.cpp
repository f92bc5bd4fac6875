// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections over RC queue pairs: data of both sides, frames, the end, and callers that are none of ours.
#include "link/roce/connection.hpp"

#include <gtest/gtest.h>
#include <rdma/fabric.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "link/tcp/connection.hpp"
#include "os/clock.hpp"

namespace weft::link::roce {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) noexcept { return std::as_bytes(std::span(text)); }
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class C>
struct End final : tcp::ConnectionEvents, proto::ConnectionObserver {
  tcp::Other* make_peer(std::span<const std::byte>) override { return peer = &place; }
  void peer_lost(tcp::Other&, core::ProviderError) noexcept override {
    peer = nullptr;
    incomplete = link.sent_sequence(place) - link.completed_sequence(place);
  }
  void connected(std::span<const std::byte> data) noexcept override {
    story += "connected(" + text_of(data) + ") ";
  }
  void refused(int, core::ProviderError, std::span<const std::byte> data) noexcept override {
    story += "refused(" + text_of(data) + ") ";
  }
  void disconnected(core::ProviderError) noexcept override { story += "disconnected "; }
  bool on_frame(tcp::Other&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    frames.emplace_back(reinterpret_cast<const char*>(payload), head.length);
    tags.push_back(head.a);
    return true;
  }
  bool send(uint64_t tag, const std::string& text) {
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return link.send(place, {wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(text.size()), tag, 0}, {},
                     &part, 1);
  }
  void poll() { (void)link.poll(*this); }

  tcp::Other place;
  tcp::Other* peer = nullptr;
  uint64_t incomplete = 0;  // messages, when the peer was lost
  std::string story;
  std::vector<std::string> frames;
  std::vector<uint64_t> tags;
  C link;
};

template <class Step>
bool until(Step&& done) {
  for (const uint64_t end = os::monotonic_ns() + 10'000'000'000; os::monotonic_ns() < end;)
    if (done()) return true;
  return false;
}

struct RoceConnection : testing::Test {
  void SetUp() override {
    listener.set_address_format(FI_SOCKADDR_IN);
    const auto any = *os::SocketAddress::from_text("127.0.0.1:0");
    ASSERT_TRUE(listener.open(text_of(any.bytes())));
    ASSERT_TRUE(listener.listen(4));
    for (auto* end : {&a, &b}) {
      end->link.set_address_format(FI_SOCKADDR_IN);
      ASSERT_TRUE(end->link.open({}, *end, *end));
    }
  }
  std::unique_ptr<Request> request() {
    std::unique_ptr<Request> found;
    (void)until([&] {
      listener.poll();
      a.link.advance();
      found = listener.next();
      return found != nullptr;
    });
    return found;
  }
  void join() {
    ASSERT_TRUE(a.link.start(text_of(listener.address()), bytes_of("hello")));
    auto asked = request();
    ASSERT_NE(asked, nullptr);
    EXPECT_EQ(text_of(asked->data()), "hello");
    ASSERT_TRUE(b.link.accept(std::move(asked), bytes_of("welcome")));
    ASSERT_TRUE(until([&] {
      a.poll();
      b.poll();
      return a.peer != nullptr && b.peer != nullptr;
    }));
  }

  Listener listener;
  End<Connection> a, b;
};

TEST_F(RoceConnection, FramesBothWaysThenTheEnd) {
  join();
  EXPECT_EQ(a.story, "connected(welcome) ");
  EXPECT_EQ(b.story, "connected() ");
  size_t to_b = 0, to_a = 0;
  constexpr size_t count = 500;
  ASSERT_TRUE(until([&] {
    if (to_b < count && a.send(to_b, std::string(to_b * 17, 'b'))) ++to_b;
    if (to_a < count && b.send(to_a, std::to_string(to_a))) ++to_a;
    a.poll();
    b.poll();
    return a.frames.size() == count && b.frames.size() == count;
  }));
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(b.tags[i], i);
    ASSERT_EQ(b.frames[i].size(), i * 17);
    ASSERT_EQ(a.frames[i], std::to_string(i));
  }
  // What was sent before the end arrives before it.
  ASSERT_TRUE(until([&] { return a.send(7, "last"); }));
  a.link.shut_down();
  ASSERT_TRUE(until([&] {
    b.poll();
    return b.peer == nullptr;
  }));
  EXPECT_EQ(b.frames.back(), "last");
  EXPECT_EQ(b.story, "connected() disconnected ");
  ASSERT_TRUE(until([&] {
    a.link.advance();
    return a.story == "connected(welcome) disconnected ";
  }));
}

TEST_F(RoceConnection, ARejectionBringsItsData) {
  ASSERT_TRUE(a.link.start(text_of(listener.address()), {}));
  auto asked = request();
  ASSERT_NE(asked, nullptr);
  asked->reject(bytes_of("no"));
  ASSERT_TRUE(until([&] {
    a.link.advance();
    return !a.story.empty();
  }));
  EXPECT_EQ(a.story, "refused(no) ");
}

// Endpoints of `tcp` speak the same handshake and have no queue pair.
TEST_F(RoceConnection, OthersAreRefused) {
  End<tcp::Connection> other;
  other.link.set_address_format(FI_SOCKADDR_IN);
  ASSERT_TRUE(other.link.open({}, other, other));
  ASSERT_TRUE(other.link.start(text_of(listener.address()), bytes_of("I have no queue pair")));
  ASSERT_TRUE(until([&] {
    listener.poll();
    EXPECT_EQ(listener.next(), nullptr);
    other.link.advance();
    return !other.story.empty();
  }));
  EXPECT_EQ(other.story, "refused() ");
}

TEST_F(RoceConnection, AClosedPeerIsNoticed) {
  join();
  b.link.close();
  ASSERT_TRUE(until([&] {
    a.poll();
    return a.peer == nullptr;
  }));
  EXPECT_EQ(a.story, "connected(welcome) disconnected ");
}

// Who has taken the last message leaves at once: the sender knows that it came, though the acknowledgement is lost.
struct RoceConnectionLossy : RoceConnection, testing::WithParamInterface<int> {
  void SetUp() override {
    ::setenv("WEFT_PACKET_FAULTS", ("loss=25,seed=" + std::to_string(GetParam())).c_str(), 1);
    RoceConnection::SetUp();
  }
  void TearDown() override { ::unsetenv("WEFT_PACKET_FAULTS"); }
};

TEST_P(RoceConnectionLossy, WhoLeavesSaysWhatItHas) {
  ASSERT_NO_FATAL_FAILURE(join());
  ASSERT_TRUE(until([&] {
    a.poll();
    b.poll();
    return a.send(7, "last");
  }));
  ASSERT_TRUE(until([&] {
    b.poll();
    return !b.frames.empty();
  }));
  b.link.shut_down();
  ASSERT_TRUE(until([&] {
    a.poll();
    return a.peer == nullptr;
  }));
  EXPECT_EQ(a.incomplete, 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RoceConnectionLossy, testing::Range(1, 9));

}  // namespace
}  // namespace weft::link::roce
