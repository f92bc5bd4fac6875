// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which way each large message of an endpoint is copied: the setting, a chooser for each peer and size class, what the senders are told, and what was
// copied in which way. Must not know how bytes are copied, meetings, or when peers are lost.
//
// announces() is asked by the sender; choose() or begin(), then copied(), by the receiver, for each message. forbid() and forbid_shared() when a way has
// turned out to be impossible.
#pragma once

#include <cstdint>

#include "link/shm/copies.hpp"
#include "link/shm/info_lines.hpp"
#include "link/shm/peer.hpp"
#include "link/shm/tick_rate.hpp"
#include "proto/engine/remote_access.hpp"

namespace weft::link::shm {

inline constexpr uint64_t fragmented_bytes_max = uint64_t{1} << 18;  // longer messages are announced anyway

class CopyPaths {
 public:
  CopyPaths(const TickRate& rate, const InfoLines& note) noexcept : rate_(rate), note_(note) {}
  CopyPaths(const CopyPaths&) = delete;
  CopyPaths& operator=(const CopyPaths&) = delete;

  // WEFT_SHM_COPY.
  void read_setting() noexcept;

  // --- as proto::HasRemoteMemory has it ---
  bool announces(const Peer& peer, uint64_t bytes) const noexcept;
  uint64_t begin(const Peer& peer, uint64_t stamp) const noexcept;
  proto::CopyChoice choose(Peer& peer, uint64_t bytes, uint64_t stamp, uint64_t heard) noexcept;
  void copied(Peer& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept;
  // Of a peer, or of all: null.
  proto::CopyUse use(const Peer* peer, uint64_t bytes) const noexcept;

  // Tells the peer which messages it should announce: after each change, and when its channel is there.
  void expect_announced(Peer& peer) noexcept;
  // The peer's memory cannot be reached any more.
  void forbid(Peer& peer) noexcept;
  // The peer cannot write our memory.
  void forbid_shared(Peer& peer) noexcept;
  // This process writes into the memory of receivers.
  bool may_assist() const noexcept { return !is_pinned_ || pinned_ == CopyPath::Both; }

  void written_by_sender(uint64_t bytes) noexcept { written_by_senders_ += bytes; }
  // Bytes of messages that came by another way than the ring.
  uint64_t bytes_outside_of_ring() const noexcept;
  // A line with what was copied.
  void note_all() const noexcept;

  static Copies* copies_of(Peer& peer) noexcept;  // null: no memory

 private:
  static CopyPath presumed_path(const Copies& copies, uint64_t bytes) noexcept;
  static CopyChooser* chooser_of(Peer& peer, uint64_t bytes) noexcept;
  void note_choice(const Peer& peer, const CopyChooser& chooser, uint64_t bytes) const noexcept;
  proto::CopyReason reason_of(const Peer& peer, const CopyChooser* chooser, uint64_t bytes) const noexcept;

  const TickRate& rate_;
  const InfoLines& note_;
  CopyCountsByClass in_all_;         // by peers that are gone, too
  uint64_t written_by_senders_ = 0;  // bytes of Both
  uint64_t changes_ = 0;             // of the way of a peer and size class
  uint64_t copied_at_ = 0;           // ticks: the end of the last large message
  bool is_pinned_ = false;           // by WEFT_SHM_COPY
  CopyPath pinned_ = CopyPath::Ring;
};

}  // namespace weft::link::shm
