// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The composite link, cold side: opening, choosing a path, meeting and losing peers. Included by link.hpp.
#pragma once

#include "link/composite/link.hpp"

namespace weft::link::composite {

template <class N, class F, class Names>
Result<void> Link<N, F, Names>::open(std::string_view name, Events& events) {
  events_ = &events;
  near_events_.link = this;
  far_events_.link = this;
  Parts parts{};
  if (!name.empty() && !Names::split(std::as_bytes(std::span(name)), parts))
    return Error{EINVAL, std::string(name) + " is no address of this provider"};
  Names::prepare(far_, parts);
  const auto wish = parts.far_address();
  if (auto ok = far_.open({reinterpret_cast<const char*>(wish.data()), wish.size()}, far_events_); !ok)
    return ok;
  if constexpr (BothHaveSleep<N, F>) {
    auto set = os::PollSet::create();
    const int watched = far_.wait_fd();
    if (!set || watched < 0 || !set->add(watched)) {
      const int code = set ? errno : set.error().code;
      far_.close();
      return Error{code, "nothing to sleep on: " + os::with_remedy(code)};
    }
    both_ = std::move(*set);
  }
  const auto far_address = far_.address();
  parts = {};
  parts.set_far(far_address);
  host_ = Names::host();
  if (host_ != 0 && Names::near_allowed()) {
    if (auto ok = near_.open("", near_events_); !ok) {
      warn(("only the network is used: " + ok.error().why).c_str());
    } else if (!watch_near()) {
      near_.close();
    } else {
      near_on_ = true;
      parts.set_near(near_.address());
      parts.host = host_;
    }
  }
  owner_pid_ = os::process_id();
  if (!Names::join(parts, address_)) {
    close();
    return Error{EADDRNOTAVAIL, "the network address of this endpoint has no text form"};
  }
  if constexpr (proto::TakesAlias<Near>)
    if (near_on_) near_.set_alias(address_);
  if constexpr (proto::TakesAlias<Far>) far_.set_alias(address_);
  return {};
}

template <class N, class F, class Names>
void Link<N, F, Names>::close() noexcept {
  if (owner_pid_ == 0) return;
  if (near_on_) near_.close();
  far_.close();
  peers_.clear();
  both_.reset();
  near_on_ = false;
  owner_pid_ = 0;
}

template <class N, class F, class Names>
bool Link<N, F, Names>::arm() noexcept requires BothHaveSleep<N, F> {
  if (near_on_ && !near_.arm()) return false;
  if (far_.arm()) return true;
  if (near_on_) near_.disarm();
  far_countdown_ = 1;  // there is work
  far_heard_ = arch::ticks();
  return false;
}

template <class N, class F, class Names>
void Link<N, F, Names>::disarm() noexcept requires BothHaveSleep<N, F> {
  if (near_on_) near_.disarm();
  far_.disarm();
  far_countdown_ = 1;
  far_heard_ = arch::ticks();
}

// A program may name a peer by its network address alone; who greets us names itself in full. Both mean one peer, whichever came first.
template <class N, class F, class Names>
typename Link<N, F, Names>::PeerBase* Link<N, F, Names>::find(const Name& name, const Parts& parts,
                                                              bool greets) const {
  if (PeerBase* known = peers_.find(Table::name_of(name)); known != nullptr) return known;
  Parts other = parts;
  Name bare{};
  if (parts.near_length != 0) {
    other.near_length = 0;
    other.host = 0;
    if (!Names::join(other, bare)) return nullptr;
    return peers_.find(Table::name_of(bare));
  }
  // Anybody may call himself by a network address; one who shares memory with us would have named himself in full.
  if constexpr (proto::TakesAlias<Far>)
    if (greets) return nullptr;
  for (const auto& [key, peer] : peers_) {
    if (!Names::split(std::as_bytes(std::span(key)), other)) continue;
    const auto ours = parts.far_address();
    const auto theirs = other.far_address();
    if (std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end())) return peer;
  }
  return nullptr;
}

// Near when the peer says that it shares memory with us and is there to be met. Asked once, before anything is sent.
template <class N, class F, class Names>
Path Link<N, F, Names>::choose(const Parts& parts) const noexcept {
  if (!near_on_ || parts.near_length == 0 || parts.host != host_) return Path::Far;
  if constexpr (KnowsPresence<Near>)
    if (!Near::is_present(parts.near_address())) return Path::Far;
  return Path::Near;
}

template <class N, class F, class Names>
typename Link<N, F, Names>::PeerBase* Link<N, F, Names>::connect(std::span<const std::byte> address,
                                                                 int& error) {
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
  if (path == Path::Far) return connect_far(name, parts, error);
  PeerBase* peer = connect_near(name, parts, error);
  if (peer != nullptr) return peer;
  error = 0;  // no memory or descriptor for a channel, and nothing has been sent: the network serves, too
  peer = connect_far(name, parts, error);
  if (peer != nullptr) peer->path = Path::Far;  // it may have spoken to us first, by the near path
  return peer;
}

template <class N, class F, class Names>
typename Link<N, F, Names>::PeerBase* Link<N, F, Names>::connect_near(const Name& name, const Parts& parts,
                                                                      int& error) {
  const Connecting meant(connecting_, name);
  auto* base = near_.connect(parts.near_address(), error);
  return base != nullptr ? &PeerBase::of_near(*base) : nullptr;
}

template <class N, class F, class Names>
typename Link<N, F, Names>::PeerBase* Link<N, F, Names>::connect_far(const Name& name, const Parts& parts,
                                                                     int& error) {
  const Connecting meant(connecting_, name);
  auto* base = far_.connect(parts.far_address(), error);
  if (base == nullptr) return nullptr;
  far_countdown_ = 1;
  far_heard_ = arch::ticks();
  return &PeerBase::of_far(*base);
}

// Somebody is met on one side: the peer of that name, made when it is new. Null: no name of ours.
template <class N, class F, class Names>
typename Link<N, F, Names>::PeerBase* Link<N, F, Names>::appears(std::span<const std::byte> given,
                                                                 Path path) {
  Parts parts{};
  Name name{};
  if (!canonical(connecting_ != nullptr ? std::span<const std::byte>(*connecting_) : given, parts, name))
    return nullptr;
  PeerBase* known = find(name, parts, connecting_ == nullptr);
  const bool met = known != nullptr && (path == Path::Near ? known->near_met : known->far_met);
  if (known != nullptr && !met) return known;
  // A second connection under one name is a peer of its own, which only answers: we called ourselves, or it has several network addresses.
  if (met) return make(name, path);
  typename Table::Place place(peers_, Table::name_of(name));
  PeerBase* peer = make(name, path);
  place.take(*peer);
  return peer;
}

template <class N, class F, class Names>
typename Link<N, F, Names>::PeerBase* Link<N, F, Names>::make(const Name& name, Path path) {
  PeerBase* peer = events_->make_peer(name);
  peer->path = path;
  peer->name = name;
  return peer;
}

template <class N, class F, class Names>
typename N::PeerBase* Link<N, F, Names>::near_appears(std::span<const std::byte> name) {
  PeerBase* peer = appears(name, Path::Near);
  if (peer == nullptr) return nullptr;
  peer->near_met = true;
  return &peer->near();
}

template <class N, class F, class Names>
typename F::PeerBase* Link<N, F, Names>::far_appears(std::span<const std::byte> name) {
  PeerBase* peer = appears(name, Path::Far);
  if (peer == nullptr) return nullptr;
  peer->far_met = true;
  return &peer->far();
}

}  // namespace weft::link::composite
