// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets between endpoints on cards that are models, on one cable.
#include "link/nic/device.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <random>

#include "link/nic/test_cards.hpp"
#include "os/clock.hpp"
#include "wire/ip.hpp"

namespace weft::link::nic {
namespace {

using Bytes = std::vector<std::byte>;

struct Received {
  Bytes bytes;
  Bytes source;
  size_t header_bytes;
};
struct Handler {
  std::vector<Received> packets;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    packets.push_back({{packet.bytes.begin(), packet.bytes.end()},
                       {packet.source.begin(), packet.source.end()},
                       packet.headers.size()});
  }
};

Bytes pattern(size_t bytes, unsigned seed) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(seed + i * 7 + i / 251);
  return out;
}

struct Endpoint {
  Packets link;
  Handler handler;
  std::span<const std::byte> address() { return link.address(); }
  int poll() { return link.poll(handler); }
  bool send(std::span<const std::byte> to, const Bytes& bytes) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return link.send(to, &part, 1);
  }
};

std::vector<std::string>& warnings() {
  static std::vector<std::string> all;
  return all;
}

template <class Pair>
class NicDevice : public testing::Test {
 public:
  void SetUp() override { warnings().clear(); }
  void open(unsigned which, size_t mtu = 1500, bool is_ip6 = false) {
    Configuration configuration;
    configuration.card = "model" + std::to_string(which);
    configuration.address = test_address(which, 0, is_ip6);
    configuration.network.prefix_bits = is_ip6 ? 64 : 24;
    configuration.mtu_bytes = mtu;
    Device& device = which == 1 ? a : b;
    device.set_warning([](const void*, const char* what) { warnings().emplace_back(what); }, nullptr);
    auto opened = device.open(card(which).plug(), configuration);
    ASSERT_TRUE(opened) << opened.error().why;
    ASSERT_EQ(device.mtu_bytes(), mtu);
  }
  void open_both(size_t mtu = 1500, bool is_ip6 = false) {
    open(1, mtu, is_ip6);
    open(2, mtu, is_ip6);
  }
  std::unique_ptr<Endpoint> endpoint(Device& device, std::span<const std::byte> at = {}) {
    auto made = std::make_unique<Endpoint>();
    made->link.set_device(device);
    auto opened = made->link.open(at);
    EXPECT_TRUE(opened) << opened.error().why;
    return made;
  }
  // Polls all until `done`, or for long.
  template <class Done>
  bool turn(const std::vector<Endpoint*>& all, Done done, uint64_t ms = 5'000) {
    for (const uint64_t until = os::monotonic_ns() + ms * 1'000'000; !done();) {
      for (Endpoint* one : all) one->poll();
      if (os::monotonic_ns() > until) return false;
    }
    return true;
  }
  TestCard& card(unsigned which) { return which == 1 ? *card_a : *card_b; }
  void no_faults() {
    for (const unsigned which : {1U, 2U}) {
      EXPECT_EQ(card(which).host().iommu.faults(), 0u);
      EXPECT_EQ(card(which).bad_accesses(), 0u);
    }
  }

  model::Hub hub;
  std::unique_ptr<TestCard> card_a = std::make_unique<TestCardOf<typename Pair::First>>(hub, 1);
  std::unique_ptr<TestCard> card_b = std::make_unique<TestCardOf<typename Pair::Second>>(hub, 2);
  Device a;
  Device b;
};

template <class A, class B>
struct Two {
  using First = A;
  using Second = B;
};
struct PairNames {
  template <class T>
  static std::string GetName(int) {
    const auto name = []<class K>(K) { return std::is_same_v<K, E1000eKind> ? "e1000e" : "virtio"; };
    return std::string(name(typename T::First())) + "_" + name(typename T::Second());
  }
};
using Pairs = testing::Types<Two<E1000eKind, E1000eKind>, Two<VirtioKind, VirtioKind>,
                             Two<E1000eKind, VirtioKind>, Two<VirtioKind, E1000eKind>>;
TYPED_TEST_SUITE(NicDevice, Pairs, PairNames);

TYPED_TEST(NicDevice, CarriesPacketsOfAllSizes) {
  for (const bool is_ip6 : {false, true}) {
    this->open_both(1500, is_ip6);
    auto one = this->endpoint(this->a);
    auto two = this->endpoint(this->b);
    const size_t most = one->link.packet_bytes_max({});
    EXPECT_EQ(most, is_ip6 ? 1452u : 1472u);
    for (size_t bytes = 0; bytes <= most; ++bytes) {
      const Bytes sent = pattern(bytes, static_cast<unsigned>(bytes));
      ASSERT_TRUE(one->send(two->address(), sent));
      ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return !two->handler.packets.empty(); })) << bytes;
      ASSERT_EQ(two->handler.packets[0].bytes, sent);
      ASSERT_EQ(two->handler.packets[0].header_bytes, is_ip6 ? 48u : 28u);
      ASSERT_TRUE(std::ranges::equal(two->handler.packets[0].source, one->address()));
      two->handler.packets.clear();
    }
    const iovec part{nullptr, most + 1};
    EXPECT_EQ(one->link.try_send(two->address(), &part, 1), -EMSGSIZE);
    this->no_faults();
    one.reset();
    two.reset();
    this->a.close();
    this->b.close();
  }
  EXPECT_TRUE(warnings().empty());
}

TYPED_TEST(NicDevice, CarriesJumboPackets) {
  this->open_both(9000);
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  for (const size_t bytes : {size_t{1473}, size_t{2048}, size_t{4095}, size_t{8972}}) {
    const Bytes sent = pattern(bytes, 1);
    ASSERT_TRUE(one->send(two->address(), sent));
    ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return !two->handler.packets.empty(); })) << bytes;
    ASSERT_EQ(two->handler.packets[0].bytes, sent);
    two->handler.packets.clear();
  }
  this->no_faults();
}

TYPED_TEST(NicDevice, EachEndpointGetsItsOwn) {
  this->open_both();
  std::vector<std::unique_ptr<Endpoint>> all;
  for (int i = 0; i < 2; ++i) {
    all.push_back(this->endpoint(this->a));
    all.push_back(this->endpoint(this->b));
  }
  EXPECT_FALSE(std::ranges::equal(all[0]->address(), all[2]->address()));
  // Everybody to everybody: by the cable, and within a card.
  for (auto& from : all)
    for (auto& to : all)
      ASSERT_TRUE(from->send(to->address(), Bytes(from->address().begin(), from->address().end())));
  ASSERT_TRUE(this->turn({all[0].get(), all[1].get(), all[2].get(), all[3].get()}, [&] {
    return std::ranges::all_of(all, [](auto& one) { return one->handler.packets.size() == 4; });
  }));
  for (auto& to : all) {
    std::map<Bytes, int> sources;
    for (const Received& packet : to->handler.packets) {
      EXPECT_EQ(packet.bytes, packet.source);
      ++sources[packet.source];
    }
    EXPECT_EQ(sources.size(), 4u);
  }
  EXPECT_EQ(this->a.statistics().looped, 2u);
  EXPECT_EQ(this->b.statistics().looped, 2u);
  this->no_faults();
}

TYPED_TEST(NicDevice, AnswersForTheAddressWhoeverPolls) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto silent = this->endpoint(this->b);
  auto polled = this->endpoint(this->b);
  // A question for the card's address is answered though the first endpoint never polls, and once.
  ASSERT_TRUE(one->send(silent->address(), pattern(100, 1)));
  ASSERT_TRUE(this->turn({one.get(), polled.get()}, [&] { return this->b.statistics().received >= 2; }));
  const uint64_t frames = this->b.driver_counters().frames_sent;
  EXPECT_EQ(silent->handler.packets.size(), 0u);
  EXPECT_EQ(silent->poll(), 1);
  EXPECT_EQ(silent->handler.packets.size(), 1u);
  EXPECT_LE(frames, 4u);  // announcements of the host and of two endpoints, one answer
  this->a.progress();
}

TYPED_TEST(NicDevice, WhatGoesToAGroupReachesThoseWhoJoinedIt) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto member = this->endpoint(this->b);
  auto stranger = this->endpoint(this->b);
  ASSERT_TRUE(
      this->turn({one.get(), member.get(), stranger.get()}, [&] { return !this->b.frames_in_flight(); }));
  const auto group = *os::SocketAddress::from_text("239.1.2.3:7777");
  ASSERT_EQ(member->link.join(group.bytes(), true), 0);
  const uint64_t received = this->b.statistics().received;
  ASSERT_TRUE(one->send(group.bytes(), pattern(100, 1)));
  this->b.progress();
  EXPECT_EQ(this->b.statistics().received, received + 1);
  EXPECT_EQ(member->poll(), 1);
  EXPECT_EQ(stranger->poll(), 0);
  // Datagrams to everybody on the Ethernet are for nobody here, and fill no inbox.
  Bytes datagram = model::udp_frame_of(model::broadcast, model::mac_of(1), 64);
  const iovec part{datagram.data(), datagram.size()};
  const uint64_t for_nobody = this->b.statistics().for_nobody;
  ASSERT_TRUE(this->a.send(&part, 1, false));
  this->a.flush();
  this->b.progress();
  EXPECT_EQ(this->b.statistics().received, received + 1);
  EXPECT_EQ(this->b.statistics().for_nobody, for_nobody + 1);
  this->no_faults();
}

TYPED_TEST(NicDevice, PortsAreUniqueAndTheAddressIsTheCards) {
  this->open_both();
  auto one = this->endpoint(this->a, test_address(1, 4791).bytes());
  EXPECT_EQ(os::SocketAddress::from(one->address().data(), one->address().size())->port(), 4791);
  Packets again;
  again.set_device(this->a);
  auto opened = again.open(test_address(1, 4791).bytes());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, EADDRINUSE);
  again.close();
  Packets elsewhere;
  elsewhere.set_device(this->a);
  opened = elsewhere.open(test_address(9, 4791).bytes());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, EADDRNOTAVAIL);
  Packets nowhere;
  EXPECT_FALSE(nowhere.open({}));
  one.reset();
  one = this->endpoint(this->a, test_address(1, 4791).bytes());
}

// --- payloads in place ---

TYPED_TEST(NicDevice, TheCardReadsRegisteredPayloadsWhereTheyAre) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  two->handler.packets.clear();

  Bytes memory = pattern(8192, 3);
  const iovec piece{memory.data(), memory.size()};
  core::Registration region;
  region.pieces = {&piece, 1};
  region.rights.local_read = true;
  core::Registered registered;
  ASSERT_EQ(this->a.add(region, registered), 0);
  ASSERT_NE(registered.handle, nullptr);
  uint64_t address = 0;
  for (const auto& [at, mapping] : this->card(1).host().iommu.mappings())
    if (mapping.memory == memory.data()) {
      address = at;
      EXPECT_FALSE(mapping.access.device_writes);
    }
  ASSERT_NE(address, 0u);

  const auto exchange = [&](const std::byte* payload, size_t bytes) {
    const uint64_t in_place = this->a.statistics().in_place_bytes;
    std::array<std::byte, 40> head{};
    const iovec parts[] = {{head.data(), head.size()}, {const_cast<std::byte*>(payload), bytes}};
    EXPECT_TRUE(one->link.send(two->address(), parts, 2));
    EXPECT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
    Bytes expected(head.begin(), head.end());
    expected.insert(expected.end(), payload, payload + bytes);
    EXPECT_EQ(two->handler.packets[0].bytes, expected);
    two->handler.packets.clear();
    return this->a.statistics().in_place_bytes - in_place;
  };
  // Nothing was promised: copied.
  EXPECT_EQ(exchange(memory.data() + 100, 1000), 0u);
  one->link.set_parts_stay(true);
  EXPECT_EQ(exchange(memory.data() + 100, 1000), 1000u);
  EXPECT_EQ(exchange(memory.data() + 7192, 1000), 1000u);
  // Short ones and such as are not registered: copied.
  EXPECT_EQ(exchange(memory.data() + 100, 255), 0u);
  const Bytes other = pattern(1000, 4);
  EXPECT_EQ(exchange(other.data(), other.size()), 0u);

  // That it was the program's memory that the card read: while it is held the bytes change, and the new ones arrive.
  this->card(1).hold_transmit(true);
  const iovec part{memory.data(), 1000};
  one->link.set_optional_checksum(true);
  ASSERT_TRUE(one->link.send(two->address(), &part, 1));
  EXPECT_EQ(this->a.frames_in_flight(), 1u);
  std::ranges::fill(memory, std::byte{0x55});
  two->link.set_optional_checksum(true);
  this->card(1).hold_transmit(false);
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  EXPECT_EQ(two->handler.packets[0].bytes, Bytes(1000, std::byte{0x55}));
  this->no_faults();

  ASSERT_EQ(this->a.remove(region, registered.handle), 0);
  two->handler.packets.clear();
  EXPECT_EQ(exchange(memory.data() + 100, 1000), 0u);

  // A late DMA: a descriptor with the old address faults, and nothing of the memory leaves or changes.
  const Bytes before = memory;
  const uint64_t frames = this->hub.frames();
  const Fragment late{address, 1000};
  EXPECT_EQ(this->card(1).host().iommu.faults(), 0u);
  (void)this->a.card().post({&late, 1}, 0);
  this->a.card().kick();
  EXPECT_GE(this->card(1).host().iommu.faults(), 1u);
  EXPECT_EQ(this->hub.frames(), frames);
  EXPECT_EQ(memory, before);
  this->card(1).host().write(address, std::as_bytes(std::span("overwritten")));
  EXPECT_EQ(memory, before);
}

TYPED_TEST(NicDevice, ARegionIsUnmappedWhenNoFrameReadsFromIt) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  Bytes memory = pattern(8192, 3);
  // Two regions that overlap, one of them in two pieces.
  const iovec pieces[] = {{memory.data(), 4096}, {memory.data() + 4096, 4096}};
  const iovec whole{memory.data() + 1000, 6000};
  core::Registration first;
  first.pieces = pieces;
  first.rights.remote_read = true;
  core::Registration second;
  second.pieces = {&whole, 1};
  second.rights.local_read = true;
  core::Registered in_first;
  core::Registered in_second;
  ASSERT_EQ(this->a.add(first, in_first), 0);
  ASSERT_EQ(this->a.add(second, in_second), 0);
  // What the card would only write into is not its business.
  core::Registration written;
  written.pieces = {&whole, 1};
  written.rights.local_write = written.rights.remote_write = true;
  core::Registered in_written;
  ASSERT_EQ(this->a.add(written, in_written), 0);
  EXPECT_EQ(in_written.handle, nullptr);
  EXPECT_EQ(this->a.remove(written, nullptr), 0);

  one->link.set_parts_stay(true);
  this->card(1).hold_transmit(true);
  const iovec across{memory.data() + 3600, 1000};  // in the second region alone
  ASSERT_TRUE(one->link.send(two->address(), &across, 1));
  EXPECT_EQ(this->a.statistics().in_place_bytes, 1000u);
  ASSERT_EQ(this->a.remove(first, in_first.handle), 0);
  EXPECT_EQ(this->a.statistics().resets, 0u);
  // The card does not come to the frame: it is reset, and the frame is lost.
  ASSERT_EQ(this->a.remove(second, in_second.handle), 0);
  EXPECT_EQ(this->a.statistics().resets, 1u);
  EXPECT_EQ(this->a.frames_in_flight(), 0u);
  this->card(1).hold_transmit(false);
  EXPECT_EQ(this->card(1).host().iommu.faults(), 0u);
  for (const auto& [at, mapping] : this->card(1).host().iommu.mappings())
    EXPECT_TRUE(mapping.memory < memory.data() || mapping.memory >= memory.data() + memory.size());
  two->handler.packets.clear();
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] {
    one->send(two->address(), pattern(9, 0));
    return !two->handler.packets.empty();
  }));
}

// --- full, down, broken ---

TYPED_TEST(NicDevice, FullRingsRefuseAndLoseNothing) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  two->handler.packets.clear();
  this->card(1).hold_transmit(true);
  unsigned sent = 0;
  while (one->send(two->address(), pattern(100 + sent, sent))) ASSERT_LT(++sent, 10'000u);
  EXPECT_GE(sent, 60u);
  EXPECT_GE(this->a.statistics().no_room, 1u);
  EXPECT_FALSE(one->send(two->address(), pattern(1, 1)));
  this->card(1).hold_transmit(false);
  one->poll();
  EXPECT_EQ(this->a.frames_in_flight(), 0u);
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] {
    return two->handler.packets.size() >= std::min<size_t>(sent, 200);  // the peer's ring has no room for all
  }));
  for (size_t i = 0; i < two->handler.packets.size(); ++i)
    ASSERT_EQ(two->handler.packets[i].bytes, pattern(100 + i, static_cast<unsigned>(i)));
  this->no_faults();
}

TYPED_TEST(NicDevice, ASegmentedSendIsTakenWholeOrNotAtAll) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  two->handler.packets.clear();
  Bytes memory = pattern(60'000, 3);
  const iovec piece{memory.data(), memory.size()};
  core::Registration region;
  region.pieces = {&piece, 1};
  region.rights.local_read = true;
  core::Registered registered;
  ASSERT_EQ(this->a.add(region, registered), 0);
  one->link.set_parts_stay(true);
  // Segmented sends of all lengths, until the ring has no room; then it is emptied. None of them loses a packet.
  std::mt19937 random(3);
  std::array<std::byte, 20> head{};
  const std::array<std::byte, 4> tail{};
  unsigned refused = 0;
  for (int round = 0; round < 200; ++round) {
    this->card(1).hold_transmit(true);
    size_t packets = 0;
    for (;;) {
      const size_t segments = 1 + random() % 40;
      std::vector<iovec> parts;
      for (size_t i = 0; i < segments; ++i) {
        parts.push_back({head.data(), head.size()});
        parts.push_back({memory.data() + random() % 59'000, 800});
        parts.push_back({const_cast<std::byte*>(tail.data()), tail.size()});
      }
      const uint64_t sent = this->a.statistics().sent;
      const bool is_taken = one->link.send_segmented(two->address(), parts.data(), parts.size(), 824);
      ASSERT_EQ(this->a.statistics().sent, sent + (is_taken ? segments : 0));
      if (!is_taken) break;
      packets += segments;
      ASSERT_LT(packets, 5000u);
    }
    ++refused;
    this->card(1).hold_transmit(false);
    one->poll();
    ASSERT_EQ(this->a.frames_in_flight(), 0u);
    while (two->poll() != 0) {
    }
    two->handler.packets.clear();
  }
  EXPECT_EQ(refused, 200u);
  EXPECT_GT(this->a.statistics().in_place_bytes, 0u);
  ASSERT_EQ(this->a.remove(region, registered.handle), 0);
  this->no_faults();
}

TYPED_TEST(NicDevice, AnInboxIsBounded) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto silent = this->endpoint(this->b);
  auto polled = this->endpoint(this->b);
  ASSERT_TRUE(one->send(silent->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), polled.get(), silent.get()},
                         [&] { return silent->handler.packets.size() == 1; }));
  for (unsigned i = 0; i < 1000; ++i) {
    ASSERT_TRUE(one->send(silent->address(), pattern(1400, i)));
    one->poll();
    polled->poll();
  }
  EXPECT_GT(this->b.statistics().inbox_full, 100u);
  // The others are not disturbed.
  ASSERT_TRUE(one->send(polled->address(), pattern(1400, 1)));
  ASSERT_TRUE(this->turn({one.get(), polled.get()}, [&] { return !polled->handler.packets.empty(); }));
  silent->handler.packets.clear();
  while (silent->poll() != 0) {
  }
  ASSERT_GT(silent->handler.packets.size(), 300u);
  for (size_t i = 0; i < silent->handler.packets.size(); ++i)
    ASSERT_EQ(silent->handler.packets[i].bytes, pattern(1400, static_cast<unsigned>(i)));
}

TYPED_TEST(NicDevice, TheLinkGoesAndComes) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  this->hub.set_carrier(this->card(1).station(), false);
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return !this->a.has_link(); }));
  EXPECT_TRUE(one->send(two->address(), pattern(8, 1)));
  EXPECT_EQ(this->a.statistics().lost_without_link, 1u);
  this->hub.set_carrier(this->card(1).station(), true);
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return this->a.has_link(); }));
  ASSERT_TRUE(one->send(two->address(), pattern(9, 2)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 2; }));
  EXPECT_EQ(two->handler.packets[1].bytes, pattern(9, 2));
  EXPECT_EQ(this->a.statistics().resets, 0u);
  EXPECT_EQ(warnings().size(), 2u);
  this->no_faults();
}

TYPED_TEST(NicDevice, ACardThatContradictsItselfIsResetUnderLoad) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  unsigned sent = 0;
  for (unsigned round = 1; round <= 3; ++round) {
    for (int i = 0; i < 20; ++i) (void)one->send(two->address(), pattern(200, sent++));
    this->card(1).break_it();
    ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] {
      (void)one->send(two->address(), pattern(200, sent++));
      return this->a.statistics().resets == round;
    }));
    two->handler.packets.clear();
    ASSERT_TRUE(this->turn({one.get(), two.get()},
                           [&] {
                             (void)one->send(two->address(), pattern(200, sent++));
                             (void)two->send(one->address(), pattern(200, sent++));
                             return two->handler.packets.size() > 10 && one->handler.packets.size() > 10;
                           }))
        << round << ": " << two->handler.packets.size() << ' ' << one->handler.packets.size();
    one->handler.packets.clear();
  }
  EXPECT_FALSE(this->a.is_lost());
  this->no_faults();
}

TYPED_TEST(NicDevice, ACardThatIsPulledOutIsGivenUp) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  this->card(1).host().is_unplugged = true;
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return this->a.is_lost(); }));
  const iovec part{nullptr, 0};
  EXPECT_EQ(one->link.try_send(two->address(), &part, 1), -ENETDOWN);
  EXPECT_EQ(one->poll(), 0);
  EXPECT_FALSE(warnings().empty());
  Packets late;
  late.set_device(this->a);
  (void)late.open({});
  late.close();
}

TYPED_TEST(NicDevice, ACardThatSendsNothingIsReset) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  this->card(1).hold_transmit(true);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return this->a.statistics().resets == 1; }));
  this->card(1).hold_transmit(false);
  this->no_faults();
}

using OneOfEach = NicDevice<Two<E1000eKind, VirtioKind>>;

TEST_F(OneOfEach, AProgramThatDidNotPollForLongHasNoCardThatHangs) {
  open_both();
  auto one = endpoint(a);
  auto two = endpoint(b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  (void)turn(
      {one.get()}, [] { return false; }, 2 * Device::check_ns / 1'000'000);
  ::usleep(Device::hang_ns / 1000 + 100'000);
  // It sends, and looks before the card has come to the frame.
  card(1).hold_transmit(true);
  ASSERT_TRUE(one->send(two->address(), pattern(9, 0)));
  one->poll();
  EXPECT_EQ(a.statistics().resets, 0u);
  card(1).hold_transmit(false);
  ASSERT_TRUE(turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 2; }));
  EXPECT_EQ(a.statistics().resets, 0u);
}

// --- sleeping ---

bool is_readable(int fd, int ms) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, ms) == 1;
}

TYPED_TEST(NicDevice, SleepersWake) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  auto three = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(one->send(three->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get(), three.get()},
                         [&] { return two->handler.packets.size() + three->handler.packets.size() == 2; }));
  const auto sleep = [&](Endpoint& who) {
    ASSERT_GE(who.link.wait_fd(), 0);
    ASSERT_TRUE(this->turn({&who}, [&] { return who.link.arm(); }));
  };
  for (int round = 0; round < 50; ++round) {
    sleep(*two);
    sleep(*three);
    EXPECT_FALSE(is_readable(two->link.wait_fd(), 0));
    Endpoint& to = round % 2 == 0 ? *two : *three;
    Endpoint& other = round % 2 == 0 ? *three : *two;
    to.handler.packets.clear();
    ASSERT_TRUE(one->send(to.address(), pattern(100, 1)));
    // The card wakes both; whoever polls first finds the frame for the right one.
    ASSERT_TRUE(is_readable(other.link.wait_fd(), 1000));
    other.link.disarm();
    other.poll();
    ASSERT_TRUE(is_readable(to.link.wait_fd(), 1000));
    to.link.disarm();
    to.poll();
    ASSERT_EQ(to.handler.packets.size(), 1u);
    one->poll();
  }
  // From an endpoint of the same card.
  sleep(*two);
  ASSERT_TRUE(three->send(two->address(), pattern(5, 1)));
  ASSERT_TRUE(is_readable(two->link.wait_fd(), 1000));
  two->link.disarm();
  EXPECT_EQ(two->poll(), 1);
  // By the link.
  sleep(*two);
  this->hub.set_carrier(this->card(2).station(), false);
  EXPECT_TRUE(is_readable(two->link.wait_fd(), 1000));
  two->link.disarm();
  ASSERT_TRUE(this->turn({two.get()}, [&] { return !this->b.has_link(); }));
}

// --- hostile frames, closing ---

TYPED_TEST(NicDevice, SurvivesAnyFrames) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  auto three = this->endpoint(this->b);
  std::vector<Bytes> seen;
  this->hub.drop = [&](std::span<const std::byte> frame) {
    if (seen.size() < 64) seen.emplace_back(frame.begin(), frame.end());
    return false;
  };
  ASSERT_TRUE(one->send(two->address(), pattern(64, 0)));
  ASSERT_TRUE(
      this->turn({one.get(), two.get(), three.get()}, [&] { return two->handler.packets.size() == 1; }));
  this->hub.drop = nullptr;
  model::Stand<model::E1000e, weft::nic::e1000e::Driver> stranger(
      std::make_unique<model::E1000e>(this->hub, model::E1000e::Settings{.mac = model::mac_of(66)}));
  ASSERT_TRUE(stranger.driver.open({}));
  std::mt19937 random(5);
  ASSERT_FALSE(seen.empty());
  for (int round = 0; round < 20'000; ++round) {
    Bytes frame = seen[random() % seen.size()];
    for (unsigned change = random() % 4; change != 0; --change)
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) frame.resize(14 + random() % frame.size());
    (void)stranger.send(frame);
    stranger.reclaim();
    stranger.receive();
    stranger.frames.clear();
    if (round % 16 == 0) {
      two->poll();
      three->poll();
      one->poll();
    }
  }
  two->handler.packets.clear();
  // Somebody may have made himself the owner of an address; a good answer corrects it.
  ASSERT_TRUE(this->turn(
      {one.get(), two.get(), three.get()},
      [&] {
        (void)one->send(two->address(), pattern(77, 9));
        return std::ranges::any_of(two->handler.packets,
                                   [](const Received& p) { return p.bytes == pattern(77, 9); });
      },
      40'000));
  EXPECT_FALSE(this->b.is_lost());
  EXPECT_EQ(this->b.statistics().resets, 0u);
  this->no_faults();
}

TYPED_TEST(NicDevice, ClosesInAllOrders) {
  for (unsigned order = 0; order < 6; ++order) {
    this->open_both();
    auto one = this->endpoint(this->a);
    auto two = this->endpoint(this->b);
    auto three = this->endpoint(this->b);
    Bytes memory(4096);
    const iovec piece{memory.data(), memory.size()};
    core::Registration region;
    region.pieces = {&piece, 1};
    region.rights.local_read = true;
    core::Registered registered;
    const size_t mappings = this->card(2).host().iommu.mappings().size();
    ASSERT_EQ(this->b.add(region, registered), 0);
    (void)two->send(one->address(), pattern(100, 1));
    (void)three->send(two->address(), pattern(100, 1));
    if (order % 2 == 0) one.reset();
    if (order / 2 == 0) two.reset();
    if (order / 2 == 1) three.reset();
    if (order / 2 != 2) {
      EXPECT_EQ(this->b.remove(region, registered.handle), 0);
    }
    one.reset();
    three.reset();
    two.reset();
    this->no_faults();
    model::Host& host = this->card(2).host();
    if (order / 2 != 2) {
      EXPECT_EQ(host.iommu.mappings().size(), mappings);
    }
    this->b.close();
    this->a.close();
    this->b.close();
  }
}

TYPED_TEST(NicDevice, AForkedChildLeavesTheCardAlone) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  const auto frames = this->hub.frames();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const iovec part{nullptr, 0};
    bool ok = one->link.try_send(two->address(), &part, 1) == -ENETDOWN && one->poll() == 0;
    this->a.progress();
    ok &= !this->a.arm();
    one.reset();
    this->a.close();
    ok &= this->hub.frames() == frames;
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(one->send(two->address(), pattern(10, 1)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
}

TYPED_TEST(NicDevice, ABurstRingsOnce) {
  this->open_both();
  auto one = this->endpoint(this->a);
  auto two = this->endpoint(this->b);
  ASSERT_TRUE(one->send(two->address(), pattern(8, 0)));
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 1; }));
  const uint64_t doorbells = this->a.driver_counters().transmit_doorbells;
  const Bytes train = pattern(32 * 1000, 0);
  const iovec part{const_cast<std::byte*>(train.data()), train.size()};
  ASSERT_TRUE(one->link.send_segmented(two->address(), &part, 1, 1000));
  EXPECT_EQ(this->a.driver_counters().transmit_doorbells, doorbells + 1);
  ASSERT_TRUE(this->turn({one.get(), two.get()}, [&] { return two->handler.packets.size() == 33; }));
}

}  // namespace
}  // namespace weft::link::nic
