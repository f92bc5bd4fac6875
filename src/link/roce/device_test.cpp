// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two devices in one process: one-sided operations while the target makes no call, and who takes the packets.
#include "link/roce/device.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "link/roce/test_side.hpp"
#include "os/fd.hpp"

namespace weft::link::roce {
namespace {

using namespace proto::roce;
using testing::Counting;
using testing::Side;

TEST(RoceDevice, AWriteNeedsNoCallOfTheTargetNorOfTheInitiator) {
  Side a("127.0.0.1:0"), b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  a.memory[5999] = std::byte{42};
  a.write(b, 6000);
  EXPECT_TRUE(a.wait(false));
  EXPECT_EQ(b.at(5999), std::byte{42});
  EXPECT_GT(b.counters().packets_by_thread, 0U);
  EXPECT_GT(a.counters().packets_by_thread, 0U);
}

TEST(RoceDevice, SegmentedSendsHaveTheIcrcOfTheirPlace) {
  Side a("127.0.0.1:0"), b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  a.timeout = b.timeout = 18;  // 1 s each: other programs may keep the threads of the devices from their CPUs
  a.connect(b);
  b.connect(a);
  for (size_t i = 0; i < a.memory.size(); ++i) a.memory[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  for (int i = 0; i < 20; ++i) {
    a.write(b, 60'000 + static_cast<uint32_t>(i));
    ASSERT_TRUE(a.wait(true));
  }
  const std::scoped_lock guard(b.device->lock());
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data(), 60'019), 0);
  EXPECT_EQ(b.device->ports().counters().solved, 0U);
  EXPECT_EQ(b.device->ports().counters().wrong_icrc, 0U);
}

struct Faults {
  explicit Faults(const char* plan) { ::setenv("WEFT_PACKET_FAULTS", plan, 1); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
  ~Faults() { ::unsetenv("WEFT_PACKET_FAULTS"); }
};

// Devices say that their packets are capable of ECN; one in three is marked on the way, as by a router. The other side
// tells, and the writer slows down; without marks it is as fast as before.
TEST(RoceDevice, MarksOnTheWaySlowTheWriterDown) {
  std::optional<Faults> marks(std::in_place, "mark=30");
  Side a("127.0.0.1:0");
  marks.reset();
  Side b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  const auto is_limited = [&] {
    const std::scoped_lock guard(a.device->lock());
    return a.qp->congestion->is_paced();
  };
  bool was_limited = false;
  for (int i = 0; i < 200 && !was_limited; ++i) {
    a.write(b, 100'000);
    ASSERT_TRUE(a.wait(true));
    was_limited = is_limited();
  }
  EXPECT_TRUE(was_limited);
  EXPECT_GT(b.packets().marked, 0U);
  EXPECT_GT(b.packets().cnps_sent, 1U);
  EXPECT_GT(a.packets().cnps_received, 1U);
  EXPECT_EQ(a.packets().marked, 0U);  // nobody marks what b sends
  // A quiet while ends it.
  for (int i = 0; i < 1000 && is_limited(); ++i) {
    ::usleep(20'000);
    a.write(b, 1);
    ASSERT_TRUE(a.wait(true));
  }
  EXPECT_FALSE(is_limited());
}

// Packets that are lost between devices of Weft are repeated alone; with a device that does not want it all that
// follows is.
TEST(RoceDevice, LostPacketsAreRepeatedAloneBetweenDevicesOfWeft) {
  uint64_t again[2] = {};
  uint64_t timeouts = 0;
  for (const bool selects : {true, false}) {
    std::optional<Faults> faults(std::in_place, "loss=2,seed=3");
    DeviceSettings settings = Side::settings_of("127.0.0.1:0", true, true);
    settings.has_selective = selects;
    Side a(settings, 0);
    faults.reset();
    Side b("127.0.0.1:0");
    ASSERT_TRUE(a.device && b.device);
    a.timeout = 12;
    a.connect(b);
    b.connect(a);
    for (size_t i = 0; i < a.memory.size(); ++i) a.memory[i] = static_cast<std::byte>(i * 7 + (i >> 8));
    for (int i = 0; i < 20; ++i) {
      a.write(b, 500'000);
      ASSERT_TRUE(a.wait(true));
    }
    const AdapterCounters at = a.packets();
    EXPECT_GT(at.sent_again, 0U);
    EXPECT_EQ(at.repeated != 0, selects);
    EXPECT_EQ(b.packets().buffered != 0, selects);  // requests of the other one have no tags
    again[selects ? 1 : 0] = at.sent_again;
    if (selects) timeouts = at.timeouts;
    {
      const std::scoped_lock guard(a.device->lock());
      EXPECT_EQ(a.device->ports().counters().wrong_icrc, 0U);  // maps wait in a batch as others do
    }
    const std::scoped_lock guard(b.device->lock());
    EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data(), 500'000), 0);
  }
  // A machine that stalls has probes, so this is no exact number; after a timeout all is repeated.
  if (timeouts == 0) {
    EXPECT_LT(again[1] * 4, again[0]);
  }
}

TEST(RoceBatch, TakesPacketsOfOneSizeAndAShorterLast) {
  const os::SocketAddress from = *os::SocketAddress::from_text("127.0.0.1:1");
  const os::SocketAddress to = *os::SocketAddress::from_text("127.0.0.1:2");
  const os::SocketAddress other = *os::SocketAddress::from_text("127.0.0.1:3");
  std::vector<std::byte> head(12), payload(100);
  const iovec parts[] = {{head.data(), head.size()}, {payload.data(), payload.size()}};
  Batch batch;
  EXPECT_TRUE(batch.empty() && batch.takes(to, 116, 2));
  batch.add(from, to, parts, 2, 116);
  EXPECT_TRUE(batch.takes(to, 116, 2));
  EXPECT_FALSE(batch.takes(to, 117, 2));
  EXPECT_FALSE(batch.takes(other, 116, 2));
  EXPECT_FALSE(batch.takes(to, 116, Batch::parts_max - 3));
  batch.add(from, to, parts, 1, 16);
  EXPECT_TRUE(batch.is_full());  // the last one is shorter
  batch.keep();
  payload.assign(100, std::byte{1});
  ASSERT_EQ(batch.part_count(), 1U);
  EXPECT_EQ(batch.parts()[0].iov_len, 132U);
  EXPECT_EQ(static_cast<const std::byte*>(batch.parts()[0].iov_base)[20], std::byte{0});
  batch.clear();
  EXPECT_TRUE(batch.empty());
  for (size_t i = 0; batch.takes(to, 116, 2); ++i) batch.add(from, to, parts, 2, 116);
  EXPECT_EQ(batch.packet_count(), Batch::parts_max / 3);
}

TEST(RoceDevice, WithoutAThreadTheProgramMakesTheProgress) {
  Side a("127.0.0.1:0", false), b("127.0.0.1:0", false);
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  a.write(b, 100);
  Completion c;
  ::usleep(20'000);
  (void)a.device->poll();
  EXPECT_EQ(a.cq->poll({&c, 1}), 0);
  (void)b.device->poll();
  EXPECT_TRUE(a.wait(true));
  EXPECT_EQ(a.counters().packets_by_thread, 0U);
}

TEST(RoceDevice, TheThreadStepsAsideWhileTheProgramPolls) {
  Side a("127.0.0.1:0"), b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  // The target's thread works all the time, the initiator's has hardly anything to do. (Where other processes take the
  // processor from the program its thread comes forward, so not every round shows it.)
  bool is_aside = false;
  for (int round = 0; round < 20 && !is_aside; ++round) {
    const DeviceCounters before = a.counters();
    for (int i = 0; i < 500; ++i) {
      a.write(b, 64);
      ASSERT_TRUE(a.wait(true));
    }
    const DeviceCounters after = a.counters();
    is_aside = after.packets_by_thread - before.packets_by_thread <
               after.packets_by_program - before.packets_by_program;
  }
  EXPECT_TRUE(is_aside);
  // The program has stopped to poll, so the thread comes back.
  a.write(b, 64);
  EXPECT_TRUE(a.wait(false));
}

// Writes until both threads stand aside, and polls both sides for each write. If the target is polled only when the write has completed, its
// thread takes the packet and has no reason to stand aside. False: they did not within 10 s.
bool poll_until_aside(Side& a, Side& b) {
  const uint64_t end = os::monotonic_ns() + 10'000'000'000;
  for (bool are_aside = false; !are_aside;) {
    a.write(b, 64);
    for (bool is_complete = false; !is_complete;) {
      if (os::monotonic_ns() >= end) return false;
      are_aside = true;
      for (Side* const side : {&b, &a}) {
        const std::scoped_lock guard(side->device->lock());
        (void)side->device->poll();
        are_aside &= side->device->stands_aside();
      }
      Completion c;
      const std::scoped_lock guard(a.device->lock());
      is_complete = a.cq->poll({&c, 1}) == 1;
      if (is_complete && c.status != Status::Success) return false;
    }
  }
  return true;
}

// Polls until more than so many packets have come.
void poll_until_received(Side& side, uint64_t packets) {
  for (const uint64_t end = os::monotonic_ns() + 10'000'000'000;
       side.packets().received <= packets && os::monotonic_ns() < end;) {
    const std::scoped_lock guard(side.device->lock());
    (void)side.device->poll();
  }
}

// 2 s: longer than other processes take the processor from one that is to run. Only what nobody sends runs into it.
constexpr uint8_t timeout_of_what_hangs = 19;

// While the thread stands aside an acknowledgement waits for the next call; who never makes one has the thread.
TEST(RoceDevice, AcknowledgementsOfAProgramThatStopsPollingArrive) {
  Side a("127.0.0.1:0", true, false), b("127.0.0.1:0", true, false);
  ASSERT_TRUE(a.device && b.device);
  a.timeout = timeout_of_what_hangs;
  a.connect(b);
  b.connect(a);
  for (int i = 0; i < 300; ++i) {
    const uint64_t received = b.packets().received;
    a.write(b, 64);
    poll_until_received(b, received);  // and does nothing for the rest of the round
    ASSERT_TRUE(a.wait(true)) << i;
  }
  EXPECT_EQ(a.packets().timeouts, 0U);
}

// The thread may look as late as after check_ns_max, and the peer repeats what is not acknowledged in time.
TEST(RoceDevice, AcknowledgementsWaitOnlyWhereTimeoutsAreLong) {
  for (const uint8_t timeout : {uint8_t{14}, uint8_t{8}}) {
    Side a("127.0.0.1:0", true, false), b("127.0.0.1:0", true, false);
    ASSERT_TRUE(a.device && b.device);
    b.timeout = timeout;
    a.connect(b);
    b.connect(a);
    int waited = 0;
    // Where other processes take the processor from the program its thread acknowledges, so not every round shows it.
    for (int round = 0; round < (timeout == 14 ? 50 : 4) && waited == 0; ++round) {
      ASSERT_TRUE(poll_until_aside(a, b));
      const uint64_t received = b.packets().received;
      a.write(b, 64);
      for (bool has_come = false; !has_come;) {
        const std::scoped_lock guard(b.device->lock());
        (void)b.device->poll();
        has_come = b.device->adapter().counters().received != received;
        if (has_come && b.device->adapter().owes_acknowledgement_alone()) ++waited;
      }
      ASSERT_TRUE(a.wait(true)) << round;
    }
    EXPECT_EQ(waited != 0, timeout == 14) << waited;
  }
}

// From the third on they wait for a poll, which never comes.
TEST(RoceDevice, PostsInARowOfAProgramThatStopsPollingArrive) {
  Side a("127.0.0.1:0", true, false), b("127.0.0.1:0", true, false);
  ASSERT_TRUE(a.device && b.device);
  a.timeout = timeout_of_what_hangs;
  a.connect(b);
  b.connect(a);
  // Where other processes take the processor from the program its thread comes forward again and again: fewer rounds then.
  const uint64_t end = os::monotonic_ns() + 10'000'000'000;
  for (int round = 0; round < 50 && (round < 2 || os::monotonic_ns() < end); ++round) {
    ASSERT_TRUE(poll_until_aside(a, b));
    for (int i = 0; i < 10; ++i) a.write(b, 64, true);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(a.wait(false)) << round;
  }
  EXPECT_EQ(a.packets().timeouts, 0U);
}

// What was posted and waits is sent before its memory and its queue pair go.
TEST(RoceDevice, WhatWaitsLeavesBeforeItsQueuePairGoes) {
  Side a("127.0.0.1:0", true, false), b("127.0.0.1:0", true, false);
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  ASSERT_TRUE(poll_until_aside(a, b));
  const uint64_t received = b.packets().received;
  for (int i = 0; i < 10; ++i) a.write(b, 64, true);
  {
    const std::scoped_lock guard(a.device->lock());
    a.device->flush_deferred();
    a.device->adapter().destroy_qp(*a.qp);
    a.qp = nullptr;
  }
  poll_until_received(b, received + 9);
  EXPECT_EQ(b.packets().received, received + 10);
}

// Brings up a queue pair of UC on each side.
std::array<QueuePair*, 2> connect_unreliable(Side& a, Side& b, uint32_t requests) {
  std::array<QueuePair*, 2> pairs{};
  for (size_t i = 0; i < 2; ++i) {
    Side& side = i == 0 ? a : b;
    const std::scoped_lock guard(side.device->lock());
    QueuePairRequest request;
    request.type = QpType::Uc;
    request.pd = 1;
    request.send_cq = request.receive_cq = side.cq;
    request.capacities = {requests, 64, 1, 1, 64};
    pairs[i] = *side.device->adapter().create_qp(request);
  }
  for (size_t i = 0; i < 2; ++i) {
    Side& side = i == 0 ? a : b;
    const std::scoped_lock guard(side.device->lock());
    Attributes at;
    at.access = remote_write;
    at.path.destination = (i == 0 ? b : a).device->gid(0);
    at.destination = pairs[1 - i]->number;
    const auto step = [&](QpState state, uint32_t mask) {
      at.state = state;
      auto ok = side.device->adapter().modify(*pairs[i], at, mask | attr_state, side.device->now());
      ASSERT_TRUE(ok) << ok.error().why;
    };
    step(QpState::Init, attr_pkey_index | attr_port | attr_access);
    step(QpState::ReadyToReceive, attr_path | attr_path_mtu | attr_destination | attr_rq_psn);
    step(QpState::ReadyToSend, attr_sq_psn);
  }
  return pairs;
}

// Receives of 8 bytes each, one behind the other.
void post_receives(Side& side, QueuePair& qp, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::scoped_lock guard(side.device->lock());
    const Element to{reinterpret_cast<uint64_t>(side.memory.data()) + 8 * i, 8, side.region->key};
    ASSERT_EQ(side.device->adapter().post_receive(qp, {i, {&to, 1}}, side.device->now()), 0);
  }
}

// Under the lock of the device: the number as an inline SEND without a completion.
int send_number(Side& side, QueuePair& qp, uint64_t number) {
  const Element from{reinterpret_cast<uint64_t>(&number), 8, 0};
  SendRequest q;
  q.opcode = SendOpcode::Send;
  q.flags = inline_data;
  q.elements = {&from, 1};
  return side.device->adapter().post_send(qp, q, side.device->now());
}

// 1, 2, 3 ... have come into what post_receives() posted.
void expect_numbers(Side& side, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) ASSERT_TRUE(side.wait(true)) << i;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, side.memory.data() + 8 * i, 8);
    EXPECT_EQ(value, i + 1);
  }
}

// A UC request is complete as soon as it is sent, and its place in the ring free for the next one: here of four.
TEST(RoceDevice, RequestsThatAreCompleteWhenTheyAreSentDoNotWait) {
  Side a("127.0.0.1:0", true, false), b("127.0.0.1:0", true, false);
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  ASSERT_TRUE(poll_until_aside(a, b));
  const auto pairs = connect_unreliable(a, b, 4);
  constexpr uint64_t count = 12;
  ASSERT_NO_FATAL_FAILURE(post_receives(b, *pairs[1], count));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t value = i + 1;
    const std::scoped_lock guard(a.device->lock());
    ASSERT_EQ(send_number(a, *pairs[0], value), 0) << i;
    a.device->posted(a.device->now());
  }
  expect_numbers(b, count);
}

// A list that is longer than the queue: each request is complete when it is sent, and its place is used again.
TEST(RoceDevice, AListOfUnreliableInlineRequestsKeepsItsBytes) {
  Side a("127.0.0.1:0", false, false), b("127.0.0.1:0", false, false);
  ASSERT_TRUE(a.device && b.device);
  const auto pairs = connect_unreliable(a, b, 4);
  constexpr uint64_t count = 12;
  ASSERT_NO_FATAL_FAILURE(post_receives(b, *pairs[1], count));
  {
    const std::scoped_lock guard(a.device->lock());
    for (uint64_t value = 1; value <= count; ++value) ASSERT_EQ(send_number(a, *pairs[0], value), 0);
    a.device->posted(a.device->now());
  }
  expect_numbers(b, count);
}

// A program that posts much more than its peer's socket has room for, and a peer that looks at it between: nothing is lost.
TEST(RoceDevice, UnreliableRequestsDoNotOverflowTheSocketOfTheirPeer) {
  Side a("127.0.0.1:0", false, false), b("127.0.0.1:0", false, false);
  ASSERT_TRUE(a.device && b.device);
  const auto pairs = connect_unreliable(a, b, 128);
  constexpr uint32_t count = 128, bytes = 512 << 10;
  for (uint32_t i = 0; i < count; ++i) {
    const Element from{reinterpret_cast<uint64_t>(a.memory.data()), bytes, a.region->key};
    SendRequest q;
    q.opcode = SendOpcode::Write;
    q.flags = signaled;
    q.elements = {&from, 1};
    q.remote_address = reinterpret_cast<uint64_t>(b.memory.data());
    q.remote_key = b.region->key;
    const std::scoped_lock guard(a.device->lock());
    ASSERT_EQ(a.device->adapter().post_send(*pairs[0], q, a.device->now()), 0);
    a.device->posted();
    (void)a.device->poll();
  }
  uint32_t done = 0;
  for (const uint64_t end = os::monotonic_ns() + 20'000'000'000; os::monotonic_ns() < end && done < count;) {
    for (Side* side : {&b, &a}) {
      const std::scoped_lock guard(side->device->lock());
      (void)side->device->poll();
    }
    Completion c;
    const std::scoped_lock guard(a.device->lock());
    while (a.cq->poll({&c, 1}) == 1) ++done;
  }
  EXPECT_EQ(done, count);
  for (int i = 0; i < 1000 && pairs[1]->received < pairs[0]->sent; ++i) {
    const std::scoped_lock guard(b.device->lock());
    (void)b.device->poll();
  }
  EXPECT_EQ(pairs[1]->received, pairs[0]->sent);
  EXPECT_EQ(pairs[1]->gaps, 0U);
  EXPECT_EQ(pairs[0]->timeouts, 0U);
}

TEST(RoceDevice, AnArmedQueueIsToldByTheThread) {
  Side a("127.0.0.1:0"), b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  {
    const std::scoped_lock guard(a.device->lock());
    a.device->expect_sleep(*a.cq, false);
  }
  a.write(b, 64);
  for (int i = 0; i < 10'000 && a.events.completions.load() == 0; ++i) ::usleep(100);
  EXPECT_EQ(a.events.completions.load(), 1);
  EXPECT_TRUE(a.wait(false));
}

TEST(RoceDevice, ATimerRunsWhileNobodyCalls) {
  Side a("127.0.0.1:0"), b("127.0.0.1:0");
  ASSERT_TRUE(a.device && b.device);
  a.connect(b);
  b.connect(a);
  b.device.reset();  // the peer is gone: after its retries the write fails
  a.write(a, 64);
  Completion c;
  int taken = 0;
  for (int i = 0; i < 10'000 && taken == 0; ++i) {
    ::usleep(1000);
    const std::scoped_lock guard(a.device->lock());
    taken = a.cq->poll({&c, 1});
  }
  ASSERT_EQ(taken, 1);
  EXPECT_EQ(c.status, Status::RetryExceeded);
}

TEST(RoceDevice, AddressesThatItHas) {
  Counting events;
  DeviceSettings settings;
  EXPECT_FALSE(Device::open(settings, events));
  settings.ipv4 = *os::SocketAddress::from_text("127.0.0.1:0");
  auto one = Device::open(settings, events);
  ASSERT_TRUE(one);
  EXPECT_NE((*one)->port_of(0), 0);
  EXPECT_EQ((*one)->gid(3), Gid{});
  auto two = Device::open(settings, events);
  ASSERT_TRUE(two);
  EXPECT_NE((*one)->gid(0), (*two)->gid(0));
  // Port 4791 has one owner at most.
  EXPECT_TRUE((*one)->gid(1) == Gid{} || (*two)->gid(1) == Gid{});
}

// Over IPv6 port 4791 is the only one: a second process hears that another one has it.
TEST(RoceDevice, OverIPv6TheReasonIsThatOfTheSocket) {
  Counting events;
  DeviceSettings settings;
  settings.ipv6 = *os::SocketAddress::from_text("[::1]:0");
  settings.has_standard = true;
  const os::Fd owner(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_port = htons(standard_port);
  at.sin6_addr = in6addr_loopback;
  if (!owner ||
      (::bind(owner.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 && errno != EADDRINUSE))
    GTEST_SKIP() << "no IPv6 here";
  const auto refused = Device::open(settings, events);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EADDRINUSE) << refused.error().why;
}

}  // namespace
}  // namespace weft::link::roce
