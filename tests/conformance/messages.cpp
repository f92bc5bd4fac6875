// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Untagged messages: every call of fi_msg(3), all sizes, truncation, remote CQ data, send to self.
#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

// One message of `len` bytes from endpoint 0 to endpoint 1 by fi_send and fi_recv; the receive is posted first or after.
void one_message(World& w, size_t len, bool receive_first) {
  SCOPED_TRACE("size " + std::to_string(len) + (receive_first ? ", expected" : ", unexpected"));
  const auto out = pattern(len, 7);
  std::vector<uint8_t> in(len + 16, 0xee);
  Ctx sent, received;
  const auto post_receive = [&] {
    WEFT_ASSERT_OK(w.post([&] { return fi_recv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received); }));
  };
  if (receive_first) post_receive();
  WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, w[0].peer[1], &sent); }));
  if (!receive_first) {
    w.progress_for(milliseconds(1));
    post_receive();
  }
  const Completion r = w.done(w[1].rx, received);
  const Completion s = w.done(w[0].tx, sent);
  EXPECT_EQ(r.len, len);
  EXPECT_EQ(r.flags & sure_flags(FI_RECV | FI_MSG), sure_flags(FI_RECV | FI_MSG));
  EXPECT_EQ(s.flags & sure_flags(FI_SEND | FI_MSG), sure_flags(FI_SEND | FI_MSG));
  WEFT_EXPECT_PATTERN(in.data(), len, 7);
  EXPECT_EQ(in[len], 0xee) << "wrote behind the buffer";
}

// fi_msg(3), fi_send and fi_recv; fi_cq(3), COMPLETION FIELDS and COMPLETION FLAGS.
TEST(Messages, every_size_expected__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  for (const size_t len : sizes()) one_message(w, len, true);
}

TEST(Messages, every_size_unexpected__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  for (const size_t len : sizes()) one_message(w, len, false);
}

// The same between two domains of one process.
TEST(Messages, separate_domains__fi_domain_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .own_domains = true});
  for (const size_t len : sizes()) one_message(w, len, true);
}

// fi_msg(3), fi_sendv and fi_recvv: scattered buffers are one message.
TEST(Messages, vectors__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  const size_t limit = std::min(w.info()->tx_attr->iov_limit, w.info()->rx_attr->iov_limit);
  for (const size_t total : {size_t{30}, size_t{300}, size_t{5000}, size_t{100'000}, size_t{3'000'000}}) {
    for (size_t parts = 1; parts <= std::min<size_t>(limit, 4); ++parts) {
      SCOPED_TRACE(std::to_string(total) + " bytes in " + std::to_string(parts) + " parts");
      const auto out = pattern(total, 3);
      std::vector<uint8_t> in(total, 0);
      std::vector<iovec> from, to;
      // The cuts of the two sides differ, so that the copy must handle every overlap.
      for (size_t i = 0, at = 0, bt = 0; i < parts; ++i) {
        const size_t n = i + 1 == parts ? total - at : total / parts - i;
        const size_t m = i + 1 == parts ? total - bt : total / parts + i + 1;
        from.push_back({const_cast<uint8_t*>(out.data()) + at, n});
        to.push_back({in.data() + bt, m});
        at += n;
        bt += m;
      }
      Ctx sent, received;
      WEFT_ASSERT_OK(
          w.post([&] { return fi_recvv(w[1], to.data(), nullptr, parts, FI_ADDR_UNSPEC, &received); }));
      WEFT_ASSERT_OK(
          w.post([&] { return fi_sendv(w[0], from.data(), nullptr, parts, w[0].peer[1], &sent); }));
      EXPECT_EQ(w.done(w[1].rx, received).len, total);
      w.done(w[0].tx, sent);
      WEFT_EXPECT_PATTERN(in.data(), total, 3);
    }
  }
}

// A vector may hold empty parts, and a count of 0 is an empty message; fi_msg(3), fi_sendv.
TEST(Messages, empty_parts_of_vectors__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  if (w.info()->tx_attr->iov_limit < 3) GTEST_SKIP() << "needs three parts";
  const auto out = pattern(20, 9);
  std::vector<uint8_t> in(20, 0);
  const iovec parts[3] = {
      {const_cast<uint8_t*>(out.data()), 8}, {nullptr, 0}, {const_cast<uint8_t*>(out.data()) + 8, 12}};
  Ctx sent, received, sent_none, received_none;
  WEFT_ASSERT_OK(fi_recv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(fi_recv(w[1], nullptr, 0, nullptr, FI_ADDR_UNSPEC, &received_none));
  WEFT_ASSERT_OK(w.post([&] { return fi_sendv(w[0], parts, nullptr, 3, w[0].peer[1], &sent); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_sendv(w[0], nullptr, nullptr, 0, w[0].peer[1], &sent_none); }));
  EXPECT_EQ(w.done(w[1].rx, received).len, 20u);
  WEFT_EXPECT_PATTERN(in.data(), 20, 9);
  EXPECT_EQ(w.done(w[1].rx, received_none).len, 0u);
  w.done(w[0].tx, sent);
  w.done(w[0].tx, sent_none);
}

// fi_msg(3), fi_sendmsg and fi_recvmsg.
TEST(Messages, sendmsg_recvmsg__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  for (const size_t len : {size_t{0}, size_t{8}, size_t{4096}, size_t{1 << 20}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, 5);
    std::vector<uint8_t> in(len + 1, 0);
    const iovec from{const_cast<uint8_t*>(out.data()), len};
    const iovec to{in.data(), len};
    Ctx sent, received;
    fi_msg rx{&to, nullptr, 1, FI_ADDR_UNSPEC, &received, 0};
    fi_msg tx{&from, nullptr, 1, w[0].peer[1], &sent, 0};
    WEFT_ASSERT_OK(w.post([&] { return fi_recvmsg(w[1], &rx, 0); }));
    WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &tx, 0); }));
    EXPECT_EQ(w.done(w[1].rx, received).len, len);
    w.done(w[0].tx, sent);
    WEFT_EXPECT_PATTERN(in.data(), len, 5);
  }
}

// fi_msg(3), fi_inject: the buffer is free when the call returns, and no completion is written.
TEST(Messages, inject_frees_the_buffer_and_is_silent__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  const size_t limit = w.info()->tx_attr->inject_size;
  for (const size_t len : {size_t{0}, size_t{1}, size_t{8}, size_t{40}, size_t{49}, size_t{64}, limit}) {
    if (len > limit) continue;
    SCOPED_TRACE(len);
    auto out = pattern(len, 11);
    std::vector<uint8_t> in(len + 1, 0);
    Ctx received;
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), len, w[0].peer[1]); }));
    std::fill(out.begin(), out.end(), 0xff);
    WEFT_ASSERT_OK(fi_recv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
    EXPECT_EQ(w.done(w[1].rx, received).len, len);
    WEFT_EXPECT_PATTERN(in.data(), len, 11);
  }
  EXPECT_TRUE(w.quiet(w[0].tx)) << "fi_inject wrote a completion";
}

// fi_msg(3), fi_inject: limited by inject_size.
TEST(Messages, inject_too_large_is_refused__fi_msg_3) {
  WEFT_BEYOND_THE_MANUAL("more than inject_size");
  WEFT_WORLD(w, {.caps = FI_MSG});
  one_message(w, 8, true);
  const std::vector<uint8_t> out(w.info()->tx_attr->inject_size + 1);
  const ssize_t rc = fi_inject(w[0], out.data(), out.size(), w[0].peer[1]);
  EXPECT_LT(rc, 0);
  EXPECT_NE(rc, -FI_EAGAIN);
}

// fi_msg(3), fi_senddata and fi_injectdata; fi_cq(3), FI_REMOTE_CQ_DATA.
TEST(Messages, remote_cq_data__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  const size_t width = w.info()->domain_attr->cq_data_size;
  if (width == 0) GTEST_SKIP() << "the provider carries no CQ data";
  const uint64_t mask = width >= 8 ? ~0ULL : (1ULL << (8 * width)) - 1;
  const uint64_t data = 0x8123456789abcdefULL & mask;
  for (const size_t len : {size_t{0}, size_t{8}, size_t{100}, size_t{100'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, 2);
    std::vector<uint8_t> in(len + 1, 0);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_recv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
    WEFT_ASSERT_OK(
        w.post([&] { return fi_senddata(w[0], out.data(), len, nullptr, data, w[0].peer[1], &sent); }));
    const Completion r = w.done(w[1].rx, received);
    EXPECT_TRUE(r.flags & FI_REMOTE_CQ_DATA);
    EXPECT_EQ(r.data, data);
    EXPECT_EQ(r.len, len);
    WEFT_EXPECT_PATTERN(in.data(), len, 2);
    w.done(w[0].tx, sent);
  }
  uint64_t in = 0;
  const uint64_t out = 42;
  Ctx injected, plain, by_flag;
  WEFT_ASSERT_OK(fi_recv(w[1], &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &injected));
  WEFT_ASSERT_OK(w.post([&] { return fi_injectdata(w[0], &out, sizeof out, data, w[0].peer[1]); }));
  Completion r = w.done(w[1].rx, injected);
  EXPECT_TRUE(r.flags & FI_REMOTE_CQ_DATA);
  EXPECT_EQ(r.data, data);
  EXPECT_EQ(in, out);
  // Without data the flag is absent.
  WEFT_ASSERT_OK(fi_recv(w[1], &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &plain));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &out, sizeof out, w[0].peer[1]); }));
  EXPECT_FALSE(w.done(w[1].rx, plain).flags & FI_REMOTE_CQ_DATA);
  // fi_sendmsg carries it when FI_REMOTE_CQ_DATA is given.
  const iovec from{const_cast<uint64_t*>(&out), sizeof out};
  Ctx sent;
  const fi_msg msg{&from, nullptr, 1, w[0].peer[1], &sent, data};
  WEFT_ASSERT_OK(fi_recv(w[1], &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &by_flag));
  WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &msg, FI_REMOTE_CQ_DATA); }));
  r = w.done(w[1].rx, by_flag);
  EXPECT_TRUE(r.flags & FI_REMOTE_CQ_DATA);
  EXPECT_EQ(r.data, data);
  w.done(w[0].tx, sent);
}

// fi_cq(3), olen: what did not fit is counted, the buffer holds the beginning, the error is FI_ETRUNC, the connection goes on.
TEST(Messages, truncation__fi_cq_3_olen) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  for (const bool receive_first : {true, false}) {
    for (const auto& sizes_of_both : std::vector<std::pair<size_t, size_t>>{
             {9, 8}, {64, 0}, {100, 40}, {5000, 4096}, {100'000, 1000}, {3'000'000, 2'000'000}}) {
      const size_t len = sizes_of_both.first, space = sizes_of_both.second;
      SCOPED_TRACE(std::to_string(len) + " bytes into " + std::to_string(space) +
                   (receive_first ? "" : " unexpected"));
      const auto out = pattern(len, 4);
      std::vector<uint8_t> in(space + 8, 0xee);
      Ctx sent, received;
      if (receive_first) {
        WEFT_ASSERT_OK(fi_recv(w[1], in.data(), space, nullptr, FI_ADDR_UNSPEC, &received));
      }
      WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, w[0].peer[1], &sent); }));
      if (!receive_first) {
        w.progress_for(milliseconds(1));
        WEFT_ASSERT_OK(fi_recv(w[1], in.data(), space, nullptr, FI_ADDR_UNSPEC, &received));
      }
      const Completion r = w.wait(w[1].rx, received);
      expect_truncated(r, len - space);
      if (!manual_only()) {
        EXPECT_EQ(r.len, space);
      }
      WEFT_EXPECT_PATTERN(in.data(), space, 4);
      for (size_t i = space; i < in.size(); ++i) EXPECT_EQ(in[i], 0xee) << "wrote behind the buffer";
      w.wait(w[0].tx, sent);  // whether the sender hears of it is the provider's choice
    }
  }
  one_message(w, 100, true);
}

// A message that was cut leaves nothing behind: the thousand after it are whole (libfabric 8274).
TEST(Messages, a_thousand_after_a_truncated_one__fi_cq_3_olen) {
  WEFT_WORLD(w, {.caps = FI_MSG, .msg_order = FI_ORDER_SAS});
  for (const size_t len : {size_t{100}, size_t{20'000}, size_t{400'000}}) {
    const auto out = pattern(len, 4);
    std::vector<uint8_t> in(len);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_recv(w[1], in.data(), 10, nullptr, FI_ADDR_UNSPEC, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, w[0].peer[1], &sent); }));
    expect_truncated(w.wait(w[1].rx, received), len - 10);
    w.wait(w[0].tx, sent);
    for (uint32_t i = 0; i < 340; ++i) {
      const size_t good = i % 40 == 0 ? len : i % 64;
      const auto next = pattern(good, i);
      WEFT_ASSERT_OK(
          w.post([&] { return fi_recv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received); }));
      WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], next.data(), good, nullptr, w[0].peer[1], &sent); }));
      ASSERT_EQ(w.done(w[1].rx, received).len, good);
      w.done(w[0].tx, sent);
      WEFT_EXPECT_PATTERN(in.data(), good, i);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// fi_av(3): an endpoint may insert its own address.
TEST(Messages, send_to_self__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .endpoints = 1});
  for (const size_t len : sizes()) {
    for (const bool receive_first : {true, false}) {
      SCOPED_TRACE(len);
      const auto out = pattern(len, 6);
      std::vector<uint8_t> in(len + 1, 0);
      Ctx sent, received;
      if (receive_first) {
        WEFT_ASSERT_OK(fi_recv(w[0], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
      }
      WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, w[0].peer[0], &sent); }));
      if (!receive_first) {
        WEFT_ASSERT_OK(fi_recv(w[0], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
      }
      EXPECT_EQ(w.done(w[0].rx, received).len, len);
      w.done(w[0].tx, sent);
      WEFT_EXPECT_PATTERN(in.data(), len, 6);
    }
  }
}

// A receive buffer larger than the message: len is what was sent; fi_cq(3), len.
TEST(Messages, shorter_than_the_buffer__fi_cq_3_len) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  for (const size_t len : {size_t{0}, size_t{5}, size_t{50}, size_t{5000}, size_t{500'000}}) {
    const auto out = pattern(len, 8);
    std::vector<uint8_t> in(len + 1000, 0xee);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_recv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, w[0].peer[1], &sent); }));
    EXPECT_EQ(w.done(w[1].rx, received).len, len);
    w.done(w[0].tx, sent);
    WEFT_EXPECT_PATTERN(in.data(), len, 8);
    EXPECT_EQ(in[len], 0xee);
  }
}

// fi_cancel, fi_endpoint(3): a pending receive completes with FI_ECANCELED, and the message goes to the next one.
TEST(Messages, cancel_receive__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  uint64_t first = 0, second = 0;
  const uint64_t out = 77;
  Ctx canceled, kept;
  WEFT_ASSERT_OK(fi_recv(w[1], &first, sizeof first, nullptr, FI_ADDR_UNSPEC, &canceled));
  WEFT_ASSERT_OK(fi_recv(w[1], &second, sizeof second, nullptr, FI_ADDR_UNSPEC, &kept));
  WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &canceled));
  EXPECT_EQ(w.wait(w[1].rx, canceled).err, FI_ECANCELED);
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &out, sizeof out, w[0].peer[1]); }));
  w.done(w[1].rx, kept);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, out);
  // Cancel of what completed already leaves no trace: no entry is posted for the call itself.
  fi_cancel(w[1].ep.fid(), &kept);
  EXPECT_TRUE(w.quiet(w[1].rx));
}

// FI_MSG and FI_TAGGED are matched apart; fi_tagged(3).
TEST(Messages, tagged_and_untagged_do_not_meet__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED});
  uint64_t plain = 0, tagged = 0;
  const uint64_t one = 1, two = 2;
  Ctx got_plain, got_tagged;
  WEFT_ASSERT_OK(fi_recv(w[1], &plain, 8, nullptr, FI_ADDR_UNSPEC, &got_plain));
  WEFT_ASSERT_OK(fi_trecv(w[1], &tagged, 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &got_tagged));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &two, 8, w[0].peer[1], 0); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &one, 8, w[0].peer[1]); }));
  w.done(w[1].rx, got_plain);
  w.done(w[1].rx, got_tagged);
  EXPECT_EQ(plain, one);
  EXPECT_EQ(tagged, two);
}

// fi_msg(3), FI_MORE: only a hint. The last one without it brings all of them.
TEST(Messages, more__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .msg_order = FI_ORDER_SAS});
  uint64_t in[20], out[20];
  std::vector<Ctx> sent(20), received(20);
  for (size_t i = 0; i < 20; ++i) {
    WEFT_ASSERT_OK(fi_recv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &received[i]));
  }
  for (size_t i = 0; i < 20; ++i) {
    out[i] = i;
    const iovec from{&out[i], 8};
    const fi_msg msg{&from, nullptr, 1, w[0].peer[1], &sent[i], 0};
    WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &msg, i == 19 ? 0 : FI_MORE); }));
  }
  for (size_t i = 0; i < 20; ++i) {
    w.done(w[1].rx, received[i]);
    w.done(w[0].tx, sent[i]);
    EXPECT_EQ(in[i], i);
  }
}

// fi_getinfo(3), FI_SEND and FI_RECV restrict FI_MSG: an endpoint for one direction needs a queue for that direction alone.
TEST(Messages, one_direction_only__fi_getinfo_3) {
  const Options to_send{.caps = FI_MSG | FI_SEND, .endpoints = 0};
  const Options to_receive{.caps = FI_MSG | FI_RECV};
  WEFT_SKIP_IF(missing(to_send));
  WEFT_WORLD(w, to_receive);
  const Info info = find_info(to_send);
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  fi_av_attr av_attr{};
  Handle<fid_av> av;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  Cq* cq = w.add_cq(w.domain(), cq_attr);
  Handle<fid_ep> ep;
  WEFT_ASSERT_OK(fi_endpoint(w.domain(), info.get(), ep.out(), nullptr));
  WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
  WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cq->fid(), FI_TRANSMIT));
  WEFT_ASSERT_OK(fi_enable(ep.get()));
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(av.get(), w[0].name.data(), 1, &to, 0, nullptr), 1);
  for (const size_t len : {size_t{8}, size_t{300'000}}) {
    const auto out = pattern(len, 1);
    std::vector<uint8_t> in(len);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_recv(w[0], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_send(ep.get(), out.data(), len, nullptr, to, &sent); }));
    w.done(w[0].rx, received);
    w.done(cq, sent);
    WEFT_EXPECT_PATTERN(in.data(), len, 1);
  }
}

}  // namespace
}  // namespace weft::conformance
