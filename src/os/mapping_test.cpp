// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Mapped, read-only and unmapped pages.
#include "os/mapping.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace weft::os {
namespace {

TEST(Mapping, TellsWhatIsThere) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto* at = static_cast<char*>(
      ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(at, MAP_FAILED);
  EXPECT_EQ(populate(at + 5, 2 * page, true), 0);
  EXPECT_EQ(populate(nullptr, 0, true), 0);
  ASSERT_EQ(::mprotect(at + page, page, PROT_READ), 0);
  EXPECT_EQ(populate(at, 2 * page, false), 0);
  EXPECT_EQ(populate(at, 2 * page, true), EFAULT);
  ASSERT_EQ(::munmap(at + page, page), 0);
  EXPECT_EQ(populate(at, 3 * page, false), EFAULT);
  EXPECT_EQ(populate(at + page - 1, 1, true), 0);
  EXPECT_EQ(populate(at + 7, static_cast<size_t>(-1), true), EFAULT);
  ::munmap(at, 3 * page);
}

}  // namespace
}  // namespace weft::os
