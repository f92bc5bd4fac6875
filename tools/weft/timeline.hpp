// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Makes one timeline of what libweft-trace.so wrote: pairs operations with their completions and prints the Trace
// Event Format, which Perfetto and chrome://tracing open. Must not know libfabric or verbs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "trace/record.hpp"

namespace weft::tool {

// The same moment on both clocks of the recorder.
struct Moment {
  uint64_t ticks = 0;
  uint64_t nanoseconds = 0;
  static Moment now();
};

// Two moments, before and after the program ran: a tick's length.
class TraceTime {
 public:
  TraceTime(Moment before, Moment after) : before_(before), after_(after) {}
  // Nanoseconds since the first moment.
  double nanoseconds(trace::Clock clock, uint64_t time) const;

 private:
  Moment before_, after_;
};

struct TracedThread {
  trace::Header header{};
  std::vector<trace::Record> records;  // in the order of writing
  uint64_t dropped = 0;                // records before these, which the ring did not keep
};

struct TracedProcess {
  std::vector<TracedThread> threads;
  std::string text;  // lines about objects
};

struct TraceSummary {
  uint64_t processes = 0, threads = 0, calls = 0;
  uint64_t operations = 0;  // posted, and a completion was to be expected
  uint64_t completed = 0;   // with their completion
  uint64_t lone = 0;        // completions whose operation is not in the trace
  uint64_t dropped = 0;
  uint64_t refused = 0;  // files that are not what the recorder writes
};

// What a folder has. Files are checked before they are believed.
std::vector<TracedProcess> read_trace(const std::filesystem::path& folder, TraceSummary& summary);

// Writes the whole document.
void write_timeline(std::FILE* out, const std::vector<TracedProcess>& processes, const TraceTime& time,
                    TraceSummary& summary);

}  // namespace weft::tool
