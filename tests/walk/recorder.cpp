// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What -finstrument-functions calls. Not compiled with it.
#include "recorder.hpp"

namespace walk {

__thread Record* recording = nullptr;

void must(const char* what, long status) {
  if (status == 0) return;
  std::fprintf(stderr, "trace: %s: %ld\n", what, status);
  std::exit(1);
}

void print(const char* what, const Record& record) {
  must("too many calls", record.count == calls_max ? -1 : 0);
  for (size_t i = 0; i < record.count; ++i) std::printf("%s %p\n", what, record.calls[i]);
}

}  // namespace walk

extern "C" {
void __cyg_profile_func_enter(void* function, void*) {  // NOLINT
  walk::Record* const into = walk::recording;
  if (into != nullptr && into->count < walk::calls_max) into->calls[into->count++] = function;
}
void __cyg_profile_func_exit(void*, void*) {}  // NOLINT
}
