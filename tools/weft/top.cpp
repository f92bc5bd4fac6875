// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft top`: reads statistics pages, and shows them again and again.
#include "top.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <weft/statistics_text.hpp>

#include "cli.hpp"
#include "failure.hpp"
#include "statistics_pages.hpp"
#include "top_table.hpp"

namespace weft::tool {

namespace {

struct Options {
  bool once = false, json = false, metrics = false;
  double interval_s = 1;
  std::vector<int> pids;
};

void declare(CLI::App& app, Options& o) {
  app.add_flag("-1,--once", o.once, "Once, with totals instead of rates");
  app.add_flag("-j,--json", o.json, "All values as JSON, one document each time");
  app.add_flag("-m,--metrics", o.metrics, "All values in the text format of Prometheus; once");
  app.add_option("-i,--interval", o.interval_s, "Seconds between two looks (1)")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("-p,--pid", o.pids, "These processes only")->check(CLI::PositiveNumber);
  set_manual(app, {R"(NAME
  weft top - endpoints, verbs devices and queue pairs of running programs

SYNOPSIS
  weft top [-i SECONDS] [-p PID]...
  weft top --once [--json] [-p PID]...
  weft top --metrics [-p PID]...

DESCRIPTION
  Shows what the processes of this user that run on Weft are doing: a line for each libfabric endpoint and, below
  it, each path of it that counts for itself (shm, tcp, ofi_rxd), each verbs device, and each queue pair. On a terminal it refreshes until q
  is pressed. The programs need no setting for it, are not stopped and do not wait for it; their numbers are at most
  a tenth of a second old while they use the library (a second over ofi_rxd).

  OUT, IN      messages (of endpoints), packets (of queue pairs, devices and ofi_rxd) or frames (of shm and tcp)
  B OUT, B IN  bytes of payload; of shm what has no room in a slot of the ring (48 bytes)
  AGAIN        packets sent again
  NAK          negative acknowledgements, sent and received
  ICRC         packets dropped for a wrong ICRC
  LOST         packets found lost
  SEND/RECV/COMP  requests posted to send, to receive, and completions that nobody polled; of the path shm
               frames that the peers have not read
  WHERE        addresses; of a queue pair its peer and the way there

  The first four are rates, totals with --once; the others are totals. WEFT_STATS=FILE in the environment of
  a program writes the same at its exit: as --json, or as --metrics when FILE ends in .prom.
)",
                   R"(EXIT STATUS
  0, also when no process shows anything; 1 if /proc is missing; 2 if the command line makes no sense.

EXAMPLES
  weft top
  weft top --once --json | jq '.processes[].objects[] | select(.retransmissions > 0)'
  cd /var/lib/node_exporter && weft top --metrics > weft.new && mv weft.new weft.prom
)"});
}

uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

volatile sig_atomic_t was_interrupted = 0;

// Keys come one by one and are not shown, until it goes.
class Terminal {
 public:
  Terminal() {
    is_screen_ = isatty(STDOUT_FILENO) != 0;
    has_keys_ = is_screen_ && isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!has_keys_) return;
    struct sigaction action {};
    action.sa_handler = [](int) { was_interrupted = 1; };
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  bool is_screen() const noexcept { return is_screen_; }

  void show(const std::vector<std::string>& lines) const {
    winsize size{};
    const bool known =
        is_screen_ && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 && size.ws_col > 0;
    const size_t rows = known ? size.ws_row - 1U : lines.size();
    std::string text = is_screen_ ? "\x1b[H\x1b[J" : "";
    for (size_t i = 0; i < std::min(rows, lines.size()); ++i)
      text.append(known ? lines[i].substr(0, size.ws_col) : lines[i]).append("\n");
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  // False: the user has had enough.
  bool wait(double seconds) const {
    const uint64_t until = now_ns(CLOCK_MONOTONIC) + static_cast<uint64_t>(seconds * 1e9);
    for (uint64_t now = 0; was_interrupted == 0 && (now = now_ns(CLOCK_MONOTONIC)) < until;) {
      pollfd key{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
      if (poll(&key, 1, static_cast<int>((until - now) / 1'000'000 + 1)) <= 0) continue;
      char pressed = 0;
      if (read(STDIN_FILENO, &pressed, 1) <= 0 || pressed == 'q' || pressed == 'Q') return false;
    }
    return was_interrupted == 0;
  }

 private:
  bool is_screen_ = false;
  bool has_keys_ = false;
  termios before_{};
};

void print_json(const std::vector<statistics::Process>& processes) {
  fmt::print("{}", statistics::to_json(processes, now_ns(CLOCK_REALTIME)));
  std::fflush(stdout);
}

}  // namespace

int top(int argc, char** argv) {
  CLI::App app("weft top", "top");
  Options options;
  declare(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (options.json && options.metrics) fail_usage("--json and --metrics are two formats");
  const std::set<int> pids(options.pids.begin(), options.pids.end());
  if (options.metrics) {
    fmt::print("{}", statistics::to_metrics(read_statistics_pages(pids)));
    return exit_ok;
  }
  const Terminal terminal;
  TopTable table;
  do {
    const auto processes = read_statistics_pages(pids);
    if (options.json) {
      print_json(processes);
      continue;
    }
    std::vector<std::string> lines = table.lines(processes, now_ns(CLOCK_MONOTONIC), options.once);
    if (lines.size() == 1) lines.emplace_back("no process of this user shows anything");
    terminal.show(lines);
  } while (!options.once && std::ferror(stdout) == 0 && terminal.wait(options.interval_s));
  return exit_ok;
}

}  // namespace weft::tool
