// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the shared memory link: what becomes of peers. They close, die, come again under an old name, are slow, sleep, or send nonsense.
#include <sys/resource.h>

#include "link/shm/test_node.hpp"

namespace weft::link::shm {
namespace {

// --- ends ---

// The header is shared, so whoever has met us may write it.
TEST(ShmHostile, PeersDoNotRenameUs) {
  Node a;
  Node b;
  Node c;
  const std::string name = a.name();
  Peer* to_a = b.connect(a);
  ASSERT_TRUE(b.send(*to_a, 1, pattern(1, 8)));
  ASSERT_TRUE(a.poll_for_frames(1));
  ASSERT_NE(to_a->remote, nullptr);
  to_a->remote->address.fill('x');
  to_a->remote->nonce = 0;
  EXPECT_EQ(a.name(), name);
  Peer* to_c = a.connect(c);
  ASSERT_TRUE(a.send(*to_c, 2, pattern(2, 8)));
  (void)c.poll_until([&] { return !c.peers.empty(); });
  ASSERT_FALSE(c.peers.empty());
  EXPECT_EQ(name_of(std::as_bytes(std::span(c.peers[0]->address))), name);
}

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

// A peer that sees `closed` gives its channel to another one, whose words the closing link must not overwrite.
TEST_P(Meeting, ACloseIsTheLastStoreIntoAChannel) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Node>> senders;
    std::vector<Peer*> to_b;
    Node b(name("b"));
    for (uint64_t i = 0; i < 8; ++i) {
      senders.push_back(std::make_unique<Node>(name("a")));
      to_b.push_back(senders[i]->connect(b));
    }
    const auto is_polled = [&] {
      return std::all_of(to_b.begin(), to_b.end(), [](const Peer* peer) {
        return peer->remote != nullptr && peer->out.control()->polled.load() == 1;
      });
    };
    ASSERT_TRUE(b.poll_until([&] {
      for (size_t i = 0; i < senders.size(); ++i) {
        (void)senders[i]->send(*to_b[i], i, pattern(i, 8));
        senders[i]->link.poll(*senders[i]);
      }
      return is_polled();
    }));
    constexpr uint32_t of_the_next = 7;
    std::atomic<bool> looks{false};
    std::thread next([&] {
      looks.store(true);
      while (to_b[0]->remote->closed.load(std::memory_order_acquire) == 0) {
      }
      for (Peer* peer : to_b) peer->out.control()->polled.store(of_the_next);
    });
    while (!looks.load()) {
    }
    b.link.close();
    next.join();
    for (const Peer* peer : to_b) ASSERT_EQ(peer->out.control()->polled.load(), of_the_next);
  }
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

// Both sides of a program may ask for one service.
TEST(ShmLink, AServiceThatIsTakenGivesANameOfItsOwn) {
  const std::string name = "fi_ns://second-" + std::to_string(::getpid());
  Node first(name);
  Node second(name);
  Node third(name);
  EXPECT_EQ(first.name(), name);
  EXPECT_EQ(second.name(), name + ':' + std::to_string(::getpid()) + ":0");
  EXPECT_EQ(third.name(), name + ':' + std::to_string(::getpid()) + ":1");
  Peer* to_second = first.connect(second);
  ASSERT_TRUE(first.send(*to_second, 1, pattern(1, 8)));
  EXPECT_TRUE(second.poll_for_frames(1));
}

TEST(ShmLink, ANameIsTakenOnce) {
  const std::string name = "fi_shm://taken-" + std::to_string(::getpid());
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
    const auto start_peer = [&](uint64_t id, bool stays) {
      return spawn([&, id, stays] {
        Node b(name);
        Peer* to_a = b.connect(a);
        (void)b.send(*to_a, id, pattern(id, 8));
        (void)!::write(up[1], "x", 1);
        while (stays) b.link.poll(b);  // NOLINT(bugprone-infinite-loop): until it is killed
        ::pause();
        return 0;
      });
    };
    char byte;
    const pid_t first = start_peer(1, true);
    ASSERT_EQ(::read(up[0], &byte, 1), 1);
    ASSERT_TRUE(a.poll_for_frames(1));
    ASSERT_EQ(a.peers.size(), 1u);
    ASSERT_TRUE(a.peers[0]->pidfd) << "a death cannot be seen without a pidfd";
    ::kill(first, SIGKILL);
    wait_for(first);
    const pid_t second = start_peer(2, true);  // we do not poll meanwhile
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

// --- hostile or clumsy unknown peers ---

TEST(ShmLink, StrayDatagramsAreIgnored) {
  Node a(plain_name("a"));
  Node b(plain_name("b"));
  auto unknown = os::bind_datagram("weft-shm-test/" + plain_name("unknown"));
  ASSERT_TRUE(unknown);
  auto file = os::create_memory("stray", header_bytes);
  ASSERT_TRUE(file);
  std::mt19937_64 random(5);
  const SocketName target(a.name());
  Note good{};
  good.magic = region_magic;
  good.token = token_of(a.name());
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
          note.kind = static_cast<NoteKind>(random() % 8);
          break;
        case 1:
          note.version = layout_version - 1;
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
    const std::array<int, 2> fds{random() % 2 == 0 ? file->get() : unknown->get(), unknown->get()};
    (void)os::send_datagram(*unknown, target, std::span(bytes.data(), length),
                            std::span(fds.data(), random() % 3));
    if (round % 5 == 0) a.poll_until([] { return false; }, 2);
  }
  a.poll_until([] { return false; }, 20);
  EXPECT_TRUE(a.frames.empty());
  // Honest peers are still heard.
  Peer* to_a = b.connect(a);
  ASSERT_TRUE(b.send(*to_a, 5, pattern(5, 100)));
  // On a busy machine a's socket may still be full of the others: then b repeats its handshake.
  ASSERT_TRUE(a.poll_until([&] {
    (void)b.link.poll(b);
    return !a.frames.empty();
  }));
  expect_frame(a.frames[0], 5, 100, false);
}

// A peer whose slots hold nonsense is cut off; a peer whose words hold nonsense only harms itself.
TEST(ShmLink, AMalformedSlotCutsThePeerOff) {
  struct Case {
    uint32_t length;
    uint8_t flags;
    BulkPosition place;
  };
  const Case cases[] = {{49, 0, {}},
                        {41, wire::has_b, {}},
                        {~0U, 0, {}},
                        {100, payload_in_bulk, {64, bulk_bytes - 99}},
                        {100, payload_in_bulk, {~uint64_t{0}, 0}},
                        {Link::frame_bytes_max + 1, payload_in_bulk, {1 << 17, 0}},
                        {~0U, payload_in_bulk, {64, 0}},
                        {1, payload_in_bulk, {64, ~uint64_t{0}}}};
  for (const Case& bad : cases) {
    Node a(plain_name("a"));
    Node b(plain_name("b"));
    Peer* to_b = a.connect(b);
    ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
    ASSERT_TRUE(b.poll_for_frames(1));
    Slot& slot = *to_b->out.next_slot();
    std::memcpy(slot.payload.data() + bulk_position_offset, &bad.place, sizeof(bad.place));
    slot.header.store(sequence_of(to_b->out.next()) | uint64_t{1} << 8 | uint64_t{bad.flags} << 16 |
                      uint64_t{bad.length} << 32);
    to_b->out.control()->slots_consumed.store(~uint64_t{0} / 3);
    to_b->out.control()->bulk_consumed.store(~uint64_t{0} / 3);
    a.poll_until([&] { return to_b->remote != nullptr; }, 100);
    for (int i = 0; i < 8; ++i) {  // it goes on ringing, too
      a.link.wake_receiver(*to_b);
      b.link.poll(b);
    }
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
  for (Peer* peer : {to_nobody, to_slow}) peer->handshake.met_at_ns -= 4'000 * ms;  // of 5 s
  EXPECT_FALSE(a.poll_until([&] { return !a.lost.empty(); }, 500));
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 3000));
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
    // On a busy machine that may have been one poll; who may not sleep yet polls again.
    ASSERT_TRUE(b.poll_until([&] { return b.link.arm(); }, 1000));
    EXPECT_FALSE(readable(b.link.wait_fd(), 0));
    const wire::FrameHead head{wire::FrameKind::Tagged, 0, 3, 8, id, 0};
    const auto bytes = pattern(id, 8);
    if (id % 2 == 0) {
      ASSERT_TRUE(a.send(*to_b, id, bytes));
    } else if (a.link.send_small(*to_b, head, bytes.data()) == proto::SmallSend::Unseen) {
      a.link.wake_receiver(*to_b);
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
  Note note{};
  note.token = token_of(b.name());
  auto unknown = os::bind_datagram("weft-shm-test/" + plain_name("unknown"));
  ASSERT_TRUE(unknown);
  while (os::send_datagram(*unknown, SocketName(b.name()), std::as_bytes(std::span(&note, 1)), {}) == 0) {
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
  // NOLINTNEXTLINE(cert-err34-c): our own text
  if (std::sscanf(node.name().c_str(), "fi_shm://%d:%d:", &pid, &fd) != 2) return 0;
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<size_t>(status.st_blocks) * 512 : 0;
}

void expect_pages_returned(uint64_t count) {
  Node a;
  Node b;
  Peer* to_b = a.connect(b);
  for (uint64_t id = 0; id < count; ++id) ASSERT_TRUE(a.send(*to_b, id, pattern(id, 60'000)));
  ASSERT_TRUE(b.poll_for_frames(count));
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
    if (id == 0) {
      EXPECT_LE(to_b->out.bulk_next() % bulk_bytes, 60'032u) << "the next payload goes to the start";
    }
  }
}

// By 13 frames, as by 15, but with the second look of a window still to come.
TEST(ShmLink, AnIdleRingReturnsItsPages) {
  for (const uint64_t count : {15, 13}) expect_pages_returned(count);
}

// Counts frames and keeps nothing, so that only the link's own pages can fault.
struct Counter {
  size_t frames = 0;
  bool on_frame(Peer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    ++frames;
    return head.length == 0 || payload[head.length - 1] == std::byte{1};
  }
};

long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Each page of the ring would fault once on either side; a ring that begins again when it is empty needs few, and those are there at the meeting.
TEST(ShmLink, APingPongStaysInPagesThatAreThere) {
  Node a;
  Node b;
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 0, {}));
  ASSERT_TRUE(b.poll_for_frames(1));
  const size_t at_first = blocks_of(a);
  EXPECT_GE(at_first, channel_bulk_offset + bulk_window_bytes);
  EXPECT_LE(at_first, header_bytes + channel_bulk_offset + bulk_window_bytes);
  for (const size_t size : {size_t{100}, size_t{4096}, Link::fragment_bytes}) {
    const std::vector<std::byte> bytes(size, std::byte{1});
    ASSERT_TRUE(a.send(*to_b, 0, bytes));
    Counter counter;
    while (counter.frames < 1) (void)b.link.poll(counter);
    const long before = faults();
    for (size_t i = 2; i <= 600; ++i) {
      ASSERT_TRUE(a.send(*to_b, i, bytes));
      while (counter.frames < i) (void)b.link.poll(counter);
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory faults, too
    EXPECT_LE(faults() - before, 8) << size;
#else
    (void)before;
#endif
  }
  EXPECT_EQ(blocks_of(a), at_first);
}

// In a ping-pong the sender writes the same lines again; both sides have them in their first-level caches. A stream gets no answers: its sender goes
// through the window, because a look for an empty ring at each message would cost more than it gains.
TEST(ShmLink, APingPongWritesTheSameLines) {
  for (const bool answered : {true, false}) {
    for (const size_t size : {size_t{100}, size_t{1000}, size_t{4096}, size_t{8192}}) {
      Node a;
      Node b;
      Peer* to_b = a.connect(b);
      Peer* to_a = b.connect(a);
      const std::vector<std::byte> bytes(size, std::byte{1});
      size_t most = 0;
      for (size_t message = 0; message < 2000; ++message) {
        Counter there;
        Counter back;
        ASSERT_TRUE(a.send(*to_b, message, bytes));
        if (message > 10) most = std::max(most, static_cast<size_t>(to_b->out.bulk_next() % bulk_bytes));
        while (there.frames < 1) (void)b.link.poll(there);
        if (!answered) continue;
        ASSERT_TRUE(b.send(*to_a, message, {}));
        while (back.frames < 1) (void)a.link.poll(back);
      }
      if (answered) {
        EXPECT_LE(most, bulk_stride_bytes + size + 64) << size;
      } else {
        EXPECT_GT(most, bulk_window_bytes / 2) << size;
      }
    }
  }
}

// Large messages come in pieces. In the middle of one the ring is not empty, so it begins again at the first piece behind an answer.
TEST(ShmLink, LargeMessagesStayInPagesThatAreThere) {
  for (const size_t head : {size_t{0}, size_t{64}, size_t{1000}}) {
    for (const size_t pieces : {size_t{4}, size_t{6}, size_t{8}}) {
      Node a;
      Node b;
      Peer* to_b = a.connect(b);
      Peer* to_a = b.connect(a);
      const std::vector<std::byte> first(head, std::byte{1});
      const std::vector<std::byte> piece(8192, std::byte{1});
      size_t at_first = 0;
      for (size_t message = 0; message < 50; ++message) {
        if (message == 10) at_first = blocks_of(a);
        Counter there;
        Counter back;
        ASSERT_TRUE(a.send(*to_b, message, first));
        for (size_t i = 0; i < pieces; ++i) ASSERT_TRUE(a.send(*to_b, message, piece));
        while (there.frames < 1 + pieces) (void)b.link.poll(there);
        ASSERT_TRUE(b.send(*to_a, message, {}));
        while (back.frames < 1) (void)a.link.poll(back);
      }
      EXPECT_EQ(blocks_of(a), at_first) << head << " bytes and " << pieces << " pieces";
      EXPECT_LE(to_b->out.bulk_ready(), 2 * bulk_window_bytes);
    }
  }
}

// The pages of the first channels are there at once; with many peers that would be too much memory.
TEST(ShmLink, ManyPeersAreMetWithoutPagesForTheirRings) {
  constexpr size_t count = 40;
  Node a;
  std::vector<std::unique_ptr<Node>> others;
  for (size_t i = 0; i < count; ++i) {
    others.push_back(std::make_unique<Node>());
    ASSERT_TRUE(a.send(*a.connect(*others.back()), 1, pattern(1, 8)));
    ASSERT_TRUE(others.back()->poll_for_frames(1));
  }
  const size_t ready = 16 * (channel_bulk_offset + bulk_window_bytes);
  EXPECT_LE(blocks_of(a), header_bytes + ready + (count - 16) * page_bytes);
}

// The window is full and nothing was consumed: the next payload goes behind it.
TEST(ShmLink, ARingThatIsNotEmptyGoesOn) {
  Node a;
  Node b;
  Peer* to_b = a.connect(b);
  uint64_t next = 0;
  for (int round = 0; round < 50; ++round) {
    const uint64_t seen = next;
    for (int n = 0; n < 1 + round % 5; ++n, ++next)
      ASSERT_TRUE(a.send(*to_b, next, pattern(next, 40'000 + next * 7)));
    ASSERT_TRUE(b.poll_for_frames(next - seen));
    for (uint64_t id = seen; id < next; ++id) expect_frame(b.frames[id - seen], id, 40'000 + id * 7, false);
    b.frames.clear();
  }
}

// After it has begun again all of the ring is free, before the receiver has consumed anything of the new pass.
TEST(ShmLink, ARingThatBeganAgainHasAllItsRoom) {
  Node a;
  Node b;
  Peer* to_b = a.connect(b);
  for (uint64_t id = 0; id < 4; ++id) {
    ASSERT_TRUE(a.send(*to_b, id, pattern(id, 30'000)));
    ASSERT_TRUE(b.poll_for_frames(id + 1));
  }
  b.frames.clear();
  uint64_t sent = 0;
  while (a.send(*to_b, sent, pattern(sent, 60'000))) ++sent;
  EXPECT_GE(sent, bulk_bytes / 60'032 - 2);
  EXPECT_LE(sent, bulk_bytes / 60'032);
  ASSERT_TRUE(b.poll_for_frames(sent));
  for (uint64_t id = 0; id < sent; ++id) expect_frame(b.frames[id], id, 60'000, false);
}

// A reservation that begins the ring again and is abandoned must not put the next frame beyond what the receiver takes.
TEST(ShmLink, AnAbandonedReservationLeavesRoomForAnyFrame) {
  for (const size_t used : {size_t{4096}, size_t{8192}, size_t{65'472}, size_t{65'536}}) {
    Node a;
    Node b;
    Peer* to_b = a.connect(b);
    ASSERT_TRUE(a.send(*to_b, 0, pattern(0, used / 2 / 64 * 64)));
    ASSERT_TRUE(a.send(*to_b, 1, pattern(1, used - used / 2 / 64 * 64)));
    ASSERT_TRUE(b.poll_for_frames(2));
    to_b->out.forget_pages(bulk_window_bytes);
    for (const size_t bytes : {size_t{64}, size_t{0}}) {
      int error = 0;
      auto* const buffer = a.link.reserve(*to_b, bytes, error);
      ASSERT_NE(buffer, nullptr);
      a.link.abandon(*buffer);
    }
    ASSERT_TRUE(a.send(*to_b, 2, pattern(2, Link::frame_bytes_max)));
    ASSERT_TRUE(b.poll_for_frames(3));
    expect_frame(b.frames[2], 2, Link::frame_bytes_max, false);
  }
}

// A receiver that says it has consumed everything overwrites what it has not read, and nothing else.
TEST(ShmLink, ALyingReceiverHarmsItself) {
  Node a;
  Node b;
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 0, {}));
  ASSERT_TRUE(b.poll_for_frames(1));
  const auto bytes = pattern(1, 60'000);
  for (uint64_t id = 1; id < 100; ++id) {
    to_b->out.control()->bulk_consumed.store(to_b->out.bulk_next());
    ASSERT_TRUE(a.send(*to_b, id, bytes));
    EXPECT_LE(to_b->out.bulk_next() % bulk_bytes, 2 * bulk_window_bytes);
  }
}

}  // namespace
}  // namespace weft::link::shm
