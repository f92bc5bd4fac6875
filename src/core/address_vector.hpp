// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table from fi_addr_t to endpoint addresses (fi_av(3)). FI_AV_MAP and FI_AV_TABLE are the same here:
// an fi_addr_t is an index. Must not know what an address means.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/assert.hpp"
#include "core/address_board.hpp"

namespace weft::core {

struct Address {
  static constexpr size_t size_max = 64;
  std::array<std::byte, size_max> bytes{};  // the tail beyond len is zero
  uint8_t len = 0;

  Address() = default;
  Address(const void* from, size_t n) noexcept : len(uint8_t(n <= size_max ? n : size_max)) {
    std::memcpy(bytes.data(), from, len);
  }
  friend bool operator==(const Address& a, const Address& b) noexcept {
    return a.len == b.len && std::memcmp(a.bytes.data(), b.bytes.data(), a.len) == 0;
  }
};

struct AddressHash {
  size_t operator()(const Address& address) const noexcept;
};

// Readers take no lock: lookup() may run while another thread inserts. The bytes of an address stay put
// until it is removed; an index may be given again only after its removal, so a program that removes an
// address must not use it any more (fi_av(3)).
class AddressVector {
 public:
  static constexpr size_t count_max = size_t{1} << 24;

  explicit AddressVector(int rx_ctx_bits = 0) noexcept : rx_ctx_bits_(rx_ctx_bits) {}
  ~AddressVector();
  AddressVector(const AddressVector&) = delete;
  AddressVector& operator=(const AddressVector&) = delete;

  // The address's index, or FI_ADDR_NOTAVAIL when count_max or the memory is reached. The same address again gets
  // the same index (fi_av(3), NOTES: one instance), and goes with as many removals: Open MPI inserts a peer for
  // each intercommunicator, and a receive directed at one index must match what comes from the other.
  fi_addr_t insert(const Address& address) noexcept;
  // 0, or -FI_EINVAL: there is no such address. It stays while it was inserted more often than removed.
  int remove(fi_addr_t index) noexcept;
  // Writes what is inserted and removed to a board, too, from now on; at most AddressBoard::address_max addresses then. Before the first
  // insertion.
  void publish(AddressBoard& board) noexcept {
    WEFT_ASSERT(used_ == 0 && followed_ == nullptr);
    board_ = &board;
  }
  // Has what the board has, and nothing else: insert() and remove() are not for such a table. Before it is used.
  void follow(const AddressBoard& board) noexcept {
    WEFT_ASSERT(used_ == 0 && board_ == nullptr);
    followed_ = &board;
    changes_ = &board.changes;
  }
  // Ends publish(): a forked child's copy is its own.
  void stop_publishing() noexcept { board_ = nullptr; }
  bool is_published() const noexcept { return board_ != nullptr; }

  // nullptr: there is no such address. `index` is without receive context bits (see peer_index).
  const Address* lookup(fi_addr_t index) const noexcept {
    if (followed_ != nullptr) [[unlikely]]
      catch_up();
    return at(index);
  }
  const Address* at(fi_addr_t index) const noexcept {
    if (index >= count_max) return nullptr;
    const Chunk place = chunk_of(index);
    const Entry* chunk = chunks_[place.number].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    const Entry& entry = chunk[place.offset];
    return entry.present.load(std::memory_order_acquire) ? &entry.address : nullptr;
  }
  // The index of this address, or FI_ADDR_NOTAVAIL.
  fi_addr_t find(const Address& address) const noexcept;
  // The lowest index whose address is(address), or FI_ADDR_NOTAVAIL. In linear time.
  template <class Is>
  fi_addr_t find_if(Is&& is) const noexcept {
    const size_t end = used();
    for (fi_addr_t index = 0; index < end; ++index)
      if (const Address* address = at(index); address != nullptr && is(*address)) return index;
    return FI_ADDR_NOTAVAIL;
  }

  // Endpoints drop what they remember of peers when a removal shows here. It stays where it is while the table lives.
  const AddressChanges& changes() const noexcept { return *changes_; }
  size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  // fi_rx_addr(3): the receive context's number stands in the top rx_ctx_bits of an fi_addr_t.
  int rx_ctx_bits() const noexcept { return rx_ctx_bits_; }
  fi_addr_t peer_index(fi_addr_t addr) const noexcept {
    return rx_ctx_bits_ == 0 ? addr : (addr & (~uint64_t{0} >> rx_ctx_bits_));
  }
  unsigned rx_index(fi_addr_t addr) const noexcept {
    return rx_ctx_bits_ == 0 ? 0 : unsigned(addr >> (64 - rx_ctx_bits_));
  }

 private:
  // Chunk k holds first_chunk << k entries, so memory follows the count and entries never move.
  static constexpr unsigned first_chunk_bits = 4;
  static constexpr unsigned chunks_max = 24 - first_chunk_bits + 1;
  struct Entry {
    Address address;
    std::atomic<bool> present{false};
    uint32_t insertions = 0;  // under the mutex
  };
  struct Chunk {
    unsigned number;
    size_t offset;
  };
  static Chunk chunk_of(uint64_t index) noexcept {
    const uint64_t shifted = index + (uint64_t{1} << first_chunk_bits);
    const unsigned top = 63u - unsigned(__builtin_clzll(shifted));
    return {top - first_chunk_bits, size_t(shifted - (uint64_t{1} << top))};
  }

  Entry& entry_at(fi_addr_t index) const noexcept;  // there is one
  size_t used() const noexcept;                     // indices ever given

  Entry* make_entry(fi_addr_t index);  // throws std::bad_alloc
  void post(fi_addr_t index, const Address* address) noexcept;
  void announce(bool removal) noexcept;
  void catch_up() const noexcept;
  bool take_over(fi_addr_t index, const Address& address);  // throws std::bad_alloc

  std::atomic<Entry*> chunks_[chunks_max] = {};
  AddressChanges own_changes_;
  const AddressChanges* changes_ = &own_changes_;
  const AddressBoard* followed_ = nullptr;
  AddressBoard* board_ = nullptr;
  std::atomic<size_t> count_{0};
  const int rx_ctx_bits_;
  mutable std::mutex mutex_;  // everything below
  size_t used_ = 0;           // indices ever given
  std::vector<fi_addr_t> free_;
  std::unordered_map<Address, fi_addr_t, AddressHash> by_address_;
  // Of a table that follows a board: how much of it is here.
  uint32_t version_seen_ = 0;
  size_t holes_ = 0;  // entries below used_ without an address
};

}  // namespace weft::core
