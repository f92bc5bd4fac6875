// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of an endpoint: what enabling demands, options, aliases, closing in every order with operations pending, bad arguments.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <weft/libfabric_retired_calls.hpp>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

// fi_endpoint(3), ERRORS, and fi_errno(3): what is missing at fi_enable has its own code.
TEST(Enable, needs_av_and_cq__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("an endpoint that is enabled before its objects are bound");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 0});
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  fi_av_attr av_attr{};
  Handle<fid_av> av;
  Handle<fid_cq> queue;
  WEFT_ASSERT_OK(fi_cq_open(w.domain(), &cq_attr, queue.out(), nullptr));
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  {
    Handle<fid_ep> bare;
    WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), bare.out(), nullptr));
    const int rc = fi_enable(bare.get());
    EXPECT_TRUE(rc == -FI_ENOCQ || rc == -FI_ENOAV) << error_name(rc);
  }
  {
    Handle<fid_ep> without_av;
    WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), without_av.out(), nullptr));
    WEFT_ASSERT_OK(fi_ep_bind(without_av.get(), queue.fid(), FI_TRANSMIT | FI_RECV));
    EXPECT_EQ(fi_enable(without_av.get()), -FI_ENOAV);
  }
  {
    Handle<fid_ep> without_cq;
    WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), without_cq.out(), nullptr));
    WEFT_ASSERT_OK(fi_ep_bind(without_cq.get(), av.fid(), 0));
    EXPECT_EQ(fi_enable(without_cq.get()), -FI_ENOCQ);
  }
  {
    Handle<fid_ep> half;
    WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), half.out(), nullptr));
    WEFT_ASSERT_OK(fi_ep_bind(half.get(), av.fid(), 0));
    WEFT_ASSERT_OK(fi_ep_bind(half.get(), queue.fid(), FI_RECV));
    EXPECT_EQ(fi_enable(half.get()), -FI_ENOCQ) << "no queue for transmits";
    WEFT_ASSERT_OK(fi_ep_bind(half.get(), queue.fid(), FI_TRANSMIT));
    WEFT_EXPECT_OK(fi_enable(half.get()));
  }
}

// fi_endpoint(3): data transfers before fi_enable are refused with -FI_EOPBADSTATE.
TEST(Enable, transfers_before_are_refused__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("transfers over an endpoint that is not enabled");
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_RMA, .endpoints = 1, .enable = false, .insert = false});
  uint64_t value = 0;
  Ctx ctx;
  EXPECT_EQ(fi_recv(w[0], &value, 8, nullptr, FI_ADDR_UNSPEC, &ctx), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_send(w[0], &value, 8, nullptr, 0, &ctx), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_trecv(w[0], &value, 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &ctx), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_tinject(w[0], &value, 8, 0, 0), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_read(w[0], &value, 8, nullptr, 0, 0, 0, &ctx), -FI_EOPBADSTATE);
}

// fi_endpoint(3): objects are bound before enabling, once for each kind.
TEST(Enable, binding_afterwards_is_refused__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("a queue that is bound too late");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  Handle<fid_cq> other;
  WEFT_ASSERT_OK(fi_cq_open(w.domain(), &attr, other.out(), nullptr));
  EXPECT_LT(fi_ep_bind(w[0].ep.get(), other.fid(), FI_RECV), 0);
}

TEST(Enable, two_queues_for_one_kind_are_refused__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("two queues for one kind of completion");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1, .enable = false, .insert = false});
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  Handle<fid_cq> other;
  WEFT_ASSERT_OK(fi_cq_open(w.domain(), &attr, other.out(), nullptr));
  EXPECT_LT(fi_ep_bind(w[0].ep.get(), other.fid(), FI_RECV), 0)
      << "an endpoint may only be bound to a single CQ for a type";
}

// An object of another domain; fi_endpoint(3), ERRORS, -FI_EDOMAIN.
TEST(Enable, objects_of_another_domain_are_refused__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("objects of another domain");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 2, .own_domains = true});
  Handle<fid_ep> ep;
  WEFT_ASSERT_OK(fi_endpoint(w[0].domain, w.info(), ep.out(), nullptr));
  EXPECT_EQ(fi_ep_bind(ep.get(), w[1].tx->fid(), FI_TRANSMIT | FI_RECV), -FI_EDOMAIN);
  EXPECT_EQ(fi_ep_bind(ep.get(), w[1].av.fid(), 0), -FI_EDOMAIN);
}

// ------------------------------------------------------------------------------------------------------------- arguments

TEST(BadArguments, too_many_parts__fi_endpoint_3_iov_limit) {
  WEFT_BEYOND_THE_MANUAL("more parts than iov_limit");
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_RMA});
  const size_t limit = std::max(w.info()->tx_attr->iov_limit, w.info()->rx_attr->iov_limit);
  uint8_t byte = 0;
  const std::vector<iovec> parts(limit + 1, iovec{&byte, 1});
  Ctx ctx;
  const auto refused = [](ssize_t rc) { return rc < 0 && rc != -FI_EAGAIN; };
  // A first message, so that -FI_EAGAIN cannot mean "not acquainted yet".
  uint64_t in = 0;
  WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &ctx));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &in, 8, w[0].peer[1]); }));
  w.done(w[1].rx, ctx);
  EXPECT_TRUE(refused(fi_sendv(w[0], parts.data(), nullptr, parts.size(), w[0].peer[1], &ctx)));
  EXPECT_TRUE(refused(fi_recvv(w[0], parts.data(), nullptr, parts.size(), FI_ADDR_UNSPEC, &ctx)));
  EXPECT_TRUE(refused(fi_tsendv(w[0], parts.data(), nullptr, parts.size(), w[0].peer[1], 0, &ctx)));
  EXPECT_TRUE(refused(fi_trecvv(w[0], parts.data(), nullptr, parts.size(), FI_ADDR_UNSPEC, 0, 0, &ctx)));
  EXPECT_TRUE(refused(fi_writev(w[0], parts.data(), nullptr, parts.size(), w[0].peer[1], 0, 0, &ctx)));
  EXPECT_TRUE(refused(fi_readv(w[0], parts.data(), nullptr, parts.size(), w[0].peer[1], 0, 0, &ctx)));
  const size_t ranges = w.info()->tx_attr->rma_iov_limit + 1;
  const std::vector<fi_rma_iov> remote(ranges, fi_rma_iov{0, 1, 0});
  std::vector<uint8_t> local(ranges);
  const iovec from{local.data(), ranges};
  const fi_msg_rma msg{&from, nullptr, 1, w[0].peer[1], remote.data(), ranges, &ctx, 0};
  EXPECT_TRUE(refused(fi_writemsg(w[0], &msg, 0)));
  EXPECT_TRUE(w.quiet(w[0].tx));
}

// A destination that the AV does not hold: an error at once or as completion, never a hang.
TEST(BadArguments, unknown_destination__fi_av_3) {
  WEFT_BEYOND_THE_MANUAL("an address that no AV gave");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = FI_AV_TABLE});
  uint64_t value = 0;
  Ctx ctx;
  for (const fi_addr_t to : {fi_addr_t{5000}, fi_addr_t{FI_ADDR_NOTAVAIL}}) {
    const ssize_t rc = w.post([&] { return fi_tsend(w[0], &value, 8, nullptr, to, 0, &ctx); });
    if (rc == 0) {
      EXPECT_GT(w.wait(w[0].tx, ctx).err, 0);
    } else {
      EXPECT_LT(rc, 0);
      EXPECT_NE(rc, -FI_EAGAIN);
    }
  }
}

// Nobody at the address: the name is well formed, its endpoint was closed. An error within the bounded time.
TEST(BadArguments, peer_that_is_gone__fi_cq_3) {
  WEFT_BEYOND_THE_MANUAL("how soon a vanished peer is told");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 3, .own_domains = true});
  // One message, so that the pair knows each other; then the peer closes.
  uint64_t value = 0;
  Ctx received, sent;
  WEFT_ASSERT_OK(fi_trecv(w[1], &value, 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &value, 8, nullptr, w[0].peer[1], 0, &sent); }));
  w.done(w[1].rx, received);
  w.done(w[0].tx, sent);
  WEFT_ASSERT_OK(w.close_endpoint(1));
  const auto out = pattern(1'000'000, 1);
  for (const size_t len : {size_t{8}, size_t{1'000'000}}) {
    SCOPED_TRACE(len);
    const ssize_t rc =
        w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 0, &sent); });
    // A small message may have left before anybody noticed; a large one needs the peer.
    if (rc == 0) {
      const Completion c = w.wait(w[0].tx, sent);
      if (len > 100'000) {
        EXPECT_GT(c.err, 0);
      }
    } else {
      EXPECT_NE(rc, -FI_EAGAIN) << "a peer that is gone must not look busy for ever";
    }
  }
  // The third endpoint is not disturbed.
  WEFT_ASSERT_OK(fi_trecv(w[2], &value, 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &value, 8, nullptr, w[0].peer[2], 0, &sent); }));
  w.done(w[2].rx, received);
  w.done(w[0].tx, sent);
}

// max_msg_size; fi_endpoint(3).
TEST(BadArguments, longer_than_max_msg_size__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("a message of more than max_msg_size");
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  const size_t limit = w.info()->ep_attr->max_msg_size;
  if (limit >= SIZE_MAX / 2) GTEST_SKIP() << "no limit worth the name";
  uint8_t byte = 0;
  Ctx ctx;
  const ssize_t rc = fi_tsend(w[0], &byte, limit + 1, nullptr, w[0].peer[1], 0, &ctx);
  EXPECT_LT(rc, 0);
}

// --------------------------------------------------------------------------------------------------------------- options

TEST(EndpointOptions, getopt_setopt__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_MULTI_RECV, .endpoints = 1});
  size_t value = 12345, len = sizeof value;
  WEFT_ASSERT_OK(fi_setopt(w[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof value));
  value = 0;
  WEFT_ASSERT_OK(fi_getopt(w[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len));
  EXPECT_EQ(value, 12345u);
  if (manual_only()) return;  // no page says what a wrong option costs
  EXPECT_EQ(fi_setopt(w[0].ep.fid(), FI_OPT_ENDPOINT, 9999, &value, sizeof value), -FI_ENOPROTOOPT);
  EXPECT_EQ(fi_getopt(w[0].ep.fid(), FI_OPT_ENDPOINT, 9999, &value, &len), -FI_ENOPROTOOPT);
  EXPECT_LT(fi_setopt(w[0].ep.fid(), 77, FI_OPT_MIN_MULTI_RECV, &value, sizeof value), 0);
  len = 2;
  EXPECT_LT(fi_getopt(w[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len), 0)
      << "a short buffer";
}

// fi_endpoint(3), FI_GETOPSFLAG and FI_SETOPSFLAG.
TEST(EndpointOptions, default_flags__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .tx_op_flags = FI_DELIVERY_COMPLETE});
  uint64_t flags = FI_TRANSMIT;
  const int rc = fi_control(w[0].ep.fid(), FI_GETOPSFLAG, &flags);
  WEFT_SKIP_IF(rc == -FI_ENOSYS ? "no FI_GETOPSFLAG" : "");
  WEFT_ASSERT_OK(rc);
  EXPECT_TRUE(flags & FI_DELIVERY_COMPLETE);
  flags = FI_TRANSMIT | FI_INJECT_COMPLETE;
  WEFT_ASSERT_OK(fi_control(w[0].ep.fid(), FI_SETOPSFLAG, &flags));
  flags = FI_TRANSMIT;
  WEFT_ASSERT_OK(fi_control(w[0].ep.fid(), FI_GETOPSFLAG, &flags));
  EXPECT_TRUE(flags & FI_INJECT_COMPLETE);
  EXPECT_FALSE(flags & FI_DELIVERY_COMPLETE);
  flags = FI_TRANSMIT | FI_RECV;
  EXPECT_LT(fi_control(w[0].ep.fid(), FI_GETOPSFLAG, &flags), 0) << "not both";
}

// fi_endpoint(3), fi_ep_alias: the same endpoint with other default flags; it must close before its parent.
TEST(EndpointOptions, alias__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION});
  Handle<fid_ep> loud;
  const int rc = fi_ep_alias(w[0].ep.get(), loud.out(), FI_TRANSMIT | FI_COMPLETION);
  WEFT_SKIP_IF(rc == -FI_ENOSYS || rc == -FI_EINVAL ? "no aliases: " + error_name(rc) : "");
  WEFT_ASSERT_OK(rc);
  uint64_t in[2] = {};
  const uint64_t out[2] = {1, 2};
  Ctx silent, told, received[2];
  for (size_t i = 0; i < 2; ++i)
    WEFT_ASSERT_OK(fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received[i]));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out[0], 8, nullptr, w[0].peer[1], 0, &silent); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(loud.get(), &out[1], 8, nullptr, w[0].peer[1], 1, &told); }));
  w.done(w[0].tx, told);
  for (auto& r : received) w.done(w[1].rx, r);
  EXPECT_TRUE(w.quiet(w[0].tx));
  EXPECT_EQ(in[1], 2u);
  ASSERT_EQ(w.close_endpoint(0), -FI_EBUSY) << "all aliases must be closed first";
}

// fi_endpoint(3), fi_ep_alias: an alias receives with flags of its own, and its endpoint's stay.
TEST(EndpointOptions, alias_that_receives__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .rx_bind = FI_RECV | FI_SELECTIVE_COMPLETION});
  Handle<fid_ep> loud;
  const int rc = fi_ep_alias(w[1].ep.get(), loud.out(), FI_RECV | FI_COMPLETION);
  WEFT_SKIP_IF(rc != 0 ? "no aliases that receive: " + error_name(rc) : "");
  uint64_t in[2] = {};
  const uint64_t out[2] = {1, 2};
  Ctx silent, told;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in[0], 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &silent));
  WEFT_ASSERT_OK(fi_trecv(loud.get(), &in[1], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &told));
  for (size_t i = 0; i < 2; ++i)
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &out[i], 8, w[0].peer[1], i); }));
  w.done(w[1].rx, told);
  EXPECT_TRUE(w.quiet(w[1].rx));
  EXPECT_EQ(in[0], 1u);
  EXPECT_EQ(in[1], 2u);
  uint64_t flags = FI_RECV;
  WEFT_ASSERT_OK(fi_control(w[1].ep.fid(), FI_GETOPSFLAG, &flags));
  EXPECT_EQ(flags, 0u);
}

// fi_endpoint(3), fi_tx_size_left and fi_rx_size_left: lower bounds, or not supported.
TEST(EndpointOptions, size_left__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const ssize_t left = retired::rx_size_left(w[1].ep.get());
  const ssize_t tx_left = retired::tx_size_left(w[0].ep.get());
#pragma GCC diagnostic pop
  WEFT_SKIP_IF(left == -FI_ENOSYS || tx_left == -FI_ENOSYS ? "not supported" : "");
  EXPECT_GT(tx_left, 0);
  ASSERT_GT(left, 0);
  const size_t n = std::min<size_t>(static_cast<size_t>(left), 5000);
  std::vector<uint64_t> in(n);
  std::vector<Ctx> ctx(n);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &ctx[i]), 0) << i << " of " << left;
  }
}

// ----------------------------------------------------------------------------------------------------------------- close

// fi_endpoint(3), fi_close: pending operations are dropped in silence; the peer is told or goes on.
TEST(Close, with_pending_receives__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED});
  std::vector<uint64_t> in(100);
  std::vector<Ctx> ctx(100);
  for (size_t i = 0; i < 100; ++i) {
    WEFT_ASSERT_OK(i % 2 ? fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, i % 3 ? 0 : ~0ULL, &ctx[i])
                         : fi_recv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &ctx[i]));
  }
  WEFT_ASSERT_OK(w.close_endpoint(1));
  EXPECT_TRUE(w.quiet(w[1].rx)) << "dropped operations are silent";
}

TEST(Close, with_pending_sends_of_every_kind__fi_endpoint_3) {
  for (const bool progressed : {false, true}) {
    for (const size_t closes_first : {0, 1}) {
      SCOPED_TRACE(std::to_string(closes_first) + (progressed ? " after progress" : " at once"));
      WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED | FI_RMA});
      std::vector<uint8_t> target(500'000), local = pattern(500'000, 1);
      Region region = w.reg(1, target.data(), target.size(), FI_REMOTE_READ | FI_REMOTE_WRITE);
      std::vector<Ctx> ctx(12);
      size_t n = 0;
      for (const size_t len : {size_t{8}, size_t{5000}, size_t{500'000}}) {
        WEFT_ASSERT_OK(
            w.post([&] { return fi_send(w[0], local.data(), len, nullptr, w[0].peer[1], &ctx[n]); }));
        WEFT_ASSERT_OK(
            w.post([&] { return fi_tsend(w[0], local.data(), len, nullptr, w[0].peer[1], 5, &ctx[n + 1]); }));
        WEFT_ASSERT_OK(w.post([&] {
          return fi_write(w[0], local.data(), len, nullptr, w[0].peer[1], region.at(), region.key(),
                          &ctx[n + 2]);
        }));
        WEFT_ASSERT_OK(w.post([&] {
          return fi_read(w[0], local.data(), len, nullptr, w[0].peer[1], region.at(), region.key(),
                         &ctx[n + 3]);
        }));
        n += 4;
      }
      if (progressed) w.progress_for(milliseconds(2));
      WEFT_ASSERT_OK(w.close_endpoint(closes_first));
      w.progress_for(milliseconds(5));
      WEFT_ASSERT_OK(w.close_endpoint(1 - closes_first));
    }
  }
}

// In the middle of a large transfer, both sides taking part.
TEST(Close, in_the_middle_of_a_large_transfer__fi_endpoint_3) {
  for (const size_t closes_first : {0, 1}) {
    for (int rounds = 0; rounds < 20; ++rounds) {
      WEFT_WORLD(w, {.caps = FI_TAGGED, .own_domains = rounds % 2 == 1});
      // The two have met: where connections are made when they are needed, a close may come before there is one.
      uint8_t greeting = 0;
      Ctx met;
      WEFT_ASSERT_OK(fi_trecv(w[1], &greeting, 1, nullptr, FI_ADDR_UNSPEC, 2, 0, &met));
      WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], "!", 1, w[0].peer[1], 2); }));
      w.done(w[1].rx, met);
      const auto out = pattern(4'000'000, 1);
      std::vector<uint8_t> in(out.size());
      Ctx sent, received;
      WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
      WEFT_ASSERT_OK(
          w.post([&] { return fi_tsend(w[0], out.data(), out.size(), nullptr, w[0].peer[1], 1, &sent); }));
      for (int i = 0; i < rounds; ++i) w.progress();
      WEFT_ASSERT_OK(w.close_endpoint(closes_first));
      const size_t other = 1 - closes_first;
      Cq* queue = other == 0 ? w[0].tx : w[1].rx;
      // No page says how soon a peer notices that nobody is there; a provider over packets has only silence to go by.
      if (manual_only() && !w.progress_until([&] { return !queue->inbox.empty(); }, quiet_time)) continue;
      const Completion c = w.wait(queue, other == 0 ? sent : received);
      // Done before the close, or told that it failed; both are right, a hang is not.
      EXPECT_GE(c.err, 0);
      if (other == 1 && c.err == 0) {
        WEFT_EXPECT_PATTERN(in.data(), in.size(), 1);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A new endpoint after the old one, many times: nothing of the old reaches the new.
TEST(Close, open_and_close_many_times__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  for (uint64_t i = 0; i < 50; ++i) {
    Node* node = w.add_node();
    ASSERT_NE(node, nullptr);
    fi_addr_t to = FI_ADDR_NOTAVAIL, back = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insert(w[0].av.get(), node->name.data(), 1, &to, 0, nullptr), 1);
    ASSERT_EQ(fi_av_insert(node->av.get(), w[0].name.data(), 1, &back, 0, nullptr), 1);
    uint64_t in[2] = {};
    const uint64_t answer = i + 1000;
    Ctx received[2];
    WEFT_ASSERT_OK(fi_trecv(*node, &in[0], 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &received[0]));
    WEFT_ASSERT_OK(fi_trecv(w[0], &in[1], 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &received[1]));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &i, 8, to, 0); }));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(*node, &answer, 8, back, 0); }));
    w.done(node->rx, received[0]);
    w.done(w[0].rx, received[1]);
    EXPECT_EQ(in[0], i);
    EXPECT_EQ(in[1], answer);
    WEFT_ASSERT_OK(fi_av_remove(w[0].av.get(), &to, 1, 0));
    WEFT_ASSERT_OK(node->ep.close());
    if (testing::Test::HasFailure()) return;
  }
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// As a program that begins and ends a library many times (mpich 6856; --gtest_repeat=10 makes it 500): from fi_getinfo to the last fi_close, with a message in between.
TEST(Close, everything_many_times__fi_fabric_3) {
  const Options options = {.caps = FI_TAGGED};
  WEFT_SKIP_IF(missing(options));
  if (!std::filesystem::exists("/proc/self/fd")) GTEST_SKIP() << "no /proc";
  // A library may open once what stays (the table of programs that poll), and not before it needs it: what is left behind each
  // time shows in every round.
  size_t before = 0, after = 0;
  constexpr int rounds = 3;
  for (int round = 0; round < rounds && (round == 0 || after > before); ++round) {
    for (uint64_t i = 0; i < 50; ++i) {
      if (i == 10) before = open_descriptors();
      World w(options);
      if (!w.usable()) return;
      uint64_t in = 0;
      Ctx received;
      WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received));
      WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &i, 8, w[0].peer[1], i); }));
      w.done(w[1].rx, received);
      EXPECT_EQ(in, i);
      if (testing::Test::HasFailure()) return;
    }
    after = open_descriptors();
  }
  EXPECT_LE(after, before);
}

// A new endpoint has the address of one that has closed. Whoever removes that address and inserts it again means the new
// one, though it has not been polled since.
TEST(Close, reopened_at_the_same_address__fi_av_3) {
  WEFT_BEYOND_THE_MANUAL("no page says how soon a closed endpoint's address means the next one");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  std::vector<uint8_t> name;
  for (uint64_t i = 0; i < 10; ++i) {
    Node* node = w.add_node(0, name.empty() ? nullptr : &name);
    ASSERT_NE(node, nullptr);
    if (!name.empty() && node->name != name)
      GTEST_SKIP() << "no two endpoints of this provider share an address";
    name = node->name;
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insert(w[0].av.get(), name.data(), 1, &to, 0, nullptr), 1);
    uint64_t in = 0;
    Ctx received;
    WEFT_ASSERT_OK(fi_trecv(*node, &in, 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &i, 8, to, 0); }));
    w.done(node->rx, received);
    EXPECT_EQ(in, i);
    WEFT_ASSERT_OK(fi_av_remove(w[0].av.get(), &to, 1, 0));
    WEFT_ASSERT_OK(node->ep.close());
    if (testing::Test::HasFailure()) return;
  }
}

// fi_cq(3), fi_domain(3), fi_fabric(3): -FI_EBUSY while something depends on it.
TEST(Close, busy_objects__fi_cq_3) {
  Options options{.caps = FI_TAGGED, .endpoints = 0};
  WEFT_SKIP_IF(missing(options));
  const Info info = find_info(options);
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_cq> cq;
  Handle<fid_av> av;
  Handle<fid_ep> ep;
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  fi_av_attr av_attr{};
  WEFT_ASSERT_OK(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
  WEFT_ASSERT_OK(fi_domain(fabric.get(), info.get(), domain.out(), nullptr));
  if (!manual_only()) {  // fi_fabric(3) asks it of the program
    ASSERT_EQ(fabric.close(), -FI_EBUSY);
  }
  WEFT_ASSERT_OK(fi_cq_open(domain.get(), &cq_attr, cq.out(), nullptr));
  ASSERT_EQ(domain.close(), -FI_EBUSY);
  WEFT_ASSERT_OK(fi_av_open(domain.get(), &av_attr, av.out(), nullptr));
  WEFT_ASSERT_OK(fi_endpoint(domain.get(), info.get(), ep.out(), nullptr));
  WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cq.fid(), FI_TRANSMIT | FI_RECV));
  WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
  WEFT_ASSERT_OK(fi_enable(ep.get()));
  ASSERT_EQ(cq.close(), -FI_EBUSY);
  ASSERT_EQ(av.close(), -FI_EBUSY);
  WEFT_ASSERT_OK(ep.close());
  WEFT_ASSERT_OK(av.close());
  WEFT_ASSERT_OK(cq.close());
  WEFT_ASSERT_OK(domain.close());
  WEFT_ASSERT_OK(fabric.close());
}

// A region may outlive the endpoints, and close while they live.
TEST(Close, region_before_and_after_endpoints__fi_mr_3) {
  WEFT_WORLD(w, {.caps = FI_RMA | FI_MSG});
  std::vector<uint8_t> memory(1000);
  Region before = w.reg(1, memory.data(), 500, FI_REMOTE_READ);
  Region after = w.reg(1, memory.data(), 500, FI_REMOTE_READ);
  WEFT_EXPECT_OK(before.handle().close());
  WEFT_EXPECT_OK(w.close_endpoint(1));
  WEFT_EXPECT_OK(after.handle().close());
}

// fi_close discards unread completions with the queue; fi_cq(3), fi_close.
TEST(Close, queue_with_unread_completions__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  uint64_t in = 0, out = 1;
  Ctx received, sent;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out, 8, nullptr, w[0].peer[1], 0, &sent); }));
  WEFT_EXPECT_OK(w.close_endpoint(0));
  WEFT_EXPECT_OK(w.close_endpoint(1));
}

}  // namespace
}  // namespace weft::conformance
