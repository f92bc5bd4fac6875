// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames to bytes and back: heads byte by byte, any split of the stream gives the same frames, nonsense is refused.
#include "proto/stream/parser.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "proto/stream/packer.hpp"

namespace weft::proto::stream {
namespace {

struct Seen {
  wire::FrameHead head;
  std::vector<std::byte> payload;
};

bool operator==(const Seen& a, const Seen& b) {
  return a.head.kind == b.head.kind && a.head.flags == b.head.flags && a.head.context == b.head.context &&
         a.head.length == b.head.length && a.head.a == b.head.a && a.head.b == b.head.b &&
         a.payload == b.payload;
}

struct NoPeer {};

// Takes frames whole.
struct Collector {
  bool on_frame(NoPeer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (refuse != nullptr && (*refuse)() % 4 == 0) return false;
    seen.push_back({head, {payload, payload + head.length}});
    return true;
  }
  std::mt19937_64* refuse = nullptr;
  std::vector<Seen> seen;
};

// Takes segments in parts, in pieces of at most 1,000 bytes, and puts them together again. Those with an odd `a` it does not want.
struct PartTaker : Collector {
  Land land(NoPeer&, wire::FrameHead& head, const std::byte* payload, size_t arrived, Landing& out) noexcept {
    if (head.kind != wire::FrameKind::Segment) return Land::Whole;
    if (payload != nullptr || arrived != 0) {
      if (refuse != nullptr && (*refuse)() % 4 == 0) return Land::Later;
      current = {head, std::vector<std::byte>(head.length)};
      std::copy_n(payload, arrived, current.payload.begin());
      head.length -= static_cast<uint32_t>(arrived);
      ++parted;
    }
    if (current.head.a % 2 != 0) return Land::Here;
    const size_t at = current.payload.size() - head.length;
    const size_t all = std::min<size_t>(head.length, 1000);
    out.pieces[0] = {current.payload.data() + at, all / 2};
    out.pieces[1] = {current.payload.data() + at + all / 2, all - all / 2};
    out.count = 2;
    out.bytes = all;
    return Land::Here;
  }
  void landed(NoPeer&, wire::FrameHead& head, size_t bytes) noexcept {
    head.length -= static_cast<uint32_t>(bytes);
    if (head.length != 0) return;
    if (current.head.a % 2 != 0) current.payload.clear();
    seen.push_back(current);
  }
  Seen current{};
  int parted = 0;
};
static_assert(TakesParts<PartTaker, NoPeer> && !TakesParts<Collector, NoPeer>);

constexpr size_t frame_max = 20'000;

Seen random_frame(std::mt19937_64& random) {
  const auto some = [&] { return random() % 3 == 0 ? 0 : random() >> (random() % 64); };
  Seen frame{};
  frame.head.kind = static_cast<wire::FrameKind>(1 + random() % 19);
  frame.head.flags = random() % 4 & (wire::has_b | wire::has_data);
  frame.head.context = random() % 3 == 0 ? static_cast<uint8_t>(random()) : 0;
  frame.head.a = some();
  frame.head.b = (frame.head.flags & wire::has_b) != 0 ? some() : 0;
  const size_t lengths[] = {0, 8, random() % 100, random() % 3000, random() % frame_max, frame_max};
  frame.payload.resize(lengths[random() % 6]);
  for (auto& byte : frame.payload) byte = static_cast<std::byte>(random());
  frame.head.length = static_cast<uint32_t>(frame.payload.size());
  return frame;
}

std::vector<std::byte> bytes_of(const std::vector<Seen>& frames) {
  Packer packer(SIZE_MAX);
  for (const Seen& frame : frames) {
    // Prefix and parts are only ways to say what the payload is.
    const size_t prefix = std::min<size_t>(frame.payload.size(), 5);
    const iovec parts[] = {
        {const_cast<std::byte*>(frame.payload.data()) + prefix, frame.payload.size() - prefix}};
    EXPECT_TRUE(packer.put(frame.head, std::span(frame.payload).first(prefix), parts, 1));
  }
  return {packer.bytes().begin(), packer.bytes().end()};
}

TEST(StreamHead, SizesAndBytes) {
  std::byte out[head_bytes_max];
  const auto size = [&](const wire::FrameHead& head) { return pack_head(head, out); };
  using enum wire::FrameKind;
  EXPECT_EQ(size({Msg, 0, 0, 8, 0, 0}), 4u);
  EXPECT_EQ(size({Tagged, 0, 0, 8, 7, 0}), 8u);
  EXPECT_EQ(size({Tagged, 0, 0, 8, ~uint64_t{0}, 0}), 12u);  // 20 bytes for an 8 byte message
  EXPECT_EQ(size({Tagged, wire::has_b | wire::has_data, 9, 100'000, ~uint64_t{0}, ~uint64_t{0}}), 24u);
  EXPECT_EQ(size({Tagged, wire::has_b, 0, 8, 1, 2}), 12u);
  const uint8_t expected[] = {1, 0x01 | 0x04 | 0x10, 8, 0, 1, 0, 0, 0, 2, 0, 0, 0};
  EXPECT_EQ(memcmp(out, expected, sizeof expected), 0);
}

TEST(StreamHead, ShapesThatAreNone) {
  std::byte bytes[head_bytes_max] = {};
  wire::FrameHead head;
  size_t used = 0;
  const auto unpack = [&](uint8_t shape) {
    bytes[1] = std::byte{shape};
    return unpack_head(bytes, sizeof bytes, head, used);
  };
  EXPECT_EQ(unpack(0x80), Unpacked::Malformed);
  EXPECT_EQ(unpack(shape_a_4 | shape_a_8), Unpacked::Malformed);
  EXPECT_EQ(unpack(shape_has_b | shape_b_4 | shape_b_8), Unpacked::Malformed);
  EXPECT_EQ(unpack(shape_b_4), Unpacked::Malformed);
  EXPECT_EQ(unpack(shape_extension), Unpacked::Head);
  bytes[7] = std::byte{1};  // reserved
  EXPECT_EQ(unpack(shape_extension), Unpacked::Malformed);
}

template <class Handler>
void any_split(uint64_t seed, bool refusing, bool directly) {
  std::mt19937_64 random(seed);
  std::vector<Seen> frames(40);
  for (Seen& frame : frames) frame = random_frame(random);
  const std::vector<std::byte> bytes = bytes_of(frames);
  Handler handler;
  if (refusing) handler.refuse = &random;
  Parser parser(frame_max);
  NoPeer peer;
  size_t at = 0;
  const size_t step = 1 + (random() >> (48 + random() % 16));
  while (at < bytes.size() || parser.stalled()) {
    if (parser.stalled()) {
      ASSERT_TRUE(parser.retry(handler, peer));
      if (random() % 8 != 0) continue;  // sometimes more comes while it waits
    }
    if (at == bytes.size()) continue;
    size_t count = std::min<size_t>(1 + random() % step, bytes.size() - at);
    if (directly && parser.landing() != 0) {
      Landing to;
      parser.where(handler, peer, to);
      count = std::min({count, parser.landing(), to.bytes != 0 ? to.bytes : SIZE_MAX});
      size_t left = count;
      for (size_t i = 0; i < to.count; ++i) {
        const size_t n = std::min(left, to.pieces[i].iov_len);
        std::copy_n(bytes.data() + at + count - left, n, static_cast<std::byte*>(to.pieces[i].iov_base));
        left -= n;
      }
      parser.landed(handler, peer, count);
    } else {
      const std::vector<std::byte> part(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                        bytes.begin() + static_cast<std::ptrdiff_t>(at + count));
      ASSERT_TRUE(parser.feed(handler, peer, part));
    }
    at += count;
  }
  EXPECT_FALSE(parser.inside());
  EXPECT_EQ(parser.frames(), frames.size());
  ASSERT_EQ(handler.seen.size(), frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    if (handler.seen[i].payload.empty() && frames[i].head.a % 2 != 0) frames[i].payload.clear();  // unwanted
    EXPECT_EQ(handler.seen[i], frames[i]) << "frame " << i << " seed " << seed;
  }
}

TEST(StreamParser, AnySplitGivesTheSameFrames) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    any_split<Collector>(seed, false, false);
    any_split<Collector>(seed, true, false);
    any_split<PartTaker>(seed, false, false);
    any_split<PartTaker>(seed, true, false);
    any_split<PartTaker>(seed, false, true);
    any_split<PartTaker>(seed, true, true);
    if (HasFailure()) return;
  }
}

TEST(StreamParser, LargeFramesLandBeforeTheyAreComplete) {
  Seen frame{};
  frame.head.kind = wire::FrameKind::Segment;
  frame.head.a = 2;
  frame.payload.resize(10'000, std::byte{7});
  frame.head.length = 10'000;
  const auto bytes = bytes_of({frame});
  PartTaker handler;
  Parser parser(frame_max);
  NoPeer peer;
  ASSERT_TRUE(parser.feed(handler, peer, std::span(bytes).first(100)));
  EXPECT_EQ(handler.parted, 1);
  EXPECT_EQ(parser.landing(), bytes.size() - 100);
  ASSERT_TRUE(parser.feed(handler, peer, std::span(bytes).subspan(100)));
  ASSERT_EQ(handler.seen.size(), 1u);
  EXPECT_EQ(handler.seen[0], frame);
}

TEST(StreamParser, LongFramesAndNonsenseAreRefused) {
  Collector handler;
  NoPeer peer;
  Seen frame{};
  frame.head.kind = wire::FrameKind::Msg;
  frame.payload.resize(frame_max + 1);
  frame.head.length = frame_max + 1;
  const auto bytes = bytes_of({frame});
  Parser parser(frame_max);
  EXPECT_FALSE(parser.feed(handler, peer, std::span(bytes).first(24)));
  EXPECT_EQ(parser.error(), EMSGSIZE);
  Parser other(frame_max);
  const std::byte nonsense[] = {std::byte{1}, std::byte{0xff}, std::byte{0}, std::byte{0}};
  EXPECT_FALSE(other.feed(handler, peer, std::span(nonsense).first(4)));
  EXPECT_EQ(other.error(), EBADMSG);
  EXPECT_TRUE(handler.seen.empty());
}

TEST(StreamPacker, ABoundAndWholeFrames) {
  Packer packer(1000);
  const std::vector<std::byte> payload(400);
  const iovec part{const_cast<std::byte*>(payload.data()), payload.size()};
  const wire::FrameHead head{wire::FrameKind::Msg, 0, 0, 400, 0, 0};
  EXPECT_TRUE(packer.put(head, {}, &part, 1));
  EXPECT_TRUE(packer.put(head, {}, &part, 1));
  EXPECT_EQ(packer.size(), 808u);
  EXPECT_FALSE(packer.put(head, {}, &part, 1));
  EXPECT_EQ(packer.size(), 808u);
  packer.drop(404);
  EXPECT_TRUE(packer.put(head, {}, &part, 1));
  packer.drop(808);
  EXPECT_TRUE(packer.empty());
}

}  // namespace
}  // namespace weft::proto::stream
