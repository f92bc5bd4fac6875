// Tests of the shared memory link: two links in one process, in two threads and in two processes. Must not know tags or completions.
#include "link/shm/link.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "os/clock.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t ms = 1'000'000;

struct Received {
  Peer* from = nullptr;
  wire::FrameHead head{};
  std::vector<std::byte> payload;
};

struct LostPeer {
  std::string name;
  core::ProviderError why;
};

std::string name_of(std::span<const std::byte> address) {
  const auto* text = reinterpret_cast<const char*>(address.data());
  return {text, ::strnlen(text, address.size())};
}

// A name that no look at /proc can resolve: the two sides must meet by datagrams alone.
std::string plain_name(const char* what) {
  static std::atomic<int> next{0};
  return "fi_ns://test-" + std::string(what) + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(next++);
}

// An owner of a link: keeps the peers, writes down what comes.
class Node final : public Events {
 public:
  explicit Node(const std::string& name = "") {
    auto opened = link.open(name, *this);
    if (!opened) ADD_FAILURE() << opened.error().why;
  }

  Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<Peer>());
    return peers.back().get();
  }
  void peer_lost(Peer& peer, core::ProviderError why) noexcept override {
    lost.push_back({name_of(std::as_bytes(std::span(peer.address))), why});
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (refusals > 0) {
      --refusals;
      return false;
    }
    frames.push_back({&peer, head, std::vector<std::byte>(payload, payload + head.length)});
    return true;
  }

  Peer* connect(const Node& other) {
    int error = 0;
    Peer* peer = link.connect(other.link.address(), error);
    EXPECT_NE(peer, nullptr) << error;
    return peer;
  }
  bool send(Peer& peer, uint64_t a, std::span<const std::byte> bytes, bool with_b = false) {
    const wire::FrameHead head{wire::FrameKind::Tagged,
                               static_cast<uint8_t>(with_b ? wire::has_b : 0),
                               3,
                               static_cast<uint32_t>(bytes.size()),
                               a,
                               ~a};
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return link.send(peer, head, {}, &part, 1);
  }
  std::string name() const { return name_of(link.address()); }
  // Polls until `done` holds or the time is over.
  bool poll_until(const std::function<bool()>& done, uint64_t timeout_ms = 2000) {
    const uint64_t until = os::monotonic_ns() + timeout_ms * ms;
    while (!done()) {
      if (os::monotonic_ns() > until) return false;
      (void)link.poll(*this);
    }
    return true;
  }
  bool poll_for_frames(size_t count, uint64_t timeout_ms = 2000) {
    return poll_until([&] { return frames.size() >= count; }, timeout_ms);
  }

  std::deque<std::unique_ptr<Peer>> peers;
  std::deque<Received> frames;
  std::vector<LostPeer> lost;
  int refusals = 0;
  Link link;  // last: closes before the peers go
};

std::vector<std::byte> pattern(uint64_t seed, size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((seed * 131 + i * 7 + (i >> 8)) & 0xff);
  return out;
}

void expect_frame(const Received& frame, uint64_t a, size_t bytes, bool with_b) {
  EXPECT_EQ(frame.head.a, a);
  EXPECT_EQ(frame.head.kind, wire::FrameKind::Tagged);
  EXPECT_EQ(frame.head.context, 3);
  ASSERT_EQ(frame.head.length, bytes);
  if (with_b) {
    EXPECT_EQ(frame.head.b, ~a);
    EXPECT_NE(frame.head.flags & wire::has_b, 0);
  }
  EXPECT_TRUE(frame.payload == pattern(a, bytes)) << "frame " << a << " of " << bytes << " bytes";
}

// Runs `body` in a child, which leaves without the parent's exit handlers. `body` returns the exit status.
template <class Body>
pid_t spawn(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// --- frames ---

class Meeting : public testing::TestWithParam<bool> {
 protected:
  static std::string name(const char* what) { return GetParam() ? plain_name(what) : ""; }
};
INSTANTIATE_TEST_SUITE_P(ShmLink, Meeting, testing::Bool(),
                         [](const auto& which) { return which.param ? "ByDatagramsOnly" : "ThroughProc"; });

TEST_P(Meeting, CarriesEverySizeBothWays) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  const size_t sizes[] = {
      0, 1, 8, 39, 40, 41, 47, 48, 49, 63, 64, 65, 4095, 4096, 8192, 40000, Link::frame_bytes_max};
  uint64_t id = 0;
  for (const bool with_b : {false, true}) {
    for (const size_t size : sizes) {
      ++id;
      ASSERT_TRUE(a.send(*to_b, id, pattern(id, size), with_b));
      ASSERT_TRUE(b.poll_for_frames(1)) << size;
      expect_frame(b.frames.front(), id, size, with_b);
      // And back, through the peer object that the frame came with.
      ASSERT_TRUE(b.send(*b.frames.front().from, id + 1000, pattern(id + 1000, size), with_b));
      b.frames.clear();
      ASSERT_TRUE(a.poll_for_frames(1)) << size;
      EXPECT_EQ(a.frames.front().from, to_b);
      expect_frame(a.frames.front(), id + 1000, size, with_b);
      a.frames.clear();
    }
  }
  EXPECT_TRUE(a.lost.empty());
  EXPECT_TRUE(b.lost.empty());
}

TEST_P(Meeting, BothMayConnectAtOnce) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  Peer* to_a = b.connect(a);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 10)));
  ASSERT_TRUE(b.send(*to_a, 2, pattern(2, 10)));
  ASSERT_TRUE(b.poll_for_frames(1));
  ASSERT_TRUE(a.poll_for_frames(1));
  EXPECT_EQ(b.frames.front().from, to_a);
  EXPECT_EQ(a.frames.front().from, to_b);
  EXPECT_EQ(a.peers.size(), 1u);
  EXPECT_EQ(b.peers.size(), 1u);
}

TEST_P(Meeting, SmallFramesGoInlined) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  for (uint64_t id = 0; id < 1000; ++id) {
    const auto bytes = pattern(id, id % (Link::small_bytes_max + 1));
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 3, static_cast<uint32_t>(bytes.size()), id, 0};
    const proto::SmallSend sent = a.link.send_small(*to_b, head, bytes.data());
    ASSERT_NE(sent, proto::SmallSend::Refused);
    if (sent == proto::SmallSend::Unseen) a.link.tell(*to_b);
    ASSERT_TRUE(b.poll_for_frames(1));
    expect_frame(b.frames.front(), id, bytes.size(), false);
    b.frames.clear();
    a.link.poll(a);
    if (to_b->tx_next == to_b->tx_end) {  // send() looks for credit
      ASSERT_TRUE(a.send(*to_b, 5000, pattern(5000, 1)));
      ASSERT_TRUE(b.poll_for_frames(1));
      b.frames.clear();
    }
  }
}

TEST_P(Meeting, ALinkMayTalkToItself) {
  Node a(name("a"));
  Peer* to_a = a.connect(a);
  for (uint64_t id = 0; id < 300; ++id) {
    ASSERT_TRUE(a.send(*to_a, id, pattern(id, id * 20)));
    ASSERT_TRUE(a.poll_for_frames(1));
    expect_frame(a.frames.front(), id, id * 20, false);
    a.frames.clear();
  }
}

// Random sizes and random polls: slots and bulk wrap many times, refusals come and go, order stays.
TEST_P(Meeting, RingsWrapInOrder) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  std::mt19937_64 random(7);
  uint64_t next = 0;
  uint64_t seen = 0;
  size_t refused = 0;
  constexpr uint64_t count = 6000;
  const auto size_of = [](uint64_t id) {
    std::mt19937_64 one(id);
    const uint64_t kind = one() % 4;
    return kind < 2 ? one() % 64 : kind == 2 ? one() % 9000 : one() % (Link::frame_bytes_max + 1);
  };
  const uint64_t until = os::monotonic_ns() + 20'000 * ms;
  while (seen < count && os::monotonic_ns() < until) {
    for (uint64_t n = random() % 200; n > 0 && next < count; --n) {
      if (!a.send(*to_b, next, pattern(next, size_of(next)), next % 3 == 0)) {
        ++refused;
        break;
      }
      ++next;
    }
    b.refusals = random() % 8 == 0 ? 1 : 0;
    for (uint64_t n = random() % 12; n > 0; --n) b.link.poll(b);
    a.link.poll(a);
    for (; !b.frames.empty(); b.frames.pop_front(), ++seen) {
      expect_frame(b.frames.front(), seen, size_of(seen), seen % 3 == 0);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(seen, count);
  EXPECT_GT(refused, 0u);
}

TEST_P(Meeting, AFullRingRefusesAndGoesOnLater) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  uint64_t sent = 0;
  while (a.send(*to_b, sent, pattern(sent, 8))) ++sent;
  EXPECT_EQ(sent, slot_count);
  EXPECT_EQ(a.link.send_small(*to_b, {wire::FrameKind::Tagged, 0, 3, 0, 0, 0}, nullptr),
            proto::SmallSend::Refused);
  ASSERT_TRUE(b.poll_for_frames(sent));
  for (uint64_t id = 0; id < sent; ++id) expect_frame(b.frames[id], id, 8, false);
  EXPECT_TRUE(a.send(*to_b, sent, pattern(sent, 8)));
  b.frames.clear();
  ASSERT_TRUE(b.poll_for_frames(1));
  expect_frame(b.frames.front(), sent, 8, false);
}

TEST_P(Meeting, AFullBulkRingRefusesAndGoesOnLater) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  for (int round = 0; round < 20; ++round) {
    uint64_t sent = 0;
    while (a.send(*to_b, sent, pattern(sent, 50'000))) ++sent;
    EXPECT_GE(sent, 3u);
    EXPECT_LE(sent, bulk_bytes / 50'000);
    EXPECT_TRUE(a.send(*to_b, sent, pattern(sent, 48))) << "a small frame needs no bulk";
    ASSERT_TRUE(b.poll_for_frames(sent + 1));
    for (uint64_t id = 0; id < sent; ++id) expect_frame(b.frames[id], id, 50'000, false);
    b.frames.clear();
    // The credit of the last bytes comes with a look at the clock at the latest.
    const uint64_t until = os::monotonic_ns() + 1000 * ms;
    while (!a.send(*to_b, 9, pattern(9, 60'000)) && os::monotonic_ns() < until) b.link.poll(b);
    ASSERT_TRUE(b.poll_for_frames(1));
    expect_frame(b.frames.front(), 9, 60'000, false);
    b.frames.clear();
    b.poll_until([] { return false; }, 25);
  }
}

TEST_P(Meeting, ARefusedFrameIsShownAgain) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  b.refusals = 5;
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(a.send(*to_b, id, pattern(id, id * 100)));
  ASSERT_TRUE(b.poll_for_frames(3));
  for (uint64_t id = 0; id < 3; ++id) expect_frame(b.frames[id], id, id * 100, false);
}

// --- many peers ---

TEST_P(Meeting, MorePeersThanArePolled) {
  constexpr size_t count = 40;
  Node hub(name("hub"));
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Peer*> to_hub;
  for (size_t i = 0; i < count; ++i) {
    nodes.push_back(std::make_unique<Node>(name("n")));
    to_hub.push_back(nodes[i]->connect(hub));
  }
  std::mt19937_64 random(3);
  std::vector<uint64_t> sent(count, 0);
  std::vector<uint64_t> seen(count, 0);
  const auto take = [&] {
    for (; !hub.frames.empty(); hub.frames.pop_front()) {
      const uint64_t from = hub.frames.front().head.a >> 32;
      ASSERT_LT(from, count);
      ASSERT_EQ(static_cast<uint32_t>(hub.frames.front().head.a), seen[from]) << "from " << from;
      ++seen[from];
    }
  };
  for (int round = 0; round < 300; ++round) {
    // Favourites change, so that peers enter and leave the list of polled ones.
    const size_t favourite = (static_cast<size_t>(round) / 30 * 7) % count;
    for (int n = 0; n < 30; ++n) {
      const size_t i = random() % 3 != 0 ? (favourite + random() % 10) % count : random() % count;
      const uint64_t a = uint64_t{i} << 32 | sent[i];
      if (nodes[i]->send(*to_hub[i], a, pattern(a, random() % 100))) ++sent[i];
      if (random() % 8 == 0) nodes[i]->link.poll(*nodes[i]);
    }
    hub.link.poll(hub);
    take();
    if (round % 30 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      hub.poll_until([] { return false; }, 3);
    }
  }
  EXPECT_TRUE(hub.poll_until([&] {
    for (auto& node : nodes) node->link.poll(*node);  // hellos that found the hub's socket full
    take();
    return HasFatalFailure() || seen == sent;
  }));
  EXPECT_EQ(seen, sent);
  EXPECT_TRUE(hub.lost.empty());
}

// --- ends ---

TEST_P(Meeting, ACloseIsToldAfterWhatWasSent) {
  Node b(name("b"));
  std::string gone;
  {
    Node a(name("a"));
    gone = a.name();
    Peer* to_b = a.connect(b);
    for (uint64_t id = 0; id < 10; ++id) ASSERT_TRUE(a.send(*to_b, id, pattern(id, id * 1000)));
  }
  EXPECT_TRUE(b.poll_for_frames(10)) << "frames of a closed endpoint: " << b.frames.size() << " of 10";
  for (uint64_t id = 0; id < b.frames.size(); ++id) expect_frame(b.frames[id], id, id * 1000, false);
  EXPECT_TRUE(b.poll_until([&] { return !b.lost.empty(); }, 500));
  ASSERT_EQ(b.lost.size(), 1u);
  EXPECT_EQ(b.lost[0].name, gone);
  EXPECT_EQ(b.lost[0].why, core::ProviderError::PeerClosed);
}

TEST_P(Meeting, ACloseIsToldToWhoOnlySends) {
  Node a(name("a"));
  Peer* to_b = nullptr;
  {
    Node b(name("b"));
    to_b = a.connect(b);
    ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
    ASSERT_TRUE(b.poll_for_frames(1));
    a.poll_until([&] { return to_b->remote != nullptr; }, 500);
  }
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 500));
  ASSERT_EQ(a.lost.size(), 1u);
  EXPECT_EQ(a.lost[0].why, core::ProviderError::PeerClosed);
}

TEST_P(Meeting, AKilledPeerIsNoticedSoon) {
  Node a(name("a"));
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  const std::string mine = name("b");
  const pid_t child = spawn([&] {
    Node b(mine);
    Peer* to_a = b.connect(a);
    for (uint64_t id = 0; id < 5; ++id) (void)b.send(*to_a, id, pattern(id, id * 5000));
    (void)!::write(up[1], "x", 1);
    for (;;) b.link.poll(b);
    return 0;
  });
  char byte;
  ASSERT_EQ(::read(up[0], &byte, 1), 1);
  ASSERT_TRUE(a.poll_for_frames(1));
  ::kill(child, SIGKILL);
  wait_for(child);
  const uint64_t killed = os::monotonic_ns();
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 1000));
  const uint64_t took_ms = (os::monotonic_ns() - killed) / ms;
  EXPECT_LE(took_ms, 100u);
  ASSERT_EQ(a.lost.size(), 1u);
  EXPECT_EQ(a.lost[0].why, core::ProviderError::PeerDied);
  // What it had sent still counts.
  ASSERT_EQ(a.frames.size(), 5u);
  for (uint64_t id = 0; id < 5; ++id) expect_frame(a.frames[id], id, id * 5000, false);
  ::close(up[0]);
  ::close(up[1]);
}

// Killed at a random instruction, many times: never a hang, never half a frame.
TEST_P(Meeting, KilledAnywhere) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 12; ++round) {
    Node a(name("a"));
    const std::string mine = name("b");
    const pid_t child = spawn([&] {
      Node b(mine);
      Peer* to_a = b.connect(a);
      for (uint64_t id = 0;; ++id)
        while (!b.send(*to_a, id, pattern(id, (id * 37) % 20'000))) b.link.poll(b);
      return 0;
    });
    const uint64_t until = os::monotonic_ns() + (random() % 15) * ms + random() % ms;
    while (os::monotonic_ns() < until) a.link.poll(a);
    ::kill(child, SIGKILL);
    EXPECT_EQ(wait_for(child), -SIGKILL);
    a.poll_until([&] { return !a.lost.empty(); }, a.peers.empty() ? 20 : 1000);
    EXPECT_EQ(a.peers.size(), 0u) << "round " << round;
    for (uint64_t id = 0; id < a.frames.size(); ++id) {
      expect_frame(a.frames[id], id, (id * 37) % 20'000, false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ShmLink, ForgettingAPeerIsTheEndOfItsChannel) {
  Node a(plain_name("a"));
  Node b(plain_name("b"));
  Node c(plain_name("c"));
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
  ASSERT_TRUE(b.poll_for_frames(1));
  ASSERT_TRUE(a.poll_until([&] { return to_b->remote != nullptr; }));
  a.link.forget(*to_b);
  a.peers.clear();
  // What goes to the next peer must not show up at the one before it.
  Peer* to_c = a.connect(c);
  for (uint64_t id = 0; id < 100; ++id) {
    ASSERT_TRUE(a.send(*to_c, id, pattern(id, 500)));
    ASSERT_TRUE(c.poll_for_frames(id + 1));
  }
  b.poll_until([] { return false; }, 30);
  EXPECT_EQ(b.frames.size(), 1u);
}

// --- names ---

TEST(ShmLink, ANameIsTakenOnce) {
  const std::string name = plain_name("taken");
  Node a(name);
  EXPECT_EQ(a.name(), name);
  struct Nobody final : Events {
    Peer* make_peer(std::span<const std::byte>) override { return nullptr; }
    void peer_lost(Peer&, core::ProviderError) noexcept override {}
  } nobody;
  {
    Link second;
    const auto opened = second.open(name, nobody);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, EADDRINUSE);
    EXPECT_NE(opened.error().why.find(name), std::string::npos);
  }
  {
    Link second;
    const auto opened = second.open(std::string(address_bytes, 'x'), nobody);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ENAMETOOLONG);
  }
  a.link.close();
  Link third;
  EXPECT_TRUE(third.open(name, nobody));
}

TEST(ShmLink, AMalformedAddressIsRefused) {
  Node a;
  int error = 0;
  std::array<std::byte, address_bytes> address{};
  EXPECT_EQ(a.link.connect(address, error), nullptr);
  EXPECT_EQ(error, EINVAL);
  address.fill(std::byte{'x'});
  EXPECT_EQ(a.link.connect(address, error), nullptr);
  EXPECT_EQ(error, EINVAL);
  EXPECT_TRUE(a.peers.empty());
}

TEST(ShmLink, ANewEndpointUnderAnOldNameIsANewPeer) {
  const std::string name = plain_name("again");
  Node a(plain_name("a"));
  auto b = std::make_unique<Node>(name);
  Peer* to_b = a.connect(*b);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
  ASSERT_TRUE(b->poll_for_frames(1));
  ASSERT_TRUE(b->send(*b->frames[0].from, 2, pattern(2, 8)));
  ASSERT_TRUE(a.poll_for_frames(1));
  b.reset();
  b = std::make_unique<Node>(name);
  Peer* to_a = b->connect(a);
  ASSERT_TRUE(b->send(*to_a, 3, pattern(3, 8)));
  ASSERT_TRUE(a.poll_for_frames(2));
  EXPECT_EQ(a.frames[1].head.a, 3u);
  ASSERT_EQ(a.lost.size(), 1u);
  EXPECT_TRUE(a.lost[0].why == core::ProviderError::PeerReplaced ||
              a.lost[0].why == core::ProviderError::PeerClosed);
  // And the answer reaches the new one, which lives on.
  ASSERT_TRUE(a.send(*a.connect(*b), 4, pattern(4, 8)));
  ASSERT_TRUE(b->poll_for_frames(1));
  EXPECT_EQ(b->frames[0].head.a, 4u);
  a.poll_until([] { return false; }, 30);
  EXPECT_EQ(a.lost.size(), 1u);
}

// The death of the old owner and the hello of the new one are seen in the same look.
TEST(ShmLink, ARestartedPeerIsNotTakenForTheDeadOne) {
  const std::string name = plain_name("restart");
  for (int round = 0; round < 8; ++round) {
    Node a(plain_name("a"));
    int up[2];
    ASSERT_EQ(::pipe(up), 0);
    const auto life = [&](uint64_t id, bool stays) {
      return spawn([&, id, stays] {
        Node b(name);
        Peer* to_a = b.connect(a);
        (void)b.send(*to_a, id, pattern(id, 8));
        (void)!::write(up[1], "x", 1);
        while (stays) b.link.poll(b);
        ::pause();
        return 0;
      });
    };
    char byte;
    const pid_t first = life(1, true);
    ASSERT_EQ(::read(up[0], &byte, 1), 1);
    ASSERT_TRUE(a.poll_for_frames(1));
    ASSERT_EQ(a.peers.size(), 1u);
    ASSERT_TRUE(a.peers[0]->pidfd) << "a death cannot be seen without a pidfd";
    ::kill(first, SIGKILL);
    wait_for(first);
    const pid_t second = life(2, true);  // we do not poll meanwhile
    ASSERT_EQ(::read(up[0], &byte, 1), 1);
    ASSERT_TRUE(a.poll_for_frames(2));
    EXPECT_EQ(a.frames[1].head.a, 2u);
    a.poll_until([] { return false; }, 30);
    EXPECT_EQ(a.lost.size(), 1u) << "the new peer was given up with the old one";
    ASSERT_EQ(a.peers.size(), 1u);
    ::kill(second, SIGKILL);
    wait_for(second);
    ASSERT_TRUE(a.poll_until([&] { return a.lost.size() == 2; }));
    ::close(up[0]);
    ::close(up[1]);
  }
}

// --- hostile or clumsy strangers ---

TEST(ShmLink, StrayDatagramsAreIgnored) {
  Node a(plain_name("a"));
  Node b(plain_name("b"));
  auto stranger = os::bind_datagram("weft-shm-test/" + plain_name("stranger"));
  ASSERT_TRUE(stranger);
  auto file = os::create_memory("stray", header_bytes);
  ASSERT_TRUE(file);
  std::mt19937_64 random(5);
  const std::string target = "weft-shm/" + a.name();
  Note good{};
  good.magic = region_magic;
  good.version = layout_version;
  good.kind = NoteKind::Hello;
  good.nonce = 77;
  good.channel_offset = header_bytes;
  good.wants_reply = 1;
  std::copy_n("fi_ns://nobody", 14, good.address.begin());
  for (int round = 0; round < 400; ++round) {
    std::array<std::byte, sizeof(Note) + 64> bytes;
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    size_t length = random() % bytes.size();
    if (round % 2 == 0) {
      Note note = good;
      switch (random() % 8) {
        case 0:
          note.kind = static_cast<NoteKind>(random() % 6);
          break;
        case 1:
          note.version = 2;
          break;
        case 2:
          note.address.fill('x');
          break;
        case 3:
          note.address.fill(0);
          break;
        case 4:
          note.channel_offset = random();
          break;
        case 5:
          std::copy_n(b.name().c_str(), b.name().size() + 1, note.address.begin());
          break;
        case 6:
          std::copy_n(a.name().c_str(), a.name().size() + 1, note.address.begin());
          break;
        default:
          note.nonce = random();
      }
      std::memcpy(bytes.data(), &note, sizeof(note));
      length = sizeof(note);
    }
    const std::array<int, 2> fds{random() % 2 == 0 ? file->get() : stranger->get(), stranger->get()};
    (void)os::send_datagram(*stranger, target, std::span(bytes.data(), length),
                            std::span(fds.data(), random() % 3));
    if (round % 5 == 0) a.poll_until([] { return false; }, 2);
  }
  a.poll_until([] { return false; }, 20);
  EXPECT_TRUE(a.frames.empty());
  // Honest peers are still heard.
  Peer* to_a = b.connect(a);
  ASSERT_TRUE(b.send(*to_a, 5, pattern(5, 100)));
  ASSERT_TRUE(a.poll_for_frames(1));
  expect_frame(a.frames[0], 5, 100, false);
}

// A peer whose slots hold nonsense is cut off; a peer whose words hold nonsense only harms itself.
TEST(ShmLink, AMalformedSlotCutsThePeerOff) {
  struct Case {
    uint32_t length;
    uint8_t flags;
    BulkPlace place;
  };
  const Case cases[] = {{49, 0, {}},
                        {41, wire::has_b, {}},
                        {~0U, 0, {}},
                        {100, wire::in_bulk, {64, bulk_bytes - 99}},
                        {100, wire::in_bulk, {~uint64_t{0}, 0}},
                        {Link::frame_bytes_max + 1, wire::in_bulk, {1 << 17, 0}},
                        {~0U, wire::in_bulk, {64, 0}},
                        {1, wire::in_bulk, {64, ~uint64_t{0}}}};
  for (const Case& bad : cases) {
    Node a(plain_name("a"));
    Node b(plain_name("b"));
    Peer* to_b = a.connect(b);
    ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
    ASSERT_TRUE(b.poll_for_frames(1));
    Slot& slot = to_b->tx_slots[to_b->tx_next % slot_count];
    std::memcpy(slot.payload.data() + bulk_place_offset, &bad.place, sizeof(bad.place));
    slot.lead.store(lap_of(to_b->tx_next) | uint64_t{1} << 8 | uint64_t{bad.flags} << 16 |
                    uint64_t{bad.length} << 32);
    to_b->tx_control->slots_consumed.store(~uint64_t{0} / 3);
    to_b->tx_control->bulk_consumed.store(~uint64_t{0} / 3);
    a.link.tell(*to_b);
    EXPECT_TRUE(b.poll_until([&] { return !b.lost.empty(); }, 500)) << bad.length;
    ASSERT_EQ(b.lost.size(), 1u);
    EXPECT_EQ(b.lost[0].why, core::ProviderError::PeerMisbehaved);
    EXPECT_EQ(b.frames.size(), 1u);
    for (int i = 0; i < 300; ++i) (void)a.send(*to_b, 2, pattern(2, 200));  // its own loss, but no crash
  }
}

// --- time ---

TEST(ShmLink, NobodyThereIsUnreachableButSlowIsNot) {
  Node a(plain_name("a"));
  Node slow(plain_name("slow"));
  int error = 0;
  std::array<std::byte, address_bytes> nobody{};
  const std::string name = plain_name("nobody");
  std::memcpy(nobody.data(), name.data(), name.size());
  Peer* to_nobody = a.link.connect(nobody, error);
  ASSERT_NE(to_nobody, nullptr) << "it may still come up";
  Peer* to_slow = a.connect(slow);
  ASSERT_TRUE(a.send(*to_slow, 1, pattern(1, 8)));
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 7000));
  a.poll_until([] { return false; }, 500);
  ASSERT_EQ(a.lost.size(), 1u) << "a peer that computes for some seconds is not gone";
  EXPECT_EQ(a.lost[0].name, name);
  EXPECT_EQ(a.lost[0].why, core::ProviderError::PeerUnreachable);
  ASSERT_TRUE(slow.poll_for_frames(1));
  expect_frame(slow.frames[0], 1, 8, false);
}

TEST(ShmLink, AnEndpointThatComesUpLaterIsMet) {
  Node a(plain_name("a"));
  const std::string name = plain_name("later");
  std::array<std::byte, address_bytes> address{};
  std::memcpy(address.data(), name.data(), name.size());
  int error = 0;
  Peer* to_b = a.link.connect(address, error);
  ASSERT_NE(to_b, nullptr);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 3000)));
  a.poll_until([] { return false; }, 30);
  Node b(name);
  const uint64_t until = os::monotonic_ns() + 1000 * ms;
  while (b.frames.empty() && os::monotonic_ns() < until) {
    a.link.poll(a);
    b.link.poll(b);
  }
  ASSERT_EQ(b.frames.size(), 1u);
  expect_frame(b.frames[0], 1, 3000, false);
}

bool readable(int fd, int timeout_ms) {
  pollfd probe{fd, POLLIN, 0};
  return ::poll(&probe, 1, timeout_ms) == 1;
}

TEST_P(Meeting, ASleeperIsWoken) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 0, pattern(0, 8)));
  EXPECT_TRUE(readable(b.link.wait_fd(), 1000)) << "a first hello wakes";
  ASSERT_TRUE(b.poll_for_frames(1));
  a.poll_until([] { return false; }, 5);
  for (uint64_t id = 1; id < 50; ++id) {
    b.frames.clear();
    b.poll_until([] { return false; }, 2);
    ASSERT_TRUE(b.link.arm());
    EXPECT_FALSE(readable(b.link.wait_fd(), 0));
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 3, 8, id, 0};
    const auto bytes = pattern(id, 8);
    if (id % 2 == 0) {
      ASSERT_TRUE(a.send(*to_b, id, bytes));
    } else if (a.link.send_small(*to_b, head, bytes.data()) == proto::SmallSend::Unseen) {
      a.link.tell(*to_b);
    } else {
      ADD_FAILURE() << "a sleeper does not look at its rings";
    }
    EXPECT_TRUE(readable(b.link.wait_fd(), 1000)) << id;
    b.link.disarm();
    ASSERT_TRUE(b.poll_for_frames(1));
    expect_frame(b.frames[0], id, 8, false);
  }
  // With something there it does not fall asleep.
  ASSERT_TRUE(a.send(*to_b, 99, pattern(99, 8)));
  EXPECT_FALSE(b.link.arm());
  ASSERT_TRUE(b.poll_for_frames(2));
}

// Only polling repeats a hello that the other socket had no room for, so nobody may sleep on it.
TEST(ShmLink, AnUnsentHelloKeepsAwake) {
  Node a(plain_name("a"));
  Node b(plain_name("b"));
  const std::array<std::byte, 1> byte{};
  auto stranger = os::bind_datagram("weft-shm-test/" + plain_name("stranger"));
  ASSERT_TRUE(stranger);
  while (os::send_datagram(*stranger, "weft-shm/" + b.name(), byte, {}) == 0) {
  }
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
  EXPECT_FALSE(a.link.arm());
  const uint64_t until = os::monotonic_ns() + 1000 * ms;
  while (b.frames.empty() && os::monotonic_ns() < until) {
    b.link.poll(b);
    a.link.poll(a);
  }
  EXPECT_EQ(b.frames.size(), 1u);
  EXPECT_TRUE(a.link.arm());
  a.link.disarm();
}

TEST(ShmLink, ADeathWakes) {
  Node a(plain_name("a"));
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  const std::string name = plain_name("b");
  const pid_t child = spawn([&] {
    Node b(name);
    (void)b.send(*b.connect(a), 1, pattern(1, 8));
    (void)!::write(up[1], "x", 1);
    for (;;) b.link.poll(b);
    return 0;
  });
  char byte;
  ASSERT_EQ(::read(up[0], &byte, 1), 1);
  ASSERT_TRUE(a.poll_for_frames(1));
  a.poll_until([] { return false; }, 5);
  ASSERT_TRUE(a.link.arm());
  ::kill(child, SIGKILL);
  EXPECT_TRUE(readable(a.link.wait_fd(), 1000));
  wait_for(child);
  a.link.disarm();
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 100));
  ::close(up[0]);
  ::close(up[1]);
}

size_t blocks_of(const Node& node) {
  int pid = 0;
  int fd = -1;
  if (std::sscanf(node.name().c_str(), "fi_shm://%d:%d:", &pid, &fd) != 2) return 0;
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<size_t>(status.st_blocks) * 512 : 0;
}

TEST(ShmLink, AnIdleRingGivesItsPagesBack) {
  Node a;
  Node b;
  Peer* to_b = a.connect(b);
  for (uint64_t id = 0; id < 20; ++id) {
    ASSERT_TRUE(a.send(*to_b, id, pattern(id, 60'000)));
    ASSERT_TRUE(b.poll_for_frames(id + 1));
  }
  const size_t busy = blocks_of(a);
  EXPECT_GE(busy, bulk_bytes / 2);
  const uint64_t until = os::monotonic_ns() + 5000 * ms;
  while (blocks_of(a) >= busy && os::monotonic_ns() < until) {
    a.link.poll(a);
    b.link.poll(b);
  }
  EXPECT_LT(blocks_of(a), busy / 8);
  b.frames.clear();
  for (uint64_t id = 0; id < 20; ++id) {
    ASSERT_TRUE(a.send(*to_b, id, pattern(id, 60'000)));
    ASSERT_TRUE(b.poll_for_frames(id + 1));
    expect_frame(b.frames[id], id, 60'000, false);
  }
}

// --- reading the peer's memory ---

TEST_P(Meeting, ReadsThePeersMemory) {
  Node a(name("a"));
  Node b(name("b"));
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
  ASSERT_TRUE(b.poll_for_frames(1));
  ASSERT_TRUE(a.poll_until([&] { return to_b->remote != nullptr; }));
  a.poll_until([] { return false; }, 5);
  if (!a.link.can_read(*to_b)) GTEST_SKIP() << "cross-memory attach is not allowed here";
  const auto source = pattern(9, 100'000);
  std::vector<std::byte> target(100'000);
  const wire::SourceSegment from[] = {{reinterpret_cast<uint64_t>(source.data()), 30'000},
                                      {reinterpret_cast<uint64_t>(source.data()) + 30'000, 70'000}};
  const iovec to[] = {{target.data(), 99'999}, {target.data() + 99'999, 1}};
  EXPECT_EQ(a.link.read(*to_b, to, 2, from, 2, source.size()), 0);
  EXPECT_TRUE(target == source);
  const wire::SourceSegment bad[] = {{16, 100}};
  EXPECT_LT(a.link.read(*to_b, to, 2, bad, 1, 100), 0);
  const wire::SourceSegment little[] = {{reinterpret_cast<uint64_t>(source.data()), 50}};
  EXPECT_LT(a.link.read(*to_b, to, 2, little, 1, 100), 0);
}

// --- two processes, two threads ---

TEST_P(Meeting, TwoProcessesEcho) {
  Node a(name("a"));
  const std::string mine = name("b");
  constexpr uint64_t count = 3000;
  const auto size_of = [](uint64_t id) {
    return id % 7 == 0 ? (id * 131) % (Link::frame_bytes_max + 1) : (id * 13) % 300;
  };
  const pid_t child = spawn([&] {
    Node b(mine);
    Peer* to_a = b.connect(a);
    if (!b.send(*to_a, 0, {})) return 2;
    for (uint64_t id = 0; id < count;) {
      if (!b.poll_for_frames(1, 10'000)) return 3;
      for (; !b.frames.empty(); b.frames.pop_front(), ++id) {
        const Received& frame = b.frames.front();
        if (frame.head.a != id || frame.payload != pattern(id, size_of(id))) return 4;
        const uint64_t until = os::monotonic_ns() + 10'000 * ms;
        while (!b.send(*to_a, frame.head.a, frame.payload)) {
          if (os::monotonic_ns() > until) return 5;
          std::this_thread::yield();
        }
      }
    }
    return 0;
  });
  ASSERT_TRUE(a.poll_for_frames(1, 10'000));
  Peer* to_b = a.frames.front().from;
  a.frames.clear();
  uint64_t seen = 0;
  const uint64_t until = os::monotonic_ns() + 30'000 * ms;
  for (uint64_t id = 0; seen < count && os::monotonic_ns() < until;) {
    if (id < count && a.send(*to_b, id, pattern(id, size_of(id)))) ++id;
    a.link.poll(a);
    for (; !a.frames.empty(); a.frames.pop_front(), ++seen)
      expect_frame(a.frames.front(), seen, size_of(seen), false);
    if (HasFailure()) break;
  }
  EXPECT_EQ(seen, count);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 1000));
}

TEST_P(Meeting, TwoThreads) {
  constexpr uint64_t count = 20'000;
  Node a(name("a"));
  Node b(name("b"));
  const auto size_of = [](uint64_t id) { return id % 50 == 0 ? (id * 131) % 9000 : id % 49; };
  const auto run = [&](Node& me, const Node& other) {
    Peer* to = me.connect(other);
    uint64_t sent = 0;
    uint64_t seen = 0;
    const uint64_t until = os::monotonic_ns() + 60'000 * ms;
    while ((sent < count || seen < count) && os::monotonic_ns() < until) {
      if (sent < count && me.send(*to, sent, pattern(sent, size_of(sent)))) ++sent;
      if (me.link.poll(me) == 0) std::this_thread::yield();
      for (; !me.frames.empty(); me.frames.pop_front(), ++seen) {
        const Received& frame = me.frames.front();
        if (frame.head.a != seen || frame.payload != pattern(seen, size_of(seen))) return false;
      }
    }
    return sent == count && seen == count;
  };
  bool other_side = false;
  std::thread second([&] { other_side = run(b, a); });
  const bool this_side = run(a, b);
  second.join();
  EXPECT_TRUE(this_side);
  EXPECT_TRUE(other_side);
}

// One sleeps whenever it has nothing to do, the other sends now and then: no wake-up is lost.
TEST_P(Meeting, NoWakeUpIsLost) {
  constexpr uint64_t count = 3000;
  Node a(name("a"));
  Node b(name("b"));
  std::atomic<uint64_t> seen{0};
  std::atomic<int> late{0};
  std::thread sleeper([&] {
    while (seen.load() < count && late.load() == 0) {
      b.link.poll(b);
      seen += b.frames.size();
      if (!b.frames.empty()) {
        b.frames.clear();
        continue;
      }
      if (!b.link.arm()) continue;
      if (!readable(b.link.wait_fd(), 5000) && seen.load() < count) ++late;
      b.link.disarm();
    }
  });
  Peer* to_b = a.connect(b);
  std::mt19937_64 random(23);
  for (uint64_t id = 0; id < count && late.load() == 0; ++id) {
    while (!a.send(*to_b, id, {}) && late.load() == 0) a.link.poll(a);
    if (random() % 4 == 0) {  // wait until it has everything, so that it falls asleep
      while (seen.load() <= id && late.load() == 0) std::this_thread::yield();
      for (uint64_t n = random() % 3000; n > 0; --n) arch::pause();
    }
  }
  sleeper.join();
  EXPECT_EQ(late.load(), 0);
  EXPECT_EQ(seen.load(), count);
}

}  // namespace
}  // namespace weft::link::shm
