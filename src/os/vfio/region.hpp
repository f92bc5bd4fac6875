// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A region of a VFIO device, that is a base address register's space or the configuration space: mapped where the kernel allows it, by
// pread(2) and pwrite(2) elsewhere (I/O ports, the page of an MSI-X table). Must not know what the registers mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "os/vfio/capability_chain.hpp"

namespace weft::os::vfio {

class Region {
 public:
  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Asks for the region `index` of the device. 0 or an errno. A region without bytes is one that the device does not have.
  int open(int device_fd, uint32_t index);
  // Maps what may be mapped; what is refused is reached by system calls.
  void map();
  // In the process that mapped it.
  void unmap() noexcept;

  uint64_t size() const noexcept { return bytes_; }
  // How many of its bytes are reached without a system call.
  uint64_t mapped_bytes() const noexcept;

  struct Window {
    std::byte* bytes = nullptr;
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  // The largest mapped part; of size 0: there is none.
  Window window() const noexcept;

  // 1, 2, 4 or 8 bytes at a multiple of that. Beyond the end, or not allowed: all ones, and nothing is written.
  uint64_t read(uint64_t offset, unsigned width) const noexcept;
  void write(uint64_t offset, unsigned width, uint64_t value) const noexcept;

 private:
  const Window* window_of(uint64_t offset, unsigned width) const noexcept;
  bool reaches(uint64_t offset, unsigned width) const noexcept;

  int fd_ = -1;
  uint64_t file_offset_ = 0;
  uint64_t bytes_ = 0;
  uint32_t flags_ = 0;
  std::vector<MappableArea> areas_;
  std::vector<Window> windows_;
};

// A copy refers to the same region, which outlives it. nic::Registers.
class Registers {
 public:
  explicit Registers(const Region& region) noexcept : region_(&region) {
    const Region::Window window = region.window();
    bytes_ = window.bytes;
    begin_ = window.offset;
    span_ = window.size;
  }

  size_t size() const noexcept { return region_->size(); }
  uint8_t read8(size_t offset) const noexcept { return read<uint8_t>(offset); }
  uint16_t read16(size_t offset) const noexcept { return read<uint16_t>(offset); }
  uint32_t read32(size_t offset) const noexcept { return read<uint32_t>(offset); }
  uint64_t read64(size_t offset) const noexcept { return read<uint64_t>(offset); }
  void write8(size_t offset, uint8_t value) const noexcept { write(offset, value); }
  void write16(size_t offset, uint16_t value) const noexcept { write(offset, value); }
  void write32(size_t offset, uint32_t value) const noexcept { write(offset, value); }
  void write64(size_t offset, uint64_t value) const noexcept { write(offset, value); }

 private:
  // One load or store of exactly this width, in the order of the program with the others.
  template <class Word>
  Word read(size_t offset) const noexcept {
    const size_t inside = offset - begin_;
    if (inside < span_ && span_ - inside >= sizeof(Word)) [[likely]]
      return *reinterpret_cast<const volatile Word*>(bytes_ + inside);
    return static_cast<Word>(region_->read(offset, sizeof(Word)));
  }
  template <class Word>
  void write(size_t offset, Word value) const noexcept {
    const size_t inside = offset - begin_;
    if (inside < span_ && span_ - inside >= sizeof(Word)) [[likely]]
      *reinterpret_cast<volatile Word*>(bytes_ + inside) = value;
    else region_->write(offset, sizeof(Word), value);
  }

  const Region* region_;
  std::byte* bytes_;
  size_t begin_;
  size_t span_;
};

}  // namespace weft::os::vfio
