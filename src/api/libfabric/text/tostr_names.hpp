// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of libfabric's flags and enumerations by fi_type, as tables. Must not know how they are laid out in a
// text.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <span>

namespace weft::fi {

struct BitName {
  uint64_t bit;
  const char* name;
};

struct ValueName {
  uint32_t value;
  const char* name;
};

// Names of single bits, ascending; empty when the type is not a set of flags. FI_TYPE_MODE has bits that
// other types use otherwise.
std::span<const BitName> bit_names(fi_type type) noexcept;
// Names of values; empty when the type is not an enumeration.
std::span<const ValueName> value_names(fi_type type) noexcept;
// Names of object classes (fi_fabric(3), FI_TYPE_FID).
std::span<const ValueName> class_names() noexcept;

}  // namespace weft::fi
