// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a provider says of a kind of endpoint that it has; the rest of an offer is what the engine can do. Must not know the front end.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>

namespace weft::providers {

struct EndpointKind {
  fi_ep_type type;            // FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM
  uint32_t protocol;          // FI_PROTO_*
  uint32_t protocol_version;  // of that protocol
  uint64_t reach;             // FI_LOCAL_COMM, FI_REMOTE_COMM
};

// A switch of a provider: FI_<PROVIDER>_<NAME> in the environment, 0 or 1. `fi_info --env` shows it.
struct Parameter {
  const char* name;
  const char* help;
};

}  // namespace weft::providers
