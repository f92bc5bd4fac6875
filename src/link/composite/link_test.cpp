// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The composite link over shared memory and the in-process link: which path a peer gets, that both carry frames, that losing one path loses
// the peer, sleeping on both.
#include "link/composite/link.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/loopback/link.hpp"
#include "link/shm/link.hpp"
#include "os/clock.hpp"

namespace weft::link::composite {
namespace {

bool g_local_allowed = true;
bool g_local_present = true;
uint64_t g_host = 1;

bool g_local_throws = false;

class TestLocal : public shm::Link {
 public:
  shm::Peer* connect(std::span<const std::byte> address, int& error) {
    if (g_local_throws) throw std::bad_alloc();
    return shm::Link::connect(address, error);
  }
  static bool is_present(std::span<const std::byte> address) {
    return g_local_present && shm::Link::is_present(address);
  }
};

// "FAR|NEAR|HOST", or "FAR" alone.
struct TestNames {
  static constexpr size_t address_length = 64;
  struct Parts {
    std::string remote, local;
    size_t local_length = 0;
    uint64_t host = 0;
    void set_remote(std::span<const std::byte> text) { remote = as_text(text); }
    void set_local(std::span<const std::byte> text) {
      local = as_text(text);
      local_length = local.size();
    }
    std::span<const std::byte> remote_address() const { return std::as_bytes(std::span(remote)); }
    std::span<const std::byte> local_address() const { return std::as_bytes(std::span(local)); }
  };
  static std::string as_text(std::span<const std::byte> bytes) {
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    return {text, ::strnlen(text, bytes.size())};
  }
  static bool split(std::span<const std::byte> address, Parts& out) {
    const std::string text = as_text(address);
    out = {};
    if (!text.starts_with("fi_ns://")) return false;
    const size_t first = text.find('|');
    out.remote = text.substr(0, first);
    if (first == std::string::npos) return true;
    const size_t second = text.find('|', first + 1);
    out.local = text.substr(first + 1, second - first - 1);
    out.local_length = out.local.size();
    out.host = std::stoull(text.substr(second + 1));
    return true;
  }
  static bool join(const Parts& parts, std::array<std::byte, address_length>& out) {
    std::string text = parts.remote;
    if (parts.local_length != 0) text += '|' + parts.local + '|' + std::to_string(parts.host);
    out = {};
    std::memcpy(out.data(), text.data(), text.size());
    return text.size() < out.size();
  }
  static uint64_t host() { return g_host; }
  static bool local_allowed() { return g_local_allowed; }
  template <class Remote>
  static void prepare(Remote&, const Parts&) {}
};

using TestLink = Link<TestLocal, loopback::Link, TestNames>;
static_assert(proto::Link<TestLink>);
static_assert(proto::HasSmallFrames<TestLink> && proto::HasLoans<TestLink> && proto::HasSides<TestLink>);
static_assert(proto::HasSleep<TestLink>);
using TestPeer = TestLink::PeerBase;

struct Received {
  TestPeer* from;
  uint64_t a;
  std::string text;
};

struct Node final : TestLink::Events {
  Node() {
    auto opened = link.open("", *this);
    if (!opened) ADD_FAILURE() << opened.error().why;
  }
  TestPeer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<TestPeer>());
    return peers.back().get();
  }
  void peer_lost(TestPeer& peer, core::ProviderError why) noexcept override {
    lost.push_back(why);
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(TestPeer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
    frames.push_back({&peer, head.a, {reinterpret_cast<const char*>(payload), head.length}});
    return true;
  }
  TestPeer* connect(const Node& other) {
    int error = 0;
    TestPeer* peer = link.connect(other.link.address(), error);
    EXPECT_NE(peer, nullptr) << error;
    return peer;
  }
  bool send(TestPeer& peer, uint64_t a, const std::string& text) {
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 0, static_cast<uint32_t>(text.size()), a, 0};
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return link.send(peer, head, {}, &part, 1);
  }
  bool poll_until(const std::function<bool()>& done) {
    const uint64_t until = os::monotonic_ns() + 2'000'000'000;
    while (!done()) {
      if (os::monotonic_ns() > until) return false;
      (void)link.poll(*this);
    }
    return true;
  }
  bool poll_for_frames(size_t count) {
    return poll_until([&] { return frames.size() >= count; });
  }
  std::deque<std::unique_ptr<TestPeer>> peers;
  std::vector<Received> frames;
  std::vector<core::ProviderError> lost;
  TestLink link;
};

class Composite : public testing::Test {
 protected:
  void SetUp() override {
    g_local_allowed = true;
    g_local_present = true;
    g_host = 1;
  }
  // Both ways, small and large frames.
  static void talk(Node& a, Node& b, Path expected) {
    TestPeer* to_b = a.connect(b);
    ASSERT_NE(to_b, nullptr);
    EXPECT_EQ(TestLink::path_to(*to_b), expected);
    ASSERT_TRUE(a.send(*to_b, 1, "hello"));
    ASSERT_TRUE(a.send(*to_b, 2, std::string(5000, 'x')));
    ASSERT_TRUE(b.poll_for_frames(2));
    EXPECT_EQ(b.frames[0].text, "hello");
    EXPECT_EQ(b.frames[1].text.size(), 5000u);
    EXPECT_EQ(b.frames[0].from, b.frames[1].from);
    TestPeer* to_a = b.connect(a);
    EXPECT_EQ(to_a, b.frames[0].from);
    ASSERT_TRUE(b.send(*to_a, 3, "answer"));
    ASSERT_TRUE(a.poll_for_frames(1));
    EXPECT_EQ(a.frames[0].from, to_b);
    EXPECT_EQ(a.peers.size(), 1u);
    EXPECT_EQ(b.peers.size(), 1u);
  }
};

TEST_F(Composite, SameHostTakesTheLocalPath) {
  Node a;
  Node b;
  talk(a, b, Path::Local);
}

TEST_F(Composite, AnotherHostTakesTheRemotePath) {
  Node a;
  g_host = 2;
  Node b;
  talk(a, b, Path::Remote);
}

TEST_F(Composite, AnEndpointThatCannotBeMetNearbyTakesTheRemotePath) {
  Node a;
  Node b;
  g_local_present = false;
  talk(a, b, Path::Remote);
}

TEST_F(Composite, LocalMayBeForbidden) {
  Node a;
  g_local_allowed = false;
  Node b;
  Node c;
  Node d;
  talk(a, b, Path::Remote);
  talk(c, d, Path::Remote);
}

TEST_F(Composite, ManyPeersOnBothPathsKeepTheirOrder) {
  Node a;
  Node local;
  g_host = 2;
  Node remote;
  TestPeer* to_local = a.connect(local);
  TestPeer* to_remote = a.connect(remote);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(a.send(*to_local, i, "n"));
    ASSERT_TRUE(a.send(*to_remote, i, "f"));
  }
  ASSERT_TRUE(local.poll_for_frames(100));
  ASSERT_TRUE(remote.poll_for_frames(100));
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(local.frames[i].a, i);
    EXPECT_EQ(remote.frames[i].a, i);
  }
}

// What was to be the name of a peer that there was no memory for is not the name of the next one.
TEST_F(Composite, MemoryThatRunsOutLeavesNoNameBehind) {
  Node a;
  Node b;
  Node c;
  int error = 0;
  g_local_throws = true;
  EXPECT_THROW((void)a.link.connect(b.link.address(), error), std::bad_alloc);
  g_local_throws = false;
  TestPeer* to_a = c.connect(a);
  ASSERT_TRUE(c.send(*to_a, 1, "hello"));
  ASSERT_TRUE(a.poll_for_frames(1));
  EXPECT_EQ(TestNames::as_text(a.frames[0].from->name), TestNames::as_text(c.link.address()));
}

// One side thinks that it can meet the other nearby, the other does not: each has its path, and they understand each other.
TEST_F(Composite, TheTwoEndsMayChooseDifferently) {
  Node a;
  Node b;
  g_local_present = false;
  TestPeer* to_b = a.connect(b);
  g_local_present = true;
  TestPeer* to_a = b.connect(a);
  EXPECT_EQ(TestLink::path_to(*to_b), Path::Remote);
  EXPECT_EQ(TestLink::path_to(*to_a), Path::Local);
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(a.send(*to_b, i, "remote"));
    ASSERT_TRUE(b.send(*to_a, i, "local"));
  }
  ASSERT_TRUE(a.poll_for_frames(50));
  ASSERT_TRUE(b.poll_for_frames(50));
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(a.frames[i].from, to_b);
    EXPECT_EQ(b.frames[i].from, to_a);
    EXPECT_EQ(a.frames[i].a, i);
    EXPECT_EQ(b.frames[i].a, i);
  }
  EXPECT_EQ(a.peers.size(), 1u);
  EXPECT_EQ(b.peers.size(), 1u);
}

TEST_F(Composite, LosingOnePathOfTwoLosesThePeerOnce) {
  Node a;
  auto b = std::make_unique<Node>();
  g_local_present = false;
  TestPeer* to_b = a.connect(*b);
  g_local_present = true;
  TestPeer* to_a = b->connect(a);
  ASSERT_TRUE(a.send(*to_b, 1, "remote"));
  ASSERT_TRUE(b->send(*to_a, 1, "local"));
  ASSERT_TRUE(a.poll_for_frames(1));
  ASSERT_TRUE(b->poll_for_frames(1));
  b.reset();
  ASSERT_TRUE(a.poll_until([&] { return !a.lost.empty(); }));
  EXPECT_EQ(a.lost.size(), 1u);
  EXPECT_TRUE(a.peers.empty());
  for (int i = 0; i < 10'000; ++i) (void)a.link.poll(a);
  EXPECT_EQ(a.lost.size(), 1u);
}

TEST_F(Composite, ALocalPeerThatClosesIsLost) {
  Node a;
  auto b = std::make_unique<Node>();
  talk(a, *b, Path::Local);
  b.reset();
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }));
}

TEST_F(Composite, APeerThatIsDroppedCanBeMetAgain) {
  Node a;
  Node b;
  g_local_present = false;
  TestPeer* to_b = a.connect(b);
  a.link.forget(*to_b);
  g_local_present = true;
  TestPeer* again = a.connect(b);
  EXPECT_EQ(TestLink::path_to(*again), Path::Local);
}

// Named by its network address alone, then in full.
TEST_F(Composite, OneSpellingOrTwoItIsOnePeer) {
  Node a;
  Node b;
  TestNames::Parts parts;
  ASSERT_TRUE(TestNames::split(b.link.address(), parts));
  int error = 0;
  TestPeer* bare = a.link.connect(parts.remote_address(), error);
  ASSERT_NE(bare, nullptr);
  EXPECT_EQ(TestLink::path_to(*bare), Path::Remote);
  EXPECT_EQ(a.connect(b), bare);
  Node c;
  TestPeer* full = c.connect(b);
  EXPECT_EQ(c.link.connect(parts.remote_address(), error), full);
  EXPECT_EQ(TestLink::path_to(*full), Path::Local);
}

TEST_F(Composite, SizesAreThoseOfThePath) {
  Node a;
  Node local;
  g_host = 2;
  Node remote;
  const auto fragment_bytes = [](auto& side, auto&) { return side.fragment_bytes; };
  EXPECT_EQ(a.link.visit(*a.connect(local), fragment_bytes), shm::Link::fragment_bytes);
  EXPECT_EQ(a.link.visit(*a.connect(remote), fragment_bytes), loopback::Link::fragment_bytes);
  const auto may_be_read = [](auto& side, auto&) {
    return proto::HasRemoteMemory<proto::Bare<decltype(side)>>;
  };
  EXPECT_TRUE(a.link.visit(*a.connect(local), may_be_read));
  EXPECT_FALSE(a.link.visit(*a.connect(remote), may_be_read));
}

TEST_F(Composite, NonsenseIsNoAddress) {
  Node a;
  int error = 0;
  EXPECT_EQ(a.link.connect(std::as_bytes(std::span("hello")), error), nullptr);
  EXPECT_EQ(error, EINVAL);
}

TEST_F(Composite, SleepsOnBoth) {
  Node a;
  Node local;
  g_host = 2;
  Node remote;
  TestPeer* from_local = local.connect(a);
  TestPeer* from_remote = remote.connect(a);
  const auto wakes = [&] {
    pollfd entry{a.link.wait_fd(), POLLIN, 0};
    return ::poll(&entry, 1, 1000) == 1;
  };
  const auto sleep = [&] {
    while (!a.link.arm()) (void)a.link.poll(a);
  };
  ASSERT_TRUE(local.send(*from_local, 0, "meet"));
  ASSERT_TRUE(a.poll_for_frames(1));
  ASSERT_TRUE(a.poll_until([&] { return local.link.poll(local) == 0 && a.link.arm(); }));
  a.link.disarm();
  for (Node* sender : {&local, &remote}) {
    sleep();
    const size_t before = a.frames.size();
    ASSERT_TRUE(sender->send(sender == &local ? *from_local : *from_remote, 1, "wake up"));
    EXPECT_TRUE(wakes());
    a.link.disarm();
    EXPECT_TRUE(a.poll_for_frames(before + 1));
  }
}

// Remote is not forgotten while Local is busy, and not polled each time.
TEST_F(Composite, RemoteIsPolledBetweenLocalFrames) {
  Node a;
  Node local;
  g_host = 2;
  Node remote;
  TestPeer* from_local = local.connect(a);
  TestPeer* from_remote = remote.connect(a);
  ASSERT_TRUE(local.send(*from_local, 0, "meet"));
  ASSERT_TRUE(a.poll_for_frames(1));
  ASSERT_TRUE(remote.send(*from_remote, 7, "remote"));
  const uint64_t until = os::monotonic_ns() + 2'000'000'000;
  bool seen = false;
  while (!seen && os::monotonic_ns() < until) {
    (void)local.send(*from_local, 1, "local");
    (void)a.link.poll(a);
    seen = std::any_of(a.frames.begin(), a.frames.end(), [](const Received& frame) { return frame.a == 7; });
  }
  EXPECT_TRUE(seen);
}

// Local may be any link: here one with nothing but the required part and sleep.
using PlainLink = Link<loopback::Link, loopback::Link, TestNames>;
static_assert(proto::Link<PlainLink> && proto::HasSides<PlainLink> && proto::HasSleep<PlainLink>);
static_assert(!proto::HasSmallFrames<PlainLink> && !proto::HasLoans<PlainLink>);

template <class L>
struct NodeOf final : L::Events {
  using Peer = typename L::PeerBase;
  NodeOf() { EXPECT_TRUE(link.open("", *this)); }
  Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<Peer>());
    return peers.back().get();
  }
  void peer_lost(Peer& peer, core::ProviderError) noexcept override {
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(Peer&, const wire::FrameHead& head, const std::byte*) noexcept {
    seen.push_back(head.a);
    return true;
  }
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<uint64_t> seen;
  L link;
};
using PlainNode = NodeOf<PlainLink>;

TEST_F(Composite, LocalMayBeAnyLink) {
  PlainNode a;
  PlainNode local;
  g_host = 2;
  PlainNode remote;
  int error = 0;
  auto* to_local = a.link.connect(local.link.address(), error);
  auto* to_remote = a.link.connect(remote.link.address(), error);
  ASSERT_TRUE(to_local != nullptr && to_remote != nullptr) << error;
  EXPECT_EQ(PlainLink::path_to(*to_local), Path::Local);
  EXPECT_EQ(PlainLink::path_to(*to_remote), Path::Remote);
  ASSERT_TRUE(a.link.send(*to_local, {wire::FrameKind::Msg, 0, 0, 0, 1, 0}, {}, nullptr, 0));
  ASSERT_TRUE(a.link.send(*to_remote, {wire::FrameKind::Msg, 0, 0, 0, 2, 0}, {}, nullptr, 0));
  const uint64_t until = os::monotonic_ns() + 2'000'000'000;
  while ((local.seen.empty() || remote.seen.empty()) && os::monotonic_ns() < until) {
    (void)local.link.poll(local);
    (void)remote.link.poll(remote);
  }
  EXPECT_EQ(local.seen, std::vector<uint64_t>{1});
  EXPECT_EQ(remote.seen, std::vector<uint64_t>{2});
}

// Two links that tell what calls they get.
int g_remote_polls = 0;
template <bool is_remote>
struct Watched : loopback::Link {
  static inline loopback::Events* events = nullptr;
  Result<void> open(std::string_view name, loopback::Events& opened) {
    events = &opened;
    return loopback::Link::open(name, opened);
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    g_remote_polls += is_remote ? 1 : 0;
    return loopback::Link::poll(handler);
  }
};

struct TestClock {
  static inline uint64_t ns = 0;
  static inline uint64_t ticks_per_us = 0;
  static inline uint64_t counter = 0;
  static uint64_t ticks() noexcept { return counter; }
  static uint64_t now_ns() noexcept { return ns; }
  static void pass(uint64_t us) {
    ns += us * 1'000;
    counter += us * ticks_per_us;
  }
};

// By counters of several rates.
class CompositeClock : public Composite, public testing::WithParamInterface<uint64_t> {
 protected:
  using ClockedLink = Link<Watched<false>, Watched<true>, TestNames, TestClock>;
  static constexpr uint64_t hot_us = PollScheduler::remote_hot_ns / 1'000;
  static constexpr uint64_t hot_us_assumed(uint64_t ticks_per_us) {
    return hot_us * PollScheduler::units_per_us_assumed / ticks_per_us;
  }
  void SetUp() override {
    Composite::SetUp();
    TestClock::ns = 77'000'000'000;
    TestClock::counter = 123'456'789;
    TestClock::ticks_per_us = GetParam();
    node.emplace();
  }
  // For so long each poll of an endpoint that has slept reads the remote side, as it does while an exchange goes on.
  uint64_t measured_hot_us() {
    EXPECT_TRUE(node->link.arm());
    node->link.disarm();
    for (uint64_t us = 0; us < 100'000; ++us) {
      const int before = g_remote_polls;
      (void)node->link.poll(*node);
      if (g_remote_polls == before) return us;
      TestClock::pass(1);
    }
    return UINT64_MAX;
  }
  std::optional<NodeOf<ClockedLink>> node;
};
INSTANTIATE_TEST_SUITE_P(Rates, CompositeClock, testing::Values(25, 1'000, 2'500, 3'000, 5'000),
                         [](const auto& rate) { return std::to_string(rate.param) + "PerMicrosecond"; });

TEST_P(CompositeClock, TheRateOfTheCounterIsMeasuredOverTenMilliseconds) {
  EXPECT_EQ(measured_hot_us(), hot_us_assumed(GetParam()));
  TestClock::ns = 77'000'000'000 + 9'999'000;
  TestClock::counter = 123'456'789 + 9'999 * GetParam();
  Watched<true>::events->time_passes();
  EXPECT_EQ(measured_hot_us(), hot_us_assumed(GetParam())) << "too early to tell";
  TestClock::pass(10'000);
  Watched<true>::events->time_passes();
  EXPECT_EQ(measured_hot_us(), hot_us);
}

TEST_P(CompositeClock, TheRateOfTheCounterIsMeasuredOnce) {
  TestClock::pass(20'000);
  Watched<false>::events->time_passes();
  EXPECT_EQ(measured_hot_us(), hot_us);
  TestClock::ns += 60'000'000'000;  // the counter stood still
  Watched<false>::events->time_passes();
  Watched<true>::events->time_passes();
  EXPECT_EQ(measured_hot_us(), hot_us);
}

}  // namespace
}  // namespace weft::link::composite
