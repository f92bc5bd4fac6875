// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an engine can do, as the fi_info of an offer (fi_getinfo(3)). Must not know which engine.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/engine/endpoint_engine.hpp"
#include "providers/endpoint_kind.hpp"

namespace weft::fi {

// The maximal fi_info of one kind of endpoint, with one format of addresses, in static storage.
struct Offer {
  Offer(const char* name, uint32_t version, const providers::EndpointKind& kind, uint32_t addr_format,
        const proto::EngineAbilities& abilities);
  // Messages are that long at most: what the provider's network carries.
  void limit_messages(size_t bytes);
  // Names other than the provider's.
  void set_names(const char* fabric, std::string domain);

  fi_info info{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain_attr{};
  fi_fabric_attr fabric_attr{};
  std::string name;  // of the domain
  std::string fabric_name;
};

}  // namespace weft::fi
