// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the libfabric front end knows of a provider: a name, what it offers, how its addresses read, how to open
// endpoints. One constant per provider stands in src/providers/; the front end holds no other registry.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "providers/interface_domains.hpp"

namespace weft::proto {
struct DeviceRequest;  // device.hpp
}

namespace weft::fi {

class DomainDevice;  // objects/domain_device.hpp
struct Domain;       // objects.hpp
struct Fabric;

struct Provider {
  const char* name;  // "shm"; layers from below with semicolons: "tcp;ofi_rxm"
  uint32_t version;  // FI_VERSION(major, minor) of the provider itself

  // The most it can do, one fi_info per endpoint type and address format, most preferred first, linked by next, static storage.
  // prov_name is left null here; the front end fills it in (and does not when it is loaded as a plugin). All five
  // attribute structures are there and have their real values, except where an offer states what may be asked
  // for:
  //   op_flags of tx and rx   every flag that may be a default; an answer has only those that were asked
  //   mr_mode                 what the provider demands of programs, FI_MR_BASIC and FI_MR_SCALABLE left out; 0 serves both styles
  //   mode                    what it demands, too
  //   control_progress, data_progress
  //                           FI_PROGRESS_AUTO: can be asked for; whoever does not ask gets FI_PROGRESS_MANUAL
  //   threading               the freest level; an answer has the level that was asked
  //   av_type                 FI_AV_UNSPEC serves both
  //   auth_key_size           the longest key (auth_key stays null)
  //   msg_order               the orders that are always kept
  //   cq_cnt, ep_cnt, cntr_cnt, mr_cnt, tx_ctx_cnt, rx_ctx_cnt of the domain: 0 states no limit
  // Parameters (param.hpp) are defined here, too, so that fi_getparams, which calls this, lists them.
  const fi_info* (*offers)(const Provider& provider);

  // Addresses of a format (FI_ADDR_STR, FI_SOCKADDR_IN ...) have one length: bytes, at most 64; 0 for a format that it has not.
  size_t (*addrlen)(uint32_t format);

  // node and service of fi_getinfo(3) or fi_av_insertsvc(3) to one address. Either may be null. `source`
  // tells that it is for the local side (FI_SOURCE). With neither, the answer is empty.
  Result<std::vector<std::byte>> (*resolve)(uint32_t format, const char* node, const char* service,
                                            bool source);
  // The source address that leaves the choice to the library until the endpoint is opened: wildcard host and port with IP.
  std::vector<std::byte> (*unnamed)(uint32_t format);
  // Gives an address of addrlen bytes its one form, so that the same place has the same bytes. False: they are no address.
  bool (*normalise)(uint32_t format, std::byte* bytes);
  // An address as a person reads it. `bytes` holds addrlen bytes. Empty: they are no address of this provider.
  std::string (*to_string)(uint32_t format, const void* bytes);

  // Endpoints. `info` was produced by fi_getinfo (possibly edited by the program, so it is checked again).
  // Each returns 0 or -FI_E*, logs a reason at warn, and stores the object with its vectors set. The domain
  // lock is not held.
  int (*endpoint)(Domain& domain, fi_info* info, fid_ep** ep, void* context);
  int (*scalable_endpoint)(Domain& domain, fi_info* info, fid_ep** sep, void* context);
  int (*stx)(Domain& domain, fi_tx_attr* attr, fid_stx** stx, void* context);
  int (*srx)(Domain& domain, fi_rx_attr* attr, fid_ep** srx, void* context);
  // Null: no connected endpoints.
  int (*passive_endpoint)(Fabric& fabric, fi_info* info, fid_pep** pep, void* context) = nullptr;
  // What links of this provider need to know (set_context of the link); null for providers that are known when they are compiled.
  const void* context = nullptr;
  // proto::repeats_packets: its domains have a progress thread at every level of threading.
  bool repeats_packets = false;
  // Processes on the same host may exchange by shared memory (fi_endpoint(3), FI_OPT_SHARED_MEMORY_PERMITTED).
  bool shares_memory = false;
  // What the endpoints of a domain share; null: nothing (docs/devices.md).
  Result<std::unique_ptr<DomainDevice>> (*open_device)(const Provider& provider,
                                                       const proto::DeviceRequest& request) = nullptr;
  // Domains of this machine's interfaces (providers/interface_domains.hpp), the best first, each offered as a domain besides the one of the offers: with
  // `source` the one that has this address; with `destination` the one from which it is reached, then the others. Null: none.
  std::vector<providers::InterfaceDomain> (*interface_domains)(
      uint32_t format, std::span<const std::byte> source, std::span<const std::byte> destination) = nullptr;
};

// All providers of this build, in the order in which fi_getinfo returns them (registry.cpp).
std::span<const Provider* const> providers();

}  // namespace weft::fi
