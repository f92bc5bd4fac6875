// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft trace`: a folder for the files of the recorder, the program as a child, and the timeline when it has ended.
// Must not know libfabric or verbs.
#include "trace.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "failure.hpp"
#include "install_tree.hpp"
#include "run.hpp"
#include "temporary.hpp"
#include "timeline.hpp"
#include "trace/record.hpp"

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

struct Options {
  std::string output = "weft-trace.json";
  uint64_t records = trace::records_default;
  LoadMode mode = LoadMode::drop_in;
};

// Raised for a command line that makes no sense, as `weft run` does.
[[noreturn]] void refuse(const std::string& why) {
  throw Failure(why + " (weft trace --help)", status_refused);
}

uint64_t number_of_records(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 64 || value > trace::records_most)
    refuse(fmt::format("--records takes a number from 64 to {}, not '{}'", trace::records_most, text));
  return value;
}

// Takes the options off the front of `args`; nothing when the help was asked for.
bool parse(std::span<char*>& args, Options& options) {
  size_t i = 0;
  const auto value = [&](std::string_view option) -> std::string_view {
    if (i + 1 >= args.size()) refuse(fmt::format("{} takes a value", option));
    return args[++i];
  };
  for (; i < args.size() && args[i][0] == '-'; ++i) {
    const std::string_view option = args[i];
    if (option == "--") {
      ++i;
      break;
    }
    if (option == "-h" || option == "--help") return false;
    if (option == "-o" || option == "--output") {
      options.output = value(option);
    } else if (option == "--records") {
      options.records = number_of_records(value(option));
    } else if (option == "--stock") {
      options.mode = LoadMode::as_it_is;
    } else {
      refuse(fmt::format("unknown option {}; options of the program follow its name", option));
    }
  }
  args = args.subspan(i);
  if (args.empty()) refuse("no program given");
  return true;
}

// Memory rather than a disk, where there is one that takes files.
fs::path folder_for_rings() {
  const char* shared = "/dev/shm";
  return access(shared, W_OK | X_OK) == 0 ? fs::path(shared) : fs::temp_directory_path();
}

[[noreturn]] void become_program(std::span<char*> args, const Options& options, const fs::path& folder) {
  const char* old = std::getenv("LD_PRELOAD");
  const std::string library = trace_library().string();
  setenv("LD_PRELOAD", old && *old ? (library + ":" + old).c_str() : library.c_str(), 1);
  setenv(trace::folder_variable, folder.c_str(), 1);
  setenv(trace::records_variable, std::to_string(options.records).c_str(), 1);
  const int status = start_program("weft trace", args, options.mode);
  std::fflush(nullptr);
  _exit(status);
}

volatile sig_atomic_t child_to_end = 0;

// What asks us to end is for the program; we write what there is when it has ended.
void pass_on(int signal) {
  if (child_to_end > 0) kill(child_to_end, signal);
}

int wait_for(pid_t child) {
  struct sigaction action {};
  child_to_end = child;
  action.sa_handler = pass_on;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  // The terminal sends these to both.
  action.sa_handler = SIG_IGN;
  for (const int signal : {SIGINT, SIGQUIT}) sigaction(signal, &action, nullptr);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("waiting for the program: {}", std::strerror(errno));
  }
  child_to_end = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Opened before the program runs, so that its time is not lost to a name that cannot be written.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_output(const std::string& name) {
  File file(std::fopen(name.c_str(), "we"), std::fclose);
  if (!file) throw Failure(fmt::format("{}: {}", name, std::strerror(errno)), status_refused);
  return file;
}

void report(const Options& options, const TraceSummary& s) {
  fmt::print(stderr, "weft trace: {}: {} calls of {} threads in {} processes; {} of {} operations completed",
             options.output, s.calls, s.threads, s.processes, s.completed, s.operations);
  if (s.lone > 0) fmt::print(stderr, "; {} completions without their operation", s.lone);
  if (s.dropped > 0) fmt::print(stderr, "; the oldest {} records dropped (--records)", s.dropped);
  if (s.refused > 0) fmt::print(stderr, "; {} files or records that are not the recorder's", s.refused);
  if (s.processes == 0)
    fmt::print(stderr, "; the program called neither libfabric nor libibverbs, or is linked directly");
  fmt::print(stderr, "\n");
}

}  // namespace

std::string trace_help() {
  return R"(NAME
  weft trace - a timeline of the libfabric and verbs calls of a program

SYNOPSIS
  weft trace [-o FILE] [--records N] [--stock] [--] PROGRAM [ARGUMENT]...

DESCRIPTION
  Runs PROGRAM on Weft, as weft run does, with a library before libfabric and libibverbs that records each call,
  its time, its result, and each completion that is read. When PROGRAM has ended it writes them to FILE in the
  Trace Event Format (JSON), which https://ui.perfetto.dev and chrome://tracing open: a row of calls for each
  thread, and a bar for each operation from its posting to its completion. Calls in a row that had nothing to give
  (-FI_EAGAIN, no completion) are one slice, "empty polls". What PROGRAM starts is recorded, too.

  A thread keeps its newest N records, 64 bytes each; older ones are dropped, which FILE and the last line say.
  A process that is killed loses nothing. PROGRAM's output is its own; one line about FILE goes to standard error.
  Programs that are linked directly (weft_direct(7)) call no library, so nothing is recorded.

OPTIONS
  -o, --output FILE  Where the timeline goes (weft-trace.json; an existing file is replaced).
  --records N        Records that each thread keeps, rounded up to a power of two (65536: 4 MiB).
  --stock            Leave PROGRAM on the libraries that it finds by itself.
  -h, --help         This text.
  --                 Ends the options; what follows is PROGRAM, whatever it looks like.

EXIT STATUS
  That of PROGRAM, 128 + N if signal N ended it; 125 if Weft refuses, 126 if PROGRAM cannot be executed, 127 if it
  is not found; 1 if FILE could not be written.

EXAMPLES
  weft trace -o server.json -- fi_pingpong -p tcp -e rdm
  weft trace -o bandwidth.json --records 1000000 -- ib_write_bw
  weft trace -o mpi.json -- mpirun -np 2 --mca pml cm --mca mtl ofi NPopenmpi
)";
}

int trace_program(std::span<char*> args) {
  Options options;
  if (!parse(args, options)) {
    fmt::print("{}", trace_help());
    return exit_ok;
  }
  if (!fs::exists(trace_library()))
    throw Failure(fmt::format("the recorder is not installed: {} is missing", trace_library().string()),
                  status_refused);
  const File output = open_output(options.output);
  const TemporaryFolder folder("weft-trace", folder_for_rings());
  const Moment before = Moment::now();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw Failure(fmt::format("fork: {}", std::strerror(errno)), status_refused);
  if (child == 0) become_program(args, options, folder.path());
  const int status = wait_for(child);
  const TraceTime time(before, Moment::now());
  TraceSummary summary;
  const std::vector<TracedProcess> processes = read_trace(folder.path(), summary);
  write_timeline(output.get(), processes, time, summary);
  if (std::fflush(output.get()) != 0 || std::ferror(output.get()) != 0)
    fail("{}: {}", options.output, std::strerror(errno));
  report(options, summary);
  return status;
}

}  // namespace weft::tool
