// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ICRC for the headers that a record has.
#include "link/roce/capture.hpp"

#include <new>

#include "link/roce/headers.hpp"
#include "wire/bytes.hpp"
#include "wire/roce/headers.hpp"
#include "wire/roce/icrc.hpp"

namespace weft::link::roce {
namespace {

// Under the headers that the packet had: its identification is known to the sender's machine only.
bool was_right(const Headers& headers, std::span<const std::byte> bytes) noexcept {
  return wire::roce::icrc_is_right(headers.span(), bytes) ||
         (headers.is_ip4() && wire::roce::solve_identification(headers.span(), bytes));
}

}  // namespace

void RoceCapture::record(std::span<const std::byte> source, std::span<const std::byte> destination,
                         std::span<const std::byte> bytes) noexcept try {
  const auto from = os::SocketAddress::from(source.data(), source.size());
  auto to = os::SocketAddress::from(destination.data(), destination.size());
  if (!from || !to || from->family() != to->family() ||
      bytes.size() < wire::roce::bth_bytes + wire::roce::icrc_bytes)
    return to_->record(source, destination, bytes);
  const bool right = was_right(headers_between(*from, *to, bytes.size()), bytes);
  to->set_port(standard_port);
  shown_.assign(bytes.begin(), bytes.end());
  const size_t covered = shown_.size() - wire::roce::icrc_bytes;
  uint32_t icrc =
      wire::roce::icrc(headers_between(*from, *to, bytes.size()).span(), std::span(shown_).first(covered));
  if (!right) icrc = ~icrc;
  wire::store_big(shown_.data() + covered, wire::swap_bytes(icrc));
  to_->record(source, to->bytes(), shown_);
} catch (const std::bad_alloc&) {  // this packet is missing
}

}  // namespace weft::link::roce
