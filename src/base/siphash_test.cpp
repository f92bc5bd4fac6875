// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The test vectors of the paper (appendix A) and of its reference table.
#include "base/siphash.hpp"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

TEST(SipHash, VectorsOfThePaper) {
  constexpr SipKey key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  std::array<std::byte, 15> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(siphash(key, bytes), 0xa129ca6149be45e5u);
  EXPECT_EQ(siphash(key, std::span(bytes).first(0)), 0x726fdb47dd0e0e31u);
}

}  // namespace
}  // namespace weft
