// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What processes show in their statistics pages, as text: JSON, and the text format of Prometheus (version 0.0.4).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <weft/statistics.hpp>

namespace weft::statistics {

// All texts of a Process are printable ASCII.
inline std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out + '"';
}

inline std::string_view name_of(Kind kind) noexcept { return kind_names[static_cast<size_t>(kind)]; }

inline std::string to_json(std::span<const Process> processes, uint64_t time_ns) {
  std::string out = "{\"version\": 1, \"time_ns\": " + std::to_string(time_ns) + ", \"processes\": [";
  const auto field = [&](const char* name, uint64_t value) {
    out.append(", \"").append(name).append("\": ").append(std::to_string(value));
  };
  const char* before_process = "\n";
  for (const Process& process : processes) {
    out.append(before_process).append("  {\"pid\": ").append(std::to_string(process.pid));
    before_process = ",\n";
    out.append(", \"program\": ").append(in_quotes(process.program));
    out.append(", \"library\": ").append(in_quotes(process.library));
    field("opened_ns", process.opened_ns);
    field("unlisted", process.unlisted);
    out.append(", \"objects\": [");
    const char* before_object = "\n";
    for (const Object& object : process.objects) {
      out.append(before_object).append("    {\"kind\": ").append(in_quotes(name_of(object.kind)));
      before_object = ",\n";
      field("id", object.id);
      field("parent", object.parent);
      field("opened_ns", object.opened_ns);
      out.append(", \"name\": ")
          .append(in_quotes(object.name))
          .append(", \"detail\": ")
          .append(in_quotes(object.detail));
      for (size_t v = 0; v < value_infos.size(); ++v)
        if ((object.present >> v & 1) != 0) field(value_infos[v].name.data(), object.values[v]);
      out.push_back('}');
    }
    out.append(process.objects.empty() ? "]}" : "\n  ]}");
  }
  return out + (processes.empty() ? "]}\n" : "\n]}\n");
}

// One family for each value; counters end in _total.
inline std::string to_metrics(std::span<const Process> processes) {
  std::string out;
  for (size_t v = 0; v < value_infos.size(); ++v) {
    const ValueInfo& info = value_infos[v];
    const std::string family = "weft_" + std::string(info.name) + (info.is_counter ? "_total" : "");
    bool is_begun = false;
    for (const Process& process : processes) {
      for (const Object& object : process.objects) {
        if ((object.present >> v & 1) == 0) continue;
        if (!is_begun) {
          out.append("# HELP ")
              .append(family)
              .append(" ")
              .append(info.help)
              .append("\n# TYPE ")
              .append(family);
          out.append(info.is_counter ? " counter\n" : " gauge\n");
          is_begun = true;
        }
        out.append(family).append("{pid=\"").append(std::to_string(process.pid)).append("\",program=");
        out.append(in_quotes(process.program)).append(",library=").append(in_quotes(process.library));
        out.append(",kind=")
            .append(in_quotes(name_of(object.kind)))
            .append(",id=\"")
            .append(std::to_string(object.id));
        out.append("\",name=")
            .append(in_quotes(object.name))
            .append(",detail=")
            .append(in_quotes(object.detail));
        out.append("} ").append(std::to_string(object.values[v])).append("\n");
      }
    }
  }
  return out;
}

}  // namespace weft::statistics
