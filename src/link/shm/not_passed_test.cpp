// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the shared memory link where the kernel, an emulator or a filter does not pass descriptors: sendmsg(2) loses them, or is refused.
#include <sys/socket.h>
#include <sys/syscall.h>

#include "link/shm/test_node.hpp"

namespace {

enum class Passing : uint8_t { All, Lost, Refused };
Passing passing = Passing::All;

}  // namespace

// In the place of the one of the C library.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  msghdr less = *message;
  const cmsghdr* const first = CMSG_FIRSTHDR(message);
  if (passing != Passing::All && first != nullptr && first->cmsg_type == SCM_RIGHTS) {
    if (passing == Passing::Refused) {
      errno = EPERM;
      return -1;
    }
    less.msg_control = nullptr;
    less.msg_controllen = 0;
  }
  return ::syscall(SYS_sendmsg, fd, &less, flags);
}

namespace weft::link::shm {
namespace {

class Losing {
 public:
  explicit Losing(Passing how) { passing = how; }
  Losing(const Losing&) = delete;
  Losing& operator=(const Losing&) = delete;
  ~Losing() { passing = Passing::All; }
};

struct Side {
  Node node;
  Passing passing;

  Peer* connect(const Side& other) {
    const Losing losing(passing);
    return node.connect(other.node);
  }
  void poll() {
    const Losing losing(passing);
    (void)node.link.poll(node);
  }
};

bool poll_both(Side& a, Side& b, const std::function<bool()>& done) {
  const uint64_t until = os::monotonic_ns() + 2000 * ms;
  while (!done()) {
    if (os::monotonic_ns() > until) return false;
    a.poll();
    b.poll();
  }
  return true;
}

TEST_P(Meeting, WhereDescriptorsAreNotPassed) {
  constexpr std::array ways{Passing::All, Passing::Lost, Passing::Refused};
  for (const Passing first : ways) {
    for (const Passing second : ways) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(first) << " and " << static_cast<int>(second));
      Side a{Node(name("not-passed")), first}, b{Node(name("not-passed")), second};
      Peer* const there = a.connect(b);
      ASSERT_NE(there, nullptr);
      ASSERT_TRUE(a.node.send(*there, 1, pattern(1, 3000)));
      ASSERT_TRUE(poll_both(a, b, [&] { return !b.node.frames.empty(); }));
      expect_frame(b.node.frames.front(), 1, 3000, false);
      Peer& here = *b.node.frames.front().from;
      ASSERT_TRUE(b.node.send(here, 2, pattern(2, 8)));
      ASSERT_TRUE(
          poll_both(a, b, [&] { return !a.node.frames.empty() && there->state == PeerState::Known; }));
      expect_frame(a.node.frames.front(), 2, 8, false);
      EXPECT_TRUE(there->pidfd && here.pidfd);
      EXPECT_EQ(here.pid, ::getpid());
      EXPECT_TRUE(a.node.lost.empty() && b.node.lost.empty());
    }
  }
}

TEST_P(Meeting, ADeathIsSeenWhereDescriptorsAreNotPassed) {
  Node node(name("not-passed"));
  const pid_t child = spawn([&] {
    const Losing losing(Passing::Lost);
    Node other(name("not-passed"));
    Peer* const peer = other.connect(node);
    if (peer == nullptr || !other.send(*peer, 1, pattern(1, 8))) return 1;
    for (;;) (void)other.link.poll(other);
    return 0;
  });
  EXPECT_TRUE(node.poll_for_frames(1));
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), -SIGKILL);
  ASSERT_TRUE(node.poll_until([&] { return !node.lost.empty(); }));
  EXPECT_EQ(node.lost.front().why, core::ProviderError::PeerDied);
}

// --- a Hello without descriptors, and what the note says is not so ---

constexpr uint64_t nonce = 7;

struct Stranger {
  std::string name = plain_name("stranger");
  os::Fd socket;
  os::Fd file;

  Stranger() {
    auto bound = os::bind_datagram(SocketName(name), offsetof(Note, token), token_of(name));
    auto made = os::create_memory("stranger", header_bytes + channel_bytes);
    if (!bound || !made) return;
    socket = std::move(*bound);
    RegionHeader header{};
    header.magic = region_magic;
    header.version = layout_version;
    header.nonce = nonce;
    header.header_size = header_bytes;
    header.channel_size = channel_bytes;
    std::copy(name.begin(), name.end(), header.address.begin());
    if (::pwrite(made->get(), &header, sizeof(header), 0) == sizeof(header)) file = std::move(*made);
  }
  bool send_hello(const Node& whom, uint64_t as_nonce = nonce) const {
    Note note{};
    note.magic = region_magic;
    note.token = token_of(whom.name());
    note.version = layout_version;
    note.kind = NoteKind::Hello;
    note.nonce = as_nonce;
    note.channel_offset = header_bytes;
    note.file = file.get();
    std::copy(name.begin(), name.end(), note.address.begin());
    return os::send_datagram(socket, SocketName(whom.name()), std::as_bytes(std::span(&note, 1)), {}) == 0;
  }
  // What the node answers; 0: nothing.
  NoteKind answer_of(Node& node) const {
    Note note{};
    os::Sender sender;
    return node.poll_until([&] {
      return os::peek_datagram(socket, std::as_writable_bytes(std::span(&note, 1)), sender) > 0;
    })
               ? note.kind
               : NoteKind{};
  }
};

TEST(ShmNotPassed, AHelloIsBelievedOnlyWithTheMemoryOfItsNonce) {
  Node node;
  Stranger stranger;
  ASSERT_TRUE(stranger.socket && stranger.file);
  ASSERT_TRUE(stranger.send_hello(node, nonce + 1));
  EXPECT_EQ(stranger.answer_of(node), NoteKind::NotPassed);
  EXPECT_TRUE(node.peers.empty());
  os::skip_datagram(stranger.socket);
  ASSERT_TRUE(stranger.send_hello(node));
  EXPECT_TRUE(node.poll_until([&] { return !node.peers.empty(); }));
}

TEST(ShmNotPassed, AProcessThatHasExitedIsNotMet) {
  Node node;
  Stranger stranger;
  ASSERT_TRUE(stranger.socket && stranger.file);
  // This process has the very file under the very number, and the number of the child may be another's by now.
  const pid_t child = spawn([&] { return stranger.send_hello(node) ? 0 : 1; });
  ASSERT_EQ(wait_for(child), 0);
  std::string line;
  node.link.set_warning(
      [](const void* to, const char* what) { *static_cast<std::string*>(const_cast<void*>(to)) = what; },
      &line);
  EXPECT_TRUE(node.poll_until([&] { return !line.empty(); }));
  EXPECT_NE(line.find("exited before its handshake was read"), std::string::npos) << line;
  EXPECT_TRUE(node.peers.empty());
}

TEST(ShmNotPassed, NothingOfAnotherUserIsOpened) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Node node;
  Stranger stranger;
  ASSERT_TRUE(stranger.socket && stranger.file);
  std::array<int, 2> wait{};
  ASSERT_EQ(::pipe(wait.data()), 0);
  const pid_t child = spawn([&] {
    constexpr uid_t other = 65534;
    if (::setresgid(other, other, other) != 0 || ::setresuid(other, other, other) != 0) return 1;
    const Stranger theirs;
    const bool sent = theirs.send_hello(node) && stranger.send_hello(node);
    char byte;
    ::close(wait[1]);
    (void)!::read(wait[0], &byte, 1);
    return sent ? 0 : 2;
  });
  ::close(wait[0]);
  EXPECT_EQ(stranger.answer_of(node), NoteKind::Refusal);
  EXPECT_TRUE(node.peers.empty());
  ::close(wait[1]);
  EXPECT_EQ(wait_for(child), 0);
}

}  // namespace
}  // namespace weft::link::shm
