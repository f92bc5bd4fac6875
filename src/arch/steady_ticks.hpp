// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the CPU says of its time stamp counter. Must not know the operating system.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft::arch {

// Whether ticks() runs at one rate, whatever the core's frequency and sleep: invariant TSC (Intel SDM volume 3, "Time-Stamp
// Counter"; AMD APM volume 3, CPUID Fn8000_0007). Slow: a virtual machine traps it.
inline bool ticks_are_steady() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#else
  return true;
#endif
}

}  // namespace weft::arch
