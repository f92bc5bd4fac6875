// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/text.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace weft::verbs {
namespace {

TEST(VerbsText, NamesAndRates) {
  EXPECT_STREQ(status_text(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(status_text(-1), "unknown");
  EXPECT_STREQ(event_text(IBV_EVENT_GID_CHANGE), "GID table change");
  EXPECT_STREQ(event_text(20), "Device link speed change");
  EXPECT_STREQ(opcode_text(IBV_WR_RDMA_READ), "rdma-read");
  EXPECT_STREQ(opcode_text(14), "flush");
  EXPECT_STREQ(opcode_text(16), "unknown");
  EXPECT_STREQ(node_text(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(state_text(IBV_PORT_ACTIVE), "active");
  EXPECT_EQ(rate_to_mult(IBV_RATE_40_GBPS), 16);
  EXPECT_EQ(mult_to_rate(16), IBV_RATE_40_GBPS);
  EXPECT_EQ(mult_to_rate(-1), IBV_RATE_MAX);
  EXPECT_EQ(rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(mbps_to_rate(103125), IBV_RATE_100_GBPS);
  EXPECT_EQ(mbps_to_rate(7), IBV_RATE_MAX);
}

// Programs compare and print them, so they are those of the stock library, where it is installed.
TEST(VerbsText, IsThatOfTheStockLibrary) {
  void* stock = dlopen("libibverbs.so.1.14.44.0", RTLD_NOW | RTLD_LOCAL);
  if (stock == nullptr) GTEST_SKIP() << "libibverbs of rdma-core 44 is not installed";
  const auto text = [&](const char* name) {
    return reinterpret_cast<const char* (*)(int)>(dlsym(stock, name));
  };
  const auto number = [&](const char* name) { return reinterpret_cast<int (*)(int)>(dlsym(stock, name)); };
  for (int i = -1; i < 40; ++i) {
    EXPECT_STREQ(status_text(i), text("ibv_wc_status_str")(i));
    // An event of rdma-core 62.
    if (i != 20) {
      EXPECT_STREQ(event_text(i), text("ibv_event_type_str")(i));
    }
    EXPECT_STREQ(node_text(i), text("ibv_node_type_str")(i));
    EXPECT_STREQ(state_text(i), text("ibv_port_state_str")(i));
    EXPECT_EQ(rate_to_mult(i), number("ibv_rate_to_mult")(i));
    EXPECT_EQ(rate_to_mbps(i), number("ibv_rate_to_mbps")(i));
  }
  for (int i = -1; i < 600; ++i) EXPECT_EQ(mult_to_rate(i), number("mult_to_ibv_rate")(i));
  for (int i = -1; i < 2'000'000; ++i) ASSERT_EQ(mbps_to_rate(i), number("mbps_to_ibv_rate")(i));
  dlclose(stock);
}

}  // namespace
}  // namespace weft::verbs
