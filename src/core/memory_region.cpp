// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registration, and the lock-free way from a key to a pinned region. Must not know frames, system calls or
// who asks.
#include "core/memory_region.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

namespace weft::core {

namespace {

// The bytes of all pieces, or nothing when they overflow or a piece leaves the address space.
bool total_length(const RegionRequest& request, uint64_t& total) {
  total = 0;
  for (size_t i = 0; i < request.iov_count; ++i) {
    const auto start = reinterpret_cast<uintptr_t>(request.iov[i].iov_base);
    const uint64_t len = request.iov[i].iov_len;
    if (start + len < start || total + len < total) return false;
    total += len;
  }
  return true;
}

Registration registration_of(const MemoryRegion& region) noexcept {
  return {{region.iov(), region.iov_count()},
          rights_of(region.access()),
          region.key(),
          region.base(),
          region.length(),
          region.enabled()};
}

// Whether peers may reach it. The keys of other regions mean nothing to anybody, so that two of them, or one of them and one that peers may
// reach, may have the same.
bool is_reached(uint64_t access) noexcept {
  const auto rights = rights_of(access);
  return rights.remote_read || rights.remote_write;
}

// Those that peers may reach go to the front of the chain, the others to its end. The table's version is odd. next_of: a region's link.
template <class NextOf>
void insert(std::atomic<MemoryRegion*>& head, MemoryRegion& region, NextOf next_of) noexcept {
  std::atomic<MemoryRegion*>* place = &head;
  if (!is_reached(region.access()))
    while (MemoryRegion* next = place->load(std::memory_order_relaxed)) place = &next_of(*next);
  next_of(region).store(place->load(std::memory_order_relaxed), std::memory_order_release);
  place->store(&region, std::memory_order_release);
}

}  // namespace

void MemoryRegion::bind(Counter* counter, uint64_t flags) noexcept {
  if ((flags & FI_REMOTE_WRITE) != 0) write_counter_.store(counter, std::memory_order_release);
  if ((flags & FI_REMOTE_READ) != 0) read_counter_.store(counter, std::memory_order_release);
}

int MemoryRegion::translate(uint64_t addr, uint64_t len, iovec* out, size_t& n) const noexcept {
  const size_t room = n;
  n = 0;
  uint64_t skip = addr - base_;
  for (size_t i = 0; i < iov_count_ && len != 0; ++i) {
    const uint64_t piece = iov_[i].iov_len;
    if (skip >= piece) {
      skip -= piece;
      continue;
    }
    if (n == room) return -FI_EINVAL;
    const uint64_t take = len < piece - skip ? len : piece - skip;
    out[n++] = iovec{static_cast<std::byte*>(iov_[i].iov_base) + skip, size_t(take)};
    len -= take;
    skip = 0;
  }
  return len == 0 ? 0 : -FI_EINVAL;
}

MemoryRegionTable::~MemoryRegionTable() = default;

bool MemoryRegionTable::try_pin(MemoryRegion& region, uint64_t key) noexcept {
  if (!mode_.concurrent) {
    const uint64_t state = region.state_.load(std::memory_order_relaxed);
    if ((state & MemoryRegion::dead) != 0 || region.key() != key) return false;
    region.state_.store(state + 1, std::memory_order_relaxed);
    return true;
  }
  // Between finding the slot and pinning it, it may have been given to another key; once pinned it stays
  // what it is.
  const uint64_t before = region.state_.fetch_add(1, std::memory_order_acquire);
  if ((before & MemoryRegion::dead) == 0 && region.key() == key) return true;
  region.state_.fetch_sub(1, std::memory_order_release);
  return false;
}

MemoryRegion* MemoryRegionTable::find_pinned(uint64_t key) noexcept {
  for (;;) {
    const uint64_t version = version_.load(std::memory_order_acquire);
    const Buckets* buckets = buckets_.load(std::memory_order_acquire);
    if (buckets == nullptr) return nullptr;
    MemoryRegion* region = buckets->heads[mix(key) & buckets->mask].load(std::memory_order_acquire);
    while (region != nullptr && region->key() != key) region = region->next_.load(std::memory_order_acquire);
    if (region != nullptr && try_pin(*region, key)) {
      // Regions that peers may reach come first in a chain (link()), but not while it changes.
      const bool is_sure = is_reached(region->access()) ||
                           ((version & 1) == 0 && version_.load(std::memory_order_acquire) == version);
      if (is_sure && region->enabled()) return region;
      release(*region);
      if (is_sure) return nullptr;
      continue;
    }
    // Missed. While chains change, a walk may have been led astray: only a quiet table says no. The acquire
    // loads above keep this one last.
    if ((version & 1) == 0 && version_.load(std::memory_order_acquire) == version) return nullptr;
  }
}

MemoryRegion* MemoryRegionTable::find_locked(uint64_t key) const noexcept {
  const Buckets* buckets = buckets_.load(std::memory_order_relaxed);
  if (buckets == nullptr) return nullptr;
  MemoryRegion* region = buckets->heads[mix(key) & buckets->mask].load(std::memory_order_relaxed);
  while (region != nullptr && (region->key() != key || !is_reached(region->access())))
    region = region->next_.load(std::memory_order_relaxed);
  return region;
}

Result<uint64_t> MemoryRegionTable::choose_key() {
  // All 64 bits are random: who was not told a key cannot try them all. FI_KEY_NOTAVAIL means "none" in
  // fi_mr(3).
  for (int attempt = 0; attempt < 64; ++attempt) {
    uint64_t key = 0;
    if (random_ == nullptr || !random_(&key, sizeof key)) break;
    if (key != FI_KEY_NOTAVAIL && find_locked(key) == nullptr) return key;
  }
  return Error{FI_EIO, "the system gives no random numbers, so no unguessable key can be chosen"};
}

MemoryRegion* MemoryRegionTable::free_slot() {
  if (free_.empty()) {
    const size_t slots = slabs_.empty() ? 8 : size_t{64};
    slabs_.reserve(slabs_.size() + 1);
    free_.reserve(slots_ + slots);  // room for all, so that remove() cannot fail
    slabs_.push_back(std::make_unique<MemoryRegion[]>(slots));
    slots_ += slots;
    for (size_t i = slots; i > 0; --i) free_.push_back(&slabs_.back()[i - 1]);
  }
  return free_.back();
}

// Twice the buckets. Readers that walk the old ones may miss; the odd version sends them round again.
void MemoryRegionTable::grow() {
  const Buckets* old = buckets_.load(std::memory_order_relaxed);
  const size_t size = old == nullptr ? 16 : (old->mask + 1) * 2;
  auto bigger = std::make_unique<Buckets>();
  bigger->mask = size - 1;
  bigger->heads = std::make_unique<std::atomic<MemoryRegion*>[]>(size);
  Buckets* target = bigger.get();
  all_buckets_.push_back(std::move(bigger));
  version_.fetch_add(1, std::memory_order_acq_rel);
  for (size_t i = 0; old != nullptr && i <= old->mask; ++i) {
    MemoryRegion* region = old->heads[i].load(std::memory_order_relaxed);
    while (region != nullptr) {
      MemoryRegion* next = region->next_.load(std::memory_order_relaxed);
      insert(
          target->heads[mix(region->key()) & target->mask], *region,
          [](MemoryRegion & at) -> auto& { return at.next_; });
      region = next;
    }
  }
  buckets_.store(target, std::memory_order_release);
  version_.fetch_add(1, std::memory_order_release);
}

void MemoryRegionTable::link(MemoryRegion& region) noexcept {
  const Buckets* buckets = buckets_.load(std::memory_order_relaxed);
  version_.fetch_add(1, std::memory_order_acq_rel);
  insert(
      buckets->heads[mix(region.key()) & buckets->mask], region,
      [](MemoryRegion & at) -> auto& { return at.next_; });
  version_.fetch_add(1, std::memory_order_release);
}

void MemoryRegionTable::unlink(MemoryRegion& region) noexcept {
  const Buckets* buckets = buckets_.load(std::memory_order_relaxed);
  std::atomic<MemoryRegion*>* place = &buckets->heads[mix(region.key()) & buckets->mask];
  while (place->load(std::memory_order_relaxed) != &region)
    place = &place->load(std::memory_order_relaxed)->next_;
  version_.fetch_add(1, std::memory_order_acq_rel);
  place->store(region.next_.load(std::memory_order_relaxed), std::memory_order_release);
  version_.fetch_add(1, std::memory_order_release);
}

Result<MemoryRegion*> MemoryRegionTable::add(const RegionRequest& request) {
  if (request.iov == nullptr || request.iov_count == 0 || request.iov_count > MemoryRegion::iov_max)
    return Error{FI_EINVAL, "a memory region has 1 to " + std::to_string(MemoryRegion::iov_max) +
                                " pieces, " + std::to_string(request.iov_count) + " were given"};
  uint64_t length = 0;
  if (!total_length(request, length)) return Error{FI_EINVAL, "the memory region leaves the address space"};

  std::scoped_lock guard(mutex_);
  if (count() >= count_max)
    return Error{FI_ENOSPC,
                 "the domain has " + std::to_string(count_max) + " memory regions, which is the limit"};
  uint64_t key = request.requested_key;
  if (mode_.provider_keys) {
    Result<uint64_t> chosen = choose_key();
    if (!chosen) return chosen.error();
    key = *chosen;
  } else if (is_reached(request.access) && find_locked(key) != nullptr) {
    return Error{FI_ENOKEY,
                 "key " + std::to_string(key) + " is in use by another memory region of this domain"};
  }
  MemoryRegion* region = nullptr;
  try {
    const Buckets* buckets = buckets_.load(std::memory_order_relaxed);
    if (buckets == nullptr || count() > buckets->mask) grow();
    region = free_slot();
  } catch (const std::bad_alloc&) {
    return Error{FI_ENOMEM, "no memory for another memory region"};
  }
  region->key_.store(key, std::memory_order_relaxed);
  region->base_ = mode_.virtual_addresses ? reinterpret_cast<uintptr_t>(request.iov[0].iov_base) : 0;
  region->length_ = length;
  region->access_ = request.access;
  region->iov_count_ = request.iov_count;
  for (size_t i = 0; i < request.iov_count; ++i) region->iov_[i] = request.iov[i];
  region->write_counter_.store(nullptr, std::memory_order_relaxed);
  region->read_counter_.store(nullptr, std::memory_order_relaxed);
  region->flags_ = request.flags;
  region->context_ = request.context;
  region->handle_ = nullptr;
  region->enabled_.store(request.enabled, std::memory_order_relaxed);
  if (registrar_ != nullptr) {
    // The slot is still free: a refusal leaves nothing behind.
    if (Result<void> answer = notify_registrar(*region); !answer) return answer.error();
  }
  free_.pop_back();
  // A reader that came late may hold a transient pin on the free slot, so the mark is subtracted, not
  // stored over.
  region->state_.fetch_and(~MemoryRegion::dead, std::memory_order_release);
  link(*region);
  count_.fetch_add(1, std::memory_order_relaxed);
  if (region->enabled()) notify_reachable(*region);
  return region;
}

void MemoryRegionTable::notify_reachable(const MemoryRegion& region) noexcept {
  if (!is_reached(region.access())) return;
  for (RegionObserver* observer : observers_) observer->reachable(region);
}

void MemoryRegionTable::attach(RegionObserver& observer) {
  std::scoped_lock guard(mutex_);
  observers_.push_back(&observer);
  const Buckets* buckets = buckets_.load(std::memory_order_relaxed);
  for (size_t i = 0; buckets != nullptr && i <= buckets->mask; ++i)
    for (const MemoryRegion* region = buckets->heads[i].load(std::memory_order_relaxed); region != nullptr;
         region = region->next_.load(std::memory_order_relaxed))
      if (region->enabled() && is_reached(region->access())) observer.reachable(*region);
}

int MemoryRegionTable::detach(RegionObserver& observer) noexcept {
  std::scoped_lock guard(mutex_);
  if (const int status = observer.all_unreachable(); status != 0) return status;
  observers_.erase(std::remove(observers_.begin(), observers_.end(), &observer), observers_.end());
  return 0;
}

Result<void> MemoryRegionTable::notify_registrar(MemoryRegion& region) {
  Registered registered;
  if (const int status = registrar_->add(registration_of(region), registered); status != 0)
    return Error{std::abs(status),
                 std::string("the device does not register the memory: ") + std::strerror(std::abs(status))};
  region.handle_ = registered.handle;
  if (!mode_.provider_keys || !registered.key || *registered.key == region.key()) return {};
  const bool taken = *registered.key == FI_KEY_NOTAVAIL || find_locked(*registered.key) != nullptr;
  if (!taken) {
    region.key_.store(*registered.key, std::memory_order_relaxed);
    return {};
  }
  // The key is another's: the device goes by the handle (registrar.hpp).
  (void)registrar_->remove(registration_of(region), region.handle_);
  return Error{FI_ENOKEY, "the device chose a key that another memory region of this domain has"};
}

void MemoryRegionTable::enable(MemoryRegion& region) noexcept {
  std::scoped_lock guard(mutex_);
  if (region.enabled()) return;
  if (registrar_ != nullptr) registrar_->enable(registration_of(region), region.handle_);
  region.enabled_.store(true, std::memory_order_release);
  notify_reachable(region);
}

void MemoryRegionTable::bind(MemoryRegion& region, Counter* counter, uint64_t flags) noexcept {
  std::scoped_lock guard(mutex_);
  region.bind(counter, flags);
  if (!region.enabled() || !is_reached(region.access())) return;
  for (RegionObserver* observer : observers_) {
    (void)observer->unreachable(region);
    observer->reachable(region);
  }
}

int MemoryRegionTable::remove(MemoryRegion& region) noexcept {
  std::scoped_lock guard(mutex_);
  // A region that stays after all is reached by asking this process from then on.
  if (is_reached(region.access()))
    for (RegionObserver* observer : observers_)
      if (const int status = observer->unreachable(region); status != 0) return status;
  // A transient pin of a reader that looks for another key is gone in a few instructions; a transfer's stays.
  bool closed = false;
  for (int attempt = 0; attempt < 1000 && !closed; ++attempt) {
    uint64_t unpinned = 0;
    closed = region.state_.compare_exchange_strong(unpinned, MemoryRegion::dead, std::memory_order_acq_rel,
                                                   std::memory_order_relaxed);
    if (!mode_.concurrent) break;
  }
  if (!closed) return -FI_EBUSY;
  if (registrar_ != nullptr) {
    if (const int status = registrar_->remove(registration_of(region), region.handle_); status != 0) {
      region.state_.fetch_and(~MemoryRegion::dead, std::memory_order_release);
      return status;
    }
  }
  unlink(region);
  count_.fetch_sub(1, std::memory_order_relaxed);
  free_.push_back(&region);  // room was reserved when its slab was made
  return 0;
}

}  // namespace weft::core
