// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Buffers that take many messages: FI_MULTI_RECV of fi_msg(3), FI_OPT_MIN_MULTI_RECV of fi_endpoint(3), the release of fi_cq(3).
#include <algorithm>
#include <cstring>
#include <random>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

constexpr uint64_t multi_caps = FI_MSG | FI_MULTI_RECV;

ssize_t post_multi(World& w, size_t node, std::vector<uint8_t>& buffer, Ctx& ctx) {
  const iovec to{buffer.data(), buffer.size()};
  const fi_msg msg{&to, nullptr, 1, FI_ADDR_UNSPEC, &ctx, 0};
  return w.post([&] { return fi_recvmsg(w[node], &msg, FI_MULTI_RECV); });
}

void set_min(World& w, size_t node, size_t min) {
  WEFT_ASSERT_OK(fi_setopt(w[node].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof min));
  size_t got = 0, len = sizeof got;
  WEFT_ASSERT_OK(fi_getopt(w[node].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &got, &len));
  EXPECT_EQ(got, min);
  EXPECT_EQ(len, sizeof got);
}

// Messages are packed into the buffer, buf tells where each lies, the buffer is released once less than the minimum is left.
TEST(MultiRecv, packs_and_releases__fi_msg_3_FI_MULTI_RECV) {
  WEFT_WORLD(w, {.caps = multi_caps});
  set_min(w, 1, 100);
  std::vector<uint8_t> buffer(1000, 0);
  Ctx ctx;
  WEFT_ASSERT_OK(post_multi(w, 1, buffer, ctx));
  bool released = false;
  size_t used = 0;
  uint8_t* expected_end = buffer.data();
  for (uint32_t i = 0; i < 19 && !released; ++i) {
    SCOPED_TRACE("message " + std::to_string(i));
    const auto out = pattern(50, i);
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
    const Completion c = w.next(w[1].rx);
    ASSERT_EQ(c.err, 0);
    EXPECT_EQ(c.context, &ctx);
    ASSERT_TRUE(c.flags & FI_RECV);
    EXPECT_EQ(c.len, 50u);
    auto* at = static_cast<uint8_t*>(c.buf);
    ASSERT_GE(at, expected_end);
    ASSERT_LE(at + 50, buffer.data() + buffer.size());
    expected_end = at + 50;
    WEFT_EXPECT_PATTERN(at, 50, i);
    used += 50;
    released = (c.flags & FI_MULTI_RECV) != 0;
    if (!released) {
      EXPECT_GE(buffer.data() + buffer.size() - expected_end, 50)
          << "kept though less than a message is left";
    }
  }
  if (!released) {
    // The provider may tell the release apart, with the flag alone; fi_cq(3), FI_MULTI_RECV.
    const Completion c = w.next(w[1].rx);
    EXPECT_EQ(c.flags & (FI_MULTI_RECV | FI_RECV), FI_MULTI_RECV);
    EXPECT_EQ(c.context, &ctx);
  }
  EXPECT_GE(used, 900u - 50u);
}

// Two buffers one after the other: nothing is lost at the change, and messages that wait for a buffer come later.
TEST(MultiRecv, many_buffers_many_messages__fi_msg_3_FI_MULTI_RECV) {
  WEFT_WORLD(w, {.caps = multi_caps, .msg_order = FI_ORDER_SAS});
  set_min(w, 1, 4096);
  std::mt19937 random(7);
  std::vector<std::vector<uint8_t>> buffers(4, std::vector<uint8_t>(32 * 1024));
  std::vector<Ctx> ctx(4);
  for (size_t i = 0; i < 4; ++i) WEFT_ASSERT_OK(post_multi(w, 1, buffers[i], ctx[i]));
  const uint32_t count = 2000;
  std::vector<size_t> lens;
  for (uint32_t i = 0; i < count; ++i) lens.push_back(random() % 3 == 0 ? random() % 4096 : random() % 100);
  uint32_t posted = 0, seen = 0;
  std::vector<std::vector<uint8_t>> out(count);
  std::vector<Ctx> sent(count);
  const bool all = w.progress_until([&] {
    while (posted < count && posted - seen < 200) {
      if (out[posted].empty()) out[posted] = pattern(std::max<size_t>(lens[posted], 1), posted);
      const auto& data = out[posted];
      if (fi_send(w[0], data.data(), data.size(), nullptr, w[0].peer[1], &sent[posted]) != 0) break;
      ++posted;
    }
    while (!w[1].rx->inbox.empty()) {
      const Completion c = w[1].rx->inbox.front();
      w[1].rx->inbox.pop_front();
      EXPECT_EQ(c.err, 0);
      if (c.err != 0) return true;
      if (c.flags & FI_RECV) {
        EXPECT_EQ(c.len, out[seen].size()) << "message " << seen;
        WEFT_EXPECT_PATTERN(c.buf, c.len, seen);
        ++seen;
      }
      if (c.flags & FI_MULTI_RECV) {
        const size_t which = static_cast<size_t>(static_cast<Ctx*>(c.context) - ctx.data());
        EXPECT_LT(which, 4u);
        // Everything before in this buffer was read already, so it can go back.
        if (which < 4) {
          WEFT_EXPECT_OK(post_multi(w, 1, buffers[which], ctx[which]));
        }
      }
    }
    return seen == count || testing::Test::HasFailure();
  });
  EXPECT_TRUE(all) << "seen " << seen << ", posted " << posted;
  EXPECT_EQ(seen, count);
}

// Messages that came before the buffer was posted, small and large.
TEST(MultiRecv, unexpected_and_large__fi_msg_3_FI_MULTI_RECV) {
  WEFT_WORLD(w, {.caps = multi_caps, .msg_order = FI_ORDER_SAS});
  const std::vector<size_t> lens = {8, 100'000, 40, 0, 300'000, 5000, 8};
  std::vector<std::vector<uint8_t>> out;
  std::vector<Ctx> sent(lens.size());
  for (uint32_t i = 0; i < lens.size(); ++i) {
    out.push_back(pattern(lens[i], i));
    WEFT_ASSERT_OK(
        w.post([&] { return fi_send(w[0], out[i].data(), lens[i], nullptr, w[0].peer[1], &sent[i]); }));
  }
  w.progress_for(milliseconds(2));
  set_min(w, 1, 64);
  std::vector<uint8_t> buffer(1 << 20, 0);
  Ctx ctx;
  WEFT_ASSERT_OK(post_multi(w, 1, buffer, ctx));
  // Messages of different kinds may finish in another order than they match: each is known by its length and bytes.
  std::vector<bool> seen(lens.size(), false);
  for (size_t n = 0; n < lens.size(); ++n) {
    const Completion c = w.next(w[1].rx);
    ASSERT_EQ(c.err, 0);
    bool known = false;
    for (uint32_t i = 0; i < lens.size() && !known; ++i) {
      if (seen[i] || lens[i] != c.len || first_difference(c.buf, c.len, i) != c.len) continue;
      seen[i] = known = true;
    }
    EXPECT_TRUE(known) << "a message of " << c.len << " bytes with wrong data";
  }
  for (auto& s : sent) w.done(w[0].tx, s);
}

// fi_msg(3): the release is always told, even when receives are silent under FI_SELECTIVE_COMPLETION.
TEST(MultiRecv, release_is_told_though_silent__fi_msg_3_FI_MULTI_RECV) {
  WEFT_WORLD(w, {.caps = multi_caps, .rx_bind = FI_RECV | FI_SELECTIVE_COMPLETION});
  set_min(w, 1, 64);
  std::vector<uint8_t> buffer(128, 0);
  Ctx ctx;
  WEFT_ASSERT_OK(post_multi(w, 1, buffer, ctx));
  const auto out = pattern(40, 1);
  for (int i = 0; i < 2; ++i)
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
  const Completion c = w.next(w[1].rx);
  EXPECT_EQ(c.context, &ctx);
  EXPECT_TRUE(c.flags & FI_MULTI_RECV);
  EXPECT_TRUE(w.quiet(w[1].rx));
}

// Too long for what is left of the buffer, though more than the minimum is left: the next buffer takes it, or it is truncated.
TEST(MultiRecv, message_longer_than_the_rest__fi_msg_3_FI_MULTI_RECV) {
  WEFT_WORLD(w, {.caps = multi_caps, .msg_order = FI_ORDER_SAS});
  set_min(w, 1, 16);
  std::vector<uint8_t> one(256), two(1024);
  Ctx first, second;
  WEFT_ASSERT_OK(post_multi(w, 1, one, first));
  WEFT_ASSERT_OK(post_multi(w, 1, two, second));
  const auto a = pattern(200, 1), b = pattern(100, 2);
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], a.data(), a.size(), w[0].peer[1]); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], b.data(), b.size(), w[0].peer[1]); }));
  bool found = false;
  ASSERT_TRUE(w.progress_until([&] {
    for (const auto& c : w[1].rx->inbox) {
      if (c.err == 0 && (c.flags & FI_RECV) && c.len == 100 && first_difference(c.buf, 100, 2) == 100)
        found = true;
      if (c.err == FI_ETRUNC && c.olen > 0) found = true;
    }
    // Which buffer it goes to, and what it costs, is the provider's (fi_domain(3), Rx Buffer Overrun).
    if (manual_only() && w[1].rx->inbox.size() > 1) found = true;
    return found;
  }));
}

// FI_MULTI_RECV as a default of the receive context; fi_endpoint(3), fi_rx_attr op_flags.
TEST(MultiRecv, as_default_op_flag__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = multi_caps, .rx_op_flags = FI_MULTI_RECV});
  set_min(w, 1, 64);
  std::vector<uint8_t> buffer(4096);
  Ctx ctx;
  WEFT_ASSERT_OK(fi_recv(w[1], buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC, &ctx));
  for (uint32_t i = 0; i < 10; ++i) {
    const auto out = pattern(40, i);
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
    const Completion c = w.next(w[1].rx);
    EXPECT_EQ(c.context, &ctx);
    EXPECT_EQ(c.len, 40u);
    WEFT_EXPECT_PATTERN(c.buf, 40, i);
  }
}

// fi_endpoint(3), fi_cancel of a buffer that took messages.
TEST(MultiRecv, cancel__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = multi_caps});
  set_min(w, 1, 64);
  std::vector<uint8_t> buffer(4096);
  Ctx ctx, plain;
  WEFT_ASSERT_OK(post_multi(w, 1, buffer, ctx));
  const auto out = pattern(40, 1);
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
  EXPECT_EQ(w.next(w[1].rx).err, 0);
  WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &ctx));
  const Completion cancelled = w.wait(w[1].rx, ctx);
  EXPECT_EQ(cancelled.err, FI_ECANCELED);
  // fi_msg(3), FI_MULTI_RECV: that the buffer is the program's again is said in the entry of its end, whatever ends it (libfabric 10721).
  if (!manual_only()) {
    EXPECT_EQ(cancelled.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
  }
  std::vector<uint8_t> in(40);
  WEFT_ASSERT_OK(fi_recv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &plain));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
  w.done(w[1].rx, plain);
  WEFT_EXPECT_PATTERN(in.data(), 40, 1);
}

// fi_cq(3): the message that is cut at the end of the buffer tells both, eager and by rendezvous, expected and not.
TEST(MultiRecv, truncation_gives_the_buffer_back__fi_cq_3_olen) {
  WEFT_BEYOND_THE_MANUAL("a message longer than the rest of a multi-receive buffer");
  WEFT_WORLD(w, {.caps = multi_caps, .msg_order = FI_ORDER_SAS});
  set_min(w, 1, 16);
  const size_t most = std::min<size_t>(8 << 20, w.info()->ep_attr->max_msg_size);
  for (const size_t len : {size_t{48}, size_t{1000}, size_t{100'000}, most}) {
    if (len > most) continue;
    for (const bool expected : {true, false}) {
      SCOPED_TRACE(std::to_string(len) + (expected ? " expected" : " unexpected"));
      std::vector<uint8_t> buffer(40 + len / 2 + 16, 0xee);
      const size_t room = buffer.size() - 40 - 16;
      const auto first = pattern(40, 1), second = pattern(len, 2);
      const iovec to{buffer.data(), buffer.size() - 16};
      Ctx ctx, sent;
      const fi_msg msg{&to, nullptr, 1, FI_ADDR_UNSPEC, &ctx, 0};
      const auto receive = [&] {
        WEFT_ASSERT_OK(w.post([&] { return fi_recvmsg(w[1], &msg, FI_MULTI_RECV); }));
      };
      if (expected) receive();
      WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], first.data(), first.size(), w[0].peer[1]); }));
      WEFT_ASSERT_OK(
          w.post([&] { return fi_send(w[0], second.data(), second.size(), nullptr, w[0].peer[1], &sent); }));
      if (!expected) {
        w.progress_for(milliseconds(2));
        receive();
      }
      const Completion whole = w.next(w[1].rx);
      EXPECT_EQ(whole.err, 0);
      EXPECT_EQ(whole.flags, FI_RECV | FI_MSG);
      const Completion cut = w.next(w[1].rx);
      EXPECT_EQ(cut.err, FI_ETRUNC);
      EXPECT_EQ(cut.context, &ctx);
      EXPECT_EQ(cut.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
      EXPECT_EQ(cut.len, room);
      EXPECT_EQ(cut.olen, len - room);
      WEFT_EXPECT_PATTERN(buffer.data() + 40, room, 2);
      EXPECT_EQ(std::count(buffer.end() - 16, buffer.end(), 0xee), 16);
      w.wait(w[0].tx, sent);
      EXPECT_TRUE(w.quiet(w[1].rx)) << "the buffer comes back once";
    }
  }
}

// fi_cq(3), FI_EADDRNOTAVAIL: messages of a source that is not in the address vector are errors; the last one gives the buffer back.
TEST(MultiRecv, unknown_source__fi_cq_3_FI_SOURCE_ERR) {
  WEFT_BEYOND_THE_MANUAL("the flags of an error that is a message");
  WEFT_WORLD(w, {.caps = multi_caps | FI_SOURCE | FI_SOURCE_ERR, .insert = false});
  fi_addr_t to_one = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(w[0].av.get(), w[1].name.data(), 1, &to_one, 0, nullptr), 1);
  set_min(w, 1, 16);
  for (const size_t len : {size_t{40}, size_t{1'000'000}}) {
    if (len > w.info()->ep_attr->max_msg_size) continue;
    SCOPED_TRACE(len);
    std::vector<uint8_t> buffer(2 * len);
    const auto out = pattern(len, 3);
    Ctx ctx;
    WEFT_ASSERT_OK(post_multi(w, 1, buffer, ctx));
    for (size_t i = 0; i < 2; ++i) {
      Ctx sent;
      WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, to_one, &sent); }));
      const Completion c = w.next(w[1].rx);
      EXPECT_EQ(c.err, FI_EADDRNOTAVAIL);
      EXPECT_EQ(c.context, &ctx);
      EXPECT_EQ(c.flags, FI_RECV | FI_MSG | (i == 1 ? FI_MULTI_RECV : 0));
      EXPECT_EQ(c.len, len);
      EXPECT_EQ(c.err_data, w[0].name);
      WEFT_EXPECT_PATTERN(buffer.data() + i * len, len, 3);
      w.wait(w[0].tx, sent);
    }
    EXPECT_TRUE(w.quiet(w[1].rx));
  }
}

}  // namespace
}  // namespace weft::conformance
