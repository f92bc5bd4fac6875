// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why it failed, for people (fault.hpp). Called where something was refused already.
#include "proto/roce/fault_reporter.hpp"

#include "proto/roce/psn.hpp"

namespace weft::proto::roce {

namespace {

Fault of_packet(Fault::At at, const wire::roce::Packet& packet, Cause cause) noexcept {
  Fault fault;
  fault.at = at;
  fault.cause = cause;
  fault.opcode = packet.bth.opcode;
  fault.psn = packet.bth.psn;
  fault.qpn = packet.bth.destination;
  return fault;
}

// What a request asks of the peer's memory.
void set_remote(Fault& fault, const SendEntry& e) noexcept {
  const bool has_remote =
      e.opcode == SendOpcode::Write || e.opcode == SendOpcode::WriteImmediate || e.is_answered();
  fault.has_memory = has_remote;
  fault.key = e.remote_key;
  fault.address = e.remote_address;
  fault.length = e.opcode == SendOpcode::Flush ? e.compare_add : e.length;
}

}  // namespace

[[gnu::cold, gnu::noinline]] void FaultReporter::report(QueuePair& qp, const Fault& fault) noexcept {
  if (qp.cause == WEFT_FAULT_NONE) qp.cause = fault.cause;
  if (observer_ != nullptr) observer_->on_fault(&qp, fault);
}

// The first element that may not be used so.
bool FaultReporter::find_bad_element(std::span<const Element> elements, uint32_t pd, bool write,
                                     Fault& fault) const noexcept {
  for (const Element& element : elements) {
    std::byte* at = nullptr;
    const uint64_t length = element.length;
    if (length == 0 || memory_.local(element.key, pd, element.address, length, write, at)) continue;
    memory_.why_not(element.key, pd, 0, element.address, length, write ? uint32_t{local_write} : 0U, false,
                    fault);
    return true;
  }
  return false;
}

[[gnu::cold, gnu::noinline]] void FaultReporter::report_send(QueuePair& qp, Status status) noexcept {
  const SendEntry& e = qp.sends.at(qp.sends.head);
  Fault fault;
  fault.opcode = static_cast<uint8_t>(e.opcode);
  fault.status = status;
  fault.id = e.id;
  fault.psn = e.started ? e.first_psn : qp.requester.next;
  set_remote(fault, e);
  switch (status) {
    case Status::LocalProtection:
      fault.has_memory = false;
      if (!find_bad_element({qp.sends.elements(qp.sends.head), e.count}, qp.pd,
                            e.is_answered() && e.opcode != SendOpcode::AtomicWrite, fault))
        fault.cause = WEFT_FAULT_LKEY_UNKNOWN;  // it was so a moment ago
      break;
    case Status::LocalOperation:
      fault.cause = WEFT_FAULT_NO_READS;
      break;
    case Status::LocalLength:
      fault.cause = WEFT_FAULT_MESSAGE_LENGTH;
      fault.wanted = static_cast<uint64_t>(psn_half) * qp.attributes.mtu_bytes();
      fault.given = e.length;
      break;
    case Status::WindowBind:
      fault.has_memory = true;
      if (e.opcode == SendOpcode::BindWindow) {
        fault.cause = WEFT_FAULT_WINDOW_BIND;
        fault.key = e.bind.region_key;
        fault.address = e.bind.address;
        fault.length = e.bind.length;
      } else {
        fault.cause = WEFT_FAULT_WINDOW_INVALIDATE;
        fault.key = e.invalidate;
      }
      break;
    case Status::RetryExceeded:
      // Something was heard, and all of it named PSNs that were never sent.
      fault.cause = WEFT_FAULT_NO_ANSWER;
      if (qp.ghosts != 0 && qp.requester.oldest == qp.attributes.sq_psn)
        fault.cause = WEFT_FAULT_ANSWERS_OTHER_PSN;
      fault.wanted = qp.attributes.retry_count + 1U;
      fault.given = qp.attributes.timeout;
      break;
    case Status::RnrRetryExceeded:
      fault.cause = WEFT_FAULT_NO_RECEIVE_THERE;
      fault.wanted = qp.attributes.rnr_retry + 1U;
      break;
    case Status::BadResponse:
      fault.cause = WEFT_FAULT_PEER_RESPONSE;
      break;
    case Status::RemoteInvalidRequest:
      fault.cause = WEFT_FAULT_PEER_REQUEST;
      break;
    case Status::RemoteAccess:
      fault.cause = WEFT_FAULT_PEER_ACCESS;
      break;
    default:
      fault.cause = WEFT_FAULT_PEER_OPERATION;
  }
  report(qp, fault);
}

[[gnu::cold, gnu::noinline]] void FaultReporter::report_receive(QueuePair& qp, Status status,
                                                                const Packet& packet) noexcept {
  const ResponderState& r = qp.responder;
  Fault fault = of_packet(Fault::At::Receiver, packet, WEFT_FAULT_RECEIVE_SHORT);
  fault.status = status;
  fault.id = r.receive.id;
  if (status == Status::LocalProtection) {
    if (!find_bad_element(r.receive.elements, r.receive.pd, true, fault))
      fault.cause = WEFT_FAULT_LKEY_UNKNOWN;
  } else {
    const uint64_t before = qp.type == QpType::Ud ? grh_bytes : r.received;
    fault.wanted = before + packet.payload.size();  // so far
    fault.given = r.receive.room;
  }
  report(qp, fault);
}

[[gnu::cold, gnu::noinline]] void FaultReporter::report_refusal(QueuePair& qp, const Packet& packet,
                                                                Cause cause, uint64_t wanted,
                                                                uint64_t given) noexcept {
  Fault fault = of_packet(Fault::At::Responder, packet, cause);
  fault.wanted = wanted;
  fault.given = given;
  const Cause before = qp.cause;
  report(qp, fault);
  if (cause == WEFT_FAULT_NO_RECEIVE || !qp.is_reliable()) qp.cause = before;
}

[[gnu::cold, gnu::noinline]] void FaultReporter::report_access(QueuePair& qp, const Packet& packet,
                                                               uint32_t key, uint32_t pd, uint64_t address,
                                                               uint64_t length, uint32_t rights) noexcept {
  Fault fault = of_packet(Fault::At::Responder, packet, WEFT_FAULT_NONE);
  memory_.why_not(key, pd, qp.number, address, length, rights, true, fault);
  if ((qp.attributes.access & rights) != rights) {
    fault.cause = WEFT_FAULT_QP_RIGHTS;
    fault.wanted = rights;
    fault.given = qp.attributes.access;
  }
  const Cause before = qp.cause;
  report(qp, fault);
  if (!qp.is_reliable()) qp.cause = before;
}

[[gnu::cold, gnu::noinline]] void FaultReporter::report_response(QueuePair& qp, const Resource& one,
                                                                 uint64_t address, uint64_t length) noexcept {
  Fault fault;
  fault.at = Fault::At::Responder;
  fault.opcode =
      wire::roce::opcode(wire::roce::Transport::ReliableConnection, wire::roce::Operation::ReadRequest);
  fault.psn = psn_add(one.first_psn, one.next);
  memory_.why_not(one.key, one.pd, qp.number, address, length, remote_read, true, fault);
  report(qp, fault);
}

[[gnu::cold, gnu::noinline]] void FaultReporter::report_overrun(QueuePair& qp) noexcept {
  const bool is_send = qp.send_cq != nullptr && qp.send_cq->overrun();
  const CompletionQueue* const cq = is_send ? qp.send_cq : qp.receive_cq;
  Fault fault;
  fault.cause = WEFT_FAULT_CQ_OVERRUN;
  fault.at = is_send ? Fault::At::Requester : Fault::At::Receiver;
  fault.given = cq == nullptr ? 0 : cq->capacity();
  report(qp, fault);
}

[[gnu::cold, gnu::noinline]] void FaultReporter::report_dropped(const QueuePair* qp, const Arrival& arrival,
                                                                const Packet& packet, Cause cause,
                                                                uint64_t wanted,
                                                                uint64_t given) const noexcept {
  if (observer_ == nullptr) return;
  Fault fault = of_packet(Fault::At::Dropped, packet, cause);
  fault.source = arrival.source;
  fault.wanted = wanted;
  fault.given = given;
  observer_->on_fault(qp, fault);
}

// Nothing of the peer was accepted so far. A packet that is a few ahead may only have overtaken, or follow one that is lost or
// found no receive.
[[gnu::cold, gnu::noinline]] void FaultReporter::report_gap(const QueuePair& qp,
                                                            const Packet& packet) const noexcept {
  constexpr int32_t chance_max = 255;
  constexpr uint64_t chance_gaps = 4;
  const int32_t ahead = psn_diff(packet.bth.psn, qp.responder.expected);
  const bool may_be_chance = ahead > 0 && ahead <= chance_max && (qp.gaps < chance_gaps || qp.naks.rnr != 0);
  if (observer_ == nullptr || may_be_chance) return;
  Fault fault = of_packet(Fault::At::Dropped, packet, WEFT_FAULT_FIRST_PSN);
  fault.source = qp.attributes.path.destination;
  fault.wanted = qp.responder.expected;
  fault.given = packet.bth.psn;
  observer_->on_fault(&qp, fault);
}

}  // namespace weft::proto::roce
