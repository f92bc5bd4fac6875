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

enum class PeerState : uint8_t {
  New,        // no hello was sent to it
  HelloSent,  // one was, and there is no answer
  Known,      // it has answered, or sent a Hello
  Lost,       // it is no peer any more
};

struct LentFrames;  // in_place.hpp
struct ReservedBuffer;

// One peer. The engine derives from it; the link owns these fields.
struct Peer {
  SendRing out;    // our channel to the peer
  ReceiveRing in;  // the peer's channel to us
  // --- cold below this line ---
  LentFrames* lent = nullptr;          // its frames that the program reads in place; null: none ever was
  ReservedBuffer* reserved = nullptr;  // one slot and all the rest of the bulk ring are kept for it
  RegionHeader* remote = nullptr;      // the peer's header, once mapped
  os::Mapping remote_map;              // of it
  PeerState state = PeerState::New;

  // Why it is lost.
  bool malformed = false;  // what it wrote makes no sense
  bool gone = false;       // its process, or the program in it
  bool mute = false;       // our file could not grow by a channel to it
  bool foreign = false;    // another user's
  uint8_t unread = 0;      // messages that it may not have read, when it was lost (proto::Unread)

  // Who it is.
  std::array<char, address_bytes> address{};
  bool chosen_by_library = false;  // the address dies with its endpoint
  uint64_t nonce = 0;              // of its endpoint; 0: not known yet
  int32_t pid = 0;                 // as we see it; 0: not visible
  os::Fd pidfd;                    // or a pipe (os::Liveness)
  PeerMemory memory;
  RemoteRegions regions;

  size_t channel = 0;                  // number of `out` in our file, from 0 on
  uint32_t doorbell = 0;               // its doorbell in our header
  Peer* next_same_doorbell = nullptr;  // Doorbells has the list
  std::unique_ptr<Copies> copies;      // made with the first large message from it

  // Of ActivePeers.
  struct Activity {
    bool active = false;         // every poll looks at its ring
    bool demoting = false;       // until it leaves the list
    uint32_t doorbells = 0;      // that it rang since it was last in the list, or found that full
    uint64_t rang_at_ns = 0;     // when it came into the list
    uint64_t demoted_at_ns = 0;  // when it began to leave
  } activity;
  // Of Handshakes.
  struct Handshake {
    bool hello_sent = false;
    bool is_silent = false;       // no answer for a second: said in the log
    uint64_t hello_at_ns = 0;     // of the last hello
    uint64_t hello_pause_ns = 0;  // until the next, while nobody attaches
    uint64_t met_at_ns = 0;       // when it was made, or its name was last found bound
    uint64_t asked_at_ns = 0;     // when its socket took the first hello; 0: none has, or that socket is gone
  } handshake;
  // Descriptors or memory that the meeting lacks.
  struct Shortage {
    bool is_of_peer = false;  // the peer's process lacks them, else ours does
    bool not_passed = false;  // descriptors that were sent do not arrive, though nothing is short
    bool gave_up = false;     // for too long
    uint64_t since_ns = 0;    // they were lacking first; 0: not lately
    uint64_t at_ns = 0;       // and last
  } shortage;

  // It says that it has closed its endpoint. Acquire: the frames that it sent before are visible to the last look into its ring.
  bool has_closed() const noexcept {
    return (remote != nullptr && remote->closed.load(std::memory_order_acquire) != 0) ||
           (in.is_open() && in.control()->closed.load(std::memory_order_acquire) != 0);
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
