// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where a message comes from: FI_DIRECTED_RECV, FI_SOURCE by fi_cq_readfrom, FI_SOURCE_ERR.
#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

void put(World& w, size_t from, size_t to, uint64_t value, uint64_t tag) {
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[from], &value, sizeof value, w[from].peer[to], tag); }));
}

// fi_cq(3), fi_cq_readfrom.
TEST(Source, readfrom__fi_cq_3) {
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_SOURCE, .av_type = type, .endpoints = 4});
    for (const size_t len : {size_t{0}, size_t{8}, size_t{100}, size_t{300'000}}) {
      for (size_t from = 0; from < 4; ++from) {
        SCOPED_TRACE("from " + std::to_string(from) + ", size " + std::to_string(len));
        const auto out = pattern(len, 1);
        std::vector<uint8_t> in(len + 1);
        Ctx sent, received;
        WEFT_ASSERT_OK(
            w.post([&] { return fi_tsend(w[from], out.data(), len, nullptr, w[from].peer[1], 7, &sent); }));
        WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 7, 0, &received));
        EXPECT_EQ(w.done(w[1].rx, received).src, w[1].peer[from]);
        w.done(w[from].tx, sent);
        WEFT_ASSERT_OK(fi_recv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
        WEFT_ASSERT_OK(
            w.post([&] { return fi_send(w[from], out.data(), len, nullptr, w[from].peer[1], &sent); }));
        EXPECT_EQ(w.done(w[1].rx, received).src, w[1].peer[from]);
        w.done(w[from].tx, sent);
      }
    }
  }
}

// fi_cq(3), fi_cq_readfrom: a source that the AV does not hold is FI_ADDR_NOTAVAIL under FI_SOURCE alone.
TEST(Source, unknown_source_is_not_available__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_SOURCE, .av_type = FI_AV_TABLE, .insert = false});
  fi_addr_t to_one = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(w[0].av.get(), w[1].name.data(), 1, &to_one, 0, nullptr), 1);
  uint64_t in = 0;
  const uint64_t value = 5;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &value, 8, to_one, 1); }));
  const Completion c = w.done(w[1].rx, received);
  EXPECT_EQ(c.src, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(in, value);
}

// fi_cq(3), fi_cq_readfrom: without FI_SOURCE no source is available, and the caller's place for it is written all the same (libfabric 11155).
TEST(Source, readfrom_without_it__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED});
  if ((w.info()->caps & FI_SOURCE) != 0) GTEST_SKIP() << "FI_SOURCE is there unasked";
  const uint64_t value = 5;
  uint64_t in = 0;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  put(w, 0, 1, value, 1);
  fi_cq_tagged_entry entry{};
  fi_addr_t source = 0x5a5a;
  if (!w[1].rx->inbox.empty()) GTEST_SKIP() << "the completion was read by the post";
  ssize_t n = -FI_EAGAIN;
  const auto end = std::chrono::steady_clock::now() + timeout_default;
  while ((n = fi_cq_readfrom(w[1].rx->get(), &entry, 1, &source)) == -FI_EAGAIN &&
         std::chrono::steady_clock::now() < end)
    w[0].tx->poll();
  ASSERT_EQ(n, 1);
  EXPECT_EQ(entry.op_context, &received);
  EXPECT_EQ(source, FI_ADDR_NOTAVAIL);
}

// As above, by the blocking read.
TEST(Source, sreadfrom_without_it__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED, .wait_obj = FI_WAIT_UNSPEC});
  if ((w.info()->caps & FI_SOURCE) != 0) GTEST_SKIP() << "FI_SOURCE is there unasked";
  uint64_t in = 0;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  put(w, 0, 1, 5, 1);
  if (!w[1].rx->inbox.empty()) GTEST_SKIP() << "the completion was read by the post";
  fi_cq_tagged_entry entry{};
  fi_addr_t source = 0x5a5a;
  ssize_t n = -FI_EAGAIN;
  const auto end = std::chrono::steady_clock::now() + timeout_default;
  while ((n = fi_cq_sreadfrom(w[1].rx->get(), &entry, 1, &source, nullptr, 1)) == -FI_EAGAIN &&
         std::chrono::steady_clock::now() < end)
    w[0].tx->poll();
  ASSERT_EQ(n, 1);
  EXPECT_EQ(entry.op_context, &received);
  EXPECT_EQ(source, FI_ADDR_NOTAVAIL);
}

// fi_cq(3), fi_cq_readfrom: only a received message has a source. Sends, RMA, atomics and the data of a remote write have none.
TEST(Source, of_other_operations__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE, .one_cq = true});
  uint64_t target = 0, in = 0, word = 5;
  Region region = w.reg(1, &target, sizeof target, FI_REMOTE_READ | FI_REMOTE_WRITE);
  ASSERT_TRUE(region);
  Ctx received, context;
  const auto none = [&](const char* what, const std::function<ssize_t()>& post) {
    SCOPED_TRACE(what);
    WEFT_ASSERT_OK(w.post(post));
    EXPECT_EQ(w.done(w[0].tx, context).src, FI_ADDR_NOTAVAIL);
  };
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  none("send", [&] { return fi_tsend(w[0], &word, 8, nullptr, w[0].peer[1], 1, &context); });
  EXPECT_EQ(w.done(w[1].rx, received).src, w[1].peer[0]);
  none("write",
       [&] { return fi_write(w[0], &word, 8, nullptr, w[0].peer[1], region.at(), region.key(), &context); });
  none("read",
       [&] { return fi_read(w[0], &word, 8, nullptr, w[0].peer[1], region.at(), region.key(), &context); });
  none("atomic", [&] {
    return fi_atomic(w[0], &word, 1, nullptr, w[0].peer[1], region.at(), region.key(), FI_UINT64, FI_SUM,
                     &context);
  });
  if (w.info()->domain_attr->cq_data_size == 0) return;
  none("write with data", [&] {
    return fi_writedata(w[0], &word, 8, nullptr, 9, w[0].peer[1], region.at(), region.key(), &context);
  });
  const Completion told = w.next(w[1].rx);
  EXPECT_NE(told.flags & FI_REMOTE_CQ_DATA, 0u);
  EXPECT_EQ(told.src, FI_ADDR_NOTAVAIL);
}

// Two endpoints of one queue: each names its senders as its own capabilities say.
TEST(Source, one_queue_for_an_endpoint_with_it_and_one_without__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_SOURCE, .endpoints = 1});
  WEFT_SKIP_IF(w.info()->ep_attr->type == FI_EP_MSG ? "endpoints stand in pairs" : "");
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  Cq cq(w.domain(), cq_attr, true);
  ASSERT_EQ(cq.open_error(), 0);
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  Handle<fid_av> av;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  fi_addr_t back = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(av.get(), w[0].name.data(), 1, &back, 0, nullptr), 1);
  for (const bool with_first : {true, false}) {
    Handle<fid_ep> ends[2];
    fi_addr_t to[2];
    for (const size_t i : {0, 1}) {
      const bool with = (i == 0) == with_first;
      Info info(fi_dupinfo(w.info()));
      if (!with) {
        info->caps &= ~uint64_t{FI_SOURCE};
        info->rx_attr->caps &= ~uint64_t{FI_SOURCE};
      }
      WEFT_ASSERT_OK(fi_endpoint(w.domain(), info.get(), ends[i].out(), nullptr));
      WEFT_ASSERT_OK(fi_ep_bind(ends[i].get(), av.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(ends[i].get(), cq.fid(), FI_TRANSMIT | FI_RECV));
      WEFT_ASSERT_OK(fi_enable(ends[i].get()));
      uint8_t name[256];
      size_t len = sizeof name;
      WEFT_ASSERT_OK(fi_getname(ends[i].fid(), name, &len));
      ASSERT_EQ(fi_av_insert(w[0].av.get(), name, 1, &to[i], 0, nullptr), 1);
    }
    for (const size_t len : {size_t{8}, size_t{1000}, size_t{300'000}}) {
      for (const bool tagged : {true, false}) {
        for (const size_t i : {0, 1}) {
          const bool with = (i == 0) == with_first;
          SCOPED_TRACE((with ? "with, " : "without, ") + std::to_string(len));
          const auto out = pattern(len, 1);
          std::vector<uint8_t> in(len);
          Ctx sent, received;
          WEFT_ASSERT_OK(
              tagged ? fi_trecv(ends[i].get(), in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received)
                     : fi_recv(ends[i].get(), in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
          const auto end = std::chrono::steady_clock::now() + timeout_default * patience();
          ssize_t rc = -FI_EAGAIN;
          while (std::chrono::steady_clock::now() < end) {
            if (rc == -FI_EAGAIN)
              rc = tagged ? fi_tsend(w[0], out.data(), len, nullptr, to[i], 1, &sent)
                          : fi_send(w[0], out.data(), len, nullptr, to[i], &sent);
            cq.poll();
            w[0].tx->poll();
            if (rc == 0 && !cq.inbox.empty() && !w[0].tx->inbox.empty()) break;
          }
          ASSERT_EQ(cq.inbox.size(), 1u);
          EXPECT_EQ(cq.inbox.front().src, with ? back : FI_ADDR_NOTAVAIL);
          EXPECT_EQ(cq.inbox.front().len, len);
          cq.inbox.clear();
          w[0].tx->inbox.clear();
        }
      }
    }
    for (auto& end : ends) WEFT_ASSERT_OK(end.close());
  }
}

// fi_cq(3), FI_EADDRNOTAVAIL: under FI_SOURCE_ERR the message comes by fi_cq_readerr with the address, which can be inserted.
TEST(Source, source_err_gives_the_address__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR, .insert = false});
  fi_addr_t to_one = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(w[0].av.get(), w[1].name.data(), 1, &to_one, 0, nullptr), 1);
  for (const bool receive_first : {true, false}) {
    uint64_t in = 0;
    const uint64_t value = receive_first ? 5 : 6;
    Ctx received;
    const auto receive = [&] { return fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received); };
    if (receive_first) {
      WEFT_ASSERT_OK(receive());
    }
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &value, 8, to_one, 1); }));
    if (!receive_first) {
      w.progress_for(milliseconds(1));
      WEFT_ASSERT_OK(receive());
    }
    const Completion c = w.wait(w[1].rx, received);
    EXPECT_EQ(c.err, FI_EADDRNOTAVAIL);
    EXPECT_EQ(c.len, 8u);
    EXPECT_EQ(c.tag, 1u);
    EXPECT_EQ(in, value) << "the data was received";
    EXPECT_EQ(c.err_data, w[0].name);
    if (receive_first) continue;
    // Inserted, the same source is known from then on, and can be answered.
    fi_addr_t back = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(c.err_data.size(), w[0].name.size());
    ASSERT_EQ(fi_av_insert(w[1].av.get(), c.err_data.data(), 1, &back, 0, nullptr), 1);
    WEFT_ASSERT_OK(receive());
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &value, 8, to_one, 1); }));
    EXPECT_EQ(w.done(w[1].rx, received).src, back);
    Ctx answered;
    WEFT_ASSERT_OK(fi_trecv(w[0], &in, 8, nullptr, FI_ADDR_UNSPEC, 2, 0, &answered));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[1], &value, 8, back, 2); }));
    w.wait(w[0].rx, answered);
  }
}

// fi_msg(3) and fi_tagged(3), src_addr: a directed receive takes messages of its source alone.
TEST(DirectedRecv, tagged__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE, .endpoints = 4});
  uint64_t got[4] = {};
  Ctx ctx[4];
  // Posting order: from 2, from 3, from any, from 2.
  const fi_addr_t from[4] = {w[1].peer[2], w[1].peer[3], FI_ADDR_UNSPEC, w[1].peer[2]};
  for (int i = 0; i < 4; ++i) WEFT_ASSERT_OK(fi_trecv(w[1], &got[i], 8, nullptr, from[i], 1, 0, &ctx[i]));
  put(w, 0, 1, 100, 1);  // only the third fits
  EXPECT_EQ(w.done(w[1].rx, ctx[2]).src, w[1].peer[0]);
  put(w, 3, 1, 103, 1);
  EXPECT_EQ(w.done(w[1].rx, ctx[1]).src, w[1].peer[3]);
  put(w, 2, 1, 102, 1);
  w.done(w[1].rx, ctx[0]);
  put(w, 2, 1, 104, 1);
  w.done(w[1].rx, ctx[3]);
  EXPECT_EQ(got[0], 102u);
  EXPECT_EQ(got[1], 103u);
  EXPECT_EQ(got[2], 100u);
  EXPECT_EQ(got[3], 104u);
}

// What Open MPI does for each message: the sender is in the data, the receive names its source and ignores a bit of the tag.
TEST(DirectedRecv, tagged_with_data_and_ignored_bits__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE, .endpoints = 3});
  if (w.info()->domain_attr->cq_data_size < 4) GTEST_SKIP() << "the provider carries no CQ data";
  constexpr uint64_t ignore = 1ULL << 32;
  for (const size_t len : {size_t{0}, size_t{8}, size_t{40}, size_t{41}, size_t{48}, size_t{4096}}) {
    SCOPED_TRACE(len);
    std::vector<std::vector<uint8_t>> got(4, std::vector<uint8_t>(len + 1, 0xee));
    Ctx ctx[4], sent;
    const fi_addr_t from[4] = {w[1].peer[2], w[1].peer[0], FI_ADDR_UNSPEC, w[1].peer[0]};
    const uint64_t tags[4] = {7, 7, 7, 8};
    for (size_t i = 0; i < 4; ++i)
      WEFT_ASSERT_OK(fi_trecv(w[1], got[i].data(), len, nullptr, from[i], tags[i], ignore, &ctx[i]));
    const auto send = [&](size_t who, uint64_t tag, uint64_t data, size_t takes) {
      const auto out = pattern(len, data);
      if (len <= 8) {
        WEFT_ASSERT_OK(
            w.post([&] { return fi_tinjectdata(w[who], out.data(), len, data, w[who].peer[1], tag); }));
      } else {
        WEFT_ASSERT_OK(w.post([&] {
          return fi_tsenddata(w[who], out.data(), len, nullptr, data, w[who].peer[1], tag, &sent);
        }));
        w.done(w[who].tx, sent);
      }
      const Completion c = w.done(w[1].rx, ctx[takes]);
      EXPECT_EQ(c.flags & (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA), FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
      EXPECT_EQ(c.data, data);
      EXPECT_EQ(c.tag, tag);
      EXPECT_EQ(c.len, len);
      EXPECT_EQ(c.src, w[1].peer[who]);
      WEFT_EXPECT_PATTERN(got[takes].data(), len, data);
      EXPECT_EQ(got[takes][len], 0xee) << "wrote behind the buffer";
    };
    send(0, 8, 1, 3);           // the youngest
    send(0, 7 | ignore, 2, 1);  // passes the first, which is for another source
    send(0, 7, 3, 2);
    send(2, 7 | ignore, 4, 0);
  }
}

// A message may be there before its sender is in the address vector. A receive that is directed at the sender takes it, whether it is posted
// right after the insertion, after a send to the sender, or when both are an old matter; small and large messages.
TEST(DirectedRecv, inserted_after_the_message_came__fi_tagged_3) {
  for (const bool tagged : {true, false}) {
    for (const size_t len : {size_t{8}, size_t{300'000}}) {
      for (const int behind : {0, 1, 2}) {
        SCOPED_TRACE((tagged ? "tagged, " : "untagged, ") + std::to_string(len) + " bytes, " +
                     (behind == 0   ? "posted at once"
                      : behind == 1 ? "posted after a send"
                                    : "posted after progress"));
        WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE, .insert = false});
        if ((w.info()->caps & FI_DIRECTED_RECV) == 0) GTEST_SKIP() << "no FI_DIRECTED_RECV";
        fi_addr_t to_one = FI_ADDR_NOTAVAIL, back = FI_ADDR_NOTAVAIL;
        ASSERT_EQ(fi_av_insert(w[0].av.get(), w[1].name.data(), 1, &to_one, 0, nullptr), 1);
        const auto out = pattern(len, 1);
        std::vector<uint8_t> in(len);
        uint64_t answer = 0;
        Ctx sent, received, answered;
        WEFT_ASSERT_OK(w.post([&] {
          return tagged ? fi_tsend(w[0], out.data(), len, nullptr, to_one, 1, &sent)
                        : fi_send(w[0], out.data(), len, nullptr, to_one, &sent);
        }));
        w.progress_for(milliseconds(5));
        ASSERT_EQ(fi_av_insert(w[1].av.get(), w[0].name.data(), 1, &back, 0, nullptr), 1);
        if (behind == 1) {
          WEFT_ASSERT_OK(fi_trecv(w[0], &answer, 8, nullptr, FI_ADDR_UNSPEC, 2, 0, &answered));
          const uint64_t value = 5;
          WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[1], &value, 8, back, 2); }));
        } else if (behind == 2) {
          w.progress_for(milliseconds(1));
        }
        WEFT_ASSERT_OK(tagged ? fi_trecv(w[1], in.data(), len, nullptr, back, 1, 0, &received)
                              : fi_recv(w[1], in.data(), len, nullptr, back, &received));
        EXPECT_EQ(w.done(w[1].rx, received).src, back);
        EXPECT_EQ(in, out);
        w.done(w[0].tx, sent);
        if (behind == 1) w.done(w[0].rx, answered);
      }
    }
  }
}

// Unexpected messages of several sources; each directed receive with a wildcard tag finds its own, in order.
TEST(DirectedRecv, unexpected_by_source__fi_tagged_3) {
  WEFT_WORLD(w,
             {.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE, .msg_order = FI_ORDER_SAS, .endpoints = 4});
  for (uint64_t i = 0; i < 5; ++i) {
    for (const size_t from : {0, 2, 3}) put(w, from, 1, from * 1000 + i, i);
  }
  w.progress_for(milliseconds(2));
  for (const size_t from : {3, 0, 2}) {
    for (uint64_t i = 0; i < 5; ++i) {
      uint64_t got = 0;
      Ctx ctx;
      WEFT_ASSERT_OK(fi_trecv(w[1], &got, 8, nullptr, w[1].peer[from], 0, ~0ULL, &ctx));
      const Completion c = w.done(w[1].rx, ctx);
      EXPECT_EQ(got, from * 1000 + i);
      EXPECT_EQ(c.tag, i);
      EXPECT_EQ(c.src, w[1].peer[from]);
    }
  }
}

TEST(DirectedRecv, untagged__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_DIRECTED_RECV | FI_SOURCE, .endpoints = 3});
  uint64_t got[2] = {};
  Ctx ctx[2];
  WEFT_ASSERT_OK(fi_recv(w[1], &got[0], 8, nullptr, w[1].peer[2], &ctx[0]));
  WEFT_ASSERT_OK(fi_recv(w[1], &got[1], 8, nullptr, w[1].peer[0], &ctx[1]));
  const uint64_t a = 10, b = 12;
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &a, 8, w[0].peer[1]); }));
  w.done(w[1].rx, ctx[1]);
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[2], &b, 8, w[2].peer[1]); }));
  w.done(w[1].rx, ctx[0]);
  EXPECT_EQ(got[0], b);
  EXPECT_EQ(got[1], a);
}

// Without FI_DIRECTED_RECV the address of a receive is ignored; fi_msg(3), src_addr.
TEST(DirectedRecv, ignored_when_not_asked_for__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 3});
  if (w.info()->caps & FI_DIRECTED_RECV) GTEST_SKIP() << "the provider gives it unasked";
  uint64_t got = 0;
  Ctx ctx;
  WEFT_ASSERT_OK(fi_trecv(w[1], &got, 8, nullptr, w[1].peer[2], 1, 0, &ctx));
  put(w, 0, 1, 9, 1);
  w.done(w[1].rx, ctx);
  EXPECT_EQ(got, 9u);
}

}  // namespace
}  // namespace weft::conformance
