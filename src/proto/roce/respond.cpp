// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a responder owes: read responses and results of atomics in the order of their PSNs, then the newest
// acknowledgement. IBTA 9.7.5.
#include <algorithm>
#include <array>

#include "base/assert.hpp"
#include "proto/roce/psn.hpp"
#include "proto/roce/responder.hpp"

namespace weft::proto::roce {

using wire::roce::Operation;
using wire::roce::Transport;

namespace {

Transport transport_of(const QueuePair& qp) noexcept {
  return qp.is_xrc() ? Transport::Extended : Transport::ReliableConnection;
}

Resource* first_pending(ResponderState& r) noexcept {
  WEFT_ASSERT(r.pending <= r.resources.size());
  if (r.pending == 0) return nullptr;
  const size_t count = r.resources.size();
  if (r.answering < count && r.resources[r.answering].pending) return &r.resources[r.answering];
  for (size_t i = 1; i <= count; ++i) {
    r.answering = static_cast<uint32_t>((r.newest_resource + i) % count);
    if (r.resources[r.answering].pending) return &r.resources[r.answering];
  }
  WEFT_ASSERT(r.pending == 0);
  return nullptr;
}

}  // namespace

Sent Responder::respond(QueuePair& qp, uint64_t now, int& budget) noexcept {
  ResponderState& r = qp.responder;
  const bool lives = qp.state == QpState::ReadyToReceive || qp.state == QpState::ReadyToSend ||
                     qp.state == QpState::SendDrained || (qp.state == QpState::Error && r.is_final);
  if (!lives || !qp.is_reliable()) return Sent::Idle;
  while (Resource* one = first_pending(r)) {
    if (budget == 0) return Sent::More;
    if (!send_response(qp, *one, now)) return Sent::NoRoom;
    --budget;
  }
  if (!r.ack_due) return Sent::Idle;
  return send_acknowledgement(qp) ? Sent::Idle : Sent::NoRoom;
}

// The next packets of a READ, or the result of an atomic. Memory is looked up again for each: the region may have
// gone since. False: no room.
bool Responder::send_response(QueuePair& qp, Resource& one, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(one.pending && r.pending != 0);
  WEFT_ASSERT(one.begin <= one.next && one.next < one.end && one.end <= one.packets);
  Packet p;
  p.bth.destination = qp.attributes.destination;
  p.bth.psn = psn_add(one.first_psn, one.next);
  if (r.tag_key != 0) p.bth.tag = static_cast<uint16_t>(one.duplicate);
  p.aeth = {wire::roce::syndrome_ack, one.msn};
  std::array<iovec, 3> parts;  // head, payload, pad
  size_t count = 1;
  size_t length = 0;
  uint32_t psns = 1;
  Operation op = Operation::AtomicAcknowledge;
  if (one.is_atomic) {
    p.atomic_ack = one.original;
  } else {
    psns = services_.aggregate_of(qp, one.end - one.next);
    const bool first = one.next == one.begin;
    const bool last = one.next + psns == one.end;
    op = first ? (last ? Operation::ReadResponseOnly : Operation::ReadResponseFirst)
               : (last ? Operation::ReadResponseLast : Operation::ReadResponseMiddle);
    const size_t mtu = qp.attributes.mtu_bytes();
    const uint64_t offset = uint64_t{one.next} * mtu;
    WEFT_ASSERT(offset <= one.length && one.next + psns <= one.packets);
    length = std::min<uint64_t>(psns * mtu, one.length - offset);
    std::byte* at = nullptr;
    if (length != 0) {
      if (!services_.memory.remote(one.key, one.pd, qp.number, one.address + offset, length, remote_read,
                                   at)) {
        // A late duplicate of what was answered is no reason to fail: the program may have heard from its peer that the
        // READ is done, and taken the memory away.
        if (one.answered) {
          one.pending = false;
          --r.pending;
          return true;
        }
        services_.faults.report_response(qp, one, one.address + offset, length);
        const uint32_t psn = p.bth.psn;
        for (Resource& other : r.resources) other.pending = false;
        r.pending = 0;
        if (qp.state != QpState::Error) refuse(qp, wire::roce::NakCode::RemoteAccess, now, Report::ByEvent);
        // Also where the NAK of a later request is owed: this one comes first.
        r.syndrome = wire::roce::syndrome(wire::roce::NakCode::RemoteAccess);
        r.ack_psn = psn;
        return true;
      }
      parts[count++] = {at, length};
    }
  }
  p.bth.opcode = wire::roce::opcode(transport_of(qp), op);
  p.psns = psns;
  if (!services_.send_packet(qp, qp.attributes.path, p, parts.data(), count, length)) return false;
  one.next += psns;
  if (one.next == one.end) {
    one.pending = false;
    one.answered = true;
    --r.pending;
  }
  return true;
}

// What goes in front of the NAK of a gap. `is_all`: the NAK need not follow. False: no room.
[[gnu::noinline, gnu::cold]] bool Responder::send_before_nak(QueuePair& qp, bool& is_all) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(r.ack_due && r.ack_psn == r.expected);
  if (qp.reorder != nullptr && qp.reorder->is_open) {
    // The first map of each missing packet goes twice: nothing may follow for a while where one of them is lost.
    ReorderBuffer& k = *qp.reorder;
    if (!send_map(qp) || (!k.is_reported && !send_map(qp))) return false;
    is_all = k.is_reported = true;
    return true;
  }
  // A NAK acknowledges all before it (9.7.5.2.1), but the kernel's rxe counts it as a failed attempt whatever it
  // acknowledges, and gives up after retry_cnt of them: an ACK that tells of progress goes first.
  if (r.acked_plain == r.newest_plain || psn_add(r.newest_plain, 1) != r.ack_psn) return true;
  Packet p;
  p.bth.opcode = wire::roce::opcode(transport_of(qp), Operation::Acknowledge);
  p.bth.destination = qp.attributes.destination;
  p.bth.psn = r.newest_plain;
  if (r.tag_key != 0) p.bth.tag = static_cast<uint16_t>(r.duplicate);
  p.aeth = {wire::roce::syndrome_ack, r.msn};
  std::array<iovec, 2> parts;
  if (!services_.send_packet(qp, qp.attributes.path, p, parts.data(), 1, 0)) return false;
  r.acked_plain = r.newest_plain;
  r.duplicate = Duplicate::None;
  return true;
}

bool Responder::send_acknowledgement(QueuePair& qp) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(r.ack_due && r.pending == 0);
  if (r.syndrome == wire::roce::syndrome(wire::roce::NakCode::Sequence)) [[unlikely]] {
    bool is_all = false;
    if (!send_before_nak(qp, is_all)) return false;
    if (is_all) {
      r.ack_due = false;
      r.duplicate = Duplicate::None;
      return true;
    }
  }
  Packet p;
  p.bth.opcode = wire::roce::opcode(transport_of(qp), Operation::Acknowledge);
  p.bth.destination = qp.attributes.destination;
  std::array<iovec, 2> parts;
  p.bth.psn = r.ack_psn;
  if (r.tag_key != 0) p.bth.tag = static_cast<uint16_t>(r.duplicate);
  p.aeth = {r.syndrome, r.msn};
  if (!services_.send_packet(qp, qp.attributes.path, p, parts.data(), 1, 0)) return false;
  if (r.syndrome != wire::roce::syndrome_ack) {
    ++services_.counters.naks_sent;
    ++qp.naks_sent;
    services_.count_nak(qp, r.syndrome);
  } else {
    r.acked_plain = r.ack_psn;
  }
  r.ack_due = r.is_final = false;
  r.duplicate = Duplicate::None;
  return true;
}

}  // namespace weft::proto::roce
