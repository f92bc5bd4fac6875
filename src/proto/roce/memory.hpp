// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory regions and windows of an adapter, and the check of every access to memory: IBTA 10.6. Must not know packets.
//
// A key has 24 random bits, under which the table knows the object, and a tag of 8 bits. That of a region is random;
// that of a window is the program's (10.6.7). Checks are made at each use, so whatever was deregistered or
// invalidated is not reached again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/assert.hpp"
#include "base/result.hpp"
#include "proto/roce/fault.hpp"
#include "proto/roce/number_table.hpp"
#include "proto/roce/work.hpp"

namespace weft::proto::roce {

enum class WindowType : uint8_t { One = 1, Two = 2 };

struct Region {
  uint32_t key = 0;  // lkey and rkey of a region, rkey of a window
  uint32_t pd = 0;
  uint64_t base = 0;  // the address that stands for the first byte
  uint64_t length = 0;
  std::byte* at = nullptr;
  uint32_t access = 0;
  bool valid = false;         // false: a window that is not bound
  bool is_null = false;       // reads as zeros, and what is written is gone (ibv_alloc_null_mr(3))
  bool is_on_demand = false;  // what is not mapped is found out at each access
  // Windows.
  bool is_window = false;
  WindowType type = WindowType::One;
  uint32_t qpn = 0;          // of a bound one of type 2
  Region* parent = nullptr;  // of a bound one
  // Regions.
  uint32_t windows = 0;  // bound to it
};

// Whether the process may read, or write, all of that memory now; it is mapped if need be. May sleep.
using Probe = bool (*)(std::byte* at, uint64_t length, bool write) noexcept;

class MemoryTable {
 public:
  explicit MemoryTable(Random random) : random_(random), table_(2 * keys_max, random) {}
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;
  ~MemoryTable();

  Probe probe = nullptr;  // for regions that are registered with on_demand; null: these are refused

  // --- control ---
  // [at, at + length) under the addresses from `base` on. EINVAL: remote write or atomic without local write
  // (ibv_reg_mr(3)), or a range that wraps.
  Result<Region*> add(uint32_t pd, std::byte* at, uint64_t base, uint64_t length, uint32_t access);
  // Local accesses only.
  Result<Region*> add_null(uint32_t pd);
  // ibv_rereg_mr(3), the key stays. EBUSY: windows are bound to it. Nothing is changed by what is refused.
  Result<void> change(Region& region, uint32_t pd, std::byte* at, uint64_t base, uint64_t length,
                      uint32_t access);
  // 0; -EBUSY: windows are bound to it.
  int remove(Region& region) noexcept;
  Result<Region*> add_window(uint32_t pd, WindowType type);
  void remove_window(Region& window) noexcept;
  size_t size() const noexcept { return table_.size(); }

  // --- work requests ---
  // what.window_key says which window by its upper 24 bits: binds that were posted before this one may change the tag.
  Status bind(uint32_t pd, uint32_t qpn, const SendRequest::Bind& what, uint32_t new_key) noexcept;
  // By the program or by a SEND with invalidate. False: no such bound window of type 2.
  bool invalidate(uint32_t pd, uint32_t qpn, uint32_t key) noexcept;

  // Why an access was not allowed: into `fault`, with what there is. `rights`: remote ones, or local_write for an element
  // that is written, 0 for one that is read. Nothing where it is allowed.
  void why_not(uint32_t key, uint32_t pd, uint32_t qpn, uint64_t address, uint64_t length, uint32_t rights,
               bool is_remote, Fault& fault) const noexcept;

  // --- accesses --- False: not allowed. `length` is not 0.
  bool local(uint32_t key, uint32_t pd, uint64_t address, uint64_t length, bool write,
             std::byte*& out) const noexcept {
    WEFT_ASSERT(length != 0);
    const Region* r = find(key);
    if (r == nullptr || r->is_window || r->pd != pd || (write && (r->access & local_write) == 0))
      return false;
    return translate(*r, address, length, write, out);
  }
  bool remote(uint32_t key, uint32_t pd, uint32_t qpn, uint64_t address, uint64_t length, uint32_t rights,
              std::byte*& out) const noexcept {
    WEFT_ASSERT(length != 0 && rights != 0);
    const Region* r = find(key);
    if (r == nullptr || r->pd != pd || (r->access & rights) != rights) return false;
    if (r->is_window && r->type == WindowType::Two && r->qpn != qpn) return false;
    return translate(*r, address, length, (rights & (remote_write | remote_atomic)) != 0, out);
  }
  // The same check for a FLUSH, which touches no memory: of a range, or of all that the key covers.
  bool may_flush(uint32_t key, uint32_t pd, uint32_t qpn, uint64_t address, uint64_t length, bool is_all,
                 uint32_t rights) const noexcept {
    const Region* r = find(key);
    if (r == nullptr || r->pd != pd || (r->access & rights) != rights) return false;
    if (r->is_window && r->type == WindowType::Two && r->qpn != qpn) return false;
    return is_all || covers(*r, address, length);
  }

 private:
  Region* find(uint32_t key) const noexcept {
    Region* r = table_.find(key >> 8);
    return r != nullptr && r->key == key && r->valid ? r : nullptr;
  }
  static bool covers(const Region& r, uint64_t address, uint64_t length) noexcept {
    const uint64_t offset = address - r.base;
    return address >= r.base && offset <= r.length && length <= r.length - offset;
  }
  bool translate(const Region& r, uint64_t address, uint64_t length, bool write,
                 std::byte*& out) const noexcept {
    if (!covers(r, address, length)) return false;
    WEFT_ASSERT(r.valid);
    out = r.at + (address - r.base);
    if (r.is_null || r.is_on_demand) [[unlikely]]
      return translate_unmapped(r, length, write, out);
    return true;
  }
  bool translate_unmapped(const Region& r, uint64_t length, bool write, std::byte*& out) const noexcept;
  Result<void> check(std::byte* at, uint64_t base, uint64_t length, uint32_t access) const;
  static void release(Region& window) noexcept;
  Result<Region*> keep(std::unique_ptr<Region> region);

  Random random_;
  NumberTable<Region> table_;
  std::array<size_t, 2> counts_{};  // regions, windows: at most keys_max of each
};

}  // namespace weft::proto::roce
