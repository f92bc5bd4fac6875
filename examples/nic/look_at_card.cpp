// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opens an Intel 82574 by VFIO, shows its registers, rings and statistics, and posts a transmit descriptor itself: a frame of 60 bytes to
// everybody, of a type that nobody knows.
//
//   weft nic bind 0000:00:04.0
//   look_at_card 0000:00:04.0
//
//   c++ -std=c++20 look_at_card.cpp $(pkg-config --cflags --libs weft-direct-nic)
#include <weft/direct/nic_e1000e.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace {

namespace card = weft::direct::nic_e1000e;
using namespace card::hardware;

void show_registers(const card::Driver::View& view) {
  const auto show = [&](const char* name, size_t at) {
    std::printf("  %-7s %08x\n", name, view.registers.read32(at));
  };
  std::printf("registers\n");
  show("CTRL", Ctrl::at);
  show("STATUS", Status::at);
  show("RCTL", Rctl::at);
  show("TCTL", Tctl::at);
  show("RDH", Rdh::at);
  show("RDT", Rdt::at);
  show("TDH", Tdh::at);
  show("TDT", Tdt::at);
}

void show_descriptors(const char* name, std::span<const Descriptor> ring) {
  std::printf("%s ring: %zu descriptors\n", name, ring.size());
  for (size_t i = 0; i < 4; ++i)
    std::printf("  %zu: address %016llx, word %016llx\n", i, static_cast<unsigned long long>(ring[i].address),
                static_cast<unsigned long long>(load_device_word(ring[i].word)));
}

// 7.2.10: a legacy descriptor of a whole frame, then the tail, which lets the card read it.
bool post(card::Bus& bus, const card::Driver::View& view, const weft::nic::DmaMemory& frame, size_t bytes) {
  const auto size = static_cast<uint32_t>(view.transmit.size());
  const uint32_t tail =
      view.registers.read32(Tdt::at) % size;  // the card says it: bounded, as all that it says
  Descriptor& descriptor = view.transmit[tail];
  descriptor = {frame.address,
                bytes | TransmitWord::end_of_packet | TransmitWord::insert_fcs | TransmitWord::report_status};
  weft::arch::dma_release();
  view.registers.write32(Tdt::at, (tail + 1) % size);
  for (int looks = 0; looks < 1000; ++looks) {
    if ((load_device_word(descriptor.word) & TransmitWord::done) != 0) return true;
    bus.wait_us(100);
  }
  return false;
}

int drive(const char* address) {
  auto bus = card::Bus::open(address);
  if (!bus) return std::fprintf(stderr, "%s\n", bus.error().why.c_str()), 1;
  const auto& function = (*bus)->function();
  if (!card::Driver::drives(function.vendor, function.device))
    return std::fprintf(stderr, "%s is no card of the driver %s\n", address, card::Driver::name), 1;
  card::Driver driver(**bus);
  if (auto opened = driver.open({}); !opened)
    return std::fprintf(stderr, "%s\n", opened.error().why.c_str()), 1;
  for (int looks = 0; looks < 300 && !driver.has_link(); ++looks) (*bus)->wait_us(10'000);
  std::printf("%s, link %s\n", card::Driver::name, driver.has_link() ? "up" : "down");

  const auto view = driver.view();
  show_registers(*view);
  show_descriptors("receive", view->receive);
  auto frame = (*bus)->allocate(60);
  if (!frame) return std::fprintf(stderr, "%s\n", frame.error().why.c_str()), 1;
  std::fill_n(frame->bytes, 6, std::byte{0xff});
  const auto mac = driver.mac();
  std::copy(mac.begin(), mac.end(), frame->bytes + 6);
  frame->bytes[12] = std::byte{0x88};  // 0x88b5: IEEE 802 local experimental
  frame->bytes[13] = std::byte{0xb5};
  std::memcpy(frame->bytes + 14, "posted by hand", 14);
  const bool is_sent = post(**bus, *view, *frame, 60);
  std::printf("a descriptor posted by hand: %s\n", is_sent ? "done" : "the card did not come to it");
  show_descriptors("transmit", view->transmit);

  // The program has taken the driver's place at the transmit ring: it is the driver's again after open().
  (void)driver.open({});
  const auto counters = driver.counters();
  std::printf("statistics: %llu frames received, %llu missed\n",
              static_cast<unsigned long long>(counters.frames_received),
              static_cast<unsigned long long>(counters.frames_missed));
  driver.close();
  (*bus)->release(*frame);
  return is_sent ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count == 2) return drive(words[1]);
  std::fprintf(stderr, "usage: look_at_card PCI-ADDRESS\n");
  return 2;
}
