// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pages of a mapped file.
#include "os/shared_memory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft::os {
namespace {

size_t bytes_of(const Fd& file) {
  struct stat known {};
  EXPECT_EQ(::fstat(file.get(), &known), 0);
  return static_cast<size_t>(known.st_blocks) * 512;
}

// Parts of a file of shm begin at multiples of 4 KiB, which is inside of a page where pages are larger.
TEST(SharedMemory, PagesAreThereForAPartThatBeginsInsideOfOne) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto file = create_memory("weft-pages-test", 4 * page);
  ASSERT_TRUE(file);
  auto map = map_memory(*file, 0, 4 * page);
  ASSERT_TRUE(map);
  ASSERT_TRUE(have_pages(*map, page));
  if (bytes_of(*file) != page)
    GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE, or an emulator ignores it";
  EXPECT_TRUE(have_pages(*map, page + page / 4, page));
  EXPECT_EQ(bytes_of(*file), 3 * page);
}

}  // namespace
}  // namespace weft::os
