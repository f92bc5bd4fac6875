// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What WEFT_NIC may say.
#include "link/nic/settings.hpp"

#include <gtest/gtest.h>

namespace weft::link::nic {
namespace {

TEST(NicSettings, ACardWithEverything) {
  auto card = parse_card("0000:00:04.0=10.0.0.5/24,gateway=10.0.0.1,mtu=9000,vlan=12");
  ASSERT_TRUE(card) << card.error().why;
  EXPECT_EQ(card->card, "0000:00:04.0");
  EXPECT_EQ(card->address.text(), "fi_sockaddr_in://10.0.0.5:0");
  EXPECT_EQ(card->network.prefix_bits, 24);
  EXPECT_EQ(card->network.gateway.text(), "fi_sockaddr_in://10.0.0.1:0");
  EXPECT_EQ(card->mtu_bytes, 9000u);
  EXPECT_EQ(card->network.vlan, 12);
  EXPECT_EQ(domain_name(*card), "nic_0000:00:04.0");
}

TEST(NicSettings, ShortForms) {
  auto card = parse_card("0A:1f.7=fd00::5/64");
  ASSERT_TRUE(card) << card.error().why;
  EXPECT_EQ(card->card, "0000:0a:1f.7");
  EXPECT_EQ(card->address.family(), AF_INET6);
  EXPECT_EQ(card->network.prefix_bits, 64);
  EXPECT_EQ(card->mtu_bytes, 1500u);
  EXPECT_FALSE(card->network.gateway);
}

TEST(NicSettings, MistakesAreRefused) {
  for (const char* text :
       {"", "=", "0000:00:04.0", "eth0=10.0.0.5/24", "0000:00:04.8=10.0.0.5/24", "0000:00:04.0=10.0.0.5",
        "0000:00:04.0=10.0.0.5/", "0000:00:04.0=10.0.0.5/33", "0000:00:04.0=10.0.0.5/0",
        "0000:00:04.0=host/24", "0000:00:04.0=0.0.0.0/24", "0000:00:04.0=fd00::1/129",
        "0000:00:04.0=10.0.0.5/24,", "0000:00:04.0=10.0.0.5/24,mtu=575", "0000:00:04.0=10.0.0.5/24,mtu=9000x",
        "0000:00:04.0=10.0.0.5/24,vlan=0", "0000:00:04.0=10.0.0.5/24,gateway=fd00::1",
        "0000:00:04.0=10.0.0.5/24,gateway", "0000:00:04.0=10.0.0.5/24,name=x"})
    EXPECT_FALSE(parse_card(text)) << text;
}

TEST(NicSettings, SeveralCards) {
  const Cards all =
      parse_cards(";0000:00:04.0=10.0.0.5/24;;00:05.0=10.0.1.5/24;nonsense;00:04.0=10.0.0.6/24;");
  ASSERT_EQ(all.cards.size(), 2u);
  EXPECT_EQ(all.cards[1].card, "0000:00:05.0");
  ASSERT_EQ(all.mistakes.size(), 2u);
  EXPECT_EQ(all.mistakes[1], "\"00:04.0=10.0.0.6/24\" is no card: an entry before it has that card");
}

}  // namespace
}  // namespace weft::link::nic
