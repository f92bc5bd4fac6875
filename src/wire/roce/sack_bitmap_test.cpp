// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Maps to bytes and back; lengths that are none.
#include "wire/roce/sack_bitmap.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::wire::roce {
namespace {

TEST(RoceSackBitmap, IsAsLongAsItsLastBitNeeds) {
  for (const size_t last : {size_t{0}, size_t{7}, size_t{31}, size_t{32}, size_t{255}}) {
    SackBitmap map;
    map.newest = 0xabcdef;
    map.add(0);
    map.add(last);
    std::array<std::byte, SackBitmap::bytes_max> bytes;
    const size_t count = map.write(bytes.data());
    EXPECT_EQ(count, 4 + (last / 32 + 1) * 4);
    SackBitmap back;
    const std::vector<std::byte> exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    ASSERT_TRUE(SackBitmap::read(exact, back));
    EXPECT_EQ(back.newest, 0xabcdefu);
    for (size_t i = 0; i < SackBitmap::bits_max; ++i) EXPECT_EQ(back.has(i), i == 0 || i == last) << i;
  }
  std::array<std::byte, SackBitmap::bytes_max> bytes;
  EXPECT_EQ(SackBitmap().write(bytes.data()), 4u);
}

TEST(RoceSackBitmap, OtherLengthsAreRefused) {
  const std::vector<std::byte> bytes(64, std::byte{0xff});
  SackBitmap map;
  for (size_t length = 0; length <= bytes.size(); ++length)
    EXPECT_EQ(SackBitmap::read(Bytes(bytes).first(length), map),
              length >= 4 && length <= 36 && length % 4 == 0);
}

}  // namespace
}  // namespace weft::wire::roce
