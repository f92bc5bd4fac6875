// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a message costs that is written and taken in place (weft/extensions.h), beside one that is sent and received. Two pinned processes over
// shm. Each payload is made by the sender and added up by the receiver, in both ways, so what differs is the copies and the calls. Prints one
// JSON object: for each size the time one way (ns) and the bandwidth of a stream (GB/s). Knows the public interface alone.
//
//   in_place_messages [--cpus A,B] [--time MS]
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <weft/extensions.h>

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "command_line.hpp"

namespace {

constexpr unsigned give_up_s = 60;  // SIGALRM ends either process
constexpr size_t window = 64;
constexpr uint64_t tag = 7;

void check(const char* what, long status) {
  if (status >= 0) return;
  std::fprintf(stderr, "in_place_messages: %s: %s\n", what, fi_strerror(static_cast<int>(-status)));
  std::exit(1);
}

double now_s() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Job {
  size_t bytes = 0;
  size_t count = 0;  // 0: the end
  bool in_place = false;
  bool stream = false;  // else there and back
};

struct Shared {
  std::atomic<uint32_t> name_bytes[2] = {};
  char name[2][256] = {};
  Job job;
  std::atomic<uint64_t> given{0};  // jobs
  std::atomic<uint64_t> ready{0};
};

template <class T>
T sized() {
  T made{};
  made.size = sizeof(T);
  return made;
}

class Side {
 public:
  Side(Shared& shared, int mine) {
    fi_info* hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup("shm");
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info_));
    fi_freeinfo(hints);
    check("fi_fabric", fi_fabric(info_->fabric_attr, &fabric_, nullptr));
    check("fi_domain", fi_domain(fabric_, info_, &domain_, nullptr));
    fi_av_attr av{};
    check("fi_av_open", fi_av_open(domain_, &av, &av_, nullptr));
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_TAGGED;
    check("fi_cq_open", fi_cq_open(domain_, &cq, &cq_, nullptr));
    check("fi_endpoint", fi_endpoint(domain_, info_, &ep_, nullptr));
    check("fi_ep_bind", fi_ep_bind(ep_, &av_->fid, 0));
    check("fi_ep_bind", fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV));
    check("fi_enable", fi_enable(ep_));
    check("weft_shm_open", weft_shm_open(ep_, &ops_));
    limits_ = sized<weft_shm_limits>();
    check("weft_shm_query_limits", weft_shm_query_limits(ops_, ep_, &limits_));
    size_t bytes = sizeof shared.name[mine];
    check("fi_getname", fi_getname(&ep_->fid, shared.name[mine], &bytes));
    shared.name_bytes[mine] = static_cast<uint32_t>(bytes);
    while (shared.name_bytes[1 - mine] == 0) sched_yield();
    if (fi_av_insert(av_, shared.name[1 - mine], 1, &peer_, 0, nullptr) != 1)
      check("fi_av_insert", -FI_EINVAL);
    for (auto* buffers : {&out_, &in_})
      buffers->assign(window, std::vector<uint64_t>(limits_.write_max / sizeof(uint64_t) + 1));
  }
  ~Side() {
    fi_close(&ep_->fid);
    fi_close(&cq_->fid);
    fi_close(&av_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  size_t write_max() const { return limits_.write_max; }

  void begin(const Job& job, bool receives) {
    job_ = job;
    posted_ = taken_ = received_ = sent_ = completed_ = 0;
    while (receives && !job.in_place && posted_ < std::min(window, job.count)) post();
  }
  void play(bool first) {
    for (size_t i = 0; i < job_.count; ++i) {
      first ? put(i) : get();
      if (!job_.stream) first ? get() : put(i);
    }
    while (completed_ < sent_) drain();
  }
  uint64_t sum() const { return sum_; }

 private:
  size_t words() const { return job_.bytes / sizeof(uint64_t); }
  void make(uint64_t* at, uint64_t number) const { std::fill_n(at, words(), number); }
  void use(const uint64_t* at) {
    for (size_t i = 0; i < words(); ++i) sum_ += at[i];
  }
  void put(uint64_t number) { job_.in_place ? put_in_place(number) : put_copied(number); }
  void get() { job_.in_place ? get_in_place() : get_copied(); }

  void put_in_place(uint64_t number) {
    auto room = sized<weft_shm_room>();
    int status;
    while ((status = weft_shm_reserve(ops_, ep_, peer_, job_.bytes, &room)) == -FI_EAGAIN) continue;
    check("weft_shm_reserve", status);
    make(static_cast<uint64_t*>(room.data), number);
    auto how = sized<weft_shm_send>();
    how.flags = FI_TAGGED;
    how.length = job_.bytes;
    how.tag = tag;
    check("weft_shm_commit", weft_shm_commit(ops_, ep_, room.handle, &how));
  }
  void get_in_place() {
    auto wanted = sized<weft_shm_wanted>();
    wanted.flags = FI_TAGGED;
    wanted.source = FI_ADDR_UNSPEC;
    wanted.tag = tag;
    auto message = sized<weft_shm_message>();
    int status;
    while ((status = weft_shm_take(ops_, ep_, &wanted, &message)) == -FI_EAGAIN) continue;
    check("weft_shm_take", status);
    use(static_cast<const uint64_t*>(message.data));
    check("weft_shm_release", weft_shm_release(ops_, ep_, message.handle));
  }

  void put_copied(uint64_t number) {
    while (sent_ - completed_ == window) drain();
    uint64_t* at = out_[sent_ % window].data();
    make(at, number);
    ssize_t status;
    while ((status = fi_tsend(ep_, at, job_.bytes, nullptr, peer_, tag, nullptr)) == -FI_EAGAIN) drain();
    check("fi_tsend", status);
    ++sent_;
  }
  void get_copied() {
    while (received_ == taken_) drain();
    use(in_[taken_++ % window].data());
    if (posted_ < job_.count) post();
  }
  void post() {
    check("fi_trecv",
          fi_trecv(ep_, in_[posted_ % window].data(), job_.bytes, nullptr, FI_ADDR_UNSPEC, tag, 0, nullptr));
    ++posted_;
  }
  void drain() {
    fi_cq_tagged_entry entries[16];
    const ssize_t n = fi_cq_read(cq_, entries, 16);
    if (n < 0 && n != -FI_EAGAIN) check("fi_cq_read", n);
    for (ssize_t i = 0; i < n; ++i) ++((entries[i].flags & FI_RECV) != 0 ? received_ : completed_);
  }

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_ep* ep_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_NOTAVAIL;
  const weft_shm_ops* ops_ = nullptr;
  weft_shm_limits limits_{};
  Job job_;
  size_t posted_ = 0, taken_ = 0, received_ = 0, sent_ = 0, completed_ = 0;
  uint64_t sum_ = 0;
  std::vector<std::vector<uint64_t>> out_, in_;
};

int other_side(Shared& shared) {
  Side side(shared, 1);
  for (uint64_t done = 0;; ++done) {
    while (shared.given == done) {
    }
    const Job job = shared.job;
    if (job.count == 0) return 0;
    side.begin(job, !job.stream);
    shared.ready = done + 1;
    side.play(job.stream);  // a stream comes from here
  }
}

// Seconds that a job takes.
double run(Shared& shared, Side& side, const Job& job) {
  side.begin(job, true);
  shared.job = job;
  const uint64_t number = ++shared.given;
  while (shared.ready != number) {
  }
  const double begin = now_s();
  side.play(!job.stream);
  return now_s() - begin;
}

// Seconds of one message: there and back, or of the stream.
double measure(Shared& shared, Side& side, Job job, double time_s) {
  job.count = 64;
  (void)run(shared, side, job);
  const double tried = run(shared, side, job) / static_cast<double>(job.count);
  job.count = std::clamp<size_t>(static_cast<size_t>(time_s / tried), 64, 10'000'000);
  return run(shared, side, job) / static_cast<double>(job.count);
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (cpu >= 0) (void)sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

int main(int argc, char** argv) {
  std::array<int, 2> cpus{-1, -1};
  int time_ms = 40;
  CLI::App app("Messages written and taken in place, beside messages that are sent and received",
               "in_place_messages");
  weft::bench::add_cpus(app, cpus);
  app.add_option("--time", time_ms, "milliseconds of a measurement")->check(CLI::Range(1, 60'000));
  weft::bench::read_command_line(app, argc, argv);
  alarm(give_up_s);
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) check("mmap", -FI_ENOMEM);
  auto& shared = *new (at) Shared;
  const pid_t child = fork();
  if (child < 0) check("fork", -FI_EAGAIN);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(give_up_s);
    pin(cpus[1]);
    return other_side(shared);
  }
  pin(cpus[0]);
  {
    Side side(shared, 0);
    const double time_s = time_ms * 1e-3;
    std::printf("{");
    const size_t sizes[] = {8, 4096, side.write_max() & ~size_t{7}};
    for (const size_t bytes : sizes) {
      double one_way[2] = {}, stream[2] = {};
      for (const bool in_place : {false, true}) {
        one_way[in_place] = measure(shared, side, {bytes, 0, in_place, false}, time_s) / 2 * 1e9;
        stream[in_place] =
            static_cast<double>(bytes) / measure(shared, side, {bytes, 0, in_place, true}, time_s) * 1e-9;
      }
      std::printf(
          "%s\"%zu\": {\"copied_ns\": %.1f, \"in_place_ns\": %.1f, \"copied_gbs\": %.4f, \"in_place_gbs\": "
          "%.4f}",
          bytes == sizes[0] ? "" : ", ", bytes, one_way[0], one_way[1], stream[0], stream[1]);
    }
    std::printf("}\n");
    shared.job = {};
    ++shared.given;
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) check("the other side", -FI_EIO);
    return side.sum() == 0 ? 1 : 0;
  }
}
