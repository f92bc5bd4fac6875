// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Acknowledgement and loss.
#include "proto/reliable/send_stream.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include "base/assert.hpp"

namespace weft::proto::reliable {

bool Records::make_room(size_t more) noexcept {
  if (size_ + more <= capacity_) return true;
  if (capacity_ >= records_max) return false;
  const size_t larger = capacity_ == 0 ? 64 : 2 * capacity_;  // a GSO batch has at most 64 packets
  std::unique_ptr<Record[]> ring(new (std::nothrow) Record[larger]);
  if (!ring) return false;
  for (size_t i = 0; i < size_; ++i) ring[i] = (*this)[i];
  WEFT_ASSERT((larger & (larger - 1)) == 0 && size_ <= larger);
  ring_ = std::move(ring);
  capacity_ = larger;
  first_ = 0;
  return true;
}

bool SendStream::append(ChunkPool& pool, const std::byte* from, size_t bytes) noexcept {
  if (!window_.put(pool, end_, from, bytes)) return false;
  end_ += bytes;
  return true;
}

bool SendStream::reserve_borrowed(size_t stretches) noexcept try {
  if (borrowed_.size() + stretches > borrowed_.capacity())
    borrowed_.reserve(2 * borrowed_.size() + stretches);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool SendStream::copy_out(ChunkPool& pool) noexcept {
  while (!borrowed_.empty()) {
    const Borrowed& last = borrowed_.back();
    const uint64_t from = std::max(last.begin, acked_);
    WEFT_ASSERT(from < last.end);
    if (!window_.put(pool, from, last.at + (from - last.begin), last.end - from)) return false;
    borrowed_.pop_back();
  }
  return true;
}

void SendStream::give_up(ChunkPool& pool) noexcept {
  rewind();
  next_ = end_;
  clear(pool);
  WEFT_ASSERT(records_.empty() && in_flight_ == 0 && unsent() == 0);
}

// A stretch in one piece.
std::span<const std::byte> SendStream::view(uint64_t offset, size_t bytes) const noexcept {
  if (borrowed_.empty()) [[likely]]
    return window_.at(offset, bytes);
  const auto next = std::ranges::upper_bound(borrowed_, offset, {}, &Borrowed::begin);
  if (next != borrowed_.begin())
    if (const Borrowed& before = *std::prev(next); offset < before.end)
      return {before.at + (offset - before.begin), std::min<size_t>(bytes, before.end - offset)};
  if (next != borrowed_.end()) bytes = std::min<size_t>(bytes, next->begin - offset);
  return window_.at(offset, bytes);
}

SendStream::Gathered SendStream::gather(uint64_t offset, size_t bytes) const noexcept {
  Gathered all;
  WEFT_ASSERT(offset >= acked_ && offset + bytes <= end_);
  while (all.bytes < bytes && all.count < pieces_max) {
    const auto piece = view(offset + all.bytes, bytes - all.bytes);
    WEFT_ASSERT(!piece.empty());  // or there would be no end
    all.pieces[all.count++] = {piece.data(), piece.size()};
    all.bytes += piece.size();
  }
  return all;
}

void SendStream::sent_new(size_t bytes, uint64_t now, bool kept) noexcept {
  WEFT_ASSERT(bytes != 0 && bytes <= unsent() && next_ + bytes <= edge_);
  records_.push_back({next_, now, static_cast<uint32_t>(bytes), false, false, false, 0,
                      static_cast<uint8_t>(kept ? 1 : 0), 0});
  next_ += bytes;
  in_flight_ += bytes;
  last_sent_at_ = now;
  assert_invariants();
}

Record* SendStream::first_lost() noexcept {
  if (lost_bytes_ == 0) return nullptr;
  while (lost_hint_ < records_.size() && !records_[lost_hint_].lost) ++lost_hint_;
  WEFT_ASSERT(lost_hint_ < records_.size());  // lost_bytes_ are of a record
  return lost_hint_ < records_.size() ? &records_[lost_hint_] : nullptr;
}

void SendStream::sent_again(Record& record, uint64_t now, bool kept) noexcept {
  WEFT_ASSERT(record.lost && !record.arrived && lost_bytes_ >= record.bytes);
  record.lost = false;
  record.again = true;
  if (record.repeats < 255) ++record.repeats;
  if (kept && record.kept < 255) ++record.kept;
  record.sent_at = now;
  lost_bytes_ -= record.bytes;
  in_flight_ += record.bytes;
  last_sent_at_ = now;
}

// The first record that ends behind `offset`.
size_t SendStream::find(uint64_t offset) const noexcept {
  size_t low = 0;
  size_t high = records_.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (records_[middle].offset + records_[middle].bytes <= offset) low = middle + 1;
    else high = middle;
  }
  return low;
}

void SendStream::mark_arrived(const Range& range, Acked& out) noexcept {
  for (size_t i = find(range.begin); i < records_.size(); ++i) {
    Record& record = records_[i];
    if (record.offset + record.bytes > range.end) break;
    if (record.arrived || record.offset < range.begin) continue;
    record.arrived = true;
    WEFT_ASSERT((record.lost ? lost_bytes_ : in_flight_) >= record.bytes);
    out.delivered += record.bytes;
    if (record.lost) {
      record.lost = false;
      lost_bytes_ -= record.bytes;
    } else {
      in_flight_ -= record.bytes;
    }
  }
  arrived_end_ = std::max(arrived_end_, range.end);
}

SendStream::Acked SendStream::on_ack(ChunkPool& pool, const Packet& packet, uint64_t echoed,
                                     const RoundTrip& rtt, uint64_t now) noexcept {
  Acked out;
  if (packet.ack > next_) return out;
  for (size_t i = 0; i < packet.range_count; ++i)
    if (packet.ranges[i].end > next_) return out;
  out.sound = true;
  edge_ = std::max(edge_, packet.ack + packet.window);
  announced_ = packet.window;
  const uint64_t before = acked_;
  while (!records_.empty() && records_[0].offset < packet.ack) {
    Record& record = records_[0];
    const uint64_t end = record.offset + record.bytes;
    const auto gone = static_cast<uint32_t>(std::min(end, packet.ack) - record.offset);
    if (!record.arrived) {
      WEFT_ASSERT((record.lost ? lost_bytes_ : in_flight_) >= gone);
      out.delivered += gone;
      (record.lost ? lost_bytes_ : in_flight_) -= gone;
    }
    if (end > packet.ack) {  // it was sent in several packets, and some have come
      record.offset += gone;
      record.bytes -= gone;
      break;
    }
    records_.pop_front();
    if (lost_hint_ > 0) --lost_hint_;
  }
  if (packet.ack > acked_) {
    acked_ = packet.ack;
    out.progress = true;
    window_.release(pool, before, acked_);
    if (!borrowed_.empty()) [[unlikely]]
      borrowed_.erase(borrowed_.begin(), std::ranges::upper_bound(borrowed_, acked_, {}, &Borrowed::end));
    if (acked_ == end_) window_.release(pool, acked_, acked_ + chunk_bytes - 1);
  }
  arrived_end_ = std::max(arrived_end_, acked_);
  for (size_t i = 0; i < packet.range_count; ++i) mark_arrived(packet.ranges[i], out);
  if ((packet.flags & saw_duplicate) != 0 && now >= duplicate_seen_) {
    reorder_quarters_ = std::min(reorder_quarters_ + 1, 16u);
    duplicate_seen_ = now + rtt.smoothed();
  } else if (reorder_quarters_ > 1 && now > duplicate_seen_ + 64 * rtt.smoothed() + 10 * ms) {
    --reorder_quarters_;
    duplicate_seen_ = now;
  }
  newest_ = std::max(newest_, echoed);
  out.lost = detect_lost(rtt, now);
  assert_invariants();
  return out;
}

// How much later than a packet its successors may arrive before it is taken for lost.
uint64_t SendStream::margin(const RoundTrip& rtt) const noexcept {
  if (!rtt.measured()) return RoundTrip::timeout_ns_first;
  return std::max<uint64_t>(std::max(rtt.shortest(), rtt.smoothed() / 2) * reorder_quarters_ / 4, 2 * us);
}

size_t SendStream::mark_lost(Record& record) noexcept {
  WEFT_ASSERT(!record.lost && !record.arrived && in_flight_ >= record.bytes);
  record.lost = true;
  ++lost_packets_;
  if (record.losses < 255) ++record.losses;
  in_flight_ -= record.bytes;
  lost_bytes_ += record.bytes;
  lost_hint_ = std::min(lost_hint_, static_cast<size_t>(find(record.offset)));
  return record.bytes;
}

size_t SendStream::detect_lost(const RoundTrip& rtt, uint64_t now) noexcept {
  if (records_.empty() || newest_ == 0) return 0;
  const uint64_t wait = margin(rtt);
  size_t lost = 0;
  for (size_t i = 0; i < records_.size(); ++i) {
    Record& record = records_[i];
    if (record.sent_at >= newest_ && !record.again)
      break;  // and so are all behind it, or they were sent again
    if (record.arrived || record.lost || record.sent_at >= newest_) continue;
    if (newest_ - record.sent_at > wait || now > record.sent_at + rtt.smoothed() + wait)
      lost += mark_lost(record);
  }
  WEFT_ASSERT(lost <= lost_bytes_);
  return lost;
}

uint64_t SendStream::loss_due(const RoundTrip& rtt) const noexcept {
  if (records_.empty() || newest_ == 0) return 0;
  const uint64_t wait = rtt.smoothed() + margin(rtt);
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (record.sent_at >= newest_ && !record.again) break;
    if (!record.arrived && !record.lost && record.sent_at < newest_) return record.sent_at + wait + 1;
  }
  return 0;
}

size_t SendStream::suspect(size_t count) noexcept {
  size_t first = 0;
  bool found = false;
  for (size_t i = 0; i < records_.size() && (i < count || !found); ++i) {
    Record& record = records_[i];
    if (record.arrived) continue;
    const size_t bytes = record.lost ? 0 : mark_lost(record);
    if (!found) first = bytes;
    found = true;
  }
  assert_invariants();
  return first;
}

void SendStream::repeat_all() noexcept {
  const uint64_t before = lost_packets_;
  for (size_t i = 0; i < records_.size(); ++i) {
    Record& record = records_[i];
    if (record.arrived || record.lost) continue;
    const uint8_t losses = record.losses;
    (void)mark_lost(record);
    record.losses = losses;
  }
  lost_packets_ = before;
}

uint64_t SendStream::unanswered_losses() const noexcept {
  uint64_t losses = 0;
  for (size_t i = 0; i < records_.size(); ++i)
    if (!records_[i].arrived) losses += records_[i].losses;
  WEFT_ASSERT(needless_ <= lost_packets_);
  return std::min(losses, lost_packets_ - needless_);
}

size_t SendStream::count_kept(unsigned times) const noexcept {
  size_t count = 0;
  while (count < records_.size() && (records_[count].arrived || records_[count].kept >= times)) ++count;
  return count;
}

bool SendStream::all_repeated(unsigned times, size_t count) const noexcept {
  for (size_t i = 0; i < std::min(count, records_.size()); ++i)
    if (!records_[i].arrived && (records_[i].lost || records_[i].repeats < times)) return false;
  return true;
}

void SendStream::clear(ChunkPool& pool) noexcept {
  window_.clear(pool);
  records_.clear();
  borrowed_.clear();
}

void SendStream::rewind() noexcept {
  lost_packets_ -= unanswered_losses();
  records_.clear();
  next_ = acked_;
  in_flight_ = 0;
  lost_bytes_ = 0;
  lost_hint_ = 0;
  newest_ = 0;
  assert_invariants();
}

}  // namespace weft::proto::reliable
