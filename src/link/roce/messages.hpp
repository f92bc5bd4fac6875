// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connected endpoints over RC queue pairs as MessageLink wants them (link/message/endpoints.hpp): the connections of
// the provider's FI_EP_MSG endpoints, without function vectors between, so the other side may as well be such endpoints
// under a MessageLink of their own. A message is one frame of kind Msg. Must not know what the messages say.
//
// Threads: one at a time. Nothing blocks, but for the close of a connection, within Connection::linger_ns.
// Bounds: those of MessageChannel for each connection.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "link/message/endpoints.hpp"
#include "link/roce/connection.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"

namespace weft::link::roce {

class Messages {
 public:
  static constexpr size_t message_bytes_max = roce::Connection::frame_bytes_max;
  static constexpr size_t receive_count = 32;
  static_assert(receive_count <= MessageChannel::credits);
  static constexpr size_t address_length = sizeof(sockaddr_in);

  class Connection final : tcp::ConnectionEvents, proto::ConnectionObserver {
   public:
    void* owner = nullptr;

   private:
    friend class Messages;
    tcp::Other* make_peer(std::span<const std::byte>) override { return &peer_; }
    void peer_lost(tcp::Other&, core::ProviderError) noexcept override { is_lost_ = true; }
    void connected(std::span<const std::byte>) noexcept override { is_connected_ = true; }
    void refused(int, core::ProviderError, std::span<const std::byte>) noexcept override { is_lost_ = true; }
    void disconnected(core::ProviderError) noexcept override { is_lost_ = true; }

    bool is_incoming_ = false;
    bool is_connected_ = false;
    bool is_reported_ = false;  // the owner knows that it is there
    bool is_lost_ = false;
    bool is_closed_ = false;
    tcp::Other peer_;
    roce::Connection link_;
  };

  Messages() = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() { close(); }

  // --- before open() ---
  void set_address_format(uint32_t format) noexcept { format_ = format; }
  void set_traffic_class(uint8_t dscp) noexcept { dscp_ = dscp; }

  Result<void> open(std::string_view source);
  std::span<const std::byte> address() const noexcept { return listener_.address(); }
  Connection* connect(std::span<const std::byte> address, int& error);
  std::byte* reserve(Connection& connection) noexcept {
    return connection.is_connected_ && !connection.is_lost_ ? connection.link_.reserve_message() : nullptr;
  }
  void commit(Connection& connection, size_t bytes) noexcept { connection.link_.commit_message(bytes); }
  static uint64_t taken(const Connection& connection) noexcept {
    return connection.link_.sent_sequence(connection.peer_);
  }
  static uint64_t completed(const Connection& connection) noexcept {
    return connection.is_lost_ ? 0 : connection.link_.completed_sequence(connection.peer_);
  }
  static bool delivered(const Connection& connection) noexcept {
    return connection.link_.completed_sequence(connection.peer_) ==
           connection.link_.sent_sequence(connection.peer_);
  }
  static bool has_left(const Connection& connection) noexcept {
    return connection.link_.has_left(connection.peer_);
  }
  static bool speaks_for(const Connection& connection, std::span<const std::byte> address,
                         const Connection& before) noexcept;
  void close(Connection& connection) noexcept;
  void close() noexcept;
  bool belongs_here() const noexcept { return !set_ || os::process_id() == owner_pid_; }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (checks_ || ++polls_ % polls_per_check == 0) poll_requests();
    int taken = 0;
    for (size_t i = 0; i < all_.size(); ++i) {  // callbacks may add some
      Connection& connection = *all_[i];
      if (!connection.is_closed_) taken += show(connection, handler);
    }
    if (has_closed_) drop_closed();
    return taken;
  }

  // --- sleeping ---
  int wait_fd() const noexcept { return set_.get(); }
  bool arm() noexcept;
  void disarm() noexcept;

 private:
  static constexpr uint32_t polls_per_check = 32;

  template <class Handler>
  struct Shown {
    Connection& connection;
    Handler& handler;
    bool on_frame(tcp::Other&, const wire::FrameHead& head, const std::byte* payload) noexcept {
      if (connection.is_closed_) return false;
      report(connection, handler);
      if (connection.is_closed_) return false;
      if (head.kind != wire::FrameKind::Msg) {
        connection.is_lost_ = true;
        return false;
      }
      return handler.on_message(connection, {payload, head.length});
    }
  };
  template <class Handler>
  static void report(Connection& connection, Handler& handler) noexcept {
    if (!connection.is_connected_ || connection.is_reported_) return;
    connection.is_reported_ = true;
    if (connection.is_incoming_) handler.on_incoming(connection);
    else handler.on_connected(connection);
  }
  template <class Handler>
  int show(Connection& connection, Handler& handler) noexcept {
    Shown<Handler> shown{connection, handler};
    const int taken = connection.link_.poll(shown);
    if (!connection.is_closed_) report(connection, handler);
    if (connection.is_lost_ && !connection.is_closed_) [[unlikely]] {
      handler.on_lost(connection);
      if (!connection.is_closed_) close(connection);
    }
    return taken;
  }

  Connection& add();
  [[gnu::noinline]] void poll_requests() noexcept;
  [[gnu::noinline]] void drop_closed() noexcept;
  void linger_together() noexcept;
  bool watch(Connection& connection) noexcept;

  std::vector<std::unique_ptr<Connection>> all_;
  bool checks_ = false;
  bool has_closed_ = false;
  uint32_t polls_ = 0;
  // Cold below.
  Listener listener_;
  os::PollSet set_;
  uint32_t format_ = 0;
  uint8_t dscp_ = 0;
  int owner_pid_ = 0;
};

static_assert(message::Endpoints<Messages>);

}  // namespace weft::link::roce
