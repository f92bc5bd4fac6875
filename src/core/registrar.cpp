// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Access rights from those of fi_mr(3). Must not know devices or system calls.
#include "core/registrar.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

namespace weft::core {

AccessRights rights_of(uint64_t access) noexcept {
  AccessRights rights;
  rights.local_read = (access & (FI_SEND | FI_WRITE | FI_COLLECTIVE)) != 0;
  rights.local_write = (access & (FI_RECV | FI_READ | FI_COLLECTIVE)) != 0;
  rights.remote_read = (access & FI_REMOTE_READ) != 0;
  rights.remote_write = (access & FI_REMOTE_WRITE) != 0;
  rights.remote_atomic = rights.remote_read && rights.remote_write;
  return rights;
}

}  // namespace weft::core
