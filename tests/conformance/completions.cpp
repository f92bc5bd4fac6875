// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What completions say and when they come: formats, selective completion, default flags, completion levels, errors, small queues.
#include <algorithm>
#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

// fi_cq(3), format: every structure, filled for a send and a tagged receive with data.
TEST(Completions, every_format__fi_cq_3_format) {
  for (const fi_cq_format format :
       {FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
    SCOPED_TRACE(static_cast<int>(format));
    WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED, .cq_format = format});
    const bool has_data = w.info()->domain_attr->cq_data_size > 0;
    const auto out = pattern(100, 1);
    std::vector<uint8_t> in(200);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 0x42, 0, &received));
    WEFT_ASSERT_OK(w.post([&] {
      return has_data ? fi_tsenddata(w[0], out.data(), out.size(), nullptr, 0x33, w[0].peer[1], 0x42, &sent)
                      : fi_tsend(w[0], out.data(), out.size(), nullptr, w[0].peer[1], 0x42, &sent);
    }));
    const Completion r = w.done(w[1].rx, received);
    const Completion s = w.done(w[0].tx, sent);
    WEFT_EXPECT_PATTERN(in.data(), 100, 1);
    if (format >= FI_CQ_FORMAT_MSG) {
      EXPECT_EQ(r.len, 100u);
      EXPECT_EQ(r.flags & (FI_RECV | FI_TAGGED | FI_SEND), FI_RECV | FI_TAGGED);
      EXPECT_EQ(s.flags & (FI_SEND | FI_TAGGED | FI_RECV), FI_SEND | FI_TAGGED);
    }
    if (format >= FI_CQ_FORMAT_DATA && has_data) {
      EXPECT_EQ(r.data, 0x33u);
      EXPECT_TRUE(r.flags & FI_REMOTE_CQ_DATA);
    }
    if (format == FI_CQ_FORMAT_TAGGED) {
      EXPECT_EQ(r.tag, 0x42u);
    }
  }
}

// fi_cq(3), FI_CQ_FORMAT_UNSPEC: the provider chooses, opening succeeds.
TEST(Completions, unspecified_format_opens__fi_cq_3_format) {
  WEFT_WORLD(w, {.caps = FI_MSG, .endpoints = 0});
  fi_cq_attr attr{};
  Handle<fid_cq> cq;
  WEFT_ASSERT_OK(fi_cq_open(w.domain(), &attr, cq.out(), nullptr));
}

// fi_cq(3), fi_cq_read: several entries by one call, in order; count 0 makes progress and returns no entry.
TEST(Completions, several_by_one_read__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  uint64_t in[10];
  std::vector<Ctx> received(10);
  for (size_t i = 0; i < 10; ++i)
    WEFT_ASSERT_OK(fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received[i]));
  for (uint64_t i = 0; i < 10; ++i) {
    WEFT_ASSERT_OK(w.post([&] {
      fi_cq_read(w[0].tx->get(), nullptr, 0);
      fi_cq_read(w[1].rx->get(), nullptr, 0);
      return fi_tinject(w[0], &i, 8, w[0].peer[1], i);
    }));
  }
  // Those that post() read while it was refused lie in the inbox already.
  const auto end = std::chrono::steady_clock::now() + timeout_default;
  size_t got = w[1].rx->inbox.size();
  while (got < 10 && std::chrono::steady_clock::now() < end) {
    const ssize_t zero = fi_cq_read(w[1].rx->get(), nullptr, 0);
    EXPECT_TRUE(zero == 0 || zero == -FI_EAGAIN) << zero;
    fi_cq_read(w[0].tx->get(), nullptr, 0);
    fi_cq_tagged_entry entries[3];
    const ssize_t n = fi_cq_read(w[1].rx->get(), entries, 3);
    if (n == -FI_EAGAIN) continue;
    ASSERT_GT(n, 0);
    ASSERT_LE(n, 3);
    for (ssize_t k = 0; k < n; ++k) EXPECT_EQ(entries[k].tag, got++);
  }
  EXPECT_EQ(got, 10u);
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_read(w[1].rx->get(), &entry, 1), -FI_EAGAIN);
  fi_cq_err_entry error{};
  EXPECT_EQ(fi_cq_readerr(w[1].rx->get(), &error, 0), -FI_EAGAIN) << "fi_cq(3), RETURN VALUES, fi_cq_readerr";
}

// fi_endpoint(3), FI_SELECTIVE_COMPLETION: silent unless FI_COMPLETION is given with the operation.
TEST(Completions, selective__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED,
                 .tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION,
                 .rx_bind = FI_RECV | FI_SELECTIVE_COMPLETION});
  uint64_t in[2] = {};
  const uint64_t out = 6;
  Ctx quiet_send, loud_send, quiet_recv, loud_recv;
  const iovec from{const_cast<uint64_t*>(&out), 8};
  const iovec to{&in[1], 8};
  WEFT_ASSERT_OK(fi_trecv(w[1], &in[0], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &quiet_recv));
  const fi_msg_tagged rx{&to, nullptr, 1, FI_ADDR_UNSPEC, 2, 0, &loud_recv, 0};
  WEFT_ASSERT_OK(fi_trecvmsg(w[1], &rx, FI_COMPLETION));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out, 8, nullptr, w[0].peer[1], 1, &quiet_send); }));
  const fi_msg_tagged tx{&from, nullptr, 1, w[0].peer[1], 2, 0, &loud_send, 0};
  WEFT_ASSERT_OK(w.post([&] { return fi_tsendmsg(w[0], &tx, FI_COMPLETION); }));
  w.done(w[0].tx, loud_send);
  w.done(w[1].rx, loud_recv);
  EXPECT_TRUE(w.progress_until([&] { return in[0] == out && in[1] == out; }));
  EXPECT_TRUE(w.quiet(w[0].tx)) << "a send without FI_COMPLETION was told";
  EXPECT_TRUE(w.quiet(w[1].rx)) << "a receive without FI_COMPLETION was told";
}

// fi_endpoint(3), op_flags: FI_COMPLETION as a default makes the plain calls loud again, msg calls state their own flags.
TEST(Completions, selective_with_default_op_flags__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED,
                 .tx_op_flags = FI_COMPLETION,
                 .rx_op_flags = FI_COMPLETION,
                 .tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION,
                 .rx_bind = FI_RECV | FI_SELECTIVE_COMPLETION});
  uint64_t in[2] = {};
  const uint64_t out = 6;
  Ctx sent, received, quiet_send, quiet_recv;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in[0], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out, 8, nullptr, w[0].peer[1], 1, &sent); }));
  w.done(w[1].rx, received);
  w.done(w[0].tx, sent);
  const iovec from{const_cast<uint64_t*>(&out), 8}, to{&in[1], 8};
  const fi_msg_tagged rx{&to, nullptr, 1, FI_ADDR_UNSPEC, 2, 0, &quiet_recv, 0};
  const fi_msg_tagged tx{&from, nullptr, 1, w[0].peer[1], 2, 0, &quiet_send, 0};
  WEFT_ASSERT_OK(fi_trecvmsg(w[1], &rx, 0));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsendmsg(w[0], &tx, 0); }));
  EXPECT_TRUE(w.progress_until([&] { return in[1] == out; }));
  EXPECT_TRUE(w.quiet(w[0].tx));
  EXPECT_TRUE(w.quiet(w[1].rx));
}

// fi_cq(3): an operation that fails is told even when successes are not.
TEST(Completions, errors_are_told_though_silent__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .rx_bind = FI_RECV | FI_SELECTIVE_COMPLETION});
  uint64_t in = 0;
  Ctx ctx;
  const iovec to{&in, 8};
  // Without FI_COMPLETION the context may be ignored, so cancel is asked for one with it.
  const fi_msg_tagged rx{&to, nullptr, 1, FI_ADDR_UNSPEC, 2, 0, &ctx, 0};
  WEFT_ASSERT_OK(fi_trecvmsg(w[1], &rx, FI_COMPLETION));
  WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &ctx));
  EXPECT_EQ(w.wait(w[1].rx, ctx).err, FI_ECANCELED);
  if (manual_only()) return;  // a message that is too long need not be an error
  const uint8_t out[100] = {};
  Ctx small;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 3, 0, &small));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], out, sizeof out, w[0].peer[1], 3); }));
  EXPECT_EQ(w.next(w[1].rx).err, FI_ETRUNC);
}

// fi_msg(3), FI_INJECT with fi_sendmsg: the buffer is free when the call returns, a completion still comes.
TEST(Completions, inject_flag_of_sendmsg__fi_msg_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED});
  const size_t limit = w.info()->tx_attr->inject_size;
  for (const size_t len : {size_t{0}, size_t{8}, size_t{49}, limit}) {
    if (len > limit) continue;
    SCOPED_TRACE(len);
    auto out = pattern(len, 1);
    std::vector<uint8_t> in(len + 1);
    Ctx sent, received;
    const iovec from{out.data(), len};
    const fi_msg_tagged tx{&from, nullptr, 1, w[0].peer[1], 4, 0, &sent, 0};
    WEFT_ASSERT_OK(w.post([&] { return fi_tsendmsg(w[0], &tx, FI_INJECT); }));
    std::fill(out.begin(), out.end(), 0xff);
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 4, 0, &received));
    w.done(w[1].rx, received);
    w.done(w[0].tx, sent);
    WEFT_EXPECT_PATTERN(in.data(), len, 1);
  }
}

// fi_cq(3), FI_INJECT_COMPLETE and FI_TRANSMIT_COMPLETE: they do not wait for a matching receive when the message can be
// delivered to the endpoint; the data is right all the same when the buffer is reused after the completion.
TEST(Completions, buffer_reuse_after_completion__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  for (const uint64_t level : {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE}) {
    for (const size_t len : {size_t{0}, size_t{8}, size_t{64}, size_t{5000}, size_t{300'000}}) {
      SCOPED_TRACE(std::to_string(len) + ", level " + std::to_string(level >> 26));
      auto out = pattern(len, 9);
      std::vector<uint8_t> in(len);
      Ctx sent, received;
      const iovec from{out.data(), len};
      const fi_msg_tagged tx{&from, nullptr, 1, w[0].peer[1], 4, 0, &sent, 0};
      WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 4, 0, &received));
      WEFT_ASSERT_OK(w.post([&] { return fi_tsendmsg(w[0], &tx, level); }));
      w.done(w[0].tx, sent);
      std::fill(out.begin(), out.end(), 0xff);
      w.done(w[1].rx, received);
      WEFT_EXPECT_PATTERN(in.data(), len, 9);
    }
  }
}

// fi_cq(3), FI_DELIVERY_COMPLETE: with a buffer ready, the completion at the sender says that the data lies in it. The receiver
// makes no progress before, so no completion may come.
TEST(Completions, delivery_complete_means_delivered__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .tx_op_flags = FI_DELIVERY_COMPLETE, .own_domains = true});
  if (w.info()->domain_attr->data_progress == FI_PROGRESS_AUTO)
    GTEST_SKIP() << "the receiver progresses by itself";
  // One exchange first: peers know each other from here on.
  uint64_t first = 0;
  Ctx hello_sent, hello;
  WEFT_ASSERT_OK(fi_trecv(w[1], &first, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &hello));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &first, 8, nullptr, w[0].peer[1], 1, &hello_sent); }));
  w.done(w[1].rx, hello);
  w.done(w[0].tx, hello_sent);
  for (const size_t len : {size_t{0}, size_t{8}, size_t{64}, size_t{5000}, size_t{300'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, 9);
    std::vector<uint8_t> in(len, 0);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 4, 0, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 4, &sent); }));
    const auto end = std::chrono::steady_clock::now() + quiet_time;
    while (std::chrono::steady_clock::now() < end) w[0].tx->poll();
    if (!w[0].tx->inbox.empty()) {
      // Early only if it is true: the provider placed the data without the receiver's help.
      WEFT_EXPECT_PATTERN(in.data(), len, 9);
    }
    w.done(w[0].tx, sent);
    WEFT_EXPECT_PATTERN(in.data(), len, 9);
    w.done(w[1].rx, received);
  }
}

// The level as flag of one fi_sendmsg, also for messages nobody waits for: it completes once the provider there has it.
TEST(Completions, delivery_complete_of_unexpected__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG});
  const auto out = pattern(64, 9);
  std::vector<uint8_t> in(64, 0);
  Ctx sent, received;
  const iovec from{const_cast<uint8_t*>(out.data()), out.size()};
  const fi_msg tx{&from, nullptr, 1, w[0].peer[1], &sent, 0};
  WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &tx, FI_DELIVERY_COMPLETE); }));
  w.progress_for(milliseconds(2));
  WEFT_ASSERT_OK(fi_recv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &received));
  w.done(w[1].rx, received);
  w.done(w[0].tx, sent);
  WEFT_EXPECT_PATTERN(in.data(), 64, 9);
}

// A send with FI_DELIVERY_COMPLETE that nobody receives, and fi_cancel of it: it ends once, cancelled or delivered, and the next message goes through
// (libfabric 11428).
TEST(Completions, delivery_complete_and_cancel__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .tx_op_flags = FI_DELIVERY_COMPLETE});
  for (const size_t len : {size_t{8}, size_t{5000}, size_t{300'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, 3);
    std::vector<uint8_t> in(len);
    Ctx first, second, received;
    WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 1, &first); }));
    w.progress_for(milliseconds(1));
    const bool cancelled = fi_cancel(w[0].ep.fid(), &first) == 0;
    WEFT_ASSERT_OK(
        w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 2, &second); }));
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 2, 0, &received));
    w.done(w[1].rx, received);
    w.done(w[0].tx, second);
    WEFT_EXPECT_PATTERN(in.data(), len, 3);
    // Without a receive for it, only what was cancelled must have ended by now.
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    const Completion end = w.wait(w[0].tx, first);
    if (!cancelled) {
      EXPECT_EQ(end.err, 0);
    }
    if (end.err == 0) {
      w.done(w[1].rx, received);
    } else {
      EXPECT_EQ(end.err, FI_ECANCELED);
      WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &received));
      EXPECT_EQ(w.wait(w[1].rx, received).err, FI_ECANCELED) << "a cancelled send arrived";
    }
    EXPECT_TRUE(w[0].tx->inbox.empty());
  }
}

// A send to the own endpoint that wants an acknowledgement: received, received by a claim (fi_tagged(3)), or cancelled before anybody receives it
// (fi_endpoint(3), fi_cancel). Each ends with one completion, and nothing is left for later receives.
TEST(Completions, acknowledged_sends_to_oneself__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  enum class Outcome { Received, Claimed, Cancelled };
  for (const uint64_t level : {FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE}) {
    for (const Outcome outcome : {Outcome::Received, Outcome::Claimed, Outcome::Cancelled}) {
      for (const size_t len : {size_t{0}, size_t{8}, size_t{5000}, size_t{300'000}}) {
        SCOPED_TRACE(std::to_string(len) + ", way " + std::to_string(int(outcome)) + ", level " +
                     std::to_string(level >> 26));
        auto out = pattern(len, 9);
        std::vector<uint8_t> in(len);
        Ctx sent, received;
        const iovec from{out.data(), len};
        const iovec to{in.data(), len};
        const fi_msg_tagged tx{&from, nullptr, 1, w[0].peer[0], 4, 0, &sent, 0};
        const int rc = int(w.post([&] { return fi_tsendmsg(w[0], &tx, level); }));
        if (rc == -FI_EOPNOTSUPP || rc == -FI_EINVAL) continue;  // FI_MATCH_COMPLETE is optional
        WEFT_ASSERT_OK(rc);
        w.progress_for(milliseconds(2));
        const fi_msg_tagged rx{&to, nullptr, 1, FI_ADDR_UNSPEC, 4, 0, &received, 0};
        bool ended = false;
        bool cancelled = false;
        if (outcome == Outcome::Claimed) {
          const fi_msg_tagged ask{nullptr, nullptr, 0, FI_ADDR_UNSPEC, 4, 0, &received, 0};
          Completion found;
          const auto end = std::chrono::steady_clock::now() + timeout_default * patience();
          do {
            WEFT_ASSERT_OK(w.post([&] { return fi_trecvmsg(w[0], &ask, FI_PEEK | FI_CLAIM); }));
            found = w.wait(w[0].rx, received);
          } while (found.err == FI_ENOMSG && std::chrono::steady_clock::now() < end);
          ASSERT_EQ(found.err, 0);
          WEFT_ASSERT_OK(w.post([&] { return fi_trecvmsg(w[0], &rx, FI_CLAIM); }));
        } else {
          if (outcome == Outcome::Cancelled && fi_cancel(w[0].ep.fid(), &sent) == 0) {
            ended = true;
            cancelled = w.wait(w[0].tx, sent).err == FI_ECANCELED;
          }
          if (!cancelled) {
            WEFT_ASSERT_OK(w.post([&] { return fi_trecvmsg(w[0], &rx, 0); }));
          }
        }
        if (!cancelled) {
          w.done(w[0].rx, received);
          if (!ended) w.done(w[0].tx, sent);
          WEFT_EXPECT_PATTERN(in.data(), len, 9);
        }
      }
    }
  }
  w.progress_for(quiet_time);
  EXPECT_TRUE(w[0].tx->inbox.empty() && w[0].rx->inbox.empty());
}

// fi_cq(3), fi_cq_readerr: -FI_EAVAIL until the error was taken, then the queue goes on; strerror says something.
TEST(Completions, error_queue__fi_cq_3_readerr) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  uint64_t in[3];
  Ctx ctx[3];
  for (int i = 0; i < 3; ++i)
    WEFT_ASSERT_OK(fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &ctx[i]));
  WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &ctx[1]));
  fid_cq* cq = w[1].rx->get();
  fi_cq_tagged_entry entry;
  ssize_t n = -FI_EAGAIN;
  const auto end = std::chrono::steady_clock::now() + timeout_default;
  while (n == -FI_EAGAIN && std::chrono::steady_clock::now() < end) n = fi_cq_read(cq, &entry, 1);
  ASSERT_EQ(n, -FI_EAVAIL);
  EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAVAIL) << "the error stays until it is read";
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &ctx[1]);
  char text[64] = {};
  const char* said = fi_cq_strerror(cq, error.prov_errno, error.err_data, text, sizeof text);
  ASSERT_NE(said, nullptr);
  EXPECT_NE(std::strlen(said), 0u);
  EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
  EXPECT_EQ(fi_cq_readerr(cq, &error, 0), -FI_EAGAIN);
  for (const uint64_t value : {uint64_t{1}, uint64_t{2}}) {
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &value, 8, w[0].peer[1], 1); }));
  }
  w.done(w[1].rx, ctx[0]);
  w.done(w[1].rx, ctx[2]);
}

// fi_cq(3), size, with FI_RM_ENABLED (fi_domain(3), resource_mgmt): a small queue loses nothing, the senders are held up.
TEST(Completions, small_queue_loses_nothing__fi_domain_3_resource_mgmt) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .resource_mgmt = FI_RM_ENABLED, .msg_order = FI_ORDER_SAS, .cq_size = 4});
  constexpr uint64_t count = 500;
  std::vector<uint64_t> in(count);
  std::vector<Ctx> received(count), sent(count);
  for (uint64_t i = 0; i < count; ++i) {
    WEFT_ASSERT_OK(
        w.post([&] { return fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received[i]); }));
  }
  std::vector<uint64_t> out(count);
  // The queues are not read while the posts go through; a refusal is when they are.
  for (uint64_t i = 0; i < count; ++i) {
    out[i] = i * 3;
    WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out[i], 8, nullptr, w[0].peer[1], i, &sent[i]); }));
  }
  for (uint64_t i = 0; i < count; ++i) {
    w.done(w[1].rx, received[i]);
    w.done(w[0].tx, sent[i]);
    EXPECT_EQ(in[i], i * 3);
    if (testing::Test::HasFailure()) return;
  }
}

// One queue for both directions of two endpoints; fi_endpoint(3), fi_ep_bind.
TEST(Completions, one_queue_for_everything__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_MSG, .one_cq = true});
  EXPECT_EQ(w[0].tx, w[0].rx);
  uint64_t in[2] = {};
  const uint64_t out[2] = {1, 2};
  Ctx sent[2], received[2];
  for (size_t i = 0; i < 2; ++i)
    WEFT_ASSERT_OK(fi_trecv(w[i], &in[i], 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &received[i]));
  for (size_t i = 0; i < 2; ++i) {
    WEFT_ASSERT_OK(
        w.post([&] { return fi_tsend(w[i], &out[i], 8, nullptr, w[i].peer[1 - i], 0, &sent[i]); }));
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(w.done(w[i].rx, received[i]).flags & FI_RECV);
    EXPECT_TRUE(w.done(w[i].tx, sent[i]).flags & FI_SEND);
    EXPECT_EQ(in[i], out[1 - i]);
  }
}

// fi_endpoint(3), FI_SELECTIVE_COMPLETION for RMA; fi_rma(3), FI_COMPLETION and FI_INJECT of fi_writemsg.
TEST(Completions, selective_rma__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA,
                 .tx_op_flags = FI_DELIVERY_COMPLETE,
                 .tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION});
  std::vector<uint8_t> target(1000);
  Region region = w.reg(1, target.data(), target.size(), FI_REMOTE_READ | FI_REMOTE_WRITE);
  auto out = pattern(40, 1);
  const iovec from{out.data(), out.size()};
  const fi_rma_iov to{region.at(100), 40, region.key()};
  Ctx silent, told;
  WEFT_ASSERT_OK(w.post([&] {
    return fi_write(w[0], out.data(), 40, nullptr, w[0].peer[1], region.at(), region.key(), &silent);
  }));
  EXPECT_TRUE(w.progress_until([&] { return first_difference(target.data(), 40, 1) == 40; }));
  EXPECT_TRUE(w.quiet(w[0].tx));
  const fi_msg_rma msg{&from, nullptr, 1, w[0].peer[1], &to, 1, &told, 0};
  WEFT_ASSERT_OK(w.post([&] { return fi_writemsg(w[0], &msg, FI_COMPLETION | FI_INJECT); }));
  std::fill(out.begin(), out.end(), 0xff);
  w.done(w[0].tx, told);
  EXPECT_TRUE(w.progress_until([&] { return first_difference(target.data() + 100, 40, 1) == 40; }));
}

}  // namespace
}  // namespace weft::conformance
