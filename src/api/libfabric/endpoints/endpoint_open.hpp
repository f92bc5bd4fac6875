// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opens endpoints, scalable endpoints and their contexts, shared contexts (fi_endpoint(3)). The calls are in
// endpoint_open.cpp, once for all engines; a provider instantiates Opener, which says of which type the engine is.
#pragma once

#include "api/libfabric/endpoints/endpoint.hpp"
#include "api/libfabric/endpoints/engine_type.hpp"

namespace weft::fi {

// 0 or -FI_E*, with a line in the log.
int open_endpoint(const EngineType& type, Domain& domain, fi_info* info, fid_ep** ep, void* context);
int open_scalable(const EngineType& type, Domain& domain, fi_info* info, fid_ep** sep, void* context);
int open_srx(const EngineType& type, Domain& domain, fi_rx_attr* attr, fid_ep** srx, void* context);
int open_stx(Domain& domain, fi_tx_attr* attr, fid_stx** stx, void* context);

// The same as Provider has them.
template <proto::EndpointEngine E>
struct Opener {
  static int open_endpoint(Domain& domain, fi_info* info, fid_ep** ep, void* context) {
    return fi::open_endpoint(engine_type<E>, domain, info, ep, context);
  }
  static int open_scalable(Domain& domain, fi_info* info, fid_ep** sep, void* context) {
    return fi::open_scalable(engine_type<E>, domain, info, sep, context);
  }
  static int open_srx(Domain& domain, fi_rx_attr* attr, fid_ep** srx, void* context) {
    return fi::open_srx(engine_type<E>, domain, attr, srx, context);
  }
  static int open_stx(Domain& domain, fi_tx_attr* attr, fid_stx** stx, void* context) {
    return fi::open_stx(domain, attr, stx, context);
  }
};

// The openers of a provider that has connected endpoints `C` besides the others: by the type of endpoint, and for what
// endpoints share by the type that the domain was opened for.
template <class E, class C>
struct OpenerByType {
  static int open_endpoint(Domain& domain, fi_info* info, fid_ep** ep, void* context) {
    const bool connected = info != nullptr && info->ep_attr != nullptr && info->ep_attr->type == FI_EP_MSG;
    return connected ? Opener<C>::open_endpoint(domain, info, ep, context)
                     : Opener<E>::open_endpoint(domain, info, ep, context);
  }
  static int open_srx(Domain& domain, fi_rx_attr* attr, fid_ep** srx, void* context) {
    if (domain.endpoint_type == FI_EP_MSG) return Opener<C>::open_srx(domain, attr, srx, context);
    if constexpr (proto::HasManyContexts<E>) return Opener<E>::open_srx(domain, attr, srx, context);
    return -FI_ENOSYS;
  }
};

}  // namespace weft::fi
