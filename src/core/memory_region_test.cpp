// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory regions: keys, access, bounds, pieces, pins, and readers beside registration.
#include "core/memory_region.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace weft::core {
namespace {

bool numbers(void* bytes, size_t len) {
  static std::atomic<uint64_t> next{1};
  const uint64_t n = next++ * 0x9e3779b97f4a7c15u;
  std::memcpy(bytes, &n, len);
  return true;
}

bool no_numbers(void*, size_t) { return false; }

MemoryRegionTable::Mode mode(bool provider_keys = false, bool virtual_addresses = false,
                             bool concurrent = true) {
  return {provider_keys, virtual_addresses, concurrent};
}

constexpr uint64_t all_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

struct Buffer {
  std::array<std::byte, 100> bytes{};
  iovec iov{bytes.data(), bytes.size()};
  RegionRequest request(uint64_t key, uint64_t access = all_access) const {
    RegionRequest wanted;
    wanted.iov = &iov;
    wanted.iov_count = 1;
    wanted.access = access;
    wanted.requested_key = key;
    return wanted;
  }
};

TEST(MemoryRegion, TheProgramsKeyIsAcceptedOnce) {
  MemoryRegionTable table(mode(), nullptr);
  Buffer buffer;
  Result<MemoryRegion*> first = table.add(buffer.request(42));
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->key(), 42u);
  Result<MemoryRegion*> second = table.add(buffer.request(42));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, FI_ENOKEY);
  EXPECT_NE(second.error().why.find("42"), std::string::npos);
  ASSERT_EQ(table.remove(**first), 0);
  EXPECT_TRUE(table.add(buffer.request(42)));
}

TEST(MemoryRegion, ProviderKeysAreRandomAndIgnoreTheRequest) {
  MemoryRegionTable table(mode(true), numbers);
  Buffer buffer;
  std::set<uint64_t> keys;
  for (int i = 0; i < 200; ++i) {
    Result<MemoryRegion*> region = table.add(buffer.request(7));
    ASSERT_TRUE(region);
    keys.insert((*region)->key());
  }
  EXPECT_EQ(keys.size(), 200u);
  EXPECT_EQ(keys.count(7), 0u);
  MemoryRegionTable poor(mode(true), no_numbers);
  EXPECT_FALSE(poor.add(buffer.request(7)));
}

// fi_mr(3): "peers start at a base address of 0", FI_MR_VIRT_ADDR: at the virtual address.
TEST(MemoryRegion, ChecksKeyAccessAndBounds) {
  for (const bool virtual_addresses : {false, true}) {
    MemoryRegionTable table(mode(false, virtual_addresses), nullptr);
    Buffer buffer;
    ASSERT_TRUE(table.add(buffer.request(1, FI_REMOTE_READ)));
    const uint64_t base = virtual_addresses ? reinterpret_cast<uintptr_t>(buffer.bytes.data()) : 0;
    MemoryRegion* region = nullptr;
    EXPECT_EQ(table.acquire(2, base, 1, FI_REMOTE_READ, region), -FI_EKEYREJECTED);
    EXPECT_EQ(table.acquire(1, base, 1, FI_REMOTE_WRITE, region), -FI_EACCES);
    EXPECT_EQ(table.acquire(1, base, 101, FI_REMOTE_READ, region), -FI_EACCES);
    EXPECT_EQ(table.acquire(1, base + 100, 1, FI_REMOTE_READ, region), -FI_EACCES);
    EXPECT_EQ(table.acquire(1, base + 101, 0, FI_REMOTE_READ, region), -FI_EACCES);
    EXPECT_EQ(table.acquire(1, base - 1, 1, FI_REMOTE_READ, region), -FI_EACCES);
    EXPECT_EQ(table.acquire(1, base + 50, UINT64_MAX, FI_REMOTE_READ, region), -FI_EACCES);
    EXPECT_EQ(table.acquire(1, UINT64_MAX, 2, FI_REMOTE_READ, region), -FI_EACCES);
    ASSERT_EQ(table.acquire(1, base + 99, 1, FI_REMOTE_READ, region), 0);
    table.release(*region);
    ASSERT_EQ(table.acquire(1, base + 100, 0, FI_REMOTE_READ, region), 0)
        << "no bytes, but key and place count";
    table.release(*region);
    EXPECT_FALSE(region->pinned());
  }
}

TEST(MemoryRegion, RefusesWhatIsNotARange) {
  MemoryRegionTable table(mode(), nullptr);
  Buffer buffer;
  RegionRequest request = buffer.request(1);
  request.iov_count = 0;
  EXPECT_EQ(table.add(request).error().code, FI_EINVAL);
  request.iov_count = MemoryRegion::iov_max + 1;
  EXPECT_EQ(table.add(request).error().code, FI_EINVAL);
  iovec bad{buffer.bytes.data(), SIZE_MAX};
  request.iov = &bad;
  request.iov_count = 1;
  EXPECT_EQ(table.add(request).error().code, FI_EINVAL);
}

// A program may register nothing, and all that there is (libfabric 5693).
TEST(MemoryRegion, NothingAndEverythingAreRanges) {
  MemoryRegionTable table(mode(false, true), nullptr);
  Buffer buffer;
  RegionRequest request = buffer.request(1);
  const iovec nothing{buffer.bytes.data(), 0};
  request.iov = &nothing;
  ASSERT_TRUE(table.add(request));
  const auto base = reinterpret_cast<uintptr_t>(buffer.bytes.data());
  MemoryRegion* region = nullptr;
  EXPECT_EQ(table.acquire(1, base, 1, FI_REMOTE_WRITE, region), -FI_EACCES);
  ASSERT_EQ(table.acquire(1, base, 0, FI_REMOTE_WRITE, region), 0);
  iovec out[1];
  size_t pieces = 1;
  EXPECT_EQ(region->translate(base, 0, out, pieces), 0);
  EXPECT_EQ(pieces, 0u);
  table.release(*region);
  const iovec everything{nullptr, SIZE_MAX};
  request = buffer.request(2);
  request.iov = &everything;
  ASSERT_TRUE(table.add(request));
  ASSERT_EQ(table.acquire(2, base, 100, FI_REMOTE_WRITE, region), 0);
  table.release(*region);
}

// Keys are for peers: regions that only this process uses may have any (libfabric 10882).
TEST(MemoryRegion, KeysOfLocalRegionsMayBeThere) {
  for (const bool local_first : {true, false}) {
    MemoryRegionTable table(mode(), nullptr);
    Buffer buffer;
    std::vector<MemoryRegion*> local;
    MemoryRegion* remote = nullptr;
    const auto add_local = [&] {
      Result<MemoryRegion*> region = table.add(buffer.request(5, FI_SEND | FI_RECV));
      ASSERT_TRUE(region);
      local.push_back(*region);
    };
    const auto found = [&] {
      MemoryRegion* region = nullptr;
      EXPECT_EQ(table.acquire(5, 0, 10, FI_REMOTE_READ, region), 0);
      EXPECT_EQ(region, remote);
      if (region != nullptr) table.release(*region);
    };
    if (local_first) {
      add_local();
      add_local();
      MemoryRegion* none = nullptr;
      EXPECT_EQ(table.acquire(5, 0, 10, FI_REMOTE_READ, none), -FI_EACCES);
    }
    Result<MemoryRegion*> region = table.add(buffer.request(5));
    ASSERT_TRUE(region);
    remote = *region;
    found();
    add_local();
    found();
    EXPECT_FALSE(table.add(buffer.request(5)));
    // More buckets: the chains are made anew.
    for (uint64_t key = 100; key < 200; ++key) ASSERT_TRUE(table.add(buffer.request(key)));
    found();
    for (MemoryRegion* one : local) EXPECT_EQ(table.remove(*one), 0);
    found();
  }
}

TEST(MemoryRegion, PiecesAreOneRange) {
  MemoryRegionTable table(mode(), nullptr);
  std::array<std::byte, 10> a{};
  std::array<std::byte, 20> b{};
  std::array<std::byte, 30> c{};
  const iovec iov[3] = {{a.data(), a.size()}, {b.data(), b.size()}, {c.data(), c.size()}};
  RegionRequest request;
  request.iov = iov;
  request.iov_count = 3;
  request.access = all_access;
  MemoryRegion& region = **table.add(request);
  iovec out[3];
  size_t n = 3;
  ASSERT_EQ(region.translate(5, 40, out, n), 0);
  ASSERT_EQ(n, 3u);
  EXPECT_EQ(out[0].iov_base, a.data() + 5);
  EXPECT_EQ(out[0].iov_len, 5u);
  EXPECT_EQ(out[1].iov_len, 20u);
  EXPECT_EQ(out[2].iov_base, c.data());
  EXPECT_EQ(out[2].iov_len, 15u);
  n = 3;
  ASSERT_EQ(region.translate(10, 20, out, n), 0);
  ASSERT_EQ(n, 1u);
  EXPECT_EQ(out[0].iov_base, b.data());
  n = 1;
  EXPECT_EQ(region.translate(5, 40, out, n), -FI_EINVAL) << "not enough room";
  n = 3;
  ASSERT_EQ(region.translate(60, 0, out, n), 0);
  EXPECT_EQ(n, 0u);
}

TEST(MemoryRegion, APinnedRegionIsNotRemoved) {
  for (const bool concurrent : {false, true}) {
    MemoryRegionTable table(mode(false, false, concurrent), nullptr);
    Buffer buffer;
    MemoryRegion& region = **table.add(buffer.request(1));
    MemoryRegion* pinned = nullptr;
    ASSERT_EQ(table.acquire(1, 0, 1, FI_REMOTE_READ, pinned), 0);
    table.pin(*pinned);
    table.release(*pinned);
    EXPECT_EQ(table.remove(region), -FI_EBUSY);
    EXPECT_EQ(table.acquire(1, 0, 1, FI_REMOTE_READ, pinned), 0) << "a refused close changes nothing";
    table.release(*pinned);
    table.release(*pinned);
    EXPECT_EQ(table.remove(region), 0);
    EXPECT_EQ(table.acquire(1, 0, 1, FI_REMOTE_READ, pinned), -FI_EKEYREJECTED);
    EXPECT_EQ(table.count(), 0u);
  }
}

// fi_mr(3), FI_MR_RMA_EVENT.
TEST(MemoryRegion, ADisabledRegionIsNotReachable) {
  MemoryRegionTable table(mode(), nullptr);
  Buffer buffer;
  RegionRequest request = buffer.request(1);
  request.enabled = false;
  MemoryRegion& region = **table.add(request);
  MemoryRegion* out = nullptr;
  EXPECT_EQ(table.acquire(1, 0, 1, FI_REMOTE_READ, out), -FI_EKEYREJECTED);
  Counter counter;
  table.bind(region, &counter, FI_REMOTE_WRITE);
  table.enable(region);
  ASSERT_EQ(table.acquire(1, 0, 1, FI_REMOTE_READ, out), 0);
  EXPECT_EQ(out->remote_write_counter(), &counter);
  EXPECT_EQ(out->remote_read_counter(), nullptr);
  table.release(*out);
}

TEST(MemoryRegion, ManyRegionsAreAllFound) {
  MemoryRegionTable table(mode(), nullptr);
  Buffer buffer;
  std::vector<MemoryRegion*> regions;
  for (uint64_t key = 0; key < 3000; ++key) regions.push_back(*table.add(buffer.request(key << 20)));
  for (uint64_t key = 0; key < 3000; key += 2) ASSERT_EQ(table.remove(*regions[key]), 0);
  for (uint64_t key = 0; key < 3000; ++key) {
    MemoryRegion* out = nullptr;
    const int status = table.acquire(key << 20, 0, 100, all_access, out);
    ASSERT_EQ(status, key % 2 == 0 ? -FI_EKEYREJECTED : 0) << key;
    if (status == 0) table.release(*out);
  }
}

// Keys that stay must be found at every instant, keys that come and go must be found whole or not at all.
TEST(MemoryRegionThreads, ReadersBesideRegistration) {
  MemoryRegionTable table(mode(), nullptr);
  Buffer buffer;
  constexpr uint64_t stable = 1000;
  for (uint64_t key = 0; key < 20; ++key) ASSERT_TRUE(table.add(buffer.request(stable + key)));
  std::atomic<bool> stop{false};
  std::atomic<int> missed{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  readers.reserve(4);
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
        MemoryRegion* region = nullptr;
        if (table.acquire(stable + i % 20, 0, 100, FI_REMOTE_READ, region) != 0) {
          ++missed;
        } else {
          table.release(*region);
        }
        const uint64_t coming = i % 64;
        if (table.acquire(coming, 0, coming + 1, FI_REMOTE_READ, region) != 0) continue;
        if (region->key() != coming || region->length() != coming + 1) ++wrong;
        table.release(*region);
      }
    });
  }
  for (int round = 0; round < 300; ++round) {
    std::vector<MemoryRegion*> regions;
    for (uint64_t key = 0; key < 64; ++key) {
      const iovec iov{buffer.bytes.data(), key + 1};
      RegionRequest request = buffer.request(key);
      request.iov = &iov;
      Result<MemoryRegion*> region = table.add(request);
      ASSERT_TRUE(region) << region.error().why;
      regions.push_back(*region);
    }
    for (MemoryRegion* region : regions) {
      while (table.remove(*region) == -FI_EBUSY) std::this_thread::yield();
    }
  }
  stop.store(true);
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace weft::core
