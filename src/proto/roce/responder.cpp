// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A responder: requests come in, are checked, and change memory. IBTA 9.7.4; UC: 9.8.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "proto/roce/psn.hpp"
#include "proto/roce/responder.hpp"

namespace weft::proto::roce {

using wire::roce::NakCode;
using wire::roce::Operation;
using wire::roce::syndrome;
using Message = ResponderState::Message;

namespace {

bool is_write(Operation op) noexcept {
  return op >= Operation::WriteFirst && op <= Operation::WriteOnlyImmediate;
}

// Answered by a READ response without a payload.
bool is_bare(Operation op) noexcept { return op == Operation::AtomicWrite || op == Operation::Flush; }

bool is_plain(Operation op) noexcept {
  return op <= Operation::WriteOnlyImmediate || op == Operation::SendLastInvalidate ||
         op == Operation::SendOnlyInvalidate;
}

}  // namespace

// --- states ---

void Responder::begin(QueuePair& qp) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(r.pending == 0 && r.message == Message::None);
  r.expected = qp.attributes.rq_psn;
  r.newest_plain = r.acked_plain = psn_add(r.expected, psn_mask);
}

void Responder::reset(QueuePair& qp) noexcept {
  qp.receives.clear();
  ResponderState fresh;
  fresh.elements = std::move(qp.responder.elements);
  fresh.resources = std::move(qp.responder.resources);
  fresh.resources.clear();
  drop_buffered(qp);
  qp.reorder.reset();
  qp.responder = std::move(fresh);
}

// Of a ring of READs and atomics, the newest ones stay: the peer may still ask for them. False: one that would go is
// being answered.
bool Responder::may_hold(const QueuePair& qp, uint32_t count) noexcept {
  const ResponderState& r = qp.responder;
  const size_t have = r.resources.size();
  for (size_t i = 1; i + count <= have; ++i)
    if (r.resources[(r.newest_resource + i) % have].pending) return false;
  return true;
}

// Room for reads_max was made with the QP.
void Responder::resize(QueuePair& qp, uint32_t count) {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(count <= r.resources.capacity());
  std::vector<Resource>& all = r.resources;
  if (!all.empty()) std::rotate(all.begin(), all.begin() + (r.newest_resource + 1) % all.size(), all.end());
  if (all.size() > count) all.erase(all.begin(), all.end() - count);
  WEFT_ASSERT(static_cast<size_t>(std::ranges::count_if(all, &Resource::pending)) == r.pending);
  r.answering = UINT32_MAX;
  r.newest_resource = all.empty() ? 0 : static_cast<uint32_t>(all.size() - 1);
  all.resize(count);
}

void Responder::end_responses(QueuePair& qp) noexcept {
  ResponderState& r = qp.responder;
  if (r.pending != 0 || r.syndrome != wire::roce::syndrome_ack) r.ack_due = false;
  if (!r.ack_due) r.duplicate = Duplicate::None;
  for (Resource& one : r.resources) one.pending = false;
  r.pending = 0;
}

void Responder::owe_last_acknowledgement(QueuePair& qp) noexcept {
  ResponderState& r = qp.responder;
  if (!r.ack_due || r.pending != 0 || r.syndrome != wire::roce::syndrome_ack) return;
  r.is_final = true;
  services_.scheduler.make_ready(qp);
}

// --- which request it is ---

void Responder::on_request(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(qp.is_reliable() && qp.type != QpType::XrcSend);
  const int32_t ahead = psn_diff(packet.bth.psn, r.expected);
  if (ahead != 0 && is_forged(qp, packet.bth)) return;
  if (ahead > 0) {
    if (r.msn == 0 && r.message == Message::None) [[unlikely]]
      services_.faults.report_gap(qp, packet);
    on_gap(qp, packet);
  } else if (ahead < 0) {
    if (r.msn == 0 && r.message == Message::None) [[unlikely]]
      services_.faults.report_gap(qp, packet);
    ++services_.counters.duplicates;
    ++qp.duplicates;
    on_duplicate(qp, packet);
  } else if (r.is_silent) [[unlikely]] {
    execute_late(qp, packet, now);
  } else {
    execute(qp, packet, now);
  }
  if (r.ack_due || r.pending > 0) services_.scheduler.make_ready(qp);
}

// A request with another PSN than the expected one, of a peer that sends tags, has the right one, or the peer did not send
// it. Nothing is done for it then.
bool Responder::is_forged(const QueuePair& qp, const wire::roce::Bth& bth) noexcept {
  if (!qp.responder.knows_tags || has_right_tag(qp, bth)) return false;
  ++services_.counters.ghosts;
  return true;
}

// One NAK for each gap; what is behind it comes again, where it is not kept. After an RNR NAK all of it does.
// A packet without the right tag changes no more than `is_silent`: anyone who can send by the peer's address may have
// sent it, with any PSN.
void Responder::on_gap(QueuePair& qp, const Packet& packet) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(psn_diff(packet.bth.psn, r.expected) > 0);
  ++services_.counters.gaps;
  ++qp.gaps;
  if (qp.reorder != nullptr && has_right_tag(qp, packet.bth) && (!r.is_silent || qp.reorder->is_open)) {
    // An aggregate comes again in packets.
    if (packet.psns == 1 && psn_diff(packet.bth.psn, r.expected) < static_cast<int32_t>(reorder_span))
      return keep(qp, packet);
    if (qp.reorder->is_open) {
      qp.reorder->has_dropped = true;
      if (packet.bth.ack_request) owe_nak(qp, syndrome(NakCode::Sequence));
      return;
    }
  }
  if (r.is_silent) return;
  r.is_silent = true;
  owe_nak(qp, syndrome(NakCode::Sequence));
}

// A SEND or WRITE is answered by an acknowledgement, or by the response to a later READ or atomic.
static bool was_answered(const ResponderState& r, uint32_t psn) noexcept {
  // A PSN more than 2^23 behind compares as ahead.
  const auto is_known = [&](uint32_t answered) { return psn_diff(r.expected, answered) > 0; };
  if (psn_diff(r.acked_plain, psn) >= 0 && is_known(r.acked_plain)) return true;
  if (r.resources.empty()) return false;
  const Resource& newest = r.resources[r.newest_resource];
  return newest.used && newest.answered && psn_diff(newest.first_psn, psn) > 0 && is_known(newest.first_psn);
}

// What was executed is not executed again, but for READs, which change nothing.
void Responder::on_duplicate(QueuePair& qp, const Packet& packet) noexcept {
  ResponderState& r = qp.responder;
  const Operation op = packet.operation();
  WEFT_ASSERT(psn_diff(packet.bth.psn, r.expected) < 0);
  if (is_plain(op)) {
    if (qp.reorder != nullptr && qp.reorder->is_open) return owe_nak(qp, syndrome(NakCode::Sequence));
    if (r.duplicate == Duplicate::None)
      r.duplicate = was_answered(r, packet.bth.psn) ? Duplicate::Answered : Duplicate::Waiting;
    r.acked_plain = psn_add(r.newest_plain, psn_mask);  // the peer has not heard
    if (r.ack_due && r.syndrome != wire::roce::syndrome_ack) return;
    r.ack_due = true;
    r.syndrome = wire::roce::syndrome_ack;
    r.ack_psn = r.newest_plain;
    return;
  }
  // From the newest on: PSNs come again, and one that is no longer asked for may stand under the same.
  const size_t resources = r.resources.size();
  for (size_t i = 0; i < resources; ++i) {
    Resource& one = r.resources[(r.newest_resource + resources - i) % resources];
    const int32_t at = psn_diff(packet.bth.psn, one.first_psn);
    if (!one.used || at < 0 || at >= static_cast<int32_t>(one.packets)) continue;
    if (one.is_atomic != (op == Operation::CompareSwap || op == Operation::FetchAdd)) return;
    if (one.bare != (is_bare(op) ? op : Operation::ReadRequest)) return;
    uint32_t count = 1;
    if (is_bare(op)) {
      if (packet.reth.key != one.key || packet.reth.address != one.address) return;
    } else if (!one.is_atomic) {
      const size_t mtu = qp.attributes.mtu_bytes();
      const uint64_t offset = static_cast<uint64_t>(at) * mtu;
      const wire::roce::Reth& reth = packet.reth;
      if ((reth.length == 0) != (one.length == 0)) return;
      if (reth.key != one.key || reth.address != one.address + offset || reth.length > one.length - offset)
        return;
      count = reth.length == 0 ? 1 : static_cast<uint32_t>((uint64_t{reth.length} + mtu - 1) / mtu);
      // Shorter than what remains only by whole packets: a response has the bytes of its PSN.
      if (at + count != one.packets && reth.length % mtu != 0) return;
      if (at + count == one.packets && reth.length != one.length - offset) return;
    } else if (packet.atomic.key != one.key || packet.atomic.address != one.address) {
      return;
    }
    one.begin = one.next = static_cast<uint32_t>(at);
    one.end = static_cast<uint32_t>(at) + count;
    WEFT_ASSERT(one.end <= one.packets);
    if (!one.pending) ++r.pending;
    if (!one.pending || one.duplicate == Duplicate::None)
      one.duplicate = one.answered ? Duplicate::Answered : Duplicate::Waiting;
    one.pending = true;
    r.answering = UINT32_MAX;  // it may come before those that are being answered
    return;
  }
}

void Responder::on_unreliable(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(qp.type == QpType::Uc);
  if (packet.bth.psn != r.expected && is_forged(qp, packet.bth)) return;
  if (packet.bth.ack_request && qp.has_window) owe_window(qp, packet.bth.psn);
  if (packet.bth.psn != r.expected) {
    ++services_.counters.gaps;
    ++qp.gaps;
    r.message = Message::None;
    r.expected = packet.bth.psn;
  }
  if (packet.traits().begins) r.message = Message::None;  // one before it has lost its end
  if (!packet.traits().begins && r.message == Message::None) {
    r.expected = psn_add(packet.bth.psn, 1);
    return;
  }
  execute(qp, packet, now);
  if (r.expected == packet.bth.psn) r.expected = psn_add(r.expected, 1);  // also when it was refused
}

void Responder::execute(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(packet.bth.psn == r.expected);
  const wire::roce::OpcodeTraits& traits = packet.traits();
  const Operation op = packet.operation();
  learn_tag(qp, packet.bth);
  // The order of opcodes, 9.7.4.
  const Message wanted = traits.begins ? Message::None : is_write(op) ? Message::Write : Message::Send;
  if (r.message != wanted) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_REQUEST_ORDER);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  if (qp.is_xrc() && shared_queue(qp, packet) == nullptr) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_SRQ_UNKNOWN, packet.xrc_srqn);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  if (op == Operation::ReadRequest) return on_read(qp, packet, now);
  if (op == Operation::CompareSwap || op == Operation::FetchAdd) return on_atomic(qp, packet, now);
  if (op == Operation::AtomicWrite) return on_atomic_write(qp, packet, now);
  if (op == Operation::Flush) return on_flush(qp, packet, now);
  if (!payload_fits(qp, packet)) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_REQUEST_LENGTH,
                                    packet.psns * qp.attributes.mtu_bytes(), packet.payload.size());
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  is_write(op) ? on_write(qp, packet, now) : on_send(qp, packet, now);
}

// All packets but the last are full, and only that of an ONLY may be empty. An aggregate is as long as its packets together:
// who counts PSNs by another MTU is refused.
bool Responder::payload_fits(const QueuePair& qp, const Packet& packet) noexcept {
  const size_t mtu = qp.attributes.mtu_bytes();
  const wire::roce::OpcodeTraits& traits = packet.traits();
  const size_t bytes = packet.payload.size();
  if (!traits.ends) return bytes == packet.psns * mtu && packet.bth.pad == 0;
  if (packet.psns > 1) return bytes > (packet.psns - 1) * mtu && bytes <= packet.psns * mtu;
  return bytes <= mtu && (traits.begins || bytes > 0);
}

// --- SEND ---

void Responder::on_send(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  const wire::roce::OpcodeTraits& traits = packet.traits();
  if (traits.begins) {
    if (!r.has_receive && !pop_receive(qp, shared_queue(qp, packet))) {
      services_.faults.report_refusal(qp, packet, WEFT_FAULT_NO_RECEIVE);
      return refuse_rnr(qp);
    }
    r.received = 0;
    r.message = Message::Send;
  }
  WEFT_ASSERT(r.has_receive && r.message == Message::Send && r.received <= r.receive.room);
  if (packet.payload.size() > r.receive.room - r.received) {
    if (!qp.is_reliable()) {
      // Class D of the responder's table (9.9): the message is dropped, and the posted receive waits for the next one.
      ++services_.counters.too_long;
      ++qp.too_long;
      r.message = Message::None;
      return services_.faults.report_refusal(qp, packet, WEFT_FAULT_RECEIVE_SHORT,
                                             r.received + packet.payload.size(), r.receive.room);
    }
    services_.faults.report_receive(qp, Status::LocalLength, packet);
    fail_receive(qp, Status::LocalLength, now);
    return refuse(qp, NakCode::InvalidRequest, now, Report::ByCompletion);
  }
  if (!services_.scatter(r.receive.elements, r.receive.pd, r.received, packet.payload)) {
    services_.faults.report_receive(qp, Status::LocalProtection, packet);
    fail_receive(qp, Status::LocalProtection, now);
    return refuse(qp, NakCode::RemoteOperation, now, Report::ByCompletion);
  }
  r.received += static_cast<uint32_t>(packet.payload.size());
  const bool invalidates = (traits.headers & wire::roce::has_ieth) != 0;
  if (invalidates && !services_.memory.invalidate(remote_pd(qp, packet), qp.number, packet.invalidate)) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_REMOTE_INVALIDATE, packet.invalidate);
    return refuse(qp, NakCode::RemoteAccess, now);
  }
  if (traits.ends) {
    Completion c;
    c.opcode = CompletionOpcode::Receive;
    c.bytes = r.received;
    if ((traits.headers & wire::roce::has_immediate) != 0) {
      c.flags = with_immediate;
      c.immediate = packet.immediate;
    } else if (invalidates) {
      c.flags = with_invalidate;
      c.immediate = packet.invalidate;
    }
    r.message = Message::None;
    r.msn = psn_add(r.msn, 1);
    finish_receive(qp, c, packet.bth.solicited, now);
  }
  accepted(qp, packet.bth, packet.psns);
}

// --- WRITE ---

void Responder::on_write(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ++services_.counters.one_sided;
  ResponderState& r = qp.responder;
  WEFT_ASSERT(packet.traits().begins || (r.message == Message::Write && r.received < r.length));
  const wire::roce::OpcodeTraits& traits = packet.traits();
  const size_t bytes = packet.payload.size();
  const bool has_data = (traits.headers & wire::roce::has_immediate) != 0;
  const uint32_t pd = remote_pd(qp, packet);
  uint64_t address = r.address + r.received;
  uint32_t key = r.key;
  uint64_t left = r.length - r.received;
  std::byte* at = nullptr;
  // The receive request is taken first: without one there is an RNR NAK whatever else is wrong, and what is wrong then is
  // told by its completion (class C of table 63, C9-222.1.1).
  if (has_data && !r.has_receive && !pop_receive(qp, shared_queue(qp, packet))) return refuse_rnr(qp);
  if (traits.begins) {
    const wire::roce::Reth& reth = packet.reth;
    address = reth.address;
    key = reth.key;
    left = reth.length;
    if (left > message_bytes_max) {
      services_.faults.report_refusal(qp, packet, WEFT_FAULT_REQUEST_LENGTH, message_bytes_max, left);
      return refuse(qp, NakCode::InvalidRequest, now);
    }
    // All of it is checked before the first byte is written; no bytes need no key.
    if (left != 0 && ((qp.attributes.access & remote_write) == 0 ||
                      !services_.memory.remote(key, pd, qp.number, address, left, remote_write, at))) {
      services_.faults.report_access(qp, packet, key, pd, address, left, remote_write);
      return refuse(qp, NakCode::RemoteAccess, now);
    }
  }
  if (traits.ends ? bytes != left : bytes >= left) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_REQUEST_LENGTH, left, bytes);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  if (bytes != 0 && !services_.memory.remote(key, pd, qp.number, address, bytes, remote_write, at)) {
    services_.faults.report_access(qp, packet, key, pd, address, bytes, remote_write);
    return refuse(qp, NakCode::RemoteAccess, now);
  }
  if (bytes != 0) std::memcpy(at, packet.payload.data(), bytes);
  if (traits.begins) {
    r.address = address;
    r.key = key;
    r.length = static_cast<uint32_t>(left);
    r.received = 0;
    r.message = Message::Write;
  }
  r.received += static_cast<uint32_t>(bytes);
  if (traits.ends) {
    r.message = Message::None;
    r.msn = psn_add(r.msn, 1);
    if (has_data) {
      Completion c;
      c.opcode = CompletionOpcode::ReceiveWriteImmediate;
      c.bytes = r.received;
      c.flags = with_immediate;
      c.immediate = packet.immediate;
      finish_receive(qp, c, packet.bth.solicited, now);
    }
  }
  accepted(qp, packet.bth, packet.psns);
}

// --- READ and atomics ---

// The oldest is given up. Null: the peer has not been answered that one yet, so it has more under way than we said.
Resource* Responder::new_resource(QueuePair& qp) noexcept {
  ResponderState& r = qp.responder;
  if (r.resources.empty()) return nullptr;
  uint32_t next = r.newest_resource + 1;
  if (next >= r.resources.size()) next = 0;
  Resource& one = r.resources[next];
  if (one.used && !one.answered) return nullptr;
  r.newest_resource = next;
  WEFT_ASSERT(one.used || !one.pending);
  if (r.answering == next) r.answering = UINT32_MAX;
  // The new resource inherits the mark of an unanswered duplicate.
  Duplicate duplicate = std::exchange(r.duplicate, Duplicate::None);
  if (duplicate == Duplicate::None && one.pending) duplicate = one.duplicate;
  if (!one.pending) ++r.pending;
  one = Resource{};
  one.duplicate = behind(duplicate);
  one.used = one.pending = true;
  WEFT_ASSERT(r.pending <= r.resources.size());
  return &one;
}

void Responder::on_read(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ++services_.counters.one_sided;
  ResponderState& r = qp.responder;
  const wire::roce::Reth& reth = packet.reth;
  if (reth.length > message_bytes_max) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_REQUEST_LENGTH, message_bytes_max, reth.length);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  const uint32_t pd = remote_pd(qp, packet);
  std::byte* at = nullptr;
  if (reth.length != 0 &&
      ((qp.attributes.access & remote_read) == 0 ||
       !services_.memory.remote(reth.key, pd, qp.number, reth.address, reth.length, remote_read, at))) {
    services_.faults.report_access(qp, packet, reth.key, pd, reth.address, reth.length, remote_read);
    return refuse(qp, NakCode::RemoteAccess, now);
  }
  Resource* one = new_resource(qp);
  if (one == nullptr) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_TOO_MANY_READS, 0, qp.attributes.max_dest_reads);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  const size_t mtu = qp.attributes.mtu_bytes();
  one->first_psn = packet.bth.psn;
  one->packets = reth.length == 0 ? 1 : static_cast<uint32_t>((uint64_t{reth.length} + mtu - 1) / mtu);
  one->end = one->packets;
  one->address = reth.address;
  one->key = reth.key;
  one->pd = pd;
  one->length = reth.length;
  r.msn = psn_add(r.msn, 1);
  one->msn = r.msn;
  r.expected = psn_add(r.expected, one->packets);
  r.ack_due = false;  // the responses say as much
}

void Responder::on_atomic(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ++services_.counters.one_sided;
  ResponderState& r = qp.responder;
  const wire::roce::AtomicEth& eth = packet.atomic;
  std::byte* at = nullptr;
  if (eth.address % sizeof(uint64_t) != 0) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_ATOMIC_ALIGNMENT, eth.address);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  const uint32_t pd = remote_pd(qp, packet);
  if ((qp.attributes.access & remote_atomic) == 0 ||
      !services_.memory.remote(eth.key, pd, qp.number, eth.address, sizeof(uint64_t), remote_atomic, at)) {
    services_.faults.report_access(qp, packet, eth.key, pd, eth.address, sizeof(uint64_t), remote_atomic);
    return refuse(qp, NakCode::RemoteAccess, now);
  }
  // An address that is aligned for the peer may not be so here, in a region with a base of its own.
  if (reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_ATOMIC_ALIGNMENT, eth.address);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  Resource* one = new_resource(qp);
  if (one == nullptr) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_TOO_MANY_READS, 0, qp.attributes.max_dest_reads);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(at));
  if (packet.operation() == Operation::FetchAdd) {
    one->original = word.fetch_add(eth.swap_add);
  } else {
    one->original = eth.compare;
    word.compare_exchange_strong(one->original, eth.swap_add);
  }
  one->is_atomic = true;
  one->first_psn = packet.bth.psn;
  one->packets = one->end = 1;
  one->address = eth.address;
  one->key = eth.key;
  one->pd = pd;
  r.msn = psn_add(r.msn, 1);
  one->msn = r.msn;
  r.expected = psn_add(r.expected, 1);
  r.ack_due = false;
}

void Responder::on_atomic_write(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ++services_.counters.one_sided;
  const wire::roce::Reth& reth = packet.reth;
  uint64_t value = 0;
  if (reth.length != sizeof value || packet.payload.size() != sizeof value) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_REQUEST_LENGTH, sizeof value,
                                    reth.length != sizeof value ? reth.length : packet.payload.size());
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  std::memcpy(&value, packet.payload.data(), sizeof value);
  const uint32_t pd = remote_pd(qp, packet);
  std::byte* at = nullptr;
  if (reth.address % sizeof value == 0 &&
      ((qp.attributes.access & remote_write) == 0 ||
       !services_.memory.remote(reth.key, pd, qp.number, reth.address, sizeof value, remote_write, at))) {
    services_.faults.report_access(qp, packet, reth.key, pd, reth.address, sizeof value, remote_write);
    return refuse(qp, NakCode::RemoteAccess, now);
  }
  if (at == nullptr || reinterpret_cast<uintptr_t>(at) % sizeof value != 0) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_ATOMIC_ALIGNMENT, reth.address);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  Resource* one = new_resource(qp);
  if (one == nullptr) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_TOO_MANY_READS, 0, qp.attributes.max_dest_reads);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at)).store(value, std::memory_order_release);
  answer_bare(qp, *one, packet);
}

// The writes before it are stores of this process to memory that all processors of the machine share, so a fence makes them
// visible to the others. A range of no bytes needs no key, as that of a READ.
void Responder::on_flush(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ++services_.counters.one_sided;
  const wire::roce::Reth& reth = packet.reth;
  const bool is_range = packet.feth.selectivity == wire::roce::selects_range;
  if (!packet.feth.is_valid() || (is_range && reth.length > message_bytes_max)) {
    const Cause cause = packet.feth.is_valid() ? WEFT_FAULT_REQUEST_LENGTH : WEFT_FAULT_FLUSH_KIND;
    services_.faults.report_refusal(qp, packet, cause, message_bytes_max, reth.length);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  const uint32_t rights =
      ((packet.feth.placement & wire::roce::placement_global) != 0 ? uint32_t{flush_global} : 0U) |
      ((packet.feth.placement & wire::roce::placement_persistent) != 0 ? uint32_t{flush_persistent} : 0U);
  const uint32_t pd = remote_pd(qp, packet);
  const bool has_bytes = !is_range || reth.length != 0;
  if ((qp.attributes.access & rights) != rights ||
      (has_bytes &&
       !services_.memory.may_flush(reth.key, pd, qp.number, reth.address, reth.length, !is_range, rights))) {
    services_.faults.report_access(qp, packet, reth.key, pd, reth.address, is_range ? reth.length : 0,
                                   rights);
    return refuse(qp, NakCode::RemoteAccess, now);
  }
  Resource* one = new_resource(qp);
  if (one == nullptr) {
    services_.faults.report_refusal(qp, packet, WEFT_FAULT_TOO_MANY_READS, 0, qp.attributes.max_dest_reads);
    return refuse(qp, NakCode::InvalidRequest, now);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  answer_bare(qp, *one, packet);
}

void Responder::answer_bare(QueuePair& qp, Resource& one, const Packet& packet) noexcept {
  ResponderState& r = qp.responder;
  one.bare = packet.operation();
  one.first_psn = packet.bth.psn;
  one.packets = one.end = 1;
  one.address = packet.reth.address;
  one.key = packet.reth.key;
  r.msn = psn_add(r.msn, 1);
  one.msn = r.msn;
  r.expected = psn_add(r.expected, 1);
  r.ack_due = false;
}

// --- receive requests ---

SharedReceiveQueue* Responder::shared_queue(const QueuePair& qp, const Packet& packet) const noexcept {
  if (!qp.is_xrc()) return qp.srq;
  SharedReceiveQueue* srq = srqs_.find(packet.xrc_srqn);
  return srq != nullptr && srq->xrcd == qp.xrcd && srq->xrcd != 0 ? srq : nullptr;
}

// The PD of which a request may name keys: that of the QP, for XRC that of the receive queue (annex A14).
uint32_t Responder::remote_pd(QueuePair& qp, const Packet& packet) const noexcept {
  if (!qp.is_xrc()) return qp.pd;
  const SharedReceiveQueue* srq = shared_queue(qp, packet);
  return srq != nullptr ? srq->pd : qp.pd;
}

bool Responder::pop_receive(QueuePair& qp, SharedReceiveQueue* srq) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(!r.has_receive);
  ReceiveQueue& queue = srq != nullptr ? srq->queue : qp.receives;
  if (!queue.take(r.receive, r.elements)) return false;
  r.receive.room = std::min<uint64_t>(r.receive.room, message_bytes_max);
  r.has_receive = true;
  WEFT_ASSERT(r.receive.count <= r.elements.size());
  r.srq = srq;
  if (srq != nullptr && srq->limit != 0 && queue.size() < srq->limit) {
    srq->limit = 0;
    services_.events.on_async({AsyncKind::SharedLimitReached, nullptr, nullptr, srq});
  }
  return true;
}

void Responder::finish_receive(QueuePair& qp, Completion c, bool is_solicited, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(r.has_receive);
  c.id = r.receive.id;
  c.qpn = qp.number;
  if (qp.type != QpType::Ud) c.source_qpn = qp.attributes.destination;
  c.time_ns = now;
  CompletionQueue* cq = qp.is_xrc() ? (r.srq != nullptr ? r.srq->cq : nullptr) : qp.receive_cq;
  r.has_receive = false;
  services_.complete(cq, qp, c, is_solicited);
}

void Responder::fail_receive(QueuePair& qp, Status status, uint64_t now) noexcept {
  Completion c;
  c.status = status;
  c.opcode = CompletionOpcode::Receive;
  c.cause = qp.cause;
  finish_receive(qp, c, false, now);
  if (!qp.is_reliable()) services_.to_error(qp, now);
}

void Responder::flush_receives(QueuePair& qp, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  r.message = Message::None;
  do {
    if (!r.has_receive) continue;
    Completion c;
    c.status = Status::Flushed;
    c.opcode = CompletionOpcode::Receive;
    c.cause = qp.cause;
    finish_receive(qp, c, false, now);
  } while (qp.srq == nullptr && !qp.is_xrc() && pop_receive(qp, nullptr));
  WEFT_ASSERT(!r.has_receive);
}

// --- answers ---

void Responder::accepted(QueuePair& qp, const wire::roce::Bth& bth, uint32_t psns) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(bth.psn == r.expected && psns != 0);
  r.newest_plain = psn_add(bth.psn, psns - 1);
  r.expected = psn_add(bth.psn, psns);
  r.duplicate = behind(r.duplicate);
  if (!bth.ack_request && !r.ack_due) return;
  r.ack_due = qp.is_reliable();
  r.syndrome = wire::roce::syndrome_ack;
  r.ack_psn = r.newest_plain;
}

void Responder::owe_nak(QueuePair& qp, uint8_t syndrome) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(qp.is_reliable() && syndrome != wire::roce::syndrome_ack);
  r.ack_due = true;
  r.syndrome = syndrome;
  r.ack_psn = r.expected;
}

// A fault of class C (9.9.3.1.3): a NAK, and ERR. The receive request that the message uses is completed with the error;
// where it uses none there is an asynchronous event.
void Responder::refuse(QueuePair& qp, NakCode code, uint64_t now, Report report) noexcept {
  ResponderState& r = qp.responder;
  if (!qp.is_reliable()) {
    r.message = Message::None;  // and the receive request waits for the next message
    return;
  }
  if (report == Report::ByEither && r.has_receive) {
    fail_receive(qp, code == NakCode::RemoteAccess ? Status::RemoteAccess : Status::RemoteInvalidRequest,
                 now);
    report = Report::ByCompletion;
  }
  WEFT_ASSERT(report != Report::ByCompletion || !r.has_receive);
  WEFT_ASSERT(qp.state != QpState::Error);
  owe_nak(qp, syndrome(code));
  r.is_final = true;
  services_.scheduler.make_ready(qp);
  services_.to_error(qp, now);
  if (report == Report::ByCompletion) return;
  const AsyncKind kind = code == NakCode::RemoteAccess ? AsyncKind::QpAccessError : AsyncKind::QpRequestError;
  services_.events.on_async({kind, &qp, nullptr, nullptr});
}

void Responder::refuse_rnr(QueuePair& qp) noexcept {
  ResponderState& r = qp.responder;
  if (!qp.is_reliable()) {
    r.message = Message::None;
    return;
  }
  WEFT_ASSERT(!r.has_receive);
  r.is_silent = true;
  owe_nak(qp, wire::roce::syndrome_rnr(qp.attributes.min_rnr_timer));
}

}  // namespace weft::proto::roce
