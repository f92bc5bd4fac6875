// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A named address vector as it lies in memory that processes share (fi_av(3), "name"): written by the process that made the name, read by
// those that opened it with FI_READ. Must not know where that memory comes from.
//
// The memory is zero at first. There is one writer. Readers trust nothing: whatever they find, they read at most address_max entries of
// at most Address::size_max bytes.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::core {

// What tells the users of an address vector that it has changed.
struct AddressChanges {
  std::atomic<uint32_t> removals{0};  // changes at each removal
  std::atomic<uint32_t> version{0};   // changes at each insertion and each removal
};

struct AddressBoard {
  static constexpr uint64_t magic_value = 0x3156414654464557;  // "WEFTFAV1"
  static constexpr size_t address_max = size_t{1} << 20;

  // The length is stored last when an address comes, first when it goes: 0 is no address.
  struct Entry {
    std::atomic<uint32_t> length;
    std::array<std::atomic<uint64_t>, 8> words;
  };

  std::atomic<uint64_t> magic;  // stored last when the board is made
  uint64_t bytes;               // sizeof(AddressBoard): writer and reader agree on the layout
  int32_t rx_ctx_bits;
  std::array<char, 256> name;
  alignas(64) AddressChanges changes;
  std::atomic<uint64_t> used;  // entries that ever held an address
  // fi_av_attr::map_addr: the fi_addr_t at each index, FI_ADDR_NOTAVAIL where an address was removed.
  alignas(64) std::array<fi_addr_t, address_max> ids;
  std::array<Entry, address_max> entries;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace weft::core
