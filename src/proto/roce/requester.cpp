// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A requester: send requests become packets, and complete in order. IBTA 9.7.3, 10.8.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.hpp"
#include "proto/roce/requester.hpp"
#include "proto/roce/tag.hpp"

namespace weft::proto::roce {

using wire::roce::Operation;
using wire::roce::Transport;

namespace {

using Parts = std::array<iovec, elements_max + 2>;  // head, elements, pad

Transport transport_of(const QueuePair& qp) noexcept {
  if (qp.type == QpType::Uc) return Transport::Unreliable;
  return qp.is_xrc() ? Transport::Extended : Transport::ReliableConnection;
}

uint32_t packets_of(uint64_t length, size_t mtu) noexcept {
  return length == 0 ? 1 : static_cast<uint32_t>((length + mtu - 1) / mtu);
}

Operation operation_of(SendOpcode opcode, bool first, bool last) noexcept {
  const bool write = opcode == SendOpcode::Write || opcode == SendOpcode::WriteImmediate;
  if (!last) {
    if (write) return first ? Operation::WriteFirst : Operation::WriteMiddle;
    return first ? Operation::SendFirst : Operation::SendMiddle;
  }
  switch (opcode) {
    case SendOpcode::Write:
      return first ? Operation::WriteOnly : Operation::WriteLast;
    case SendOpcode::WriteImmediate:
      return first ? Operation::WriteOnlyImmediate : Operation::WriteLastImmediate;
    case SendOpcode::SendImmediate:
      return first ? Operation::SendOnlyImmediate : Operation::SendLastImmediate;
    case SendOpcode::SendInvalidate:
      return first ? Operation::SendOnlyInvalidate : Operation::SendLastInvalidate;
    default:
      return first ? Operation::SendOnly : Operation::SendLast;
  }
}

CompletionOpcode completion_of(SendOpcode opcode) noexcept {
  switch (opcode) {
    case SendOpcode::Write:
    case SendOpcode::WriteImmediate:
      return CompletionOpcode::Write;
    case SendOpcode::Read:
      return CompletionOpcode::Read;
    case SendOpcode::CompareSwap:
      return CompletionOpcode::CompareSwap;
    case SendOpcode::FetchAdd:
      return CompletionOpcode::FetchAdd;
    case SendOpcode::Flush:
      return CompletionOpcode::Flush;
    case SendOpcode::AtomicWrite:
      return CompletionOpcode::AtomicWrite;
    case SendOpcode::LocalInvalidate:
      return CompletionOpcode::LocalInvalidate;
    case SendOpcode::BindWindow:
      return CompletionOpcode::BindWindow;
    default:
      return CompletionOpcode::Send;
  }
}

// A packet of a SEND or WRITE.
[[gnu::always_inline]] inline void describe(const QueuePair& qp, const SendEntry& e, uint32_t psn, bool first,
                                            bool last, wire::roce::Packet& p) noexcept {
  p.bth.opcode = wire::roce::opcode(transport_of(qp), operation_of(e.opcode, first, last));
  p.bth.destination = qp.attributes.destination;
  p.bth.psn = psn;
  p.bth.tag = tag_of(qp.requester.tag_key, psn);
  p.bth.solicited = last && (e.flags & solicited) != 0;
  p.xrc_srqn = e.remote_srqn;
  p.reth = {e.remote_address, e.remote_key, e.length};
  p.immediate = e.immediate;
  p.invalidate = e.invalidate;
}

// A READ from its packet `done` on, an atomic, an ATOMIC WRITE, or a FLUSH.
[[gnu::always_inline]] inline void describe_answered(const QueuePair& qp, const SendEntry& e, uint32_t done,
                                                     wire::roce::Packet& p) noexcept {
  const uint64_t offset = uint64_t{done} * qp.attributes.mtu_bytes();
  const Operation op = e.opcode == SendOpcode::Read          ? Operation::ReadRequest
                       : e.opcode == SendOpcode::CompareSwap ? Operation::CompareSwap
                       : e.opcode == SendOpcode::FetchAdd    ? Operation::FetchAdd
                       : e.opcode == SendOpcode::Flush       ? Operation::Flush
                                                             : Operation::AtomicWrite;
  p.bth.opcode = wire::roce::opcode(transport_of(qp), op);
  p.bth.destination = qp.attributes.destination;
  p.bth.psn = psn_add(e.first_psn, done);
  p.bth.tag = tag_of(qp.requester.tag_key, p.bth.psn);
  p.bth.ack_request = true;
  p.xrc_srqn = e.remote_srqn;
  p.reth = {e.remote_address + offset, e.remote_key, static_cast<uint32_t>(e.length - offset)};
  if (op == Operation::AtomicWrite) p.reth.length = sizeof(uint64_t);
  if (op == Operation::Flush) {
    p.reth.length = static_cast<uint32_t>(e.compare_add);
    p.feth = wire::roce::Feth::of(e.immediate);
  }
  p.atomic = {e.remote_address, e.remote_key, e.opcode == SendOpcode::CompareSwap ? e.swap : e.compare_add,
              e.opcode == SendOpcode::CompareSwap ? e.compare_add : 0};
}

}  // namespace

// --- the send queue ---

void Requester::post(QueuePair& qp, const SendRequest& request) noexcept {
  WEFT_ASSERT(!qp.sends.full() && request.elements.size() <= qp.sends.elements_each());
  const uint32_t index = qp.sends.tail;
  SendEntry& e = qp.sends.at(index);
  e.started = false;
  e.first_psn = e.packets = 0;
  e.id = request.id;
  e.opcode = request.opcode;
  e.flags = static_cast<uint8_t>(request.flags | (qp.signal_all ? signaled : 0));
  e.count = static_cast<uint32_t>(request.elements.size());
  e.length = static_cast<uint32_t>(length_of(request.elements));
  e.immediate = request.immediate;
  e.invalidate = request.invalidate;
  e.remote_address = request.remote_address;
  e.remote_key = request.remote_key;
  e.compare_add = request.compare_add;
  e.swap = request.swap;
  e.remote_srqn = request.remote_srqn;
  if (qp.type == QpType::Ud) {
    e.to = request.to;
    e.remote_qpn = request.remote_qpn;
    e.remote_qkey = request.remote_qkey;
  }
  if (request.opcode == SendOpcode::BindWindow) e.bind = request.bind;
  if ((request.flags & inline_data) != 0) {
    // A list that is longer than the ring: what is complete when it is sent has given its place back, not its packet.
    if (!qp.is_reliable() && qp.sends.is_ring_start(index)) services_.output.flush();
    std::byte* to = qp.sends.inline_bytes(index);
    for (const Element& element : request.elements) {
      if (element.length != 0)
        std::memcpy(to, reinterpret_cast<const void*>(element.address), element.length);
      to += element.length;
    }
  } else {
    std::ranges::copy(request.elements, qp.sends.elements(index));
  }
  WEFT_ASSERT((request.flags & inline_data) == 0 || e.length <= qp.sends.inline_each());
  ++qp.sends.tail;
}

void Requester::begin(QueuePair& qp) noexcept {
  WEFT_ASSERT(qp.sends.empty() && qp.requester.cursor == qp.sends.tail);
  RequesterState& r = qp.requester;
  r.next = r.oldest = qp.cut_psn = qp.attributes.sq_psn;
  r.retries = qp.attributes.retry_count;
  r.rnr_retries = qp.attributes.rnr_retry;
  // UC: the window is small until the first update.
  if (!qp.has_window) return;
  WEFT_ASSERT(qp.type == QpType::Uc);
  r.window = window_least;
  r.reported = r.next;
}

void Requester::reset(QueuePair& qp) noexcept {
  qp.sends.head = qp.sends.tail;
  qp.requester = RequesterState{};
  qp.requester.cursor = qp.sends.tail;
  qp.repeater.reset();
}

// --- memory of a request ---

bool Requester::gather(QueuePair& qp, uint32_t index, uint64_t offset, size_t length, iovec* parts,
                       size_t& count) noexcept {
  const SendEntry& e = qp.sends.at(index);
  WEFT_ASSERT(offset + length <= e.length);
  if (length == 0) return true;
  if ((e.flags & inline_data) != 0) {
    WEFT_ASSERT(offset + length <= qp.sends.inline_each());
    parts[count++] = {qp.sends.inline_bytes(index) + offset, length};
    return true;
  }
  const Element* elements = qp.sends.elements(index);
  for (uint32_t i = 0; i < e.count && length > 0; ++i) {
    if (offset >= elements[i].length) {
      offset -= elements[i].length;
      continue;
    }
    const size_t take = std::min<uint64_t>(length, elements[i].length - offset);
    std::byte* at = nullptr;
    if (!services_.memory.local(elements[i].key, qp.pd, elements[i].address + offset, take, false, at))
      return false;
    parts[count++] = {at, take};
    length -= take;
    offset = 0;
  }
  return length == 0;
}

// The payload of an answered request: 8 bytes of an ATOMIC WRITE, nothing of the others.
bool Requester::gather_answered(QueuePair& qp, uint32_t index, iovec* parts, size_t& count,
                                size_t& length) noexcept {
  SendEntry& e = qp.sends.at(index);
  if (e.opcode != SendOpcode::AtomicWrite) return true;
  length = sizeof(uint64_t);
  if ((e.flags & inline_data) == 0) return gather(qp, index, 0, length, parts, count);
  parts[count++] = {&e.compare_add, length};
  return true;
}

bool Requester::scatter(QueuePair& qp, uint32_t index, uint64_t offset,
                        std::span<const std::byte> from) noexcept {
  return services_.scatter({qp.sends.elements(index), qp.sends.at(index).count}, qp.pd, offset, from);
}

// --- sending ---

// Whether a packet of `psns` PSNs, the last of which is `psn`, asks for an acknowledgement. Each one that is sent again does.
bool Requester::asks(const QueuePair& qp, const SendEntry& e, bool is_last, uint32_t psn,
                     uint32_t psns) noexcept {
  const RequesterState& r = qp.requester;
  const auto in_flight = psn_diff(psn, r.oldest) + 1 - static_cast<int32_t>(r.apart);
  if (in_flight >= static_cast<int32_t>(window_of(qp)) || r.unasked + psns >= r.unasked_max ||
      r.allowed != UINT32_MAX)
    return true;
  if (!is_last) return false;
  if ((e.flags & signaled) != 0 || r.cursor + 1 == qp.sends.tail || psn_diff(psn, r.next) < 0) return true;
  const SendEntry& then = qp.sends.at(r.cursor + 1);
  return (then.flags & fence) != 0 || then.is_local();
}

// The request at the cursor waits until all before it is complete. Where nothing will be heard of that, because no
// packet asked for an acknowledgement, it is sent again and asked for. True: so.
bool Requester::asks_again(QueuePair& qp) noexcept {
  const RequesterState& r = qp.requester;
  if (!qp.is_reliable() || r.open_reads > 0 || r.unasked <= r.packet) return false;
  WEFT_ASSERT(r.cursor != qp.sends.head || r.packet != 0);
  go_back(qp);
  return true;
}

// What stands between a request and its first packet.
Requester::Begin Requester::begin_request(QueuePair& qp, SendEntry& e, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  WEFT_ASSERT(r.packet == 0 && &e == &qp.sends.at(r.cursor));
  WEFT_ASSERT(r.open_reads <= r.cursor - qp.sends.head);
  if ((e.flags & fence) != 0 && r.open_reads > 0) return Begin::Blocked;
  if (e.is_answered() && r.open_reads >= qp.attributes.max_reads) {
    if (qp.attributes.max_reads != 0) return Begin::Blocked;
    if (r.cursor != qp.sends.head) return Begin::Blocked;
    fail_send(qp, Status::LocalOperation, now);
    return Begin::Failed;
  }
  // Responses have a window: the peer sends them as fast as it can, and what overflows a buffer on the way has to be
  // asked for again with all that follows. Two READs may be under way whatever their lengths: the second one tells the
  // peer that the first one is missing.
  if (e.opcode == SendOpcode::Read && r.open_reads >= 2 && r.responses >= window_of(qp))
    return Begin::Blocked;
  if (e.started) {
    if (!e.is_local()) return Begin::Go;
    ++r.cursor;
    return Begin::Done;
  }
  if (qp.state == QpState::SendDrained) return Begin::Blocked;
  if (e.is_local()) {
    if (e.opcode == SendOpcode::LocalInvalidate && r.cursor != qp.sends.head) return Begin::Blocked;
    Status status = Status::Success;
    if (e.opcode == SendOpcode::BindWindow) {
      status = services_.memory.bind(qp.pd, qp.number, e.bind, e.remote_key);
    } else if (!services_.memory.invalidate(qp.pd, qp.number, e.invalidate)) {
      status = Status::WindowBind;
    }
    if (status != Status::Success && r.cursor != qp.sends.head)
      return Begin::Blocked;  // again when it is the first
    if (status != Status::Success) {
      fail_send(qp, status, now);
      return Begin::Failed;
    }
  } else {
    e.packets = e.is_atomic() ? 1 : packets_of(e.length, qp.attributes.mtu_bytes());
    if (psn_diff(r.next, r.oldest) + static_cast<int64_t>(e.packets) >= psn_half) {
      if (r.next != r.oldest || r.cursor != qp.sends.head) return Begin::Blocked;
      fail_send(qp, Status::LocalLength, now);
      return Begin::Failed;
    }
  }
  WEFT_ASSERT(!e.started);
  WEFT_ASSERT(r.cursor == qp.sends.head || qp.sends.at(r.cursor - 1).started);
  e.first_psn = r.next;
  e.started = true;
  WEFT_ASSERT(e.is_local() == (e.packets == 0));
  if (!e.is_local()) return Begin::Go;
  ++r.cursor;
  complete_sends(qp, now);
  return Begin::Done;
}

Sent Requester::transmit(QueuePair& qp, uint64_t now, int budget) noexcept {
  RequesterState& r = qp.requester;
  while (r.cursor != qp.sends.tail && r.wait_until == UINT64_MAX) {
    if (budget == 0) return Sent::More;
    SendEntry& e = qp.sends.at(r.cursor);
    WEFT_ASSERT(qp.state == QpState::ReadyToSend || qp.state == QpState::SendDrained);
    if (r.packet == 0) {
      const Begin can = begin_request(qp, e, now);
      if (can == Begin::Done) continue;
      if (can == Begin::Blocked && asks_again(qp)) continue;
      if (can != Begin::Go) return Sent::Idle;
    }
    const Sent sent = e.is_answered() ? transmit_answered(qp, e, now) : transmit_packet(qp, e, now);
    if (sent != Sent::More) return sent;
    --budget;
    r.sent_at = now;
    if (r.deadline == UINT64_MAX && qp.is_reliable() && r.next != r.oldest) await_answer(qp, now);
  }
  return Sent::Idle;
}

// A READ, an atomic, an ATOMIC WRITE or a FLUSH: one packet; a READ that was answered in part asks for the rest.
Sent Requester::transmit_answered(QueuePair& qp, SendEntry& e, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  const uint32_t done = static_cast<uint32_t>(std::max(0, psn_diff(r.oldest, e.first_psn)));
  WEFT_ASSERT(e.started && r.packet == 0 && done < e.packets);
  Packet p;
  describe_answered(qp, e, done, p);
  const bool again = psn_diff(p.bth.psn, r.next) < 0;
  WEFT_ASSERT(again || p.bth.psn == r.next);
  Parts parts;
  size_t count = 1;
  size_t length = 0;
  if (!gather_answered(qp, r.cursor, parts.data(), count, length)) {
    if (r.cursor == qp.sends.head) {
      fail_send(qp, Status::LocalProtection, now);
      return Sent::Idle;
    }
    return asks_again(qp) ? Sent::More : Sent::Idle;  // when all before it is complete
  }
  if (!services_.send_packet(qp, qp.attributes.path, p, parts.data(), count, length)) return Sent::NoRoom;
  if (again) {
    ++services_.counters.sent_again;
    ++qp.sent_again;
  } else {
    r.next = psn_add(e.first_psn, e.packets);
    r.time(e.first_psn, now);
    if (e.opcode == SendOpcode::Read) r.apart += e.packets;
  }
  if (e.opcode == SendOpcode::Read) r.responses += e.packets - done;
  ++r.open_reads;
  ++r.cursor;
  r.unasked = 0;
  return Sent::More;
}

// The next packet of a SEND or WRITE.
Sent Requester::transmit_packet(QueuePair& qp, SendEntry& e, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  const size_t mtu = qp.attributes.mtu_bytes();
  const uint32_t psn = psn_add(e.first_psn, r.packet);
  WEFT_ASSERT(e.started && r.packet < e.packets);
  // PSNs go for the first time in their order.
  WEFT_ASSERT(psn_diff(psn, r.next) <= 0);
  const auto in_flight = psn_diff(psn, r.oldest) - static_cast<int32_t>(r.apart);
  if (qp.is_reliable() && in_flight >= static_cast<int32_t>(window_of(qp))) return Sent::Idle;
  if (qp.has_window && awaits_window(qp, psn, now)) return Sent::Idle;
  uint32_t psns = 1;
  // What is sent again goes in packets, and so does all while the algorithm hears of each acknowledgement.
  if (psn == r.next && r.allowed == UINT32_MAX)
    psns = services_.aggregate_of(
        qp, std::min(e.packets - r.packet, window_of(qp) - static_cast<uint32_t>(in_flight)));
  const uint32_t newest = psn_add(psn, psns - 1);
  const bool first = r.packet == 0;
  const bool last = r.packet + psns == e.packets;
  const uint64_t offset = uint64_t{r.packet} * mtu;
  WEFT_ASSERT(offset <= e.length && r.packet + psns <= e.packets);
  const size_t length = std::min<uint64_t>(psns * mtu, e.length - offset);
  Parts parts;
  size_t count = 1;
  if (!gather(qp, r.cursor, offset, length, parts.data(), count)) {
    if (r.cursor == qp.sends.head) {
      fail_send(qp, Status::LocalProtection, now);
      return Sent::Idle;
    }
    return asks_again(qp) ? Sent::More : Sent::Idle;  // when all before it is complete
  }
  Packet p;
  p.psns = psns;
  describe(qp, e, psn, first, last, p);
  p.bth.ack_request =
      qp.is_reliable() ? asks(qp, e, last, newest, psns) : qp.has_window && asks_window(qp, psn);
  if (!services_.send_packet(qp, qp.attributes.path, p, parts.data(), count, length)) return Sent::NoRoom;
  if (psn_diff(psn, r.next) < 0) {
    ++services_.counters.sent_again;
    ++qp.sent_again;
  } else {
    r.next = psn_add(newest, 1);
    if (p.bth.ack_request) r.time(newest, now);
  }
  r.unasked = p.bth.ack_request ? 0 : r.unasked + psns;
  r.packet += psns;
  if (!last) return Sent::More;
  r.packet = 0;
  ++r.cursor;
  if (!qp.is_reliable()) {
    r.oldest = r.next;  // nobody will acknowledge it (9.8)
    complete_sends(qp, now);
  }
  return Sent::More;
}

// Sends a packet again, away from the cursor: packet `number` of a SEND or WRITE, the request of an atomic, or that of a READ for
// the responses from `number` on. More: it was sent, or the queue pair goes back.
Sent Requester::repeat_packet(QueuePair& qp, uint32_t index, uint32_t number, uint64_t now) noexcept {
  const SendEntry& e = qp.sends.at(index);
  WEFT_ASSERT(e.started && number < e.packets);
  WEFT_ASSERT(psn_diff(psn_add(e.first_psn, number), qp.requester.next) < 0);
  Packet p;
  Parts parts;
  size_t count = 1;
  size_t length = 0;
  const auto cannot_gather = [&] {
    if (index == qp.sends.head) {
      fail_send(qp, Status::LocalProtection, now);
      return Sent::Idle;
    }
    go_back(qp);  // it fails when all before it is complete
    return Sent::More;
  };
  if (e.is_answered()) {
    describe_answered(qp, e, number, p);
    if (!gather_answered(qp, index, parts.data(), count, length)) return cannot_gather();
  } else {
    const size_t mtu = qp.attributes.mtu_bytes();
    const uint64_t offset = uint64_t{number} * mtu;
    length = std::min<uint64_t>(mtu, e.length - offset);
    if (!gather(qp, index, offset, length, parts.data(), count)) return cannot_gather();
    describe(qp, e, psn_add(e.first_psn, number), number == 0, number + 1 == e.packets, p);
    p.bth.ack_request = true;
  }
  return services_.send_packet(qp, qp.attributes.path, p, parts.data(), count, length) ? Sent::More
                                                                                       : Sent::NoRoom;
}

// --- completing ---

void Requester::complete_send(QueuePair& qp, Status status, uint64_t now) noexcept {
  WEFT_ASSERT(!qp.sends.empty());
  const SendEntry& e = qp.sends.at(qp.sends.head);
  Completion c;
  c.id = e.id;
  c.status = status;
  c.opcode = completion_of(e.opcode);
  c.bytes = e.length;
  c.qpn = qp.number;
  c.time_ns = now;
  const bool is_error = status != Status::Success;
  if (is_error) [[unlikely]]
    c.cause = qp.cause;
  const bool is_reported = (e.flags & signaled) != 0 || is_error;
  ++qp.sends.head;
  if (is_reported) services_.complete(qp.send_cq, qp, c, false);
}

void Requester::complete_sends(QueuePair& qp, uint64_t now) noexcept {
  RequesterState& r = qp.requester;
  while (qp.sends.head != qp.sends.tail) {
    const SendEntry& e = qp.sends.at(qp.sends.head);
    if (!e.started || psn_diff(r.oldest, psn_add(e.first_psn, e.packets)) < 0) break;
    WEFT_ASSERT(!e.is_answered() || static_cast<int32_t>(qp.sends.head - r.cursor) >= 0 || r.open_reads != 0);
    if (e.is_answered() && static_cast<int32_t>(qp.sends.head - r.cursor) < 0) --r.open_reads;
    complete_send(qp, Status::Success, now);
  }
  report_drained(qp);
}

void Requester::report_drained(QueuePair& qp) noexcept {
  if (qp.state != QpState::SendDrained || !qp.drain_pending) return;
  if (!qp.sends.empty() && qp.sends.at(qp.sends.head).started) return;
  qp.drain_pending = false;
  services_.events.on_async({AsyncKind::SendQueueDrained, &qp, nullptr, nullptr});
}

// The oldest request has failed. A reliable QP has lost its place in the sequence; others can go on receiving
// (10.3.1, SQE).
void Requester::fail_send(QueuePair& qp, Status status, uint64_t now) noexcept {
  WEFT_ASSERT(!qp.sends.empty() && status != Status::Success);
  WEFT_ASSERT(qp.state == QpState::ReadyToSend || qp.state == QpState::SendDrained);
  services_.faults.report_send(qp, status);
  complete_send(qp, status, now);
  if (qp.is_reliable()) {
    services_.to_error(qp, now);
  } else {
    qp.state = QpState::SendError;
    flush_sends(qp, now);
  }
}

void Requester::flush_sends(QueuePair& qp, uint64_t now) noexcept {
  while (!qp.sends.empty()) complete_send(qp, Status::Flushed, now);
  WEFT_ASSERT(qp.state == QpState::Error || qp.state == QpState::SendError);
  RequesterState& r = qp.requester;
  end_repeats(qp);
  r.cursor = qp.sends.head;
  r.packet = r.open_reads = r.responses = r.apart = r.unasked = 0;
  r.oldest = r.next;
  r.deadline = r.wait_until = r.probe_at = UINT64_MAX;
}

// --- time ---

[[gnu::noinline]] void Requester::on_timer(QueuePair& qp, uint64_t now) noexcept {
  WEFT_ASSERT(qp.due <= now && qp.timer_index != SIZE_MAX);
  WEFT_ASSERT(qp.state != QpState::Error && qp.state != QpState::Reset);
  RequesterState& r = qp.requester;
  if (r.wait_until <= now) {
    r.wait_until = UINT64_MAX;
    services_.scheduler.make_ready(qp);
  }
  if (qp.pace_until <= now) {
    qp.pace_until = UINT64_MAX;
    services_.scheduler.make_ready(qp);
  }
  if (r.deadline <= now) {
    ++services_.counters.timeouts;
    ++qp.timeouts;
    if (qp.type == QpType::Uc) {
      end_window(qp);
    } else {
      if (r.oldest != r.next && r.wait_until == UINT64_MAX) on_lost(qp, congestion::LossSign::Timeout, now);
      retry(qp, now);
    }
  } else if ((qp.attention & attention_repeat) != 0 && qp.repeater->probe_at <= now) {
    WEFT_ASSERT(qp.is_reliable());
    probe(qp, now);
  }
  if (r.probe_at <= now) probe_tail(qp, now);
  if (qp.state != QpState::Error) services_.scheduler.set_timer(qp);
  // Otherwise flush() would come here again without end.
  WEFT_ASSERT(qp.due > now || ((qp.attention & attention_repeat) != 0 && r.deadline == UINT64_MAX));
  qp.assert_invariants();
}

}  // namespace weft::proto::roce
