// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Columns and rates.
#include "top_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace weft::tool {

namespace {

using statistics::Kind;
using statistics::Object;
using statistics::Process;
using statistics::Value;

constexpr std::string_view column_format =
    "{:>8} {:<15} {:<15} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>14} {}";

constexpr std::array<std::string_view, 7> state_names = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

// "RC 1a2b3c RTS" says which queue pair.
std::string title_of(const Object& object) {
  if (object.kind == Kind::Path) return "  " + object.name;
  if (object.kind != Kind::QueuePair) return object.name;
  const uint64_t state = object[Value::State];
  return fmt::format("{} {:06x} {}", object.name, object[Value::Number] & 0xffffff,
                     state < state_names.size() ? state_names[state] : "?");
}

std::string depth(const Object& object, Value value) {
  return object.has(value) ? short_number(static_cast<double>(object[value])) : "-";
}

// Send queue, receive queue, completions.
std::string depths(const Object& object) {
  if (!object.has(Value::SendQueue)) return "-";
  return depth(object, Value::SendQueue) + "/" + depth(object, Value::ReceiveQueue) + "/" +
         depth(object, Value::CompletionQueue);
}

// What belongs to an object comes behind it. One whose parent is not there, or has a parent itself, stands where it is.
std::vector<const Object*> in_order(const Process& process) {
  std::vector<const Object*> all;
  std::set<uint32_t> parents;
  for (const Object& object : process.objects)
    if (object.parent == 0) parents.insert(object.id);
  const auto is_top = [&](const Object& object) {
    return object.parent == 0 || !parents.contains(object.parent);
  };
  std::multimap<uint32_t, const Object*> parts;
  for (const Object& object : process.objects)
    if (!is_top(object)) parts.emplace(object.parent, &object);
  for (const Object& object : process.objects) {
    if (!is_top(object)) continue;
    all.push_back(&object);
    const auto [begin, end] = parts.equal_range(object.id);
    for (auto part = begin; part != end; ++part) all.push_back(part->second);
    parts.erase(begin, end);  // ids of a stranger may be there twice
  }
  return all;
}

}  // namespace

std::string short_number(double value) {
  if (value < 0 || !std::isfinite(value)) return "?";
  if (value < 999.5) return fmt::format("{:.0f}", value);
  constexpr std::string_view units = "kMGTPE";
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
  return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[unit]);
}

std::vector<std::string> TopTable::lines(std::span<const Process> processes, uint64_t time_ns, bool totals) {
  const bool are_rates = !totals && before_ns_ != 0 && time_ns > before_ns_;
  const double seconds = are_rates ? static_cast<double>(time_ns - before_ns_) / 1e9 : 1;
  const char* per = are_rates ? "/s" : "";
  std::vector<std::string> all;
  all.push_back(fmt::format(column_format, "PID", "PROGRAM", "OBJECT", fmt::format("OUT{}", per),
                            fmt::format("IN{}", per), fmt::format("B OUT{}", per), fmt::format("B IN{}", per),
                            "AGAIN", "NAK", "ICRC", "LOST", "SEND/RECV/COMP", "WHERE"));
  std::map<Key, Object> now;
  for (const Process& process : processes) {
    for (const Object* each : in_order(process)) {
      const Object& object = *each;
      const Key key{process.pid, process.library, object.id};
      const auto old = before_.find(key);
      const auto number = [&](Value value) -> std::string {
        if (!object.has(value)) return "-";
        const uint64_t from = are_rates && old != before_.end() ? old->second[value] : 0;
        return short_number(static_cast<double>(object[value] - std::min(from, object[value])) / seconds);
      };
      const auto total = [&](std::initializer_list<Value> values) -> std::string {
        bool is_there = false;
        double sum = 0;
        for (const Value value : values) {
          is_there = is_there || object.has(value);
          sum += static_cast<double>(object[value]);
        }
        return is_there ? short_number(sum) : "-";
      };
      std::string where = object.detail;
      if (object.has(Value::NearSent))
        where += fmt::format(" ({} of {} by shm)", total({Value::NearSent}), total({Value::PacketsSent}));
      if (object.has(Value::Peers)) where += fmt::format(" ({} peers)", object[Value::Peers]);
      if (object.has(Value::Unexpected) && object[Value::Unexpected] != 0)
        where +=
            fmt::format(" ({} unexpected)", short_number(static_cast<double>(object[Value::Unexpected])));
      if (object.has(Value::UnreportedErrors) && object[Value::UnreportedErrors] != 0)
        where += fmt::format(" ({} unreported errors)",
                             short_number(static_cast<double>(object[Value::UnreportedErrors])));
      const bool has_messages = object.has(Value::MessagesSent);
      const std::string title = title_of(object);
      all.push_back(fmt::format(column_format, process.pid, process.program, title,
                                number(has_messages ? Value::MessagesSent : Value::PacketsSent),
                                number(has_messages ? Value::MessagesReceived : Value::PacketsReceived),
                                number(Value::BytesSent), number(Value::BytesReceived),
                                total({Value::Retransmissions}),
                                total({Value::NaksSent, Value::NaksReceived}), total({Value::IcrcErrors}),
                                total({Value::Lost}), depths(object), where));
      now.emplace(key, object);
    }
    if (process.unlisted != 0)
      all.push_back(fmt::format("{:>8} {:<15} and {} more that found no place", process.pid, process.program,
                                process.unlisted));
  }
  before_ = std::move(now);
  before_ns_ = time_ns;
  return all;
}

}  // namespace weft::tool
