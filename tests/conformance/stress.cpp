// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages in numbers: order over mixed sizes, many outstanding, -FI_EAGAIN with nothing lost, unexpected floods, all to all.
#include <algorithm>
#include <random>
#include <weft/libfabric_retired.hpp>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

const std::vector<size_t>& mixed_sizes() {
  static const std::vector<size_t> all = {8, 0,      40, 49,      8, 300,       64, 5000,
                                          1, 20'000, 16, 100'000, 8, 1'000'000, 8,  48};
  return all;
}

// fi_endpoint(3), FI_ORDER_SAS: messages match posted receives in the order of the sends, whatever their sizes.
void order_over_mixed_sizes(bool receive_first) {
  WEFT_WORLD(w, {.caps = FI_MSG, .msg_order = FI_ORDER_SAS});
  constexpr size_t count = 160, room = 1'000'000;
  std::vector<std::vector<uint8_t>> out, in(count);
  std::vector<Ctx> sent(count), received(count);
  for (uint32_t i = 0; i < count; ++i) out.push_back(pattern(mixed_sizes()[i % mixed_sizes().size()], i));
  // Every receive has room for the longest, so that a wrong order shows as a wrong length, not as truncation.
  const auto receive = [&](size_t i) {
    in[i].resize(room);
    WEFT_ASSERT_OK(
        w.post([&] { return fi_recv(w[1], in[i].data(), room, nullptr, FI_ADDR_UNSPEC, &received[i]); }));
  };
  const auto send = [&](size_t i) {
    WEFT_ASSERT_OK(
        w.post([&] { return fi_send(w[0], out[i].data(), out[i].size(), nullptr, w[0].peer[1], &sent[i]); }));
  };
  for (size_t i = 0; i < count; ++i) receive_first ? receive(i) : send(i);
  for (size_t i = 0; i < count; ++i) receive_first ? send(i) : receive(i);
  for (uint32_t i = 0; i < count; ++i) {
    SCOPED_TRACE("message " + std::to_string(i));
    const Completion r = w.done(w[1].rx, received[i]);
    w.done(w[0].tx, sent[i]);
    EXPECT_EQ(r.len, out[i].size());
    WEFT_EXPECT_PATTERN(in[i].data(), out[i].size(), i);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Order, sas_expected__fi_endpoint_3) { order_over_mixed_sizes(true); }
TEST(Order, sas_unexpected__fi_endpoint_3) { order_over_mixed_sizes(false); }

// The same for tagged messages that wildcard receives take, with fi_tinject, fi_tsend and fi_tsenddata mixed.
TEST(Order, sas_over_mixed_calls__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  constexpr uint64_t count = 300;
  const size_t inject_max = w.info()->tx_attr->inject_size;
  std::vector<std::vector<uint8_t>> out, in(count);
  std::vector<Ctx> sent(count), received(count);
  for (uint32_t i = 0; i < count; ++i)
    out.push_back(pattern(std::min<size_t>(mixed_sizes()[i % 12], 100'000), i));
  for (uint64_t i = 0; i < count; ++i) {
    const auto& data = out[i];
    WEFT_ASSERT_OK(w.post([&] {
      if (i % 3 == 0 && data.size() <= inject_max)
        return fi_tinject(w[0], data.data(), data.size(), w[0].peer[1], i);
      if (i % 3 == 1)
        return fi_tsenddata(w[0], data.data(), data.size(), nullptr, i & 0xff, w[0].peer[1], i, &sent[i]);
      return fi_tsend(w[0], data.data(), data.size(), nullptr, w[0].peer[1], i, &sent[i]);
    }));
    if (i % 2 == 0) continue;
    for (const uint64_t k : {i - 1, i}) {
      in[k].resize(100'000);
      WEFT_ASSERT_OK(w.post([&] {
        return fi_trecv(w[1], in[k].data(), 100'000, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &received[k]);
      }));
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    SCOPED_TRACE("message " + std::to_string(i));
    const Completion r = w.done(w[1].rx, received[i]);
    EXPECT_EQ(r.tag, i);
    EXPECT_EQ(r.len, out[i].size());
    WEFT_EXPECT_PATTERN(in[i].data(), out[i].size(), i);
    if (testing::Test::HasFailure()) return;
  }
}

// Receive completions of small messages from one sender come in order too when FI_ORDER_STRICT is claimed; fi_endpoint(3),
// comp_order.
TEST(Order, completion_order__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  if ((w.info()->rx_attr->comp_order & retired::order_strict) != retired::order_strict)
    GTEST_SKIP() << "no strict completion order";
  uint64_t in[64];
  std::vector<Ctx> received(64);
  for (int i = 0; i < 64; ++i) {
    WEFT_ASSERT_OK(
        fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &received[static_cast<size_t>(i)]));
  }
  for (uint64_t i = 0; i < 64; ++i)
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &i, 8, w[0].peer[1], i); }));
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(w.next(w[1].rx).tag, i);
}

// fi_msg(3), ERRORS, -FI_EAGAIN: sends without any receive until the provider refuses, then all are received; nothing is lost,
// nothing comes twice.
void flood(size_t len, size_t count) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  SCOPED_TRACE("size " + std::to_string(len));
  std::vector<std::vector<uint8_t>> out;
  std::vector<Ctx> sent(count);
  for (uint32_t i = 0; i < count; ++i) out.push_back(pattern(len, i));
  size_t posted = 0;
  unsigned refused = 0;
  const auto push = [&] {
    while (posted < count) {
      const ssize_t rc =
          fi_tsend(w[0], out[posted].data(), len, nullptr, w[0].peer[1], posted, &sent[posted]);
      if (rc == -FI_EAGAIN) break;
      ASSERT_EQ(rc, 0) << error_name(rc);
      ++posted;
    }
  };
  // First without receives, with some progress on both sides.
  for (int i = 0; i < 2000 && posted < count; ++i) {
    const size_t before = posted;
    push();
    w.progress();
    refused = posted == before ? refused + 1 : 0;
    if (refused > 200) break;
  }
  std::vector<uint8_t> in(len + 1);
  for (uint32_t i = 0; i < count; ++i) {
    SCOPED_TRACE("message " + std::to_string(i) + ", posted " + std::to_string(posted));
    Ctx received;
    std::fill(in.begin(), in.end(), 0);
    WEFT_ASSERT_OK(
        w.post([&] { return fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, i, 0, &received); }));
    if (posted <= i) {
      ASSERT_TRUE(w.progress_until([&] {
        push();
        return posted > i;
      })) << "the sender stays refused though receives are posted";
    }
    w.done(w[1].rx, received);
    WEFT_EXPECT_PATTERN(in.data(), len, i);
    if (testing::Test::HasFailure()) return;
    push();
  }
  EXPECT_TRUE(w.progress_until([&] { return w[0].tx->inbox.size() >= count; }));
  EXPECT_EQ(w[0].tx->inbox.size(), count);
  for (const auto& c : w[0].tx->inbox) EXPECT_EQ(c.err, 0);
}

// Of others so many that every buffer of theirs is full, and not so many that a slow one is taken for one that hangs.
TEST(Flood, small_unexpected__fi_msg_3_EAGAIN) { flood(8, manual_only() ? 4'000 : 20'000); }
TEST(Flood, middle_unexpected__fi_msg_3_EAGAIN) { flood(4096, manual_only() ? 1'500 : 3'000); }
TEST(Flood, large_unexpected__fi_msg_3_EAGAIN) { flood(64 * 1024, manual_only() ? 300 : 500); }

// Unexpected messages, received in another order by tag; the last one first: a bound on buffering must not deadlock it.
TEST(Flood, received_in_reverse_order__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  for (const size_t len : {size_t{8}, size_t{2000}, size_t{40'000}}) {
    SCOPED_TRACE(len);
    const uint32_t count = 400;
    std::vector<std::vector<uint8_t>> out, in(count, std::vector<uint8_t>(len + 1));
    std::vector<Ctx> sent(count), received(count);
    for (uint32_t i = 0; i < count; ++i) out.push_back(pattern(len, i));
    for (uint32_t i = 0; i < count; ++i) {
      WEFT_ASSERT_OK(
          w.post([&] { return fi_tsend(w[0], out[i].data(), len, nullptr, w[0].peer[1], i, &sent[i]); }));
    }
    w.progress_for(milliseconds(2));
    for (uint32_t k = count; k-- > 0;) {
      WEFT_ASSERT_OK(fi_trecv(w[1], in[k].data(), len, nullptr, FI_ADDR_UNSPEC, k, 0, &received[k]));
      w.done(w[1].rx, received[k]);
      WEFT_EXPECT_PATTERN(in[k].data(), len, k);
      if (testing::Test::HasFailure()) return;
    }
    for (auto& ctx : sent) w.done(w[0].tx, ctx);
  }
}

// Many sends and receives in flight in both directions, random sizes, random tags.
TEST(Flood, random_traffic_both_ways__fi_tagged_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS});
  std::mt19937 random(42);
  struct Message {
    size_t from;
    uint64_t tag;
    std::vector<uint8_t> out, in;
    Ctx sent, received;
  };
  std::vector<std::unique_ptr<Message>> all;
  for (uint32_t i = 0; i < 1500; ++i) {
    auto m = std::make_unique<Message>();
    m->from = random() % 2;
    m->tag = i;
    const size_t limits[] = {64, 64, 600, 9000, 150'000};
    m->out = pattern(random() % limits[random() % 5], i);
    m->in.resize(m->out.size() + 1);
    all.push_back(std::move(m));
  }
  // Receives are posted in random order around the sends.
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = 0; i + 50 < order.size(); ++i) std::swap(order[i], order[i + random() % 50]);
  for (size_t i = 0; i < all.size(); ++i) {
    Message& m = *all[i];
    WEFT_ASSERT_OK(w.post([&] {
      return fi_tsend(w[m.from], m.out.data(), m.out.size(), nullptr, w[m.from].peer[1 - m.from], m.tag,
                      &m.sent);
    }));
    Message& r = *all[order[i]];
    WEFT_ASSERT_OK(w.post([&] {
      return fi_trecv(w[1 - r.from], r.in.data(), r.out.size(), nullptr, FI_ADDR_UNSPEC, r.tag, 0,
                      &r.received);
    }));
  }
  for (auto& m : all) {
    SCOPED_TRACE("message " + std::to_string(m->tag) + " of " + std::to_string(m->out.size()));
    EXPECT_EQ(w.done(w[1 - m->from].rx, m->received).len, m->out.size());
    w.done(w[m->from].tx, m->sent);
    WEFT_EXPECT_PATTERN(m->in.data(), m->out.size(), static_cast<uint32_t>(m->tag));
    if (testing::Test::HasFailure()) return;
  }
}

// Four senders begin a large message of the same length and tag to one receiver at the same time: each receive has the whole of one (libfabric commit
// 1bf7b5735).
TEST(Flood, four_senders_of_equal_messages__fi_tagged_3) {
  constexpr size_t senders = 4, len = 300'000;
  WEFT_WORLD(w, {.caps = FI_TAGGED, .msg_order = FI_ORDER_SAS, .endpoints = senders + 1});
  for (const bool receive_first : {false, true}) {
    SCOPED_TRACE(receive_first);
    std::vector<std::vector<uint8_t>> out, in(senders, std::vector<uint8_t>(len));
    std::vector<Ctx> sent(senders), received(senders);
    const auto receive = [&] {
      for (size_t i = 0; i < senders; ++i)
        WEFT_ASSERT_OK(fi_trecv(w[senders], in[i].data(), len, nullptr, FI_ADDR_UNSPEC, 9, 0, &received[i]));
    };
    if (receive_first) receive();
    for (size_t i = 0; i < senders; ++i) {
      out.push_back(pattern(len, static_cast<uint32_t>(i)));
      WEFT_ASSERT_OK(w.post(
          [&] { return fi_tsend(w[i], out[i].data(), len, nullptr, w[i].peer[senders], 9, &sent[i]); }));
    }
    if (!receive_first) {
      w.progress_for(milliseconds(2));
      receive();
    }
    for (size_t i = 0; i < senders; ++i) {
      w.done(w[i].tx, sent[i]);
      w.done(w[senders].rx, received[i]);
    }
    // Whose message a receive has is open; each is there once.
    std::vector<bool> seen(senders);
    for (size_t i = 0; i < senders; ++i)
      for (size_t k = 0; k < senders; ++k)
        if (!seen[k] && first_difference(in[i].data(), len, static_cast<uint32_t>(k)) == len) {
          seen[k] = true;
          break;
        }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), ptrdiff_t{senders}) << "mixed, lost, or twice";
  }
}

// Hundreds of posted receives complete in the order in which two senders send, which is not theirs (ompi 11295).
TEST(Flood, receives_completed_in_any_order__fi_tagged_3) {
  constexpr uint32_t senders = 2, each = 200, count = senders * each;
  WEFT_WORLD(w, {.caps = FI_TAGGED, .rx_size = count, .cq_size = count, .endpoints = senders + 1});
  for (const size_t len : {size_t{8}, size_t{4096}, size_t{40'000}}) {
    SCOPED_TRACE(len);
    std::vector<std::vector<uint8_t>> out, in(count, std::vector<uint8_t>(len + 1));
    std::vector<Ctx> sent(count), received(count);
    for (uint32_t i = 0; i < count; ++i) {
      out.push_back(pattern(len, i));
      WEFT_ASSERT_OK(fi_trecv(w[senders], in[i].data(), len, nullptr, FI_ADDR_UNSPEC, i, 0, &received[i]));
    }
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t from = i % senders, tag = from * each + i / senders * 97 % each;
      WEFT_ASSERT_OK(w.post([&] {
        return fi_tsend(w[from], out[tag].data(), len, nullptr, w[from].peer[senders], tag, &sent[tag]);
      }));
    }
    std::vector<bool> seen(count);
    for (uint32_t i = 0; i < count; ++i) {
      const Completion c = w.next(w[senders].rx);
      ASSERT_EQ(c.err, 0) << c.text;
      const auto index = static_cast<size_t>(static_cast<Ctx*>(c.context) - received.data());
      ASSERT_LT(index, count);
      EXPECT_FALSE(seen[index]) << index << " completed twice";
      seen[index] = true;
      EXPECT_EQ(c.tag, index);
      EXPECT_EQ(c.len, len);
      WEFT_EXPECT_PATTERN(in[index].data(), len, index);
      if (testing::Test::HasFailure()) return;
    }
    for (uint32_t i = 0; i < count; ++i) w.done(w[i / each].tx, sent[i]);
  }
}

// Eight endpoints, every pair, the same domain.
TEST(Flood, all_to_all__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 8});
  constexpr size_t n = 8, len = 1024;
  for (uint64_t round = 0; round < 5; ++round) {
    std::vector<std::vector<uint8_t>> in(n * n, std::vector<uint8_t>(len)), out;
    std::vector<Ctx> sent(n * n), received(n * n);
    for (uint32_t i = 0; i < n * n; ++i) out.push_back(pattern(len, i));
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        WEFT_ASSERT_OK(w.post([&] {
          return fi_trecv(w[b], in[a * n + b].data(), len, nullptr, FI_ADDR_UNSPEC, a, 0,
                          &received[a * n + b]);
        }));
        WEFT_ASSERT_OK(w.post([&] {
          return fi_tsend(w[a], out[a * n + b].data(), len, nullptr, w[a].peer[b], a, &sent[a * n + b]);
        }));
      }
    }
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        w.done(w[b].rx, received[a * n + b]);
        w.done(w[a].tx, sent[a * n + b]);
        WEFT_EXPECT_PATTERN(in[a * n + b].data(), len, static_cast<uint32_t>(a * n + b));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Transmit queue of a stated size: at least that many operations are accepted at once, or -FI_EAGAIN is said; fi_endpoint(3), size.
TEST(Flood, tx_queue_full_then_success__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  constexpr size_t len = 300'000;
  const auto out = pattern(len, 1);
  std::vector<std::unique_ptr<Ctx>> sent;
  size_t accepted = 0;
  while (accepted < 20'000) {
    auto ctx = std::make_unique<Ctx>();
    const ssize_t rc = fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], accepted, ctx.get());
    if (rc == -FI_EAGAIN && accepted > 0) break;
    if (rc == -FI_EAGAIN) {
      w.progress();
      continue;
    }
    WEFT_ASSERT_OK(rc);
    sent.push_back(std::move(ctx));
    ++accepted;
  }
  if (!manual_only()) {
    EXPECT_LT(accepted, 20'000u) << "a queue without a bound";
  }
  std::vector<uint8_t> in(len);
  for (size_t i = 0; i < std::min<size_t>(accepted, 200); ++i) {
    Ctx received;
    WEFT_ASSERT_OK(
        w.post([&] { return fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, i, 0, &received); }));
    w.done(w[1].rx, received);
    WEFT_EXPECT_PATTERN(in.data(), len, 1);
    w.done(w[0].tx, *sent[i]);
  }
  // The endpoints close with the rest pending; fi_endpoint(3), fi_close.
}

}  // namespace
}  // namespace weft::conformance
