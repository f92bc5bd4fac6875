// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lines of librdmacm.so.1 on standard error, as WEFT_VERBS_LOG says, and refusals: an errno and why. Must not know who has something to say.
#pragma once

#include <cstdint>

namespace weft::rdmacm {

enum class Level : uint8_t { Error, Warning, Information };

// One write(2) a line. Any thread.
__attribute__((format(printf, 2, 3))) void log(Level level, const char* format, ...) noexcept;

// A call fails: sets errno, tells why on level Information, returns -1.
__attribute__((format(printf, 2, 3))) int refuse(int code, const char* format, ...) noexcept;

}  // namespace weft::rdmacm
