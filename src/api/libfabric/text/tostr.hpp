// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_tostr(3): libfabric's values, flags and structures as text, in the layout that users know from `fi_info
// -v`. Must not know where the values came from.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::fi {

// Writes the text of `data`, which is of `type`, into `buffer`; cut to `length` bytes, always ended by a zero
// when length is not 0. Null data reads as "(nil)". Bits and values without a name are written as numbers.
// Returns `buffer`. Any thread.
char* to_text(char* buffer, size_t length, const void* data, fi_type type) noexcept;

// The same into a buffer of this thread, overwritten by the next call.
char* to_text(const void* data, fi_type type) noexcept;

// Short forms for sentences: flags joined by '|' and "none" for 0; an enum value; an API version as "1.17".
std::string flags_text(uint64_t flags, fi_type type);
std::string value_text(uint32_t value, fi_type type);
std::string version_text(uint32_t version);
// An address of the given format; bytes in hex when the format has no text form.
std::string address_text(uint32_t addr_format, const void* bytes, size_t length);

}  // namespace weft::fi
