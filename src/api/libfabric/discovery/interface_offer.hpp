// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Offers of providers that have a domain for each network interface (Provider::interface_domains). Must not know the providers.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstddef>
#include <string>
#include <vector>

#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// An offer of the provider as it is at one place: with the names of the interface and its network. `offer` and `at` live longer.
class InterfaceOffer {
 public:
  // `reach`: of FI_LOCAL_COMM and FI_REMOTE_COMM, what is offered there.
  InterfaceOffer(const fi_info& offer, const providers::InterfaceDomain& at, uint64_t reach);
  InterfaceOffer(const InterfaceOffer&) = delete;
  InterfaceOffer& operator=(const InterfaceOffer&) = delete;

  const fi_info& info() const noexcept { return info_; }

 private:
  std::string domain_name_;
  std::string fabric_name_;
  fi_domain_attr domain_;
  fi_fabric_attr fabric_;
  fi_info info_;
};

// Whether hints name a domain or a fabric.
bool names_interface(const fi_info* hints) noexcept;

// The source address of an endpoint that is opened in the domain of that name and says none itself: empty where the name is that of no
// interface. Of several addresses the one of `info`, else the best.
std::vector<std::byte> source_in_domain(const Provider& provider, uint32_t format, const fi_info& info);

// The domains of a provider as text, for a refusal: "eth0", "lo", "tcp".
std::string domain_names(const Provider& provider, uint32_t format);

}  // namespace weft::fi
