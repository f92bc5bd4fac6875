// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The common cases of an RC queue pair, each in one straight piece: a SEND or WRITE of one packet that is posted while
// nothing waits; one that comes as it is expected; the acknowledgement of the oldest request; an acknowledgement that is
// all that is owed. Each first looks whether it is one, and has changed nothing where it is not: then the general path
// does the same (requester.cpp, responder.cpp, acknowledge.cpp, respond.cpp, where the clauses of IBTA are).
#include <array>
#include <cstring>

#include "arch/cpu.hpp"
#include "base/assert.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::proto::roce {

using wire::roce::Bth;
using wire::roce::opcode;
using wire::roce::Operation;
using wire::roce::Transport;

namespace {

constexpr size_t reth_bytes = 16;
constexpr size_t aeth_bytes = 4;
constexpr uint8_t send_only = opcode(Transport::ReliableConnection, Operation::SendOnly);
constexpr uint8_t write_only = opcode(Transport::ReliableConnection, Operation::WriteOnly);
constexpr uint8_t acknowledge = opcode(Transport::ReliableConnection, Operation::Acknowledge);

[[gnu::always_inline]] inline void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes <= 64) {
    arch::copy_small(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

[[gnu::always_inline]] inline bool has_overrun(const QueuePair& qp) noexcept {
  return (qp.send_cq != nullptr && qp.send_cq->overrun()) ||
         (qp.receive_cq != nullptr && qp.receive_cq->overrun());
}

// A packet whose headers are complete but for the pad.
[[gnu::always_inline]] inline bool send_complete(Services& services, QueuePair& qp, std::byte* head,
                                                 size_t head_bytes, std::byte* payload,
                                                 size_t bytes) noexcept {
  static std::byte zeros[4];
  std::array<iovec, 3> parts;
  parts[0] = {head, head_bytes};
  size_t count = 1;
  if (bytes != 0) parts[count++] = {payload, bytes};
  if (const uint8_t pad = wire::roce::pad_of(bytes); pad != 0) parts[count++] = {zeros, pad};
  if (!services.output.send(qp.attributes.path, parts.data(), count)) return false;
  ++services.counters.sent;
  ++qp.sent;
  qp.sent_bytes += bytes;
  return true;
}

}  // namespace

// --- the requester ---

[[gnu::always_inline]] inline Requester::Common Requester::post_common(QueuePair& qp,
                                                                       const SendRequest& request,
                                                                       uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  const bool is_write = request.opcode == SendOpcode::Write;
  if ((!is_write && request.opcode != SendOpcode::Send) || (request.flags & fence) != 0 ||
      request.elements.size() != 1 || qp.state != QpState::ReadyToSend || qp.type != QpType::Rc ||
      qp.attention != 0 || r.cursor != qp.sends.tail || r.wait_until != UINT64_MAX || qp.sends.full() ||
      has_overrun(qp))
    return Common::Other;
  const bool owes = services_.scheduler.has_ready();
  if (owes && (services_.scheduler.first() != &qp || !services_.scheduler.owes_acknowledgement_alone()))
    return Common::Other;
  const Element& element = request.elements[0];
  if (element.length > qp.attributes.mtu_bytes() || qp.sends.elements_each() == 0 ||
      psn_diff(r.next, r.oldest) >= static_cast<int32_t>(window_of(qp)))
    return Common::Other;
  WEFT_ASSERT(r.packet == 0 && r.cursor - qp.sends.head == qp.sends.tail - qp.sends.head);
  const uint32_t index = qp.sends.tail;
  std::byte* payload = nullptr;
  if ((request.flags & inline_data) != 0) {
    if (element.length > qp.sends.inline_each()) return Common::Other;
    payload = qp.sends.inline_bytes(index);
    copy(payload, reinterpret_cast<const std::byte*>(element.address), element.length);
  } else {
    if (element.length != 0 &&
        !services_.memory.local(element.key, qp.pd, element.address, element.length, false, payload))
      return Common::Other;
    *qp.sends.elements(index) = element;
  }
  SendEntry& e = qp.sends.at(index);
  e.id = request.id;
  e.opcode = request.opcode;
  e.flags = static_cast<uint8_t>(request.flags | (qp.signal_all ? signaled : 0));
  e.started = true;
  e.count = 1;
  e.length = element.length;
  e.first_psn = r.next;
  e.packets = 1;
  e.remote_address = request.remote_address;
  e.remote_key = request.remote_key;
  ++qp.sends.tail;

  std::array<std::byte, wire::roce::bth_bytes + reth_bytes> head;
  Bth bth;
  bth.opcode = is_write ? write_only : send_only;
  bth.solicited = (e.flags & solicited) != 0;
  bth.pad = wire::roce::pad_of(element.length);
  bth.destination = qp.attributes.destination;
  bth.ack_request = true;  // it is the last that is posted
  bth.psn = r.next;
  bth.tag = tag_of(r.tag_key, r.next);
  bth.write(head.data());
  if (is_write)
    wire::roce::Reth{e.remote_address, e.remote_key, e.length}.write(head.data() + wire::roce::bth_bytes);
  if (!send_complete(services_, qp, head.data(), wire::roce::bth_bytes + (is_write ? reth_bytes : 0), payload,
                     element.length)) {
    if (!owes) services_.scheduler.make_ready(qp);
    return Common::Posted;
  }
  r.next = psn_add(r.next, 1);
  r.unasked = 0;
  ++r.cursor;
  r.sent_at = now;
  r.time(bth.psn, now);
  WEFT_ASSERT(r.cursor == qp.sends.tail);
  qp.assert_invariants();
  if (r.deadline == UINT64_MAX) {
    await_answer(qp, now);
    services_.scheduler.set_timer(qp);
  } else if (owes) {
    services_.scheduler.set_timer(qp);  // what made it ready left that to its turn
  }
  return owes ? Common::BeforeAcknowledgement : Common::Posted;
}

// The oldest request is one of one packet, and acknowledged.
[[gnu::always_inline]] inline bool Requester::on_common_ack(QueuePair& qp, uint32_t psn, uint8_t syndrome,
                                                            uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  if ((syndrome & 0xe0) != 0 || psn != r.oldest || r.oldest == r.next || qp.attention != 0 ||
      r.wait_until != UINT64_MAX || qp.sends.head == r.cursor || r.allowed != UINT32_MAX)
    return false;
  const SendEntry& e = qp.sends.at(qp.sends.head);
  WEFT_ASSERT(qp.sends.head != qp.sends.tail);
  if (!e.started || e.packets != 1 || e.first_psn != psn || e.is_answered()) return false;
  r.oldest = psn_add(psn, 1);
  WEFT_ASSERT(psn_diff(r.next, r.oldest) >= 0);
  r.retries = qp.attributes.retry_count;
  r.rnr_retries = qp.attributes.rnr_retry;
  r.has_recovered = r.has_gone_back = false;
  r.heard(now);
  complete_sends(qp, now);
  if (static_cast<int32_t>(r.cursor - qp.sends.head) <
      0) {  // after going back it may stand at a local request
    r.cursor = qp.sends.head;
    r.packet = 0;
  }
  r.await_nothing();
  if (r.oldest != r.next) await_answer(qp, now);
  services_.scheduler.set_timer(qp);
  if (r.cursor != qp.sends.tail) services_.scheduler.make_ready(qp);
  return true;
}

// --- the responder ---

// A whole message into the oldest receive request of the queue pair's own queue.
[[gnu::always_inline]] inline bool Responder::handle_send(QueuePair& qp, bool is_solicited,
                                                          const std::byte* from, size_t bytes,
                                                          uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  if (qp.srq != nullptr || r.has_receive) return false;
  const Receive* const receive = qp.receives.front();
  if (receive == nullptr || receive->room < bytes) return false;
  if (bytes != 0) {
    const Element* const elements = qp.receives.front_elements();
    std::byte* at = nullptr;
    // Several elements: not where an element without a byte stands first.
    if (elements[0].length < bytes ||
        !services_.memory.local(elements[0].key, receive->pd, elements[0].address, bytes, true, at))
      return false;
    copy(at, from, bytes);
  }
  Completion c;
  c.id = receive->id;
  c.opcode = CompletionOpcode::Receive;
  c.bytes = static_cast<uint32_t>(bytes);
  c.qpn = qp.number;
  c.source_qpn = qp.attributes.destination;
  c.time_ns = now;
  WEFT_ASSERT(receive->count != 0 || bytes == 0);
  qp.receives.pop();
  services_.complete(qp.receive_cq, qp, c, is_solicited);
  return true;
}

[[gnu::always_inline]] inline bool Responder::handle_write(QueuePair& qp, const wire::roce::Reth& reth,
                                                           const std::byte* from, size_t bytes) noexcept {
  std::byte* at = nullptr;
  if (bytes == 0 || reth.length != bytes || (qp.attributes.access & remote_write) == 0 ||
      !services_.memory.remote(reth.key, qp.pd, qp.number, reth.address, bytes, remote_write, at))
    return false;
  copy(at, from, bytes);
  ++services_.counters.one_sided;
  return true;
}

[[gnu::always_inline]] inline bool Responder::on_common_request(QueuePair& qp, const Bth& bth, bool is_write,
                                                                const std::byte* head, const std::byte* from,
                                                                size_t bytes, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  if (bth.psn != r.expected || r.message != ResponderState::Message::None || r.is_silent ||
      (qp.reorder != nullptr && qp.reorder->is_open) || bytes > qp.attributes.mtu_bytes())
    return false;
  if (is_write) {
    if (!handle_write(qp, wire::roce::Reth::read(head), from, bytes)) return false;
  } else if (!handle_send(qp, bth.solicited, from, bytes, now)) {
    return false;
  }
  r.msn = psn_add(r.msn, 1);
  learn_tag(qp, bth);
  accepted(qp, bth);
  if (r.ack_due) services_.scheduler.make_ready(qp);
  return true;
}

Sent Responder::acknowledge_alone(QueuePair& qp) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(r.ack_due && r.pending == 0 && r.syndrome == wire::roce::syndrome_ack);
  std::array<std::byte, wire::roce::bth_bytes + aeth_bytes> head;
  Bth bth;
  bth.opcode = acknowledge;
  bth.destination = qp.attributes.destination;
  bth.psn = r.ack_psn;
  if (r.tag_key != 0) bth.tag = static_cast<uint16_t>(r.duplicate);
  bth.write(head.data());
  wire::roce::Aeth{r.syndrome, r.msn}.write(head.data() + wire::roce::bth_bytes);
  if (!send_complete(services_, qp, head.data(), head.size(), nullptr, 0)) return Sent::NoRoom;
  r.acked_plain = r.ack_psn;
  r.ack_due = r.is_final = false;
  r.duplicate = Duplicate::None;
  return Sent::Idle;
}

// --- the adapter ---

bool Adapter::post_common(QueuePair& qp, const SendRequest& request, uint64_t now) noexcept {
  const Requester::Common posted = requester_.post_common(qp, request, now);
  if (posted == Requester::Common::BeforeAcknowledgement && responder_.acknowledge_alone(qp) != Sent::NoRoom)
    services_.scheduler.remove(qp);
  return posted != Requester::Common::Other;
}

bool Adapter::on_common_packet(const Arrival& arrival, uint64_t now) noexcept {
  const size_t bytes = arrival.bytes.size();
  if (bytes < wire::roce::bth_bytes || bytes % 4 != 0 || arrival.is_marked || arrival.psns != 1) return false;
  const std::byte* head = arrival.headers.empty() ? arrival.bytes.data() : arrival.headers.data();
  const Bth bth = Bth::read(head);
  if (bth.opcode != send_only && bth.opcode != acknowledge && bth.opcode != write_only) return false;
  QueuePair* const found = qps_.find(bth.destination);
  if (found == nullptr) return false;
  QueuePair& qp = *found;
  if (qp.type != QpType::Rc || qp.state != QpState::ReadyToSend || bth.version != 0 ||
      (bth.pkey & 0x7fff) != 0x7fff || !is_peer(qp, arrival))
    return false;
  size_t payload = 0;
  if (bth.opcode == acknowledge) {
    if (bytes != wire::roce::bth_bytes + aeth_bytes || bth.pad != 0 || bth.tag != 0 ||
        !requester_.on_common_ack(qp, bth.psn, wire::roce::Aeth::read(head + wire::roce::bth_bytes).syndrome,
                                  now))
      return false;
  } else {
    const size_t headers = wire::roce::bth_bytes + (bth.opcode == write_only ? reth_bytes : 0);
    if (bytes < headers + bth.pad) return false;
    payload = bytes - headers - bth.pad;
    if (!responder_.on_common_request(qp, bth, bth.opcode == write_only, head + wire::roce::bth_bytes,
                                      arrival.bytes.data() + headers, payload, now))
      return false;
  }
  ++services_.counters.received;
  ++qp.received;
  qp.received_bytes += payload;
  qp.assert_invariants();
  return true;
}

bool Adapter::awaits_acknowledgement() const noexcept {
  const QueuePair* const qp = services_.scheduler.first();
  return qp != nullptr && qp->sends.tail != qp->sends.head;
}

bool Adapter::may_wait(uint64_t ns) const noexcept {
  const QueuePair* const qp = services_.scheduler.first();
  return qp != nullptr && ns <= ack_timeout_ns(qp->attributes.timeout) / 2;
}

}  // namespace weft::proto::roce
