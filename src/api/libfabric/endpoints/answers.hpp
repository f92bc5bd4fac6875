// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What calls about an endpoint write into the program's memory, whose size it states. Must not know which links exist.
#pragma once

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

namespace weft::fi {

// fi_cm(3), fi_getname and fi_getpeer: as much of an address as there is room for, and its whole length.
inline int copy_address(std::span<const std::byte> address, void* to, size_t* length) noexcept {
  const size_t room = std::exchange(*length, address.size());
  if (to != nullptr) std::memcpy(to, address.data(), std::min(room, address.size()));
  return room < address.size() ? -FI_ETOOSMALL : 0;
}

// fi_endpoint(3), fi_getopt: a number, or nothing but its size.
inline int copy_option(size_t answer, void* to, size_t* length) noexcept {
  const size_t room = std::exchange(*length, sizeof(answer));
  if (room < sizeof(answer)) return -FI_ETOOSMALL;
  std::memcpy(to, &answer, sizeof(answer));
  return 0;
}

}  // namespace weft::fi
