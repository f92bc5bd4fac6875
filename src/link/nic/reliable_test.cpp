// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reliable frames over cards that are models, an e1000e and a virtio_net on a cable.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "link/nic/settings.hpp"
#include "link/nic/test_cards.hpp"
#include "link/reliable/ip_names.hpp"
#include "link/reliable/link.hpp"

namespace weft::link::nic {
namespace {

using Link = reliable::Reliable<Packets, reliable::IpNames>;
static_assert(proto::Link<Link> && proto::UsesDevice<Link> && proto::HasZeroCopyFrames<Link>);

struct End final : reliable::Events {
  explicit End(Device& device) {
    link.set_device(device);
    auto opened = link.open({}, *this);
    EXPECT_TRUE(opened) << opened.error().why;
  }
  ~End() { link.close(); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  reliable::Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<reliable::Peer>());
    return peers.back().get();
  }
  void peer_lost(reliable::Peer&, core::ProviderError) noexcept override { ++losses; }
  bool on_frame(reliable::Peer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    came.emplace_back(reinterpret_cast<const char*>(payload), head.length);
    return true;
  }
  Link link;
  std::vector<std::unique_ptr<reliable::Peer>> peers;
  std::vector<std::string> came;
  int losses = 0;
};

std::string text_of(size_t n) { return std::string(n * 37 % 5000, static_cast<char>('a' + n % 26)); }

struct NicReliable : testing::Test {
  void SetUp() override {
    for (unsigned n : {1U, 2U}) {
      const std::string text = "0000:00:0" + std::to_string(n) + ".0=10.0.0." + std::to_string(n) + "/24";
      auto card = open_card("0000:00:0" + std::to_string(n) + ".0");
      ASSERT_TRUE(card);
      ASSERT_TRUE((n == 1 ? first : second).open(std::move(*card), *parse_card(text)));
    }
  }
  void carry(Device& from, Device& to, size_t messages) {
    End a(from);
    End b(to);
    int error = 0;
    reliable::Peer* const peer = a.link.connect(b.link.address(), error);
    ASSERT_NE(peer, nullptr);
    const uint64_t until = os::monotonic_ns() + 30 * proto::reliable::second;
    for (size_t sent = 0; b.came.size() < messages && os::monotonic_ns() < until;) {
      if (sent < messages) {
        const std::string text = text_of(sent);
        wire::FrameHead head{};
        head.kind = wire::FrameKind::Msg;
        head.length = static_cast<uint32_t>(text.size());
        const iovec part{const_cast<char*>(text.data()), text.size()};
        if (a.link.send(*peer, head, {}, &part, 1)) ++sent;
      }
      (void)a.link.poll(a);
      (void)b.link.poll(b);
    }
    ASSERT_EQ(b.came.size(), messages);
    for (size_t i = 0; i < messages; ++i) ASSERT_EQ(b.came[i], text_of(i)) << i;
    EXPECT_EQ(a.losses + b.losses, 0);
  }
  TestBench bench;
  Device first;
  Device second;
};

TEST_F(NicReliable, CarriesFramesBetweenCards) {
  carry(first, second, 2000);
  carry(second, first, 2000);
  EXPECT_EQ(bench.first->host().iommu.faults() + bench.second->host().iommu.faults(), 0u);
}

TEST_F(NicReliable, CarriesFramesWithinACard) {
  carry(first, first, 2000);
  EXPECT_GT(first.statistics().looped, 1000u);
}

struct NicReliableInPlace : NicReliable {
  static constexpr size_t frame_bytes = 30'000;
  static std::byte byte_of(size_t frame, size_t at) {
    return static_cast<std::byte>(frame * 31 + at * 7 + at / 251);
  }
  void lend(std::vector<std::byte>& memory) {
    const iovec piece{memory.data(), memory.size()};
    core::Registration region;
    region.pieces = {&piece, 1};
    region.rights.local_read = true;
    ASSERT_EQ(first.add(region, registered), 0);
    ASSERT_NE(registered.handle, nullptr);
  }
  static bool send(End& a, reliable::Peer& peer, const std::byte* from) {
    wire::FrameHead head{};
    head.kind = wire::FrameKind::Msg;
    head.length = frame_bytes;
    const iovec part{const_cast<std::byte*>(from), frame_bytes};
    return a.link.send_zero_copy(peer, head, {}, &part, 1);
  }
  // From `slots` places in turn, each of which is overwritten as soon as the link says that it needs it no more.
  void carry_in_place(std::vector<std::byte>& memory, size_t frames) {
    const size_t slots = memory.size() / frame_bytes;
    std::vector<uint64_t> ends(slots, 0);
    End a(first);
    End b(second);
    int error = 0;
    reliable::Peer* const peer = a.link.connect(b.link.address(), error);
    ASSERT_NE(peer, nullptr);
    const uint64_t until = os::monotonic_ns() + 30 * proto::reliable::second;
    for (size_t sent = 0; b.came.size() < frames && os::monotonic_ns() < until;) {
      std::byte* const at = memory.data() + sent % slots * frame_bytes;
      if (sent < frames && a.link.completed_sequence(*peer) >= ends[sent % slots]) {
        for (size_t i = 0; i < frame_bytes; ++i) at[i] = byte_of(sent, i);
        if (send(a, *peer, at)) ends[sent++ % slots] = a.link.sent_sequence(*peer);
      }
      (void)a.link.poll(a);
      (void)b.link.poll(b);
      for (size_t n = 0; n < b.came.size(); ++n) {
        if (b.came[n].empty()) continue;
        ASSERT_EQ(b.came[n].size(), frame_bytes);
        for (size_t i = 0; i < frame_bytes; ++i)
          ASSERT_EQ(static_cast<std::byte>(b.came[n][i]), byte_of(n, i)) << n << ' ' << i;
        b.came[n].clear();
      }
    }
    ASSERT_EQ(b.came.size(), frames);
    EXPECT_EQ(a.losses + b.losses, 0);
  }
  core::Registered registered;
};

TEST_F(NicReliableInPlace, RegisteredPayloadsLeaveWithoutACopy) {
  std::vector<std::byte> memory(4 * frame_bytes);
  lend(memory);
  carry_in_place(memory, 200);
  EXPECT_GE(first.statistics().in_place_bytes, 200 * frame_bytes * 9 / 10);
  EXPECT_LT(first.statistics().copied_bytes,
            200 * frame_bytes / 5);  // heads, and ends of packets that are too short
  EXPECT_EQ(first.remove({}, registered.handle), 0);
  // Not registered any more: by the bounce buffers.
  const uint64_t before = first.statistics().in_place_bytes;
  carry_in_place(memory, 50);
  EXPECT_EQ(first.statistics().in_place_bytes, before);
  EXPECT_EQ(first.statistics().resets, 0u);
  EXPECT_EQ(bench.first->host().iommu.faults() + bench.second->host().iommu.faults(), 0u);
}

TEST_F(NicReliableInPlace, AndWhatIsLostLeavesAgainFromThere) {
  std::vector<std::byte> memory(3 * frame_bytes);
  lend(memory);
  bench.hub.drop = [n = 0](std::span<const std::byte> frame) mutable {
    return frame.size() > 60 && ++n % 20 == 0;
  };
  carry_in_place(memory, 100);
  bench.hub.drop = nullptr;
  EXPECT_GT(first.statistics().in_place_bytes, 50 * frame_bytes);
  EXPECT_EQ(first.statistics().resets, 0u);
}

TEST_F(NicReliableInPlace, MemoryThatTheProgramHasBackIsNotReadAgain) {
  std::vector<std::byte> memory(frame_bytes);
  for (size_t i = 0; i < frame_bytes; ++i) memory[i] = byte_of(0, i);
  lend(memory);
  End a(first);
  End b(second);
  int error = 0;
  reliable::Peer* const peer = a.link.connect(b.link.address(), error);
  ASSERT_NE(peer, nullptr);
  const auto turn = [&](size_t frames) {
    for (const uint64_t until = os::monotonic_ns() + 10 * proto::reliable::second;
         b.came.size() < frames && os::monotonic_ns() < until;) {
      (void)a.link.poll(a);
      (void)b.link.poll(b);
    }
    return b.came.size() == frames;
  };
  const std::string hello = "hello";
  wire::FrameHead head{};
  head.kind = wire::FrameKind::Msg;
  head.length = 5;
  const iovec part{const_cast<char*>(hello.data()), hello.size()};
  ASSERT_TRUE(a.link.send(*peer, head, {}, &part, 1));
  ASSERT_TRUE(turn(1));
  // Frames lie in the card's ring when the program takes its memory back.
  bench.first->hold_transmit(true);
  ASSERT_TRUE(send(a, *peer, memory.data()));
  EXPECT_GT(first.statistics().in_place_bytes, 0u);
  a.link.copy_out(*peer);
  EXPECT_EQ(first.frames_in_flight(), 0u);  // the card did not come to them, and was reset
  EXPECT_EQ(first.statistics().resets, 1u);
  std::ranges::fill(memory, std::byte{0xee});
  bench.first->hold_transmit(false);
  ASSERT_TRUE(turn(2));
  for (size_t i = 0; i < frame_bytes; ++i)
    ASSERT_EQ(static_cast<std::byte>(b.came[1][i]), byte_of(0, i)) << i;
  EXPECT_EQ(a.losses + b.losses, 0);
}

TEST_F(NicReliable, RepeatsWhatIsLost) {
  bench.hub.drop = [n = 0](std::span<const std::byte> frame) mutable {
    return frame.size() > 60 && ++n % 10 == 0;
  };
  carry(first, second, 500);
  bench.hub.drop = nullptr;
}

}  // namespace
}  // namespace weft::link::nic
