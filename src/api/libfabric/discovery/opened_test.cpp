// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_fabric(3) "fabric", fi_domain(3) "domain": what fi_getinfo refers to.
#include "api/libfabric/discovery/opened.hpp"

#include <gtest/gtest.h>

#include "api/libfabric/discovery/made_up_provider.hpp"

namespace weft::fi {
namespace {

TEST(Opened, FirstOfANameUntilItIsForgotten) {
  const Provider provider = made_up_provider();
  const Provider other = made_up_provider("other");
  fid_fabric one{};
  fid_fabric two{};
  fid_domain domain{};
  note_opened(provider, "cloth", &one);
  note_opened(provider, "cloth", &two);
  note_opened(provider, "cloth", &domain);
  EXPECT_EQ(first_fabric(provider, "cloth"), &one);
  EXPECT_EQ(first_domain(provider, "cloth"), &domain);
  EXPECT_EQ(first_fabric(other, "cloth"), nullptr);
  EXPECT_EQ(first_fabric(provider, "silk"), nullptr);
  EXPECT_TRUE(is_opened(provider, "cloth", &two));
  EXPECT_FALSE(is_opened(other, "cloth", &two));
  forget_opened(&one.fid);
  EXPECT_EQ(first_fabric(provider, "cloth"), &two);
  EXPECT_FALSE(is_opened(provider, "cloth", &one));
  forget_opened(&two.fid);
  forget_opened(&domain.fid);
  EXPECT_EQ(first_fabric(provider, "cloth"), nullptr);
  EXPECT_EQ(first_domain(provider, "cloth"), nullptr);
}

}  // namespace
}  // namespace weft::fi
