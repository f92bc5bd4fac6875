// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table of regions that peers reach by themselves.
#include "link/shm/exposed_regions.hpp"

#include <cerrno>

#include "base/assert.hpp"
#include "os/event.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"

namespace weft::link::shm {
namespace {

size_t home_slot(uint64_t key) noexcept {
  key *= 0x9e3779b97f4a7c15U;
  return (key ^ (key >> 32)) % region_entries;
}

// The places of a key, in order. Null: `wanted` took none.
template <class Table, class Wanted>
auto probe(Table& table, uint64_t key, Wanted&& wanted) noexcept -> decltype(table.entries.data()) {
  for (size_t i = 0; i < region_probes; ++i) {
    auto& entry = table.entries[(home_slot(key) + i) % region_entries];
    if (wanted(entry)) return &entry;
  }
  return nullptr;
}

bool is_alive(uint64_t state) noexcept { return (state & 1) != 0; }

pid_t owner_of(uint64_t word) noexcept { return static_cast<pid_t>(word >> 32); }

// Also a process that nobody has waited for yet.
bool has_gone(pid_t pid) noexcept {
  if (pid <= 0) return true;
  const os::Fd process = os::open_process(pid);
  return process ? os::has_exited(process) : !os::is_running(pid);
}

}  // namespace

// --- the target ---

bool ExposedRegions::expose(const proto::ExposedRegion& region) noexcept {
  if (!memory_.file) {
    auto made = os::create_readable_memory("weft-regions", region_table_bytes);
    if (!made || !os::have_pages(made->mapping, region_table_bytes)) return false;
    memory_ = std::move(*made);
    table().nonce.store(nonce_, std::memory_order_release);
  }
  RegionEntry* entry = probe(table(), region.key, [&](const RegionEntry& at) {
    return !is_alive(at.state.load(std::memory_order_relaxed)) &&
           !closing_[static_cast<size_t>(&at - table().entries.data())];
  });
  if (entry == nullptr) return false;
  WEFT_ASSERT(!closing_[static_cast<size_t>(entry - table().entries.data())]);
  // The entry's death before its new words: pairs with the fence in find().
  std::atomic_thread_fence(std::memory_order_release);
  entry->key.store(region.key, std::memory_order_relaxed);
  entry->base.store(region.base, std::memory_order_relaxed);
  entry->length.store(region.length, std::memory_order_relaxed);
  entry->address.store(region.address, std::memory_order_relaxed);
  entry->rights.store(
      (region.readable ? RegionEntry::readable : 0) | (region.writable ? RegionEntry::writable : 0),
      std::memory_order_relaxed);
  entry->state.fetch_add(1, std::memory_order_release);
  return true;
}

int ExposedRegions::conceal(uint64_t key, std::array<AccessSlot, access_slots>& users) noexcept {
  if (!memory_.file) return 0;
  const int64_t until = os::now_ms() + close_timeout_ms;
  int status = 0;
  (void)probe(table(), key, [&](const RegionEntry& at) {
    if (at.key.load(std::memory_order_relaxed) == key)
      if (const int busy = conceal(static_cast<size_t>(&at - table().entries.data()), users, until);
          busy != 0)
        status = busy;
    return false;
  });
  return status;
}

int ExposedRegions::conceal_all(std::array<AccessSlot, access_slots>& users) noexcept {
  if (!memory_.file) return 0;
  const int64_t until = os::now_ms() + close_timeout_ms;
  int status = 0;
  for (size_t i = 0; i < region_entries; ++i)
    if (const int busy = conceal(i, users, until); busy != 0) status = busy;
  return status;
}

int ExposedRegions::conceal(size_t index, std::array<AccessSlot, access_slots>& users,
                            int64_t until) noexcept {
  WEFT_ASSERT(index < region_entries && memory_.file);
  RegionEntry& entry = table().entries[index];
  if (is_alive(entry.state.load(std::memory_order_relaxed))) {
    entry.state.fetch_add(1, std::memory_order_seq_cst);
    closing_[index] = true;
  }
  if (!closing_[index]) return 0;
  for (AccessSlot& user : users)
    while (user.region.load(std::memory_order_seq_cst) == index + 1) {
      // Who was killed in the middle has left its word; its copy ended with it.
      if (has_gone(owner_of(user.owner.load(std::memory_order_relaxed)))) break;
      if (os::now_ms() > until) return -EBUSY;
      os::yield_processor();
    }
  closing_[index] = false;
  return 0;
}

// --- the initiator ---

bool RegionWindow::find(uint64_t key, uint64_t address, uint64_t length, bool write,
                        Target& out) const noexcept {
  const RegionEntry* entry = probe(*table_.as<const RegionTable>(), key, [&](const RegionEntry& at) {
    return is_alive(at.state.load(std::memory_order_acquire)) &&
           at.key.load(std::memory_order_relaxed) == key;
  });
  if (entry == nullptr) return false;
  const uint64_t state = entry->state.load(std::memory_order_acquire);
  const uint64_t base = entry->base.load(std::memory_order_relaxed);
  const uint64_t bytes = entry->length.load(std::memory_order_relaxed);
  const uint64_t place = entry->address.load(std::memory_order_relaxed);
  const uint64_t rights = entry->rights.load(std::memory_order_relaxed);
  const bool is_it = entry->key.load(std::memory_order_relaxed) == key;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!is_it || !is_alive(state) || entry->state.load(std::memory_order_relaxed) != state) return false;
  const uint64_t offset = address - base;
  if ((rights & (write ? RegionEntry::writable : RegionEntry::readable)) == 0 || address < base ||
      offset > bytes || length > bytes - offset)
    return false;
  out = {entry, state, place + offset};
  return true;
}

bool RegionWindow::enter(const Target& place) noexcept {
  const auto number = static_cast<uint64_t>(place.entry - table_.as<const RegionTable>()->entries.data()) + 1;
  WEFT_ASSERT(slot_ != nullptr && number != 0 && number <= region_entries);
  slot_->region.store(number, std::memory_order_seq_cst);
  if (place.entry->state.load(std::memory_order_seq_cst) == place.state) return true;
  leave();
  return false;
}

void RegionWindow::release_slot() noexcept {
  if (slot_ == nullptr) return;
  slot_->region.store(0, std::memory_order_relaxed);
  slot_->owner.store(0, std::memory_order_release);
  slot_ = nullptr;
}

AccessSlot* acquire_access_slot(std::array<AccessSlot, access_slots>& users) noexcept {
  const uint64_t us = static_cast<uint64_t>(os::process_id()) << 32 | (os::random_bits() & 0xffffffff) | 1;
  for (AccessSlot& slot : users) {
    uint64_t owner = slot.owner.load(std::memory_order_relaxed);
    if (owner != 0 && !has_gone(owner_of(owner))) continue;
    if (!slot.owner.compare_exchange_strong(owner, us, std::memory_order_acq_rel)) continue;
    slot.region.store(0, std::memory_order_relaxed);
    return &slot;
  }
  return nullptr;
}

}  // namespace weft::link::shm
