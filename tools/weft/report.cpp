// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text, JSON and plot of the results. Knows neither fabric nor processes.
#include "report.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "failure.hpp"
#include "line_transfer.hpp"

namespace weft::tool {

namespace {

constexpr std::chrono::seconds quiet_time{2};

int digits_of(double value) { return value >= 1000 ? 0 : value >= 100 ? 1 : value >= 1 ? 2 : 4; }

// "near 61 ns", "moved 61 to 248 ns", or nothing.
std::string placement_text(const Result& r) {
  const std::string_view placement = placement_of(r.line_before_ns, r.line_after_ns);
  if (placement == "unknown") return "-";
  if (placement == "busy") return "shared with other work";
  if (placement == "moved")
    return fmt::format("moved {:.0f} to {:.0f} ns", r.line_before_ns, r.line_after_ns);
  return fmt::format("{} {:.0f} ns", placement, (r.line_before_ns + r.line_after_ns) / 2);
}

// And what makes the figure doubtful: "near 61 ns; cold".
std::string cpus_text(const Result& r) {
  std::string placement = placement_text(r);
  std::string marks = marks_text(r);
  if (marks.empty()) return placement;
  if (placement == "-" || placement.starts_with("shared")) return marks;
  return placement + "; " + marks;
}

constexpr const char* notes = R"(
latency    one way: half of a round trip; what fits is injected, larger messages are sent with a completion each
rate, bw   one direction, a completion for every message at both ends, at most one window of sends incomplete;
           the receiver has two windows of receives posted and acknowledges each window
CPUS       a cache line from one CPU to the other, before and after: compare figures of one placement only;
           cold: the times were not stable yet; shared with other work: a side waited for its CPU
read-lat, atomic-lat  from the call to its completion, one at a time: no half of it
at once    --threads, --peers: the mean of latencies; of rates and bandwidths what all moved from the first start to the
           last end
rma        write-lat counts to the completion at the target (remote CQ data); bw to the initiator's completions
)";

}  // namespace

std::string short_figure(double value) { return fmt::format("{:.{}f}", value, digits_of(value)); }

Reporter::Reporter(Format format, const std::string& output, Circumstances circumstances)
    : format_(format),
      circumstances_(std::move(circumstances)),
      to_terminal_(isatty(STDERR_FILENO)),
      last_progress_(std::chrono::steady_clock::now()) {
  if (!output.empty() && output != "-") {
    out_ = std::fopen(output.c_str(), "we");
    if (!out_) fail("cannot write {}: {}", output, std::strerror(errno));
  }
  if (format_ == Format::text) print_head();
  if (format_ == Format::csv) fmt::print(out_, "{}\n", csv_head());
}

Reporter::~Reporter() {
  clear_progress();
  if (out_ != stdout) std::fclose(out_);
}

void Reporter::print_head() {
  const Circumstances& c = circumstances_;
  fmt::print(out_, "library    {}{}{} (API {})\n", c.version, c.version.empty() ? "" : " ", c.library, c.api);
  fmt::print(out_, "processes  {}; threading {}{}\n", c.where, c.threading,
             c.verify ? "; data verified" : "");
  fmt::print(out_, "figures    median of {} (least .. most); window {}\n\n", c.repeat, c.window);
  fmt::print(out_, "{:<16} {:<22} {:>9} {:>10} {:>10} {:>10}  {:<8} {:<13} {}\n", "PROVIDER", "TEST", "SIZE",
             "MEDIAN", "LEAST", "MOST", "UNIT", "BY", "CPUS");
  std::fflush(out_);
}

std::string Reporter::title() const {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  std::string placement = "of unknown placement";
  for (const Result& result : results_)
    if (const std::string text = placement_text(result); text != "-") placement = text;
  return fmt::format("{}: libfabric {} (API {})\nprocesses: {}; CPUs {}", host, circumstances_.version,
                     circumstances_.api, circumstances_.where, placement);
}

void Reporter::clear_progress() {
  if (line_shown_) fmt::print(stderr, "\r\033[K");
  line_shown_ = false;
}

void Reporter::begin(const std::string& provider, const std::string& test, size_t size, size_t index,
                     size_t count) {
  const auto now = std::chrono::steady_clock::now();
  const std::string text = fmt::format("[{}/{}] {} {} {}", index + 1, count, provider, test, size_text(size));
  if (to_terminal_) {
    clear_progress();
    fmt::print(stderr, "{}", text);
    std::fflush(stderr);
    line_shown_ = true;
  } else if (now - last_progress_ > quiet_time) {
    fmt::print(stderr, "{}\n", text);
    last_progress_ = now;
  }
}

void Reporter::result(const Result& r) {
  results_.push_back(r);
  if (format_ == Format::json) return;
  clear_progress();
  if (format_ == Format::csv) {
    fmt::print(out_, "{}\n", csv_line(r, circumstances_.library));
    std::fflush(out_);
    return;
  }
  fmt::print(out_, "{:<16} {:<22} {:>9} {:>10} {:>10} {:>10}  {:<8} {:<13} {}\n", r.provider, r.test,
             size_text(r.size), short_figure(r.median()), short_figure(r.least()), short_figure(r.most()),
             unit_name(r.unit), r.operation, cpus_text(r));
  if (const auto& p = r.packets; p && (p->sent_again != 0 || p->lost != 0 || p->damaged != 0))
    fmt::print(out_, "{:<16} of {} packets {} were found lost, {} sent again; {} came twice, {} damaged\n",
               "", p->sent, p->lost, p->sent_again, p->duplicates, p->damaged);
  if (r.times) fmt::print(out_, "{:<16} {}\n", "", times_text(*r.times));
  if (!r.lanes.empty())
    fmt::print(out_, "{:<16} {} at once: each {} .. {} {}, the least {:.0f} % of the most\n", "",
               r.lanes.size(), short_figure(r.lane_least()), short_figure(r.lane_most()), unit_name(r.unit),
               100 * r.fairness());
  if (r.copies) fmt::print(out_, "{:<16} {}\n", "", copies_text(*r.copies));
  std::fflush(out_);
}

void Reporter::refused(const std::string& provider, const std::string& test, size_t size,
                       const std::string& reason) {
  refused_.push_back({{"provider", provider}, {"test", test}, {"size", size}, {"reason", reason}});
  clear_progress();
  fmt::print(stderr, "weft perf: {} {} {} was not run: {}\n", provider, test, size_text(size), reason);
}

void Reporter::note(const std::string& text) {
  notes_.push_back(text);
  clear_progress();
  fmt::print(stderr, "weft perf: note: {}\n", text);
}

void Reporter::failed(const std::string& provider, const std::string& reason) {
  failed_.push_back({{"provider", provider}, {"reason", reason}});
  clear_progress();
  fmt::print(stderr, "weft perf: {}: {}\n", provider, reason);
}

void Reporter::finish() {
  clear_progress();
  if (format_ == Format::csv) return;
  if (format_ == Format::text) {
    fmt::print(out_, "{}", notes);
    return;
  }
  const Circumstances& c = circumstances_;
  nlohmann::json document{{"library", c.library},     {"version", c.version},
                          {"notes", notes_},          {"api", c.api},
                          {"where", c.where},         {"cpus", c.cpus},
                          {"threading", c.threading}, {"window", c.window},
                          {"repeat", c.repeat},       {"buffers", c.buffers},
                          {"verify", c.verify},       {"results", nlohmann::json::array()},
                          {"refused", refused_},      {"failed", failed_}};
  for (const Result& r : results_) document["results"].push_back(to_json(r));
  fmt::print(out_, "{}\n", document.dump(2));
}

namespace {

struct Point {
  double median = 0, least = 0, most = 0;
};
using Series = std::map<std::string, std::map<size_t, Point>>;

std::string quoted(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '"' || c == '\n' || c == '\\' || c == '`'; });
  return "'" + text + "'";
}

// Lines of a title: gnuplot reads "\n" within double quotes, and nothing else that could stand in a line.
std::string quoted_lines(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '\n') result += "\\n";
    else if (c != '"' && c != '\\' && c != '`' && c != '\'') result += c;
  }
  return result + "\" font ',11'";
}

struct Panel {
  std::string title;
  Series series;
};

std::vector<Panel> panels_of(const std::vector<Result>& results) {
  std::vector<Panel> panels;
  for (const auto& [unit, title] :
       {std::pair{Unit::latency, "latency, ns"}, std::pair{Unit::rate, "million messages per second"},
        std::pair{Unit::bandwidth, "bandwidth, GB/s"}}) {
    Panel panel{title, {}};
    for (const Result& r : results) {
      if (r.unit == unit) panel.series[r.provider + " " + r.test][r.size] = {r.median(), r.least(), r.most()};
    }
    if (!panel.series.empty()) panels.push_back(std::move(panel));
  }
  return panels;
}

// "64 KiB" at each size, or at every second, third ... of many.
std::string tics_of(const std::set<size_t>& sizes) {
  constexpr size_t tics_most = 12;
  const size_t step = (sizes.size() + tics_most - 1) / tics_most;
  std::string text = "set xtics (";
  const char* separator = "";
  size_t i = 0;
  for (const size_t size : sizes) {
    if (i++ % step != 0) continue;
    text += fmt::format("{}'{}' {}", separator, size_text(size), size);
    separator = ", ";
  }
  return text + ")\n";
}

std::string script_of(const std::vector<Panel>& panels, const std::string& file_name,
                      const std::string& title) {
  const size_t height = 100 + 400 * panels.size();
  std::string script =
      file_name.ends_with(".png")
          ? fmt::format("set terminal pngcairo size 1000,{} noenhanced background rgb 'white'\n", height)
          : fmt::format("set terminal svg size 1000,{} dynamic noenhanced background rgb 'white'\n", height);
  script += fmt::format(
      "set output {}\nset multiplot layout {},1 title {}\n"
      "set logscale x 2\nset grid\nset key outside below\nset xlabel 'message size'\n"
      "set lmargin 13\nset bmargin 6\nset format y '%.15g'\n",
      quoted(file_name), panels.size(), quoted_lines(title));
  for (const Panel& panel : panels) {
    double least = INFINITY, most = 0;
    size_t smallest = SIZE_MAX, largest = 1;
    std::set<size_t> sizes;
    for (const auto& [name, points] : panel.series) {
      for (const auto& [size, value] : points) {
        least = std::min(least, value.least);
        most = std::max(most, value.most);
        sizes.insert(std::max<size_t>(size, 1));
        smallest = std::min(smallest, std::max<size_t>(size, 1));
        largest = std::max(largest, size);
      }
    }
    script += fmt::format(
        "set ylabel {}\n{}\nset xrange [{}:{}]\n", quoted(panel.title),
        most > 20 * least ? "set logscale y; set yrange [*:*]" : "unset logscale y; set yrange [0:*]",
        std::max(0.5, static_cast<double>(smallest) / 2), largest * 2);
    script += tics_of(sizes);
    // A band from the least to the most under each line, of its colour.
    std::string separator = "plot ";
    unsigned colour = 0;
    for (const auto& [name, points] : panel.series) {
      ++colour;
      script += fmt::format(
          "{}'-' using 1:2:3 with filledcurves linetype {} fillstyle transparent solid 0.2 noborder notitle, "
          "'-' using 1:2 with "
          "linespoints linetype {} title {}",
          separator, colour, colour, quoted(name));
      separator = ", ";
    }
    script += '\n';
    for (const auto& [name, points] : panel.series) {
      // A size of nothing has no place on a logarithmic axis.
      for (const auto& [size, value] : points)
        script += fmt::format("{} {} {}\n", std::max<size_t>(size, 1), value.least, value.most);
      script += "e\n";
      for (const auto& [size, value] : points)
        script += fmt::format("{} {}\n", std::max<size_t>(size, 1), value.median);
      script += "e\n";
    }
  }
  return script + "unset multiplot\n";
}

// The script comes from an unnamed file, so there is no pipe to break. Returns the exit status, 127 when
// there is no gnuplot.
int run_gnuplot(const std::string& script) {
  const int file = memfd_create("weft-plot", MFD_CLOEXEC);
  if (file < 0 || write(file, script.data(), script.size()) != static_cast<ssize_t>(script.size()) ||
      lseek(file, 0, SEEK_SET) != 0) {
    fail("cannot hold the script for gnuplot: {}", std::strerror(errno));
  }
  const pid_t pid = fork();
  if (pid < 0) fail("cannot fork: {}", std::strerror(errno));
  if (pid == 0) {
    dup2(file, STDIN_FILENO);
    execlp("gnuplot", "gnuplot", nullptr);
    _exit(127);
  }
  close(file);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

void plot(const std::vector<Result>& results, const std::string& file_name, const std::string& title) {
  const std::vector<Panel> panels = panels_of(results);
  if (panels.empty()) fail("there is nothing to plot");
  const int status = run_gnuplot(script_of(panels, file_name, title));
  if (status == 127) fail("--plot needs gnuplot (package gnuplot-nox)");
  if (status != 0) fail("gnuplot did not write {}", file_name);
}

}  // namespace weft::tool
