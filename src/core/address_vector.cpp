// Inserting, removing and finding addresses. Must not know what an address means.
#include "core/address_vector.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <functional>
#include <new>

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
  return chunks_[place.number].load(std::memory_order_relaxed)[place.offset];
}

// fi_av(3), fi_av_insert: an address goes to the lowest index that is not used.
fi_addr_t AddressVector::insert(const Address& address) noexcept {
  std::scoped_lock guard(mutex_);
  if (const auto known = by_address_.find(address); known != by_address_.end()) {
    ++entry_at(known->second).insertions;
    return known->second;
  }
  const bool reuse = !free_.empty();
  const fi_addr_t index = reuse ? free_.front() : used_;
  if (index >= count_max) return FI_ADDR_NOTAVAIL;
  try {
    const Chunk place = chunk_of(index);
    Entry* chunk = chunks_[place.number].load(std::memory_order_relaxed);
    if (chunk == nullptr) {
      chunk = new Entry[size_t{1} << (first_chunk_bits + place.number)];
      chunks_[place.number].store(chunk, std::memory_order_release);
    }
    by_address_.emplace(address, index);
    Entry& entry = chunk[place.offset];
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
  version_.fetch_add(1, std::memory_order_release);
  return index;
}

int AddressVector::remove(fi_addr_t index) noexcept {
  std::scoped_lock guard(mutex_);
  const Address* address = lookup(index);
  if (address == nullptr) return -FI_EINVAL;
  Entry& entry = entry_at(index);
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
  removals_.fetch_add(1, std::memory_order_release);
  version_.fetch_add(1, std::memory_order_release);
  return 0;
}

fi_addr_t AddressVector::find(const Address& address) const noexcept {
  std::scoped_lock guard(mutex_);
  const auto found = by_address_.find(address);
  return found != by_address_.end() ? found->second : FI_ADDR_NOTAVAIL;
}

}  // namespace weft::core
