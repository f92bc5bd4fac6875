// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a registrar is told of regions, and what its answers do.
#include "core/registrar.hpp"

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/memory_region.hpp"

namespace weft::core {
namespace {

constexpr uint64_t all_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

struct Recorder final : Registrar {
  struct Call {
    std::string name;
    std::vector<iovec> pieces;
    AccessRights rights;
    uint64_t key;
    uint64_t base;
    uint64_t length;
    void* handle;
  };
  int add(const Registration& region, Registered& out) noexcept override {
    note("add", region, nullptr);
    if (add_status != 0) return add_status;
    out.handle = &handles[next++];
    out.key = key;
    return 0;
  }
  void enable(const Registration& region, void* handle) noexcept override { note("enable", region, handle); }
  int remove(const Registration& region, void* handle) noexcept override {
    note("remove", region, handle);
    return remove_status;
  }
  void note(const char* name, const Registration& region, void* handle) {
    calls.push_back({name,
                     {region.pieces.begin(), region.pieces.end()},
                     region.rights,
                     region.key,
                     region.base,
                     region.length,
                     handle});
  }

  std::vector<Call> calls;
  std::array<int, 16> handles{};
  size_t next = 0;
  int add_status = 0;
  int remove_status = 0;
  std::optional<uint64_t> key;
};

bool numbers(void* bytes, size_t len) {
  static uint64_t next = 1;
  const uint64_t n = next++ * 0x9e3779b97f4a7c15u;
  std::memcpy(bytes, &n, len);
  return true;
}

class Registrars : public testing::TestWithParam<bool> {
 protected:
  explicit Registrars(bool provider_keys = false)
      : table({provider_keys, true, GetParam()}, numbers), request(one_piece()) {
    table.set_registrar(&recorder);
  }
  RegionRequest one_piece() {
    RegionRequest made;
    made.iov = &iov;
    made.iov_count = 1;
    made.access = all_access;
    made.requested_key = 42;
    return made;
  }
  std::array<std::byte, 100> bytes{};
  iovec iov{bytes.data(), bytes.size()};
  Recorder recorder;
  MemoryRegionTable table;
  RegionRequest request;
};
struct KeysOfTheProvider : Registrars {
  KeysOfTheProvider() : Registrars(true) {}
};

TEST(AccessRights, FollowTheBitsOfFiMr) {
  EXPECT_EQ(rights_of(0), AccessRights());
  EXPECT_EQ(rights_of(FI_SEND), (AccessRights{.local_read = true}));
  EXPECT_EQ(rights_of(FI_WRITE), (AccessRights{.local_read = true}));
  EXPECT_EQ(rights_of(FI_RECV), (AccessRights{.local_write = true}));
  EXPECT_EQ(rights_of(FI_READ), (AccessRights{.local_write = true}));
  EXPECT_EQ(rights_of(FI_COLLECTIVE), (AccessRights{.local_read = true, .local_write = true}));
  EXPECT_EQ(rights_of(FI_REMOTE_READ), (AccessRights{.remote_read = true}));
  EXPECT_EQ(rights_of(FI_REMOTE_WRITE), (AccessRights{.remote_write = true}));
  EXPECT_EQ(rights_of(all_access),
            (AccessRights{.remote_read = true, .remote_write = true, .remote_atomic = true}));
}

TEST(AccessRights, SayWhatTheDeviceDoes) {
  EXPECT_FALSE(rights_of(0).device_reads() || rights_of(0).device_writes());
  EXPECT_TRUE(rights_of(FI_SEND).device_reads());
  EXPECT_FALSE(rights_of(FI_SEND).device_writes());
  EXPECT_TRUE(rights_of(FI_READ).device_writes());
  EXPECT_TRUE(rights_of(FI_REMOTE_READ).device_reads());
  EXPECT_FALSE(rights_of(FI_REMOTE_READ).device_writes());
  EXPECT_TRUE(rights_of(FI_REMOTE_WRITE).device_writes());
}

TEST_P(Registrars, IsToldOfARegionWithItsRightsAndKeepsAHandleInIt) {
  Result<MemoryRegion*> region = table.add(request);
  ASSERT_TRUE(region);
  ASSERT_EQ(recorder.calls.size(), 1u);
  const Recorder::Call added = recorder.calls[0];
  EXPECT_EQ(added.name, "add");
  EXPECT_EQ(added.key, 42u);
  EXPECT_EQ(added.length, 100u);
  EXPECT_EQ(added.base, reinterpret_cast<uintptr_t>(bytes.data()));
  EXPECT_TRUE(added.rights.remote_atomic);
  ASSERT_EQ(added.pieces.size(), 1u);
  EXPECT_EQ(added.pieces[0].iov_base, bytes.data());
  EXPECT_EQ((*region)->handle(), &recorder.handles[0]);
  ASSERT_EQ(table.remove(**region), 0);
  ASSERT_EQ(recorder.calls.size(), 2u);
  EXPECT_EQ(recorder.calls[1].name, "remove");
  EXPECT_EQ(recorder.calls[1].key, 42u);
  EXPECT_EQ(recorder.calls[1].handle, &recorder.handles[0]);
}

TEST_P(Registrars, SeesAllPieces) {
  std::array<iovec, 3> pieces = {
      {{bytes.data(), 10}, {bytes.data() + 50, 20}, {bytes.data() + 5, 1}}};  // they may overlap others
  request.iov = pieces.data();
  request.iov_count = pieces.size();
  Result<MemoryRegion*> region = table.add(request);
  ASSERT_TRUE(region);
  ASSERT_EQ(table.remove(**region), 0);
  for (const Recorder::Call& call : recorder.calls) {
    EXPECT_EQ(call.length, 31u);
    ASSERT_EQ(call.pieces.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(call.pieces[i].iov_base, pieces[i].iov_base);
      EXPECT_EQ(call.pieces[i].iov_len, pieces[i].iov_len);
    }
  }
}

TEST_P(Registrars, ARefusalRegistersNothing) {
  recorder.add_status = -ENOSPC;
  Result<MemoryRegion*> refused = table.add(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOSPC);
  EXPECT_NE(refused.error().why.find("device"), std::string::npos);
  EXPECT_EQ(table.count(), 0u);
  MemoryRegion* out = nullptr;
  EXPECT_EQ(table.acquire(42, reinterpret_cast<uintptr_t>(bytes.data()), 1, FI_REMOTE_READ, out),
            -FI_EKEYREJECTED);
  recorder.add_status = 0;
  EXPECT_TRUE(table.add(request)) << "the key is free";
}

TEST_P(Registrars, IsNotAskedForWhatTheTableRefuses) {
  ASSERT_TRUE(table.add(request));
  EXPECT_FALSE(table.add(request));  // the key is in use
  request.requested_key = 43;
  request.iov_count = 0;
  EXPECT_FALSE(table.add(request));
  EXPECT_EQ(recorder.calls.size(), 1u);
}

TEST_P(Registrars, RemovalWaitsForTransfers) {
  MemoryRegion& region = **table.add(request);
  MemoryRegion* pinned = nullptr;
  ASSERT_EQ(table.acquire(42, region.base(), 10, FI_REMOTE_READ, pinned), 0);
  table.pin(*pinned);
  EXPECT_EQ(table.remove(region), -FI_EBUSY);
  table.release(*pinned);
  EXPECT_EQ(table.remove(region), -FI_EBUSY);
  EXPECT_EQ(recorder.calls.size(), 1u) << "the device is not asked while the region is in use";
  table.release(*pinned);
  EXPECT_EQ(table.remove(region), 0);
  EXPECT_EQ(recorder.calls.size(), 2u);
}

TEST_P(Registrars, ADeviceThatUsesTheRegionKeepsIt) {
  MemoryRegion& region = **table.add(request);
  recorder.remove_status = -FI_EBUSY;
  EXPECT_EQ(table.remove(region), -FI_EBUSY);
  EXPECT_EQ(table.count(), 1u);
  MemoryRegion* out = nullptr;
  ASSERT_EQ(table.acquire(42, region.base(), 10, FI_REMOTE_WRITE, out), 0) << "it is registered as before";
  table.release(*out);
  recorder.remove_status = 0;
  EXPECT_EQ(table.remove(region), 0);
  EXPECT_EQ(table.acquire(42, region.base(), 10, FI_REMOTE_WRITE, out), -FI_EKEYREJECTED);
}

TEST_P(Registrars, HearsOnceWhenADisabledRegionIsEnabled) {
  request.enabled = false;
  MemoryRegion& region = **table.add(request);
  table.enable(region);
  table.enable(region);
  ASSERT_EQ(recorder.calls.size(), 2u);
  EXPECT_EQ(recorder.calls[1].name, "enable");
  EXPECT_EQ(recorder.calls[1].handle, region.handle());
}

TEST_P(Registrars, CannotChangeAKeyOfTheProgram) {
  recorder.key = 7;
  EXPECT_EQ((*table.add(request))->key(), 42u);
}

TEST_P(KeysOfTheProvider, AreThoseOfTheDevice) {
  recorder.key = 7;
  MemoryRegion& region = **table.add(request);
  EXPECT_EQ(region.key(), 7u);
  MemoryRegion* out = nullptr;
  ASSERT_EQ(table.acquire(7, region.base(), 1, FI_REMOTE_READ, out), 0);
  table.release(*out);
  Result<MemoryRegion*> second = table.add(request);  // the same key again
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, FI_ENOKEY);
  EXPECT_EQ(recorder.calls.back().name, "remove");
  EXPECT_EQ(recorder.calls.back().handle, &recorder.handles[1]);
  recorder.key.reset();
  Result<MemoryRegion*> third = table.add(request);
  ASSERT_TRUE(third);
  EXPECT_EQ((*third)->key(), recorder.calls.back().key) << "the table chooses when the device does not";
  EXPECT_EQ(table.count(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Pins, Registrars, testing::Bool(),
                         [](const auto& atomic) { return atomic.param ? "Atomic" : "Plain"; });
INSTANTIATE_TEST_SUITE_P(Pins, KeysOfTheProvider, testing::Bool(),
                         [](const auto& atomic) { return atomic.param ? "Atomic" : "Plain"; });

}  // namespace
}  // namespace weft::core
