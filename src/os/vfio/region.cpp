// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// VFIO_DEVICE_GET_REGION_INFO, mmap(2), pread(2), pwrite(2).
#include "os/vfio/region.hpp"

#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::os::vfio {
namespace {

constexpr uint32_t info_bytes_max = 1U << 20;

template <class Word>
uint64_t load(const std::byte* at) noexcept {
  return *reinterpret_cast<const volatile Word*>(at);
}

template <class Word>
void store(std::byte* at, uint64_t value) noexcept {
  *reinterpret_cast<volatile Word*>(at) = static_cast<Word>(value);
}

}  // namespace

int Region::open(int device_fd, uint32_t index) {
  std::vector<std::byte> info(sizeof(vfio_region_info));
  vfio_region_info head{};
  for (int attempt = 0; attempt < 2; ++attempt) {
    head = {};
    head.argsz = static_cast<uint32_t>(info.size());
    head.index = index;
    std::memcpy(info.data(), &head, sizeof head);
    if (::ioctl(device_fd, VFIO_DEVICE_GET_REGION_INFO, info.data()) != 0) return errno;
    std::memcpy(&head, info.data(), sizeof head);
    if (head.argsz <= info.size()) break;
    if (head.argsz > info_bytes_max) return EPROTO;
    info.assign(head.argsz, std::byte{});
  }
  fd_ = device_fd;
  file_offset_ = head.offset;
  bytes_ = head.size;
  flags_ = head.flags;
  areas_.clear();
  if ((flags_ & VFIO_REGION_INFO_FLAG_MMAP) == 0) return 0;
  const uint32_t first = (flags_ & VFIO_REGION_INFO_FLAG_CAPS) != 0 ? head.cap_offset : 0;
  const auto sparse = capability(info, first, VFIO_REGION_INFO_CAP_SPARSE_MMAP);
  if (sparse.empty()) areas_.push_back({0, bytes_});
  else areas_ = mappable_areas(sparse, bytes_, static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
  return 0;
}

void Region::map() {
  if (!windows_.empty()) return;
  int protection = 0;
  if ((flags_ & VFIO_REGION_INFO_FLAG_READ) != 0) protection |= PROT_READ;
  if ((flags_ & VFIO_REGION_INFO_FLAG_WRITE) != 0) protection |= PROT_WRITE;
  if (protection != (PROT_READ | PROT_WRITE)) return;
  for (const MappableArea& area : areas_) {
    void* at = ::mmap(nullptr, area.bytes, protection, MAP_SHARED, fd_,
                      static_cast<off_t>(file_offset_ + area.offset));
    if (at == MAP_FAILED) continue;
    ::madvise(at, area.bytes, MADV_DONTFORK);  // a child shares no device with us
    windows_.push_back({static_cast<std::byte*>(at), area.offset, area.bytes});
  }
}

void Region::unmap() noexcept {
  for (const Window& one : windows_) ::munmap(one.bytes, one.size);
  windows_.clear();
}

uint64_t Region::mapped_bytes() const noexcept {
  uint64_t sum = 0;
  for (const Window& one : windows_) sum += one.size;
  return sum;
}

Region::Window Region::window() const noexcept {
  const auto largest = std::ranges::max_element(windows_, {}, &Window::size);
  return largest == windows_.end() ? Window{} : *largest;
}

bool Region::reaches(uint64_t offset, unsigned width) const noexcept {
  return offset < bytes_ && bytes_ - offset >= width && offset % width == 0;
}

const Region::Window* Region::window_of(uint64_t offset, unsigned width) const noexcept {
  for (const Window& one : windows_)
    if (offset >= one.offset && offset - one.offset < one.size && one.size - (offset - one.offset) >= width)
      return &one;
  return nullptr;
}

uint64_t Region::read(uint64_t offset, unsigned width) const noexcept {
  constexpr uint64_t none = UINT64_MAX;
  if (!reaches(offset, width)) return none;
  if (const Window* window = window_of(offset, width)) {
    const std::byte* at = window->bytes + (offset - window->offset);
    switch (width) {
      case 1:
        return load<uint8_t>(at);
      case 2:
        return load<uint16_t>(at);
      case 4:
        return load<uint32_t>(at);
      default:
        return load<uint64_t>(at);
    }
  }
  uint64_t value = 0;  // little endian, as this host
  const ssize_t got = ::pread(fd_, &value, width, static_cast<off_t>(file_offset_ + offset));
  return got == static_cast<ssize_t>(width) ? value : none;
}

void Region::write(uint64_t offset, unsigned width, uint64_t value) const noexcept {
  if (!reaches(offset, width)) return;
  if (const Window* window = window_of(offset, width)) {
    std::byte* at = window->bytes + (offset - window->offset);
    switch (width) {
      case 1:
        return store<uint8_t>(at, value);
      case 2:
        return store<uint16_t>(at, value);
      case 4:
        return store<uint32_t>(at, value);
      default:
        return store<uint64_t>(at, value);
    }
  }
  [[maybe_unused]] const ssize_t put =
      ::pwrite(fd_, &value, width, static_cast<off_t>(file_offset_ + offset));
}

}  // namespace weft::os::vfio
