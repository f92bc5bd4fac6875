// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tagged messages: every call of fi_tagged(3), matching by tag and mask, order of wildcard and exact receives, cancel.
#include <algorithm>
#include <random>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

void one_message(World& w, size_t len, uint64_t tag, bool receive_first) {
  SCOPED_TRACE("size " + std::to_string(len) + (receive_first ? ", expected" : ", unexpected"));
  const auto out = pattern(len, 7);
  std::vector<uint8_t> in(len + 16, 0xee);
  Ctx sent, received;
  const auto post_receive = [&] {
    WEFT_ASSERT_OK(
        w.post([&] { return fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, tag, 0, &received); }));
  };
  if (receive_first) post_receive();
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], tag, &sent); }));
  if (!receive_first) {
    w.progress_for(milliseconds(1));
    post_receive();
  }
  const Completion r = w.done(w[1].rx, received);
  const Completion s = w.done(w[0].tx, sent);
  EXPECT_EQ(r.len, len);
  EXPECT_EQ(r.tag, tag);
  EXPECT_EQ(r.flags & (FI_RECV | FI_TAGGED), FI_RECV | FI_TAGGED);
  EXPECT_EQ(s.flags & (FI_SEND | FI_TAGGED), FI_SEND | FI_TAGGED);
  WEFT_EXPECT_PATTERN(in.data(), len, 7);
  EXPECT_EQ(in[len], 0xee) << "wrote behind the buffer";
}

// fi_tagged(3), fi_tsend and fi_trecv; fi_cq(3), tag.
TEST(Tagged, every_size_expected__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  uint64_t tag = 1;
  for (const size_t len : sizes()) one_message(w, len, tag++ << 40 | 5, true);
}

TEST(Tagged, every_size_unexpected__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  uint64_t tag = 1;
  for (const size_t len : sizes()) one_message(w, len, tag++ << 40 | 5, false);
}

TEST(Tagged, all_bits_of_the_tag__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  const uint64_t bits = tag_bits(w.info());
  for (const uint64_t all : {0ULL, 1ULL, 1ULL << 63, ~0ULL, 0x0123456789abcdefULL}) {
    const uint64_t tag = all == 1ULL << 63 ? bits & ~(bits >> 1) : all & bits;
    SCOPED_TRACE(tag);
    one_message(w, 8, tag, true);
    one_message(w, 8, tag, false);
    one_message(w, 100'000, tag, true);
    one_message(w, 100'000, tag, false);
  }
}

TEST(Tagged, every_av_type__fi_av_3) {
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = type});
    EXPECT_EQ(w.info()->domain_attr->av_type, type);
    one_message(w, 8, 1, true);
    one_message(w, 70'000, 1, false);
  }
}

// Sends an 8-byte value with a tag, by inject.
void put(World& w, uint64_t value, uint64_t tag, size_t from = 0, size_t to = 1) {
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[from], &value, sizeof value, w[from].peer[to], tag); }));
}

// fi_tagged(3), DESCRIPTION: send_tag & ~ignore == recv_tag & ~ignore.
TEST(TaggedRecv, ignore_mask__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  uint64_t got[4] = {};
  Ctx ctx[4];
  WEFT_ASSERT_OK(fi_trecv(w[1], &got[0], 8, nullptr, FI_ADDR_UNSPEC, 0xff00, 0, &ctx[0]));
  WEFT_ASSERT_OK(fi_trecv(w[1], &got[1], 8, nullptr, FI_ADDR_UNSPEC, 0xaa55, 0x00ff, &ctx[1]));
  WEFT_ASSERT_OK(fi_trecv(w[1], &got[2], 8, nullptr, FI_ADDR_UNSPEC, 0x1, ~1ULL, &ctx[2]));
  WEFT_ASSERT_OK(fi_trecv(w[1], &got[3], 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &ctx[3]));
  put(w, 1, 0xaa00);  // ctx 1
  const uint64_t even = 0xffffffff00000000ULL & tag_bits(w.info());
  const uint64_t odd = 0x8000000000000001ULL & tag_bits(w.info());
  put(w, 2, even);    // ctx 3
  put(w, 3, odd);     // ctx 2
  put(w, 4, 0xff00);  // ctx 0
  const uint64_t want_value[4] = {4, 1, 3, 2};
  const uint64_t want_tag[4] = {0xff00, 0xaa00, odd, even};
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const Completion r = w.done(w[1].rx, ctx[i]);
    EXPECT_EQ(got[i], want_value[i]);
    EXPECT_EQ(r.tag, want_tag[i]) << "the completion holds the tag that was sent";
  }
}

// fi_tagged(3), fi_trecv: posted receives are searched in the order in which they were posted, exact and wildcard alike.
TEST(TaggedRecv, posting_order_of_exact_and_wildcard__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  struct Post {
    uint64_t tag, ignore;
  };
  const std::vector<Post> posts = {{5, 0}, {0, ~0ULL}, {5, 0}, {4, 1}, {5, 0}, {0, ~0ULL}, {7, 0}, {5, 0}};
  std::vector<uint64_t> got(posts.size(), 0);
  std::vector<Ctx> ctx(posts.size());
  for (size_t i = 0; i < posts.size(); ++i) {
    WEFT_ASSERT_OK(
        fi_trecv(w[1], &got[i], 8, nullptr, FI_ADDR_UNSPEC, posts[i].tag, posts[i].ignore, &ctx[i]));
  }
  // Messages and, by the model, the receive that each takes.
  const std::vector<std::pair<uint64_t, size_t>> sends = {{5, 0}, {5, 1}, {7, 5}, {5, 2},
                                                          {5, 3}, {5, 4}, {5, 7}, {7, 6}};
  for (size_t i = 0; i < sends.size(); ++i) put(w, i + 100, sends[i].first);
  for (size_t i = 0; i < sends.size(); ++i) {
    SCOPED_TRACE("message " + std::to_string(i));
    EXPECT_EQ(w.done(w[1].rx, ctx[sends[i].second]).tag, sends[i].first);
    EXPECT_EQ(got[sends[i].second], i + 100);
  }
}

// Unexpected messages are searched in the order of their arrival.
TEST(TaggedRecv, arrival_order_of_unexpected__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  for (uint64_t i = 0; i < 40; ++i) put(w, i, i % 4);
  w.progress_for(milliseconds(2));
  const auto take = [&](uint64_t tag, uint64_t ignore) {
    uint64_t got = ~0ULL;
    Ctx ctx;
    WEFT_EXPECT_OK(fi_trecv(w[1], &got, 8, nullptr, FI_ADDR_UNSPEC, tag, ignore, &ctx));
    w.done(w[1].rx, ctx);
    return got;
  };
  EXPECT_EQ(take(3, 0), 3u);
  EXPECT_EQ(take(0, ~0ULL), 0u);
  EXPECT_EQ(take(0, ~0ULL), 1u);
  EXPECT_EQ(take(3, 0), 7u);
  EXPECT_EQ(take(0, 2), 2u);
  EXPECT_EQ(take(0, 2), 4u);
  for (uint64_t i = 0; i < 5; ++i) take(0, ~0ULL);
}

// A random mix against a model of the matching rules.
TEST(TaggedRecv, random_matching_against_a_model__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  struct Recv {
    uint64_t tag, ignore;
    bool used = false;
  };
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const size_t n = 60;
    std::vector<Recv> receives;
    for (size_t i = 0; i < n; ++i) {
      const uint64_t masks[] = {0, 0, 0, 1, 6, ~0ULL};
      receives.push_back({random() % 6, masks[random() % 6]});
    }
    receives.push_back({0, ~0ULL});
    std::vector<uint64_t> got(receives.size(), ~0ULL);
    std::vector<Ctx> ctx(receives.size());
    for (size_t i = 0; i < receives.size(); ++i) {
      WEFT_ASSERT_OK(w.post([&] {
        return fi_trecv(w[1], &got[i], 8, nullptr, FI_ADDR_UNSPEC, receives[i].tag, receives[i].ignore,
                        &ctx[i]);
      }));
    }
    std::vector<size_t> taken_by;
    for (uint64_t m = 0; m < n; ++m) {
      const uint64_t tag = random() % 6;
      put(w, m, tag);
      const auto match = std::find_if(receives.begin(), receives.end(), [&](const Recv& r) {
        return !r.used && (r.tag & ~r.ignore) == (tag & ~r.ignore);
      });
      if (match == receives.end()) {
        taken_by.push_back(receives.size());
        continue;
      }
      match->used = true;
      taken_by.push_back(static_cast<size_t>(match - receives.begin()));
    }
    for (size_t m = 0; m < n; ++m) {
      if (taken_by[m] == receives.size()) continue;
      w.done(w[1].rx, ctx[taken_by[m]]);
      EXPECT_EQ(got[taken_by[m]], m) << "message " << m << " belongs to receive " << taken_by[m];
    }
    // Clear what is left on both sides before the next round.
    for (size_t i = 0; i < receives.size(); ++i) {
      if (receives[i].used) continue;
      fi_cancel(w[1].ep.fid(), &ctx[i]);
      EXPECT_EQ(w.wait(w[1].rx, ctx[i]).err, FI_ECANCELED);
    }
    for (size_t m = 0; m < n; ++m) {
      if (taken_by[m] != receives.size()) continue;
      uint64_t value = ~0ULL;
      Ctx rest;
      WEFT_ASSERT_OK(fi_trecv(w[1], &value, 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &rest));
      w.done(w[1].rx, rest);
      EXPECT_EQ(value, m);
    }
    if (testing::Test::HasFailure()) return;
  }
}

// fi_tagged(3), fi_tsendv, fi_trecvv, fi_tsendmsg, fi_trecvmsg.
TEST(Tagged, vectors_and_msg_calls__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  const size_t limit = std::min({w.info()->tx_attr->iov_limit, w.info()->rx_attr->iov_limit, size_t{4}});
  for (const size_t total : {size_t{20}, size_t{200}, size_t{20'000}, size_t{2'000'000}}) {
    for (const bool by_msg : {false, true}) {
      SCOPED_TRACE(std::to_string(total) + (by_msg ? " by fi_tsendmsg" : " by fi_tsendv"));
      const auto out = pattern(total, 3);
      std::vector<uint8_t> in(total, 0);
      std::vector<iovec> from, to;
      for (size_t i = 0, at = 0; i < limit; ++i) {
        const size_t n = i + 1 == limit ? total - at : total / limit - 1;
        from.push_back({const_cast<uint8_t*>(out.data()) + at, n});
        at += n;
      }
      to.push_back({in.data(), 3});
      if (limit > 1) to.push_back({in.data() + 3, total - 3});
      if (limit == 1) to[0].iov_len = total;
      Ctx sent, received;
      const fi_msg_tagged tx{from.data(), nullptr, from.size(), w[0].peer[1], 0x77, 0, &sent, 0};
      const fi_msg_tagged rx{to.data(), nullptr, to.size(), FI_ADDR_UNSPEC, 0x70, 0xf, &received, 0};
      WEFT_ASSERT_OK(w.post([&] {
        return by_msg ? fi_trecvmsg(w[1], &rx, 0)
                      : fi_trecvv(w[1], to.data(), nullptr, to.size(), FI_ADDR_UNSPEC, 0x70, 0xf, &received);
      }));
      WEFT_ASSERT_OK(w.post([&] {
        return by_msg ? fi_tsendmsg(w[0], &tx, 0)
                      : fi_tsendv(w[0], from.data(), nullptr, from.size(), w[0].peer[1], 0x77, &sent);
      }));
      const Completion r = w.done(w[1].rx, received);
      EXPECT_EQ(r.len, total);
      EXPECT_EQ(r.tag, 0x77u);
      w.done(w[0].tx, sent);
      WEFT_EXPECT_PATTERN(in.data(), total, 3);
    }
  }
}

// fi_tagged(3), fi_tinject: the buffer is free at once, no completion.
TEST(Tagged, inject__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  const size_t limit = w.info()->tx_attr->inject_size;
  for (const size_t len :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{40}, size_t{48}, size_t{49}, size_t{64}, limit}) {
    if (len > limit) continue;
    SCOPED_TRACE(len);
    auto out = pattern(len, 11);
    std::vector<uint8_t> in(len + 1, 0);
    Ctx received;
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], out.data(), len, w[0].peer[1], len); }));
    std::fill(out.begin(), out.end(), 0xff);
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, len, 0, &received));
    EXPECT_EQ(w.done(w[1].rx, received).len, len);
    WEFT_EXPECT_PATTERN(in.data(), len, 11);
  }
  EXPECT_TRUE(w.quiet(w[0].tx));
  if (manual_only()) return;
  const std::vector<uint8_t> large(limit + 1);
  const ssize_t rc = fi_tinject(w[0], large.data(), large.size(), w[0].peer[1], 0);
  EXPECT_LT(rc, 0) << "fi_msg(3), fi_inject: limited by inject_size";
  EXPECT_NE(rc, -FI_EAGAIN);
}

// fi_tagged(3), fi_tsenddata and fi_tinjectdata.
TEST(Tagged, remote_cq_data__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  const size_t width = w.info()->domain_attr->cq_data_size;
  if (width == 0) GTEST_SKIP() << "the provider carries no CQ data";
  const uint64_t data = 0x8123456789abcdefULL & (width >= 8 ? ~0ULL : (1ULL << (8 * width)) - 1);
  for (const size_t len : {size_t{0}, size_t{8}, size_t{60}, size_t{9000}, size_t{1'000'000}}) {
    for (const bool receive_first : {true, false}) {
      SCOPED_TRACE(len);
      const auto out = pattern(len, 2);
      std::vector<uint8_t> in(len + 1, 0);
      Ctx sent, received;
      const auto receive = [&] {
        return fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 9, 0, &received);
      };
      if (receive_first) {
        WEFT_ASSERT_OK(receive());
      }
      WEFT_ASSERT_OK(
          w.post([&] { return fi_tsenddata(w[0], out.data(), len, nullptr, data, w[0].peer[1], 9, &sent); }));
      if (!receive_first) {
        w.progress_for(milliseconds(1));
        WEFT_ASSERT_OK(receive());
      }
      const Completion r = w.done(w[1].rx, received);
      EXPECT_TRUE(r.flags & FI_REMOTE_CQ_DATA);
      EXPECT_EQ(r.data, data);
      EXPECT_EQ(r.tag, 9u);
      w.done(w[0].tx, sent);
      WEFT_EXPECT_PATTERN(in.data(), len, 2);
    }
  }
  uint64_t in = 0;
  const uint64_t out = 42;
  Ctx received;
  WEFT_ASSERT_OK(w.post([&] { return fi_tinjectdata(w[0], &out, sizeof out, data, w[0].peer[1], 3); }));
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 3, 0, &received));
  const Completion r = w.done(w[1].rx, received);
  EXPECT_TRUE(r.flags & FI_REMOTE_CQ_DATA);
  EXPECT_EQ(r.data, data);
  EXPECT_EQ(in, out);
}

// fi_cq(3), olen.
TEST(Tagged, truncation__fi_cq_3_olen) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  for (const bool receive_first : {true, false}) {
    for (const auto& sizes_of_both : std::vector<std::pair<size_t, size_t>>{
             {9, 8}, {8, 0}, {100, 40}, {5000, 4096}, {1'000'000, 100'000}}) {
      const size_t len = sizes_of_both.first, space = sizes_of_both.second;
      SCOPED_TRACE(std::to_string(len) + " bytes into " + std::to_string(space) +
                   (receive_first ? "" : " unexpected"));
      const auto out = pattern(len, 4);
      std::vector<uint8_t> in(space + 8, 0xee);
      Ctx sent, received;
      const auto receive = [&] {
        return fi_trecv(w[1], in.data(), space, nullptr, FI_ADDR_UNSPEC, 1, 0, &received);
      };
      if (receive_first) {
        WEFT_ASSERT_OK(receive());
      }
      WEFT_ASSERT_OK(
          w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 1, &sent); }));
      if (!receive_first) {
        w.progress_for(milliseconds(1));
        WEFT_ASSERT_OK(receive());
      }
      const Completion r = w.wait(w[1].rx, received);
      expect_truncated(r, len - space);
      if (!manual_only()) {
        EXPECT_EQ(r.len, space);
      }
      EXPECT_EQ(r.tag, 1u);
      WEFT_EXPECT_PATTERN(in.data(), space, 4);
      EXPECT_EQ(in[space], 0xee) << "wrote behind the buffer";
      w.wait(w[0].tx, sent);
      if (r.err < 0) return;
    }
  }
  one_message(w, 100, 5, true);
}

// fi_endpoint(3), fi_cancel, for exact and wildcard receives; the others keep their order.
TEST(TaggedRecv, cancel__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  uint64_t got[6] = {};
  Ctx ctx[6];
  for (int i = 0; i < 6; ++i) {
    WEFT_ASSERT_OK(fi_trecv(w[1], &got[i], 8, nullptr, FI_ADDR_UNSPEC, 1, i % 2 == 0 ? 0 : ~0ULL, &ctx[i]));
  }
  for (const int i : {0, 3, 5}) {
    WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &ctx[i]));
    const Completion c = w.wait(w[1].rx, ctx[i]);
    EXPECT_EQ(c.err, FI_ECANCELED);
  }
  put(w, 10, 1);
  put(w, 11, 1);
  put(w, 12, 1);
  for (const int i : {1, 2, 4}) w.done(w[1].rx, ctx[i]);
  EXPECT_EQ(got[1], 10u);
  EXPECT_EQ(got[2], 11u);
  EXPECT_EQ(got[4], 12u);
  EXPECT_EQ(got[0] + got[3] + got[5], 0u);
  EXPECT_TRUE(w.quiet(w[1].rx));
}

// A context that belongs to nothing: no entry, and the call says it at most by a negative value.
// A program that posts, cancels and reads in turns finds an entry at every read. The endpoint makes progress all the same: each message is received once,
// in order.
TEST(TaggedRecv, cancel_races_with_messages__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("progress by a read that finds an entry");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  constexpr uint64_t count = 200;
  const auto end = std::chrono::steady_clock::now() + timeout_default;
  uint64_t got = 0, sent = 0, in = 0;
  uint64_t out[count];
  Ctx receive, send;
  bool sending = false;
  while (got < count && std::chrono::steady_clock::now() < end) {
    if (!sending && sent < count) {
      out[sent] = sent;
      sending = fi_tsend(w[0], &out[sent], 8, nullptr, w[0].peer[1], 7, &send) == 0;
    }
    if (w[0].tx->poll(); !w[0].tx->inbox.empty()) {
      EXPECT_TRUE(w[0].tx->inbox.front().ok());
      w[0].tx->inbox.clear();
      sending = false;
      ++sent;
    }
    ssize_t rc = fi_trecv(w[1], &in, 8, nullptr, w[1].peer[0], 7, 0, &receive);
    if (rc == -FI_EAGAIN) {
      w[1].rx->poll();
      continue;
    }
    ASSERT_EQ(rc, 0);
    (void)fi_cancel(w[1].ep.fid(), &receive);
    // One entry by one read, as such a program does it.
    fi_cq_tagged_entry entry{};
    fi_cq_err_entry error{};
    while ((rc = fi_cq_read(w[1].rx->get(), &entry, 1)) == -FI_EAGAIN &&
           std::chrono::steady_clock::now() < end)
      w[0].tx->poll();
    if (rc == 1) {
      ASSERT_EQ(in, got) << "lost, or twice";
      ++got;
    } else {
      ASSERT_EQ(rc, -FI_EAVAIL);
      ASSERT_EQ(fi_cq_readerr(w[1].rx->get(), &error, 0), 1);
      ASSERT_EQ(error.err, FI_ECANCELED);
    }
  }
  EXPECT_EQ(got, count);
}

TEST(TaggedRecv, cancel_of_nothing__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  Ctx nothing;
  EXPECT_LE(fi_cancel(w[1].ep.fid(), &nothing), 0);
  EXPECT_TRUE(w.quiet(w[1].rx));
  one_message(w, 8, 1, true);
}

TEST(Tagged, send_to_self__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  for (const size_t len : {size_t{0}, size_t{8}, size_t{100}, size_t{9000}, size_t{1 << 20}}) {
    for (const bool receive_first : {true, false}) {
      SCOPED_TRACE(len);
      const auto out = pattern(len, 6);
      std::vector<uint8_t> in(len + 1, 0);
      Ctx sent, received;
      const auto receive = [&] {
        return fi_trecv(w[0], in.data(), len, nullptr, FI_ADDR_UNSPEC, 2, 0, &received);
      };
      if (receive_first) {
        WEFT_ASSERT_OK(receive());
      }
      WEFT_ASSERT_OK(
          w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[0], 2, &sent); }));
      if (!receive_first) {
        WEFT_ASSERT_OK(receive());
      }
      EXPECT_EQ(w.done(w[0].rx, received).len, len);
      w.done(w[0].tx, sent);
      WEFT_EXPECT_PATTERN(in.data(), len, 6);
    }
  }
}

}  // namespace
}  // namespace weft::conformance
