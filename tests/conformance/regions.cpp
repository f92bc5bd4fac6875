// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory regions: registration calls, keys, modes and refusals of fi_mr(3); what a wrong access costs the initiator.
#include <sys/mman.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

constexpr uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;

bool keys_are_the_programs(World& w) {
  const int mode = w.info()->domain_attr->mr_mode;
  return mode != retired::mr_basic && (mode & FI_MR_PROV_KEY) == 0;
}

// Writes and reads `len` bytes at the remote place and compares with the memory behind it.
void usable(World& w, uint64_t addr, uint64_t key, const void* memory, size_t len) {
  const auto out = pattern(len, 61);
  std::vector<uint8_t> back(len + 1, 0);
  Ctx wrote, did_read;
  WEFT_ASSERT_OK(
      w.post([&] { return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], addr, key, &wrote); }));
  w.done(w[0].tx, wrote);
  WEFT_EXPECT_PATTERN(memory, len, 61);
  WEFT_ASSERT_OK(
      w.post([&] { return fi_read(w[0], back.data(), len, nullptr, w[0].peer[1], addr, key, &did_read); }));
  w.done(w[0].tx, did_read);
  WEFT_EXPECT_PATTERN(back.data(), len, 61);
}

// FI_DELIVERY_COMPLETE, so that errors at the target come to the initiator and results can be looked at.
Options rma_options() { return {.caps = FI_RMA | FI_MSG, .tx_op_flags = FI_DELIVERY_COMPLETE}; }

// fi_mr(3), fi_mr_reg with the key that the program chose.
TEST(Region, key_of_the_program__fi_mr_3) {
  Options options = rma_options();
  options.mr_mode = 0;
  WEFT_WORLD(w, options);
  EXPECT_EQ(w.info()->domain_attr->mr_mode & (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR), 0);
  std::vector<uint8_t> memory(5000);
  const size_t width = w.info()->domain_attr->mr_key_size;
  for (const uint64_t key :
       {uint64_t{0}, uint64_t{1}, uint64_t{0xab}, uint64_t{width >= 8 ? 0xfeedfacecafebeefULL : 0xbeefULL}}) {
    SCOPED_TRACE(key);
    fid_mr* raw = nullptr;
    WEFT_ASSERT_OK(
        fi_mr_reg(w[1].domain, memory.data(), memory.size(), remote_access, 0, key, 0, &raw, nullptr));
    Handle<fid_mr> mr(raw);
    EXPECT_EQ(fi_mr_key(mr.get()), key);
    usable(w, 0, key, memory.data(), 5000);
    // fi_mr(3), ERRORS: in use.
    fid_mr* second = nullptr;
    EXPECT_EQ(fi_mr_reg(w[1].domain, memory.data(), 10, remote_access, 0, key, 0, &second, nullptr),
              -FI_ENOKEY);
    if (second != nullptr && second != raw) fi_close(&second->fid);
    WEFT_EXPECT_OK(mr.close());
    // Free again after the close.
    WEFT_ASSERT_OK(
        fi_mr_reg(w[1].domain, memory.data(), memory.size(), remote_access, 0, key, 0, mr.out(), nullptr));
    usable(w, 0, key, memory.data(), 100);
  }
}

// fi_mr(3), FI_MR_PROV_KEY by basic registration: the provider chooses, keys differ and are not to be guessed.
TEST(Region, keys_of_the_provider__fi_mr_3) {
  Options options = rma_options();
  options.mr_mode = retired::mr_basic;
  WEFT_WORLD(w, options);
  std::vector<uint8_t> memory(4096);
  std::vector<Handle<fid_mr>> held;
  std::set<uint64_t> keys;
  for (int i = 0; i < 50; ++i) {
    fid_mr* mr = nullptr;
    WEFT_ASSERT_OK(
        fi_mr_reg(w[1].domain, memory.data(), memory.size(), remote_access, 0, 7, 0, &mr, nullptr));
    held.emplace_back(mr);
    EXPECT_TRUE(keys.insert(fi_mr_key(mr)).second) << "a key twice";
  }
  usable(w, reinterpret_cast<uint64_t>(memory.data()), fi_mr_key(held[3].get()), memory.data(), 4096);
  usable(w, reinterpret_cast<uint64_t>(memory.data()) + 100, fi_mr_key(held[49].get()), memory.data() + 100,
         200);
}

// fi_mr(3), Basic and Default Memory Registration, as programs of API 1.4 ask for them.
TEST(Region, modes_of_api_1_4__fi_mr_3) {
  for (const int mode : {static_cast<int>(retired::mr_basic), static_cast<int>(retired::mr_scalable)}) {
    SCOPED_TRACE(mode == retired::mr_basic ? "basic" : "scalable");
    Options options = rma_options();
    options.api = FI_VERSION(1, 4);
    options.mode = FI_CONTEXT | retired::local_mr;
    options.mr_mode = mode;
    WEFT_WORLD(w, options);
    EXPECT_EQ(w.info()->domain_attr->mr_mode, mode);
    if (w.info()->mode & retired::local_mr) GTEST_SKIP() << "wants local registration";
    std::vector<uint8_t> memory(4096);
    fid_mr* raw = nullptr;
    WEFT_ASSERT_OK(
        fi_mr_reg(w[1].domain, memory.data(), memory.size(), remote_access, 0, 77, 0, &raw, nullptr));
    Handle<fid_mr> mr(raw);
    if (mode == retired::mr_scalable) {
      EXPECT_EQ(fi_mr_key(raw), 77u);
    }
    usable(w, mode == retired::mr_basic ? reinterpret_cast<uint64_t>(memory.data()) : 0, fi_mr_key(raw),
           memory.data(), 4096);
  }
}

// fi_getinfo(3): a mode bit that the provider does not need is cleared; fi_mr(3): FI_MR_BASIC stays.
TEST(Region, mode_bits_are_answered__fi_mr_3) {
  Options options{.caps = FI_RMA};
  options.mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT;
  WEFT_SKIP_IF(missing(options));
  const Info info = find_info(options);
  EXPECT_EQ(info->domain_attr->mr_mode & ~options.mr_mode, 0) << "a bit that was not offered";
}

// fi_mr(3), fi_mr_regv: several buffers are one region. Addresses count from the first (virtual) or from 0.
TEST(Region, regv__fi_mr_3) {
  Options options = rma_options();
  options.mr_mode = 0;
  WEFT_WORLD(w, options);
  const size_t limit = std::min<size_t>(w.info()->domain_attr->mr_iov_limit, 4);
  if (limit < 2) GTEST_SKIP() << "one buffer a region";
  std::vector<std::vector<uint8_t>> memory;
  std::vector<iovec> parts;
  size_t total = 0;
  for (size_t i = 0; i < limit; ++i) memory.emplace_back(100 + 1000 * i);
  for (auto& part : memory) {
    parts.push_back({part.data(), part.size()});
    total += part.size();
  }
  fid_mr* raw = nullptr;
  WEFT_ASSERT_OK(fi_mr_regv(w[1].domain, parts.data(), limit, remote_access, 0, 5, 0, &raw, nullptr));
  Handle<fid_mr> mr(raw);
  const auto out = pattern(total, 62);
  std::vector<uint8_t> back(total);
  Ctx wrote, did_read;
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_write(w[0], out.data(), total, nullptr, w[0].peer[1], 0, fi_mr_key(raw), &wrote); }));
  w.done(w[0].tx, wrote);
  size_t at = 0;
  for (auto& part : memory) {
    EXPECT_EQ(std::memcmp(part.data(), out.data() + at, part.size()), 0) << "part at " << at;
    at += part.size();
  }
  // A piece over the border of two parts.
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_read(w[0], back.data(), 60, nullptr, w[0].peer[1], 70, fi_mr_key(raw), &did_read); }));
  w.done(w[0].tx, did_read);
  EXPECT_EQ(std::memcmp(back.data(), out.data() + 70, 60), 0);
  std::vector<iovec> too_many(w.info()->domain_attr->mr_iov_limit + 1, iovec{memory[0].data(), 8});
  fid_mr* refused = nullptr;
  EXPECT_LT(
      fi_mr_regv(w[1].domain, too_many.data(), too_many.size(), remote_access, 0, 6, 0, &refused, nullptr),
      0);
}

// fi_mr(3), fi_mr_regattr.
TEST(Region, regattr__fi_mr_3) {
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(3000);
  const iovec part{memory.data(), memory.size()};
  int context = 0;
  fi_mr_attr attr{};
  attr.mr_iov = &part;
  attr.iov_count = 1;
  attr.access = remote_access;
  attr.requested_key = 1234;
  attr.context = &context;
  fid_mr* raw = nullptr;
  WEFT_ASSERT_OK(fi_mr_regattr(w[1].domain, &attr, 0, &raw));
  Handle<fid_mr> mr(raw);
  EXPECT_EQ(raw->fid.context, &context);
  EXPECT_EQ(raw->fid.fclass, static_cast<size_t>(FI_CLASS_MR));
  if (keys_are_the_programs(w)) {
    EXPECT_EQ(fi_mr_key(raw), 1234u);
  }
  usable(w, w.virtual_addresses() ? reinterpret_cast<uint64_t>(memory.data()) : 0, fi_mr_key(raw),
         memory.data(), 3000);
}

// Many regions at once, small and overlapping.
TEST(Region, many__fi_mr_3) {
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(100'000);
  std::vector<Region> regions;
  for (size_t i = 0; i < 1000; ++i) {
    regions.push_back(w.reg(1, memory.data() + i * 50, 100, remote_access));
    ASSERT_TRUE(regions.back());
  }
  for (size_t i = 0; i < 1000; i += 97)
    usable(w, regions[i].at(10), regions[i].key(), memory.data() + i * 50 + 10, 60);
}

// fi_mr(3): flags that do not exist are refused.
// Keys are for peers: memory that only this process uses may be registered with any, several times (libfabric 10882).
TEST(Region, local_ones_may_share_a_key__fi_mr_3) {
  WEFT_BEYOND_THE_MANUAL("one key for several regions that no peer may reach");
  Options options = rma_options();
  options.mr_mode = FI_MR_LOCAL;
  WEFT_WORLD(w, options);
  if ((w.info()->domain_attr->mr_mode & FI_MR_PROV_KEY) != 0) GTEST_SKIP() << "keys are the provider's";
  std::vector<uint8_t> memory(4096), other(4096);
  const auto reg = [&](void* at, uint64_t access, Handle<fid_mr>& out) {
    const int rc = fi_mr_reg(w[1].domain, at, 4096, access, 0, 7, 0, out.out(), nullptr);
    if (rc != 0) *out.out() = nullptr;
    return rc;
  };
  Handle<fid_mr> first, second, remote, third, refused;
  WEFT_ASSERT_OK(reg(other.data(), FI_SEND | FI_RECV, first));
  WEFT_ASSERT_OK(reg(other.data(), FI_SEND | FI_RECV, second));
  WEFT_ASSERT_OK(reg(memory.data(), remote_access, remote));
  WEFT_ASSERT_OK(reg(other.data(), FI_READ | FI_WRITE, third));
  EXPECT_EQ(reg(other.data(), remote_access, refused), -FI_ENOKEY) << "peers could not tell them apart";
  usable(w, 0, 7, memory.data(), 4096);
  WEFT_EXPECT_OK(third.close());
  WEFT_EXPECT_OK(first.close());
  usable(w, 0, 7, memory.data(), 4096);
  WEFT_EXPECT_OK(remote.close());
  WEFT_EXPECT_OK(reg(other.data(), remote_access, refused));
}

// A region of no bytes can be written to by writes of none, one of all memory everywhere (libfabric 5693).
TEST(Region, nothing_and_everything__fi_mr_3) {
  WEFT_BEYOND_THE_MANUAL("regions of no bytes and of all");
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(64);
  const uint64_t value = 77;
  Ctx wrote;
  Region nothing = w.reg(1, memory.data(), 0, remote_access);
  ASSERT_TRUE(nothing);
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_write(w[0], &value, 0, nullptr, w[0].peer[1], nothing.at(), nothing.key(), &wrote); }));
  w.done(w[0].tx, wrote);
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_write(w[0], &value, 1, nullptr, w[0].peer[1], nothing.at(), nothing.key(), &wrote); }));
  EXPECT_NE(w.wait(w[0].tx, wrote).err, 0);
  fid_mr* raw = nullptr;
  const int rc = fi_mr_reg(w[1].domain, nullptr, SIZE_MAX, remote_access, 0, 0x5eed00, 0, &raw, nullptr);
  if (rc != 0) GTEST_SKIP() << "a device has to know the memory: " << error_name(rc);
  Handle<fid_mr> everything(raw);
  WEFT_ASSERT_OK(w.post([&] {
    return fi_write(w[0], &value, 8, nullptr, w[0].peer[1], reinterpret_cast<uint64_t>(memory.data()) + 8,
                    fi_mr_key(everything.get()), &wrote);
  }));
  w.done(w[0].tx, wrote);
  EXPECT_EQ(std::memcmp(memory.data() + 8, &value, 8), 0);
}

// What is not refused on one path must not pass on another: each access to a region of no bytes, alone in a world, since it ends a connection.
struct Access {
  const char* name;
  bool allowed;
  size_t bytes;
  uint64_t caps;
  std::function<ssize_t(World&, const Region&, uint8_t*, size_t, Ctx&)> post;
};

const std::vector<Access>& accesses() {
  constexpr size_t large = 1 << 20;
  const auto write = [](World& w, const Region& to, uint8_t* local, size_t bytes, Ctx& ctx) {
    return fi_write(w[0], local, bytes, nullptr, w[0].peer[1], to.at(), to.key(), &ctx);
  };
  const auto read = [](World& w, const Region& to, uint8_t* local, size_t bytes, Ctx& ctx) {
    return fi_read(w[0], local, bytes, nullptr, w[0].peer[1], to.at(), to.key(), &ctx);
  };
  const auto write_data = [](World& w, const Region& to, uint8_t* local, size_t bytes, Ctx& ctx) {
    return fi_writedata(w[0], local, bytes, nullptr, 7, w[0].peer[1], to.at(), to.key(), &ctx);
  };
  const auto add = [](World& w, const Region& to, uint8_t* local, size_t, Ctx& ctx) {
    return fi_atomic(w[0], local, 1, nullptr, w[0].peer[1], to.at(), to.key(), FI_UINT64, FI_SUM, &ctx);
  };
  const auto fetch = [](World& w, const Region& to, uint8_t* local, size_t, Ctx& ctx) {
    return fi_fetch_atomic(w[0], local, 1, nullptr, local + 16, nullptr, w[0].peer[1], to.at(), to.key(),
                           FI_UINT64, FI_SUM, &ctx);
  };
  const auto swap = [](World& w, const Region& to, uint8_t* local, size_t, Ctx& ctx) {
    return fi_compare_atomic(w[0], local, 1, nullptr, local + 8, nullptr, local + 16, nullptr, w[0].peer[1],
                             to.at(), to.key(), FI_UINT64, FI_CSWAP, &ctx);
  };
  static const std::vector<Access> all = {
      {"write of 0", true, 0, 0, write},
      {"read of 0", true, 0, 0, read},
      {"write of 1", false, 1, 0, write},
      {"read of 1", false, 1, 0, read},
      {"writedata of 1", false, 1, 0, write_data},
      {"large write", false, large, 0, write},
      {"large read", false, large, 0, read},
      {"large writedata", false, large, 0, write_data},
      {"atomic", false, 8, FI_ATOMIC, add},
      {"fetching atomic", false, 8, FI_ATOMIC, fetch},
      {"comparing atomic", false, 8, FI_ATOMIC, swap},
  };
  return all;
}

TEST(Region, accesses_of_no_bytes__fi_mr_3) {
  WEFT_BEYOND_THE_MANUAL("regions of no bytes");
  for (const Access& access : accesses()) {
    for (const char* where : {"between others", "the second one there", "NULL"}) {
      SCOPED_TRACE(std::string(access.name) + ", " + where);
      Options options = rma_options();
      options.caps |= access.caps;
      if (access.caps != 0 && !missing(options).empty()) continue;
      std::vector<uint8_t> memory((128 << 10) + access.bytes, 0xee);
      std::vector<uint8_t> local(std::max<size_t>(access.bytes, 24), 0x11);
      WEFT_WORLD(w, options);
      if (access.bytes > w.info()->ep_attr->max_msg_size) continue;
      uint8_t* const middle = memory.data() + (64 << 10) + 64;
      Region before = w.reg(1, memory.data(), size_t(middle - memory.data()), remote_access);
      Region first = w.reg(1, middle, 0, remote_access);
      Region second = w.reg(1, middle, 0, remote_access);
      Region after = w.reg(1, middle, 4096, remote_access);
      Region none = w.reg(1, nullptr, 0, remote_access);
      ASSERT_TRUE(before && first && second && after && none);
      EXPECT_NE(first.key(), second.key());
      const Region& to = where[0] == 'b' ? first : where[0] == 't' ? second : none;
      Ctx ctx;
      WEFT_ASSERT_OK(w.post([&] { return access.post(w, to, local.data(), access.bytes, ctx); }));
      const Completion c = w.wait(w[0].tx, ctx);
      EXPECT_EQ(c.err == 0, access.allowed) << error_name(c.err);
      for (const auto& told : w[1].rx->inbox) EXPECT_NE(told.err, 0) << "the target hears of a write";
      EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), std::ptrdiff_t(memory.size()));
      EXPECT_EQ(std::count(local.begin(), local.end(), 0x11), std::ptrdiff_t(local.size()));
    }
  }
}

// What is injected has no entry of its own; the next write without bytes shows that it was handled.
TEST(Region, injected_into_no_bytes__fi_mr_3) {
  WEFT_BEYOND_THE_MANUAL("regions of no bytes");
  std::vector<uint8_t> memory(4096, 0xee);
  WEFT_WORLD(w, rma_options());
  if (w.info()->tx_attr->inject_size == 0) GTEST_SKIP() << "nothing is injected";
  Region nothing = w.reg(1, memory.data() + 64, 0, remote_access);
  Region others = w.reg(1, memory.data(), 4096, remote_access);
  ASSERT_TRUE(nothing && others);
  const uint8_t value = 5;
  Ctx ctx;
  WEFT_ASSERT_OK(
      w.post([&] { return fi_inject_write(w[0], &value, 1, w[0].peer[1], nothing.at(), nothing.key()); }));
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_write(w[0], &value, 0, nullptr, w[0].peer[1], others.at(), others.key(), &ctx); }));
  w.wait(w[0].tx, ctx);  // of a connection, it may have ended
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), std::ptrdiff_t(memory.size()));
}

// A piece of no bytes in front of one of a single byte: that byte is the region.
TEST(Region, pieces_of_0_and_1_byte__fi_mr_3) {
  WEFT_BEYOND_THE_MANUAL("pieces of no bytes");
  WEFT_WORLD(w, rma_options());
  if (w.info()->domain_attr->mr_iov_limit < 2) GTEST_SKIP() << "regions have one piece";
  std::vector<uint8_t> memory(64, 0xee);
  const iovec pieces[] = {{memory.data() + 8, 0}, {memory.data() + 32, 1}};
  fid_mr* raw = nullptr;
  WEFT_ASSERT_OK(fi_mr_regv(w[1].domain, pieces, 2, remote_access, 0, 0x5eed01, 0, &raw, nullptr));
  Handle<fid_mr> mr(raw);
  const uint64_t at = w.virtual_addresses() ? reinterpret_cast<uint64_t>(memory.data() + 8) : 0;
  usable(w, at, fi_mr_key(raw), memory.data() + 32, 1);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), 63);
  memory[32] = 0xee;
  const uint16_t two = 0;
  Ctx ctx;
  WEFT_ASSERT_OK(
      w.post([&] { return fi_write(w[0], &two, 2, nullptr, w[0].peer[1], at, fi_mr_key(raw), &ctx); }));
  EXPECT_NE(w.wait(w[0].tx, ctx).err, 0);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), 64);
}

// Keys that are addresses: what differs in the upper bits only, at 1 GiB steps, as programs that use the address of a segment as its key.
TEST(Region, keys_at_steps_of_1_gib__fi_mr_3) {
  Options options = rma_options();
  options.mr_mode = 0;
  WEFT_WORLD(w, options);
  if (w.info()->domain_attr->mr_key_size < 8) GTEST_SKIP() << "keys are shorter";
  constexpr size_t count = 64;
  std::vector<uint8_t> memory(count * 64);
  std::vector<Handle<fid_mr>> held;
  const auto key_of = [](size_t i) { return 0x7f0000000000ULL + (uint64_t{i} << 30); };
  for (size_t i = 0; i < count; ++i) {
    fid_mr* mr = nullptr;
    WEFT_ASSERT_OK(
        fi_mr_reg(w[1].domain, memory.data() + i * 64, 64, remote_access, 0, key_of(i), 0, &mr, nullptr));
    held.emplace_back(mr);
    EXPECT_EQ(fi_mr_key(mr), key_of(i));
  }
  for (size_t i = 0; i < count; i += 7) usable(w, 0, key_of(i), memory.data() + i * 64, 64);
}

TEST(Region, bad_arguments__fi_mr_3) {
  WEFT_BEYOND_THE_MANUAL("reserved arguments that are not zero");
  WEFT_WORLD(w, rma_options());
  uint8_t memory[64];
  fid_mr* mr = nullptr;
  EXPECT_LT(fi_mr_reg(w[1].domain, memory, sizeof memory, remote_access, 0, 900, 1ULL << 62, &mr, nullptr),
            0);
  EXPECT_LT(fi_mr_reg(w[1].domain, memory, sizeof memory, remote_access, 8, 901, 0, &mr, nullptr), 0)
      << "offset must be 0";
}

// fi_mr_raw_attr and fi_mr_map_raw of fi_mr(3) are allowed with any region.
TEST(Region, raw_keys__fi_mr_3) {
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(4096);
  Region region = w.reg(1, memory.data(), memory.size(), remote_access);
  uint8_t key[64];
  uint64_t base = 0, mapped = 0;
  size_t len = sizeof key;
  const int rc = fi_mr_raw_attr(region.handle().get(), &base, key, &len, 0);
  if (rc == -FI_ENOSYS || rc == -FI_EINVAL || rc == -FI_EOPNOTSUPP) GTEST_SKIP() << "no raw keys";
  WEFT_ASSERT_OK(rc);
  EXPECT_EQ(base, region.at(0));
  WEFT_ASSERT_OK(fi_mr_map_raw(w[0].domain, base, key, len, &mapped, 0));
  usable(w, region.at(0), mapped, memory.data(), 100);
  WEFT_ASSERT_OK(fi_mr_unmap_key(w[0].domain, mapped));
}

// ------------------------------------------------------------------------------------------------------- wrong accesses

// The operation must end in an error at the initiator, change nothing at the target, and leave the pair working.
struct Wrong : testing::Test {
  void expect_error(World& w, const char* what, ssize_t posted, Ctx& ctx) {
    SCOPED_TRACE(what);
    if (posted != 0) {
      EXPECT_LT(posted, 0) << "refused at once is fine as well";
      EXPECT_NE(posted, -FI_EAGAIN);
      return;
    }
    const Completion c = w.wait(w[0].tx, ctx);
    EXPECT_GT(c.err, 0) << "a wrong access succeeded";
    EXPECT_FALSE(c.text.empty()) << "no text for a person";
  }

  void try_both(World& w, const char* what, uint64_t addr, uint64_t key, size_t len, bool write_wrong = true,
                bool read_wrong = true) {
    std::vector<uint8_t> local(len, 0x11);
    Ctx wrote, did_read;
    if (write_wrong) {
      const ssize_t rc =
          w.post([&] { return fi_write(w[0], local.data(), len, nullptr, w[0].peer[1], addr, key, &wrote); });
      expect_error(w, (std::string("write, ") + what).c_str(), rc, wrote);
    }
    if (read_wrong) {
      const ssize_t rc = w.post(
          [&] { return fi_read(w[0], local.data(), len, nullptr, w[0].peer[1], addr, key, &did_read); });
      expect_error(w, (std::string("read, ") + what).c_str(), rc, did_read);
      EXPECT_EQ(std::count(local.begin(), local.end(), 0x11), static_cast<long>(len))
          << "a refused read brought data";
    }
  }

  // No manual says that a connection outlives what its peer was not allowed to do.
  void still_works(World& w) {
    if (manual_only()) return;
    std::vector<uint8_t> memory(2000);
    Region good = w.reg(1, memory.data(), memory.size(), remote_access);
    usable(w, good.at(), good.key(), memory.data(), 2000);
    uint64_t in = 0;
    const uint64_t out = 3;
    Ctx received;
    WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &out, 8, w[0].peer[1]); }));
    w.done(w[1].rx, received);
    EXPECT_EQ(in, out);
  }

  const std::vector<size_t> lens_{8, 64, 3000, 100'000};
};

TEST_F(Wrong, key__fi_mr_3) {
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(200'000, 0xee);
  Region region = w.reg(1, memory.data(), memory.size(), remote_access);
  for (const size_t len : lens_) {
    try_both(w, "wrong key", region.at(), region.key() + 1000, len);
    still_works(w);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), 200'000);
}

TEST_F(Wrong, bounds__fi_mr_3) {
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(400'000, 0xee);
  Region region = w.reg(1, memory.data() + 150'000, 100'000, remote_access);
  for (const size_t len : lens_) {
    try_both(w, "one byte behind the end", region.at(100'000 - len + 1), region.key(), len);
    try_both(w, "wholly behind", region.at(100'000), region.key(), len);
    try_both(w, "far away", region.at(1ULL << 40), region.key(), len);
    try_both(w, "address overflow", ~0ULL - 4, region.key(), len);
    if (w.virtual_addresses()) try_both(w, "one byte before", region.at() - 1, region.key(), len);
    still_works(w);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), 400'000);
}

// fi_mr(3), access.
TEST_F(Wrong, access__fi_mr_3) {
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(200'000, 0xee);
  Region only_read = w.reg(1, memory.data(), memory.size(), FI_REMOTE_READ);
  Region only_write = w.reg(1, memory.data(), memory.size(), FI_REMOTE_WRITE);
  Region local = w.reg(1, memory.data(), memory.size(), FI_SEND | FI_RECV | FI_READ | FI_WRITE);
  for (const size_t len : lens_) {
    try_both(w, "region for reading", only_read.at(), only_read.key(), len, true, false);
    try_both(w, "region for writing", only_write.at(), only_write.key(), len, false, true);
    try_both(w, "region for local use", local.at(), local.key(), len);
    still_works(w);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), 200'000);
}

// fi_mr(3), fi_close: accesses to a closed region are errors at the peer, the local endpoint is unaffected.
TEST_F(Wrong, closed_region__fi_mr_3) {
  WEFT_WORLD(w, rma_options());
  std::vector<uint8_t> memory(200'000, 0xee);
  Region region = w.reg(1, memory.data(), memory.size(), remote_access);
  const uint64_t addr = region.at(), key = region.key();
  WEFT_ASSERT_OK(region.handle().close());
  for (const size_t len : lens_) {
    try_both(w, "closed", addr, key, len);
    still_works(w);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 0xee), 200'000);
}

// Two ranges of which one is wrong: the whole operation fails, the error is told once.
TEST_F(Wrong, one_of_two_ranges__fi_rma_3) {
  WEFT_WORLD(w, rma_options());
  if (w.info()->tx_attr->rma_iov_limit < 2) GTEST_SKIP() << "one range an operation";
  std::vector<uint8_t> memory(1000, 0);
  Region region = w.reg(1, memory.data(), memory.size(), remote_access);
  std::vector<uint8_t> local(200, 1);
  const iovec from{local.data(), 200};
  const fi_rma_iov to[2] = {{region.at(), 100, region.key()}, {region.at(950), 100, region.key()}};
  Ctx wrote;
  const fi_msg_rma msg{&from, nullptr, 1, w[0].peer[1], to, 2, &wrote, 0};
  const ssize_t rc = w.post([&] { return fi_writemsg(w[0], &msg, FI_DELIVERY_COMPLETE); });
  expect_error(w, "second range", rc, wrote);
  EXPECT_TRUE(w.quiet(w[0].tx));
  still_works(w);
}

// The counter of errors of the initiator goes up; fi_cntr(3), readerr.
TEST_F(Wrong, counts_as_error__fi_cntr_3) {
  Options options = rma_options();
  options.counters = {FI_WRITE, FI_READ};
  WEFT_WORLD(w, options);
  try_both(w, "wrong key", 0, 0xdeadbeef, 8);
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_readerr(w[0].counter(FI_WRITE)) == 1; }));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_readerr(w[0].counter(FI_READ)) == 1; }));
  EXPECT_EQ(fi_cntr_read(w[0].counter(FI_WRITE)), 0u);
}

}  // namespace
}  // namespace weft::conformance
