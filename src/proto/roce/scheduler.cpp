// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a queue pair with attention sends next, and how long one with a rate waits.
#include "proto/roce/scheduler.hpp"

#include <algorithm>

#include "proto/roce/congestion.hpp"

namespace weft::proto::roce {

bool Scheduler::is_probe_next(uint64_t& otherwise) const noexcept {
  if (timers_.next_due() == UINT64_MAX) return false;
  const QueuePair& qp = *timers_.front();
  const RequesterState& r = qp.requester;
  otherwise = std::min(r.deadline, r.wait_until);
  if (qp.attention != 0) otherwise = std::min(otherwise, attended_due(qp));
  return qp.due == r.probe_at && qp.due < otherwise;
}

// The adapter clears the mark of a CNP or window update that was sent.
[[gnu::noinline, gnu::cold]] PacketKind Scheduler::next_attended(QueuePair& qp, Turn& turn,
                                                                 uint64_t now) noexcept {
  const bool lives = qp.state != QpState::Error && qp.state != QpState::Reset;
  if ((qp.attention & attention_cnp) != 0) {
    if (lives) return PacketKind::Cnp;
    qp.attention &= static_cast<uint8_t>(~unsigned{attention_cnp});
  }
  if ((qp.attention & attention_window) != 0) {
    WEFT_ASSERT(qp.type == QpType::Uc);
    if (lives) return PacketKind::WindowUpdate;
    qp.attention &= static_cast<uint8_t>(~unsigned{attention_window});
  }
  if ((qp.attention & attention_pace) != 0) {
    qp.congestion->advance(now);
    if (!qp.congestion->is_paced()) end_pace(qp);
  }
  turn.is_paced = (qp.attention & attention_pace) != 0;
  turn.before = qp.sent;
  WEFT_ASSERT(turn.is_paced == qp.congestion->is_paced());
  turn.budget = turn.is_paced ? static_cast<int>(std::min<uint32_t>(burst, qp.congestion->packets())) : burst;
  if ((qp.attention & attention_repeat) != 0 && sends(qp)) {
    turn.stage = Turn::Stage::Packets;
    return PacketKind::Repetition;
  }
  return next_packets(qp, turn, half_of(turn));
}

// The half of requests that wait for something is that of the responses: the peer may wait for these.
[[gnu::noinline, gnu::cold]] PacketKind Scheduler::next_of_responses(const QueuePair& qp,
                                                                     Turn& turn) noexcept {
  if (turn.has_all || turn.result != Sent::More || turn.budget <= 0 || qp.sent != turn.before ||
      qp.state == QpState::Error)
    return PacketKind::None;
  turn.has_all = true;
  turn.result = Sent::Idle;
  return next_packets(qp, turn, turn.budget);
}

[[gnu::noinline, gnu::cold]] Sent Scheduler::end_paced(QueuePair& qp, const Turn& turn,
                                                       uint64_t now) noexcept {
  qp.congestion->on_sent(qp.sent - turn.before);
  if (turn.result != Sent::More || qp.congestion->packets() != 0 || qp.state == QpState::Error)
    return turn.result;
  qp.pace_until = qp.congestion->next_at();
  WEFT_ASSERT(qp.pace_until > now);
  set_timer(qp);
  return Sent::Idle;
}

}  // namespace weft::proto::roce
