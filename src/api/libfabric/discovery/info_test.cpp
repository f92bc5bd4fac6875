// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo(3), fi_dupinfo and fi_freeinfo; fabric(7), "ABI CHANGES"; fi_nic(3).
#include "api/libfabric/discovery/info.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "api/libfabric/discovery/made_up_provider.hpp"

namespace weft::fi {
namespace {

// The first `bytes` of a structure right before a page that may not be touched: what an old program's shorter
// structure is to us.
class Short {
 public:
  Short(const void* from, size_t bytes) {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    map_ = static_cast<char*>(
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(map_ + page_, page_, PROT_NONE);
    at_ = map_ + page_ - bytes;
    memcpy(at_, from, bytes);
  }
  ~Short() { munmap(map_, 2 * page_); }
  Short(const Short&) = delete;
  Short& operator=(const Short&) = delete;

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(at_);
  }

 private:
  size_t page_;
  char* map_;
  char* at_;
};

TEST(Info, NullMakesAnEmptyOneWithAllParts) {
  const InfoPtr info(dup_info(nullptr));
  ASSERT_NE(info, nullptr);
  EXPECT_NE(info->tx_attr, nullptr);
  EXPECT_NE(info->rx_attr, nullptr);
  EXPECT_NE(info->ep_attr, nullptr);
  EXPECT_NE(info->domain_attr, nullptr);
  EXPECT_NE(info->fabric_attr, nullptr);
  EXPECT_EQ(info->nic, nullptr);
  EXPECT_EQ(info->caps, 0u);
  EXPECT_EQ(info->domain_attr->name, nullptr);
}

TEST(Info, CopyIsDeep) {
  MadeUpOffer offer;
  uint8_t key[] = {1, 2, 3};
  offer.ep.auth_key = key;
  offer.ep.auth_key_size = 3;
  offer.domain.auth_key = key;
  offer.domain.auth_key_size = 2;
  char address[] = "made://x";
  offer.info.src_addr = address;
  offer.info.src_addrlen = sizeof address;
  offer.info.dest_addr = address;
  offer.info.dest_addrlen = 4;
  offer.info.next = &offer.info;
  fid handle{};
  offer.info.handle = &handle;
  const InfoPtr copy(dup_info(&offer.info));
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->next, nullptr);
  EXPECT_EQ(copy->handle, &handle);
  EXPECT_EQ(copy->caps, offer.info.caps);
  EXPECT_EQ(copy->tx_attr->op_flags, offer.tx.op_flags);
  EXPECT_EQ(copy->tx_attr->iov_limit, offer.tx.iov_limit);
  EXPECT_EQ(copy->rx_attr->total_buffered_recv, offer.rx.total_buffered_recv);
  EXPECT_EQ(copy->rx_attr->iov_limit, offer.rx.iov_limit);
  EXPECT_NE(copy->domain_attr->name, offer.domain.name);
  EXPECT_STREQ(copy->domain_attr->name, "cloth");
  EXPECT_STREQ(copy->fabric_attr->name, "cloth");
  EXPECT_EQ(copy->fabric_attr->prov_name, nullptr);
  ASSERT_EQ(copy->ep_attr->auth_key_size, 3u);
  EXPECT_NE(copy->ep_attr->auth_key, key);
  EXPECT_EQ(memcmp(copy->ep_attr->auth_key, key, 3), 0);
  EXPECT_EQ(copy->domain_attr->auth_key_size, 2u);
  ASSERT_EQ(copy->src_addrlen, sizeof address);
  EXPECT_NE(copy->src_addr, address);
  EXPECT_STREQ(static_cast<const char*>(copy->src_addr), address);
  EXPECT_EQ(copy->dest_addrlen, 4u);
}

TEST(Info, PartsMayBeMissing) {
  fi_info info{};
  info.caps = FI_MSG;
  info.src_addrlen = 12;  // without bytes
  char byte = 0;
  info.dest_addr = &byte;  // without length
  const InfoPtr copy(dup_info(&info));
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->tx_attr, nullptr);
  EXPECT_EQ(copy->domain_attr, nullptr);
  EXPECT_EQ(copy->src_addrlen, 0u);
  EXPECT_EQ(copy->dest_addr, nullptr);

  uint8_t key[1] = {};
  fi_ep_attr ep{};
  ep.auth_key = key;  // without length
  fi_domain_attr domain{};
  domain.auth_key_size = 9;  // without bytes
  info.ep_attr = &ep;
  info.domain_attr = &domain;
  const InfoPtr second(dup_info(&info));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->ep_attr->auth_key, nullptr);
  EXPECT_EQ(second->domain_attr->auth_key_size, 0u);
}

// A structure of each generation ends where fabric(7) says; one byte more would fault.
TEST(Info, OldGenerationsAreReadToTheirEndOnly) {
  struct Sizes {
    Abi abi;
    size_t info, tx, ep, domain, fabric;
  };
  const Sizes all[] = {
      {Abi::v1_0, 112, 72, 80, 120, 32},
      {Abi::v1_1, 112, 72, 96, 184, 32},
      {Abi::v1_2, 120, 72, 96, 184, 32},
      {Abi::v1_3, 120, 80, 96, 192, 32},
  };
  for (const Sizes& sizes : all) {
    MadeUpOffer offer;
    offer.fabric.api_version = FI_VERSION(1, 9);  // padding in the oldest
    offer.tx.tclass = FI_TC_BULK_DATA;
    offer.domain.tclass = FI_TC_BULK_DATA;
    offer.domain.cntr_cnt = 5;
    offer.domain.mr_cnt = 6;
    offer.ep.auth_key_size = 0;
    Short tx(&offer.tx, sizes.tx);
    Short rx(&offer.rx, sizeof offer.rx);
    Short ep(&offer.ep, sizes.ep);
    Short domain(&offer.domain, sizes.domain);
    Short fabric(&offer.fabric, sizes.fabric);
    offer.info.tx_attr = tx.as<fi_tx_attr>();
    offer.info.rx_attr = rx.as<fi_rx_attr>();
    offer.info.ep_attr = ep.as<fi_ep_attr>();
    offer.info.domain_attr = domain.as<fi_domain_attr>();
    offer.info.fabric_attr = fabric.as<fi_fabric_attr>();
    Short info(&offer.info, sizes.info);
    fi_info* copy = dup_info(info.as<fi_info>(), sizes.abi);
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(copy->tx_attr->rma_iov_limit, 2u);
    EXPECT_EQ(copy->tx_attr->tclass, sizes.abi == Abi::v1_3 ? uint32_t{FI_TC_BULK_DATA} : 0u);
    EXPECT_EQ(copy->domain_attr->tclass, sizes.abi == Abi::v1_3 ? uint32_t{FI_TC_BULK_DATA} : 0u);
    EXPECT_EQ(copy->domain_attr->max_ep_stx_ctx, 4u);
    EXPECT_EQ(copy->domain_attr->cntr_cnt, sizes.abi == Abi::v1_0 ? 0u : 5u);
    EXPECT_EQ(copy->domain_attr->mr_cnt, sizes.abi == Abi::v1_0 ? 0u : 6u);
    EXPECT_EQ(copy->fabric_attr->api_version, sizes.abi == Abi::v1_0 ? 0u : FI_VERSION(1, 9));
    free_info(copy, sizes.abi);
  }
}

// What follows the structures of the headers here is the copy's own, and zero where the original ended before.
TEST(Info, LaterGenerationsAreCopiedWhole) {
  for (const auto& [abi, bytes] :
       {std::pair{Abi::v1_7, size_t{200}}, {Abi::v1_8, size_t{208}}, {Abi::v1_9, size_t{224}}}) {
    alignas(8) char all[224];
    memset(all, 0, layout::domain_tail_at);
    memset(all + layout::domain_tail_at, 0x11, sizeof all - layout::domain_tail_at);
    const Short domain(all, bytes);
    fi_info info{};
    info.domain_attr = const_cast<Short&>(domain).as<fi_domain_attr>();
    const InfoPtr copy(dup_info(&info, abi));
    ASSERT_NE(copy, nullptr);
    const layout::DomainTail tail = layout::tail_of(*copy->domain_attr, Abi::v1_9);
    EXPECT_EQ(tail.max_ep_auth_key, 0x1111111111111111U);
    EXPECT_EQ(tail.max_group_id, abi >= Abi::v1_8 ? 0x11111111U : 0U);
    EXPECT_EQ(tail.max_err_cntr_value, abi >= Abi::v1_9 ? 0x1111111111111111U : 0U);
    const InfoPtr again(dup_info(copy.get(), Abi::v1_9));
    EXPECT_EQ(layout::tail_of(*again->domain_attr, Abi::v1_9).max_ep_auth_key, 0x1111111111111111U);
  }
}

// Parts that a plugin of an older generation made get the room that later programs look into.
TEST(Info, PartsOfPluginsGrow) {
  fi_info info{};
  info.domain_attr = static_cast<fi_domain_attr*>(calloc(1, layout::domain_bytes(Abi::v1_7)));
  layout::DomainTail tail;
  memset(reinterpret_cast<char*>(info.domain_attr) + layout::domain_tail_at, 0x22, 8);
  ASSERT_TRUE(add_slack(&info, Abi::v1_7));
  tail = layout::tail_of(*info.domain_attr, Abi::v1_9);
  EXPECT_EQ(tail.max_ep_auth_key, 0x2222222222222222U);
  EXPECT_EQ(tail.max_group_id, 0U);
  EXPECT_EQ(tail.max_cntr_value, 0U);
  free(info.domain_attr);
}

template <class T>
T* shorter(size_t bytes) {
  return static_cast<T*>(calloc(1, bytes));
}

// A program of an old generation may have put its own, shorter parts into what it frees.
TEST(Info, OldGenerationsAreFreedToTheirEndOnly) {
  fi_info* info = dup_info(nullptr, Abi::v1_0);
  free(info->ep_attr);
  info->ep_attr = shorter<fi_ep_attr>(offsetof(fi_ep_attr, auth_key_size));
  free(info->domain_attr);
  info->domain_attr = shorter<fi_domain_attr>(offsetof(fi_domain_attr, cntr_cnt));
  free_info(info, Abi::v1_0);  // the address sanitizer would tell
}

TEST(Info, VersionTellsTheGeneration) {
  EXPECT_EQ(abi_of(FI_VERSION(1, 0)), Abi::v1_0);
  EXPECT_EQ(abi_of(FI_VERSION(1, 4)), Abi::v1_0);
  EXPECT_EQ(abi_of(FI_VERSION(1, 5)), Abi::v1_1);
  EXPECT_EQ(abi_of(FI_VERSION(1, 8)), Abi::v1_2);
  EXPECT_EQ(abi_of(FI_VERSION(1, 9)), Abi::v1_3);
  EXPECT_EQ(abi_of(FI_VERSION(1, 17)), Abi::v1_3);
  EXPECT_EQ(abi_of(FI_VERSION(1, 19)), Abi::v1_3);
  EXPECT_EQ(abi_of(FI_VERSION(1, 20)), Abi::v1_7);
  EXPECT_EQ(abi_of(FI_VERSION(2, 0)), Abi::v1_8);
  EXPECT_EQ(abi_of(FI_VERSION(2, 4)), Abi::v1_8);
  EXPECT_EQ(abi_of(FI_VERSION(2, 5)), Abi::v1_9);
}

TEST(Info, NicIsCopiedAndClosed) {
  char text[] = "text";
  fi_device_attr device{};
  device.name = text;
  device.firmware = text;
  fi_bus_attr bus{};
  bus.bus_type = FI_BUS_PCI;
  fi_link_attr link{};
  link.address = text;
  link.mtu = 1500;
  int secret = 0;
  fid_nic nic{};
  nic.device_attr = &device;
  nic.bus_attr = &bus;
  nic.link_attr = &link;
  nic.prov_attr = &secret;
  fi_info info{};
  info.nic = &nic;
  const InfoPtr copy(dup_info(&info));
  ASSERT_NE(copy, nullptr);
  ASSERT_NE(copy->nic, nullptr);
  EXPECT_NE(copy->nic, &nic);
  EXPECT_EQ(copy->nic->fid.fclass, size_t{FI_CLASS_NIC});
  EXPECT_STREQ(copy->nic->device_attr->firmware, "text");
  EXPECT_NE(copy->nic->device_attr->firmware, text);
  EXPECT_EQ(copy->nic->device_attr->driver, nullptr);
  EXPECT_EQ(copy->nic->bus_attr->bus_type, FI_BUS_PCI);
  EXPECT_EQ(copy->nic->link_attr->mtu, 1500u);
  EXPECT_EQ(copy->nic->prov_attr, nullptr);

  fid* dup = nullptr;
  ASSERT_EQ(fi_control(&copy->nic->fid, FI_DUP, &dup), 0);
  EXPECT_STREQ(reinterpret_cast<fid_nic*>(dup)->link_attr->address, "text");
  EXPECT_EQ(fi_close(dup), 0);
  const InfoPtr older(dup_info(&info, Abi::v1_1));
  EXPECT_EQ(older->nic, nullptr);
}

TEST(Info, ListsAreFreedWhole) {
  fi_info* first = dup_info(nullptr);
  first->next = dup_info(nullptr);
  first->next->next = dup_info(nullptr);
  free_info(first);
  free_info(nullptr);
}

TEST(Info, Assignments) {
  char* text = nullptr;
  EXPECT_TRUE(assign_string(&text, "one"));
  EXPECT_TRUE(assign_string(&text, "two"));
  EXPECT_STREQ(text, "two");
  EXPECT_TRUE(assign_string(&text, nullptr));
  EXPECT_EQ(text, nullptr);
  void* bytes = nullptr;
  size_t length = 0;
  EXPECT_TRUE(assign_bytes(&bytes, &length, "abc", 3));
  EXPECT_EQ(length, 3u);
  EXPECT_TRUE(assign_bytes(&bytes, &length, nullptr, 3));
  EXPECT_EQ(bytes, nullptr);
  EXPECT_EQ(length, 0u);
}

}  // namespace
}  // namespace weft::fi
