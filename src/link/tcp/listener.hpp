// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where TCP connections for connected endpoints come in (proto/engine/connection.hpp). Must not know tags or completions.
//
// A connection is pending until it has said who it is: a handshake of our version, for a connected endpoint. One that says nothing, or
// rubbish, costs a descriptor for a bounded time and never delays others. Bounds: pending_max connections, of which the oldest goes when another
// comes; as many requests as the backlog; beyond them the kernel keeps who knocks, in its own queue of that length.
//
// Threads: one at a time. Nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "link/tcp/acceptor.hpp"
#include "link/tcp/channel.hpp"
#include "link/tcp/formed_address.hpp"
#include "os/event.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/socket_address.hpp"
#include "os/timer.hpp"

namespace weft::link::tcp {

inline constexpr size_t connection_frame_bytes_max = (size_t{1} << 18) + 64;

// Somebody who has introduced himself.
class Request {
 public:
  Request(Channel&& channel, uint32_t format);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  std::span<const std::byte> data() const noexcept { return handshake_.data_span(); }
  std::span<const std::byte> peer_address() const noexcept { return peer_.bytes(); }
  std::span<const std::byte> local_address() const noexcept { return local_.bytes(); }
  void reject(std::span<const std::byte> data) noexcept;
  Channel take() noexcept;  // to be answered by whoever takes it

 private:
  Channel channel_;
  Handshake handshake_;
  FormedAddress peer_;
  FormedAddress local_;
  int owner_pid_;
};

class Listener {
 public:
  using Request = tcp::Request;
  static constexpr size_t pending_max = 1024;

  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(); }

  void set_address_format(uint32_t format) noexcept { format_ = format; }
  void set_traffic_class(uint8_t dscp) noexcept { dscp_ = dscp; }  // before open()
  // How long a pending connection may be silent.
  void set_connect_timeout_ms(uint64_t timeout) noexcept { acceptor_.set_silence_ns(timeout * 1'000'000); }

  Result<void> open(std::string_view name);
  std::span<const std::byte> address() const noexcept { return own_.bytes(); }
  Result<void> listen(int backlog);
  void poll() noexcept;
  std::unique_ptr<Request> next() noexcept;
  int control_fd() const noexcept { return set_.get(); }
  void close() noexcept;

  size_t pending_count() const noexcept { return acceptor_.pending_count(); }

 private:
  void hear(PendingConnection& pending) noexcept;

  uint32_t format_ = 0;
  uint8_t dscp_ = 0;
  os::PollSet set_;  // the socket, pending connections, the timer, the notice
  os::Timer timer_;
  std::optional<os::Event> notice_;  // readable while requests wait here
  FormedAddress own_;
  size_t backlog_ = 0;
  Acceptor acceptor_{{connection_frame_bytes_max, pending_max, 0, 10'000'000'000}};
  std::deque<std::unique_ptr<Request>> requests_;
};

}  // namespace weft::link::tcp
