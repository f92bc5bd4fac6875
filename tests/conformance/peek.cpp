// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_PEEK, FI_CLAIM and FI_DISCARD of fi_tagged(3), FLAGS.
#include "fixture.hpp"

namespace weft::conformance {
namespace {

struct Peeked : testing::Test {
  void put(World& w, size_t len, uint64_t tag, uint32_t seed, Ctx* sent) {
    out_.push_back(pattern(len, seed));
    const auto& data = out_.back();
    WEFT_ASSERT_OK(
        w.post([&] { return fi_tsend(w[0], data.data(), len, nullptr, w[0].peer[1], tag, sent); }));
    w.progress_for(milliseconds(1));
  }

  // A trecvmsg without buffer: peek, claim and discard in their combinations.
  ssize_t ask(World& w, uint64_t tag, uint64_t ignore, uint64_t flags, Ctx* ctx,
              fi_addr_t from = FI_ADDR_UNSPEC) {
    const fi_msg_tagged msg{nullptr, nullptr, 0, from, tag, ignore, ctx, 0};
    return w.post([&] { return fi_trecvmsg(w[1], &msg, flags); });
  }

  // Peeks until the message is there: a peek does not wait for one on its way.
  Completion find(World& w, uint64_t tag, uint64_t ignore, uint64_t flags, Ctx* ctx) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    Completion c;
    do {
      WEFT_EXPECT_OK(ask(w, tag, ignore, flags, ctx));
      c = w.wait(w[1].rx, *ctx);
    } while (c.err == FI_ENOMSG && std::chrono::steady_clock::now() < end);
    return c;
  }

  std::deque<std::vector<uint8_t>> out_;  // the sends point into it
};

// A miss is an error entry with FI_ENOMSG.
TEST_F(Peeked, miss_is_FI_ENOMSG__fi_tagged_3_FI_PEEK) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  Ctx ctx;
  WEFT_ASSERT_OK(ask(w, 5, 0, FI_PEEK, &ctx));
  const Completion c = w.wait(w[1].rx, ctx);
  EXPECT_EQ(c.err, FI_ENOMSG);
  WEFT_ASSERT_OK(ask(w, 5, 0, FI_PEEK | FI_CLAIM, &ctx));
  EXPECT_EQ(w.wait(w[1].rx, ctx).err, FI_ENOMSG);
  WEFT_ASSERT_OK(ask(w, 5, 0, FI_PEEK | FI_DISCARD, &ctx));
  EXPECT_EQ(w.wait(w[1].rx, ctx).err, FI_ENOMSG);
  // The peek did not stay queued: a message goes to a later receive.
  uint64_t in = 0;
  Ctx sent, received;
  put(w, 8, 5, 1, &sent);
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, &received));
  w.done(w[1].rx, received);
  w.done(w[0].tx, sent);
  EXPECT_TRUE(w.quiet(w[1].rx));
}

// A hit tells length, tag and data, and leaves the message where it is, as often as one asks.
TEST_F(Peeked, hit_tells_and_leaves__fi_tagged_3_FI_PEEK) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  for (const size_t len : {size_t{0}, size_t{8}, size_t{64}, size_t{5000}, size_t{1'000'000}}) {
    SCOPED_TRACE(len);
    Ctx sent, peek, received;
    put(w, len, 0x1234, 3, &sent);
    for (int i = 0; i < 3; ++i) {
      const Completion c = find(w, 0x1200, 0xff, FI_PEEK, &peek);
      EXPECT_EQ(c.err, 0);
      EXPECT_EQ(c.len, len);
      EXPECT_EQ(c.tag, 0x1234u);
      EXPECT_EQ(c.flags & (FI_RECV | FI_TAGGED), FI_RECV | FI_TAGGED);
    }
    std::vector<uint8_t> in(len + 1, 0);
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 0x1234, 0, &received));
    EXPECT_EQ(w.done(w[1].rx, received).len, len);
    w.done(w[0].tx, sent);
    WEFT_EXPECT_PATTERN(in.data(), len, 3);
  }
}

TEST_F(Peeked, remote_cq_data_is_told__fi_tagged_3_FI_PEEK) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  if (w.info()->domain_attr->cq_data_size == 0) GTEST_SKIP() << "no CQ data";
  const uint64_t value = 7;
  uint64_t in = 0;
  Ctx peek, received;
  WEFT_ASSERT_OK(w.post([&] { return fi_tinjectdata(w[0], &value, 8, 0x55, w[0].peer[1], 9); }));
  const Completion c = find(w, 9, 0, FI_PEEK, &peek);
  EXPECT_EQ(c.err, 0);
  EXPECT_TRUE(c.flags & FI_REMOTE_CQ_DATA);
  EXPECT_EQ(c.data, 0x55u);
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 9, 0, &received));
  EXPECT_EQ(w.done(w[1].rx, received).data, 0x55u);
  EXPECT_EQ(in, value);
}

// fi_tagged(3): a claimed message is for the paired receive alone.
TEST_F(Peeked, claim__fi_tagged_3_FI_CLAIM) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  for (const size_t len : {size_t{0}, size_t{8}, size_t{100}, size_t{5000}, size_t{1'000'000}}) {
    SCOPED_TRACE(len);
    Ctx sent[2], claim, other;
    put(w, len, 1, 10, &sent[0]);
    put(w, len, 1, 11, &sent[1]);
    const Completion c = find(w, 1, 0, FI_PEEK | FI_CLAIM, &claim);
    ASSERT_EQ(c.err, 0);
    EXPECT_EQ(c.len, len);
    // A common receive gets the second message, not the claimed one.
    std::vector<uint8_t> in(len + 1, 0), second(len + 1, 0);
    WEFT_ASSERT_OK(fi_trecv(w[1], second.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &other));
    w.done(w[1].rx, other);
    WEFT_EXPECT_PATTERN(second.data(), len, 11);
    // And the claim gets its own, with the same context.
    const iovec to{in.data(), len};
    const fi_msg_tagged msg{&to, nullptr, 1, FI_ADDR_UNSPEC, 1, 0, &claim, 0};
    WEFT_ASSERT_OK(w.post([&] { return fi_trecvmsg(w[1], &msg, FI_CLAIM); }));
    const Completion r = w.done(w[1].rx, claim);
    EXPECT_EQ(r.len, len);
    EXPECT_EQ(r.tag, 1u);
    WEFT_EXPECT_PATTERN(in.data(), len, 10);
    w.done(w[0].tx, sent[0]);
    w.done(w[0].tx, sent[1]);
  }
}

// fi_tagged(3), FI_DISCARD with FI_PEEK: found and dropped; the sender's operation completes.
TEST_F(Peeked, peek_discard__fi_tagged_3_FI_DISCARD) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  for (const size_t len : {size_t{0}, size_t{8}, size_t{5000}, size_t{1'000'000}}) {
    SCOPED_TRACE(len);
    Ctx sent[2], discard, received;
    put(w, len, 1, 20, &sent[0]);
    put(w, len, 1, 21, &sent[1]);
    const Completion c = find(w, 1, 0, FI_PEEK | FI_DISCARD, &discard);
    EXPECT_EQ(c.err, 0);
    EXPECT_EQ(c.len, len);
    std::vector<uint8_t> in(len + 1, 0);
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    w.done(w[1].rx, received);
    WEFT_EXPECT_PATTERN(in.data(), len, 21);
    w.done(w[0].tx, sent[0]);
    w.done(w[0].tx, sent[1]);
  }
}

// fi_tagged(3), FI_DISCARD with FI_CLAIM: drops what was claimed before.
TEST_F(Peeked, claim_discard__fi_tagged_3_FI_DISCARD) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  for (const size_t len : {size_t{0}, size_t{8}, size_t{5000}, size_t{1'000'000}}) {
    SCOPED_TRACE(len);
    Ctx sent[2], claim, received;
    put(w, len, 1, 30, &sent[0]);
    put(w, len, 1, 31, &sent[1]);
    ASSERT_EQ(find(w, 1, 0, FI_PEEK | FI_CLAIM, &claim).err, 0);
    WEFT_ASSERT_OK(ask(w, 1, 0, FI_CLAIM | FI_DISCARD, &claim));
    EXPECT_EQ(w.wait(w[1].rx, claim).err, 0);
    std::vector<uint8_t> in(len + 1, 0);
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    w.done(w[1].rx, received);
    WEFT_EXPECT_PATTERN(in.data(), len, 31);
    w.done(w[0].tx, sent[0]);
    w.done(w[0].tx, sent[1]);
  }
}

// A directed peek sees messages of that source alone; fi_tagged(3), src_addr.
TEST_F(Peeked, directed__fi_tagged_3_FI_PEEK) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE, .endpoints = 3});
  Ctx sent, peek, received;
  put(w, 8, 1, 1, &sent);
  ASSERT_EQ(find(w, 1, 0, FI_PEEK, &peek).err, 0);
  WEFT_ASSERT_OK(ask(w, 1, 0, FI_PEEK, &peek, w[1].peer[2]));
  EXPECT_EQ(w.wait(w[1].rx, peek).err, FI_ENOMSG);
  WEFT_ASSERT_OK(ask(w, 1, 0, FI_PEEK, &peek, w[1].peer[0]));
  const Completion c = w.wait(w[1].rx, peek);
  EXPECT_EQ(c.err, 0);
  EXPECT_EQ(c.src, w[1].peer[0]);
  uint64_t in = 0;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, w[1].peer[0], 1, 0, &received));
  w.done(w[1].rx, received);
  w.done(w[0].tx, sent);
}

// An endpoint may close with a message peeked, claimed and unexpected.
TEST_F(Peeked, close_with_claimed_message__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  Ctx sent[2], claim;
  put(w, 8, 1, 1, &sent[0]);
  put(w, 500'000, 2, 2, &sent[1]);
  EXPECT_EQ(find(w, 2, 0, FI_PEEK | FI_CLAIM, &claim).err, 0);
  WEFT_EXPECT_OK(w.close_endpoint(1));
}

}  // namespace
}  // namespace weft::conformance
