// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Address vectors with a name (fi_av(3), "name"): shared by all who open the name in one process, and read by other processes of the same user.
// Must not know which links exist.
#pragma once

#include <memory>

#include "api/libfabric/objects/objects.hpp"
#include "base/result.hpp"
#include "core/address_vector.hpp"

namespace weft::fi {

struct NamedTable {
  std::shared_ptr<core::AddressVector> table;
  void* map_addr = nullptr;  // the fi_addr_t at each index; null: others cannot open it
};

// Opens the name: what this process has under it, or with FI_READ what another process has, or without FI_READ a new one. Errno ENOENT: with
// FI_READ, nobody has it. EACCES: without FI_READ, another process has it. EINVAL: it was made with other rx_ctx_bits.
Result<NamedTable> open_named_table(const Domain& domain, const fi_av_attr& attr);

// A forked child's copy of a table is its own: the parent's readers must not see what it does. Before each change.
void own_after_fork(core::AddressVector& table) noexcept;

}  // namespace weft::fi
