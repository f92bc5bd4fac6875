// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The composite link, cold side: opening, choosing a path, meeting and losing peers. Included by link.hpp.
#pragma once

#include "link/composite/link.hpp"

namespace weft::link::composite {

template <class N, class F, class Names, class Clock>
Result<void> Link<N, F, Names, Clock>::open(std::string_view name, Events& events) {
  events_ = &events;
  local_events_.link = this;
  remote_events_.link = this;
  Parts parts{};
  if (!name.empty() && !Names::split(std::as_bytes(std::span(name)), parts))
    return Error{EINVAL, std::string(name) + " is no address of this provider"};
  Names::prepare(remote_, parts);
  const auto wish = parts.remote_address();
  if (auto ok = remote_.open({reinterpret_cast<const char*>(wish.data()), wish.size()}, remote_events_); !ok)
    return ok;
  if constexpr (BothHaveSleep<N, F>) {
    auto set = os::PollSet::create();
    const int watched = remote_.wait_fd();
    if (!set || watched < 0 || !set->add(watched)) {
      const int code = set ? errno : set.error().code;
      remote_.close();
      return Error{code, "nothing to sleep on: " + os::with_remedy(code)};
    }
    both_ = std::move(*set);
  }
  const auto remote_address = remote_.address();
  parts = {};
  parts.set_remote(remote_address);
  host_ = Names::host();
  if (host_ != 0 && Names::local_allowed()) {
    if (auto ok = local_.open("", local_events_); !ok) {
      warn(("only the network is used: " + ok.error().why).c_str());
    } else if (!watch_local()) {
      local_.close();
    } else {
      local_on_ = true;
      parts.set_local(local_.address());
      parts.host = host_;
    }
  }
  owner_pid_ = os::process_id();
  opened_ticks_ = Clock::ticks();
  opened_ns_ = Clock::now_ns();
  if (!Names::join(parts, address_)) {
    close();
    return Error{EADDRNOTAVAIL, "the network address of this endpoint has no text form"};
  }
  if constexpr (proto::TakesAlias<Local>)
    if (local_on_) local_.set_alias(address_);
  if constexpr (proto::TakesAlias<Remote>) remote_.set_alias(address_);
  return {};
}

template <class N, class F, class Names, class Clock>
void Link<N, F, Names, Clock>::close() noexcept {
  if (owner_pid_ == 0) return;
  if (local_on_) local_.close();
  remote_.close();
  peers_.clear();
  both_.reset();
  local_on_ = false;
  owner_pid_ = 0;
}

template <class N, class F, class Names, class Clock>
bool Link<N, F, Names, Clock>::arm() noexcept requires BothHaveSleep<N, F> {
  if (local_on_ && !local_.arm()) return false;
  if (remote_.arm()) return true;
  if (local_on_) local_.disarm();
  schedule_.expect_remote(Clock::ticks());  // it has work
  return false;
}

template <class N, class F, class Names, class Clock>
void Link<N, F, Names, Clock>::disarm() noexcept requires BothHaveSleep<N, F> {
  if (local_on_) local_.disarm();
  remote_.disarm();
  schedule_.expect_remote(Clock::ticks());
}

// Once, over 10 ms at least: the two clocks are read one after the other.
template <class N, class F, class Names, class Clock>
void Link<N, F, Names, Clock>::calibrate() noexcept {
  constexpr uint64_t measured_us_min = 10'000;
  if (opened_ns_ == 0) return;
  const uint64_t us = (Clock::now_ns() - opened_ns_) / 1'000;
  if (us < measured_us_min) return;
  schedule_.calibrate(std::max<uint64_t>((Clock::ticks() - opened_ticks_) / us, 1));
  opened_ns_ = 0;
}

// A program may name a peer by its network address alone; a Hello has the full name. Both mean one peer, whichever came first.
template <class N, class F, class Names, class Clock>
typename Link<N, F, Names, Clock>::PeerBase* Link<N, F, Names, Clock>::find(const Name& name,
                                                                            const Parts& parts,
                                                                            bool is_hello) const {
  if (PeerBase* known = peers_.find(Table::name_of(name)); known != nullptr) return known;
  Parts other = parts;
  Name bare{};
  if (parts.local_length != 0) {
    other.local_length = 0;
    other.host = 0;
    if (!Names::join(other, bare)) return nullptr;
    return peers_.find(Table::name_of(bare));
  }
  // Anybody may call himself by a network address; one who shares memory with us would have named himself in full.
  if constexpr (proto::TakesAlias<Remote>)
    if (is_hello) return nullptr;
  for (const auto& [key, peer] : peers_) {
    if (!Names::split(std::as_bytes(std::span(key)), other)) continue;
    const auto ours = parts.remote_address();
    const auto theirs = other.remote_address();
    if (std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end())) return peer;
  }
  return nullptr;
}

// Local when the peer says that it shares memory with us and is there to be met. Asked once, before anything is sent.
template <class N, class F, class Names, class Clock>
Path Link<N, F, Names, Clock>::choose(const Parts& parts) const noexcept {
  if (!local_on_ || parts.local_length == 0 || parts.host != host_) return Path::Remote;
  if constexpr (KnowsPresence<Local>)
    if (!Local::is_present(parts.local_address())) return Path::Remote;
  return Path::Local;
}

template <class N, class F, class Names, class Clock>
typename Link<N, F, Names, Clock>::PeerBase* Link<N, F, Names, Clock>::connect(
    std::span<const std::byte> address, int& error) {
  error = 0;
  Parts parts{};
  Name name{};
  if (!canonical(address, parts, name)) {
    error = EINVAL;
    return nullptr;
  }
  PeerBase* known = find(name, parts, false);
  if (known != nullptr) {
    name = known->name;
    (void)Names::split(name, parts);
  }
  const Path path = known != nullptr ? known->path : choose(parts);
  if (path == Path::Remote) return connect_remote(name, parts, error);
  PeerBase* peer = connect_local(name, parts, error);
  if (peer != nullptr) return peer;
  error = 0;  // no memory or descriptor for a channel, and nothing has been sent: the network serves, too
  peer = connect_remote(name, parts, error);
  if (peer != nullptr) peer->path = Path::Remote;  // it may have spoken to us first, by the local path
  return peer;
}

template <class N, class F, class Names, class Clock>
typename Link<N, F, Names, Clock>::PeerBase* Link<N, F, Names, Clock>::connect_local(const Name& name,
                                                                                     const Parts& parts,
                                                                                     int& error) {
  const Connecting meant(connecting_, name);
  auto* base = local_.connect(parts.local_address(), error);
  return base != nullptr ? &PeerBase::of_local(*base) : nullptr;
}

template <class N, class F, class Names, class Clock>
typename Link<N, F, Names, Clock>::PeerBase* Link<N, F, Names, Clock>::connect_remote(const Name& name,
                                                                                      const Parts& parts,
                                                                                      int& error) {
  const Connecting meant(connecting_, name);
  auto* base = remote_.connect(parts.remote_address(), error);
  if (base == nullptr) return nullptr;
  schedule_.expect_remote(Clock::ticks());
  return &PeerBase::of_remote(*base);
}

// Somebody is met on one side: the peer of that name, made when it is new. Null: no name of ours.
template <class N, class F, class Names, class Clock>
typename Link<N, F, Names, Clock>::PeerBase* Link<N, F, Names, Clock>::appears(
    std::span<const std::byte> given, Path path) {
  Parts parts{};
  Name name{};
  if (!canonical(connecting_ != nullptr ? std::span<const std::byte>(*connecting_) : given, parts, name))
    return nullptr;
  PeerBase* known = find(name, parts, connecting_ == nullptr);
  const bool met = known != nullptr && (path == Path::Local ? known->local_met : known->remote_met);
  if (known != nullptr && !met) return known;
  // A second connection under one name is a peer of its own, which only answers: we called ourselves, or it has several network addresses.
  if (met) return make(name, path);
  typename Table::Reservation reservation(peers_, Table::name_of(name));
  PeerBase* peer = make(name, path);
  reservation.assign(*peer);
  return peer;
}

template <class N, class F, class Names, class Clock>
typename Link<N, F, Names, Clock>::PeerBase* Link<N, F, Names, Clock>::make(const Name& name, Path path) {
  PeerBase* peer = events_->make_peer(name);
  peer->path = path;
  peer->name = name;
  return peer;
}

template <class N, class F, class Names, class Clock>
typename N::PeerBase* Link<N, F, Names, Clock>::local_appears(std::span<const std::byte> name) {
  PeerBase* peer = appears(name, Path::Local);
  if (peer == nullptr) return nullptr;
  peer->local_met = true;
  return &peer->local();
}

template <class N, class F, class Names, class Clock>
typename F::PeerBase* Link<N, F, Names, Clock>::remote_appears(std::span<const std::byte> name) {
  PeerBase* peer = appears(name, Path::Remote);
  if (peer == nullptr) return nullptr;
  peer->remote_met = true;
  return &peer->remote();
}

}  // namespace weft::link::composite
