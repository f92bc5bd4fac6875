// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The TCP link: one connection for each peer, made when it is first needed (docs/tcp.md). Must not know tags or completions.
//
// Threads: one at a time (the owner serialises). Nothing blocks, but for close(), within a bound.
// Hot path: send() writes or collects (Channel), poll() writes what was collected and reads the few sockets that were active lately; the
// others, and whoever connects, are looked at now and then (epoll). Connecting, handshakes and the loss of peers are in link.cpp.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "core/provider_error.hpp"
#include "link/tcp/acceptor.hpp"
#include "link/tcp/channel.hpp"
#include "link/tcp/session_table.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/socket_address.hpp"
#include "os/statistics.hpp"
#include "proto/engine/link.hpp"
#include "wire/frame.hpp"

namespace weft::link::tcp {

inline constexpr size_t frame_bytes_max = (size_t{1} << 18) + 64;

enum class PeerStage : uint8_t {
  Waiting,     // for its turn to be connected to, now or again
  Connecting,  // connecting, or our Hello is not answered
  Open,
};

// One peer. The engine derives from it; the link owns these fields.
struct Peer : Source, Session {
  Peer() noexcept : Source(SourceKind::Peer), channel(frame_bytes_max) {}

  Channel channel;
  PeerStage stage = PeerStage::Waiting;
  bool watched = false;  // in the poll set

  // --- cold below this line ---
  bool keyed = false;     // the one that stands for its address
  bool writing = false;   // the poll set waits for room, too
  bool reaching = false;  // Connecting, and its machine has not answered: one of connecting_max
  os::SocketAddress address;
  uint64_t incarnation = 0;         // of the endpoint at the other side, once it is known
  uint64_t delivered = 0;           // bytes that had reached its machine when the last connection ended
  uint64_t met_at_ns = 0;           // when connecting began
  uint64_t connect_started_ns = 0;  // when this attempt did
  uint64_t again_at_ns = 0;         // Waiting: when to connect
  uint64_t pause_ns = 0;            // until the next attempt
  std::vector<std::byte> early;     // frames that went with a handshake which found no answer
};

using Events = proto::LinkEvents<Peer>;

class Link : public proto::LinkBase {
 public:
  using PeerBase = Peer;
  using Events = tcp::Events;
  static constexpr size_t frame_bytes_max = tcp::frame_bytes_max;
  static constexpr size_t eager_bytes_max = size_t{1} << 13;
  static constexpr size_t fragmented_eager_bytes_max = size_t{1} << 18;
  static constexpr size_t fragment_bytes = size_t{1} << 18;
  static constexpr size_t segment_bytes = size_t{1} << 18;
  static constexpr bool has_housekeeping = true;
  static constexpr size_t small_bytes_max = 1024;
  static constexpr size_t address_length = os::SocketAddress::text_bytes;  // of the longest format
  static constexpr size_t alias_bytes_max = 64;
  static constexpr size_t pending_max = 4096;   // connected and nameless
  static constexpr size_t connecting_max = 64;  // connects that no machine has answered yet
  static constexpr uint64_t pending_silence_ns = 60'000'000'000;
  static constexpr uint64_t pending_grace_ns = 1'000'000'000;  // for one whose place another wants

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { close(); }

  // The owner takes nothing more from the peer, whose frames make no sense.
  void warn_of_malformed(const Peer& peer, const char* what) noexcept { warn_of_cut(peer, what); }
  // FI_SOCKADDR_IN, FI_SOCKADDR_IN6 or FI_ADDR_STR: how addresses look from outside. Before open().
  void set_address_format(uint32_t format) noexcept { format_ = format; }
  // Listens at an address, bytes in the format ("": a port of the kernel's choice). Port 0 chooses, too. Errno EADDRINUSE when it is taken.
  Result<void> open(std::string_view name, Events& events);
  void set_traffic_class(uint8_t dscp) noexcept { dscp_ = dscp; }  // before open()
  // What the owner of this link is called: it goes with every handshake, and peers are made of what they are called instead of their network
  // address. At most alias_bytes_max. Before the first connect().
  void set_alias(std::span<const std::byte> alias) noexcept;
  // False in a forked child: the connections are its parent's.
  bool belongs_here() const noexcept;
  // The owner is about to close: frames go with the handshake, for nobody will be there for the answer.
  void hurry() noexcept;
  // Says good-bye; what was accepted for sending gets half a second to leave.
  void close() noexcept;
  std::span<const std::byte> address() const noexcept {
    return std::span(own_bytes_).first(own_bytes_count_);
  }
  // The peer with that address, connected to when it is new.
  Peer* connect(std::span<const std::byte> address, int& error);
  // A link-local name has the scope of its own host (os::on_this_host). Peers have such names where this endpoint does.
  bool names_differ() const noexcept { return own_.is_link_local(); }
  bool is_name_of(std::span<const std::byte> name, std::span<const std::byte> address) const noexcept;
  void forget(Peer& peer) noexcept;

  // --- hot ---
  bool send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept {
    return noted(peer, peer.channel.send(head, prefix, parts, part_count));
  }
  bool send_zero_copy(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                      const iovec* parts, size_t part_count) noexcept {
    return noted(peer, peer.channel.send_in_place(head, prefix, parts, part_count));
  }
  void copy_out(Peer& peer) noexcept { peer.channel.keep(); }
  proto::SmallSend send_small(Peer& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    const iovec part{const_cast<void*>(bytes), head.length};
    return send(peer, head, {}, &part, 1) ? proto::SmallSend::Sent : proto::SmallSend::Refused;
  }
  // Complete is what the socket has taken.
  uint64_t sent_sequence(const Peer& peer) const noexcept { return peer.channel.taken(); }
  uint64_t completed_sequence(const Peer& peer) const noexcept { return peer.channel.written(); }
  bool is_stuck(const Peer& peer) const noexcept { return peer.channel.full(); }
  // What its machine has; known once the connection has ended.
  uint64_t delivered_sequence(const Peer& peer) const noexcept { return peer.delivered; }

  template <class Handler>
  [[gnu::always_inline]] int poll(Handler& handler) noexcept {
    if (has_background_work()) flush_dirty();
    int taken = sessions_.read_hot([&](Peer& peer) { return read_hot(peer, handler); });
    if (sessions_.has_stalled()) [[unlikely]]
      taken += sessions_.read_stalled([&](Peer& peer) { return read(peer, handler); });
    if (!sessions_.is_check_due(taken)) return taken;
    // While others are busy, a socket with nothing in it is not worth a system call in every poll.
    if (taken != 0) sessions_.demote_silent([&](Peer& peer) { demoted(peer); });
    return taken + check(handler);
  }

  // Read, too, where the other side has left: the next look ends it.
  bool has_left(const Peer& peer) const noexcept { return peer.channel.has_left(); }

  // Sockets may have had no room for all that was sent since the last poll.
  bool has_background_work() const noexcept { return !sessions_.dirty().empty(); }
  void notify_background_work(core::Signal* signal) noexcept { background_ = signal; }

  // --- sleeping ---
  int wait_fd() const noexcept { return events_set_.get(); }
  bool arm() noexcept;
  void disarm() noexcept;

 private:
  static constexpr uint32_t checks_to_unwatch = 32;  // since the last sleep

  template <class Handler>
  int read(Peer& peer, Handler& handler) noexcept {
    const int taken = peer.channel.receive(handler, peer, buffer_);
    if (peer.channel.state() != Channel::State::Open || peer.channel.stalled() || peer.stalled) [[unlikely]]
      after_read(peer);
    return taken;
  }
  template <class Handler>
  int read_hot(Peer& peer, Handler& handler) noexcept {
    const uint32_t silent = peer.silent;
    peer.silent = 0;
    const int taken = peer.channel.receive(handler, peer, buffer_);
    if (peer.channel.state() != Channel::State::Open || peer.channel.stalled() || peer.stalled) [[unlikely]]
      after_read(peer);
    else if (taken == 0) peer.silent = silent + 1;
    return taken;
  }

  // Everything that is not hot: other peers, whoever connects, connecting, time.
  template <class Handler>
  [[gnu::noinline]] int check(Handler& handler) noexcept {
    int taken = 0;
    ready_count_ = events_set_.ready(ready_);
    sessions_.checked(ready_count_ != 0);
    for (size_t i = 0; i < ready_count_; ++i) {
      auto* source = static_cast<Source*>(ready_[i]);
      if (source == nullptr) continue;  // gone since
      switch (source->kind) {
        case SourceKind::Listener:
          accept_pending();
          break;
        case SourceKind::PendingConnection:
          meet(static_cast<PendingConnection&>(*source), handler);
          break;
        case SourceKind::Peer: {
          Peer& peer = static_cast<Peer&>(*source);
          if (peer.stage == PeerStage::Open) {
            if (peer.hot) break;
            promote(peer);
            taken += read(peer, handler);
          } else {
            go_on(peer);
          }
        }
      }
    }
    ready_count_ = 0;
    acceptor_.reap();
    if (!armed_ && awake_checks_ < checks_to_unwatch && ++awake_checks_ == checks_to_unwatch) unwatch_hot();
    if (const uint64_t now = now_ns(); now >= next_housekeeping_ns_) housekeeping(now);
    return taken;
  }
  // A pending connection has sent something: it becomes a peer, or is refused.
  template <class Handler>
  [[gnu::cold]] void meet(PendingConnection& pending, Handler& handler) noexcept {
    if (pending.gone || !has_introduced_itself(pending)) return;
    // An old connection of the same peer may have ended, with frames that are still to be read.
    if (Peer* old = find(pending.channel.theirs()->address); old != nullptr && old->stage == PeerStage::Open)
      (void)read(*old, handler);
    admit(pending);
  }

  static uint64_t now_ns() noexcept;
  [[gnu::noinline, gnu::cold]] void after_read(Peer& peer) noexcept;
  bool noted(Peer& peer, bool sent) noexcept {
    // A socket that takes nothing at all refuses the frame, and only flush() asks it again.
    if (!peer.dirty && (sent || peer.channel.state() == Channel::State::Open)) note_dirty(peer);
    return sent;
  }
  void note_dirty(Peer& peer) noexcept {
    sessions_.note_dirty(peer);
    if (background_ != nullptr) [[unlikely]]
      std::exchange(background_, nullptr)->notify();
  }
  void flush_dirty() noexcept;
  void promote(Peer& peer) noexcept;
  void demoted(Peer& peer) noexcept;

  Result<void> listen(const os::SocketAddress& wanted);
  Peer* find(const os::SocketAddress& address) const noexcept;
  std::optional<os::SocketAddress> parse(std::span<const std::byte> name) const noexcept;
  std::optional<os::SocketAddress> read_name(std::span<const std::byte> name) const noexcept;
  Peer* make_peer(const os::SocketAddress& address, bool keyed, std::span<const std::byte> alias);
  void accept_pending() noexcept;
  bool has_introduced_itself(PendingConnection& pending) noexcept;
  void admit(PendingConnection& pending) noexcept;
  void welcome(PendingConnection& pending, Peer* peer, const Handshake& handshake,
               bool keyed);  // throws std::bad_alloc
  void refuse(PendingConnection& pending, RefusalReason reason) noexcept;
  void start_connect(Peer& peer) noexcept;
  void go_on(Peer& peer) noexcept;
  void connect_failed(Peer& peer, int error) noexcept;
  void connect_later(Peer& peer, uint64_t pause_ns) noexcept;
  void opened(Peer& peer, uint64_t incarnation) noexcept;
  void reached(Peer& peer) noexcept {
    if (std::exchange(peer.reaching, false)) --connecting_;
  }
  void hang_up(Peer& peer) noexcept;
  void lose(Peer& peer, core::ProviderError why) noexcept;
  void remove(Peer& peer) noexcept;
  void housekeeping(uint64_t now) noexcept;
  void show() noexcept;
  bool watch(Peer& peer, bool writing) noexcept;
  void unwatch(Peer& peer) noexcept;
  void unwatch_hot() noexcept;
  void forget_ready(const Source& source) noexcept;
  void wait_for_room(Peer& peer, bool writing) noexcept;
  Handshake local_handshake(HandshakeType type, const os::SocketAddress& target) const noexcept;
  std::span<const std::byte> form(const os::SocketAddress& address,
                                  std::array<std::byte, address_length>& out) const;
  void warn(const std::string& what) noexcept;
  // Of those who are not let in: anybody can call, so at most one line in a while says so, and how many there were.
  void warn_of_unknown_peer(const std::string& what) noexcept;
  void warn_of_cut(const Peer& peer, const char* what) noexcept;

  SessionTable<Peer> sessions_;
  uint32_t awake_checks_ = 0;
  bool armed_ = false;
  core::Signal* background_ = nullptr;  // notified once when a session is dirty again
  std::vector<std::byte> buffer_;

  // --- cold below this line ---
  Events* events_ = nullptr;
  uint32_t format_ = 0;
  os::SocketAddress own_;   // as others reach it
  os::SocketAddress from_;  // what outgoing connections are bound to; none when the program did not choose
  std::array<std::byte, address_length> own_bytes_{};
  size_t own_bytes_count_ = 0;
  std::array<std::byte, alias_bytes_max> alias_{};
  size_t alias_count_ = 0;
  uint64_t incarnation_ = 0;
  uint8_t dscp_ = 0;
  int owner_pid_ = 0;
  os::PollSet events_set_;
  Acceptor acceptor_{{tcp::frame_bytes_max, pending_max, pending_grace_ns, pending_silence_ns}};
  std::unordered_map<os::SocketAddress, Peer*, os::SocketAddressHash> by_address_;
  std::vector<Peer*> peers_;
  std::vector<Peer*> unopened_;  // Waiting or Connecting
  size_t connecting_ = 0;
  std::array<void*, 64> ready_{};
  size_t ready_count_ = 0;
  uint64_t next_housekeeping_ns_ = 0;
  uint64_t next_health_ns_ = 0;
  os::StatisticsEntry shown_;
  // What connections carried, for shown_.
  struct Carried {
    uint64_t frames_received = 0;
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;

    void add(const Peer& peer) noexcept;
  };
  Carried gone_;  // by connections that are closed
  bool short_of_descriptors_ = false;
  bool leaving_ = false;
  uint64_t unknown_logged_ns_ = 0;  // 0: never
  size_t unknown_untold_ = 0;
};

}  // namespace weft::link::tcp
