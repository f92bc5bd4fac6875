// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Queue pairs that are made, used once and destroyed, while another one of the same device sends all the time, for churn_test.sh. Two processes; all
 * contents are checked. At the end neither process has more descriptors than after the first tenth, and little more memory.
 *
 *   churn DEVICE PAIRS [GID-INDEX NETWORK-NAMESPACE]
 *
 * With a namespace one of the two processes is in it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "program.h"

enum { at_once = 50, bytes = 3000, depth = 8, patience_s = 60 };
enum { steady = 1u << 20 }; /* wr_id of the queue pair that stays; the others count from 0 */

static int gid_index;

struct side {
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  struct ibv_qp* stays;
  struct ibv_qp* some[at_once];
  union ibv_gid gid;
  int peer;
  uint32_t sent, received; /* of the queue pair that stays */
  unsigned arrived, left;  /* messages of the batch */
  char* memory;            /* at_once + depth places to receive at, and as many to send from */
};

struct card {
  union ibv_gid gid;
  uint32_t qpn[at_once + 1];
};

static char* place(const struct side* s, unsigned index, int out) {
  return s->memory + (size_t)bytes * (index + (out ? at_once + depth : 0));
}

static void fill(char* at, uint32_t seed) {
  for (unsigned i = 0; i < bytes; ++i) at[i] = (char)(seed * 31 + i);
}

static int is_filled(const char* at, uint32_t seed) {
  for (unsigned i = 0; i < bytes; ++i)
    if (at[i] != (char)(seed * 31 + i)) return 0;
  return 1;
}

static void receive(struct side* s, struct ibv_qp* qp, unsigned index, uint64_t id) {
  struct ibv_sge to = {(uintptr_t)place(s, index, 0), bytes, s->mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &to, .num_sge = 1}, *bad;
  CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void post(struct side* s, struct ibv_qp* qp, unsigned index, uint64_t id, uint32_t seed) {
  fill(place(s, index, 1), seed);
  struct ibv_sge from = {(uintptr_t)place(s, index, 1), bytes, s->mr->lkey};
  struct ibv_send_wr wr = {
      .wr_id = id, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static struct ibv_qp* make(struct side* s) {
  struct ibv_qp_init_attr init = {
      .send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC, .cap = {depth, depth, 1, 1, 0}};
  struct ibv_qp* qp = ibv_create_qp(s->pd, &init);
  CHECK(qp);
  return qp;
}

static void exchange(const struct side* s, struct card* own, struct card* other) {
  CHECK(send(s->peer, own, sizeof *own, 0) == sizeof *own);
  CHECK(recv(s->peer, other, sizeof *other, MSG_WAITALL) == sizeof *other);
}

static void drive(struct side* s, uint32_t batch) {
  struct ibv_wc wc;
  const int count = ibv_poll_cq(s->cq, 1, &wc);
  CHECK(count >= 0);
  if (count == 0) return;
  if (wc.status != IBV_WC_SUCCESS) printf("FAILED: %s\n", ibv_wc_status_str(wc.status));
  CHECK(wc.status == IBV_WC_SUCCESS);
  const int is_steady = wc.wr_id >= steady;
  if (wc.opcode == IBV_WC_RECV) {
    CHECK(wc.byte_len == bytes);
    const unsigned index = (unsigned)(is_steady ? at_once + wc.wr_id - steady : wc.wr_id);
    CHECK(is_filled(place(s, index, 0), is_steady ? s->received++ : batch * at_once + index));
    if (is_steady) receive(s, s->stays, index, wc.wr_id);
    else ++s->arrived;
  } else if (is_steady) {
    post(s, s->stays, (unsigned)(at_once + wc.wr_id - steady), wc.wr_id, s->sent++);
  } else {
    ++s->left;
  }
}

static unsigned descriptors(void) {
  unsigned count = 0;
  DIR* all = opendir("/proc/self/fd");
  CHECK(all);
  while (readdir(all)) ++count;
  closedir(all);
  return count;
}

static unsigned long resident_kb(void) {
  unsigned long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%*u %lu", &pages) == 1);
  fclose(file);
  return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static void one_batch(struct side* s, uint32_t batch) {
  struct card own = {.gid = s->gid}, other;
  for (int i = 0; i < at_once; ++i) {
    s->some[i] = make(s);
    own.qpn[i] = s->some[i]->qp_num;
  }
  exchange(s, &own, &other);
  const struct ibv_ah_attr path = path_to(other.gid, gid_index);
  for (unsigned i = 0; i < at_once; ++i) {
    connect_to(s->some[i], &path, other.qpn[i]);
    receive(s, s->some[i], i, i);
    drive(s, batch);
  }
  exchange(s, &own, &other);
  s->arrived = s->left = 0;
  for (unsigned i = 0; i < at_once; ++i) post(s, s->some[i], i, i, batch * at_once + i);
  const double until = seconds() + patience_s;
  while (s->arrived < at_once || s->left < at_once) {
    drive(s, batch);
    CHECK(seconds() < until);
  }
  /* The peer's sends may be without their acknowledgement yet: it says when it has all. */
  char done = 1;
  CHECK(send(s->peer, &done, 1, 0) == 1);
  while (recv(s->peer, &done, 1, MSG_DONTWAIT) != 1) {
    drive(s, batch);
    CHECK(seconds() < until);
  }
  for (int i = 0; i < at_once; ++i) {
    CHECK(ibv_destroy_qp(s->some[i]) == 0);
    drive(s, batch);
  }
}

static void run(const char* device, uint32_t batches, int peer) {
  struct side s = {.peer = peer};
  struct ibv_context* context = open_named(device);
  const size_t size = (size_t)bytes * 2 * (at_once + depth);
  CHECK((s.memory = calloc(1, size)) && (s.pd = ibv_alloc_pd(context)));
  CHECK(s.cq = ibv_create_cq(context, 4 * (at_once + depth), NULL, NULL, 0));
  CHECK(s.mr = ibv_reg_mr(s.pd, s.memory, size, IBV_ACCESS_LOCAL_WRITE));
  s.gid = gid_at(context, gid_index);
  s.stays = make(&s);
  struct card own = {.gid = s.gid}, other;
  own.qpn[at_once] = s.stays->qp_num;
  exchange(&s, &own, &other);
  const struct ibv_ah_attr path = path_to(other.gid, gid_index);
  connect_to(s.stays, &path, other.qpn[at_once]);
  for (unsigned i = 0; i < depth; ++i) receive(&s, s.stays, at_once + i, steady + i);
  exchange(&s, &own, &other);
  for (unsigned i = 0; i < depth / 2; ++i) post(&s, s.stays, at_once + i, steady + i, s.sent++);
  unsigned open_before = 0;
  unsigned long before_kb = 0;
  const double begin = seconds();
  for (uint32_t batch = 0; batch < batches; ++batch) {
    one_batch(&s, batch);
    if (batch != batches / 10) continue;
    open_before = descriptors();
    before_kb = resident_kb();
  }
  printf("%u queue pairs in %.1f s, %u messages of the one that stays, %u to %u descriptors, %lu to %lu kB\n",
         batches * at_once, seconds() - begin, s.received, open_before, descriptors(), before_kb,
         resident_kb());
  CHECK(s.received > 0);
  CHECK(descriptors() <= open_before);
  CHECK(is_sanitized || resident_kb() < before_kb + 4096);
  fflush(stdout);
  _exit(0); /* as programs end: with a queue pair in use */
}

int main(int count, char** words) {
  if (count != 3 && count != 5) return 2;
  if (count == 5) gid_index = atoi(words[3]);
  const uint32_t batches = ((uint32_t)atoi(words[2]) + at_once - 1) / at_once;
  int ends[2], status = 0;
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  close(ends[child != 0]);
  if (child == 0) {
    if (count == 5) CHECK(setns(open(words[4], O_RDONLY), CLONE_NEWNET) == 0);
    run(words[1], batches, ends[1]);
  }
  const pid_t second = fork(); /* the library is opened in children only */
  CHECK(second >= 0);
  if (second == 0) run(words[1], batches, ends[0]);
  close(ends[0]);
  int failed = 0;
  for (int i = 0; i < 2; ++i) {
    CHECK(wait(&status) > 0);
    failed |= status != 0;
  }
  return failed;
}
