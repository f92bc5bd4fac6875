// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The window of UC between endpoints of Weft (Adapter::is_weft_peer): the requester sets AckReq now and then, which UC does not
// use (IBTA 9.8), and the responder answers by a window update. Nothing is repeated. docs/roce.md, "UC", has the rules.
#include <algorithm>
#include <array>

#include "base/assert.hpp"
#include "proto/roce/requester.hpp"
#include "proto/roce/responder.hpp"

namespace weft::proto::roce {

// --- the requester ---

// Whether the packet has to wait for an update.
bool Requester::awaits_window(QueuePair& qp, uint32_t psn, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  if (r.window == 0 || psn_diff(psn, r.reported) < static_cast<int32_t>(r.window)) return false;
  if (r.deadline == UINT64_MAX) r.deadline = now + window_timeout_ns;
  return true;
}

// The last packet of a window asks. Windows are not smaller than the packets that go without asking, so that one which
// shrinks does not end among these.
bool Requester::asks_window(const QueuePair& qp, uint32_t psn) noexcept {
  static_assert(unasked_packets <= window_least);
  const RequesterState& r = qp.requester;
  return r.unasked + 1 >= r.unasked_max ||
         (r.window != 0 && psn_diff(psn, r.reported) + 1 >= static_cast<int32_t>(r.window));
}

// The peer takes nothing, knows no updates, or all that asked was lost. From the next update on there is a window again.
void Requester::end_window(QueuePair& qp) noexcept {
  WEFT_ASSERT(qp.type == QpType::Uc);
  qp.requester.window = 0;
  qp.requester.deadline = UINT64_MAX;
  services_.scheduler.make_ready(qp);
}

// Of somebody who sends by the peer's address: the least window, or none, harms this queue pair alone.
void Requester::on_window_update(QueuePair& qp, bool is_peer, const Packet& packet) noexcept {
  if (!qp.has_window || (qp.state != QpState::ReadyToSend && qp.state != QpState::SendDrained)) {
    ++services_.counters.unknown;
    return;
  }
  if ((packet.bth.pkey & 0x7fff) != 0x7fff || !is_peer) {
    ++services_.counters.foreign;
    return;
  }
  ++services_.counters.received;
  ++qp.received;
  RequesterState& r = qp.requester;
  const uint32_t reported = psn_add(packet.bth.psn, 1);
  // One that was overtaken tells nothing. Without a window `reported` is old, and an update is taken for what was sent
  // lately: one for anything older would hold the queue pair up.
  const int32_t behind = psn_diff(r.next, reported);
  if (behind < 0 || (r.window != 0 ? psn_diff(reported, r.reported) <= 0 : behind > window_behind_max)) {
    ++services_.counters.ghosts;
    return;
  }
  r.reported = reported;
  WEFT_ASSERT(qp.attributes.window_packets >= window_least);
  WEFT_ASSERT(psn_diff(r.next, r.reported) >= 0);
  r.window = std::clamp(packet.aeth.msn, window_least, qp.attributes.window_packets);
  r.deadline = UINT64_MAX;
  services_.scheduler.set_timer(qp);
  if (r.cursor != qp.sends.tail) services_.scheduler.make_ready(qp);
}

// --- the responder ---

void Responder::owe_window(QueuePair& qp, uint32_t psn) noexcept {
  WEFT_ASSERT(qp.has_window);
  qp.responder.ack_psn = psn;
  qp.attention |= attention_window;
  services_.scheduler.make_ready(qp);
}

bool Responder::send_window(QueuePair& qp, uint32_t packets) noexcept {
  Packet p;
  p.bth.opcode = wire::roce::opcode_window_update;
  p.bth.destination = qp.attributes.destination;
  p.bth.psn = qp.responder.ack_psn;
  p.aeth = {0, packets};
  std::array<iovec, 2> parts;
  return services_.send_packet(qp, qp.attributes.path, p, parts.data(), 1, 0);
}

}  // namespace weft::proto::roce
