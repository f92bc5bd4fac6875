// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/libfabric/text/provider_names.hpp"

#include <gtest/gtest.h>

namespace weft::fi {
namespace {

TEST(ProviderNames, AListLetsNamesPass) {
  EXPECT_TRUE(name_passes(nullptr, "shm"));
  EXPECT_TRUE(name_passes("  ", "shm"));
  EXPECT_TRUE(name_passes("tcp, shm", "shm"));
  EXPECT_FALSE(name_passes("tcp,shmem", "shm"));
  EXPECT_FALSE(name_passes("^tcp,shm", "shm"));
  EXPECT_TRUE(name_passes("^tcp,", "shm"));
  EXPECT_TRUE(name_passes("udp", "udp;ofi_rxd"));
  EXPECT_TRUE(name_passes("ofi_rxd;udp", "udp;ofi_rxd"));
  EXPECT_FALSE(name_passes("udp;ofi_rxd", "udp"));
  EXPECT_FALSE(name_passes("^ofi_rxd", "udp;ofi_rxd"));
}

TEST(ProviderNames, LayersAreMetInEitherOrder) {
  EXPECT_TRUE(has_layers("tcp;ofi_rxm", "OFI_RXM; tcp"));
  EXPECT_TRUE(has_layers("tcp;ofi_rxm", "tcp"));
  EXPECT_FALSE(has_layers("tcp", "tcp;ofi_rxm"));
}

}  // namespace
}  // namespace weft::fi
