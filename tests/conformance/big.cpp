// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A message and a write of more than 4 GiB, and a message, a write and a read of 2^31 + 1 bytes in pieces (libfabric 6203). Memory is mapped without reservation: the source is zero pages but for the sampled ones.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

constexpr size_t big = (size_t{4} << 30) + 12'345;
constexpr size_t step = size_t{97} << 20;
constexpr milliseconds big_timeout{50'000};

struct Mapping {
  uint8_t* at = static_cast<uint8_t*>(
      mmap(nullptr, big + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(at, big + 4096); }
};

void mark(Mapping& m) {
  for (size_t at = 0; at + 64 < big; at += step) fill(m.at + at, 64, static_cast<uint32_t>(at >> 12));
  fill(m.at + big - 64, 64, 99);
}

void check(const Mapping& m) {
  for (size_t at = 0; at + 64 < big; at += step) {
    ASSERT_EQ(first_difference(m.at + at, 64, static_cast<uint32_t>(at >> 12)), 64u) << "at " << at;
    ASSERT_EQ(m.at[at + 4096], 0) << "at " << at;
  }
  WEFT_EXPECT_PATTERN(m.at + big - 64, 64, 99);
  EXPECT_EQ(m.at[big], 0) << "wrote behind the end";
}

bool wanted() {
  const char* value = std::getenv("WEFT_TEST_BIG");
  return value != nullptr && *value != '\0';
}

TEST(Big, message__fi_endpoint_3_max_msg_size) {
  if (!wanted()) GTEST_SKIP() << "WEFT_TEST_BIG is not set";
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  if (w.info()->ep_attr->max_msg_size < big) GTEST_SKIP() << "max_msg_size is smaller";
  Mapping out, in;
  ASSERT_NE(out.at, MAP_FAILED);
  ASSERT_NE(in.at, MAP_FAILED);
  mark(out);
  Ctx sent, received;
  WEFT_ASSERT_OK(fi_trecv(w[1], in.at, big, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], out.at, big, nullptr, w[0].peer[1], 1, &sent); }));
  const Completion r = w.wait(w[1].rx, received, big_timeout);
  EXPECT_EQ(r.err, 0);
  EXPECT_EQ(r.len, big);
  EXPECT_EQ(w.wait(w[0].tx, sent, big_timeout).err, 0);
  check(in);
}

TEST(Big, write__fi_endpoint_3_max_msg_size) {
  if (!wanted()) GTEST_SKIP() << "WEFT_TEST_BIG is not set";
  WEFT_WORLD(w, {.caps = FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE});
  if (w.info()->ep_attr->max_msg_size < big) GTEST_SKIP() << "max_msg_size is smaller";
  Mapping out, in;
  ASSERT_NE(out.at, MAP_FAILED);
  ASSERT_NE(in.at, MAP_FAILED);
  mark(out);
  Region region = w.reg(1, in.at, big, FI_REMOTE_WRITE);
  Ctx wrote;
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_write(w[0], out.at, big, nullptr, w[0].peer[1], region.at(), region.key(), &wrote); }));
  EXPECT_EQ(w.wait(w[0].tx, wrote, big_timeout).err, 0);
  check(in);
}

// One byte more than an int holds, in three pieces at either side of the message, in two of the write and the read. All bytes are compared.
TEST(Big, in_pieces_of_int_max__fi_endpoint_3_iov_limit) {
  if (!wanted()) GTEST_SKIP() << "WEFT_TEST_BIG is not set";
  constexpr size_t len = (size_t{1} << 31) + 1, half = len / 2;
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_RMA, .tx_op_flags = FI_DELIVERY_COMPLETE});
  const fi_tx_attr& tx = *w.info()->tx_attr;
  if (w.info()->ep_attr->max_msg_size < len || tx.iov_limit < 3 || tx.rma_iov_limit < 1)
    GTEST_SKIP() << "max_msg_size or iov_limit is smaller";
  Mapping out, in;
  ASSERT_NE(out.at, MAP_FAILED);
  ASSERT_NE(in.at, MAP_FAILED);
  const auto differs = [&] { return std::memcmp(out.at, in.at, len) != 0 || in.at[len] != 0; };
  const iovec from[] = {{out.at, 5}, {out.at + 5, half}, {out.at + 5 + half, len - half - 5}};
  const iovec to[] = {{in.at, half}, {in.at + half, 1}, {in.at + half + 1, len - half - 1}};
  Ctx sent, received, wrote, got;

  fill(out.at, len, 1);
  const fi_msg_tagged receive{to, nullptr, 3, FI_ADDR_UNSPEC, 1, 0, &received, 0};
  WEFT_ASSERT_OK(fi_trecvmsg(w[1], &receive, 0));
  const fi_msg_tagged message{from, nullptr, 3, w[0].peer[1], 1, 0, &sent, 0};
  WEFT_ASSERT_OK(w.post([&] { return fi_tsendmsg(w[0], &message, FI_DELIVERY_COMPLETE); }));
  const Completion r = w.wait(w[1].rx, received, big_timeout);
  EXPECT_EQ(r.err, 0);
  EXPECT_EQ(r.len, len);
  EXPECT_EQ(w.wait(w[0].tx, sent, big_timeout).err, 0);
  EXPECT_FALSE(differs()) << "the message";

  Region region = w.reg(1, in.at, len, FI_REMOTE_WRITE | FI_REMOTE_READ);
  const fi_rma_iov there{region.at(), len, region.key()};
  const iovec two[] = {from[0], {out.at + 5, len - 5}};
  const fi_msg_rma rma{two, nullptr, 2, w[0].peer[1], &there, 1, &wrote, 0};
  fill(out.at, len, 2);
  WEFT_ASSERT_OK(w.post([&] { return fi_writemsg(w[0], &rma, FI_DELIVERY_COMPLETE); }));
  EXPECT_EQ(w.wait(w[0].tx, wrote, big_timeout).err, 0);
  EXPECT_FALSE(differs()) << "the write";

  std::memset(out.at, 0, len);
  const fi_msg_rma back{two, nullptr, 2, w[0].peer[1], &there, 1, &got, 0};
  WEFT_ASSERT_OK(w.post([&] { return fi_readmsg(w[0], &back, 0); }));
  EXPECT_EQ(w.wait(w[0].tx, got, big_timeout).err, 0);
  EXPECT_FALSE(differs()) << "the read";
}

}  // namespace
}  // namespace weft::conformance
