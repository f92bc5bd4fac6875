// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How an endpoint and its peers get to know each other: the control socket, notes out, notes in, whose they are, what comes with them, and what is
// done when descriptors or memory are lacking for it (handshakes.cpp, shortage.cpp). Must not know frames, polls, or what becomes of a peer that is lost.
//
// open() first; send_hello() and the others for each peer; read_socket() when a datagram waits; check() for each peer from time to time; close() or, in a forked
// child, abandon() last. A peer that is lost goes to the list `dying`.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "link/shm/active_peers.hpp"
#include "link/shm/check_schedule.hpp"
#include "link/shm/copy_paths.hpp"
#include "link/shm/doorbells.hpp"
#include "link/shm/handshake.hpp"
#include "link/shm/info_lines.hpp"
#include "link/shm/layout.hpp"
#include "link/shm/memory_file.hpp"
#include "link/shm/owner.hpp"
#include "link/shm/peer.hpp"
#include "link/shm/refused_addresses.hpp"
#include "link/shm/warnings.hpp"
#include "os/disposal.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"
#include "proto/engine/link_base.hpp"

namespace weft::link::shm {

// The owner of the peers.
class HandshakeHost {
 public:
  // Throws std::bad_alloc: before a peer is made, so that putting it on a list never does.
  virtual void make_room() = 0;
  // Null: nobody of that name is let in. May throw std::bad_alloc.
  virtual Peer* make_peer(std::span<const std::byte> name) = 0;
  // Another endpoint has the name of that peer, which is lost at once.
  virtual void replace(Peer& peer) noexcept = 0;

 protected:
  ~HandshakeHost() = default;
};

class Handshakes {
 public:
  // Channels of our file that have pages for their slots and the first window of the bulk ring from the meeting on: as many as are polled without a
  // doorbell. An endpoint holds at most so many times 84 KiB for it, whatever the number of peers.
  static constexpr size_t warm_channels = 16;
  static_assert(warm_channels == ActivePeers::count_max);

  Handshakes(const Owner& owner, MemoryFile& file, PeerTable& peers, PeerList& dying, ActivePeers& active,
             Doorbells& doorbells, CheckSchedule& checks, os::PollSet& epoll, CopyPaths& paths,
             Warnings& warnings, const InfoLines& note, HandshakeHost& host) noexcept
      : owner_(owner),
        file_(file),
        peers_(peers),
        dying_(dying),
        active_(active),
        doorbells_(doorbells),
        checks_(checks),
        epoll_(epoll),
        paths_(paths),
        warnings_(warnings),
        note_(note),
        host_(host) {}
  Handshakes(const Handshakes&) = delete;
  Handshakes& operator=(const Handshakes&) = delete;

  // Binds the name ("" chooses one), after the file was made. Errno EADDRINUSE when it is taken and has no second one.
  Result<void> open(std::string_view name);
  void set_alias(std::span<const std::byte> alias) noexcept;
  // Who we are: not read from the header, which peers may write.
  const std::array<char, address_bytes>& address() const noexcept { return address_; }
  uint64_t nonce() const noexcept { return nonce_; }
  // What unknown peers have put into the socket's queue goes first: it would be dropped by our close(2).
  void close() noexcept;
  void abandon() noexcept;

  // False: there is no memory for it, which is said.
  bool open_channel(Peer& peer) noexcept;
  // Its channel is left.
  void leave(const Peer& peer) noexcept {
    if (!peer.handshake.hello_sent) count_unsent_hellos(-1);
  }
  // A hello has found no room at the other socket, and only polling repeats it.
  bool has_unsent_hellos() const noexcept { return unsent_hellos_ != 0; }
  // Is the peer's file at hand? Then its doorbells are, too.
  void find_by_process(Peer& peer) noexcept;
  void send_hello(Peer& peer) noexcept;
  // A datagram that wakes its process.
  void wake(Peer& peer) noexcept { send_note(peer, NoteKind::Wake, false); }
  // Before a first contact.
  bool is_foreign(std::string_view address) noexcept;
  void read_socket() noexcept;

  // One look at all peers.
  struct Round {
    uint64_t now_ns;
    uint64_t away_ns;  // before it, in which no answer could be seen
    bool has_asked;    // for the owner of a name
  };
  enum class Seen : uint8_t {
    Well,
    Over,   // it is to be lost
    Later,  // nothing more is done with it in this round
  };
  Round begin_round(uint64_t now_ns) noexcept;
  Seen check(Peer& peer, Round& round) noexcept;

 private:
  void count_unsent_hellos(ptrdiff_t change) noexcept;
  void probe_cma(Peer& peer) noexcept;
  void watch(Peer& peer) noexcept;
  bool hello_is_due(Peer& peer, uint64_t now_ns) noexcept;
  Note note_to(const std::array<char, address_bytes>& whom, NoteKind kind) const noexcept;
  void send_note(Peer& peer, NoteKind kind, bool with_files) noexcept;
  bool belongs_to_user(const Peer& peer, std::string_view name, int& error) const noexcept;
  void refuse(Peer& peer) noexcept;

  void receive_notes() noexcept;
  void stay_armed() noexcept;
  bool receive_note(bool listening) noexcept;
  void handle_wake(const Note& note) noexcept;
  void read_handshake(const Note& note, os::Fd& file, os::Fd& liveness, int32_t pid) noexcept;
  void handle_without_descriptors(const Note& note, int32_t pid) noexcept;
  void handle_note(const Note& note, os::Fd& file, os::Fd& liveness, int32_t pid);  // throws std::bad_alloc
  void turn_away(const Note& note, uid_t uid) noexcept;
  bool is_memory_of(const os::Fd& file, const std::array<char, address_bytes>& address,
                    uint64_t nonce) const noexcept;
  bool attach_header(Peer& peer, const os::Fd& file, uint64_t nonce) noexcept;
  bool attach_channel(Peer& peer, const os::Fd& file, uint64_t offset) noexcept;

  // --- shortage.cpp ---
  void warn_of_shortage(const std::array<char, address_bytes>& whom, int code) noexcept;
  void lacks(Peer& peer, int code) noexcept;
  void lacks_for(const Note& note, int code) noexcept;
  void misses_descriptors_of(const Note& note, int32_t pid, int code) noexcept;
  void send_shortage(const std::array<char, address_bytes>& whom, uint64_t nonce,
                     NoteKind kind = NoteKind::Shortage) noexcept;
  void handle_shortage(const Note& note, int32_t pid) noexcept;
  void note_shortage(Peer& peer, bool of_peer) noexcept;
  void note_not_passed() noexcept;
  void warn_of_exited(const Note& note, int32_t pid) noexcept;
  void end_shortage(Peer& peer, uint64_t now_ns) noexcept;
  void log_silence(Peer& peer, uint64_t now_ns) noexcept;

  const Owner& owner_;
  MemoryFile& file_;
  PeerTable& peers_;
  PeerList& dying_;  // peers that the next look ends
  ActivePeers& active_;
  Doorbells& doorbells_;
  CheckSchedule& checks_;
  os::PollSet& epoll_;
  CopyPaths& paths_;
  Warnings& warnings_;
  const InfoLines& note_;
  HandshakeHost& host_;
  os::Fd socket_;
  os::Liveness liveness_;
  os::Disposal disposal_;  // of descriptors that came
  bool was_busy_ = false;  // it was at the last look
  std::array<char, address_bytes> address_{};
  uint64_t nonce_ = 0;  // tells this endpoint from every other that had its name
  std::array<std::byte, alias_bytes> alias_{};
  uint32_t alias_length_ = 0;
  size_t unsent_hellos_ = 0;    // peers that wait for our hello
  uint64_t checked_at_ns_ = 0;  // begin of the last round
  RefusedAddresses refused_;
  proto::WarningRate silences_{10'000'000'000};  // lines that say that a peer does not answer
};

}  // namespace weft::link::shm
