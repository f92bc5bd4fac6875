// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What two cores can do with bare sockets over loopback and nothing of ours: the limits that the figures of the networks are compared with.
// Two pinned processes, busy-polled. Prints one JSON object. Knows no fabric.
//
//   raw_sockets [--cpus A,B] [--time MS] [--sleep]
//
// --sleep: TCP alone, by blocking calls: a process sleeps until it has something to do.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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
#include <vector>

#include "command_line.hpp"

namespace {

constexpr unsigned give_up_s = 60;  // SIGALRM ends either process
constexpr size_t record_bytes = 32;
constexpr size_t write_bytes = 2048;
constexpr size_t burst_bytes =
    64'000;  // of one sendmsg with UDP_SEGMENT: below 64 KiB and 64 segments of 1,400 bytes

int unless_there = MSG_DONTWAIT;  // 0: calls sleep

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "raw_sockets: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

double seconds_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// How the two meet between the tests, and how the one that knows a figure tells it.
struct Shared {
  alignas(64) std::atomic<uint64_t> stage[2];
  alignas(64) std::atomic<bool> over;
  alignas(64) double figure;
};

struct Side {
  Shared* shared;
  int me;  // 0 leads
  double time_s;
  int tcp;
  int udp;
  uint64_t stage = 0;

  bool leads() const { return me == 0; }
  void meet() {
    shared->stage[me].store(++stage);
    while (shared->stage[1 - me].load() < stage) sched_yield();
  }
};

// Busy-polled, or asleep in the call: a socket without data is asked again.
bool receive_all(int fd, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    const ssize_t n = recv(fd, at, bytes, unless_there);
    if (n > 0) at += n, bytes -= static_cast<size_t>(n);
    else if (n == 0) return false;
    else if (errno != EAGAIN && errno != EINTR) die("recv");
  }
  return true;
}

void send_all(int fd, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t n = send(fd, at, bytes, unless_there | MSG_NOSIGNAL);
    if (n > 0) at += n, bytes -= static_cast<size_t>(n);
    else if (errno != EAGAIN && errno != EINTR) die("send");
  }
}

// One way of a ping-pong, in ns. A first byte of 1 ends it.
double ping_pong(Side& side, int fd, size_t bytes = 8) {
  std::vector<char> message(bytes);
  side.meet();
  if (!side.leads()) {
    do {
      if (!receive_all(fd, message.data(), bytes)) return 0;
      send_all(fd, message.data(), bytes);
    } while (message[0] == 0);
    return 0;
  }
  uint64_t rounds = 0;
  double begin = seconds_now();
  double now = 0;
  const double warm = side.time_s * 0.2;
  bool measuring = false;
  do {
    for (int i = 0; i < 64; ++i) {
      send_all(fd, message.data(), bytes);
      receive_all(fd, message.data(), bytes);
    }
    rounds += 64;
    now = seconds_now();
    if (!measuring && now - begin > warm) measuring = true, begin = now, rounds = 0;
  } while (!measuring || now - begin < side.time_s);
  message[0] = 1;
  send_all(fd, message.data(), bytes);
  receive_all(fd, message.data(), bytes);
  return (now - begin) / static_cast<double>(rounds) / 2 * 1e9;
}

// Bytes a second of one direction in writes of this size; the receiver reads up to `read_bytes` at once.
double stream(Side& side, size_t each, size_t read_bytes) {
  std::vector<char> buffer(std::max(each, read_bytes), 1);
  uint64_t total = 0;
  side.meet();
  if (side.leads()) {
    const double end = seconds_now() + side.time_s;
    while (seconds_now() < end) {
      send_all(side.tcp, buffer.data(), each);
      total += each;
    }
    side.shared->figure = static_cast<double>(total);
    side.shared->over.store(true);
    side.meet();
    side.shared->over.store(false);
    side.meet();
    return side.shared->figure;
  }
  const double begin = seconds_now();
  uint64_t got = 0;
  while (true) {
    const ssize_t n = recv(side.tcp, buffer.data(), read_bytes, unless_there);
    if (n > 0) got += static_cast<uint64_t>(n);
    else if (n == 0) die("the other side closed");
    if (side.shared->over.load() && got >= static_cast<uint64_t>(side.shared->figure)) break;
  }
  const double rate = static_cast<double>(got) / (seconds_now() - begin);
  side.meet();
  side.shared->figure = rate;
  side.meet();
  return rate;
}

// What arrives a second of datagrams of this size; sent many at once by UDP_SEGMENT and joined by UDP_GRO, or one by one.
double datagrams(Side& side, size_t segment, bool together) {
  std::vector<char> buffer(1 << 16, 1);
  const int on = together ? 1 : 0, size = together ? static_cast<int>(segment) : 0;
  if (setsockopt(side.udp, SOL_UDP, UDP_SEGMENT, &size, sizeof size) != 0 ||
      setsockopt(side.udp, SOL_UDP, UDP_GRO, &on, sizeof on) != 0)
    return -1;
  const size_t each = together ? burst_bytes / segment * segment : segment;
  side.meet();
  if (side.leads()) {
    const double end = seconds_now() + side.time_s;
    while (seconds_now() < end)
      if (send(side.udp, buffer.data(), each, MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != ECONNREFUSED &&
          errno != ENOBUFS)
        die("send of a datagram");
    side.shared->over.store(true);
    side.meet();
    side.shared->over.store(false);
    side.meet();
    return side.shared->figure;
  }
  const double begin = seconds_now();
  uint64_t got = 0;
  while (!side.shared->over.load()) {
    const ssize_t n = recv(side.udp, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) got += static_cast<uint64_t>(n);
  }
  const double rate = static_cast<double>(got) / (seconds_now() - begin);
  while (recv(side.udp, buffer.data(), buffer.size(), MSG_DONTWAIT) > 0) {
  }
  side.meet();
  side.shared->figure = rate;
  side.meet();
  return rate;
}

sockaddr_in local(uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(port);
  return a;
}

sockaddr_in name_of(int fd) {
  sockaddr_in a{};
  socklen_t length = sizeof a;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&a), &length) != 0) die("getsockname");
  return a;
}

const sockaddr* generic(const sockaddr_in& a) { return reinterpret_cast<const sockaddr*>(&a); }

// Both ends of a TCP connection.
void make_tcp(int ends[2]) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in any = local(0);
  if (listener < 0 || bind(listener, generic(any), sizeof any) != 0 || listen(listener, 1) != 0)
    die("listen");
  const sockaddr_in here = name_of(listener);
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(ends[0], generic(here), sizeof here) != 0) die("connect");
  ends[1] = accept(listener, nullptr, nullptr);
  if (ends[1] < 0) die("accept");
  close(listener);
  const int on = 1;
  for (int i = 0; i < 2; ++i) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void make_udp(int ends[2]) {
  const sockaddr_in any = local(0);
  for (int i = 0; i < 2; ++i) {
    ends[i] = socket(AF_INET, SOCK_DGRAM, 0);
    if (ends[i] < 0 || bind(ends[i], generic(any), sizeof any) != 0) die("bind");
    const int room = 8 << 20;
    setsockopt(ends[i], SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(ends[i], SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  }
  for (int i = 0; i < 2; ++i) {
    const sockaddr_in other = name_of(ends[1 - i]);
    if (connect(ends[i], generic(other), sizeof other) != 0) die("connect of a datagram socket");
  }
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);
}

void run_asleep(Side& side) {
  // The last recv() of a stream may come when all has arrived.
  const timeval patience{0, 10'000};
  const double of_8 = ping_pong(side, side.tcp);
  const double of_4k = ping_pong(side, side.tcp, 4096);
  setsockopt(side.tcp, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const double stream_64k = stream(side, 64 << 10, 64 << 10);
  if (!side.leads()) return;
  std::printf("{\"tcp_oneway_ns\": %.1f, \"tcp_4k_oneway_ns\": %.1f, \"tcp_64k_gbs\": %.3f}\n", of_8, of_4k,
              stream_64k * 1e-9);
}

void run(Side& side) {
  const double tcp_ns = ping_pong(side, side.tcp);
  const double udp_ns = ping_pong(side, side.udp);
  const double records = stream(side, write_bytes, 1 << 16) / record_bytes;
  const double stream_64k = stream(side, 64 << 10, 64 << 10);
  const double stream_1m = stream(side, 1 << 20, 1 << 20);
  const double one_by_one = datagrams(side, 1400, false);
  const double joined_1400 = datagrams(side, 1400, true);
  const double joined_16k = datagrams(side, 16'000, true);
  if (!side.leads()) return;
  std::printf(
      "{\"tcp_oneway_ns\": %.1f, \"udp_oneway_ns\": %.1f, \"tcp_records_mps\": %.3f, \"tcp_64k_gbs\": %.3f, "
      "\"tcp_1m_gbs\": %.3f, \"udp_single_gbs\": %.3f, \"udp_gso_1400_gbs\": %.3f, \"udp_gso_16k_gbs\": "
      "%.3f}\n",
      tcp_ns, udp_ns, records * 1e-6, stream_64k * 1e-9, stream_1m * 1e-9, one_by_one * 1e-9,
      joined_1400 * 1e-9, joined_16k * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  std::array<int, 2> cpus{-1, -1};
  double time_ms = 150;
  bool sleeps = false;
  CLI::App app("What two processors can do with bare sockets over loopback", "raw_sockets");
  weft::bench::add_cpus(app, cpus);
  app.add_option("--time", time_ms, "milliseconds of a measurement")->check(CLI::Range(1.0, 60'000.0));
  app.add_flag("--sleep", sleeps, "TCP alone, by blocking calls");
  weft::bench::read_command_line(app, argc, argv);
  if (sleeps) unless_there = 0;
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) die("mmap");
  int tcp[2], udp[2];
  make_tcp(tcp);
  make_udp(udp);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) die("fork");
  const int me = child == 0 ? 1 : 0;
  if (me == 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1;
  }
  alarm(give_up_s);
  if (cpus[me] >= 0) pin(cpus[me]);
  Side side{shared, me, time_ms * 1e-3, tcp[me], udp[me]};
  if (sleeps) run_asleep(side);
  else run(side);
  if (me == 1) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
