// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reading, pairing, printing. Operations are paired with completions by queue, context and direction, the oldest
// first; verbs by queue pair and wr_id.
#include "timeline.hpp"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <weft/verbs_faults.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace fs = std::filesystem;

namespace weft::tool {

using trace::Record;
using trace::Side;
using trace::Type;

namespace {

constexpr uintmax_t text_most = uintmax_t{16} << 20U;

// --- reading ---

bool is_possible(const trace::Header& header, uintmax_t size) {
  return header.magic == trace::magic && header.record_size == sizeof(Record) && header.capacity > 0 &&
         header.capacity <= trace::records_most && (header.capacity & (header.capacity - 1)) == 0 &&
         (header.clock == trace::Clock::ticks || header.clock == trace::Clock::nanoseconds) &&
         size == trace::header_size + header.capacity * sizeof(Record);
}

bool is_possible(const Record& record) {
  return record.type <= Type::idle && record.call < std::size(trace::calls) && record.end >= record.begin;
}

bool read_ring(const fs::path& path, TracedThread& thread, TraceSummary& summary) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  trace::Header& header = thread.header;
  if (error || !file.read(reinterpret_cast<char*>(&header), sizeof header) || !is_possible(header, size))
    return false;
  header.program[trace::name_size - 1] = '\0';
  header.thread[trace::name_size - 1] = '\0';
  std::vector<Record> ring(header.capacity);
  file.seekg(trace::header_size);
  if (!file.read(reinterpret_cast<char*>(ring.data()),
                 static_cast<std::streamsize>(ring.size() * sizeof(Record))))
    return false;
  const uint64_t kept = std::min(header.written, header.capacity);
  thread.dropped = header.written - kept;
  for (uint64_t i = header.written - kept; i < header.written; ++i) {
    const Record& record = ring[i & (header.capacity - 1)];
    if (record.type == Type::none) continue;
    if (is_possible(record)) {
      thread.records.push_back(record);
    } else {
      ++summary.refused;
    }
  }
  return true;
}

std::string read_text(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) > text_most || error) return {};
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// --- printing ---

// Printable ASCII without what JSON escapes.
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text) result += c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
  return result;
}

// One JSON array of events, a line each.
class Events {
 public:
  explicit Events(std::FILE* out) : out_(out) {
    fmt::print(out_, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  }
  void add(const std::string& event) {
    fmt::print(out_, "{}{}", is_first_ ? "" : ",\n", event);
    is_first_ = false;
  }
  void end(const TraceSummary& s) {
    fmt::print(
        out_,
        "\n],\"otherData\":{{\"writer\":\"weft trace\",\"calls\":{},\"operations\":{},\"completed\":{},"
        "\"completionsWithoutOperation\":{},\"recordsDropped\":{}}}}}\n",
        s.calls, s.operations, s.completed, s.lone, s.dropped);
  }

 private:
  std::FILE* out_;
  bool is_first_ = true;
};

// --- pairing ---

struct Queues {
  uint32_t transmit = 0, receive = 0;
  bool selective_transmit = false, selective_receive = false;
  bool default_transmit = false, default_receive = false;
};

// What the lines of text say.
struct Objects {
  std::unordered_map<uint32_t, std::string> names;
  std::unordered_map<uint32_t, bool> is_completion_queue;
  std::unordered_map<uint32_t, Queues> endpoints;
  std::map<std::pair<uint32_t, uint32_t>, bool> pairs;  // (device, number): all of its requests complete

  explicit Objects(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) take(line);
  }

  std::string name(uint32_t id) const {
    if (id == 0) return {};
    const auto found = names.find(id);
    return found == names.end() ? fmt::format("object {}", id) : fmt::format("{} {}", found->second, id);
  }

 private:
  void take(const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    uint32_t id = 0;
    words >> kind >> id;
    if (!words) return;
    if (kind == "object") {
      std::string rest;
      std::getline(words >> std::ws, rest);
      names[id] = plain(rest);
      is_completion_queue[id] = rest == "completion queue";
    } else if (kind == "bind") {
      uint32_t queue = 0;
      bool transmit = false;
      bool receive = false;
      bool selective = false;
      if (!(words >> queue >> transmit >> receive >> selective) || !is_completion_queue[queue]) return;
      Queues& queues = endpoints[id];
      if (transmit) queues.transmit = queue;
      if (transmit) queues.selective_transmit = selective;
      if (receive) queues.receive = queue;
      if (receive) queues.selective_receive = selective;
    } else if (kind == "operations") {
      Queues& queues = endpoints[id];
      words >> queues.default_transmit >> queues.default_receive;
    } else if (kind == "pair") {
      uint32_t number = 0;
      bool all = false;
      if (words >> number >> all) pairs[{id, number}] = all;
    }
  }
};

constexpr bool is_of_verbs(const Record& record) {
  return trace::calls[record.call].name.substr(0, 3) != "fi_";
}

struct Operation {
  const Record* record = nullptr;
  const TracedThread* thread = nullptr;
  Side side = Side::none;
  const Record* completion = nullptr;
  const TracedThread* completer = nullptr;
};

using Key =
    std::tuple<uint32_t, uint32_t, uint64_t, Side>;  // queue or device, queue pair, context, direction

class Pairing {
 public:
  explicit Pairing(const Objects& objects) : objects_(objects) {}

  void add(Operation& operation) {
    const Record& record = *operation.record;
    if (is_of_verbs(record)) {
      waiting_[Key{record.object, record.queue_pair, record.context, operation.side}].push_back(&operation);
      return;
    }
    const auto found = objects_.endpoints.find(record.object);
    uint32_t queue = 0;
    if (found != objects_.endpoints.end())
      queue = operation.side == Side::transmit ? found->second.transmit : found->second.receive;
    waiting_[Key{queue, 0, record.context, operation.side}].push_back(&operation);
  }

  // Whether a completion of it is to be expected.
  bool completes(const Operation& operation) const {
    const Record& record = *operation.record;
    if (record.flags & trace::flag_silent) return false;
    if (record.flags & trace::flag_completion) return true;
    if (is_of_verbs(record)) {
      const auto found = objects_.pairs.find({record.object, record.queue_pair});
      return found != objects_.pairs.end() && found->second;
    }
    const auto found = objects_.endpoints.find(record.object);
    if (found == objects_.endpoints.end()) return true;
    const Queues& queues = found->second;
    return operation.side == Side::transmit ? !queues.selective_transmit || queues.default_transmit
                                            : !queues.selective_receive || queues.default_receive;
  }

  // Ends the oldest operation that the completion can be of. False when there is none.
  bool end(const Record& completion, const TracedThread& thread) {
    std::deque<Operation*>* best = nullptr;
    const bool any = (completion.flags & (trace::flag_transmit | trace::flag_receive)) == 0;
    for (const Side side : {Side::transmit, Side::receive}) {
      const uint64_t flag = side == Side::transmit ? trace::flag_transmit : trace::flag_receive;
      if (!any && !(completion.flags & flag)) continue;
      // Receives of a shared receive queue are of no queue pair, those of a shared context of no queue that is known.
      for (const bool is_shared : {false, true}) {
        const bool verbs = is_of_verbs(completion);
        const Key key{verbs || !is_shared ? completion.object : 0, is_shared ? 0 : completion.queue_pair,
                      completion.context, side};
        const auto found = waiting_.find(key);
        if (found == waiting_.end() || found->second.empty()) continue;
        if (!best || found->second.front()->record->begin < best->front()->record->begin)
          best = &found->second;
      }
    }
    if (!best) return false;
    Operation& operation = *best->front();
    const bool more =
        (operation.record->flags & trace::flag_multi) && !(completion.flags & trace::flag_multi);
    if (more) return true;  // a buffer for several messages, and not its last one
    operation.completion = &completion;
    operation.completer = &thread;
    best->pop_front();
    return true;
  }

 private:
  const Objects& objects_;
  std::map<Key, std::deque<Operation*>> waiting_;
};

// --- one process ---

class Printer {
 public:
  Printer(Events& events, const TraceTime& time, const TracedProcess& process, TraceSummary& summary)
      : events_(events), time_(time), process_(process), objects_(process.text), summary_(summary) {}

  void print() {
    print_names();
    for (const TracedThread& thread : process_.threads) print_calls(thread);
    pair();
    print_operations();
  }

 private:
  static std::string place(const TracedThread& thread) {
    return fmt::format("\"pid\":{},\"tid\":{}", thread.header.pid, thread.header.tid);
  }
  std::string stamp(const TracedThread& thread, uint64_t time) const {
    return fmt::format("{:.3f}", time_.nanoseconds(thread.header.clock, time) / 1000);
  }
  std::string length(const TracedThread& thread, const Record& record, uint64_t end) const {
    const double ns =
        time_.nanoseconds(thread.header.clock, end) - time_.nanoseconds(thread.header.clock, record.begin);
    return fmt::format("{:.3f}", std::max(ns, 0.0) / 1000);
  }
  static const char* category(const Record& record) { return is_of_verbs(record) ? "verbs" : "libfabric"; }

  void print_names() {
    ++summary_.processes;
    for (const TracedThread& thread : process_.threads) {
      ++summary_.threads;
      summary_.dropped += thread.dropped;
      events_.add(fmt::format(R"({{"ph":"M","name":"process_name",{},"args":{{"name":"{}"}}}})",
                              place(thread), plain(thread.header.program)));
      events_.add(fmt::format(R"({{"ph":"M","name":"thread_name",{},"args":{{"name":"{}"}}}})", place(thread),
                              plain(thread.header.thread)));
      if (thread.dropped > 0 && !thread.records.empty()) {
        instant(thread, thread.records.front(), fmt::format("{} older records dropped", thread.dropped),
                "trace");
      }
    }
  }

  void instant(const TracedThread& thread, const Record& record, const std::string& name, const char* kind) {
    events_.add(fmt::format(R"({{"ph":"i","s":"t","name":"{}","cat":"{}",{},"ts":{},"args":{{{}}}}})", name,
                            kind, place(thread), stamp(thread, record.begin), arguments(record)));
  }

  std::string arguments(const Record& record) const {
    std::string text = fmt::format("\"result\":{}", record.result);
    if (const std::string name = objects_.name(record.object); !name.empty())
      text += fmt::format(",\"object\":\"{}\"", name);
    if (record.queue_pair != 0) text += fmt::format(",\"queuePair\":{}", record.queue_pair);
    if (record.bytes != 0) text += fmt::format(",\"bytes\":{}", record.bytes);
    if (record.fault != 0) {
      text += fmt::format(",\"vendorError\":\"{:#x}\"", record.fault);
      if (const char* const why = weft_verbs_fault_text(record.fault); why != nullptr)
        text += fmt::format(",\"why\":\"{}\"", why);
    }
    if (record.context != 0) text += fmt::format(",\"context\":\"{:#x}\"", record.context);
    return text;
  }

  // Slices of one thread have to lie within each other. A row of empty polls that went on within another call ends,
  // for the eye, where that call begins.
  static uint64_t end_of_idle(const std::vector<Record>& records, size_t at) {
    constexpr size_t far = 16;
    const Record& idle = records[at];
    uint64_t end = idle.end;
    for (size_t i = at + 1; i < std::min(records.size(), at + far); ++i) {
      const Record& later = records[i];
      const bool is_slice =
          later.type == Type::call || later.type == Type::started || later.type == Type::idle;
      if (is_slice && later.begin > idle.begin) end = std::min(end, later.begin);
    }
    return end;
  }

  void print_calls(const TracedThread& thread) {
    const std::vector<Record>& records = thread.records;
    for (size_t i = 0; i < records.size(); ++i) {
      const Record& record = records[i];
      if (record.type == Type::idle) {
        summary_.calls += static_cast<uint64_t>(std::max<int64_t>(record.result, 0));
        events_.add(fmt::format(
            R"({{"ph":"X","name":"empty polls","cat":"{}",{},"ts":{},"dur":{},"args":{{"calls":{},"first":"{}","object":"{}"}}}})",
            category(record), place(thread), stamp(thread, record.begin),
            length(thread, record, end_of_idle(records, i)), record.result, trace::calls[record.call].name,
            objects_.name(record.object)));
      } else if (record.type == Type::call || record.type == Type::started) {
        ++summary_.calls;
        events_.add(fmt::format(R"({{"ph":"X","name":"{}","cat":"{}",{},"ts":{},"dur":{},"args":{{{}}}}})",
                                trace::calls[record.call].name, category(record), place(thread),
                                stamp(thread, record.begin), length(thread, record, record.end),
                                arguments(record)));
      }
    }
  }

  void pair() {
    // Of all threads, in the order of time; what is posted comes before what completes at the same tick.
    struct Step {
      uint64_t time;
      bool is_completion;
      const Record* record;
      const TracedThread* thread;
    };
    std::vector<Step> steps;
    for (const TracedThread& thread : process_.threads) {
      for (const Record& record : thread.records) {
        const bool posted =
            record.type == Type::operation || (record.type == Type::started && record.result == 0);
        if (posted || record.type == Type::completion)
          steps.push_back({record.begin, record.type == Type::completion, &record, &thread});
      }
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
      return std::pair(a.time, a.is_completion) < std::pair(b.time, b.is_completion);
    });
    Pairing pairing(objects_);
    for (const Step& step : steps) {
      if (!step.is_completion) {
        Operation& operation = operations_.emplace_back();
        operation = {.record = step.record,
                     .thread = step.thread,
                     .side = trace::calls[step.record->call].side,
                     .completion = nullptr,
                     .completer = nullptr};
        if (!pairing.completes(operation)) {
          operations_.pop_back();
          continue;
        }
        ++summary_.operations;
        pairing.add(operation);
      } else if (!pairing.end(*step.record, *step.thread)) {
        ++summary_.lone;
        instant(*step.thread, *step.record, "completion without operation", "completion");
      }
    }
  }

  void print_operations() {
    uint64_t number = 0;
    for (const Operation& operation : operations_) {
      const std::string_view name = trace::calls[operation.record->call].name;
      if (!operation.completion) {
        instant(*operation.thread, *operation.record, fmt::format("{}, not completed", name), "operation");
        continue;
      }
      ++summary_.completed;
      const std::string id = fmt::format("{}.{}", operation.thread->header.pid, ++number);
      events_.add(
          fmt::format(R"({{"ph":"b","name":"{}","cat":"operation","id":"{}",{},"ts":{},"args":{{{}}}}})",
                      name, id, place(*operation.thread), stamp(*operation.thread, operation.record->begin),
                      arguments(*operation.record)));
      events_.add(fmt::format(
          R"({{"ph":"e","name":"{}","cat":"operation","id":"{}",{},"ts":{},"args":{{{}}}}})", name, id,
          place(*operation.completer), stamp(*operation.completer, operation.completion->begin),
          arguments(*operation.completion)));
    }
  }

  Events& events_;
  const TraceTime& time_;
  const TracedProcess& process_;
  Objects objects_;
  TraceSummary& summary_;
  std::deque<Operation> operations_;  // stays in place
};

}  // namespace

Moment Moment::now() {
  Moment moment;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
#if defined(__x86_64__)
  moment.ticks = __rdtsc();
#endif
  moment.nanoseconds =
      static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  return moment;
}

double TraceTime::nanoseconds(trace::Clock clock, uint64_t time) const {
  if (clock == trace::Clock::nanoseconds)
    return static_cast<double>(time) - static_cast<double>(before_.nanoseconds);
  const auto since = static_cast<double>(static_cast<int64_t>(time - before_.ticks));
  const auto ticks = static_cast<double>(after_.ticks - before_.ticks);
  return ticks > 0 ? since * static_cast<double>(after_.nanoseconds - before_.nanoseconds) / ticks : 0;
}

std::vector<TracedProcess> read_trace(const fs::path& folder, TraceSummary& summary) {
  std::map<std::string, TracedProcess> processes;  // by PID-IMAGE
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const size_t dash = name.find('-');
    const size_t end = dash == std::string::npos ? dash : name.find('-', dash + 1);
    if (end == std::string::npos || !entry.is_regular_file(error)) {
      ++summary.refused;
      continue;
    }
    TracedProcess& process = processes[name.substr(0, end)];
    if (entry.path().extension() == ".text") {
      process.text += read_text(entry.path());
    } else if (TracedThread thread; read_ring(entry.path(), thread, summary)) {
      process.threads.push_back(std::move(thread));
    } else {
      ++summary.refused;
    }
  }
  std::vector<TracedProcess> result;
  for (auto& [key, process] : processes) {
    if (!process.threads.empty()) result.push_back(std::move(process));
  }
  return result;
}

void write_timeline(std::FILE* out, const std::vector<TracedProcess>& processes, const TraceTime& time,
                    TraceSummary& summary) {
  Events events(out);
  for (const TracedProcess& process : processes) Printer(events, time, process, summary).print();
  events.end(summary);
}

}  // namespace weft::tool
