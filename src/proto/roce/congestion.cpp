// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Congestion: marked packets are answered by CNPs, and who gets CNPs sends less. IBTA annex A17.9.
#include <algorithm>
#include <array>

#include "proto/roce/congestion.hpp"

#include "base/assert.hpp"
#include "proto/roce/requester.hpp"
#include "proto/roce/responder.hpp"

namespace weft::proto::roce {

// A packet with a payload came marked: requests, and responses to READs. Of a QP type whose peer is known, so that it
// costs nothing to find whom to tell.
void Responder::on_marked(QueuePair& qp, uint64_t now) noexcept {
  ++services_.counters.marked;
  if (qp.type == QpType::Ud || now < qp.cnp_after) return;
  qp.cnp_after = now + cnp_ns;
  qp.attention |= attention_cnp;
  services_.scheduler.make_ready(qp);
}

bool Responder::send_cnp(QueuePair& qp) noexcept {
  WEFT_ASSERT(qp.type != QpType::Ud);
  static std::array<std::byte, 16> reserved;
  Packet p;
  p.bth.opcode = wire::roce::opcode_cnp;
  p.bth.destination = qp.attributes.destination;
  p.bth.becn = true;
  std::array<iovec, 3> parts;
  parts[1] = {reserved.data(), reserved.size()};
  if (!services_.send_packet(qp, qp.attributes.path, p, parts.data(), 2, 0))
    return false;  // its bytes are no payload
  ++services_.counters.cnps_sent;
  return true;
}

// Anybody who can send by the peer's address can slow this QP down to rate_min, as in every RoCEv2 network.
void Requester::on_cnp(QueuePair& qp, bool is_peer, const Packet& packet, uint64_t now) noexcept {
  const bool sends = qp.state == QpState::ReadyToReceive || qp.state == QpState::ReadyToSend ||
                     qp.state == QpState::SendDrained;
  if (!sends || qp.type == QpType::Ud) {
    ++services_.counters.unknown;
    return;
  }
  if ((packet.bth.pkey & 0x7fff) != 0x7fff || !is_peer) {
    ++services_.counters.foreign;
    return;
  }
  ++services_.counters.cnps_received;
  // Once for what is under way, as RFC 3168 has it (6.1.2); READ responses and UC are not acknowledged, and have the tick.
  const RequesterState& r = qp.requester;
  // cut_psn comes after `oldest` and not after `next`, or its cut was half of all PSNs ago.
  const bool may_cut = !qp.is_reliable() || r.oldest == r.next || psn_diff(r.oldest, qp.cut_psn) >= 0 ||
                       psn_diff(r.next, qp.cut_psn) < 0;
  if (controller_of(qp).on_cnp({.now = now, .sent = qp.sent, .may_cut = may_cut})) qp.cut_psn = r.next;
  adopt_window(qp);
}

void begin_congestion(QueuePair& qp, congestion::Make algorithm) noexcept {
  qp.congestion.emplace(algorithm != nullptr ? algorithm : congestion::make<congestion::Dcqcn>);
  qp.shortest_rtt = {};
  qp.arrived = 0;
}

congestion::Controller& controller_of(QueuePair& qp) noexcept {
  const size_t mtu = qp.attributes.mtu_bytes();
  qp.congestion->configure(mtu, std::max(qp.attributes.window_packets, 2U) * mtu);
  return *qp.congestion;
}

void adopt_window(QueuePair& qp) noexcept {
  if (qp.type == QpType::Ud) return;
  const congestion::Controller& by = controller_of(qp);
  if (by.is_paced()) {
    qp.attention |= attention_pace;
    qp.requester.unasked_max = 1;  // few packets in a timeout: each has to be heard of
  }
  if (!qp.is_reliable()) return;
  const size_t packets = by.window() / qp.attributes.mtu_bytes();
  const uint32_t most = std::max(qp.attributes.window_packets, 1U);
  qp.requester.allowed =
      by.is_idle() ? UINT32_MAX : static_cast<uint32_t>(std::clamp<size_t>(packets, 1, most));
}

void on_acknowledged(QueuePair& qp, uint32_t packets, uint64_t now) noexcept {
  const RequesterState& r = qp.requester;
  WEFT_ASSERT(qp.is_reliable() && r.allowed != 0 && packets != 0);
  const size_t mtu = qp.attributes.mtu_bytes();
  const auto in_flight = static_cast<uint32_t>(psn_diff(r.next, r.oldest));
  WEFT_ASSERT(packets <= in_flight);
  congestion::Acknowledged what;
  what.now = now;
  what.bytes = packets * mtu;
  if (r.timed_at != 0 && psn_diff(psn_add(r.oldest, packets), r.timed) > 0) {
    what.rtt = std::max<uint64_t>(now - r.timed_at, 1);
    qp.shortest_rtt.sample(what.rtt, now);
  }
  what.shortest = qp.shortest_rtt.get();
  qp.arrived += packets;
  what.arrived = qp.arrived * mtu;
  what.sent = what.arrived + (in_flight - packets) * mtu;
  // As transmit_packet() and begin() have it.
  what.limited = static_cast<int32_t>(in_flight - r.apart) >= static_cast<int32_t>(window_of(qp)) ||
                 (r.open_reads >= 2 && r.responses >= window_of(qp));
  controller_of(qp).on_ack(what);
  adopt_window(qp);
}

void on_lost(QueuePair& qp, congestion::LossSign sign, uint64_t now) noexcept {
  const RequesterState& r = qp.requester;
  congestion::Loss loss;
  loss.sign = sign;
  loss.in_flight = static_cast<size_t>(psn_diff(r.next, r.oldest)) * qp.attributes.mtu_bytes();
  loss.sent = qp.arrived * qp.attributes.mtu_bytes() + loss.in_flight;
  loss.now = now;
  if (sign == congestion::LossSign::Timeout)
    loss.timeouts = 1U + qp.attributes.retry_count - std::min(r.retries, qp.attributes.retry_count);
  controller_of(qp).on_loss(loss);
  adopt_window(qp);
}

void end_pace(QueuePair& qp) noexcept {
  qp.pace_until = UINT64_MAX;
  qp.attention &= static_cast<uint8_t>(~unsigned{attention_pace});
  qp.requester.unasked_max = unasked_packets;
}

}  // namespace weft::proto::roce
