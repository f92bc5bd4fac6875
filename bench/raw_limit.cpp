// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What two cores can do with bare shared memory and nothing of ours: the limits that every figure is compared
// with.
// Two pinned processes over anonymous shared memory. Prints one JSON object. Knows no fabric.
//
//   raw_limit [--cpus A,B] [--time MS] [--line]
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "command_line.hpp"

namespace {

constexpr unsigned give_up_s =
    60;  // SIGALRM ends either process: whoever waits for a dead one does not wait for ever

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "raw_limit: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

double seconds_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// A word alone in its cache line, and alone in the pair that the prefetcher fetches.
struct alignas(256) Line {
  std::atomic<uint64_t> word{0};
};

constexpr size_t slot_count = 1024;
constexpr size_t ring_bytes = 1 << 20;
constexpr size_t message_bytes = 1 << 20;
constexpr size_t chunks_most = 64;

struct alignas(64) Slot {
  uint64_t payload[7];
  std::atomic<uint64_t> sequence;
};

struct Shared {
  Line ping, pong;
  Line stage_a, stage_b;  // barriers between the tests
  Line published;
  Slot slots[slot_count];
  Line chunk_full[chunks_most], chunk_free[chunks_most];
  alignas(4096) std::byte ring[ring_bytes];
  alignas(4096) std::byte back[ring_bytes];
};

// One of the two processes. Both run the same tests in the same order with the same counts.
struct Side {
  Shared* shared;
  bool leads;
  pid_t peer;         // whose memory the leader reads
  std::byte* buffer;  // message_bytes; mapped before the fork, so at the same address in both
  uint64_t stage = 0;

  void meet() {
    ++stage;
    auto& mine = leads ? shared->stage_a : shared->stage_b;
    auto& other = leads ? shared->stage_b : shared->stage_a;
    mine.word.store(stage, std::memory_order_release);
    while (other.word.load(std::memory_order_acquire) < stage) pause_cpu();
  }
};

// Runs `work(count)` on both sides with a count that takes about `wanted` seconds; returns the seconds for
// one.
// The leader finds the count and tells it by way of a line that is not used otherwise.
template <class Work>
double timed(Side& side, double wanted, uint64_t first, Work&& work) {
  auto& published = side.shared->published;
  uint64_t count = first;
  double spent = 0;
  while (true) {
    if (side.leads) published.word.store(count, std::memory_order_release);
    side.meet();
    count = published.word.load(std::memory_order_acquire);
    side.meet();
    if (count == 0) return spent;
    const double begin = seconds_now();
    work(count);
    side.meet();
    const double took = seconds_now() - begin;
    if (side.leads) {
      spent = took / static_cast<double>(count);
      count = took >= wanted * 0.5   ? 0
              : took < wanted * 0.05 ? count * 8
                                     : static_cast<uint64_t>(wanted / spent) + 1;
    }
  }
}

// One way: the time in which a line written here is seen there.
double cache_line(Side& side, double wanted) {
  uint64_t at = 0;
  side.meet();
  if (side.leads) {
    side.shared->ping.word = 0;
    side.shared->pong.word = 0;
  }
  side.meet();
  const double each = timed(side, wanted, 1000, [&](uint64_t count) {
    auto& ping = side.shared->ping.word;
    auto& pong = side.shared->pong.word;
    for (uint64_t i = 0; i < count; ++i) {
      ++at;
      if (side.leads) {
        ping.store(at, std::memory_order_release);
        while (pong.load(std::memory_order_acquire) != at) {
        }
      } else {
        while (ping.load(std::memory_order_acquire) != at) {
        }
        pong.store(at, std::memory_order_release);
      }
    }
  });
  return each / 2;
}

// 64-byte slots in one direction; the reader says every quarter of the ring how far it is.
double stream(Side& side, double wanted) {
  uint64_t at = 0;
  uint64_t seen = 0, sum = 0;
  auto& read = side.shared->pong.word;
  side.meet();
  if (side.leads) {
    read = 0;
    for (Slot& slot : side.shared->slots) slot.sequence = 0;
  }
  side.meet();
  return timed(side, wanted, 4096, [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, ++at) {
      Slot& slot = side.shared->slots[at % slot_count];
      if (side.leads) {
        while (at - seen >= slot_count) seen = read.load(std::memory_order_acquire);
        for (uint64_t& word : slot.payload) word = at;
        slot.sequence.store(at + 1, std::memory_order_release);
      } else {
        while (slot.sequence.load(std::memory_order_acquire) != at + 1) {
        }
        for (const uint64_t word : slot.payload) sum += word;
        if ((at + 1) % (slot_count / 4) == 0) read.store(at + 1, std::memory_order_release);
      }
    }
    if (!side.leads) read.store(at, std::memory_order_release);
    asm volatile("" ::"r"(sum));
  });
}

// Messages through a ring of chunks: one core copies in while the other copies out.
class Copier {
 public:
  Copier(Side& side, size_t chunk, size_t chunks) : side_(side), chunk_(chunk), chunks_(chunks) {
    side_.meet();
    if (side_.leads) {
      for (Line& line : side_.shared->chunk_full) line.word = 0;
      for (Line& line : side_.shared->chunk_free) line.word = 0;
    }
    side_.meet();
  }

  // Sends or receives one message of `bytes` on `ring`.
  void send(std::byte* ring, const std::byte* from, size_t bytes) {
    for (size_t done = 0; done < bytes; done += chunk_, ++at_) {
      const size_t i = at_ % chunks_;
      const uint64_t round = at_ / chunks_;
      while (side_.shared->chunk_free[i].word.load(std::memory_order_acquire) != round) pause_cpu();
      std::memcpy(ring + i * chunk_, from + done, chunk_);
      side_.shared->chunk_full[i].word.store(round + 1, std::memory_order_release);
    }
  }
  void receive(const std::byte* ring, std::byte* to, size_t bytes) {
    for (size_t done = 0; done < bytes; done += chunk_, ++at_) {
      const size_t i = at_ % chunks_;
      const uint64_t round = at_ / chunks_;
      while (side_.shared->chunk_full[i].word.load(std::memory_order_acquire) != round + 1) pause_cpu();
      std::memcpy(to + done, ring + i * chunk_, chunk_);
      side_.shared->chunk_free[i].word.store(round + 1, std::memory_order_release);
    }
  }

 private:
  Side& side_;
  const size_t chunk_, chunks_;
  uint64_t at_ = 0;
};

double ring_copy(Side& side, double wanted, size_t chunk, size_t chunks) {
  Copier copier(side, chunk, chunks);
  return timed(side, wanted, 4, [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (side.leads) {
        copier.send(side.shared->ring, side.buffer, message_bytes);
      } else {
        copier.receive(side.shared->ring, side.buffer, message_bytes);
      }
    }
  });
}

// A message there and back through the chunks; the same chunks serve both ways, as only one message is under
// way.
double ring_pingpong(Side& side, double wanted, size_t chunk, size_t chunks, size_t bytes) {
  Copier copier(side, chunk, chunks);
  const double each = timed(side, wanted, 16, [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (side.leads) {
        copier.send(side.shared->ring, side.buffer, bytes);
        copier.receive(side.shared->back, side.buffer, bytes);
      } else {
        copier.receive(side.shared->ring, side.buffer, bytes);
        copier.send(side.shared->back, side.buffer, bytes);
      }
    }
  });
  return each / 2;
}

// The kernel copies out of the other process, on one core. 0 where it may not.
double cma(Side& side, double wanted, size_t bytes) {
  std::vector<std::byte> to(bytes, std::byte{1});
  bool works = true;
  const double each = timed(side, wanted, 16, [&](uint64_t count) {
    for (uint64_t i = 0; side.leads && works && i < count; ++i) {
      iovec local{to.data(), bytes}, remote{side.buffer, bytes};
      works = process_vm_readv(side.peer, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
    }
  });
  return works ? static_cast<double>(bytes) / each * 1e-9 : 0;
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

struct Figures {
  double line = 0, slot = 0, copy_4k = 0, copy_16k = 0, copy_64k = 0, back_64k = 0, cma_64k = 0, cma_1m = 0;
};

Figures measure(Side side, double wanted, bool line_only) {
  const auto rate = [](double each) {
    return each > 0 ? static_cast<double>(message_bytes) / each * 1e-9 : 0;
  };
  Figures f;
  f.line = cache_line(side, wanted);
  if (line_only) return f;
  f.slot = stream(side, wanted);
  f.copy_4k = rate(ring_copy(side, wanted, 4 << 10, 4));
  f.copy_16k = rate(ring_copy(side, wanted, 16 << 10, 4));
  f.copy_64k = rate(ring_copy(side, wanted, 64 << 10, 8));
  f.back_64k = ring_pingpong(side, wanted, 8 << 10, 8, 64 << 10);
  f.cma_64k = cma(side, wanted, 64 << 10);
  f.cma_1m = cma(side, wanted, 1 << 20);
  return f;
}

void print(const Figures& f) {
  const double best = f.copy_4k > f.copy_16k ? (f.copy_4k > f.copy_64k ? f.copy_4k : f.copy_64k)
                                             : (f.copy_16k > f.copy_64k ? f.copy_16k : f.copy_64k);
  std::printf(
      "{\"line_ns\": %.2f, \"slot_mps\": %.2f, \"copy_4k_x4_gbs\": %.2f, \"copy_16k_x4_gbs\": %.2f, "
      "\"copy_64k_x8_gbs\": %.2f, \"copy_best_gbs\": %.2f, \"copy_64k_oneway_ns\": %.0f, \"cma_64k_gbs\": "
      "%.2f, "
      "\"cma_1m_gbs\": %.2f}\n",
      f.line * 1e9, 1e-6 / f.slot, f.copy_4k, f.copy_16k, f.copy_64k, best, f.back_64k * 1e9, f.cma_64k,
      f.cma_1m);
}

}  // namespace

int main(int argc, char** argv) {
  std::array<int, 2> cpus{0, 1};
  int time_ms = 60;
  CLI::App app("What two processors can do with bare shared memory", "raw_limit");
  weft::bench::add_cpus(app, cpus);
  app.add_option("--time", time_ms, "milliseconds of a measurement")->check(CLI::Range(1, 60'000));
  bool line_only = false;
  app.add_flag("--line", line_only, "the cache line alone");
  weft::bench::read_command_line(app, argc, argv);
  const auto map = [](size_t bytes, int flags) {
    void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (got == MAP_FAILED) die("mmap");
    return got;
  };
  Side side{new (map(sizeof(Shared), MAP_SHARED)) Shared, true, 0,
            static_cast<std::byte*>(map(message_bytes, MAP_PRIVATE))};
  const pid_t child = fork();
  if (child < 0) die("fork");
  alarm(give_up_s);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // for process_vm_readv under Yama; fails where there is none
    side.leads = false;
  } else {
    side.peer = child;
  }
  pin(side.leads ? cpus[0] : cpus[1]);
  std::memset(side.buffer, side.leads ? 1 : 2, message_bytes);
  const Figures figures = measure(side, time_ms * 1e-3, line_only);
  if (child == 0) _exit(0);
  if (line_only) std::printf("{\"line_ns\": %.2f}\n", figures.line * 1e9);
  else print(figures);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
