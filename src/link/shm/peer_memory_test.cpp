// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of cross-memory attach with the proof of whose memory it is, on this process's own memory.
#include "link/shm/peer_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace weft::link::shm {
namespace {

uint64_t word = 0x1234;

class ShmPeerMemory : public testing::Test {
 protected:
  void SetUp() override {
    word = 0x1234;
    memory.probe(::getpid(), reinterpret_cast<uint64_t>(&word), word);
    if (!memory.can_read()) GTEST_SKIP() << "cross-memory attach is forbidden here";
  }
  ssize_t read() {
    const iovec local{to.data(), to.size()};
    const iovec remote{from.data(), from.size()};
    return memory.read(&local, 1, &remote, 1, to.size());
  }
  PeerMemory memory;
  std::array<char, 4> from{'w', 'e', 'f', 't'};
  std::array<char, 4> to{};
};

TEST_F(ShmPeerMemory, ReadsAndWrites) {
  EXPECT_EQ(read(), 4);
  EXPECT_EQ(to, from);
  const iovec local{from.data(), 2};
  const iovec remote{to.data() + 2, 2};
  EXPECT_EQ(memory.write(&local, 1, &remote, 1, 2), 2);
  EXPECT_EQ(std::string_view(to.data(), 4), "wewe");
}

TEST_F(ShmPeerMemory, AnotherProgramIsNotThePeer) {
  EXPECT_TRUE(memory.is_there());
  EXPECT_TRUE(memory.was_there(UINT64_MAX));
  EXPECT_FALSE(memory.is_replaced());
  word = 0;
  EXPECT_FALSE(memory.is_there());
  EXPECT_TRUE(memory.is_replaced());
  EXPECT_TRUE(memory.was_there(UINT64_MAX));  // a moment ago it was
  EXPECT_FALSE(memory.was_there(0));
  EXPECT_FALSE(memory.was_there(UINT64_MAX));  // and that is forgotten
  EXPECT_EQ(read(), -ESRCH);
}

TEST_F(ShmPeerMemory, WhatIsForbiddenStaysSo) {
  EXPECT_TRUE(memory.can_write());
  memory.forbid_writing();
  EXPECT_TRUE(memory.can_read());
  EXPECT_FALSE(memory.can_write());
  memory.forbid();
  EXPECT_FALSE(memory.can_read());
}

TEST(ShmPeerMemoryUntried, ReadsNothing) {
  const PeerMemory memory;
  EXPECT_FALSE(memory.can_read());
  EXPECT_FALSE(memory.is_replaced());
}

}  // namespace
}  // namespace weft::link::shm
