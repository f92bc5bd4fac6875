// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connected endpoint over an RC queue pair: a Link with one peer (proto/engine/connection.hpp). Must not know tags or
// completions.
//
// Two things make a connection: a TCP connection (link/tcp/connection.hpp), over which the ends find each other,
// exchange the names of their queue pairs in front of the program's data, and learn that the other one leaves or dies;
// and a MessageChannel, which has all frames: the head as in a stream (proto/stream/head.hpp), then the payload.
//
// Threads: one at a time; the device below has a lock and a progress thread of its own. Nothing blocks but shut_down()
// and close(), within linger_ns.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "core/provider_error.hpp"
#include "link/roce/message_channel.hpp"
#include "link/tcp/connection.hpp"
#include "link/tcp/listener.hpp"
#include "os/poll_set.hpp"
#include "proto/engine/connection.hpp"
#include "proto/stream/head.hpp"
#include "wire/frame.hpp"

namespace weft::link::roce {

// Somebody who has introduced himself, with the name of a queue pair.
class Request {
 public:
  explicit Request(std::unique_ptr<tcp::Request> request) noexcept : request_(std::move(request)) {}
  std::span<const std::byte> data() const noexcept {
    return request_->data().subspan(MessageChannel::name_bytes);
  }
  std::span<const std::byte> peer_address() const noexcept { return request_->peer_address(); }
  std::span<const std::byte> local_address() const noexcept { return request_->local_address(); }
  void reject(std::span<const std::byte> data) noexcept { request_->reject(data); }

 private:
  friend class Connection;
  std::unique_ptr<tcp::Request> request_;
};

class Listener {
 public:
  using Request = roce::Request;

  void set_address_format(uint32_t format) noexcept { listener_.set_address_format(format); }
  void set_traffic_class(uint8_t dscp) noexcept { listener_.set_traffic_class(dscp); }
  void set_connect_timeout_ms(uint64_t timeout) noexcept { listener_.set_connect_timeout_ms(timeout); }
  Result<void> open(std::string_view name) { return listener_.open(name); }
  std::span<const std::byte> address() const noexcept { return listener_.address(); }
  Result<void> listen(int backlog) { return listener_.listen(backlog); }
  void poll() noexcept { listener_.poll(); }
  std::unique_ptr<Request> next();  // others than verbs endpoints are refused
  int control_fd() const noexcept { return listener_.control_fd(); }
  void close() noexcept { listener_.close(); }

 private:
  tcp::Listener listener_;
};

class Connection final : public proto::LinkBase, tcp::ConnectionEvents, proto::ConnectionObserver {
 public:
  using PeerBase = tcp::Other;
  using Events = tcp::ConnectionEvents;
  using Listener = roce::Listener;
  static constexpr bool sole_peer = true;
  static constexpr size_t connection_data_bytes_max = tcp::handshake_data_max - MessageChannel::name_bytes;
  static constexpr size_t frame_bytes_max = (size_t{1} << 14) + 512;
  static constexpr size_t eager_bytes_max = size_t{1} << 13;
  static constexpr size_t fragmented_eager_bytes_max = size_t{1} << 18;
  static constexpr size_t fragment_bytes = size_t{1} << 14;
  static constexpr size_t segment_bytes = size_t{1} << 14;
  static constexpr size_t address_length = tcp::Connection::address_length;
  static constexpr uint64_t linger_ns = 500'000'000;
  static_assert(frame_bytes_max <= 0xffff);  // so that the head of a message has head_bytes_min bytes
  static_assert(frame_bytes_max + proto::stream::head_bytes_max <= MessageChannel::message_bytes_max);

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(); }

  // --- before open() ---
  void set_address_format(uint32_t format) noexcept {
    format_ = format;
    control_.set_address_format(format);
  }
  void set_traffic_class(uint8_t dscp) noexcept { control_.set_traffic_class(dscp); }
  void set_connect_timeout_ms(uint64_t timeout) noexcept { control_.set_connect_timeout_ms(timeout); }
  void set_accept_timeout_ms(uint64_t timeout) noexcept { control_.set_accept_timeout_ms(timeout); }

  // --- ConnectedLink ---
  Result<void> open(std::string_view name, Events& events, proto::ConnectionObserver& observer);
  Result<void> start(std::string_view name, std::span<const std::byte> data);
  Result<void> accept(std::unique_ptr<Request> request, std::span<const std::byte> data);
  void advance() noexcept {
    checks_ = true;
    control_.advance();
  }
  void shut_down() noexcept;
  // Where many close one after the other: none of them waits longer than that. In ns of the clock; before shut_down().
  void linger_until(uint64_t time) noexcept { linger_until_ = time; }
  void close() noexcept;
  std::span<const std::byte> address() const noexcept { return control_.address(); }
  std::span<const std::byte> peer_address() const noexcept { return control_.peer_address(); }
  int control_fd() const noexcept { return control_.control_fd(); }
  bool belongs_here() const noexcept { return control_.belongs_here(); }

  // --- Link ---
  PeerBase* connect(std::span<const std::byte>, int& error) noexcept {
    error = peer_ == nullptr ? ENOTCONN : 0;
    return peer_;
  }
  void forget(PeerBase&) noexcept {
    peer_ = nullptr;
    lose(core::ProviderError::PeerMisbehaved);
  }
  bool send(PeerBase&, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept {
    std::byte* const message = channel_.reserve();
    if (message == nullptr) return false;
    size_t at = proto::stream::pack_head(head, message);
    const auto put = [&](const void* from, size_t bytes) {
      if (bytes != 0) std::memcpy(message + at, from, bytes);
      at += bytes;
    };
    put(prefix.data(), prefix.size());
    for (size_t i = 0; i < part_count; ++i) put(parts[i].iov_base, parts[i].iov_len);
    channel_.commit(at);
    return true;
  }
  // The same for a frame of kind Msg that the caller writes where it leaves from: room for frame_bytes_max bytes, or
  // null.
  std::byte* reserve_message() noexcept {
    std::byte* const message = channel_.reserve();
    return message == nullptr ? nullptr : message + proto::stream::head_bytes_min;
  }
  void commit_message(size_t bytes) noexcept {
    const wire::FrameHead head{wire::FrameKind::Msg, 0, 0, static_cast<uint32_t>(bytes), 0, 0};
    if (channel_.is_open()) channel_.commit(proto::stream::pack_head(head, channel_.reserved()) + bytes);
  }
  // Complete is what the peer's adapter has acknowledged.
  uint64_t sent_sequence(const PeerBase&) const noexcept { return channel_.sent(); }
  uint64_t completed_sequence(const PeerBase&) const noexcept { return channel_.acknowledged(); }
  bool has_left(const PeerBase& peer) const noexcept { return is_ending_ || control_.has_left(peer); }
  uint64_t delivered_sequence(const PeerBase&) const noexcept { return channel_.acknowledged(); }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (stage_ != Stage::Open) [[unlikely]] {
      control_.advance();
      if (stage_ != Stage::Open) return 0;
    }
    if (checks_ || ++polls_ % polls_per_check == 0) [[unlikely]]
      check();
    if (stage_ != Stage::Open) [[unlikely]]
      return 0;
    const int taken = channel_.poll([&](std::span<const std::byte> message) noexcept {
      wire::FrameHead head;
      size_t head_bytes = 0;
      if (proto::stream::unpack_head(message.data(), message.size(), head, head_bytes) !=
              proto::stream::Unpacked::Head ||
          head.length != message.size() - head_bytes) [[unlikely]] {
        misbehaved_ = true;
        return false;
      }
      return handler.on_frame(*peer_, head, message.data() + head_bytes);
    });
    if (misbehaved_ || channel_.has_failed() || is_ending_) [[unlikely]]
      end();
    return taken;
  }

  // --- sleeping ---
  int wait_fd() noexcept;
  bool arm() noexcept;
  void disarm() noexcept;

 private:
  enum class Stage : uint8_t { Idle, Connecting, Open, Shut, Over };
  static constexpr uint32_t polls_per_check = 64;
  // The one frame on the TCP connection: who leaves says how many messages it has consumed (Done, a = that).
  struct LastWord {
    Connection* connection;
    bool on_frame(tcp::Other&, const wire::FrameHead& head, const std::byte*) noexcept {
      if (head.kind == wire::FrameKind::Done && !connection->channel_.acknowledge(head.a))
        connection->misbehaved_ = true;
      return true;
    }
  };

  // What the TCP connection says.
  tcp::Other* make_peer(std::span<const std::byte>) override { return &control_peer_; }
  void peer_lost(tcp::Other&, core::ProviderError) noexcept override {}
  void connected(std::span<const std::byte> data) noexcept override;
  void refused(int error, core::ProviderError why, std::span<const std::byte> data) noexcept override;
  void disconnected(core::ProviderError why) noexcept override;

  [[gnu::noinline]] void check() noexcept;
  [[gnu::noinline, gnu::cold]] void end() noexcept;
  void lose(core::ProviderError why) noexcept;

  Stage stage_ = Stage::Idle;
  bool checks_ = false;     // at the TCP connection, at the next poll
  bool is_ending_ = false;  // the peer has left: what came before is still to be shown
  bool misbehaved_ = false;
  uint32_t polls_ = 0;
  PeerBase* peer_ = nullptr;
  MessageChannel channel_;

  // --- cold below this line ---
  bool accepts_ = false;
  uint32_t format_ = 0;
  uint64_t linger_until_ = UINT64_MAX;
  core::ProviderError why_ = core::ProviderError::None;
  Events* events_ = nullptr;
  proto::ConnectionObserver* observer_ = nullptr;
  tcp::Other control_peer_;
  os::PollSet wait_;
  tcp::Connection control_;
};

}  // namespace weft::link::roce
