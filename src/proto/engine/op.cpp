// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tables of operations and copies over lists of pieces.
#include "proto/engine/op.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace weft::proto {

bool OpTable::grow() noexcept try {
  const size_t have = chunks_.size() * chunk_ops;
  if (have >= bound_ || have >= index_mask) return false;
  auto chunk = std::make_unique<Op[]>(chunk_ops);
  const size_t usable = std::min(chunk_ops, bound_ - have);
  for (size_t i = usable; i-- > 0;) {
    chunk[i].index = static_cast<uint32_t>(have + i);
    chunk[i].parent = free_;
    free_ = &chunk[i];
  }
  chunks_.push_back(std::move(chunk));
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool PendingSendPool::grow() noexcept try {
  chunks_.push_back(std::make_unique<PendingSend[]>(chunk_records));
  for (size_t i = chunk_records; i-- > 0;) free_.push_front(chunks_.back()[i]);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

size_t scatter(const iovec* to, size_t count, size_t offset, const std::byte* from, size_t bytes) noexcept {
  size_t copied = 0;
  for (size_t i = 0; i < count && copied < bytes; ++i) {
    if (offset >= to[i].iov_len) {
      offset -= to[i].iov_len;
      continue;
    }
    const size_t n = std::min(to[i].iov_len - offset, bytes - copied);
    std::memcpy(static_cast<std::byte*>(to[i].iov_base) + offset, from + copied, n);
    copied += n;
    offset = 0;
  }
  return copied;
}

size_t gather(std::byte* to, const iovec* from, size_t count, size_t offset, size_t bytes) noexcept {
  size_t copied = 0;
  for (size_t i = 0; i < count && copied < bytes; ++i) {
    if (offset >= from[i].iov_len) {
      offset -= from[i].iov_len;
      continue;
    }
    const size_t n = std::min(from[i].iov_len - offset, bytes - copied);
    std::memcpy(to + copied, static_cast<const std::byte*>(from[i].iov_base) + offset, n);
    copied += n;
    offset = 0;
  }
  return copied;
}

size_t slice(const iovec* list, size_t count, size_t offset, size_t bytes, iovec* out, size_t room) noexcept {
  size_t used = 0;
  for (size_t i = 0; i < count && bytes > 0 && used < room; ++i) {
    if (offset >= list[i].iov_len) {
      offset -= list[i].iov_len;
      continue;
    }
    const size_t n = std::min(list[i].iov_len - offset, bytes);
    out[used++] = {static_cast<std::byte*>(list[i].iov_base) + offset, n};
    bytes -= n;
    offset = 0;
  }
  return used;
}

size_t total_bytes(const iovec* list, size_t count) noexcept {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += list[i].iov_len;
  return sum;
}

}  // namespace weft::proto
