// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Batch: packets to one destination, on their way into one segmented send (proto::HasSegmentationOffload). All have the
// size of the first, the last one may be shorter. The kernel numbers the IPv4 headers of such a send 0, 1, 2 ..., and the
// ICRC covers that number. Must not know links.
//
// Payloads stay where they are until keep() copies them; headers and ICRCs are the batch's own.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "os/ip_marks.hpp"
#include "os/socket_address.hpp"
#include "proto/roce/work.hpp"
#include "wire/roce/icrc.hpp"
#include "wire/roce/packet.hpp"

namespace weft::link::roce {

class Batch {
 public:
  static constexpr size_t packets_max = 64;
  static constexpr size_t parts_max = 128;  // beyond, the link cuts it in pieces
  static constexpr size_t bytes_max = 65000;

  Batch() : kept_(std::make_unique_for_overwrite<std::byte[]>(bytes_max)) {}

  bool empty() const noexcept { return count_ == 0; }
  bool is_full() const noexcept { return is_closed_ || count_ == packets_max; }
  bool is_kept() const noexcept { return is_kept_; }
  const os::SocketAddress& destination() const noexcept { return to_; }
  const os::IpMarks& marks() const noexcept { return marks_; }
  const iovec* parts() const noexcept { return parts_.data(); }
  size_t part_count() const noexcept { return part_count_; }
  size_t packet_count() const noexcept { return count_; }
  size_t packet_bytes() const noexcept { return packet_bytes_; }

  // Whether a packet of `bytes`, with its ICRC, and of so many parts without it may be added.
  bool takes(const os::SocketAddress& to, size_t bytes, size_t parts,
             const os::IpMarks& marks = {}) const noexcept {
    if (count_ == 0) return true;
    return !is_full() && !is_kept_ && bytes <= packet_bytes_ && bytes_ + bytes <= bytes_max &&
           part_count_ + parts + 1 <= parts_max && to == to_ && marks == marks_;
  }
  // The first part is the packet's headers. `from` is the address that it is sent from.
  void add(const os::SocketAddress& from, const os::SocketAddress& to, const iovec* parts, size_t count,
           size_t bytes, const os::IpMarks& marks = {}) noexcept;
  // The packet that was added last is a FLUSH: its ICRC becomes that of rxe.
  void use_icrc_of_rxe() noexcept;
  // From now on nothing outside is referred to.
  void keep() noexcept;
  // Only the last `count` packets are still to be sent, by a send that numbers them from 0 on. `from` as above.
  void keep_last(const os::SocketAddress& from, size_t count) noexcept;
  void clear() noexcept {
    count_ = part_count_ = bytes_ = 0;
    is_closed_ = is_kept_ = false;
  }

 private:
  using Head = std::array<std::byte, wire::roce::headers_bytes_max>;
  using Icrc = std::array<std::byte, wire::roce::icrc_bytes>;

  os::SocketAddress to_;
  os::IpMarks marks_;
  size_t count_ = 0;
  size_t part_count_ = 0;
  size_t packet_bytes_ = 0;
  size_t bytes_ = 0;
  bool is_closed_ = false;
  bool is_kept_ = false;
  std::array<iovec, parts_max> parts_;
  std::array<Head, packets_max> heads_;
  std::array<Icrc, packets_max> icrcs_;
  std::unique_ptr<std::byte[]> kept_;
};

static_assert(proto::roce::elements_max + 3 <= Batch::parts_max);

}  // namespace weft::link::roce
