// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whose interface a link-local name means: in a network namespace of its own, with interfaces of known numbers and addresses.
#include "os/link_local.hpp"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>

#include <cstdlib>
#include <string>
#include <thread>

namespace weft::os {
namespace {

SocketAddress address(const std::string& text) {
  return SocketAddress::from_text(text).value_or(SocketAddress());
}

// Runs in a thread that alone is in the new namespace. False: it cannot be made here.
template <class Fn>
bool with_interfaces(Fn&& body) {
  bool made = false;
  std::thread([&] {
    // NOLINTNEXTLINE(cert-env33-c, concurrency-mt-unsafe)
    const auto run = [](const char* command) { return std::system(command) == 0; };
    if (::unshare(CLONE_NEWNET) != 0) return;
    made =
        run("ip link add ll1 index 11 type veth peer name ll2 index 12 2>/dev/null && "
            "ip link set ll1 addrgenmode none up && ip link set ll2 addrgenmode none up && "
            "ip addr add fe80::1/64 dev ll1 nodad && ip addr add fe80::2/64 dev ll2 nodad");
    if (made) body();
  }).join();
  return made;
}

TEST(LinkLocal, ANameGetsAScopeOfThisHost) {
  const SocketAddress none;
  const bool made = with_interfaces([&] {
    const auto here = [](const char* named, const SocketAddress& by) {
      return on_this_host(address(named), by);
    };
    const SocketAddress by_one = address("[fe80::1%11]:1");
    // A peer's number that is none here, or another interface's.
    EXPECT_EQ(here("[fe80::9%7]:5", by_one), address("[fe80::9%11]:5"));
    EXPECT_EQ(here("[fe80::9%12]:5", by_one), address("[fe80::9%11]:5"));
    EXPECT_EQ(here("[fe80::9]:5", by_one), address("[fe80::9%11]:5"));
    // Addresses of this host stay on their interfaces.
    EXPECT_EQ(here("[fe80::2%12]:5", by_one), address("[fe80::2%12]:5"));
    EXPECT_EQ(here("[fe80::2]:5", by_one), address("[fe80::2%12]:5"));
    EXPECT_EQ(here("[fe80::1%11]:5", address("[fe80::2%12]:1")), address("[fe80::1%11]:5"));
    // An endpoint that is bound to no link: what exists here is kept.
    EXPECT_EQ(here("[fe80::9%12]:5", none), address("[fe80::9%12]:5"));
    const SocketAddress first = here("[fe80::9%7]:5", none);
    EXPECT_TRUE(first.scope() == 11 || first.scope() == 12);
    EXPECT_EQ(here("[fe80::9]:5", address("[2001:db8::1]:1")), first);
    for (const char* other : {"[ff02::9%7]:5", "1.2.3.4:5", "[2001:db8::9]:5", "[::1]:5"})
      EXPECT_EQ(here(other, by_one), address(other));
    EXPECT_TRUE(is_own_link_local(address("[fe80::2%12]:5")));
    EXPECT_FALSE(is_own_link_local(address("[fe80::2%11]:5")));
    EXPECT_FALSE(is_own_link_local(address("[2001:db8::9]:5")));
  });
  if (!made) GTEST_SKIP() << "no network namespaces here";
}

TEST(LinkLocal, WithoutInterfacesANameStays) {
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    EXPECT_EQ(on_this_host(address("[fe80::9%7]:5"), SocketAddress()), address("[fe80::9%7]:5"));
  }).join();
}

}  // namespace
}  // namespace weft::os
