// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Bytes that came too early.
#include "proto/reliable/receive_stream.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace weft::proto::reliable {

ReceiveStream::Came ReceiveStream::keep(ChunkPool& pool, uint64_t offset,
                                        std::span<const std::byte> bytes) noexcept {
  const uint64_t end = offset + bytes.size();
  WEFT_ASSERT(offset > ready_ && end > offset && end <= edge());
  WEFT_ASSERT(gaps_ <= gaps_max);
  Range* const first = islands_.data();
  Range* const last = first + gaps_;
  // The islands that touch [offset, end).
  Range* from = std::partition_point(first, last, [&](const Range& r) { return r.end < offset; });
  Range* to = std::partition_point(from, last, [&](const Range& r) { return r.begin <= end; });
  if (from != to && from->begin <= offset && from->end >= end) return Came::Duplicate;
  if (from == to && gaps_ == gaps_max) return Came::Outside;
  if (!store(pool, offset, bytes)) return Came::Outside;
  if (from == to) {
    std::copy_backward(from, last, last + 1);
    *from = {offset, end};
    ++gaps_;
  } else {
    from->begin = std::min(from->begin, offset);
    from->end = std::max((to - 1)->end, end);
    std::copy(to, last, from + 1);
    gaps_ -= static_cast<size_t>(to - from - 1);
  }
  last_ = static_cast<size_t>(from - first);
  WEFT_ASSERT(gaps_ <= gaps_max && last_ < gaps_);
  WEFT_ASSERT(from == first || (from - 1)->end < from->begin);
  WEFT_ASSERT(last_ + 1 == gaps_ || from->end < (from + 1)->begin);
  return Came::OutOfOrder;
}

void ReceiveStream::close_gaps() noexcept {
  size_t closed = 0;
  while (closed < gaps_ && islands_[closed].begin <= ready_) {
    ready_ = std::max(ready_, islands_[closed].end);
    ++closed;
  }
  if (closed == 0) return;
  std::copy(islands_.begin() + static_cast<std::ptrdiff_t>(closed),
            islands_.begin() + static_cast<std::ptrdiff_t>(gaps_), islands_.begin());
  gaps_ -= closed;
  last_ = last_ >= closed ? last_ - closed : 0;
  WEFT_ASSERT(gaps_ == 0 || (last_ < gaps_ && islands_[0].begin > ready_));
}

void ReceiveStream::describe(Packet& packet) const noexcept {
  WEFT_ASSERT(edge() >= ready_ && edge() - ready_ <= bytes_max);
  packet.flags |= has_ack;
  packet.ack = ready_;
  packet.window = static_cast<uint32_t>(edge() - ready_);
  packet.range_count = 0;
  if (gaps_ == 0) return;
  WEFT_ASSERT(last_ < gaps_);
  packet.ranges[packet.range_count++] = islands_[last_];
  for (size_t i = 0; i < gaps_ && packet.range_count < ranges_max; ++i)
    if (i != last_) packet.ranges[packet.range_count++] = islands_[i];
}

}  // namespace weft::proto::reliable
