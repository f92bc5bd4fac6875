// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tests of `weft perf` and their arithmetic. No I/O, no fabric.
#include "perf_plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "failure.hpp"
#include "line_transfer.hpp"

namespace weft::tool {

namespace {

constexpr std::array tests{
    Test{"tagged-pingpong", Api::tagged, Unit::latency, false, "one-way latency of tagged messages"},
    Test{"msg-pingpong", Api::msg, Unit::latency, false, "one-way latency of untagged messages"},
    Test{"tagged-rate", Api::tagged, Unit::rate, false, "tagged messages per second, one direction"},
    Test{"msg-rate", Api::msg, Unit::rate, false, "untagged messages per second, one direction"},
    Test{"tagged-bw", Api::tagged, Unit::bandwidth, false, "bandwidth of tagged messages, one direction"},
    Test{"tagged-posted-lat", Api::tagged, Unit::latency, false,
         "one-way latency of a tagged message with a short one behind it; receives posted ahead",
         Receives::posted},
    Test{"tagged-unexpected-lat", Api::tagged, Unit::latency, false,
         "the same, the receive posted when the message has come", Receives::unexpected},
    Test{"tagged-posted-rate", Api::tagged, Unit::rate, false,
         "tagged messages per second, a window at a time; receives posted ahead", Receives::posted},
    Test{"tagged-unexpected-rate", Api::tagged, Unit::rate, false,
         "the same, the receives posted when the whole window has come", Receives::unexpected},
    Test{"rma-write-lat", Api::rma, Unit::latency, false,
         "one-way latency of a write, to the target's completion"},
    Test{"rma-read-lat", Api::rma, Unit::latency, true, "latency of a read, from the call to its completion"},
    Test{"rma-write-bw", Api::rma, Unit::bandwidth, false, "bandwidth of writes"},
    Test{"rma-read-bw", Api::rma, Unit::bandwidth, true, "bandwidth of reads"},
    Test{"atomic-lat", Api::atomic, Unit::latency, false,
         "latency of a fetching addition of 8 bytes, from the call to its completion"},
    Test{"atomic-rate", Api::atomic, Unit::rate, false, "additions of 8 bytes per second, without a result"},
    Test{"verbs-send-lat", Api::verbs, Unit::latency, false,
         "one-way latency of SENDs over an RC queue pair"},
    Test{"verbs-write-lat", Api::verbs, Unit::latency, false,
         "one-way latency of RDMA WRITEs, seen in memory", Receives::usual, Verbs::write},
    Test{"verbs-read-lat", Api::verbs, Unit::latency, true, "latency of RDMA READs, to the completion",
         Receives::usual, Verbs::read},
    Test{"verbs-send-bw", Api::verbs, Unit::bandwidth, false, "bandwidth of SENDs, one direction"},
    Test{"verbs-write-bw", Api::verbs, Unit::bandwidth, false, "bandwidth of RDMA WRITEs", Receives::usual,
         Verbs::write},
    Test{"verbs-read-bw", Api::verbs, Unit::bandwidth, true, "bandwidth of RDMA READs", Receives::usual,
         Verbs::read},
};

std::vector<size_t> usual_sizes(const Test& test) {
  if (test.api == Api::atomic) return {atomic_bytes};
  switch (test.unit) {
    case Unit::latency:
      return {8, 1024, 65536};
    case Unit::rate:
      return {8};
    case Unit::bandwidth:
      return {65536, 1048576};
  }
  return {};
}

size_t parse_size(std::string_view text) {
  size_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view rest(stop, static_cast<size_t>(text.data() + text.size() - stop));
  unsigned shift = 0;
  if (!rest.empty()) {
    constexpr std::string_view units = "kmg";
    const size_t unit = units.find(static_cast<char>(rest[0] | 0x20));
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      rest.remove_prefix(1);
    }
  }
  if (error != std::errc{} || !rest.empty())
    fail_usage("'{}' is not a size; write 8, 64k, 1m, a list 8,1k or a range 8:64k (units: k, m, g)", text);
  if (value == 0) fail_usage("a size of 0 has nothing to measure; sizes are from 1 to 4g");
  constexpr size_t most = size_t{1} << 32;
  if (value > (most >> shift)) fail_usage("{} is too large; sizes are from 1 to 4g", text);
  return value << shift;
}

}  // namespace

std::span<const Test> all_tests() { return tests; }

const Test& test_named(std::string_view name) {
  for (const Test& test : tests) {
    if (test.name == name) return test;
  }
  std::string valid;
  for (const Test& test : tests) valid += fmt::format(" {}", test.name);
  fail_usage("there is no test '{}'; there are:{}", name, valid);
}

std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::latency:
      return "ns";
    case Unit::rate:
      return "M msg/s";
    case Unit::bandwidth:
      return "GB/s";
  }
  return "";
}

std::vector<size_t> parse_sizes(const std::string& text) {
  std::vector<size_t> sizes;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      sizes.push_back(parse_size(item));
    } else {
      const size_t from = parse_size(item.substr(0, colon));
      const size_t to = parse_size(item.substr(colon + 1));
      if (from > to) fail_usage("the range {} goes down", item);
      for (size_t size = from; size <= to; size *= 2) sizes.push_back(size);
    }
    if (comma == std::string_view::npos) return sizes;
    rest.remove_prefix(comma + 1);
  }
}

std::string size_text(size_t bytes) {
  if (bytes >= (1 << 30) && bytes % (1 << 30) == 0) return fmt::format("{} GiB", bytes >> 30);
  if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= (1 << 10) && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::vector<Step> steps_of(const PerfOptions& options) {
  std::vector<Step> steps;
  for (const std::string& provider : options.providers) {
    for (const std::string& name : options.tests) {
      const Test& test = test_named(name);
      for (const size_t size : options.sizes.empty() ? usual_sizes(test) : options.sizes) {
        steps.push_back({provider, &test, size});
      }
    }
  }
  return steps;
}

size_t Histogram::bucket_of(uint64_t ns) {
  if (ns < steps) return ns;
  const auto power =
      static_cast<unsigned>(std::bit_width(ns)) - 5;  // the four bits below the first say the step
  return std::min<size_t>(steps * (power + 1) + (ns >> power) - steps, buckets_count - 1);
}

uint64_t Histogram::begin_of(size_t bucket) {
  if (bucket < steps) return bucket;
  const size_t power = bucket / steps - 1;
  return (bucket % steps + steps) << power;
}

void Histogram::add(uint64_t ns, uint64_t times) {
  if (buckets_.empty()) buckets_.resize(buckets_count);
  buckets_[bucket_of(ns)] += times;
  count_ += times;
  largest_ = std::max(largest_, ns);
}

void Histogram::add(const Histogram& other) {
  if (other.buckets_.empty()) return;
  buckets_.resize(buckets_count);
  for (size_t i = 0; i < buckets_count; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  largest_ = std::max(largest_, other.largest_);
}

double Histogram::quantile(double share) const {
  if (count_ == 0) return 0;
  const double wanted = share * static_cast<double>(count_);
  uint64_t below = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    below += buckets_[bucket];
    if (buckets_[bucket] != 0 && static_cast<double>(below) >= wanted)
      return static_cast<double>(
          std::min(bucket + 1 < buckets_count ? begin_of(bucket + 1) - 1 : largest_, largest_));
  }
  return static_cast<double>(largest_);
}

std::vector<std::pair<uint64_t, uint64_t>> Histogram::steps_taken() const {
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (buckets_[bucket] != 0) taken.emplace_back(begin_of(bucket), buckets_[bucket]);
  }
  return taken;
}

double median_of(std::vector<double> sorted) {
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double Result::median() const { return median_of(samples); }

double Result::lane_least() const {
  return lanes.empty() ? 0 : *std::min_element(lanes.begin(), lanes.end());
}
double Result::lane_most() const { return lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end()); }
double Result::fairness() const { return lane_most() > 0 ? lane_least() / lane_most() : 1; }

double Result::least() const {
  return samples.empty() ? 0 : *std::min_element(samples.begin(), samples.end());
}
double Result::most() const {
  return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end());
}

nlohmann::json to_json(const std::optional<Packets>& p) {
  if (!p) return nullptr;
  return {{"sent", p->sent},
          {"sent_again", p->sent_again},
          {"lost", p->lost},
          {"duplicates", p->duplicates},
          {"damaged", p->damaged}};
}

std::optional<Packets> packets_from(const nlohmann::json& v) {
  if (v.is_null()) return {};
  return Packets{v.at("sent"), v.at("sent_again"), v.at("lost"), v.at("duplicates"), v.at("damaged")};
}

nlohmann::json to_json(const std::optional<CopyPathCounts>& c) {
  if (!c) return nullptr;
  nlohmann::json ways;
  for (size_t i = 0; i < c->paths.size(); ++i)
    ways[std::string(copy_path_names[i])] = {{"messages", c->paths[i].messages}, {"ns", c->paths[i].ns}};
  return {{"path", c->path},
          {"reason", c->reason},
          {"ways", ways},
          {"trials", c->trials},
          {"trial_messages", c->trial_messages},
          {"changes", c->changes},
          {"measured_ns", c->measured_ns},
          {"lost_ns", c->lost_ns}};
}

std::optional<CopyPathCounts> copies_from(const nlohmann::json& v) {
  if (v.is_null()) return {};
  CopyPathCounts c;
  v.at("path").get_to(c.path);
  v.at("reason").get_to(c.reason);
  for (size_t i = 0; i < c.paths.size(); ++i) {
    const auto& way = v.at("ways").at(std::string(copy_path_names[i]));
    c.paths[i] = {way.at("messages"), way.at("ns")};
  }
  v.at("trials").get_to(c.trials);
  v.at("trial_messages").get_to(c.trial_messages);
  v.at("changes").get_to(c.changes);
  v.at("measured_ns").get_to(c.measured_ns);
  v.at("lost_ns").get_to(c.lost_ns);
  return c;
}

std::string copies_text(const CopyPathCounts& c) {
  std::string text = fmt::format("copied by {} ({}): ", c.path, c.reason);
  const char* separator = "";
  for (size_t i = 0; i < c.paths.size(); ++i) {
    const auto& way = c.paths[i];
    if (way.messages == 0 && way.ns == 0) continue;
    text += fmt::format("{}{} {} messages", separator, copy_path_names[i], way.messages);
    if (way.ns != 0) text += fmt::format(" of {:.2f} us", static_cast<double>(way.ns) / 1000);
    separator = ", ";
  }
  if (c.trials != 0)
    text += fmt::format(
        "; {} trials cost {:.2f} %", c.trials,
        100.0 * static_cast<double>(c.lost_ns) / static_cast<double>(std::max<uint64_t>(c.measured_ns, 1)));
  return text;
}

nlohmann::json to_json(const std::optional<Histogram>& times) {
  if (!times) return nullptr;
  nlohmann::json value = {{"most", times->largest()}, {"histogram", times->steps_taken()}};
  for (const auto& [name, share] : shown_quantiles) value[std::string(name)] = times->quantile(share);
  return value;
}

std::optional<Histogram> times_from(const nlohmann::json& v) {
  if (v.is_null()) return {};
  Histogram times;
  uint64_t left = 1;  // the largest one is known as it was
  const auto most = v.at("most").get<uint64_t>();
  for (const auto& step : v.at("histogram")) {
    const uint64_t begin = step.at(0);
    const uint64_t count = step.at(1);
    const bool has_most = left != 0 && Histogram::bucket_of(begin) == Histogram::bucket_of(most);
    if (has_most) times.add(most, left--);
    times.add(begin, count - (has_most ? 1 : 0));
  }
  return times;
}

std::string times_text(const Histogram& times) {
  std::string text;
  for (const auto& [name, share] : shown_quantiles)
    text += fmt::format("{} {:.0f}, ", name, times.quantile(share));
  return text + fmt::format("most {} ns, of {}", times.largest(), times.count());
}

std::string csv_head() {
  std::string head = "library,provider,test,bytes,unit,median,least,most";
  for (const auto& [name, share] : shown_quantiles) head += fmt::format(",{}_ns", name);
  return head + ",most_ns,repeats,iterations,operation,placement,lanes,lane_least,lane_most,cold,waited";
}

namespace {

std::string csv_text(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string csv_line(const Result& r, std::string_view library) {
  std::string line =
      fmt::format("{},{},{},{},{},{},{},{}", csv_text(library), csv_text(r.provider), csv_text(r.test),
                  r.size, csv_text(unit_name(r.unit)), r.median(), r.least(), r.most());
  for (const auto& [name, share] : shown_quantiles)
    line += r.times ? fmt::format(",{:.0f}", r.times->quantile(share)) : std::string(",");
  line += r.times ? fmt::format(",{}", r.times->largest()) : std::string(",");
  line += fmt::format(",{},{},{},{}", r.samples.size(), r.iters, csv_text(r.operation),
                      placement_of(r.line_before_ns, r.line_after_ns));
  line += r.lanes.empty() ? std::string(",1,,")
                          : fmt::format(",{},{},{}", r.lanes.size(), r.lane_least(), r.lane_most());
  return line + (r.is_cold ? ",yes," : ",no,") +
         (r.waited < 0 ? std::string() : fmt::format("{:.4f}", r.waited));
}

std::string marks_text(const Result& r) { return marks_text(r, r); }

std::string marks_text(const Result& weft, const Result& other) {
  std::string text;
  if (weft.is_cold || other.is_cold)
    text = weft.is_cold && other.is_cold ? "cold" : weft.is_cold ? "cold (Weft)" : "cold (other)";
  if (weft.is_shared() || other.is_shared())
    text += text.empty() ? "CPUs shared with other work" : "; CPUs shared with other work";
  return text;
}

nlohmann::json to_json(const Result& r) {
  return {{"provider", r.provider},
          {"fabric", r.fabric},
          {"domain", r.domain},
          {"test", r.test},
          {"size", r.size},
          {"unit", unit_name(r.unit)},
          {"iters", r.iters},
          {"operation", r.operation},
          {"median", r.median()},
          {"min", r.least()},
          {"max", r.most()},
          {"samples", r.samples},
          {"voluntary_switches", r.voluntary_switches},
          {"involuntary_switches", r.involuntary_switches},
          {"packets", to_json(r.packets)},
          {"copies", to_json(r.copies)},
          {"times_ns", to_json(r.times)},
          {"lanes", r.lanes},
          {"fairness", r.fairness()},
          {"line_ns", {r.line_before_ns, r.line_after_ns}},
          {"placement", placement_of(r.line_before_ns, r.line_after_ns)},
          {"cold", r.is_cold},
          {"waited", r.waited < 0 ? nlohmann::json() : nlohmann::json(r.waited)},
          {"marks", marks_text(r)}};
}

Result result_from(const nlohmann::json& v) {
  Result r;
  v.at("provider").get_to(r.provider);
  v.at("fabric").get_to(r.fabric);
  v.at("domain").get_to(r.domain);
  v.at("test").get_to(r.test);
  v.at("size").get_to(r.size);
  v.at("iters").get_to(r.iters);
  v.at("operation").get_to(r.operation);
  v.at("samples").get_to(r.samples);
  v.at("voluntary_switches").get_to(r.voluntary_switches);
  v.at("involuntary_switches").get_to(r.involuntary_switches);
  r.packets = packets_from(v.value("packets", nlohmann::json()));
  r.copies = copies_from(v.value("copies", nlohmann::json()));
  r.times = times_from(v.value("times_ns", nlohmann::json()));
  r.lanes = v.value("lanes", std::vector<double>());
  v.at("line_ns").at(0).get_to(r.line_before_ns);
  v.at("line_ns").at(1).get_to(r.line_after_ns);
  r.is_cold = v.value("cold", false);
  if (const auto waited = v.find("waited"); waited != v.end() && waited->is_number())
    waited->get_to(r.waited);
  r.unit = test_named(r.test).unit;
  return r;
}

}  // namespace weft::tool
