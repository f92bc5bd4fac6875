// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reliable<P, Names>, part: opening, closing, polling, sleeping. Included by link.hpp.
#pragma once

#include <algorithm>
#include <new>

#include "base/settings.hpp"
#include "link/packet/middleware.hpp"
#include "link/reliable/link.hpp"

namespace weft::link::reliable {

template <proto::PacketLink P, PacketNames Names>
Result<void> Reliable<P, Names>::open(std::string_view name, Events& events) {
  auto at = names_.anywhere();
  if (!name.empty()) {
    const auto given = names_.read(std::as_bytes(std::span(name)));
    if (!given) return Error{EINVAL, "the source address is none of this address format"};
    at = *given;
  }
  const packet::Audience audience{warning_function(), warning_context(), note_, noted_};
  if (auto opened = packet::open_observed(packets_, at.bytes(), audience); !opened) return opened;
  // What is sent is in memory of ours, or of the program until it is acknowledged (send_zero_copy).
  if constexpr (proto::HasPartsThatStay<P>) packets_.set_parts_stay(true);
  const auto own = Names::from(packets_.address());
  if constexpr (ExplainsAddresses<Names>) {
    if (std::string fault = Names::fault(packets_.address()); !fault.empty())
      return Error{EINVAL, std::move(fault)};
  }
  if (!own) return Error{EINVAL, "the packet link has no address"};
  proto::reliable::Config config;
  // Later than every endpoint that was here before, as long as the clock of the day does not go back; when it does, peers say so.
  config.incarnation = os::realtime_ns();
  config.seed = os::random_bits();
  const proto::PacketLinkTraits traits = proto::traits_of(packets_);
  config.check = !traits.checks_packets;
  config.length = proto::HasTrueSources<P> && !config.check;
  config.segments_max = traits.segments_max;
  config.segmented_bytes_max = traits.segmented_bytes_max;
  if (traits.receive_buffer_bytes != SIZE_MAX)
    config.receive_bytes = traits.receive_buffer_bytes / 2;  // the rest is bookkeeping
  config.receive_cost = traits.receive_packet_bytes;
  config.dead_after = settings::number("WEFT_RELIABLE_TIMEOUT_S") * proto::reliable::second;
  config.completion = proto::reliable::CompletionPolicy::from(
      static_cast<unsigned>(settings::number("WEFT_RELIABLE_ASSUME")));
  proto::reliable::PacketOutput& output = *this;
  proto::reliable::Upper& upper = *this;
  core_ = std::make_unique<proto::reliable::Core>(output, upper);
  if (!core_->open(packets_.address(), config)) return Error{ENOMEM, "no memory for connections"};
  if constexpr (proto::HasRefusals<P>) packets_.watch_refusals();
  name_ = names_.write(*own);
  events_ = &events;
  owner_pid_ = os::process_id();
  shown_ = os::StatisticsEntry::open(os::StatisticsEntry::Kind::Path, "ofi_rxd", Names::text_of(*own),
                                     events.shown_as());
  show();
  return {};
}

template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::close() noexcept {
  if (core_ != nullptr && belongs_here()) {
    const uint64_t began = os::monotonic_ns();
    core_->begin_close(began);
    PacketHandler packets{*core_};
    const bool hurried = Linger::is_spent(began);
    while (!core_->closed(os::monotonic_ns(), hurried)) {
      (void)packets_.poll(packets);
      core_->end_poll(os::monotonic_ns());
    }
    Linger::note(began, os::monotonic_ns());
    log_statistics();
    lost_before_ = UINT64_MAX;
    show();
  }
  shown_.close();
  core_.reset();
  broken_.clear();
  stalled_.clear();
  packets_.close();
  both_.reset();
  timer_.close();
}

template <proto::PacketLink P, PacketNames Names>
Peer* Reliable<P, Names>::connect(std::span<const std::byte> address, int& error) {
  error = 0;
  const auto to = read_name(address);
  if (!to || !Names::is_destination(*to)) {
    error = EINVAL;
    return nullptr;
  }
  if (auto* known = core_->find(to->bytes()); known != nullptr) return static_cast<Peer*>(known);
  stalled_.reserve(core_->size() + 1);
  broken_.reserve(core_->size() + 1);
  Peer* peer = events_->make_peer(names_.write(*to).span());
  if (core_->add(*peer, to->bytes())) return peer;
  events_->peer_lost(*peer, core::ProviderError::NoChannel);
  error = ENOMEM;
  return nullptr;
}

template <proto::PacketLink P, PacketNames Names>
proto::reliable::Connection* Reliable<P, Names>::accept(std::span<const std::byte> address) noexcept try {
  const auto from = Names::from(address);
  if (!from || from->bytes().size() != address.size()) return nullptr;
  stalled_.reserve(core_->size() + 1);
  broken_.reserve(core_->size() + 1);
  Peer* peer = events_->make_peer(names_.write(*from).span());
  if (core_->add(*peer, address)) return peer;
  events_->peer_lost(*peer, core::ProviderError::NoChannel);
  return nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::break_off(Peer& peer) noexcept {
  peer.broken = true;
  broken_.push_back(&peer);  // reserved
}

template <proto::PacketLink P, PacketNames Names>
template <class Handler>
int Reliable<P, Names>::poll(Handler& handler) noexcept {
  FeederOf<Handler> feeder(handler);
  feeder_ = &feeder;
  for (size_t i = stalled_.size(); i-- > 0;) {
    Peer& peer = *stalled_[i];
    feeder.retry(peer);
    if (peer.parser.error() != 0) {
      if (!peer.broken) break_off(peer);
    } else if (peer.parser.stalled()) {
      continue;
    }
    stalled_.erase(stalled_.begin() + static_cast<std::ptrdiff_t>(i));
    core_->passed_on(peer);
  }
  PacketHandler packets{*core_};
  (void)packets_.poll(packets);
  const uint64_t now = os::monotonic_ns();
  core_->end_poll(now);
  if (now >= next_check_ || core_->counters().timeouts != timeouts_seen_) [[unlikely]]
    check_all(handler, now);
  while (!broken_.empty()) [[unlikely]] {
      Peer& peer = *broken_.back();
      broken_.pop_back();
      std::erase(stalled_, &peer);
      warn_of_cut_off(peer);
      core_->remove(peer, now);
      events_->peer_lost(peer, core::ProviderError::PeerMisbehaved);
    }
  feeder_ = nullptr;
  report_background_work();
  return feeder.frames;
}

// Rarely: who said nothing for long though the engine waits for it, and whom the kernel knows to be gone.
template <proto::PacketLink P, PacketNames Names>
template <class Handler>
void Reliable<P, Names>::check_all(Handler& handler, uint64_t now) noexcept {
  if constexpr (proto::HasRefusals<P>) {
    if (core_->counters().timeouts != timeouts_seen_)
      packets_.take_refusals([&](std::span<const std::byte> place) { core_->on_refused(place, now); });
  }
  if constexpr (proto::HasSendErrors<P>) {
    if (core_->counters().timeouts != timeouts_seen_)
      packets_.take_send_errors(
          [&](std::span<const std::byte> place, int error) { core_->on_send_error(place, error, now); });
  }
  timeouts_seen_ = core_->counters().timeouts;
  if (now < next_check_) return;
  next_check_ = now + check_ns;
  show();
  warn_of_anomalies();
  core_->for_each([&](proto::reliable::Connection& c) {
    const Peer& peer = static_cast<Peer&>(c);
    bool waits = peer.parser.inside();
    if constexpr (proto::HasAwaited<Handler, Peer>) waits = waits || handler.awaits(peer);
    if (waits) core_->probe_if_silent(c, quiet_ns, now);
  });
}

template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::show() noexcept {
  if (!shown_) return;
  using Value = os::StatisticsEntry::Value;
  const proto::reliable::Statistics now = statistics();
  // A counter only grows, and losses may be undone by what the peer reports: shown is what was one in the last look already.
  lost_shown_ = std::max(lost_shown_, std::min(lost_before_, now.lost));
  lost_before_ = now.lost;
  shown_.show({{Value::PacketsSent, now.sent},
               {Value::PacketsReceived, now.received},
               {Value::Retransmissions, now.sent_again},
               {Value::Timeouts, now.timeouts},
               {Value::Assumed, now.assumed},
               {Value::Duplicates, now.duplicates},
               {Value::Gaps, now.out_of_order},
               {Value::Malformed, now.damaged},
               {Value::Lost, lost_shown_},
               {Value::Peers, now.peers},
               {Value::RoundTripNs, now.round_trip_ns}});
}

// --- what a person should know ---

template <proto::PacketLink P, PacketNames Names>
std::string Reliable<P, Names>::text_of(const proto::reliable::PacketAddress& place) {
  if (const auto address = Names::from(place.span())) return Names::text_of(*address);
  std::string text;
  for (const std::byte byte : place.span()) {
    constexpr std::string_view digits = "0123456789abcdef";
    text += digits[std::to_integer<size_t>(byte >> 4)];
    text += digits[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return std::to_string(place.length) + " bytes that are no address (" + text + ')';
}

template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::warn_limited(std::string what) noexcept try {
  if (warnings_ >= warnings_max || !has_warning()) return;
  if (++warnings_ == warnings_max) what += ". Others are not named any more";
  warn(what.c_str());
} catch (const std::bad_alloc&) {  // then nobody is told
}

template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::warn_of_cut_off(const Peer& peer) noexcept try {
  warn_limited("peer " + text_of(peer.who.address) + " sent what is no frame, and is cut off");
} catch (const std::bad_alloc&) {
}

template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::warn_of_death(const Peer& peer) noexcept try {
  using proto::reliable::Death;
  warn_of_anomalies();
  const uint64_t tenths = peer.ending.dead_ns / (proto::reliable::second / 10);
  const std::string span = std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " s";
  std::string text = "peer " + text_of(peer.who.address);
  switch (peer.ending.death) {
    case Death::None:
      return;
    case Death::Silence:
      text += peer.who.peer_id != 0 ? " is taken for dead: it has been silent for " + span
                                    : " is taken for unreachable: nobody has answered there for " + span;
      text += ", and we waited for it (WEFT_RELIABLE_TIMEOUT_S)";
      break;
    case Death::NoRoom:
      text += " is taken for unreachable: send() has had no room for a packet to it for " + span +
              " (EAGAIN; WEFT_RELIABLE_TIMEOUT_S)";
      break;
    case Death::Refusals:
      text += peer.who.peer_id != 0 ? " is dead" : " is unreachable";
      if (peer.life.send_error != 0) text += ": no packet could be sent to it for " + span;
      else text += ": nobody receives there any more, as the packet link has said for " + span;
      break;
    case Death::Truncated:
      text += " has left, and not all that it had sent came";
      break;
  }
  if (peer.life.send_error != 0)
    text += "; the last error was: " + std::string(std::strerror(peer.life.send_error));
  if constexpr (proto::HasHints<P>) text += packets_.hints();
  if constexpr (proto::HasTrueSources<P>) {
    if (const uint64_t displaced = core_->counters().displaced; displaced != 0)
      text += "; " + std::to_string(displaced) +
              " packets came from another source than their sender's address()";
    if (const uint64_t malformed = core_->counters().malformed; malformed != 0)
      text += "; " + std::to_string(malformed) + " packets were damaged";
  }
  warn_limited(std::move(text));
} catch (const std::bad_alloc&) {
}

// What the contract of packet links forbids, and only packets show: each kind once.
template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::warn_of_anomalies() noexcept try {
  if constexpr (!proto::HasTrueSources<P>) return;
  const auto& counters = core_->counters();
  const auto& seen = core_->oddities();
  if (counters.displaced != 0 && !warned_displaced_) {
    warned_displaced_ = true;
    warn_limited(
        "a packet came from " + text_of(seen.source) + ", and its sender says that it is at " +
        text_of(seen.address) +
        ": the source that receive() shows must be byte by byte the address() of the sender, and what "
        "send() takes");
  }
  if (counters.namesakes != 0 && !warned_namesake_) {
    warned_namesake_ = true;
    warn_limited(
        "another endpoint says that it is at the address of this one, " +
        Names::text_of(*Names::from(core_->address())) +
        ": open() with an empty address must choose one that nobody has, in no process of any machine, "
        "and with one that somebody has it must return -EADDRINUSE");
  }
  if (counters.wrong_lengths != 0 && !warned_length_) {
    warned_length_ = true;
    warn_limited(
        "a packet that was sent with " + std::to_string(seen.sent_bytes) + " bytes came with " +
        std::to_string(seen.came_bytes) +
        ": receive() must show packets as they were given to send(). Those of other length are lost");
  }
  if (counters.malformed > counters.wrong_lengths && !warned_malformed_ && !core_->checks()) {
    warned_malformed_ = true;
    warn_limited(
        "packets come that are none of ours, or were altered on the way, though alters_packets says that "
        "this does not happen. They are lost");
  }
} catch (const std::bad_alloc&) {
}

// What was lost, sent again or dropped, when there was any.
template <proto::PacketLink P, PacketNames Names>
void Reliable<P, Names>::log_statistics() noexcept try {
  if (note_ == nullptr) return;
  const proto::reliable::Statistics all = core_->statistics();
  if (all.sent_again == 0 && all.lost == 0 && all.timeouts == 0 && all.damaged == 0 && all.not_taken == 0 &&
      all.duplicates == 0)
    return;
  std::string text = "packets:";
  const auto add = [&](uint64_t count, const char* what) {
    if (text.back() != ':') text += ',';
    text += ' ';
    text += std::to_string(count);
    text += what;
  };
  add(all.sent, " sent");
  add(all.sent_again, " of them again");
  add(all.copies, " copies");
  add(all.acks_sent, " acknowledgements");
  add(all.lost, " found lost");
  add(all.timeouts, " timeouts");
  add(all.assumed, " bytes assumed to be delivered");
  text += ';';
  text.append(" ").append(std::to_string(all.received)).append(" received");
  add(all.duplicates, " duplicates");
  add(all.out_of_order, " out of order");
  add(all.not_taken, " not taken");
  add(all.stale, " stale");
  add(all.damaged, " damaged");
  if (all.round_trip_ns != 0) add(all.round_trip_ns / 1000, " us of round trip");
  note_(noted_, text.c_str());
} catch (const std::bad_alloc&) {
}

template <proto::PacketLink P, PacketNames Names>
int Reliable<P, Names>::wait_fd() noexcept {
  if (both_) return both_.get();
  int packets_fd = -1;
  if constexpr (proto::HasSleep<P>) packets_fd = packets_.wait_fd();
  if (packets_fd < 0) return -1;
  auto set = os::PollSet::create();
  auto timer = os::Timer::create();
  if (!set || !timer) return -1;
  if (!set->add(packets_fd) || !set->add(timer->fd().get())) return -1;
  timer_ = std::move(*timer);
  both_ = std::move(*set);
  return both_.get();
}

template <proto::PacketLink P, PacketNames Names>
bool Reliable<P, Names>::arm() noexcept {
  if (!timer_.fd()) return false;
  bool armed = false;
  if constexpr (proto::HasSleep<P>) armed = packets_.arm();
  timeouts_seen_ = UINT64_MAX;  // a kept error makes the descriptor readable: the next poll looks for it
  const uint64_t now = os::monotonic_ns();
  core_->send_owed_acks(now);
  if (core_->has_ready() || !stalled_.empty() || !broken_.empty()) return false;
  const uint64_t due = core_->next_due();
  timer_.set(due == UINT64_MAX ? 0 : due > now ? due - now : 1);
  return armed;
}

}  // namespace weft::link::reliable
