// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Records the functions that a call passes: those of the files that are compiled into the program with -finstrument-functions (cmake/tests.cmake). Of the
// calling thread alone: the library's threads are no part of a walk.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace walk {

constexpr size_t calls_max = size_t{1} << 20;

struct Record {
  void* calls[calls_max];
  size_t count = 0;
};
extern __thread Record* recording;  // of this thread; null: nothing is recorded

// Appends to `into`.
template <class Call>
auto record(Record& into, Call&& call) {
  recording = &into;
  const auto result = call();
  recording = nullptr;
  return result;
}
void print(const char* what, const Record& record);
// Ends the program where `status` is not 0.
void must(const char* what, long status);

}  // namespace walk
