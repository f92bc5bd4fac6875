// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What WEFT_VERBS_DEVICES names, and what is said of mistakes.
#include "api/verbs/roce/named_devices.hpp"

#include <gtest/gtest.h>

namespace weft::verbs::soft {
namespace {

os::SocketAddress address(const char* text) { return *os::SocketAddress::from_text(text); }

std::vector<os::Interface> machine() {
  os::Interface card{"eth0", 2, 1500, false, address("192.0.2.7:0"), address("[2001:db8::7]:0"), {}};
  os::Interface loopback{"lo", 1, 65536, true, address("127.0.0.1:0"), address("[::1]:0"), {}};
  return {card, loopback};
}

std::string only_mistake(std::string_view text) {
  const NamedDevices got = parse_devices(text, machine());
  EXPECT_EQ(got.devices.size(), 0u) << text;
  EXPECT_EQ(got.mistakes.size(), 1u) << text;
  return got.mistakes.empty() ? "" : got.mistakes.front();
}

TEST(NamedDevices, EntriesGetTheInterfaceOfTheirAddress) {
  const NamedDevices got = parse_devices("a=192.0.2.7,b=2001:db8::7,c=127.0.0.9,", machine());
  ASSERT_EQ(got.devices.size(), 3u);
  EXPECT_TRUE(got.mistakes.empty());
  EXPECT_EQ(got.devices[0].interface.name, "eth0");
  EXPECT_FALSE(got.devices[1].interface.ipv4);
  EXPECT_EQ(got.devices[1].interface.ipv6, address("[2001:db8::7]:0"));
  EXPECT_EQ(got.devices[2].interface.name, "lo");
  EXPECT_EQ(got.devices[2].interface.ipv4, address("127.0.0.9:0"));
}

TEST(NamedDevices, EachMistakeIsOneSentence) {
  EXPECT_EQ(only_mistake("eth0"), "\"eth0\" is no device: NAME=ADDRESS is expected");
  EXPECT_NE(only_mistake("=127.0.0.1").find("a name has 1 to"), std::string::npos);
  EXPECT_NE(only_mistake("../x=127.0.0.1").find("a name has 1 to"), std::string::npos);
  EXPECT_NE(only_mistake(std::string(64, 'n') + "=127.0.0.1").find("a name has 1 to 63"), std::string::npos);
  EXPECT_EQ(only_mistake("a=localhost"),
            "\"a=localhost\" is no device: \"localhost\" is no IPv4 or IPv6 address");
  EXPECT_EQ(only_mistake("a=198.51.100.1"),
            "\"a=198.51.100.1\" is no device: no interface of this machine that is up has the address "
            "198.51.100.1");
}

// A container with link-local addresses only, and a bridge whose ports all have the same one.
TEST(NamedDevices, ALinkLocalAddressIsOfOneInterface) {
  const os::Interface one{"va", 7, 1500, false, {}, address("[fe80::a%7]:0"), {}};
  const os::Interface first{"vb", 8, 1500, false, {}, address("[fe80::b%8]:0"), {}};
  const os::Interface second{"vc", 9, 1500, false, {}, address("[fe80::b%9]:0"), {}};
  const std::vector<os::Interface> machine = {one, first, second};
  NamedDevices got = parse_devices("a=fe80::a,b=fe80::b%vb,c=fe80::b%9", machine);
  EXPECT_TRUE(got.mistakes.empty());
  ASSERT_EQ(got.devices.size(), 3u);
  EXPECT_EQ(got.devices[0].interface.ipv6.scope(), 7u);
  EXPECT_EQ(got.devices[1].interface.ipv6.scope(), 8u);
  EXPECT_EQ(got.devices[2].interface.ipv6.scope(), 9u);
  got = parse_devices("a=fe80::b,b=fe80::b%va,c=127.0.0.1%va,d=fe80::c,e=fe80::a%", machine);
  EXPECT_TRUE(got.devices.empty());
  ASSERT_EQ(got.mistakes.size(), 5u);
  EXPECT_EQ(got.mistakes[0],
            "\"a=fe80::b\" is no device: vb and vc have the address fe80::b: name one, fe80::b%vc");
  EXPECT_NE(
      got.mistakes[1].find("no interface of this machine that is up has the address fe80::b and the name va"),
      std::string::npos);
  EXPECT_NE(got.mistakes[2].find("only a link-local address has an interface behind '%'"), std::string::npos);
  EXPECT_NE(got.mistakes[3].find("has the address fe80::c"), std::string::npos);
  EXPECT_NE(got.mistakes[4].find("\"fe80::a%\" is no IPv4 or IPv6 address"), std::string::npos);
}

TEST(NamedDevices, AnInterfaceHasMoreAddressesThanItsFirst) {
  const os::Interface many{"eth0",
                           2,
                           1500,
                           false,
                           address("192.0.2.7:0"),
                           address("[2001:db8::7]:0"),
                           {{address("192.0.2.7:0"), 24},
                            {address("192.0.2.8:0"), 24},
                            {address("192.0.2.9:0"), 24},
                            {address("[2001:db8::7]:0"), 64},
                            {address("[fe80::7%2]:0"), 64}}};
  const os::Interface other{
      "eth1", 3, 9000, false, address("192.0.2.9:0"), {}, {{address("192.0.2.9:0"), 24}}};
  const std::vector<os::Interface> machine = {many, other};
  const NamedDevices got = parse_devices("a=192.0.2.8,b=fe80::7,c=192.0.2.9", machine);
  EXPECT_TRUE(got.mistakes.empty());
  ASSERT_EQ(got.devices.size(), 3u);
  EXPECT_EQ(got.devices[0].interface.ipv4, address("192.0.2.8:0"));
  EXPECT_EQ(got.devices[1].interface.ipv6, address("[fe80::7%2]:0"));
  EXPECT_EQ(got.devices[2].interface.name, "eth1");  // whose first one it is
}

TEST(NamedDevices, ANameThatIsTakenIsAMistakeAndTheFirstEntryStands) {
  const NamedDevices got = parse_devices("a=127.0.0.1,a=192.0.2.7", machine());
  ASSERT_EQ(got.devices.size(), 1u);
  EXPECT_EQ(got.devices[0].interface.name, "lo");
  ASSERT_EQ(got.mistakes.size(), 1u);
  EXPECT_EQ(got.mistakes[0], "\"a=192.0.2.7\" is no device: an entry before it has that name");
}

}  // namespace
}  // namespace weft::verbs::soft
