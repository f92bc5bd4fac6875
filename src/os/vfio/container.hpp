// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A container of VFIO (type 1, version 2): one address space of the IOMMU, shared by the groups that are attached to it, and what of this
// process's memory is mapped there. linux/vfio.h. Must not know what the devices are. Another way to an address space (iommufd) would
// be another class with map() and unmap().
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "nic/bus.hpp"
#include "os/fd.hpp"
#include "os/vfio/iova_space.hpp"
#include "os/vfio/mapping_table.hpp"

namespace weft::os::vfio {

struct IommuLimits {
  std::vector<IovaRange> ranges;  // that the IOMMU translates
  uint64_t page_sizes = 0;        // a bit for each size that it can map
  uint64_t granule = 0;           // the smallest that this process can map
  uint32_t mappings_max = 0;      // at once
};

class Container {
 public:
  // Opens /dev/vfio/vfio and looks whether it is what we know.
  static Result<Container> open();

  int fd() const noexcept { return fd_.get(); }
  // Once the first group is attached: chooses the IOMMU's model and asks for its limits. 0 or an errno of VFIO_SET_IOMMU, VFIO_IOMMU_GET_INFO.
  int start(unsigned address_bits);
  const IommuLimits& limits() const noexcept { return limits_; }

  // See nic::Bus. Pages are pinned; the addresses within one mapping are contiguous.
  Result<uint64_t> map(const void* memory, size_t bytes, nic::DmaAccess access);
  void unmap(uint64_t address) noexcept;
  void unmap_all() noexcept;
  size_t mappings() const noexcept { return table_.size(); }

 private:
  explicit Container(Fd fd) noexcept : fd_(static_cast<Fd&&>(fd)) {}
  void read_limits(std::span<const std::byte> info);
  void unmap_from_iommu(const DmaMapping& mapping) noexcept;

  Fd fd_;
  IommuLimits limits_;
  std::optional<IovaSpace> space_;
  MappingTable table_;
};

}  // namespace weft::os::vfio
