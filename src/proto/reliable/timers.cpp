// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What happens when nothing happens: acknowledgements that waited long enough, losses, timeouts, ends.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "proto/reliable/core.hpp"

#include "base/assert.hpp"

namespace weft::proto::reliable {

// How long an answer is waited for. That somebody proves itself is not urgent.
static uint64_t timeout_of(const Connection& c, bool unvalidated) noexcept {
  const bool waits = c.out.outstanding() || c.out.unsent() != 0 || c.keepalive || c.ending.close_sent;
  if (!waits) return second;
  if (unvalidated) return std::min(RoundTrip::timeout_ns_first << std::min(c.backoff, 16u), 16 * second);
  return c.rtt.timeout(c.backoff);
}

// 0: the connection does not wait for this.
[[gnu::always_inline]] inline uint64_t Core::due(const Connection& c, Timer timer) const noexcept {
  switch (timer) {
    case Timer::Finish:
      return c.ending.finish_due;
    case Timer::NoRoom:
      return c.room.since() != 0 ? c.room.since() + config_.dead_after : 0;
    case Timer::Loss:
      return c.out.outstanding() ? c.out.loss_due(c.rtt) : 0;
    case Timer::Ask:
      return c.ask_due;
    case Timer::Refusal:
      return c.life.refusal_due;
    case Timer::Pace:
      return c.pace_due;
    case Timer::Answer:
      return c.timeout_from != 0 ? c.timeout_from + timeout_of(c, unvalidated(c)) : 0;
    case Timer::Acknowledge:
      return c.owed.due();
    case Timer::Count:
      break;
  }
  return 0;
}

// `visit(std::integral_constant<Timer>)` for each timer in order, until it returns false.
template <class Visit>
[[gnu::always_inline]] static inline bool all_timers(Visit visit) noexcept {
  return [&]<size_t... i>(std::index_sequence<i...>) {
    return (visit(std::integral_constant<Timer, static_cast<Timer>(i)>{}) && ...);
  }
  (std::make_index_sequence<static_cast<size_t>(Timer::Count)>{});
}

// 0: the connection waits for nothing.
uint64_t Core::due(const Connection& c) const noexcept {
  uint64_t first = UINT64_MAX;
  all_timers([&](auto timer) {
    const uint64_t time = due(c, timer);
    if (time != 0) first = std::min(first, time);
    return true;
  });
  return first == UINT64_MAX ? 0 : first;
}

void Core::touch(Connection& c) noexcept {
  const uint64_t when = due(c);
  if (when == 0) return;
  next_due_ = std::min(next_due_, when);
  if (!List<Connection, TimedHook>::linked(c)) timed_.push_back(c);
  WEFT_ASSERT(next_due_ <= when);
}

// next_due_ is a lower bound: who was given more time in between is only looked at.
void Core::run_timers(uint64_t now) noexcept {
  next_due_ = UINT64_MAX;
  timed_.for_each([&](Connection& c) {
    const uint64_t when = due(c);
    if (when != 0 && when <= now && !run_timers(c, now)) return;
    const uint64_t then = due(c);
    if (then == 0) List<Connection, TimedHook>::remove(c);
    else next_due_ = std::min(next_due_, then);
  });
}

// Those that are due. False: the connection is gone.
bool Core::run_timers(Connection& c, uint64_t now) noexcept {
  WEFT_ASSERT(by_id(c.who.id) == &c && List<Connection, TimedHook>::linked(c));
  WEFT_ASSERT(c.ending.finish_due == 0 || c.ending.finishing);
  WEFT_ASSERT((c.owed.due() != 0) == List<Connection, OwedHook>::linked(c));
  return all_timers([&](auto timer) {
    const uint64_t when = due(c, timer);
    return when == 0 || now < when || on_timer(c, timer, now);
  });
}

// The timer is due. False: the connection is gone.
bool Core::on_timer(Connection& c, Timer timer, uint64_t now) noexcept {
  switch (timer) {
    case Timer::Finish:
      fail(c, core::ProviderError::PeerDied, Death::Truncated, 0);
      return false;
    case Timer::NoRoom:
      if (now - c.room.tried_at() <= SendRoom::pause_ns) {
        fail(c, core::ProviderError::PeerUnreachable, Death::NoRoom, now - c.room.since());
        return false;
      }
      c.room.forget();  // nothing more was to be sent
      break;
    case Timer::Loss: {
      const uint64_t before = c.out.lost_packets();
      const size_t lost = c.out.detect_lost(c.rtt, now);
      if (lost == 0) break;
      c.congestion->on_loss({.sign = congestion::LossSign::Reported,
                             .bytes = lost,
                             .in_flight = c.out.in_flight(),
                             .sent = c.out.next(),
                             .now = now});
      c.history.on_loss(before);
      flush(c, now, true);
      break;
    }
    case Timer::Ask:  // the packet that asked, or its answer, may be lost
      c.ask_due = 0;
      if (c.out.outstanding() && c.out.unsent() == 0)
        (void)send_alone(c, PacketType::Data, wants_ack, c.out.next(), now);
      break;
    case Timer::Refusal:
      c.life.refusal_due = 0;
      if (c.life.refused_from == 0 || starved(c)) break;
      ++counters_.timeouts;  // the packet link looks for refusals after each
      (void)send_alone(c, PacketType::Data, wants_ack, c.out.next(), now);
      break;
    case Timer::Pace:
      c.pace_due = 0;
      flush(c, now, true);
      break;
    case Timer::Answer:
      return on_timeout(c, now);
    case Timer::Acknowledge:
      c.owed.on_due();
      if (!send_alone(c, PacketType::Data, 0, c.out.next(), now)) c.owed.try_later(now);
      break;
    case Timer::Count:
      break;
  }
  return true;
}

bool Core::on_timeout(Connection& c, uint64_t now) noexcept {
  WEFT_ASSERT(c.timeout_from != 0);
  const bool waits = c.out.outstanding() || c.out.unsent() != 0 || c.keepalive;
  // Time in which nobody called us is not counted: the other side may have answered, or be away as long as we were.
  const uint64_t late = now - (c.timeout_from + timeout_of(c, unvalidated(c)));
  if (late > second) c.life.silent_from = std::min(now, c.life.silent_from + late);
  if (waits && now - c.life.silent_from >= config_.dead_after) {
    fail(c, c.who.peer_id != 0 ? core::ProviderError::PeerDied : core::ProviderError::PeerUnreachable,
         Death::Silence, now - c.life.silent_from);
    return false;
  }
  ++counters_.timeouts;
  ++c.backoff;
  if (c.life.is_over(c.backoff, now)) c.life.send_error = 0;
  c.timeout_from = now;
  if (c.ending.close_sent && !c.out.outstanding()) {
    (void)send_alone(c, PacketType::Close, 0, c.out.end(), now);
    return true;
  }
  if (!c.out.outstanding()) {
    if (!waits) {
      if (c.probes == 0 || starved(c)) {
        c.timeout_from = 0;
        c.backoff = 0;
        return true;
      }
      --c.probes;
    }
    (void)send_alone(c, PacketType::Data, wants_ack, c.out.next(), now);
    return true;
  }
  if (unvalidated(c)) {  // a sign of life first
    (void)send_alone(c, PacketType::Data, wants_ack, c.out.next(), now);
    return true;
  }
  // Little is repeated whole: a peer that computes, and does not call us, then has all of it.
  c.all_again = c.out.is_little(repeat_bytes_max, repeat_packets_max);
  WEFT_ASSERT(c.mtu.bytes() != 0 && c.out.outstanding());
  const size_t in_flight = c.out.in_flight();
  const size_t suspected = c.out.suspect(c.all_again ? SIZE_MAX : 0);
  c.congestion->on_loss({.sign = congestion::LossSign::Timeout,
                         .bytes = suspected,
                         .in_flight = in_flight,
                         .sent = c.out.next(),
                         .now = now,
                         .timeouts = c.backoff});
  if (c.backoff >= 4) c.mtu.shrink(now);
  c.one_more = true;
  flush(c, now, true);
  if (config_.completion.assumes(c.backoff)) assume_delivered(c);
  return true;
}

// A peer that we have met, whose machine does not say that it is gone, and that was silent in so many timeouts: it does not call its library, and its
// socket keeps what came, as far as there is room. An answer may never come, if its last one was lost and it has nothing to wait for.
void Core::assume_delivered(Connection& c) noexcept {
  if (c.who.peer_id == 0 || unvalidated(c) || c.life.refused_from != 0 || c.life.send_error != 0) return;
  const size_t kept = c.out.count_kept(c.history.is_lossy() ? 2 : 1);
  if (!c.out.all_repeated(config_.completion.repetitions(), kept)) return;
  // After the completion the program may change its memory, so retransmissions need a copy.
  if (c.out.has_borrowed()) {
    if (!c.out.copy_out(pool_)) return;
    output_.release_parts();
  }
  const uint64_t end = c.out.end_of(kept);
  const uint64_t before = completed(c);
  WEFT_ASSERT(!c.out.has_borrowed() && end <= c.out.next());
  if (end <= before) return;
  counters_.assumed += end - before;
  c.assumed_delivered = end;
}

// --- the end ---

void Core::begin_close(uint64_t now) noexcept {
  closing_ = true;
  close_began_ = now;
  for (Connection* c : slots_) {
    if (c == nullptr) continue;
    if (c->who.peer_id == 0 && c->out.end() == 0) {
      c->ending.closed = true;
      continue;
    }
    if (c->out.unsent() != 0 || c->owed.due() != 0) {
      if (c->owed.due() != 0) c->owed.hurry();
      flush(*c, now, true);
    }
  }
}

void Core::say_close(Connection& c, uint64_t now, unsigned times) noexcept {
  WEFT_ASSERT(closing_);
  for (unsigned i = 0; i < times; ++i) (void)send_alone(c, PacketType::Close, 0, c.out.end(), now);
}

// Of a closing endpoint: nothing came since it began. What comes in the first moment may have been in our own socket before.
bool Core::is_silent(const Connection& c, uint64_t now) const noexcept {
  if (c.life.heard_at > close_began_ + ms) return false;
  return now - std::max(c.life.heard_at, close_began_) > std::min(4 * c.rtt.timeout(0), silence_hurried);
}

bool Core::closed(uint64_t now, bool hurried) noexcept {
  constexpr unsigned good_byes = 3;
  WEFT_ASSERT(closing_);
  bool all = true;
  for (Connection* c : slots_) {
    if (c == nullptr || c->ending.closed) continue;
    const bool sound = is_sound(*c);
    const uint64_t arrived = sound ? completed(*c) : c->out.acked();
    if (hurried && c->who.peer_id != 0 && !unvalidated(*c) &&
        (arrived == c->out.end() || is_silent(*c, now))) {
      for (unsigned i = 1; i < good_byes && c->out.outstanding(); ++i) {
        c->all_again = c->out.is_little(repeat_bytes_max, repeat_packets_max);
        repeats_on_purpose_ = c->all_again;
        if (c->all_again) c->out.repeat_all();
        else (void)c->out.suspect(0);
        flush(*c, now, true);
        repeats_on_purpose_ = false;
      }
      say_close(*c, now, good_byes);
      c->ending.closed = true;
      continue;
    }
    if (!c->ending.close_sent && arrived == c->out.end()) {
      c->ending.close_sent = true;
      c->ending.close_sent_at = now;
      c->backoff = 0;
      c->timeout_from = now;
      say_close(*c, now, sound ? good_byes : 1);
      if (sound) {
        c->ending.closed = true;
        continue;
      }
      touch(*c);
    }
    // The good-bye itself is a courtesy, and said a few times; bytes are worth more.
    const uint64_t linger = c->ending.close_sent ? std::max(5 * ms, 2 * c->rtt.smoothed())
                                                 : std::max(60 * ms, 8 * c->rtt.timeout(0));
    if (now - std::max(c->ending.close_sent ? c->ending.close_sent_at : c->life.heard_at, close_began_) >
            linger ||
        now - close_began_ > second) {
      if (!c->ending.close_sent) (void)send_alone(*c, PacketType::Close, 0, c->out.end(), now);
      c->ending.closed = true;
    }
    all = all && c->ending.closed;
  }
  return all;
}

}  // namespace weft::proto::reliable
