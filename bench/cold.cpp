// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The first messages of a new connection: a ping-pong between two processes, timed from its first message. Nothing is warmed up but what every program has
// behind it by then: an empty message each way. Written against the public interface alone. bench/cold.py runs it.
//
//   cold --help
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "tagged_endpoint.hpp"

namespace {

struct Options {
  std::string provider = "shm", node;
  size_t size = 8;
  unsigned messages = 1000, seconds = 20;
  std::array<int, 2> cpus{-1, -1};
};

constexpr size_t name_most = 128;

struct Shared {
  std::atomic<uint32_t> named, ended;
  std::array<int64_t, 2> waited_ns;
  std::array<size_t, 2> length;
  std::array<std::array<char, name_most>, 2> name;
};

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

using weft::bench::die;
using weft::bench::must;

void pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

long faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Time that this thread was ready to run and waited for a CPU (Documentation/scheduler/sched-stats.rst); 0 when the kernel does not say.
int64_t waited_ns() {
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t ran = 0, waited = 0;
  file >> ran >> waited;
  return waited;
}

class Endpoint : weft::bench::TaggedEndpoint {
 public:
  explicit Endpoint(const Options& o)
      : TaggedEndpoint(o.provider, o.node, FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
                       256),
        deadline_us_(now_us() + o.seconds * 1e6) {}
  void name(Shared& shared, size_t side) {
    shared.length[side] = name_most;
    must("fi_getname", fi_getname(&ep->fid, shared.name[side].data(), &shared.length[side]));
  }
  void meet(const Shared& shared, size_t other) {
    if (fi_av_insert(av, shared.name[other].data(), 1, &peer_, 0, nullptr) != 1)
      die("fi_av_insert", -FI_EINVAL);
  }
  void buffers(size_t size) {
    out_.assign(std::max<size_t>(size, 1), 1);
    in_.assign(std::max<size_t>(size, 1), 0);
    if ((info->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return;
    for (auto& [bytes, region] : {std::pair{&out_, &out_region_}, std::pair{&in_, &in_region_}}) {
      must("fi_mr_reg", fi_mr_reg(domain, bytes->data(), bytes->size(), FI_SEND | FI_RECV, 0, next_key_++, 0,
                                  region, nullptr));
    }
  }
  void post(size_t bytes) {
    again("fi_trecv", [&] {
      return fi_trecv(ep, in_.data(), bytes, descriptor(in_region_), FI_ADDR_UNSPEC, 1, 0, &receiving_);
    });
  }
  void send(size_t bytes) {
    again("fi_tsend",
          [&] { return fi_tsend(ep, out_.data(), bytes, descriptor(out_region_), peer_, 1, &sending_); });
    ++to_complete_;
  }
  // Until the receive and all sends are complete.
  void wait() {
    ++to_complete_;
    for (unsigned looks = 1; to_complete_ != 0; ++looks) {
      fi_cq_tagged_entry entry{};
      const ssize_t n = fi_cq_read(cq, &entry, 1);
      if (n == 1) --to_complete_;
      else if (n != -FI_EAGAIN) die("fi_cq_read", n);
      else if (looks % 4096 == 0 && now_us() > deadline_us_) die("gave up waiting", -FI_ETIMEDOUT);
    }
  }
  // Until the other side has gone, too.
  void drive() { (void)fi_cq_read(cq, nullptr, 0); }

 private:
  static void* descriptor(fid_mr* region) { return region != nullptr ? fi_mr_desc(region) : nullptr; }
  template <class Call>
  void again(const char* what, Call&& call) {
    for (;;) {
      const ssize_t rc = call();
      if (rc == 0) return;
      if (rc != -FI_EAGAIN || now_us() > deadline_us_) die(what, rc);
      drive();
    }
  }

  double deadline_us_;
  fi_addr_t peer_ = FI_ADDR_NOTAVAIL;
  std::vector<char> out_, in_;
  fid_mr *out_region_ = nullptr, *in_region_ = nullptr;
  uint64_t next_key_ = 1;
  unsigned to_complete_ = 0;
  fi_context receiving_{}, sending_{};
};

void play(const Options& o, Shared& shared, size_t side) {
  pin(o.cpus[side]);
  Endpoint ep(o);
  ep.buffers(o.size);
  ep.name(shared, side);
  shared.named.fetch_add(1);
  while (shared.named.load() < 2) sched_yield();
  const double begin = now_us();
  ep.meet(shared, 1 - side);
  const auto turn = [&](size_t bytes) {  // the receive for it is posted
    if (side == 0) ep.send(bytes);
    ep.wait();
    if (side == 0) {
      ep.post(o.size);
      return;
    }
    ep.post(o.size);
    ep.send(bytes);
  };
  ep.post(o.size);
  turn(0);
  std::vector<double> at(o.messages + 1);
  std::array<long, 2> seen{faults(), 0};
  const int64_t waited = waited_ns();
  at[0] = now_us();
  for (unsigned i = 1; i <= o.messages; ++i) {
    turn(o.size);
    at[i] = now_us();
  }
  seen[1] = faults();
  shared.waited_ns[side] = waited_ns() - waited;
  shared.ended.fetch_add(1);
  while (shared.ended.load() < 2) ep.drive();
  if (side == 0) {
    const double waited_us = static_cast<double>(shared.waited_ns[0] + shared.waited_ns[1]) * 1e-3;
    std::printf("{\"meeting_us\": %.2f, \"faults\": %ld, \"waited\": %.4f, \"us\": {", at[0] - begin,
                seen[1] - seen[0], waited_us / (at[o.messages] - at[0]));
    const char* comma = "";
    for (unsigned n = 10; n <= o.messages; n *= 10, comma = ", ")
      std::printf("%s\"%u\": %.3f", comma, n, (at[n] - at[0]) / n / 2);
    const unsigned half = o.messages / 2;
    std::printf(", \"last\": %.3f}}\n", (at[o.messages] - at[half]) / (o.messages - half) / 2);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("The first messages between two processes", "cold");
  app.add_option("-p,--provider", o.provider);
  app.add_option("--node", o.node, "source address of providers that go over the network");
  app.add_option("-s,--size", o.size, "bytes of a message");
  app.add_option("-n,--messages", o.messages, "ping-pongs; the means of the first 10, 100, ... are printed");
  app.add_option("--seconds", o.seconds, "limit");
  weft::bench::add_cpus(app, o.cpus);
  weft::bench::read_command_line(app, argc, argv);
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) die("mmap", -FI_ENOMEM);
  auto* shared = new (at) Shared{};
  std::array<pid_t, 2> children{};
  for (size_t side = 0; side < 2; ++side) {
    children[side] = fork();
    if (children[side] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      play(o, *shared, side);
      std::_Exit(0);
    }
  }
  int failed = 0;
  for (int left = 2; left > 0; --left) {
    int status = 0;
    if (waitpid(-1, &status, 0) < 0 || status != 0) {
      failed = 1;
      for (const pid_t child : children) kill(child, SIGKILL);
    }
  }
  return failed;
}
