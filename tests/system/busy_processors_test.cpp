// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two processes exchange messages, each pinned to a CPU that it shares with a thread that computes. A yield there costs a slice of the scheduler, so
// the library makes few of them: the test counts the calls of sched_yield(2) that took long, not the time of an exchange.
//
//   busy_processors_test [--provider shm] [--ms 400]
#include <sys/syscall.h>

#include "peer.hpp"

namespace {

std::atomic<uint64_t> yields{0};
std::atomic<uint64_t> long_yields{0};

}  // namespace

// In the place of the C library's, for the library under test (CMake exports the symbol).
extern "C" [[gnu::visibility("default")]] int sched_yield() {
  const auto start = weft::system_test::Clock::now();
  const auto status = static_cast<int>(syscall(SYS_sched_yield));
  ++yields;
  if (weft::system_test::Clock::now() - start > std::chrono::milliseconds(1)) ++long_yields;
  return status;
}

namespace weft::system_test {
namespace {

// core/yield_policy.hpp: a pause of 10 ms after the first long yield, each one twice as long, at most 500 ms: six in 400 ms, and more where other programs
// come and go. A yield after each 64 empty polls makes hundreds.
constexpr uint64_t long_yields_max(long ms) { return 20 + static_cast<uint64_t>(ms) / 100; }

struct Board {
  Name name[2];
  std::atomic<unsigned> ready{0};
  std::atomic<uint64_t> exchanges{0};
  std::atomic<uint64_t> yields[2] = {};
  std::atomic<uint64_t> long_yields[2] = {};
  std::atomic<long> ms[2] = {};
};

bool pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

std::vector<int> usable_processors() {
  std::vector<int> out;
  cpu_set_t may;
  if (sched_getaffinity(0, sizeof may, &may) != 0) return out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &may)) out.push_back(cpu);
  return out;
}

// Waits by polling without a yield of its own, which would be counted.
template <class F>
bool spin_until(F&& done) {
  const auto start = Clock::now();
  for (unsigned i = 0; !done(); ++i)
    if (i % 4096 == 4095 && ms_since(start) > 60'000) return false;
  return true;
}

int member(Board& board, const std::string& provider, size_t mine, int cpu, size_t bytes, long run_ms) {
  if (!pin(cpu)) return 77;
  std::vector<uint8_t> out(bytes), in(bytes);
  Peer me(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
  if (!me.ok()) return 1;
  me.publish(board.name[mine]);
  const fi_addr_t to = me.reach(board.name[1 - mine]);
  if (to == FI_ADDR_NOTAVAIL) return 1;
  ++board.ready;
  const auto all_ready = [&] {
    me.poll(Op::take);
    return board.ready == 2;
  };
  if (!spin_until(all_ready)) return 1;
  // The first byte says whether another exchange follows.
  const auto send = [&](Op& op, bool more) {
    out[0] = more ? 1 : 0;
    ssize_t rc = -FI_EAGAIN;
    const auto posted = [&] {
      rc = fi_tsend(me.ep(), out.data(), bytes, nullptr, to, 1, &op.context);
      if (rc == -FI_EAGAIN) me.poll(Op::take);
      return rc != -FI_EAGAIN;
    };
    return spin_until(posted) && rc == 0;
  };
  const auto done = [&](const Op& op) {
    return spin_until([&] {
             me.poll(Op::take);
             return op.state != 0;
           }) &&
           op.state == 1;
  };
  const auto start = Clock::now();
  const uint64_t yields_before = yields;
  const uint64_t long_before = long_yields;
  uint64_t exchanges = 0;
  for (bool more = true; more; ++exchanges) {
    Op receive, sent;
    if (fi_trecv(me.ep(), in.data(), bytes, nullptr, FI_ADDR_UNSPEC, 1, 0, &receive.context) != 0) return 1;
    if (mine == 0) {
      more = ms_since(start) < run_ms;
      if (!send(sent, more)) return 1;
    }
    if (!done(receive)) return 1;
    if (mine == 1) {
      more = in[0] != 0;
      if (!send(sent, more)) return 1;
    }
    if (!done(sent)) return 1;
  }
  board.exchanges = exchanges;
  board.yields[mine] = yields - yields_before;
  board.long_yields[mine] = long_yields - long_before;
  board.ms[mine] = ms_since(start);
  // The peer may still wait for what this endpoint sent.
  board.ready += 2;
  return spin_until([&] {
    me.poll(Op::take);
    return board.ready == 6;
  })
             ? 0
             : 1;
}

struct Result {
  int rc = 0;
  uint64_t yields = 0;
  uint64_t long_yields = 0;  // of the process that has more
  long ms = 0;
};

Result run(const std::string& provider, const char* mode, size_t bytes, long run_ms, const int (&cpus)[2]) {
  auto* board = shared_block<Board>();
  pid_t pids[2];
  for (size_t i = 0; i < 2; ++i) {
    pids[i] = spawn([&, i] {
      setenv("WEFT_YIELD", mode, 1);
      return member(*board, provider, i, cpus[i], bytes, run_ms);
    });
  }
  Result out;
  for (const pid_t pid : pids) {
    const int rc = join(pid, milliseconds(60'000));
    if (rc != 0) out.rc = rc;
  }
  for (size_t i = 0; i < 2; ++i) {
    out.yields += board->yields[i];
    out.long_yields = std::max(out.long_yields, board->long_yields[i].load());
    out.ms = std::max(out.ms, board->ms[i].load());
  }
  std::printf("busy_processors_test: %s, %zu B, %s: %llu exchanges in %ld ms, %llu yields, %llu long ones\n",
              provider.c_str(), bytes, mode, static_cast<unsigned long long>(board->exchanges), out.ms,
              static_cast<unsigned long long>(out.yields), static_cast<unsigned long long>(out.long_yields));
  std::fflush(stdout);
  munmap(board, sizeof(Board));
  return out;
}

int fail(const char* why) {
  std::printf("busy_processors_test: FAILED: %s\n", why);
  return 1;
}

int check(const std::string& provider, size_t bytes, long run_ms, const int (&cpus)[2]) {
  const Result automatic = run(provider, "auto", bytes, run_ms, cpus);
  if (automatic.rc != 0) return automatic.rc;
  if (automatic.long_yields > long_yields_max(automatic.ms)) return fail("the CPU was given away too often");
  const Result never = run(provider, "never", bytes, run_ms / 4, cpus);
  if (never.rc != 0) return never.rc;
  return never.yields == 0 ? 0 : fail("WEFT_YIELD=never yields");
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  alarm(140);
  const std::vector<int> usable = usable_processors();
  if (usable.size() < 2) return 77;
  const int cpus[2] = {usable[0], usable[1]};
  std::vector<pid_t> busy;
  for (const int cpu : cpus) {
    busy.push_back(spawn([cpu] {
      if (!pin(cpu)) return 1;
      for (volatile uint64_t count = 0;;) count = count + 1;
    }));
  }
  const std::string only = arguments.text("provider", "");
  const auto run_ms = static_cast<long>(arguments.number("ms", 400));
  int rc = 0;
  for (const char* provider : {"shm", "weft", "tcp"}) {
    if (!only.empty() && only != provider) continue;
    for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{65536}})
      if (rc == 0) rc = check(provider, bytes, run_ms, cpus);
  }
  // The count counts.
  if (rc == 0 && run(only.empty() ? "shm" : only, "always", 8, run_ms, cpus).yields == 0)
    rc = fail("no call of sched_yield(2) was seen");
  for (const pid_t pid : busy) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  if (rc == 0) std::printf("busy_processors_test: passed\n");
  return rc;
}
