// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Devices of one host and user meet in shared memory: handshake, switching over, ends, strangers.
#include "link/roce/shm_port.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "link/roce/test_side.hpp"
#include "os/unix_connection.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::roce {
namespace {

using namespace proto::roce;
using testing::Side;

constexpr auto local = "127.0.0.1:0";

template <class Condition>
bool comes_true(Condition&& condition) {
  for (const uint64_t end = os::monotonic_ns() + 20'000'000'000; os::monotonic_ns() < end; ::usleep(500))
    if (condition()) return true;
  return false;
}

void join(Side& a, Side& b) {
  a.connect(b);
  b.connect(a);
}

// Until packets of both go by the ring.
void meet(Side& a, const Side::Card& b) {
  const uint64_t before = a.counters().shm.received;
  for (int i = 0; i < 20'000 && a.counters().shm.received < before + 2; ++i) {
    a.write(b, 64);
    ASSERT_TRUE(a.wait(true));
    ::usleep(50);
  }
  ASSERT_GE(a.counters().shm.received, before + 2);
}

// The same in another process, which makes no call once it is connected.
class Child {
 public:
  explicit Child(uint8_t path_mtu = 3) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) run(sockets[1], path_mtu);
    ::close(sockets[1]);
    socket_ = os::Fd(sockets[0]);
    has_card_ = ::read(socket_.get(), &card, sizeof card) == sizeof card;
  }
  ~Child() { end(); }
  bool connect(Side& to) {
    const Side::Card own = to.card();
    to.connect(card);
    char done = 0;
    return has_card_ && ::write(socket_.get(), &own, sizeof own) == sizeof own &&
           ::read(socket_.get(), &done, 1) == 1;
  }
  // SIGSTOP has stopped all threads when it returns.
  void signal(int number) const {
    ::kill(pid_, number);
    if (number == SIGSTOP) ::waitpid(pid_, nullptr, WUNTRACED);
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  Side::Card card;

 private:
  [[noreturn]] static void run(int socket, uint8_t path_mtu) {
    Side side(local);
    side.path_mtu = path_mtu;
    const Side::Card own = side.card();
    Side::Card other;
    if (::write(socket, &own, sizeof own) == sizeof own &&
        ::read(socket, &other, sizeof other) == sizeof other) {
      side.connect(other);
      (void)!::write(socket, "", 1);
    }
    while (::read(socket, &other, 1) > 0) {
    }
    ::_exit(0);
  }

  pid_t pid_ = -1;
  os::Fd socket_;
  bool has_card_ = false;
};

TEST(RoceShm, DevicesOfOneProcessMeet) {
  Side a(local), b(local);
  ASSERT_TRUE(a.device && b.device);
  join(a, b);
  meet(a, b.card());
  const DeviceCounters before = a.counters();
  a.memory[9999] = std::byte{42};
  a.write(b, 10'000);
  ASSERT_TRUE(a.wait(true));
  EXPECT_EQ(b.at(9999), std::byte{42});
  const DeviceCounters after = a.counters();
  EXPECT_EQ(after.sent_by_udp, before.sent_by_udp);
  EXPECT_GE(after.shm.sent, before.shm.sent + 3);
  EXPECT_GT(b.counters().shm.received, 0U);
}

// A queue pair has the MTU of its network card; what goes by a ring need not.
TEST(RoceShm, LongMessagesGoInAggregates) {
  Side a(local), b(local);
  ASSERT_TRUE(a.device && b.device);
  join(a, b);
  meet(a, b.card());
  ASSERT_EQ(a.qp->attributes.mtu_bytes(), 1024U);
  const uint64_t before = a.counters().shm.sent;
  const uint32_t psn = a.qp->requester.next;
  for (size_t i = 0; i < 65'536; ++i) a.memory[i] = static_cast<std::byte>(i * 7);
  a.write(b, 65'536);
  ASSERT_TRUE(a.wait(true));
  EXPECT_EQ(psn_diff(a.qp->requester.next, psn), 64);
  EXPECT_LE(a.counters().shm.sent - before, 24U);
  EXPECT_GE(a.packets().aggregates, 14U);
  const std::scoped_lock guard(b.device->lock());
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + 65'536, b.memory.begin()));
}

// A capture is of packets as a network card would send them.
TEST(RoceShm, NoAggregatesWhereSomebodyCaptures) {
  std::string folder = ::testing::TempDir() + "weft-aggregate-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/capture";  // each process and device adds its number
  for (const bool sender : {false, true}) {
    ASSERT_EQ(::setenv("WEFT_PCAP", path.c_str(), 1), 0);
    std::optional<Side> one(local);
    ASSERT_EQ(::unsetenv("WEFT_PCAP"), 0);
    Side other(local);
    ASSERT_TRUE(one->device && other.device);
    join(*one, other);
    Side& a = sender ? *one : other;
    Side& b = sender ? other : *one;
    meet(a, b.card());
    a.write(b, 65'536);
    ASSERT_TRUE(a.wait(true));
    EXPECT_EQ(a.packets().aggregates, 0U);
    EXPECT_GE(b.counters().shm.received, 64U);
  }
  std::filesystem::remove_all(folder);
}

TEST(RoceShm, ADeviceMeetsItself) {
  Side a(local);
  ASSERT_TRUE(a.device);
  a.connect(a);
  meet(a, a.card());
}

TEST(RoceShm, NothingIsSentAgainWhereThePathChanges) {
  for (int round = 0; round < 10; ++round) {
    Side a(local), b(local);
    ASSERT_TRUE(a.device && b.device);
    join(a, b);
    // Both directions, and always something under way.
    for (int i = 0; i < 200; ++i) {
      for (int k = 0; k < 16; ++k) a.write(b, 3000);
      for (int k = 0; k < 16; ++k) b.write(a, 3000);
      for (int k = 0; k < 16; ++k) ASSERT_TRUE(a.wait(true) && b.wait(true));
    }
    EXPECT_GT(a.counters().shm.sent, 0U);
    EXPECT_GT(b.counters().shm.sent, 0U);
    EXPECT_EQ(a.packets().gaps + b.packets().gaps, 0U);
  }
}

// A queue pair of UC that streams from its first request on would lose what the peer's socket has no room for.
TEST(RoceShm, PeersOfQueuePairsAreGreetedBeforeTheFirstPacket) {
  Side a(local, false), b(local, false);
  ASSERT_TRUE(a.device && b.device);
  join(a, b);
  for (Side* side : {&a, &b}) {
    AddressVector peer;
    peer.destination = (side == &a ? b : a).card().gid;
    side->device->expect(peer);
    side->device->expect(peer);
  }
  for (int i = 0; i < 10; ++i, ::usleep(1'500)) (void)(a.device->poll() + b.device->poll());
  for (int i = 0; i < 16; ++i) a.write(b, 64);
  EXPECT_TRUE(comes_true([&] {
    (void)(a.device->poll() + b.device->poll());
    return a.qp->requester.oldest == a.qp->requester.next;
  }));
  EXPECT_EQ(a.counters().sent_by_udp + b.counters().sent_by_udp, 0U);
  EXPECT_GE(a.counters().shm.sent, 16U);
}

// A list of requests may find a ring between two of them, when the first ones still wait to leave by UDP together.
TEST(RoceShm, ARingDoesNotOvertakeWhatWaitsForUdp) {
  Side a(local, false), b(local, false);
  ASSERT_TRUE(a.device && b.device);
  join(a, b);
  const auto poll = [](Side& side, int rounds) {
    for (; rounds > 0; --rounds, ::usleep(500)) (void)side.device->poll();
  };
  const auto post = [&] {
    const Element from{reinterpret_cast<uint64_t>(a.memory.data()), 64, a.region->key};
    SendRequest q;
    q.opcode = SendOpcode::Write;
    q.flags = signaled;
    q.elements = {&from, 1};
    q.remote_address = b.card().address;
    q.remote_key = b.region->key;
    ASSERT_EQ(a.device->adapter().post_send(*a.qp, q, os::monotonic_ns()), 0);
  };
  a.write(b, 64);
  poll(a, 10);  // sends a Hello
  post();
  poll(b, 10);  // takes the ring
  post();
  EXPECT_EQ(a.counters().shm.sent, 1U);  // the one before was sent by UDP, though nobody said posted()
  poll(b, 10);
  a.device->posted();
  poll(b, 10);
  EXPECT_EQ(b.packets().gaps, 0U);
  std::array<Completion, 4> done;
  size_t count = 0;
  EXPECT_TRUE(comes_true([&] {
    poll(a, 1);
    poll(b, 1);
    const std::scoped_lock guard(a.device->lock());
    count += static_cast<size_t>(std::max(0, a.cq->poll(done)));
    return count == 3;
  }));
  a.write(b, 64);
  EXPECT_GT(a.counters().shm.sent, 0U);
}

TEST(RoceShm, NotWhereItIsSwitchedOff) {
  Side a(local), b(local, true, false);
  ASSERT_TRUE(a.device && b.device);
  join(a, b);
  for (int i = 0; i < 100; ++i) {
    a.write(b, 64);
    ASSERT_TRUE(a.wait(true));
    ::usleep(100);
  }
  EXPECT_EQ(a.counters().shm.sent + b.counters().shm.sent, 0U);
  EXPECT_GE(a.counters().sent_by_udp, 100U);
}

TEST(RoceShm, ATargetThatSleepsIsWoken) {
  Side a(local), b(local);
  ASSERT_TRUE(a.device && b.device);
  join(a, b);
  meet(a, b.card());
  for (int i = 0; i < 20; ++i) {
    ::usleep(10'000);  // both threads are asleep
    const uint64_t before = b.counters().shm.received;
    a.write(b, 64);
    ASSERT_TRUE(a.wait(false));
    EXPECT_GT(b.counters().shm.received, before);
  }
}

TEST(RoceShm, ProcessesMeet) {
  Child child;
  Side a(local);
  ASSERT_TRUE(a.device && child.connect(a));
  meet(a, child.card);
  for (int i = 0; i < 100; ++i) {
    a.write(child.card, 50'000);
    ASSERT_TRUE(a.wait(true));
  }
  EXPECT_EQ(a.counters().shm.lost, 0U);
}

TEST(RoceShm, AKilledPeerLeavesNothingAndOthersGoOn) {
  Child child;
  Side a(local), b(local), c(local);
  ASSERT_TRUE(a.device && child.connect(a));
  join(b, c);
  meet(a, child.card);
  for (int i = 0; i < 8; ++i) a.write(child.card, 1 << 20);
  child.end();
  const uint64_t udp = a.counters().sent_by_udp;
  Completion completion;
  ASSERT_TRUE(comes_true([&] {
    const std::scoped_lock guard(a.device->lock());
    (void)a.device->poll();
    return a.cq->poll({&completion, 1}) == 1 && completion.status != Status::Success;
  }));
  EXPECT_EQ(completion.status, Status::RetryExceeded);
  EXPECT_GT(a.counters().sent_by_udp, udp);  // its ring is gone
  meet(b, c.card());
}

TEST(RoceShm, AStoppedPeerDoesNotBlockOthers) {
  constexpr uint8_t mtu_4096 = 5;  // each packet has a place in the ring
  Child child(mtu_4096);
  Side a(local), b(local);
  a.timeout = 17;  // its retries outlast the test
  a.path_mtu = b.path_mtu = mtu_4096;
  ASSERT_TRUE(a.device && b.device && child.connect(a));
  // A second queue pair of the same device, to b.
  QueuePair* const first = a.qp;
  {
    const std::scoped_lock guard(a.device->lock());
    QueuePairRequest request;
    request.pd = 1;
    request.send_cq = request.receive_cq = a.cq;
    request.capacities = {64, 64, 2, 2, 64};
    a.qp = *a.device->adapter().create_qp(request);
  }
  join(a, b);
  QueuePair* const second = a.qp;
  meet(a, b.card());
  a.qp = first;
  const uint64_t before = a.counters().shm.sent;
  ASSERT_TRUE(comes_true([&] {
    a.write(child.card, 64);
    return a.wait(true) && a.counters().shm.sent > before + 4;
  }));
  child.signal(SIGSTOP);
  a.write(child.card, 1 << 20);
  a.qp = second;
  ASSERT_TRUE(comes_true([&] {
    {
      const std::scoped_lock guard(a.device->lock());
      (void)a.device->poll();
    }
    return a.counters().shm.lost > 0;
  }));
  const uint64_t begin = os::monotonic_ns();
  for (int i = 0; i < 100; ++i) {
    a.write(b, 64);
    ASSERT_TRUE(a.wait(true));
  }
  EXPECT_LT(os::monotonic_ns() - begin, uint64_t{5'000'000'000});
  child.signal(SIGCONT);
  EXPECT_TRUE(a.wait(true));  // what was lost is sent again
}

// RC repeats what a full ring loses, so a device that sends nothing else waits for a stopped process for 10 ms, not 100.
TEST(RoceShm, AStoppedPeerHoldsUpReliableQueuePairsShortly) {
  constexpr uint8_t mtu_4096 = 5;  // one window fills the ring
  Child child(mtu_4096);
  Side a(local, false);
  a.timeout = 17;
  a.path_mtu = mtu_4096;
  ASSERT_TRUE(a.device && child.connect(a));
  const uint64_t before = a.counters().shm.sent;
  ASSERT_TRUE(comes_true([&] {
    a.write(child.card, 64);
    return a.wait(true) && a.counters().shm.sent > before + 4;
  }));
  // One window fills the ring; two do not fit.
  QueuePair* const first = a.qp;
  {
    const std::scoped_lock guard(a.device->lock());
    QueuePairRequest request;
    request.pd = 1;
    request.send_cq = request.receive_cq = a.cq;
    request.capacities = {64, 64, 2, 2, 64};
    a.qp = *a.device->adapter().create_qp(request);
  }
  a.connect(child.card);
  child.signal(SIGSTOP);
  a.write(child.card, 1 << 20);
  uint64_t last = os::monotonic_ns();
  uint64_t held_up = 0;  // without the time in which others had the processor
  a.qp = first;
  a.write(child.card, 1 << 20);
  EXPECT_TRUE(comes_true([&] {
    const uint64_t now = os::monotonic_ns();
    held_up += std::min(now - std::exchange(last, now), uint64_t{5'000'000});
    const std::scoped_lock guard(a.device->lock());
    (void)a.device->poll();
    return a.device->counters().shm.lost > 0;
  }));
  EXPECT_LT(held_up, uint64_t{100'000'000});
  child.signal(SIGCONT);
}

// What RC says of losses is repeated as well.
TEST(RoceShm, SackBitmapsWaitForAFullRingAsLongAsReliableQueuePairs) {
  struct Nowhere final : PacketOutput {
    bool send(const AddressVector&, const iovec*, size_t) noexcept override { return true; }
  } nowhere;
  testing::Counting events;
  Adapter adapter(nowhere, events, [](void* to, size_t bytes) { return os::random_bytes(to, bytes); });
  ShmPort a(adapter), b(adapter);
  const auto here = *os::SocketAddress::from_text("127.0.0.1:1");
  const auto there = *os::SocketAddress::from_text("127.0.0.1:2");
  ASSERT_TRUE(a.open(here, nullptr) && b.open(there, nullptr));
  const Gid to = *gid_with_port(there);
  std::array<std::byte, 20> packet{std::byte{wire::roce::opcode_sack}};
  const iovec part{packet.data(), packet.size()};
  a.expect(to, os::monotonic_ns());
  b.run_housekeeping(os::monotonic_ns());
  for (size_t i = 0; i < shm_slots; ++i) ASSERT_EQ(a.send(to, &part, 1), ShmPort::Sent::Taken);
  const uint64_t begin = os::monotonic_ns();
  while (a.send(to, &part, 1) == ShmPort::Sent::NoRoom && os::monotonic_ns() - begin < 1'000'000'000)
    ::usleep(100);
  EXPECT_EQ(a.counters().lost, 1U);
  EXPECT_LT(os::monotonic_ns() - begin, uint64_t{90'000'000});
}

// Once, since such peers go by UDP and nothing else shows it.
TEST(RoceShm, AGreetingWithoutItsDescriptorIsNoted) {
  struct Nowhere final : PacketOutput {
    bool send(const AddressVector&, const iovec*, size_t) noexcept override { return true; }
  } nowhere;
  testing::Counting events;
  Adapter adapter(nowhere, events, [](void* to, size_t bytes) { return os::random_bytes(to, bytes); });
  ShmPort port(adapter);
  std::vector<std::string> lines;
  packet::Audience audience;
  audience.noted = &lines;
  audience.note = [](const void* who, const char* line) {
    static_cast<std::vector<std::string>*>(const_cast<void*>(who))->emplace_back(line);
  };
  const auto here = *os::SocketAddress::from_text("127.0.0.1:1");
  ASSERT_TRUE(port.open(here, nullptr, audience));
  for (size_t i = 0; i < 2; ++i) {
    int error = 0;
    const os::Fd connection = os::connect_to(ShmPort::name_of(*gid_with_port(here)), error);
    ASSERT_TRUE(connection) << error;
    const ShmHello hello;
    ASSERT_EQ(os::send_datagram(connection, {}, std::as_bytes(std::span(&hello, 1)), {}), 0);
    const uint64_t until = os::monotonic_ns() + 2'000'000'000;
    while (port.counters().refused <= i && os::monotonic_ns() < until)
      port.run_housekeeping(os::monotonic_ns());
  }
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("SCM_RIGHTS"), std::string::npos) << lines[0];
  EXPECT_EQ(port.counters().refused, 2U);
}

// A name that nobody had may have an owner when the next queue pair wants it.
TEST(RoceShm, AnAbsentPeerIsGreetedAgainForTheNextQueuePair) {
  Side a(local, false);
  ASSERT_TRUE(a.device);
  DeviceSettings settings = Side::settings_of(local, false, true);
  AddressVector peer;
  {
    Side before(settings, 0);
    ASSERT_TRUE(before.device);
    settings.port = before.device->port_of(0);
    peer.destination = before.device->gid(0);
  }
  a.device->expect(peer);
  Side b(settings, 0);
  ASSERT_TRUE(b.device);
  join(a, b);
  a.device->expect(peer);
  for (int i = 0; i < 10; ++i, ::usleep(1'500)) (void)(a.device->poll() + b.device->poll());
  a.write(b, 64);
  EXPECT_EQ(a.counters().shm.sent, 1U);
  EXPECT_EQ(a.counters().sent_by_udp, 0U);
}

// The ring to a device that has ended is of no use for the one that has its name now.
TEST(RoceShm, APeerThatHasEndedIsGreetedAgainForTheNextQueuePair) {
  Side a(local, false);
  ASSERT_TRUE(a.device);
  DeviceSettings settings = Side::settings_of(local, false, true);
  std::optional<Side> b;
  b.emplace(settings, 0);
  ASSERT_TRUE(b->device);
  settings.port = b->device->port_of(0);
  AddressVector peer;
  peer.destination = b->device->gid(0);
  const auto turn = [&] {
    for (int i = 0; i < 10; ++i, ::usleep(1'500)) (void)(a.device->poll() + b->device->poll());
  };
  join(a, *b);
  a.device->expect(peer);
  turn();
  a.write(*b, 64);
  EXPECT_EQ(a.counters().shm.sent, 1U);
  b.reset();
  b.emplace(settings, 0);
  ASSERT_TRUE(b->device);
  {
    const std::scoped_lock guard(a.device->lock());
    Attributes reset;
    reset.state = QpState::Reset;
    ASSERT_TRUE(a.device->adapter().modify(*a.qp, reset, attr_state, a.device->now()));
  }
  join(a, *b);
  a.device->expect(peer);
  for (int i = 0; i < 10; ++i, ::usleep(1'500)) (void)b->device->poll();
  a.write(*b, 64);
  for (int i = 0; i < 10; ++i, ::usleep(1'500)) (void)b->device->poll();
  EXPECT_EQ(b->packets().received, 1U);
}

TEST(RoceShm, APlaceThatIsTakenMeansUdp) {
  Side a(local);
  ASSERT_TRUE(a.device);
  EXPECT_FALSE(os::listen_at(ShmPort::name_of(a.device->gid(0))));
  int error = 0;
  EXPECT_TRUE(os::connect_to(ShmPort::name_of(a.device->gid(0)), error));
}

// Who has no descriptor for a connection does not ask for it again and again.
TEST(RoceShm, AThreadSleepsWhileThereAreNoDescriptors) {
  Side a(local), b(local);
  ASSERT_TRUE(a.device && b.device);
  const std::string name = ShmPort::name_of(a.device->gid(0));
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{5, usual.rlim_max};  // what is open stays
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    int error = 0;
    (void)::setrlimit(RLIMIT_NOFILE, &usual);
    const os::Fd connection = os::connect_to(name, error);
    if (!connection) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  ::usleep(100'000);
  const uint64_t before = a.counters().wakes;
  ::usleep(300'000);
  EXPECT_LT(a.counters().wakes - before, 100U);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  join(a, b);
  meet(b, a.card());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// Sends a Hello as a device does, by hand.
struct Stranger {
  explicit Stranger(const Side& to, size_t bytes = sizeof(ShmMemory), uint32_t version = ShmHello{}.version) {
    int error = 0;
    connection = os::connect_to(ShmPort::name_of(to.device->gid(0)), error);
    auto made = os::create_memory("stranger", bytes);
    auto map = os::map_memory(*made, 0, sizeof(ShmMemory));
    file = std::move(*made);
    memory = std::move(*map);
    hello.version = version;
    hello.source = *gid_with_port(*os::SocketAddress::from_text("127.0.0.1:9"));
    hello.to = to.device->gid(0);
  }
  void send_hello() { send_hello(file.get()); }
  void send_hello(int fd) const {
    const std::array<int, 1> fds{fd};
    EXPECT_EQ(os::send_datagram(connection, {}, std::as_bytes(std::span(&hello, 1)), fds), 0);
  }
  ShmMemory& ring() const { return *memory.as<ShmMemory>(); }
  bool is_cut_off() const {
    char byte = 0;
    return ::recv(connection.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  os::Fd connection;
  os::Fd file;
  os::Mapping memory;
  ShmHello hello;
};

TEST(RoceShm, GarbageInARingCutsItsPeerOffAndNobodyElse) {
  Side a(local), b(local);
  ASSERT_TRUE(a.device && b.device);
  join(a, b);
  meet(a, b.card());
  Stranger stranger(b);
  stranger.send_hello();
  ASSERT_TRUE(comes_true([&] { return stranger.ring().attached.load() == 1; }));
  // No queue pair knows of it, and a packet that is none is counted by the adapter.
  const uint64_t malformed = b.packets().malformed;
  ShmSender sender(stranger.ring());
  std::array<std::byte, 16> packet{std::byte{0xff}};
  const iovec part{packet.data(), packet.size()};
  ASSERT_EQ(sender.put(&part, 1, packet.size()), ShmSender::Put::Done);
  ASSERT_TRUE(comes_true([&] {
    (void)os::send_datagram(stranger.connection, {}, std::as_bytes(std::span("x", 1)), {});
    return b.packets().malformed > malformed;
  }));
  EXPECT_FALSE(stranger.is_cut_off());
  // A slot that is none ends it.
  stranger.ring().slots[1].bytes.store(UINT32_MAX);
  stranger.ring().slots[1].turn.store(1);
  (void)os::send_datagram(stranger.connection, {}, std::as_bytes(std::span("x", 1)), {});
  ASSERT_TRUE(comes_true([&] { return stranger.is_cut_off(); }));
  EXPECT_EQ(b.counters().shm.malformed, 1U);
  meet(a, b.card());
}

TEST(RoceShm, GreetingsThatAreNoneAreRefused) {
  Side a(local);
  ASSERT_TRUE(a.device);
  std::vector<std::unique_ptr<Stranger>> strangers;
  const auto add = [&](auto... more) -> Stranger& {
    strangers.push_back(std::make_unique<Stranger>(a, more...));
    return *strangers.back();
  };
  add(size_t{4096}).send_hello();  // too small
  add(sizeof(ShmMemory), ShmHello{}.version + 1).send_hello();
  Stranger& elsewhere = add();
  elsewhere.hello.to = elsewhere.hello.source;
  elsewhere.send_hello();
  Stranger& nameless = add();
  nameless.hello.source = standard_gid(*os::SocketAddress::from_text("127.0.0.1:9"));
  nameless.send_hello();
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  add().send_hello(pipe[0]);
  EXPECT_EQ(os::send_datagram(add().connection, {}, std::as_bytes(std::span("x", 1)), {}), 0);
  for (const auto& stranger : strangers) EXPECT_TRUE(comes_true([&] { return stranger->is_cut_off(); }));
  EXPECT_EQ(a.counters().shm.refused, strangers.size());
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(RoceShm, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Side a(local), b(local);
  ASSERT_TRUE(a.device && b.device);
  const std::string name = ShmPort::name_of(a.device->gid(0));
  const pid_t child = ::fork();
  if (child == 0) {
    int error = 0;
    if (::setuid(65534) != 0) ::_exit(2);
    const os::Fd connection = os::connect_to(name, error);
    char byte = 0;
    for (int i = 0; i < 10'000; ++i, ::usleep(1000))
      if (::recv(connection.get(), &byte, 1, MSG_DONTWAIT) == 0) ::_exit(0);
    ::_exit(1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(a.counters().shm.refused, 1U);
  join(a, b);
  meet(a, b.card());  // after a while it listens again
}

}  // namespace
}  // namespace weft::link::roce
