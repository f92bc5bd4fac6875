// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lines of libibverbs.so.1 on standard error. Must not know who has something to say.
#pragma once

namespace weft::verbs {

enum class Level { Error, Warning, Information };

// Printed where WEFT_VERBS_LOG asks for the level: one write(2) a line, so lines of several threads stay whole. Any thread.
__attribute__((format(printf, 2, 3))) void log(Level level, const char* format, ...) noexcept;

}  // namespace weft::verbs
