// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What the programs of tests/verbs/ share: a device, queue pairs in each state, one completion. Static functions; a program uses some of them. */
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UNUSED_OK __attribute__((unused))
#define CHECK(good)                                                                              \
  do {                                                                                           \
    if (!(good)) {                                                                               \
      printf("FAILED: %s:%d: %s (errno: %s)\n", strrchr("/" __FILE__, '/') + 1, __LINE__, #good, \
             strerror(errno));                                                                   \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

enum { test_psn = 0xfffff0, test_qkey = 0x11 };
/* Whether the program and the library are built with a sanitizer, which needs memory and threads of its own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { is_sanitized = 1 };
#else
enum { is_sanitized = 0 };
#endif

UNUSED_OK static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

UNUSED_OK static struct ibv_context* open_named(const char* name) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  CHECK(list && count > 0);
  struct ibv_context* context = NULL;
  for (int i = 0; i < count && !context; ++i)
    if (!name || strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  CHECK(context);
  return context;
}

UNUSED_OK static union ibv_gid gid_at(struct ibv_context* context, int index) {
  union ibv_gid gid;
  CHECK(ibv_query_gid(context, 1, index, &gid) == 0);
  return gid;
}

UNUSED_OK static int to_init(struct ibv_qp* qp, int access) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = test_qkey, .qp_access_flags = (unsigned)access};
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

UNUSED_OK static int to_rtr(struct ibv_qp* qp, const struct ibv_ah_attr* path, uint32_t qpn, uint32_t psn) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_1024,
                             .dest_qp_num = qpn,
                             .rq_psn = psn,
                             .max_dest_rd_atomic = 4,
                             .min_rnr_timer = 1};
  if (path) attr.ah_attr = *path;
  int mask = IBV_QP_STATE;
  if (qp->qp_type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(qp, &attr, mask);
}

UNUSED_OK static int to_rts(struct ibv_qp* qp, uint32_t psn, uint8_t timeout, uint8_t retries,
                            uint8_t rnr_retries) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                             .timeout = timeout,
                             .retry_cnt = retries,
                             .rnr_retry = rnr_retries,
                             .sq_psn = psn,
                             .max_rd_atomic = 4};
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(qp, &attr, mask);
}

UNUSED_OK static struct ibv_ah_attr path_to(union ibv_gid gid, int index) {
  struct ibv_ah_attr path = {
      .is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = (uint8_t)index, .hop_limit = 64}};
  return path;
}

/* To RTS, with all remote rights. */
UNUSED_OK static void connect_to(struct ibv_qp* qp, const struct ibv_ah_attr* path, uint32_t qpn) {
  CHECK(to_init(qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC) == 0);
  CHECK(to_rtr(qp, path, qpn, test_psn) == 0);
  CHECK(to_rts(qp, test_psn, 14, 7, 7) == 0);
}

/* 1, or 0: none came within `limit` seconds. */
UNUSED_OK static int one_completion(struct ibv_cq* cq, struct ibv_wc* wc, double limit) {
  const double until = seconds() + limit;
  int count = 0;
  memset(wc, 0, sizeof *wc);
  while ((count = ibv_poll_cq(cq, 1, wc)) == 0 && seconds() < until) usleep(20);
  CHECK(count >= 0);
  return count;
}
