// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One-sided access of the shm link: what an endpoint exposes, and how a peer reaches it by cross-memory attach. Must not know frames or
// completions.
//
// The table lies in a memory file that only its owner writes. The owner closes a region in two steps: the entry is dead, and then nobody
// is at it. For the second each peer that reaches memory has a word in the owner's header and says there which entry it uses: it stores
// the entry's number, looks once more whether the entry lives, and moves the bytes; the owner marks the entry dead and then looks at
// the words. Both with full order, so that one of the two sees the other. A piece of access_bytes at a time, so that a close waits
// for no longer than the copy of one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "link/shm/layout.hpp"
#include "os/shared_memory.hpp"
#include "proto/engine/remote_access.hpp"

namespace weft::link::shm {

inline constexpr size_t access_bytes = size_t{1} << 20;
inline constexpr size_t region_entries = 1024;  // a power of two
inline constexpr size_t region_probes =
    16;  // entries that a key may be in; a region that finds none free is not exposed

// Words are stored one by one and read while they change; `state` tells which belong together.
struct alignas(64) RegionEntry {
  std::atomic<uint64_t> state;  // odd: alive; grows with each change
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> base;
  std::atomic<uint64_t> length;
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> rights;
  static constexpr uint64_t readable = 1;
  static constexpr uint64_t writable = 2;
};
struct RegionTable {
  alignas(
      64) std::atomic<uint64_t> nonce;  // of the endpoint; another one: the descriptor is a later endpoint's
  std::array<RegionEntry, region_entries> entries;
};
inline constexpr size_t region_table_bytes = sizeof(RegionTable);

// The target's side. All calls by one thread at a time.
class ExposedRegions {
 public:
  explicit ExposedRegions(uint64_t nonce) noexcept : nonce_(nonce) {}
  // False: there is no memory or no descriptor for the table, or it is full around that key: the region is reached by asking.
  bool expose(const proto::ExposedRegion& region) noexcept;
  // Nobody begins any more, and nobody is at it when this returns 0. -EBUSY after close_timeout_ms: somebody is; ask again.
  int conceal(uint64_t key, std::array<AccessSlot, access_slots>& users) noexcept;
  // All of them, with the same timeout.
  int conceal_all(std::array<AccessSlot, access_slots>& users) noexcept;
  // Of the table, for peers; -1: there is none.
  int fd() const noexcept { return memory_.file ? memory_.file.get() : -1; }

 private:
  static constexpr int64_t close_timeout_ms = 200;
  RegionTable& table() const noexcept { return *memory_.mapping.as<RegionTable>(); }
  int conceal(size_t index, std::array<AccessSlot, access_slots>& users, int64_t until) noexcept;

  const uint64_t nonce_;
  os::ReadableMemory memory_;
  std::array<bool, region_entries> closing_{};  // dead, and somebody is still at it
};

// The initiator's side of one peer.
class RegionWindow {
 public:
  RegionWindow() = default;
  RegionWindow(os::Mapping table, AccessSlot& slot) noexcept : table_(std::move(table)), slot_(&slot) {}
  explicit operator bool() const noexcept { return slot_ != nullptr; }

  struct Target {
    const RegionEntry* entry = nullptr;
    uint64_t state = 0;
    uint64_t address = 0;  // in the peer's memory
  };
  // Whether the table is that endpoint's.
  bool is_of(uint64_t nonce) const noexcept {
    return table_.as<const RegionTable>()->nonce.load(std::memory_order_acquire) == nonce;
  }
  // Where [address, address + length) of a region lies that allows it. False: not in the table, or not allowed, or not all of it.
  bool find(uint64_t key, uint64_t address, uint64_t length, bool write, Target& out) const noexcept;
  // From now on the region stays until leave(). False: it has been closed.
  bool enter(const Target& place) noexcept;
  void leave() noexcept { slot_->region.store(0, std::memory_order_release); }
  // The word is somebody else's from now on.
  void release_slot() noexcept;

 private:
  os::Mapping table_;
  AccessSlot* slot_ = nullptr;
};

// A word of the peer's header that is nobody's, or whose owner has gone, taken for this process. Null: all are in use.
AccessSlot* acquire_access_slot(std::array<AccessSlot, access_slots>& users) noexcept;

}  // namespace weft::link::shm
