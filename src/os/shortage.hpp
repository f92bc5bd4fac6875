// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a refused system call lacks, and what helps. Must not know what the call was for.
#pragma once

#include <string>

namespace weft::os {

// Descriptors, memory or mappings: the same call may succeed later. `code` is an errno.
bool is_shortage(int code) noexcept;

// The words of strerror(3), and the limit to raise where there is one: "Too many open files (raise the limit on descriptors, ulimit -n, now 16)".
std::string with_remedy(int code);

}  // namespace weft::os
