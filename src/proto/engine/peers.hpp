// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Engine<Link>, part: the end of connections and of the engine itself. Included by engine.hpp.
#pragma once

#include "base/assert.hpp"
#include "proto/engine/engine.hpp"

namespace weft::proto {

template <Link L>
Engine<L>::~Engine() {
  abandon();
  (void)stop_serving(true);
  link_.close();
  open_.reset();
  peers_.clear();  // before the link
}

// Takes no new frame. The rest of one that has begun to arrive goes where it belongs.
template <Link L>
struct Engine<L>::FrameRefuser {
  Engine& engine;
  bool on_frame(typename L::PeerBase&, const wire::FrameHead&, const std::byte*) noexcept { return false; }
  Land land(typename L::PeerBase& peer, wire::FrameHead& head, const std::byte* payload, size_t arrived,
            Landing& out) noexcept {
    return payload == nullptr ? engine.land(peer, head, payload, arrived, out) : Land::Later;
  }
  void landed(typename L::PeerBase& peer, wire::FrameHead& head, size_t bytes) noexcept {
    engine.landed(peer, head, bytes);
  }
  bool awaits(const typename L::PeerBase& peer) const noexcept { return engine.awaits(peer); }
};

template <Link L>
void Engine<L>::poll_without_frames() noexcept {
  if constexpr (may_have_background_work<L>) {
    FrameRefuser refuser{*this};
    (void)link_.poll(refuser);
  }
}

template <Link L>
void Engine<L>::shut_down() noexcept {
  if constexpr (SolePeer<L>) {
    if (sole_ == nullptr) return;
    PeerState& peer = *sole_;
    link_.shut_down();  // it still writes what it has collected: that is not cancelled
    copy_out(peer);
    fail_peer(peer, core::ProviderError::Cancelled);
    release_peer(peer);
  }
}

template <Link L>
bool Engine<L>::has_unsent() const noexcept {
  return busy_ != 0 || has_uncredited();
}

}  // namespace weft::proto
