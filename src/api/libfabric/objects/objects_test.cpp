// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fabrics, domains, event queues, address vectors, memory regions, wait sets and poll sets through the
// calls of their manual pages.
#include <chrono>
#include <set>
#include <thread>
#include <weft/libfabric_retired.hpp>
#include <weft/libfabric_retired_calls.hpp>

#include "api/libfabric/objects/objects_fixture.hpp"

namespace weft::fi::test {
namespace {

Cq& object(fid_cq* cq) { return *cq_of(&cq->fid); }
Cntr& object(fid_cntr* cntr) { return *cntr_of(&cntr->fid); }
Domain& object(fid_domain* domain) { return *reinterpret_cast<Domain*>(domain); }

class FabricTest : public Objects {};

// fi_domain(3).
TEST_F(FabricTest, ADomainKeepsWhatItWasOpenedWith) {
  open(FI_THREAD_COMPLETION, retired::mr_basic);
  EXPECT_EQ(object(domain).name, "made_up_domain");
  EXPECT_EQ(object(domain).threading, FI_THREAD_COMPLETION);
  EXPECT_EQ(object(domain).mr_mode, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
  EXPECT_EQ(object(domain).api_version, FI_VERSION(1, 17));
  EXPECT_EQ(domain->fid.context, this);
  EXPECT_EQ(close(fabric), -FI_EBUSY);
}

TEST_F(FabricTest, WhatIsNotThereSaysSo) {
  open();
  fid_pep* pep = nullptr;
  EXPECT_EQ(fi_passive_ep(fabric, nullptr, &pep, nullptr), -FI_ENOSYS);
  fi_info info = *made_up_offers();
  fid_ep* ep = nullptr;
  EXPECT_EQ(fi_endpoint(domain, &info, &ep, nullptr), -FI_EOTHER) << "the provider's own answer";
  EXPECT_EQ(fi_scalable_ep(domain, &info, &ep, nullptr), -FI_ENOSYS);
  fid_stx* stx = nullptr;
  EXPECT_EQ(fi_stx_context(domain, nullptr, &stx, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_srx_context(domain, nullptr, &ep, nullptr), -FI_ENOSYS);
  EXPECT_EQ(domain->ops->query_collective(domain, FI_BARRIER, nullptr, 0), -FI_ENOSYS);
  info.domain_attr = nullptr;
  fid_domain* none = nullptr;
  EXPECT_EQ(fi_domain(fabric, &info, &none, nullptr), -FI_EINVAL);
}

// fi_atomic(3), fi_query_atomic.
TEST_F(FabricTest, AtomicsAreQueried) {
  open();
  fi_atomic_attr attr{};
  ASSERT_EQ(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, 0), 0);
  EXPECT_EQ(attr.size, 8u);
  EXPECT_EQ(attr.count, atomic_bytes_max / 8);
  EXPECT_EQ(fi_query_atomic(domain, FI_UINT64, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
  EXPECT_EQ(fi_query_atomic(domain, FI_UINT64, FI_CSWAP, &attr, 0), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_query_atomic(domain, FI_FLOAT, FI_BOR, &attr, FI_FETCH_ATOMIC), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, FI_TAGGED), -FI_EBADFLAGS);
}

class EqTest : public Objects {
 protected:
  void SetUp() override { open(); }
};

// fi_eq(3).
TEST_F(EqTest, WritesReadsAndPeeks) {
  fid_eq* eq = open_eq(FI_WAIT_NONE, FI_WRITE, 2);
  fi_eq_entry entry{};
  entry.data = 5;
  ASSERT_EQ(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  uint32_t event = 99;
  fi_eq_entry out{};
  ASSERT_EQ(fi_eq_read(eq, &event, &out, sizeof out, FI_PEEK), ssize_t(sizeof out));
  ASSERT_EQ(fi_eq_read(eq, &event, &out, sizeof out, 0), ssize_t(sizeof out));
  EXPECT_EQ(event, uint32_t(FI_NOTIFY));
  EXPECT_EQ(out.data, 5u);
  EXPECT_EQ(fi_eq_read(eq, &event, &out, sizeof out, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_eq_sread(eq, &event, &out, sizeof out, 0, 0), -FI_EINVAL) << "FI_WAIT_NONE";
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_readerr(eq, &error, 0), -FI_EAGAIN);
  EXPECT_EQ(close(eq), 0);
  fid_eq* silent = open_eq(FI_WAIT_NONE, 0);
  EXPECT_EQ(fi_eq_write(silent, FI_NOTIFY, &entry, sizeof entry, 0), -FI_EINVAL) << "opened without FI_WRITE";
  EXPECT_EQ(close(silent), 0);
}

TEST_F(EqTest, ABlockingReadIsWokenByAWrite) {
  for (const fi_wait_obj wait : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD}) {
    fid_eq* eq = open_eq(wait);
    uint32_t event = 0;
    fi_eq_entry out{};
    EXPECT_EQ(fi_eq_sread(eq, &event, &out, sizeof out, 10, 0), -FI_EAGAIN);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const fi_eq_entry entry{};
      EXPECT_GT(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), 0);
    });
    EXPECT_EQ(fi_eq_sread(eq, &event, &out, sizeof out, -1, 0), ssize_t(sizeof out));
    other.join();
    EXPECT_EQ(close(eq), 0);
  }
}

class AvTest : public Objects {
 protected:
  void SetUp() override { open(); }
  fid_av* open_av(uint64_t flags = 0, const char* name = nullptr, int expected = 0) {
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.flags = flags;
    attr.name = name;
    fid_av* av = nullptr;
    EXPECT_EQ(fi_av_open(domain, &attr, &av, this), expected);
    return av;
  }
  // An array of entries of the provider's length.
  static std::string packed(std::initializer_list<const char*> names) {
    std::string all;
    for (const char* name : names) {
      std::string entry(name);
      entry.resize(made_up_addrlen, '\0');
      all += entry;
    }
    return all;
  }
};

// fi_av(3), fi_av_insert, fi_av_lookup, fi_av_remove.
TEST_F(AvTest, InsertsLooksUpAndRemoves) {
  fid_av* av = open_av();
  const std::string names = packed({"one", "two", "three"});
  fi_addr_t addr[3] = {9, 9, 9};
  ASSERT_EQ(fi_av_insert(av, names.data(), 3, addr, 0, nullptr), 3);
  EXPECT_EQ(addr[0], 0u);
  EXPECT_EQ(addr[2], 2u);
  char out[made_up_addrlen] = {};
  size_t len = sizeof out;
  ASSERT_EQ(fi_av_lookup(av, addr[1], out, &len), 0);
  EXPECT_STREQ(out, "two");
  EXPECT_EQ(len, made_up_addrlen);
  char little[2] = {'x', 'x'};
  len = 1;
  ASSERT_EQ(fi_av_lookup(av, addr[1], little, &len), 0);
  EXPECT_EQ(little[0], 't');
  EXPECT_EQ(little[1], 'x') << "truncated";
  EXPECT_EQ(len, made_up_addrlen) << "the size that would be needed";
  EXPECT_EQ(fi_av_remove(av, &addr[1], 1, 0), 0);
  len = sizeof out;
  EXPECT_EQ(fi_av_lookup(av, addr[1], out, &len), -FI_EINVAL);
  EXPECT_EQ(fi_av_remove(av, &addr[1], 1, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_remove(av, &addr[0], 1, FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_insert(av, "short", 1, nullptr, 0, nullptr), 1) << "a string may be shorter than an entry";
  len = sizeof out;
  ASSERT_EQ(fi_av_lookup(av, 1, out, &len), 0);
  EXPECT_STREQ(out, "short");
  EXPECT_EQ(close(av), 0);
}

// fi_av(3), FI_SYNC_ERR, and FI_ADDR_NOTAVAIL for what failed.
TEST_F(AvTest, FailuresAreToldOneByOne) {
  fid_av* av = open_av();
  const std::string names = packed({"one", "", "three"});
  fi_addr_t addr[3] = {};
  int errors[3] = {-1, -1, -1};
  ASSERT_EQ(fi_av_insert(av, names.data(), 3, addr, FI_SYNC_ERR, errors), 2);
  EXPECT_EQ(addr[1], FI_ADDR_NOTAVAIL);
  EXPECT_EQ(errors[0], 0);
  EXPECT_EQ(errors[1], FI_EINVAL);
  EXPECT_EQ(errors[2], 0);
  EXPECT_EQ(fi_av_insert(av, names.data(), 1, addr, FI_AV_USER_ID, nullptr), -FI_ENOSYS);
  EXPECT_EQ(close(av), 0);
}

// fi_av(3), fi_av_insertsvc, fi_av_insertsym, fi_av_straddr.
TEST_F(AvTest, ResolvesNames) {
  fid_av* av = open_av();
  fi_addr_t addr[4] = {};
  ASSERT_EQ(fi_av_insertsvc(av, "node", "7", addr, 0, nullptr), 1);
  char out[made_up_addrlen] = {};
  size_t len = sizeof out;
  ASSERT_EQ(fi_av_lookup(av, addr[0], out, &len), 0);
  EXPECT_STREQ(out, "node:7");
  EXPECT_EQ(fi_av_insertsvc(av, "!nobody", "7", addr, 0, nullptr), 0);
  EXPECT_EQ(addr[0], FI_ADDR_NOTAVAIL);
  ASSERT_EQ(fi_av_insertsym(av, "host09", 2, "100", 2, addr, 0, nullptr), 4);
  const char* expected[] = {"host09:100", "host09:101", "host10:100", "host10:101"};
  for (int i = 0; i < 4; ++i) {
    len = sizeof out;
    ASSERT_EQ(fi_av_lookup(av, addr[i], out, &len), 0);
    EXPECT_STREQ(out, expected[i]);
  }
  EXPECT_EQ(fi_av_insertsym(av, "nonumber", 2, "1", 1, addr, 0, nullptr), 1) << "only the first can be named";
  char text[64];
  len = sizeof text;
  EXPECT_EQ(fi_av_straddr(av, "peer", text, &len), text);
  EXPECT_STREQ(text, "made-up://peer");
  EXPECT_EQ(len, 15u);
  len = 4;
  fi_av_straddr(av, "peer", text, &len);
  EXPECT_STREQ(text, "mad");
  EXPECT_EQ(len, 15u);
  EXPECT_EQ(close(av), 0);
}

// fi_av(3), FI_EVENT: errors first, then one completion with the number of successes.
TEST_F(AvTest, AsynchronousInsertionReportsByEvents) {
  fid_av* av = open_av(FI_EVENT);
  const std::string names = packed({"one", "", "three"});
  fi_addr_t addr[3] = {};
  EXPECT_EQ(fi_av_insert(av, names.data(), 3, addr, 0, nullptr), -FI_ENOEQ);
  fid_eq* eq = open_eq(FI_WAIT_NONE, 0, 2);
  ASSERT_EQ(retired::av_bind(av, &eq->fid, 0), 0);
  EXPECT_EQ(close(eq), -FI_EBUSY);
  int context = 0;
  ASSERT_EQ(fi_av_insert(av, names.data(), 3, addr, 0, &context), 0);
  EXPECT_EQ(fi_av_insert(av, names.data(), 3, addr, 0, &context), -FI_EAGAIN) << "no room for its events";
  uint32_t event = 0;
  fi_eq_entry entry{};
  EXPECT_EQ(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAVAIL);
  fi_eq_err_entry error{};
  ASSERT_GT(fi_eq_readerr(eq, &error, 0), 0);
  EXPECT_EQ(error.fid, &av->fid);
  EXPECT_EQ(error.context, &context);
  EXPECT_EQ(error.data, 1u) << "the index of what failed";
  EXPECT_EQ(error.err, FI_EINVAL);
  ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, uint32_t(FI_AV_COMPLETE));
  EXPECT_EQ(entry.fid, &av->fid);
  EXPECT_EQ(entry.context, &context);
  EXPECT_EQ(entry.data, 2u);
  EXPECT_EQ(close(av), 0);
  EXPECT_EQ(close(eq), 0);
}

// fi_av(3), name and FI_READ.
TEST_F(AvTest, ANameIsShared) {
  open_av(FI_READ, "nowhere", -FI_ENOENT);
  fid_av* writer = open_av(0, "team");
  fid_av* reader = open_av(FI_READ, "team");
  fi_addr_t addr = 0;
  ASSERT_EQ(fi_av_insert(writer, "peer", 1, &addr, 0, nullptr), 1);
  char out[made_up_addrlen];
  size_t len = sizeof out;
  ASSERT_EQ(fi_av_lookup(reader, addr, out, &len), 0);
  EXPECT_STREQ(out, "peer");
  EXPECT_EQ(fi_av_insert(reader, "peer", 1, &addr, 0, nullptr), -FI_EACCES);
  EXPECT_EQ(close(writer), 0);
  len = sizeof out;
  EXPECT_EQ(fi_av_lookup(reader, addr, out, &len), 0) << "it lives while somebody has it open";
  EXPECT_EQ(close(reader), 0);
  open_av(FI_READ, "team", -FI_ENOENT);
  open_av(FI_READ, nullptr, -FI_EINVAL);
}

TEST_F(AvTest, AnUnspecifiedTypeIsChosen) {
  fi_av_attr attr{};
  attr.type = FI_AV_UNSPEC;
  fid_av* av = nullptr;
  ASSERT_EQ(fi_av_open(domain, &attr, &av, nullptr), 0);
  EXPECT_NE(attr.type, FI_AV_UNSPEC);
  EXPECT_EQ(av->fid.ops->close(&av->fid), 0);
}

class MrTest : public Objects {
 protected:
  fid_mr* reg(uint64_t key, int expected = 0, uint64_t flags = 0, uint64_t access = FI_REMOTE_WRITE) {
    fid_mr* mr = nullptr;
    EXPECT_EQ(fi_mr_reg(domain, bytes, sizeof bytes, access, 0, key, flags, &mr, this), expected);
    return mr;
  }
  int reach(uint64_t key, uint64_t addr) {
    core::MemoryRegion* region = nullptr;
    const int status = object(domain).regions.acquire(key, addr, 1, FI_REMOTE_WRITE, region);
    if (status == 0) object(domain).regions.release(*region);
    return status;
  }
  char bytes[64] = {};
};

// fi_mr(3): requested_key by default, at base address 0.
TEST_F(MrTest, TheProgramChoosesKeys) {
  open();
  fid_mr* mr = reg(17);
  EXPECT_EQ(fi_mr_key(mr), 17u);
  EXPECT_NE(fi_mr_desc(mr), nullptr);
  EXPECT_EQ(reach(17, 0), 0);
  EXPECT_EQ(reach(17, 64), -FI_EACCES);
  reg(17, -FI_ENOKEY);
  EXPECT_EQ(close(domain), -FI_EBUSY);
  EXPECT_EQ(close(mr), 0);
  EXPECT_EQ(reach(17, 0), -FI_EKEYREJECTED);
}

// fi_mr(3), FI_MR_BASIC: virtual addresses and keys from the provider.
TEST_F(MrTest, BasicModeGivesKeysAndVirtualAddresses) {
  open(FI_THREAD_SAFE, retired::mr_basic);
  std::set<uint64_t> keys;
  std::vector<fid_mr*> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(reg(17));
    keys.insert(fi_mr_key(all.back()));
  }
  EXPECT_EQ(keys.size(), 20u);
  EXPECT_EQ(keys.count(17), 0u);
  EXPECT_EQ(reach(fi_mr_key(all[0]), reinterpret_cast<uintptr_t>(bytes) + 63), 0);
  EXPECT_EQ(reach(fi_mr_key(all[0]), 0), -FI_EACCES);
  for (fid_mr* mr : all) EXPECT_EQ(close(mr), 0);
}

TEST_F(MrTest, RefusesWhatThePageForbids) {
  open();
  fid_mr* mr = nullptr;
  EXPECT_EQ(fi_mr_reg(domain, bytes, 1, FI_SEND, 8, 1, 0, &mr, nullptr), -FI_EINVAL) << "offset";
  EXPECT_EQ(fi_mr_reg(domain, bytes, 1, uint64_t{1} << 60, 0, 1, 0, &mr, nullptr), -FI_EINVAL) << "access";
  EXPECT_EQ(fi_mr_reg(domain, bytes, 1, FI_SEND, 0, 1, FI_PEEK, &mr, nullptr), -FI_EBADFLAGS) << "flags";
  iovec iov[9];
  for (auto& piece : iov) piece = {bytes, 1};
  EXPECT_EQ(fi_mr_regv(domain, iov, 9, FI_SEND, 0, 1, 0, &mr, nullptr), -FI_EINVAL) << "mr_iov_limit is 8";
  ASSERT_EQ(fi_mr_regv(domain, iov, 8, FI_SEND, 0, 1, 0, &mr, nullptr), 0);
  EXPECT_EQ(close(mr), 0);
}

// The page does not forbid it, and programs do it (libfabric 5693).
TEST_F(MrTest, TakesNoBytes) {
  open();
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_reg(domain, bytes, 0, FI_SEND, 0, 1, 0, &mr, nullptr), 0);
  EXPECT_EQ(close(mr), 0);
}

// fi_mr(3), fi_mr_regattr; later fields are not looked at for an older program.
TEST_F(MrTest, RegistersByAttributes) {
  open();
  const iovec iov{bytes, sizeof bytes};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_WRITE;
  attr.requested_key = 5;
  attr.context = this;
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_regattr(domain, &attr, 0, &mr), 0);
  EXPECT_EQ(mr->fid.context, this);
  EXPECT_EQ(reach(5, 0), 0);
  uint8_t raw[8];
  size_t raw_size = 4;
  uint64_t base = 1;
  EXPECT_EQ(fi_mr_raw_attr(mr, &base, raw, &raw_size, 0), -FI_ETOOSMALL);
  ASSERT_EQ(raw_size, 8u);
  ASSERT_EQ(fi_mr_raw_attr(mr, &base, raw, &raw_size, 0), 0);
  EXPECT_EQ(base, 0u);
  uint64_t mapped = 0;
  ASSERT_EQ(fi_mr_map_raw(domain, base, raw, raw_size, &mapped, 0), 0);
  EXPECT_EQ(mapped, 5u);
  EXPECT_EQ(fi_mr_unmap_key(domain, mapped), 0);
  EXPECT_EQ(close(mr), 0);
  attr.iface = FI_HMEM_CUDA;
  EXPECT_EQ(fi_mr_regattr(domain, &attr, 0, &mr), -FI_ENOSYS);
}

TEST_F(MrTest, AnOldProgramsAttributesAreShorter) {
  open(FI_THREAD_SAFE, retired::mr_scalable, FI_VERSION(1, 4));
  const iovec iov{bytes, sizeof bytes};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.auth_key_size = 77;  // beyond the structure of that time
  attr.iface = FI_HMEM_CUDA;
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_regattr(domain, &attr, 0, &mr), 0);
  EXPECT_EQ(close(mr), 0);
}

// fi_mr(3), fi_mr_bind, FI_MR_RMA_EVENT, fi_mr_enable.
TEST_F(MrTest, ARegionWithEventsIsBoundAndEnabled) {
  open();
  object(domain).mr_mode |= FI_MR_RMA_EVENT;
  fid_cntr* cntr = open_cntr();
  fid_mr* mr = reg(1, 0, FI_RMA_EVENT);
  EXPECT_EQ(reach(1, 0), -FI_EKEYREJECTED);
  EXPECT_EQ(fi_mr_bind(mr, &cntr->fid, FI_SEND), -FI_EBADFLAGS);
  ASSERT_EQ(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE), 0);
  EXPECT_EQ(close(cntr), -FI_EBUSY);
  ASSERT_EQ(fi_mr_enable(mr), 0);
  EXPECT_EQ(reach(1, 0), 0);
  EXPECT_EQ(mr_of(&mr->fid)->region->remote_write_counter(), &object(cntr).counter);
  EXPECT_EQ(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE), -FI_EINVAL) << "no binding after enabling";
  EXPECT_EQ(fi_mr_refresh(mr, nullptr, 0, 0), 0);
  EXPECT_EQ(close(mr), 0);
  EXPECT_EQ(close(cntr), 0);
}

// fi_close while a transfer runs: refused, and possible afterwards.
TEST_F(MrTest, ARegionInUseIsNotClosed) {
  open();
  fid_mr* mr = reg(1);
  core::MemoryRegion* region = nullptr;
  ASSERT_EQ(object(domain).regions.acquire(1, 0, 64, FI_REMOTE_WRITE, region), 0);
  EXPECT_EQ(close(mr), -FI_EBUSY);
  object(domain).regions.release(*region);
  EXPECT_EQ(close(mr), 0);
}

// fi_domain(3), fi_domain_bind with FI_REG_MR.
TEST_F(MrTest, AsynchronousRegistrationReportsByEvents) {
  open();
  fid_eq* eq = open_eq(FI_WAIT_NONE, 0, 1);
  ASSERT_EQ(fi_domain_bind(domain, &eq->fid, retired::reg_mr), 0);
  fid_mr* mr = reg(1);
  ASSERT_NE(mr, nullptr);
  reg(2, -FI_EAGAIN);
  uint32_t event = 0;
  fi_eq_entry entry{};
  ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, uint32_t(FI_MR_COMPLETE));
  EXPECT_EQ(entry.fid, &mr->fid);
  EXPECT_EQ(entry.context, this);
  reg(1, -FI_ENOKEY);
  EXPECT_EQ(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN) << "a refusal makes no event";
  EXPECT_EQ(close(mr), 0);
  EXPECT_EQ(close(eq), -FI_EBUSY);
  EXPECT_EQ(close(domain), 0);
  domain = nullptr;
  EXPECT_EQ(close(eq), 0);
}

class SetTest : public Objects {
 protected:
  void SetUp() override { open(); }
  fid_wait* open_wait(fi_wait_obj kind) {
    fi_wait_attr attr{};
    attr.wait_obj = kind;
    fid_wait* set = nullptr;
    EXPECT_EQ(retired::wait_open(fabric, &attr, &set), 0);
    return set;
  }
};

// fi_poll(3), fi_wait.
TEST_F(SetTest, AWaitSetWaitsForAllOfItsMembers) {
  for (const fi_wait_obj kind : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD}) {
    fid_wait* set = open_wait(kind);
    fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT, FI_WAIT_SET, set);
    fid_cntr* cntr = open_cntr(FI_WAIT_SET, set);
    {
      FakeEndpoint first(&object(cq));
      FakeEndpoint second(nullptr, &object(cntr));
      EXPECT_EQ(close(set), -FI_EBUSY);
      EXPECT_EQ(retired::wait(set, 20), -FI_ETIMEDOUT);
      fi_cq_entry entry;
      EXPECT_EQ(fi_cq_sread(cq, &entry, 1, nullptr, 0), -FI_EINVAL) << "FI_WAIT_SET";
      for (FakeEndpoint* endpoint : {&first, &second}) {
        std::thread peer([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          endpoint->deliver();
        });
        EXPECT_EQ(retired::wait(set, 5000), 0);
        peer.join();
        if (endpoint == &first) {
          EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
        }
        if (endpoint == &second) {
          EXPECT_EQ(fi_cntr_read(cntr), 1u);
        }
        EXPECT_EQ(retired::wait(set, 0), -FI_ETIMEDOUT);
      }
    }
    EXPECT_EQ(close(cq), 0);
    EXPECT_EQ(close(cntr), 0);
    EXPECT_EQ(close(set), 0);
  }
}

TEST_F(SetTest, TrywaitOnAWaitSet) {
  fid_wait* set = open_wait(FI_WAIT_FD);
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT, FI_WAIT_SET, set);
  int fd = -1;
  EXPECT_EQ(fi_control(&set->fid, FI_GETWAIT, &fd), 0);
  EXPECT_GE(fd, 0);
  {
    FakeEndpoint endpoint(&object(cq));
    ::fid* fids[] = {&set->fid};
    EXPECT_EQ(fi_trywait(fabric, fids, 1), 0);
    endpoint.deliver();
    EXPECT_EQ(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    fi_cq_entry entry;
    EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
    EXPECT_EQ(fi_trywait(fabric, fids, 1), 0);
  }
  EXPECT_EQ(close(cq), 0);
  EXPECT_EQ(close(set), 0);
}

// fi_poll(3), fi_poll.
TEST_F(SetTest, APollSetNamesWhatHasEvents) {
  fi_poll_attr attr{};
  fid_poll* poll = nullptr;
  ASSERT_EQ(retired::poll_open(domain, &attr, &poll), 0);
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT);
  fid_cntr* cntr = open_cntr();
  cq->fid.context = cq;
  cntr->fid.context = cntr;
  ASSERT_EQ(retired::poll_add(poll, &cq->fid, 0), 0);
  ASSERT_EQ(retired::poll_add(poll, &cntr->fid, 0), 0);
  EXPECT_EQ(retired::poll_add(poll, &domain->fid, 0), -FI_EINVAL);
  EXPECT_EQ(close(cq), -FI_EBUSY);
  {
    FakeEndpoint endpoint(&object(cq), &object(cntr));
    void* contexts[2] = {};
    EXPECT_EQ(retired::poll(poll, contexts, 2), 0);
    endpoint.deliver();
    EXPECT_EQ(retired::poll(poll, contexts, 1), 1);
    EXPECT_EQ(contexts[0], cq);
    EXPECT_EQ(retired::poll(poll, contexts, 1), 1);
    EXPECT_EQ(contexts[0], cntr) << "what had no room comes next";
    EXPECT_EQ(retired::poll(poll, contexts, 2), 1) << "the counter has not changed since";
    fi_cq_entry entry;
    EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
    EXPECT_EQ(fi_cntr_add(cntr, 1), 0);
    EXPECT_EQ(retired::poll(poll, contexts, 2), 0) << "the program's own change is not news";
  }
  EXPECT_EQ(retired::poll_del(poll, &cntr->fid, 0), 0);
  EXPECT_EQ(retired::poll_del(poll, &cntr->fid, 0), -FI_EINVAL);
  EXPECT_EQ(close(cntr), 0);
  EXPECT_EQ(close(poll), -FI_EBUSY) << "fi_poll(3), fi_close: while something is in it";
  EXPECT_EQ(retired::poll_del(poll, &cq->fid, 0), 0);
  EXPECT_EQ(close(poll), 0);
  EXPECT_EQ(close(cq), 0);
}

}  // namespace
}  // namespace weft::fi::test
