// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Remote memory access: every call of fi_rma(3), all sizes, vectors on both sides, CQ data, order, delivery complete.
#include <algorithm>
#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

// A write whose completion is of the default level may still be on its way; fi_cq(3), FI_TRANSMIT_COMPLETE. Where a test looks at
// the target or reads back at once, it asks for FI_DELIVERY_COMPLETE.
constexpr uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

// fi_rma(3), fi_write and fi_read; fi_cq(3), FI_RMA with FI_WRITE and FI_READ.
void write_and_read(World& w, const std::vector<size_t>& lens) {
  const size_t room = *std::max_element(lens.begin(), lens.end()) + 64;
  std::vector<uint8_t> target(room);
  Region region = w.reg(1, target.data(), room, remote_access);
  ASSERT_TRUE(region);
  for (const size_t len : lens) {
    for (const size_t offset : {size_t{0}, size_t{13}}) {
      SCOPED_TRACE("size " + std::to_string(len) + " at " + std::to_string(offset));
      std::fill(target.begin(), target.end(), 0xee);
      const auto out = pattern(len, 21);
      Ctx wrote, did_read;
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(offset), region.key(),
                        &wrote);
      }));
      const Completion c = w.done(w[0].tx, wrote);
      EXPECT_EQ(c.flags & (FI_RMA | FI_WRITE), FI_RMA | FI_WRITE);
      std::vector<uint8_t> back(len + 1, 0xdd);
      WEFT_ASSERT_OK(w.post([&] {
        return fi_read(w[0], back.data(), len, nullptr, w[0].peer[1], region.at(offset), region.key(),
                       &did_read);
      }));
      const Completion r = w.done(w[0].tx, did_read);
      EXPECT_EQ(r.flags & (FI_RMA | FI_READ), FI_RMA | FI_READ);
      WEFT_EXPECT_PATTERN(back.data(), len, 21);
      EXPECT_EQ(back[len], 0xdd) << "read wrote behind the buffer";
      WEFT_EXPECT_PATTERN(target.data() + offset, len, 21);
      EXPECT_EQ(target[offset + len], 0xee) << "write went behind its length";
      if (offset > 0) {
        EXPECT_EQ(target[offset - 1], 0xee) << "write went before its place";
      }
    }
  }
  EXPECT_TRUE(w.quiet(w[1].rx)) << "plain RMA is silent at the target";
}

TEST(Rma, every_size__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE});
  std::vector<size_t> lens = sizes();
  if (manual_only()) std::erase(lens, size_t{0});  // no page speaks of an access to nothing
  write_and_read(w, lens);
}

// Completions of the default level: the result arrives in the end.
TEST(Rma, default_completion_level__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_RMA});
  std::vector<uint8_t> target(1 << 20);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{8}, size_t{100}, size_t{5000}, size_t{1 << 20}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, static_cast<uint32_t>(len));
    Ctx wrote;
    WEFT_ASSERT_OK(w.post([&] {
      return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
    }));
    w.done(w[0].tx, wrote);
    EXPECT_TRUE(w.progress_until(
        [&] { return first_difference(target.data(), len, static_cast<uint32_t>(len)) == len; }));
  }
}

TEST(Rma, separate_domains__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE, .own_domains = true});
  write_and_read(w, {8, 100, 5000, 100'000, 3'000'000});
}

TEST(Rma, to_self__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE, .endpoints = 1});
  std::vector<uint8_t> target(100'000);
  Region region = w.reg(0, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{0}, size_t{8}, size_t{5000}, size_t{100'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, static_cast<uint32_t>(len));
    std::vector<uint8_t> back(len + 1);
    Ctx wrote, did_read;
    WEFT_ASSERT_OK(w.post([&] {
      return fi_write(w[0], out.data(), len, nullptr, w[0].peer[0], region.at(), region.key(), &wrote);
    }));
    w.done(w[0].tx, wrote);
    WEFT_ASSERT_OK(w.post([&] {
      return fi_read(w[0], back.data(), len, nullptr, w[0].peer[0], region.at(), region.key(), &did_read);
    }));
    w.done(w[0].tx, did_read);
    WEFT_EXPECT_PATTERN(back.data(), len, static_cast<uint32_t>(len));
  }
}

// fi_rma(3), fi_writev and fi_readv.
TEST(Rma, vectors__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE});
  const size_t limit = std::min<size_t>(w.info()->tx_attr->iov_limit, 4);
  std::vector<uint8_t> target(3'000'000);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t total : {size_t{20}, size_t{3000}, size_t{300'000}, size_t{3'000'000}}) {
    SCOPED_TRACE(total);
    auto out = pattern(total, 22);
    std::vector<uint8_t> back(total, 0);
    std::vector<iovec> from, to;
    for (size_t i = 0, at = 0, bt = 0; i < limit; ++i) {
      const size_t n = i + 1 == limit ? total - at : total / limit - i;
      const size_t m = i + 1 == limit ? total - bt : i + 1;
      from.push_back({out.data() + at, n});
      to.push_back({back.data() + bt, m});
      at += n;
      bt += m;
    }
    Ctx wrote, did_read;
    WEFT_ASSERT_OK(w.post([&] {
      return fi_writev(w[0], from.data(), nullptr, limit, w[0].peer[1], region.at(), region.key(), &wrote);
    }));
    w.done(w[0].tx, wrote);
    WEFT_EXPECT_PATTERN(target.data(), total, 22);
    WEFT_ASSERT_OK(w.post([&] {
      return fi_readv(w[0], to.data(), nullptr, limit, w[0].peer[1], region.at(), region.key(), &did_read);
    }));
    w.done(w[0].tx, did_read);
    WEFT_EXPECT_PATTERN(back.data(), total, 22);
  }
}

// fi_rma(3), fi_writemsg and fi_readmsg with several remote ranges, also of several regions.
TEST(Rma, several_remote_ranges__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE});
  const size_t ranges = std::min<size_t>(w.info()->tx_attr->rma_iov_limit, 4);
  const size_t parts = std::min<size_t>(w.info()->tx_attr->iov_limit, 3);
  for (const size_t total : {size_t{40}, size_t{4000}, size_t{400'000}}) {
    SCOPED_TRACE(std::to_string(total) + " bytes, " + std::to_string(ranges) + " ranges");
    std::vector<std::vector<uint8_t>> targets(ranges, std::vector<uint8_t>(total + 16, 0xee));
    std::vector<Region> regions;
    std::vector<fi_rma_iov> remote;
    for (size_t i = 0, at = 0; i < ranges; ++i) {
      regions.push_back(w.reg(1, targets[i].data(), targets[i].size(), remote_access));
      const size_t n = i + 1 == ranges ? total - at : total / ranges + i;
      remote.push_back({regions[i].at(i + 1), n, regions[i].key()});
      at += n;
    }
    auto out = pattern(total, 23);
    std::vector<uint8_t> back(total, 0);
    std::vector<iovec> from, to;
    for (size_t i = 0, at = 0; i < parts; ++i) {
      const size_t n = i + 1 == parts ? total - at : total / parts - 1;
      from.push_back({out.data() + at, n});
      to.push_back({back.data() + at, n});
      at += n;
    }
    Ctx wrote, did_read;
    fi_msg_rma msg{from.data(), nullptr, parts, w[0].peer[1], remote.data(), ranges, &wrote, 0};
    WEFT_ASSERT_OK(w.post([&] { return fi_writemsg(w[0], &msg, 0); }));
    w.done(w[0].tx, wrote);
    for (size_t i = 0, at = 0; i < ranges; ++i) {
      EXPECT_EQ(std::memcmp(targets[i].data() + i + 1, out.data() + at, remote[i].len), 0) << "range " << i;
      EXPECT_EQ(targets[i][i], 0xee);
      EXPECT_EQ(targets[i][i + 1 + remote[i].len], 0xee);
      at += remote[i].len;
    }
    msg.msg_iov = to.data();
    msg.context = &did_read;
    WEFT_ASSERT_OK(w.post([&] { return fi_readmsg(w[0], &msg, 0); }));
    w.done(w[0].tx, did_read);
    WEFT_EXPECT_PATTERN(back.data(), total, 23);
  }
}

// fi_rma(3), fi_inject_write: silent, the buffer is free at once. The write is there when a later fenced or ordered one is.
TEST(Rma, inject_write__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA});
  const size_t limit = w.info()->tx_attr->inject_size;
  std::vector<uint8_t> target(limit + 64);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{1}, size_t{8}, size_t{40}, size_t{64}, limit}) {
    if (len > limit || len == 0) continue;
    SCOPED_TRACE(len);
    auto out = pattern(len, 24);
    std::fill(target.begin(), target.end(), 0);
    WEFT_ASSERT_OK(w.post(
        [&] { return fi_inject_write(w[0], out.data(), len, w[0].peer[1], region.at(), region.key()); }));
    std::fill(out.begin(), out.end(), 0xff);
    EXPECT_TRUE(w.progress_until([&] { return first_difference(target.data(), len, 24) == len; }))
        << "never arrived";
  }
  EXPECT_TRUE(w.quiet(w[0].tx));
  if (manual_only()) return;
  const std::vector<uint8_t> large(limit + 1);
  const ssize_t rc =
      fi_inject_write(w[0], large.data(), large.size(), w[0].peer[1], region.at(), region.key());
  EXPECT_LT(rc, 0);
  EXPECT_NE(rc, -FI_EAGAIN);
}

// fi_rma(3), fi_writedata and fi_inject_writedata; fi_cq(3): FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA and a null op_context at the
// target, once the data is in its place (fi_cq(3), TARGET COMPLETION SEMANTICS).
TEST(Rma, writedata__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA | FI_MSG});
  const size_t width = w.info()->domain_attr->cq_data_size;
  if (width == 0) GTEST_SKIP() << "the provider carries no CQ data";
  if (w.info()->mode & FI_RX_CQ_DATA) GTEST_SKIP() << "the data consumes receives here";
  const uint64_t data = 0x8123456789abcdefULL & (width >= 8 ? ~0ULL : (1ULL << (8 * width)) - 1);
  std::vector<uint8_t> target(3'000'000);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len :
       {size_t{0}, size_t{8}, size_t{64}, size_t{5000}, size_t{70'000}, size_t{3'000'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, static_cast<uint32_t>(25 + len));
    Ctx wrote;
    WEFT_ASSERT_OK(w.post([&] {
      return fi_writedata(w[0], out.data(), len, nullptr, data, w[0].peer[1], region.at(), region.key(),
                          &wrote);
    }));
    const Completion r = w.next(w[1].rx);
    EXPECT_EQ(r.flags & sure_flags(FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA | FI_RMA),
              sure_flags(FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA | FI_RMA));
    EXPECT_EQ(r.data, data);
    EXPECT_EQ(r.context, nullptr);
    WEFT_EXPECT_PATTERN(target.data(), len, static_cast<uint32_t>(25 + len));
    w.done(w[0].tx, wrote);
  }
  const uint64_t value = 99;
  WEFT_ASSERT_OK(w.post([&] {
    return fi_inject_writedata(w[0], &value, sizeof value, data, w[0].peer[1], region.at(8), region.key());
  }));
  Completion r = w.next(w[1].rx);
  EXPECT_EQ(r.data, data);
  EXPECT_EQ(std::memcmp(target.data() + 8, &value, sizeof value), 0);
  // By fi_writemsg with the flag.
  const iovec from{const_cast<uint64_t*>(&value), sizeof value};
  const fi_rma_iov to{region.at(100), sizeof value, region.key()};
  Ctx wrote;
  const fi_msg_rma msg{&from, nullptr, 1, w[0].peer[1], &to, 1, &wrote, data};
  WEFT_ASSERT_OK(w.post([&] { return fi_writemsg(w[0], &msg, FI_REMOTE_CQ_DATA); }));
  r = w.next(w[1].rx);
  EXPECT_EQ(r.data, data);
  w.done(w[0].tx, wrote);
}

// fi_cq(3), FI_DELIVERY_COMPLETE: when the initiator has the completion, the result is at the target.
TEST(Rma, delivery_complete__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE});
  std::vector<uint8_t> target(1 << 20);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{1}, size_t{8}, size_t{64}, size_t{4096}, size_t{65536}, size_t{1 << 20}}) {
    SCOPED_TRACE(len);
    for (uint32_t round = 0; round < 5; ++round) {
      const auto out = pattern(len, 100 + round);
      Ctx wrote;
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
      }));
      w.done(w[0].tx, wrote);
      WEFT_EXPECT_PATTERN(target.data(), len, 100 + round);
    }
  }
}

// Many operations at once; a full queue says -FI_EAGAIN and loses nothing; fi_msg(3), ERRORS.
TEST(Rma, many_outstanding__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE});
  constexpr size_t count = 3000, len = 48;
  std::vector<uint8_t> target(count * len), out(count * len), back(count * len);
  fill(out.data(), out.size(), 31);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  std::vector<Ctx> wrote(count), did_read(count);
  for (size_t i = 0; i < count; ++i) {
    WEFT_ASSERT_OK(w.post([&] {
      return fi_write(w[0], out.data() + i * len, len, nullptr, w[0].peer[1], region.at(i * len),
                      region.key(), &wrote[i]);
    }));
  }
  ASSERT_TRUE(w.progress_until([&] { return w[0].tx->inbox.size() == count; })) << w[0].tx->inbox.size();
  w[0].tx->inbox.clear();
  for (size_t i = 0; i < count; ++i) {
    WEFT_ASSERT_OK(w.post([&] {
      return fi_read(w[0], back.data() + i * len, len, nullptr, w[0].peer[1], region.at(i * len),
                     region.key(), &did_read[i]);
    }));
  }
  ASSERT_TRUE(w.progress_until([&] { return w[0].tx->inbox.size() == count; })) << w[0].tx->inbox.size();
  for (const auto& c : w[0].tx->inbox) EXPECT_EQ(c.err, 0);
  WEFT_EXPECT_PATTERN(back.data(), back.size(), 31);
}

// fi_endpoint(3), message ordering WAW: of writes to one place the last stays; the data order holds up to max_order_waw_size.
TEST(Rma, order_waw__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .msg_order = FI_ORDER_WAW});
  const size_t limit = w.info()->ep_attr->max_order_waw_size;
  std::vector<uint8_t> target(1 << 17);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{8}, size_t{64}, size_t{5000}, size_t{100'000}}) {
    if (len > limit) continue;
    SCOPED_TRACE(len);
    std::vector<std::vector<uint8_t>> out;
    std::vector<Ctx> wrote(20);
    for (uint32_t i = 0; i < 20; ++i) out.push_back(pattern(len, 200 + i));
    for (uint32_t i = 0; i < 20; ++i) {
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[0], out[i].data(), len, nullptr, w[0].peer[1], region.at(), region.key(),
                        &wrote[i]);
      }));
    }
    for (auto& ctx : wrote) w.done(w[0].tx, ctx);
    EXPECT_TRUE(w.progress_until([&] { return first_difference(target.data(), len, 219) == len; }));
  }
}

// fi_endpoint(3), RAW: a read sees the write posted before it.
TEST(Rma, order_raw__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .msg_order = FI_ORDER_RAW});
  const size_t limit = w.info()->ep_attr->max_order_raw_size;
  std::vector<uint8_t> target(1 << 17);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{8}, size_t{64}, size_t{5000}, size_t{100'000}}) {
    if (len > limit) continue;
    SCOPED_TRACE(len);
    for (uint32_t i = 0; i < 10; ++i) {
      const auto out = pattern(len, 300 + i);
      std::vector<uint8_t> back(len);
      Ctx wrote, did_read;
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
      }));
      WEFT_ASSERT_OK(w.post([&] {
        return fi_read(w[0], back.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &did_read);
      }));
      w.done(w[0].tx, wrote);
      w.done(w[0].tx, did_read);
      WEFT_EXPECT_PATTERN(back.data(), len, 300 + i);
    }
  }
}

// fi_endpoint(3), SAW: a message that follows a write tells the target that the write is there.
TEST(Rma, order_saw__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_RMA | FI_MSG, .msg_order = FI_ORDER_SAW | FI_ORDER_SAS});
  std::vector<uint8_t> target(1 << 17);
  Region region = w.reg(1, target.data(), target.size(), remote_access);
  for (const size_t len : {size_t{8}, size_t{64}, size_t{5000}, size_t{100'000}}) {
    SCOPED_TRACE(len);
    for (uint32_t i = 0; i < 10; ++i) {
      const auto out = pattern(len, 400 + i);
      uint64_t note = 0;
      Ctx wrote, received;
      WEFT_ASSERT_OK(fi_recv(w[1], &note, sizeof note, nullptr, FI_ADDR_UNSPEC, &received));
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
      }));
      const uint64_t value = i;
      WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &value, sizeof value, w[0].peer[1]); }));
      w.done(w[1].rx, received);
      WEFT_EXPECT_PATTERN(target.data(), len, 400 + i);
      w.done(w[0].tx, wrote);
    }
  }
}

// Both directions at once, each endpoint being initiator and target.
TEST(Rma, both_directions_at_once__fi_rma_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .endpoints = 3});
  constexpr size_t n = 3, len = 300'000;
  std::vector<std::vector<uint8_t>> target(n, std::vector<uint8_t>(n * len)), out;
  std::vector<Region> region;
  for (size_t i = 0; i < n; ++i) {
    region.push_back(w.reg(i, target[i].data(), target[i].size(), remote_access));
    out.push_back(pattern(len, static_cast<uint32_t>(50 + i)));
  }
  std::vector<Ctx> ctx(n * n);
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      WEFT_ASSERT_OK(w.post([&] {
        return fi_write(w[from], out[from].data(), len, nullptr, w[from].peer[to], region[to].at(from * len),
                        region[to].key(), &ctx[from * n + to]);
      }));
    }
  }
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      w.done(w[from].tx, ctx[from * n + to]);
    }
  }
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      EXPECT_TRUE(w.progress_until([&] {
        return first_difference(target[to].data() + from * len, len, static_cast<uint32_t>(50 + from)) == len;
      })) << from
          << " to " << to;
    }
  }
}

}  // namespace
}  // namespace weft::conformance
