// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why a device was not to be had, in words. Pure but for locked_memory(). Must not know who asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <weft/pci.hpp>

#include "base/result.hpp"

namespace weft::os::vfio {

// "4096 bytes", "64 KiB", "3.5 GiB".
std::string bytes_text(uint64_t bytes);

struct LockedMemory {
  uint64_t limit = UINT64_MAX;  // RLIMIT_MEMLOCK, in bytes; UINT64_MAX: none
  uint64_t locked = 0;          // VmLck of this process
};
LockedMemory locked_memory();

// What VFIO_IOMMU_MAP_DMA answered for so many bytes, as one sentence. `mappings` are there, of `mappings_max`.
Error map_refusal(int code, uint64_t bytes, const LockedMemory& memory, size_t mappings, size_t mappings_max);

// Of what stands in the way of a function, the first; and how many more.
Error obstacle_refusal(const pci::Function& function, const std::vector<pci::Obstacle>& obstacles);
// The kernel's errno for a step of opening a group, explained by what sysfs says.
Error group_refusal(int code, const char* step, const pci::Function& function, const std::string& root);

}  // namespace weft::os::vfio
