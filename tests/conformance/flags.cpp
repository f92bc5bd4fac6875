// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The flags of completion entries, exactly: every kind of operation on both sides, successes and errors; fi_cq(3), COMPLETION FLAGS
// (libfabric 10847, 11698).
#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

constexpr uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

// What goes through one World: who sends what, and what both entries say.
class Flags : public testing::Test {
 protected:
  static constexpr uint64_t data = 0x77;
  std::vector<uint8_t> out = pattern(100'000, 1);
  std::vector<uint8_t> in = std::vector<uint8_t>(100'000);
  Ctx sent, received;
};

TEST_F(Flags, of_messages__fi_cq_3) {
  WEFT_BEYOND_THE_MANUAL("flags that a provider may leave out");
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED});
  const bool has_data = w.info()->domain_attr->cq_data_size != 0;
  for (const size_t len : {size_t{0}, size_t{8}, size_t{3000}, size_t{100'000}}) {
    for (const bool tagged : {false, true}) {
      for (const bool with_data : {false, true}) {
        for (const bool receive_first : {true, false}) {
          if (with_data && !has_data) continue;
          SCOPED_TRACE(std::to_string(len) + (tagged ? " tagged" : "") + (with_data ? " data" : "") +
                       (receive_first ? "" : " unexpected"));
          const auto receive = [&] {
            return w.post([&] {
              return tagged ? fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received)
                            : fi_recv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received);
            });
          };
          if (receive_first) {
            WEFT_ASSERT_OK(receive());
          }
          const fi_addr_t to = w[0].peer[1];
          WEFT_ASSERT_OK(w.post([&] {
            if (tagged && with_data) return fi_tsenddata(w[0], out.data(), len, nullptr, data, to, 1, &sent);
            if (tagged) return fi_tsend(w[0], out.data(), len, nullptr, to, 1, &sent);
            if (with_data) return fi_senddata(w[0], out.data(), len, nullptr, data, to, &sent);
            return fi_send(w[0], out.data(), len, nullptr, to, &sent);
          }));
          if (!receive_first) {
            w.progress_for(milliseconds(0));
            WEFT_ASSERT_OK(receive());
          }
          const uint64_t kind = tagged ? FI_TAGGED : FI_MSG;
          const Completion r = w.done(w[1].rx, received);
          EXPECT_EQ(r.flags, FI_RECV | kind | (with_data ? FI_REMOTE_CQ_DATA : 0));
          EXPECT_EQ(r.data, with_data ? data : 0);
          EXPECT_EQ(w.done(w[0].tx, sent).flags, FI_SEND | kind);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(Flags, of_errors_of_messages__fi_cq_3) {
  WEFT_BEYOND_THE_MANUAL("flags that a provider may leave out");
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED});
  for (const bool tagged : {false, true}) {
    SCOPED_TRACE(tagged);
    const uint64_t kind = tagged ? FI_TAGGED : FI_MSG;
    const auto receive = [&](size_t len) {
      return tagged ? fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received)
                    : fi_recv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, &received);
    };
    WEFT_ASSERT_OK(receive(8));
    WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &received));
    Completion c = w.wait(w[1].rx, received);
    EXPECT_EQ(c.err, FI_ECANCELED);
    EXPECT_EQ(c.flags, FI_RECV | kind);
    for (const size_t len : {size_t{100}, size_t{100'000}}) {
      WEFT_ASSERT_OK(receive(8));
      WEFT_ASSERT_OK(w.post([&] {
        return tagged ? fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 1, &sent)
                      : fi_send(w[0], out.data(), len, nullptr, w[0].peer[1], &sent);
      }));
      c = w.wait(w[1].rx, received);
      EXPECT_EQ(c.err, FI_ETRUNC);
      EXPECT_EQ(c.flags, FI_RECV | kind);
      EXPECT_EQ(w.wait(w[0].tx, sent).flags, FI_SEND | kind);
    }
  }
}

TEST_F(Flags, of_remote_memory__fi_cq_3) {
  WEFT_BEYOND_THE_MANUAL("flags that a provider may leave out");
  WEFT_WORLD(w, {.caps = FI_MSG | FI_RMA});
  const bool has_data = w.info()->domain_attr->cq_data_size != 0 && (w.info()->mode & FI_RX_CQ_DATA) == 0;
  Region region = w.reg(1, in.data(), in.size(), remote_access);
  const fi_addr_t to = w[0].peer[1];
  for (const size_t len : {size_t{0}, size_t{8}, size_t{100'000}}) {
    SCOPED_TRACE(len);
    WEFT_ASSERT_OK(w.post(
        [&] { return fi_write(w[0], out.data(), len, nullptr, to, region.at(), region.key(), &sent); }));
    EXPECT_EQ(w.done(w[0].tx, sent).flags, FI_RMA | FI_WRITE);
    WEFT_ASSERT_OK(w.post(
        [&] { return fi_read(w[0], out.data(), len, nullptr, to, region.at(), region.key(), &sent); }));
    EXPECT_EQ(w.done(w[0].tx, sent).flags, FI_RMA | FI_READ);
    if (!has_data) continue;
    WEFT_ASSERT_OK(w.post([&] {
      return fi_writedata(w[0], out.data(), len, nullptr, data, to, region.at(), region.key(), &sent);
    }));
    const Completion r = w.next(w[1].rx);
    EXPECT_EQ(r.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    EXPECT_EQ(r.data, data);
    EXPECT_EQ(r.context, nullptr);
    EXPECT_EQ(w.done(w[0].tx, sent).flags, FI_RMA | FI_WRITE);
  }
  for (const bool writes : {true, false}) {
    WEFT_ASSERT_OK(w.post([&] {
      return writes ? fi_write(w[0], out.data(), 8, nullptr, to, region.at(), region.key() + 1, &sent)
                    : fi_read(w[0], out.data(), 8, nullptr, to, region.at(), region.key() + 1, &sent);
    }));
    const Completion c = w.wait(w[0].tx, sent);
    EXPECT_NE(c.err, 0);
    EXPECT_EQ(c.flags, FI_RMA | (writes ? FI_WRITE : FI_READ));
  }
}

TEST_F(Flags, of_atomics__fi_cq_3) {
  WEFT_BEYOND_THE_MANUAL("flags that a provider may leave out");
  WEFT_WORLD(w, {.caps = FI_MSG | FI_ATOMIC});
  uint64_t target = 5, operand = 1, compare = 6, result = 0;
  Region region = w.reg(1, &target, sizeof target, remote_access);
  const fi_addr_t to = w[0].peer[1];
  for (const uint64_t key : {region.key(), region.key() + 1}) {
    const bool good = key == region.key();
    const auto expect = [&](uint64_t flags) {
      const Completion c = w.wait(w[0].tx, sent);
      EXPECT_EQ(c.ok(), good);
      EXPECT_EQ(c.flags, FI_ATOMIC | flags);
    };
    WEFT_ASSERT_OK(w.post([&] {
      return fi_atomic(w[0], &operand, 1, nullptr, to, region.at(), key, FI_UINT64, FI_SUM, &sent);
    }));
    expect(FI_WRITE);
    WEFT_ASSERT_OK(w.post([&] {
      return fi_fetch_atomic(w[0], &operand, 1, nullptr, &result, nullptr, to, region.at(), key, FI_UINT64,
                             FI_SUM, &sent);
    }));
    expect(FI_READ);
    if (good) {
      EXPECT_EQ(result, 6u) << "the data is there with the completion";
    }
    WEFT_ASSERT_OK(w.post([&] {
      return fi_compare_atomic(w[0], &operand, 1, nullptr, &compare, nullptr, &result, nullptr, to,
                               region.at(), key, FI_UINT64, FI_CSWAP, &sent);
    }));
    expect(FI_READ);
    if (good) {
      EXPECT_EQ(result, 7u);
    }
  }
}

}  // namespace
}  // namespace weft::conformance
