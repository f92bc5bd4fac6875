// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which fabrics and domains are open in this process, by provider and name: fi_getinfo refers to them
// (fi_fabric(3) "fabric", fi_domain(3) "domain"). Whoever opens one notes it, whoever closes it forgets it.
// Must not know what is inside them.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// Names are copied. Any thread. When memory is out, the object is simply not found later.
void note_opened(const Provider& provider, const char* name, fid_fabric* fabric) noexcept;
void note_opened(const Provider& provider, const char* name, fid_domain* domain) noexcept;
void forget_opened(const fid* object) noexcept;

// The first opened one of that name, or null.
fid_fabric* first_fabric(const Provider& provider, const char* name) noexcept;
fid_domain* first_domain(const Provider& provider, const char* name) noexcept;

// Whether this object was opened by this provider under this name and is still open. The object itself is not
// touched.
bool is_opened(const Provider& provider, const char* name, const fid_fabric* fabric) noexcept;
bool is_opened(const Provider& provider, const char* name, const fid_domain* domain) noexcept;

}  // namespace weft::fi
