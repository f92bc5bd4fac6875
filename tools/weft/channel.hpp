// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A control channel between two processes of a measurement: JSON over a stream socket, with time limits.
// Knows neither the fabric nor what is said.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace weft::tool {

class Channel {
 public:
  Channel() = default;
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel() { close(); }
  Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}
  Channel& operator=(Channel&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }

  int fd() const noexcept { return fd_; }
  void close() noexcept;

  // Both throw Failure when the other side is gone or the time is over.
  void send(const nlohmann::json& message);
  // While it waits it calls `idle`, all the time at first and every millisecond later on, so that a fabric
  // with manual progress goes on.
  nlohmann::json receive(std::chrono::milliseconds limit, const std::function<void()>& idle = {});

  // False when the other side has closed. One system call.
  bool peer_is_there() const noexcept;

 private:
  bool take_message(nlohmann::json& message);
  bool read_some();

  int fd_ = -1;
  std::string buffer_;
};

// Two ends of a local channel.
std::pair<Channel, Channel> local_channel();

// Takes connections by TCP. `port` 0: any free one.
class Listener {
 public:
  explicit Listener(uint16_t port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  uint16_t port() const;
  // Throws Failure when nobody comes in that time.
  Channel accept(std::chrono::milliseconds limit = std::chrono::milliseconds(-1));

 private:
  int fd_;
};
Channel connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds limit);

// The numeric address of our end of a TCP channel: the interface by which the peer is reached.
std::string local_address(const Channel& channel);

}  // namespace weft::tool
