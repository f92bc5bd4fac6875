// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The leading and the following process of a measurement. Knows neither how they were started nor how the
// results are shown.
#include "worker.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "runner.hpp"
#include "session.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds answer_limit{60'000};  // opening an endpoint, or the other half of a run
constexpr milliseconds command_limit{
    86'400'000};  // the leader may be at work elsewhere; if it dies, the channel closes
constexpr unsigned window_most = 1 << 14;
constexpr size_t size_most = size_t{1} << 32;
constexpr size_t verify_memory_most = size_t{256} << 20;

std::string to_hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 2 <= text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
  }
  return bytes;
}

// What both sides must agree on for one step.
struct Agreement {
  std::string provider, threading;
  Shape shape;

  json message() const {
    return {{"command", "open"},        {"provider", provider},  {"threading", threading},
            {"test", shape.test->name}, {"size", shape.size},    {"window", shape.window},
            {"buffers", shape.buffers}, {"verify", shape.verify}};
  }

  // Checked: it may come over a network.
  static Agreement from(const json& message) {
    Agreement a;
    message.at("provider").get_to(a.provider);
    message.at("threading").get_to(a.threading);
    a.shape.test = &test_named(message.at("test").get<std::string>());
    message.at("size").get_to(a.shape.size);
    message.at("window").get_to(a.shape.window);
    message.at("buffers").get_to(a.shape.buffers);
    message.at("verify").get_to(a.shape.verify);
    if (a.shape.size == 0 || a.shape.size > size_most || a.shape.window == 0 ||
        a.shape.window > window_most || a.shape.buffers == 0 || a.shape.buffers > 2 * window_most) {
      fail("the other side asks for more than is sensible");
    }
    return a;
  }

  SessionRequest request(const std::string& node) const {
    SessionRequest r;
    r.provider = provider;
    r.api = shape.test->api;
    r.size = shape.size;
    r.tx_slots = shape.tx_slots();
    r.rx_slots = shape.rx_slots() + shape.told_slots();
    r.buffers = shape.buffers;
    r.cq_data = shape.test->api == Api::rma && shape.test->unit == Unit::latency && !shape.test->read;
    r.threading = threading;
    r.node = node;
    return r;
  }
};

json introduction(const Session& session) {
  const RemoteMemory memory = session.memory();
  return {{"name", to_hex(session.name())}, {"address", memory.address}, {"key", memory.key}};
}

void connect(Session& session, const json& peer) {
  session.connect(from_hex(peer.at("name").get<std::string>()),
                  {peer.at("address").get<uint64_t>(), peer.at("key").get<uint64_t>()});
}

struct Switches {
  long voluntary = 0, involuntary = 0;
};

Switches switches_now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {usage.ru_nvcsw, usage.ru_nivcsw};
}

// One step on the following side: open, connect, runs, close.
class Follower {
 public:
  Follower(Channel& leader, std::string node, LineTransfer* line)
      : leader_(leader), node_(std::move(node)), line_(line) {}

  // False when the leader has said goodbye.
  bool obey() {
    const auto idle = [this] { runner_->poll(); };
    const json message = runner_ ? leader_.receive(command_limit, idle) : leader_.receive(command_limit);
    const std::string command = message.at("command").get<std::string>();
    if (command == "open") {
      open(message);
    } else if (command == "connect" && session_) {
      connect(*session_, message);
      runner_ = std::make_unique<Runner>(*session_, leader_, shape_);
      runner_->prepare();
      leader_.send({{"ready", true}});
    } else if (command == "run" && runner_) {
      run(message);
    } else if (command == "close") {
      const auto packets = session_ ? session_->packets() : std::nullopt;
      const auto copies = session_ ? session_->copies(shape_.size) : std::nullopt;
      runner_.reset();
      session_.reset();
      leader_.send({{"closed", true}, {"packets", to_json(packets)}, {"copies", to_json(copies)}});
    } else if (command == "line" && line_ != nullptr) {
      (void)line_->time(false);
    } else if (command == "bye") {
      return false;
    } else {
      fail("unexpected command '{}'", command);
    }
    return true;
  }

 private:
  void open(const json& message) {
    const Agreement agreement = Agreement::from(message);
    shape_ = agreement.shape;
    try {
      session_ = std::make_unique<Session>(agreement.request(node_));
      leader_.send(introduction(*session_));
    } catch (const Refused& reason) {
      leader_.send({{"refused", reason.what()}});
    }
  }

  void run(const json& message) {
    leader_.send({{"ready", true}});
    const Switches before = switches_now();
    runner_->run(message.at("warmup").get<uint64_t>(), message.at("iters").get<uint64_t>());
    const Switches after = switches_now();
    leader_.send({{"voluntary", after.voluntary - before.voluntary},
                  {"involuntary", after.involuntary - before.involuntary}});
  }

  Channel& leader_;
  const std::string node_;
  LineTransfer* const line_;
  Shape shape_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Runner> runner_;
};

// One step on the leading side.
class Leader {
 public:
  Leader(Channel& follower, const PerfOptions& options, const Step& step, LineTransfer* line)
      : follower_(follower), options_(options), step_(step), line_(line) {}

  Result measure() {
    open();
    Result result;
    const fi_info& info = session_->info();
    result.provider = text(info.fabric_attr->prov_name);
    result.fabric = text(info.fabric_attr->name);
    result.domain = text(info.domain_attr->name);
    result.test = step_.test->name;
    result.size = step_.size;
    result.unit = step_.test->unit;
    result.operation = runner_->operation();
    result.iters = options_.iters ? options_.iters : calibrate();
    if (step_.test->unit != Unit::latency && !step_.test->is_one_sided()) {
      result.iters = (result.iters + shape_.window - 1) / shape_.window * shape_.window;
    }
    switches_ = {};
    result.line_before_ns = time_line();
    for (unsigned i = 0; i < options_.repeat; ++i) {
      const uint64_t warmup =
          options_.warmup >= 0 ? static_cast<uint64_t>(options_.warmup) : result.iters / 10;
      result.samples.push_back(figure(run(warmup, result.iters), result.iters));
      if (shape_.timed) {
        if (!result.times) result.times.emplace();
        result.times->add(runner_->times());
      }
    }
    result.line_after_ns = time_line();
    result.voluntary_switches = switches_.voluntary;
    result.involuntary_switches = switches_.involuntary;
    result.packets = session_->packets();
    result.copies = session_->copies(step_.size);
    const json closed = close();
    const auto copied = copies_from(closed.value("copies", json()));
    if (copied && (!result.copies || copied->messages() >= result.copies->messages())) result.copies = copied;
    const auto theirs = packets_from(closed.value("packets", json()));
    if (result.packets && theirs) {
      result.packets->sent += theirs->sent;
      result.packets->sent_again += theirs->sent_again;
      result.packets->lost += theirs->lost;
      result.packets->duplicates += theirs->duplicates;
      result.packets->damaged += theirs->damaged;
    }
    return result;
  }

  // After a refusal: the other side may have opened what we could not, or the other way round.
  json close() {
    follower_.send({{"command", "close"}});
    const auto idle = [this] {
      if (runner_) runner_->poll();
    };
    json answer = follower_.receive(answer_limit, idle);
    runner_.reset();
    session_.reset();
    return answer;
  }

 private:
  static std::string text(const char* value) { return value ? value : ""; }

  void open() {
    Agreement agreement;
    agreement.provider = step_.provider;
    agreement.threading = options_.threading;
    agreement.shape = shape_of_step();
    shape_ = agreement.shape;
    shape_.initiator = true;
    shape_.timed = options_.percentiles && step_.test->unit == Unit::latency;
    follower_.send(agreement.message());
    // The answer must be taken even if our own side refuses, or it would be mistaken for the next one.
    std::string refusal;
    agreement.shape.initiator = true;
    try {
      session_ = std::make_unique<Session>(agreement.request(options_.node));
    } catch (const Refused& reason) {
      refusal = reason.what();
    }
    const json peer = follower_.receive(answer_limit);
    if (!refusal.empty()) throw Refused(refusal);
    if (peer.contains("refused")) throw Refused("the other side: " + peer.at("refused").get<std::string>());
    json mine = introduction(*session_);
    mine["command"] = "connect";
    connect(*session_, peer);
    runner_ = std::make_unique<Runner>(*session_, follower_, shape_);
    runner_->prepare();
    follower_.send(mine);
    follower_.receive(answer_limit, [this] { runner_->poll(); });
  }

  Shape shape_of_step() const {
    Shape shape;
    shape.test = step_.test;
    shape.size = step_.size;
    shape.window = options_.window;
    shape.buffers = options_.buffers;
    shape.verify = options_.verify;
    if (shape.verify) {
      // Every message under way needs a buffer of its own, or its bytes would be written over before they are
      // checked.
      const size_t each = std::max<size_t>(step_.size, 64);
      const size_t most = std::max<size_t>(2, verify_memory_most / each / 4);
      shape.window = static_cast<unsigned>(std::min<size_t>(shape.window, most));
      shape.buffers = std::max(8u, 2 * shape.window);
    }
    return shape;
  }

  double time_line() {
    if (line_ == nullptr) return 0;
    follower_.send({{"command", "line"}});
    return line_->time(true);
  }

  double run(uint64_t warmup, uint64_t iters) {
    const auto idle = [this] { runner_->poll(); };
    follower_.send({{"command", "run"}, {"warmup", warmup}, {"iters", iters}});
    follower_.receive(answer_limit, idle);
    const Switches before = switches_now();
    const double seconds = runner_->run(warmup, iters);
    const Switches after = switches_now();
    const json done = follower_.receive(answer_limit, idle);
    switches_.voluntary += after.voluntary - before.voluntary + done.at("voluntary").get<long>();
    switches_.involuntary += after.involuntary - before.involuntary + done.at("involuntary").get<long>();
    return seconds;
  }

  // As many iterations as take about the wanted time. Also the first warming.
  uint64_t calibrate() {
    const double wanted = options_.repeat_ms * 1e-3;
    uint64_t iters = step_.test->unit == Unit::latency ? 16 : shape_.window;
    double seconds = run(iters, iters);
    while (seconds < wanted / 16 && iters < (uint64_t{1} << 32)) {
      iters *= 4;
      seconds = run(0, iters);
    }
    return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(iters) * wanted / seconds));
  }

  double figure(double seconds, uint64_t iters) const {
    const double each = seconds / static_cast<double>(iters);
    switch (step_.test->unit) {
      case Unit::latency:
        return each * 1e9 / (step_.test->is_round_trip() ? 1 : 2);
      case Unit::rate:
        return 1e-6 / each;
      case Unit::bandwidth:
        return static_cast<double>(step_.size) * 1e-9 / each;
    }
    return 0;
  }

  Channel& follower_;
  const PerfOptions& options_;
  const Step step_;
  LineTransfer* const line_;
  Shape shape_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Runner> runner_;
  Switches switches_;
};

// "0", "0-1" or "0,2": the CPUs that share a core with `cpu`. Empty when the kernel does not say.
std::string siblings_of(int cpu) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

void follow(Channel& leader, const std::string& node, LineTransfer* line) {
  Follower follower(leader, node, line);
  try {
    while (follower.obey()) {
    }
  } catch (const std::exception& error) {
    try {
      leader.send({{"error", fmt::format("(on the other side) {}", error.what())}});
    } catch (const Failure&) {
      // It has left already; the first error is the one to tell.
    }
    throw;
  }
}

void lead(Channel& follower, const PerfOptions& options, const std::vector<Step>& steps,
          const Progress& progress, LineTransfer* line) {
  try {
    for (size_t i = 0; i < steps.size(); ++i) {
      progress.begin(steps[i], i, steps.size());
      Leader leader(follower, options, steps[i], line);
      try {
        progress.result(leader.measure());
      } catch (const Refused& reason) {
        (void)leader.close();
        progress.refused(steps[i], reason.what());
      }
    }
    follower.send({{"command", "bye"}});
  } catch (const std::exception& error) {
    try {
      follower.send({{"error", fmt::format("(on the other side) {}", error.what())}});
    } catch (const Failure&) {
      // It has left already; the first error is the one to tell.
    }
    throw;
  }
}

void pin_to(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    fail("cannot pin to CPU {}: {}", cpu, std::strerror(errno));
}

std::pair<int, int> choose_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {-1, -1};
  std::vector<int> cpus;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cpus.push_back(i);
  }
  if (cpus.size() < 2) return {-1, -1};
  const std::string siblings = siblings_of(cpus[0]);
  for (size_t i = 1; i < cpus.size(); ++i) {
    if (siblings.empty() || siblings_of(cpus[i]) != siblings) return {cpus[0], cpus[i]};
  }
  return {cpus[0], cpus[1]};
}

}  // namespace weft::tool
