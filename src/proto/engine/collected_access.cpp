// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EngineCore, part: one-sided operations that go together.
//
// Entering the kernel to reach a peer's memory costs about as much as copying some ten KiB. So RMA writes (reads) that a program posts one after the
// other, without looking for completions in between, wait in the peer's queue for each other, and the link moves them by one call: when there are
// enough of them, when something else is posted to that peer, or at the next poll. Never the first one after a poll, and never a short one: a
// flag that is written behind data arrives with the call that posts it. FI_MORE says that more will come, so with it any length waits.
#include "proto/engine/engine_core.hpp"

#include <algorithm>
#include <array>

#include "base/assert.hpp"

namespace weft::proto {

namespace {

constexpr uint32_t collected_max = 8;
constexpr uint64_t collected_bytes_max = uint64_t{1} << 19;
constexpr uint64_t collected_least = 4096;  // bytes of an operation without FI_MORE

}  // namespace

bool EngineCore::may_collect(const TxContext& tx, PeerState& peer, const Request& request,
                             size_t length) noexcept {
  if (request.kind != OpKind::Write && request.kind != OpKind::Read) return false;
  constexpr uint64_t apart = FI_INJECT | FI_FENCE | FI_REMOTE_CQ_DATA;
  const bool more = (request.flags & FI_MORE) != 0;
  if (limits_.driven || (request.flags & apart) != 0 || peer.accesses != 0 || request.silent ||
      !tx.completes(request.flags))
    return false;
  if (length == 0 || length > collected_bytes_max / 2 || (length < collected_least && !more)) return false;
  if (peer.collected == 0) {
    if (peer.gate != 0 || (calls_since_poll_ < 2 && !more)) return false;
  } else {
    const uint32_t pieces = std::max<uint32_t>(static_cast<uint32_t>(request.iov_count),
                                               static_cast<uint32_t>(request.target_count));
    if (peer.gate != PeerState::gate_queued || peer.queue.front()->kind != request.kind ||
        peer.collected_pieces + pieces > access_pieces_max)
      return false;
  }
  return any_link_.reaches(peer);
}

void EngineCore::collect(PeerState& peer, Op& op) noexcept {
  enqueue(peer, op);
  ++peer.collected;
  peer.collected_bytes += op.length;
  peer.collected_pieces += std::max(op.iov_count, op.target_count);
  if (peer.collected == collected_max || peer.collected_bytes >= collected_bytes_max) flush(peer);
}

// No more come. Those that find no way now wait as all others do.
void EngineCore::end_collection(PeerState& peer) noexcept {
  if (peer.collected == 0) return;
  flush(peer);
  peer.collected = peer.collected_pieces = 0;
  peer.collected_bytes = 0;
}

// The operations at the head of the queue that were collected. What cannot be reached goes on one by one.
void EngineCore::access_collected(PeerState& peer) noexcept {
  std::array<iovec, access_pieces_max> local;
  std::array<wire::RmaTarget, access_pieces_max> targets;
  size_t local_count = 0;
  size_t target_count = 0;
  const uint32_t count = std::exchange(peer.collected, 0);
  const uint64_t bytes = std::exchange(peer.collected_bytes, 0);
  peer.collected_pieces = 0;
  if (count < 2) return;
  uint32_t left = count;
  const bool write = peer.queue.front()->kind == OpKind::Write;
  for (const Op& op : peer.queue) {
    if (left-- == 0) break;
    std::copy_n(op.iov.begin(), op.iov_count, local.begin() + static_cast<ptrdiff_t>(local_count));
    std::copy_n(op.targets.begin(), op.target_count, targets.begin() + static_cast<ptrdiff_t>(target_count));
    local_count += op.iov_count;
    target_count += op.target_count;
  }
  const bool done =
      any_link_.access(peer, write, local.data(), local_count, targets.data(), target_count, bytes);
  for (uint32_t i = 0; done && i < count; ++i)
    finish_transmit(*peer.queue.pop_front(), 0, core::ProviderError::None);
}

}  // namespace weft::proto
