// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connected endpoints over TCP as MessageLink wants them (link/message/endpoints.hpp), without function vectors between: the same connections
// that the provider's FI_EP_MSG endpoints make, so the other side may as well be such endpoints under a MessageLink of their own. Must not
// know what the messages say.
//
// A message is one frame of the stream (docs/wire/stream.md), at most large_message_bytes_max long. There are no
// receive buffers: what nobody takes stays in the stream, and what TCP has no room for stays here.
//
// Threads: one at a time. Nothing blocks, but for close(), within a bound.
// Hot path: commit() writes or collects (Channel); poll() writes what was collected and reads the few connections that were active lately; the
// others, and whoever connects, are looked at now and then (epoll).
// Bounds of a connection: a channel's, and messages that wait for room (busy()): whoever asks before it sends has one, or few.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "link/message/endpoints.hpp"
#include "link/tcp/channel.hpp"
#include "link/tcp/listener.hpp"
#include "link/tcp/session_table.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/timer.hpp"
#include "proto/stream/head.hpp"
#include "wire/frame.hpp"

namespace weft::link::tcp {

class Messages {
 public:
  static constexpr size_t message_bytes_max = (size_t{1} << 14) + 512;
  static constexpr size_t large_message_bytes_max = connection_frame_bytes_max;
  static constexpr size_t receive_count = 32;
  static constexpr size_t address_length = sizeof(sockaddr_in6);

  class Connection : private Session {
   public:
    void* owner = nullptr;

   private:
    friend class Messages;
    friend class SessionTable<Connection>;
    enum class Stage : uint8_t { Connecting, Open, Failing, Over };  // Failing: to be told of
    Channel channel{connection_frame_bytes_max};
    Stage stage = Stage::Connecting;
    bool reported = false;  // that it is there
    bool incoming = false;
    uint64_t deadline_ns = 0;                     // Connecting
    std::vector<std::vector<std::byte>> waiting;  // committed and not taken by the channel, oldest first
  };

  Messages() = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() { close(); }

  void set_address_format(uint32_t format) noexcept { format_ = format; }  // before open()

  void set_traffic_class(uint8_t dscp) noexcept {  // before open()
    dscp_ = dscp;
    listener_.set_traffic_class(dscp);
  }
  Result<void> open(std::string_view source);
  std::span<const std::byte> address() const noexcept { return listener_.address(); }
  Connection* connect(std::span<const std::byte> address, int& error);
  std::byte* reserve(Connection& connection) noexcept {
    return connection.stage == Connection::Stage::Open ? out_.get() : nullptr;
  }
  void commit(Connection& connection, size_t bytes) noexcept {
    const wire::FrameHead head = head_of(bytes);
    const iovec part{out_.get(), bytes};
    if (!connection.waiting.empty() || !connection.channel.send(head, {}, &part, 1)) [[unlikely]]
      keep(connection, bytes);
    (void)committed(connection, true);
  }
  // A message out of a front and parts (Channel::send()).
  bool commit_parts(Connection& connection, std::span<const std::byte> front, const iovec* parts,
                    size_t part_count) noexcept {
    if (connection.stage != Connection::Stage::Open || !connection.waiting.empty()) return false;
    const wire::FrameHead head = head_of(bytes_in(front, parts, part_count));
    return committed(connection, connection.channel.send(head, front, parts, part_count));
  }
  // The same with parts that stay (Channel::send_in_place()).
  bool commit_in_place(Connection& connection, std::span<const std::byte> front, const iovec* parts,
                       size_t part_count) noexcept {
    if (connection.stage != Connection::Stage::Open || !connection.waiting.empty()) return false;
    const wire::FrameHead head = head_of(bytes_in(front, parts, part_count));
    return committed(connection, connection.channel.send_in_place(head, front, parts, part_count));
  }
  static void retain_parts(Connection& connection) noexcept { connection.channel.keep(); }
  // Something that was committed waits for the next poll; push() writes what that connection has, as far as there is room.
  bool has_deferred_sends() const noexcept { return has_deferred_; }
  void push(Connection& connection) noexcept { (void)connection.channel.flush(); }
  // What is committed now would wait.
  bool busy(const Connection& connection) const noexcept {
    return connection.channel.full() || !connection.waiting.empty();
  }
  // Bytes of the stream that were committed, and those that the socket has.
  static uint64_t taken(const Connection& connection) noexcept {
    uint64_t bytes = connection.channel.taken();
    for (const auto& message : connection.waiting) {
      std::array<std::byte, proto::stream::head_bytes_max> head;
      bytes += proto::stream::pack_head(head_of(message.size()), head.data()) + message.size();
    }
    return bytes;
  }
  static uint64_t completed(const Connection& connection) noexcept {
    return connection.channel.state() == Channel::State::Open ? connection.channel.written() : 0;
  }
  // Whether the other machine has all of it.
  static bool delivered(const Connection& connection) noexcept {
    return connection.channel.delivered() == taken(connection);
  }
  static bool has_left(const Connection& connection) noexcept { return connection.channel.has_left(); }
  // Whether whoever made this connection may end the one `before` by naming its address: he is at that address, or where that one comes from.
  static bool speaks_for(const Connection& connection, std::span<const std::byte> address,
                         const Connection& before) noexcept;
  void close(Connection& connection) noexcept;
  void close() noexcept;
  bool belongs_here() const noexcept { return !set_ || os::process_id() == owner_pid_; }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    has_deferred_ = false;
    if (!sessions_.dirty().empty()) flush_dirty();
    Shown<Handler> shown{*this, handler};
    const auto read_one = [&](Connection& connection) { return read(connection, shown); };
    int taken = sessions_.read_hot(read_one);
    if (sessions_.has_stalled()) [[unlikely]]
      taken += sessions_.read_stalled(read_one);
    if (sessions_.is_check_due(taken)) taken += check(shown);
    if (!failed_.empty()) [[unlikely]]
      close_failed(shown);
    if (!deferred_free_.empty()) [[unlikely]]
      deferred_free_.clear();
    return taken;
  }

  // --- sleeping ---
  int wait_fd() const noexcept { return set_.get(); }
  bool arm() noexcept;
  void disarm() noexcept;

  size_t connections() const noexcept { return all_.size(); }

 private:
  // Shows messages where the channel shows frames.
  template <class Handler>
  struct Shown {
    Messages& messages;
    Handler& handler;
    bool on_frame(Connection& connection, const wire::FrameHead& head, const std::byte* payload) noexcept {
      if (connection.stage != Connection::Stage::Open) return false;  // closed meanwhile
      std::span<const std::byte> message(payload, head.length);
      if (!unwrap(head, message)) [[unlikely]] {
        connection.channel.fail(EBADMSG);
        return false;
      }
      return handler.on_message(connection, message);
    }
    proto::Land land(Connection& connection, wire::FrameHead& head, const std::byte* payload, size_t arrived,
                     proto::Landing& out) noexcept requires message::TakesMessageParts<Handler, Connection> {
      const bool open = connection.stage == Connection::Stage::Open;  // else closed meanwhile
      if (payload == nullptr) {
        if (open) handler.where(connection, out);
        return proto::Land::Here;
      }
      if (!open) return proto::Land::Later;
      if (head.kind != wire::FrameKind::Msg || head.length > large_message_bytes_max)
        return proto::Land::Whole;
      const proto::Land answer = handler.on_part(connection, {payload, arrived}, head.length);
      if (answer == proto::Land::Here) head.length -= static_cast<uint32_t>(arrived);
      return answer;
    }
    void landed(Connection& connection, wire::FrameHead& head,
                size_t bytes) noexcept requires message::TakesMessageParts<Handler, Connection> {
      if (connection.stage == Connection::Stage::Open) handler.landed(connection, bytes);
      head.length -= static_cast<uint32_t>(bytes);
    }
  };

  template <class Handler>
  int read(Connection& connection, Shown<Handler>& shown) noexcept {
    reading_ = &connection;
    const int taken = connection.channel.receive(shown, connection, buffer_);
    reading_ = nullptr;
    connection.silent = taken != 0 ? 0 : connection.silent + 1;
    if (connection.stage != Connection::Stage::Open || connection.channel.state() != Channel::State::Open ||
        connection.channel.stalled() != connection.stalled) [[unlikely]]
      after_read(connection);
    return taken;
  }

  // Everything that is not hot: other connections, whoever connects, time.
  template <class Handler>
  [[gnu::noinline]] int check(Shown<Handler>& shown) noexcept {
    int taken = 0;
    std::array<void*, 64> ready;
    const size_t count = set_.ready(ready);
    sessions_.checked(count > sessions_.hot_count());
    if (sessions_.hot_count() >= 2) sessions_.demote_silent([](Connection&) {});
    for (size_t i = 0; i < count; ++i) {
      if (ready[i] == this) {
        poll_requests(shown);
        continue;
      }
      if (ready[i] == nullptr) continue;  // the timer
      // One that was closed in this poll is freed at its end (deferred_free_).
      auto& connection = *static_cast<Connection*>(ready[i]);
      if (connection.stage == Connection::Stage::Connecting) {
        go_on(connection, shown);
      } else if (connection.stage == Connection::Stage::Open && !connection.hot) {
        (void)sessions_.promote(connection);
        taken += read(connection, shown);
      }
    }
    if (const uint64_t now = now_ns(); now >= next_housekeeping_ns_) housekeeping(now);
    return taken;
  }

  template <class Handler>
  [[gnu::cold]] void poll_requests(Shown<Handler>& shown) noexcept {
    listener_.poll();
    while (auto request = listener_.next()) {
      Connection* connection = admit(std::move(request));
      if (connection == nullptr) continue;
      connection->reported = true;
      shown.handler.on_incoming(*connection);
    }
  }
  template <class Handler>
  [[gnu::cold]] void go_on(Connection& connection, Shown<Handler>& shown) noexcept {
    if (!advance(connection)) return;
    connection.reported = true;
    shown.handler.on_connected(connection);
  }
  template <class Handler>
  [[gnu::cold]] void close_failed(Shown<Handler>& shown) noexcept {
    while (!failed_.empty()) {
      Connection& connection = *failed_.back();
      failed_.pop_back();
      shown.handler.on_lost(connection);
      close(connection);
    }
  }

  static uint64_t now_ns() noexcept;
  static wire::FrameHead head_of(size_t bytes) noexcept {
    return {wire::FrameKind::Msg, 0, 0, static_cast<uint32_t>(bytes), 0, 0};
  }
  static bool unwrap(const wire::FrameHead& head, std::span<const std::byte>& message) noexcept {
    if (head.kind != wire::FrameKind::Msg && !unwrap_fragmented(head, message)) [[unlikely]]
      return false;
    return message.size() <= large_message_bytes_max;
  }
  static bool unwrap_fragmented(const wire::FrameHead& head, std::span<const std::byte>& message) noexcept;
  static size_t bytes_in(std::span<const std::byte> front, const iovec* parts, size_t part_count) noexcept {
    size_t bytes = front.size();
    for (size_t i = 0; i < part_count; ++i) bytes += parts[i].iov_len;
    return bytes;
  }
  [[gnu::always_inline]] bool committed(Connection& connection, bool sent) noexcept {
    has_deferred_ |= connection.channel.unflushed();
    if (!connection.dirty) note_dirty(connection);
    return sent;
  }
  void note_dirty(Connection& connection) noexcept { sessions_.note_dirty(connection); }
  void keep(Connection& connection, size_t bytes) noexcept;
  [[gnu::noinline]] void flush_dirty() noexcept;
  static bool flush(Connection& connection) noexcept;
  [[gnu::noinline, gnu::cold]] void after_read(Connection& connection) noexcept;
  void fail(Connection& connection) noexcept;
  void housekeeping(uint64_t now) noexcept;
  Connection& add();
  Connection* admit(std::unique_ptr<Request> request) noexcept;
  bool advance(Connection& connection) noexcept;
  void hang_up(Connection& connection) noexcept;

  SessionTable<Connection> sessions_;
  bool has_deferred_ = false;
  std::unique_ptr<std::byte[]> out_;  // the message that is being made
  std::vector<std::byte> buffer_;
  Connection* reading_ = nullptr;

  // --- cold below this line ---
  std::vector<Connection*> failed_;      // to be told of
  std::vector<Connection*> connecting_;  // have a deadline
  std::unordered_map<Connection*, std::unique_ptr<Connection>> all_;
  std::vector<std::unique_ptr<Connection>> deferred_free_;
  Listener listener_;
  os::SocketAddress from_;  // what the program chose; none: all addresses of this host
  os::PollSet set_;
  os::Timer timer_;  // while somebody sleeps
  uint32_t format_ = 0;
  uint8_t dscp_ = 0;
  int owner_pid_ = 0;
  uint64_t next_housekeeping_ns_ = 0;
  uint64_t next_health_ns_ = 0;
};

}  // namespace weft::link::tcp
