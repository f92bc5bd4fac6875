// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// NeighborCache: MACs of hosts on the link, as ARP and Neighbor Discovery find them: who must be asked, whom to believe,
// how long. The states of RFC 4861 section 7.3.2, for IPv4 too. Time comes from the caller (ns). Must not know packets.
//
// Bounds: 256 hosts. What others say of themselves takes no place from hosts that are sent to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/neighbor.hpp"

namespace weft::link::ethernet {

// An IPv6 address, or ::ffff:a.b.c.d.
using Host = std::array<std::byte, 16>;

struct NeighborEntry {
  enum class State : uint8_t { Empty, Asking, Known, Failed };

  Host host{};
  wire::Mac mac{};  // of Known
  State state = State::Empty;
  uint8_t asked = 0;     // questions since the last answer
  uint16_t waiting = 0;  // packets; the owner counts
  uint32_t waiting_bytes = 0;
  uint64_t due = 0;          // of the next question, or the end of Failed
  uint64_t fresh_until = 0;  // from then on a host that is sent to is asked whether it is still there
  uint64_t used_at = 0;      // by a packet of ours; 0: never

  bool is_known() const noexcept { return state == State::Known; }
};

class NeighborCache {
 public:
  static constexpr size_t sets = 32;
  static constexpr size_t ways = 8;
  static constexpr uint64_t ms = 1'000'000;
  static constexpr uint64_t fresh_ns = 30'000 * ms;    // REACHABLE_TIME, RFC 4861 section 10
  static constexpr uint64_t ask_first_ns = 100 * ms;   // until the second question; then twice as long, up to
  static constexpr uint64_t ask_last_ns = 1'000 * ms;  // RETRANS_TIMER there
  static constexpr unsigned asks_max = 5;              // then the host is not there,
  static constexpr uint64_t failed_ns = 1'000 * ms;    // and for so long nobody asks again
  static constexpr unsigned probes_max = 3;            // MAX_UNICAST_SOLICIT

  // `seed` keeps others from choosing hosts that fall into one set.
  explicit NeighborCache(uint64_t seed = 0) : entries_(sets * ways), seed_(seed) {}

  // For a packet of ours to that host. Known: its MAC may be used. Asking: the packet has to wait, tick() asks. Failed:
  // nobody answered. Null: there is no room, all neighbours of the set are being asked.
  NeighborEntry* use(const Host& host, uint64_t now) noexcept;
  NeighborEntry* find(const Host& host) noexcept;

  // The host answered us. `overrides`: also with another MAC than the known one. Nothing of a host that nobody asked
  // for; an answer while no question is open counts as heard().
  void answered(const Host& host, const wire::Mac& mac, bool overrides, uint64_t now) noexcept;
  // The host spoke of itself; `may_add`: to us. What is used of it is verified by a question.
  void heard(const Host& host, const wire::Mac& mac, bool may_add, uint64_t now) noexcept;

  // Asks what is due: ask(entry, directly); directly: to the known MAC. gone(entry): nobody answered, the packets that
  // wait are lost.
  template <class Ask, class Gone>
  void tick(uint64_t now, Ask&& ask, Gone&& gone) noexcept {
    if (open_ == 0 || now < next_due_) return;
    next_due_ = UINT64_MAX;
    open_ = 0;
    for (NeighborEntry& entry : entries_) {
      if (!is_open(entry)) continue;
      if (entry.due <= now) advance(entry, now, ask, gone);
      if (!is_open(entry)) continue;
      ++open_;
      next_due_ = next_due_ < entry.due ? next_due_ : entry.due;
    }
  }
  bool is_asking() const noexcept { return open_ != 0; }  // tick() has to be called

 private:
  using State = NeighborEntry::State;

  static bool is_open(const NeighborEntry& entry) noexcept {
    return entry.state == State::Asking || (entry.state == State::Known && entry.asked != 0);
  }
  template <class Ask, class Gone>
  void advance(NeighborEntry& entry, uint64_t now, Ask&& ask, Gone&& gone) noexcept {
    if (entry.state == State::Known && entry.asked > probes_max) {
      entry.state = State::Asking;
      entry.asked = 0;
    }
    if (entry.state == State::Asking && entry.asked == asks_max) {
      entry.state = State::Failed;
      entry.asked = 0;
      entry.due = now + failed_ns;
      gone(entry);
      return;
    }
    ask(entry, entry.state == State::Known);
    const uint64_t wait = ask_first_ns << (entry.asked < 8 ? entry.asked : 8);
    entry.due = now + (wait < ask_last_ns ? wait : ask_last_ns);
    ++entry.asked;
  }
  void open(NeighborEntry& entry, uint64_t now) noexcept;
  NeighborEntry* slot_for(const Host& host, bool is_solicited) noexcept;
  NeighborEntry* set_of(const Host& host) noexcept;

  std::vector<NeighborEntry> entries_;
  uint64_t seed_;
  unsigned open_ = 0;  // about as many have a question open; 0 is exact
  uint64_t next_due_ = UINT64_MAX;
};

}  // namespace weft::link::ethernet
