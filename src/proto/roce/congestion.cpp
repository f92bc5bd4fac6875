// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Congestion: marked packets are answered by notices (CNP), and who gets notices sends less. IBTA annex A17.9.
#include <array>

#include "proto/roce/adapter.hpp"

#include "base/assert.hpp"

namespace weft::proto::roce {

// A packet with a payload came marked: requests, and responses to READs. Of a QP type whose peer is known, so that it
// costs nothing to find whom to tell.
void Adapter::on_marked(QueuePair& qp, uint64_t now) noexcept {
  ++counters_.marked;
  if (qp.type == QpType::Ud || now < qp.notice_after) return;
  qp.notice_after = now + notice_ns;
  qp.attention |= attention_notice;
  make_ready(qp);
}

bool Adapter::send_notice(QueuePair& qp) noexcept {
  WEFT_ASSERT(qp.type != QpType::Ud);
  static std::array<std::byte, 16> reserved;
  Packet p;
  p.bth.opcode = wire::roce::opcode_cnp;
  p.bth.destination = qp.attributes.destination;
  p.bth.becn = true;
  std::array<iovec, 3> parts;
  parts[1] = {reserved.data(), reserved.size()};
  if (!send_packet(qp, qp.attributes.path, p, parts.data(), 2, 0)) return false;  // its bytes are no payload
  ++counters_.congestion_notices_sent;
  return true;
}

// Anybody who can send by the peer's address can slow this QP down to rate_min, as in every RoCEv2 network.
void Adapter::on_notice(QueuePair& qp, bool is_peer, const Packet& packet, uint64_t now) noexcept {
  const bool sends = qp.state == QpState::ReadyToReceive || qp.state == QpState::ReadyToSend ||
                     qp.state == QpState::SendDrained;
  if (!sends || qp.type == QpType::Ud) {
    ++counters_.unknown;
    return;
  }
  if ((packet.bth.pkey & 0x7fff) != 0x7fff || !is_peer) {
    ++counters_.foreign;
    return;
  }
  ++counters_.congestion_notices;
  // Once for what is under way, as RFC 3168 has it (6.1.2); READ responses and UC are not acknowledged, and have the tick.
  // A limit that begins does not ask what an earlier one has cut.
  const Requester& r = qp.requester;
  const bool may_cut =
      !qp.pace.is_limited() || !qp.is_reliable() || r.oldest == r.next || psn_diff(r.oldest, qp.cut_psn) >= 0;
  if (qp.pace.on_notice(now, qp.sent, may_cut)) qp.cut_psn = r.next;
  if (!qp.pace.is_limited()) return;
  qp.attention |= attention_pace;
  qp.requester.unasked_max = 1;  // few packets in a timeout: each has to be heard of
}

void Adapter::end_pace(QueuePair& qp) noexcept {
  qp.pace = Pace();
  qp.pace_until = UINT64_MAX;
  qp.attention &= static_cast<uint8_t>(~unsigned{attention_pace});
  qp.requester.unasked_max = unasked_packets;
}

}  // namespace weft::proto::roce
