// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_fabric(3), fi_tostr and fi_tostr_r.
#include "api/libfabric/text/tostr.hpp"
#include "api/libfabric/abi/generations.hpp"
#include "api/libfabric/abi/values.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_eq.h>
#include <rdma/providers/fi_log.h>
#include <weft/libfabric_retired.hpp>

#include <cstring>
#include <string>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/made_up_provider.hpp"
#include "api/libfabric/text/tostr_names.hpp"

namespace weft::fi {
namespace {

template <class T>
std::string text(T value, fi_type type) {
  return to_text(&value, type);
}

TEST(Tostr, Values) {
  EXPECT_EQ(text(FI_EP_RDM, FI_TYPE_EP_TYPE), "FI_EP_RDM");
  EXPECT_EQ(text(FI_THREAD_ENDPOINT, FI_TYPE_THREADING), "FI_THREAD_ENDPOINT");
  EXPECT_EQ(text(FI_PROGRESS_MANUAL, FI_TYPE_PROGRESS), "FI_PROGRESS_MANUAL");
  EXPECT_EQ(text(uint32_t{FI_PROTO_XNET}, FI_TYPE_PROTOCOL), "FI_PROTO_XNET");
  EXPECT_EQ(text(FI_AV_TABLE, FI_TYPE_AV_TYPE), "FI_AV_TABLE");
  EXPECT_EQ(text(FI_UINT128, FI_TYPE_ATOMIC_TYPE), "FI_UINT128");
  EXPECT_EQ(text(FI_VOID, FI_TYPE_ATOMIC_TYPE), "FI_VOID");
  EXPECT_EQ(text(FI_MSWAP, FI_TYPE_ATOMIC_OP), "FI_MSWAP");
  EXPECT_EQ(text(uint32_t{FI_SHUTDOWN}, FI_TYPE_EQ_EVENT), "FI_SHUTDOWN");
  EXPECT_EQ(text(FI_GATHER, FI_TYPE_COLLECTIVE_OP), "FI_GATHER");
  EXPECT_EQ(text(FI_HMEM_ZE, FI_TYPE_HMEM_IFACE), "FI_HMEM_ZE");
  EXPECT_EQ(text(FI_CQ_FORMAT_TAGGED, FI_TYPE_CQ_FORMAT), "FI_CQ_FORMAT_TAGGED");
  EXPECT_EQ(text(FI_LOG_INFO, FI_TYPE_LOG_LEVEL), "info");
  EXPECT_EQ(text(FI_LOG_EP_CTRL, FI_TYPE_LOG_SUBSYS), "ep_ctrl");
  EXPECT_EQ(text(uint32_t{FI_ADDR_STR}, FI_TYPE_ADDR_FORMAT), "FI_ADDR_STR");
  EXPECT_EQ(text(retired::prov_specific | 0x12u, FI_TYPE_PROTOCOL), "0x80000012");
}

// What headers of 1.17 have no names for.
TEST(Tostr, ValuesOfLaterGenerations) {
  EXPECT_EQ(text(3U, FI_TYPE_PROGRESS), "FI_PROGRESS_CONTROL_UNIFIED");
  EXPECT_EQ(text(16U, FI_TYPE_ADDR_FORMAT), "FI_ADDR_UCX");
  EXPECT_EQ(text(17U, FI_TYPE_ADDR_FORMAT), "FI_SOCKADDR_IP");
  EXPECT_EQ(text(uint64_t{FI_MSG} | uint64_t{1} << 48, FI_TYPE_CAPS), "FI_MSG, FI_EXACT_DIRECTED_RECV");
  EXPECT_EQ(text(uint32_t{FI_PROTO_XNET + 6}, FI_TYPE_PROTOCOL), "FI_PROTO_LNX");
  EXPECT_EQ(text(uint32_t{FI_UINT128 + 4}, FI_TYPE_ATOMIC_TYPE), "FI_FLOAT8_E5M2");
  EXPECT_EQ(text(uint32_t{FI_MSWAP + 1}, FI_TYPE_ATOMIC_OP), "FI_DIFF");
  EXPECT_EQ(text(FI_WAIT_FD, static_cast<fi_type>(35)), "FI_WAIT_FD");
  EXPECT_EQ(text(FI_CQ_COND_THRESHOLD, static_cast<fi_type>(later::type_cq_wait_cond)),
            "FI_CQ_COND_THRESHOLD");
}

// fi_fabric(3), fi_tostr since 1.19: attributes of objects, and the entry of an error.
TEST(Tostr, AttributesOfObjects) {
  fi_cq_attr cq{};
  cq.size = 12;
  cq.format = FI_CQ_FORMAT_DATA;
  cq.wait_obj = FI_WAIT_POLLFD;
  EXPECT_EQ(text(cq, static_cast<fi_type>(later::type_cq_attr)),
            "fi_cq_attr:\n    size: 12\n    flags: [  ]\n    format: FI_CQ_FORMAT_DATA\n    wait_obj: "
            "FI_WAIT_POLLFD\n"
            "    signaling_vector: 0\n    wait_cond: FI_CQ_COND_NONE\n    wait_set: (nil)\n");
  fi_av_attr av{};
  av.type = FI_AV_TABLE;
  av.count = 3;
  EXPECT_NE(text(av, static_cast<fi_type>(later::type_av_attr)).find("count: 3\n"), std::string::npos);
  fi_cntr_attr cntr{};
  EXPECT_NE(text(cntr, static_cast<fi_type>(later::type_cntr_attr)).find("events: FI_CNTR_EVENTS_COMP\n"),
            std::string::npos);
  struct Grown {  // what is behind it is not of the type that is known
    fi_mr_attr attr{};
    uint64_t behind[8] = {};
  } region;
  region.attr.requested_key = 77;
  EXPECT_NE(text(region, static_cast<fi_type>(later::type_mr_attr)).find("requested_key: 77\n"),
            std::string::npos);
  struct Entry {
    fi_cq_err_entry known{};  // with headers before 1.20 without src_addr, which is behind it
    uint64_t behind = 0;
  } entry;
  entry.known.err = FI_ETRUNC;
  layout::set_error_source(entry.known, 0xabc);
  const std::string shown = text(entry, static_cast<fi_type>(later::type_cq_err_entry));
  EXPECT_NE(shown.find("err: 265\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("src_addr: 0xabc\n"), std::string::npos) << shown;
}

TEST(Tostr, FlagsAndUnknownBits) {
  EXPECT_EQ(text(uint64_t{FI_MSG | FI_SEND}, FI_TYPE_CAPS), "FI_MSG, FI_SEND");
  EXPECT_EQ(text(uint64_t{0}, FI_TYPE_CAPS), "");
  EXPECT_EQ(text(uint64_t{FI_MSG | 1ULL << 63 | 1}, FI_TYPE_CAPS), "FI_MSG, 0x8000000000000001");
  EXPECT_EQ(text(uint64_t{1}, FI_TYPE_OP_FLAGS), "0x1");
  EXPECT_EQ(text(uint64_t{FI_CONTEXT | FI_MSG_PREFIX}, FI_TYPE_MODE), "FI_MSG_PREFIX, FI_CONTEXT");
  EXPECT_EQ(text(int{FI_MR_LOCAL | FI_MR_PROV_KEY}, FI_TYPE_MR_MODE), "FI_MR_LOCAL, FI_MR_PROV_KEY");
  EXPECT_EQ(text(uint64_t{0}, FI_TYPE_MSG_ORDER), "FI_ORDER_NONE");
  EXPECT_EQ(text(uint64_t{FI_ORDER_SAS | FI_ORDER_ATOMIC_WAW}, FI_TYPE_MSG_ORDER),
            "FI_ORDER_SAS, FI_ORDER_ATOMIC_WAW");
  EXPECT_EQ(text(uint64_t{FI_RECV | FI_TAGGED}, FI_TYPE_CQ_EVENT_FLAGS), "FI_TAGGED, FI_RECV");
}

// Every type is answered with something, and every table is in order and without doubles.
TEST(Tostr, EveryTypeIsKnown) {
  const InfoPtr info(dup_info(nullptr));
  for (int type = FI_TYPE_INFO; type <= later::type_wait_obj; ++type) {
    const void* data = info.get();
    alignas(8) const char zero[512] = {};
    if (type != FI_TYPE_INFO) data = zero;
    char buffer[4096];
    to_text(buffer, sizeof buffer, data, static_cast<fi_type>(type));
    EXPECT_EQ(std::string(buffer).find("not known"), std::string::npos) << type;
    uint64_t before = 0;
    for (const BitName& entry : bit_names(static_cast<fi_type>(type))) {
      EXPECT_GT(entry.bit, before) << entry.name;
      before = entry.bit;
    }
    const auto values = value_names(static_cast<fi_type>(type));
    for (size_t i = 1; i < values.size(); ++i)
      EXPECT_GT(values[i].value, values[i - 1].value) << values[i].name;
  }
  EXPECT_NE(text(0, static_cast<fi_type>(99)).find("not known"), std::string::npos);
}

TEST(Tostr, NullAndVersion) {
  EXPECT_STREQ(to_text(nullptr, FI_TYPE_CAPS), "(nil)");
  EXPECT_STREQ(to_text(nullptr, FI_TYPE_INFO), "(nil)");
  EXPECT_EQ(std::string(to_text(nullptr, FI_TYPE_VERSION)).substr(0, 4), "2.6.");
}

TEST(Tostr, Addresses) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(7471);
  inet_pton(AF_INET, "10.31.6.12", &v4.sin_addr);
  EXPECT_EQ(address_text(FI_SOCKADDR_IN, &v4, sizeof v4), "fi_sockaddr_in://10.31.6.12:7471");
  EXPECT_EQ(address_text(FI_SOCKADDR, &v4, sizeof v4), "fi_sockaddr_in://10.31.6.12:7471");
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(1);
  inet_pton(AF_INET6, "fe80::6:12", &v6.sin6_addr);
  EXPECT_EQ(address_text(FI_SOCKADDR_IN6, &v6, sizeof v6), "fi_sockaddr_in6://[fe80::6:12]:1");
  v6.sin6_scope_id = 12;
  EXPECT_EQ(address_text(FI_SOCKADDR_IN6, &v6, sizeof v6), "fi_sockaddr_in6://[fe80::6:12%12]:1");
  EXPECT_EQ(address_text(FI_SOCKADDR_IN6, &v6, 3), "0x0a0000");
  const char unended[4] = {'a', 'b', 'c', 'd'};
  EXPECT_EQ(address_text(FI_ADDR_STR, unended, sizeof unended), "abcd");
  EXPECT_EQ(address_text(FI_ADDR_GNI, unended, 2), "0x6162");
  EXPECT_EQ(address_text(FI_ADDR_STR, nullptr, 0), "(null)");
}

TEST(Tostr, AttributeLayout) {
  fi_rx_attr attr{};
  attr.caps = FI_MSG | FI_RECV;
  attr.comp_order = retired::order_strict | retired::order_data;
  attr.size = 5;
  EXPECT_STREQ(to_text(&attr, FI_TYPE_RX_ATTR),
               "fi_rx_attr:\n"
               "    caps: [ FI_MSG, FI_RECV ]\n"
               "    mode: [  ]\n"
               "    op_flags: [  ]\n"
               "    msg_order: [ FI_ORDER_NONE ]\n"
               "    comp_order: [ FI_ORDER_STRICT, FI_ORDER_DATA ]\n"
               "    total_buffered_recv: 0\n"
               "    size: 5\n"
               "    iov_limit: 0\n");
}

TEST(Tostr, InfoIsNested) {
  const MadeUpOffer offer;
  const std::string all = to_text(&offer.info, FI_TYPE_INFO);
  EXPECT_EQ(all.rfind("fi_info:\n    caps: [ FI_MSG, ", 0), 0u);
  for (const char* line :
       {"\n    fi_tx_attr:\n        caps: [", "\n    fi_rx_attr:\n",
        "\n    fi_ep_attr:\n        type: FI_EP_RDM\n",
        "\n    fi_domain_attr:\n        domain: 0x0\n        name: cloth\n",
        "\n        threading: FI_THREAD_SAFE\n", "\n        resource_mgmt: FI_RM_ENABLED\n",
        "\n    fi_fabric_attr:\n        name: cloth\n        prov_name: (null)\n", "\n    nic: (nil)\n"})
    EXPECT_NE(all.find(line), std::string::npos) << line << all;
}

TEST(Tostr, NicIsShown) {
  const InfoPtr info(dup_info(nullptr));
  fi_device_attr device{};
  char name[] = "eth7";
  device.name = name;
  fi_bus_attr bus{};
  bus.bus_type = FI_BUS_PCI;
  bus.attr.pci.bus_id = 3;
  fi_link_attr link{};
  link.state = FI_LINK_UP;
  fid_nic nic{};
  nic.device_attr = &device;
  nic.bus_attr = &bus;
  nic.link_attr = &link;
  info->nic = &nic;
  const std::string all = to_text(info.get(), FI_TYPE_INFO);
  info->nic = nullptr;
  for (const char* part : {"nic:\n", "name: eth7\n", "bus_id: 3\n", "state: FI_LINK_UP\n"})
    EXPECT_NE(all.find(part), std::string::npos) << part;
}

// No length of the buffer is overrun, and every text is the beginning of the whole one.
TEST(Tostr, BoundedAtEveryLength) {
  const MadeUpOffer offer;
  const std::string whole = to_text(&offer.info, FI_TYPE_INFO);
  std::vector<char> buffer(whole.size() + 2);
  for (size_t length = 0; length <= whole.size() + 1; length += length < 200 ? 1 : 37) {
    std::fill(buffer.begin(), buffer.end(), '#');
    EXPECT_EQ(to_text(buffer.data(), length, &offer.info, FI_TYPE_INFO), buffer.data());
    ASSERT_EQ(buffer[length], '#') << length;
    if (length == 0) continue;
    ASSERT_EQ(std::string(buffer.data()), whole.substr(0, std::min(length - 1, whole.size()))) << length;
  }
  EXPECT_EQ(to_text(nullptr, 10, &offer.info, FI_TYPE_INFO), nullptr);
}

TEST(Tostr, Objects) {
  fid object{};
  object.fclass = FI_CLASS_CQ;
  EXPECT_EQ(std::string(to_text(&object, FI_TYPE_FID)).rfind("FI_CLASS_CQ ", 0), 0u);
  object.fclass = 12345;
  EXPECT_EQ(std::string(to_text(&object, FI_TYPE_FID)).rfind("class 12345 ", 0), 0u);
  fi_ops ops{};
  ops.size = sizeof ops;
  ops.tostr = [](const fid*, char* buf, size_t len) {
    snprintf(buf, len, "myself");
    return 0;
  };
  object.ops = &ops;
  EXPECT_STREQ(to_text(&object, FI_TYPE_FID), "myself");
}

TEST(Tostr, SentenceForms) {
  EXPECT_EQ(flags_text(FI_MSG | FI_RMA, FI_TYPE_CAPS), "FI_MSG|FI_RMA");
  EXPECT_EQ(flags_text(0, FI_TYPE_CAPS), "none");
  EXPECT_EQ(value_text(FI_EP_MSG, FI_TYPE_EP_TYPE), "FI_EP_MSG");
  EXPECT_EQ(version_text(FI_VERSION(1, 17)), "1.17");
}

}  // namespace
}  // namespace weft::fi
