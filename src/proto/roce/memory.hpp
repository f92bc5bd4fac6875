// Memory regions and windows of an adapter, and the check of every access to memory: IBTA 10.6. Must not know packets.
//
// A key has 24 random bits, under which the table knows the object, and a tag of 8 bits. That of a region is random;
// that of a window is the program's (10.6.7). Checks are made at each use, so whatever was deregistered or
// invalidated is not reached again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
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
  bool valid = false;  // false: a window that is not bound
  // Windows.
  bool is_window = false;
  WindowType type = WindowType::One;
  uint32_t qpn = 0;          // of a bound one of type 2
  Region* parent = nullptr;  // of a bound one
  // Regions.
  uint32_t windows = 0;  // bound to it
};

class MemoryTable {
 public:
  explicit MemoryTable(Random random) : random_(random), table_(keys_max, random) {}
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;
  ~MemoryTable();

  // --- control ---
  // [at, at + length) under the addresses from `base` on. EINVAL: remote write or atomic without local write
  // (ibv_reg_mr(3)), or a range that wraps.
  Result<Region*> add(uint32_t pd, std::byte* at, uint64_t base, uint64_t length, uint32_t access);
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

  // --- accesses --- False: not allowed. `length` is not 0.
  bool local(uint32_t key, uint32_t pd, uint64_t address, uint64_t length, bool write,
             std::byte*& out) const noexcept {
    const Region* r = find(key);
    if (r == nullptr || r->is_window || r->pd != pd || (write && (r->access & local_write) == 0))
      return false;
    return place(*r, address, length, out);
  }
  bool remote(uint32_t key, uint32_t pd, uint32_t qpn, uint64_t address, uint64_t length, uint32_t rights,
              std::byte*& out) const noexcept {
    const Region* r = find(key);
    if (r == nullptr || r->pd != pd || (r->access & rights) != rights) return false;
    if (r->is_window && r->type == WindowType::Two && r->qpn != qpn) return false;
    return place(*r, address, length, out);
  }

 private:
  Region* find(uint32_t key) const noexcept {
    Region* r = table_.find(key >> 8);
    return r != nullptr && r->key == key && r->valid ? r : nullptr;
  }
  static bool place(const Region& r, uint64_t address, uint64_t length, std::byte*& out) noexcept {
    const uint64_t offset = address - r.base;
    if (address < r.base || offset > r.length || length > r.length - offset) return false;
    out = r.at + offset;
    return true;
  }
  static void release(Region& window) noexcept;
  Result<Region*> keep(std::unique_ptr<Region> region);

  Random random_;
  NumberTable<Region> table_;
};

}  // namespace weft::proto::roce
