// Regions and windows: making, binding, invalidating.
#include "proto/roce/memory.hpp"

#include <vector>

namespace weft::proto::roce {

MemoryTable::~MemoryTable() {
  table_.for_each([](Region& region) { delete &region; });
}

Result<Region*> MemoryTable::keep(std::unique_ptr<Region> region) {
  uint8_t tag = 0;
  if (!random_(&tag, sizeof tag)) return Error{EAGAIN, "the system has no random numbers"};
  auto number = table_.add(*region);
  if (!number) return number.error();
  region->key = *number << 8 | tag;
  return region.release();
}

Result<Region*> MemoryTable::add(uint32_t pd, std::byte* at, uint64_t base, uint64_t length,
                                 uint32_t access) {
  if ((access & (remote_write | remote_atomic)) != 0 && (access & local_write) == 0)
    return Error{EINVAL, "remote write and remote atomic need local write"};
  if (base + length < base || reinterpret_cast<uint64_t>(at) + length < length)
    return Error{EINVAL, "the region goes beyond the end of the address space"};
  auto region = std::make_unique<Region>();
  region->pd = pd;
  region->base = (access & zero_based) != 0 ? 0 : base;
  region->length = length;
  region->at = at;
  region->access = access;
  region->valid = true;
  return keep(std::move(region));
}

int MemoryTable::remove(Region& region) noexcept {
  if (region.windows != 0) return -EBUSY;
  table_.remove(region.key >> 8);
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
  if (window.parent != nullptr) --window.parent->windows;
  window.parent = nullptr;
  window.valid = false;
}

void MemoryTable::remove_window(Region& window) noexcept {
  release(window);
  table_.remove(window.key >> 8);
  delete &window;
}

Status MemoryTable::bind(uint32_t pd, uint32_t qpn, const SendRequest::Bind& what,
                         uint32_t new_key) noexcept {
  Region* window = table_.find(what.window_key >> 8);
  if (window == nullptr || !window->is_window || window->pd != pd) return Status::WindowBind;
  if (new_key >> 8 != window->key >> 8) return Status::WindowBind;
  // One of type 2 has to be invalidated first.
  if (window->type == WindowType::Two && (window->valid || what.length == 0)) return Status::WindowBind;
  if (what.length == 0) {
    release(*window);
    window->key = new_key;
    return Status::Success;
  }
  Region* region = find(what.region_key);
  std::byte* at = nullptr;
  if (region == nullptr || region->is_window || region->pd != pd || (region->access & window_bind) == 0 ||
      !place(*region, what.address, what.length, at))
    return Status::WindowBind;
  if ((what.access & (remote_write | remote_atomic)) != 0 && (region->access & local_write) == 0)
    return Status::WindowBind;
  release(*window);
  window->key = new_key;
  window->base = (what.access & zero_based) != 0 ? 0 : what.address;
  window->length = what.length;
  window->at = at;
  window->access = what.access & (remote_write | remote_read | remote_atomic);
  window->qpn = qpn;
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
  release(*window);
  return true;
}

}  // namespace weft::proto::roce
