// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tables of providers: which a core takes, what it makes of those that are shorter or longer than its own, and how a provider looks through one.
#include "link/kit/tabled.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "link/kit/text_names.hpp"
#include "link/reliable/link.hpp"
#include "proto/engine/link.hpp"

namespace weft::link::kit {
namespace {

// The least that fits.
struct Plain : TextAddresses {
  static constexpr size_t address_bytes_max = 8;
  static constexpr bool alters_packets = true;
  int open(Bytes address) { return address.size() > 4 ? -EADDRINUSE : 0; }
  void close() noexcept {}
  Bytes address() noexcept { return std::as_bytes(std::span("mine", 4)); }
  size_t packet_bytes_max(Bytes to) noexcept { return 1000 + to.size(); }
  int send(Bytes, const iovec* parts, size_t count) noexcept {
    for (size_t i = 0; i < count; ++i)
      sent.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    return 0;
  }
  int receive(PacketSink& sink) noexcept {
    sink(address(), std::as_bytes(std::span(sent)));
    return 1;
  }
  std::string sent;
};
// And everything.
struct Rich : Plain {
  static constexpr size_t train_packets_max = 4;
  static constexpr bool alters_packets = false;
  static constexpr bool leaves_machine = false;
  static constexpr uint32_t version = 7;
  static constexpr uint32_t version_needed = WEFT_PROVIDER_VERSION;
  int send_train(Bytes, const iovec*, size_t, size_t packet_bytes) noexcept {
    return packet_bytes == 512 ? -EAGAIN : 0;
  }
  int wait_fd() noexcept { return 5; }
  size_t take_refusal(std::span<std::byte> place) noexcept {
    std::memcpy(place.data(), "gone", 4);
    return std::exchange(refusals, 0);
  }
  size_t receive_bytes_max() noexcept { return 4096; }
  size_t receive_slot_bytes() noexcept { return 64; }
  static std::string reason() { return "the board is on fire"; }
  static std::vector<std::byte> resolve(const char* node, const char*, bool) {
    return address_from_text(node);
  }
  static bool is_available() noexcept { return false; }
  size_t refusals = 4;
};
constexpr PacketsTable plain = table_of<Plain>("plain");
constexpr PacketsTable rich = table_of<Rich>("rich");

struct Name {
  [[maybe_unused]] static constexpr const char* name = "tabled";  // used in an unevaluated way only
};
static_assert(proto::Link<reliable::Reliable<TabledPackets, TextNames<Tabled, Name>>>);
static_assert(proto::PacketLink<TabledPackets> && proto::HasSegmentationOffload<TabledPackets> &&
              proto::HasRunTimeTraits<TabledPackets>);

TEST(Tables, OfThisVersionAreTaken) {
  EXPECT_EQ(fault_of_table(plain), "");
  EXPECT_EQ(fault_of_table(rich), "");
  EXPECT_LE(table_bytes_least, sizeof(PacketsTable));
}

TEST(Tables, WhatIsWrongIsSaid) {
  PacketsTable other = plain;
  other.version = WEFT_PROVIDER_VERSION_OF(2, 0);
  other.bytes = 12;  // and nothing behind the first members is read
  EXPECT_EQ(
      fault_of_table(other),
      "a provider was compiled for version 2.0 of weft/provider.hpp, and the core in this plugin has 1." +
          std::to_string(WEFT_PROVIDER_VERSION_MINOR) +
          ": compile its sources again, with the headers of this core");
  other = plain;
  other.bytes = table_bytes_least - 1;
  EXPECT_NE(fault_of_table(other).find("damaged"), std::string::npos);
  other = plain;
  other.version_needed = WEFT_PROVIDER_VERSION + 1;
  EXPECT_NE(fault_of_table(other).find("the provider \"plain\" needs version 1."), std::string::npos);
  other = plain;
  other.receive = nullptr;
  EXPECT_EQ(fault_of_table(other), "the provider \"plain\" lacks receive()");
  other = plain;
  other.address_bytes_max = 65;
  EXPECT_EQ(fault_of_table(other), "the provider \"plain\" has addresses of 65 bytes");
}

TEST(Tables, OfANewerMinorVersionAreLonger) {
  struct {
    PacketsTable known = rich;
    void* unknown = nullptr;
  } newer;
  newer.known.bytes = sizeof newer;
  newer.known.version = WEFT_PROVIDER_VERSION + 1;
  newer.unknown = &newer;
  EXPECT_EQ(fault_of_table(newer.known), "");
  use_table(newer.known);
  EXPECT_EQ(Tabled().wait_fd(), 5);
}

TEST(Tables, WhatAShorterOneLacksIsAbsent) {
  PacketsTable older = rich;
  older.bytes = offsetof(PacketsTable, is_available);  // as if it had been added later
  use_table(older);
  EXPECT_TRUE(Tabled::is_available());
  EXPECT_EQ(Tabled().wait_fd(), 5);
}

struct Taken {
  std::string packets;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    packets.append(reinterpret_cast<const char*>(packet.source.data()), packet.source.size());
    packets.append(":").append(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
  }
};

TEST(Tabled, CarriesPackets) {
  use_table(plain);
  TabledPackets link;
  ASSERT_TRUE(link.open({}));
  EXPECT_EQ(link.packet_bytes_max(link.address()), 1004u);
  char a[] = "pack", b[] = "et";
  const iovec parts[] = {{a, 4}, {b, 2}};
  EXPECT_TRUE(link.send(link.address(), parts, 2));
  Taken taken;
  EXPECT_EQ(link.poll(taken), 1);
  EXPECT_EQ(taken.packets, "mine:packet");
}

TEST(Tabled, WhatIsNotThereIsDoneWithout) {
  use_table(plain);
  TabledPackets link;
  const auto refused = link.open(std::as_bytes(std::span("taken", 5)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().why, "the provider could not be opened: Address already in use");
  EXPECT_EQ(link.wait_fd(), -1);
  EXPECT_FALSE(link.arm());
  link.take_refusals([](Bytes) { FAIL(); });
  EXPECT_FALSE(Tabled::resolves());
  const proto::PacketLinkTraits traits = proto::traits_of(link);
  EXPECT_FALSE(traits.checks_packets);
  EXPECT_EQ(traits.segments_max, 1u);
  EXPECT_EQ(traits.receive_buffer_bytes, SIZE_MAX);
}

struct Throwing : Plain {
  int open(Bytes address) {
    if (address.empty()) throw 5;
    throw std::runtime_error("no device");
  }
};
constexpr PacketsTable throwing = table_of<Throwing>("throwing");

TEST(Tabled, WhatOpenThrowsIsTheReason) {
  use_table(throwing);
  TabledPackets link;
  auto refused = link.open(std::as_bytes(std::span("here", 4)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EIO);
  EXPECT_EQ(refused.error().why, "open() threw an exception: no device");
  TabledPackets other;
  refused = other.open({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().why, "open() threw an exception: something that is no std::exception");
}

struct Overlong : Plain {
  Bytes address() noexcept { return std::as_bytes(std::span("nine char", 9)); }
};
constexpr PacketsTable overlong = table_of<Overlong>("overlong");

TEST(Tabled, AddressesAreNoLongerThanTheTableSays) {
  use_table(overlong);
  TabledPackets link;
  const auto refused = link.open({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().why, "address() has 9 bytes; by address_bytes_max it may have 1 to 8");
}

TEST(Tabled, WhatIsOptionalIsUsed) {
  use_table(rich);
  TabledPackets link;
  const auto refused = link.open(std::as_bytes(std::span("taken", 5)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().why, "the board is on fire");
  EXPECT_TRUE(link.arm());
  const iovec part{};
  EXPECT_FALSE(link.send_segmented(link.address(), &part, 1, 512));
  size_t gone = 0;
  link.take_refusals([&](Bytes) { ++gone; });
  EXPECT_EQ(gone, 1u);
  EXPECT_FALSE(Tabled::is_available());
  EXPECT_EQ(Tabled::resolve("node", nullptr, false).size(), 4u);
  const proto::PacketLinkTraits traits = proto::traits_of(link);
  EXPECT_TRUE(traits.checks_packets);
  EXPECT_EQ(traits.segments_max, 4u);
  EXPECT_EQ(traits.receive_buffer_bytes, 2 * 4096u);
  EXPECT_EQ(traits.receive_packet_bytes, 64u);
}

TEST(Tabled, TextsAndAddressesHaveABound) {
  use_table(plain);
  EXPECT_EQ(Tabled::address_text(std::as_bytes(std::span("here", 4))), "here");
  EXPECT_EQ(Tabled::address_text(std::as_bytes(std::span("nine char", 9))), "");
  EXPECT_EQ(Tabled::address_from_text("here").size(), 4u);
  EXPECT_TRUE(Tabled::address_from_text(std::string(300, 'x')).empty());
}

}  // namespace
}  // namespace weft::link::kit
