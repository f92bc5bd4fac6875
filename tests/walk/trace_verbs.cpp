// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Records the functions that an RC SEND of 8 bytes passes between two queue pairs of one device, by UDP: ibv_post_send, and the ibv_poll_cq that returns
// the receive's completion, with some behind it.
//
//   trace    prints "send ADDRESS" and "receive ADDRESS" lines, in the order of the calls; tests/walk/walk_test.py gives them names
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "recorder.hpp"

namespace {

using walk::must;
using walk::record;

walk::Record out_calls;
walk::Record in_calls;
constexpr int warm_up = 200;

ibv_context* open_loopback() {
  ibv_device** list = ibv_get_device_list(nullptr);
  must("ibv_get_device_list", list == nullptr ? -1 : 0);
  ibv_context* context = nullptr;
  for (ibv_device** one = list; *one != nullptr && context == nullptr; ++one)
    if (std::strcmp(ibv_get_device_name(*one), "weft_lo") == 0) context = ibv_open_device(*one);
  ibv_free_device_list(list);
  must("ibv_open_device", context == nullptr ? -1 : 0);
  return context;
}

struct Side {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  uint64_t word = 0;

  void open(ibv_context* context, ibv_pd* pd) {
    cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    must("ibv_create_cq", cq == nullptr ? -1 : 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    init.sq_sig_all = 1;
    qp = ibv_create_qp(pd, &init);
    must("ibv_create_qp", qp == nullptr ? -1 : 0);
    mr = ibv_reg_mr(pd, &word, sizeof(word), IBV_ACCESS_LOCAL_WRITE);
    must("ibv_reg_mr", mr == nullptr ? -1 : 0);
  }
  void connect(const ibv_gid& gid, uint32_t peer) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    must("INIT", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer;
    a.min_rnr_timer = 1;
    a.max_dest_rd_atomic = 1;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = gid;
    a.ah_attr.grh.hop_limit = 1;
    must("RTR", ibv_modify_qp(qp, &a,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    must("RTS", ibv_modify_qp(qp, &a,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
  }
  ibv_sge sge() const { return {reinterpret_cast<uint64_t>(&word), sizeof(word), mr->lkey}; }
  int poll() const {
    ibv_wc wc{};
    const int got = ibv_poll_cq(cq, 1, &wc);
    must("ibv_poll_cq", got < 0 ? got : 0);
    must("a completion", got == 1 && wc.status != IBV_WC_SUCCESS ? wc.status : 0);
    return got;
  }
  void close() const {
    must("ibv_destroy_qp", ibv_destroy_qp(qp));
    must("ibv_dereg_mr", ibv_dereg_mr(mr));
    must("ibv_destroy_cq", ibv_destroy_cq(cq));
  }
};

}  // namespace

int main() {
  must("setenv", setenv("WEFT_VERBS_SHM", "0", 1));  // not by shared memory
  ibv_context* const context = open_loopback();
  ibv_pd* const pd = ibv_alloc_pd(context);
  must("ibv_alloc_pd", pd == nullptr ? -1 : 0);
  ibv_gid gid{};
  must("ibv_query_gid", ibv_query_gid(context, 1, 0, &gid));
  Side sender;
  Side receiver;
  sender.open(context, pd);
  receiver.open(context, pd);
  sender.connect(gid, receiver.qp->qp_num);
  receiver.connect(gid, sender.qp->qp_num);
  for (int i = 0; i <= warm_up; ++i) {
    ibv_sge to = receiver.sge();
    ibv_recv_wr receive{};
    receive.sg_list = &to;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    must("ibv_post_recv", ibv_post_recv(receiver.qp, &receive, &bad_receive));
    sender.word = static_cast<uint64_t>(i) + 1;
    ibv_sge from = sender.sge();
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    send.sg_list = &from;
    send.num_sge = 1;
    ibv_send_wr* bad_send = nullptr;
    out_calls.count = 0;
    must("ibv_post_send", record(out_calls, [&] { return ibv_post_send(sender.qp, &send, &bad_send); }));
    while (in_calls.count = 0, record(in_calls, [&] { return receiver.poll(); }) != 1) {
    }
    must("the message", receiver.word == sender.word ? 0 : -1);
    // The acknowledgement leaves and comes in calls behind it. Both queue pairs are of one device, so either's program takes it.
    for (int more = 0; more < 3; ++more) (void)record(in_calls, [&] { return receiver.poll(); });
    while (sender.poll() != 1) {
    }
  }
  walk::print("send", out_calls);
  walk::print("receive", in_calls);
  sender.close();
  receiver.close();
  must("ibv_dealloc_pd", ibv_dealloc_pd(pd));
  must("ibv_close_device", ibv_close_device(context));
  return 0;
}
