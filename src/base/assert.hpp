// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// WEFT_ASSERT(condition): an invariant of our own code. Where WEFT_ASSERTIONS is defined (the presets dev, asan, tsan and fuzz, and the tests that
// compile engines of their own), a condition that is false ends the process by abort(3), with one line on standard error that names it. Elsewhere
// the condition is compiled but not evaluated, so it costs nothing and must have no effect. What a peer, a program or a device can cause is
// checked by ordinary code that returns an error, in every build.
// Depends on nothing of this project.
#pragma once

#ifdef WEFT_ASSERTIONS
#include <cstdio>
#include <cstdlib>

namespace weft::detail {
[[noreturn, gnu::cold, gnu::noinline]] inline void assertion_failed(const char* condition, const char* file,
                                                                    int line, const char* function) noexcept {
  std::fprintf(stderr, "weft: assertion failed: %s (%s:%d, %s)\n", condition, file, line, function);
  std::abort();
}
}  // namespace weft::detail

#define WEFT_ASSERT(...)                \
  ((__VA_ARGS__) ? static_cast<void>(0) \
                 : ::weft::detail::assertion_failed(#__VA_ARGS__, __FILE__, __LINE__, __func__))
#else
#define WEFT_ASSERT(...) static_cast<void>(sizeof(static_cast<bool>(__VA_ARGS__)))
#endif
