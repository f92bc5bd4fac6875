// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Creation, states, demultiplexing, and whose turn it is.
#include "proto/roce/adapter.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/assert.hpp"

namespace weft::proto::roce {

using wire::roce::Transport;

Adapter::~Adapter() {
  std::vector<QueuePair*> left;
  qps_.for_each([&](QueuePair& qp) { left.push_back(&qp); });
  for (QueuePair* qp : left) destroy_qp(*qp);
  srqs_.for_each([](SharedReceiveQueue& srq) { delete &srq; });
}

// --- queues ---

Result<CompletionQueue*> Adapter::create_cq(uint32_t capacity) {
  if (capacity == 0 || capacity > completions_max)
    return Error{EINVAL, "a completion queue has 1 to 4,194,304 entries"};
  if (cqs_.size() >= objects_max) return Error{ENOMEM, "as many completion queues as a device has"};
  cqs_.push_back(std::make_unique<CompletionQueue>(services_.events, capacity));
  return cqs_.back().get();
}

int Adapter::destroy_cq(CompletionQueue& cq) noexcept {
  if (cq.users != 0) return -EBUSY;
  WEFT_ASSERT(std::ranges::any_of(cqs_, [&](const auto& one) { return one.get() == &cq; }));
  std::erase_if(cqs_, [&](const auto& one) { return one.get() == &cq; });
  return 0;
}

Result<SharedReceiveQueue*> Adapter::create_srq(uint32_t pd, uint32_t requests, uint32_t elements,
                                                uint32_t xrcd, CompletionQueue* cq) {
  if (requests == 0 || requests > requests_max || elements > elements_max)
    return Error{EINVAL, "a receive queue has 1 to 32,768 requests of up to 32 elements"};
  if (xrcd != 0 && cq == nullptr) return Error{EINVAL, "an XRC receive queue needs a completion queue"};
  auto srq = std::make_unique<SharedReceiveQueue>();
  srq->pd = pd;
  srq->xrcd = xrcd;
  srq->cq = cq;
  srq->queue.make(requests, elements, pd);
  auto number = srqs_.add(*srq);
  if (!number) return number.error();
  srq->number = *number;
  if (cq != nullptr) ++cq->users;
  return srq.release();
}

int Adapter::destroy_srq(SharedReceiveQueue& srq) noexcept {
  if (srq.users != 0) return -EBUSY;
  WEFT_ASSERT(srqs_.find(srq.number) == &srq);
  WEFT_ASSERT(srq.cq == nullptr || srq.cq->users != 0);
  // A message of an XRC queue pair may have taken a request from it.
  qps_.for_each([&](QueuePair& qp) {
    if (qp.responder.srq == &srq) qp.responder.srq = nullptr;
  });
  if (srq.cq != nullptr) --srq.cq->users;
  srqs_.remove(srq.number);
  delete &srq;
  return 0;
}

// --- queue pairs ---

// Which of them, and what there is.
static Error too_much(const Capacities& c, bool receives) {
  struct Asked {
    const char* what;
    uint32_t wanted;
    uint32_t most;
  };
  const std::array asked{Asked{"max_send_wr", c.send_requests, requests_max},
                         Asked{"max_send_sge", c.send_elements, elements_max},
                         Asked{"max_inline_data", c.inline_bytes, inline_bytes_max},
                         Asked{"max_recv_wr", receives ? c.receive_requests : 0, requests_max},
                         Asked{"max_recv_sge", receives ? c.receive_elements : 0, elements_max}};
  std::string why;
  for (const Asked& one : asked)
    if (one.wanted > one.most)
      why += (why.empty() ? "" : ", ") + std::string(one.what) + " " + std::to_string(one.wanted) +
             " is above the limit of " + std::to_string(one.most);
  return Error{EINVAL, "a queue pair is too large: " + why};
}

Result<QueuePair*> Adapter::create_qp(const QueuePairRequest& request) {
  const Capacities& c = request.capacities;
  const bool sends = request.type != QpType::XrcReceive;
  const bool receives = !sends || request.type == QpType::XrcSend ? false : request.srq == nullptr;
  // What the queue pair has no queue for is not looked at (ibv_create_qp(3): a queue pair with a shared receive queue).
  const bool sends_too_much =
      c.send_requests > requests_max || c.send_elements > elements_max || c.inline_bytes > inline_bytes_max;
  const bool receives_too_much = c.receive_requests > requests_max || c.receive_elements > elements_max;
  if ((sends && sends_too_much) || (receives && receives_too_much)) return too_much(c, receives);
  if (sends && request.send_cq == nullptr)
    return Error{EINVAL, "a queue pair that sends needs a completion queue for it"};
  if (request.type != QpType::XrcSend && sends && request.receive_cq == nullptr)
    return Error{EINVAL, "a queue pair that receives needs a completion queue for it"};
  if (!sends && request.xrcd == 0) return Error{EINVAL, "an XRC receive queue pair needs an XRC domain"};
  auto qp = std::make_unique<QueuePair>();
  qp->type = request.type;
  qp->pd = request.pd;
  qp->xrcd = request.xrcd;
  qp->signal_all = request.signal_all;
  qp->send_cq = request.send_cq;
  qp->receive_cq = request.receive_cq;
  qp->srq = request.srq;
  qp->context = request.context;
  begin_congestion(*qp, algorithm);
  if (sends) qp->sends.make(c.send_requests, c.send_elements, c.inline_bytes);
  if (receives) qp->receives.make(c.receive_requests, c.receive_elements, request.pd);
  qp->responder.elements.resize(elements_max);
  qp->responder.resources.reserve(reads_max);
  services_.scheduler.reserve(qps_.size() + 1);
  auto number = request.number == 0 ? qps_.add(*qp) : qps_.add_as(*qp, request.number);
  if (!number) return number.error();
  qp->number = *number;
  if (qp->send_cq != nullptr) ++qp->send_cq->users;
  if (qp->receive_cq != nullptr) ++qp->receive_cq->users;
  if (qp->srq != nullptr) ++qp->srq->users;
  if (qp->type == QpType::Uc) ++unreliable_count_;
  if (services_.faults.observer() != nullptr) services_.faults.observer()->on_create(*qp);
  return qp.release();
}

void Adapter::destroy_qp(QueuePair& qp) noexcept {
  WEFT_ASSERT(qps_.find(qp.number) == &qp);
  if (services_.faults.observer() != nullptr) services_.faults.observer()->on_destroy(qp);
  while (const auto group = first_group(qp)) (void)detach(qp, *group);
  reset(qp);
  WEFT_ASSERT(qp.timer_index == SIZE_MAX && !Scheduler::is_ready(qp));
  WEFT_ASSERT(qp.sends.empty() && qp.receives.size() == 0);
  WEFT_ASSERT(qp.type != QpType::Uc || unreliable_count_ != 0);
  if (qp.type == QpType::Uc) --unreliable_count_;
  qps_.remove(qp.number);
  WEFT_ASSERT(qp.send_cq == nullptr || qp.send_cq->users != 0);
  WEFT_ASSERT(qp.receive_cq == nullptr || qp.receive_cq->users != 0);
  WEFT_ASSERT(qp.srq == nullptr || qp.srq->users != 0);
  if (qp.send_cq != nullptr) --qp.send_cq->users;
  if (qp.receive_cq != nullptr) --qp.receive_cq->users;
  if (qp.srq != nullptr) --qp.srq->users;
  delete &qp;
}

void Adapter::reset(QueuePair& qp) noexcept {
  qp.assert_invariants();
  services_.scheduler.clear_timer(qp);
  services_.scheduler.remove(qp);
  if (qp.send_cq != nullptr) qp.send_cq->remove(qp.number);
  if (qp.receive_cq != nullptr && qp.receive_cq != qp.send_cq) qp.receive_cq->remove(qp.number);
  Requester::reset(qp);
  responder_.reset(qp);
  qp.drain_pending = qp.last_wqe_reported = false;
  qp.attention = 0;
  qp.cause = WEFT_FAULT_NONE;
  begin_congestion(qp, algorithm);
  qp.pace_until = UINT64_MAX;
  qp.state = QpState::Reset;
  WEFT_ASSERT(qp.sends.empty() && qp.attention == 0);
  WEFT_ASSERT(qp.responder.pending == 0 && !qp.responder.has_receive && !qp.responder.ack_due);
  WEFT_ASSERT(qp.responder.resources.capacity() >= reads_max);
}

// The path names the peer, which may be of Weft.
void Adapter::set_tag_keys(QueuePair& qp) const noexcept {
  const Attributes& a = qp.attributes;
  const bool has_tags = is_weft_peer != nullptr && qp.type != QpType::Ud &&
                        (has_selective || qp.type == QpType::Uc) && is_weft_peer(a.path.destination);
  qp.requester.tag_key = has_tags ? tag_key(qp.number, a.destination, a.sq_psn) : 0;
  qp.responder.tag_key = has_tags ? tag_key(a.destination, qp.number, a.rq_psn) : 0;
  if (!has_tags) qp.responder.knows_tags = false;
  qp.requester.marks_duplicates = false;
}

void Adapter::set_selective(QueuePair& qp) {
  qp.has_window =
      is_weft_peer != nullptr && qp.type == QpType::Uc && is_weft_peer(qp.attributes.path.destination);
  const bool is_wanted = has_selective && is_weft_peer != nullptr && qp.is_reliable() &&
                         is_weft_peer(qp.attributes.path.destination);
  responder_.set_selective(qp, is_wanted);
  Requester::set_selective(qp, is_wanted);
}

void Adapter::apply(QueuePair& qp, const Attributes& a, uint32_t mask) noexcept {
  Attributes& to = qp.attributes;
  const auto has = [&](uint32_t bit) { return (mask & bit) != 0; };
  if (has(attr_access)) to.access = a.access;
  if (has(attr_qkey)) to.qkey = a.qkey;
  if (has(attr_path)) to.path = a.path;
  if (has(attr_path_mtu)) to.path_mtu = a.path_mtu;
  if (has(attr_timeout)) to.timeout = a.timeout;
  if (has(attr_retry_count)) to.retry_count = a.retry_count;
  if (has(attr_rnr_retry)) to.rnr_retry = a.rnr_retry;
  if (has(attr_rq_psn)) to.rq_psn = a.rq_psn & psn_mask;
  if (has(attr_sq_psn)) to.sq_psn = a.sq_psn & psn_mask;
  if (has(attr_max_reads)) to.max_reads = a.max_reads;
  if (has(attr_max_dest_reads)) to.max_dest_reads = a.max_dest_reads;
  if (has(attr_min_rnr_timer)) to.min_rnr_timer = a.min_rnr_timer;
  if (has(attr_destination)) to.destination = a.destination & psn_mask;
}

Result<void> Adapter::modify(QueuePair& qp, const Attributes& attributes, uint32_t mask, uint64_t now) {
  const QpState to = (mask & attr_state) != 0 ? attributes.state : qp.state;
  if ((mask & attr_current_state) != 0 && attributes.current_state != qp.state)
    return Error{EINVAL, std::string("the queue pair is not in the current state that was named, but in ") +
                             name_of(qp.state)};
  if (auto ok = check_transition(qp.type, qp.state, to, mask); !ok) return ok;
  if (auto ok = check_values(attributes, mask); !ok) return ok;
  if ((mask & attr_max_dest_reads) != 0 && !Responder::may_hold(qp, attributes.max_dest_reads))
    return Error{EBUSY, "more READs and atomics are being answered than max dest rd atomic"};
  const QpState from = qp.state;
  if (to == QpState::Reset) {
    reset(qp);
    return {};
  }
  if (to == QpState::Error) {
    if (from == QpState::Error) return {};  // a NAK may be on its way out
    Responder::end_responses(qp);
    qp.cause = WEFT_FAULT_MODIFIED;
    to_error(qp, now);
    return {};
  }
  apply(qp, attributes, mask);
  if (from == QpState::Init && to == QpState::ReadyToReceive) {
    WEFT_ASSERT(qp.sends.empty());
    Responder::begin(qp);
  }
  if (to != QpState::Init) adopt_window(qp);  // the path MTU is known
  if ((mask & attr_max_dest_reads) != 0) Responder::resize(qp, qp.attributes.max_dest_reads);
  if (from == QpState::ReadyToReceive && to == QpState::ReadyToSend) Requester::begin(qp);
  if ((mask & attr_path) != 0) set_selective(qp);
  if ((mask & (attr_path | attr_destination | attr_rq_psn | attr_sq_psn)) != 0) set_tag_keys(qp);
  qp.state = to;
  WEFT_ASSERT(to != QpState::Reset && to != QpState::Error);
  if (from == QpState::ReadyToSend && to == QpState::SendDrained) {
    qp.drain_pending = (mask & attr_drain_notify) != 0 && attributes.drain_notify;
    requester_.report_drained(qp);
  }
  if (to == QpState::ReadyToSend) {
    qp.cause = WEFT_FAULT_NONE;  // also from SQE
    services_.scheduler.make_ready(qp);
    flush(now);
    qp.assert_invariants();
  }
  return {};
}

void Adapter::to_error(QueuePair& qp, uint64_t now) noexcept {
  WEFT_ASSERT(qp.state != QpState::Reset);
  WEFT_ASSERT(qp.state != QpState::Error);
  qp.state = QpState::Error;
  responder_.owe_last_acknowledgement(qp);
  begin_congestion(qp, algorithm);
  end_pace(qp);
  responder_.drop_buffered(qp);
  services_.scheduler.clear_timer(qp);
  requester_.flush_sends(qp, now);
  responder_.flush_receives(qp, now);
  WEFT_ASSERT(qp.sends.empty() && qp.requester.open_reads == 0 && qp.requester.apart == 0);
  WEFT_ASSERT(qp.timer_index == SIZE_MAX && !qp.congestion->is_paced());
  WEFT_ASSERT(qp.reorder == nullptr || !qp.reorder->is_open);
  if (qp.srq != nullptr && !qp.last_wqe_reported) {
    qp.last_wqe_reported = true;
    services_.events.on_async({AsyncKind::LastRequestReached, &qp, nullptr, nullptr});
  }
}

// --- input ---

void Adapter::on_packet(const Arrival& arrival, uint64_t now) noexcept {
  if (has_common_case && on_common_packet(arrival, now)) return;
  Packet packet;
  const std::span<const std::byte> headers = arrival.headers.empty() ? arrival.bytes : arrival.headers;
  if (!wire::roce::parse(headers, arrival.bytes, packet) || packet.payload.size() > mtu_bytes_max) {
    ++services_.counters.malformed;
    return;
  }
  QueuePair* qp = qps_.find(packet.bth.destination);
  if (qp == nullptr) {
    if (packet.bth.destination == group_qpn && arrival.group != nullptr)
      return on_group_datagram(arrival, packet, now);
    services_.faults.report_dropped(nullptr, arrival, packet, WEFT_FAULT_QPN_UNKNOWN);
    ++services_.counters.unknown;
    return;
  }
  Transport transport = Transport::ReliableConnection;
  if (qp->type == QpType::Uc) transport = Transport::Unreliable;
  if (qp->type == QpType::Ud) transport = Transport::Datagram;
  if (qp->is_xrc()) transport = Transport::Extended;
  const bool is_request = packet.traits().is_request;
  const bool sends = qp->state == QpState::ReadyToSend || qp->state == QpState::SendDrained;
  const bool takes =
      is_request ? qp->type != QpType::XrcSend &&
                       (sends || qp->state == QpState::ReadyToReceive || qp->state == QpState::SendError)
                 : qp->type != QpType::XrcReceive && sends;
  if (packet.transport() != transport || !takes) {
    // One that has failed has told why; what was under way to it still comes.
    const bool is_expected = packet.transport() == transport || packet.transport() < Transport::Congestion;
    if (is_expected && qp->state != QpState::Error)
      services_.faults.report_dropped(qp, arrival, packet, WEFT_FAULT_QP_STATE);
    return on_other(*qp, is_peer(*qp, arrival), packet, now);
  }
  // The default partition, as full or limited member (10.9.3).
  const bool same_partition = (packet.bth.pkey & 0x7fff) == 0x7fff;
  if (!same_partition || (qp->type != QpType::Ud && !is_peer(*qp, arrival))) {
    services_.faults.report_dropped(qp, arrival, packet,
                                    same_partition ? WEFT_FAULT_QP_SOURCE : WEFT_FAULT_PKEY, 0xffff,
                                    packet.bth.pkey);
    ++services_.counters.foreign;
    return;
  }
  if (qp->is_reliable()) packet.psns = arrival.psns;
  ++services_.counters.received;
  ++qp->received;
  qp->received_bytes += packet.payload.size();
  if (arrival.is_marked && packet.traits().has_payload) [[unlikely]]
    responder_.on_marked(*qp, now);
  if (qp->state == QpState::ReadyToReceive && !qp->responder.has_heard &&
      (qp->type == QpType::Ud || packet.bth.psn == qp->responder.expected)) {
    qp->responder.has_heard = true;
    services_.events.on_async({AsyncKind::CommunicationEstablished, qp, nullptr, nullptr});
  }
  if (qp->type == QpType::Ud) {
    responder_.on_datagram(*qp, arrival, packet, now);
  } else if (!is_request) {
    requester_.on_answer(*qp, packet, now);
  } else if (qp->type == QpType::Uc) {
    responder_.on_unreliable(*qp, packet, now);
  } else {
    responder_.on_request(*qp, packet, now);
  }
  qp->assert_invariants();
}

// Of no transport, or not for a queue pair of this type and state.
[[gnu::noinline, gnu::cold]] void Adapter::on_other(QueuePair& qp, bool is_from_peer, const Packet& packet,
                                                    uint64_t now) noexcept {
  if (packet.bth.opcode == wire::roce::opcode_cnp) {
    requester_.on_cnp(qp, is_from_peer, packet, now);
  } else if (packet.bth.opcode == wire::roce::opcode_sack) {
    requester_.on_sack(qp, is_from_peer, packet, now);
  } else if (packet.bth.opcode == wire::roce::opcode_window_update) {
    requester_.on_window_update(qp, is_from_peer, packet);
  } else {
    ++services_.counters.unknown;
  }
}

void Adapter::fail_overrun(QueuePair& qp, uint64_t now) noexcept {
  if (qp.state == QpState::Error || qp.state == QpState::Reset) return;
  WEFT_ASSERT((qp.send_cq != nullptr && qp.send_cq->overrun()) ||
              (qp.receive_cq != nullptr && qp.receive_cq->overrun()) ||
              (qp.attention & attention_overrun) != 0);
  qp.responder.ack_due = false;  // the program has not got the completion of what would be acknowledged
  services_.faults.report_overrun(qp);
  to_error(qp, now);
  services_.events.on_async({AsyncKind::QpFatal, &qp, nullptr, nullptr});
}

Sent Adapter::serve(QueuePair& qp, uint64_t now) noexcept {
  WEFT_ASSERT(!Scheduler::is_ready(qp));
  WEFT_ASSERT(qp.state != QpState::Reset && qp.state != QpState::Init);
  qp.assert_invariants();
  if ((qp.send_cq != nullptr && qp.send_cq->overrun()) ||
      (qp.receive_cq != nullptr && qp.receive_cq->overrun()) || (qp.attention & attention_overrun) != 0)
      [[unlikely]]
    fail_overrun(qp, now);
  if (has_common_case && Scheduler::is_acknowledgement_alone(qp)) {
    const Sent sent = responder_.acknowledge_alone(qp);
    services_.scheduler.set_timer(qp);  // what made it ready left that to its turn
    return sent;
  }
  return run_turn(qp, now);
}

// Sends what the scheduler names, until nothing is left to send, the turn is over, or the output has no room.
[[gnu::noinline]] Sent Adapter::run_turn(QueuePair& qp, uint64_t now) noexcept {
  Turn turn;
  Sent sent = Sent::Idle;
  do {
    switch (services_.scheduler.next(qp, turn, now)) {
      case PacketKind::None:
        return turn.is_paced ? services_.scheduler.end_paced(qp, turn, now) : turn.result;
      case PacketKind::Response:
        sent = responder_.respond(qp, now, turn.allowance);
        break;
      case PacketKind::Request:
        sent = qp.type == QpType::Ud ? requester_.transmit_datagrams(qp, now, turn.allowance)
                                     : requester_.transmit(qp, now, turn.allowance);
        if (qp.state != QpState::Error) services_.scheduler.set_timer(qp);
        break;
      case PacketKind::Acknowledgement: {
        // Also of a queue pair of which a request has just failed: what arrived before is acknowledged all the same.
        WEFT_ASSERT(qp.state != QpState::Error || qp.responder.is_final);
        int none = 0;
        sent = responder_.respond(qp, now, none);
        break;
      }
      case PacketKind::Repetition:
        sent = requester_.repeat(qp, now, turn.budget);
        break;
      case PacketKind::Cnp:
        sent = responder_.send_cnp(qp) ? Sent::Idle : Sent::NoRoom;
        if (sent == Sent::Idle) qp.attention &= static_cast<uint8_t>(~unsigned{attention_cnp});
        break;
      case PacketKind::WindowUpdate:
        sent = responder_.send_window(qp, window_for(qp)) ? Sent::Idle : Sent::NoRoom;
        if (sent == Sent::Idle) qp.attention &= static_cast<uint8_t>(~unsigned{attention_window});
        break;
    }
  } while (turn.goes_on(sent));
  return turn.is_paced ? services_.scheduler.end_paced(qp, turn, now) : turn.result;
}

void Adapter::flush(uint64_t now) noexcept {
  while (services_.scheduler.next_due() <= now) requester_.on_timer(services_.scheduler.first_due(), now);
  serve_ready(now);
}

void Adapter::serve_ready(uint64_t now) noexcept {
  const uint64_t before = services_.counters.sent;
  for (int turns = packets_per_flush; turns > 0 && services_.scheduler.has_ready(); --turns) {
    if (services_.counters.sent - before >= packets_per_flush) return;
    QueuePair& qp = services_.scheduler.pop();
    WEFT_ASSERT(qps_.find(qp.number) == &qp);
    switch (serve(qp, now)) {
      case Sent::Idle:
        break;
      case Sent::More:
        services_.scheduler.make_ready(qp);
        break;
      case Sent::NoRoom:
        services_.scheduler.put_back(qp);
        return;
    }
  }
}

// --- output ---

// Half of the buffer, in equal parts: the others are for what else comes. A packet that no interface joined with others
// takes its own bytes, those of its buffer's rounding and of the kernel's bookkeeping.
uint32_t Adapter::window_for(const QueuePair& qp) const noexcept {
  if (unreliable_room_bytes == 0) return qp.attributes.window_packets;
  const size_t packet_bytes = 2 * (qp.attributes.mtu_bytes() + 1024);
  const size_t packets = unreliable_room_bytes / 2 / packet_bytes / std::max(1U, unreliable_count_);
  return static_cast<uint32_t>(std::clamp<size_t>(packets, window_least, qp.attributes.window_packets));
}

}  // namespace weft::proto::roce
