// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Several contexts behind one address and several endpoints behind one context: scalable endpoints, STX and SRX of fi_endpoint(3).
#include "fixture.hpp"

namespace weft::conformance {
namespace {

constexpr int bits = 2;
constexpr size_t contexts = 3;

// A scalable endpoint with three transmit and three receive contexts, each with a queue of its own.
struct Scalable {
  Handle<fid_av> av;
  std::vector<Cq*> tx_cq, rx_cq;
  Handle<fid_ep> sep;
  std::vector<Handle<fid_ep>> tx, rx;
  std::vector<uint8_t> name;

  // Contexts close before the endpoint that they belong to.
  ~Scalable() {
    tx.clear();
    rx.clear();
  }
  Scalable() = default;
  Scalable(Scalable&&) = default;
};

Options scalable_options() {
  return {.caps = FI_TAGGED | FI_MSG | FI_NAMED_RX_CTX, .endpoints = 0, .edit_hints = [](fi_info* hints) {
            hints->ep_attr->tx_ctx_cnt = contexts;
            hints->ep_attr->rx_ctx_cnt = contexts;
          }};
}

void open_scalable(World& w, Scalable& s) {
  fi_av_attr av_attr{};
  av_attr.rx_ctx_bits = bits;
  av_attr.type = FI_AV_TABLE;
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, s.av.out(), nullptr));
  WEFT_ASSERT_OK(fi_scalable_ep(w.domain(), w.info(), s.sep.out(), nullptr));
  WEFT_ASSERT_OK(fi_scalable_ep_bind(s.sep.get(), s.av.fid(), 0));
  WEFT_ASSERT_OK(fi_enable(s.sep.get()));
  for (size_t i = 0; i < contexts; ++i) {
    s.tx.emplace_back();
    s.rx.emplace_back();
    WEFT_ASSERT_OK(fi_tx_context(s.sep.get(), static_cast<int>(i), nullptr, s.tx[i].out(), nullptr));
    WEFT_ASSERT_OK(fi_rx_context(s.sep.get(), static_cast<int>(i), nullptr, s.rx[i].out(), nullptr));
    s.tx_cq.push_back(w.add_cq(w.domain(), cq_attr));
    s.rx_cq.push_back(w.add_cq(w.domain(), cq_attr));
    WEFT_ASSERT_OK(fi_ep_bind(s.tx[i].get(), s.tx_cq[i]->fid(), FI_TRANSMIT));
    WEFT_ASSERT_OK(fi_ep_bind(s.rx[i].get(), s.rx_cq[i]->fid(), FI_RECV));
    WEFT_ASSERT_OK(fi_enable(s.tx[i].get()));
    WEFT_ASSERT_OK(fi_enable(s.rx[i].get()));
  }
  s.name.resize(256);
  size_t len = s.name.size();
  WEFT_ASSERT_OK(fi_getname(s.sep.fid(), s.name.data(), &len));
  s.name.resize(len);
}

// fi_av(3), fi_rx_addr: each receive context of the peer is reached by its number.
TEST(ScalableEndpoint, named_contexts__fi_endpoint_3) {
  WEFT_WORLD(w, scalable_options());
  if (w.info()->domain_attr->max_ep_tx_ctx < contexts || w.info()->domain_attr->max_ep_rx_ctx < contexts) {
    GTEST_SKIP() << "one context an endpoint";
  }
  Scalable a, b;
  ASSERT_NO_FATAL_FAILURE(open_scalable(w, a));
  ASSERT_NO_FATAL_FAILURE(open_scalable(w, b));
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(a.av.get(), b.name.data(), 1, &to, 0, nullptr), 1);
  for (const size_t len : {size_t{8}, size_t{100'000}}) {
    for (size_t from = 0; from < contexts; ++from) {
      for (size_t at = 0; at < contexts; ++at) {
        SCOPED_TRACE("from " + std::to_string(from) + " to " + std::to_string(at) + ", size " +
                     std::to_string(len));
        const auto out = pattern(len, static_cast<uint32_t>(from * 10 + at));
        std::vector<uint8_t> in(len);
        Ctx sent, received;
        const fi_addr_t dest = fi_rx_addr(to, static_cast<int>(at), bits);
        WEFT_ASSERT_OK(fi_trecv(b.rx[at].get(), in.data(), len, nullptr, FI_ADDR_UNSPEC, 4, 0, &received));
        WEFT_ASSERT_OK(
            w.post([&] { return fi_tsend(a.tx[from].get(), out.data(), len, nullptr, dest, 4, &sent); }));
        w.done(b.rx_cq[at], received);
        w.done(a.tx_cq[from], sent);
        WEFT_EXPECT_PATTERN(in.data(), len, static_cast<uint32_t>(from * 10 + at));
      }
    }
  }
  for (auto* cq : b.rx_cq) EXPECT_TRUE(cq->inbox.empty());
}

// fi_endpoint(3), fi_close: the program may do with its buffers what it likes when the context is closed that sent from them. Ours are sent all
// the same.
TEST(ScalableEndpoint, closed_context_gives_buffers_back__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("operations of a closed context may be dropped");
  WEFT_WORLD(w, scalable_options());
  if (w.info()->domain_attr->max_ep_tx_ctx < contexts || w.info()->domain_attr->max_ep_rx_ctx < contexts) {
    GTEST_SKIP() << "one context an endpoint";
  }
  Scalable a, b;
  ASSERT_NO_FATAL_FAILURE(open_scalable(w, a));
  ASSERT_NO_FATAL_FAILURE(open_scalable(w, b));
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(a.av.get(), b.name.data(), 1, &to, 0, nullptr), 1);
  const fi_addr_t dest = fi_rx_addr(to, 0, bits);
  uint8_t greeting = 0;
  Ctx met;
  WEFT_ASSERT_OK(fi_trecv(b.rx[0].get(), &greeting, 1, nullptr, FI_ADDR_UNSPEC, ~0U, 0, &met));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(a.tx[0].get(), "!", 1, dest, ~0U); }));
  w.done(b.rx_cq[0], met);
  // More than sockets and rings hold, while the receiver is not driven.
  const size_t sizes[] = {65'536, 5'000, 200'000, 8};
  std::vector<std::vector<uint8_t>> out;
  std::vector<Ctx> sent(250);
  for (size_t i = 0; i < sent.size(); ++i) {
    out.push_back(pattern(sizes[i % 4], static_cast<uint32_t>(i)));
    if (fi_tsend(a.tx[1].get(), out[i].data(), out[i].size(), nullptr, dest, i, &sent[i]) == 0) continue;
    out.pop_back();
    break;
  }
  ASSERT_GT(out.size(), 4u);
  WEFT_ASSERT_OK(a.tx[1].close());
  for (auto& buffer : out) std::fill(buffer.begin(), buffer.end(), 0xee);
  for (size_t i = 0; i < out.size(); ++i) {
    std::vector<uint8_t> in(out[i].size());
    Ctx received;
    WEFT_ASSERT_OK(fi_trecv(b.rx[0].get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, i, 0, &received));
    w.done(b.rx_cq[0], received);
    WEFT_EXPECT_PATTERN(in.data(), in.size(), static_cast<uint32_t>(i));
    if (testing::Test::HasFailure()) return;
  }
}

// fi_endpoint(3), fi_close: -FI_EBUSY while contexts are open.
TEST(ScalableEndpoint, close_with_open_contexts_is_busy__fi_endpoint_3) {
  WEFT_WORLD(w, scalable_options());
  if (w.info()->domain_attr->max_ep_tx_ctx < contexts || w.info()->domain_attr->max_ep_rx_ctx < contexts) {
    GTEST_SKIP() << "one context an endpoint";
  }
  Scalable s;
  ASSERT_NO_FATAL_FAILURE(open_scalable(w, s));
  ASSERT_EQ(s.sep.close(), -FI_EBUSY);
  s.tx.clear();
  ASSERT_EQ(s.sep.close(), -FI_EBUSY);
  s.rx.clear();
  WEFT_ASSERT_OK(s.sep.close());
}

// An index that does not exist.
TEST(ScalableEndpoint, index_out_of_range__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("an index of no context");
  WEFT_WORLD(w, scalable_options());
  if (w.info()->domain_attr->max_ep_tx_ctx < contexts) GTEST_SKIP() << "one context an endpoint";
  Handle<fid_ep> sep;
  WEFT_ASSERT_OK(fi_scalable_ep(w.domain(), w.info(), sep.out(), nullptr));
  fid_ep* context = nullptr;
  EXPECT_LT(fi_tx_context(sep.get(), 1000, nullptr, &context, nullptr), 0);
  EXPECT_LT(fi_rx_context(sep.get(), -1, nullptr, &context, nullptr), 0);
}

// fi_endpoint(3): the options of endpoints are none of a shared transmit context, which says so.
TEST(SharedContext, stx_has_no_options__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("options of an object that has none");
  Options options{.caps = FI_TAGGED, .endpoints = 1};
  WEFT_WORLD(w, options);
  if (w.info()->domain_attr->max_ep_stx_ctx == 0) GTEST_SKIP() << "no shared transmit contexts";
  Handle<fid_stx> stx;
  WEFT_ASSERT_OK(fi_stx_context(w.domain(), w.info()->tx_attr, stx.out(), nullptr));
  for (const int name : {FI_OPT_MIN_MULTI_RECV, FI_OPT_CM_DATA_SIZE, FI_OPT_TX_SIZE, FI_OPT_RX_SIZE}) {
    size_t value = 1, length = sizeof value;
    EXPECT_LT(fi_getopt(stx.fid(), FI_OPT_ENDPOINT, name, &value, &length), 0) << name;
    EXPECT_LT(fi_setopt(stx.fid(), FI_OPT_ENDPOINT, name, &value, length), 0) << name;
  }
}

// fi_endpoint(3), SHARED CONTEXTS: two endpoints send through one transmit context, completions go to the endpoint's own queue.
TEST(SharedContext, stx__fi_endpoint_3) {
  Options options{.caps = FI_TAGGED, .endpoints = 1};
  WEFT_WORLD(w, options);
  if (w.info()->domain_attr->max_ep_stx_ctx == 0) GTEST_SKIP() << "no shared transmit contexts";
  Handle<fid_stx> stx;
  WEFT_ASSERT_OK(fi_stx_context(w.domain(), w.info()->tx_attr, stx.out(), nullptr));
  Info shared(fi_dupinfo(w.info()));
  shared->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  fi_av_attr av_attr{};
  Handle<fid_av> av;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(av.get(), w[0].name.data(), 1, &to, 0, nullptr), 1);
  std::vector<Cq*> cqs;
  {
    std::vector<Handle<fid_ep>> eps(2);
    for (auto& ep : eps) {
      cqs.push_back(w.add_cq(w.domain(), cq_attr));
      WEFT_ASSERT_OK(fi_endpoint(w.domain(), shared.get(), ep.out(), nullptr));
      WEFT_ASSERT_OK(fi_ep_bind(ep.get(), stx.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cqs.back()->fid(), FI_TRANSMIT | FI_RECV));
      WEFT_ASSERT_OK(fi_enable(ep.get()));
    }
    for (uint64_t i = 0; i < 20; ++i) {
      uint64_t in = 0;
      Ctx sent, received;
      WEFT_ASSERT_OK(fi_trecv(w[0], &in, 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received));
      WEFT_ASSERT_OK(w.post([&] { return fi_tsend(eps[i % 2].get(), &i, 8, nullptr, to, i, &sent); }));
      w.done(w[0].rx, received);
      w.done(cqs[i % 2], sent);
      EXPECT_EQ(in, i);
    }
    if (!manual_only()) {
      ASSERT_EQ(stx.close(), -FI_EBUSY) << "endpoints use it";
    }
  }
}

// Receives are posted to the shared context and taken by whichever endpoint a message reaches.
TEST(SharedContext, srx__fi_endpoint_3) {
  Options options{.caps = FI_TAGGED | FI_MSG, .endpoints = 1};
  WEFT_WORLD(w, options);
  if (w.info()->domain_attr->max_ep_srx_ctx == 0) GTEST_SKIP() << "no shared receive contexts";
  Handle<fid_ep> srx;
  WEFT_ASSERT_OK(fi_srx_context(w.domain(), w.info()->rx_attr, srx.out(), nullptr));
  Info shared(fi_dupinfo(w.info()));
  shared->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  fi_av_attr av_attr{};
  Handle<fid_av> av;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  std::vector<Cq*> cqs;
  std::vector<fi_addr_t> to(2, FI_ADDR_NOTAVAIL);
  {
    std::vector<Handle<fid_ep>> eps(2);
    for (size_t i = 0; i < 2; ++i) {
      cqs.push_back(w.add_cq(w.domain(), cq_attr));
      WEFT_ASSERT_OK(fi_endpoint(w.domain(), shared.get(), eps[i].out(), nullptr));
      WEFT_ASSERT_OK(fi_ep_bind(eps[i].get(), srx.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(eps[i].get(), av.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(eps[i].get(), cqs.back()->fid(), FI_TRANSMIT | FI_RECV));
      WEFT_ASSERT_OK(fi_enable(eps[i].get()));
      uint8_t name[256];
      size_t len = sizeof name;
      WEFT_ASSERT_OK(fi_getname(eps[i].fid(), name, &len));
      ASSERT_EQ(fi_av_insert(w[0].av.get(), name, 1, &to[i], 0, nullptr), 1);
    }
    for (const size_t len : {size_t{8}, size_t{100'000}}) {
      for (uint32_t i = 0; i < 10; ++i) {
        const auto out = pattern(len, i);
        std::vector<uint8_t> in(len), tagged_in(len);
        Ctx sent, tagged_sent, received, tagged;
        WEFT_ASSERT_OK(fi_recv(srx.get(), in.data(), len, nullptr, FI_ADDR_UNSPEC, &received));
        WEFT_ASSERT_OK(fi_trecv(srx.get(), tagged_in.data(), len, nullptr, FI_ADDR_UNSPEC, i, 0, &tagged));
        WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, to[i % 2], &sent); }));
        WEFT_ASSERT_OK(w.post(
            [&] { return fi_tsend(w[0], out.data(), len, nullptr, to[(i + 1) % 2], i, &tagged_sent); }));
        w.done(cqs[i % 2], received);
        w.done(cqs[(i + 1) % 2], tagged);
        w.done(w[0].tx, sent);
        w.done(w[0].tx, tagged_sent);
        WEFT_EXPECT_PATTERN(in.data(), len, i);
        WEFT_EXPECT_PATTERN(tagged_in.data(), len, i);
      }
    }
    // What comes before a receive is posted waits for it, whichever endpoint took it.
    uint64_t in[2] = {};
    const uint64_t out[2] = {7, 8};
    Ctx received[2];
    for (size_t i = 0; i < 2; ++i)
      WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &out[i], 8, to[i], 70 + i); }));
    w.progress_for(milliseconds(2));
    for (size_t i = 0; i < 2; ++i)
      WEFT_ASSERT_OK(fi_trecv(srx.get(), &in[i], 8, nullptr, FI_ADDR_UNSPEC, 70 + i, 0, &received[i]));
    for (size_t i = 0; i < 2; ++i) {
      w.done(cqs[i], received[i]);
      EXPECT_EQ(in[i], out[i]);
    }
    if (!manual_only()) {
      ASSERT_EQ(srx.close(), -FI_EBUSY) << "endpoints use it";
    }
  }
}

// A shared context with two endpoints that have a queue each.
struct SharedPair {
  void open(World& w) {
    WEFT_ASSERT_OK(fi_srx_context(w.domain(), w.info()->rx_attr, srx.out(), nullptr));
    info.reset(fi_dupinfo(w.info()));
    info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    fi_av_attr av_attr{};
    WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    for (Handle<fid_ep>& ep : eps) {
      cqs.push_back(w.add_cq(w.domain(), cq_attr));
      WEFT_ASSERT_OK(fi_endpoint(w.domain(), info.get(), ep.out(), nullptr));
      WEFT_ASSERT_OK(fi_ep_bind(ep.get(), srx.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cqs.back()->fid(), FI_TRANSMIT | FI_RECV));
      WEFT_ASSERT_OK(fi_enable(ep.get()));
    }
  }
  fi_addr_t insert(World& w, size_t i) {
    uint8_t name[256];
    size_t len = sizeof name;
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_getname(eps[i].fid(), name, &len), 0);
    EXPECT_EQ(fi_av_insert(w[0].av.get(), name, 1, &to, 0, nullptr), 1);
    return to;
  }
  // The next entry of any of the queues.
  Completion next() {
    const auto end = std::chrono::steady_clock::now() + timeout_default;
    while (std::chrono::steady_clock::now() < end) {
      for (Cq* cq : cqs) {
        cq->poll();
        if (cq->inbox.empty()) continue;
        Completion first = cq->inbox.front();
        cq->inbox.pop_front();
        return first;
      }
    }
    Completion none;
    none.err = -1;
    return none;
  }

  Info info;
  Handle<fid_ep> srx;  // after its endpoints
  Handle<fid_av> av;
  std::vector<Cq*> cqs;
  std::vector<Handle<fid_ep>> eps = std::vector<Handle<fid_ep>>(2);
};

// fi_endpoint(3), fi_cancel: a receive of a shared context belongs to no endpoint, and its end is reported all the same.
TEST(SharedContext, cancel__fi_endpoint_3_fi_cancel) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_MSG, .endpoints = 1});
  if (w.info()->domain_attr->max_ep_srx_ctx == 0) GTEST_SKIP() << "no shared receive contexts";
  SharedPair shared;
  shared.open(w);
  uint64_t in = 0;
  for (const bool tagged : {true, false}) {
    Ctx received;
    if (tagged) WEFT_ASSERT_OK(fi_trecv(shared.srx.get(), &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    else WEFT_ASSERT_OK(fi_recv(shared.srx.get(), &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
    WEFT_ASSERT_OK(fi_cancel(shared.srx.fid(), &received));
    const Completion c = shared.next();
    EXPECT_EQ(c.err, FI_ECANCELED);
    EXPECT_EQ(c.context, &received);
    // The queue that answered may go; another endpoint's does it then.
    shared.eps[0] = {};
  }
}

// fi_msg(3), FI_MULTI_RECV: a buffer of a shared context comes back with the flag, empty or partly filled, once.
TEST(SharedContext, cancelled_multi_receive_comes_back__fi_msg_3_FI_MULTI_RECV) {
  WEFT_BEYOND_THE_MANUAL("the flags of cancelled receives");
  WEFT_WORLD(w, {.caps = FI_MSG | FI_MULTI_RECV, .endpoints = 1});
  if (w.info()->domain_attr->max_ep_srx_ctx == 0) GTEST_SKIP() << "no shared receive contexts";
  SharedPair shared;
  shared.open(w);
  std::vector<uint8_t> buffer(4096);
  const iovec part{buffer.data(), buffer.size()};
  for (const size_t messages : {0, 2}) {
    SCOPED_TRACE(messages);
    Ctx received;
    const fi_msg msg{&part, nullptr, 1, FI_ADDR_UNSPEC, &received, 0};
    WEFT_ASSERT_OK(fi_recvmsg(shared.srx.get(), &msg, FI_MULTI_RECV));
    for (size_t i = 0; i < messages; ++i) {  // one to each endpoint
      const fi_addr_t to = shared.insert(w, i);
      const auto out = pattern(40, static_cast<uint32_t>(i));
      Ctx sent;
      WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), out.size(), nullptr, to, &sent); }));
      ASSERT_TRUE(w.progress_until([&] { return !shared.cqs[i]->inbox.empty(); }));
      const Completion c = shared.next();
      EXPECT_EQ(c.err, 0);
      EXPECT_EQ(c.flags, FI_RECV | FI_MSG);
      WEFT_EXPECT_PATTERN(buffer.data() + i * 40, 40, static_cast<uint32_t>(i));
      w.done(w[0].tx, sent);
    }
    WEFT_ASSERT_OK(fi_cancel(shared.srx.fid(), &received));
    const Completion c = shared.next();
    EXPECT_EQ(c.err, FI_ECANCELED);
    EXPECT_EQ(c.context, &received);
    EXPECT_EQ(c.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
    EXPECT_EQ(fi_cancel(shared.srx.fid(), &received), -FI_ENOENT);
    for (Cq* cq : shared.cqs) EXPECT_TRUE(w.quiet(cq));
  }
}

// fi_tagged(3), FI_PEEK: what has come to any of the endpoints is seen.
TEST(SharedContext, peek_and_claim__fi_tagged_3_FI_PEEK) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_MSG, .endpoints = 1});
  if (w.info()->domain_attr->max_ep_srx_ctx == 0) GTEST_SKIP() << "no shared receive contexts";
  SharedPair shared;
  shared.open(w);
  const auto look = [&](uint64_t tag, uint64_t flags, void* into, Ctx& ctx) {
    const iovec part{into, 8};
    fi_msg_tagged msg{};
    msg.msg_iov = &part;
    msg.iov_count = into != nullptr ? 1 : 0;
    msg.addr = FI_ADDR_UNSPEC;
    msg.tag = tag;
    msg.context = &ctx;
    return w.post([&] { return fi_trecvmsg(shared.srx.get(), &msg, flags); });
  };
  Ctx ctx;
  WEFT_ASSERT_OK(look(5, FI_PEEK, nullptr, ctx));
  EXPECT_EQ(shared.next().err, FI_ENOMSG);
  for (size_t i = 0; i < 2; ++i) {
    const fi_addr_t to = shared.insert(w, i);
    const uint64_t out = 70 + i;
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &out, 8, to, 5); }));
    const auto end = std::chrono::steady_clock::now() + timeout_default;
    Completion c;
    do {
      w[0].tx->poll();  // the sender's connection may still be on its way
      WEFT_ASSERT_OK(look(5, FI_PEEK | FI_CLAIM, nullptr, ctx));
      c = shared.next();
    } while (c.err == FI_ENOMSG && std::chrono::steady_clock::now() < end);
    ASSERT_EQ(c.err, 0);
    EXPECT_EQ(c.len, 8u);
    uint64_t in = 0;
    WEFT_ASSERT_OK(look(5, FI_CLAIM, &in, ctx));
    c = shared.next();
    EXPECT_EQ(c.err, 0);
    EXPECT_EQ(in, out);
  }
}

// A counter that a shared context got after its endpoints is its own until the context is closed.
TEST(SharedContext, counters_that_come_late__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_MSG, .endpoints = 1});
  if (w.info()->domain_attr->max_ep_srx_ctx == 0) GTEST_SKIP() << "no shared receive contexts";
  fi_cntr_attr attr{};
  attr.events = FI_CNTR_EVENTS_COMP;
  Handle<fid_cntr> counter;
  WEFT_ASSERT_OK(fi_cntr_open(w.domain(), &attr, counter.out(), nullptr));
  SharedPair shared;
  shared.open(w);
  const int rc = fi_ep_bind(shared.srx.get(), counter.fid(), FI_RECV);
  WEFT_SKIP_IF(rc == -FI_EINVAL || rc == -FI_ENOSYS ? "shared contexts have no counters" : "");
  WEFT_ASSERT_OK(rc);
  const fi_addr_t to = shared.insert(w, 1);
  uint64_t in = 0;
  const uint64_t out = 9;
  Ctx received;
  WEFT_ASSERT_OK(fi_recv(shared.srx.get(), &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &out, 8, to); }));
  const auto end = std::chrono::steady_clock::now() + timeout_default;
  while (fi_cntr_read(counter.get()) == 0 && std::chrono::steady_clock::now() < end) w[0].tx->poll();
  EXPECT_EQ(fi_cntr_read(counter.get()), 1u) << "reading it drives the endpoints";
  EXPECT_EQ(in, out);
  for (Handle<fid_ep>& ep : shared.eps) ep = {};
  EXPECT_EQ(counter.close(), -FI_EBUSY) << "the shared context has it";
  shared.srx = {};
  WEFT_ASSERT_OK(counter.close());
}

}  // namespace
}  // namespace weft::conformance
