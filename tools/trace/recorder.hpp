// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ring of this thread, the file of text of this process, and what the calls of a program would have reached
// without us. Knows neither libfabric nor verbs; nothing here throws or keeps a call from going on.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "trace/record.hpp"

namespace weft::trace {

struct Ring {
  Record* records = nullptr;  // null before the first record, and when there is no file
  uint64_t mask = 0;
  uint64_t next = 0;
  Header* header = nullptr;
};

// One writer: the thread. The library is in the process from its start, so the fastest model of access is allowed.
extern thread_local Ring ring __attribute__((tls_model("initial-exec")));
extern const Clock clock_kind;

inline uint64_t now() noexcept {
#if defined(__x86_64__)
  if (clock_kind == Clock::ticks) return __rdtsc();
#endif
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Whether there is a ring now. Makes it with the first record of a thread.
bool open_ring() noexcept;

inline void put(const Record& record) noexcept {
  if (!ring.records && !open_ring()) [[unlikely]]
    return;
  ring.records[ring.next & ring.mask] = record;
  ++ring.next;
  // Pairs with the reader's load: what is counted is there. The reader looks when the process is gone, as a rule.
  std::atomic_ref<uint64_t>(ring.header->written).store(ring.next, std::memory_order_release);
}

// An empty poll: one record for consecutive ones, so that polling does not push out what happened.
inline void put_idle(uint16_t call, uint32_t object, uint64_t begin, uint64_t end) noexcept {
  if (ring.records && ring.next > 0) {
    Record& last = ring.records[(ring.next - 1) & ring.mask];
    if (last.type == Type::idle) {
      // The outer one of two calls ends after the inner one and began before.
      if (begin < last.begin) last.begin = begin;
      last.end = end;
      ++last.result;
      return;
    }
  }
  put({.begin = begin,
       .end = end,
       .context = 0,
       .bytes = 0,
       .flags = 0,
       .result = 1,
       .object = object,
       .queue_pair = 0,
       .type = Type::idle,
       .call = call,
       .fault = 0});
}

inline Record begin_call(uint16_t call, uint32_t object) noexcept {
  return {.begin = now(),
          .end = 0,
          .context = 0,
          .bytes = 0,
          .flags = 0,
          .result = 0,
          .object = object,
          .queue_pair = 0,
          .type = Type::call,
          .call = call,
          .fault = 0};
}

inline void end_call(Record& record, int64_t result) noexcept {
  record.end = now();
  record.result = result;
  put(record);
}

// The number of a new object, and a line about it.
uint32_t new_object() noexcept;
void say(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

// The function that the program would have called: in the libraries after this one, or in one that was loaded later
// under `library`.
void* next_symbol(const char* name, const char* version, const char* library) noexcept;

}  // namespace weft::trace
