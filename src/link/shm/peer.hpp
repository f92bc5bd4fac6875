// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the shared memory link knows of one peer. The engine derives from it. Must not know what is done with it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "link/shm/copies.hpp"
#include "link/shm/layout.hpp"
#include "link/shm/peer_memory.hpp"
#include "link/shm/remote_regions.hpp"
#include "link/shm/ring.hpp"
#include "os/fd.hpp"
#include "os/process.hpp"
#include "os/shared_memory.hpp"
#include "proto/engine/link_base.hpp"

namespace weft::link::shm {

enum class PeerState : uint8_t { New, Greeted, Known, Lost };

struct LentFrames;  // in_place.hpp
struct ReservedBuffer;

// One peer. The engine derives from it; the link owns these fields.
struct Peer {
  SendRing out;    // our channel to the peer
  ReceiveRing in;  // the peer's channel to us
  // --- cold below this line ---
  LentFrames* lent = nullptr;
  ReservedBuffer* reserved = nullptr;  // one slot and all the rest of the bulk ring are kept for it
  RegionHeader* remote = nullptr;      // the peer's header, once mapped
  bool active = false;                 // in Link's active list
  bool demoting = false;               // leaving it
  bool hello_sent = false;
  uint64_t hello_at_ns = 0;     // of the last note
  uint64_t hello_pause_ns = 0;  // until the next, while nobody attaches
  bool malformed = false;
  bool gone = false;               // its process, or the program in it
  bool mute = false;               // our file could not grow by a channel to it
  uint8_t unread = 0;              // messages that it may not have read, when it was lost (proto::Unread)
  bool foreign = false;            // another user's
  bool it_is_short = false;        // `short_*` are of the peer's process, else of ours
  bool not_passed = false;         // descriptors that were sent do not arrive, though nothing is short
  bool gave_up = false;            // short, or not passed, for too long
  bool is_silent = false;          // no answer to the greeting for a second: said in the log
  bool chosen_by_library = false;  // the address dies with its endpoint
  PeerState state = PeerState::New;
  uint32_t doorbells = 0;  // doorbells answered lately
  uint32_t doorbell = 0;   // its doorbell in our header
  Peer* next_same_doorbell = nullptr;
  int32_t pid = 0;  // as we see it; 0: not visible
  uint64_t nonce = 0;
  uint64_t met_at_ns = 0;       // when it was made
  uint64_t asked_at_ns = 0;     // when its socket took the first hello; 0: none has, or that socket is gone
  uint64_t short_since_ns = 0;  // descriptors or memory for the meeting were lacking first; 0: not lately
  uint64_t short_at_ns = 0;     // and last
  uint64_t rang_at_ns = 0;      // last doorbell or promotion
  uint64_t demoted_at_ns = 0;   // when it began to leave the active list
  size_t channel = 0;           // number of `out` in our file, from 0 on
  std::array<char, address_bytes> address{};
  os::Mapping remote_map;
  os::Fd pidfd;  // or a pipe (os::Liveness)
  PeerMemory memory;
  RemoteRegions regions;
  std::unique_ptr<Copies> copies;  // made with the first large message from it

  // It says that it has closed its endpoint.
  bool has_closed() const noexcept {
    return (remote != nullptr && remote->closed.load(std::memory_order_relaxed) != 0) ||
           (in.is_open() && in.control()->closed.load(std::memory_order_relaxed) != 0);
  }
  // It has closed, or its process has ended: a look finds that, too, but rarely.
  bool has_left() const noexcept { return has_closed() || os::has_exited(pidfd); }
  // The process has ended, or the program in it (execve(2)): whatever copy it was at has ended, too.
  bool has_gone() const noexcept { return os::has_exited(pidfd) || memory.is_replaced(); }
};

// Peers, each once. add() does not allocate after reserve(), so that it may be called anywhere.
class PeerList {
 public:
  void reserve(size_t count) {  // throws std::bad_alloc
    if (list_.capacity() < count) list_.reserve(2 * count);
  }
  void add(Peer& peer) noexcept {
    if (std::find(list_.begin(), list_.end(), &peer) == list_.end()) list_.push_back(&peer);
  }
  void erase(Peer& peer) noexcept { std::erase(list_, &peer); }
  void clear() noexcept { list_.clear(); }
  bool empty() const noexcept { return list_.empty(); }
  // By index: the list may change meanwhile.
  size_t size() const noexcept { return list_.size(); }
  Peer& operator[](size_t index) const noexcept { return *list_[index]; }

 private:
  std::vector<Peer*> list_;
};

using Events = proto::LinkEvents<Peer>;
using PeerTable = proto::PeersByName<Peer>;  // by address

}  // namespace weft::link::shm
