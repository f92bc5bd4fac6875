// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `tcp;ofi_rxm` with a peer that takes only small frames, over sockets: payloads of every size arrive both ways.
// link/message/frame_sizes_test.cpp has the same over connections that refuse messages that are too long.
#include <gtest/gtest.h>
#include <rdma/fabric.h>

#include <vector>

#include "link/message/fake_engine.hpp"
#include "link/tcp/messages.hpp"
#include "os/clock.hpp"

namespace weft::link::tcp {
namespace {

// As an older version is: it says nothing of large frames.
class UsualMessages : public Messages {
  using Messages::large_message_bytes_max;
};
static_assert(message::HasLargeMessages<Messages> && !message::HasLargeMessages<UsualMessages>);

using LargeEnd = message::FakeEnd<message::MessageLink<Messages>>;
using UsualEnd = message::FakeEnd<message::MessageLink<UsualMessages>>;

TEST(TcpFrameSizes, EverySizeArrivesBothWaysWithAPeerOfSmallFrames) {
  const os::SocketAddress at = os::SocketAddress::loopback(AF_INET);
  for (const bool usual_first : {false, true})
    for (const size_t size : {0, 1, 8191, 8192, 8193, 16384, 16385, 16896, 65535, 65536, 65537, 262144,
                              262145, 1 << 20, 5'000'000}) {
      SCOPED_TRACE(testing::Message() << size << (usual_first ? ", the small one connects" : ""));
      LargeEnd large(FI_SOCKADDR_IN, at.bytes());
      UsualEnd usual(FI_SOCKADDR_IN, at.bytes());
      const fi_addr_t to_usual = large.meet(usual), to_large = usual.meet(large);
      std::vector<std::byte> from_large(size), from_usual(size), at_large(size), at_usual(size);
      for (size_t i = 0; i < size; ++i) {
        from_large[i] = static_cast<std::byte>(i * 2'654'435'761 >> 16);
        from_usual[i] = static_cast<std::byte>(i * 2'246'822'519 >> 16);
      }
      const auto send = [](auto& end, const std::vector<std::byte>& bytes, fi_addr_t to) {
        return end.engine.template send<true>(end.tx, bytes.data(), bytes.size(), to, 1, nullptr);
      };
      const auto receive = [](auto& end, std::vector<std::byte>& into) {
        return end.rx.receive_tagged(into.data(), into.size(), FI_ADDR_UNSPEC, 1, 0, nullptr);
      };
      size_t of_large = 0, of_usual = 0;
      const auto turn_until = [&](size_t wanted_large, size_t wanted_usual) {
        const uint64_t until = os::monotonic_ns() + 20'000'000'000;
        while (of_large < wanted_large || of_usual < wanted_usual) {
          if (os::monotonic_ns() > until) return false;
          large.engine.progress();
          usual.engine.progress();
          of_large += large.completed();
          of_usual += usual.completed();
        }
        return large.failed + usual.failed == 0;
      };
      ASSERT_EQ(receive(large, at_large), 0);
      ASSERT_EQ(receive(usual, at_usual), 0);
      if (usual_first) {
        ASSERT_EQ(send(usual, from_usual, to_large), 0);
        ASSERT_TRUE(turn_until(1, 1));
      }
      ASSERT_EQ(send(large, from_large, to_usual), 0);
      if (!usual_first) {
        ASSERT_TRUE(turn_until(1, 1));
        ASSERT_EQ(send(usual, from_usual, to_large), 0);
      }
      ASSERT_TRUE(turn_until(2, 2));
      EXPECT_TRUE(at_usual == from_large);
      EXPECT_TRUE(at_large == from_usual);
    }
}

}  // namespace
}  // namespace weft::link::tcp
