// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Programs that sleep until a completion event, for asleep_test.sh. Two processes exchange messages; prints one line.
 *
 *   asleep DEVICE wakeups            threads of the library that are woken for an exchange, in ibv_get_cq_event(3)
 *   asleep DEVICE block|poll|epoll   exchanges; how the first process sleeps: in ibv_get_cq_event(3), or in poll(2) or epoll(7), which calls nothing else
 *   asleep DEVICE queues             two completion queues of one channel
 *   asleep DEVICE two                two threads, each with a channel
 *   asleep DEVICE polled             a thread sleeps while another one polls for other messages: it is not woken for those
 *   asleep DEVICE shared             two threads in ibv_get_cq_event(3) of one channel
 *   asleep DEVICE signals            a handler with SA_RESTART does not end ibv_get_cq_event(3), one without does: EINTR
 *   asleep DEVICE handler            a signal handler that forks while the thread is in ibv_get_cq_event(3)
 *   asleep DEVICE fork               a process that is forked while a thread sleeps
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "program.h"

enum { bytes = 64, receives = 16, exchanges = 300, rounds = 5, lanes = 2 };

/* A queue pair with a channel and one or two queues of its own. */
struct lane {
  struct ibv_comp_channel* channel;
  struct ibv_cq *send_cq, *recv_cq;
  struct ibv_qp* qp;
  unsigned events;
};

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_mr* mr;
static char memory[2 * bytes];
static struct lane lane[lanes];
static int peer;

static void post_receive(struct lane* at) {
  struct ibv_sge to = {(uintptr_t)memory, bytes, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad;
  CHECK(ibv_post_recv(at->qp, &wr, &bad) == 0);
}

static void post_send(struct lane* at) {
  struct ibv_sge from = {(uintptr_t)(memory + bytes), bytes, mr->lkey};
  struct ibv_send_wr wr = {.wr_id = 2,
                           .sg_list = &from,
                           .num_sge = 1,
                           .opcode = IBV_WR_SEND,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  CHECK(ibv_post_send(at->qp, &wr, &bad) == 0);
}

static void hear(void* what, size_t size) { CHECK(recv(peer, what, size, MSG_WAITALL) == (ssize_t)size); }
static void say(const void* what, size_t size) { CHECK(send(peer, what, size, 0) == (ssize_t)size); }
static void meet(void) {
  char byte = 1;
  say(&byte, 1);
  hear(&byte, 1);
}

static void open_lane(struct lane* at, struct lane* channel_of, int queues) {
  CHECK(at->channel = channel_of ? channel_of->channel : ibv_create_comp_channel(context));
  CHECK(at->recv_cq = ibv_create_cq(context, 64, at, at->channel, 0));
  CHECK(at->send_cq = queues == 2 ? ibv_create_cq(context, 64, at, at->channel, 0) : at->recv_cq);
  struct ibv_qp_init_attr init = {
      .send_cq = at->send_cq, .recv_cq = at->recv_cq, .qp_type = IBV_QPT_RC, .cap = {64, receives, 1, 1, 0}};
  CHECK(at->qp = ibv_create_qp(pd, &init));
  struct {
    union ibv_gid gid;
    uint32_t qpn;
  } own = {gid_at(context, 0), at->qp->qp_num}, other;
  CHECK(to_init(at->qp, 0) == 0);
  for (int i = 0; i < receives; ++i) post_receive(at);
  say(&own, sizeof own);
  hear(&other, sizeof other);
  const struct ibv_ah_attr path = path_to(other.gid, 0);
  CHECK(to_rtr(at->qp, &path, other.qpn, test_psn) == 0);
  CHECK(to_rts(at->qp, test_psn, 16, 7, 7) == 0);
  meet();
}

/* Takes completions; how many were receives. */
static int take(struct lane* at) {
  struct ibv_wc wc;
  int count = 0, got;
  while ((got = ibv_poll_cq(at->recv_cq, 1, &wc)) == 1) {
    CHECK(wc.status == IBV_WC_SUCCESS);
    count += wc.opcode == IBV_WC_RECV;
  }
  CHECK(got == 0);
  while (at->send_cq != at->recv_cq && ibv_poll_cq(at->send_cq, 1, &wc) == 1)
    CHECK(wc.status == IBV_WC_SUCCESS);
  return count;
}

enum how { how_block, how_poll, how_epoll };

/* SIGALRM is blocked but in ibv_get_cq_event(3). One signal at a time: with a timer that repeats, signals would follow each other without a
 * pause where fork(2) takes longer than its interval, and the exchange would stand still. */
static int has_handler;
static volatile sig_atomic_t forks, is_set;
static void let_handler(int how) {
  const struct itimerval once = {{0, 0}, {0, 20000}};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  if (!has_handler) return;
  if (how == SIG_UNBLOCK && !is_set) {
    is_set = 1;
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
  }
  CHECK(pthread_sigmask(how, &set, NULL) == 0);
}
static void fork_in_handler(int number) {
  (void)number;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  if (child > 0) waitpid(child, NULL, 0);
  ++forks;
  is_set = 0;
}

static void sleep_in(struct lane* at, enum how how) {
  static int set = -1;
  if (how == how_poll) {
    struct pollfd on = {at->channel->fd, POLLIN, 0};
    CHECK(poll(&on, 1, 30000) == 1);
  } else if (how == how_epoll) {
    struct epoll_event event = {.events = EPOLLIN};
    if (set < 0) {
      CHECK((set = epoll_create1(0)) >= 0);
      CHECK(fcntl(at->channel->fd, F_SETFL, O_NONBLOCK) == 0);
      CHECK(epoll_ctl(set, EPOLL_CTL_ADD, at->channel->fd, &event) == 0);
    }
    CHECK(epoll_wait(set, &event, 1, 30000) == 1);
  }
  struct ibv_cq* cq;
  void* with;
  let_handler(SIG_UNBLOCK);
  CHECK(ibv_get_cq_event(at->channel, &cq, &with) == 0);
  let_handler(SIG_BLOCK);
  CHECK(cq == at->recv_cq || cq == at->send_cq);
  ++at->events;
  ibv_ack_cq_events(cq, 1);
}

static void arm(struct lane* at) {
  CHECK(ibv_req_notify_cq(at->recv_cq, 0) == 0);
  if (at->send_cq != at->recv_cq) CHECK(ibv_req_notify_cq(at->send_cq, 0) == 0);
}

static void await_message(struct lane* at, enum how how) {
  for (;;) {
    if (take(at)) break;
    arm(at);
    if (take(at)) break;
    sleep_in(at, how);
  }
  post_receive(at);
}

static void exchange(struct lane* at, int count, int begins, enum how how) {
  for (int i = 0; i < count; ++i) {
    if (begins) post_send(at);
    await_message(at, how);
    if (!begins) post_send(at);
  }
}

/* Voluntary context switches of all threads but the first: those are the library's. */
static long switches(void) {
  long sum = 0;
  DIR* all = opendir("/proc/self/task");
  if (!all) return -1;
  for (struct dirent* one; (one = readdir(all));) {
    if (one->d_name[0] == '.' || atoi(one->d_name) == getpid()) continue;
    char name[300], line[200];
    snprintf(name, sizeof name, "/proc/self/task/%s/status", one->d_name);
    FILE* file = fopen(name, "r");
    long value = 0;
    while (file && fgets(line, sizeof line, file))
      if (sscanf(line, "voluntary_ctxt_switches: %ld", &value) == 1) sum += value;
    if (file) fclose(file);
  }
  closedir(all);
  return sum;
}

static int wakeups(int begins) {
  const double busy_s = 0.002; /* an exchange that takes so long: timers of the thread fall into it */
  double least = 1e9, fastest_s = 1e9;
  exchange(&lane[0], exchanges, begins, how_block);
  for (int round = 0; round < rounds; ++round) {
    const long before = switches();
    const double began_s = seconds();
    if (before < 0) return 77;
    exchange(&lane[0], exchanges, begins, how_block);
    const double each = (double)(switches() - before) / exchanges;
    const double each_s = (seconds() - began_s) / exchanges;
    least = each < least ? each : least;
    fastest_s = each_s < fastest_s ? each_s : fastest_s;
  }
  if (begins) printf("%.2f wake-ups of the library's threads for an exchange\n", least);
  return least < 0.5 ? 0 : fastest_s > busy_s ? 77 : 1;
}

static void* run_first(void* at) {
  exchange(at, exchanges, 1, how_block);
  return NULL;
}
static void* run_second(void* at) {
  exchange(at, exchanges, 0, how_block);
  return NULL;
}

/* Of one channel, whose queue is armed by the first thread. */
static unsigned heard;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int reply(struct lane* at) {
  for (int n; (n = take(at)) != 0;)
    for (; n > 0; --n, ++heard) post_receive(at), post_send(at);
  return heard >= exchanges;
}

static void* hear_events(void* of) {
  struct lane* at = of;
  for (int over = 0; !over;) {
    struct ibv_cq* cq;
    void* with;
    CHECK(ibv_get_cq_event(at->channel, &cq, &with) == 0);
    ibv_ack_cq_events(cq, 1);
    pthread_mutex_lock(&mutex);
    (void)reply(at);
    arm(at);
    over = reply(at);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static void two(int begins) {
  open_lane(&lane[1], NULL, 1);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, begins ? run_first : run_second, &lane[1]) == 0);
  exchange(&lane[0], exchanges, begins, how_block);
  CHECK(pthread_join(thread, NULL) == 0);
}

static _Atomic int sleeping_id;
static void* sleep_once(void* of) {
  struct lane* at = of;
  arm(at);
  sleeping_id = (int)syscall(SYS_gettid);
  sleep_in(at, how_block);
  return NULL;
}

/* Of a thread. */
static long switches_of(int id) {
  char name[100], line[200];
  snprintf(name, sizeof name, "/proc/self/task/%d/status", id);
  FILE* file = fopen(name, "r");
  long value = -1;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "voluntary_ctxt_switches: %ld", &value) == 1) break;
  if (file) fclose(file);
  return value;
}

static void exchange_by_polling(struct lane* at, int count, int begins) {
  for (int i = 0; i < count; ++i) {
    if (begins) post_send(at);
    while (!take(at)) continue;
    post_receive(at);
    if (!begins) post_send(at);
  }
}

/* Two threads that poll on busy CPUs need the slices of each other: fewer exchanges then. Where the thread that polls is off its CPU for long, the
 * sleeper has to take the packets, so most rounds are what counts, not all of them. */
static int polled(int begins) {
  enum { many = 10 * exchanges };
  const double until = seconds() + 20;
  open_lane(&lane[1], NULL, 1);
  pthread_t thread;
  if (begins) CHECK(pthread_create(&thread, NULL, sleep_once, &lane[1]) == 0);
  while (begins && sleeping_id == 0) usleep(1000);
  exchange_by_polling(&lane[0], exchanges, begins);
  const long before = begins ? switches_of(sleeping_id) : 0;
  long last = before;
  int count = 0, over = 0, quiet_rounds = 0, all_rounds = 0;
  while (!over) {
    exchange_by_polling(&lane[0], exchanges, begins);
    count += exchanges;
    const long now = begins ? switches_of(sleeping_id) : 0;
    quiet_rounds += now - last < exchanges / 10;
    last = now;
    ++all_rounds;
    over = count >= many || seconds() > until;
    if (begins) say(&over, sizeof over);
    else hear(&over, sizeof over);
  }
  const long woken = begins ? switches_of(sleeping_id) - before : 0;
  meet();
  if (!begins) post_send(&lane[1]);
  if (begins) CHECK(pthread_join(thread, NULL) == 0);
  if (before < 0) return 77;
  if (begins)
    printf("%.2f wake-ups of a thread that sleeps for an exchange of another one\n", (double)woken / count);
  return 2 * quiet_rounds > all_rounds ? 0 : 1;
}

static volatile sig_atomic_t signals;
static void on_signal(int number) {
  (void)number;
  ++signals;
}

static void* interrupt(void* of) {
  usleep(100000);
  pthread_kill(*(pthread_t*)of, SIGUSR1);
  usleep(100000);
  char byte = 1;
  say(&byte, 1);
  return NULL;
}

/* Sleeps; the signal comes after 0.1 s, and a message 0.1 s later. */
static void signals_of(int flags, int begins) {
  meet();
  char byte;
  if (!begins) {
    hear(&byte, 1);
    post_send(&lane[0]);
    meet();
    return;
  }
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
  sigaction(SIGUSR1, &action, NULL);
  while (take(&lane[0])) post_receive(&lane[0]);
  arm(&lane[0]);
  signals = 0;
  pthread_t thread, self = pthread_self();
  CHECK(pthread_create(&thread, NULL, interrupt, &self) == 0);
  struct ibv_cq* cq;
  void* with;
  int code = ibv_get_cq_event(lane[0].channel, &cq, &with);
  CHECK(signals == 1);
  if (!(flags & SA_RESTART)) {
    CHECK(code == -1 && errno == EINTR);
    code = ibv_get_cq_event(lane[0].channel, &cq, &with);
  }
  CHECK(code == 0 && cq == lane[0].recv_cq);
  ibv_ack_cq_events(cq, 1);
  CHECK(pthread_join(thread, NULL) == 0);
  while (take(&lane[0])) post_receive(&lane[0]);
  meet();
}

static void handler(int begins) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
  if (begins) {
    has_handler = 1;
    let_handler(SIG_BLOCK);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    usleep(200000); /* the library asks for handlers ten times a second */
  }
  int over = 0;
  while (!over) {
    exchange(&lane[0], exchanges, begins, how_block);
    over = forks >= 10;
    if (begins) say(&over, sizeof over);
    else hear(&over, sizeof over);
  }
  if (begins) CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void* fork_often(void* of) {
  (void)of;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      struct pollfd on = {lane[0].channel->fd, POLLIN, 0};
      poll(&on, 1, 1);
      _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
  }
  return NULL;
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const char* what = argv[2];
  int peers[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, peers) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  const int begins = child != 0;
  peer = peers[begins];
  close(peers[!begins]);
  alarm(120);
  context = open_named(argv[1]);
  CHECK(pd = ibv_alloc_pd(context));
  CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  open_lane(&lane[0], NULL, strcmp(what, "queues") == 0 ? 2 : 1);
  int status = 0;
  if (strcmp(what, "wakeups") == 0) {
    status = wakeups(begins);
  } else if (strcmp(what, "two") == 0) {
    two(begins);
  } else if (strcmp(what, "polled") == 0) {
    status = polled(begins);
  } else if (strcmp(what, "signals") == 0) {
    signals_of(SA_RESTART, begins);
    signals_of(0, begins);
  } else if (strcmp(what, "handler") == 0) {
    handler(begins);
  } else if (strcmp(what, "fork") == 0) {
    pthread_t thread;
    if (begins) CHECK(pthread_create(&thread, NULL, fork_often, NULL) == 0);
    exchange(&lane[0], 10 * exchanges, begins, how_block);
    if (begins) CHECK(pthread_join(thread, NULL) == 0);
  } else if (strcmp(what, "shared") == 0) {
    pthread_t threads[2];
    arm(&lane[0]);
    meet();
    if (begins) post_send(&lane[0]);
    for (int i = 0; i < 2; ++i) {
      CHECK(pthread_create(&threads[i], NULL, hear_events, &lane[0]) == 0);
      CHECK(pthread_detach(threads[i]) == 0); /* one of them may sleep at the end */
    }
    unsigned count = 0;
    while (count < exchanges) {
      usleep(1000);
      pthread_mutex_lock(&mutex);
      count = heard;
      pthread_mutex_unlock(&mutex);
    }
    printf("%u heard\n", count);
    fflush(stdout);
    char byte = 1;
    say(&byte, 1);
    hear(&byte, 1);
    usleep(20000);
    _exit(0);
  } else {
    const enum how how = strcmp(what, "poll") == 0    ? how_poll
                         : strcmp(what, "epoll") == 0 ? how_epoll
                                                      : how_block;
    exchange(&lane[0], exchanges, begins, how);
    if (begins) CHECK(lane[0].events != 0);
  }
  meet();
  if (!begins) {
    fflush(stdout);
    _exit(status);
  }
  int of_child = 0;
  CHECK(waitpid(child, &of_child, 0) == child);
  CHECK(WIFEXITED(of_child));
  if (status == 0) status = WEXITSTATUS(of_child);
  printf("%s: %s\n", what, status == 0 ? "ok" : status == 77 ? "cannot be counted here" : "FAILED");
  return status;
}
