// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An errno, what was asked for, what is allowed, who has it: one sentence.
#include "os/vfio/refusal.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace weft::os::vfio {
namespace {

int code_of(pci::Need need) noexcept {
  switch (need) {
    case pci::Need::iommu:
    case pci::Need::group:
      return ENOTSUP;
    case pci::Need::isolation:
      return EPERM;
    case pci::Need::modules:
    case pci::Need::character_device:
      return ENXIO;
    case pci::Need::driver:
    case pci::Need::group_mates:
      return EBUSY;
    case pci::Need::permission:
      return EACCES;
  }
  return EINVAL;
}

std::string holders_text(const pci::Function& function, const std::string& root) {
  std::string text;
  for (const pci::Holder& one : pci::group_holders(function, root))
    text += (text.empty() ? "" : ", ") + std::to_string(one.pid) + " (" + one.name + ")";
  return text.empty() ? "another process, which this user cannot see" : "process " + text;
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  static constexpr const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  uint64_t tenths = bytes >= UINT64_MAX / 10 ? UINT64_MAX / 10 * 10 : bytes * 10;
  for (; tenths >= 10240 && unit + 1 < std::size(units); ++unit) tenths /= 1024;
  std::string text = std::to_string(tenths / 10);
  if (unit != 0 && tenths % 10 != 0) {
    text += '.';
    text += static_cast<char>('0' + tenths % 10);
  }
  return text + " " + units[unit];
}

LockedMemory locked_memory() {
  LockedMemory memory;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    memory.limit = limit.rlim_cur;
  const std::string status = pci::detail::read_file("/proc/self/status", 16384).value_or("");
  if (const size_t at = status.find("VmLck:"); at != std::string::npos)
    memory.locked = std::strtoull(status.c_str() + at + std::strlen("VmLck:"), nullptr, 10) * 1024;
  return memory;
}

Error map_refusal(int code, uint64_t bytes, const LockedMemory& memory, size_t mappings,
                  size_t mappings_max) {
  const std::string wanted = "cannot map " + bytes_text(bytes) + " for DMA: ";
  if (code == ENOSPC)
    return {code, wanted + std::to_string(mappings) + " of " + std::to_string(mappings_max) +
                      " mappings are in use (vfio_iommu_type1's dma_entry_limit)"};
  if (code == ENOMEM && memory.limit != UINT64_MAX)
    return {code, wanted + bytes_text(memory.locked) + " are locked already, and this process may lock " +
                      bytes_text(memory.limit) + " (ulimit -l)"};
  if (code == EFAULT)
    return {code, wanted + "not all of it is memory of this process that the device may have"};
  return {code, wanted + std::strerror(code)};
}

Error obstacle_refusal(const pci::Function& function, const std::vector<pci::Obstacle>& obstacles) {
  const pci::Obstacle& first = obstacles.front();
  std::string why = function.address + " cannot be used: " + first.what + "; " + first.remedy;
  if (obstacles.size() > 1)
    why += " (and " + std::to_string(obstacles.size() - 1) + " more: weft nic info " + function.address + ")";
  return {code_of(first.need), why};
}

Error group_refusal(int code, const char* step, const pci::Function& function, const std::string& root) {
  const std::string group =
      function.address + ": IOMMU group " + std::to_string(function.group.value_or(0)) + " ";
  if (code == EBUSY) return {code, group + "is held by " + holders_text(function, root)};
  if (code == EPERM && std::strcmp(step, "VFIO_SET_IOMMU") == 0)
    return {code, group +
                      "cannot be isolated: the IOMMU does not remap interrupts (QEMU: intremap=on); "
                      "vfio_iommu_type1's allow_unsafe_interrupts would do without"};
  for (pci::Obstacle& one : pci::obstacles(function, root))
    if ((code == EACCES && one.need == pci::Need::permission) ||
        (code == ENOENT && one.need == pci::Need::character_device))
      return obstacle_refusal(function, {one});
  return {code, group + "cannot be opened: " + step + ": " + std::strerror(code)};
}

}  // namespace weft::os::vfio
