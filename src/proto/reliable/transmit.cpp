// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What goes out: what was lost first, then what is new, then what is owed.
#include <algorithm>
#include <bit>

#include "proto/reliable/core.hpp"

#include "base/assert.hpp"

namespace weft::proto::reliable {
namespace {

// Of a packet: its head and its payload.
size_t put_parts(iovec* out, std::byte* head, size_t head_bytes,
                 const SendStream::Gathered& payload) noexcept {
  *out++ = {head, head_bytes};
  for (const Piece& piece : payload.span()) *out++ = {const_cast<std::byte*>(piece.at), piece.bytes};
  return 1 + payload.count;
}

}  // namespace

void Core::serve_ready(uint64_t now) noexcept {
  List<Connection, ReadyHook> due;
  due.splice_back(ready_);
  while (Connection* c = due.pop_front()) {
    WEFT_ASSERT(by_id(c->who.id) == c);
    if (c->in.blocked()) {
      c->in.drain(pool_, [&](std::span<const std::byte> bytes) { return offer(*c, bytes); });
      WEFT_ASSERT(c->in.edge() >= c->owed.edge());
      // The window was nearly shut, and has opened.
      if (c->in.edge() - c->owed.edge() >= c->in.limit() / 4) c->owed.hurry();
      if (c->ending.finishing && finished(*c)) {
        lose(*c, core::ProviderError::PeerClosed);
        continue;
      }
    }
    // Who posts many and then polls gains nothing by packets of one frame.
    if (c->unsent_frames != 0) c->hurries = c->unsent_frames >= burst_min ? 0 : hurries_max;
    flush(*c, now, true);
    if (c->in.blocked() || c->room.is_short()) make_ready(*c);
  }
}

void Core::flush(Connection& c, uint64_t now, bool tail) noexcept {
  WEFT_ASSERT(by_id(c.who.id) == &c);
  c.room.on_try();
  c.pace_due = 0;
  if (c.out.lost() != 0 || c.out.unsent() != 0) acknowledge_others(c, now);
  // A small frame by itself is acknowledged with the answer, and one of many with the next ones, as a rule.
  c.patient = c.lone || c.unsent_frames >= burst_min;
  c.unsent_frames = 0;
  if (c.out.lost() != 0 && !flush_lost(c, now)) {
    make_ready(c);
    return;
  }
  if (c.out.unsent() != 0 && !flush_new(c, now, tail)) {
    make_ready(c);
    return;
  }
  c.all_again = false;
  if (c.out.unsent() != 0 && !tail) make_ready(c);
  if (c.owed.is_urgent() || c.asks_for_sign || c.owed.reports_needless())
    (void)send_alone(c, PacketType::Data, c.asks_for_sign ? wants_ack : 0, c.out.next(), now);
}

// Fills everything but acknowledgement and payload in.
size_t Core::write_head(Connection& c, Packet& packet, std::byte* out) noexcept {
  packet.to = c.who.peer_id;
  packet.from = c.who.id;
  WEFT_ASSERT(c.who.id != 0);
  packet.flags |= guard_;
  if (c.who.peer_id == 0 || !c.who.validated) {
    packet.flags |= has_handshake;
    packet.incarnation = c.who.incarnation;
    packet.peer_incarnation = c.who.peer_incarnation;
    packet.address = address_.span();
    if (c.probes != 0) packet.flags |= wants_ack;  // so that it proves itself
  }
  WEFT_ASSERT(c.who.validated ? c.who.peer_id != 0 : (packet.flags & has_handshake) != 0);
  return encode(packet, out);
}

void Core::describe(Connection& c, Packet& packet, uint64_t now) noexcept {
  if (c.owed.newest_at() == 0) return;
  c.in.describe(packet);
  // Once: an acknowledgement that says how many follows.
  if (c.owed.is_duplicate()) packet.flags |= saw_duplicate;
  packet.echo = c.owed.newest_stamp();
  packet.hold =
      static_cast<uint32_t>(std::min<uint64_t>((now - c.owed.newest_at()) >> stamp_shift, UINT32_MAX));
}

// A window is half of a socket's buffer (link_impl.hpp), of which the kernel takes what a packet occupies: a power of two, its own notes
// about it included.
bool Core::add_in_flight(Connection& c, size_t bytes) noexcept {
  constexpr size_t notes = 448;
  constexpr size_t paged_from = size_t{16} << 10;  // larger ones lie in pages
  const size_t all = bytes + notes;
  const size_t memory = (all < paged_from ? std::bit_ceil(all) : all + all / 8) + 256;
  c.in_flight_estimate += std::max(memory / 2, config_.receive_cost);
  return c.in_flight_estimate <= c.out.announced();
}

// What was owed has gone.
void Core::acknowledged(Connection& c, uint64_t now) noexcept {
  WEFT_ASSERT((c.owed.due() != 0) == List<Connection, OwedHook>::linked(c));
  if (c.owed.due() != 0) List<Connection, OwedHook>::remove(c);
  c.owed.on_ack_sent(c.in.edge(), now);
}

void Core::pay_others(Connection& c, uint64_t now) noexcept {
  owed_.for_each([&](Connection& other) {
    if (&other != &c) (void)send_alone(other, PacketType::Data, 0, other.out.next(), now);
  });
}

// How large packets may be now.
void Core::size_packets(Connection& c, uint64_t now) noexcept {
  const size_t bytes = std::min(output_.packet_bytes_max(c.who.path.span()), config_.packet_bytes_max);
  if (!c.mtu.set(bytes, head_bytes_max + size_t{64}, now)) return;
  static_assert(head_bytes_max >= fixed_head_bytes);
  WEFT_ASSERT(c.mtu.bytes() > head_bytes_max);
  c.congestion->configure(c.mtu.bytes() - fixed_head_bytes, SendStream::bytes_max);
}

void Core::sent(Connection& c, uint64_t now) noexcept {
  if (c.epoch != epoch_) c.hurried = 0;
  c.epoch = epoch_;
  c.one_more = false;
  c.room.on_sent();
  if (c.timeout_from == 0) {
    c.timeout_from = now;
    c.life.silent_from = now;
  }
  touch(c);
  WEFT_ASSERT(c.timeout_from != 0 && c.life.silent_from != 0);
}

// The packet link has no room: since when, less the time in which nobody called us.
void Core::refused(Connection& c, uint64_t now) noexcept {
  c.room.on_refused(now);
  touch(c);
}

// Of a connection that has a rate: whether a packet may go now. Where not, a timer sends it.
bool Core::has_rate(Connection& c, uint64_t now) noexcept {
  c.congestion->advance(now);
  if (!c.congestion->is_paced() || c.congestion->packets() != 0 || c.one_more || c.all_again) return true;
  c.pace_due = std::max(c.congestion->next_at(), now + 1);
  touch(c);
  return false;
}

// Sends lost records again. False: the packet link has no room.
bool Core::flush_lost(Connection& c, uint64_t now) noexcept {
  size_packets(c, now);
  while (Record* record = c.out.first_lost()) {
    if (c.out.in_flight() >= c.congestion->window() && !c.one_more && !c.all_again) return true;
    if (c.congestion->is_paced() && !has_rate(c, now)) return true;
    if (unvalidated(c) && c.who.credit < record->bytes + unvalidated_head()) return true;
    bool kept = true;
    // As many packets as it takes today: they may have become smaller.
    for (size_t at = 0; at < record->bytes;) {
      Packet packet;
      packet.stamp = static_cast<uint32_t>(now >> stamp_shift);
      packet.offset = record->offset + at;
      if (at == 0) describe(c, packet, now);
      if (c.one_more) packet.flags |= wants_ack;
      if (repeats_on_purpose_) packet.flags |= is_copy;
      std::byte* head = scratch_.heads[0].data();
      const size_t head_bytes = write_head(c, packet, head);
      WEFT_ASSERT(head_bytes < c.mtu.bytes());
      const auto payload =
          c.out.gather(packet.offset, std::min<size_t>(record->bytes - at, c.mtu.bytes() - head_bytes));
      const size_t bytes = payload.bytes;
      WEFT_ASSERT(bytes != 0 && at + bytes <= record->bytes);
      if (guard_ != 0) seal(head, head_bytes, payload.span());
      std::array<iovec, packet_parts_max> parts;
      if (!output_.send(c.who.path.span(), parts.data(),
                        put_parts(parts.data(), head, head_bytes, payload))) {
        refused(c, now);
        return false;
      }
      if (at == 0 && (packet.flags & has_ack) != 0) acknowledged(c, now);
      c.who.credit -= std::min(c.who.credit, head_bytes + bytes);
      kept = add_in_flight(c, bytes) && kept;
      ++counters_.sent;
      ++(repeats_on_purpose_ ? counters_.copies : counters_.sent_again);
      if (c.congestion->is_paced()) c.congestion->on_sent(1);
      c.mtu.on_sent(bytes);
      at += bytes;
    }
    c.out.sent_again(*record, now & ~((uint64_t{1} << stamp_shift) - 1), kept);
    sent(c, now);
  }
  return true;
}

// Sends new bytes in GSO batches. Without `tail` only full packets. False: the packet link has no room.
bool Core::flush_new(Connection& c, uint64_t now, bool tail) noexcept {
  size_packets(c, now);
  const uint64_t stamp_time = now & ~((uint64_t{1} << stamp_shift) - 1);
  const size_t batch_max =
      std::clamp<size_t>(config_.segmented_bytes_max / c.mtu.bytes(), 1, config_.segments_max);
  while (c.out.unsent() != 0) {
    const size_t window = c.congestion->window();
    const size_t flying = c.out.in_flight();
    size_t budget = flying < window ? window - flying : c.one_more ? 1 : 0;
    if (c.all_again && c.backoff >= 2) budget = SIZE_MAX;  // the window has shrunk because nobody answers
    const size_t permitted = c.out.permitted();
    if (budget == 0) return true;
    if (c.congestion->is_paced() && !has_rate(c, now)) return true;
    const size_t batch =
        c.congestion->is_paced() ? std::clamp<size_t>(c.congestion->packets(), 1, batch_max) : batch_max;
    if (permitted == 0) {
      if (!c.out.outstanding() && c.timeout_from == 0) sent(c, now);  // its timeout asks for the window
      return true;
    }
    size_t left = std::min(c.out.unsent(), permitted);
    if (unvalidated(c)) {
      if (starved(c)) {
        if (c.timeout_from == 0) sent(c, now);  // its timeout asks for a sign of life
        return true;
      }
      left = std::min(left, c.who.credit - unvalidated_head());
    }
    uint64_t offset = c.out.next();
    size_t packets = 0;
    size_t parts = 0;
    bool acks = false;
    bool asks = false;
    while (packets < batch && left != 0 && budget != 0 && c.out.can_record(packets + 1)) {
      Packet packet;
      packet.stamp = static_cast<uint32_t>(now >> stamp_shift);
      packet.offset = offset;
      if (packets == 0) describe(c, packet, now);
      acks = acks || (packet.flags & has_ack) != 0;
      const uint8_t flags = static_cast<uint8_t>(
          packet.flags | guard_ | (c.who.peer_id == 0 || !c.who.validated ? has_handshake : 0));
      const size_t room = c.mtu.bytes() - head_bytes(flags, packet.range_count, address_.length);
      WEFT_ASSERT(room != 0 && room < c.mtu.bytes());
      const auto payload = c.out.gather(offset, std::min(room, left));
      const size_t bytes = payload.bytes;
      WEFT_ASSERT(bytes != 0 && bytes <= left);
      if (bytes < room && !tail && bytes == c.out.unsent() - (offset - c.out.next())) break;
      // The last one that may go: its answer lets the next go.
      if (budget <= bytes && bytes < c.out.unsent() - (offset - c.out.next())) packet.flags |= wants_ack;
      if (offset < c.awaited && offset + bytes >= c.awaited) {
        if (!c.patient) packet.flags |= wants_ack;
        asks = true;
      }
      std::byte* head = scratch_.heads[packets].data();
      const size_t head_size = write_head(c, packet, head);
      WEFT_ASSERT(head_size + room == c.mtu.bytes());
      if (guard_ != 0) seal(head, head_size, payload.span());
      parts += put_parts(&scratch_.parts[parts], head, head_size, payload);
      scratch_.payloads[packets++] = static_cast<uint32_t>(bytes);
      offset += bytes;
      left -= bytes;
      budget -= std::min(budget, bytes);
      if (bytes < room) break;  // only the last packet of a batch may be short
    }
    if (packets == 0) return true;
    WEFT_ASSERT(packets <= Scratch::packets_max && parts <= scratch_.parts.size());
    WEFT_ASSERT(offset <= c.out.next() + c.out.unsent() && offset - c.out.next() <= permitted);
    const auto to = c.who.path.span();
    const bool gone = packets == 1 ? output_.send(to, scratch_.parts.data(), parts)
                                   : output_.send_segmented(to, scratch_.parts.data(), parts, c.mtu.bytes());
    if (!gone) {
      refused(c, now);
      return false;
    }
    counters_.sent += packets;
    if (c.congestion->is_paced()) c.congestion->on_sent(packets);
    for (size_t i = 0; i < packets; ++i) {
      c.out.sent_new(scratch_.payloads[i], stamp_time, add_in_flight(c, scratch_.payloads[i]));
      c.mtu.on_sent(scratch_.payloads[i]);
      c.who.credit -= std::min<size_t>(c.who.credit, scratch_.payloads[i] + unvalidated_head());
    }
    c.owed.on_data_sent(now);
    if (acks) acknowledged(c, now);
    if (asks && c.rtt.measured())
      c.ask_due = now + (c.patient ? std::max(2 * c.rtt.smoothed(), ask_delay_patient)
                                   : std::max(3 * c.rtt.smoothed(), ask_delay_min));
    sent(c, now);
  }
  return true;
}

bool Core::reserve_in_place(Connection& c, size_t head, const iovec* parts, size_t count) noexcept {
  size_t bytes = head;
  size_t stretches = 0;
  for (size_t i = 0; i < count; ++i) {
    bytes += parts[i].iov_len;
    stretches += parts[i].iov_len >= in_place_bytes_min ? 1 : 0;
  }
  if (c.out.room() < bytes || !c.out.reserve_borrowed(stretches)) return false;
  if (!c.out.reserve_behind(pool_, 0, head)) return false;
  for (size_t i = 0; i < count; head += parts[i++].iov_len)
    if (parts[i].iov_len < in_place_bytes_min && !c.out.reserve_behind(pool_, head, parts[i].iov_len))
      return false;
  return true;
}

bool Core::copy_out(Connection& c) noexcept {
  if (!c.out.has_borrowed()) return true;
  const bool is_copied = c.out.copy_out(pool_);
  if (!is_copied) c.out.give_up(pool_);
  output_.release_parts();
  WEFT_ASSERT(!c.out.has_borrowed());
  return is_copied;
}

void Core::send_copies(Connection& c, uint64_t now) noexcept {
  const Record* last = c.out.last();
  if (last == nullptr || unvalidated(c) || last->again || last->bytes > copied_bytes_max ||
      c.out.unsent() != 0)
    return;
  for (int copies = c.history.is_lossy() ? 2 : 1; copies > 0; --copies) {
    WEFT_ASSERT(last->offset + last->bytes == c.out.next());
    Packet packet;
    packet.flags = is_copy;
    packet.stamp = static_cast<uint32_t>(now >> stamp_shift);
    packet.offset = last->offset;
    describe(c, packet, now);
    std::byte* head = scratch_.heads[0].data();
    const size_t head_bytes = write_head(c, packet, head);
    const auto payload = c.out.gather(last->offset, last->bytes);
    if (head_bytes + last->bytes > c.mtu.bytes() || payload.bytes != last->bytes) return;
    if (guard_ != 0) seal(head, head_bytes, payload.span());
    std::array<iovec, packet_parts_max> parts;
    if (!output_.send(c.who.path.span(), parts.data(), put_parts(parts.data(), head, head_bytes, payload)))
      return;
    ++counters_.sent;
    ++counters_.copies;
    if (c.congestion->is_paced()) c.congestion->on_sent(1);
    (void)add_in_flight(c, last->bytes);
  }
}

// A packet without payload.
bool Core::send_alone(Connection& c, PacketType type, uint8_t flags, uint64_t offset, uint64_t now) noexcept {
  Packet packet;
  WEFT_ASSERT(by_id(c.who.id) == &c && offset <= c.out.end());
  packet.type = type;
  packet.flags = flags;
  packet.stamp = static_cast<uint32_t>(now >> stamp_shift);
  packet.offset = offset;
  if (type == PacketType::Data || type == PacketType::Close) describe(c, packet, now);
  const bool reports = c.owed.reports_needless() && type == PacketType::Data && (packet.flags & has_ack) != 0;
  if (reports) {
    packet.flags |= saw_duplicate | is_copy;
    packet.offset = c.owed.needless();
  }
  std::byte* head = scratch_.heads[0].data();
  const size_t bytes = write_head(c, packet, head);
  if (guard_ != 0) seal(head, bytes, {});
  const iovec part{head, bytes};
  if (!output_.send(c.who.path.span(), &part, 1)) {
    refused(c, now);
    return false;
  }
  ++counters_.sent;
  if (type == PacketType::Data && (packet.flags & has_ack) != 0) ++counters_.acks_sent;
  if (reports) c.owed.on_needless_reported();
  c.room.on_sent();
  c.who.credit -= std::min(c.who.credit, bytes);
  (void)add_in_flight(c, 0);
  if ((packet.flags & has_ack) != 0) acknowledged(c, now);
  if ((packet.flags & wants_ack) != 0) {
    c.asks_for_sign = false;
    if (c.timeout_from == 0) c.timeout_from = now;
    touch(c);
  }
  return true;
}

void Core::send_owed_acks(uint64_t now) noexcept {
  next_due_ = UINT64_MAX;  // exactly, for a sleeper should not wake for what is over
  timed_.for_each([&](Connection& c) {
    if (c.owed.due() != 0) (void)send_alone(c, PacketType::Data, 0, c.out.next(), now);
    const uint64_t when = due(c);
    if (when == 0) List<Connection, TimedHook>::remove(c);
    else next_due_ = std::min(next_due_, when);
  });
}

void Core::probe_if_silent(Connection& c, uint64_t quiet, uint64_t now) noexcept {
  if (c.who.peer_id == 0 || c.timeout_from != 0 || now - c.life.heard_at < quiet) return;
  c.life.silent_from = now;  // perhaps it is we who were away
  c.asks_for_sign = true;
  c.keepalive = true;
  make_ready(c);
}

}  // namespace weft::proto::reliable
