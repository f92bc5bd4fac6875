// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packet sockets at the ends of a veth in a network namespace of the test's own, with a ring and without; a ring in
// memory whose slots say impossible things.
#include "os/packet_socket.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/if_packet.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace weft::os {
namespace {

bool run(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

// What is sent before the kernel has noticed that the wire has two ends is lost.
bool await_up() {
  for (int tries = 0; tries < 500; ++tries) {
    if (run("test $(ip -o link show | grep -c 'wire.* state UP') = 2")) return true;
    ::usleep(10'000);
  }
  return false;
}

// The namespace ends with this process.
bool enter_namespace() {
  static const bool entered = [] {
    const bool is_root = ::geteuid() == 0;
    return ::unshare(is_root ? CLONE_NEWNET : CLONE_NEWNET | CLONE_NEWUSER) == 0;
  }();
  if (!entered) return false;
  (void)run("ip link del wire0");
  return run("ip link add wire0 type veth peer name wire1") && run("ip link set wire0 addrgenmode none up") &&
         run("ip link set wire1 addrgenmode none up") && await_up();
}

using Bytes = std::vector<std::byte>;

// To everybody, of a type for experiments (IEEE 802), with a number behind it.
Bytes frame_of(uint32_t number, size_t bytes, bool has_tag = false) {
  Bytes frame(bytes, std::byte{0x5a});
  std::fill_n(frame.begin(), 6, std::byte{0xff});
  std::fill_n(frame.begin() + 6, 6, std::byte{2});
  size_t at = 12;
  const auto put = [&](uint8_t value) { frame[at++] = std::byte{value}; };
  if (has_tag)
    for (const uint8_t value : {0x81, 0x00, 0x60, 0x07}) put(value);
  put(0x88), put(0xb5);
  std::memcpy(&frame[at], &number, sizeof number);
  return frame;
}

bool send(PacketSocket& socket, const Bytes& frame) {
  const iovec part{const_cast<std::byte*>(frame.data()), frame.size()};
  return socket.send(&part, 1);
}

struct Seen {
  Bytes bytes;
  uint16_t vlan = 0;
  uint32_t number() const {
    uint32_t number = 0;
    std::memcpy(&number, &bytes[14], sizeof number);
    return number;
  }
};

// Until so many frames of the type above have come, or 5 s are over: the kernel may deliver them later. `empty` counts frames
// without bytes.
std::vector<Seen> take(PacketSocket& socket, size_t count, int* empty = nullptr) {
  std::vector<Seen> all;
  const auto show = [&](const PacketFrame& frame) {
    if (frame.bytes.empty() && empty != nullptr) ++*empty;
    if (frame.bytes.size() < 18 || frame.bytes[12] != std::byte{0x88} || frame.bytes[13] != std::byte{0xb5})
      return;
    all.push_back({{frame.bytes.begin(), frame.bytes.end()}, frame.vlan});
  };
  for (int tries = 0; tries < 5000; ++tries) {
    while (socket.receive(show) != 0) {
    }
    if (all.size() >= count) break;
    ::usleep(1000);
  }
  return all;
}

// Until the kernel has dropped so many.
bool await_lost(PacketSocket& socket, uint64_t count) {
  for (int tries = 0; tries < 5000 && socket.lost() < count; ++tries) ::usleep(1000);
  return socket.lost() == count;
}

bool is_readable(const PacketSocket& socket, int timeout_ms = 0) {
  pollfd one{socket.fd(), POLLIN, 0};
  return ::poll(&one, 1, timeout_ms) == 1;
}

constexpr size_t small_ring_bytes = size_t{64} << 10;  // one block

class PacketSockets : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!enter_namespace()) GTEST_SKIP() << "no network namespace with a veth here";
    open(size_t{1} << 20);
  }
  void open(size_t ring_bytes) {
    here.close();
    here.set_ring_bytes(has_ring() ? ring_bytes : 0);
    const auto opened = here.open("wire0");
    ASSERT_TRUE(opened) << opened.error().why;
    ASSERT_EQ(here.has_ring(), has_ring()) << here.why_no_ring();
    if (there.fd() < 0) {
      ASSERT_TRUE(there.open("wire1"));
    }
    (void)take(here, 0);
  }
  bool has_ring() const { return GetParam(); }

  PacketSocket here;
  PacketSocket there;
};
INSTANTIATE_TEST_SUITE_P(Ways, PacketSockets, testing::Bool(),
                         [](const auto& test) { return test.param ? "ring" : "calls"; });

TEST_P(PacketSockets, FramesArriveAsTheyWereSent) {
  for (const size_t bytes : {size_t{60}, size_t{61}, size_t{512}, size_t{513}, size_t{1514}}) {
    const Bytes frame = frame_of(7, bytes);
    ASSERT_TRUE(send(there, frame));
    const auto seen = take(here, 1);
    ASSERT_EQ(seen.size(), 1U) << bytes;
    EXPECT_EQ(seen[0].bytes, frame);
    EXPECT_EQ(seen[0].vlan, 0);
  }
  EXPECT_EQ(here.lost() + here.cut(), 0U);
}

TEST_P(PacketSockets, OwnFramesAreNotSeen) {
  ASSERT_TRUE(send(here, frame_of(1, 60)));
  EXPECT_EQ(take(there, 1).size(), 1U);
  EXPECT_TRUE(take(here, 0).empty());
}

TEST_P(PacketSockets, ATagThatTheKernelTookOutIsShownBeside) {
  ASSERT_TRUE(send(there, frame_of(5, 100, true)));
  const auto seen = take(here, 1);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].vlan, 0x6007);
  EXPECT_EQ(seen[0].bytes.size(), 96U);
  EXPECT_EQ(seen[0].number(), 5U);
}

TEST_P(PacketSockets, WhatIsLongerThanTheMtuIsDroppedAndCounted) {
  ASSERT_TRUE(run("ip link set wire0 mtu 4000") && run("ip link set wire1 mtu 4000"));
  ASSERT_TRUE(send(there, frame_of(1, 3900)) && send(there, frame_of(2, 200)));
  int empty = 0;
  const auto seen = take(here, 1, &empty);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].number(), 2U);
  EXPECT_EQ(empty, 1);
  EXPECT_EQ(here.cut(), 1U);
}

TEST_P(PacketSockets, TrainsArriveInOrder) {
  constexpr uint32_t count = 200;
  std::array<std::byte, 18> head;
  std::array<std::byte, 700> payload;
  payload.fill(std::byte{0x11});
  for (uint32_t i = 0; i < count; ++i) {
    std::memcpy(head.data(), frame_of(i, head.size()).data(), head.size());  // copied by add()
    const iovec parts[] = {{head.data(), head.size()}, {payload.data(), 600}, {payload.data() + 600, 100}};
    ASSERT_TRUE(there.add(parts, 3));
  }
  EXPECT_EQ(there.flush(), count);
  EXPECT_EQ(there.flush(), 0u);
  const auto seen = take(here, count);
  ASSERT_EQ(seen.size(), count);
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_EQ(seen[i].number(), i);
    EXPECT_EQ(seen[i].bytes.size(), head.size() + payload.size());
    EXPECT_EQ(seen[i].bytes.back(), std::byte{0x11});
  }
}

TEST_P(PacketSockets, TheDescriptorIsReadableWhileFramesAreThere) {
  here.arm();
  EXPECT_FALSE(is_readable(here));
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(send(there, frame_of(i, 60)));
  EXPECT_TRUE(is_readable(here, 5000));
  EXPECT_EQ(take(here, 3).size(), 3U);
  EXPECT_FALSE(is_readable(here));
}

TEST_P(PacketSockets, AnInterfaceThatGoesDownDoesNotKeepTheDescriptorReadable) {
  ASSERT_TRUE(run("ip link set wire0 down"));
  EXPECT_TRUE(is_readable(here));
  here.arm();
  (void)take(here, 0);
  EXPECT_FALSE(is_readable(here));
  ASSERT_TRUE(run("ip link set wire0 up") && await_up());
  ASSERT_TRUE(send(there, frame_of(9, 60)));
  EXPECT_EQ(take(here, 1).size(), 1U);
}

TEST_P(PacketSockets, ClosingWithFramesInside) {
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(send(there, frame_of(i, 60)));
  EXPECT_TRUE(is_readable(here, 5000));
  here.close();
  here.close();
  EXPECT_EQ(here.receive([](const PacketFrame&) { FAIL(); }), 0U);
  ASSERT_NO_FATAL_FAILURE(open(size_t{1} << 20));
  ASSERT_TRUE(send(there, frame_of(11, 60)));
  auto seen = take(here, 1);
  while (!seen.empty() && seen.back().number() != 11) seen = take(here, 1);  // those before may be late
  EXPECT_FALSE(seen.empty());
}

TEST_P(PacketSockets, AChildDoesNotDisturbItsParent) {
  ASSERT_TRUE(send(there, frame_of(1, 60)));
  const pid_t child = ::fork();
  if (child == 0) {
    here.close();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(take(here, 1).size(), 1U);
}

class PacketRings : public PacketSockets {};
INSTANTIATE_TEST_SUITE_P(Ways, PacketRings, testing::Values(true));

TEST_P(PacketRings, AFullRingLosesWhatComesNextAndCountsIt) {
  ASSERT_NO_FATAL_FAILURE(open(small_ring_bytes));
  const size_t slots = here.ring().layout().slots();
  EXPECT_EQ(here.ring().layout().bytes(), small_ring_bytes);
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < slots + 10; ++i) ASSERT_TRUE(send(there, frame_of(i, 60)));
    EXPECT_TRUE(await_lost(here, uint64_t{10} * (round + 1)));
    const auto seen = take(here, slots);
    ASSERT_EQ(seen.size(), slots);
    for (uint32_t i = 0; i < slots; ++i) EXPECT_EQ(seen[i].number(), i);
  }
}

TEST_P(PacketRings, FramesGoRoundAndRound) {
  ASSERT_NO_FATAL_FAILURE(open(2 * small_ring_bytes));
  uint32_t sent = 0;
  uint32_t received = 0;
  while (sent < 1000) {
    for (uint32_t i = 0; i < 7; ++i, ++sent) ASSERT_TRUE(send(there, frame_of(sent, 60 + sent % 1000)));
    for (const Seen& one : take(here, 7)) EXPECT_EQ(one.number(), received++);
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(here.lost(), 0U);
}

// A ring of 40 frames whose reader is slow: the slot of a frame that is being looked at is not written to.
TEST_P(PacketRings, TheSlotIsTheReadersUntilItReturns) {
  ASSERT_NO_FATAL_FAILURE(open(small_ring_bytes));
  const size_t slots = here.ring().layout().slots();
  for (uint32_t i = 0; i <= slots; ++i) ASSERT_TRUE(send(there, frame_of(i, 60)));
  ASSERT_TRUE(await_lost(here, 1));
  bool first = true;
  (void)here.receive([&](const PacketFrame& frame) {
    if (!std::exchange(first, false)) return;
    for (uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(send(there, frame_of(1000, 60)));
    EXPECT_TRUE(await_lost(here, 6));
    uint32_t number = 1;
    std::memcpy(&number, &frame.bytes[14], sizeof number);
    EXPECT_EQ(number, 0U);
  });
}

TEST_P(PacketRings, WithoutRoomForOneFrameThereIsNoRing) {
  PacketSocket one;
  one.set_ring_bytes(4096);
  ASSERT_TRUE(one.open("wire0"));
  EXPECT_FALSE(one.has_ring());
  EXPECT_NE(one.why_no_ring().find("wire0"), std::string::npos);
  ASSERT_TRUE(send(there, frame_of(3, 60)));
  EXPECT_EQ(take(one, 1).size(), 1U);
}

TEST(PacketRing, LayoutsStayWithinTheirMemory) {
  for (const size_t memory : {size_t{0}, size_t{1}, size_t{100'000}, size_t{1} << 20, size_t{8} << 20})
    for (const size_t frame : {size_t{86}, size_t{1518}, size_t{4318}, size_t{9018}, size_t{65'553}}) {
      const auto layout = PacketRingLayout::within(memory, frame);
      EXPECT_LE(layout.bytes(), memory);
      EXPECT_GE(layout.block_bytes, layout.block_slots * layout.slot_bytes);
      EXPECT_GE(layout.block_slots, 1U);
      EXPECT_EQ(layout.slot_bytes % TPACKET_ALIGNMENT, 0U);
      EXPECT_GE(layout.slot_bytes, frame + TPACKET2_HDRLEN);
    }
}

// The kernel writes these, but what it says is believed no further than the slot.
TEST(PacketRing, LengthsBeyondTheSlotAreNotBelieved) {
  const PacketRingLayout layout{4096, 1, 1024, 4};
  alignas(TPACKET_ALIGNMENT) std::array<std::byte, 4096> memory{};
  PacketRing ring(memory.data(), layout);
  EXPECT_FALSE(ring.has_frame());
  struct Case {
    uint16_t mac;
    uint32_t length;
    uint32_t kept;
    bool is_good;
  };
  const std::vector<Case> cases = {
      {80, 944, 944, true},     {80, 945, 945, false}, {80, 0xffffffff, 0xffffffff, false},
      {80, 1000, 900, false},   {1024, 0, 0, true},    {1025, 0, 0, false},
      {65535, 100, 100, false}, {0, 100, 100, false},  {31, 100, 100, false},
      {32, 992, 992, true},     {80, 60, 61, false},   {80, 0, 0, true},
  };
  uint64_t cut = 0;
  size_t slot = 0;
  for (const Case& one : cases) {
    tpacket2_hdr header{};
    header.tp_status = TP_STATUS_USER;
    header.tp_mac = one.mac;
    header.tp_len = one.length;
    header.tp_snaplen = one.kept;
    std::memcpy(&memory[slot * layout.slot_bytes], &header, sizeof header);
    ASSERT_TRUE(ring.has_frame());
    const PacketFrame frame = ring.front();
    EXPECT_EQ(frame.bytes.size(), one.is_good ? one.kept : 0) << one.mac << ' ' << one.length;
    if (!one.is_good) ++cut;
    EXPECT_EQ(ring.cut(), cut);
    ring.pop();
    std::memcpy(&header, &memory[slot * layout.slot_bytes], sizeof header);
    EXPECT_EQ(header.tp_status, uint32_t{TP_STATUS_KERNEL});
    slot = (slot + 1) % layout.slots();
    EXPECT_FALSE(ring.has_frame());
  }
}

}  // namespace
}  // namespace weft::os
