// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Four processes that poll share one CPU, or two, and pass a token round: after empty polls a process yields to the one that has something to do, so
// that a hop takes microseconds. Without that each waits for the slices of the others, several ms a hop.
//
//   oversubscribed_test [--provider shm] [--laps 200] [--hop-us 1000]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t processes = 4;

struct Board {
  Name name[processes];
  std::atomic<unsigned> ready{0};
  std::atomic<unsigned> finished{0};
  std::atomic<long> ms{0};
};

// The first `count` of those that this process may use. False: it has fewer.
bool pin_to(const cpu_set_t& may, int count) {
  cpu_set_t first;
  CPU_ZERO(&first);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) < count; ++cpu)
    if (CPU_ISSET(cpu, &may)) CPU_SET(cpu, &first);
  return CPU_COUNT(&first) == count && sched_setaffinity(0, sizeof first, &first) == 0;
}

int member(Board& board, const std::string& provider, size_t mine, fi_threading threading, uint64_t laps) {
  Peer me(provider, FI_TAGGED, threading);
  if (!me.ok()) return 1;
  me.publish(board.name[mine]);
  const fi_addr_t to = me.reach(board.name[(mine + 1) % processes]);
  if (to == FI_ADDR_NOTAVAIL) return 1;
  const auto all = [&](const std::atomic<unsigned>& count) {
    return eventually([&] {
      me.poll(Op::take);
      return count == processes;
    });
  };
  ++board.ready;
  if (!all(board.ready)) return 1;
  const auto start = Clock::now();
  const auto pass = [&](uint64_t lap, uint64_t value) {
    return me.post([&] { return fi_tinject(me.ep(), &value, sizeof value, to, lap); }, Op::take) == 0;
  };
  if (mine == 0 && !pass(0, 0)) return 1;
  for (uint64_t lap = 0; lap < laps; ++lap) {
    Op receive;
    uint64_t token = 0;
    const auto take = [&] {
      return fi_trecv(me.ep(), &token, sizeof token, nullptr, FI_ADDR_UNSPEC, lap, 0, &receive.context);
    };
    if (me.post(take, Op::take) != 0) return 1;
    while (receive.state == 0 && ms_since(start) < 60'000) me.poll(Op::take);
    if (receive.state != 1 || token != lap * processes + (mine + processes - 1) % processes) {
      std::fprintf(stderr, "oversubscribed_test: process %zu, lap %llu: state %d, token %llu\n", mine,
                   static_cast<unsigned long long>(lap), receive.state,
                   static_cast<unsigned long long>(token));
      return 1;
    }
    const uint64_t next_lap = mine == 0 ? lap + 1 : lap;
    if (next_lap < laps && !pass(next_lap, token + 1)) return 1;
  }
  if (mine == 0) board.ms = ms_since(start);
  ++board.finished;
  return all(board.finished) ? 0 : 1;
}

int run(const std::string& provider, int processors, fi_threading threading, uint64_t laps, uint64_t hop_us) {
  auto* board = shared_block<Board>();
  pid_t pids[processes];
  for (size_t i = 0; i < processes; ++i)
    pids[i] = spawn([&, i] { return member(*board, provider, i, threading, laps); });
  int rc = 0;
  for (const pid_t pid : pids) {
    if (join(pid, milliseconds(70'000)) != 0) rc = 1;
  }
  const double us = 1000.0 * static_cast<double>(board->ms) / static_cast<double>(laps * processes);
  if (us > static_cast<double>(hop_us)) rc = 1;
  std::printf("oversubscribed_test: %s, %d CPUs, %s: %.0f us a hop, %s\n", provider.c_str(), processors,
              threading == FI_THREAD_SAFE ? "FI_THREAD_SAFE" : "FI_THREAD_DOMAIN", us,
              rc == 0 ? "passed" : "FAILED");
  return rc;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  alarm(140);
  cpu_set_t may;
  if (sched_getaffinity(0, sizeof may, &may) != 0) return 77;
  int rc = 0;
  for (const int processors : {1, 2}) {
    if (!pin_to(may, processors)) break;
    for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN}) {
      rc |= run(arguments.provider(), processors, threading, arguments.number("laps", 200),
                arguments.number("hop-us", 1000));
    }
  }
  return rc;
}
