// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What depends on the CPU: spin pause, time stamp counter, prefetch, order of memory that a device shares, copies of a few bytes. Must not know the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Weft needs a little-endian processor: prefixes of frames travel as they lie in memory"
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
#error "Weft is built for x86-64 and aarch64: src/arch/ has no counter and no DMA barriers for this processor"
#endif

namespace weft::arch {

inline constexpr size_t cache_line_bytes = 64;

// Tells the core that this is a spin loop. On Arm "yield" does nothing where a core has one thread; "isb" waits for the pipeline, about as long as
// pause does on x86.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();  // <immintrin.h> is most of what a file with this one would compile
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// A counter that runs at a constant rate and is the same on all cores of a machine (x86 invariant TSC, Arm CNTVCT).
inline uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
}

// Asks for a cache line that will be written soon, and for one that will be read soon. Never faults. prefetchw is not part of x86-64-v1:
// every AMD64 processor has it; Intel's from Core 2 on that do not report it execute it as no operation (64-bit Windows 8.1 needs it and runs there).
[[gnu::always_inline]] inline void prefetch_for_write(const void* at) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1, 3);
#endif
}
[[gnu::always_inline]] inline void prefetch_for_read(const void* at) noexcept {
  __builtin_prefetch(at, 0, 3);
}

// Memory that a device reads and writes (DMA) against its registers (MMIO). On x86 ordinary memory and uncached registers keep
// the order of the program (Intel SDM volume 3, section 8.2), so only the compiler has to be told.
//
// Before the register write, or the store of the index, by which a device gets a buffer: orders the writes into that buffer, and the reads of one
// that the device gets again. "oshst" would leave the reads unordered.
[[gnu::always_inline]] inline void dma_release() noexcept {
#if defined(__aarch64__)
  asm volatile("dmb osh" : : : "memory");
#else
  asm volatile("" : : : "memory");
#endif
}
// Between the word by which the device says that it is done, and what it says is there.
[[gnu::always_inline]] inline void dma_acquire() noexcept {
#if defined(__aarch64__)
  asm volatile("dmb oshld" : : : "memory");
#else
  asm volatile("" : : : "memory");
#endif
}
// Between a store that the device reads and a load of what the device stores meanwhile: "do not wake me" against "is there
// anything".
[[gnu::always_inline]] inline void dma_fence() noexcept {
#if defined(__x86_64__)
  asm volatile("mfence" : : : "memory");
#elif defined(__aarch64__)
  asm volatile("dmb osh" : : : "memory");
#endif
}

// Copies at most 64 bytes by overlapping moves: no call, at most two branches deep for the usual 8 bytes. The moves are memcpy of constant sizes,
// which compilers turn into one or two loads of 8 and 16 bytes on both processors.
[[gnu::always_inline]] inline void copy_small(void* to, const void* from, size_t bytes) noexcept {
  auto* t = static_cast<std::byte*>(to);
  const auto* f = static_cast<const std::byte*>(from);
  if (bytes >= 8 && bytes <= 16) {
    uint64_t head;
    uint64_t tail;
    std::memcpy(&head, f, 8);
    std::memcpy(&tail, f + bytes - 8, 8);
    std::memcpy(t, &head, 8);
    std::memcpy(t + bytes - 8, &tail, 8);
  } else if (bytes > 32) {
    std::byte head[32];
    std::byte tail[32];
    std::memcpy(head, f, 32);
    std::memcpy(tail, f + bytes - 32, 32);
    std::memcpy(t, head, 32);
    std::memcpy(t + bytes - 32, tail, 32);
  } else if (bytes > 16) {
    std::byte head[16];
    std::byte tail[16];
    std::memcpy(head, f, 16);
    std::memcpy(tail, f + bytes - 16, 16);
    std::memcpy(t, head, 16);
    std::memcpy(t + bytes - 16, tail, 16);
  } else if (bytes >= 4) {
    uint32_t head;
    uint32_t tail;
    std::memcpy(&head, f, 4);
    std::memcpy(&tail, f + bytes - 4, 4);
    std::memcpy(t, &head, 4);
    std::memcpy(t + bytes - 4, &tail, 4);
  } else if (bytes > 0) {
    t[0] = f[0];
    t[bytes >> 1] = f[bytes >> 1];
    t[bytes - 1] = f[bytes - 1];
  }
}

}  // namespace weft::arch
