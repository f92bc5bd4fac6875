// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_info: allocation, deep copies and release, for every generation of the structure that programs were
// built with. Must not know what the fields mean.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "api/libfabric/abi/generations.hpp"
#include "api/libfabric/text/raw.hpp"

namespace weft::fi {

// A deep copy of one fi_info (`next` is null, `handle` is taken over as it is); with null a zeroed one with
// all parts (fi_allocinfo). Parts that are null stay null; an address or key without a length, or a length
// without bytes, becomes neither. What comes back always has today's size, zero beyond `abi`. Null when
// memory is out. Any thread. What a program of an older generation holds is shorter than ours, so nothing beyond its generation is read; behind the
// parts of a copy are layout::slack zeroed bytes, for programs whose structures are longer than those of the headers here.
fi_info* dup_info(const fi_info* info, Abi abi = layout::compiled) noexcept;

// The same room behind the parts of a list that a plugin of that generation made. False when memory is out; the list is whole then, too.
bool add_slack(fi_info* info, Abi abi) noexcept;

// Releases a whole list. Its memory must come from malloc, as dup_info's and stock libfabric's does.
void free_info(fi_info* info, Abi abi = layout::compiled) noexcept;

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { free_info(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

// Replaces a string or a block of bytes inside an fi_info. False when memory is out; the old value stays
// then.
bool assign_string(char** place, const char* text) noexcept;
bool assign_bytes(void** place, size_t* length, const void* bytes, size_t count) noexcept;

}  // namespace weft::fi
