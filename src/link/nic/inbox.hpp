// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Inbox: frames that came for an endpoint while somebody else polled the card. A ring of bytes with a bound; what finds
// no room is lost. Must not know what frames carry.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace weft::link::nic {

class Inbox {
 public:
  void open(size_t bytes) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    size_ = bytes;
    clear();
  }
  void close() noexcept {
    memory_.reset();
    size_ = 0;
    clear();
  }
  bool empty() const noexcept { return frames_ == 0; }
  size_t frames() const noexcept { return frames_; }

  // A frame, gathered. False: there is no room for it.
  bool put(const iovec* parts, size_t count, bool is_checked) noexcept {
    size_t length = 0;
    for (size_t i = 0; i < count; ++i) length += parts[i].iov_len;
    std::byte* at = reserve(length, is_checked);
    if (at == nullptr) return false;
    for (size_t i = 0; i < count; ++i) {
      if (parts[i].iov_len != 0) std::memcpy(at, parts[i].iov_base, parts[i].iov_len);
      at += parts[i].iov_len;
    }
    return true;
  }
  // show(frame, is_checked) for the oldest, at most `most`; returns how many. `show` may put().
  template <class Show>
  size_t drain(size_t most, Show&& show) noexcept {
    size_t taken = 0;
    for (; taken < most && frames_ != 0; ++taken) {
      Head head;
      std::memcpy(&head, memory_.get() + first_, sizeof head);
      if (head.length == wraps) {
        used_ -= size_ - first_;
        first_ = 0;
        std::memcpy(&head, memory_.get(), sizeof head);
      }
      show(std::span<const std::byte>(memory_.get() + first_ + sizeof head, head.length),
           head.is_checked != 0);
      const size_t bytes = record_bytes(head.length);
      first_ += bytes;
      used_ -= bytes;
      --frames_;
      if (size_ - first_ < sizeof(Head)) {
        used_ -= size_ - first_;
        first_ = 0;
      }
    }
    return taken;
  }

 private:
  struct Head {
    uint32_t length;
    uint32_t is_checked;
  };
  static constexpr uint32_t wraps = UINT32_MAX;  // the rest of the memory is not used
  static constexpr size_t record_bytes(size_t length) noexcept {
    return (sizeof(Head) + length + alignof(Head) - 1) / alignof(Head) * alignof(Head);
  }

  void clear() noexcept { first_ = last_ = used_ = frames_ = 0; }
  // Records are not divided: what does not fit before the end begins at the front.
  std::byte* reserve(size_t length, bool is_checked) noexcept {
    const size_t bytes = record_bytes(length);
    const size_t to_end = size_ - last_;
    const size_t skipped = bytes <= to_end ? 0 : to_end;
    if (length >= wraps || used_ + skipped + bytes > size_) return nullptr;
    if (skipped != 0) {
      write(Head{wraps, 0});
      used_ += skipped;
      last_ = 0;
    }
    write(Head{static_cast<uint32_t>(length), is_checked ? 1U : 0U});
    std::byte* const at = memory_.get() + last_ + sizeof(Head);
    last_ += bytes;
    used_ += bytes;
    ++frames_;
    if (size_ - last_ < sizeof(Head)) {
      used_ += size_ - last_;
      last_ = 0;
    }
    return at;
  }
  void write(const Head& head) noexcept { std::memcpy(memory_.get() + last_, &head, sizeof head); }

  std::unique_ptr<std::byte[]> memory_;
  size_t size_ = 0;
  size_t first_ = 0;
  size_t last_ = 0;
  size_t used_ = 0;
  size_t frames_ = 0;
};

}  // namespace weft::link::nic
