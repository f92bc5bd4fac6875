// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The shared memory link: reliable ordered frames between endpoints of one machine. Must not know tags or completions.
//
// Threads: one at a time (the owner serialises). Ring memory is shared with the peer process only.
// Hot path: send_small() writes one slot, poll() looks at the next slot of each active peer and at the pending bitmap. Neither
// enters the kernel.
//
// Link is responsible for the data path, for when peers end, and for composing the parts (docs/shm.md has the list); it must not know what lies in a slot
// (ring.hpp), how endpoints meet (handshakes.hpp), or how large messages are copied (copy_paths.hpp, shared_copies.hpp).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/cpu.hpp"
#include "base/assert.hpp"
#include "base/result.hpp"
#include "core/provider_error.hpp"
#include "link/shm/active_peers.hpp"
#include "link/shm/check_schedule.hpp"
#include "link/shm/copy_paths.hpp"
#include "link/shm/doorbells.hpp"
#include "link/shm/exposed_regions.hpp"
#include "link/shm/handshakes.hpp"
#include "link/shm/in_place.hpp"
#include "link/shm/layout.hpp"
#include "link/shm/memory_file.hpp"
#include "link/shm/owner.hpp"
#include "link/shm/peer.hpp"
#include "link/shm/shared_copies.hpp"
#include "link/shm/tick_rate.hpp"
#include "link/shm/traffic.hpp"
#include "link/shm/warnings.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"
#include "os/shared_memory.hpp"
#include "proto/engine/link.hpp"
#include "wire/frame.hpp"

namespace weft::link::shm {

// More than 60 functions, because 45 of them are the calls of the concepts of proto/engine/link.hpp; most are one line to a part.
class Link : public proto::LinkBase {
 public:
  using PeerBase = Peer;
  using Events = shm::Events;
  static constexpr size_t frame_bytes_max = size_t{1} << 16;
  static constexpr size_t eager_bytes_max = size_t{1} << 13;
  static constexpr size_t fragmented_eager_bytes_max = size_t{1} << 18;
  static constexpr size_t fragment_bytes = size_t{1} << 14;
  static constexpr size_t segment_bytes = size_t{1} << 15;
  static constexpr bool has_housekeeping = true;
  static constexpr size_t small_bytes_max = inline_max;
  static constexpr bool small_credit = true;
  static constexpr size_t address_length = address_bytes;
  static constexpr size_t in_place_bytes_max = frame_bytes_max;
  static constexpr size_t ring_entries = slot_count;
  static constexpr size_t ring_bytes = bulk_bytes;

  Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  // Opens the endpoint under a name ("" chooses one). Where a name fi_ns://... is taken, the endpoint is fi_ns://...:PID:N, so that programs
  // of which both sides ask for one service work; address() tells. Errno EADDRINUSE when any other name is taken.
  Result<void> open(std::string_view address, Events& events);
  // The owner takes nothing more from the peer, whose frames make no sense.
  void warn_of_malformed(const Peer& peer, const char* what) noexcept;
  void set_warning(proto::PacketWarning on_warning, const void* who) noexcept {
    warnings_.set(on_warning, who);
  }
  // Lines at level info: when messages of a peer are copied another way from now on, and what was copied, when the endpoint closes. Before open().
  void set_note(proto::PacketWarning on_note, const void* who) noexcept { note_ = {on_note, who}; }
  // What the owner of this link is called: peers are made of that instead of the link's own address. At most alias_bytes. Before the first
  // connect().
  void set_alias(std::span<const std::byte> alias) noexcept { handshakes_.set_alias(alias); }
  // Whether somebody has that address here and now. True when that cannot be told.
  static bool is_present(std::span<const std::byte> address) noexcept;
  // False in a forked child: the endpoint is its parent's.
  bool belongs_here() const noexcept;
  // Tells the peers and lets go of everything.
  void close() noexcept;
  std::span<const std::byte> address() const noexcept;

  // The peer with that address, made when it is new. Null with errno-like code in `error` when the address is malformed.
  Peer* connect(std::span<const std::byte> address, int& error);
  // The owner drops a peer (it must not be lost already).
  void forget(Peer& peer) noexcept;

  // Changes with each small frame that is sent, and when one comes in.
  uint32_t burst() const noexcept { return burst_; }

  // --- hot ---
  // Sends a frame of at most small_bytes_max bytes (8 fewer with a b field).
  [[gnu::always_inline]] proto::SmallSend send_small(Peer& peer, const wire::FrameHead& head,
                                                     const void* bytes) noexcept {
    if (!peer.out.has_slot()) [[unlikely]]
      return proto::SmallSend::Refused;  // more_room() sees what is next
    const bool is_burst = static_cast<int32_t>(--burst_) < 0;
    return peer.out.put_small(head, bytes, is_burst) ? proto::SmallSend::Sent : proto::SmallSend::Unseen;
  }
  // After send_small() has refused. True: it will not do so now.
  bool more_room(Peer& peer) noexcept { return peer.out.more_room(); }
  // Rings the peer's doorbell.
  void wake_receiver(Peer& peer) noexcept { ring_doorbell(peer); }
  // Sends prefix and gathered bytes as one frame; head.length is their sum, at most frame_bytes_max. False: no room now.
  bool send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept;

  // Delivers waiting frames: handler.on_frame(peer, head, payload) returns false to be asked again later. Returns the frames taken.
  template <class Handler>
  int poll(Handler& handler) noexcept {
    int taken = 0;
    // Most looks find nothing, and drain() saves many registers.
    for (size_t i = 0; i < active_.size(); ++i)
      if (active_[i].in.is_fresh()) taken += drain(active_[i], handler, frames_per_poll);
    if (header_->pending.load(std::memory_order_relaxed) != 0) [[unlikely]]
      taken += poll_pending(handler);
    if (taken != 0) burst_ = lone_messages;
    if (taken == 0) {
      if (checks_.found_nothing()) [[unlikely]]
        taken += check_all(handler);
    } else if (checks_.found_something()) [[unlikely]] {
      taken += check_all(handler);
    }
    return taken;
  }

  // poll() in a few loads (proto::HasFastPoll), for the usual case of one active peer.
  struct Seen {
    Peer* peer;
    Slot* slot;
    SlotHeader header;
  };
  [[gnu::always_inline]] proto::FastPoll fast_poll(Seen& seen) noexcept {
    if (active_.size() != 1 || header_->pending.load(std::memory_order_relaxed) != 0) [[unlikely]]
      return proto::FastPoll::Poll;
    Peer& peer = active_[0];
    Slot& slot = peer.in.next_slot();
    const SlotHeader header = slot.header.load(std::memory_order_acquire);
    if (static_cast<uint8_t>(header) == sequence_of(peer.in.next())) {
      seen = {&peer, &slot, header};
      return proto::FastPoll::Frame;
    }
    if (!checks_.may_find_nothing()) [[unlikely]]
      return proto::FastPoll::Poll;  // which looks around
    checks_.count_nothing();
    return proto::FastPoll::Nothing;
  }
  template <class Take>
  [[gnu::always_inline]] bool take_frame(const Seen& seen, wire::HeadWord pattern, Take&& take) noexcept {
    const auto length = static_cast<uint32_t>(seen.header >> 32);
    if (static_cast<uint32_t>(seen.header) >> 8 != pattern || length > inline_max ||
        !checks_.may_find_something() || !take(*seen.peer, seen.slot->a, seen.slot->payload.data(), length))
        [[unlikely]]
      return false;
    checks_.count_something();
    burst_ = lone_messages;
    seen.peer->in.consumed_short();
    return true;
  }

  // --- in place (proto::HasLoans) ---
  using ReservedBuffer = shm::ReservedBuffer;
  using Loan = shm::Loan;
  // poll(), frame by frame, until taker.satisfied(); what else there is goes to `rest`.
  template <class Taker, class Handler>
  void poll_for(Taker& taker, Handler&) noexcept {
    for (size_t i = 0; i < active_.size() && !taker.satisfied(); ++i) {
      Peer& peer = active_[(first_to_take_ + i) % active_.size()];
      for (int n = 0; n < frames_per_poll && !taker.satisfied(); ++n)
        if (drain(peer, taker, 1) == 0) break;
    }
    if (active_.size() != 0) first_to_take_ = (first_to_take_ + 1) % active_.size();
    if (header_->pending.load(std::memory_order_relaxed) != 0) poll_pending(taker);
    if (checks_.found_nothing()) check_all(taker);
  }
  Loan loan(Peer& peer) noexcept { return in_place_.loan(peer); }
  void release(const Loan& loan) noexcept { in_place_.release(loan); }
  // Until commit() or abandon() nothing goes to the peer that does not fit a slot.
  ReservedBuffer* reserve(Peer& peer, size_t bytes, int& error) noexcept;
  static std::byte* bytes_of(const ReservedBuffer& buffer) noexcept { return buffer.bytes; }
  bool commit(ReservedBuffer& buffer, const wire::FrameHead& head) noexcept;
  void abandon(ReservedBuffer& buffer) noexcept { in_place_.end(buffer); }
  proto::RingUse rings(const Peer& peer) const noexcept { return InPlace::rings(peer); }

  // --- reading the peer's memory (CMA) ---
  bool can_read(const Peer& peer) const noexcept { return peer.memory.can_read(); }
  static bool has_left(const Peer& peer) noexcept { return peer.has_left(); }
  uint8_t unread(const Peer& peer) const noexcept { return peer.unread; }
  // --- large messages ---
  uint64_t stamp() const noexcept { return arch::ticks(); }
  bool announces(const Peer& peer, uint64_t bytes) const noexcept { return paths_.announces(peer, bytes); }
  uint64_t begin_copy(const Peer& peer, uint64_t stamp) const noexcept { return paths_.begin(peer, stamp); }
  proto::CopyChoice choose_copy(Peer& peer, uint64_t bytes, uint64_t stamp, uint64_t heard) noexcept {
    return paths_.choose(peer, bytes, stamp, heard);
  }
  void copied(Peer& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept {
    paths_.copied(peer, path, bytes, start);
  }
  void fetched_by(Peer&, uint64_t bytes) noexcept { traffic_.add_by_kernel(true, bytes); }
  proto::CopyUse copy_use(const Peer* peer, uint64_t bytes) const noexcept { return paths_.use(peer, bytes); }
  int read(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
           size_t remote_count, size_t bytes) noexcept {
    return shared_.read(peer, local, local_count, remote, remote_count, bytes);
  }
  uint64_t open_meeting(Peer& peer, uint64_t bytes) noexcept { return shared_.open(peer, bytes); }
  proto::CopyState copy(Peer& peer, uint64_t meeting, const iovec* local, size_t local_count,
                        const wire::SourceSegment* remote, size_t remote_count, uint64_t bytes,
                        bool patient) noexcept {
    return shared_.copy(peer, meeting, local, local_count, remote, remote_count, bytes, patient);
  }
  void end_meeting(Peer& peer, uint64_t meeting) noexcept { shared_.end(peer, meeting); }
  int pause_meetings() noexcept { return header_ == nullptr || !belongs_here() ? 0 : shared_.pause(peers_); }
  proto::Assistance assist(Peer& peer, uint64_t meeting, uint64_t bytes, const wire::SourceSegment* to,
                           size_t to_count, const iovec* local, size_t local_count,
                           uint32_t& taken) noexcept {
    if (!belongs_here()) return proto::Assistance::Ended;
    return shared_.assist(peer, meeting, bytes, to, to_count, local, local_count, taken);
  }

  // --- one-sided access (CMA): access.cpp ---
  void expose(const proto::ExposedRegion& region) noexcept;
  int conceal(uint64_t key) noexcept;
  int conceal_all() noexcept;
  // access() may work, by what is known.
  bool reaches(const Peer& peer) const noexcept { return peer.memory.can_read() && peer.regions.is_open(); }
  bool access(Peer& peer, bool write, const iovec* local, size_t local_count, const wire::RmaTarget* targets,
              size_t target_count, size_t bytes) noexcept;

  // --- sleeping ---
  int wait_fd() const noexcept { return epoll_.get(); }
  bool arm() noexcept;
  void disarm() noexcept;

 private:
  static constexpr int frames_per_poll = 16;
  static constexpr uint32_t lone_messages = 2;
  static constexpr size_t ready_channels = Handshakes::warm_channels;

  [[gnu::noinline, gnu::cold]] void ring_doorbell(Peer& peer) noexcept;

  template <class Handler>
  int drain(Peer& peer, Handler& handler, int budget) noexcept {
    return peer.in.drain(peer, handler, budget,
                         [&](const char* what) noexcept { return reject(peer, what); });
  }
  // A malformed frame: stops listening to the peer.
  [[gnu::noinline, gnu::cold]] int reject(Peer& peer, const char* what) noexcept;

  template <class Handler>
  [[gnu::noinline, gnu::cold]] int poll_pending(Handler& handler) noexcept {
    int taken = 0;
    const uint64_t bits = header_->pending.exchange(0, std::memory_order_acq_rel);
    if ((bits & pending_socket) != 0) handshakes_.read_socket();
    collect_rung(bits & ~pending_socket);
    for (size_t i = 0; i < rung_.size(); ++i) {
      Peer& peer = *rung_[i];
      if (!peer.in.takes_frames()) continue;
      const int got = drain(peer, handler, rung_budget);
      taken += got;
      if (peer.has_closed()) lose(peer);  // it rang to say so
      // What is left behind must not wait for another doorbell.
      if (got == rung_budget || peer.in.has_frame()) {
        if (!peer.activity.active) doorbells_.ring_own(peer);
      }
    }
    rung_.clear();
    return taken;
  }
  // Time for what needs the kernel: datagrams, deaths, closed peers, credit of idle rings. At most once a millisecond.
  template <class Handler>
  [[gnu::noinline, gnu::cold]] int check_all(Handler& handler) noexcept {
    if (!check_is_due()) return 0;
    int taken = 0;
    find_lost();
    for (size_t i = 0; i < lost_.size(); ++i) {
      Peer& peer = lost_[i];
      // What it had sent still counts: that is a ring at most, whatever a hostile peer goes on writing.
      constexpr int ring = slot_count;
      const int got = !peer.in.takes_frames() ? 0 : drain(peer, handler, ring);
      taken += got;
      if (got == ring || !peer.in.takes_frames() || !peer.in.has_frame()) retire(peer);
      else lose(peer);  // there is no memory for what it had sent: again in the next look
    }
    lost_.clear();
    return taken;
  }

  bool check_is_due() noexcept;
  void find_lost() noexcept;  // fills lost_
  void retire(Peer& peer) noexcept;
  void lose(Peer& peer) noexcept { dying_.add(peer); }  // to be retired in the next look
  void collect_rung(uint64_t words) noexcept;           // fills rung_
  void housekeeping(uint64_t now_ns) noexcept;
  void abandon_inherited() noexcept;
  void return_bulk(Peer& peer) noexcept;
  void detach(Peer& peer) noexcept;
  void make_room();

  static_assert((payload_in_bulk & wire::frame_flags) == 0);
  static_assert(frame_bytes_max == payload_bytes_max && eager_bytes_max == stride_payload_max &&
                fragmented_eager_bytes_max == fragmented_bytes_max);
  static constexpr int rung_budget = 64;
  static constexpr size_t events_per_check = 64;

  RegionHeader* header_ = nullptr;
  ActivePeers active_;
  CheckSchedule checks_;
  uint32_t burst_ =
      lone_messages;  // counts down with each frame sent since one came in; "negative": more are expected

  // --- cold below this line ---
  Events* events_ = nullptr;
  MemoryFile file_;
  os::PollSet epoll_;
  PeerTable peers_;
  Doorbells doorbells_;
  std::vector<Peer*> rung_;
  PeerList lost_;                            // to be retired in this look
  PeerList dying_;                           // to be retired in the next look
  std::unique_ptr<ExposedRegions> exposed_;  // made with the first region
  InPlace in_place_{file_};
  size_t first_to_take_ = 0;  // in active_, so that everybody's turn comes
  uint64_t next_housekeeping_ns_ = 0;
  Traffic traffic_;
  InfoLines note_;
  TickRate rate_;
  CopyPaths paths_{rate_, note_};
  SharedCopies shared_{paths_, rate_, dying_};
  Warnings warnings_;
  proto::WarningRate cuts_{10'000'000'000};  // lines that say that a peer is cut off
  uint64_t probe_word_ = 0;                  // what peers read to see that this process is still this program
  Owner owner_;
  // What Handshakes asks of the owner of the peers.
  class Host final : public HandshakeHost {
   public:
    explicit Host(Link& link) noexcept : link_(link) {}
    void make_room() override { link_.make_room(); }
    Peer* make_peer(std::span<const std::byte> name) override;
    void replace(Peer& peer) noexcept override;

   private:
    Link& link_;
  };
  Host host_{*this};
  Handshakes handshakes_{owner_,  file_,  peers_, dying_,    active_, doorbells_,
                         checks_, epoll_, paths_, warnings_, note_,   host_};
};

}  // namespace weft::link::shm
