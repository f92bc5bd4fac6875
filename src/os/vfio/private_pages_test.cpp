// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which page stands behind an address before and after, as /proc/self/pagemap shows it. Some kernels have no shared page of zeros: a first read
// gives the process a page of its own there, and a test of that page sees only what comes after.
#include "os/vfio/private_pages.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>

#include "os/fd.hpp"

namespace weft::os::vfio {
namespace {

const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

// Documentation/admin-guide/mm/pagemap.rst: bit 63: present, bit 56: mapped by this process alone, bit 61: of a file.
bool is_own(const std::byte* at) {
  const Fd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  uint64_t entry = 0;
  const auto place = static_cast<off_t>(reinterpret_cast<uintptr_t>(at) / page * sizeof entry);
  EXPECT_EQ(::pread(pagemap.get(), &entry, sizeof entry, place), static_cast<ssize_t>(sizeof entry));
  return (entry >> 63) != 0 && (entry >> 56 & 1) != 0 && (entry >> 61 & 1) == 0;
}

class PrivatePages : public testing::Test {
 protected:
  static constexpr size_t pages = 6;
  void SetUp() override {
    void* const at =
        ::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    memory = static_cast<std::byte*>(at);
    ::madvise(memory, pages * page, MADV_NOHUGEPAGE);
  }
  void TearDown() override { ::munmap(memory, pages * page); }
  std::byte* of_page(size_t n) const { return memory + n * page; }

  std::byte* memory = nullptr;
};

TEST_F(PrivatePages, TakesThePlaceOfThePageOfZeros) {
  std::byte sum{};
  for (size_t n = 0; n < pages; ++n) sum |= *const_cast<volatile std::byte*>(of_page(n));
  EXPECT_EQ(sum, std::byte{0});
  const bool zeros_are_shared = !is_own(of_page(1));
  *of_page(2) = std::byte{7};
  make_private_pages(reinterpret_cast<uintptr_t>(of_page(1)), 4 * page);
  for (size_t n = 1; n < 5; ++n) EXPECT_TRUE(is_own(of_page(n))) << n;
  if (zeros_are_shared) {
    EXPECT_FALSE(is_own(of_page(0)));
    EXPECT_FALSE(is_own(of_page(5)));
  }
  EXPECT_EQ(*of_page(2), std::byte{7});
  EXPECT_EQ(*of_page(3), std::byte{0});
}

// After fork(2) both processes have one page until one of them writes: on every kernel.
TEST_F(PrivatePages, OfPagesSharedWithAChild) {
  for (size_t n = 0; n < pages; ++n) *of_page(n) = static_cast<std::byte>(n + 1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  for (size_t n = 0; n < pages; ++n) EXPECT_FALSE(is_own(of_page(n))) << n;
  make_private_pages(reinterpret_cast<uintptr_t>(of_page(1)), 4 * page);
  for (size_t n = 0; n < pages; ++n) {
    EXPECT_EQ(is_own(of_page(n)), n >= 1 && n < 5) << n;
    EXPECT_EQ(*of_page(n), static_cast<std::byte>(n + 1));
  }
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(PrivatePages, GoesAroundWhatIsReadOnlyOrNotThere) {
  ASSERT_EQ(::mprotect(of_page(1), page, PROT_READ), 0);
  ASSERT_EQ(::mprotect(of_page(3), page, PROT_NONE), 0);
  make_private_pages(reinterpret_cast<uintptr_t>(memory), pages * page);
  for (size_t n : {0, 2, 4, 5}) EXPECT_TRUE(is_own(of_page(n))) << n;
  ASSERT_EQ(::munmap(of_page(3), page), 0);
  make_private_pages(reinterpret_cast<uintptr_t>(memory), pages * page);
  make_private_pages(reinterpret_cast<uintptr_t>(of_page(3)), page);
}

TEST_F(PrivatePages, OfAPrivateFile) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::ftruncate(::fileno(file), static_cast<off_t>(page)), 0);
  ASSERT_NE(::mmap(memory, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, ::fileno(file), 0),
            MAP_FAILED);
  const std::byte first = *const_cast<volatile std::byte*>(memory);
  EXPECT_EQ(first, std::byte{0});
  EXPECT_FALSE(is_own(memory));
  make_private_pages(reinterpret_cast<uintptr_t>(memory), page);
  EXPECT_TRUE(is_own(memory));
  std::fclose(file);
}

}  // namespace
}  // namespace weft::os::vfio
