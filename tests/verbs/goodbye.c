// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* A message whose receive has completed at the peer is a success at its sender, however soon the sender flushes its queue pair, for goodbye_test.sh.
 * Two processes; the receiver polls or sleeps until its completion and then writes a byte to a socket, or exits; the sender reads that, moves its queue
 * pair to ERR and polls. Prints one line; exit status 1 when a message was flushed.
 *
 *   goodbye DEVICE ROUNDS poll|event|exit|gone send|immediate
 *
 * poll, event: how the receiver waits. exit: it polls, and exit(3) is what it does next. gone: the receiver has reset its
 * queue pair before, so nothing is acknowledged; fails when the calls of ibv_modify_qp take more than 50 ms on average.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(good)                                                                  \
  do {                                                                               \
    if (!(good)) {                                                                   \
      printf("FAILED: line %d: %s (errno: %s)\n", __LINE__, #good, strerror(errno)); \
      fflush(stdout);                                                                \
      _exit(1);                                                                      \
    }                                                                                \
  } while (0)

enum { bytes = 64, warm = 3, patience_s = 30 };
enum how { how_poll, how_event, how_exit, how_gone };

struct card {
  union ibv_gid gid;
  uint32_t qpn, psn, key;
  uint64_t address;
};

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_comp_channel* channel;
static struct ibv_cq* cq;
static struct ibv_qp* qp;
static struct ibv_mr* mr;
static char memory[2 * bytes];
static struct card own, other;
static int with_immediate;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void open_device(const char* name) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  CHECK(list);
  for (int i = 0; i < count && !context; ++i)
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  CHECK(context);
  ibv_free_device_list(list);
  CHECK(pd = ibv_alloc_pd(context));
  CHECK(channel = ibv_create_comp_channel(context));
  CHECK(cq = ibv_create_cq(context, 64, NULL, channel, 0));
  CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
  CHECK(qp = ibv_create_qp(pd, &init));
}

static void say(int peer, const void* what, size_t size) { CHECK(write(peer, what, size) == (ssize_t)size); }
static void hear(int peer, void* what, size_t size) {
  for (size_t got = 0; got < size;) {
    const ssize_t n = read(peer, (char*)what + got, size - got);
    CHECK(n > 0);
    got += (size_t)n;
  }
}
static void meet(int peer) {
  char byte = 1;
  say(peer, &byte, 1);
  hear(peer, &byte, 1);
}

static void modify(struct ibv_qp_attr* attr, enum ibv_qp_state state, int mask) {
  attr->qp_state = state;
  CHECK(ibv_modify_qp(qp, attr, mask | IBV_QP_STATE) == 0);
}

static void post_receive(void) {
  struct ibv_sge to = {(uintptr_t)memory, bytes, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad;
  CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void bring_up(int peer, uint32_t round, int receives) {
  struct ibv_qp_attr attr = {.port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  modify(&attr, IBV_QPS_RESET, 0);
  modify(&attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  for (int i = 0; i < receives; ++i) post_receive();
  own.qpn = qp->qp_num;
  own.psn = (round * 1000 + 7) & 0xffffff;
  own.key = mr->rkey;
  own.address = (uintptr_t)memory;
  CHECK(ibv_query_gid(context, 1, 0, &own.gid) == 0);
  say(peer, &own, sizeof own);
  hear(peer, &other, sizeof other);
  memset(&attr, 0, sizeof attr);
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = other.qpn;
  attr.rq_psn = other.psn;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.min_rnr_timer = 26; /* 81.92 ms */
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = other.gid;
  modify(&attr, IBV_QPS_RTR,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER);
  attr.sq_psn = own.psn;
  attr.timeout = 16;
  attr.retry_cnt = attr.rnr_retry = 7;
  modify(&attr, IBV_QPS_RTS,
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  meet(peer);
}

static void post_send(uint64_t id) {
  struct ibv_sge from = {(uintptr_t)(memory + bytes), bytes, mr->lkey};
  struct ibv_send_wr wr = {.wr_id = id,
                           .sg_list = &from,
                           .num_sge = 1,
                           .opcode = with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  wr.wr.rdma.remote_addr = other.address;
  wr.wr.rdma.rkey = other.key;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static struct ibv_wc wait_one(int sleeps) {
  struct ibv_wc wc;
  const double end = seconds() + patience_s;
  for (;;) {
    const int n = ibv_poll_cq(cq, 1, &wc);
    CHECK(n >= 0);
    if (n == 1) return wc;
    CHECK(seconds() < end);
    if (!sleeps) continue;
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
    const int again = ibv_poll_cq(cq, 1, &wc);
    if (again == 1) return wc;
    struct ibv_cq* got;
    void* with;
    CHECK(ibv_get_cq_event(channel, &got, &with) == 0);
    ibv_ack_cq_events(got, 1);
  }
}

/* One completion of each kind. */
static void wait_both(int sleeps) {
  for (int i = 0; i < 2; ++i) CHECK(wait_one(sleeps).status == IBV_WC_SUCCESS);
}

static void receiver(int peer, uint32_t rounds, enum how how) {
  const int sleeps = how == how_event;
  for (uint32_t round = 0; round < rounds; ++round) {
    bring_up(peer, round, how == how_gone ? 0 : warm + 1);
    char byte = 1;
    if (how == how_gone) {
      struct ibv_qp_attr attr = {0};
      modify(&attr, IBV_QPS_RESET, 0);
      say(peer, &byte, 1);
    } else {
      for (int i = 0; i < warm; ++i) { /* a ping-pong, as programs have it before they end */
        CHECK(wait_one(sleeps).status == IBV_WC_SUCCESS);
        post_send(2);
        CHECK(wait_one(sleeps).status == IBV_WC_SUCCESS);
      }
      CHECK(wait_one(sleeps).status == IBV_WC_SUCCESS);
      if (how == how_exit) exit(0);
      say(peer, &byte, 1);
    }
    hear(peer, &byte, 1);
  }
}

/* How many were flushed. */
static uint32_t sender(int peer, uint32_t round, enum how how, double* took) {
  bring_up(peer, round, how == how_gone ? 0 : warm);
  char byte;
  if (how == how_gone) {
    hear(peer, &byte, 1);
  } else {
    for (int i = 0; i < warm; ++i) {
      post_send(2);
      wait_both(how == how_event);
    }
  }
  post_send(3);
  if (how == how_exit) {
    CHECK(read(peer, &byte, 1) == 0);
  } else if (how != how_gone) {
    hear(peer, &byte, 1);
  }
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
  const double from = seconds();
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  *took = seconds() - from;
  const struct ibv_wc wc = wait_one(0);
  CHECK(wc.wr_id == 3 && (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR));
  if (how != how_exit) say(peer, &byte, 1);
  return wc.status == IBV_WC_SUCCESS ? 0 : 1;
}

int main(int argc, char** argv) {
  CHECK(argc == 5);
  const uint32_t rounds = (uint32_t)atoi(argv[2]);
  const enum how how = strcmp(argv[3], "event") == 0  ? how_event
                       : strcmp(argv[3], "exit") == 0 ? how_exit
                       : strcmp(argv[3], "gone") == 0 ? how_gone
                                                      : how_poll;
  with_immediate = strcmp(argv[4], "immediate") == 0;
  const uint32_t processes = how == how_exit ? rounds : 1;
  int peers[2];
  uint32_t flushed = 0;
  double longest = 0, sum = 0;
  for (uint32_t i = 0; i < processes; ++i) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, peers) == 0);
    fflush(stdout);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) { /* the receiver; no device is open in the parent when it forks for the first time */
      close(peers[0]);
      context = NULL;
      open_device(argv[1]);
      receiver(peers[1], how == how_exit ? 1 : rounds, how);
      exit(0);
    }
    close(peers[1]);
    if (i == 0) open_device(argv[1]);
    for (uint32_t round = 0; round < (how == how_exit ? 1 : rounds); ++round) {
      double took = 0;
      flushed += sender(peers[0], round + i, how, &took);
      sum += took;
      longest = took > longest ? took : longest;
    }
    close(peers[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  if (how == how_gone) {
    CHECK(flushed == rounds && sum / rounds < 0.050);
    printf("ibv_modify_qp took %.1f ms at most, %.2f on average\n", longest * 1e3, sum * 1e3 / rounds);
    return 0;
  }
  printf("%u of %u flushed; ibv_modify_qp took %.2f ms at most, %.3f on average\n", flushed, rounds,
         longest * 1e3, sum * 1e3 / rounds);
  return flushed != 0;
}
