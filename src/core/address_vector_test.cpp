// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Address vectors: indices, removal, reuse, finding, receive context bits, readers beside a writer.
#include "core/address_vector.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace weft::core {
namespace {

Address named(uint64_t n) {
  const std::string text = "address-" + std::to_string(n);
  return Address(text.data(), text.size());
}

// fi_av(3), FI_AV_TABLE: "The index of the first address inserted will be 0, successive insertions
// sequential".
TEST(AddressVector, IndicesAreSequentialOverManyChunks) {
  AddressVector av;
  for (uint64_t i = 0; i < 5000; ++i) ASSERT_EQ(av.insert(named(i)), i);
  EXPECT_EQ(av.count(), 5000u);
  for (uint64_t i = 0; i < 5000; ++i) {
    ASSERT_NE(av.lookup(i), nullptr);
    ASSERT_TRUE(*av.lookup(i) == named(i));
    ASSERT_EQ(av.find(named(i)), i);
  }
  EXPECT_EQ(av.lookup(5000), nullptr);
  EXPECT_EQ(av.lookup(FI_ADDR_UNSPEC), nullptr);
  EXPECT_EQ(av.find(named(5000)), FI_ADDR_NOTAVAIL);
}

TEST(AddressVector, TheLowestFreeIndexIsUsedAgain) {
  AddressVector av;
  for (uint64_t i = 0; i < 8; ++i) av.insert(named(i));
  const uint32_t removals = av.changes().removals.load();
  ASSERT_EQ(av.remove(6), 0);
  ASSERT_EQ(av.remove(2), 0);
  EXPECT_EQ(av.remove(2), -FI_EINVAL);
  EXPECT_EQ(av.remove(100), -FI_EINVAL);
  EXPECT_EQ(av.changes().removals.load(), removals + 2);
  EXPECT_EQ(av.lookup(2), nullptr);
  EXPECT_EQ(av.find(named(2)), FI_ADDR_NOTAVAIL);
  EXPECT_EQ(av.insert(named(2)), 2u);  // removal and insertion again: fi_av(3), notes
  EXPECT_EQ(av.insert(named(60)), 6u);
  EXPECT_EQ(av.insert(named(80)), 8u);
  EXPECT_EQ(av.count(), 9u);
}

TEST(AddressVector, VersionMovesWithEveryChange) {
  AddressVector av;
  const uint32_t before = av.changes().version.load();
  av.insert(named(1));
  const uint32_t inserted = av.changes().version.load();
  EXPECT_NE(inserted, before);
  av.remove(0);
  EXPECT_NE(av.changes().version.load(), inserted);
}

// fi_av(3), NOTES: a single instance of an address. It goes when it was removed as often as it was inserted.
TEST(AddressVector, ADuplicateHasTheSameIndex) {
  AddressVector av;
  EXPECT_EQ(av.insert(named(1)), 0u);
  EXPECT_EQ(av.insert(named(2)), 1u);
  EXPECT_EQ(av.insert(named(1)), 0u);
  EXPECT_EQ(av.count(), 2u);
  const uint32_t removals = av.changes().removals.load();
  EXPECT_EQ(av.remove(0), 0);
  EXPECT_EQ(av.changes().removals.load(), removals);
  EXPECT_EQ(av.find(named(1)), 0u);
  EXPECT_EQ(av.remove(0), 0);
  EXPECT_EQ(av.find(named(1)), FI_ADDR_NOTAVAIL);
  EXPECT_EQ(av.remove(0), -FI_EINVAL);
  EXPECT_EQ(av.insert(named(1)), 0u);
  EXPECT_EQ(av.remove(0), 0);
}

TEST(AddressVector, AddressesThatDifferOnlyInLengthDiffer) {
  AddressVector av;
  av.insert(Address("ab\0", 3));
  EXPECT_EQ(av.find(Address("ab", 2)), FI_ADDR_NOTAVAIL);
  EXPECT_EQ(av.find(Address("ab\0", 3)), 0u);
}

// fi_av(3), fi_rx_addr.
TEST(AddressVector, ReceiveContextBitsStandOnTop) {
  AddressVector av(4);
  const fi_addr_t index = av.insert(named(1));
  const fi_addr_t addr = fi_rx_addr(index, 9, 4);
  EXPECT_EQ(av.peer_index(addr), index);
  EXPECT_EQ(av.rx_index(addr), 9u);
  AddressVector plain;
  EXPECT_EQ(plain.peer_index(12345), 12345u);
  EXPECT_EQ(plain.rx_index(12345), 0u);
}

TEST(AddressVectorThreads, ReadersNeedNoLock) {
  AddressVector av;
  constexpr uint64_t total = 4000;
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  readers.reserve(4);
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      uint64_t seen = 0;
      while (!done.load() || seen < total) {
        const Address* address = av.lookup(seen);
        if (address == nullptr) continue;
        ASSERT_TRUE(*address == named(seen));
        ++seen;
      }
    });
  }
  std::thread remover([&] {
    AddressVector other;  // removal and reuse run beside it in a vector of their own
    for (uint64_t i = 0; i < 500; ++i) {
      other.insert(named(i));
      if (i % 2 == 1) other.remove(i / 2);
    }
  });
  for (uint64_t i = 0; i < total; ++i) ASSERT_EQ(av.insert(named(i)), i);
  done.store(true);
  for (auto& reader : readers) reader.join();
  remover.join();
}

// What one table publishes another one follows, as processes do over shared memory.
struct Followed {
  std::unique_ptr<AddressBoard> board = std::make_unique<AddressBoard>();
  AddressVector writer;
  AddressVector reader;
  Followed() {
    writer.publish(*board);
    reader.follow(*board);
  }
};

TEST(FollowedAddressVector, ShowsWhatIsInserted) {
  Followed both;
  EXPECT_EQ(both.reader.lookup(0), nullptr);
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(both.writer.insert(named(i)), i);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_NE(both.reader.lookup(i), nullptr);
    EXPECT_TRUE(*both.reader.lookup(i) == named(i));
    EXPECT_EQ(both.reader.find(named(i)), i);
    EXPECT_EQ(both.board->ids[i], i);
  }
  EXPECT_EQ(both.reader.lookup(100), nullptr);
  EXPECT_EQ(both.reader.count(), 100u);
}

TEST(FollowedAddressVector, RemovalsAndReuse) {
  Followed both;
  for (uint64_t i = 0; i < 8; ++i) both.writer.insert(named(i));
  ASSERT_NE(both.reader.lookup(3), nullptr);
  const uint32_t removals = both.reader.changes().removals.load();
  ASSERT_EQ(both.writer.remove(3), 0);
  EXPECT_NE(both.reader.changes().removals.load(), removals) << "endpoints have to forget the peer";
  EXPECT_EQ(both.reader.lookup(3), nullptr);
  EXPECT_EQ(both.reader.find(named(3)), FI_ADDR_NOTAVAIL);
  EXPECT_EQ(both.board->ids[3], FI_ADDR_NOTAVAIL);
  ASSERT_EQ(both.writer.insert(named(77)), 3u);
  ASSERT_NE(both.reader.lookup(3), nullptr);
  EXPECT_TRUE(*both.reader.lookup(3) == named(77));
  // Removed and used again before the reader looks.
  ASSERT_EQ(both.writer.remove(5), 0);
  ASSERT_EQ(both.writer.insert(named(78)), 5u);
  EXPECT_TRUE(*both.reader.lookup(5) == named(78));
  EXPECT_EQ(both.reader.find(named(5)), FI_ADDR_NOTAVAIL);
  // Two that change places before the reader looks.
  ASSERT_EQ(both.writer.remove(0), 0);
  ASSERT_EQ(both.writer.remove(1), 0);
  ASSERT_EQ(both.writer.insert(named(1)), 0u);
  ASSERT_EQ(both.writer.insert(named(0)), 1u);
  EXPECT_EQ(both.reader.find(named(1)), 0u);
  EXPECT_EQ(both.reader.find(named(0)), 1u);
}

// The writer's process may write anything.
TEST(FollowedAddressVector, NonsenseOnTheBoardIsNoAddress) {
  Followed both;
  both.writer.insert(named(0));
  both.board->entries[0].length.store(65);
  both.board->entries[1].length.store(UINT32_MAX);
  both.board->used.store(UINT64_MAX);
  both.board->changes.version.fetch_add(1);
  EXPECT_EQ(both.reader.lookup(0), nullptr);
  EXPECT_EQ(both.reader.lookup(1), nullptr);
  EXPECT_EQ(both.reader.lookup(AddressBoard::address_max), nullptr);
}

TEST(FollowedAddressVector, ABoardHasABound) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "one thread, and minutes under ThreadSanitizer";
#endif
  Followed both;
  both.writer.insert(named(0));
  EXPECT_EQ(AddressVector().insert(named(1)), 0u);
  for (uint64_t i = 1; i < AddressBoard::address_max; ++i) {
    if (both.writer.insert(named(i)) != i) FAIL() << i;
  }
  EXPECT_EQ(both.writer.insert(named(AddressBoard::address_max)), FI_ADDR_NOTAVAIL);
}

TEST(FollowedAddressVector, AReaderBesideAWriter) {
  Followed both;
  std::atomic<bool> done{false};
  std::thread writing([&] {
    for (uint64_t round = 0; round < 2000; ++round) {
      for (uint64_t i = 0; i < 4; ++i) both.writer.insert(named(round * 4 + i));
      for (uint64_t i = 0; i < 4; ++i) both.writer.remove(i);
    }
    done = true;
  });
  while (!done) {
    for (uint64_t i = 0; i < 4; ++i) {
      const Address* seen = both.reader.lookup(i);
      if (seen == nullptr) continue;
      const std::string text(reinterpret_cast<const char*>(seen->bytes.data()), seen->len);
      ASSERT_EQ(text.rfind("address-", 0), 0u) << text;
      ASSERT_TRUE(*seen == named(std::stoull(text.substr(8)))) << "torn: " << text;
    }
  }
  writing.join();
}

}  // namespace
}  // namespace weft::core
