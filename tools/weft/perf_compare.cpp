// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rounds of children, and what they told.
#include "perf_compare.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "failure.hpp"
#include "install_tree.hpp"
#include "line_transfer.hpp"

namespace fs = std::filesystem;

namespace weft::tool {

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, Compared::sides> names = {"Weft", "other"};

struct Again {
  std::string text;  // that it wrote
  bool is_well = false;
};

// Runs this command again, for side 1 on the other library.
Again run_again(const std::vector<std::string>& words, size_t side, const std::string& folder,
                bool only_looks = false) {
  int ends[2];
  if (pipe(ends) != 0) fail("pipe: {}", std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) fail("cannot fork: {}", std::strerror(errno));
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    // choose_library() takes what comes first in the path of the loader, once it is told that the path is as it
    // should be.
    if (side == 1 && !folder.empty()) prefer_library(folder);
    if (only_looks) setenv(look_name, "1", 1);
    setenv(side_name, side == 0 ? "weft" : folder.empty() ? "stock" : "other", 1);
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(executable().c_str(), arguments.data());
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = read(ends[0], buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) throw Interrupted(WTERMSIG(status));
  return {text, WIFEXITED(status) && WEXITSTATUS(status) == exit_ok};
}

std::vector<std::string> words_for(const Comparison& c, size_t side, const std::string& provider) {
  std::vector<std::string> words = {"weft", "perf", "-r", "1", "-f", "json"};
  if (!c.is_verbs) words.insert(words.end(), {"-p", provider});
  words.insert(words.end(), c.options.begin(), c.options.end());
  if (side == 1) words.emplace_back("--stock");
  return words;
}

std::string figures(const Result& r) {
  if (r.samples.empty()) return "-";
  return fmt::format("{} ({} .. {})", short_figure(r.median()), short_figure(r.least()),
                     short_figure(r.most()));
}

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

void print_text(std::FILE* out, const Compared& compared, unsigned rounds) {
  fmt::print(out, "host       {}; {}; {}\n", host_name(), compared.where(), compared.placement());
  for (size_t side = 0; side < Compared::sides; ++side)
    fmt::print(out, "{:<10} {} {}\n", names[side], compared.versions()[side], compared.libraries()[side]);
  fmt::print(out,
             "figures    median of {} rounds in turns (least .. most); ratio: how often Weft is as fast\n\n",
             rounds);
  fmt::print(out, "{:<14} {:<22} {:>8}  {:<28} {:<28} {:<8} {:<6} {}\n", "PROVIDER", "TEST", "SIZE", "WEFT",
             "OTHER", "UNIT", "RATIO", "NOTE");
  for (const Compared::Row& row : compared.rows()) {
    const Result& known = row.results[0].samples.empty() ? row.results[1] : row.results[0];
    fmt::print(out, "{:<14} {:<22} {:>8}  {:<28} {:<28} {:<8} {:<6} {}\n", row.provider, known.test,
               size_text(known.size), figures(row.results[0]), figures(row.results[1]), unit_name(known.unit),
               row.ratio() > 0 ? fmt::format("{:.2f}", row.ratio()) : "-", row.marks());
  }
}

void print(std::FILE* out, const Comparison& c, const Compared& compared) {
  switch (c.format) {
    case Format::text:
      return print_text(out, compared, c.rounds);
    case Format::json:
      return fmt::print(out, "{}\n", to_json(compared).dump(2));
    case Format::csv:
      fmt::print(out, "{}\n", csv_head());
      for (const Compared::Row& row : compared.rows()) {
        for (size_t side = 0; side < Compared::sides; ++side)
          if (!row.results[side].samples.empty())
            fmt::print(out, "{}\n", csv_line(row.results[side], compared.libraries()[side]));
      }
      return;
  }
}

void draw(const Comparison& c, const Compared& compared) {
  std::vector<Result> all;
  for (const Compared::Row& row : compared.rows()) {
    for (size_t side = 0; side < Compared::sides; ++side) {
      if (row.results[side].samples.empty()) continue;
      all.push_back(row.results[side]);
      all.back().provider = fmt::format("{}: {}", names[side], row.provider);
    }
  }
  plot(all, c.plot_file,
       fmt::format("{}: Weft ({}) and other ({})\nprocesses: {}; {}; bands: least to most of {} rounds",
                   host_name(), compared.versions()[0], compared.versions()[1], compared.where(),
                   compared.placement(), c.rounds));
}

}  // namespace

std::string folder_of_library(const std::string& other, bool is_verbs) {
  if (other == "stock") return {};
  const std::string base = is_verbs ? "libibverbs.so" : "libfabric.so";
  const std::string name = base + ".1";
  std::error_code ignored;
  const fs::path path = fs::is_directory(other, ignored) ? fs::path(other) / name : fs::path(other);
  if (!fs::exists(path, ignored) || path.filename().string().rfind(base, 0) != 0) {
    fail_usage("--compare takes 'stock', or the file or folder of a {}{}; there is none at '{}'", name,
               is_verbs ? " for tests of verbs" : "", other);
  }
  if (!fs::exists(path.parent_path() / name, ignored))
    fail_usage("beside {} is no {}, which is what the loader looks for", path.string(), name);
  const fs::path folder = fs::absolute(path).parent_path();
  if (fs::weakly_canonical(folder, ignored) == fs::weakly_canonical(compat_dir(), ignored))
    fail_usage("--compare {}: that is the Weft which this command measures anyway", other);
  return folder.string();
}

double Compared::Row::ratio() const {
  if (results[0].samples.empty() || results[1].samples.empty()) return 0;
  const double ours = results[0].median();
  const double theirs = results[1].median();
  if (ours <= 0 || theirs <= 0) return 0;
  return results[0].unit == Unit::latency ? theirs / ours : ours / theirs;
}

std::string Compared::Row::marks() const { return marks_text(results[0], results[1]); }

Compared::Row& Compared::row(const std::string& provider, const std::string& test, size_t size) {
  for (Row& row : rows_) {
    for (const Result& result : row.results)
      if (row.provider == provider && result.test == test && result.size == size) return row;
  }
  rows_.push_back({provider, {}});
  return rows_.back();
}

void Compared::add(size_t side, const std::string& provider, const json& report) {
  libraries_.at(side) = fmt::format("{} (API {})", report.at("library").get<std::string>(),
                                    report.at("api").get<std::string>());
  versions_.at(side) = report.value("version", std::string());
  where_ = report.at("where").get<std::string>();
  for (const json& value : report.at("results")) {
    const Result one = result_from(value);
    Result& all = row(provider, one.test, one.size).results.at(side);
    if (all.samples.empty()) {
      all = one;
      continue;
    }
    all.samples.insert(all.samples.end(), one.samples.begin(), one.samples.end());
    if (one.times && all.times) all.times->add(*one.times);
    all.line_after_ns = one.line_after_ns;
    all.is_cold = all.is_cold || one.is_cold;
    all.waited = std::max(all.waited, one.waited);
  }
}

std::string Compared::placement() const {
  double least = 0;
  double most = 0;
  for (const Row& row : rows_) {
    for (const Result& result : row.results) {
      for (const double line : {result.line_before_ns, result.line_after_ns}) {
        if (line <= 0) continue;
        least = least > 0 ? std::min(least, line) : line;
        most = std::max(most, line);
      }
    }
  }
  if (most <= 0) return "placement unknown";
  const std::string_view name = placement_of(least, most);
  if (name == "busy") return "CPUs shared with other work";
  return name == "moved" ? fmt::format("CPUs moved, {:.0f} to {:.0f} ns", least, most)
                         : fmt::format("CPUs {}, {:.0f} ns", name, (least + most) / 2);
}

json to_json(const Compared& compared) {
  json document = {{"host", host_name()},
                   {"where", compared.where()},
                   {"placement", compared.placement()},
                   {"libraries", compared.libraries()},
                   {"versions", compared.versions()},
                   {"results", json::array()}};
  for (const Compared::Row& row : compared.rows()) {
    json entry = {{"provider", row.provider},
                  {"ratio", row.ratio() > 0 ? json(row.ratio()) : json()},
                  {"marks", row.marks()}};
    for (size_t side = 0; side < Compared::sides; ++side) {
      const Result& result = row.results[side];
      entry[std::string(side == 0 ? "weft" : "other")] = result.samples.empty() ? json() : to_json(result);
    }
    document["results"].push_back(std::move(entry));
  }
  return document;
}

int compare(const Comparison& c) {
  const std::string folder = folder_of_library(c.other, c.is_verbs);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(nullptr, std::fclose);
  if (!c.output.empty() && c.output != "-") {
    file.reset(std::fopen(c.output.c_str(), "we"));
    if (!file) fail("cannot write {}: {}", c.output, std::strerror(errno));
  }
  // Without a device on either side there is nothing to compare; a provider may be missing beside others that are not.
  for (size_t side = 0; c.is_verbs && side < Compared::sides; ++side)
    if (!run_again(words_for(c, side, c.providers.front()), side, folder, true).is_well)
      fail("nothing to compare: {} libibverbs.so.1 does not run these tests here", side == 0 ? "Weft's"
                                                                                   : folder.empty()
                                                                                       ? "the system's"
                                                                                       : "the other");
  Compared compared;
  bool complete = true;
  for (unsigned round = 0; round < c.rounds; ++round) {
    for (const std::string& provider : c.providers) {
      for (size_t turn = 0; turn < Compared::sides; ++turn) {
        const size_t side = (turn + round) % Compared::sides;  // who is first changes
        const json report =
            json::parse(run_again(words_for(c, side, provider), side, folder).text, nullptr, false);
        if (report.is_discarded() || !report.contains("results")) {
          complete = false;
          continue;
        }
        compared.add(side, provider, report);
        complete = complete && report.at("failed").empty() && report.at("refused").empty();
      }
    }
    if (compared.rows().empty()) break;  // the next round would not do better
  }
  if (compared.rows().empty()) fail("neither library measured anything");
  print(file ? file.get() : stdout, c, compared);
  if (!c.plot_file.empty()) draw(c, compared);
  return complete ? exit_ok : exit_failed;
}

}  // namespace weft::tool
