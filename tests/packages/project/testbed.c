// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Sends eight bytes to itself over an RC queue pair of the first verbs device, and asks libfabric for endpoints. */
#include <infiniband/verbs.h>
#include <rdma/fabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "testbed: %s\n", what);
  exit(1);
}

static void connect_to_itself(struct ibv_qp* qp, union ibv_gid gid) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = qp->qp_num,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}};
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  need(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
       "INIT");
  need(ibv_modify_qp(qp, &rtr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
       "RTR");
  need(ibv_modify_qp(qp, &rts,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                         IBV_QP_MAX_QP_RD_ATOMIC) == 0,
       "RTS");
}

static void send_over_verbs(void) {
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  need(devices != NULL && count > 0, "no verbs device");
  struct ibv_context* context = ibv_open_device(devices[0]);
  need(context != NULL, "the device does not open");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  char memory[16] = "eight..";
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_qp_init_attr wanted = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp* qp = ibv_create_qp(pd, &wanted);
  union ibv_gid gid;
  need(mr != NULL && qp != NULL && ibv_query_gid(context, 1, 0, &gid) == 0, "no queue pair");
  connect_to_itself(qp, gid);
  struct ibv_sge to = {(uintptr_t)memory + 8, 8, mr->lkey}, from = {(uintptr_t)memory, 8, mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
  struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
  need(ibv_post_recv(qp, &receive, &bad_receive) == 0 && ibv_post_send(qp, &send, &bad_send) == 0, "posting");
  for (int done = 0; done < 2;) {
    struct ibv_wc completion;
    const int polled = ibv_poll_cq(cq, 1, &completion);
    need(polled >= 0 && (polled == 0 || completion.status == IBV_WC_SUCCESS), "a completion");
    done += polled;
  }
  need(memcmp(memory, memory + 8, 8) == 0, "other bytes arrived");
  printf("testbed: %s carried a message\n", ibv_get_device_name(devices[0]));
}

int main(void) {
  send_over_verbs();
  struct fi_info* info = NULL;
  need(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info) == 0, "libfabric has no provider");
  printf("testbed: the first provider of libfabric is %s\n", info->fabric_attr->prov_name);
  fi_freeinfo(info);
  return 0;
}
