// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Acceptor: connections that come in, until they have said who they are. Must not know what is expected of them.
//
// It accepts from a listening socket and watches what it accepted in its owner's poll set, whose events name a
// Source: the listener's means accept(), a pending connection's means that something of its handshake has come. Who
// says nothing costs a descriptor for a bounded time and never delays others. Bounds: pending_max connections, of
// which the oldest goes when another comes and it has had grace_ns; while there is no place or no descriptor
// whoever connects waits in the kernel, and the owner is not woken for it (100 ms).
//
// Threads: one at a time. Nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "link/tcp/channel.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/socket_address.hpp"

namespace weft::link::tcp {

// What an event of a poll set is about.
enum class SourceKind : uint8_t { Listener, PendingConnection, Peer };
struct Source {
  explicit Source(SourceKind what) noexcept : kind(what) {}
  SourceKind kind;
};

// Somebody who has connected and is to say who it is.
struct PendingConnection : Source {
  explicit PendingConnection(size_t frame_bytes_max) noexcept
      : Source(SourceKind::PendingConnection), channel(frame_bytes_max) {}
  Channel channel;
  uint64_t came_at_ns = 0;
  bool gone = false;  // dismissed: an event that names it is too late
};

class Acceptor {
 public:
  struct Bounds {
    size_t frame_bytes_max;
    size_t pending_max;
    uint64_t grace_ns;
    uint64_t silence_ns;  // nobody may be pending for longer
  };
  static constexpr uint64_t deaf_pause_ns = 100'000'000;

  explicit Acceptor(Bounds bounds) noexcept : bounds_(bounds) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  void set_silence_ns(uint64_t silence_ns) noexcept { bounds_.silence_ns = silence_ns; }
  // A socket that is bound. Errors: errno, and a sentence with the address.
  static Result<os::Fd> bind(const os::SocketAddress& wanted, uint8_t dscp);
  void open(os::Fd bound, os::PollSet& set) noexcept;
  // Listens, and watches the socket. Again: with another backlog.
  Result<void> listen(int backlog);
  const os::Fd& fd() const noexcept { return socket_; }
  bool listens() const noexcept { return static_cast<bool>(socket_); }
  // The next one who has connected, watched already. Null: nobody, or there is no place, descriptor or memory now.
  PendingConnection* accept(uint64_t now_ns) noexcept;
  // The last accept() found no descriptor.
  bool is_short_of_descriptors() const noexcept { return short_of_descriptors_; }
  // Closes what of the connection is still there. The object stays until reap().
  void dismiss(PendingConnection& pending) noexcept;
  // No event names anymore who was dismissed.
  void reap() noexcept { gone_.clear(); }
  // Dismisses who has been silent for too long, and listens again. Returns in how many ns there will be something to
  // do; 0: not.
  uint64_t run_housekeeping(uint64_t now_ns) noexcept;
  void close() noexcept;

  size_t pending_count() const noexcept { return pending_.size(); }

 private:
  bool watch() noexcept;
  void be_deaf(uint64_t now_ns) noexcept;

  Bounds bounds_;
  os::Fd socket_;
  os::PollSet* set_ = nullptr;
  Source source_{SourceKind::Listener};
  bool listening_ = false;
  bool short_of_descriptors_ = false;
  uint64_t deaf_until_ns_ = 0;                              // 0: the socket is watched
  std::deque<std::unique_ptr<PendingConnection>> pending_;  // oldest first
  std::vector<std::unique_ptr<PendingConnection>> gone_;
};

}  // namespace weft::link::tcp
