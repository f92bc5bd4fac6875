// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets between processes of one machine: Unix datagram sockets with abstract names. The smallest provider of libfabric that there is; see README.md.
#pragma once

#include <weft/provider.hpp>

#include <memory>

class UnixPackets : public weft::TextAddresses {  // an address is the name of a socket
 public:
  static constexpr size_t address_bytes_max = 40;
  static constexpr bool alters_packets = false;  // they do not leave the memory of the machine
  static constexpr bool leaves_machine = false;

  ~UnixPackets() { close(); }
  int open(weft::Bytes address);
  void close() noexcept;
  weft::Bytes address() noexcept { return {name_, name_bytes_}; }
  size_t packet_bytes_max(weft::Bytes) noexcept { return packet_bytes; }
  int send(weft::Bytes to, const iovec* parts, size_t count) noexcept;
  int receive(weft::PacketSink& sink) noexcept;
  // The optional ones that are worth it here: programs that sleep, and peers that died.
  int wait_fd() noexcept { return socket_; }
  size_t take_refusal(std::span<std::byte> place) noexcept;

 private:
  static constexpr size_t packet_bytes = 32768;
  static constexpr int batch = 16;

  int socket_ = -1;
  std::byte name_[address_bytes_max];
  size_t name_bytes_ = 0;
  std::byte refused_[address_bytes_max];
  size_t refused_bytes_ = 0;
  std::unique_ptr<std::byte[]> buffers_;  // a packet each
};
