// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider interface: the least that satisfies it, what does not any more, and how it looks as a PacketLink and as names.
#include "link/kit/over_packets.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "link/kit/text_names.hpp"
#include "link/reliable/link.hpp"
#include "proto/engine/link.hpp"

namespace weft::link::kit {
namespace {

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The archetype: what the concept names, and nothing else. A concept is a lower bound; that the adaptor compiles with it shows that it is enough.
struct Archetype {
  static constexpr size_t address_bytes_max = 8;
  static constexpr bool alters_packets = true;

  int open(Bytes address) {
    own = address.empty() ? "mine" : text_of(address);
    return own == "taken" ? -EADDRINUSE : 0;
  }
  void close() noexcept { ++closed; }
  Bytes address() noexcept { return bytes_of(own); }
  size_t packet_bytes_max(Bytes) noexcept { return packet_bytes; }
  int send(Bytes to, const iovec* parts, size_t count) noexcept {
    if (send_status != 0) return send_status;
    std::string packet;
    for (size_t i = 0; i < count; ++i)
      packet.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    arrived.emplace_back(text_of(to), packet);
    return 0;
  }
  int receive(PacketSink& sink) noexcept {
    const auto taken = std::exchange(arrived, {});
    for (const auto& [source, packet] : taken) sink(bytes_of(source), bytes_of(packet));
    return static_cast<int>(taken.size());
  }
  static std::string address_text(Bytes address) { return TextAddresses::address_text(address); }
  static std::vector<std::byte> address_from_text(std::string_view text) {
    return TextAddresses::address_from_text(text);
  }

  std::string own;
  std::deque<std::pair<std::string, std::string>> arrived;
  static inline size_t packet_bytes = 1000;
  static inline int send_status = 0;
  static inline int closed = 0;
};
struct Name {
  static constexpr const char* name = "arch";
};

static_assert(Packets<Archetype> && explain_packets<Archetype>());
static_assert(proto::PacketLink<OverPackets<Archetype>> &&
              !proto::HasSegmentationOffload<OverPackets<Archetype>>);
using Over = reliable::Reliable<OverPackets<Archetype>, TextNames<Archetype, Name>>;
static_assert(proto::Link<Over>);
static_assert(!proto::HasChecksum<OverPackets<Archetype>> && !proto::HasRefusals<OverPackets<Archetype>>);

// With one of them missing, or of another type.
#define WEFT_WITHOUT(Type, member) \
  struct Type : Archetype {        \
    member;                        \
  };                               \
  static_assert(!Packets<Type>)
WEFT_WITHOUT(NoDefault, explicit NoDefault(int));
WEFT_WITHOUT(NoAddressBytes, void address_bytes_max());
WEFT_WITHOUT(LongAddresses, static constexpr size_t address_bytes_max = 65);
WEFT_WITHOUT(NoAlters, void alters_packets());
WEFT_WITHOUT(NoOpen, void open());
WEFT_WITHOUT(OpenSaysBool, bool open(Bytes));
WEFT_WITHOUT(NoClose, void close(int) noexcept);
WEFT_WITHOUT(CloseThrows, void close());
WEFT_WITHOUT(NoAddress, void address());
WEFT_WITHOUT(NoPacketBytes, void packet_bytes_max());
WEFT_WITHOUT(NoSend, void send());
WEFT_WITHOUT(SendThrows, int send(Bytes, const iovec*, size_t));
WEFT_WITHOUT(SendSaysBool, bool send(Bytes, const iovec*, size_t) noexcept);
WEFT_WITHOUT(NoReceive, void receive());
WEFT_WITHOUT(NoText, void address_text());
WEFT_WITHOUT(NoFromText, void address_from_text());
#undef WEFT_WITHOUT

// Everything that is optional.
struct Rich : Archetype {
  static constexpr size_t train_packets_max = 4;
  static constexpr bool leaves_machine = false;
  static constexpr uint32_t version = 7;
  int send_train(Bytes, const iovec*, size_t, size_t) noexcept { return -EAGAIN; }
  static int wait_fd() noexcept { return 5; }
  size_t take_refusal(std::span<std::byte> place) noexcept {
    if (refusals == 0) return 0;
    std::memcpy(place.data(), "gone", 4);
    --refusals;
    return 4;
  }
  static size_t receive_bytes_max() noexcept { return 4096; }
  static size_t receive_slot_bytes() noexcept { return 64; }
  static std::string reason() { return "the board is on fire"; }
  static std::vector<std::byte> resolve(const char*, const char*, bool) { return {}; }
  static bool is_available() noexcept { return false; }
  int refusals = 2;
};
static_assert(Packets<Rich> && explain_packets<Rich>());
static_assert(HasTrains<Rich> && HasWaitFd<Rich> && HasRefusals<Rich> && HasReceiveBytesMax<Rich> &&
              HasReceiveSlotBytes<Rich> && HasReason<Rich> && HasResolve<Rich> && HasIsAvailable<Rich> &&
              HasLeavesMachine<Rich> && HasVersion<Rich>);
static_assert(proto::HasSegmentationOffload<OverPackets<Rich>> && proto::HasRefusals<OverPackets<Rich>> &&
              proto::Link<reliable::Reliable<OverPackets<Rich>, TextNames<Rich, Name>>>);

struct Taken {
  std::vector<std::pair<std::string, std::string>> packets;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    packets.emplace_back(text_of(packet.source), text_of(packet.bytes));
  }
};

TEST(OverPackets, CarriesPackets) {
  Archetype::closed = 0;
  {
    OverPackets<Archetype> link;
    ASSERT_TRUE(link.open({}));
    EXPECT_EQ(text_of(link.address()), "mine");
    EXPECT_EQ(link.packet_bytes_max(link.address()), 1000u);
    char a[] = "pack", b[] = "et";
    const iovec parts[] = {{a, 4}, {b, 2}};
    EXPECT_TRUE(link.send(bytes_of("there"), parts, 2));
    Taken taken;
    EXPECT_EQ(link.poll(taken), 1);
    ASSERT_EQ(taken.packets.size(), 1u);
    EXPECT_EQ(taken.packets[0], std::pair(std::string("there"), std::string("packet")));
    EXPECT_EQ(link.wait_fd(), -1);
    EXPECT_FALSE(link.arm());
    link.close();
    link.close();
  }
  EXPECT_EQ(Archetype::closed, 1);
}

TEST(OverPackets, ASourceThatIsNoAddressIsNotShown) {
  OverPackets<Archetype> link;
  ASSERT_TRUE(link.open({}));
  const iovec part{};
  EXPECT_TRUE(link.send(bytes_of("longer than eight"), &part, 1));
  Taken taken;
  (void)link.poll(taken);
  EXPECT_TRUE(taken.packets.empty());
}

TEST(OverPackets, OnlyNoRoomIsTriedAgain) {
  OverPackets<Archetype> link;
  ASSERT_TRUE(link.open({}));
  const iovec part{};
  Archetype::send_status = -EAGAIN;
  EXPECT_FALSE(link.send(bytes_of("there"), &part, 1));
  Archetype::send_status = -ENETUNREACH;
  EXPECT_TRUE(link.send(bytes_of("there"), &part, 1));
  Archetype::send_status = 0;
}

TEST(OverPackets, RefusalsOfOpenAreSentences) {
  OverPackets<Archetype> plain;
  auto refused = plain.open(bytes_of("taken"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EADDRINUSE);
  EXPECT_EQ(refused.error().why, "the provider could not be opened: Address already in use");
  OverPackets<Rich> rich;
  refused = rich.open(bytes_of("taken"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().why, "the board is on fire");
}

TEST(OverPackets, WhatAProviderGetsWrongIsSaid) {
  Archetype::packet_bytes = 100;
  OverPackets<Archetype> small;
  const auto refused = small.open({});
  Archetype::packet_bytes = 1000;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().why, "the provider's packets are smaller than 512 bytes");
  OverPackets<Archetype> long_named;
  const auto named = long_named.open(bytes_of("nine char"));
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().why, "address() has 9 bytes; by address_bytes_max it may have 1 to 8");
}

TEST(OverPackets, WhatIsOptionalIsUsed) {
  OverPackets<Rich> link;
  ASSERT_TRUE(link.open({}));
  const iovec part{};
  EXPECT_FALSE(link.send_segmented(bytes_of("there"), &part, 1, 512));
  EXPECT_EQ(link.wait_fd(), 5);
  EXPECT_TRUE(link.arm());
  EXPECT_EQ(link.receive_buffer_bytes(), 8192u);
  EXPECT_EQ(link.receive_packet_bytes(), 64u);
  std::vector<std::string> gone;
  link.take_refusals([&](Bytes place) { gone.push_back(text_of(place)); });
  EXPECT_EQ(gone, (std::vector<std::string>{"gone", "gone"}));
}

TEST(TextNames, OneTextForOneAddress) {
  using Names = TextNames<Archetype, Name>;
  const Names names;
  const auto address = Names::from(bytes_of("here"));
  ASSERT_TRUE(address);
  const auto name = names.write(*address);
  EXPECT_EQ(name.span().size(), 64u);
  EXPECT_STREQ(reinterpret_cast<const char*>(name.bytes.data()), "fi_arch://here");
  const auto again = names.read(name.span());
  ASSERT_TRUE(again);
  EXPECT_EQ(text_of(again->bytes()), "here");
  for (const char* wrong : {"", "here", "arch:/here", "other://here", "fi_arch://", "fi_arch://no spaces",
                            "fi_arch://longer than eight"})
    EXPECT_FALSE(names.read(bytes_of(wrong))) << wrong;
}

TEST(TextNames, WhatPeersSayIsChecked) {
  using Names = TextNames<Archetype, Name>;
  EXPECT_FALSE(Names::from({}));
  EXPECT_FALSE(Names::from(bytes_of("nine char")));
  EXPECT_FALSE(Names::from(bytes_of("a\nb")));
  EXPECT_FALSE(Names::from(std::as_bytes(std::span("zero", 5))));
}

// Two texts for one address: only the one that address_text() writes has the address.
struct Loose : Archetype {
  static std::vector<std::byte> address_from_text(std::string_view text) {
    return TextAddresses::address_from_text(text == "alias" ? "real" : text);
  }
};
TEST(TextNames, OtherSpellingsAreBroughtIntoOneForm) {
  using Names = TextNames<Loose, Name>;
  const auto address = Names().read(bytes_of("fi_arch://alias"));
  ASSERT_TRUE(address);
  EXPECT_STREQ(reinterpret_cast<const char*>(Names().write(*address).bytes.data()), "fi_arch://real");
  EXPECT_FALSE(Names::from(bytes_of("alias")));
}

}  // namespace
}  // namespace weft::link::kit
