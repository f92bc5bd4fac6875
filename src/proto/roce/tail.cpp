// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tail loss: the last packet of a burst, its acknowledgement or its responses are lost, and nothing follows that tells of it.
// After about two round trips (RoundTrip) the requester repeats a packet: a plain duplicate, which every responder
// answers (IBTA 9.7.5.1.4, 9.7.5.2). The program's timeout runs meanwhile, and alone counts retries. docs/roce.md,
// "Tail loss", has the rules.
#include <algorithm>

#include "base/assert.hpp"
#include "proto/roce/requester.hpp"

namespace weft::proto::roce {

[[gnu::noinline, gnu::cold]] void RequesterState::end_probes(uint64_t now) noexcept {
  WEFT_ASSERT(probes != 0 && now >= probed_at && probed_at >= silent_from);
  using ProbeAnswer = RoundTrip::ProbeAnswer;
  const ProbeAnswer answer = !marks_duplicates                  ? ProbeAnswer::Nothing
                             : duplicate == Duplicate::Answered ? ProbeAnswer::Lost
                             : duplicate == Duplicate::Waiting  ? ProbeAnswer::Paused
                                                                : ProbeAnswer::First;
  round_trip.on_answer(now - probed_at, now - silent_from, probes, answer);
  probes = 0;
}

// Where a probe found it, a buffer on the way or that of the responder may be too small.
[[gnu::noinline, gnu::cold]] void Requester::find_tail_loss(QueuePair& qp, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  WEFT_ASSERT(r.has_probed);
  r.has_probed = false;
  if (r.probes != 0) r.round_trip.on_loss();
  r.probes = 0;
  const auto in_flight = static_cast<uint32_t>(psn_diff(r.next, r.oldest));
  if (psn_diff(r.probed, r.oldest) > 0 && in_flight > 1 && r.open_reads == 0)
    on_lost(qp, congestion::LossSign::Tail, now);
}

// The newest packet is repeated: its answer says what the responder has, be it an acknowledgement, a map or the NAK of a
// gap. Where that NAK itself was lost the responder says nothing more (9.7.5.2.8), so the next probe is the oldest packet,
// and so on by turns.
void Requester::probe_tail(QueuePair& qp, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  WEFT_ASSERT(qp.is_reliable() && r.deadline != UINT64_MAX);
  WEFT_ASSERT(r.oldest != r.next && r.wait_until == UINT64_MAX);
  const uint64_t wait = r.round_trip.wait();
  // Behind a gap that is known the repetitions have a probe of their own (selective.cpp).
  if ((qp.attention & attention_repeat) != 0 && qp.repeater->probe_at != UINT64_MAX) {
    r.probe_at = now + r.round_trip.wait_to_check();
    return;
  }
  if (r.probes == 0) {
    r.silent_from = r.probe_at - std::min(r.probe_at, wait);  // the timer may be late
    // What was sent since may tell of a loss before it. Once: a program that posts all the time is answered all the time.
    if (!r.was_put_off && r.sent_at + wait > now) {
      r.was_put_off = true;
      r.probe_at = r.sent_at + wait;
      return;
    }
  }
  uint32_t end = r.next;
  if (is_going_back(qp)) {
    const SendEntry& e = qp.sends.at(r.cursor);
    end = psn_add(e.first_psn, e.is_answered() ? 0 : r.packet);
  }
  uint32_t index = 0;
  const uint32_t psn = r.probes % 2 == 0 ? psn_add(end, psn_mask) : r.oldest;
  if (psn_diff(end, r.oldest) <= 0 || !find_open(qp, psn, index)) {
    r.probe_at = now + r.round_trip.wait_to_check();  // what goes back has not left
    return;
  }
  const SendEntry& e = qp.sends.at(index);
  const uint32_t first = e.is_answered() && psn_diff(r.oldest, e.first_psn) > 0 ? r.oldest : e.first_psn;
  const Sent sent = repeat_packet(
      qp, index, static_cast<uint32_t>(psn_diff(e.is_answered() ? first : psn, e.first_psn)), now);
  if (qp.state == QpState::Error) return;
  r.timed_at = 0;
  if (sent != Sent::More) {
    r.probe_at = now + r.round_trip.wait_to_check();
    return;
  }
  if (r.probes < UINT8_MAX) ++r.probes;
  r.put_off_probe(now);
  r.has_probed = true;
  r.probed = r.next;
  if ((qp.attention & attention_pace) != 0) qp.congestion->on_sent(1);
  ++services_.counters.sent_again;
  ++services_.counters.probes;
  ++qp.sent_again;
}

}  // namespace weft::proto::roce
