// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Matches what a program asks for (hints) with what a provider offers: fi_getinfo(3), fi_domain(3),
// fi_endpoint(3), fi_fabric(3). Must not know the providers; node, service and provider names are
// getinfo.cpp's.
#pragma once

#include <rdma/fabric.h>
#include <weft/libfabric_retired.hpp>

#include <cstdint>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/provider.hpp"
#include "base/result.hpp"

namespace weft::fi {

// The info that answers `hints` with `offer`: everything but addresses. Null hints ask for nothing. `version`
// is that of fi_getinfo; fields that it does not know must be zero in the hints (dup_info with abi_of). The
// answer has all parts, prov_name is the provider's. A refusal is FI_ENODATA with a sentence "attribute: X
// was asked, NAME offers Y". Any thread.
//
// Asking again with an answer as the hints gives an equal answer.
Result<InfoPtr> match(const Provider& provider, const fi_info& offer, uint32_t version, const fi_info* hints);

// The same over all offers of the provider: the first that answers. With several refusals the sentence is
// that of the offer with the endpoint type that was asked.
Result<InfoPtr> match_offers(const Provider& provider, uint32_t version, const fi_info* hints);

// For objects that are opened with an fi_info which the program may have edited since fi_getinfo: as
// match_offers, but `info` may be of any age (nothing beyond `version` is read), and the fabric, domain and
// handle in it do not count.
Result<InfoPtr> match_any(const Provider& provider, uint32_t version, const fi_info* info);

// Capability classes of fi_getinfo(3), "CAPABILITIES".
inline constexpr uint64_t kPrimaryCaps = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_MULTICAST |
                                         FI_NAMED_RX_CTX | FI_DIRECTED_RECV | retired::variable_msg |
                                         FI_HMEM | FI_COLLECTIVE;
inline constexpr uint64_t kMessageModifiers = FI_SEND | FI_RECV;
inline constexpr uint64_t kMemoryModifiers = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
// Those of transmit and receive contexts, fi_endpoint(3), "caps".
inline constexpr uint64_t kTransmitCaps = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_READ | FI_WRITE |
                                          FI_SEND | FI_HMEM | FI_TRIGGER | FI_FENCE | FI_MULTICAST |
                                          FI_RMA_PMEM | FI_NAMED_RX_CTX | FI_COLLECTIVE;
inline constexpr uint64_t kReceiveCaps = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_REMOTE_READ |
                                         FI_REMOTE_WRITE | FI_RECV | FI_HMEM | FI_TRIGGER | FI_RMA_PMEM |
                                         FI_DIRECTED_RECV | retired::variable_msg | FI_MULTI_RECV |
                                         FI_SOURCE | FI_RMA_EVENT | FI_SOURCE_ERR | FI_COLLECTIVE;
inline constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV;

// mr_mode bits that FI_MR_BASIC stands for (fi_mr(3), "Basic Memory Registration").
inline constexpr int kBasicMrMode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

}  // namespace weft::fi
