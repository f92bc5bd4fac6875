// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// os::vfio::Device, case by case. Registers of the 82574: Intel 82574 GbE Controller Family Datasheet, section 10.2.
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cases.hpp"
#include "checks.hpp"
#include "os/vfio/device.hpp"

namespace weft::vm {
namespace {

using os::vfio::Device;
using os::vfio::DeviceSettings;

constexpr size_t page = 4096;

namespace reg {
constexpr size_t control = 0x0000;  // CTRL, 10.2.2.1
constexpr uint32_t control_reset = 1U << 26;
constexpr size_t status = 0x0008;         // 10.2.2.2
constexpr size_t cause_set = 0x00c8;      // ICS, 10.2.4.3
constexpr size_t mask_set = 0x00d0;       // IMS, 10.2.4.4
constexpr size_t mask_clear = 0x00d8;     // IMC, 10.2.4.5
constexpr size_t cause = 0x00c0;          // ICR, 10.2.4.1
constexpr size_t vectors = 0x00e4;        // IVAR, 10.2.4.9
constexpr size_t receive_delay = 0x2820;  // RDTR, 10.2.5.11
constexpr uint32_t receive_queue_0 = 1U << 20;
constexpr uint32_t receive_threshold = 1U << 4;  // a cause that nothing raises here
constexpr uint32_t vector_0_for_receive_0 = 8U;
}  // namespace reg

std::unique_ptr<Device> open(const Plan& plan, const DeviceSettings& settings = {}) {
  return taken(Device::open(plan.address, settings));
}

// By the device's own bit: where the only reset of the function is one by power states, a device may keep its registers (QEMU does).
void reset_by_register(os::vfio::Registers registers) {
  registers.write32(reg::mask_clear, UINT32_MAX);
  registers.write32(reg::control, registers.read32(reg::control) | reg::control_reset);
  require(
      within(milliseconds(1000), [&] { return (registers.read32(reg::control) & reg::control_reset) == 0; }),
      "CTRL.RST stays");
  registers.write32(reg::mask_clear, UINT32_MAX);
  registers.write32(reg::cause, UINT32_MAX);
}

bool is_raised(int fd, int timeout_ms) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, timeout_ms) == 1;
}

std::string limits(const Plan& plan) {
  const auto device = open(plan);
  const os::vfio::IommuLimits& limits = device->limits();
  require(limits.granule == page, "granule %lu", limits.granule);
  require((limits.page_sizes & page) != 0, "page sizes %lx", limits.page_sizes);
  for (const os::vfio::IovaRange& one : limits.ranges)
    require(one.last < 0xfee00000 || one.first > 0xfeefffff, "the interrupts' window lies in %lx-%lx",
            one.first, one.last);
  require(limits.mappings_max == 65535, "%u mappings", limits.mappings_max);
  std::string ranges;
  for (const os::vfio::IovaRange& one : limits.ranges) ranges += text(" %lx-%lx", one.first, one.last);
  return text("group %u, addresses%s", device->function().group.value_or(0), ranges.c_str());
}

std::string configuration(const Plan& plan) {
  const auto device = open(plan);
  require(device->read_config(0, 2) == device->function().vendor &&
              device->read_config(2, 2) == device->function().device,
          "ids %08x", device->read_config(0, 4));
  require(device->read_config(4096, 4) == UINT32_MAX && device->read_config(SIZE_MAX, 1) == UINT32_MAX &&
              device->read_config(0, 3) == UINT32_MAX,
          "beyond the end");
  require((device->read_config(4, 2) & 4U) == 0, "it may do DMA after open");
  taken(device->set_master(true));
  require((device->read_config(4, 2) & 4U) != 0, "bus master does not stay");
  taken(device->set_master(false));
  device->write_config(4, 2, 0);
  require((device->read_config(4, 2) & 2U) != 0, "its memory space could be switched off");
  taken(device->registers(device->function().vendor == 0x8086 ? 0 : 4));
  return {};
}

std::string registers_of(const Plan& plan, bool is_e1000e) {
  const auto device = open(plan);
  std::string sizes;
  for (unsigned bar = 0; bar < 6; ++bar) {
    auto registers = device->registers(bar);
    if (!registers) continue;
    const size_t bytes = registers->size();
    sizes += text(" %u:%zu/%lu", bar, bytes, device->mapped_bytes(bar));
    require(registers->read32(bytes) == UINT32_MAX && registers->read32(SIZE_MAX - 3) == UINT32_MAX &&
                registers->read8(SIZE_MAX) == 0xff,
            "BAR %u beyond its end", bar);
    registers->write32(bytes, 1);
    (void)registers->read32(0);
  }
  require(!device->registers(6), "BAR 6");
  if (is_e1000e) {
    auto mapped = taken(device->registers(0));
    require(mapped.size() == 131072 && device->mapped_bytes(0) == 131072, "BAR 0");
    require(mapped.read32(reg::status) != UINT32_MAX, "status");
    // The same register by the I/O ports, which cannot be mapped (10.1.1.3.1: IOADDR, IODATA).
    auto ports = taken(device->registers(2));
    require(device->mapped_bytes(2) == 0, "ports are mapped");
    mapped.write32(reg::receive_delay, 0x123);
    ports.write32(0, reg::receive_delay);
    require(ports.read32(4) == 0x123, "by ports: %x", ports.read32(4));
  }
  return "bytes/mapped" + sizes;
}

std::string resets(const Plan& plan, bool is_e1000e) {
  const auto device = open(plan);
  auto result = device->reset();
  if (!device->has_reset()) {
    require(!result && result.error().code == ENOTSUP, "a reset that is not there");
    return "has none, and says so";
  }
  std::string note;
  if (is_e1000e) {
    auto registers = taken(device->registers(0));
    registers.write32(reg::receive_delay, 0x123);
    taken(device->reset());
    // A reset by power states, which is what this one has, leaves QEMU's registers alone.
    note = registers.read32(reg::receive_delay) == 0 ? "registers are as after power on" : "registers stay";
    require(registers.read32(reg::status) != UINT32_MAX, "no registers after a reset");
  }
  for (int i = 0; i < 10; ++i) taken(device->reset());
  require((device->read_config(4, 2) & 2U) != 0, "the memory space is off after a reset");
  return note;
}

std::string interrupts(const Plan& plan, bool is_e1000e, bool msix) {
  const auto device = open(plan, {.use_msix = msix});
  if (is_e1000e) reset_by_register(taken(device->registers(0)));
  const auto kind = msix ? Device::Interrupts::msix : Device::Interrupts::msi;
  if (device->vectors_max(kind) == 0) return "has none";
  const unsigned count = taken(device->enable_interrupts(64));
  require(device->interrupts() == kind, "another kind");
  require(count == device->vectors_max(kind), "%u of %u", count, device->vectors_max(kind));
  require(device->interrupt_fd(count) == -1, "a vector too many");
  if (is_e1000e) {
    auto registers = taken(device->registers(0));
    taken(device->set_master(true));  // messages are writes
    const uint32_t cause = msix ? reg::receive_queue_0 : reg::receive_threshold;
    registers.write32(reg::vectors, reg::vector_0_for_receive_0);
    // Masked, its cause cleared (written ones clear, 10.2.4.1), and nothing under way any more.
    const auto quieten = [&] {
      registers.write32(reg::mask_clear, UINT32_MAX);
      registers.write32(reg::cause, UINT32_MAX);
      do device->clear_interrupt(0);
      while (is_raised(device->interrupt_fd(0), 20));
    };
    for (int i = 0; i < 20; ++i) {
      quieten();
      registers.write32(reg::mask_set, cause);
      require(!is_raised(device->interrupt_fd(0), 0), "raised by itself");
      registers.write32(reg::cause_set, cause);
      require(is_raised(device->interrupt_fd(0), 1000), "number %d does not come", i);
    }
    quieten();
    registers.write32(reg::cause_set, cause);
    require(!is_raised(device->interrupt_fd(0), 50), "raised though masked");
    reset_by_register(registers);
  }
  require(taken(device->enable_interrupts(1)) == 1, "again, with one");
  device->disable_interrupts();
  require(device->interrupt_fd(0) == -1, "a descriptor is left");
  return text("%u vectors", count);
}

std::string mappings(const Plan& plan) {
  const auto device = open(plan);
  std::vector<std::byte> memory(64 * page);
  auto* begin =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + page - 1) & ~(page - 1));
  const uint64_t a = taken(device->map(begin + 100, 50, {}));
  const uint64_t b = taken(device->map(begin + 300, 50, {}));
  require(a % page == 100 && b == a + 200 && device->mappings() == 1,
          "two buffers of a page: %lx %lx, %zu mappings", a, b, device->mappings());
  const uint64_t c = taken(device->map(begin, 3 * page, {}));
  require(device->mappings() == 2, "overlap shares");
  device->unmap(a);
  require(device->mappings() == 2, "unmapped although used");
  device->unmap(b);
  require(device->mappings() == 1, "not unmapped");
  device->unmap(c);
  device->unmap(c);
  device->unmap(12345);
  require(device->mappings() == 0, "not empty");
  require(!device->map(begin, 0, {}) && !device->map(begin, SIZE_MAX, {}) &&
              !device->map(begin, page, {false, false}),
          "nonsense is mapped");
  auto nowhere = device->map(nullptr, page, {});
  require(!nowhere && nowhere.error().code == EFAULT, "memory that is not there: %s",
          nowhere ? "mapped" : nowhere.error().why.c_str());
  static const char constant[page * 2] = "read only";
  require(!device->map(constant, sizeof constant, {}), "read-only memory, for writing");
  device->unmap(taken(device->map(constant, sizeof constant, {true, false})));
  return {};
}

std::string allocations(const Plan& plan) {
  const auto device = open(plan);
  std::vector<nic::DmaMemory> all;
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5000}, size_t{2} << 20, size_t{3} << 20}) {
    nic::DmaMemory memory = taken(device->allocate(bytes));
    require(memory.size >= bytes && memory.size % page == 0 && memory.address % page == 0, "%zu bytes",
            bytes);
    require(bytes < (2U << 20) || memory.address % (2U << 20) == 0, "%lx is not aligned for large pages",
            memory.address);
    require(std::all_of(memory.bytes, memory.bytes + memory.size,
                        [](std::byte one) { return one == std::byte{}; }),
            "not zeroed");
    std::memset(memory.bytes, 1, memory.size);
    all.push_back(memory);
  }
  for (nic::DmaMemory& memory : all) device->release(memory);
  require(device->mappings() == 0 && all[0].bytes == nullptr, "left");
  nic::DmaMemory foreign{reinterpret_cast<std::byte*>(0x1000), 0x1000, page};
  device->release(foreign);
  return {};
}

// Of an ordinary user, who may lock 8 MiB.
std::string locked_memory(const Plan& plan) {
  const auto device = open(plan);
  auto memory = device->allocate(64U << 20);
  require(!memory && memory.error().code == ENOMEM, "64 MiB were given");
  const std::string& why = memory.error().why;
  require(why.find("64 MiB") != std::string::npos && why.find("8 MiB (ulimit -l)") != std::string::npos, "%s",
          why.c_str());
  nic::DmaMemory small = taken(device->allocate(1U << 20));
  device->release(small);
  return why;
}

// The module's limit, which a container has from when it was opened.
std::string mapping_limit(const Plan& plan) {
  const char* path = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
  const auto write = [&](const char* value) {
    FILE* file = std::fopen(path, "w");
    require(file != nullptr && std::fputs(value, file) >= 0, "%s", path);
    std::fclose(file);
  };
  write("64");
  const auto device = open(plan);
  write("65535");
  std::vector<std::byte> memory(80 * page);
  std::vector<uint64_t> held;
  for (size_t i = 0; i < 70; ++i) {
    auto address = device->map(memory.data() + i * page, 1, {});
    if (address) {
      held.push_back(*address);
      continue;
    }
    require(held.size() == 64 && address.error().code == ENOSPC, "after %zu: %s", held.size(),
            address.error().why.c_str());
    device->unmap(held.back());
    taken(device->map(memory.data() + i * page, 1, {}));
    return address.error().why;
  }
  throw Failure("no limit");
}

std::string fork_leaves_it_alone(const Plan& plan) {
  const auto device = open(plan);
  nic::DmaMemory memory = taken(device->allocate(page));
  taken(device->set_master(true));
  const pid_t child = ::fork();
  if (child == 0) {
    device->~Device();
    ::_exit(0);
  }
  int status = 0;
  require(::waitpid(child, &status, 0) == child && WIFEXITED(status), "the child did not end well");
  require((device->read_config(4, 2) & 4U) != 0 && device->mappings() == 1,
          "the child has changed the device");
  memory.bytes[0] = std::byte{1};
  return {};
}

}  // namespace

void device_cases(const Plan& plan, Surroundings&, bool is_e1000e) {
  check("limits of the IOMMU", [&] { return limits(plan); });
  check("configuration space", [&] { return configuration(plan); });
  check("registers", [&] { return registers_of(plan, is_e1000e); });
  check("reset", [&] { return resets(plan, is_e1000e); });
  check("MSI-X", [&] { return interrupts(plan, is_e1000e, true); });
  check("MSI", [&] { return interrupts(plan, is_e1000e, false); });
  check("mappings", [&] { return mappings(plan); });
  check("memory for DMA", [&] { return allocations(plan); });
  if (plan.is_user) check("limit of locked memory", [&] { return locked_memory(plan); });
  else check("limit of mappings", [&] { return mapping_limit(plan); });
  check("a child of fork", [&] { return fork_leaves_it_alone(plan); });
}

}  // namespace weft::vm
