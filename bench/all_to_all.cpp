// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many processes on one machine, each sending to each: every byte is checked, the memory of every process is
// measured, and what is
// left behind is looked for. Written against the public interface alone. Exit status 0 only when all of it
// was right.
//
//   all_to_all --help
#include <dirent.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"

namespace {

struct Options {
  unsigned processes = 200, messages = 16, bytes = 1024, seconds = 300;
  double idle_seconds = 1.5;
  std::string provider = "shm";
  bool exact = false, quiet = false;
};

constexpr unsigned receive_window = 256, send_window = 32;
constexpr unsigned name_most = 256;

double seconds_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// ---- memory of this process, KiB, from smaps_rollup (proc(5)) ----

struct Memory {
  long rss, pss, pss_anon, pss_shared;  // pss_shared: our part of shared memory and memory files
};

Memory memory_now() {
  Memory m{};
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "re");
  if (!file) return m;
  char line[256];
  while (std::fgets(line, sizeof line, file)) {
    // "Name:   123 kB"
    const char* colon = std::strchr(line, ':');
    if (!colon) continue;
    const std::string_view name(line, static_cast<size_t>(colon - line));
    const long kib = std::strtol(colon + 1, nullptr, 10);
    if (name == "Rss") m.rss = kib;
    if (name == "Pss") m.pss = kib;
    if (name == "Pss_Anon") m.pss_anon = kib;
    if (name == "Pss_Shmem") m.pss_shared = kib;
  }
  std::fclose(file);
  return m;
}

// ---- what all processes see ----

enum Phase { before, opened, connected, talked, idle, phase_count };
constexpr const char* phase_names[phase_count] = {"before the fabric", "endpoint open", "all peers known",
                                                  "all have talked", "idle for a while"};

struct Member {
  uint32_t name_length;
  unsigned char name[name_most];
  Memory memory[phase_count];
  double exchange_begin, exchange_end;
};

struct alignas(Member) Shared {
  std::atomic<uint32_t> failed;
  std::atomic<uint32_t> arrived[8];
};

// Followed by one Member for each process.
Shared* shared;

Member& member(unsigned i) { return reinterpret_cast<Member*>(shared + 1)[i]; }

// ---- one process ----

uint64_t tag_of(unsigned from, unsigned number) { return uint64_t{from} << 16 | number; }

uint64_t word_of(unsigned from, unsigned to, unsigned number, size_t i) {
  return (uint64_t{from} << 40 | uint64_t{to} << 20 | number) * 0x9e3779b97f4a7c15 + i;
}

class Process {
 public:
  Process(const Options& options, unsigned me)
      : o_(options), me_(me), expected_((o_.processes - 1) * o_.messages) {
    receive_slots_ = o_.exact ? expected_ : std::min(receive_window, expected_);
    stride_ = (o_.bytes + 63) / 64 * 64;
    // All that is ours is allocated and touched before memory is measured for the first time.
    receive_buffers_.assign(size_t{receive_slots_} * stride_ + 1, 0xee);
    send_buffers_.assign(size_t{send_window} * stride_ + 1, 0xee);
    receives_.resize(receive_slots_ + 1);
    sends_.resize(send_window);
    seen_.assign(size_t{o_.processes} * o_.messages, 0);
    addresses_.assign(o_.processes, FI_ADDR_UNSPEC);
    for (unsigned i = 0; i < send_window; ++i) free_sends_.push_back(i);
    volatile unsigned char sum = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(shared);
    for (size_t i = 0; i < sizeof(Shared) + o_.processes * sizeof(Member); i += 1024) sum = bytes[i];
    (void)sum;
  }

  int run() {
    remember(before);
    open();
    meet(0);
    remember(opened);
    meet(7);
    connect();
    meet(1);
    remember(connected);
    meet(2);
    post();
    meet(3);
    member(me_).exchange_begin = seconds_now();
    exchange();
    member(me_).exchange_end = seconds_now();
    meet(4);
    check_order();
    remember(talked);
    meet(5);
    const double end = seconds_now() + o_.idle_seconds;
    while (seconds_now() < end) {
      progress();
      usleep(1000);
    }
    remember(idle);
    meet(6);
    close();
    return 0;
  }

 private:
  struct Receive {
    fi_context2 context;
    uint64_t sequence;
  };

  [[noreturn]] void die(const char* what, ssize_t status) {
    // The first failure is the one to tell; the others follow from it.
    if (shared->failed.exchange(1) == 0) {
      std::fprintf(stderr, "all_to_all: process %u: %s: %s\n", me_, what,
                   fi_strerror(static_cast<int>(-status)));
    }
    _exit(1);
  }
  void check(ssize_t status, const char* what) {
    if (status != 0) die(what, status);
  }
  void remember(Phase phase) { member(me_).memory[phase] = memory_now(); }

  // Everybody comes here before anybody goes on. Others may need our progress meanwhile.
  void meet(unsigned where) {
    shared->arrived[where].fetch_add(1);
    while (shared->arrived[where].load() < o_.processes) {
      if (shared->failed.load()) _exit(1);
      progress();
      sched_yield();
    }
  }

  void open() {
    fi_info* hints = fi_allocinfo();
    if (!hints) die("fi_allocinfo", -FI_ENOMEM);
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(o_.provider.c_str());
    check(fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints, &info_),
          "fi_getinfo");
    fi_freeinfo(hints);
    check(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
    check(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
    fi_av_attr av_attr{};
    av_attr.type = info_->domain_attr->av_type == FI_AV_UNSPEC ? FI_AV_TABLE : info_->domain_attr->av_type;
    av_attr.count = o_.processes;
    check(fi_av_open(domain_, &av_attr, &av_, nullptr), "fi_av_open");
    fi_cq_attr cq_attr{};
    cq_attr.size = size_t{receive_slots_} + send_window + 16;
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    check(fi_cq_open(domain_, &cq_attr, &cq_, nullptr), "fi_cq_open");
    check(fi_endpoint(domain_, info_, &ep_, nullptr), "fi_endpoint");
    check(fi_ep_bind(ep_, &av_->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(ep_), "fi_enable");
    Member& mine = member(me_);
    size_t length = name_most;
    check(fi_getname(&ep_->fid, mine.name, &length), "fi_getname");
    mine.name_length = static_cast<uint32_t>(length);
  }

  void connect() {
    for (unsigned i = 0; i < o_.processes; ++i) {
      if (fi_av_insert(av_, member(i).name, 1, &addresses_[i], 0, nullptr) != 1)
        die("fi_av_insert", -FI_EINVAL);
    }
  }

  void close() {
    fi_close(&ep_->fid);
    fi_close(&cq_->fid);
    fi_close(&av_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
    ep_ = nullptr;
    cq_ = nullptr;
  }

  // The receives that fit. With exact tags each slot serves one message, in the order of senders and numbers.
  void post() {
    if (!posting_begun_) {
      for (unsigned i = receive_slots_; i-- > 0;) free_receives_.push_back(i);
      posting_begun_ = true;
    }
    while (!free_receives_.empty() && posted_ < expected_) {
      const unsigned slot = free_receives_.back();
      const auto from = static_cast<unsigned>(posted_ / o_.messages);
      const unsigned sender = from < me_ ? from : from + 1;
      const uint64_t tag = o_.exact ? tag_of(sender, static_cast<unsigned>(posted_ % o_.messages)) : 0;
      const ssize_t status = fi_trecv(ep_, &receive_buffers_[slot * stride_], o_.bytes, nullptr,
                                      FI_ADDR_UNSPEC, tag, o_.exact ? 0 : ~uint64_t{0}, &receives_[slot]);
      if (status == -FI_EAGAIN) {
        // Only here may it be that the queue of receives is shorter than all that we would like to post.
        if (progress() == 0) return;
        continue;
      }
      check(status, "fi_trecv");
      free_receives_.pop_back();
      receives_[slot].sequence = posted_++;
    }
  }

  void exchange() {
    const unsigned peers = o_.processes - 1;
    while (sent_ < expected_ || received_ < expected_ || free_sends_.size() < send_window) {
      const uint64_t before_all = sent_;
      while (sent_ < expected_ && !free_sends_.empty() && send(static_cast<unsigned>(sent_ / peers), peers)) {
      }
      const unsigned taken = progress();
      post();
      if (taken == 0 && sent_ == before_all) {
        if (shared->failed.load()) _exit(1);
        sched_yield();  // many of us share a core, and the one that we wait for may be behind us
      }
    }
  }

  // Message `number` to the next peer; everybody begins with its neighbour, so that nobody is everybody's
  // first.
  bool send(unsigned number, unsigned peers) {
    const unsigned to = (me_ + 1 + static_cast<unsigned>(sent_ % peers)) % o_.processes;
    const unsigned slot = free_sends_.back();
    unsigned char* buffer = &send_buffers_[slot * stride_];
    for (size_t i = 0; i < o_.bytes; i += 8) {
      const uint64_t word = word_of(me_, to, number, i);
      std::memcpy(buffer + i, &word, std::min<size_t>(8, o_.bytes - i));
    }
    const ssize_t status =
        fi_tsend(ep_, buffer, o_.bytes, nullptr, addresses_[to], tag_of(me_, number), &sends_[slot]);
    if (status == -FI_EAGAIN) return false;
    check(status, "fi_tsend");
    free_sends_.pop_back();
    ++sent_;
    return true;
  }

  unsigned progress() {
    if (!cq_) return 0;
    fi_cq_tagged_entry entries[16];
    const ssize_t n = fi_cq_read(cq_, entries, 16);
    if (n == -FI_EAGAIN || n == 0) return 0;
    if (n < 0) completion_error();
    for (ssize_t i = 0; i < n; ++i) take(entries[i]);
    return static_cast<unsigned>(n);
  }

  void completion_error() {
    fi_cq_err_entry error{};
    if (fi_cq_readerr(cq_, &error, 0) != 1) die("fi_cq_readerr", -FI_EIO);
    die("completion", -error.err);
  }

  void take(const fi_cq_tagged_entry& entry) {
    const auto* send = static_cast<const fi_context2*>(entry.op_context);
    if (send >= sends_.data() && send < sends_.data() + sends_.size()) {
      free_sends_.push_back(static_cast<unsigned>(send - sends_.data()));
      return;
    }
    const auto* receive = static_cast<const Receive*>(entry.op_context);
    if (receive < receives_.data() || receive >= receives_.data() + receive_slots_)
      die("a context not ours", -FI_EIO);
    const auto slot = static_cast<unsigned>(receive - receives_.data());
    verify(slot, entry);
    ++received_;
    free_receives_.push_back(slot);
  }

  void verify(unsigned slot, const fi_cq_tagged_entry& entry) {
    const auto from = static_cast<unsigned>(entry.tag >> 16),
               number = static_cast<unsigned>(entry.tag & 0xffff);
    if (from >= o_.processes || from == me_ || number >= o_.messages)
      die("a message with a tag of nobody", -FI_EIO);
    if (entry.len != o_.bytes) die("a message of another length", -FI_EIO);
    uint64_t& seen = seen_[size_t{from} * o_.messages + number];
    if (seen != 0) die("a message came twice", -FI_EIO);
    seen = receives_[slot].sequence + 1;
    const unsigned char* buffer = &receive_buffers_[slot * stride_];
    for (size_t i = 0; i < o_.bytes; i += 8) {
      const uint64_t word = word_of(from, me_, number, i);
      if (std::memcmp(buffer + i, &word, std::min<size_t>(8, o_.bytes - i)) != 0) die("wrong data", -FI_EIO);
    }
  }

  // FI_ORDER_SAS: messages of one sender match receives in the order in which they were sent
  // (fi_endpoint(3)).
  void check_order() {
    for (unsigned from = 0; from < o_.processes; ++from) {
      for (unsigned i = 1; from != me_ && i < o_.messages; ++i) {
        const uint64_t* seen = &seen_[size_t{from} * o_.messages];
        if (seen[i] <= seen[i - 1]) die("messages of one sender out of order", -FI_EIO);
      }
    }
  }

  const Options o_;
  const unsigned me_;
  const uint32_t expected_;
  unsigned receive_slots_ = 0;
  size_t stride_ = 0;
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_ep* ep_ = nullptr;
  std::vector<fi_addr_t> addresses_;
  std::vector<unsigned char> receive_buffers_, send_buffers_;
  std::vector<Receive> receives_;
  std::vector<fi_context2> sends_;
  std::vector<unsigned> free_receives_, free_sends_;
  std::vector<uint64_t> seen_;  // sequence of the receive + 1, for each sender and number
  bool posting_begun_ = false;
  uint64_t posted_ = 0, sent_ = 0, received_ = 0;
};

// ---- the parent ----

std::set<std::string> files_in(const char* folder) {
  std::set<std::string> names;
  if (DIR* dir = opendir(folder)) {
    while (const dirent* entry = readdir(dir)) names.insert(entry->d_name);
    closedir(dir);
  }
  return names;
}

// New files that are ours by their name: it has the number of one of our processes, or says Weft.
unsigned leftovers(const char* folder, const std::set<std::string>& earlier, const std::vector<pid_t>& pids) {
  unsigned count = 0;
  for (const std::string& name : files_in(folder)) {
    if (earlier.count(name)) continue;
    bool ours = name.find("weft") != std::string::npos;
    for (const pid_t pid : pids) {
      const std::string number = std::to_string(pid);
      const size_t at = name.find(number);
      ours |= at != std::string::npos &&
              (at == 0 || !std::isdigit(static_cast<unsigned char>(name[at - 1]))) &&
              !std::isdigit(static_cast<unsigned char>(name.c_str()[at + number.size()]));
    }
    if (!ours) continue;
    if (++count <= 5) std::fprintf(stderr, "all_to_all: left behind: %s/%s\n", folder, name.c_str());
  }
  return count;
}

// True when all ended well in time. Ends all of them otherwise.
bool wait_for(const std::vector<pid_t>& pids, unsigned seconds) {
  const double end = seconds_now() + seconds;
  size_t left = pids.size();
  bool good = true;
  while (left > 0) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      --left;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      if (WIFSIGNALED(status) && good)
        std::fprintf(stderr, "all_to_all: a process died of signal %d\n", WTERMSIG(status));
      good = false;
      shared->failed = 1;  // the others see it, or are killed when the time is over
      continue;
    }
    if (seconds_now() > end) {
      std::fprintf(stderr, "all_to_all: %zu processes have not ended after %u s\n", left, seconds);
      shared->failed = 1;
      for (const pid_t each : pids) kill(each, SIGKILL);
      while (waitpid(-1, nullptr, 0) > 0) {
      }
      return false;
    }
    usleep(2000);
  }
  return good;
}

struct Spread {
  double sum = 0;
  long most = 0;
  void add(long value) {
    sum += static_cast<double>(value);
    most = std::max(most, value);
  }
};

void print_memory(const Options& o) {
  std::printf("\nmemory of a process, KiB (average / most)\n%-20s %17s %17s %17s %17s\n", "", "resident",
              "proportional", "its own", "part of shared");
  double pss[phase_count] = {};
  for (int phase = 0; phase < phase_count; ++phase) {
    Spread rss, whole, anon, part;
    for (unsigned i = 0; i < o.processes; ++i) {
      const Memory& m = member(i).memory[phase];
      rss.add(m.rss);
      whole.add(m.pss);
      anon.add(m.pss_anon);
      part.add(m.pss_shared);
    }
    const double n = o.processes;
    std::printf("%-20s %8.0f /%7ld %8.0f /%7ld %8.0f /%7ld %8.0f /%7ld\n", phase_names[phase], rss.sum / n,
                rss.most, whole.sum / n, whole.most, anon.sum / n, anon.most, part.sum / n, part.most);
    pss[phase] = (anon.sum + part.sum) / n;
  }
  // From the open endpoint on, so that what one endpoint needs by itself is not called a cost of its peers.
  const double peers = o.processes - 1;
  const auto each = [&](Phase phase) { return (pss[phase] - pss[opened]) / peers; };
  std::printf(
      "an endpoint without peers: %.0f KiB; each of %.0f peers, its own and its part of shared memory:\n",
      pss[opened] - pss[before], peers);
  std::printf("  %.2f KiB known, %.2f KiB when all have talked, %.2f KiB idle\n", each(connected),
              each(talked), each(idle));
}

void print_time(const Options& o) {
  double begin = member(0).exchange_begin, end = 0;
  for (unsigned i = 0; i < o.processes; ++i) {
    begin = std::min(begin, member(i).exchange_begin);
    end = std::max(end, member(i).exchange_end);
  }
  const double messages = static_cast<double>(o.processes) * (o.processes - 1) * o.messages;
  std::printf("exchange %.2f s, %.3f M messages/s, %.3f GB/s\n", end - begin, messages / (end - begin) * 1e-6,
              messages * o.bytes / (end - begin) * 1e-9);
}

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Many processes on one machine, each sending to each, with every byte checked", "all_to_all");
  app.add_option("-n", o.processes, "processes")->check(CLI::Range(2, 4096));
  app.add_option("-m", o.messages, "messages of each ordered pair")->check(CLI::Range(1, 4096));
  app.add_option("-s", o.bytes, "bytes of a message")->check(CLI::Range(0, 1 << 24));
  app.add_option("-p", o.provider, "provider");
  app.add_option("-t", o.seconds, "seconds until it gives up")->check(CLI::Range(1, 3600));
  app.add_option("-i", o.idle_seconds, "seconds of idleness before memory is measured for the last time");
  app.add_flag("-e", o.exact, "receives name their sender and number, and are posted beforehand");
  app.add_flag("-q", o.quiet, "print the verdict alone");
  weft::bench::read_command_line(app, argc, argv);
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  Options o = parse(argc, argv);
  void* got = mmap(nullptr, sizeof(Shared) + o.processes * sizeof(Member), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) {
    std::perror("all_to_all: mmap");
    return 1;
  }
  shared = static_cast<Shared*>(got);  // zeroed by the kernel
  const std::set<std::string> shm_before = files_in("/dev/shm"), tmp_before = files_in("/tmp");
  const double begin = seconds_now();
  std::vector<pid_t> pids;
  const pid_t parent = getpid();
  std::fflush(nullptr);
  for (unsigned i = 0; i < o.processes; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      const int status = Process(o, i).run();
      std::exit(status);  // with the library's own clearing up
    }
    if (pid < 0) {
      std::perror("all_to_all: fork");
      shared->failed = 1;
      o.seconds = 1;
      break;
    }
    pids.push_back(pid);
  }
  bool good = wait_for(pids, o.seconds) && pids.size() == o.processes;
  const double took = seconds_now() - begin;
  if (good && !o.quiet) {
    std::printf("%u processes, %u messages of %u B for each pair, provider %s, %s receives: all data right\n",
                o.processes, o.messages, o.bytes, o.provider.c_str(), o.exact ? "exact" : "wildcard");
    print_time(o);
    print_memory(o);
    std::printf("\nwhole run %.2f s; /dev/shm had %zu entries before and has %zu after\n", took,
                shm_before.size() - 2, files_in("/dev/shm").size() - 2);
  }
  const unsigned left = leftovers("/dev/shm", shm_before, pids) + leftovers("/tmp", tmp_before, pids);
  good &= left == 0;
  std::printf("all_to_all: %s\n", good ? "ok" : left ? "files were left behind" : "FAILED");
  return good ? 0 : 1;
}
