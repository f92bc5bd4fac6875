// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What follows the fixed part of a VFIO info structure: a chain of capabilities (linux/vfio.h, struct vfio_info_cap_header). Pure; reads
// nothing beyond the bytes it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "os/vfio/iova_space.hpp"

namespace weft::os::vfio {

// The bytes of the capability `id`, from its header to the end of the structure; empty: it is not there. `first` is cap_offset, 0: no chain.
std::span<const std::byte> capability(std::span<const std::byte> info, uint32_t first, uint16_t id) noexcept;

// VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE.
std::vector<IovaRange> iova_ranges(std::span<const std::byte> capability);

// VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL: how many more mappings there may be.
std::optional<uint32_t> available_mappings(std::span<const std::byte> capability) noexcept;

// A part of a region that may be mapped.
struct MappableArea {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
// VFIO_REGION_INFO_CAP_SPARSE_MMAP: areas of whole pages within the region, others are left out.
std::vector<MappableArea> mappable_areas(std::span<const std::byte> capability, uint64_t region_bytes,
                                         uint64_t page_bytes);

}  // namespace weft::os::vfio
