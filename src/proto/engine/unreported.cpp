// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "proto/engine/unreported.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "proto/engine/link_base.hpp"

namespace weft::proto {

namespace {

// An entry without a context says at least which peer it is about.
void name_peer(core::CompletionError& error, const PeerState& peer) noexcept {
  error.err_data_size = peer.av_address.len;
  std::memcpy(error.err_data.data(), peer.av_address.bytes.data(), peer.av_address.len);
}

}  // namespace

bool TransmitErrors::is_loss(core::ProviderError why) noexcept {
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
      return true;
    default:
      return false;
  }
}

void TransmitErrors::push(const Failed& failed, int status, core::ProviderError why) noexcept {
  if (failed.silent && why == core::ProviderError::Cancelled) return;  // by the program itself
  if (failed.silent && (!inject_errors_ || failed.tx.cq == nullptr)) {
    if (losing_.peer == &failed.peer) ++losing_.silent;
    else report_unattributed(failed.peer, 1, status, why, false);
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
    losing_.reported = true;
  }
  failed.tx.cq->push_error(error);
}

void TransmitErrors::report_unattributed(const PeerState& peer, uint64_t count, int status,
                                         core::ProviderError why, bool is_lost) noexcept {
  unreported_ += count;
  if (watcher_ != nullptr)
    watcher_->unreported({.peer = {peer.av_address.bytes.data(), peer.av_address.len},
                          .err = status,
                          .prov_errno = static_cast<int>(why),
                          .peer_lost = is_lost});
}

// The peer is about to lose its operations. What was said to be complete, or needed no completion, went before all of them.
void TransmitErrors::begin_losing(const PeerState& peer, uint8_t unread, int status) noexcept {
  WEFT_ASSERT(losing_.peer == nullptr);
  losing_ = {};
  losing_.peer = &peer;
  losing_.owed = forget_owed(peer.av_address);
  if (unread == 0) return;
  if (reporting_->sends != nullptr) reporting_->sends->add_error(1);
  if (!inject_errors_ || reporting_->cq == nullptr) {
    losing_.silent = 1;
    losing_.owed = true;
    return;
  }
  core::CompletionError error;
  error.base = {nullptr, FI_SEND, 0, nullptr, 0, 0, FI_ADDR_NOTAVAIL};
  if ((unread & unread_tagged) != 0) error.base.flags |= FI_TAGGED;
  if ((unread & unread_untagged) != 0) error.base.flags |= FI_MSG;
  error.err = status;
  error.prov_errno = static_cast<int>(core::ProviderError::NotReceived);
  name_peer(error, peer);
  reporting_->cq->push_error(error);
}

// Their entries are there. What they did not tell is the business of the next one to that address.
void TransmitErrors::end_losing(int status, core::ProviderError why) noexcept {
  WEFT_ASSERT(losing_.peer != nullptr);
  const Losing was = losing_;
  losing_ = {};
  if (was.silent != 0) report_unattributed(*was.peer, was.silent, status, why, true);
  if (remembers_ && !was.reported && why != core::ProviderError::Cancelled && (was.owed || was.silent != 0))
    remember_owed(was.peer->av_address);
}

void TransmitErrors::remember_owed(const core::Address& address) noexcept {
  auto place = std::find(owed_.begin(), owed_.end(), core::Address());
  if (place == owed_.end()) place = owed_.begin() + static_cast<std::ptrdiff_t>(owed_next_++ % owed_.size());
  else ++owed_count_;
  *place = address;
}

bool TransmitErrors::forget_owed(const core::Address& address) noexcept {
  if (owed_count_ == 0 || address.len == 0) return false;
  const auto found = std::find(owed_.begin(), owed_.end(), address);
  if (found == owed_.end()) return false;
  *found = {};
  --owed_count_;
  return true;
}

}  // namespace weft::proto
