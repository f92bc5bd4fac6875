// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CaptureFile: the packets of one endpoint in a file that tshark and Wireshark read (WEFT_PCAP). Must not know what the
// packets carry.
//
// The file is made with the first packet. It gets the name as given when nothing has that name, else NAME.PID.N with
// the extension behind it (x.pcap, x.1234.1.pcap): nothing is overwritten. What cannot be written is said once, and the
// endpoint goes on without a capture. Records are written when 64 KiB have come together, when a packet comes 200 ms
// after the last write, at close, and when the process exits. Any thread may call exit(3) meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/list.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"
#include "proto/packet/observed.hpp"

namespace weft::link::packet {

class CaptureFile final : public proto::PacketCapture {
 public:
  // `ip_addresses`: addresses are sockaddr_in or sockaddr_in6; others are shown as made-up IPv6 addresses (pcap.hpp).
  CaptureFile(std::string path, bool ip_addresses, proto::PacketWarning warning, const void* warned);
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;
  ~CaptureFile() override;

  void record(std::span<const std::byte> source, std::span<const std::byte> destination,
              std::span<const std::byte> bytes) noexcept override;
  std::string summary() const override;
  const std::string& path() const noexcept { return path_; }  // the file's, once there is one
  void flush() noexcept;

 private:
  static constexpr size_t flush_bytes = size_t{64} << 10;
  static constexpr uint64_t flush_ns = 200'000'000;

  bool create();
  void write_out() noexcept;  // with the lock
  bool append(std::span<const std::byte> source, std::span<const std::byte> destination,
              std::span<const std::byte> bytes);
  void give_up(std::string why) noexcept;  // with the lock
  void warn() noexcept;

  mutable std::mutex lock_;
  std::string path_;
  bool ip_addresses_;
  bool done_ = false;  // no file could be made, or written to
  os::Fd file_;
  os::Origin origin_;
  size_t written_ = 0;  // bytes of the file
  uint64_t written_at_ = 0;
  uint64_t packets_ = 0;
  std::vector<std::byte> records_;
  std::string untold_;  // why the capture has ended
  proto::PacketWarning warning_;
  const void* warned_;
};

}  // namespace weft::link::packet
