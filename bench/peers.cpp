// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many processes that turn to one at the same time: how fast it gets to know them, what each costs it, and that every message is right.
// Written against the public interface alone. Exit status 0 only when all of it was right.
//
//   peers --help
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "tagged_endpoint.hpp"

namespace {

struct Options {
  unsigned peers = 1000, messages = 4, seconds = 120;
  std::string provider = "tcp", node = "127.0.0.1";
  bool json = false;
};

constexpr size_t name_most = 128;
constexpr uint64_t hello_tag = 1, answer_tag = 2, more_tag = 3;
constexpr size_t receive_window = 256;

// What a peer says: who it is and where it is reached.
struct Message {
  uint32_t peer;
  uint32_t number;
  uint64_t check;
  uint32_t name_length;
  char name[name_most];
};

uint64_t check_of(uint32_t peer, uint32_t number) {
  return (uint64_t{peer} << 32 | number) * 0x9e3779b97f4a7c15ULL + 1;
}

struct Shared {
  std::atomic<uint32_t> ready, answered, failed;
  uint32_t name_length;
  char name[name_most];
};

double seconds_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void rest(long microseconds) {
  const timespec t{0, microseconds * 1000};
  nanosleep(&t, nullptr);
}

// KiB of this process alone: Pss of smaps_rollup (proc(5)).
long memory_kib() {
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "re");
  if (!file) return 0;
  char line[256];
  long kib = 0;
  while (std::fgets(line, sizeof line, file))
    if (std::strncmp(line, "Pss:", 4) == 0) kib = std::strtol(line + 4, nullptr, 10);
  std::fclose(file);
  return kib;
}

// Pages that the kernel's TCP and UDP sockets hold, in KiB (/proc/net/sockstat): of the whole machine.
long socket_kib() {
  std::FILE* file = std::fopen("/proc/net/sockstat", "re");
  if (!file) return 0;
  char line[256];
  long pages = 0;
  while (std::fgets(line, sizeof line, file))
    if (const char* mem = std::strstr(line, " mem "); mem && (line[0] == 'T' || line[0] == 'U'))
      pages += std::strtol(mem + 5, nullptr, 10);
  std::fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

using weft::bench::die;
using weft::bench::must;

// One endpoint and its queue.
class Endpoint : weft::bench::TaggedEndpoint {
 public:
  Endpoint(const Options& o, double deadline)
      : TaggedEndpoint(o.provider, o.node, 0, 1024), deadline_(deadline) {}

  uint32_t name(char* out) {
    size_t length = name_most;
    must("fi_getname", fi_getname(&ep->fid, out, &length));
    return static_cast<uint32_t>(length);
  }
  fi_addr_t insert(const char* bytes) {
    fi_addr_t it = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(av, bytes, 1, &it, 0, nullptr) != 1) die("fi_av_insert", -FI_EINVAL);
    return it;
  }
  void receive(void* to, size_t bytes, uint64_t tag, uint64_t ignore, fi_context* context) {
    again("fi_trecv", [&] { return fi_trecv(ep, to, bytes, nullptr, FI_ADDR_UNSPEC, tag, ignore, context); });
  }
  void send(const void* from, size_t bytes, fi_addr_t to, uint64_t tag, fi_context* context) {
    again("fi_tsend", [&] { return fi_tsend(ep, from, bytes, nullptr, to, tag, context); });
  }
  // One completion, or false when there is none.
  bool poll(fi_cq_tagged_entry& entry) {
    if (seconds_now() > deadline_) die("gave up waiting", -FI_ETIMEDOUT);
    const ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n == 1) return true;
    if (n == -FI_EAGAIN) return false;
    fi_cq_err_entry error{};
    fi_cq_readerr(cq, &error, 0);
    std::fprintf(stderr, "peers: %s\n", fi_cq_strerror(cq, error.prov_errno, error.err_data, nullptr, 0));
    die("an operation failed", -error.err);
  }
  void close() {
    fi_close(&ep->fid);
    fi_close(&cq->fid);
    fi_close(&av->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info);
  }

 private:
  template <class Call>
  void again(const char* what, Call call) {
    while (true) {
      const ssize_t rc = call();
      if (rc == 0) return;
      if (rc != -FI_EAGAIN) die(what, rc);
      // Whatever completed stays in the queue: an empty read drives the endpoint.
      fi_cq_read(cq, nullptr, 0);
      if (seconds_now() > deadline_) die(what, -FI_ETIMEDOUT);
    }
  }

  double deadline_;
};

// Blocks until the parent closes the other end.
void wait_for_end(int fd) {
  char byte;
  while (read(fd, &byte, 1) > 0 || errno == EINTR) errno = 0;
}

int peer(const Options& o, uint32_t me, Shared* shared, int go, int leave, double deadline) {
  Endpoint ep(o, deadline);
  Message message{};
  message.peer = me;
  message.name_length = ep.name(message.name);
  uint64_t answer = 0;
  fi_context receiving{}, sending{};
  ep.receive(&answer, sizeof answer, answer_tag, 0, &receiving);
  shared->ready.fetch_add(1);
  wait_for_end(go);

  const fi_addr_t server = ep.insert(shared->name);
  fi_cq_tagged_entry entry{};
  // The less there is to do, the longer it rests: a thousand that look every millisecond would leave the one no processor.
  const auto wait = [&](unsigned count) {
    for (long pause = 1'000; count != 0; pause = std::min(2 * pause, 64'000L)) {
      if (ep.poll(entry)) --count, pause = 500;
      else rest(pause);
    }
  };
  message.check = check_of(me, 0);
  ep.send(&message, sizeof message, server, hello_tag, &sending);
  wait(2);
  if (answer != check_of(me, 0) + 1) die("the answer is wrong", -FI_EIO);
  shared->answered.fetch_add(1);
  for (uint32_t i = 1; i <= o.messages; ++i) {
    message.number = i;
    message.check = check_of(me, i);
    ep.send(&message, sizeof message, server, more_tag, &sending);
    wait(1);
  }
  wait_for_end(leave);
  ep.close();
  return 0;
}

// What the one process sees.
class Server {
 public:
  Server(const Options& o, double deadline)
      : o_(o), ep_(o, deadline), slots_(receive_window), next_(o.peers, 0), answers_(o.peers) {
    for (Slot& slot : slots_) post(slot);
  }

  uint32_t name(char* out) { return ep_.name(out); }
  // Until so many messages came and all answers have left.
  void serve(uint64_t messages) {
    fi_cq_tagged_entry entry{};
    while (came_ < messages || answering_ != 0) {
      if (!ep_.poll(entry)) continue;
      auto* context = static_cast<fi_context*>(entry.op_context);
      if ((entry.flags & FI_SEND) != 0) {
        --answering_;
        continue;
      }
      Slot& slot = *reinterpret_cast<Slot*>(context);
      take(slot.message, entry.len);
      post(slot);
    }
  }
  void close() { ep_.close(); }

 private:
  struct Slot {
    fi_context context;
    Message message;
  };
  struct Answer {
    fi_context context;
    uint64_t value;
  };

  void post(Slot& slot) { ep_.receive(&slot.message, sizeof slot.message, 0, ~uint64_t{0}, &slot.context); }
  void take(const Message& m, size_t bytes) {
    if (bytes != sizeof m || m.peer >= o_.peers || m.check != check_of(m.peer, m.number) ||
        next_[m.peer] != m.number)
      die("a message is wrong, comes twice or out of order", -FI_EIO);
    ++next_[m.peer];
    ++came_;
    if (m.number != 0) return;
    Answer& answer = answers_[m.peer];
    answer.value = m.check + 1;
    ++answering_;
    ep_.send(&answer.value, sizeof answer.value, ep_.insert(m.name), answer_tag, &answer.context);
  }

  const Options& o_;
  Endpoint ep_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> next_;
  std::vector<Answer> answers_;
  uint64_t came_ = 0;
  unsigned answering_ = 0;
};

int serve(const Options& o, Shared* shared, int go[2], int leave[2], const std::vector<pid_t>& children,
          double deadline) {
  Server server(o, deadline);
  shared->name_length = server.name(shared->name);
  while (shared->ready.load() < o.peers) {
    if (seconds_now() > deadline) die("the peers did not open their endpoints", -FI_ETIMEDOUT);
    rest(2000);
  }
  const long memory_before = memory_kib(), sockets_before = socket_kib();
  const double begin = seconds_now();
  close(go[1]);  // all at once
  server.serve(o.peers);
  const double known = seconds_now() - begin;
  server.serve(uint64_t{o.peers} * (o.messages + 1));
  const double talked = seconds_now() - begin;
  const double per_peer = static_cast<double>(memory_kib() - memory_before) / o.peers;
  const double sockets = static_cast<double>(socket_kib() - sockets_before) / o.peers;
  close(leave[1]);
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  server.close();
  const char* form = o.json ? "{\"provider\": \"%s\", \"peers\": %u, \"seconds\": %.3f, \"peers_per_s\": "
                              "%.0f, \"kib_per_peer\": %.1f, "
                              "\"kernel_kib_per_peer\": %.1f, \"all_messages_s\": %.3f, \"failed\": %d}\n"
                            : "%s: %u peers known and answered in %.2f s (%.0f a second); %.1f KiB a peer, "
                              "%.1f KiB in the kernel; "
                              "all messages after %.2f s; %d peers failed\n";
  std::printf(form, o.provider.c_str(), o.peers, known, o.peers / known, per_peer, sockets, talked, failed);
  return failed == 0 ? 0 : 1;
}

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Many processes that turn to one at the same time", "peers");
  app.add_option("-n", o.peers, "peers")->check(CLI::Range(1, 60'000));
  app.add_option("-p", o.provider, "provider");
  app.add_option("-N", o.node, "local address for providers over IP");
  app.add_option("-m", o.messages, "messages of each peer after the first");
  app.add_option("-t", o.seconds, "seconds until it gives up");
  app.add_flag("-j", o.json, "print one JSON object instead of a sentence");
  weft::bench::read_command_line(app, argc, argv);
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int go[2], leave[2];
  if (shared == MAP_FAILED || pipe(go) != 0 || pipe(leave) != 0) die("mmap, pipe", 0);
  const double deadline = seconds_now() + o.seconds;
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < o.peers; ++i) {
    const pid_t child = fork();
    if (child < 0) die("fork", 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) return 1;
      alarm(o.seconds + 10);
      close(go[1]);
      close(leave[1]);
      return peer(o, i, shared, go[0], leave[0], deadline);
    }
    children.push_back(child);
  }
  alarm(o.seconds + 10);
  return serve(o, shared, go, leave, children, deadline);
}
