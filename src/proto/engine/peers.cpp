// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EngineCore, part: who is who and who is gone.
#include "proto/engine/engine_core.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace weft::proto {

void EngineCore::drop_cache() noexcept {
  drop_cached_destination();
  std::fill(cache_storage_.begin(), cache_storage_.end(), nullptr);
  removals_seen_ = av_removals();
}

// The peer of an address that is sent to for the first time. Where addresses have been removed it may be one that was
// inserted again, for another endpoint: that the old one has left may be behind other packets.
PeerState* EngineCore::connect(core::Address address, int& error) {
  const std::span<const std::byte> bytes(address.bytes.data(), address.len);
  const size_t known = peers_.size();
  PeerState* peer = any_link_.connect(bytes, error);
  if (peer == nullptr || peers_.size() != known || removals_seen_ == 0) return peer;
  for (unsigned i = 0; i < checks_for_leaving && !attending_; ++i) progress();
  peer = any_link_.connect(bytes, error);
  if (peer == nullptr) return nullptr;
  if (!any_link_.has_left(*peer)) return peer;
  error = FI_EAGAIN;
  return nullptr;
}

// The slow half of looking up a destination: receive context bits, first contact, a changed address vector.
PeerState* EngineCore::find_peer(fi_addr_t dest, uint8_t& context, int& error) noexcept try {
  error = 0;
  context = 0;
  if (traits_.sole_peer) {
    if (sole_ == nullptr) error = FI_ENOTCONN;
    return sole_;
  }
  if (av_ == nullptr) {
    error = FI_EOPBADSTATE;
    return nullptr;
  }
  if (av_removals() != removals_seen_) drop_cache();
  if (av_->rx_ctx_bits() != 0) {
    const unsigned index = av_->rx_index(dest);
    if (index > 0xff) {
      error = FI_EINVAL;
      return nullptr;
    }
    context = static_cast<uint8_t>(index);
    dest = av_->peer_index(dest);
  }
  if (dest < cache_size_ && cache_[dest] != nullptr) return cache_[dest];
  if (is_forked_copy()) {
    error = FI_EOPBADSTATE;
    return nullptr;
  }
  const core::Address* address = av_->lookup(dest);
  if (address == nullptr) {
    error = FI_EINVAL;
    return nullptr;
  }
  if (dest >= cache_storage_.size()) {
    cache_storage_.resize(std::max<size_t>(dest + 1, 2 * cache_storage_.size()), nullptr);
    cache_ = cache_storage_.data();
    cache_size_ = cache_storage_.size();
  }
  const uint32_t seen = removals_seen_;
  PeerState* peer = connect(*address, error);
  if (peer == nullptr) return nullptr;
  if (removals_seen_ !=
      seen) {  // in the meantime, by another thread or process: the number may mean somebody else
    error = FI_EAGAIN;
    return nullptr;
  }
  if (peer->fi_addr == FI_ADDR_NOTAVAIL) rename(*peer, dest);
  cache_[dest] = peer;
  return peer;
} catch (const std::bad_alloc&) {
  error = FI_ENOMEM;
  return nullptr;
}

// The index of a peer's address in the address vector, or FI_ADDR_NOTAVAIL.
fi_addr_t EngineCore::number_of(const core::Address& address) const noexcept {
  const fi_addr_t number = av_->find(address);
  if (number != FI_ADDR_NOTAVAIL || !any_link_.names_differ()) [[likely]]
    return number;
  const auto bytes = [](const core::Address& a) { return std::span(a.bytes.data(), a.len); };
  return av_->find_if(
      [&](const core::Address& name) { return any_link_.is_name_of(bytes(name), bytes(address)); });
}

void EngineCore::adopt_peer(OwnedPeer peer, std::span<const std::byte> address) {
  peer->owner = this;
  peer->sink = sink_;
  peer->av_address = core::Address(address.data(), address.size());
  if (av_ != nullptr) peer->fi_addr = number_of(peer->av_address);
  blocked_peers_.reserve(peers_.size() + 1);  // so that putting a peer there never fails
  failed_.reserve(peers_.size() + 1);
  WEFT_ASSERT(!traits_.sole_peer || sole_ == nullptr);
  peers_.push_back(std::move(peer));
  if (traits_.sole_peer) sole_ = peers_.back().get();
}

// The address vector has changed: peers may have got or lost a number.
void EngineCore::refresh_peers() noexcept {
  av_seen_ = av_version();
  if (av_removals() != removals_seen_) drop_cache();
  for (auto& peer : peers_) {
    const fi_addr_t now = number_of(peer->av_address);
    if (now != peer->fi_addr) rename(*peer, now);
  }
}

// What came from the peer and waits has the new index, too.
void EngineCore::rename(PeerState& peer, fi_addr_t index) noexcept {
  WEFT_ASSERT(peer.fi_addr != index);
  peer.fi_addr = index;
  for (size_t i = 0; i < rx_count_; ++i)
    if (rx_[i] != nullptr) rx_[i]->rename_peer(peer);
}

void EngineCore::fail_peer(PeerState& peer, core::ProviderError why) noexcept {
  if (peer.lost) return;
  peer.lost = true;
  shut(peer, PeerState::gate_lost);
  WEFT_ASSERT(std::find_if(peers_.begin(), peers_.end(),
                           [&](const auto& one) { return one.get() == &peer; }) != peers_.end());
  forget_open(peer);
  const int status = why == core::ProviderError::PeerUnreachable        ? FI_EHOSTUNREACH
                     : why == core::ProviderError::OwnShortage          ? FI_EHOSTUNREACH
                     : why == core::ProviderError::PeerShortage         ? FI_EHOSTUNREACH
                     : why == core::ProviderError::DescriptorsNotPassed ? FI_EHOSTUNREACH
                     : why == core::ProviderError::PeerOfOtherUser      ? FI_EACCES
                     : why == core::ProviderError::Cancelled            ? FI_ECANCELED
                                                                        : FI_EIO;
  complete_sends(peer);  // what the link has finished is complete, and perhaps not delivered
  errors_.begin_losing(peer, TransmitErrors::is_loss(why) ? any_link_.unread(peer) : uint8_t{0}, status);
  end_pending_sends(peer, status, why);
  while (Op* op = peer.control.pop_front()) release_service(*op);
  peer.collected = 0;
  while (Op* op = peer.queue.pop_front()) finish_transmit(*op, status, why);
  WEFT_ASSERT(((peer.gate & PeerState::gate_queued) != 0) ==
              (std::find(blocked_peers_.begin(), blocked_peers_.end(), &peer) != blocked_peers_.end()));
  if (std::erase(blocked_peers_, &peer) != 0) --busy_;
  errors_.had_left();
  while (Op* op = peer.in_flight.front()) {
    if (op->stage == OpStage::Streaming) {
      WEFT_ASSERT(busy_ != 0);
      List<Op, QueueHook>::remove(*op);
      --busy_;
    }
    if (op->kind == OpKind::Receive || op->kind == OpKind::Inbound || op->kind == OpKind::Outbound)
      finish_inbound(*op, status, why);
    else finish_transmit(*op, status, why);
  }
  for (size_t i = 0; i < rx_count_; ++i)
    if (rx_[i] != nullptr) {
      (void)rx_[i]->forget_peer(peer);
      if (why == core::ProviderError::PeerDied) rx_[i]->fail_directed(peer.fi_addr, why);
    }
  WEFT_ASSERT(peer.queue.empty() && peer.control.empty() && peer.in_flight.empty() &&
              peer.pending_sends.empty());
  WEFT_ASSERT(peer.unacknowledged == 0 && peer.accesses == 0 && peer.served == 0);
  WEFT_ASSERT(peer.fragmented_receive == nullptr && peer.fragmented_message == nullptr);
  errors_.end_losing(status, why);
  for (PeerState*& entry : cache_storage_)
    if (entry == &peer) entry = nullptr;
  busy_ -= std::erase(failed_, &peer);
  if (traits_.sole_peer) {
    sole_ = nullptr;
    gone_ = true;
    end_receives(why);
  }
}

// Nobody can send to receives of a connection that has ended. Those of a shared context stay: other connections may.
void EngineCore::end_receives(core::ProviderError why) noexcept {
  for (size_t i = 0; i < rx_count_; ++i)
    if (rx_[i] != nullptr && !rx_[i]->shared) rx_[i]->end_posted(FI_ECANCELED, why);
}

void EngineCore::release_peer(PeerState& peer) noexcept {
  WEFT_ASSERT(peer.lost && peer.queue.empty() && peer.in_flight.empty());
  WEFT_ASSERT(!List<PeerState, PendingSendsHook>::linked(peer));
  drop_cached_destination();
  std::erase_if(peers_, [&](const OwnedPeer& entry) { return entry.get() == &peer; });
}

void EngineCore::lose_peer(PeerState& peer, core::ProviderError why) noexcept {
  fail_peer(peer, why);
  release_peer(peer);
}

}  // namespace weft::proto
