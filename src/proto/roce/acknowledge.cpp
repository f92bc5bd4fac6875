// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a requester hears: acknowledgements, responses to READs, results of atomics. IBTA 9.7.6 and 9.9.
#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "proto/roce/requester.hpp"

namespace weft::proto::roce {

using wire::roce::AckKind;
using wire::roce::NakCode;
using wire::roce::Operation;

// The request that a PSN belongs to, if that was sent and is not acknowledged.
bool Requester::find_open(QueuePair& qp, uint32_t psn, uint32_t& index) noexcept {
  const RequesterState& r = qp.requester;
  WEFT_ASSERT(psn_diff(r.next, r.oldest) >= 0);
  if (psn_diff(psn, r.oldest) < 0 || psn_diff(psn, r.next) >= 0) return false;
  for (index = qp.sends.head; index != qp.sends.tail; ++index) {
    const SendEntry& e = qp.sends.at(index);
    if (!e.started) return false;
    if (e.packets != 0 && psn_diff(psn, e.first_psn) < static_cast<int32_t>(e.packets)) return true;
  }
  return false;
}

uint32_t Requester::end_of_sent(const QueuePair& qp) noexcept {
  const RequesterState& r = qp.requester;
  uint32_t end = r.oldest;
  for (uint32_t i = qp.sends.head; i != qp.sends.tail && qp.sends.at(i).started; ++i) {
    const SendEntry& e = qp.sends.at(i);
    const uint32_t after = psn_add(e.first_psn, e.packets);
    if (psn_diff(r.next, after) < 0) break;
    end = after;
  }
  return end;
}

bool Requester::awaits_before(const QueuePair& qp, uint32_t psn) noexcept {
  if (!qp.is_reliable() || (qp.state != QpState::ReadyToSend && qp.state != QpState::SendDrained))
    return false;
  // A peer without a receive request has said so, and acknowledged what was before.
  return qp.requester.wait_until == UINT64_MAX && psn_diff(qp.requester.oldest, psn) < 0;
}

void Requester::on_answer(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  if (packet.bth.tag != 0 && qp.requester.tag_key != 0) [[unlikely]] {
    on_answer_to_duplicate(qp, packet, now);
  } else {
    handle_answer(qp, packet, now);
  }
}

// Behind an answer to the original: the probe was needless. A NAK says nothing of it, and neither does an answer of long ago.
[[gnu::noinline, gnu::cold]] void Requester::on_answer_to_duplicate(QueuePair& qp, const Packet& packet,
                                                                    uint64_t now) noexcept {
  constexpr int32_t span = 1 << 16;
  RequesterState& r = qp.requester;
  const uint32_t psn = packet.bth.psn;
  const auto duplicate = static_cast<Duplicate>(packet.bth.tag);
  const bool is_ack = packet.operation() == Operation::Acknowledge;
  if (duplicate > Duplicate::Earlier || (is_ack && packet.aeth.kind() == AckKind::Nak) ||
      psn_diff(psn, r.next) >= 0 || psn_diff(r.oldest, psn) > span)
    return handle_answer(qp, packet, now);
  r.marks_duplicates = true;
  if (r.probes == 0 || duplicate == Duplicate::Earlier || psn_diff(psn, r.oldest) < 0)
    r.round_trip.on_needless();
  // A duplicate of a packet before the last one may be of one that was not to be answered alone.
  const bool is_of_last = !is_ack || psn_diff(r.probed, psn) <= 1;
  if (duplicate == Duplicate::Answered || (duplicate == Duplicate::Waiting && is_of_last))
    r.duplicate = duplicate;
  handle_answer(qp, packet, now);
  r.duplicate = Duplicate::None;
}

void Requester::handle_answer(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  switch (packet.operation()) {
    case Operation::Acknowledge:
      on_ack(qp, packet, now);
      break;
    case Operation::AtomicAcknowledge:
      on_atomic_ack(qp, packet, now);
      break;
    default:
      on_read_response(qp, packet, now);
  }
}

// All before `psn`, which is of request `index`, is acknowledged. False: not so, a READ or atomic in between has had
// no answer: that is lost (9.7.6, "implied NAK").
bool Requester::reach(QueuePair& qp, uint32_t index, uint32_t psn, uint64_t now) noexcept {
  WEFT_ASSERT(index - qp.sends.head < qp.sends.tail - qp.sends.head);
  WEFT_ASSERT(qp.sends.at(index).started);
  WEFT_ASSERT(psn_diff(psn, qp.requester.oldest) >= 0 && psn_diff(psn, qp.requester.next) < 0);
  for (uint32_t i = qp.sends.head; i != index; ++i) {
    const SendEntry& e = qp.sends.at(i);
    if (!e.is_answered()) continue;
    advance(qp, e.first_psn, now);
    on_implied_nak(qp, now);
    return false;
  }
  const SendEntry& e = qp.sends.at(index);
  if (e.is_answered()) {
    advance(qp, e.first_psn, now);
    if (psn_diff(psn, qp.requester.oldest) > 0) {
      on_implied_nak(qp, now);
      return false;
    }
    return true;
  }
  advance(qp, psn, now);
  return true;
}

// The NAK or map of a gap at the PSN that is sent next: all before it has arrived (9.7.5.2.1), and the gap is behind it, by
// a packet that this requester has not sent. True: so.
bool Requester::acknowledge_all(QueuePair& qp, uint32_t psn, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  uint32_t index = 0;
  if (psn != r.next || !find_open(qp, psn_add(psn, psn_mask), index)) return false;
  ++services_.counters.naks_received;
  ++qp.naks_received;
  if (!reach(qp, index, psn_add(psn, psn_mask), now)) return true;
  if (qp.sends.at(index).is_answered()) {
    on_implied_nak(qp, now);
  } else {
    advance(qp, psn, now);
  }
  return true;
}

void Requester::on_ack(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  const uint32_t psn = packet.bth.psn;
  uint32_t index = 0;
  if (packet.aeth.syndrome == wire::roce::syndrome(NakCode::Sequence) && acknowledge_all(qp, psn, now))
    return;
  if (!find_open(qp, psn, index)) {
    ++services_.counters.ghosts;
    ++qp.ghosts;
    return;
  }
  const uint8_t value = packet.aeth.value();
  const AckKind kind = packet.aeth.kind();
  if (kind == AckKind::Reserved || (packet.aeth.syndrome & 0x80) != 0 || (kind == AckKind::Nak && value > 3))
    return;
  if (kind != AckKind::Ack) {
    ++services_.counters.naks_received;
    ++qp.naks_received;
    services_.count_nak(qp, packet.aeth.syndrome);
  }
  if (!reach(qp, index, psn, now)) return;
  switch (kind) {
    case AckKind::Ack:
      if (qp.sends.at(index).is_answered()) {
        on_implied_nak(qp, now);
      } else {
        advance(qp, psn_add(psn, 1), now);
      }
      break;
    case AckKind::RnrNak:
      // Who answers is there. rxe says a sequence NAK for each packet that followed, too: these are no failed attempts.
      r.retries = qp.attributes.retry_count;
      if (r.wait_until != UINT64_MAX) break;  // heard twice
      if (r.rnr_retries == 0) {
        WEFT_ASSERT(qp.attributes.rnr_retry != 7);
        fail_send(qp, Status::RnrRetryExceeded, now);
        break;
      }
      if (qp.attributes.rnr_retry != 7) --r.rnr_retries;
      r.wait_until = now + rnr_timer_ns(value);
      r.await_nothing();
      r.probes = 0;
      go_back(qp);
      break;
    default:
      switch (static_cast<NakCode>(value)) {
        case NakCode::Sequence:
          heard_of_loss(qp, now);
          if (has_sack_reported(qp)) break;
          // The first NAK after progress is no failed attempt: the peer is there, and a forged packet may have caused it.
          on_lost(qp, r.has_gone_back ? congestion::LossSign::GapAgain : congestion::LossSign::Gap, now);
          retry(qp, now, r.has_gone_back);
          r.has_gone_back = true;
          break;
        case NakCode::InvalidRequest:
          fail_send(qp, Status::RemoteInvalidRequest, now);
          break;
        case NakCode::RemoteAccess:
          fail_send(qp, Status::RemoteAccess, now);
          break;
        default:
          fail_send(qp, Status::RemoteOperation, now);
      }
  }
  if (qp.state != QpState::Error) services_.scheduler.set_timer(qp);
}

void Requester::on_read_response(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  const uint32_t psn = packet.bth.psn;
  uint32_t index = 0;
  if (!find_open(qp, psn, index) || !qp.sends.at(index).awaits_read_response()) {
    ++services_.counters.ghosts;
    return;
  }
  if (!reach(qp, index, psn, now)) return;
  if (qp.sends.at(index).opcode != SendOpcode::Read) {  // ATOMIC WRITE, FLUSH
    const bool is_answer =
        packet.operation() == wire::roce::Operation::ReadResponseOnly && packet.payload.empty();
    return is_answer ? advance(qp, psn_add(psn, 1), now) : fail_send(qp, Status::BadResponse, now);
  }
  const SendEntry& e = qp.sends.at(index);
  const auto at = static_cast<uint32_t>(psn_diff(psn, e.first_psn));
  WEFT_ASSERT(psn == r.oldest);
  WEFT_ASSERT(at < e.packets);
  const uint64_t offset = uint64_t{at} * qp.attributes.mtu_bytes();
  WEFT_ASSERT(offset <= e.length);
  const bool last = at + packet.psns == e.packets;
  const size_t length = last ? e.length - offset : packet.psns * qp.attributes.mtu_bytes();
  // A READ that was asked again begins anew in its middle, so FIRST and ONLY may come anywhere, but the end is the end.
  const wire::roce::OpcodeTraits& traits = packet.traits();
  if (at + packet.psns > e.packets || traits.ends != last || (at == 0 && !traits.begins) ||
      packet.payload.size() != length) {
    fail_send(qp, Status::BadResponse, now);
    return;
  }
  if (!scatter(qp, index, offset, packet.payload)) {
    fail_send(qp, Status::LocalProtection, now);
    return;
  }
  WEFT_ASSERT(r.apart >= packet.psns);
  WEFT_ASSERT(static_cast<int32_t>(index - r.cursor) >= 0 || r.responses >= packet.psns);
  r.apart -= packet.psns;
  if (static_cast<int32_t>(index - r.cursor) < 0) r.responses -= packet.psns;
  advance(qp, psn_add(psn, packet.psns), now);
}

void Requester::on_atomic_ack(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  const uint32_t psn = packet.bth.psn;
  uint32_t index = 0;
  if (!find_open(qp, psn, index) || !qp.sends.at(index).is_atomic()) {
    ++services_.counters.ghosts;
    return;
  }
  if (!reach(qp, index, psn, now)) return;
  WEFT_ASSERT(qp.sends.at(index).first_psn == psn && qp.sends.at(index).packets == 1);
  const uint64_t original = packet.atomic_ack;
  if (!scatter(qp, index, 0, std::as_bytes(std::span(&original, 1)))) {
    fail_send(qp, Status::LocalProtection, now);
    return;
  }
  advance(qp, psn_add(psn, 1), now);
}

// Everything before `oldest` is acknowledged.
void Requester::advance(QueuePair& qp, uint32_t oldest, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  if (psn_diff(oldest, r.oldest) <= 0) return;
  // What was never sent is not acknowledged.
  WEFT_ASSERT(psn_diff(oldest, r.next) <= 0);
  WEFT_ASSERT(qp.state == QpState::ReadyToSend || qp.state == QpState::SendDrained);
  WEFT_ASSERT(qp.is_reliable());
  if (r.allowed != UINT32_MAX) [[unlikely]]
    on_acknowledged(qp, static_cast<uint32_t>(psn_diff(oldest, r.oldest)), now);
  r.oldest = oldest;
  r.retries = qp.attributes.retry_count;
  r.rnr_retries = qp.attributes.rnr_retry;
  r.has_recovered = r.has_gone_back = false;
  r.wait_until = UINT64_MAX;
  r.heard(now);
  complete_sends(qp, now);
  // After going back the cursor may stand before what was acknowledged meanwhile.
  if (static_cast<int32_t>(r.cursor - qp.sends.head) < 0) {
    r.cursor = qp.sends.head;
    r.packet = 0;
  }
  if (r.cursor != qp.sends.tail) {
    const SendEntry& e = qp.sends.at(r.cursor);
    if (e.started && !e.is_answered() && !e.is_local()) {
      const int32_t done = psn_diff(oldest, e.first_psn);
      if (done > static_cast<int32_t>(r.packet)) r.packet = static_cast<uint32_t>(done);
      WEFT_ASSERT(r.packet < e.packets);
    }
  }
  r.await_nothing();
  if (r.oldest != r.next) await_answer(qp, now);
  services_.scheduler.set_timer(qp);
  if (r.cursor != qp.sends.tail) services_.scheduler.make_ready(qp);
}

// The next packet to send is the oldest that is not acknowledged.
bool Requester::is_back(const QueuePair& qp) noexcept {
  const RequesterState& r = qp.requester;
  if (r.cursor != qp.sends.head) return false;
  const SendEntry& e = qp.sends.at(r.cursor);
  return e.is_answered() || psn_diff(r.oldest, e.first_psn) == static_cast<int32_t>(r.packet);
}

void Requester::go_back(QueuePair& qp) noexcept {
  RequesterState& r = qp.requester;
  WEFT_ASSERT(qp.is_reliable());
  end_repeats(qp);
  r.cursor = qp.sends.head;
  r.packet = r.open_reads = r.responses = r.unasked = 0;
  r.forget_timed();
  if (!qp.sends.empty()) {
    const SendEntry& e = qp.sends.at(r.cursor);
    if (e.started && !e.is_answered())
      r.packet = static_cast<uint32_t>(std::max(0, psn_diff(r.oldest, e.first_psn)));
  }
  services_.scheduler.make_ready(qp);
}

void Requester::retry(QueuePair& qp, uint64_t now, bool counts) noexcept {
  RequesterState& r = qp.requester;
  if (r.oldest == r.next || r.wait_until != UINT64_MAX) {  // it goes back anyway then
    r.await_nothing();
    return;
  }
  // What went back and could not send anything since has not failed again.
  if (counts && !is_back(qp)) {
    if (r.retries == 0) {
      fail_send(qp, Status::RetryExceeded, now);
      return;
    }
    --r.retries;
  }
  WEFT_ASSERT(qp.state == QpState::ReadyToSend || qp.state == QpState::SendDrained);
  WEFT_ASSERT(!qp.sends.empty());
  go_back(qp);
  r.await_nothing();
  await_answer(qp, now);
  if (r.probes != 0) r.put_off_probe(now);
}

// Several answers that are under way say the same: one of them counts.
void Requester::on_implied_nak(QueuePair& qp, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  if (r.has_recovered || r.wait_until != UINT64_MAX) return;
  r.has_recovered = true;
  heard_of_loss(qp, now);
  retry(qp, now);
  if (qp.state != QpState::Error) services_.scheduler.set_timer(qp);
}

}  // namespace weft::proto::roce
