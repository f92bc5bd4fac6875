// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether memory of this process is there (madvise(2), MADV_POPULATE_*). Must not know who asks.
#pragma once

#include <cstddef>

namespace weft::os {

// Whether this kernel can tell: 5.14 or newer.
bool can_populate() noexcept;
// Maps all pages of the range, for writing if `write`. 0, or a positive errno: EFAULT where nothing is mapped, or not with that right. Where the kernel
// cannot tell: 0.
int populate(const void* at, size_t length, bool write) noexcept;

}  // namespace weft::os
