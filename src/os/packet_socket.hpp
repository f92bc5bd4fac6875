// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Raw Ethernet frames over a network interface of this machine (packet(7)); needs CAP_NET_RAW. Must not know what is in
// the frames.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::os {

class PacketSocket {
 public:
  static constexpr size_t batch_max = 64;
  static constexpr size_t buffer_bytes = size_t{8}
                                         << 20;  // of the kernel, as far as we are allowed to have it

  struct Frame {
    std::span<const std::byte> bytes;
    uint16_t vlan = 0;              // the tag that the kernel took out (802.1Q TCI)
    bool is_checksum_good = false;  // verified, or of this machine and not computed yet
  };

  PacketSocket() = default;
  // Frames of the interface's own address, of groups and broadcasts; none that this machine sends out of it.
  Result<void> open(const std::string& interface);
  void close() noexcept { fd_.reset(); }

  const std::array<std::byte, 6>& mac() const noexcept { return mac_; }
  size_t mtu_bytes() const noexcept { return mtu_bytes_; }
  size_t receive_buffer_bytes() const noexcept { return receive_buffer_bytes_; }
  int fd() const noexcept { return fd_.get(); }  // readable while there are frames

  // False: no room now. A frame that cannot leave is lost.
  bool send(const iovec* parts, size_t count) noexcept;
  // How many frames there are now; they stay valid until the next call.
  size_t receive() noexcept;
  Frame frame(size_t index) const noexcept;

 private:
  struct State;
  struct Deleter {
    void operator()(State* state) const noexcept;
  };
  Fd fd_;
  std::unique_ptr<State, Deleter> state_;
  std::array<std::byte, 6> mac_{};
  size_t mtu_bytes_ = 0;
  size_t receive_buffer_bytes_ = 0;
};

}  // namespace weft::os
