// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the shared memory link: what other users of the machine, and descriptors of the wrong kind, can do to an endpoint. Most of them run
// as root and let a child become another user; without that right they are skipped.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fuse.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstddef>
#include <fstream>

#include "link/shm/test_node.hpp"
#include "os/process.hpp"

namespace weft::link::shm {
namespace {

constexpr uid_t other_user = 65534;

bool become(uid_t user) { return ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0; }
#define WEFT_NEEDS_ROOT() \
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user"

os::Fd memory_file(unsigned flags, size_t bytes, int seals) {
  os::Fd file(::memfd_create("unknown", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      (seals != 0 && ::fcntl(file.get(), F_ADD_SEALS, seals) != 0))
    return {};
  return file;
}

constexpr const char* unknown_address = "fi_ns://an-unknown-peer";

// A region as an honest endpoint has it, but for its seals.
os::Fd region(int seals) {
  os::Fd file = memory_file(0, header_bytes + channel_bytes, 0);
  RegionHeader header{};
  header.magic = region_magic;
  header.version = layout_version;
  header.nonce = 7;
  header.header_size = header_bytes;
  header.channel_size = channel_bytes;
  std::copy_n(unknown_address, std::strlen(unknown_address), header.address.begin());
  if (!file || ::pwrite(file.get(), &header, sizeof(header), 0) != sizeof(header) ||
      (seals != 0 && ::fcntl(file.get(), F_ADD_SEALS, seals) != 0))
    return {};
  return file;
}

// A handshake of nobody that there is, with these descriptors. 0 or a negative errno.
int send_hello(const std::string& whom, int file, int liveness) {
  const os::Fd from(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Note note{};
  note.magic = region_magic;
  note.token = token_of(whom);
  note.version = layout_version;
  note.kind = NoteKind::Hello;
  note.nonce = 7;
  note.channel_offset = header_bytes;
  std::copy_n(unknown_address, std::strlen(unknown_address), note.address.begin());
  const std::array<int, 2> fds{file, liveness};
  return os::send_datagram(from, SocketName(whom), std::as_bytes(std::span(&note, 1)), fds);
}

// A TCP socket that takes `seconds` to close, with the other end, which reads nothing.
struct Lingering {
  os::Fd socket;
  os::Fd other;
  explicit Lingering(int seconds) {
    const os::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(at);
    socket = os::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto* address = reinterpret_cast<sockaddr*>(&at);
    if (::bind(listener.get(), address, sizeof(at)) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), address, &length) != 0 ||
        ::connect(socket.get(), address, sizeof(at)) != 0)
      return;
    other = os::Fd(::accept(listener.get(), nullptr, nullptr));
    (void)::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    const std::vector<char> bytes(1 << 16);
    while (::write(socket.get(), bytes.data(), bytes.size()) > 0) {
    }
    const linger how{1, seconds};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &how, sizeof(how));
  }
};

// The longest of its polls within that time, in milliseconds.
uint64_t longest_poll_ms(Node& node, uint64_t for_ms) {
  uint64_t longest = 0;
  const uint64_t until = os::monotonic_ns() + for_ms * ms;
  for (uint64_t now = os::monotonic_ns(); now < until;) {
    (void)node.link.poll(node);
    const uint64_t after = os::monotonic_ns();
    longest = std::max(longest, after - now);
    now = after;
  }
  return longest / ms;
}

void expect_heard(Node& node) {
  Node friendly;
  Peer* to = friendly.connect(node);
  ASSERT_NE(to, nullptr);
  const size_t before = node.frames.size();
  ASSERT_TRUE(friendly.send(*to, 1, pattern(1, 100)));
  EXPECT_TRUE(node.poll_for_frames(before + 1)) << "an honest peer is not heard";
}

constexpr int honest_seals = F_SEAL_SHRINK | F_SEAL_SEAL;

// --- memory that faults ---

TEST(ShmUnknownPeers, MemoryThatCanFaultIsNotMapped) {
  Node a;
  std::vector<os::Fd> files;
  files.push_back(memory_file(MFD_HUGETLB, size_t{2} << 20, honest_seals));
  files.push_back(memory_file(MFD_HUGETLB, size_t{4} << 20, F_SEAL_SHRINK));
  files.push_back(memory_file(0, header_bytes + channel_bytes, honest_seals));  // holes
  files.push_back(memory_file(0, header_bytes / 2, honest_seals));
  files.push_back(region(0));
  files.push_back(region(F_SEAL_SHRINK));
  files.push_back(region(honest_seals | F_SEAL_WRITE));
  files.push_back(region(honest_seals | F_SEAL_FUTURE_WRITE));
  const os::Fd liveness = os::open_process(::getpid());
  for (const os::Fd& file : files) {
    if (!file) continue;  // no huge pages in this kernel
    EXPECT_EQ(send_hello(a.name(), file.get(), liveness.get()), 0);
    a.poll_until([] { return false; }, 5);
    for (const auto& peer : a.peers) EXPECT_EQ(peer->remote, nullptr) << &file - files.data();
  }
  expect_heard(a);
  // The same with all in order is taken.
  const os::Fd honest = region(honest_seals);
  EXPECT_EQ(send_hello(a.name(), honest.get(), liveness.get()), 0);
  EXPECT_TRUE(a.poll_until([&] { return a.peers.front()->remote != nullptr; }, 500));
}

TEST(ShmUnknownPeers, MemoryOfAnotherUserIsNotMapped) {
  WEFT_NEEDS_ROOT();
  Node a;
  ASSERT_EQ(::seteuid(other_user), 0);
  const os::Fd file = region(honest_seals);
  ASSERT_EQ(::seteuid(0), 0);
  const os::Fd liveness = os::open_process(::getpid());
  EXPECT_EQ(send_hello(a.name(), file.get(), liveness.get()), 0);
  a.poll_until([] { return false; }, 20);
  for (const auto& peer : a.peers) EXPECT_EQ(peer->remote, nullptr);
}

// An address names a process and a descriptor of it; both may be hostile.
TEST(ShmUnknownPeers, AnAddressOfSomethingElseIsNotOpened) {
  for (const uid_t user : {uid_t{0}, other_user}) {
    if (user != 0 && ::geteuid() != 0) continue;
    int up[2];
    ASSERT_EQ(::pipe(up), 0);
    const pid_t child = spawn([&] {
      if (user != 0 && !become(user)) return 1;
      const os::Fd file = memory_file(MFD_HUGETLB, size_t{2} << 20, honest_seals);
      const os::Fd fifo_end(::socket(AF_UNIX, SOCK_STREAM, 0));
      std::array<int, 3> fds{file.get(), fifo_end.get(), up[0]};
      (void)!::write(up[1], fds.data(), sizeof(fds));
      ::pause();
      return 0;
    });
    std::array<int, 3> fds{};
    ASSERT_EQ(::read(up[0], fds.data(), sizeof(fds)), static_cast<ssize_t>(sizeof(fds)));
    Node a;
    for (const int fd : fds) {
      if (fd < 0) continue;
      const std::string name = "fi_shm://" + std::to_string(child) + ":" + std::to_string(fd) + ":7";
      std::array<std::byte, address_bytes> address{};
      std::memcpy(address.data(), name.data(), name.size());
      int error = 0;
      const Peer* peer = a.link.connect(address, error);
      ASSERT_NE(peer, nullptr);
      EXPECT_EQ(peer->remote, nullptr);
    }
    a.poll_until([] { return false; }, 20);
    ::kill(child, SIGKILL);
    wait_for(child);
    ::close(up[0]);
    ::close(up[1]);
  }
}

// --- descriptors that sleep ---

TEST(ShmUnknownPeers, ASocketThatLingersDelaysNobody) {
  for (const uid_t user : {::geteuid(), other_user}) {
    if (user != ::geteuid() && ::geteuid() != 0) continue;
    for (const bool closing : {false, true}) {
      Node a;
      const std::string name = a.name();
      int down[2];
      ASSERT_EQ(::pipe(down), 0);
      const pid_t child = spawn([&] {
        if (user != ::geteuid() && !become(user)) return 1;
        std::vector<os::Fd> others;
        for (int i = 0; i < 3; ++i) {
          Lingering slow(5);
          if (send_hello(name, slow.socket.get(), slow.socket.get()) != 0) return 2;
          others.push_back(std::move(slow.other));
        }
        (void)!::write(down[1], "x", 1);
        ::pause();
        return 0;
      });
      char byte;
      ASSERT_EQ(::read(down[0], &byte, 1), 1);
      if (!closing) {
        EXPECT_LT(longest_poll_ms(a, 300), 150u) << "user " << user;
        expect_heard(a);
      }
      const uint64_t before = os::monotonic_ns();
      a.link.close();
      EXPECT_LT((os::monotonic_ns() - before) / ms, 1000u) << "user " << user;
      ::kill(child, SIGKILL);
      EXPECT_EQ(wait_for(child), -SIGKILL);
      ::close(down[0]);
      ::close(down[1]);
    }
  }
}

// A FUSE file system of one file, whose daemon answers everything but FLUSH: to close a descriptor of that file sleeps until the daemon is gone,
// and no signal ends it.
int serve_silent_file(const std::string& at, const std::function<void()>& ready) {
  const os::Fd place(::open(at.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666));
  const os::Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options =
      "fd=" + std::to_string(device.get()) + ",rootmode=100000,user_id=0,group_id=0,allow_other";
  if (!place || !device || ::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("weft-test", at.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    return 77;
  const pid_t user = spawn([&] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(device.get());
    ready();
    ::pause();
    return 0;
  });
  alignas(8) std::array<char, 1 << 18> in;
  for (;;) {
    if (::read(device.get(), in.data(), in.size()) < static_cast<ssize_t>(sizeof(fuse_in_header))) break;
    fuse_in_header request;
    std::memcpy(&request, in.data(), sizeof(request));
    struct {
      fuse_out_header head{};
      union {
        fuse_init_out init;
        fuse_open_out open;
        fuse_attr_out attr{};
      };
    } out;
    size_t bytes = 0;
    if (request.opcode == FUSE_INIT) {
      out.init = {};
      out.init.major = FUSE_KERNEL_VERSION;
      out.init.minor = 31;
      out.init.max_write = 4096;
      bytes = sizeof(out.init);
    } else if (request.opcode == FUSE_OPEN) {
      out.open = {};
      bytes = sizeof(out.open);
    } else if (request.opcode == FUSE_GETATTR) {
      out.attr.attr.mode = S_IFREG | 0666;
      out.attr.attr.nlink = 1;
      bytes = sizeof(out.attr);
    } else if (request.opcode == FUSE_FLUSH) {
      continue;
    } else {
      out.head.error = -ENOSYS;
    }
    out.head.unique = request.unique;
    out.head.len = static_cast<uint32_t>(sizeof(out.head) + bytes);
    (void)!::write(device.get(), &out, out.head.len);
  }
  ::kill(user, SIGKILL);
  return 0;
}

TEST(ShmUnknownPeers, AFileSystemThatDoesNotAnswerDelaysNobody) {
  WEFT_NEEDS_ROOT();
  for (const uid_t user : {uid_t{0}, other_user}) {
    Node a;
    const std::string victim = a.name();
    const std::string at = testing::TempDir() + "weft-silent-" + std::to_string(::getpid());
    int up[2];
    ASSERT_EQ(::pipe(up), 0);
    const pid_t daemon = spawn([&] {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      return serve_silent_file(at, [&] {
        if (user != 0 && !become(user)) return;
        const os::Fd file(::open(at.c_str(), O_RDWR | O_CLOEXEC));
        const int sent = file ? send_hello(victim, file.get(), file.get()) : -1;
        const std::array<int, 2> said{sent, ::getpid()};  // becoming another user ends PR_SET_PDEATHSIG
        (void)!::write(up[1], said.data(), sizeof(said));
        ::pause();
      });
    });
    ::close(up[1]);
    std::array<int, 2> said{};
    if (::read(up[0], said.data(), sizeof(said)) != static_cast<ssize_t>(sizeof(said))) {
      wait_for(daemon);
      ::close(up[0]);
      GTEST_SKIP() << "no FUSE here";
    }
    EXPECT_EQ(said[0], 0);
    EXPECT_LT(longest_poll_ms(a, 300), 150u) << "user " << user;
    const uint64_t before = os::monotonic_ns();
    a.link.close();
    EXPECT_LT((os::monotonic_ns() - before) / ms, 1500u) << "user " << user;
    ::kill(daemon, SIGKILL);
    ::kill(said[1], SIGKILL);
    wait_for(daemon);
    ::close(up[0]);
    ::unlink(at.c_str());
  }
}

// --- whose handshakes are taken ---

TEST_P(Meeting, AnotherUserIsRefusedAndFindsOut) {
  WEFT_NEEDS_ROOT();
  // Who is root: the receiver, then the sender.
  for (const bool root_receives : {true, false}) {
    const std::string mine = name("receiver");
    int up[2];
    ASSERT_EQ(::pipe(up), 0);
    std::array<char, address_bytes> address{};
    const auto receive = [&](uid_t user) {
      if (user != 0 && !become(user)) return 1;
      Node node(mine);
      std::copy_n(reinterpret_cast<const char*>(node.link.address().data()), address_bytes, address.begin());
      (void)!::write(up[1], address.data(), address.size());
      node.poll_until([&] { return !node.peers.empty(); }, 800);
      return node.peers.empty() && node.frames.empty() ? 0 : 2;
    };
    const auto send = [&](uid_t user) {
      if (user != 0 && !become(user)) return 1;
      if (::read(up[0], address.data(), address.size()) != static_cast<ssize_t>(address.size())) return 3;
      Node node;
      int error = 0;
      Peer* peer = node.link.connect(std::as_bytes(std::span(address)), error);
      if (peer != nullptr) {
        (void)node.send(*peer, 1, pattern(1, 8));
        if (!node.poll_until([&] { return !node.lost.empty(); }, 2000)) return 4;
        if (node.lost[0].why != core::ProviderError::PeerOfOtherUser) return 5;
        // And from now on it fails at once.
        if (node.link.connect(std::as_bytes(std::span(address)), error) != nullptr) return 6;
      }
      return error == EACCES ? 0 : 7;
    };
    const pid_t receiver = spawn([&] { return receive(root_receives ? 0 : other_user); });
    const pid_t sender = spawn([&] { return send(root_receives ? other_user : 0); });
    EXPECT_EQ(wait_for(sender), 0) << "root receives: " << root_receives;
    EXPECT_EQ(wait_for(receiver), 0) << "root receives: " << root_receives;
    ::close(up[0]);
    ::close(up[1]);
  }
}

// Somebody of another user has the name and says nothing.
TEST(ShmUnknownPeers, ASilentOwnerIsFoundOut) {
  WEFT_NEEDS_ROOT();
  const std::string name = "fi_shm://1:1:123456789abcdef0";
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  const pid_t child = spawn([&] {
    if (!become(other_user)) return 1;
    const auto socket = os::bind_datagram(SocketName(name));
    (void)!::write(up[1], "x", 1);
    ::pause();
    return socket ? 0 : 1;
  });
  char byte;
  ASSERT_EQ(::read(up[0], &byte, 1), 1);
  EXPECT_EQ(os::owner_of_name(SocketName(name)), other_user);
  EXPECT_EQ(os::owner_of_name("nobody has this name"), std::nullopt);
  Node a;
  std::array<std::byte, address_bytes> address{};
  std::memcpy(address.data(), name.data(), name.size());
  int error = 0;
  ASSERT_NE(a.link.connect(address, error), nullptr);
  EXPECT_TRUE(a.poll_until([&] { return !a.lost.empty(); }, 7000));
  ASSERT_EQ(a.lost.size(), 1u);
  EXPECT_EQ(a.lost[0].why, core::ProviderError::PeerOfOtherUser);
  ::kill(child, SIGKILL);
  wait_for(child);
  ::close(up[0]);
  ::close(up[1]);
}

// /proc/net/unix shows names to everybody.
// A name is free when its endpoint is gone: whoever takes it then gets nothing of ours.
TEST_P(Meeting, AFreedNameLeadsNobodyToOurMemory) {
  WEFT_NEEDS_ROOT();
  std::array<std::byte, address_bytes> address{};
  std::string text;
  {
    Node gone(name("gone"));
    text = gone.name();
    std::memcpy(address.data(), text.data(), text.size());
  }
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  const pid_t child = spawn([&] {
    if (!become(other_user)) return 1;
    auto taken = os::bind_datagram(SocketName(text));
    if (!taken) return 2;
    (void)!::write(up[1], "x", 1);
    ::usleep(300'000);
    Note note{};
    os::Sender sender;
    return os::peek_datagram(*taken, std::as_writable_bytes(std::span(&note, 1)), sender) > 0 &&
                   sender.passes_fds
               ? 3
               : 0;
  });
  char byte;
  ASSERT_EQ(::read(up[0], &byte, 1), 1);
  {
    Node a(name("a"));
    int error = 0;
    Peer* peer = a.link.connect(address, error);
    if (peer != nullptr) (void)a.send(*peer, 1, pattern(1, 8));
    EXPECT_TRUE(a.poll_until([&] { return peer == nullptr || !a.lost.empty(); }, 1000));
  }  // to close it tries once more to hand over what was sent
  EXPECT_EQ(wait_for(child), 0);
  ::close(up[0]);
  ::close(up[1]);
}

TEST(ShmUnknownPeers, ANameGivesNothingAway) {
  Node a;
  const std::string nonce = a.name().substr(a.name().rfind(':') + 1);
  std::ifstream names("/proc/net/unix");
  size_t seen = 0;
  for (std::string line; std::getline(names, line);) {
    EXPECT_EQ(line.find(nonce), std::string::npos) << line;
    if (line.find(std::string_view(SocketName(a.name()))) != std::string::npos) ++seen;
  }
  EXPECT_EQ(seen, 1u);
  // Who has the name alone fills no queue.
  const os::Fd from(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Note note{};
  note.token = token_of(a.name()) ^ 1;
  for (int i = 0; i < 2000; ++i)
    ASSERT_EQ(os::send_datagram(from, SocketName(a.name()), std::as_bytes(std::span(&note, 1)), {}), 0);
  expect_heard(a);
}

// --- deaths ---

// With one free descriptor the memory of a handshake arrives, and what tells of the death does not.
TEST(ShmUnknownPeers, APeerIsMetWithWhatTellsOfItsDeath) {
  for (const bool chosen : {true, false}) {
    int up[2];
    ASSERT_EQ(::pipe(up), 0);
    const pid_t parent = spawn([&] {
      Node a(chosen ? "" : plain_name("a"));
      const std::string mine = chosen ? "" : plain_name("b");
      const pid_t child = spawn([&] {
        Node b(mine);
        (void)b.send(*b.connect(a), 1, pattern(1, 8));
        (void)!::write(up[1], "x", 1);
        b.poll_until([] { return false; }, 20'000);
        return 0;
      });
      char byte;
      if (::read(up[0], &byte, 1) != 1) return 1;
      const int free_fd = ::dup(0);
      ::close(free_fd);
      rlimit old{};
      (void)::getrlimit(RLIMIT_NOFILE, &old);
      rlimit one = old;
      one.rlim_cur = static_cast<rlim_t>(free_fd) + 1;
      (void)::setrlimit(RLIMIT_NOFILE, &one);
      a.poll_until([] { return false; }, 30);
      for (const auto& peer : a.peers)
        if (peer->remote != nullptr && !peer->pidfd) return 2;
      (void)::setrlimit(RLIMIT_NOFILE, &old);
      if (!a.poll_for_frames(1, 3000)) return 3;
      ::kill(child, SIGKILL);
      wait_for(child);
      return a.poll_until([&] { return !a.lost.empty(); }, 500) ? 0 : 4;
    });
    EXPECT_EQ(wait_for(parent), 0) << "address chosen by the library: " << chosen;
    ::close(up[0]);
    ::close(up[1]);
  }
}

// As container profiles do that do not know pidfd_open(2).
bool refuse_pidfds() {
  std::array<sock_filter, 4> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_P(Meeting, ADeathIsSeenWithoutPidfds) {
  for (const bool survivor_has_them : {true, false}) {
    int up[2];
    ASSERT_EQ(::pipe(up), 0);
    const pid_t survivor = spawn([&] {
      std::array<char, address_bytes> address{};
      const std::string mine = name("b");
      int named[2];
      if (::pipe(named) != 0) return 1;
      const pid_t child = spawn([&] {
        if (!refuse_pidfds()) return 77;
        if (::read(named[0], address.data(), address.size()) != static_cast<ssize_t>(address.size()))
          return 1;
        Node b(mine);
        int error = 0;
        (void)b.send(*b.link.connect(std::as_bytes(std::span(address)), error), 1, pattern(1, 8));
        if (!b.poll_for_frames(1)) return 1;  // now the two have met, both ways
        (void)!::write(up[1], "x", 1);
        b.poll_until([] { return false; }, 20'000);
        return 0;
      });
      if (!survivor_has_them && !refuse_pidfds()) return 77;
      Node a(name("a"));
      (void)!::write(named[1], a.link.address().data(), address_bytes);
      if (!a.poll_for_frames(1)) return 3;
      char byte;
      if (!a.send(*a.frames[0].from, 2, pattern(2, 8)) || ::read(up[0], &byte, 1) != 1) return 4;
      ::kill(child, SIGKILL);
      wait_for(child);
      if (!a.poll_until([&] { return !a.lost.empty(); }, 1000)) return 5;
      return a.lost[0].why == core::ProviderError::PeerDied ? 0 : 6;
    });
    EXPECT_EQ(wait_for(survivor), 0) << "survivor has pidfds: " << survivor_has_them;
    ::close(up[0]);
    ::close(up[1]);
  }
}

// --- what is said ---

TEST(ShmUnknownPeers, WhoIsCutOffIsNamed) {
  Node a(plain_name("a"));
  Node b(plain_name("b"));
  std::vector<std::string> lines;
  b.link.set_warning(
      [](const void* who, const char* what) {
        static_cast<std::vector<std::string>*>(const_cast<void*>(who))->emplace_back(what);
      },
      &lines);
  Peer* to_b = a.connect(b);
  ASSERT_TRUE(a.send(*to_b, 1, pattern(1, 8)));
  ASSERT_TRUE(b.poll_for_frames(1));
  to_b->out.next_slot()->header.store(sequence_of(to_b->out.next()) | uint64_t{1} << 8 | uint64_t{49} << 32);
  EXPECT_TRUE(b.poll_until([&] { return !b.lost.empty(); }, 500));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(a.name()), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("longer than its slot"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace weft::link::shm
