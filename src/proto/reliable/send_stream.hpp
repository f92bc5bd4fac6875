// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of a connection: bytes until they are acknowledged, what was sent when, what is taken for lost. Times in ns. Must not know how
// packets are written or whom they go to.
//
// A record is one packet's worth of bytes that went out. Records lie in the order of their bytes; first transmissions are therefore also in
// the order of time. Loss detection is RFC 8985's idea (RACK): an acknowledgement names the newest packet that arrived by its time of
// sending, and what was sent more than a reordering margin before that and has not arrived is lost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "proto/reliable/packet.hpp"
#include "proto/reliable/round_trip.hpp"
#include "proto/reliable/window.hpp"

namespace weft::proto::reliable {

struct Record {
  uint64_t offset;
  uint64_t sent_at;  // the last time
  uint32_t bytes;
  bool arrived;     // acknowledged out of order
  bool lost;        // to be sent again
  bool again;       // was sent more than once
  uint8_t repeats;  // so many times more (255: at least)
  uint8_t kept;     // so many times the peer's packet link had room (likewise)
  uint8_t losses;   // so many times it was taken for lost (likewise)
};

// Records in a ring that grows to records_max.
class Records {
 public:
  static constexpr size_t records_max = 8192;
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  Record& operator[](size_t i) noexcept {
    WEFT_ASSERT(i < size_);
    return ring_[(first_ + i) & (capacity_ - 1)];
  }
  const Record& operator[](size_t i) const noexcept {
    WEFT_ASSERT(i < size_);
    return ring_[(first_ + i) & (capacity_ - 1)];
  }
  bool make_room(size_t more) noexcept;  // false: no memory or the bound
  void push_back(const Record& record) noexcept {
    WEFT_ASSERT(size_ < capacity_);
    ring_[(first_ + size_++) & (capacity_ - 1)] = record;
  }
  void pop_front() noexcept {
    WEFT_ASSERT(size_ != 0);
    first_ = (first_ + 1) & (capacity_ - 1);
    --size_;
  }
  void clear() noexcept { size_ = 0; }

 private:
  std::unique_ptr<Record[]> ring_;
  size_t capacity_ = 0;
  size_t first_ = 0;
  size_t size_ = 0;
};

class SendStream {
 public:
  // The most bytes that are kept, and of those the most that were never sent: enough for the next packets, and no more than stays in the cache.
  static constexpr size_t bytes_max = window_bytes_max - chunk_bytes;
  static constexpr size_t unsent_max = size_t{192} << 10;

  // --- bytes in ---
  size_t room() const noexcept {
    WEFT_ASSERT(acked_ <= next_ && next_ <= end_);
    const size_t unsent_bytes = unsent();
    const size_t kept = static_cast<size_t>(end_ - acked_);
    if (unsent_bytes >= unsent_max || kept >= bytes_max) return 0;
    return std::min(unsent_max - unsent_bytes, bytes_max - kept);
  }
  bool reserve(ChunkPool& pool, size_t bytes) noexcept { return window_.reserve(pool, end_, bytes); }
  bool append(ChunkPool& pool, const std::byte* from, size_t bytes) noexcept;
  // Memory for the next bytes that append() copies when so many others were appended or borrowed before them.
  bool reserve_behind(ChunkPool& pool, size_t before, size_t bytes) noexcept {
    return window_.reserve(pool, end_ + before, bytes);
  }
  // The next bytes stay where they are: the owner keeps them until acked() has passed them, copy_out() or clear().
  // After reserve_borrowed().
  bool reserve_borrowed(size_t stretches) noexcept;
  void borrow(const std::byte* from, size_t bytes) noexcept {
    WEFT_ASSERT(bytes != 0 && borrowed_.size() < borrowed_.capacity());
    WEFT_ASSERT(borrowed_.empty() || borrowed_.back().end <= end_);
    borrowed_.push_back({end_, end_ + bytes, from});  // reserved
    end_ += bytes;
  }
  bool has_borrowed() const noexcept { return !borrowed_.empty(); }
  // Copies what is borrowed. False: no memory; then some of it still is.
  bool copy_out(ChunkPool& pool) noexcept;
  // Nothing more is sent, and nothing is held.
  void give_up(ChunkPool& pool) noexcept;

  // Before the peer has said how much it takes.
  void set_edge(uint64_t edge) noexcept { edge_ = edge; }

  // --- what there is to send ---
  size_t unsent() const noexcept { return static_cast<size_t>(end_ - next_); }
  size_t in_flight() const noexcept { return in_flight_; }
  size_t lost() const noexcept { return lost_bytes_; }
  bool outstanding() const noexcept { return !records_.empty(); }
  const Record* last() const noexcept { return records_.empty() ? nullptr : &records_[records_.size() - 1]; }
  uint64_t acked() const noexcept { return acked_; }
  uint64_t next() const noexcept { return next_; }
  uint64_t end() const noexcept { return end_; }
  uint64_t edge() const noexcept { return edge_; }  // the peer takes bytes before it
  // Bytes that the peer's window takes now.
  size_t permitted() const noexcept { return edge_ > next_ ? static_cast<size_t>(edge_ - next_) : 0; }
  // What to put into a packet: the pieces of at most `bytes` bytes, fewer when there would be more pieces.
  static constexpr size_t pieces_max = 4;
  struct Gathered {
    std::array<Piece, pieces_max> pieces;
    size_t count = 0;
    size_t bytes = 0;
    std::span<const Piece> span() const noexcept { return {pieces.data(), count}; }
  };
  Gathered gather(uint64_t offset, size_t bytes) const noexcept;
  bool can_record(size_t packets) noexcept { return records_.make_room(packets); }
  // The next `bytes` unsent ones went out in one packet. After can_record().
  void sent_new(size_t bytes, uint64_t now, bool kept) noexcept;
  // The lost record nearest to the front, or null. sent_again() says that it went out.
  Record* first_lost() noexcept;
  void sent_again(Record& record, uint64_t now, bool kept) noexcept;

  // --- what came back ---
  struct Acked {
    bool sound = false;
    size_t delivered = 0;   // bytes newly known to have arrived
    size_t lost = 0;        // bytes newly taken for lost
    bool progress = false;  // the front moved
  };
  // `echoed`: when the newest packet that arrived was sent, by our clock; 0: not known.
  Acked on_ack(ChunkPool& pool, const Packet& packet, uint64_t echoed, const RoundTrip& rtt,
               uint64_t now) noexcept;
  // When bytes may be taken for lost without another acknowledgement; 0: not at all. And doing so.
  uint64_t loss_due(const RoundTrip& rtt) const noexcept;
  size_t detect_lost(const RoundTrip& rtt, uint64_t now) noexcept;
  // Nothing came for a timeout: the first record that has not arrived is sent again, whatever became of it, and so is everything in the first
  // `count` ones. Returns the bytes of the first.
  size_t suspect(size_t count) noexcept;
  // The same of everything, on purpose: nothing of it counts as lost.
  void repeat_all() noexcept;
  // Whether the first `count` records have gone so many times more than once.
  bool all_repeated(unsigned times, size_t count) const noexcept;
  // Where the first `count` records end.
  uint64_t end_of(size_t count) const noexcept {
    WEFT_ASSERT(count <= records_.size());
    return count == 0 ? acked_ : records_[count - 1].offset + records_[count - 1].bytes;
  }
  // What the peer had room for when it said so last.
  size_t announced() const noexcept { return announced_; }
  // So many records from the front were sent `times` times when the peer's packet link had room, or are known to have arrived.
  size_t count_kept(unsigned times) const noexcept;
  // Packets on the way, as they count in Core::add_in_flight(), more or less.
  size_t outstanding_bytes() const noexcept { return in_flight_ + records_.size() * 384; }
  bool is_little(size_t bytes, size_t packets) const noexcept {
    return records_.size() <= packets && end_ - acked_ <= bytes;
  }
  uint64_t last_sent_at() const noexcept { return last_sent_at_; }
  // So far, without those that the peer has had already and those of whose fate nothing is known yet.
  uint64_t lost_packets() const noexcept { return lost_packets_ - needless_; }
  // The peer has had so many packets that were sent again already (as D-SACK says, RFC 2883 and 3708). Only grows, and is not believed beyond
  // what was taken for lost.
  void report_needless(uint64_t packets) noexcept {
    needless_ = std::max(needless_, std::min(packets, lost_packets_));
    WEFT_ASSERT(needless_ <= lost_packets_);
  }
  // The packets of these that have not been acknowledged, as often as each was taken for lost.
  uint64_t unanswered_losses() const noexcept;

  void clear(ChunkPool& pool) noexcept;
  // Nobody has taken anything of this stream yet: all of it is unsent again.
  void rewind() noexcept;

  // What holds between two calls.
  void assert_invariants() const noexcept {
    WEFT_ASSERT(acked_ <= next_ && next_ <= end_);
    WEFT_ASSERT(end_ - acked_ <= bytes_max || !borrowed_.empty());
    WEFT_ASSERT(in_flight_ + lost_bytes_ <= next_ - acked_);
    WEFT_ASSERT(needless_ <= lost_packets_);
    // The records cover the bytes that were sent and are not acknowledged.
    WEFT_ASSERT(records_.empty() || records_[0].offset == acked_);
    WEFT_ASSERT(records_.empty() || last()->offset + last()->bytes == next_);
    WEFT_ASSERT(!records_.empty() || (in_flight_ == 0 && lost_bytes_ == 0));
    WEFT_ASSERT(borrowed_.empty() || (borrowed_.front().end > acked_ && borrowed_.back().end <= end_));
    WEFT_ASSERT(reorder_quarters_ >= 1 && reorder_quarters_ <= 16);
  }

 private:
  // Bytes of the stream that are not in the window.
  struct Borrowed {
    uint64_t begin;
    uint64_t end;
    const std::byte* at;
  };

  std::span<const std::byte> view(uint64_t offset, size_t bytes) const noexcept;
  size_t find(uint64_t offset) const noexcept;
  uint64_t margin(const RoundTrip& rtt) const noexcept;
  void mark_arrived(const Range& range, Acked& out) noexcept;
  size_t mark_lost(Record& record) noexcept;

  Window window_;
  Records records_;
  std::vector<Borrowed> borrowed_;  // by begin; each is kept whole until its end is acknowledged
  uint64_t acked_ = 0;              // everything before it has arrived
  uint64_t next_ = 0;               // nothing from here on was ever sent
  uint64_t end_ = 0;
  uint64_t edge_ = 0;
  size_t announced_ = size_t{128} << 10;  // nobody's is less
  uint64_t newest_ = 0;                   // time of sending of the newest packet that arrived
  uint64_t arrived_end_ = 0;              // the highest byte known to have arrived
  uint64_t last_sent_at_ = 0;
  size_t in_flight_ = 0;
  size_t lost_bytes_ = 0;
  size_t lost_hint_ = 0;           // no record before it is lost
  uint64_t lost_packets_ = 0;      // taken for lost
  uint64_t needless_ = 0;          // of these: had arrived all the same
  unsigned reorder_quarters_ = 1;  // quarters of a round trip in the reordering margin
  uint64_t duplicate_seen_ = 0;    // when the last needless repetition was reported
};

}  // namespace weft::proto::reliable
