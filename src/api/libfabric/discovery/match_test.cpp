// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo(3), fi_domain(3), fi_endpoint(3), fi_fabric(3): what each hint means to a provider.
#include "api/libfabric/discovery/match.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <weft/libfabric_retired.hpp>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "api/libfabric/discovery/made_up_provider.hpp"
#include "api/libfabric/discovery/opened.hpp"
#include "api/libfabric/discovery/traffic_class.hpp"
#include "api/libfabric/text/tostr.hpp"

namespace weft::fi {
namespace {

constexpr uint32_t kNow = FI_VERSION(1, 17);
constexpr uint32_t kOld = FI_VERSION(1, 4);
using Edit = std::function<void(fi_info&)>;

class Match : public ::testing::Test {
 protected:
  Result<InfoPtr> ask(const Edit& edit, uint32_t version = kNow) {
    const InfoPtr hints = made_up_hints();
    if (edit) edit(*hints);
    return match(provider_, offer_.info, version, edit ? hints.get() : nullptr);
  }

  // The answer, which must answer itself.
  InfoPtr given(const Edit& edit, uint32_t version = kNow) {
    auto answer = ask(edit, version);
    if (!answer) {
      ADD_FAILURE() << answer.error().why;
      return made_up_hints();
    }
    auto again = match(provider_, offer_.info, version, answer->get());
    if (again) EXPECT_EQ(std::string(to_text(answer->get(), FI_TYPE_INFO)), std::string(text_of(**again)));
    else ADD_FAILURE() << "not again: " << again.error().why;
    return std::move(*answer);
  }

  void refused(const Edit& edit, const std::string& why, uint32_t version = kNow) {
    auto answer = ask(edit, version);
    ASSERT_FALSE(answer) << why;
    EXPECT_EQ(answer.error().code, FI_ENODATA);
    EXPECT_NE(answer.error().why.find(why), std::string::npos) << answer.error().why;
  }

  static std::string text_of(const fi_info& info) {
    char buffer[8192];
    return to_text(buffer, sizeof buffer, &info, FI_TYPE_INFO);
  }

  MadeUpOffer offer_;
  Provider provider_ = made_up_provider();
};

// fi_endpoint(3), "size": longer queues than the offer states, for those that ask.
TEST_F(Match, LongQueues) {
  EXPECT_EQ(given([](fi_info&) {})->tx_attr->size, offer_.tx.size);
  EXPECT_EQ(given([](fi_info& hints) { hints.tx_attr->size = 4096; })->tx_attr->size, 4096U);
  EXPECT_EQ(given([](fi_info& hints) { hints.rx_attr->size = 16384; })->rx_attr->size, 16384U);
  refused([](fi_info& hints) { hints.tx_attr->size = 16385; },
          "tx_attr->size: 16385 was asked, cloth offers at most 16384");
  offer_.ep.type = FI_EP_MSG;
  refused([this](fi_info& hints) { hints.tx_attr->size = offer_.tx.size + 1; }, "tx_attr->size: ");
}

// fi_getinfo(3), "CAPABILITIES": a bit is named as the version that was asked names it.
TEST_F(Match, CapabilitiesThatChangedTheirMeaning) {
  const auto bit = [](uint64_t cap) { return [cap](fi_info& hints) { hints.caps = FI_MSG | cap; }; };
  refused(bit(uint64_t{1} << 48), "caps: FI_VARIABLE_MSG was asked", FI_VERSION(1, 22));
  refused(bit(FI_COLLECTIVE | uint64_t{1} << 48), "caps: FI_COLLECTIVE|FI_VARIABLE_MSG was asked",
          FI_VERSION(1, 22));
  refused(bit(uint64_t{1} << 48), "caps: FI_EXACT_DIRECTED_RECV was asked", FI_VERSION(2, 0));
  refused(bit(uint64_t{1} << 45), "caps: FI_TAGGED_DIRECTED_RECV was asked", FI_VERSION(2, 0));
  refused(bit(uint64_t{1} << 46), "caps: FI_TAGGED_MULTI_RECV was asked", FI_VERSION(2, 0));
}

// fi_getinfo(3), FI_SOCKADDR_IP: since 2.3.
TEST_F(Match, AddressesOfEitherFamily) {
  const auto edit = [](fi_info& hints) { hints.addr_format = 17; };
  offer_.info.addr_format = FI_SOCKADDR_IN6;
  EXPECT_EQ(given(edit, FI_VERSION(2, 3))->addr_format, uint32_t{FI_SOCKADDR_IN6});
  refused(edit, "addr_format: FI_SOCKADDR_IP was asked", FI_VERSION(2, 2));
}

// fi_domain(3), FI_PROGRESS_CONTROL_UNIFIED: since 1.21.
TEST_F(Match, ControlAndDataProgressUnified) {
  const auto edit = [](fi_info& hints) {
    const uint32_t unified = 3;
    std::memcpy(&hints.domain_attr->control_progress, &unified, sizeof unified);
  };
  EXPECT_EQ(raw(given(edit, FI_VERSION(1, 21))->domain_attr->control_progress), 3U);
  refused(edit, "control_progress", FI_VERSION(1, 20));
}

TEST_F(Match, NoHintsGiveAll) {
  const InfoPtr info = given(nullptr);
  EXPECT_EQ(info->caps, offer_.info.caps);
  EXPECT_EQ(info->mode, 0u);
  EXPECT_EQ(info->addr_format, uint32_t{FI_ADDR_STR});
  EXPECT_EQ(info->domain_attr->threading, FI_THREAD_SAFE);
  EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
  EXPECT_EQ(info->domain_attr->av_type, FI_AV_UNSPEC);
  EXPECT_EQ(info->domain_attr->caps, FI_LOCAL_COMM | FI_REMOTE_COMM);
  EXPECT_EQ(info->domain_attr->auth_key_size, 0u);
  EXPECT_EQ(info->ep_attr->auth_key_size, 0u);
  EXPECT_EQ(info->tx_attr->op_flags, 0u);
  EXPECT_EQ(info->rx_attr->op_flags, 0u);
  EXPECT_STREQ(info->fabric_attr->prov_name, "cloth");
  EXPECT_EQ(info->fabric_attr->prov_version, FI_VERSION(2, 1));
  EXPECT_EQ(info->fabric_attr->api_version, kNow);
}

TEST_F(Match, EmptyHintsAreWildcards) {
  const InfoPtr info = given([](fi_info&) {});
  EXPECT_EQ(info->caps, offer_.info.caps);
  const fi_info bare{};
  EXPECT_TRUE(match(provider_, offer_.info, kNow, &bare));
}

// fi_getinfo(3), "CAPABILITIES".
TEST_F(Match, PrimaryCapabilitiesAreGivenAsAskedWithAllModifiers) {
  const InfoPtr info = given([](fi_info& hints) { hints.caps = FI_MSG; });
  EXPECT_EQ(info->caps, FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_LOCAL_COMM);
  EXPECT_EQ(info->tx_attr->caps, FI_MSG | FI_SEND);
  EXPECT_EQ(info->rx_attr->caps, FI_MSG | FI_RECV | FI_MULTI_RECV);
  const InfoPtr rma = given([](fi_info& hints) { hints.caps = FI_RMA; });
  EXPECT_EQ(rma->caps, FI_RMA | kMemoryModifiers | FI_LOCAL_COMM);
  EXPECT_EQ(rma->tx_attr->caps, FI_RMA | FI_READ | FI_WRITE);
  EXPECT_EQ(rma->rx_attr->caps, FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE);
}

TEST_F(Match, ModifiersLimit) {
  const InfoPtr send = given([](fi_info& hints) { hints.caps = FI_TAGGED | FI_SEND; });
  EXPECT_EQ(send->caps & kMessageModifiers, FI_SEND);
  EXPECT_EQ(send->tx_attr->caps, FI_TAGGED | FI_SEND);
  EXPECT_EQ(send->rx_attr->caps & FI_TAGGED, 0u);
  const InfoPtr target = given([](fi_info& hints) { hints.caps = FI_ATOMIC | FI_REMOTE_WRITE; });
  EXPECT_EQ(target->caps & kMemoryModifiers, FI_REMOTE_WRITE);
  EXPECT_EQ(target->tx_attr->caps, 0u);
  EXPECT_EQ(target->rx_attr->caps, FI_ATOMIC | FI_REMOTE_WRITE);
}

TEST_F(Match, SecondaryCapabilitiesWhenAsked) {
  const InfoPtr info = given([](fi_info& hints) { hints.caps = FI_MSG | FI_SOURCE | FI_REMOTE_COMM; });
  EXPECT_NE(info->caps & FI_SOURCE, 0u);
  EXPECT_NE(info->caps & FI_REMOTE_COMM, 0u);
  EXPECT_EQ(info->caps & FI_FENCE, 0u);
  EXPECT_EQ(info->domain_attr->caps, FI_LOCAL_COMM | FI_REMOTE_COMM);
}

TEST_F(Match, CapabilitiesThatAreNotThere) {
  refused([](fi_info& hints) { hints.caps = FI_COLLECTIVE; },
          "caps: FI_COLLECTIVE was asked, cloth offers FI_MSG|FI_RMA|");
  refused([](fi_info& hints) { hints.caps = FI_MSG | 1ULL << 40; }, "caps: 0x10000000000 was asked");
}

TEST_F(Match, ContextCapabilitiesAreASubset) {
  const InfoPtr info = given([](fi_info& hints) {
    hints.caps = FI_MSG | FI_TAGGED | FI_RMA;
    hints.tx_attr->caps = FI_TAGGED;
    hints.rx_attr->caps = FI_MSG | FI_RECV;
  });
  EXPECT_EQ(info->tx_attr->caps, FI_TAGGED | FI_SEND);
  EXPECT_EQ(info->rx_attr->caps, FI_MSG | FI_RECV);
  refused(
      [](fi_info& hints) {
        hints.caps = FI_MSG;
        hints.tx_attr->caps = FI_MSG | FI_RMA;
      },
      "tx_attr->caps: FI_RMA was asked");
  refused([](fi_info& hints) { hints.rx_attr->caps = FI_HMEM; }, "rx_attr->caps: FI_HMEM was asked");
  // fi_info::caps copied as they are.
  given([](fi_info& hints) {
    hints.tx_attr->caps = hints.rx_attr->caps = hints.caps = FI_MSG | FI_SEND | FI_RECV | FI_SOURCE;
  });
}

// fi_getinfo(3), "MODE".
TEST_F(Match, ModeBitsOfTheProviderMustBeSupported) {
  offer_.info.mode = FI_CONTEXT | FI_MSG_PREFIX;
  offer_.ep.msg_prefix_size = 64;
  refused([](fi_info& hints) { hints.mode = FI_CONTEXT; },
          "mode: cloth needs FI_MSG_PREFIX|FI_CONTEXT, the program supports FI_CONTEXT");
  refused([](fi_info&) {}, "the program supports none");
  const InfoPtr info = given([](fi_info& hints) { hints.mode = FI_CONTEXT | FI_MSG_PREFIX | FI_ASYNC_IOV; });
  EXPECT_EQ(info->mode, FI_CONTEXT | FI_MSG_PREFIX);
  EXPECT_EQ(info->ep_attr->msg_prefix_size, 64u);
  EXPECT_EQ(given(nullptr)->mode, FI_CONTEXT | FI_MSG_PREFIX);
  refused(
      [](fi_info& hints) {
        hints.mode = FI_CONTEXT | FI_MSG_PREFIX;
        hints.ep_attr->msg_prefix_size = 32;
      },
      "ep_attr->msg_prefix_size: 32 was asked, cloth offers no less than 64");
}

TEST_F(Match, ModesNobodyNeedsAreCleared) {
  EXPECT_EQ(given([](fi_info& hints) { hints.mode = ~0ULL; })->mode, 0u);
}

TEST_F(Match, ContextAndDomainModes) {
  offer_.tx.mode = FI_CONTEXT;
  refused([](fi_info&) {}, "tx_attr->mode: cloth needs FI_CONTEXT");
  given([](fi_info& hints) { hints.tx_attr->mode = FI_CONTEXT; });
  given([](fi_info& hints) { hints.mode = FI_CONTEXT; });
  offer_.tx.mode = 0;
  offer_.domain.mode = retired::restricted_comp;
  refused([](fi_info&) {}, "domain_attr->mode: cloth needs FI_RESTRICTED_COMP");
  given([](fi_info& hints) { hints.domain_attr->mode = retired::restricted_comp; });
}

// fi_mr(3).
TEST_F(Match, MrModeFromFifteenOn) {
  const auto asked = [this](int mode, uint32_t version = kNow) {
    return given([mode](fi_info& hints) { hints.domain_attr->mr_mode = mode; }, version)
        ->domain_attr->mr_mode;
  };
  EXPECT_EQ(asked(0), 0);
  EXPECT_EQ(asked(FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL), 0);
  EXPECT_EQ(asked(retired::mr_basic), retired::mr_basic);
  EXPECT_EQ(asked(retired::mr_scalable), retired::mr_scalable);
  EXPECT_EQ(asked(retired::mr_basic | retired::mr_scalable), retired::mr_scalable);
  refused([](fi_info& hints) { hints.domain_attr->mr_mode = retired::mr_basic | FI_MR_LOCAL; },
          "domain_attr->mr_mode: FI_MR_BASIC|FI_MR_LOCAL was asked");

  offer_.domain.mr_mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  EXPECT_EQ(asked(FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_RAW), FI_MR_PROV_KEY | FI_MR_VIRT_ADDR);
  EXPECT_EQ(asked(retired::mr_basic), retired::mr_basic);
  EXPECT_EQ(given(nullptr)->domain_attr->mr_mode, FI_MR_PROV_KEY | FI_MR_VIRT_ADDR);
  refused([](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_PROV_KEY; },
          "domain_attr->mr_mode: cloth needs FI_MR_VIRT_ADDR|FI_MR_PROV_KEY, the program supports "
          "FI_MR_PROV_KEY");
  refused([](fi_info& hints) { hints.domain_attr->mr_mode = retired::mr_scalable; },
          "domain_attr->mr_mode: FI_MR_SCALABLE was asked");
  refused([](fi_info&) {}, "the program supports none");
}

TEST_F(Match, MrModeBeforeFifteen) {
  const auto asked = [this](int mode) {
    return given([mode](fi_info& hints) { hints.domain_attr->mr_mode = mode; }, kOld)->domain_attr->mr_mode;
  };
  EXPECT_EQ(asked(retired::mr_unspec), retired::mr_scalable);
  EXPECT_EQ(asked(retired::mr_basic), retired::mr_basic);
  EXPECT_EQ(asked(retired::mr_scalable), retired::mr_scalable);
  EXPECT_EQ(given(nullptr, kOld)->domain_attr->mr_mode, retired::mr_scalable);
  refused([](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_VIRT_ADDR; }, "from API 1.5 on", kOld);

  offer_.domain.mr_mode = FI_MR_LOCAL | FI_MR_PROV_KEY;
  refused([](fi_info&) {}, "mode: cloth needs FI_LOCAL_MR", kOld);
  const InfoPtr local = given([](fi_info& hints) { hints.mode = retired::local_mr; }, kOld);
  EXPECT_EQ(local->domain_attr->mr_mode, retired::mr_basic);
  EXPECT_EQ(local->mode, retired::local_mr);
  offer_.domain.mr_mode = FI_MR_ENDPOINT;
  refused([](fi_info& hints) { hints.domain_attr->mr_mode = retired::mr_basic; },
          "a mode that needs FI_MR_ENDPOINT", kOld);
}

// fi_domain(3), "threading": the level that is asked is returned if the provider serves it.
TEST_F(Match, Threading) {
  for (const fi_threading level :
       {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN}) {
    const Edit edit = [level](fi_info& hints) { hints.domain_attr->threading = level; };
    EXPECT_EQ(given(edit)->domain_attr->threading, level);
  }
  offer_.domain.threading = FI_THREAD_ENDPOINT;
  refused([](fi_info& hints) { hints.domain_attr->threading = FI_THREAD_FID; },
          "domain_attr->threading: FI_THREAD_FID was asked, cloth offers FI_THREAD_ENDPOINT");
  given([](fi_info& hints) { hints.domain_attr->threading = FI_THREAD_COMPLETION; });
  refused([](fi_info& hints) { hints.domain_attr->threading = static_cast<fi_threading>(77); },
          "domain_attr->threading: 0x4d");
}

TEST_F(Match, Progress) {
  refused([](fi_info& hints) { hints.domain_attr->data_progress = FI_PROGRESS_AUTO; },
          "domain_attr->data_progress: FI_PROGRESS_AUTO was asked, cloth offers FI_PROGRESS_MANUAL");
  const InfoPtr manual =
      given([](fi_info& hints) { hints.domain_attr->control_progress = FI_PROGRESS_MANUAL; });
  EXPECT_EQ(manual->domain_attr->control_progress, FI_PROGRESS_MANUAL);
  offer_.domain.data_progress = FI_PROGRESS_AUTO;
  EXPECT_EQ(given([](fi_info&) {})->domain_attr->data_progress, FI_PROGRESS_MANUAL);
  const InfoPtr automatic =
      given([](fi_info& hints) { hints.domain_attr->data_progress = FI_PROGRESS_AUTO; });
  EXPECT_EQ(automatic->domain_attr->data_progress, FI_PROGRESS_AUTO);
  ::setenv("WEFT_PROGRESS", "auto", 1);
  EXPECT_EQ(given([](fi_info&) {})->domain_attr->data_progress, FI_PROGRESS_AUTO);
  EXPECT_EQ(given([](fi_info& hints) {
              hints.domain_attr->data_progress = FI_PROGRESS_MANUAL;
            })->domain_attr->data_progress,
            FI_PROGRESS_MANUAL);
  ::setenv("WEFT_PROGRESS", "manual", 1);
  refused([](fi_info& hints) { hints.domain_attr->data_progress = FI_PROGRESS_AUTO; },
          "domain_attr->data_progress: FI_PROGRESS_AUTO was asked, and WEFT_PROGRESS=manual forbids it");
  ::unsetenv("WEFT_PROGRESS");
}

TEST_F(Match, AddressVectorType) {
  const Edit table = [](fi_info& hints) { hints.domain_attr->av_type = FI_AV_TABLE; };
  EXPECT_EQ(given(table)->domain_attr->av_type, FI_AV_TABLE);
  offer_.domain.av_type = FI_AV_MAP;
  refused(table, "domain_attr->av_type: FI_AV_TABLE was asked, cloth offers FI_AV_MAP");
  EXPECT_EQ(given([](fi_info&) {})->domain_attr->av_type, FI_AV_MAP);
}

TEST_F(Match, ResourceManagement) {
  given([](fi_info& hints) { hints.domain_attr->resource_mgmt = FI_RM_DISABLED; });
  offer_.domain.resource_mgmt = FI_RM_DISABLED;
  refused([](fi_info& hints) { hints.domain_attr->resource_mgmt = FI_RM_ENABLED; },
          "domain_attr->resource_mgmt: FI_RM_ENABLED");
}

// Every number: what is offered is met, one more is refused with the attribute's name.
TEST_F(Match, Limits) {
  offer_.domain.cq_cnt = offer_.domain.ep_cnt = offer_.domain.tx_ctx_cnt = offer_.domain.rx_ctx_cnt = 100;
  offer_.domain.cntr_cnt = offer_.domain.mr_cnt = 100;
  offer_.ep.max_order_waw_size = 8;
  struct Number {
    std::string attribute;
    std::function<size_t&(fi_info&)> of;
  };
  const Number numbers[] = {
      {"domain_attr->mr_key_size", [](fi_info& i) -> size_t& { return i.domain_attr->mr_key_size; }},
      {"domain_attr->cq_data_size", [](fi_info& i) -> size_t& { return i.domain_attr->cq_data_size; }},
      {"domain_attr->cq_cnt", [](fi_info& i) -> size_t& { return i.domain_attr->cq_cnt; }},
      {"domain_attr->ep_cnt", [](fi_info& i) -> size_t& { return i.domain_attr->ep_cnt; }},
      {"domain_attr->tx_ctx_cnt", [](fi_info& i) -> size_t& { return i.domain_attr->tx_ctx_cnt; }},
      {"domain_attr->rx_ctx_cnt", [](fi_info& i) -> size_t& { return i.domain_attr->rx_ctx_cnt; }},
      {"domain_attr->max_ep_tx_ctx", [](fi_info& i) -> size_t& { return i.domain_attr->max_ep_tx_ctx; }},
      {"domain_attr->max_ep_rx_ctx", [](fi_info& i) -> size_t& { return i.domain_attr->max_ep_rx_ctx; }},
      {"domain_attr->max_ep_stx_ctx", [](fi_info& i) -> size_t& { return i.domain_attr->max_ep_stx_ctx; }},
      {"domain_attr->max_ep_srx_ctx", [](fi_info& i) -> size_t& { return i.domain_attr->max_ep_srx_ctx; }},
      {"domain_attr->cntr_cnt", [](fi_info& i) -> size_t& { return i.domain_attr->cntr_cnt; }},
      {"domain_attr->mr_iov_limit", [](fi_info& i) -> size_t& { return i.domain_attr->mr_iov_limit; }},
      {"domain_attr->max_err_data", [](fi_info& i) -> size_t& { return i.domain_attr->max_err_data; }},
      {"domain_attr->mr_cnt", [](fi_info& i) -> size_t& { return i.domain_attr->mr_cnt; }},
      {"ep_attr->max_msg_size", [](fi_info& i) -> size_t& { return i.ep_attr->max_msg_size; }},
      {"ep_attr->max_order_raw_size", [](fi_info& i) -> size_t& { return i.ep_attr->max_order_raw_size; }},
      {"ep_attr->max_order_war_size", [](fi_info& i) -> size_t& { return i.ep_attr->max_order_war_size; }},
      {"ep_attr->max_order_waw_size", [](fi_info& i) -> size_t& { return i.ep_attr->max_order_waw_size; }},
      {"tx_attr->inject_size", [](fi_info& i) -> size_t& { return i.tx_attr->inject_size; }},
      {"tx_attr->iov_limit", [](fi_info& i) -> size_t& { return i.tx_attr->iov_limit; }},
      {"tx_attr->rma_iov_limit", [](fi_info& i) -> size_t& { return i.tx_attr->rma_iov_limit; }},
      {"rx_attr->iov_limit", [](fi_info& i) -> size_t& { return i.rx_attr->iov_limit; }},
  };
  for (const Number& number : numbers) {
    SCOPED_TRACE(number.attribute);
    const size_t there = number.of(offer_.info);
    const InfoPtr answer = given([&](fi_info& hints) { number.of(hints) = there; });
    EXPECT_GE(number.of(*answer), there);
    refused([&](fi_info& hints) { number.of(hints) = there + 1; },
            number.attribute + ": " + std::to_string(there + 1) + " was asked, cloth offers at most " +
                std::to_string(there));
  }
  refused([](fi_info& hints) { hints.ep_attr->protocol_version = 4; }, "ep_attr->protocol_version: 4");
}

TEST_F(Match, CountsThatAreNotStatedHaveNoLimit) {
  given([](fi_info& hints) { hints.domain_attr->cq_cnt = hints.domain_attr->mr_cnt = 1 << 20; });
  refused([](fi_info& hints) { hints.domain_attr->max_ep_srx_ctx = 1; }, "domain_attr->max_ep_srx_ctx");
}

TEST_F(Match, BufferedReceiveIsAdvice) {
  EXPECT_EQ(given([](fi_info& hints) {
              hints.rx_attr->total_buffered_recv = SIZE_MAX;
            })->rx_attr->total_buffered_recv,
            size_t{1} << 20);
}

TEST_F(Match, TypeAndProtocol) {
  refused([](fi_info& hints) { hints.ep_attr->type = FI_EP_MSG; },
          "ep_attr->type: FI_EP_MSG was asked, cloth offers FI_EP_RDM");
  refused([](fi_info& hints) { hints.ep_attr->protocol = FI_PROTO_UDP; },
          "ep_attr->protocol: FI_PROTO_UDP was asked, cloth offers FI_PROTO_SHM");
  given([](fi_info& hints) {
    hints.ep_attr->type = FI_EP_RDM;
    hints.ep_attr->protocol = FI_PROTO_SHM;
  });
}

// fi_endpoint(3), "mem_tag_format".
TEST_F(Match, TagFormats) {
  const auto asked = [this](uint64_t format) {
    return given([format](fi_info& hints) { hints.ep_attr->mem_tag_format = format; })
        ->ep_attr->mem_tag_format;
  };
  EXPECT_EQ(asked(0), 0xaaaaaaaaaaaaaaaaULL);
  EXPECT_EQ(asked(0x30FF), 0x30FFu);
  EXPECT_EQ(asked(~0ULL), ~0ULL);
  EXPECT_EQ(asked(0x00E000007FFFFFFFULL), 0x00E000007FFFFFFFULL);
  const auto no = [this](uint64_t format) {
    refused([format](fi_info& hints) { hints.ep_attr->mem_tag_format = format; },
            "ep_attr->mem_tag_format: 0x");
  };
  offer_.ep.mem_tag_format = 0x2aaa;  // 14 bits, any mask
  EXPECT_EQ(asked(0x30FF), 0x30FFu);
  no(0x40FF);
  offer_.ep.mem_tag_format = 0x30FF;  // fields of 2, 4, 8
  EXPECT_EQ(asked(0x30FF), 0x30FFu);
  EXPECT_EQ(asked(0x10FF >> 1), 0x30FFu);  // 1, 4 and 7 fit into them
  EXPECT_EQ(asked(0xFF), 0x30FFu);
  no(0x1FF);            // one field of 9
  no(0x2aa);            // ten fields of 1
  no(0x3 << 8 | 0xF0);  // 6 and 4: after the field of 8 there is none
}

TEST_F(Match, Contexts) {
  const InfoPtr info = given([](fi_info& hints) {
    hints.ep_attr->tx_ctx_cnt = 16;
    hints.ep_attr->rx_ctx_cnt = 2;
  });
  EXPECT_EQ(info->ep_attr->tx_ctx_cnt, 16u);
  EXPECT_EQ(info->ep_attr->rx_ctx_cnt, 2u);
  refused([](fi_info& hints) { hints.ep_attr->tx_ctx_cnt = 17; },
          "ep_attr->tx_ctx_cnt: 17 was asked, cloth offers at most 16");
  const InfoPtr shared = given([](fi_info& hints) { hints.ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT; });
  EXPECT_EQ(shared->ep_attr->tx_ctx_cnt, FI_SHARED_CONTEXT);
  refused([](fi_info& hints) { hints.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; },
          "ep_attr->rx_ctx_cnt: FI_SHARED_CONTEXT was asked, cloth offers no shared contexts");
}

TEST_F(Match, AuthorizationKeys) {
  static uint8_t key[16] = {1, 2, 3};
  const InfoPtr info = given([](fi_info& hints) {
    InfoPtr with_key(dup_info(nullptr));
    void* bytes = nullptr;
    ASSERT_TRUE(assign_bytes(&bytes, &hints.ep_attr->auth_key_size, key, 8));
    hints.ep_attr->auth_key = static_cast<uint8_t*>(bytes);
  });
  ASSERT_EQ(info->ep_attr->auth_key_size, 8u);
  EXPECT_EQ(memcmp(info->ep_attr->auth_key, key, 8), 0);
  refused(
      [](fi_info& hints) {
        void* bytes = nullptr;
        ASSERT_TRUE(assign_bytes(&bytes, &hints.ep_attr->auth_key_size, key, 9));
        hints.ep_attr->auth_key = static_cast<uint8_t*>(bytes);
      },
      "ep_attr->auth_key_size: 9 was asked, cloth offers at most 8");
  refused([](fi_info& hints) { hints.domain_attr->auth_key_size = 1; }, "domain_attr->auth_key_size");
}

TEST_F(Match, OperationFlagsAreThoseThatWereAsked) {
  const InfoPtr info = given([](fi_info& hints) {
    hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
    hints.rx_attr->op_flags = FI_MULTI_RECV;
  });
  EXPECT_EQ(info->tx_attr->op_flags, FI_DELIVERY_COMPLETE | FI_COMPLETION);
  EXPECT_EQ(info->rx_attr->op_flags, FI_MULTI_RECV);
  refused([](fi_info& hints) { hints.tx_attr->op_flags = FI_COMMIT_COMPLETE; },
          "tx_attr->op_flags: FI_COMMIT_COMPLETE was asked");
  refused([](fi_info& hints) { hints.rx_attr->op_flags = FI_INJECT; },
          "rx_attr->op_flags: FI_INJECT was asked");
}

TEST_F(Match, Orders) {
  given([](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_SAS; });
  // RMA and atomics together are what the plain name stands for.
  const InfoPtr whole = given([](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_WAW; });
  EXPECT_NE(whole->tx_attr->msg_order & FI_ORDER_WAW, 0u);
  EXPECT_NE(whole->tx_attr->msg_order & FI_ORDER_SAS, 0u);
  refused([](fi_info& hints) { hints.rx_attr->msg_order = FI_ORDER_RAW; },
          "rx_attr->msg_order: FI_ORDER_RAW was asked");
  offer_.tx.msg_order = FI_ORDER_RAR;
  given([](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_ATOMIC_RAR; });
  refused([](fi_info& hints) { hints.tx_attr->comp_order = retired::order_strict; }, "tx_attr->comp_order: ");
  given([](fi_info& hints) { hints.rx_attr->comp_order = retired::order_strict | retired::order_data; });
}

TEST_F(Match, TrafficClass) {
  EXPECT_EQ(given([](fi_info& hints) { hints.tx_attr->tclass = FI_TC_BEST_EFFORT; })->tx_attr->tclass,
            uint32_t{FI_TC_BEST_EFFORT});
  EXPECT_EQ(given([](fi_info& hints) { hints.tx_attr->tclass = FI_TC_LOW_LATENCY; })->tx_attr->tclass,
            uint32_t{FI_TC_LOW_LATENCY});
  EXPECT_EQ(
      given([](fi_info& hints) { hints.domain_attr->tclass = FI_TC_NETWORK_CTRL; })->domain_attr->tclass,
      uint32_t{FI_TC_NETWORK_CTRL});
  EXPECT_EQ(given([](fi_info& hints) { hints.tx_attr->tclass = fi_tc_dscp_set(46); })->tx_attr->tclass,
            fi_tc_dscp_set(46));
  refused([](fi_info& hints) { hints.tx_attr->tclass = fi_tc_dscp_set(64); }, "tx_attr->tclass: 0x140");
  refused([](fi_info& hints) { hints.tx_attr->tclass = FI_TC_NETWORK_CTRL + 1; }, "tx_attr->tclass");
  refused([](fi_info& hints) { hints.domain_attr->tclass = 0xdead; }, "domain_attr->tclass");
}

TEST(TrafficClass, LabelsHaveCodePoints) {
  EXPECT_EQ(code_point_of(FI_TC_UNSPEC), 0);
  EXPECT_EQ(code_point_of(FI_TC_BEST_EFFORT), 0);
  EXPECT_EQ(code_point_of(FI_TC_LOW_LATENCY), 18);
  EXPECT_EQ(code_point_of(fi_tc_dscp_set(63)), 63);
  EXPECT_EQ(code_point_of(0xdead), 0);
  // The endpoint's class, or the domain's; a program of an older interface has none of its own.
  fi_tx_attr tx{};
  EXPECT_EQ(code_point_of(&tx, FI_TC_BULK_DATA, FI_VERSION(1, 17)), 10);
  tx.tclass = FI_TC_SCAVENGER;
  EXPECT_EQ(code_point_of(&tx, FI_TC_BULK_DATA, FI_VERSION(1, 17)), 1);
  EXPECT_EQ(code_point_of(&tx, FI_TC_BULK_DATA, FI_VERSION(1, 4)), 10);
}

TEST_F(Match, DomainCapabilities) {
  const InfoPtr info = given([](fi_info& hints) { hints.domain_attr->caps = FI_REMOTE_COMM; });
  EXPECT_NE(info->domain_attr->caps & FI_REMOTE_COMM, 0u);
  refused([](fi_info& hints) { hints.domain_attr->caps = FI_SHARED_AV; },
          "domain_attr->caps: FI_SHARED_AV was asked");
}

TEST_F(Match, Names) {
  const auto named = [](const char* fabric, const char* domain) -> Edit {
    return [=](fi_info& hints) {
      ASSERT_TRUE(assign_string(&hints.fabric_attr->name, fabric));
      ASSERT_TRUE(assign_string(&hints.domain_attr->name, domain));
    };
  };
  given(named("cloth", "cloth"));
  given(named("", nullptr));
  refused(named("silk", nullptr), "fabric_attr->name: \"silk\" was asked, cloth offers \"cloth\"");
  refused(named(nullptr, "silk"), "domain_attr->name: \"silk\" was asked, cloth offers \"cloth\"");
  refused([](fi_info& hints) { hints.fabric_attr->prov_version = FI_VERSION(2, 2); },
          "fabric_attr->prov_version: 2.2 was asked, cloth offers 2.1");
  given([](fi_info& hints) { hints.fabric_attr->prov_version = FI_VERSION(2, 0); });
}

TEST_F(Match, AddressFormat) {
  given([](fi_info& hints) { hints.addr_format = FI_ADDR_STR; });
  refused([](fi_info& hints) { hints.addr_format = FI_SOCKADDR_IN; },
          "addr_format: FI_SOCKADDR_IN was asked, cloth offers FI_ADDR_STR");
  refused([](fi_info& hints) { hints.addr_format = FI_SOCKADDR; }, "addr_format: FI_SOCKADDR was asked");
  offer_.info.addr_format = FI_SOCKADDR_IN6;
  EXPECT_EQ(given([](fi_info& hints) { hints.addr_format = FI_SOCKADDR; })->addr_format,
            uint32_t{FI_SOCKADDR_IN6});
}

TEST_F(Match, OpenObjectsAreReferredTo) {
  fid_fabric fabric{};
  fid_fabric stranger{};
  fid_domain domain{};
  EXPECT_EQ(given(nullptr)->fabric_attr->fabric, nullptr);
  note_opened(provider_, "cloth", &fabric);
  note_opened(provider_, "cloth", &domain);
  const InfoPtr info = given([](fi_info&) {});
  EXPECT_EQ(info->fabric_attr->fabric, &fabric);
  EXPECT_EQ(info->domain_attr->domain, &domain);
  EXPECT_EQ(given([&](fi_info& hints) { hints.domain_attr->domain = &domain; })->domain_attr->domain,
            &domain);
  refused([&](fi_info& hints) { hints.fabric_attr->fabric = &stranger; }, "fabric_attr->fabric: ");
  refused([&](fi_info& hints) { hints.domain_attr->domain = reinterpret_cast<fid_domain*>(&stranger); },
          "domain_attr->domain: ");
  forget_opened(&fabric.fid);
  forget_opened(&domain.fid);
}

TEST_F(Match, PassiveEndpointIsHandedThrough) {
  fid handle{};
  handle.fclass = FI_CLASS_PEP;
  EXPECT_EQ(given([&](fi_info& hints) { hints.handle = &handle; })->handle, &handle);
  handle.fclass = FI_CLASS_EP;
  EXPECT_EQ(given([&](fi_info& hints) { hints.handle = &handle; })->handle, nullptr);
}

// What the users of a tagged provider ask for: an MPI over tagged messages, and one over RMA and atomics.
TEST_F(Match, HintsOfMpiLibraries) {
  const InfoPtr tagged = given(
      [](fi_info& hints) {
        hints.caps = FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
        hints.mode = FI_CONTEXT | FI_CONTEXT2;
        hints.ep_attr->type = FI_EP_RDM;
        hints.tx_attr->msg_order = hints.rx_attr->msg_order = FI_ORDER_SAS;
        hints.tx_attr->op_flags = hints.rx_attr->op_flags = FI_COMPLETION;
        hints.domain_attr->threading = FI_THREAD_DOMAIN;
        hints.domain_attr->cq_data_size = 4;
        hints.domain_attr->av_type = FI_AV_MAP;
        hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
      },
      FI_VERSION(1, 5));
  EXPECT_EQ(tagged->domain_attr->threading, FI_THREAD_DOMAIN);
  EXPECT_EQ(tagged->domain_attr->av_type, FI_AV_MAP);
  EXPECT_EQ(tagged->mode, 0u);
  EXPECT_EQ(tagged->domain_attr->mr_mode, 0);
  const InfoPtr memory = given(
      [](fi_info& hints) {
        hints.caps = FI_RMA | FI_ATOMIC;
        hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
        hints.tx_attr->iov_limit = hints.rx_attr->iov_limit = 1;
        hints.domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
      },
      FI_VERSION(1, 5));
  EXPECT_EQ(memory->tx_attr->op_flags, FI_DELIVERY_COMPLETE);
  EXPECT_EQ(memory->domain_attr->mr_mode, 0);
}

// fi_domain(3): an info that is opened later may refer to what is closed, and may be older than its version.
TEST_F(Match, OpeningDoesNotLookAtHandles) {
  const InfoPtr info = given(nullptr);
  fid_fabric closed{};
  info->fabric_attr->fabric = &closed;
  info->domain_attr->domain = reinterpret_cast<fid_domain*>(&closed);
  info->handle = &closed.fid;
  EXPECT_FALSE(match_offers(provider_, kNow, info.get()));
  EXPECT_TRUE(match_any(provider_, kNow, info.get()));
  EXPECT_TRUE(match_any(provider_, kNow, nullptr));
  info->domain_attr->mr_cnt = SIZE_MAX;
  info->domain_attr->max_err_data = SIZE_MAX;
  EXPECT_FALSE(match_any(provider_, kNow, info.get()));
  EXPECT_TRUE(match_any(provider_, kOld, info.get()));
}

TEST_F(Match, AnyOfferWillDoAndTheNearestRefuses) {
  EXPECT_TRUE(match_offers(provider_, kNow, nullptr));
  static MadeUpOffer datagram;
  static MadeUpOffer reliable;
  datagram.ep.type = FI_EP_DGRAM;
  datagram.info.next = &reliable.info;
  provider_.offers = [](const Provider&) -> const fi_info* { return &datagram.info; };
  const InfoPtr hints = made_up_hints();
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_COLLECTIVE;
  auto answer = match_any(provider_, kNow, hints.get());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().why.rfind("caps: FI_COLLECTIVE", 0), 0u) << answer.error().why;
  hints->ep_attr->type = FI_EP_MSG;
  EXPECT_NE(match_any(provider_, kNow, hints.get())
                .error()
                .why.find("FI_EP_MSG was asked, cloth offers FI_EP_DGRAM, FI_EP_RDM"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::fi
