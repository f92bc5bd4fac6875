// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Inserting, removing and finding addresses. Must not know what an address means.
#include "core/address_vector.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <functional>
#include <new>

#include "base/assert.hpp"
#include "base/hash.hpp"

namespace weft::core {

size_t AddressHash::operator()(const Address& address) const noexcept {
  uint64_t hash = address.len;
  for (size_t i = 0; i < Address::size_max; i += 16) {
    uint64_t words[2];
    std::memcpy(words, address.bytes.data() + i, sizeof words);
    hash = hash_pair(words[0], words[1], hash);
  }
  return size_t(hash);
}

AddressVector::~AddressVector() {
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

AddressVector::Entry& AddressVector::entry_at(fi_addr_t index) const noexcept {
  const Chunk place = chunk_of(index);
  WEFT_ASSERT(chunks_[place.number].load(std::memory_order_relaxed) != nullptr);
  return chunks_[place.number].load(std::memory_order_relaxed)[place.offset];
}

AddressVector::Entry* AddressVector::make_entry(fi_addr_t index) {
  const Chunk place = chunk_of(index);
  Entry* chunk = chunks_[place.number].load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = new Entry[size_t{1} << (first_chunk_bits + place.number)];
    chunks_[place.number].store(chunk, std::memory_order_release);
  }
  return chunk + place.offset;
}

// Shows an entry on the board, or that it is gone (null).
void AddressVector::post(fi_addr_t index, const Address* address) noexcept {
  if (board_ == nullptr) return;
  AddressBoard::Entry& entry = board_->entries[index];
  WEFT_ASSERT(index < AddressBoard::address_max);
  entry.length.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(
      std::memory_order_release);  // before the words (pairs with the fence in catch_up())
  board_->ids[index] = address != nullptr ? index : FI_ADDR_NOTAVAIL;
  if (address == nullptr) return;
  for (size_t i = 0; i < entry.words.size(); ++i) {
    uint64_t word;
    std::memcpy(&word, address->bytes.data() + i * sizeof(word), sizeof(word));
    entry.words[i].store(word, std::memory_order_relaxed);
  }
  entry.length.store(address->len, std::memory_order_release);
}

void AddressVector::announce(bool removal) noexcept {
  for (AddressChanges* changes : {&own_changes_, board_ != nullptr ? &board_->changes : nullptr}) {
    if (changes == nullptr) continue;
    if (removal) changes->removals.fetch_add(1, std::memory_order_release);
    changes->version.fetch_add(1, std::memory_order_release);
  }
}

// A table that follows a board takes over what has changed there. Without memory it goes on with what it has, and tries again.
void AddressVector::catch_up() const noexcept {
  auto& self = const_cast<AddressVector&>(*this);  // what it holds is the board's, whoever asks
  WEFT_ASSERT(followed_ != nullptr && board_ == nullptr);
  std::scoped_lock guard(mutex_);
  const uint32_t version = followed_->changes.version.load(std::memory_order_acquire);
  const uint32_t removals = followed_->changes.removals.load(std::memory_order_acquire);
  const uint32_t removals_seen = own_changes_.removals.load(std::memory_order_relaxed);
  if (version == version_seen_ && removals == removals_seen) return;
  const size_t used =
      std::min<uint64_t>(followed_->used.load(std::memory_order_acquire), AddressBoard::address_max);
  try {
    // Behind a removal, any entry may be another address.
    const bool grown_only = removals == removals_seen && holes_ == 0;
    size_t holes = 0;
    for (size_t index = grown_only ? used_ : 0; index < used; ++index) {
      const AddressBoard::Entry& entry = followed_->entries[index];
      const uint32_t length = entry.length.load(std::memory_order_acquire);
      Address address;
      for (size_t i = 0; i < entry.words.size(); ++i) {
        const uint64_t word = entry.words[i].load(std::memory_order_relaxed);
        std::memcpy(address.bytes.data() + i * sizeof(word), &word, sizeof(word));
      }
      std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in post()
      const bool sound = length != 0 && length <= Address::size_max &&
                         entry.length.load(std::memory_order_relaxed) == length;
      address.len = sound ? uint8_t(length) : uint8_t{0};
      if (!self.take_over(index, address)) ++holes;
    }
    self.used_ = std::max(used_, used);
    self.holes_ = holes;
    self.own_changes_.removals.store(removals, std::memory_order_relaxed);
    self.version_seen_ = version;
  } catch (const std::bad_alloc&) {
  }
}

// False: there is no address at that place.
bool AddressVector::take_over(fi_addr_t index, const Address& address) {
  Entry& entry = *make_entry(index);
  const bool was_present = entry.present.load(std::memory_order_relaxed);
  if (was_present && entry.address == address) return true;
  if (was_present) {
    // It may have moved to a lower index already.
    if (const auto known = by_address_.find(entry.address);
        known != by_address_.end() && known->second == index)
      by_address_.erase(known);
    entry.present.store(false, std::memory_order_release);
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (address.len == 0) return false;
  by_address_.insert_or_assign(address, index);
  entry.address = address;
  entry.insertions = 1;
  entry.present.store(true, std::memory_order_release);
  count_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// fi_av(3), fi_av_insert: an address goes to the lowest index that is not used.
fi_addr_t AddressVector::insert(const Address& address) noexcept {
  std::scoped_lock guard(mutex_);
  WEFT_ASSERT(followed_ == nullptr);
  if (const auto known = by_address_.find(address); known != by_address_.end()) {
    ++entry_at(known->second).insertions;
    return known->second;
  }
  const bool reuse = !free_.empty();
  const fi_addr_t index = reuse ? free_.front() : used_;
  WEFT_ASSERT(index < used_ || (index == used_ && !reuse));
  if (index >= (board_ != nullptr ? AddressBoard::address_max : count_max)) return FI_ADDR_NOTAVAIL;
  try {
    Entry& entry = *make_entry(index);
    WEFT_ASSERT(!entry.present.load(std::memory_order_relaxed));
    by_address_.emplace(address, index);
    entry.address = address;
    entry.insertions = 1;
    entry.present.store(true, std::memory_order_release);
  } catch (const std::bad_alloc&) {
    return FI_ADDR_NOTAVAIL;
  }
  if (reuse) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    free_.pop_back();
  } else {
    ++used_;
  }
  count_.fetch_add(1, std::memory_order_relaxed);
  WEFT_ASSERT(by_address_.size() == used_ - free_.size());
  post(index, &address);
  if (board_ != nullptr) board_->used.store(used_, std::memory_order_release);
  announce(false);
  return index;
}

int AddressVector::remove(fi_addr_t index) noexcept {
  std::scoped_lock guard(mutex_);
  WEFT_ASSERT(followed_ == nullptr);
  const Address* address = at(index);
  if (address == nullptr) return -FI_EINVAL;
  Entry& entry = entry_at(index);
  WEFT_ASSERT(entry.insertions != 0 && index < used_);
  if (entry.insertions > 1) {
    --entry.insertions;
    return 0;
  }
  try {
    free_.push_back(index);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  }
  by_address_.erase(*address);
  entry.present.store(false, std::memory_order_release);
  count_.fetch_sub(1, std::memory_order_relaxed);
  WEFT_ASSERT(by_address_.size() == used_ - free_.size());
  post(index, nullptr);
  announce(true);
  return 0;
}

fi_addr_t AddressVector::find(const Address& address) const noexcept {
  if (followed_ != nullptr) [[unlikely]]
    catch_up();
  std::scoped_lock guard(mutex_);
  const auto found = by_address_.find(address);
  return found != by_address_.end() ? found->second : FI_ADDR_NOTAVAIL;
}

size_t AddressVector::used() const noexcept {
  if (followed_ != nullptr) [[unlikely]]
    catch_up();
  std::scoped_lock guard(mutex_);
  return used_;
}

}  // namespace weft::core
