// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Large messages that are copied from and to where they lie, by cross-memory attach: by the receiver alone, or by both sides at once in a meeting
// (meeting.hpp). Must not know why a message is copied that way (copy_paths.hpp), nor rings and frames.
//
// The receiver: read(); or open(), copy() until it is Done or Failed, end() in between. The sender: assist(). A peer that turns out to be gone is added
// to the list of those that the next look ends.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "link/shm/copies.hpp"
#include "link/shm/copy_paths.hpp"
#include "link/shm/peer.hpp"
#include "link/shm/tick_rate.hpp"
#include "proto/engine/remote_access.hpp"
#include "wire/frame.hpp"

namespace weft::link::shm {

class SharedCopies {
 public:
  SharedCopies(CopyPaths& paths, const TickRate& rate, PeerList& dying) noexcept
      : paths_(paths), rate_(rate), dying_(dying) {}
  SharedCopies(const SharedCopies&) = delete;
  SharedCopies& operator=(const SharedCopies&) = delete;

  // --- as proto::HasRemoteMemory has it ---
  int read(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
           size_t remote_count, size_t bytes) noexcept;
  uint64_t open(Peer& peer, uint64_t bytes) noexcept;
  proto::CopyState copy(Peer& peer, uint64_t name, const iovec* local, size_t local_count,
                        const wire::SourceSegment* remote, size_t remote_count, uint64_t bytes,
                        bool patient) noexcept;
  void end(Peer& peer, uint64_t name) noexcept;
  int pause(const PeerTable& peers) noexcept;
  proto::Assistance assist(Peer& peer, uint64_t name, uint64_t bytes, const wire::SourceSegment* to,
                           size_t to_count, const iovec* local, size_t local_count, uint32_t& taken) noexcept;

  // Of a peer that is given up, with its channel.
  void end_all(Peer& peer) noexcept;
  // A sender that is waited for may have become another program, which nothing else tells: asked in each look.
  void check_for_gone_sender(Peer& peer) noexcept;

 private:
  int read_range(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
                 size_t remote_count, const MeetingRange& range) noexcept;
  static Copies::Meeting* find(Peer& peer, uint64_t name) noexcept;
  static int close(Peer& peer, Copies::Meeting& meeting, int64_t until_ms) noexcept;
  bool was_source(Peer& peer) noexcept;
  void lose_gone(Peer& peer) noexcept;
  void note_failure(Peer& peer, ssize_t error) noexcept;

  CopyPaths& paths_;
  const TickRate& rate_;
  PeerList& dying_;
  uint32_t generation_ = 0;  // of the last meeting, in all peers' channels
  bool closing_ = false;     // pause() was called: no meeting is opened any more
};

}  // namespace weft::link::shm
