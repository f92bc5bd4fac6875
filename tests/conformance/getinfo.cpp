// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo(3): every hint is honoured or refused, results are complete, dup and free, API versions, fi_tostr and parameters.
#include <unistd.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <cstring>
#include <thread>

#include "fixture.hpp"
#include "local_modes.hpp"

namespace weft::conformance {
namespace {

// What comes back of this provider for hints that `edit` changed; null when refused, and then it must be -FI_ENODATA with a null list.
Info ask(const std::function<void(fi_info*)>& edit, uint32_t api = FI_VERSION(1, 17)) {
  const Info hints = make_hints({.api = api, .caps = 0, .ep_type = FI_EP_UNSPEC, .edit_hints = edit});
  fi_info* found = reinterpret_cast<fi_info*>(0x1);
  const int rc = fi_getinfo(api, nullptr, nullptr, 0, hints.get(), &found);
  if (rc == 0) {
    const Info all(found);
    for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
      const std::string name = info->fabric_attr->prov_name;
      EXPECT_TRUE(name == provider_name() || name.starts_with(provider_name() + ";"))
          << "nobody asked for " << name;
    }
    return own_of(all.get());
  }
  EXPECT_EQ(rc, -FI_ENODATA);
  EXPECT_EQ(found, nullptr) << "fi_getinfo(3): info is set to NULL";
  return nullptr;
}

// The provider with no hints but its name; the whole list.
Info everything() {
  return ask([](fi_info*) {});
}

TEST(GetInfo, results_are_complete__fi_getinfo_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    ASSERT_NE(info->tx_attr, nullptr);
    ASSERT_NE(info->rx_attr, nullptr);
    ASSERT_NE(info->ep_attr, nullptr);
    ASSERT_NE(info->domain_attr, nullptr);
    ASSERT_NE(info->fabric_attr, nullptr);
    ASSERT_NE(info->fabric_attr->prov_name, nullptr);
    ASSERT_NE(info->fabric_attr->name, nullptr);
    ASSERT_NE(info->domain_attr->name, nullptr);
    EXPECT_NE(info->ep_attr->type, FI_EP_UNSPEC);
    EXPECT_NE(info->caps, 0u);
    EXPECT_NE(info->domain_attr->threading, FI_THREAD_UNSPEC);
    EXPECT_NE(info->domain_attr->data_progress, FI_PROGRESS_UNSPEC);
    EXPECT_NE(info->domain_attr->control_progress, FI_PROGRESS_UNSPEC);
    EXPECT_NE(info->domain_attr->resource_mgmt, FI_RM_UNSPEC);
    EXPECT_GT(info->tx_attr->size, 0u);
    EXPECT_GT(info->rx_attr->size, 0u);
    EXPECT_GT(info->tx_attr->iov_limit, 0u);
    EXPECT_GT(info->ep_attr->max_msg_size, 0u);
    EXPECT_EQ(info->tx_attr->caps & ~info->caps, 0u) << "fi_endpoint(3), caps: a subset of the endpoint's";
    EXPECT_EQ(info->rx_attr->caps & ~info->caps, 0u);
    if (info->src_addr != nullptr) {
      EXPECT_GT(info->src_addrlen, 0u);
    }
  }
}

// fi_endpoint(3), "tclass": a request that a transport honours as well as it can.
TEST(GetInfo, traffic_classes__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("a provider may have none");
  for (const uint32_t tclass :
       {uint32_t{FI_TC_BEST_EFFORT}, uint32_t{FI_TC_LOW_LATENCY}, uint32_t{FI_TC_DEDICATED_ACCESS},
        uint32_t{FI_TC_BULK_DATA}, uint32_t{FI_TC_SCAVENGER}, uint32_t{FI_TC_NETWORK_CTRL}, fi_tc_dscp_set(0),
        fi_tc_dscp_set(46), fi_tc_dscp_set(63)}) {
    SCOPED_TRACE(tclass);
    const Info info = ask([&](fi_info* h) {
      h->tx_attr->tclass = tclass;
      h->domain_attr->tclass = tclass;
    });
    ASSERT_TRUE(info);
    EXPECT_EQ(info->tx_attr->tclass, tclass);
    EXPECT_EQ(info->domain_attr->tclass, tclass);
  }
  for (const uint32_t nonsense : {fi_tc_dscp_set(64), uint32_t{FI_TC_NETWORK_CTRL + 1}, 0xdeadu}) {
    SCOPED_TRACE(nonsense);
    EXPECT_FALSE(ask([&](fi_info* h) { h->tx_attr->tclass = nonsense; }));
    EXPECT_FALSE(ask([&](fi_info* h) { h->domain_attr->tclass = nonsense; }));
  }
}

// fi_getinfo(3), "src_addr": there without FI_SOURCE, too; what it leaves open is chosen when the endpoint is opened.
TEST(GetInfo, a_source_address_unasked__fi_getinfo_3) {
  WEFT_BEYOND_THE_MANUAL("a provider may leave it out");
  const Info info = everything();
  ASSERT_TRUE(info);
  for (const fi_info* one = info.get(); one != nullptr; one = one->next) {
    EXPECT_NE(one->src_addr, nullptr) << one->fabric_attr->prov_name;
    EXPECT_NE(one->src_addrlen, 0u);
  }
}

// fi_getinfo(3), CAPABILITIES: each that is claimed alone can be asked for, and comes back.
TEST(GetInfo, each_claimed_capability_can_be_asked_for__fi_getinfo_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t cap = 1ULL << bit;
    if ((all->caps & cap) == 0) continue;
    SCOPED_TRACE(bit);
    // Modifiers go with a data transfer capability.
    const uint64_t primary = all->caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
    const Info info = ask([&](fi_info* h) { h->caps = cap | primary; });
    ASSERT_TRUE(info);
    EXPECT_EQ(info->caps & (cap | primary), cap | primary);
  }
}

// fi_getinfo(3): what was asked for comes back, what was not asked for may come only as a secondary capability.
TEST(GetInfo, primary_capabilities_are_trimmed__fi_getinfo_3) {
  constexpr uint64_t primary = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
  const Info all = everything();
  ASSERT_TRUE(all);
  for (const uint64_t cap : {FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC}) {
    if ((all->caps & cap) == 0) continue;
    const Info info = ask([&](fi_info* h) { h->caps = cap; });
    ASSERT_TRUE(info);
    EXPECT_EQ(info->caps & primary, cap);
  }
  if (all->caps & FI_MSG) {
    const Info info = ask([](fi_info* h) { h->caps = FI_MSG | FI_SEND; });
    ASSERT_TRUE(info);
    EXPECT_EQ(info->caps & (FI_SEND | FI_RECV), FI_SEND);
    const Info both = ask([](fi_info* h) { h->caps = FI_MSG; });
    EXPECT_EQ(both->caps & (FI_SEND | FI_RECV), FI_SEND | FI_RECV) << "FI_MSG alone implies both";
  }
  if (all->caps & FI_RMA) {
    const Info info = ask([](fi_info* h) { h->caps = FI_RMA; });
    const uint64_t four = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    EXPECT_EQ(info->caps & four, four);
    const Info target = ask([](fi_info* h) { h->caps = FI_RMA | FI_REMOTE_WRITE; });
    ASSERT_TRUE(target);
    EXPECT_EQ(target->caps & four, static_cast<uint64_t>(FI_REMOTE_WRITE));
  }
}

// fi_getinfo(3): a capability nobody has.
TEST(GetInfo, unknown_capability_is_refused__fi_getinfo_3) {
  EXPECT_FALSE(
      ask([](fi_info* h) { h->caps = FI_MSG | retired::variable_msg | FI_RMA_PMEM | FI_MULTICAST; }));
}

// fi_getinfo(3), "a provider must support the requested value or fail": one attribute after the other, first possible, then not.
TEST(GetInfo, limits_are_honoured_or_refused__fi_getinfo_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  struct Field {
    const char* name;
    size_t* (*place)(fi_info*);
  };
  const Field fields[] = {
      {"tx_attr->inject_size", [](fi_info* i) { return &i->tx_attr->inject_size; }},
      {"tx_attr->size", [](fi_info* i) { return &i->tx_attr->size; }},
      {"tx_attr->iov_limit", [](fi_info* i) { return &i->tx_attr->iov_limit; }},
      {"tx_attr->rma_iov_limit", [](fi_info* i) { return &i->tx_attr->rma_iov_limit; }},
      {"rx_attr->size", [](fi_info* i) { return &i->rx_attr->size; }},
      {"rx_attr->iov_limit", [](fi_info* i) { return &i->rx_attr->iov_limit; }},
      {"ep_attr->max_msg_size", [](fi_info* i) { return &i->ep_attr->max_msg_size; }},
      {"ep_attr->max_order_raw_size", [](fi_info* i) { return &i->ep_attr->max_order_raw_size; }},
      {"ep_attr->max_order_war_size", [](fi_info* i) { return &i->ep_attr->max_order_war_size; }},
      {"ep_attr->max_order_waw_size", [](fi_info* i) { return &i->ep_attr->max_order_waw_size; }},
      {"domain_attr->mr_key_size", [](fi_info* i) { return &i->domain_attr->mr_key_size; }},
      {"domain_attr->cq_data_size", [](fi_info* i) { return &i->domain_attr->cq_data_size; }},
      {"domain_attr->mr_iov_limit", [](fi_info* i) { return &i->domain_attr->mr_iov_limit; }},
      {"domain_attr->ep_cnt", [](fi_info* i) { return &i->domain_attr->ep_cnt; }},
      {"domain_attr->mr_cnt", [](fi_info* i) { return &i->domain_attr->mr_cnt; }},
  };
  for (const Field& field : fields) {
    SCOPED_TRACE(field.name);
    const size_t most = *field.place(all.get());
    if (most == 0) continue;
    const Info one = ask([&](fi_info* h) { *field.place(h) = 1; });
    ASSERT_TRUE(one) << "the least was refused";
    EXPECT_GE(*field.place(one.get()), 1u);
    const Info same = ask([&](fi_info* h) { *field.place(h) = most; });
    ASSERT_TRUE(same) << "its own value was refused";
    EXPECT_GE(*field.place(same.get()), most);
    // Only what a page calls requested must be there or refused; the others are what the provider has (fi_domain(3)).
    if (most >= SIZE_MAX / 2 || (manual_only() && std::strncmp(field.name, "domain_attr->", 13) == 0))
      continue;
    const Info more = ask([&](fi_info* h) { *field.place(h) = SIZE_MAX / 2; });
    if (more) {
      EXPECT_GE(*field.place(more.get()), SIZE_MAX / 2) << "neither honoured nor refused";
    }
  }
}

TEST(GetInfo, endpoint_types__fi_endpoint_3) {
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM}) {
    const Info info = ask([&](fi_info* h) { h->ep_attr->type = type; });
    for (const fi_info* i = info.get(); i != nullptr; i = i->next) EXPECT_EQ(i->ep_attr->type, type);
  }
  EXPECT_FALSE(ask([](fi_info* h) { h->ep_attr->type = static_cast<fi_ep_type>(77); }));
}

TEST(GetInfo, protocol_and_names__fi_getinfo_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  EXPECT_TRUE(ask([&](fi_info* h) { h->ep_attr->protocol = all->ep_attr->protocol; }));
  EXPECT_FALSE(ask([](fi_info* h) { h->ep_attr->protocol = FI_PROTO_GNI; }));
  EXPECT_TRUE(ask([&](fi_info* h) { h->domain_attr->name = strdup(all->domain_attr->name); }));
  const bool names_choose = !manual_only();  // no page says that a name which nobody has is refused
  if (names_choose) {
    EXPECT_FALSE(ask([](fi_info* h) { h->domain_attr->name = strdup("no-such-domain"); }));
  }
  EXPECT_TRUE(ask([&](fi_info* h) { h->fabric_attr->name = strdup(all->fabric_attr->name); }));
  if (names_choose) {
    EXPECT_FALSE(ask([](fi_info* h) { h->fabric_attr->name = strdup("no-such-fabric"); }));
  }
  EXPECT_FALSE(ask([](fi_info* h) {
    free(h->fabric_attr->prov_name);
    h->fabric_attr->prov_name = strdup("no-such-provider");
  }));
}

TEST(GetInfo, address_formats__fi_getinfo_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  const uint32_t own = all->addr_format;
  const Info same = ask([&](fi_info* h) { h->addr_format = own; });
  ASSERT_TRUE(same);
  EXPECT_EQ(same->addr_format, own);
  EXPECT_FALSE(ask([](fi_info* h) { h->addr_format = FI_ADDR_GNI; }));
}

// fi_domain(3), threading: all providers support FI_THREAD_SAFE; what is asked for comes back or something stronger.
TEST(GetInfo, threading__fi_domain_3) {
  const auto strength = [](fi_threading level) {
    switch (level) {
      case FI_THREAD_SAFE:
        return 5;
      case FI_THREAD_FID:
        return 4;
      case FI_THREAD_ENDPOINT:
        return 3;
      case FI_THREAD_COMPLETION:
        return 2;
      default:
        return 1;
    }
  };
  for (const fi_threading level :
       {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN}) {
    const Info info = ask([&](fi_info* h) { h->domain_attr->threading = level; });
    ASSERT_TRUE(info) << level;
    EXPECT_GE(strength(info->domain_attr->threading), strength(level));
  }
  EXPECT_FALSE(ask([](fi_info* h) { h->domain_attr->threading = static_cast<fi_threading>(77); }));
}

// fi_domain(3), progress, resource management and AV type.
TEST(GetInfo, domain_modes__fi_domain_3) {
  const Info manual = ask([](fi_info* h) { h->domain_attr->data_progress = FI_PROGRESS_MANUAL; });
  ASSERT_TRUE(manual);
  const Info automatic = ask([](fi_info* h) { h->domain_attr->data_progress = FI_PROGRESS_AUTO; });
  if (automatic) {
    EXPECT_EQ(automatic->domain_attr->data_progress, FI_PROGRESS_AUTO);
  }
  if (!manual_only()) {
    EXPECT_FALSE(ask([](fi_info* h) { h->domain_attr->data_progress = static_cast<fi_progress>(9); }));
  }
  const Info managed = ask([](fi_info* h) { h->domain_attr->resource_mgmt = FI_RM_ENABLED; });
  if (managed) {
    EXPECT_EQ(managed->domain_attr->resource_mgmt, FI_RM_ENABLED);
  }
  EXPECT_TRUE(ask([](fi_info* h) { h->domain_attr->resource_mgmt = FI_RM_DISABLED; }));
  if (!manual_only()) {
    EXPECT_FALSE(ask([](fi_info* h) { h->domain_attr->resource_mgmt = static_cast<fi_resource_mgmt>(9); }));
  }
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    const Info info = ask([&](fi_info* h) { h->domain_attr->av_type = type; });
    if (info) {
      EXPECT_EQ(info->domain_attr->av_type, type);
    }
  }
  if (!manual_only()) {
    EXPECT_FALSE(ask([](fi_info* h) { h->domain_attr->av_type = static_cast<fi_av_type>(9); }));
  }
}

// fi_endpoint(3), msg_order, comp_order, op_flags; all of what is claimed can be asked for, what is not is refused.
TEST(GetInfo, orders_and_flags__fi_endpoint_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  const Info ordered = ask([&](fi_info* h) {
    h->tx_attr->msg_order = all->tx_attr->msg_order;
    h->rx_attr->msg_order = all->rx_attr->msg_order;
  });
  ASSERT_TRUE(ordered);
  EXPECT_EQ(ordered->tx_attr->msg_order & all->tx_attr->msg_order, all->tx_attr->msg_order);
  for (int bit = 0; bit < 40; ++bit) {
    const uint64_t order = 1ULL << bit;
    if ((order & (retired::order_strict | 0xffULL << 32)) == 0) continue;
    const Info info = ask([&](fi_info* h) { h->tx_attr->msg_order = order; });
    if (info) {
      EXPECT_TRUE(info->tx_attr->msg_order & order)
          << "order bit " << bit << ": neither honoured nor refused";
    } else {
      EXPECT_FALSE(all->tx_attr->msg_order & order)
          << "order bit " << bit << " is claimed, but refused when asked for";
    }
  }
  for (const uint64_t flag :
       {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_COMPLETION, FI_INJECT}) {
    const Info info = ask([&](fi_info* h) { h->tx_attr->op_flags = flag; });
    if (info) {
      EXPECT_TRUE(info->tx_attr->op_flags & flag);
    }
  }
  EXPECT_FALSE(ask([](fi_info* h) { h->tx_attr->op_flags = 1ULL << 62; }));
}

// Capabilities of one direction only; fi_endpoint(3), TRANSMIT CONTEXT ATTRIBUTES, caps.
TEST(GetInfo, context_capabilities__fi_endpoint_3) {
  const Info info = ask([](fi_info* h) {
    h->caps = FI_MSG | FI_TAGGED;
    h->tx_attr->caps = FI_MSG | FI_SEND;
    h->rx_attr->caps = FI_TAGGED | FI_RECV;
  });
  if (!info) GTEST_SKIP() << "messages are not offered";
  EXPECT_TRUE(info->tx_attr->caps & FI_MSG);
  EXPECT_TRUE(info->rx_attr->caps & FI_TAGGED);
  EXPECT_FALSE(ask([](fi_info* h) {
    h->caps = FI_MSG;
    h->tx_attr->caps = FI_MSG | retired::variable_msg | FI_MULTICAST;
  }));
}

// fi_getinfo(3), MODE: only bits that the program offered come back.
TEST(GetInfo, mode_bits__fi_getinfo_3) {
  const Info none = ask([](fi_info* h) { h->mode = 0; });
  if (none) {
    EXPECT_EQ(none->mode, 0u);
    EXPECT_EQ(none->domain_attr->mode, 0u);
  }
  const Info some = ask([](fi_info* h) { h->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA; });
  ASSERT_TRUE(some);
  EXPECT_EQ(some->mode & ~(FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA), 0u);
}

// Old programs: every version from 1.0 on is served; fi_getinfo(3), version.
TEST(GetInfo, api_versions__fi_getinfo_3) {
  // Before 1.5 there were no bits to demand a mode by.
  for (uint32_t minor = demanded_mr_modes() == 0 ? 0 : 5; minor <= 17; ++minor) {
    const uint32_t api = FI_VERSION(1, minor);
    const Info info = ask(
        [&](fi_info* h) {
          h->domain_attr->mr_mode =
              minor < 5 ? static_cast<int>(retired::mr_unspec)
                        : FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | demanded_mr_modes();
          h->mode = ~0ULL;
        },
        api);
    ASSERT_TRUE(info) << "1." << minor;
    EXPECT_EQ(info->fabric_attr->api_version, api) << "fi_fabric(3), api_version";
    if (minor < 5) {
      EXPECT_TRUE(info->domain_attr->mr_mode == retired::mr_basic ||
                  info->domain_attr->mr_mode == retired::mr_scalable)
          << "1." << minor << " knows no mode bits, got " << info->domain_attr->mr_mode;
    }
  }
  const Info hints = make_hints({});
  fi_info* found = nullptr;
  EXPECT_NE(fi_getinfo(FI_VERSION(99, 0), nullptr, nullptr, 0, hints.get(), &found), 0)
      << "a version of the future";
}

// No hints at all: the list has this provider too; fi_getinfo(3), NOTES.
TEST(GetInfo, without_hints__fi_getinfo_3) {
  fi_info* raw = nullptr;
  WEFT_ASSERT_OK(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, nullptr, &raw));
  const Info list(raw);
  bool seen = false;
  for (const fi_info* i = list.get(); i != nullptr; i = i->next)
    seen |= provider_name() == i->fabric_attr->prov_name;
  EXPECT_TRUE(seen);
}

// FI_PROV_ATTR_ONLY; fi_getinfo(3), FLAGS.
TEST(GetInfo, provider_attributes_only__fi_getinfo_3) {
  fi_info* raw = nullptr;
  WEFT_ASSERT_OK(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &raw));
  const Info list(raw);
  int seen = 0;
  const std::string wanted = provider_name().substr(0, provider_name().find(';'));
  for (const fi_info* i = list.get(); i != nullptr; i = i->next) {
    ASSERT_NE(i->fabric_attr, nullptr);
    ASSERT_NE(i->fabric_attr->prov_name, nullptr);
    seen += wanted == i->fabric_attr->prov_name ? 1 : 0;
  }
  EXPECT_EQ(seen, 1) << "exactly one entry for each provider";
}

// FI_SOURCE wants a node or a service.
TEST(GetInfo, source_wants_a_name__fi_getinfo_3) {
  const Info hints = make_hints({});
  fi_info* raw = nullptr;
  EXPECT_NE(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, FI_SOURCE, hints.get(), &raw), 0);
  EXPECT_EQ(raw, nullptr);
}

// As fi_pingpong does it: the server at a service, the client by node and service; dest_addr reaches the server.
TEST(GetInfo, node_and_service_meet__fi_getinfo_3) {
  const Options options{.caps = FI_TAGGED, .endpoints = 0};
  WEFT_SKIP_IF(missing(options));
  const std::string service = std::to_string(20'000 + getpid() % 10'000);
  const Info hints = make_hints(options);
  fi_info *server_raw = nullptr, *client_raw = nullptr;
  WEFT_ASSERT_OK(fi_getinfo(options.api, nullptr, service.c_str(), FI_SOURCE, hints.get(), &server_raw));
  const Info server(server_raw);
  WEFT_SKIP_IF(manual_only() && server->addr_format != FI_SOCKADDR_IN &&
                       server->addr_format != FI_SOCKADDR_IN6
                   ? "what a node is called is left to the provider"
                   : "");
  const std::string node = node_of(server.get());
  WEFT_ASSERT_OK(fi_getinfo(options.api, node.c_str(), service.c_str(), 0, hints.get(), &client_raw));
  const Info client(client_raw);
  ASSERT_NE(client->dest_addr, nullptr);
  World w(options);
  ASSERT_TRUE(w.usable());
  const auto open = [&](fi_info* info, Handle<fid_av>& av, Handle<fid_ep>& ep, Cq*& cq) {
    fi_av_attr av_attr{};
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
    cq = w.add_cq(w.domain(), cq_attr);
    WEFT_ASSERT_OK(fi_endpoint(w.domain(), info, ep.out(), nullptr));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cq->fid(), FI_TRANSMIT | FI_RECV));
    WEFT_ASSERT_OK(fi_enable(ep.get()));
  };
  Handle<fid_av> server_av, client_av;
  Cq *server_cq = nullptr, *client_cq = nullptr;
  Handle<fid_ep> server_ep, client_ep;
  ASSERT_NO_FATAL_FAILURE(open(server.get(), server_av, server_ep, server_cq));
  ASSERT_NO_FATAL_FAILURE(open(client.get(), client_av, client_ep, client_cq));
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(client_av.get(), client->dest_addr, 1, &to, 0, nullptr), 1);
  uint64_t in = 0;
  const uint64_t out = 4711;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(server_ep.get(), &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(client_ep.get(), &out, 8, to, 1); }));
  w.done(server_cq, received);
  EXPECT_EQ(in, out);
}

// Two endpoints cannot sit at one address; fi_endpoint(3), or the address is said to be in use at fi_enable.
TEST(GetInfo, address_in_use__fi_errno_3) {
  const Options options{.caps = FI_TAGGED, .endpoints = 0};
  WEFT_SKIP_IF(missing(options));
  const std::string service = std::to_string(10'000 + getpid() % 10'000);
  const Info hints = make_hints(options);
  fi_info* raw = nullptr;
  if (fi_getinfo(options.api, nullptr, service.c_str(), FI_SOURCE, hints.get(), &raw) != 0)
    GTEST_SKIP() << "no services";
  const Info info(raw);
  World w(options);
  ASSERT_TRUE(w.usable());
  fi_av_attr av_attr{};
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  Handle<fid_av> av;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  Cq* cq = w.add_cq(w.domain(), cq_attr);
  Handle<fid_ep> eps[2];
  int last = 0;
  for (auto& ep : eps) {
    last = fi_endpoint(w.domain(), info.get(), ep.out(), nullptr);
    if (last != 0) {
      *ep.out() = nullptr;
      break;
    }
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cq->fid(), FI_TRANSMIT | FI_RECV));
    last = fi_enable(ep.get());
  }
  if (last == 0) {  // then each has a name of its own
    std::vector<uint8_t> names[2];
    for (size_t i = 0; i < 2; ++i) {
      names[i].resize(256);
      size_t length = names[i].size();
      WEFT_ASSERT_OK(fi_getname(eps[i].fid(), names[i].data(), &length));
      names[i].resize(length);
    }
    EXPECT_NE(names[0], names[1]);
    EXPECT_TRUE(manual_only() || provider_name() == "shm");
    return;
  }
  if (!manual_only()) {
    EXPECT_EQ(last, -FI_EADDRINUSE);
  }
}

// fi_dupinfo and fi_freeinfo; fi_getinfo(3).
TEST(GetInfo, dup_and_free__fi_getinfo_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  for (const fi_info* i = all.get(); i != nullptr; i = i->next) {
    const Info copy(fi_dupinfo(i));
    ASSERT_TRUE(copy);
    EXPECT_EQ(copy->next, nullptr);
    EXPECT_EQ(copy->caps, i->caps);
    EXPECT_NE(copy->tx_attr, i->tx_attr);
    EXPECT_EQ(std::memcmp(copy->tx_attr, i->tx_attr, sizeof *i->tx_attr), 0);
    EXPECT_EQ(std::memcmp(copy->rx_attr, i->rx_attr, sizeof *i->rx_attr), 0);
    EXPECT_NE(copy->fabric_attr->prov_name, i->fabric_attr->prov_name);
    EXPECT_STREQ(copy->fabric_attr->prov_name, i->fabric_attr->prov_name);
    EXPECT_STREQ(copy->domain_attr->name, i->domain_attr->name);
    EXPECT_EQ(copy->src_addrlen, i->src_addrlen);
    if (i->src_addr != nullptr) {
      EXPECT_NE(copy->src_addr, i->src_addr);
      EXPECT_EQ(std::memcmp(copy->src_addr, i->src_addr, i->src_addrlen), 0);
    }
  }
  const Info empty(fi_allocinfo());
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->caps, 0u);
  EXPECT_NE(empty->tx_attr, nullptr);
  EXPECT_NE(empty->rx_attr, nullptr);
  EXPECT_NE(empty->ep_attr, nullptr);
  EXPECT_NE(empty->domain_attr, nullptr);
  EXPECT_NE(empty->fabric_attr, nullptr);
}

// fi_getinfo(3), NOTES: many threads at once.
TEST(GetInfo, many_threads__fi_getinfo_3) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(everything());
    });
  }
  for (auto& t : threads) t.join();
}

// fi_fabric(3), fi_tostr; fi_version, fi_strerror of fi_errno(3).
TEST(Library, words__fi_fabric_3) {
  const Info all = everything();
  ASSERT_TRUE(all);
  const std::string text = fi_tostr(all.get(), FI_TYPE_INFO);
  EXPECT_NE(text.find("fi_info"), std::string::npos);
  EXPECT_NE(text.find("caps"), std::string::npos);
  const uint64_t caps = FI_MSG | FI_TAGGED;
  const std::string names = fi_tostr(&caps, FI_TYPE_CAPS);
  EXPECT_NE(names.find("FI_MSG"), std::string::npos);
  EXPECT_NE(names.find("FI_TAGGED"), std::string::npos);
  const fi_ep_type type = FI_EP_RDM;
  EXPECT_STREQ(fi_tostr(&type, FI_TYPE_EP_TYPE), "FI_EP_RDM");
  char buffer[64];
  EXPECT_STREQ(fi_tostr_r(buffer, sizeof buffer, &type, FI_TYPE_EP_TYPE), "FI_EP_RDM");
  char tiny[4] = {1, 1, 1, 1};
  fi_tostr_r(tiny, 3, &type, FI_TYPE_EP_TYPE);
  EXPECT_EQ(tiny[3], 1) << "wrote behind a short buffer";
  EXPECT_GE(fi_version(), FI_VERSION(1, 17));
  for (const int code :
       {0, FI_EINVAL, FI_EAGAIN, static_cast<int>(FI_ETRUNC), static_cast<int>(FI_ENORX), 99999}) {
    ASSERT_NE(fi_strerror(code), nullptr);
    EXPECT_GT(std::strlen(fi_strerror(code)), 0u);
  }
}

// fi_provider(3) and fi_fabric(3), fi_getparams.
TEST(Library, parameters__fi_fabric_3) {
  fi_param* params = nullptr;
  int count = 0;
  WEFT_ASSERT_OK(fi_getparams(&params, &count));
  for (int i = 0; i < count; ++i) {
    EXPECT_NE(params[i].name, nullptr);
    EXPECT_NE(params[i].help_string, nullptr);
  }
  fi_freeparams(params);
}

// fi_fabric(3), fi_open: a service that is unknown is refused.
TEST(Library, fi_open_refuses_the_unknown__fi_open_3) {
  struct fid* fid = nullptr;
  EXPECT_LT(fi_open(FI_VERSION(1, 17), "no-such-service", nullptr, 0, 0, &fid, nullptr), 0);
  const int cache = fi_open(FI_VERSION(1, 17), "mr_cache", nullptr, 0, 0, &fid, nullptr);
  if (cache == 0) fi_close(fid);
}

}  // namespace
}  // namespace weft::conformance
