// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: errors of transmit operations, and those that have no entry in the completion queue (docs/engine.md, "Counted errors").
// Included by engine.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

// The entry of an operation that failed; of one without a completion only if the program asked for such entries.
template <Link L>
void Engine<L>::push_failure(const Failed& failed, int status, core::ProviderError why) noexcept {
  if (failed.silent && why == core::ProviderError::Cancelled) return;  // by the program itself
  if (failed.silent && (!limits_.inject_errors || failed.tx.cq == nullptr)) {
    if (losing_.peer == &failed.peer) ++losing_.silent;
    else tell_unreported(failed.peer, 1, status, why, false);
    return;
  }
  if (failed.tx.cq == nullptr) return;
  core::CompletionError error;
  error.base = {failed.context, failed.flags, 0, nullptr, 0, failed.tag, FI_ADDR_NOTAVAIL};
  error.err = status;
  error.prov_errno = static_cast<int>(why);
  if (failed.silent) {
    name_peer(error, failed.peer);
  } else if (losing_.peer == &failed.peer && (losing_.owed || (losing_.silent != 0 && !losing_.in_flight))) {
    error.prov_errno = static_cast<int>(core::with_earlier(why));
    losing_.told = true;
  }
  failed.tx.cq->push_error(error);
}

// An entry without a context says at least which peer it is about.
template <Link L>
void Engine<L>::name_peer(core::CompletionError& error, const Peer& peer) noexcept {
  error.err_data_size = peer.av_address.len;
  std::memcpy(error.err_data.data(), peer.av_address.bytes.data(), peer.av_address.len);
}

template <Link L>
void Engine<L>::tell_unreported(const Peer& peer, uint64_t count, int status, core::ProviderError why,
                                bool is_lost) noexcept {
  unreported_ += count;
  if (watcher_ != nullptr)
    watcher_->unreported({.peer = {peer.av_address.bytes.data(), peer.av_address.len},
                          .err = status,
                          .prov_errno = static_cast<int>(why),
                          .peer_lost = is_lost});
}

// The peer is about to lose its operations. What was said to be complete, or needed no completion, went before all of them.
template <Link L>
void Engine<L>::begin_losing(Peer& peer, int status, core::ProviderError why) noexcept {
  WEFT_ASSERT(losing_.peer == nullptr);
  losing_ = {};
  losing_.peer = &peer;
  losing_.owed = forget_owed(peer.av_address);
  const uint8_t kinds = unread_kinds(peer, why);
  if (kinds == 0) return;
  if (reporting_->sends != nullptr) reporting_->sends->add_error(1);
  if (!limits_.inject_errors || reporting_->cq == nullptr) {
    losing_.silent = 1;
    losing_.owed = true;
    return;
  }
  core::CompletionError error;
  error.base = {nullptr, FI_SEND, 0, nullptr, 0, 0, FI_ADDR_NOTAVAIL};
  if ((kinds & unread_tagged) != 0) error.base.flags |= FI_TAGGED;
  if ((kinds & unread_untagged) != 0) error.base.flags |= FI_MSG;
  error.err = status;
  error.prov_errno = static_cast<int>(core::ProviderError::NotReceived);
  name_peer(error, peer);
  reporting_->cq->push_error(error);
}

// Their entries are there. What they did not tell is the business of the next one to that address.
template <Link L>
void Engine<L>::end_losing(int status, core::ProviderError why) noexcept {
  WEFT_ASSERT(losing_.peer != nullptr);
  const Losing was = losing_;
  losing_ = {};
  if (was.silent != 0) tell_unreported(*was.peer, was.silent, status, why, true);
  if constexpr (!SolePeer<L>)
    if (!was.told && why != core::ProviderError::Cancelled && (was.owed || was.silent != 0))
      remember_owed(was.peer->av_address);
}

template <Link L>
void Engine<L>::remember_owed(const core::Address& address) noexcept {
  auto place = std::find(owed_.begin(), owed_.end(), core::Address());
  if (place == owed_.end()) place = owed_.begin() + static_cast<std::ptrdiff_t>(owed_next_++ % owed_.size());
  else ++owed_count_;
  *place = address;
}

template <Link L>
bool Engine<L>::forget_owed(const core::Address& address) noexcept {
  if (owed_count_ == 0 || address.len == 0) return false;
  const auto found = std::find(owed_.begin(), owed_.end(), address);
  if (found == owed_.end()) return false;
  *found = {};
  --owed_count_;
  return true;
}

// The kinds of messages that were injected, or had completed, and may not have reached the peer (Unread).
template <Link L>
uint8_t Engine<L>::unread_kinds(Peer& peer, core::ProviderError why) noexcept {
  using enum core::ProviderError;
  switch (why) {
    case PeerDied:
    case PeerClosed:
    case PeerReplaced:
    case PeerUnreachable:
    case PeerOfOtherUser:
    case OwnShortage:
    case PeerShortage:
    case DescriptorsNotPassed:
    case NoChannel:
    case PeerMisbehaved:
      break;
    default:
      return 0;  // the program itself ended it
  }
  uint8_t kinds = 0;
  visit_side(link_, peer, [&]<class S>(S& side, auto& part) {
    if constexpr (HasSendCompletion<S>)
      if (peer.quiet > side.delivered_sequence(part)) kinds = unread_some | peer.quiet_kinds;
    kinds |= side.unread(part);
  });
  return kinds;
}

}  // namespace weft::proto
