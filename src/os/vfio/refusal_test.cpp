// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Refusals in words.
#include "os/vfio/refusal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace weft::os::vfio {
namespace {

using testing::HasSubstr;

TEST(Refusal, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(1023), "1023 bytes");
  EXPECT_EQ(bytes_text(4096), "4 KiB");
  EXPECT_EQ(bytes_text(8U << 20), "8 MiB");
  EXPECT_EQ(bytes_text(3584U << 20), "3.5 GiB");
  EXPECT_THAT(bytes_text(UINT64_MAX), HasSubstr("TiB"));
}

TEST(Refusal, LockedMemorySaysWhatWasAskedAndWhatIsAllowed) {
  const auto error = map_refusal(ENOMEM, 64U << 20, {8U << 20, 2U << 20}, 5, 65535);
  EXPECT_EQ(error.code, ENOMEM);
  EXPECT_EQ(
      error.why,
      "cannot map 64 MiB for DMA: 2 MiB are locked already, and this process may lock 8 MiB (ulimit -l)");
  EXPECT_THAT(map_refusal(ENOSPC, 4096, {}, 65535, 65535).why, HasSubstr("65535 of 65535 mappings"));
  EXPECT_THAT(map_refusal(EFAULT, 4096, {}, 0, 1).why, HasSubstr("not all of it is memory"));
  EXPECT_THAT(map_refusal(ENOMEM, 4096, {}, 0, 1).why, HasSubstr("memory"));
}

TEST(Refusal, InterruptsThatAreNotRemapped) {
  pci::Function function;
  function.address = "0000:00:04.0";
  function.group = 3;
  EXPECT_THAT(group_refusal(EPERM, "VFIO_SET_IOMMU", function, "/nowhere").why, HasSubstr("intremap=on"));
  EXPECT_THAT(group_refusal(EBUSY, "open", function, "/nowhere").why, HasSubstr("held by another process"));
}

TEST(Refusal, OwnLockedMemory) { EXPECT_LE(locked_memory().locked, uint64_t{1} << 50); }

}  // namespace
}  // namespace weft::os::vfio
