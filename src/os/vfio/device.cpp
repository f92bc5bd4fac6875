// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ioctls of a device, its memory and its interrupts. linux/vfio.h; PCI Local Bus Specification 3.0, section 6.2.2 (command register).
#include "os/vfio/device.hpp"

#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "os/vfio/refusal.hpp"

namespace weft::os::vfio {
namespace {

constexpr size_t command_offset = 0x04;
constexpr uint32_t command_memory = 1U << 1;
constexpr uint32_t command_master = 1U << 2;

constexpr size_t huge_page_bytes = 2U << 20;
// A reset gives up when somebody else works on the device's configuration space.
constexpr int reset_attempts = 20;
constexpr timespec reset_pause = {0, 10'000'000};

unsigned vectors_of(int device_fd, uint32_t index) noexcept {
  vfio_irq_info info{};
  info.argsz = sizeof info;
  info.index = index;
  if (::ioctl(device_fd, VFIO_DEVICE_GET_IRQ_INFO, &info) != 0) return 0;
  return (info.flags & VFIO_IRQ_INFO_EVENTFD) != 0 ? info.count : 0;
}

size_t page_bytes() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

size_t round_up(size_t value, size_t power) noexcept { return (value + power - 1) & ~(power - 1); }

// Zeroed memory of whole pages, of huge ones if it is large and the system has some set aside (hugetlb). Otherwise the system is asked to join
// pages: aligned, they may become huge by themselves.
std::byte* take_memory(size_t bytes) noexcept {
  constexpr int protection = PROT_READ | PROT_WRITE;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (bytes % huge_page_bytes != 0) {
    void* at = ::mmap(nullptr, bytes, protection, flags, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  constexpr int huge_2m = 21 << MAP_HUGE_SHIFT;
  if (void* at = ::mmap(nullptr, bytes, protection, flags | MAP_HUGETLB | huge_2m, -1, 0); at != MAP_FAILED)
    return static_cast<std::byte*>(at);
  void* at = ::mmap(nullptr, bytes + huge_page_bytes, protection, flags, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(at);
  const size_t before =
      (huge_page_bytes - reinterpret_cast<uintptr_t>(begin) % huge_page_bytes) % huge_page_bytes;
  if (before != 0) ::munmap(begin, before);
  if (before != huge_page_bytes) ::munmap(begin + before + bytes, huge_page_bytes - before);
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

Result<std::unique_ptr<Device>> Device::open(std::string_view address, const DeviceSettings& settings) {
  const auto canonical = pci::address_of(address);
  if (!canonical)
    return Error{EINVAL, std::string(address) + " is no address of a PCI function (0000:00:04.0)"};
  auto function = pci::function_at(*canonical, settings.root);
  if (!function) return Error{ENODEV, "there is no PCI function " + *canonical};
  // What sysfs shows; whether the group is viable and may be opened the kernel says itself.
  auto obstacles = pci::obstacles(*function, settings.root);
  std::erase_if(obstacles, [](const pci::Obstacle& one) {
    return one.need == pci::Need::group_mates || one.need == pci::Need::permission;
  });
  if (!obstacles.empty()) return obstacle_refusal(*function, obstacles);
  auto container = Container::open();
  if (!container) return container.error();
  auto group = Group::open(*function, *container, settings.address_bits, settings.root);
  if (!group) return group.error();
  auto fd = group->device(*function);
  if (!fd) return fd.error();
  std::unique_ptr<Device> device(
      new Device(std::move(*function), std::move(*container), std::move(*group), std::move(*fd)));
  device->use_msix_ = settings.use_msix;
  if (auto ready = device->check_all(); !ready) return ready.error();
  return device;
}

Device::Device(pci::Function function, Container container, Group group, Fd fd)
    : function_(std::move(function)),
      container_(std::move(container)),
      group_(std::move(group)),
      fd_(std::move(fd)) {}

Device::~Device() {
  if (!origin_.is_here()) return;
  // Refused, or not: closing the device does the same.
  [[maybe_unused]] const auto quiet = set_master(false);
  disable_interrupts();
  [[maybe_unused]] const auto clean = reset();
  container_.unmap_all();
  for (const auto& [address, memory] : memory_) ::munmap(memory.bytes, memory.size);
  for (Region& bar : bars_) bar.unmap();
}

Error Device::refused(int code, const std::string& what) const {
  return {code, function_.address + ": " + what + ": " + std::strerror(code)};
}

Result<void> Device::check_all() {
  vfio_device_info info{};
  info.argsz = sizeof info;
  if (::ioctl(fd_.get(), VFIO_DEVICE_GET_INFO, &info) != 0) return refused(errno, "VFIO_DEVICE_GET_INFO");
  if ((info.flags & VFIO_DEVICE_FLAGS_PCI) == 0) return refused(ENOTSUP, "not a PCI device");
  has_reset_ = (info.flags & VFIO_DEVICE_FLAGS_RESET) != 0;
  if (const int code = config_.open(fd_.get(), VFIO_PCI_CONFIG_REGION_INDEX); code != 0)
    return refused(code, "VFIO_DEVICE_GET_REGION_INFO of the configuration space");
  for (unsigned bar = 0; bar < bars_max; ++bar)
    if (const int code = bars_[bar].open(fd_.get(), VFIO_PCI_BAR0_REGION_INDEX + bar); code != 0)
      return refused(code, "VFIO_DEVICE_GET_REGION_INFO of BAR " + std::to_string(bar));
  msi_vectors_ = vectors_of(fd_.get(), VFIO_PCI_MSI_IRQ_INDEX);
  msix_vectors_ = vectors_of(fd_.get(), VFIO_PCI_MSIX_IRQ_INDEX);
  return set_master(false);
}

unsigned Device::vectors_max(Interrupts kind) const noexcept {
  return kind == Interrupts::msix ? msix_vectors_ : kind == Interrupts::msi ? msi_vectors_ : 0;
}

Result<Registers> Device::registers(unsigned bar) {
  if (bar >= bars_max || bars_[bar].size() == 0)
    return Error{ENODEV, function_.address + " has no BAR " + std::to_string(bar)};
  bars_[bar].map();
  return Registers(bars_[bar]);
}

uint32_t Device::read_config(size_t offset, size_t bytes) const {
  if (bytes != 1 && bytes != 2 && bytes != 4) return UINT32_MAX;
  return static_cast<uint32_t>(config_.read(offset, static_cast<unsigned>(bytes)));
}

void Device::write_config(size_t offset, size_t bytes, uint32_t value) {
  if (bytes != 1 && bytes != 2 && bytes != 4) return;
  if (offset <= command_offset && command_offset - offset < bytes)
    value |= command_memory << (8 * (command_offset - offset));
  config_.write(offset, static_cast<unsigned>(bytes), value);
}

Result<void> Device::set_master(bool on) {
  const uint32_t before = read_config(command_offset, 2);
  write_config(command_offset, 2, on ? before | command_master : before & ~command_master);
  const uint32_t after = read_config(command_offset, 2);
  if (after == 0xffff || ((after & command_master) != 0) != on)
    return refused(EIO, "the command register does not take the bus master bit");
  return {};
}

Result<void> Device::reset() {
  if (!has_reset_) return Error{ENOTSUP, function_.address + " has no reset of a single function"};
  for (int attempt = 0; attempt < reset_attempts; ++attempt) {
    if (::ioctl(fd_.get(), VFIO_DEVICE_RESET) == 0) return {};
    if (errno != EAGAIN) break;
    ::nanosleep(&reset_pause, nullptr);
    errno = EAGAIN;
  }
  return refused(errno, "VFIO_DEVICE_RESET");
}

Result<nic::DmaMemory> Device::allocate(size_t bytes) {
  const size_t page = bytes >= huge_page_bytes ? huge_page_bytes : page_bytes();
  if (bytes == 0 || bytes > SIZE_MAX / 4) return refused(EINVAL, "memory for DMA of " + bytes_text(bytes));
  const size_t whole = round_up(bytes, std::max<size_t>(page, limits().granule));
  std::byte* at = take_memory(whole);
  if (at == nullptr) return refused(errno, "memory for DMA of " + bytes_text(whole));
  ::madvise(at, whole, MADV_DONTFORK);
  auto address = container_.map(at, whole, {});
  if (!address) {
    ::munmap(at, whole);
    return Error{address.error().code, function_.address + ": " + address.error().why};
  }
  const nic::DmaMemory memory{at, *address, whole};
  memory_.emplace(*address, memory);
  return memory;
}

void Device::release(nic::DmaMemory& memory) noexcept {
  const auto held = memory_.find(memory.address);
  if (held != memory_.end() && held->second.bytes == memory.bytes) {
    container_.unmap(held->first);
    ::munmap(held->second.bytes, held->second.size);
    memory_.erase(held);
  }
  memory = {};
}

Result<uint64_t> Device::map(const void* memory, size_t bytes, nic::DmaAccess access) {
  auto address = container_.map(memory, bytes, access);
  if (!address) return Error{address.error().code, function_.address + ": " + address.error().why};
  return address;
}

int Device::set_vectors(uint32_t index, const std::vector<int>& fds) noexcept {
  alignas(vfio_irq_set) std::array<std::byte, sizeof(vfio_irq_set) + 64 * sizeof(int32_t)> bytes{};
  const size_t count = std::min<size_t>(fds.size(), 64);
  vfio_irq_set head{};
  head.argsz = static_cast<uint32_t>(sizeof head + count * sizeof(int32_t));
  head.flags =
      VFIO_IRQ_SET_ACTION_TRIGGER | (count == 0 ? VFIO_IRQ_SET_DATA_NONE : VFIO_IRQ_SET_DATA_EVENTFD);
  head.index = index;
  head.count = static_cast<uint32_t>(count);
  std::memcpy(bytes.data(), &head, sizeof head);
  if (count != 0) std::memcpy(bytes.data() + sizeof head, fds.data(), count * sizeof(int32_t));
  const int status = ::ioctl(fd_.get(), VFIO_DEVICE_SET_IRQS, bytes.data());
  return status < 0 ? -errno : status;
}

Result<unsigned> Device::enable_interrupts(unsigned count) {
  disable_interrupts();
  const Interrupts kind = use_msix_ && msix_vectors_ != 0 ? Interrupts::msix : Interrupts::msi;
  count = std::min({count, vectors_max(kind), 64U});
  if (count == 0) return refused(ENOTSUP, "no interrupts by messages (MSI, MSI-X)");
  std::vector<Event> events;
  std::vector<int> fds;
  while (events.size() < count) {
    auto event = Event::create();
    if (!event) return event.error();
    fds.push_back(event->fd());
    events.push_back(std::move(*event));
  }
  // The kernel takes all vectors or tells how many there are.
  const uint32_t index = kind == Interrupts::msix ? VFIO_PCI_MSIX_IRQ_INDEX : VFIO_PCI_MSI_IRQ_INDEX;
  int status = set_vectors(index, fds);
  if (status > 0 && static_cast<unsigned>(status) < count) {
    events.erase(events.begin() + status, events.end());
    fds.resize(static_cast<size_t>(status));
    status = set_vectors(index, fds);
  }
  if (status != 0) return refused(status < 0 ? -status : EIO, "VFIO_DEVICE_SET_IRQS");
  events_ = std::move(events);
  interrupts_ = kind;
  return static_cast<unsigned>(events_.size());
}

int Device::interrupt_fd(unsigned vector) const noexcept {
  return vector < events_.size() ? events_[vector].fd() : -1;
}

void Device::wait_us(unsigned us) noexcept {
  timespec left{static_cast<time_t>(us / 1'000'000), static_cast<long>(us % 1'000'000) * 1000};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

void Device::clear_interrupt(unsigned vector) noexcept {
  if (vector < events_.size()) events_[vector].drain();
}

void Device::disable_interrupts() noexcept {
  if (interrupts_ == Interrupts::none) return;
  set_vectors(interrupts_ == Interrupts::msix ? VFIO_PCI_MSIX_IRQ_INDEX : VFIO_PCI_MSI_IRQ_INDEX, {});
  interrupts_ = Interrupts::none;
  events_.clear();
}

}  // namespace weft::os::vfio
