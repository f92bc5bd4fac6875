// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the shared memory link: meetings that descriptors are lacking for, in processes of their own.
#include <fcntl.h>
#include <sys/resource.h>

#include "link/shm/test_node.hpp"

namespace weft::link::shm {
namespace {

using core::ProviderError;

// Leaves so many descriptors free, until it goes.
class Scarce {
 public:
  explicit Scarce(int left) {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    // The lowest number that is free: all below it are open.
    const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
    ::close(next);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next) + static_cast<rlim_t>(left);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  Scarce(const Scarce&) = delete;
  Scarce& operator=(const Scarce&) = delete;
  ~Scarce() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Descriptors of a process that was started with others open may have gaps.
void close_others() {
  for (int fd = 3; fd < 1024; ++fd) ::close(fd);
}

bool poll_both(Node& a, Node& b, const std::function<bool()>& done, uint64_t timeout_ms) {
  const uint64_t until = os::monotonic_ns() + timeout_ms * ms;
  while (!done()) {
    if (os::monotonic_ns() > until) return false;
    (void)a.link.poll(a);
    (void)b.link.poll(b);
  }
  return true;
}

// Whatever is lacking: the peer is met when there are descriptors again, and what was sent meanwhile arrives.
int meets_later(int left, const std::string& name) {
  close_others();
  Node a, b(name);
  const bool named = !name.empty();
  Peer* peer = nullptr;
  {
    const Scarce few(left);
    peer = a.connect(b);
    if (peer == nullptr || !a.send(*peer, 1, pattern(1, 8))) return 1;
    (void)poll_both(
        a, b, [&] { return !a.lost.empty() || !b.lost.empty(); }, named ? 600 : 300);
  }
  if (!a.lost.empty() || !b.lost.empty()) return 2;
  if (!poll_both(
          a, b, [&] { return !b.frames.empty(); }, 2500))
    return 3;
  // The way back, which needs the answer.
  if (b.peers.empty() || !b.send(*b.peers.front(), 2, pattern(2, 8))) return 4;
  if (!poll_both(
          a, b, [&] { return !a.frames.empty(); }, 2500))
    return 5;
  return a.lost.empty() && b.lost.empty() ? 0 : 6;
}

TEST_P(Meeting, WithoutDescriptorsHappensLater) {
  std::vector<pid_t> children;
  children.reserve(6);
  for (int left = 0; left < 6; ++left)
    children.push_back(spawn([&] { return meets_later(left, name("scarce")); }));
  for (size_t left = 0; left < children.size(); ++left)
    EXPECT_EQ(wait_for(children[left]), 0) << left << " descriptors";
}

struct Warned {
  std::vector<std::string> lines;
  static void take(const void* self, const char* line) {
    static_cast<Warned*>(const_cast<void*>(self))->lines.emplace_back(line);
  }
  bool is_one(const char* words) const {
    return lines.size() == 1 && lines[0].find(words) != std::string::npos;
  }
};

// The tests move the begin of a shortage back by this, to wait for 4 of the 10 s: longer than the 3 s after which a shortage that does not show again is over.
constexpr uint64_t shortage_age_ms = 6'000;
// What waits for a peer ends with the reason, after one warning. 0, or what is wrong.
int gives_up(Node& node, const std::string& there, ProviderError why, const char* words) {
  Warned warned;
  node.link.set_warning(&Warned::take, &warned);
  int error = 0;
  Peer* peer = node.link.connect(std::as_bytes(std::span(there)), error);
  if (peer == nullptr || !node.send(*peer, 1, pattern(1, 8))) return 1;
  const auto begin = std::chrono::steady_clock::now();
  for (bool is_aged = false; node.lost.empty();) {
    if (!is_aged && peer->shortage.since_ns != 0) {
      peer->shortage.since_ns -= shortage_age_ms * ms;
      is_aged = true;
    }
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) return 2;
    (void)node.link.poll(node);
    ::usleep(1000);
  }
  if (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(9'900 - shortage_age_ms)) return 3;
  if (node.lost[0].why != why) return 4;
  return warned.is_one(words) ? 0 : 5;
}

int gives_up_by_itself() {
  close_others();
  Node a, b;
  const Scarce none(0);
  return gives_up(a, b.name(), ProviderError::OwnShortage, "ulimit -n, now");
}

int gives_up_for_a_peer_without() {
  close_others();
  std::array<int, 2> up{};
  if (::pipe(up.data()) != 0) return 7;
  const pid_t other = spawn([&] {
    Node b;
    const Scarce none(0);
    std::array<char, address_bytes> name{};
    b.name().copy(name.data(), name.size());
    if (::write(up[1], name.data(), name.size()) != static_cast<ssize_t>(name.size())) return 1;
    for (;;) {
      (void)b.link.poll(b);
      ::usleep(1000);
    }
    return 0;
  });
  std::array<char, address_bytes> name{};
  int status = 8;
  if (::read(up[0], name.data(), name.size()) == static_cast<ssize_t>(name.size())) {
    Node a;
    status = gives_up(a, std::string(name.data()), ProviderError::PeerShortage, "lacks descriptors");
  }
  ::kill(other, SIGKILL);
  (void)wait_for(other);
  return status;
}

Note note_from(const std::string& sender, const std::string& to, NoteKind kind, uint64_t nonce) {
  Note note{};
  note.magic = region_magic;
  note.token = token_of(to);
  note.version = layout_version;
  note.kind = kind;
  note.nonce = nonce;
  std::copy(sender.begin(), sender.end(), note.address.begin());
  return note;
}

// A peer to which the kernel passes no descriptors answers each handshake that it got without them.
int gives_up_where_descriptors_do_not_arrive() {
  const std::string there = plain_name("deprived");
  auto socket = os::bind_datagram(SocketName(there), offsetof(Note, token), token_of(there));
  if (!socket) return 7;
  const pid_t other = spawn([&] {
    for (;; ::usleep(1000)) {
      Note hello{};
      os::Sender sender;
      if (os::peek_datagram(*socket, std::as_writable_bytes(std::span(&hello, 1)), sender) <= 0) continue;
      os::skip_datagram(*socket);
      const std::string from(text_of(hello.address));
      const Note note = note_from(there, from, NoteKind::NotPassed, hello.nonce);
      if (hello.kind == NoteKind::Hello && sender.passes_fds)
        (void)os::send_datagram(*socket, SocketName(from), std::as_bytes(std::span(&note, 1)), {});
    }
    return 0;
  });
  int status;
  {
    Node a;
    status = gives_up(a, there, ProviderError::DescriptorsNotPassed, "SCM_RIGHTS");
  }
  ::kill(other, SIGKILL);
  (void)wait_for(other);
  return status;
}

TEST(ShmShortage, WhatWaitsForAMeetingEnds) {
  const pid_t by_itself = spawn(gives_up_by_itself);
  const pid_t for_a_peer = spawn(gives_up_for_a_peer_without);
  const pid_t not_passed = spawn(gives_up_where_descriptors_do_not_arrive);
  EXPECT_EQ(wait_for(by_itself), 0);
  EXPECT_EQ(wait_for(for_a_peer), 0);
  EXPECT_EQ(wait_for(not_passed), 0);
}

// In a warning, or at level info where the library chose the name.
TEST_P(Meeting, APeerThatDoesNotAnswerIsNamedOnce) {
  Node silent(name("silent")), node;
  Warned warned, noted;
  node.link.set_warning(&Warned::take, &warned);
  node.link.set_note(&Warned::take, &noted);
  Peer* const peer = node.connect(silent);
  ASSERT_NE(peer, nullptr);
  Warned& told = peer->chosen_by_library ? noted : warned;
  ASSERT_TRUE(node.send(*peer, 1, pattern(1, 8)));
  EXPECT_FALSE(node.poll_until([&] { return !told.lines.empty(); }, 500));
  EXPECT_TRUE(node.poll_until([&] { return !told.lines.empty(); }));
  EXPECT_FALSE(node.poll_until([&] { return told.lines.size() > 1; }, 300));
  EXPECT_TRUE(told.is_one("has not answered for 1 s"));
  EXPECT_TRUE(told.is_one("makes no call into its fabric library"));
  EXPECT_EQ(told.is_one("(process "), peer->chosen_by_library);
  EXPECT_TRUE((peer->chosen_by_library ? warned : noted).lines.empty());
  EXPECT_TRUE(node.lost.empty());
  // Others that are silent, too, wait for the next line.
  Node another(plain_name("another"));
  ASSERT_TRUE(node.send(*node.connect(another), 1, pattern(1, 8)));
  EXPECT_EQ(
      node.poll_until(
          [&] { return !warned.lines.empty() && warned.lines.back().find("another") != std::string::npos; },
          1500),
      peer->chosen_by_library);
  ASSERT_TRUE(silent.poll_for_frames(1));
}

TEST(ShmShortage, WhoIsNotThereOrAnswersIsNotSilent) {
  Node node, there;
  Warned warned;
  node.link.set_warning(&Warned::take, &warned);
  const std::string absent = plain_name("absent");
  int error = 0;
  Peer* const later = node.link.connect(std::as_bytes(std::span(absent)), error);
  Peer* const peer = node.connect(there);
  ASSERT_TRUE(later != nullptr && peer != nullptr);
  ASSERT_TRUE(node.send(*later, 1, pattern(1, 8)) && node.send(*peer, 1, pattern(1, 8)));
  ASSERT_TRUE(there.poll_for_frames(1));
  EXPECT_FALSE(node.poll_until([&] { return !warned.lines.empty() || !node.lost.empty(); }, 1300));
  // Its second begins when it is there.
  Node late(absent);
  EXPECT_FALSE(node.poll_until([&] { return !warned.lines.empty(); }, 500));
  EXPECT_TRUE(node.poll_until([&] { return !warned.lines.empty(); }));
}

// While the sender did not look, an answer could not be seen.
TEST(ShmShortage, TimeInWhichTheSenderDidNotLookIsNoSilence) {
  Node silent(plain_name("silent")), node;
  Peer* const peer = node.connect(silent);
  ASSERT_NE(peer, nullptr);
  ASSERT_TRUE(node.send(*peer, 1, pattern(1, 8)));
  EXPECT_FALSE(node.poll_until([] { return false; }, 50));
  const uint64_t asked = peer->handshake.asked_at_ns;
  ASSERT_NE(asked, 0U);
  ::usleep(1'200'000);
  EXPECT_FALSE(node.poll_until([] { return false; }, 50));
  EXPECT_GE(peer->handshake.asked_at_ns, asked + 600 * ms);  // of at least 1.2 s half a second counts
}

// A name that the library chose goes with its endpoint, whose process may compute for as long as it likes. A name that a program chose shows no process
// that lives, and the wait for it ends.
TEST_P(Meeting, ASilentPeerIsGivenUpAfterFiveMinutesUnlessTheLibraryChoseItsName) {
  Node silent(name("silent")), node;
  Peer* const peer = node.connect(silent);
  ASSERT_NE(peer, nullptr);
  ASSERT_TRUE(node.send(*peer, 1, pattern(1, 8)));
  const bool is_known = peer->chosen_by_library;
  ASSERT_NE(peer->handshake.asked_at_ns, 0U);
  constexpr uint64_t s = 1000 * ms;
  peer->handshake.asked_at_ns -= 298 * s;
  peer->handshake.met_at_ns -= 298 * s;
  EXPECT_FALSE(node.poll_until([&] { return !node.lost.empty(); }, 200));
  peer->handshake.asked_at_ns -= 2 * s;
  peer->handshake.met_at_ns -= 298 * s;
  ASSERT_EQ(node.poll_until([&] { return !node.lost.empty(); }, is_known ? 300 : 5000), !is_known);
  if (!is_known) {
    EXPECT_EQ(node.lost.front().why, ProviderError::PeerUnreachable);
  }
}

// Whether the control room is doubled is not known without descriptors, and a look must not install any meanwhile. In a process of its own: the answer is
// kept.
TEST(ShmShortage, ALookWithTooFewDescriptorsInstallsNone) {
  constexpr const char* fresh = "WEFT_TEST_FRESH";
  if (std::getenv(fresh) == nullptr) {
    const pid_t child = spawn([&] {
      ::setenv(fresh, "1", 1);
      ::execl("/proc/self/exe", "test", "--gtest_filter=ShmShortage.ALookWithTooFewDescriptorsInstallsNone",
              nullptr);
      return 1;
    });
    EXPECT_EQ(wait_for(child), 0);
    return;
  }
  close_others();
  const std::string name = plain_name("look");
  Note note = note_from(name, name, NoteKind::Wake, 7);
  os::Sender sender;
  const Scarce one(1);
  auto socket = os::bind_datagram(SocketName(name), offsetof(Note, token), token_of(name));
  ASSERT_TRUE(socket) << socket.error().why;
  ASSERT_EQ(os::send_datagram(*socket, SocketName(name), std::as_bytes(std::span(&note, 1)), {}), 0);
  ASSERT_EQ(os::peek_datagram(*socket, std::as_writable_bytes(std::span(&note, 1)), sender), 1);
  EXPECT_EQ(sender.uid, ::geteuid());
  EXPECT_EQ(sender.pid, ::getpid());
  EXPECT_TRUE(sender.passes_fds);  // it cannot be told
}

// Where such a handshake arrives nothing is short, and the warning does not say so.
TEST(ShmShortage, AHelloWithoutDescriptorsIsAnsweredWithTheReason) {
  Node node;
  Warned warned;
  node.link.set_warning(&Warned::take, &warned);
  const std::string from = plain_name("deprived");
  auto socket = os::bind_datagram(SocketName(from), offsetof(Note, token), token_of(from));
  ASSERT_TRUE(socket) << socket.error().why;
  Note hello = note_from(from, node.name(), NoteKind::Hello, 7);
  hello.channel_offset = header_bytes;
  ASSERT_EQ(os::send_datagram(*socket, SocketName(node.name()), std::as_bytes(std::span(&hello, 1)), {}), 0);
  Note answer{};
  os::Sender sender;
  EXPECT_TRUE(node.poll_until(
      [&] { return os::peek_datagram(*socket, std::as_writable_bytes(std::span(&answer, 1)), sender) > 0; }));
  EXPECT_EQ(answer.kind, NoteKind::NotPassed);
  EXPECT_EQ(answer.nonce, 7U);
  EXPECT_TRUE(warned.is_one("SCM_RIGHTS"));
}

}  // namespace
}  // namespace weft::link::shm
