// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// /dev/vfio/vfio and the ioctls of vfio_iommu_type1.
#include "os/vfio/container.hpp"

#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "os/vfio/capability_chain.hpp"
#include "os/vfio/private_pages.hpp"
#include "os/vfio/refusal.hpp"

namespace weft::os::vfio {
namespace {

constexpr const char* path = "/dev/vfio/vfio";
// From this size on, mappings are aligned so that the IOMMU can use large pages.
constexpr uint64_t large_page_bytes = 2U << 20;
// Kernels before 5.4 do not tell ranges, before 5.11 no limit: what x86 has with the narrowest IOMMU, less the window of interrupt messages; the
// module's default limit.
constexpr IovaRange default_ranges[] = {{0, 0xfedfffff}, {0xfef00000, (uint64_t{1} << 39) - 1}};
constexpr uint32_t default_mappings_max = 65535;
// An answer of VFIO_IOMMU_GET_INFO that is longer is a mistake.
constexpr uint32_t info_bytes_max = 1U << 20;

uint64_t page_bytes() noexcept { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Result<Container> Container::open() {
  Fd fd(::open(path, O_RDWR | O_CLOEXEC));
  if (!fd) {
    const int code = errno;
    const char* remedy = code == ENOENT   ? " (modprobe vfio-pci)"
                         : code == EACCES ? " (it is everybody's by default: mode 0666)"
                                          : "";
    return Error{code, std::string(path) + ": " + std::strerror(code) + remedy};
  }
  if (const int version = ::ioctl(fd.get(), VFIO_GET_API_VERSION); version != VFIO_API_VERSION)
    return Error{ENOTSUP, std::string(path) + " has version " + std::to_string(version) +
                              " of its interface, not " + std::to_string(VFIO_API_VERSION)};
  if (::ioctl(fd.get(), VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) != 1)
    return Error{
        ENOTSUP,
        "vfio has no IOMMU of type 1, version 2: modprobe vfio_iommu_type1, if this machine has one"};
  return Container(std::move(fd));
}

int Container::start(unsigned address_bits) {
  if (::ioctl(fd_.get(), VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) return errno;
  // The first call tells how long the answer is.
  std::vector<std::byte> info(sizeof(vfio_iommu_type1_info));
  for (int attempt = 0; attempt < 2; ++attempt) {
    vfio_iommu_type1_info head{};
    head.argsz = static_cast<uint32_t>(info.size());
    std::memcpy(info.data(), &head, sizeof head);
    if (::ioctl(fd_.get(), VFIO_IOMMU_GET_INFO, info.data()) != 0) return errno;
    std::memcpy(&head, info.data(), sizeof head);
    if (head.argsz <= info.size()) break;
    if (head.argsz > info_bytes_max) return EPROTO;
    info.assign(head.argsz, std::byte{});
  }
  read_limits(info);
  space_.emplace(limits_.ranges, limits_.granule, address_bits);
  return 0;
}

void Container::read_limits(std::span<const std::byte> info) {
  vfio_iommu_type1_info head{};
  std::memcpy(&head, info.data(), sizeof head);
  limits_ = {};
  limits_.page_sizes = (head.flags & VFIO_IOMMU_INFO_PGSIZES) != 0 && head.iova_pgsizes != 0
                           ? head.iova_pgsizes
                           : page_bytes();
  limits_.granule = std::max(page_bytes(), uint64_t{1} << std::countr_zero(limits_.page_sizes));
  const uint32_t first = (head.flags & VFIO_IOMMU_INFO_CAPS) != 0 ? head.cap_offset : 0;
  limits_.ranges = iova_ranges(capability(info, first, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE));
  if (limits_.ranges.empty()) limits_.ranges.assign(std::begin(default_ranges), std::end(default_ranges));
  limits_.mappings_max = available_mappings(capability(info, first, VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL))
                             .value_or(default_mappings_max);
}

Result<uint64_t> Container::map(const void* memory, size_t bytes, nic::DmaAccess access) {
  const uint64_t granule = limits_.granule;
  const auto at = reinterpret_cast<uintptr_t>(memory);
  if (!space_ || bytes == 0 || bytes > UINTPTR_MAX - at || at + bytes > UINTPTR_MAX - granule)
    return Error{EINVAL, "cannot map for DMA: no memory, or beyond the address space"};
  if (!access.device_reads && !access.device_writes)
    return Error{EINVAL, "cannot map for DMA: the device would be allowed nothing"};
  const uintptr_t begin = at & ~(granule - 1);
  const size_t whole = ((at + bytes + granule - 1) & ~(granule - 1)) - begin;
  if (const auto shared = table_.share(begin, whole, access)) return *shared + (at - begin);

  const auto refuse = [&](int code) {
    return map_refusal(code, whole, locked_memory(), table_.size(), limits_.mappings_max);
  };
  if (table_.size() >= limits_.mappings_max) return refuse(ENOSPC);
  const bool is_large = whole >= large_page_bytes && begin % large_page_bytes == 0;
  const auto iova = space_->allocate(whole, is_large ? large_page_bytes : granule);
  if (!iova)
    return Error{ENOSPC, "cannot map " + bytes_text(whole) +
                             " for DMA: of the addresses that the device and the IOMMU have, " +
                             bytes_text(space_->free_bytes()) + " are free, in " +
                             std::to_string(space_->pieces()) + " pieces"};
  if (!access.device_writes) make_private_pages(begin, whole);
  vfio_iommu_type1_dma_map request{};
  request.argsz = sizeof request;
  request.flags = (access.device_reads ? uint32_t{VFIO_DMA_MAP_FLAG_READ} : 0U) |
                  (access.device_writes ? uint32_t{VFIO_DMA_MAP_FLAG_WRITE} : 0U);
  request.vaddr = begin;
  request.iova = *iova;
  request.size = whole;
  if (::ioctl(fd_.get(), VFIO_IOMMU_MAP_DMA, &request) != 0) {
    const int code = errno;
    space_->free(*iova, whole);
    return refuse(code);
  }
  table_.add({*iova, begin, whole, access});
  return *iova + (at - begin);
}

void Container::unmap(uint64_t address) noexcept {
  if (const auto last = table_.drop(address)) unmap_from_iommu(*last);
}

void Container::unmap_all() noexcept {
  while (const auto one = table_.drop_any()) unmap_from_iommu(*one);
}

// The kernel takes the mapping out of the IOMMU and its caches before it lets go of the pages: a transfer that is under way ends before, a later one
// faults. Addresses are given to others only afterwards; never, if the kernel has not unmapped.
void Container::unmap_from_iommu(const DmaMapping& mapping) noexcept {
  vfio_iommu_type1_dma_unmap request{};
  request.argsz = sizeof request;
  request.iova = mapping.iova;
  request.size = mapping.bytes;
  if (::ioctl(fd_.get(), VFIO_IOMMU_UNMAP_DMA, &request) == 0 && request.size == mapping.bytes)
    space_->free(mapping.iova, mapping.bytes);
}

}  // namespace weft::os::vfio
