// What happens when nothing happens: acknowledgements that waited long enough, losses, timeouts, ends.
#include <algorithm>

#include "proto/reliable/core.hpp"

namespace weft::proto::reliable {

// How long an answer is waited for. That somebody proves itself is not urgent.
static uint64_t patience_of(const Connection& c) noexcept {
  const bool waits = c.out.outstanding() || c.out.unsent() != 0 || c.keepalive || c.close_sent;
  return waits ? c.rtt.timeout(c.backoff) : second;
}

// 0: this connection waits for nothing.
uint64_t Core::due(const Connection& c) const noexcept {
  uint64_t first = UINT64_MAX;
  const auto at = [&](uint64_t time) {
    if (time != 0) first = std::min(first, time);
  };
  at(c.ack_due);
  at(c.finish_due);
  if (c.timeout_from != 0) at(c.timeout_from + patience_of(c));
  if (c.out.outstanding()) at(c.out.loss_due(c.rtt));
  return first == UINT64_MAX ? 0 : first;
}

void Core::touch(Connection& c) noexcept {
  const uint64_t when = due(c);
  if (when == 0) return;
  next_due_ = std::min(next_due_, when);
  if (!List<Connection, TimedHook>::linked(c)) timed_.push_back(c);
}

// next_due_ is a lower bound: who was given more time in between is only looked at.
void Core::run_timers(uint64_t now) noexcept {
  next_due_ = UINT64_MAX;
  timed_.for_each([&](Connection& c) {
    const uint64_t when = due(c);
    if (when != 0 && when <= now && !on_timer(c, now)) return;
    const uint64_t then = due(c);
    if (then == 0) List<Connection, TimedHook>::remove(c);
    else next_due_ = std::min(next_due_, then);
  });
}

// False: the connection is gone.
bool Core::on_timer(Connection& c, uint64_t now) noexcept {
  if (c.finish_due != 0 && now >= c.finish_due) {  // it left before all was there
    lose(c, core::ProviderError::PeerDied);
    return false;
  }
  if (const uint64_t when = c.out.loss_due(c.rtt); when != 0 && now >= when) {
    const size_t lost = c.out.detect_lost(c.rtt, now);
    c.congestion.on_loss(lost);
    if (lost != 0) flush(c, now, true);
  }
  if (c.timeout_from != 0 && now >= c.timeout_from + patience_of(c) && !on_timeout(c, now)) return false;
  if (c.ack_due != 0 && now >= c.ack_due) {
    c.answers = 0;  // no answer came along
    if (!send_alone(c, PacketType::Data, 0, c.out.next(), now)) c.ack_due = now + ack_delay;
  }
  return true;
}

bool Core::on_timeout(Connection& c, uint64_t now) noexcept {
  constexpr std::array<size_t, 3> steps{8900, 1400, 1172};
  const bool waits = c.out.outstanding() || c.out.unsent() != 0 || c.keepalive;
  if (waits && now - c.silent_from >= config_.dead_after) {
    lose(c, c.peer_id != 0 ? core::ProviderError::PeerDied : core::ProviderError::PeerUnreachable);
    return false;
  }
  ++counters_.timeouts;
  ++c.backoff;
  c.timeout_from = now;
  if (c.close_sent && !c.out.outstanding()) {
    (void)send_alone(c, PacketType::Close, 0, c.out.end(), now);
    return true;
  }
  if (!c.out.outstanding()) {
    if (!waits) {
      if (c.probes == 0) {
        c.timeout_from = 0;
        c.backoff = 0;
        return true;
      }
      --c.probes;
    }
    (void)send_alone(c, PacketType::Data, wants_ack, c.out.next(), now);
    return true;
  }
  c.congestion.on_loss(c.out.suspect_first());
  if (c.backoff >= 2) c.congestion.on_silence();
  if (c.backoff >= 4) {  // perhaps large packets vanish
    for (const size_t step : steps) {
      if (step >= c.packet_bytes) continue;
      if (c.packet_bytes_cap == 0) {
        c.capped_bytes = 0;
        c.cap_judged = false;
        ++c.caps;
      }
      c.packet_bytes_cap = step;
      c.cap_until = now + (second << std::min(c.caps, 6u));
      break;
    }
  }
  c.one_more = true;
  flush(c, now, true);
  return true;
}

// --- the end ---

void Core::begin_close(uint64_t now) noexcept {
  closing_ = true;
  close_began_ = now;
  for (Connection* c : slots_) {
    if (c == nullptr) continue;
    if (c->peer_id == 0 && c->out.end() == 0) {
      c->closed = true;
      continue;
    }
    if (c->out.unsent() != 0 || c->ack_due != 0) {
      c->ack_now = c->ack_due != 0;
      flush(*c, now, true);
    }
  }
}

bool Core::closed(uint64_t now) noexcept {
  bool all = true;
  for (Connection* c : slots_) {
    if (c == nullptr || c->closed) continue;
    if (!c->close_sent && c->out.acked() == c->out.end()) {
      c->close_sent = true;
      c->close_sent_at = now;
      c->backoff = 0;
      c->timeout_from = now;
      (void)send_alone(*c, PacketType::Close, 0, c->out.end(), now);
      touch(*c);
    }
    // The good-bye itself is a courtesy, and said a few times; bytes are worth more.
    const uint64_t patience =
        c->close_sent ? std::max(5 * ms, 2 * c->rtt.smoothed()) : std::max(60 * ms, 4 * c->rtt.timeout(0));
    if (now - std::max(c->close_sent ? c->close_sent_at : c->heard_at, close_began_) > patience ||
        now - close_began_ > second) {
      if (!c->close_sent) (void)send_alone(*c, PacketType::Close, 0, c->out.end(), now);
      c->closed = true;
    }
    all = all && c->closed;
  }
  return all;
}

}  // namespace weft::proto::reliable
