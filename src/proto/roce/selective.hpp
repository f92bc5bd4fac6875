// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Selective repeat between queue pairs of Weft: what a responder keeps behind a gap (Keeper), in buffers of the adapter
// (ReorderPool), and what a requester knows of that (Repeater). docs/roce.md has the rules; selective.cpp uses them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "proto/roce/psn.hpp"
#include "proto/roce/work.hpp"
#include "wire/roce/packet.hpp"
#include "wire/roce/sack_bitmap.hpp"

namespace weft::proto::roce {

inline constexpr uint32_t reorder_span =
    wire::roce::SackBitmap::bits_max;                // PSNs from the one that is missing on
inline constexpr size_t reorder_packets_max = 1024;  // packets, of all queue pairs of an adapter

constexpr size_t reorder_slot(uint32_t psn) noexcept { return psn % reorder_span; }

// Some of reorder_span PSNs in a row.
class PsnSet {
 public:
  bool has(uint32_t psn) const noexcept { return (word(psn) >> (psn % 64) & 1) != 0; }
  void add(uint32_t psn) noexcept { word(psn) |= uint64_t{1} << (psn % 64); }
  void remove(uint32_t psn) noexcept { word(psn) &= ~(uint64_t{1} << (psn % 64)); }
  void clear() noexcept { words_ = {}; }
  bool empty() const noexcept { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  uint32_t size() const noexcept {
    int count = 0;
    for (const uint64_t one : words_) count += std::popcount(one);
    return static_cast<uint32_t>(count);
  }

 private:
  uint64_t& word(uint32_t psn) noexcept { return words_[reorder_slot(psn) / 64]; }
  const uint64_t& word(uint32_t psn) const noexcept { return words_[reorder_slot(psn) / 64]; }
  std::array<uint64_t, reorder_span / 64> words_{};
};

// Buffers of packets. Pages that were never used cost nothing.
class ReorderPool {
 public:
  static constexpr uint16_t none = UINT16_MAX;

  // Before the first store(). Once is enough. False: no memory.
  bool make() noexcept try {
    if (bytes_ != nullptr) return true;
    auto bytes = std::make_unique_for_overwrite<std::byte[]>(reorder_packets_max * mtu_bytes_max);
    packets_.resize(reorder_packets_max);
    free_.clear();
    for (size_t i = reorder_packets_max; i-- > 0;) free_.push_back(static_cast<uint16_t>(i));
    bytes_ = std::move(bytes);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  size_t used() const noexcept { return packets_.size() - free_.size(); }
  // A copy, or none. The payload has mtu_bytes_max at most.
  uint16_t store(const wire::roce::Packet& packet) noexcept;
  void release(uint16_t slot) noexcept {
    WEFT_ASSERT(slot < packets_.size() && used() != 0);
    free_.push_back(slot);
  }
  const wire::roce::Packet& at(uint16_t slot) const noexcept { return packets_[slot]; }

 private:
  std::vector<wire::roce::Packet> packets_;
  std::vector<uint16_t> free_;
  std::unique_ptr<std::byte[]> bytes_;
};

// Of a responder: requests that came before one that is missing.
struct ReorderBuffer {
  bool is_open = false;      // something came behind a gap that is not closed
  bool is_reported = false;  // a map for the PSN that is expected has gone
  bool has_dropped = false;  // something came that is too far ahead to be kept
  uint32_t newest = 0;       // PSN that came, of those that may be kept
  PsnSet has;
  std::array<uint16_t, reorder_span> slots{};
};

// Of a requester. What it repeats and why is told by the order of sending: PSNs that were sent once have that of their
// number, a repetition is behind the PSNs that had been sent by then, and behind the repetitions before it.
struct Repeater {
  static constexpr uint8_t times_max = 7;  // a packet is repeated for maps; then only the timeout does

  static constexpr uint64_t probe_first_ns = 4'000'000;
  static constexpr uint64_t probe_least_ns = 50'000;

  struct Sent {
    uint32_t serial = 0;  // of the last repetition; 0: it was sent once
    uint32_t next = 0;    // the first PSN that had not been sent then
    uint64_t at = 0;
    uint8_t times = 0;
  };

  bool knows = false;    // the peer sends maps
  bool is_open = false;  // there may be something below
  bool has_plain = false;
  uint32_t base = 0;     // what is before it is not in the sets
  uint32_t newest = 0;   // PSN of which something is below
  uint32_t counted = 0;  // of the kept ones, in RequesterState::apart
  uint32_t serials = 0;
  uint32_t probes = 0;             // in a row
  uint64_t probe_at = UINT64_MAX;  // the first packet goes again if nothing is heard until then
  uint64_t round_ns = 0;           // from a repetition to what tells of it, the most lately; 0: never
  uint32_t plain = 0;              // the newest PSN that was sent once and arrived
  Sent repeated;                   // the newest repetition that arrived
  PsnSet buffered;
  PsnSet lost;  // to be repeated
  std::array<Sent, reorder_span> sent{};

  void touch(uint32_t psn) noexcept {
    if (psn_diff(psn, newest) > 0) newest = psn;
  }
  void open(uint32_t oldest) noexcept {
    if (is_open) return;
    is_open = true;
    base = oldest;
    newest = psn_add(oldest, psn_mask);
  }
  void hear(uint32_t psn, uint64_t now) noexcept;
  bool is_lost(uint32_t psn) const noexcept;
  void forget(uint32_t psn) noexcept {
    buffered.remove(psn);
    lost.remove(psn);
    sent[reorder_slot(psn)] = {};
  }
  // All below `oldest` has arrived.
  void pass(uint32_t oldest, uint64_t now) noexcept;
  // A repetition that nothing follows may be lost without a sign: long before the timeout, and ever more rarely.
  void set_probe(uint64_t now, uint64_t timeout) noexcept {
    const uint64_t most = timeout / 4;
    uint64_t wait = round_ns == 0 ? probe_first_ns : 2 * round_ns + probe_least_ns;
    wait = probes > 16 || (wait << probes) > most ? most : wait << probes;
    probe_at = timeout == UINT64_MAX ? now + (probe_first_ns << std::min(probes, 10U)) : now + wait;
  }
  void rest() noexcept {
    const bool knew = knows;
    const uint64_t round = round_ns;
    *this = Repeater();
    knows = knew;
    round_ns = round;
  }
};

}  // namespace weft::proto::roce
