// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registered memory and the check of every remote access (fi_mr(3)). Must not know frames, system calls or
// who asks.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "core/counter.hpp"
#include "core/registrar.hpp"

namespace weft::core {

// What a registration asks for.
struct RegionRequest {
  const iovec* iov = nullptr;
  size_t iov_count = 0;
  uint64_t access = 0;         // FI_SEND ... FI_REMOTE_WRITE
  uint64_t requested_key = 0;  // used when the program chooses keys
  uint64_t flags = 0;
  void* context = nullptr;
  bool enabled = true;  // false: not reachable before enable() (fi_mr(3), FI_MR_RMA_EVENT)
};

class MemoryRegionTable;

// A region lives in a slot of its table and is never freed before the table, so a stale pointer is harmless
// to look at.
class MemoryRegion {
 public:
  static constexpr size_t iov_max = 16;

  uint64_t key() const noexcept { return key_.load(std::memory_order_relaxed); }
  uint64_t access() const noexcept { return access_; }
  uint64_t base() const noexcept { return base_; }  // the remote address of the first byte: virtual, or 0
  uint64_t length() const noexcept { return length_; }
  size_t iov_count() const noexcept { return iov_count_; }
  const iovec* iov() const noexcept { return iov_.data(); }
  uint64_t flags() const noexcept { return flags_; }
  void* context() const noexcept { return context_; }
  void* handle() const noexcept { return handle_; }  // of the registrar; null without one
  bool enabled() const noexcept { return enabled_.load(std::memory_order_acquire); }
  bool pinned() const noexcept { return (state_.load(std::memory_order_relaxed) & ~dead) != 0; }

  // Counters of fi_mr_bind(3), bumped by the engine at the target of an RMA; null when nothing is bound.
  Counter* remote_write_counter() const noexcept { return write_counter_.load(std::memory_order_acquire); }
  Counter* remote_read_counter() const noexcept { return read_counter_.load(std::memory_order_acquire); }

  // The pieces of [addr, addr + len), which acquire() has checked. `n` in: room in `out`; out: pieces. len
  // 0 gives no piece. Returns 0, or -FI_EINVAL when there is not enough room (iov_max always suffices).
  int translate(uint64_t addr, uint64_t len, iovec* out, size_t& n) const noexcept;

 private:
  friend class MemoryRegionTable;
  void bind(Counter* counter, uint64_t flags) noexcept;
  static constexpr uint64_t dead = uint64_t{1} << 63;

  std::atomic<uint64_t> state_{dead};  // pins, and `dead` while the slot is free
  std::atomic<uint64_t> key_{0};
  std::atomic<MemoryRegion*> next_{nullptr};  // in the bucket
  uint64_t base_ = 0;
  uint64_t length_ = 0;
  uint64_t access_ = 0;
  std::atomic<bool> enabled_{false};
  size_t iov_count_ = 0;
  std::array<iovec, iov_max> iov_{};
  std::atomic<Counter*> write_counter_{nullptr};
  std::atomic<Counter*> read_counter_{nullptr};
  uint64_t flags_ = 0;
  void* context_ = nullptr;
  void* handle_ = nullptr;
};

// Who tells peers of regions that they may reach without a call of this process. Calls are made one at a time, with the table's
// mutex held; they must not call the table.
class RegionObserver {
 public:
  // Peers may reach the region from now on.
  virtual void reachable(const MemoryRegion& region) noexcept = 0;
  // It goes, and no peer may reach it when the call returns 0. -FI_EBUSY: one is still at it after a bounded time.
  virtual int unreachable(const MemoryRegion& region) noexcept = 0;
  // The same for all of them, before detach().
  virtual int all_unreachable() noexcept = 0;

  virtual ~RegionObserver() = default;
};

class MemoryRegionTable {
 public:
  static constexpr size_t count_max = size_t{1} << 20;

  // How this domain registers: bits of fi_domain(3), mr_mode.
  struct Mode {
    bool provider_keys = false;      // FI_MR_PROV_KEY
    bool virtual_addresses = false;  // FI_MR_VIRT_ADDR
    // False: the domain lock or the program serialises all, so that pins need no atomic instruction.
    bool concurrent = true;
  };
  // `random` gives unguessable numbers; it returns false when the system has none. Not called before the
  // first provider key.
  using Random = bool (*)(void* bytes, size_t len);

  MemoryRegionTable(Mode mode, Random random) noexcept : mode_(mode), random_(random) {}
  ~MemoryRegionTable();
  MemoryRegionTable(const MemoryRegionTable&) = delete;
  MemoryRegionTable& operator=(const MemoryRegionTable&) = delete;

  // Before the first region. The registrar outlives the regions. Null: nobody is told of them.
  void set_registrar(Registrar* registrar) noexcept { registrar_ = registrar; }
  // Is told of all regions that peers may reach, first of those that are there. Any thread; not twice. May throw std::bad_alloc.
  void attach(RegionObserver& observer);
  // 0: it is told nothing more. -FI_EBUSY: some region may still be reached; it stays.
  int detach(RegionObserver& observer) noexcept;

  // Control path, any thread. Errors: FI_ENOKEY (that key is in use), FI_EINVAL, FI_ENOMEM, FI_ENOSPC, and those of the
  // registrar.
  Result<MemoryRegion*> add(const RegionRequest& request);
  // Peers may reach it from now on.
  void enable(MemoryRegion& region) noexcept;
  // A counter that the engine bumps from now on. Observers are told anew.
  void bind(MemoryRegion& region, Counter* counter, uint64_t flags) noexcept;
  // 0; or -FI_EBUSY while a transfer has it pinned, or the registrar's device uses it: the region stays.
  int remove(MemoryRegion& region) noexcept;
  size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  const Mode& mode() const noexcept { return mode_; }

  // Data path, no lock. Checks key, `access` (all of these bits must be granted) and bounds, then pins the
  // region. 0; -FI_EKEYREJECTED: no such key, or not enabled; -FI_EACCES: not granted, or outside the
  // region. Length 0 is checked as well.
  int acquire(uint64_t key, uint64_t addr, uint64_t len, uint64_t access, MemoryRegion*& out) noexcept {
    MemoryRegion* region = find_pinned(key);
    if (region == nullptr) [[unlikely]]
      return -FI_EKEYREJECTED;
    const uint64_t offset = addr - region->base_;
    if ((region->access_ & access) != access || addr < region->base_ || offset > region->length_ ||
        len > region->length_ - offset) [[unlikely]] {
      release(*region);
      return -FI_EACCES;
    }
    out = region;
    return 0;
  }
  void release(MemoryRegion& region) noexcept {
    if (mode_.concurrent) {
      region.state_.fetch_sub(1, std::memory_order_release);
    } else {
      region.state_.store(region.state_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    }
  }
  // Another pin on a region that is pinned already.
  void pin(MemoryRegion& region) noexcept {
    if (mode_.concurrent) {
      region.state_.fetch_add(1, std::memory_order_acquire);
    } else {
      region.state_.store(region.state_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }

 private:
  // Buckets never shrink; the old ones stay until the table goes, because a reader may still walk them.
  struct Buckets {
    size_t mask = 0;
    std::unique_ptr<std::atomic<MemoryRegion*>[]> heads;
  };

  static uint64_t mix(uint64_t key) noexcept {
    key *= 0x9e3779b97f4a7c15u;
    return key ^ (key >> 32);
  }
  MemoryRegion* find_pinned(uint64_t key) noexcept;
  bool try_pin(MemoryRegion& region, uint64_t key) noexcept;
  MemoryRegion* find_locked(uint64_t key) const noexcept;
  Result<uint64_t> choose_key();
  MemoryRegion* free_slot();
  Result<void> notify_registrar(MemoryRegion& region);
  void notify_reachable(const MemoryRegion& region) noexcept;
  void grow();
  void link(MemoryRegion& region) noexcept;
  void unlink(MemoryRegion& region) noexcept;

  const Mode mode_;
  const Random random_;
  std::atomic<const Buckets*> buckets_{nullptr};
  std::atomic<uint64_t> version_{
      0};  // odd while chains change; a reader that missed looks again when it moved
  std::atomic<size_t> count_{0};
  std::mutex mutex_;  // everything below, and every call of the registrar
  Registrar* registrar_ = nullptr;
  std::vector<RegionObserver*> observers_;
  std::vector<std::unique_ptr<Buckets>> all_buckets_;
  std::vector<std::unique_ptr<MemoryRegion[]>> slabs_;
  size_t slots_ = 0;  // in all slabs
  std::vector<MemoryRegion*> free_;
};

}  // namespace weft::core
