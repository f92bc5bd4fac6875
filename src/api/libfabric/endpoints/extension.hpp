// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the calls of <weft/extensions.h> share: structures that carry their size, and whose endpoint it is. Must not know any of the calls.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstring>

#include "api/libfabric/endpoints/endpoint.hpp"

namespace weft::fi {

// Structures that carry the size that their owner knows. Ours may be shorter or longer: what the other has besides is zero on the way out, and must
// be on the way in. `least`: what version 1 had.
template <class T>
int read_sized(const T* from, T& to, size_t least) noexcept {
  if (from == nullptr || from->size < least) return -FI_EINVAL;
  to = {};
  std::memcpy(&to, from, from->size < sizeof(T) ? from->size : sizeof(T));
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  for (size_t i = sizeof(T); i < from->size; ++i)
    if (bytes[i] != std::byte{0}) return -FI_ENOSYS;  // it asks for something that we do not know
  return 0;
}
template <class T>
bool can_write_sized(const T* to, size_t least) noexcept {
  return to != nullptr && to->size >= least;
}
template <class T>
void write_sized(T& from, T* to) noexcept {
  const size_t size = to->size;
  from.size = size;
  std::memcpy(to, &from, size < sizeof(T) ? size : sizeof(T));
  if (size > sizeof(T)) std::memset(reinterpret_cast<std::byte*>(to) + sizeof(T), 0, size - sizeof(T));
}

// fi_open_ops(3) of an endpoint (extensions.hpp).
template <class E>
int open_extension(::fid* fid, const char* name, uint64_t flags, void** ops, void* context);

// Whether the calls may be used on it.
template <class E>
int check_extension(fid_ep* ep) noexcept {
  if (ep == nullptr || ep->fid.ops == nullptr || ep->fid.ops->ops_open != open_extension<E>)
    return -FI_EINVAL;
  const Port& p = port_of(ep);
  if (p.engine == nullptr) return -FI_EINVAL;
  return p.enabled ? 0 : -FI_EOPBADSTATE;
}

}  // namespace weft::fi
