// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: messages that the program reads and writes where the link has them. Included by engine.hpp.
//
// Reading keeps the order of receives: what waits is looked at first, then frames as they come, and one that a posted receive accepts goes there.
// A reserved send buffer stands in the peer's queue: nothing of the program passes it.
#pragma once

#include <cerrno>
#include <new>

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

// Looks at frames for one that take() wants; every other goes its usual way.
template <Link L>
struct Engine<L>::Taker {
  Engine& engine;
  RxContext& rx;
  const ReceiveRequest& request;
  LoanedMessage& out;
  bool done = false;

  bool satisfied() const noexcept { return done; }
  bool wants(const PeerState& peer, const wire::FrameHead& head) const noexcept {
    if (head.kind != (request.tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg)) return false;
    if (engine.context_for(head) != &rx || peer.lost) return false;
    if (rx.directed && request.source != FI_ADDR_UNSPEC && request.source != peer.fi_addr) return false;
    if (request.tagged && ((head.a ^ request.tag) & ~request.ignore) != 0) return false;
    const core::PostedBase* posted =
        request.tagged ? rx.tags.peek_arrival(head.a, peer.fi_addr) : rx.messages.peek_arrival(peer.fi_addr);
    return posted == nullptr && !rx.has_unexpected(request);
  }
  bool on_frame(typename L::PeerBase& base, const wire::FrameHead& head,
                const std::byte* payload) noexcept requires HasLoans<L> {
    if (done) return false;  // stays where it is, for the next take()
    PeerState& peer = static_cast<Peer&>(base);
    if (!wants(peer, head)) return engine.on_frame(base, head, payload);
    const typename L::Loan loan = engine.link_.loan(base);
    if (!loan) return engine.on_frame(base, head, payload);  // no memory
    auto& entry = engine.open_->add(OpenTable<L>::Kind::Frame);
    entry.loan = loan;
    out.data = payload;
    out.length = head.length;
    out.tag = request.tagged ? head.a : 0;
    out.has_data = (head.flags & wire::has_data) != 0;
    out.cq_data = out.has_data ? head.b : 0;
    out.in_link = true;
    out.source = peer.fi_addr;
    out.handle = engine.open_->handle_of(entry);
    done = true;
    return true;
  }
};

template <Link L>
bool Engine<L>::make_open_table() noexcept {
  if (open_ == nullptr) open_.reset(new (std::nothrow) OpenTable<L>);
  return open_ != nullptr;
}

template <Link L>
int Engine<L>::take(RxContext& rx, const ReceiveRequest& request,
                    LoanedMessage& out) noexcept requires HasLoans<L> {
  if (!make_open_table()) return -FI_ENOMEM;
  if (open_->is_full()) {
    progress();
    return -FI_EAGAIN;
  }
  const Unexpected* found = nullptr;
  Unexpected* message = rx.take_whole(request, found);
  WEFT_ASSERT(message == nullptr || message == found);
  if (found == nullptr) {
    Taker taker{*this, rx, request, out};
    drive([&] { link_.poll_for(taker, *this); });
    if (taker.done) return 0;
    if (!open_->is_full()) message = rx.take_whole(request, found);
  }
  if (found == nullptr) return -FI_EAGAIN;
  out.length = found->length;
  out.tag = request.tagged ? found->tag : 0;
  out.has_data = found->has_data;
  out.cq_data = found->has_data ? found->data : 0;
  out.source = found->source;
  if (message == nullptr) {
    const int status = found->rendezvous ? -FI_EMSGSIZE : -FI_EAGAIN;
    progress();
    return status;
  }
  out.data = message->payload;
  auto& entry = open_->add(OpenTable<L>::Kind::Message);
  entry.rx = &rx;
  entry.message = message;
  out.handle = open_->handle_of(entry);
  return 0;
}

template <Link L>
int Engine<L>::release(uint64_t handle) noexcept requires HasLoans<L> {
  auto* entry = open_ != nullptr ? open_->find(handle) : nullptr;
  if (entry == nullptr || entry->kind == OpenTable<L>::Kind::ReservedBuffer) return -FI_EINVAL;
  if (entry->kind == OpenTable<L>::Kind::Frame) link_.release(entry->loan);
  else entry->rx->return_unexpected(*entry->message);
  open_->remove(*entry);
  return 0;
}

template <Link L>
int Engine<L>::reserve(fi_addr_t dest, size_t bytes, uint64_t& handle,
                       std::byte*& at) noexcept requires HasLoans<L> {
  if (bytes > L::in_place_bytes_max) return -FI_EMSGSIZE;
  if (!make_open_table()) return -FI_ENOMEM;
  uint8_t context = 0;
  int error = 0;
  PeerState* const peer = find_peer(dest, context, error);
  if (peer == nullptr) return -error;
  if ((peer->gate & PeerState::gate_reserved) != 0) return -FI_EBUSY;
  error = EAGAIN;
  typename L::ReservedBuffer* const buffer =
      peer->gate == 0 && !open_->is_full() ? link_.reserve(full(*peer), bytes, error) : nullptr;
  if (buffer == nullptr) {
    if (error == EOPNOTSUPP) return -FI_EOPNOTSUPP;
    progress();
    return -FI_EAGAIN;
  }
  WEFT_ASSERT(peer->gate == 0);
  shut(*peer, PeerState::gate_reserved);
  auto& entry = open_->add(OpenTable<L>::Kind::ReservedBuffer);
  entry.peer = peer;
  entry.buffer = buffer;
  entry.context = context;
  entry.capacity = bytes;
  handle = open_->handle_of(entry);
  at = L::bytes_of(*buffer);
  return 0;
}

template <Link L>
int Engine<L>::commit(TxContext& tx, uint64_t handle,
                      const WrittenMessage& message) noexcept requires HasLoans<L> {
  auto* entry = open_ != nullptr ? open_->find(handle) : nullptr;
  if (entry == nullptr || entry->kind != OpenTable<L>::Kind::ReservedBuffer) return -FI_EINVAL;
  if (message.length > entry->capacity) return -FI_EMSGSIZE;
  if (entry->peer == nullptr) {
    (void)abandon_room(handle);
    return -FI_EIO;
  }
  const wire::FrameHead head{message.tagged ? wire::FrameKind::Tagged : wire::FrameKind::Msg,
                             static_cast<uint8_t>(message.has_data ? wire::has_b | wire::has_data : 0),
                             entry->context,
                             static_cast<uint32_t>(message.length),
                             message.tagged ? message.tag : 0,
                             message.has_data ? message.cq_data : 0};
  WEFT_ASSERT((entry->peer->gate & PeerState::gate_reserved) != 0);
  entry->peer->gate &= ~static_cast<uint32_t>(PeerState::gate_reserved);
  const bool sent = link_.commit(*entry->buffer, head);
  open_->remove(*entry);
  if (!sent) return -FI_EIO;
  errors_.report_to(tx);
  count_sent(message.length);
  if (tx.sends != nullptr) tx.sends->add(1);
  push_unsent();
  return 0;
}

template <Link L>
int Engine<L>::abandon_room(uint64_t handle) noexcept requires HasLoans<L> {
  auto* entry = open_ != nullptr ? open_->find(handle) : nullptr;
  if (entry == nullptr || entry->kind != OpenTable<L>::Kind::ReservedBuffer) return -FI_EINVAL;
  if (entry->peer != nullptr) entry->peer->gate &= ~static_cast<uint32_t>(PeerState::gate_reserved);
  link_.abandon(*entry->buffer);
  open_->remove(*entry);
  push_unsent();
  return 0;
}

template <Link L>
int Engine<L>::rings(fi_addr_t dest, RingUse& out) noexcept requires HasLoans<L> {
  out = {};
  if (av_ == nullptr) return -FI_EOPBADSTATE;
  if (av_->lookup(dest) == nullptr) return -FI_EINVAL;
  for (const auto& peer : peers_)
    if (peer->fi_addr == dest) out = link_.rings(full(*peer));
  return 0;
}

template <Link L>
int Engine<L>::copies(fi_addr_t source, uint64_t length, CopyUse& out) noexcept requires HasLoans<L> {
  const typename L::PeerBase* found = nullptr;
  if (source != FI_ADDR_UNSPEC) {
    if (av_ == nullptr) return -FI_EOPBADSTATE;
    if (av_->lookup(source) == nullptr) return -FI_EINVAL;
    for (const auto& peer : peers_)
      if (peer->fi_addr == source) found = &full(*peer);
    if (found == nullptr) {
      out = {};
      return 0;
    }
  }
  out = link_.copy_use(found, length);
  return 0;
}

template <Link L>
void Engine<L>::end_in_place() noexcept {
  if (open_ == nullptr) return;
  if constexpr (HasLoans<L>) {
    if (is_forked_copy()) return;
    for (auto& entry : open_->entries) {
      const uint64_t handle = open_->handle_of(entry);
      if (entry.kind == OpenTable<L>::Kind::ReservedBuffer) (void)abandon_room(handle);
      else if (entry.kind != OpenTable<L>::Kind::Free) (void)release(handle);
    }
  }
}

// The receive context goes, and all messages in it.
template <Link L>
void Engine<L>::drop_loans([[maybe_unused]] const RxContext& rx) noexcept {
  if constexpr (HasLoans<L>) {
    if (open_ == nullptr) return;
    for (auto& entry : open_->entries)
      if (entry.kind == OpenTable<L>::Kind::Message && entry.rx == &rx) open_->remove(entry);
  }
}

}  // namespace weft::proto
