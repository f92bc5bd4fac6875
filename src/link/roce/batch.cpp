// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Adding and keeping.
#include "link/roce/batch.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "link/roce/headers.hpp"
#include "wire/bytes.hpp"

namespace weft::link::roce {

void Batch::add(const os::SocketAddress& from, const os::SocketAddress& to, const iovec* parts, size_t count,
                size_t bytes, const os::IpMarks& marks) noexcept {
  WEFT_ASSERT(count != 0 && takes(to, bytes, count, marks));
  WEFT_ASSERT(parts[0].iov_len <= wire::roce::headers_bytes_max);
  if (count_ == 0) {
    to_ = to;
    marks_ = marks;
    packet_bytes_ = bytes;
  }
  const Headers headers = headers_between(from, to, bytes, static_cast<uint16_t>(count_));
  Icrc& icrc = icrcs_[count_];
  wire::store_big(icrc.data(), wire::swap_bytes(wire::roce::icrc(headers.span(), parts, count)));
  Head& head = heads_[count_];
  std::memcpy(head.data(), parts[0].iov_base, parts[0].iov_len);
  parts_[part_count_++] = {head.data(), parts[0].iov_len};
  for (size_t i = 1; i < count; ++i) parts_[part_count_++] = parts[i];
  parts_[part_count_++] = {icrc.data(), icrc.size()};
  ++count_;
  bytes_ += bytes;
  is_closed_ = bytes < packet_bytes_;
  WEFT_ASSERT(count_ <= packets_max && part_count_ <= parts_max);
}

void Batch::use_icrc_of_rxe() noexcept {
  WEFT_ASSERT(count_ != 0 && !is_kept_);
  const iovec& head = parts_[part_count_ - 2];
  Icrc& icrc = icrcs_[count_ - 1];
  const wire::Bytes packet(static_cast<const std::byte*>(head.iov_base), head.iov_len);
  const uint32_t right = wire::swap_bytes(wire::load_big<uint32_t>(icrc.data()));
  wire::store_big(icrc.data(), wire::swap_bytes(wire::roce::icrc_of_rxe_flush(right, packet)));
}

void Batch::keep() noexcept {
  if (is_kept_ || count_ == 0) return;
  WEFT_ASSERT(bytes_ <= bytes_max);
  std::byte* at = kept_.get();
  for (size_t i = 0; i < part_count_; ++i) {
    if (parts_[i].iov_len != 0) std::memcpy(at, parts_[i].iov_base, parts_[i].iov_len);
    at += parts_[i].iov_len;
  }
  WEFT_ASSERT(static_cast<size_t>(at - kept_.get()) == bytes_);
  parts_[0] = {kept_.get(), bytes_};
  part_count_ = 1;
  is_kept_ = true;
}

void Batch::keep_last(const os::SocketAddress& from, size_t count) noexcept {
  WEFT_ASSERT(count != 0 && count <= count_);
  keep();
  const size_t gone = (count_ - count) * packet_bytes_;
  WEFT_ASSERT(is_kept_ && gone < bytes_);
  auto* const begin = static_cast<std::byte*>(parts_[0].iov_base) + gone;
  bytes_ -= gone;
  count_ = count;
  parts_[0] = {begin, bytes_};
  for (size_t i = 0; i < count; ++i) {
    std::byte* const at = begin + i * packet_bytes_;
    const size_t bytes = std::min(packet_bytes_, bytes_ - i * packet_bytes_);
    const Headers headers = headers_between(from, to_, bytes, static_cast<uint16_t>(i));
    const iovec covered{at, bytes - wire::roce::icrc_bytes};
    wire::store_big(at + covered.iov_len, wire::swap_bytes(wire::roce::icrc(headers.span(), &covered, 1)));
  }
}

}  // namespace weft::link::roce
