// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SendBuffer: memory that a device may read after the call that sent it (zero-copy send, HasZeroCopySend). Must not
// know the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.hpp"

namespace weft::proto {

// The link calls hold() once for each packet that a device reads from here, and release() when the device has reported
// that packet complete. While in_use() the owner neither writes nor frees the bytes. Not copied: links keep its address
// until the completion.
class SendBuffer {
 public:
  explicit SendBuffer(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  SendBuffer(const SendBuffer&) = delete;
  SendBuffer& operator=(const SendBuffer&) = delete;
  ~SendBuffer() { WEFT_ASSERT(!in_use()); }

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  bool in_use() const noexcept { return readers_ != 0; }

  // --- called by the link ---
  void hold() noexcept { ++readers_; }
  void release() noexcept {
    WEFT_ASSERT(in_use());
    --readers_;
  }

 private:
  std::span<const std::byte> bytes_;
  uint32_t readers_ = 0;  // packets that a device has not completed
};

}  // namespace weft::proto
