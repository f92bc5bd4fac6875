// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A message and a write of more than 4 GiB. Memory is mapped without reservation: the source is zero pages but for the sampled ones.
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

}  // namespace
}  // namespace weft::conformance
