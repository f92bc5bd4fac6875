// UD: messages of one packet to anybody, with a Q_Key. IBTA 9.8.
#include <algorithm>
#include <array>
#include <cstring>

#include "proto/roce/adapter.hpp"

namespace weft::proto::roce {

using wire::roce::Operation;
using wire::roce::Transport;

Adapter::Sent Adapter::transmit_datagrams(QueuePair& qp, uint64_t now, int budget) noexcept {
  Requester& r = qp.requester;
  while (!qp.sends.empty()) {
    if (budget-- == 0) return Sent::More;
    SendEntry& e = qp.sends.at(qp.sends.head);
    if (qp.state == QpState::SendDrained) return Sent::Idle;
    std::array<iovec, elements_max + 2> parts;
    size_t count = 1;
    if (!gather(qp, qp.sends.head, 0, e.length, parts.data(), count)) {
      fail_send(qp, Status::LocalProtection, now);
      return Sent::Idle;
    }
    Packet p;
    p.bth.opcode = wire::roce::opcode(Transport::Datagram, e.opcode == SendOpcode::SendImmediate
                                                               ? Operation::SendOnlyImmediate
                                                               : Operation::SendOnly);
    p.bth.destination = e.remote_qpn;
    p.bth.psn = r.next;
    p.bth.solicited = (e.flags & solicited) != 0;
    // The highest bit asks for the QP's own (ibv_post_send(3)).
    p.deth = {(e.remote_qkey & 0x80000000u) != 0 ? qp.attributes.qkey : e.remote_qkey, qp.number};
    p.immediate = e.immediate;
    if (!send_packet(qp, e.to, p, parts.data(), count, e.length)) return Sent::NoRoom;
    e.started = true;
    r.next = r.oldest = psn_add(r.next, 1);
    ++r.cursor;
    complete_send(qp, Status::Success, now);
  }
  return Sent::Idle;
}

void Adapter::on_datagram(QueuePair& qp, const Arrival& arrival, const Packet& packet,
                          uint64_t now) noexcept {
  Responder& r = qp.responder;
  if (packet.deth.qkey != qp.attributes.qkey) {
    ++counters_.foreign;
    return;
  }
  // Without a receive request it is lost; one that is too short for what came is an error.
  if (!take_receive(qp, qp.srq)) return;
  std::array<std::byte, grh_bytes> grh{};
  std::copy_n(arrival.grh.begin(), std::min(arrival.grh.size(), grh.size()), grh.begin());
  if (packet.payload.size() + grh_bytes > r.receive.room) return fail_receive(qp, Status::LocalLength, now);
  if (!scatter_to(r.receive.elements, r.receive.pd, 0, grh) ||
      !scatter_to(r.receive.elements, r.receive.pd, grh_bytes, packet.payload))
    return fail_receive(qp, Status::LocalProtection, now);
  Completion c;
  c.opcode = CompletionOpcode::Receive;
  c.bytes = static_cast<uint32_t>(packet.payload.size() + grh_bytes);
  c.source_qpn = packet.deth.source;
  c.flags = has_grh;
  if ((packet.traits().headers & wire::roce::has_immediate) != 0) {
    c.flags |= with_immediate;
    c.immediate = packet.immediate;
  }
  finish_receive(qp, c, packet.bth.solicited, now);
}

}  // namespace weft::proto::roce
