// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Checked reads of linux/vfio.h's capabilities.
#include "os/vfio/capability_chain.hpp"

#include <linux/vfio.h>

#include <algorithm>
#include <cstring>

namespace weft::os::vfio {
namespace {

// A structure at the beginning of bytes that are long enough for it.
template <class T>
T read_at(std::span<const std::byte> bytes, size_t offset = 0) noexcept {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// How many elements a capability has of those that it claims.
size_t count_in(std::span<const std::byte> bytes, size_t head, size_t element, size_t claimed) noexcept {
  return std::min(claimed, (bytes.size() - head) / element);
}

}  // namespace

std::span<const std::byte> capability(std::span<const std::byte> info, uint32_t first, uint16_t id) noexcept {
  // Offsets count from the beginning of the structure. A chain goes on upwards, so it ends.
  for (uint32_t at = first; at != 0 && at < info.size();) {
    const auto rest = info.subspan(at);
    if (rest.size() < sizeof(vfio_info_cap_header)) break;
    const auto header = read_at<vfio_info_cap_header>(rest);
    if (header.id == id) return rest;
    if (header.next <= at) break;
    at = header.next;
  }
  return {};
}

std::vector<IovaRange> iova_ranges(std::span<const std::byte> capability) {
  constexpr size_t head = offsetof(vfio_iommu_type1_info_cap_iova_range, iova_ranges);
  if (capability.size() < head) return {};
  vfio_iommu_type1_info_cap_iova_range fixed{};
  std::memcpy(&fixed, capability.data(), head);
  std::vector<IovaRange> ranges;
  const size_t count = count_in(capability, head, sizeof(vfio_iova_range), fixed.nr_iovas);
  for (size_t i = 0; i < count; ++i) {
    const auto one = read_at<vfio_iova_range>(capability, head + i * sizeof(vfio_iova_range));
    ranges.push_back({one.start, one.end});
  }
  return ranges;
}

std::optional<uint32_t> available_mappings(std::span<const std::byte> capability) noexcept {
  if (capability.size() < sizeof(vfio_iommu_type1_info_dma_avail)) return std::nullopt;
  return read_at<vfio_iommu_type1_info_dma_avail>(capability).avail;
}

std::vector<MappableArea> mappable_areas(std::span<const std::byte> capability, uint64_t region_bytes,
                                         uint64_t page_bytes) {
  constexpr size_t head = offsetof(vfio_region_info_cap_sparse_mmap, areas);
  if (capability.size() < head) return {};
  vfio_region_info_cap_sparse_mmap fixed{};
  std::memcpy(&fixed, capability.data(), head);
  std::vector<MappableArea> areas;
  const size_t count = count_in(capability, head, sizeof(vfio_region_sparse_mmap_area), fixed.nr_areas);
  for (size_t i = 0; i < count; ++i) {
    const auto one =
        read_at<vfio_region_sparse_mmap_area>(capability, head + i * sizeof(vfio_region_sparse_mmap_area));
    const bool is_inside =
        one.size != 0 && one.offset < region_bytes && one.size <= region_bytes - one.offset;
    if (is_inside && one.offset % page_bytes == 0 && one.size % page_bytes == 0)
      areas.push_back({one.offset, one.size});
  }
  return areas;
}

}  // namespace weft::os::vfio
