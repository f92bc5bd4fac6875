// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that a device only reads is pinned for reading. A page that the process has not written to yet may then be the
// kernel's page of zeros, a page of a file, or one shared after fork(2). The first store afterwards gives the process
// another page, and the device goes on reading the old one (Linux before 6.2). Must not know devices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::os::vfio {

// Gives the process pages of its own wherever it may write between `begin` and `begin + bytes`, which are page-aligned.
// Contents stay. Pages that it may not write to, or that cannot be had, stay as they are: mapping them for DMA says
// what is wrong. Linux 5.14; before, nothing happens.
void make_private_pages(uintptr_t begin, size_t bytes) noexcept;

}  // namespace weft::os::vfio
