// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Multicast by UD queue pairs, for multicast_test.sh. Prints one line of what it found; exit status 1 when something does not work.
 *
 *   multicast limits                     what attaching and detaching refuse
 *   multicast hear DEVICE INDEX GROUP    two queue pairs in the group; prints "ready", waits for a datagram at both, and answers it
 *   multicast say DEVICE INDEX GROUP     sends to the group until the answer comes; is in the group with another queue pair, too
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(good)                                                                  \
  do {                                                                               \
    if (!(good)) {                                                                   \
      printf("FAILED: line %d: %s (errno: %s)\n", __LINE__, #good, strerror(errno)); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

enum { slot = 256, slots = 8, grh = 40, qkey = 0x22222222, group_qpn = 0xffffff };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_mr* mr;
static char memory[slot * slots];

static void open_device(const char* name) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  CHECK(list);
  for (int i = 0; i < count && !context; ++i)
    if (!name || strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  CHECK(context);
  ibv_free_device_list(list);
  CHECK(pd = ibv_alloc_pd(context));
  CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
  CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
}

static struct ibv_qp* make(enum ibv_qp_type type) {
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {8, 8, 1, 1, 0}};
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp);
  if (type != IBV_QPT_UD) return qp;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return qp;
}

static union ibv_gid gid_of(const char* text) {
  union ibv_gid gid;
  CHECK(inet_pton(AF_INET6, text, gid.raw) == 1);
  return gid;
}

static struct ibv_ah* handle_of(const union ibv_gid* group, int index) {
  struct ibv_ah_attr attr = {
      .grh = {.dgid = *group, .sgid_index = (uint8_t)index, .hop_limit = 1}, .is_global = 1, .port_num = 1};
  return ibv_create_ah(pd, &attr);
}

static void receive(struct ibv_qp* qp, unsigned place) {
  struct ibv_sge to = {(uintptr_t)(memory + place * slot), slot, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = place, .sg_list = &to, .num_sge = 1}, *bad;
  CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void post(struct ibv_qp* qp, struct ibv_ah* ah, uint32_t qpn, const char* text) {
  char* at = memory + (slots - 1) * slot;
  strcpy(at, text);
  struct ibv_sge from = {(uintptr_t)at, (uint32_t)strlen(text) + 1, mr->lkey};
  struct ibv_send_wr wr = {.wr_id = 100,
                           .sg_list = &from,
                           .num_sge = 1,
                           .opcode = IBV_WR_SEND,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = qpn;
  wr.wr.ud.remote_qkey = qkey;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

/* The next receive within that time; 0: none came. */
static int next(struct ibv_wc* wc, int ms) {
  struct timespec now, begin;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    const int n = ibv_poll_cq(cq, 1, wc);
    CHECK(n >= 0 && (n == 0 || wc->status == IBV_WC_SUCCESS));
    if (n == 1 && wc->opcode == IBV_WC_RECV) return 1;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
  return 0;
}

static void limits(void) {
  open_device(NULL);
  struct ibv_device_attr attr;
  CHECK(ibv_query_device(context, &attr) == 0);
  CHECK(attr.max_mcast_grp > 0 && attr.max_mcast_qp_attach > 0 &&
        attr.max_total_mcast_qp_attach >= attr.max_mcast_grp);
  struct ibv_qp *qp = make(IBV_QPT_UD), *rc = make(IBV_QPT_RC);
  union ibv_gid group = gid_of("::ffff:239.7.5.1"), other = gid_of("::ffff:239.7.5.2"),
                none = gid_of("::ffff:10.7.5.1");
  CHECK(ibv_detach_mcast(qp, &group, 0) == EINVAL);
  CHECK(ibv_attach_mcast(rc, &group, 0) == EINVAL);
  CHECK(ibv_attach_mcast(qp, &none, 0) == EINVAL);
  CHECK(ibv_attach_mcast(qp, &group, 0) == 0 && ibv_attach_mcast(qp, &group, 0) == 0);
  CHECK(ibv_attach_mcast(qp, &other, 0) == 0);
  CHECK(ibv_destroy_qp(qp) == EBUSY);
  CHECK(ibv_detach_mcast(qp, &group, 0) == 0 && ibv_detach_mcast(qp, &group, 0) == EINVAL);
  CHECK(ibv_destroy_qp(qp) == EBUSY);
  CHECK(ibv_detach_mcast(qp, &other, 0) == 0 && ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(rc) == 0);
  /* What a program leaves goes with its context. */
  CHECK(ibv_attach_mcast(make(IBV_QPT_UD), &group, 0) == 0);
}

static void hear(int index, const union ibv_gid* group) {
  struct ibv_qp* qps[2] = {make(IBV_QPT_UD), make(IBV_QPT_UD)};
  for (unsigned i = 0; i < 2; ++i) {
    receive(qps[i], i);
    CHECK(ibv_attach_mcast(qps[i], group, 0) == 0);
  }
  puts("ready");
  fflush(stdout);
  struct ibv_wc wc[2];
  CHECK(next(&wc[0], 20000) && next(&wc[1], 1000) && wc[0].qp_num != wc[1].qp_num);
  for (unsigned i = 0; i < 2; ++i) {
    CHECK(strcmp(memory + wc[i].wr_id * slot + grh, "anybody there?") == 0 && (wc[i].wc_flags & IBV_WC_GRH));
  }
  struct ibv_ah* back = ibv_create_ah_from_wc(pd, &wc[0], (struct ibv_grh*)(memory + wc[0].wr_id * slot), 1);
  CHECK(back);
  post(qps[0], back, wc[0].src_qp, "here");
  for (unsigned i = 0; i < 2; ++i) CHECK(ibv_detach_mcast(qps[i], group, 0) == 0);
  usleep(200000);
  printf("heard by GID %d, from queue pair %u\n", index, wc[0].src_qp);
}

static void say(int index, const union ibv_gid* group) {
  struct ibv_qp *qp = make(IBV_QPT_UD), *own = make(IBV_QPT_UD);
  struct ibv_ah* ah = handle_of(group, index);
  CHECK(ah);
  receive(qp, 0);
  receive(own, 1);
  CHECK(ibv_attach_mcast(own, group, 0) == 0 && ibv_attach_mcast(qp, group, 0) == 0);
  struct ibv_wc wc;
  int own_heard = 0, answered = 0;
  for (int i = 0; i < 100 && !answered; ++i) {
    post(qp, ah, group_qpn, "anybody there?");
    while (next(&wc, 100)) {
      const char* text = memory + wc.wr_id * slot + grh;
      if (wc.qp_num == own->qp_num) {
        CHECK(strcmp(text, "anybody there?") == 0);
        own_heard = 1;
      } else {
        CHECK(strcmp(text, "here") == 0); /* and not what it sent itself */
        answered = 1;
      }
    }
  }
  CHECK(answered && own_heard);
  puts("answered");
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "limits") == 0) {
    limits();
  } else {
    CHECK(argc == 5);
    open_device(argv[2]);
    const union ibv_gid group = gid_of(argv[4]);
    strcmp(argv[1], "hear") == 0 ? hear(atoi(argv[3]), &group) : say(atoi(argv[3]), &group);
  }
  if (argc == 2) puts("works");
  return ibv_close_device(context) == 0 ? 0 : 1;
}
