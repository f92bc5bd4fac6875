// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Transfers without a driver: one descriptor each, legacy formats. Intel 82574 GbE Controller Family Datasheet, sections 7.1.4.1 (receive), 7.2.10.1
// (transmit) and 10.2.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "arch/cpu.hpp"
#include "cases.hpp"
#include "checks.hpp"
#include "os/vfio/device.hpp"

namespace weft::vm {
namespace {

using os::vfio::Device;

constexpr size_t page = 4096;
constexpr size_t frame_bytes = 1000;
constexpr size_t ring_bytes = 128;  // eight descriptors, the least

namespace reg {
constexpr size_t control = 0x0000;           // CTRL
constexpr size_t status = 0x0008;            // STATUS
constexpr size_t mask_clear = 0x00d8;        // IMC
constexpr size_t receive_control = 0x0100;   // RCTL
constexpr size_t transmit_control = 0x0400;  // TCTL
constexpr size_t receive_ring = 0x2800;      // RDBAL, RDBAH, RDLEN; RDH and RDT
constexpr size_t transmit_ring = 0x3800;     // TDBAL, TDBAH, TDLEN; TDH and TDT
constexpr size_t high = 4, length = 8, head = 0x10, tail = 0x18;
constexpr uint32_t reset = 1U << 26;
constexpr uint32_t set_link_up = 1U << 6;
constexpr uint32_t link_up = 1U << 1;
constexpr uint32_t enable = 1U << 1;       // RCTL, TCTL
constexpr uint32_t promiscuous = 3U << 3;  // RCTL: unicast and multicast
constexpr uint32_t broadcast = 1U << 15;   // RCTL: accept
}  // namespace reg

struct Descriptor {
  uint64_t address = 0;
  uint16_t bytes = 0;
  uint8_t offset = 0;
  uint8_t command = 0;
  uint8_t status = 0;  // bit 0: done
  uint8_t field = 0;
  uint16_t special = 0;
};
static_assert(sizeof(Descriptor) == 16);
constexpr uint8_t end_insert_report = 0x0b;  // EOP, IFCS, RS

struct Bench {
  std::unique_ptr<Device> device;
  os::vfio::Registers registers;
  nic::DmaMemory rings;
  volatile Descriptor* transmit;
  uint32_t transmit_tail = 0;

  explicit Bench(const Plan& plan)
      : device(taken(Device::open(plan.address))),
        registers(taken(device->registers(0))),
        rings(taken(device->allocate(page))),
        transmit(reinterpret_cast<volatile Descriptor*>(rings.bytes)) {
    taken(device->set_master(true));
    registers.write32(reg::mask_clear, UINT32_MAX);
    registers.write32(reg::control, registers.read32(reg::control) | reg::reset);
    require(within(milliseconds(1000), [&] { return (registers.read32(reg::control) & reg::reset) == 0; }),
            "CTRL.RST stays");
    registers.write32(reg::mask_clear, UINT32_MAX);
    registers.write32(reg::control, registers.read32(reg::control) | reg::set_link_up);
    ring(reg::transmit_ring, rings.address);
    registers.write32(reg::transmit_control, reg::enable | 1U << 3);
    require(within(milliseconds(8000), [&] { return (registers.read32(reg::status) & reg::link_up) != 0; }),
            "no link");
  }
  ~Bench() {
    registers.write32(reg::receive_control, 0);
    registers.write32(reg::transmit_control, 0);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void ring(size_t at, uint64_t address) {
    registers.write32(at, static_cast<uint32_t>(address));
    registers.write32(at + reg::high, static_cast<uint32_t>(address >> 32));
    registers.write32(at + reg::length, ring_bytes);
    registers.write32(at + reg::head, 0);
    registers.write32(at + reg::tail, 0);
  }
  void send(uint64_t address, size_t bytes) {
    volatile Descriptor& one = transmit[transmit_tail];
    one.address = address;
    one.bytes = static_cast<uint16_t>(bytes);
    one.command = end_insert_report;
    one.status = 0;
    transmit_tail = (transmit_tail + 1) % 8;
    arch::dma_release();
    registers.write32(reg::transmit_ring + reg::tail, transmit_tail);
  }
  // One buffer for the next frame.
  void receive_into(uint64_t address) {
    auto* receive = reinterpret_cast<volatile Descriptor*>(rings.bytes + 1024);
    receive[0].address = address;
    receive[0].status = 0;
    registers.write32(reg::receive_control, 0);
    ring(reg::receive_ring, rings.address + 1024);
    arch::dma_release();
    registers.write32(reg::receive_ring + reg::tail, 1);
    registers.write32(reg::receive_control, reg::enable | reg::promiscuous | reg::broadcast);
  }
};

wire::Mac somebody() {
  return {std::byte{0x52}, std::byte{0x54}, std::byte{0}, std::byte{0x14}, std::byte{0}, std::byte{1}};
}

std::string sends(const Plan& plan, Surroundings& around) {
  Bench bench(plan);
  std::vector<std::byte> memory(3 * page);
  around.wire.drain();
  (void)around.log.faults();
  // Not across the border of two pages (docs/vm.md, what QEMU does).
  std::byte* place =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + page - 1) & ~(page - 1)) +
      500;
  const Frame frame = make_frame(around.wire.mac(), somebody(), frame_bytes, 1);
  std::ranges::copy(frame, place);
  const uint64_t address = taken(bench.device->map(place, frame_bytes, {true, false}));
  // STATUS tells of a link before the negotiation that follows a reset is over; what is sent before its end is lost.
  std::optional<Frame> got;
  for (int attempt = 0; attempt < 20 && !got; ++attempt) {
    bench.send(address, frame_bytes);
    got = around.wire.receive(100);
  }
  const auto before = around.log.faults();
  require(got == frame, "the frame did not come as it was: %s",
          before.empty() ? got ? "another came" : "none came" : before[0].c_str());
  require(before.empty(), "%s", before.empty() ? "" : before[0].c_str());
  // The same address after its end: nothing of the memory leaves.
  around.wire.drain();
  bench.device->unmap(address);
  bench.send(address, frame_bytes);
  const size_t faults = around.log.wait_for_fault();
  require(faults != 0, "reading what was unmapped did not fault");
  while ((got = around.wire.receive(100))) require(*got != frame, "memory that was unmapped was sent");
  return text("%zu faults", faults);
}

std::string receives(const Plan& plan, Surroundings& around) {
  Bench bench(plan);
  std::vector<std::byte> memory(3 * page);
  std::byte* place =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + page - 1) & ~(page - 1));
  const uint64_t address = taken(bench.device->map(place, 2 * page, {}));
  (void)around.log.faults();
  bench.receive_into(address);
  const Frame first = make_frame(somebody(), around.wire.mac(), frame_bytes, 2);
  around.wire.send(first);
  require(within(milliseconds(2000), [&] { return std::equal(first.begin(), first.end(), place); }),
          "nothing came");
  // Unmapped while the device has the buffer: the frame faults, and the memory, which is this process's as before, stays as it is.
  bench.receive_into(address);
  bench.device->unmap(address);
  std::memset(place, 0x5a, 2 * page);
  around.wire.send(make_frame(somebody(), around.wire.mac(), frame_bytes, 3));
  const size_t faults = around.log.wait_for_fault();
  require(faults != 0, "writing to what was unmapped did not fault");
  require(std::all_of(place, place + 2 * page, [](std::byte one) { return one == std::byte{0x5a}; }),
          "memory that was unmapped was written");
  return text("%zu faults", faults);
}

// A device that may only read: its write faults.
std::string rights(const Plan& plan, Surroundings& around) {
  Bench bench(plan);
  std::vector<std::byte> memory(3 * page, std::byte{0x5a});
  std::byte* place =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + page - 1) & ~(page - 1));
  const uint64_t address = taken(bench.device->map(place, page, {true, false}));
  (void)around.log.faults();
  bench.receive_into(address);
  around.wire.send(make_frame(somebody(), around.wire.mac(), frame_bytes, 4));
  require(around.log.wait_for_fault() != 0, "writing to what it may read did not fault");
  require(std::all_of(place, place + page, [](std::byte one) { return one == std::byte{0x5a}; }),
          "written all the same");
  return {};
}

// Maps and unmaps beside traffic: no fault, no frame lost.
std::string unmapping_while_it_runs(const Plan& plan, Surroundings& around) {
  Bench bench(plan);
  std::vector<std::byte> steady(2 * page), changing(64 * page);
  const uint64_t address = taken(bench.device->map(steady.data(), frame_bytes, {}));
  around.wire.drain();
  (void)around.log.faults();
  constexpr unsigned rounds = 200;
  unsigned arrived = 0;
  for (unsigned i = 0; i < rounds; ++i) {
    const uint64_t other =
        taken(bench.device->map(changing.data() + (i % 32) * page, page * (1 + i % 16), {}));
    const Frame frame = make_frame(around.wire.mac(), somebody(), frame_bytes, i);
    std::ranges::copy(frame, steady.begin());
    bench.send(address, frame_bytes);
    bench.device->unmap(other);
    if (around.wire.receive(1000) == frame) ++arrived;
  }
  require(arrived == rounds && around.log.faults().empty(), "%u of %u arrived", arrived, rounds);
  return text("%u frames", arrived);
}

}  // namespace

void transfer_cases(const Plan& plan, Surroundings& around) {
  check("DMA from mapped and unmapped memory", [&] { return sends(plan, around); });
  check("DMA to mapped and unmapped memory", [&] { return receives(plan, around); });
  check("DMA against the mapping's rights", [&] { return rights(plan, around); });
  check("unmapping while the device runs", [&] { return unmapping_while_it_runs(plan, around); });
}

}  // namespace weft::vm
