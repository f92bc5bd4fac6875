// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The e1000e driver over its model: the tests of every driver, and what only this card has.
#include "nic/e1000e/driver.hpp"

#include <gtest/gtest.h>

#include "nic/driver_suite.hpp"
#include "nic/model/e1000e.hpp"

namespace weft::nic {
namespace {

struct MsixCard {
  template <class Bus>
  using Driver = e1000e::Driver<Bus>;
  using Model = model::E1000e;
  static constexpr size_t frame_bytes_largest = e1000e::frame_bytes_largest;
  static std::unique_ptr<Model> make(model::Hub& hub, unsigned n) {
    return std::make_unique<Model>(hub, Model::Settings{.mac = model::mac_of(n)});
  }
};
struct MsiCard : MsixCard {
  static std::unique_ptr<Model> make(model::Hub& hub, unsigned n) {
    return std::make_unique<Model>(hub, Model::Settings{.mac = model::mac_of(n), .has_msix = false});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(E1000eMsix, NicDriver, MsixCard);
INSTANTIATE_TYPED_TEST_SUITE_P(E1000eMsi, NicDriver, MsiCard);

using namespace e1000e;  // NOLINT(google-build-using-namespace): registers
using Stand = model::Stand<model::E1000e, e1000e::Driver>;

struct E1000e : NicDriver<MsixCard> {};

TEST_F(E1000e, RefusesSettingsThatItCannotHave) {
  for (const size_t bytes : {size_t{0}, size_t{59}, frame_bytes_largest + 1, SIZE_MAX}) {
    DriverSettings settings;
    settings.frame_bytes_max = bytes;
    auto done = a.driver.open(settings);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EINVAL);
  }
  EXPECT_EQ(ring_size(0), descriptors_min);
  EXPECT_EQ(ring_size(33), 64u);
  EXPECT_EQ(ring_size(100000), descriptors_max);
}

TEST_F(E1000e, FindsItsAddressInTheNvm) {
  Stand stand(std::make_unique<model::E1000e>(
      hub, model::E1000e::Settings{.mac = model::mac_of(7), .loads_mac = false}));
  ASSERT_TRUE(stand.driver.open({}));
  EXPECT_EQ(stand.driver.mac(), model::mac_of(7));
  EXPECT_EQ(stand.model->peek(Rah::at) & Rah::valid, Rah::valid);
  Stand group(std::make_unique<model::E1000e>(hub, model::E1000e::Settings{.mac = model::broadcast}));
  auto done = group.driver.open({});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, EADDRNOTAVAIL);
}

TEST_F(E1000e, WakesThePhy) {
  Stand stand(std::make_unique<model::E1000e>(hub, model::E1000e::Settings{.is_phy_powered_down = true}));
  ASSERT_TRUE(stand.driver.open({}));
  EXPECT_TRUE(stand.driver.has_link());
}

TEST_F(E1000e, TouchesNoRegisterButDoorbells) {
  open();
  const auto count = [](Stand& stand, auto work) {
    const model::Accesses before = stand.bus.accesses();
    work();
    EXPECT_EQ(stand.bus.accesses().reads, before.reads);
    return stand.bus.accesses().writes - before.writes;
  };
  for (const unsigned batch : {1u, 32u}) {
    const uint64_t sending = count(a, [&] {
      for (unsigned i = 0; i < 320; i += batch) {
        for (unsigned j = 0; j < batch; ++j) ASSERT_TRUE(a.post(frame(60)));
        a.driver.kick();
        a.reclaim();
        EXPECT_EQ(count(b, [&] { b.receive(batch); }), (i + batch) % 32 == 0 ? 1u : 0u);
        b.receive(batch);
      }
    });
    EXPECT_EQ(sending, 320 / batch);
  }
}

TEST_F(E1000e, ReclaimsWhatOneDoorbellOfAWholeRingShowed) {
  open();
  a.model->hold_transmit(true);
  size_t posted = 0;
  while (a.post(frame(60), posted)) ++posted;
  EXPECT_EQ(posted, 511u);
  a.driver.kick();
  EXPECT_EQ(a.reclaim(), 0u);
  EXPECT_FALSE(a.post(frame(60)));
  a.model->hold_transmit(false);
  EXPECT_EQ(a.reclaim(), posted);
  EXPECT_EQ(b.receive(1000), posted);
}

TEST_F(E1000e, ForgetsFramesThatAResetCutOff) {
  open();
  a.model->hold_transmit(true);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(a.send(frame(60)));
  ASSERT_TRUE(a.driver.open({}));
  a.model->hold_transmit(false);
  EXPECT_EQ(a.reclaim(), 0u);
  EXPECT_EQ(b.receive(), 0u);
  exchange(60);
}

TEST_F(E1000e, SplitsWhatCrossesAPage) {
  open();
  const auto sent = frame(1000);
  for (const uint64_t offset : {0u, 3096u, 3097u, 4000u, 4095u}) {
    const uint64_t at =
        8192 - a.address() % 4096 + offset;  // the border is somewhere in the frame, or just behind it
    std::copy(sent.begin(), sent.end(), a.memory().begin() + static_cast<ptrdiff_t>(at));
    const Fragment fragment{a.address() + at, 1000};
    const size_t room = a.driver.transmit_room();
    ASSERT_TRUE(a.driver.post(std::span(&fragment, 1), 1));
    EXPECT_EQ(room - a.driver.transmit_room(), offset > 3096 ? 2u : 1u);
    a.driver.kick();
    ASSERT_EQ(b.receive(), 1u);
    EXPECT_EQ(b.frames.back().bytes, sent);
    ASSERT_EQ(a.reclaim(), 1u);
  }
}

TEST_F(E1000e, CountsWhatItMissed) {
  DriverSettings settings;
  settings.receive_descriptors = 32;
  open(settings);
  for (int i = 0; i < 72; ++i) {
    ASSERT_TRUE(a.send(frame(60)));
    a.reclaim();
  }
  EXPECT_EQ(b.driver.counters().frames_missed, 9u);
  EXPECT_EQ(b.driver.counters().frames_missed, 9u);
  EXPECT_EQ(b.receive(), 63u);
}

TEST_F(E1000e, DropsFramesWithErrors) {
  open();
  for (const uint8_t errors : {0x01, 0x02, 0x04, 0x10, 0x80}) {
    b.model->set_errors(errors);
    ASSERT_TRUE(a.send(frame(60)));
    EXPECT_EQ(b.receive(), 0u);
  }
  EXPECT_EQ(b.driver.counters().frames_bad, 5u);
  b.model->set_errors(0);
  a.reclaim();
  exchange(60);
  b.model->set_errors(0x20);  // a wrong checksum of TCP or UDP is for who reads it
  ASSERT_TRUE(a.send(model::udp_frame_of(model::mac_of(2), model::mac_of(1), 10)));
  EXPECT_EQ(b.receive(), 1u);
  EXPECT_FALSE(b.frames.back().is_checked);
}

TEST_F(E1000e, ChecksUdp) {
  open();
  ASSERT_TRUE(a.send(model::udp_frame_of(model::mac_of(2), model::mac_of(1), 100)));
  ASSERT_EQ(b.receive(), 1u);
  EXPECT_TRUE(b.frames.back().is_checked);
}

TEST_F(E1000e, TakesAnIp4PacketForCheckedOnlyWithItsHeader) {
  const uint64_t transport = ReceiveWord::done | ReceiveWord::transport_checked;
  EXPECT_FALSE(ReceiveWord(transport).is_checked(false));
  EXPECT_TRUE(ReceiveWord(transport).is_checked(true));
  EXPECT_TRUE(ReceiveWord(transport | ReceiveWord::ip_checked).is_checked(false));
  EXPECT_FALSE(
      ReceiveWord(transport | ReceiveWord::ip_checked | ReceiveWord::ignore_checksum).is_checked(false));
  EXPECT_FALSE(ReceiveWord(ReceiveWord::ip_checked).is_checked(false));
}

TEST_F(E1000e, FiltersGroupsByHash) {
  open();
  const auto passes = [&](const wire::Mac& mac) {
    EXPECT_TRUE(a.send(model::frame_of(mac, model::mac_of(1), 60)));
    a.reclaim();
    return b.receive() == 1;
  };
  const auto group = [](unsigned n) {
    return wire::Mac{std::byte{1},
                     std::byte{0},
                     std::byte{0x5e},
                     std::byte{0},
                     static_cast<std::byte>(n >> 8),
                     static_cast<std::byte>(n)};
  };
  EXPECT_FALSE(passes(group(0x10)));
  for (unsigned n = 0; n < MulticastFilter::groups_max; ++n) ASSERT_EQ(b.driver.join(group(n)), 0);
  for (unsigned n = 0; n < MulticastFilter::groups_max; ++n) ASSERT_TRUE(passes(group(n))) << n;
  EXPECT_FALSE(passes(group(0xf0)));
  // The table is full: everything passes until the group is left.
  EXPECT_EQ(b.driver.join(group(0xf1)), -ENOSPC);
  EXPECT_TRUE(passes(group(0xf0)));
  b.driver.leave(group(0xf1));
  EXPECT_FALSE(passes(group(0xf0)));
  // Two groups on one bit of the table.
  const wire::Mac twin{std::byte{3}, std::byte{0}, std::byte{0x5e},
                       std::byte{0}, std::byte{0}, std::byte{0x10}};
  b.driver.leave(group(0));
  ASSERT_EQ(b.driver.join(twin), 0);
  b.driver.leave(group(0x10));
  EXPECT_TRUE(passes(twin));
  b.driver.leave(twin);
  EXPECT_FALSE(passes(twin));
}

TEST_F(E1000e, IsQuietInItsRegistersWhenClosed) {
  open();
  ASSERT_TRUE(b.driver.arm() || b.driver.arm());
  b.driver.close();
  EXPECT_EQ(b.model->peek(Ims::at), 0u);
  EXPECT_EQ(b.model->peek(Rctl::at) & Rctl::enable, 0u);
  EXPECT_EQ(b.model->peek(Tctl::at) & Tctl::enable, 0u);
  EXPECT_EQ(b.model->peek(Rdbal::at), 0u);
  EXPECT_EQ(b.bus.host().vectors(), 0u);
}

// --- a card that lies ---

TEST_F(E1000e, StopsADeviceThatWroteMoreThanFits) {
  open();
  b.bus.host().tamper = [](uint64_t, std::span<std::byte> bytes) {
    if (bytes.size() == 8) bytes[0] = bytes[1] = std::byte{0xff};  // the length of a descriptor
    return bytes.size();
  };
  ASSERT_TRUE(a.send(frame(60)));
  EXPECT_EQ(b.receive(), 0u);
  EXPECT_TRUE(b.driver.is_broken());
  EXPECT_EQ(b.model->peek(Rctl::at), 0u);
  EXPECT_FALSE(b.driver.has_link());
  EXPECT_EQ(b.driver.transmit_room(), 0u);
  b.bus.host().tamper = nullptr;
  ASSERT_TRUE(b.driver.open({}));
  EXPECT_FALSE(b.driver.is_broken());
  a.reclaim();
  exchange(60);
}

TEST_F(E1000e, DropsAFrameThatIsShorterThanItsHeader) {
  open();
  b.bus.host().tamper = [](uint64_t, std::span<std::byte> bytes) {
    if (bytes.size() == 8) bytes[0] = std::byte{13};
    return bytes.size();
  };
  ASSERT_TRUE(a.send(frame(60)));
  EXPECT_EQ(b.receive(), 0u);
  EXPECT_EQ(b.driver.counters().frames_bad, 1u);
  EXPECT_FALSE(b.driver.is_broken());
}

TEST_F(E1000e, DoesNotStayWithADeviceThatFillsTheRingForEver) {
  open();
  // Every descriptor says "done" again as soon as it was given back.
  const auto& rings = b.bus.host().iommu.mappings().rbegin()->second;  // mapped last
  auto* const ring = reinterpret_cast<Descriptor*>(rings.memory + 512 * sizeof(Descriptor));
  const auto fill = [&] {
    for (unsigned i = 0; i < 512; ++i) ring[i].word = ReceiveWord::done | ReceiveWord::end_of_packet | 60;
  };
  fill();
  struct Filler {
    void on_frame(std::span<const std::byte>, bool) noexcept { again(); }
    const decltype(fill)& again;
  } filler{fill};
  EXPECT_EQ(b.driver.receive(filler, SIZE_MAX), 512u);
}

TEST_F(E1000e, GivesUpOnADeviceThatNeverLeavesItsReset) {
  a.bus.tamper_read = [](unsigned, size_t offset, uint32_t value) {
    return offset == Ctrl::at ? value | Ctrl::reset : value;
  };
  auto done = a.driver.open({});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, EIO);
  EXPECT_LT(a.bus.waited_us(), 1000000u);
  a.bus.tamper_read = nullptr;
  open();
  exchange(60);
}

}  // namespace
}  // namespace weft::nic
