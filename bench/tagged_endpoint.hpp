// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the programs of processes that exchange tagged messages share: errors that end the program, and an RDM endpoint with one completion queue and an
// address vector. Written against the public interface alone.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace weft::bench {

// `code`: a negative errno of libfabric; otherwise errno says why.
[[noreturn]] inline void die(const char* what, long code) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
               code < 0 ? fi_strerror(static_cast<int>(-code)) : std::strerror(errno));
  std::_Exit(1);
}

inline void must(const char* what, long code) {
  if (code != 0) die(what, code);
}

struct TaggedEndpoint {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;

  // `node`: the source address, or empty.
  TaggedEndpoint(const std::string& provider, const std::string& node, int mr_mode, size_t completions) {
    fi_info* hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = mr_mode;
    hints->domain_attr->av_type = FI_AV_MAP;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    must("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), node.empty() ? nullptr : node.c_str(), nullptr,
                                  node.empty() ? 0 : FI_SOURCE, hints, &info));
    fi_freeinfo(hints);
    must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, nullptr));
    must("fi_domain", fi_domain(fabric, info, &domain, nullptr));
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_MAP;
    must("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr));
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.size = completions;
    must("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr));
    must("fi_endpoint", fi_endpoint(domain, info, &ep, nullptr));
    must("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
    must("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    must("fi_enable", fi_enable(ep));
  }
};

}  // namespace weft::bench
