// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Regions and windows: making, binding, invalidating.
#include "proto/roce/memory.hpp"

#include <array>
#include <vector>

#include "base/assert.hpp"

namespace weft::proto::roce {

// The most that one access moves: a packet's payload.
static constexpr size_t access_bytes_max = mtu_bytes_max;

MemoryTable::~MemoryTable() {
  table_.for_each([](Region& region) { delete &region; });
}

Result<Region*> MemoryTable::keep(std::unique_ptr<Region> region) {
  size_t& count = counts_[region->is_window ? 1 : 0];
  if (count == keys_max)
    return Error{ENOMEM, region->is_window ? "as many memory windows as a device has (max_mw)"
                                           : "as many memory regions as a device has (max_mr)"};
  uint8_t tag = 0;
  if (!random_(&tag, sizeof tag)) return Error{EAGAIN, "the system has no random numbers"};
  auto number = table_.add(*region);
  if (!number) return number.error();
  region->key = *number << 8 | tag;
  ++count;
  return region.release();
}

Result<void> MemoryTable::check(std::byte* at, uint64_t base, uint64_t length, uint32_t access) const {
  if ((access & (remote_write | remote_atomic)) != 0 && (access & local_write) == 0)
    return Error{EINVAL, "remote write and remote atomic need local write"};
  if (base + length < base || reinterpret_cast<uint64_t>(at) + length < length)
    return Error{EINVAL, "the region goes beyond the end of the address space"};
  if ((access & on_demand) != 0 && probe == nullptr)
    return Error{EOPNOTSUPP, "regions on demand are not possible here"};
  return {};
}

static void fill(Region& region, uint32_t pd, std::byte* at, uint64_t base, uint64_t length,
                 uint32_t access) noexcept {
  region.pd = pd;
  region.base = (access & zero_based) != 0 ? 0 : base;
  region.length = length;
  region.at = at;
  region.access = access;
  region.valid = true;
  region.is_on_demand = (access & on_demand) != 0;
}

Result<Region*> MemoryTable::add(uint32_t pd, std::byte* at, uint64_t base, uint64_t length,
                                 uint32_t access) {
  if (auto ok = check(at, base, length, access); !ok) return ok.error();
  auto region = std::make_unique<Region>();
  fill(*region, pd, at, base, length, access);
  return keep(std::move(region));
}

Result<Region*> MemoryTable::add_null(uint32_t pd) {
  auto region = std::make_unique<Region>();
  fill(*region, pd, nullptr, 0, UINT64_MAX, local_write);
  region->is_null = true;
  return keep(std::move(region));
}

Result<void> MemoryTable::change(Region& region, uint32_t pd, std::byte* at, uint64_t base, uint64_t length,
                                 uint32_t access) {
  if (region.windows != 0) return Error{EBUSY, "memory windows are bound to the region"};
  if (region.is_null) return Error{EINVAL, "a null region stays as it is"};
  if (auto ok = check(at, base, length, access); !ok) return ok;
  fill(region, pd, at, base, length, access);
  return {};
}

bool MemoryTable::translate_unmapped(const Region& r, uint64_t length, bool write,
                                     std::byte*& out) const noexcept {
  if (!r.is_null) return probe(out, length, write);
  static std::array<std::byte, access_bytes_max> zeros{};
  static std::array<std::byte, access_bytes_max> sink;
  if (length > access_bytes_max) return false;
  out = write ? sink.data() : zeros.data();
  return true;
}

void MemoryTable::why_not(uint32_t key, uint32_t pd, uint32_t qpn, uint64_t address, uint64_t length,
                          uint32_t rights, bool is_remote, Fault& fault) const noexcept {
  fault.has_memory = true;
  fault.key = key;
  fault.address = address;
  fault.length = length;
  const Region* r = find(key);
  if (r == nullptr || (r->is_window && !is_remote)) {
    fault.cause = is_remote ? WEFT_FAULT_RKEY_UNKNOWN : WEFT_FAULT_LKEY_UNKNOWN;
    return;
  }
  fault.has_region = true;
  fault.base = r->base;
  fault.bytes = r->length;
  if (r->pd != pd) {
    fault.cause = is_remote ? WEFT_FAULT_RKEY_DOMAIN : WEFT_FAULT_LKEY_DOMAIN;
  } else if ((r->access & rights) != rights) {
    fault.cause = is_remote ? WEFT_FAULT_RKEY_RIGHTS : WEFT_FAULT_LKEY_RIGHTS;
    fault.wanted = rights;
    fault.given = r->access;
  } else if (r->is_window && r->type == WindowType::Two && r->qpn != qpn) {
    fault.cause = WEFT_FAULT_RKEY_QUEUE_PAIR;
    fault.wanted = qpn;
    fault.given = r->qpn;
  } else if (!covers(*r, address, length)) {
    fault.cause = is_remote ? WEFT_FAULT_RKEY_BOUNDS : WEFT_FAULT_LKEY_BOUNDS;
  } else if (std::byte* at = nullptr;
             !translate(*r, address, length, rights != 0 && rights != remote_read, at)) {
    fault.cause = is_remote ? WEFT_FAULT_RKEY_UNMAPPED : WEFT_FAULT_LKEY_UNMAPPED;
  }
}

int MemoryTable::remove(Region& region) noexcept {
  if (region.windows != 0) return -EBUSY;
  WEFT_ASSERT(!region.is_window && counts_[0] != 0);
  table_.remove(region.key >> 8);
  --counts_[0];
  delete &region;
  return 0;
}

Result<Region*> MemoryTable::add_window(uint32_t pd, WindowType type) {
  auto window = std::make_unique<Region>();
  window->pd = pd;
  window->is_window = true;
  window->type = type;
  return keep(std::move(window));
}

void MemoryTable::release(Region& window) noexcept {
  WEFT_ASSERT(window.is_window);
  WEFT_ASSERT(window.parent == nullptr || window.parent->windows != 0);
  if (window.parent != nullptr) --window.parent->windows;
  window.parent = nullptr;
  window.valid = false;
}

void MemoryTable::remove_window(Region& window) noexcept {
  release(window);
  WEFT_ASSERT(window.is_window && counts_[1] != 0);
  table_.remove(window.key >> 8);
  --counts_[1];
  delete &window;
}

Status MemoryTable::bind(uint32_t pd, uint32_t qpn, const SendRequest::Bind& what,
                         uint32_t new_key) noexcept {
  Region* window = table_.find(what.window_key >> 8);
  if (window == nullptr || !window->is_window || window->pd != pd) return Status::WindowBind;
  // The window keeps its index: of the new key the tag counts (10.6.7).
  new_key = (window->key & ~0xffu) | (new_key & 0xff);
  // One of type 2 has to be invalidated first.
  if (window->type == WindowType::Two && (window->valid || what.length == 0)) return Status::WindowBind;
  if (what.length == 0) {
    release(*window);
    window->key = new_key;
    return Status::Success;
  }
  Region* region = find(what.region_key);
  if (region == nullptr || region->is_window || region->pd != pd || (region->access & window_bind) == 0 ||
      !covers(*region, what.address, what.length))
    return Status::WindowBind;
  if ((what.access & (remote_write | remote_atomic)) != 0 && (region->access & local_write) == 0)
    return Status::WindowBind;
  release(*window);
  window->key = new_key;
  window->base = (what.access & zero_based) != 0 ? 0 : what.address;
  window->length = what.length;
  window->at = region->at + (what.address - region->base);
  window->is_on_demand = region->is_on_demand;
  window->access = what.access & (remote_write | remote_read | remote_atomic);
  window->qpn = qpn;
  WEFT_ASSERT(window->parent == nullptr && window->base + window->length >= window->base);
  window->parent = region;
  window->valid = true;
  ++region->windows;
  return Status::Success;
}

bool MemoryTable::invalidate(uint32_t pd, uint32_t qpn, uint32_t key) noexcept {
  Region* window = find(key);
  if (window == nullptr || !window->is_window || window->type != WindowType::Two || window->pd != pd ||
      window->qpn != qpn)
    return false;
  WEFT_ASSERT(window->valid && window->parent != nullptr);
  release(*window);
  return true;
}

}  // namespace weft::proto::roce
