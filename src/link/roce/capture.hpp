// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RoceCapture: shows RoCEv2 packets of any UDP port as tshark and Wireshark know them, with destination port 4791, and
// gives them to another capture. Must not know files.
//
// The record's headers are made by the other capture (identification 0, DF), so the ICRC is made anew for them. That of
// a packet whose ICRC was wrong is shown wrong: the complement of the right one. The source port stays the sender's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/packet/observed.hpp"

namespace weft::link::roce {

class RoceCapture final : public proto::PacketCapture {
 public:
  explicit RoceCapture(std::unique_ptr<proto::PacketCapture> to) noexcept : to_(std::move(to)) {}

  // Addresses are sockaddr_in or sockaddr_in6, of one family; others pass as they are. The owner of the port calls, one
  // thread at a time.
  void record(std::span<const std::byte> source, std::span<const std::byte> destination,
              std::span<const std::byte> bytes) noexcept override;
  std::string summary() const override { return to_->summary(); }

 private:
  std::unique_ptr<proto::PacketCapture> to_;
  std::vector<std::byte> shown_;
};

}  // namespace weft::link::roce
