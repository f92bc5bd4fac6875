// What the engine can do over a link, as the fi_info of an offer (fi_getinfo(3)). Must not know which link.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "providers/endpoint_kind.hpp"

namespace weft::fi {

// The maximal fi_info of one kind of endpoint over Engine, with one format of addresses, in static storage.
struct Offer {
  Offer(const char* name, uint32_t version, const providers::EndpointKind& kind, uint32_t addr_format);
  // The same for datagram endpoints (FI_EP_DGRAM): messages of one packet, nothing else.
  void limit_to_datagrams(size_t message_bytes);
  // The same for connected endpoints (FI_EP_MSG): one peer, one context each way.
  void one_peer();

  fi_info info{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain_attr{};
  fi_fabric_attr fabric_attr{};
  std::string name;
};

}  // namespace weft::fi
