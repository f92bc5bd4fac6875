// Congestion: marked packets are answered by notices (CNP), and who gets notices sends less. IBTA annex A17.9.
#include <algorithm>
#include <array>

#include "proto/roce/adapter.hpp"

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
  static std::array<std::byte, 16> reserved;
  Packet p;
  p.bth.opcode = wire::roce::opcode_cnp;
  p.bth.destination = qp.attributes.destination;
  p.bth.becn = true;
  std::array<iovec, 3> parts;
  parts[1] = {reserved.data(), reserved.size()};
  if (!send_packet(qp, qp.attributes.path, p, parts.data(), 2, reserved.size())) return false;
  ++counters_.congestion_notices_sent;
  return true;
}

// Anybody who can send by the peer's address can slow this QP down to rate_min, as in every RoCEv2 network.
void Adapter::on_notice(QueuePair& qp, const Arrival& arrival, const Packet& packet, uint64_t now) noexcept {
  const bool sends = qp.state == QpState::ReadyToReceive || qp.state == QpState::ReadyToSend ||
                     qp.state == QpState::SendDrained;
  if (!sends || qp.type == QpType::Ud) {
    ++counters_.unknown;
    return;
  }
  if ((packet.bth.pkey & 0x7fff) != 0x7fff || !is_peer(qp, arrival)) {
    ++counters_.foreign;
    return;
  }
  ++counters_.congestion_notices;
  // Once for what is under way, as RFC 3168 has it (6.1.2); READ responses and UC are not acknowledged, and have the tick.
  const Requester& r = qp.requester;
  const bool may_cut = r.oldest == r.next || psn_diff(r.oldest, qp.cut_psn) >= 0;
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

Adapter::Sent Adapter::serve_attended(QueuePair& qp, uint64_t now) noexcept {
  if ((qp.attention & attention_notice) != 0) {
    const bool lives = qp.state != QpState::Error && qp.state != QpState::Reset;
    if (lives && !send_notice(qp)) return Sent::NoRoom;
    qp.attention &= static_cast<uint8_t>(~unsigned{attention_notice});
  }
  if ((qp.attention & attention_pace) != 0) {
    qp.pace.advance(now);
    if (!qp.pace.is_limited()) end_pace(qp);
  }
  if ((qp.attention & attention_pace) == 0) return serve_packets(qp, now, burst);
  const uint64_t before = qp.sent;
  const Sent result = serve_packets(qp, now, static_cast<int>(std::min<uint32_t>(burst, qp.pace.packets())));
  qp.pace.spend(qp.sent - before);
  if (result != Sent::More || qp.pace.packets() != 0 || qp.state == QpState::Error) return result;
  qp.pace_until = qp.pace.next_at();
  set_timer(qp);
  return Sent::Idle;
}

}  // namespace weft::proto::roce
