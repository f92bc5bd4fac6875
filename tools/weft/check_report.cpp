// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table, the verdicts, and both as JSON.
#include "check_report.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace weft::tool::checking {

namespace {

constexpr size_t reason_max = 150;
constexpr size_t said_max = 5;  // lines of the log under the table

std::string shortened(const std::string& text) {
  if (text.size() <= reason_max) return text;
  size_t cut = reason_max;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;  // not inside a character
  return text.substr(0, cut) + " ...";
}

std::string count_text(const Line& line) {
  const size_t of = line.shown + line.broken.size();
  if (of == 0) return line.claimed == Claimed::yes || line.claimed == Claimed::always ? "nothing" : "-";
  return fmt::format("{} of {}", line.shown, of);
}

std::string title(const Report& report) {
  return fmt::format("{}{}{}, by libfabric {} ({}){}", report.provider,
                     report.offer.version.empty() ? "" : " ", report.offer.version, report.offer.api,
                     report.offer.library, report.plugin.empty() ? "" : ", plugin " + report.plugin);
}

// What the library logged while cases failed, each line once, without process ids: often the cause, where the cases show its consequences.
std::vector<std::string> said_in(const TypeReport& type) {
  std::vector<std::string> lines;
  for (const CaseResult& result : type.results)
    for (const std::string& reason : result.reasons) {
      if (!result.broken() || !reason.starts_with(said_meanwhile)) continue;
      std::string line = reason.substr(said_meanwhile.size());
      const size_t name = line.find(':'), id = name == std::string::npos ? name : line.find(':', name + 1);
      if (id != std::string::npos && line.find_first_not_of("0123456789", name + 1) == id)
        line.erase(name, id - name);
      if (lines.size() < said_max && std::find(lines.begin(), lines.end(), line) == lines.end())
        lines.push_back(std::move(line));
    }
  return lines;
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  return fmt::format("{}", fmt::join(parts, between));
}

}  // namespace

std::vector<Line> lines_of(const TypeReport& type) {
  std::vector<Line> lines;
  const auto all = capabilities();
  for (size_t i = 0; i < all.size(); ++i)
    if ((all[i].types & bit_of(type.type)) != 0)
      lines.push_back({&all[i], type.answers.claimed[i], 0, 0, {}});
  for (const CaseResult& result : type.results) {
    const Capability* capability = capability_of(result.name);
    const auto line =
        std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.capability == capability; });
    if (line == lines.end()) continue;
    if (result.outcome == Outcome::passed) ++line->shown;
    if (result.outcome == Outcome::skipped) ++line->skipped;
    if (result.broken()) line->broken.push_back(&result);
  }
  return lines;
}

bool all_claims_shown(const Report& report) {
  for (const TypeReport& type : report.types) {
    const auto lines = lines_of(type);
    if (std::any_of(lines.begin(), lines.end(), [](const Line& line) { return line.is_broken(); }))
      return false;
  }
  return true;
}

std::string as_text(const Report& report, bool verbose) {
  std::string out = title(report) + "\n";
  auto to = std::back_inserter(out);
  size_t broken_lines = 0;
  for (const TypeReport& type : report.types) {
    fmt::format_to(to, "\n{:<34}{:<10}{:<12}{}\n", name_of(type.type), "CLAIMED", "SHOWN", "BROKEN");
    for (const Line& line : lines_of(type)) {
      if (line.shown + line.skipped + line.broken.size() == 0) continue;
      if (line.is_broken()) ++broken_lines;
      fmt::format_to(to, "  {:<32}{:<10}{:<12}", line.capability->name, text_of(line.claimed),
                     count_text(line));
      if (!line.broken.empty())
        fmt::format_to(to, "{}{}", line.broken.size(), line.is_broken() ? "" : " (not claimed)");
      while (out.back() == ' ') out.pop_back();
      out += '\n';
      for (const CaseResult* one : line.broken) {
        fmt::format_to(to, "      {}: {}", one->name,
                       one->outcome == Outcome::failed ? "" : std::string(text_of(one->outcome)) + ": ");
        if (verbose) {
          out.back() = '\n';
          for (const std::string& reason : one->reasons) fmt::format_to(to, "          {}\n", reason);
        } else {
          fmt::format_to(to, "{}\n", one->reasons.empty() ? "" : shortened(one->reasons.front()));
        }
      }
      if (verbose && line.skipped > 0) {
        fmt::format_to(to, "      {} not run:\n", line.skipped);
        for (const CaseResult& one : type.results)
          if (one.outcome == Outcome::skipped && capability_of(one.name) == line.capability)
            fmt::format_to(to, "          {}: {}\n", one.name,
                           one.reasons.empty() ? "" : shortened(one.reasons.front()));
      }
    }
    if (const auto lines = said_in(type); !verbose && !lines.empty()) {
      fmt::format_to(to, "  said meanwhile (-v says when):\n");
      for (const std::string& line : lines) fmt::format_to(to, "      {}\n", line);
    }
    if (!type.answers.untested.empty())
      fmt::format_to(to, "  claimed, and no case here: {}\n", joined(type.answers.untested, " "));
  }
  if (!report.judgements.empty()) out += "\n";
  for (const Judgement& judgement : report.judgements) {
    fmt::format_to(to, "{:<20} {}\n", name_of(judgement.verdict), judgement.yes ? "yes" : "no");
    for (const std::string& reason : judgement.reasons)
      fmt::format_to(to, "      {}\n", verbose ? reason : shortened(reason));
    if (judgement.yes)
      for (const std::string& reason : judgement.without)
        fmt::format_to(to, "      without: {}\n", verbose ? reason : shortened(reason));
  }
  fmt::format_to(to, "\n{}\n",
                 broken_lines == 0 ? "all that is claimed was shown"
                                   : fmt::format("of what is claimed, {} broken", broken_lines));
  if (!report.offer.others.empty())
    fmt::format_to(to, "the name brings more, to be checked by themselves: {}\n",
                   joined(report.offer.others, " "));
  return out;
}

std::string as_json(const Report& report) {
  using nlohmann::json;
  json types = json::object();
  for (const TypeReport& type : report.types) {
    json lines = json::array();
    for (const Line& line : lines_of(type)) {
      if (line.claimed == Claimed::no && line.shown + line.skipped + line.broken.size() == 0) continue;
      json broken = json::array();
      for (const CaseResult* one : line.broken)
        broken.push_back(
            {{"case", one->name}, {"outcome", text_of(one->outcome)}, {"reasons", one->reasons}});
      lines.push_back({{"capability", line.capability->name},
                       {"manual", line.capability->manual},
                       {"claimed", text_of(line.claimed)},
                       {"shown", line.shown},
                       {"of", line.shown + line.broken.size()},
                       {"not_run", line.skipped},
                       {"broken", broken}});
    }
    types[std::string(name_of(type.type))] = {{"capabilities", lines},
                                              {"claimed_without_case", type.answers.untested}};
  }
  json verdicts_json = json::array();
  for (const Judgement& judgement : report.judgements)
    verdicts_json.push_back({{"verdict", name_of(judgement.verdict)},
                             {"yes", judgement.yes},
                             {"reasons", judgement.reasons},
                             {"without", judgement.without}});
  const json all = {{"provider", report.provider},
                    {"plugin", report.plugin},
                    {"version", report.offer.version},
                    {"libfabric", report.offer.api},
                    {"library", report.offer.library},
                    {"endpoint_types", types},
                    {"verdicts", verdicts_json},
                    {"also", report.offer.others},
                    {"interrupted", report.interrupted},
                    {"all_claims_shown", !report.interrupted && all_claims_shown(report)}};
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace weft::tool::checking
