// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connected endpoint's TCP connection: a Link with one peer (proto/engine/connection.hpp). Must not know tags or completions.
//
// Threads: one at a time (the owner serialises). Nothing blocks but shut_down() and close(), within linger_ns.
// Hot path: send() writes or collects (Channel); poll() writes what was collected and reads. A connection that has been silent for a while is
// read in every eighth poll only, so that a queue with many of them stays quick; sleeping and waking ends that.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "core/progress.hpp"
#include "core/provider_error.hpp"
#include "link/tcp/channel.hpp"
#include "link/tcp/formed_address.hpp"
#include "link/tcp/listener.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/timer.hpp"
#include "proto/engine/connection.hpp"
#include "wire/frame.hpp"

namespace weft::link::tcp {

struct Other {};  // the peer: there is only one, and all that is known of it is in the connection

using ConnectionEvents = proto::LinkEvents<Other>;

class Connection : public proto::LinkBase {
 public:
  using PeerBase = Other;
  using Events = ConnectionEvents;
  using Listener = tcp::Listener;
  static constexpr bool sole_peer = true;
  static constexpr size_t connection_data_bytes_max = handshake_data_max;
  static constexpr size_t frame_bytes_max = connection_frame_bytes_max;
  static constexpr size_t eager_bytes_max = size_t{1} << 13;
  static constexpr size_t fragmented_eager_bytes_max = size_t{1} << 18;
  static constexpr size_t fragment_bytes = size_t{1} << 18;
  static constexpr size_t segment_bytes = size_t{1} << 18;
  static constexpr size_t small_bytes_max = 1024;
  static constexpr size_t address_length = os::SocketAddress::text_bytes;  // of the longest format
  static constexpr uint64_t linger_ns = 500'000'000;

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(); }

  // --- before open() ---
  void set_address_format(uint32_t format) noexcept { format_ = format; }
  void set_traffic_class(uint8_t dscp) noexcept { dscp_ = dscp; }
  // Until the host must have answered; until the program there must have accepted or rejected.
  void set_connect_timeout_ms(uint64_t timeout) noexcept { connect_timeout_ns_ = timeout * 1'000'000; }
  void set_accept_timeout_ms(uint64_t timeout) noexcept { accept_timeout_ns_ = timeout * 1'000'000; }

  // --- ConnectedLink ---
  Result<void> open(std::string_view name, Events& events, proto::ConnectionObserver& observer);
  Result<void> start(std::string_view name, std::span<const std::byte> data);
  Result<void> accept(std::unique_ptr<Request> request, std::span<const std::byte> data);
  void advance() noexcept;
  void shut_down() noexcept;
  void close() noexcept;
  std::span<const std::byte> address() const noexcept { return own_.bytes(); }
  std::span<const std::byte> peer_address() const noexcept { return other_.bytes(); }
  int control_fd() const noexcept { return control_set_.get(); }
  // False in a forked child: the connection is its parent's.
  bool belongs_here() const noexcept;

  // --- Link ---
  Other* connect(std::span<const std::byte>, int& error) noexcept;
  void forget(Other& peer) noexcept;
  bool send(Other&, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept {
    note_sent();
    return channel_.send(head, prefix, parts, part_count);
  }
  bool send_zero_copy(Other&, const wire::FrameHead& head, std::span<const std::byte> prefix,
                      const iovec* parts, size_t part_count) noexcept {
    note_sent();
    return channel_.send_in_place(head, prefix, parts, part_count);
  }
  void copy_out(Other&) noexcept { channel_.keep(); }
  proto::SmallSend send_small(Other&, const wire::FrameHead& head, const void* bytes) noexcept {
    const iovec part{const_cast<void*>(bytes), head.length};
    note_sent();
    return channel_.send(head, {}, &part, 1) ? proto::SmallSend::Sent : proto::SmallSend::Refused;
  }
  // Complete is what the socket has taken.
  uint64_t sent_sequence(const Other&) const noexcept { return channel_.taken(); }
  uint64_t completed_sequence(const Other&) const noexcept { return channel_.written(); }

  uint64_t delivered_sequence(const Other&) const noexcept { return delivered_; }

  bool has_left(const Other&) const noexcept { return channel_.has_left(); }

  // The socket may have had no room for all that was sent since the last poll.
  bool has_background_work() const noexcept { return sent_since_poll_; }
  void notify_background_work(core::Signal* signal) noexcept { background_ = signal; }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (stage_ != Stage::Open) [[unlikely]] {
      advance();
      if (stage_ != Stage::Open) return 0;
    }
    if (channel_.flush()) sent_since_poll_ = false;
    if (silent_ >= silent_polls_max && ++silent_ % polls_per_read != 0) return 0;
    const int taken = channel_.receive(handler, *peer_, buffer_);
    if (taken != 0) {
      silent_ = 0;
    } else if (silent_ < silent_polls_max) {
      ++silent_;
    } else if (silent_ >= silent_polls_max + polls_per_check) {
      check_health();
    }
    if (channel_.state() != Channel::State::Open) [[unlikely]]
      lose(reason_of_end());
    return taken;
  }

  int wait_fd() noexcept;
  bool arm() noexcept;
  void disarm() noexcept { silent_ = 0; }

 private:
  enum class Stage : uint8_t {
    Idle,
    Connecting,  // connecting, or our Hello is not answered
    Open,
    Shut,  // we have said good-bye, and wait for the other side to leave
    Over,
  };
  static constexpr uint32_t silent_polls_max = 64;
  static constexpr uint32_t polls_per_read = 8;
  static constexpr uint32_t polls_per_check = 1024;

  void opened(std::span<const std::byte> data) noexcept;
  void refuse(int error, core::ProviderError why, std::span<const std::byte> data) noexcept;
  void refused_by(const Handshake& handshake) noexcept;
  void lose(core::ProviderError why) noexcept;
  core::ProviderError reason_of_end() const noexcept;
  [[gnu::noinline, gnu::cold]] void check_health() noexcept;
  void watch() noexcept;
  void leave() noexcept;
  bool discard() noexcept;
  void wait_until_sent(uint64_t until_ns) noexcept;

  Stage stage_ = Stage::Idle;
  void note_sent() noexcept {
    sent_since_poll_ = true;
    if (background_ != nullptr) [[unlikely]]
      std::exchange(background_, nullptr)->notify();
  }

  bool sent_since_poll_ = false;  // or not all of it has been written
  core::Signal* background_ = nullptr;
  uint32_t silent_ = 0;  // polls without a frame
  Channel channel_{frame_bytes_max};
  Other* peer_ = nullptr;
  std::vector<std::byte> buffer_;

  // --- cold below this line ---
  uint64_t delivered_ = UINT64_MAX;  // bytes that had reached the other machine when the connection was lost
  Events* events_ = nullptr;
  proto::ConnectionObserver* observer_ = nullptr;
  uint32_t format_ = 0;
  uint8_t dscp_ = 0;
  uint64_t connect_timeout_ns_ = 10'000'000'000;
  uint64_t accept_timeout_ns_ = 60'000'000'000;
  uint64_t deadline_ns_ = 0;  // Connecting
  uint64_t checked_ns_ = 0;
  bool arrived_ = false;  // Connecting: the host has answered
  int owner_pid_ = 0;
  os::SocketAddress from_;
  FormedAddress own_;
  FormedAddress other_;
  os::PollSet control_set_;  // the socket and the timer
  os::PollSet data_set_;     // the socket, for whoever sleeps on frames; made when it is asked for
  os::Timer timer_;          // Connecting
};

}  // namespace weft::link::tcp
