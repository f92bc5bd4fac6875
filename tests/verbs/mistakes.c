// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Programs make mistakes, and a device in software knows which: mistakes NAME, or mistakes list. Two devices in one process, "asker" and
 * "owner", so that the lines of both sides are there; prints what the program hears of the mistake: "asker SEND: status 10 vendor_err 0x19", a
 * call that was refused, or nothing. tests/verbs/mistakes_test.sh compares that, and the lines of WEFT_VERBS_LOG=info. */
#include <pthread.h>

#include "program.h"

enum { memory_bytes = 65536, request_bytes = 4096, queue = 16 };

struct side {
  const char* name;
  struct ibv_context* context;
  struct ibv_pd *pd, *other_pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  struct ibv_qp* qp;
  union ibv_gid gid;
  char* memory;
};

static struct side asker = {.name = "asker"}, owner = {.name = "owner"};
static const char* mistake;

static const char* const names[] = {
    "unknown_rkey",
    "other_domain",
    "beyond_region",
    "region_without_right",
    "pair_without_right",
    "own_rkey",
    "no_receive",
    "short_receive",
    "bad_receive_lkey",
    "bad_lkey",
    "beyond_own_region",
    "wrong_qpn",
    "wrong_psn",
    "wrong_qkey",
    "dead_peer",
    "post_early",
    "full_queue",
    "large_pair",
    "small_cq",
    "remote_without_local",
    "port_2",
    "no_mtu",
    "missing_attribute",
    "not_global",
    "no_gid",
    "gid_9",
    "domain_in_use",
    "queue_in_use",
    "many_elements",
    "mtu_differs",
    "reads_not_allowed",
    "odd_atomic",
    "moved_to_error",
};

static int is(const char* name) { return strcmp(mistake, name) == 0; }

static void call(const char* what, int code) { printf("%s: %s\n", what, code == 0 ? "ok" : strerror(code)); }

static void open_side(struct side* side, int cqe) {
  side->context = open_named(side->name);
  CHECK(side->pd = ibv_alloc_pd(side->context));
  CHECK(side->other_pd = ibv_alloc_pd(side->context));
  CHECK(side->cq = ibv_create_cq(side->context, cqe, NULL, NULL, 0));
  CHECK(side->memory = aligned_alloc(4096, memory_bytes));
  memset(side->memory, 0, memory_bytes);
  side->gid = gid_at(side->context, 0);
}

static void make_pair(struct side* side, enum ibv_qp_type type) {
  struct ibv_qp_init_attr init = {
      .send_cq = side->cq, .recv_cq = side->cq, .cap = {queue, queue, 1, 1, 0}, .qp_type = type};
  CHECK(side->qp = ibv_create_qp(side->pd, &init));
}

static void hear(struct side* side, const char* what, double limit) {
  struct ibv_wc wc;
  if (one_completion(side->cq, &wc, limit) == 1)
    printf("%s %s: status %d vendor_err 0x%02x\n", side->name, what, wc.status, wc.vendor_err);
  else printf("%s %s: nothing\n", side->name, what);
  fflush(stdout);
}

static int send_one(struct side* side, enum ibv_wr_opcode opcode, uint64_t address, uint32_t rkey,
                    uint32_t lkey) {
  struct ibv_sge sge = {(uintptr_t)side->memory, request_bytes, lkey};
  if (is("beyond_own_region")) sge.addr += memory_bytes - 100;
  struct ibv_sge two[2] = {sge, sge};
  struct ibv_send_wr wr = {.wr_id = 42,
                           .sg_list = two,
                           .num_sge = is("many_elements") ? 2 : 1,
                           .opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    two[0].length = 8;
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = rkey;
  } else {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
  }
  return ibv_post_send(side->qp, &wr, &bad);
}

/* A mistake that a call refuses. */
static int refused_call(void) {
  struct ibv_qp_init_attr init = {
      .send_cq = asker.cq, .recv_cq = asker.cq, .cap = {queue, queue, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  struct ibv_ah_attr path = path_to(owner.gid, 0);
  if (is("large_pair")) {
    init.cap.max_send_wr = 1U << 20;
    call("ibv_create_qp", ibv_create_qp(asker.pd, &init) ? 0 : errno);
  } else if (is("remote_without_local")) {
    call("ibv_reg_mr", ibv_reg_mr(asker.pd, asker.memory, 64, IBV_ACCESS_REMOTE_WRITE) ? 0 : errno);
  } else if (is("port_2")) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 2};
    call(
        "ibv_modify_qp",
        ibv_modify_qp(asker.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  } else if (is("no_mtu") || is("missing_attribute") || is("not_global") || is("no_gid")) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = is("no_mtu") ? 0 : IBV_MTU_1024, .dest_qp_num = 77};
    if (is("not_global")) path.is_global = 0;
    if (is("no_gid")) path = path_to((union ibv_gid){{0}}, 0);
    attr.ah_attr = path;
    CHECK(to_init(asker.qp, 0) == 0);
    call("ibv_modify_qp",
         ibv_modify_qp(asker.qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | (is("missing_attribute") ? 0 : IBV_QP_MIN_RNR_TIMER)));
  } else if (is("gid_9")) {
    union ibv_gid gid;
    call("ibv_query_gid", ibv_query_gid(asker.context, 1, 9, &gid) == 0 ? 0 : errno);
  } else if (is("domain_in_use")) {
    call("ibv_dealloc_pd", ibv_dealloc_pd(asker.pd));
  } else if (is("queue_in_use")) {
    call("ibv_destroy_cq", ibv_destroy_cq(asker.cq));
  } else if (is("post_early")) {
    CHECK(to_init(asker.qp, 0) == 0 && to_rtr(asker.qp, &path, owner.qp->qp_num, test_psn) == 0);
    call("ibv_post_send", send_one(&asker, IBV_WR_SEND, 0, 0, asker.mr->lkey));
  } else {
    return 0;
  }
  return 1;
}

static void datagrams(void) {
  make_pair(&asker, IBV_QPT_UD);
  make_pair(&owner, IBV_QPT_UD);
  connect_to(asker.qp, NULL, 0);
  connect_to(owner.qp, NULL, 0);
  struct ibv_ah_attr path = path_to(owner.gid, 0);
  struct ibv_ah* ah = ibv_create_ah(asker.pd, &path);
  CHECK(ah);
  struct ibv_sge sge = {(uintptr_t)asker.memory, 8, asker.mr->lkey};
  struct ibv_send_wr wr = {
      .wr_id = 42, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = owner.qp->qp_num;
  wr.wr.ud.remote_qkey = test_qkey + 1;
  CHECK(ibv_post_send(asker.qp, &wr, &bad) == 0);
  hear(&asker, "SEND", 10);
  hear(&owner, "receive", 0.3);
}

int main(int count, char** words) {
  mistake = count > 1 ? words[1] : "list";
  if (is("list")) {
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) puts(names[i]);
    return 0;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  open_side(&asker, is("small_cq") ? 2 : 64);
  open_side(&owner, 64);
  const int all =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  CHECK(asker.mr = ibv_reg_mr(asker.pd, asker.memory, memory_bytes, all));
  CHECK(owner.mr = ibv_reg_mr(is("other_domain") ? owner.other_pd : owner.pd, owner.memory, memory_bytes,
                              is("region_without_right") ? IBV_ACCESS_LOCAL_WRITE : all));
  if (is("wrong_qkey")) {
    datagrams();
    return 0;
  }
  make_pair(&asker, IBV_QPT_RC);
  make_pair(&owner, IBV_QPT_RC);
  if (refused_call()) return 0;

  struct ibv_ah_attr to_owner = path_to(owner.gid, 0), to_asker = path_to(asker.gid, 0);
  CHECK(to_init(owner.qp, is("pair_without_right") ? IBV_ACCESS_LOCAL_WRITE
                                                   : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                         IBV_ACCESS_REMOTE_ATOMIC) == 0);
  CHECK(to_init(asker.qp, 0) == 0);
  struct ibv_sge place = {(uintptr_t)owner.memory, is("short_receive") ? 16 : request_bytes,
                          is("bad_receive_lkey") ? 0xdead : owner.mr->lkey};
  struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &place, .num_sge = 1}, *bad_receive;
  if (is("bad_receive_lkey") || is("other_domain")) place.lkey = is("other_domain") ? owner.mr->lkey : 0xdead;
  if (!is("no_receive")) CHECK(ibv_post_recv(owner.qp, &receive, &bad_receive) == 0);
  CHECK(to_rtr(owner.qp, &to_asker, asker.qp->qp_num, is("wrong_psn") ? 5000 : test_psn) == 0);
  CHECK(to_rts(owner.qp, test_psn, 14, 7, 7) == 0);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                             .path_mtu = is("mtu_differs") ? IBV_MTU_2048 : IBV_MTU_1024,
                             .dest_qp_num = owner.qp->qp_num + (is("wrong_qpn") ? 77 : 0),
                             .rq_psn = test_psn,
                             .max_dest_rd_atomic = 4,
                             .ah_attr = to_owner};
  CHECK(ibv_modify_qp(asker.qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  /* Where the peer answers it may be late, on a busy machine; where it does not, 16 ms are enough. */
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                              .timeout = is("wrong_qpn") || is("dead_peer") ? 12
                                         : is("wrong_psn")                  ? 15
                                                                            : 18,
                              .retry_cnt = 3,
                              .rnr_retry = is("full_queue") ? 7 : 2,
                              .sq_psn = test_psn,
                              .max_rd_atomic = is("reads_not_allowed") ? 0 : 4};
  CHECK(ibv_modify_qp(asker.qp, &attr,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC) == 0);

  uint64_t address = (uintptr_t)owner.memory;
  uint32_t rkey = owner.mr->rkey;
  enum ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  const char* what = "RDMA WRITE";
  if (is("unknown_rkey")) rkey ^= 0x00012300;
  if (is("own_rkey")) rkey = asker.mr->rkey;
  if (is("beyond_region")) address += memory_bytes - 100;
  if (is("no_receive") || is("short_receive") || is("bad_receive_lkey") || is("wrong_psn") ||
      is("wrong_qpn") || is("dead_peer"))
    opcode = IBV_WR_SEND, what = "SEND";
  if (is("reads_not_allowed")) opcode = IBV_WR_RDMA_READ, what = "RDMA READ";
  if (is("odd_atomic")) opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, what = "FETCH AND ADD", address += 4;
  if (is("dead_peer")) {
    CHECK(ibv_destroy_qp(owner.qp) == 0);
    owner.qp = NULL;
  }
  if (is("moved_to_error")) {
    attr.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(asker.qp, &attr, IBV_QP_STATE) == 0);
  }
  if (is("full_queue") || is("small_cq")) {
    int code = 0;
    for (int i = 0; i < 100 && code == 0; ++i)
      code =
          send_one(&asker, is("small_cq") ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, address, rkey, asker.mr->lkey);
    if (is("full_queue")) {
      call("ibv_post_send", code);
      return 0;
    }
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(asker.context, &event) == 0);
    printf("asker: %s\n", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
    struct ibv_wc wc[4];
    while (ibv_poll_cq(asker.cq, 4, wc) > 0) continue; /* and the device has told what it did */
    return 0;
  }
  const int code = send_one(&asker, opcode, address, rkey, is("bad_lkey") ? 0xdead : asker.mr->lkey);
  if (code != 0) {
    call("ibv_post_send", code);
    return 0;
  }
  hear(&asker, what, 20);
  if (owner.qp && !is("no_receive"))
    hear(&owner, "receive", is("bad_lkey") || is("wrong_qpn") || is("wrong_psn") ? 0.1 : 2);
  return 0;
}
