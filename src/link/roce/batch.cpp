// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Adding and keeping.
#include "link/roce/batch.hpp"

#include <cstring>

#include "link/roce/headers.hpp"
#include "wire/bytes.hpp"

namespace weft::link::roce {

void Batch::add(const os::SocketAddress& from, const os::SocketAddress& to, const iovec* parts, size_t count,
                size_t bytes) noexcept {
  if (count_ == 0) {
    to_ = to;
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
}

void Batch::keep() noexcept {
  if (is_kept_ || count_ == 0) return;
  std::byte* at = kept_.get();
  for (size_t i = 0; i < part_count_; ++i) {
    if (parts_[i].iov_len != 0) std::memcpy(at, parts_[i].iov_base, parts_[i].iov_len);
    at += parts_[i].iov_len;
  }
  parts_[0] = {kept_.get(), bytes_};
  part_count_ = 1;
  is_kept_ = true;
}

}  // namespace weft::link::roce
