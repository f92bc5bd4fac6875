// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ring alone: order, room, sleep, and whatever the other side may write into it.
#include "link/roce/shm_ring.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "os/event.hpp"
#include "os/process.hpp"

namespace weft::link::roce {
namespace {

struct Ring {
  std::unique_ptr<ShmMemory> memory = std::make_unique<ShmMemory>();
  ShmSender sender{*memory};
  ShmReceiver receiver{*memory};

  ShmSender::Put put(uint8_t value, size_t bytes) {
    std::vector<uint8_t> packet(bytes, value);
    const iovec parts[] = {{packet.data(), 12}, {nullptr, 0}, {packet.data() + 12, bytes - 12}};
    return sender.put(parts, 3, bytes);
  }
};

TEST(RoceShmRing, PacketsComeInOrderManyTimesAround) {
  Ring ring;
  uint8_t expected = 0;
  size_t bytes = 12;
  for (int round = 0; round < 1000; ++round) {
    for (uint8_t i = 0; i < 7; ++i)
      ASSERT_EQ(ring.put(static_cast<uint8_t>(expected + i), bytes), ShmSender::Put::Done);
    EXPECT_EQ(ring.receiver.drain(3, [](auto...) {}), 3);
    expected += 3;
    const int rest = ring.receiver.drain(100, [&](auto packet, auto headers) {
      EXPECT_EQ(packet.size(), bytes);
      EXPECT_EQ(headers.size(), std::min(bytes, wire::roce::headers_bytes_max));
      EXPECT_EQ(packet.back(), std::byte{expected});
      EXPECT_EQ(headers.front(), std::byte{expected});
      ++expected;
    });
    EXPECT_EQ(rest, 4);
    bytes = bytes % shm_packet_bytes_max + 4;
    if (bytes < 12 || bytes > shm_packet_bytes_max) bytes = shm_packet_bytes_max;
  }
  EXPECT_TRUE(ring.receiver.is_empty());
}

TEST(RoceShmRing, MarksComeWithTheirPacket) {
  Ring ring;
  os::IpMarks marks;
  marks.traffic_class = 0x68;
  marks.hops = 7;
  marks.flow_label = 0x12345;
  std::array<std::byte, shm_packet_bytes_max> bytes{};
  for (const size_t size : {size_t{12}, size_t{100}, shm_packet_bytes_max}) {
    const iovec part{bytes.data(), size};
    ASSERT_EQ(ring.sender.put(&part, 1, size, &marks), ShmSender::Put::Done);
    ASSERT_EQ(ring.put(1, size), ShmSender::Put::Done);
    std::vector<os::IpMarks> got;
    EXPECT_EQ(ring.receiver.drain(100,
                                  [&](auto packet, auto) {
                                    EXPECT_EQ(packet.size(), size);
                                    got.push_back(ring.receiver.marks());
                                  }),
              2);
    ASSERT_EQ(got.size(), 2U);
    // The longest packet leaves no room for them.
    EXPECT_EQ(got[0], size == shm_packet_bytes_max ? os::IpMarks() : marks);
    EXPECT_EQ(got[1], os::IpMarks());
  }
}

TEST(RoceShmRing, HowManyPacketsOneStandsForComesWithIt) {
  Ring ring;
  os::IpMarks marks;
  marks.hops = 7;
  std::array<std::byte, 64> bytes{};
  const iovec part{bytes.data(), bytes.size()};
  for (const uint32_t psns : {1U, 2U, shm_psns_max}) {
    for (const bool is_marked : {false, true}) {
      ASSERT_EQ(ring.sender.put(&part, 1, bytes.size(), is_marked ? &marks : nullptr, psns),
                ShmSender::Put::Done);
      EXPECT_EQ(ring.receiver.drain(1,
                                    [&](auto packet, auto) {
                                      EXPECT_EQ(packet.size(), bytes.size());
                                      EXPECT_EQ(ring.receiver.psns(), psns);
                                      EXPECT_EQ(ring.receiver.marks(), is_marked ? marks : os::IpMarks());
                                    }),
                1);
    }
  }
}

TEST(RoceShmRing, AFullOneHasRoomAgainWhenSomethingWasTaken) {
  Ring ring;
  for (size_t i = 0; i < shm_slots; ++i) ASSERT_EQ(ring.put(1, 16), ShmSender::Put::Done);
  EXPECT_EQ(ring.put(1, 16), ShmSender::Put::Full);
  EXPECT_EQ(ring.receiver.drain(1, [](auto...) {}), 1);
  EXPECT_EQ(ring.put(1, 16), ShmSender::Put::Done);
  EXPECT_EQ(ring.put(1, 16), ShmSender::Put::Full);
}

TEST(RoceShmRing, ASleeperIsWokenOnce) {
  Ring ring;
  (void)ring.put(1, 16);
  EXPECT_FALSE(ring.sender.must_wake());
  ring.receiver.set_asleep(true);
  (void)ring.put(1, 16);
  EXPECT_TRUE(ring.sender.must_wake());
  EXPECT_FALSE(ring.sender.must_wake());
}

// The receiver sleeps whenever it is empty, and the sender has no fence of its own. One wake-up that is lost ends it.
TEST(RoceShmRing, ASleeperThatFencesForBothMissesNothing) {
  if (!os::register_for_fence() || !os::fence_registered_processes()) GTEST_SKIP() << "no membarrier(2)";
  auto memory = std::make_unique<ShmMemory>();
  ShmSender sender(*memory, true);
  ShmReceiver receiver(*memory);
  receiver.attach(true);
  auto event = os::Event::create();
  ASSERT_TRUE(event);
  constexpr int packets = 50'000;
  std::thread sends([&] {
    std::array<std::byte, 16> packet{};
    const iovec part{packet.data(), packet.size()};
    for (int i = 0; i < packets;) {
      if (sender.put(&part, 1, packet.size()) != ShmSender::Put::Done) {
        std::this_thread::yield();
        continue;
      }
      ++i;
      if (sender.must_wake()) event->notify();
      for (volatile int pause = i % 64 * 8; pause > 0;) pause = pause - 1;
    }
  });
  int taken = 0;
  bool is_lost = false;
  while (taken < packets && !is_lost) {
    taken += receiver.drain(8, [](auto...) {});
    receiver.set_asleep(true);
    ASSERT_TRUE(os::fence_registered_processes());
    if (receiver.is_empty() && taken < packets) {
      pollfd waiting{event->fd(), POLLIN, 0};
      is_lost = ::poll(&waiting, 1, 10'000) == 0;
      event->drain();
    }
    receiver.set_asleep(false);
  }
  EXPECT_FALSE(is_lost) << taken;
  while (taken < packets) taken += receiver.drain(128, [](auto...) {});
  sends.join();
}

TEST(RoceShmRing, AReceiverThatClaimsMoreThanWasSentIsNoReceiver) {
  for (const uint64_t head : {uint64_t{shm_slots + 1}, UINT64_MAX}) {
    Ring ring;
    for (size_t i = 0; i < shm_slots; ++i) (void)ring.put(1, 16);
    ring.memory->head.store(head);
    EXPECT_EQ(ring.put(1, 16), ShmSender::Put::Broken);
  }
}

TEST(RoceShmRing, LengthsThatNoPacketHasEndIt) {
  for (const uint32_t bytes : {0U, 11U, static_cast<uint32_t>(shm_packet_bytes_max) + 1, UINT32_MAX,
                               4U << shm_psns_at, 16U | 17U << shm_psns_at, 16U | 1U << 21}) {
    Ring ring;
    (void)ring.put(1, 16);
    ring.memory->slots[0].bytes.store(bytes);
    EXPECT_EQ(ring.receiver.drain(8, [](auto...) { FAIL(); }), -1);
  }
}

TEST(RoceShmRing, GarbageIsNeverReadBeyondItsSlot) {
  std::minstd_rand random(7);
  Ring ring;
  auto* const bytes = reinterpret_cast<std::byte*>(ring.memory.get());
  for (int round = 0; round < 200; ++round) {
    // All of it, or a few places; and turns that the receiver waits for among it.
    const size_t writes = round % 2 == 0 ? sizeof(ShmMemory) / 16 : 100;
    for (size_t i = 0; i < writes; ++i)
      bytes[random() % sizeof(ShmMemory)] = static_cast<std::byte>(random());
    ShmReceiver receiver(*ring.memory);
    for (ShmSlot& slot : ring.memory->slots)
      if (random() % 4 != 0) {
        slot.turn.store(1);
        slot.bytes.store(
            static_cast<uint32_t>(random() % (shm_packet_bytes_max + shm_packet_bytes_max / 64)));
      }
    const int taken =
        receiver.drain(1000, [&](std::span<const std::byte> packet, std::span<const std::byte> headers) {
          ASSERT_GE(packet.data(), bytes);
          ASSERT_LE(packet.data() + packet.size(), bytes + sizeof(ShmMemory));
          ASSERT_LE(headers.size(), packet.size());
          wire::roce::Packet parsed;
          if (!wire::roce::parse(headers, packet, parsed)) return;
          ASSERT_LE(parsed.payload.data() + parsed.payload.size(), packet.data() + packet.size());
        });
    EXPECT_LE(taken, static_cast<int>(shm_slots));
  }
}

}  // namespace
}  // namespace weft::link::roce
