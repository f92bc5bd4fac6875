// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Places and answers.
#include "link/ethernet/neighbor_cache.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/hash.hpp"

namespace weft::link::ethernet {

NeighborEntry* NeighborCache::set_of(const Host& host) noexcept {
  std::array<uint64_t, 2> words;
  std::memcpy(words.data(), host.data(), host.size());
  const uint64_t network = hash_word(words[0] ^ hash_factor_b, seed_);
  return &entries_[hash_word(words[1] + network, seed_) % sets * ways];
}

NeighborEntry* NeighborCache::find(const Host& host) noexcept {
  const std::span set(set_of(host), ways);
  const auto at = std::ranges::find_if(
      set, [&](const NeighborEntry& entry) { return entry.state != State::Empty && entry.host == host; });
  return at == set.end() ? nullptr : &*at;
}

// Hosts that are sent to give way to such hosts only, the oldest first; those for which packets wait to nobody.
NeighborEntry* NeighborCache::slot_for(const Host& host, bool is_solicited) noexcept {
  NeighborEntry* best = nullptr;
  for (NeighborEntry& entry : std::span(set_of(host), ways)) {
    if (entry.state == State::Empty) {
      best = &entry;
      break;
    }
    if (entry.waiting != 0 || entry.state == State::Asking || (!is_solicited && entry.used_at != 0)) continue;
    if (best == nullptr || entry.used_at < best->used_at) best = &entry;
  }
  if (best != nullptr) {
    *best = {};
    best->host = host;
  }
  return best;
}

void NeighborCache::open(NeighborEntry& entry, uint64_t now) noexcept {
  entry.due = now;
  ++open_;
  next_due_ = std::min(next_due_, now);
}

NeighborEntry* NeighborCache::use(const Host& host, uint64_t now) noexcept {
  NeighborEntry* entry = find(host);
  if (entry == nullptr) {
    entry = slot_for(host, true);
    if (entry == nullptr) return nullptr;
    entry->state = State::Asking;
    open(*entry, now);
  } else if (entry->state == State::Failed && now >= entry->due) {
    entry->state = State::Asking;
    open(*entry, now);
  } else if (entry->state == State::Known && entry->asked == 0 && now >= entry->fresh_until) {
    entry->asked = 1;  // a first question, which tick() sends
    open(*entry, now);
  }
  entry->used_at = std::max<uint64_t>(now, 1);
  return entry;
}

void NeighborCache::answered(const Host& host, const wire::Mac& mac, bool overrides, uint64_t now) noexcept {
  NeighborEntry* const entry = find(host);
  if (entry == nullptr) return;
  if (entry->state == State::Known && entry->mac != mac && !overrides) return;
  if (!is_open(*entry)) return heard(host, mac, false, now);  // nobody asked
  entry->state = State::Known;
  entry->mac = mac;
  entry->asked = 0;
  entry->fresh_until = now + fresh_ns;
}

void NeighborCache::heard(const Host& host, const wire::Mac& mac, bool may_add, uint64_t now) noexcept {
  NeighborEntry* entry = find(host);
  if (entry == nullptr && may_add) entry = slot_for(host, false);
  if (entry == nullptr || (entry->state == State::Known && entry->mac == mac)) return;
  entry->state = State::Known;
  entry->mac = mac;
  entry->asked = 0;
  entry->fresh_until = now;
}

}  // namespace weft::link::ethernet
