// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The composite link of shared memory and TCP, and somebody on the network who calls in another's name.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "link/composite/address.hpp"
#include "link/composite/link.hpp"
#include "link/shm/link.hpp"
#include "link/tcp/link.hpp"
#include "os/clock.hpp"

namespace weft::link::composite {
namespace {

using RealLink = Link<shm::Link, tcp::Link, Names>;

// A link and the peers it has, with what came from each.
template <class L>
struct Holder final : L::Events {
  using P = typename L::PeerBase;
  ~Holder() { link.close(); }
  P* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<P>());
    return peers.back().get();
  }
  void peer_lost(P& peer, core::ProviderError) noexcept override {
    lost.push_back(&peer);
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(P& peer, const wire::FrameHead&, const std::byte*) noexcept {
    from.push_back(&peer);
    return true;
  }
  bool send(P& peer) { return link.send(peer, {wire::FrameKind::Tagged, 0, 0, 0, 1, 0}, {}, nullptr, 0); }
  void poll() { (void)link.poll(*this); }

  std::vector<std::unique_ptr<P>> peers;
  std::vector<const void*> lost;
  std::vector<P*> from;
  L link;
};

bool until(const std::function<bool()>& done) {
  const uint64_t end = os::monotonic_ns() + 3'000'000'000;
  while (!done())
    if (os::monotonic_ns() > end) return false;
  return true;
}

// A handshake has the full name, with the nonce of the shared memory: the network address alone, which everybody may know, is not enough to be taken for
// a peer that is reached by shared memory, and to end it by hanging up.
TEST(CompositeUnknownPeer, DoesNotEndALocalPeer) {
  Holder<RealLink> a, b;
  ASSERT_TRUE(a.link.open("", a));
  ASSERT_TRUE(b.link.open("", b));
  int error = 0;
  auto* to_b = a.link.connect(b.link.address(), error);
  ASSERT_NE(to_b, nullptr);
  if (RealLink::path_to(*to_b) != Path::Local) GTEST_SKIP() << "no shared memory here";
  ASSERT_TRUE(until([&] {
    a.poll();
    return a.send(*to_b);
  }));
  ASSERT_TRUE(until([&] {
    a.poll();
    b.poll();
    return !b.from.empty();
  }));
  auto* to_a = b.link.connect(a.link.address(), error);
  ASSERT_EQ(to_a, b.from[0]);

  Names::Parts name{}, target{};
  ASSERT_TRUE(Names::split(a.link.address(), name));
  ASSERT_TRUE(Names::split(b.link.address(), target));
  name.local_length = 0;
  name.host = 0;
  std::array<std::byte, Names::address_length> bare{};
  ASSERT_TRUE(Names::join(name, bare));
  auto unknown = std::make_unique<Holder<tcp::Link>>();
  unknown->link.set_address_format(Names::format_for(target));
  ASSERT_TRUE(unknown->link.open("", *unknown));
  unknown->link.set_alias(bare);
  auto* called = unknown->link.connect(target.remote_address(), error);
  ASSERT_NE(called, nullptr);
  bool sent = false;
  ASSERT_TRUE(until([&] {
    unknown->poll();
    if (!sent) sent = unknown->send(*called);
    b.poll();
    return b.from.size() == 2;
  }));
  EXPECT_NE(b.from[1], to_a);
  unknown.reset();
  ASSERT_TRUE(until([&] {
    b.poll();
    return !b.lost.empty();
  }));
  EXPECT_NE(b.lost[0], to_a);
  const size_t before = a.from.size();
  ASSERT_EQ(b.link.connect(a.link.address(), error), to_a);
  ASSERT_TRUE(b.send(*to_a));
  EXPECT_TRUE(until([&] {
    a.poll();
    b.poll();
    return a.from.size() == before + 1;
  }));
}

}  // namespace
}  // namespace weft::link::composite
