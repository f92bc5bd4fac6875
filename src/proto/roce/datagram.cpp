// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UD: messages of one packet to anybody, with a Q_Key. IBTA 9.8.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "proto/roce/adapter.hpp"

#include "base/assert.hpp"

namespace weft::proto::roce {

using wire::roce::Operation;
using wire::roce::Transport;

Sent Requester::transmit_datagrams(QueuePair& qp, uint64_t now, int budget) noexcept {
  RequesterState& r = qp.requester;
  while (!qp.sends.empty()) {
    if (budget-- == 0) return Sent::More;
    SendEntry& e = qp.sends.at(qp.sends.head);
    WEFT_ASSERT(r.cursor == qp.sends.head && r.next == r.oldest && r.packet == 0);
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
    if (!services_.send_packet(qp, e.to, p, parts.data(), count, e.length)) return Sent::NoRoom;
    e.started = true;
    r.next = r.oldest = psn_add(r.next, 1);
    ++r.cursor;
    complete_send(qp, Status::Success, now);
  }
  return Sent::Idle;
}

void Responder::on_datagram(QueuePair& qp, const Arrival& arrival, const Packet& packet,
                            uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  if (packet.deth.qkey != qp.attributes.qkey) {
    services_.faults.report_dropped(&qp, arrival, packet, WEFT_FAULT_QKEY, qp.attributes.qkey,
                                    packet.deth.qkey);
    ++services_.counters.foreign;
    return;
  }
  // Without a posted receive the datagram is dropped, and so is one that is longer than the oldest posted receive, which
  // stays for the next datagram: class D of the responder's table in IBTA 9.9, which completes nothing and leaves the state
  // as it is. Anyone who knows QPN and Q_Key can send such a datagram.
  const Receive* const receive = (qp.srq != nullptr ? qp.srq->queue : qp.receives).front();
  if (receive == nullptr) return services_.faults.report_dropped(&qp, arrival, packet, WEFT_FAULT_NO_RECEIVE);
  if (packet.payload.size() + grh_bytes > receive->room) {
    ++services_.counters.too_long;
    ++qp.too_long;
    return services_.faults.report_dropped(&qp, arrival, packet, WEFT_FAULT_RECEIVE_SHORT,
                                           packet.payload.size() + grh_bytes, receive->room);
  }
  const bool is_taken = pop_receive(qp, qp.srq);
  WEFT_ASSERT(is_taken);  // by front()
  std::array<std::byte, grh_bytes> grh{};
  std::copy_n(arrival.grh.begin(), std::min(arrival.grh.size(), grh.size()), grh.begin());
  if (!services_.scatter(r.receive.elements, r.receive.pd, 0, grh) ||
      !services_.scatter(r.receive.elements, r.receive.pd, grh_bytes, packet.payload))
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

// --- groups: IBTA 10.5 ---

Result<bool> Adapter::attach(QueuePair& qp, const Gid& group) {
  if (qp.type != QpType::Ud) return Error{EINVAL, "only UD queue pairs are attached to multicast groups"};
  const auto place = std::ranges::find(groups_, group, &Group::gid);
  if (place == groups_.end()) {
    if (groups_.size() == groups_max) return Error{ENOMEM, "as many multicast groups as a device has"};
    groups_.push_back({group, {&qp}});
    return true;
  }
  if (std::ranges::find(place->members, &qp) != place->members.end()) return false;
  if (place->members.size() == group_members_max)
    return Error{ENOMEM, "as many queue pairs as a multicast group has"};
  place->members.push_back(&qp);
  return false;
}

Result<bool> Adapter::detach(QueuePair& qp, const Gid& group) {
  const auto place = std::ranges::find(groups_, group, &Group::gid);
  if (place == groups_.end() || std::erase(place->members, &qp) == 0)
    return Error{EINVAL, "the queue pair is not attached to this multicast group"};
  if (!place->members.empty()) return false;
  groups_.erase(place);
  return true;
}

std::optional<Gid> Adapter::first_group(const QueuePair& qp) const noexcept {
  for (const Group& group : groups_)
    if (std::ranges::find(group.members, &qp) != group.members.end()) return group.gid;
  return {};
}

// A copy for each member but the sender. They fail alone: a full completion queue or a short receive of one is nothing
// to the others.
void Adapter::on_group_datagram(const Arrival& arrival, const Packet& packet, uint64_t now) noexcept {
  const auto place = std::ranges::find(groups_, *arrival.group, &Group::gid);
  if (place == groups_.end() || packet.transport() != Transport::Datagram) {
    ++services_.counters.unknown;
    return;
  }
  if ((packet.bth.pkey & 0x7fff) != 0x7fff) {
    ++services_.counters.foreign;
    return;
  }
  const bool is_own = std::ranges::find(names, arrival.source) != names.end();
  WEFT_ASSERT(!place->members.empty() && place->members.size() <= group_members_max);
  for (QueuePair* qp : place->members) {
    const bool takes = qp->state == QpState::ReadyToReceive || qp->state == QpState::ReadyToSend ||
                       qp->state == QpState::SendDrained || qp->state == QpState::SendError;
    if (!takes || (is_own && packet.deth.source == qp->number)) continue;
    ++services_.counters.received;
    ++qp->received;
    qp->received_bytes += packet.payload.size();
    if (arrival.is_marked) [[unlikely]]
      responder_.on_marked(*qp, now);
    responder_.on_datagram(*qp, arrival, packet, now);
  }
}

}  // namespace weft::proto::roce
