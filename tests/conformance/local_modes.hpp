// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Providers that demand registration of local buffers (fi_mr(3), FI_MR_LOCAL) or regions that belong to an endpoint (FI_MR_ENDPOINT): the calls of
// the endpoints of a domain go through tables of ours, which register what is missing. So no case has to know. Knows the public interface
// alone; does nothing where nothing is demanded.
#pragma once

#include <rdma/fi_domain.h>

namespace weft::conformance {

// What of FI_MR_LOCAL and FI_MR_ENDPOINT the provider under test cannot do without; asked once.
int demanded_mr_modes();

// To be called when a domain was opened, before anything is opened in it. Ends with the domain.
void meet_demands(fid_domain* domain, const fi_info* info);

}  // namespace weft::conformance
