// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of constants on the command line.
#include "names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "failure.hpp"

namespace weft::tool {
namespace {

TEST(Names, FlagsCombineHoweverTheyAreWritten) {
  constexpr uint64_t wanted = FI_MSG | FI_TAGGED;
  for (const char* text : {"FI_MSG|FI_TAGGED", "msg,tagged", "fi_msg tagged", "MSG,|tagged", "0xa", "10"}) {
    EXPECT_EQ(parse_flags(text, capability_names(), "a capability"), wanted) << text;
  }
  EXPECT_EQ(parse_flags("", capability_names(), "a capability"), 0u);
}

TEST(Names, TheCommonBeginningMayBeLeftOut) {
  EXPECT_EQ(parse_one("rdm", ep_type_names(), ""), uint64_t{FI_EP_RDM});
  EXPECT_EQ(parse_one("EP_RDM", ep_type_names(), ""), uint64_t{FI_EP_RDM});
  EXPECT_EQ(parse_one("domain", threading_names(), ""), uint64_t{FI_THREAD_DOMAIN});
  EXPECT_EQ(parse_one("sas", order_names(), ""), uint64_t{FI_ORDER_SAS});
  EXPECT_EQ(parse_one("remote-write", capability_names(), ""), uint64_t{FI_REMOTE_WRITE});
}

TEST(Names, AnUnknownOneIsRefusedWithTheList) {
  try {
    parse_flags("FI_MSG|FI_FOO", capability_names(), "a capability");
    FAIL() << "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), exit_usage);
    EXPECT_THAT(failure.what(), testing::HasSubstr("FI_FOO is not a capability"));
    EXPECT_THAT(failure.what(), testing::HasSubstr("FI_COLLECTIVE"));
  }
  EXPECT_THROW(parse_one("0x", capability_names(), ""), Failure);
  EXPECT_THROW(parse_one("12z", capability_names(), ""), Failure);
}

}  // namespace
}  // namespace weft::tool
