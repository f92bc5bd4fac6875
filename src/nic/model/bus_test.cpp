// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bus in memory: what the IOMMU lets through, configuration space, interrupts, registers, over a device of one register.
#include "nic/model/bus.hpp"

#include <gtest/gtest.h>

#include <array>

#include "nic/model/hub.hpp"

namespace weft::nic::model {
namespace {

class Toy {
 public:
  Toy() : config_(0x1234, 0x5678) {
    const std::array<std::byte, 2> vectors{std::byte{2}};  // three
    config_.add_capability(capability_msix, vectors);
  }
  void attach(Host* host) noexcept { host_ = host; }
  ConfigSpace& config() noexcept { return config_; }
  size_t bar_bytes(unsigned bar) noexcept { return bar == 1 ? 16 : 0; }
  uint32_t read(unsigned, size_t offset, size_t) noexcept { return offset == 0 ? value_ : 0; }
  void write(unsigned, size_t offset, size_t, uint64_t value) noexcept {
    if (offset == 0) value_ = static_cast<uint32_t>(value);
  }
  bool reset() noexcept {
    value_ = 7;
    return true;
  }
  Host* host_ = nullptr;

 private:
  ConfigSpace config_;
  uint32_t value_ = 7;
};
static_assert(nic::Bus<Bus<Toy>>);

struct ModelBus : testing::Test {
  Toy toy;
  Bus<Toy> bus{toy};
};

TEST_F(ModelBus, HasTheRegistersOfTheModel) {
  EXPECT_FALSE(bus.registers(0));
  auto registers = *bus.registers(1);
  EXPECT_EQ(registers.size(), 16u);
  EXPECT_EQ(registers.read32(0), 7u);
  registers.write32(0, 9);
  EXPECT_EQ(registers.read16(0), 9);
  EXPECT_EQ(bus.accesses().reads, 2u);
  EXPECT_EQ(bus.accesses().writes, 1u);
  ASSERT_TRUE(bus.reset());
  EXPECT_EQ(registers.read32(0), 7u);
  EXPECT_EQ(bus.bad_accesses(), 0u);
  EXPECT_EQ(registers.read32(16), 0xffffffffu);
  EXPECT_EQ(registers.read16(1), 0xffffu);
  EXPECT_EQ(bus.bad_accesses(), 2u);
}

TEST_F(ModelBus, ShowsConfigurationSpace) {
  EXPECT_EQ(bus.read_config(0, 2), 0x1234u);
  EXPECT_EQ(bus.read_config(2, 2), 0x5678u);
  EXPECT_EQ(bus.read_config(256, 4), 0xffffffffu);
  EXPECT_EQ(bus.read_config(255, 2), 0xffffu);
  EXPECT_EQ(bus.read_config(bus.read_config(ConfigSpace::capabilities, 1), 1), capability_msix);
  bus.write_config(0, 2, 0);
  EXPECT_EQ(bus.read_config(0, 2), 0x1234u);
  ASSERT_TRUE(bus.set_master(true));
  EXPECT_EQ(bus.read_config(ConfigSpace::command, 2), 4u);
}

TEST_F(ModelBus, LetsTheDeviceReachWhatIsMapped) {
  std::array<std::byte, 100> memory{};
  const uint64_t address = *bus.map(&memory[1], 98, {});
  std::array<std::byte, 98> bytes;
  bytes.fill(std::byte{1});
  EXPECT_FALSE(toy.host_->write(address, bytes));  // no bus master
  EXPECT_EQ(bus.host().iommu.faults(), 0u);
  ASSERT_TRUE(bus.set_master(true));
  EXPECT_TRUE(toy.host_->write(address, bytes));
  EXPECT_EQ(memory[0], std::byte{0});
  EXPECT_EQ(memory[98], std::byte{1});
  EXPECT_EQ(memory[99], std::byte{0});
  EXPECT_FALSE(toy.host_->write(address + 1, bytes));
  EXPECT_FALSE(toy.host_->write(address - 1, std::span(bytes).first(1)));
  EXPECT_FALSE(toy.host_->write(~uint64_t{0}, bytes));
  EXPECT_EQ(bus.host().iommu.faults(), 3u);
  EXPECT_EQ(memory[99], std::byte{0});
  bus.unmap(address);
  EXPECT_FALSE(toy.host_->read(address, bytes));
  EXPECT_EQ(bus.host().iommu.faults(), 4u);
  EXPECT_EQ(bus.leaked(), 0u);
}

TEST_F(ModelBus, KeepsRightsOfAMapping) {
  ASSERT_TRUE(bus.set_master(true));
  std::array<std::byte, 8> memory{};
  const uint64_t address = *bus.map(memory.data(), 8, {.device_reads = true, .device_writes = false});
  std::array<std::byte, 8> bytes{};
  EXPECT_TRUE(toy.host_->read(address, bytes));
  EXPECT_FALSE(toy.host_->write(address, bytes));
}

TEST_F(ModelBus, AllocatesZeroedPages) {
  DmaMemory memory = *bus.allocate(5000);
  EXPECT_EQ(memory.size, 8192u);
  EXPECT_EQ(memory.address % 4096, 0u);
  for (size_t i = 0; i < memory.size; ++i) ASSERT_EQ(memory.bytes[i], std::byte{0});
  EXPECT_EQ(bus.leaked(), 1u);
  bus.release(memory);
  EXPECT_EQ(memory.bytes, nullptr);
  EXPECT_EQ(bus.leaked(), 0u);
}

TEST_F(ModelBus, CountsInterrupts) {
  ASSERT_TRUE(bus.set_master(true));
  toy.host_->raise(0);
  EXPECT_EQ(bus.host().interrupts(0), 0u);
  EXPECT_EQ(*bus.enable_interrupts(5), 3u);
  EXPECT_TRUE(toy.host_->has_msix());
  int calls = 0;
  bus.host().on_interrupt = [&](unsigned vector) { calls += vector == 2; };
  toy.host_->raise(2);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(bus.host().is_pending(2));
  bus.clear_interrupt(2);
  EXPECT_FALSE(bus.host().is_pending(2));
  bus.disable_interrupts();
  toy.host_->raise(2);
  EXPECT_EQ(bus.host().interrupts(2), 1u);
}

TEST_F(ModelBus, ReadsOnesWhenUnplugged) {
  auto registers = *bus.registers(1);
  bus.unplug();
  EXPECT_EQ(registers.read32(0), 0xffffffffu);
  EXPECT_EQ(registers.read8(0), 0xff);
  EXPECT_EQ(bus.read_config(0, 2), 0xffffu);
}

struct Listener final : Station {
  void on_wire(std::span<const std::byte> frame) noexcept override { bytes += frame.size(); }
  void on_carrier(bool up) noexcept override { is_up = up; }
  size_t bytes = 0;
  bool is_up = false;
};

TEST(ModelHub, GivesAFrameToAllOthers) {
  Hub hub;
  Listener a;
  Listener b;
  Listener c;
  for (Listener* station : {&a, &b, &c}) hub.plug(*station);
  const std::array<std::byte, 60> frame{};
  hub.send(a, frame);
  EXPECT_EQ(a.bytes, 0u);
  EXPECT_EQ(b.bytes, 60u);
  EXPECT_EQ(c.bytes, 60u);
  hub.set_carrier(c, false);
  EXPECT_FALSE(c.is_up);
  hub.send(a, frame);
  EXPECT_EQ(b.bytes, 120u);
  EXPECT_EQ(c.bytes, 60u);
  hub.send(c, frame);
  EXPECT_EQ(a.bytes, 0u);
  hub.unplug(b);
  EXPECT_FALSE(b.is_up);
}

}  // namespace
}  // namespace weft::nic::model
