// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Selective repeat: packets behind a gap are kept and told of by a map, and those that are missing are repeated alone.
// Between peers that the owner of the adapter knows as Weft (Adapter::is_weft_peer); docs/roce.md has the rules.
#include "proto/roce/selective.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/assert.hpp"
#include "proto/roce/requester.hpp"
#include "proto/roce/responder.hpp"

namespace weft::proto::roce {

using wire::roce::NakCode;
using wire::roce::SackBitmap;
using wire::roce::syndrome;

// --- what is there ---

uint16_t ReorderPool::store(const wire::roce::Packet& packet) noexcept {
  if (free_.empty()) return none;
  const uint16_t slot = free_.back();
  free_.pop_back();
  WEFT_ASSERT(slot < packets_.size() && packet.payload.size() <= mtu_bytes_max);
  std::byte* const to = bytes_.get() + size_t{slot} * mtu_bytes_max;
  if (!packet.payload.empty()) std::memcpy(to, packet.payload.data(), packet.payload.size());
  packets_[slot] = packet;
  packets_[slot].payload = {to, packet.payload.size()};
  return slot;
}

void Repeater::hear(uint32_t psn, uint64_t now) noexcept {
  const Sent& one = sent[reorder_slot(psn)];
  WEFT_ASSERT(one.serial <= serials);
  WEFT_ASSERT(one.serial == 0 || now >= one.at);
  if (one.serial != 0) round_ns = std::max(now - one.at, round_ns - round_ns / 8);
  if (one.serial == 0) {
    if (!has_plain || psn_diff(psn, plain) > 0) plain = psn;
    has_plain = true;
  } else if (one.serial > repeated.serial) {
    repeated = one;
  }
}

// Something that was sent later has arrived.
bool Repeater::is_lost(uint32_t psn) const noexcept {
  const Sent& one = sent[reorder_slot(psn)];
  if (one.serial == 0)
    return (has_plain && psn_diff(plain, psn) > 0) ||
           (repeated.serial != 0 && psn_diff(repeated.next, psn) > 0);
  if (one.times >= times_max) return false;
  return repeated.serial > one.serial || (has_plain && psn_diff(plain, one.next) >= 0);
}

void Repeater::pass(uint32_t oldest, uint64_t now) noexcept {
  WEFT_ASSERT(is_open);
  const int32_t passed = std::min(psn_diff(oldest, base), static_cast<int32_t>(reorder_span));
  for (int32_t i = 0; i < passed; ++i) {
    const uint32_t psn = psn_add(base, static_cast<uint32_t>(i));
    if (sent[reorder_slot(psn)].serial != 0 && !buffered.has(psn)) hear(psn, now);
    forget(psn);
  }
  if (passed > 0) base = oldest;
  // Numbers that were left behind say nothing, and would mean something again after half of all PSNs.
  if (has_plain && psn_diff(plain, oldest) < 0) has_plain = false;
  if (repeated.serial != 0 && psn_diff(repeated.next, oldest) < 0) repeated.next = oldest;
}

// Without memory it is go-back-N.
void Responder::set_selective(QueuePair& qp, bool is_wanted) {
  if (!is_wanted) {
    drop_buffered(qp);
    qp.reorder.reset();
  } else if (qp.type != QpType::XrcSend && qp.reorder == nullptr && reorder_pool_.make()) {
    qp.reorder.reset(new (std::nothrow) ReorderBuffer);
  }
}

void Requester::set_selective(QueuePair& qp, bool is_wanted) noexcept {
  if (!is_wanted) {
    end_repeats(qp);
    qp.repeater.reset();
  } else if (qp.type != QpType::XrcReceive && qp.repeater == nullptr) {
    qp.repeater.reset(new (std::nothrow) Repeater);
  }
}

// --- the responder ---

// A request of the peer that is ahead of the expected one by less than reorder_span.
void Responder::keep(QueuePair& qp, const Packet& packet) noexcept {
  ResponderState& r = qp.responder;
  ReorderBuffer& k = *qp.reorder;
  const uint32_t psn = packet.bth.psn;
  WEFT_ASSERT(psn_diff(psn, r.expected) > 0 &&
              psn_diff(psn, r.expected) < static_cast<int32_t>(reorder_span));
  WEFT_ASSERT(k.is_open || k.has.empty());
  bool is_news = !k.is_open;
  if (!k.is_open) {
    k.is_open = r.is_silent = true;
    k.is_reported = k.has_dropped = false;
    k.newest = psn;
  } else if (const int32_t beyond = psn_diff(psn, k.newest); beyond > 0) {
    is_news = beyond > 1;  // one more gap
    k.newest = psn;
  }
  if (!k.has.has(psn)) {
    const uint16_t slot = reorder_pool_.store(packet);
    if (slot != ReorderPool::none) {
      k.has.add(psn);
      k.slots[reorder_slot(psn)] = slot;
      ++services_.counters.buffered;
      ++qp.buffered;
    }
  }
  if (is_news || packet.bth.ack_request) owe_nak(qp, syndrome(NakCode::Sequence));
}

void Responder::drop_buffered(QueuePair& qp) noexcept {
  if (qp.reorder == nullptr || !qp.reorder->is_open) return;
  ReorderBuffer& k = *qp.reorder;
  for (uint32_t at = 0; at < reorder_span; ++at)
    if (k.has.has(at)) reorder_pool_.release(k.slots[at]);
  k.has.clear();
  k.is_open = false;
  WEFT_ASSERT(k.has.empty());
}

// The expected request, late; and those behind it that were kept.
void Responder::execute_late(QueuePair& qp, const Packet& packet, uint64_t now) noexcept {
  ResponderState& r = qp.responder;
  WEFT_ASSERT(r.is_silent && packet.bth.psn == r.expected);
  // Packets behind a gap were dropped, and the NAK of that has not gone yet. Now the first one came late: the others
  // are still missing.
  const bool has_dropped = r.ack_due && r.syndrome == syndrome(NakCode::Sequence);
  uint32_t before = r.expected;
  r.is_silent = false;
  execute(qp, packet, now);
  if (qp.reorder == nullptr || !qp.reorder->is_open) {
    if (has_dropped && r.expected != before) {
      r.is_silent = true;
      owe_nak(qp, syndrome(NakCode::Sequence));
    }
    return;
  }
  ReorderBuffer& k = *qp.reorder;
  while (k.is_open && r.expected != before && !r.is_silent) {
    // PSNs of a READ's responses are nobody else's.
    const auto passed = static_cast<uint32_t>(psn_diff(r.expected, before));
    WEFT_ASSERT(psn_diff(r.expected, before) > 0);
    for (uint32_t i = 0; i < std::min(passed, reorder_span); ++i) release_buffered(qp, psn_add(before, i));
    before = r.expected;
    if (!k.has.has(before)) break;
    const Packet next =
        reorder_pool_.at(k.slots[reorder_slot(before)]);  // the buffer stays as it is until it is given back
    WEFT_ASSERT(next.bth.psn == before);
    execute(qp, next, now);
  }
  if (!k.is_open) return;  // the queue pair has failed
  if (r.is_silent || psn_diff(k.newest, r.expected) < 0) {
    // After an RNR NAK all of it comes again, and for the NAK of a gap what was too far ahead does.
    const bool is_missing = k.has_dropped && !r.is_silent;
    drop_buffered(qp);
    if (!is_missing) return;
  }
  k.is_reported = false;
  r.is_silent = true;
  owe_nak(qp, syndrome(NakCode::Sequence));
}

void Responder::release_buffered(QueuePair& qp, uint32_t psn) noexcept {
  ReorderBuffer& k = *qp.reorder;
  if (!k.has.has(psn)) return;
  k.has.remove(psn);
  reorder_pool_.release(k.slots[reorder_slot(psn)]);
}

bool Responder::send_map(QueuePair& qp) noexcept {
  const ResponderState& r = qp.responder;
  const ReorderBuffer& k = *qp.reorder;
  WEFT_ASSERT(k.is_open && !k.has.has(r.expected));
  SackBitmap map;
  map.newest = k.newest;
  for (uint32_t i = 0; i + 1 < reorder_span; ++i)
    if (k.has.has(psn_add(r.expected, 1 + i))) map.add(i);
  auto& bytes = maps_[next_map_++ % maps_.size()];
  const size_t count = map.write(bytes.data());
  Packet p;
  p.bth.opcode = wire::roce::opcode_sack;
  p.bth.destination = qp.attributes.destination;
  p.bth.psn = r.expected;
  p.aeth = {syndrome(NakCode::Sequence), r.msn};
  std::array<iovec, 3> parts;
  parts[1] = {bytes.data(), count};
  if (!services_.send_packet(qp, qp.attributes.path, p, parts.data(), 2, 0)) return false;
  ++services_.counters.naks_sent;
  ++qp.naks_sent;
  return true;
}

// --- the requester ---

// The cursor repeats what was sent before.
bool Requester::is_going_back(const QueuePair& qp) noexcept {
  const RequesterState& r = qp.requester;
  if (r.cursor == qp.sends.tail) return false;
  const SendEntry& e = qp.sends.at(r.cursor);
  return e.started && psn_diff(psn_add(e.first_psn, e.is_answered() ? 0 : r.packet), r.next) < 0;
}

// A map of somebody: nothing is believed that does not harm this queue pair alone. What is said to be kept is not
// repeated until a timeout, and complete is only what is acknowledged.
void Requester::on_sack(QueuePair& qp, bool is_peer, const Packet& packet, uint64_t now) noexcept {
  if ((qp.state != QpState::ReadyToSend && qp.state != QpState::SendDrained) || qp.repeater == nullptr) {
    ++services_.counters.unknown;
    return;
  }
  if ((packet.bth.pkey & 0x7fff) != 0x7fff || !is_peer) {
    ++services_.counters.foreign;
    return;
  }
  SackBitmap map;
  if (!SackBitmap::read(packet.payload, map)) {
    ++services_.counters.malformed;
    return;
  }
  ++services_.counters.received;
  ++qp.received;
  uint32_t index = 0;
  if (acknowledge_all(qp, packet.bth.psn, now)) return;
  if (!find_open(qp, packet.bth.psn, index)) {
    ++services_.counters.ghosts;
    return;
  }
  ++services_.counters.naks_received;
  ++qp.naks_received;
  Repeater& a = *qp.repeater;
  a.knows = true;
  if (!reach(qp, index, packet.bth.psn, now)) return;
  RequesterState& r = qp.requester;
  heard_of_loss(qp, now);
  if (r.wait_until != UINT64_MAX || is_going_back(qp)) return;
  a.open(r.oldest);
  a.pass(r.oldest, now);
  WEFT_ASSERT(psn_diff(a.base, r.oldest) == 0);
  const auto limit = std::min(static_cast<uint32_t>(psn_diff(r.next, r.oldest)), reorder_span);
  bool is_news = false;
  for (uint32_t i = 1; i < limit; ++i) {
    const uint32_t psn = psn_add(r.oldest, i);
    if (!map.has(i - 1) || a.buffered.has(psn)) continue;
    a.buffered.add(psn);
    a.lost.remove(psn);
    a.hear(psn, now);
    a.touch(psn);
    is_news = true;
  }
  const int32_t beyond = psn_diff(map.newest, r.oldest);
  if (beyond > 0 && beyond < static_cast<int32_t>(limit) && a.sent[reorder_slot(map.newest)].serial == 0)
    a.hear(map.newest, now);
  // A peer that answers is there: this is no failed attempt, and times_max is the bound.
  find_lost(qp, limit, [&](uint32_t psn) { return !a.buffered.has(psn) && a.is_lost(psn); });
  if (is_news) {
    on_lost(qp, congestion::LossSign::Reported, now);
    await_answer(qp, now);
    a.probes = 0;
    if (a.probe_at != UINT64_MAX) a.set_probe(now, ack_timeout_ns(qp.attributes.timeout));
  }
  qp.attention |= attention_repeat;
  services_.scheduler.make_ready(qp);
  services_.scheduler.set_timer(qp);
}

// Nothing was heard of the last repetitions. What says that this one has come says that the others have not.
void Requester::probe(QueuePair& qp, uint64_t now) noexcept {
  Repeater& a = *qp.repeater;
  RequesterState& r = qp.requester;
  WEFT_ASSERT(a.is_open && (qp.attention & attention_repeat) != 0);
  if (r.oldest == r.next || is_going_back(qp)) return end_repeats(qp);
  a.pass(r.oldest, now);
  ++a.probes;
  a.set_probe(now, ack_timeout_ns(qp.attributes.timeout));
  find_lost(qp, 1, [](uint32_t) { return true; });
  services_.scheduler.make_ready(qp);
}

// A responder of an earlier version sends a NAK behind the first map of a gap. It says nothing that the map did not.
bool Requester::has_sack_reported(const QueuePair& qp) noexcept {
  const RequesterState& r = qp.requester;
  if (qp.repeater == nullptr || !qp.repeater->is_open || r.wait_until != UINT64_MAX || is_going_back(qp))
    return false;
  const Repeater& a = *qp.repeater;
  return psn_diff(a.base, r.oldest) == 0 &&
         (a.lost.has(r.oldest) || a.sent[reorder_slot(r.oldest)].serial != 0);
}

// Of the `limit` PSNs from the oldest on, the requests that `is_lost` names are to be repeated.
template <class IsLost>
void Requester::find_lost(QueuePair& qp, uint32_t limit, IsLost&& is_lost) noexcept {
  const RequesterState& r = qp.requester;
  Repeater& a = *qp.repeater;
  WEFT_ASSERT(a.is_open && limit <= reorder_span);
  for (uint32_t index = qp.sends.head; index != qp.sends.tail; ++index) {
    const SendEntry& e = qp.sends.at(index);
    if (!e.started) return;
    const int32_t from = psn_diff(e.first_psn, r.oldest);
    if (from >= static_cast<int32_t>(limit)) return;
    // Of a READ only the request is ours.
    const int32_t end = from + static_cast<int32_t>(e.is_answered() ? 1 : e.packets);
    for (int32_t at = std::max(0, from); at < std::min(end, static_cast<int32_t>(limit)); ++at) {
      const uint32_t psn = psn_add(r.oldest, static_cast<uint32_t>(at));
      if (a.lost.has(psn) || !is_lost(psn)) continue;
      a.lost.add(psn);
      a.touch(psn);
    }
  }
}

void Requester::end_repeats(QueuePair& qp) noexcept {
  if (qp.repeater == nullptr) return;
  WEFT_ASSERT(qp.repeater->counted <= qp.requester.apart);
  qp.requester.apart -= qp.repeater->counted;
  qp.repeater->rest();
  qp.attention &= static_cast<uint8_t>(~unsigned{attention_repeat});
}

// At most `budget` packets. With it the window follows what the peer keeps, so that there are always as many under way.
Sent Requester::repeat(QueuePair& qp, uint64_t now, int& budget) noexcept {
  RequesterState& r = qp.requester;
  Repeater& a = *qp.repeater;
  WEFT_ASSERT(a.is_open && qp.is_reliable());
  const uint32_t heard = a.repeated.serial;
  const uint32_t passed = a.base;
  a.pass(r.oldest, now);
  if (psn_diff(r.oldest, a.newest) > 0) {
    end_repeats(qp);
    return Sent::Idle;
  }
  const uint64_t timeout = ack_timeout_ns(qp.attributes.timeout);
  if (passed != a.base && a.probe_at != UINT64_MAX) {
    a.probes = 0;
    a.set_probe(now, timeout);
  }
  // An acknowledgement of a repetition says as much as a map of it.
  if (heard != a.repeated.serial)
    find_lost(qp, std::min(static_cast<uint32_t>(psn_diff(r.next, r.oldest)), reorder_span),
              [&](uint32_t psn) { return !a.buffered.has(psn) && a.is_lost(psn); });
  const uint32_t window = std::min(qp.attributes.window_packets, reorder_span);
  const uint32_t counts = std::min(a.buffered.size(), reorder_span - window);
  WEFT_ASSERT(a.counted <= r.apart);
  r.apart += counts - a.counted;
  a.counted = counts;
  if (a.lost.empty()) return Sent::Idle;
  for (uint32_t index = qp.sends.head; index != qp.sends.tail; ++index) {
    const SendEntry& e = qp.sends.at(index);
    if (!e.started) break;
    const int32_t from = psn_diff(e.first_psn, r.oldest);
    if (from >= static_cast<int32_t>(reorder_span)) break;
    const int32_t end = from + static_cast<int32_t>(e.is_answered() ? 1 : e.packets);
    for (int32_t at = std::max(0, from); at < std::min(end, static_cast<int32_t>(reorder_span)); ++at) {
      const uint32_t psn = psn_add(r.oldest, static_cast<uint32_t>(at));
      if (!a.lost.has(psn)) continue;
      if (budget == 0) return Sent::More;
      const Sent sent = repeat_packet(qp, index, static_cast<uint32_t>(at - from), now);
      if (sent != Sent::More) return sent;
      if (!a.is_open) return Sent::Idle;  // it goes back
      --budget;
      a.lost.remove(psn);
      Repeater::Sent& one = a.sent[reorder_slot(psn)];
      r.forget_timed();
      one.serial = ++a.serials;
      one.next = r.next;
      one.at = now;
      if (a.probe_at == UINT64_MAX) a.set_probe(now, timeout);
      if (one.times < UINT8_MAX) ++one.times;
      ++services_.counters.sent_again;
      ++services_.counters.repeated;
      ++qp.sent_again;
      ++qp.repeated;
    }
  }
  return Sent::Idle;
}

}  // namespace weft::proto::roce
