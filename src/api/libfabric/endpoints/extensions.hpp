// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_open_ops(3) of an endpoint: the tables of <weft/extensions.h> that its link has. Must not know which link it is.
#pragma once

#include <cstring>

#include "api/libfabric/endpoints/in_place.hpp"
#include "api/libfabric/endpoints/packet_statistics.hpp"

namespace weft::fi {

template <class E>
int open_extension(::fid* fid, const char* name, uint64_t flags, void** ops, void*) {
  if constexpr (InPlaceEngine<E> || CountsPackets<E>) {
    if (name == nullptr || ops == nullptr) return -FI_EINVAL;
    if (port_of(fid).engine == nullptr) return -FI_ENOSYS;
    void* found = nullptr;
    if constexpr (InPlaceEngine<E>)
      if (std::strcmp(name, WEFT_SHM_OPS) == 0) found = &InPlaceOps<E>::table;
    if constexpr (CountsPackets<E>)
      if (std::strcmp(name, WEFT_RELIABLE_OPS) == 0) found = &ReliableOps<E>::table;
    if (found == nullptr) return -FI_ENOSYS;
    if (flags != 0) return -FI_EBADFLAGS;
    *ops = found;
    return 0;
  } else {
    return -FI_ENOSYS;
  }
}

}  // namespace weft::fi
