// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connected endpoints of one process: the smallest ConnectedLink there is (proto/engine/connection.hpp). Must not know tags or completions.
//
// Threads: the two ends may belong to different threads, so each inbox has a mutex. Bound: inbox_frames per connection; beyond it send()
// refuses. There is no waiting: who is asked answers, or its object is gone and says so.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "link/loopback/link.hpp"
#include "os/event.hpp"
#include "proto/engine/connection.hpp"
#include "wire/frame.hpp"

namespace weft::link::loopback {

inline constexpr size_t inbox_frames = 256;

struct Inbox;

struct Parcel {
  enum class Kind : uint8_t { Frame, Accepted, Rejected, Farewell };
  Kind kind = Kind::Frame;
  wire::FrameHead head{};
  std::vector<std::byte> payload;
  std::shared_ptr<Inbox> sender;  // of Accepted: where to answer
};

// What one end gets from the other. Both hold it.
struct Inbox {
  std::mutex mutex;
  std::deque<Parcel> parcels;
  bool open = true;
  bool sleeping = false;            // notify wakeup
  std::optional<os::Event> wakeup;  // for frames
  std::optional<os::Event> notice;  // for all else

  static std::shared_ptr<Inbox> create();
  // False: full (frames only), closed, or out of memory.
  bool put(Parcel&& parcel) noexcept;
};

using Address = std::array<char, address_bytes>;

// A request for a connection, with the inbox of the one who asks.
class Request {
 public:
  Request(std::string_view from, std::string_view to, std::span<const std::byte> data,
          std::shared_ptr<Inbox> asker);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() { reject({}); }

  std::span<const std::byte> data() const noexcept { return data_; }
  std::span<const std::byte> peer_address() const noexcept { return std::as_bytes(std::span(from_)); }
  std::span<const std::byte> local_address() const noexcept { return std::as_bytes(std::span(to_)); }
  void reject(std::span<const std::byte> data) noexcept;

 private:
  friend class Connection;
  Address from_{};
  Address to_{};
  std::vector<std::byte> data_;
  std::shared_ptr<Inbox> asker_;
};

// Where requests wait for a listener.
struct Hall {
  std::mutex mutex;
  std::deque<std::unique_ptr<Request>> requests;
  size_t backlog = 0;  // 0: nobody listens yet
  std::optional<os::Event> notice;
};

class Listener {
 public:
  using Request = loopback::Request;
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(); }

  Result<void> open(std::string_view name);
  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(address_)); }
  Result<void> listen(int backlog);
  void poll() noexcept {}
  std::unique_ptr<Request> next() noexcept;
  int control_fd() const noexcept { return hall_ == nullptr ? -1 : hall_->notice->fd(); }
  void close() noexcept;

 private:
  std::shared_ptr<Hall> hall_;
  std::string name_;
  Address address_{};
};

struct Other {};  // the peer: there is only one, and all that is known of it is in the connection

using ConnectionEvents = proto::LinkEvents<Other>;

class Connection : public Sizes, public proto::LinkBase {
 public:
  using PeerBase = Other;
  using Events = ConnectionEvents;
  using Listener = loopback::Listener;
  static constexpr bool sole_peer = true;
  static constexpr size_t connection_data_bytes_max = 256;

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(); }

  Result<void> open(std::string_view name, Events& events, proto::ConnectionObserver& observer);
  Result<void> start(std::string_view name, std::span<const std::byte> data);
  Result<void> accept(std::unique_ptr<Request> request, std::span<const std::byte> data);
  void shut_down() noexcept;
  void close() noexcept;
  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(address_)); }
  std::span<const std::byte> peer_address() const noexcept {
    return std::as_bytes(std::span(peer_address_)).first(peer_address_[0] == 0 ? 0 : address_bytes);
  }
  Other* connect(std::span<const std::byte>, int& error) noexcept;
  void forget(Other& peer) noexcept;
  bool send(Other& peer, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept;

  void advance() noexcept {
    while (Parcel* parcel = front()) {
      if (parcel->kind == Parcel::Kind::Frame) return;
      handle_notice(*parcel);
      pop();
    }
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    int taken = 0;
    while (Parcel* parcel = front()) {
      if (parcel->kind != Parcel::Kind::Frame) handle_notice(*parcel);
      else if (peer_ != nullptr && !handler.on_frame(*peer_, parcel->head, parcel->payload.data())) break;
      pop();
      ++taken;
    }
    return taken;
  }

  int wait_fd() const noexcept { return inbox_ == nullptr ? -1 : inbox_->wakeup->fd(); }
  int control_fd() const noexcept { return inbox_ == nullptr ? -1 : inbox_->notice->fd(); }
  bool arm() noexcept;
  void disarm() noexcept;

 private:
  Parcel* front() noexcept;
  void pop() noexcept;
  void handle_notice(Parcel& parcel) noexcept;

  Events* events_ = nullptr;
  proto::ConnectionObserver* observer_ = nullptr;
  std::string name_;
  Address address_{};
  Address peer_address_{};
  std::shared_ptr<Inbox> inbox_;
  std::shared_ptr<Inbox> other_;  // the other end's
  Other* peer_ = nullptr;         // while connected
  bool shut_ = false;             // we have said farewell
};

}  // namespace weft::link::loopback
