// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// OwedAck: what a receiver owes its peer, and when: the acknowledgement of bytes that came, at once or with the next answer, and how many packets came
// without need. Times in ns. Must not know packets or streams.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "proto/reliable/round_trip.hpp"

namespace weft::proto::reliable {

class OwedAck {
 public:
  static constexpr uint64_t delay_ns = 100 * us;  // at most, when nothing is in a hurry
  static constexpr uint64_t pause_ns = 50 * us;   // between two that go at once
  static constexpr unsigned answers_min = 3;      // in a row, until the next one is waited for
  static constexpr size_t many_bytes = size_t{128} << 10;
  // A stamp means something for less than half of its 275 s: after a longer silence any is new.
  static constexpr uint64_t stamp_ns_max = 60 * second;

  // --- what came ---
  void on_stamp(uint32_t stamp, uint64_t now) noexcept {
    if (newest_at_ != 0 && static_cast<int32_t>(stamp - newest_stamp_) < 0 &&
        now - newest_at_ <= stamp_ns_max)
      return;
    newest_stamp_ = stamp;
    newest_at_ = now;
  }
  uint64_t newest_at() const noexcept { return newest_at_; }  // when the newest packet came; 0: none yet
  uint32_t newest_stamp() const noexcept { return newest_stamp_; }
  // At once, but not too often, unless an answer is likely that takes it along. Every second full packet; behind a gap every one.
  void on_next_bytes(size_t bytes, size_t packet_bytes, bool has_gaps, uint64_t now) noexcept {
    bytes_ += bytes;
    if (answers_ < answers_min && now - sent_at_ >= pause_ns) is_urgent_ = true;
    const size_t many = packet_bytes == 0 ? many_bytes : std::min(2 * packet_bytes, many_bytes);
    if (has_gaps || bytes_ >= many) is_urgent_ = true;
  }
  void on_needless() noexcept {
    is_duplicate_ = true;
    ++needless_;
    reports_needless_ = true;
    is_urgent_ = true;
  }
  void on_data(uint64_t now) noexcept { data_at_ = now; }

  // --- when it goes ---
  void hurry() noexcept { is_urgent_ = true; }
  bool is_urgent() const noexcept { return is_urgent_; }
  uint64_t due() const noexcept { return due_; }  // 0: none is owed
  void owe(uint64_t now) noexcept {
    WEFT_ASSERT(due_ == 0);
    due_ = now + delay_ns;
  }
  // It is due: no answer took it along.
  void on_due() noexcept { answers_ = 0; }
  void try_later(uint64_t now) noexcept { due_ = now + delay_ns; }
  // Data leaves. It is an answer if data of the peer came just before.
  void on_data_sent(uint64_t now) noexcept {
    if (data_at_ == 0) return;
    answers_ = now - data_at_ < delay_ns ? answers_ + 1 : 0;
    data_at_ = 0;
  }
  // It has gone, and said that the peer may send up to `edge`.
  void on_ack_sent(uint64_t edge, uint64_t now) noexcept {
    WEFT_ASSERT(edge >= edge_);
    due_ = 0;
    sent_at_ = now;
    bytes_ = 0;
    is_urgent_ = false;
    is_duplicate_ = false;
    edge_ = edge;
  }
  uint64_t edge() const noexcept { return edge_; }

  // --- packets that came again without need ---
  uint64_t needless() const noexcept { return needless_; }
  bool reports_needless() const noexcept { return reports_needless_; }
  void on_needless_reported() noexcept { reports_needless_ = false; }
  // Said by an acknowledgement that does not say how many.
  bool is_duplicate() const noexcept { return is_duplicate_ && !reports_needless_; }

 private:
  uint32_t newest_stamp_ = 0;  // of the packets that came,
  uint64_t newest_at_ = 0;     // and when that one came; 0: none yet
  uint64_t due_ = 0;
  size_t bytes_ = 0;      // that came since the last acknowledgement
  uint64_t edge_ = 0;     // of the window that the peer was told last
  uint64_t data_at_ = 0;  // when data came last; 0: data has left since
  uint64_t sent_at_ = 0;  // when an acknowledgement went last
  unsigned answers_ = 0;  // how often in a row data left just after data came
  bool is_urgent_ = false;
  bool is_duplicate_ = false;      // a packet came again since the last acknowledgement
  bool reports_needless_ = false;  // how many there are has to be said
  uint64_t needless_ = 0;          // packets that came again without need
};

}  // namespace weft::proto::reliable
