// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the memory file of an endpoint: which channels it gives out, and that a channel is empty.
#include "link/shm/memory_file.hpp"

#include <gtest/gtest.h>

namespace weft::link::shm {
namespace {

class ShmMemoryFile : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(file.create()); }
  os::Mapping take(size_t& channel) {
    EXPECT_TRUE(file.grow());
    auto map = file.acquire(channel);
    EXPECT_TRUE(map);
    return std::move(*map);
  }
  MemoryFile file;
};

TEST_F(ShmMemoryFile, GrowsByAChannelAtATime) {
  EXPECT_EQ(os::memory_size(file.fd()), header_bytes);
  size_t first = 9;
  size_t second = 9;
  const os::Mapping a = take(first);
  const os::Mapping b = take(second);
  EXPECT_EQ(first, 0U);
  EXPECT_EQ(second, 1U);
  EXPECT_EQ(os::memory_size(file.fd()), header_bytes + 2 * channel_bytes);
  // What is written to a channel lies there.
  a.as<ChannelControl>()->polled.store(7);
  b.as<ChannelControl>()->polled.store(8);
  uint32_t word = 0;
  ASSERT_TRUE(os::read_memory(file.fd(), MemoryFile::offset_of(1), &word, sizeof(word)));
  EXPECT_EQ(word, 8U);
}

TEST_F(ShmMemoryFile, AChannelThatCameBackIsTakenAgainAndEmpty) {
  size_t channel = 9;
  {
    const os::Mapping map = take(channel);
    map.as<Slot>(channel_slots_offset)->header.store(1);
  }
  file.discard(channel);
  file.release(channel);
  size_t again = 9;
  const os::Mapping map = take(again);
  EXPECT_EQ(again, channel);
  EXPECT_EQ(map.as<Slot>(channel_slots_offset)->header.load(), 0U);
  EXPECT_EQ(os::memory_size(file.fd()), header_bytes + channel_bytes);
}

TEST_F(ShmMemoryFile, ABulkRingGoesButForItsBegin) {
  size_t channel = 9;
  const os::Mapping map = take(channel);
  auto* const bulk = map.as<uint64_t>(channel_bulk_offset);
  bulk[0] = 1;
  bulk[2 * page_bytes / sizeof(uint64_t)] = 2;
  file.discard_bulk(channel, page_bytes);
  EXPECT_EQ(bulk[0], 1U);
  EXPECT_EQ(bulk[2 * page_bytes / sizeof(uint64_t)], 0U);
}

}  // namespace
}  // namespace weft::link::shm
