// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who is who, and what comes in.
#include "proto/reliable/core.hpp"

#include <algorithm>
#include <new>

#include "base/assert.hpp"
#include "base/hash.hpp"

namespace weft::proto::reliable {

// The second half of the incarnations that are left is for endpoints whose peers remember too much: a forged incarnation shall not use
// all of them up.
static constexpr uint64_t incarnations_end = UINT64_MAX / 4;
static constexpr uint64_t likely_incarnations_end = incarnations_end / 2;
static constexpr uint64_t incarnation_step = uint64_t{1} << 34;  // more than a demand asks for
static constexpr unsigned restarts_max = 16;                     // of one connection

size_t Core::PacketAddressHash::operator()(const PacketAddress& packet_address) const noexcept {
  uint64_t hash = packet_address.length;
  for (size_t at = 0; at < packet_address.length; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, packet_address.bytes.data() + at, sizeof word);  // zero behind the end
    hash = hash_pair(hash, word);
  }
  return hash;
}

Core::~Core() {
  for (Connection* c : slots_)
    if (c != nullptr) detach(*c);
}

bool Core::open(std::span<const std::byte> address, const Config& config) try {
  config_ = config;
  config_.segments_max = std::clamp<size_t>(config.segments_max, 1, Scratch::packets_max);
  guard_ = config.check ? has_check : config.length ? has_length : 0;
  address_ = PacketAddress(address);
  next_incarnation_ = std::max<uint64_t>(config.incarnation, 1);
  secret_ = {config.seed, hash_word(config.seed, hash_factor_b)};
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

Connection* Core::find(std::span<const std::byte> address) noexcept {
  const auto found = by_address_.find(PacketAddress(address));
  return found == by_address_.end() ? nullptr : found->second;
}

bool Core::add(Connection& c, std::span<const std::byte> address) noexcept try {
  if (slots_.empty()) slots_.push_back(nullptr);  // number 0 means "not known yet"
  uint16_t slot = 0;
  if (!free_slots_.empty()) {
    slot = free_slots_.front();
  } else {
    if (slots_.size() > connections_max) return false;
    free_slots_.reserve(slots_.size() + 1);
    slot = static_cast<uint16_t>(slots_.size());
  }
  c.who.address = c.who.path = PacketAddress(address);
  if (!by_address_.emplace(c.who.address, &c).second) return false;
  WEFT_ASSERT(!List<Connection, ReadyHook>::linked(c) && !List<Connection, TimedHook>::linked(c));
  WEFT_ASSERT(!List<Connection, OwedHook>::linked(c) && !unvalidated(c));
  if (config_.algorithm != nullptr) c.congestion.emplace(config_.algorithm);
  if (slot == slots_.size()) {
    try {
      slots_.push_back(nullptr);
    } catch (const std::bad_alloc&) {
      by_address_.erase(c.who.address);
      return false;
    }
  } else {
    free_slots_.erase(free_slots_.begin());  // the one that rested longest
  }
  WEFT_ASSERT(slot != 0 && slots_[slot] == nullptr);
  ++drawn_;
  c.who.id =
      static_cast<uint32_t>(siphash(secret_, std::as_bytes(std::span(&drawn_, 1))) & 0xffff0000u) | slot;
  c.who.incarnation = next_incarnation_++;
  slots_[slot] = &c;
  WEFT_ASSERT(by_id(c.who.id) == &c);
  c.in.set_limit(std::max(config_.receive_bytes, size_t{128} << 10));
  c.mtu.forget();
  // What a peer takes before it has said so: an initial window.
  c.out.set_edge(size_t{256} << 10);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// Out of every list and table; its memory goes back.
void Core::detach(Connection& c) noexcept {
  WEFT_ASSERT(by_id(c.who.id) == &c);
  WEFT_ASSERT((c.owed.due() != 0) == List<Connection, OwedHook>::linked(c));
  if (List<Connection, ReadyHook>::linked(c)) List<Connection, ReadyHook>::remove(c);
  if (List<Connection, TimedHook>::linked(c)) List<Connection, TimedHook>::remove(c);
  if (List<Connection, OwedHook>::linked(c)) List<Connection, OwedHook>::remove(c);
  const bool was_unvalidated = unvalidated(c);
  if (was_unvalidated) {
    WEFT_ASSERT(unvalidated_count_ != 0 && !c.who.validated);
    List<Connection, UnvalidatedHook>::remove(c);
    --unvalidated_count_;
  }
  counters_.lost += c.out.lost_packets();
  // A peer that has gone says nothing of the last packets any more.
  if (c.ending.death != Death::Silence && c.ending.death != Death::NoRoom)
    counters_.lost -= c.out.unanswered_losses();
  WEFT_ASSERT(c.out.lost_packets() >= c.out.unanswered_losses());
  c.out.clear(pool_);
  c.in.clear(pool_);
  const size_t slot = c.who.id & 0xffff;
  slots_[slot] = nullptr;
  WEFT_ASSERT(free_slots_.size() < free_slots_.capacity());
  free_slots_.push_back(static_cast<uint16_t>(slot));  // reserved
  by_address_.erase(c.who.address);
  if (c.who.peer_incarnation == 0 || (was_unvalidated && c.who.peer_incarnation >= likely_incarnations_end))
    return;
  try {
    uint64_t& incarnation = time_wait_[c.who.address];
    if (incarnation == 0) time_wait_order_.push_back(c.who.address);
    incarnation = std::max({incarnation, c.who.peer_incarnation, c.who.denied});
    if (time_wait_order_.size() > time_wait_max) {
      time_wait_.erase(time_wait_order_.front());
      time_wait_order_.pop_front();
    }
  } catch (const std::bad_alloc&) {  // then an old packet of it may look new
  }
}

Statistics Core::statistics() const noexcept {
  Statistics all;
  all.sent = counters_.sent;
  all.sent_again = counters_.sent_again;
  all.copies = counters_.copies;
  all.acks_sent = counters_.acks_sent;
  all.received = counters_.received;
  all.acks_received = counters_.acks_received;
  all.duplicates = counters_.duplicates;
  all.out_of_order = counters_.out_of_order;
  all.not_taken = counters_.outside + counters_.turned_away;
  all.stale = counters_.stale;
  all.damaged = counters_.malformed;
  all.lost = counters_.lost;
  all.timeouts = counters_.timeouts;
  all.assumed = counters_.assumed;
  const Connection* newest = nullptr;
  for (const Connection* c : slots_) {
    if (c == nullptr) continue;
    ++all.peers;
    all.lost += c->out.lost_packets() - c->out.unanswered_losses();
    if (c->rtt.measured() && (newest == nullptr || c->life.heard_at > newest->life.heard_at)) newest = c;
  }
  if (newest != nullptr) {
    all.round_trip_ns = newest->rtt.smoothed();
    all.round_trip_ns_min = newest->rtt.shortest();
  }
  return all;
}

void Core::lose(Connection& c, core::ProviderError why) noexcept {
  detach(c);
  if (!closing_) upper_.lost(c, why);
}

void Core::remove(Connection& c, uint64_t now) noexcept {
  if (c.who.peer_id != 0) {
    Packet packet;
    packet.to = c.who.id;
    packet.from = c.who.peer_id;
    answer(PacketType::Reset, packet, c.who.path, 0);
  }
  (void)now;
  detach(c);
}

// --- who sent it ---

bool Core::is_old(const PacketAddress& address, uint64_t incarnation) const noexcept {
  const auto ended = time_wait_.find(address);
  return ended != time_wait_.end() && incarnation <= ended->second;
}

// A packet without state: to whom `to` came from.
void Core::answer(PacketType type, const Packet& to, const PacketAddress& packet_address,
                  uint64_t word) noexcept {
  Packet packet;
  packet.type = type;
  packet.flags = guard_;
  packet.to = to.from;
  packet.from = to.to;
  packet.offset = word;
  auto& head = scratch_.heads[0];
  const size_t bytes = encode(packet, head.data());
  if (guard_ != 0) seal(head.data(), bytes, {});
  const iovec part{head.data(), bytes};
  if (output_.send(packet_address.span(), &part, 1)) ++counters_.sent;
}

// The first that is heard of the other side's end of this connection.
bool Core::learn(Connection& c, const Packet& packet) noexcept {
  if (packet.from == 0 || is_old(c.who.address, packet.incarnation)) return false;
  c.who.peer_incarnation = packet.incarnation;
  c.who.peer_id = packet.from;
  return true;
}

// --- proofs ---
//
// Whoever gets our packets at a place can repeat what we said there. A demand is a Reset that asks for an incarnation whose lower half only we can
// make: without state, and no longer than what it answers. The other side begins again with that incarnation, and has lost nothing.

uint32_t Core::proof(Proof kind, const Packet& packet, const PacketAddress& source) const noexcept {
  struct {
    uint8_t kind;
    uint8_t source_bytes;
    uint8_t address_bytes;
    uint8_t zero;
    uint32_t from;
    std::array<std::byte, 2 * handshake_address_max> places;
  } words{static_cast<uint8_t>(kind), 0, static_cast<uint8_t>(packet.address.size()), 0, packet.from, {}};
  std::memcpy(words.places.data(), packet.address.data(), packet.address.size());
  if (kind == Proof::Fresh) {
    words.source_bytes = static_cast<uint8_t>(source.length);
    std::memcpy(words.places.data() + handshake_address_max, source.bytes.data(), source.length);
  }
  return static_cast<uint32_t>(siphash(secret_, std::as_bytes(std::span(&words, 1))));
}

bool Core::is_proof(Proof kind, const Packet& packet, const PacketAddress& source) const noexcept {
  return static_cast<uint32_t>(packet.incarnation - 1) == proof(kind, packet, source);
}

void Core::demand(Proof kind, const Packet& packet, const PacketAddress& source, const PacketAddress& to,
                  uint64_t above) noexcept {
  const uint64_t upper = std::max(packet.incarnation, above) >> 32;
  answer(PacketType::Reset, packet, to, (upper + 1) << 32 | proof(kind, packet, source));
}

Connection* Core::identify(const Packet& packet, const PacketAddress& source, uint64_t now) noexcept {
  if (packet.to == 0) {
    if ((packet.flags & has_handshake) != 0 && packet.peer_incarnation == 0 && packet.from != 0 &&
        packet.incarnation < incarnations_end)
      return identify_handshake(packet, source, now);
    ++counters_.malformed;
    return nullptr;
  }
  Connection* c = by_id(packet.to);
  if (c == nullptr) {
    ++counters_.stale;
    if (packet.type == PacketType::Close) answer(PacketType::CloseAck, packet, source, 0);
    else if (packet.type == PacketType::Data) answer(PacketType::Reset, packet, source, 0);
    return nullptr;
  }
  if ((packet.flags & has_handshake) != 0) {
    if (packet.peer_incarnation != c->who.incarnation ||
        (c->who.peer_incarnation == 0 && !learn(*c, packet))) {
      ++counters_.stale;
      return nullptr;
    }
    if (packet.incarnation >
        c->who.peer_incarnation) {  // it knows our end, and its own has restarted: that cannot be mended
      lose(*c, core::ProviderError::PeerReplaced);
      answer(PacketType::Reset, packet, source, 0);
      return nullptr;
    }
  }
  // Without a handshake nobody answers for a peer that has not answered yet; and an end comes from where the peer is.
  if (c->who.peer_id == 0 || packet.from != c->who.peer_id ||
      ((packet.flags & has_handshake) != 0 && packet.incarnation != c->who.peer_incarnation) ||
      (packet.type == PacketType::Close && (packet.flags & has_handshake) == 0 && !(source == c->who.path))) {
    ++counters_.stale;
    return nullptr;
  }
  WEFT_ASSERT(c->who.peer_id != 0);
  if (!c->who.validated) {
    c->who.validated = true;
    c->probes = 0;
    if (List<Connection, UnvalidatedHook>::linked(*c)) {
      List<Connection, UnvalidatedHook>::remove(*c);
      WEFT_ASSERT(unvalidated_count_ != 0);
      --unvalidated_count_;
      make_ready(*c);  // what was kept back goes
    }
  }
  if (!(c->who.path == source)) {
    displaced(source, c->who.address);
    c->who.path = source;
  }
  return c;
}

// A first packet: it does not know our number yet.
Connection* Core::identify_handshake(const Packet& packet, const PacketAddress& source,
                                     uint64_t now) noexcept {
  const PacketAddress address = upper_.known_as(packet.address, source);
  if (!(address == source)) displaced(source, address);
  const auto found = by_address_.find(address);
  // Who talks to himself is a peer of his own, with our incarnation.
  if (address == address_ &&
      (found == by_address_.end() || found->second->who.incarnation != packet.incarnation))
    ++counters_.namesakes;
  if (found != by_address_.end()) {
    Connection& c = *found->second;
    if (c.who.peer_incarnation == 0) {
      if (learn(c, packet)) {
        c.who.path = source;
        return &c;
      }
      ++counters_.stale;
      return nullptr;
    }
    if (packet.incarnation == c.who.peer_incarnation && packet.from == c.who.peer_id) return &c;
    // The endpoint there has restarted, or somebody says so: the place by which it is known decides.
    if (packet.incarnation <= c.who.peer_incarnation || !is_proof(Proof::Replaces, packet, source)) {
      ++counters_.stale;
      if (packet.incarnation < likely_incarnations_end)
        c.who.denied = std::max(c.who.denied, packet.incarnation);
      demand(Proof::Replaces, packet, source, source == c.who.path ? source : address,
             c.who.peer_incarnation);
      return nullptr;
    }
    lose(c, core::ProviderError::PeerReplaced);
  }
  if (closing_) return nullptr;
  if (packet.type == PacketType::Close) {  // of a connection that is unknown here
    answer(PacketType::CloseAck, packet, source, 0);
    return nullptr;
  }
  if (const auto ended = time_wait_.find(address);
      ended != time_wait_.end() && packet.incarnation <= ended->second) {
    ++counters_.stale;
    answer(PacketType::Reset, packet, source, ended->second);
    return nullptr;
  }
  // Many who may not exist: from here on who comes shows first that it gets our answers.
  const bool shown = is_proof(Proof::Fresh, packet, source);
  if (unvalidated_count_ >= unvalidated_max) challenge_until_ = now + challenge_hold;
  if (now < challenge_until_ && !shown) {
    ++counters_.turned_away;
    demand(Proof::Fresh, packet, source, source, 0);
    return nullptr;
  }
  Connection* c = upper_.accept(address.span());
  if (c == nullptr || c->who.id == 0) {
    ++counters_.turned_away;
    return nullptr;
  }
  WEFT_ASSERT(c->who.peer_id == 0 && !c->who.validated && by_id(c->who.id) == c);
  c->who.peer_incarnation = packet.incarnation;
  c->who.peer_id = packet.from;
  c->who.path = source;
  c->probes = 5;
  if (shown) return c;
  unvalidated_.push_back(*c);
  ++unvalidated_count_;
  WEFT_ASSERT(unvalidated_count_ <= unvalidated_max);
  return c;
}

// --- what it says ---

void Core::on_packet(std::span<const std::byte> source, std::span<const std::byte> bytes,
                     uint64_t now) noexcept {
  Packet packet;
  if (!decode(bytes, guard_, packet)) {
    ++counters_.malformed;
    if (packet.length != 0 && packet.length != bytes.size()) {
      ++counters_.wrong_lengths;
      oddities_.sent_bytes = packet.length;
      oddities_.came_bytes = bytes.size();
    }
    return;
  }
  ++counters_.received;
  if (packet.type == PacketType::Reset) return on_reset(packet, PacketAddress(source), now);
  if (packet.type == PacketType::CloseAck) {
    Connection* c = by_id(packet.to);
    if (c != nullptr && c->ending.close_sent && packet.from == c->who.peer_id) c->ending.closed = true;
    return;
  }
  Connection* c = identify(packet, PacketAddress(source), now);
  if (c == nullptr) return;
  WEFT_ASSERT(by_id(c->who.id) == c && c->who.peer_id == packet.from);
  WEFT_ASSERT(!c->who.validated || !unvalidated(*c));
  c->life.heard(now);
  c->in_flight_estimate = std::min(c->in_flight_estimate, c->out.outstanding_bytes());
  if (unvalidated(*c)) c->who.credit += credit_factor * bytes.size();
  c->owed.on_stamp(packet.stamp, now);
  if ((packet.flags & has_ack) != 0) on_ack(*c, packet, now);
  if (packet.type == PacketType::Close) return on_close(*c, packet, now);
  if ((packet.flags & wants_ack) != 0) {
    c->owed.hurry();
    make_ready(*c);
  }
  if (packet.payload.empty() && (packet.flags & has_ack) != 0) ++counters_.acks_received;
  if (packet.payload.empty() || closing_) return;
  on_payload(*c, packet, now);
  if (c->ending.finishing && finished(*c)) lose(*c, core::ProviderError::PeerClosed);
}

void Core::on_payload(Connection& c, const Packet& packet, uint64_t now) noexcept {
  WEFT_ASSERT(!packet.payload.empty() && !closing_);
  if (unvalidated(c) && packet.offset > c.in.ready()) {  // no memory for what comes early
    ++counters_.outside;
    c.owed.hurry();
    return make_ready(c);
  }
  const auto came = c.in.on_bytes(pool_, packet.offset, packet.payload,
                                  [&](std::span<const std::byte> bytes) { return offer(c, bytes); });
  switch (came) {
    case ReceiveStream::Came::InOrder:
      c.owed.on_next_bytes(packet.payload.size(), c.mtu.bytes(), c.in.has_gaps(), now);
      break;
    case ReceiveStream::Came::OutOfOrder:
      ++counters_.out_of_order;
      c.owed.hurry();
      break;
    case ReceiveStream::Came::Duplicate:
      ++counters_.duplicates;
      if ((packet.flags & is_copy) != 0) return;  // as it should be
      c.owed.on_needless();
      break;
    case ReceiveStream::Came::Outside:
      ++counters_.outside;
      c.owed.hurry();
      break;
  }
  c.owed.on_data(now);
  data_at_ = now;
  if (c.owed.is_urgent() || c.in.blocked()) make_ready(c);
  WEFT_ASSERT((c.owed.due() != 0) == List<Connection, OwedHook>::linked(c));
  if (c.owed.due() == 0) {
    c.owed.owe(now);
    owed_.push_back(c);
    touch(c);
  }
}

void Core::on_ack(Connection& c, const Packet& packet, uint64_t now) noexcept {
  uint64_t echoed = 0;
  uint64_t rtt = 0;
  if (packet.echo != 0 || packet.hold != 0) {
    const auto clock = static_cast<uint32_t>(now >> stamp_shift);
    const uint64_t ago = uint64_t{clock - packet.echo} << stamp_shift;
    const uint64_t held = uint64_t{packet.hold} << stamp_shift;
    if (ago < uint64_t{1} << 37 && ago <= now) {
      echoed = ((now >> stamp_shift) << stamp_shift) - ago;
      if (held <= ago) rtt = ago - held;
    }
  }
  const uint64_t lost_before = c.out.lost_packets();
  const SendStream::Acked acked = c.out.on_ack(pool_, packet, echoed, c.rtt, now);
  if (!acked.sound) {
    ++counters_.malformed;
    return;
  }
  const bool limited = c.out.in_flight() + acked.delivered + c.mtu.bytes() >= c.congestion->window();
  if (rtt != 0) c.rtt.sample(rtt, now);
  if (acked.lost != 0)
    c.congestion->on_loss({.sign = congestion::LossSign::Reported,
                           .bytes = acked.lost,
                           .in_flight = c.out.in_flight(),
                           .sent = c.out.next(),
                           .now = now});
  if (acked.delivered != 0) {
    if (c.mtu.bytes() != 0)
      c.congestion->on_ack({.now = now,
                            .bytes = acked.delivered,
                            .rtt = rtt,
                            .shortest = c.rtt.shortest(),
                            .arrived = c.out.acked(),
                            .sent = c.out.next(),
                            .limited = limited});
    c.backoff = 0;
    c.timeout_from = c.out.outstanding() ? now : 0;
  } else if (!c.out.outstanding()) {
    c.timeout_from = 0;
    // While its window is shut we ask less and less often.
    if (c.out.permitted() != 0 || c.out.unsent() == 0) c.backoff = 0;
  }
  if (acked.lost != 0) c.history.on_loss(lost_before);
  else if (acked.delivered != 0) c.history.on_ack();
  if (reports_needless(packet)) {  // what the peer has had twice was not lost
    c.out.report_needless(packet.offset);
    c.history.on_correction(c.out.lost_packets());
  }
  if (c.out.acked() >= c.awaited) c.ask_due = 0;
  c.mtu.on_delivered(acked.delivered);
  c.keepalive = false;
  c.asks_for_sign = false;
  if (c.out.unsent() != 0 || c.out.lost() != 0) make_ready(c);
  c.out.assert_invariants();
  WEFT_ASSERT(completed(c) <= c.out.end());
  if (c.out.outstanding()) touch(c);
}

void Core::on_reset(const Packet& packet, const PacketAddress& source, uint64_t now) noexcept {
  Connection* c = by_id(packet.to);
  if (c == nullptr || packet.from != c->who.peer_id) {
    ++counters_.stale;
    return;
  }
  const bool likely =
      packet.offset < likely_incarnations_end || packet.offset - c->who.incarnation < incarnation_step;
  if (c->who.peer_id == 0 && packet.offset >= c->who.incarnation && likely &&
      c->who.restarts < restarts_max) {
    WEFT_ASSERT(c->who.peer_incarnation == 0 && !c->who.validated && c->out.acked() == 0);
    ++c->who.restarts;
    // It remembers a later connection from here than this one (a clock went back), or wants to see that we get what it sends. Nothing was
    // taken; begin again, just behind that.
    c->who.incarnation = packet.offset + 1;
    next_incarnation_ = std::max(next_incarnation_, c->who.incarnation + 1);
    c->out.rewind();
    flush(*c, now, true);
    return;
  }
  if (c->who.peer_id == 0 || !(source == c->who.path)) {
    ++counters_.stale;
    return;
  }
  lose(*c, core::ProviderError::PeerReplaced);
}

// All that the other side ever sent is handed up.
bool Core::finished(Connection& c) noexcept {
  return c.in.taken() >= c.ending.final_offset && !upper_.holds(c);
}

void Core::on_close(Connection& c, const Packet& packet, uint64_t now) noexcept {
  answer(PacketType::CloseAck, packet, c.who.path, 0);
  if (closing_) {  // it takes nothing any more
    c.ending.closed = true;
    return;
  }
  c.ending.finishing = true;
  c.ending.final_offset = packet.offset;
  if (finished(c)) return lose(c, core::ProviderError::PeerClosed);
  if (c.in.ready() >= c.ending.final_offset) return;  // what is kept is handed up when it can be
  c.ending.finish_due = now + 100 * ms;
  touch(c);
}

// Null: nothing of ours is under way there.
Connection* Core::find_busy(std::span<const std::byte> destination) noexcept {
  Connection* c = find(destination);
  return c != nullptr && (c->out.outstanding() || c->timeout_from != 0) ? c : nullptr;
}

void Core::on_refused(std::span<const std::byte> destination, uint64_t now) noexcept {
  Connection* c = find_busy(destination);
  if (c == nullptr) return;
  c->life.send_error = 0;
  suspect(*c, now);
}

void Core::on_send_error(std::span<const std::byte> destination, int error, uint64_t now) noexcept {
  Connection* c = find_busy(destination);
  if (c == nullptr) return;
  c->life.send_error = error;
  if (c->who.peer_id == 0) suspect(*c, now);
  else c->life.on_result(c->backoff, now);
}

void Core::suspect(Connection& c, uint64_t now) noexcept {
  if (c.life.refused_from == 0 || c.life.is_over(c.backoff, now)) {  // counted anew
    c.life.refused_from = now;
    c.life.refusals = 0;
  }
  c.life.on_result(c.backoff, now);
  ++c.life.refusals;
  const bool met = c.who.peer_id != 0;
  const uint64_t timeout = met ? 200 * ms : unmet_refusal_timeout;
  if (c.life.refusals < 3 || now - c.life.refused_from < timeout) {
    // Several may come at once, and its timeout be far: we ask, and hear of it again.
    if (c.life.refusal_due == 0 && (met || c.life.send_error != 0)) {
      c.life.refusal_due = met ? now + refusal_pause : std::max(c.life.refused_from + timeout, now + 1);
      touch(c);
    }
    return;
  }
  WEFT_ASSERT(c.life.refused_from != 0);
  fail(c, met ? core::ProviderError::PeerDied : core::ProviderError::PeerUnreachable, Death::Refusals,
       now - c.life.refused_from);
}

}  // namespace weft::proto::reliable
