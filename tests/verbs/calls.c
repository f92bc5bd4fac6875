// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What libibverbs promises of its calls, over the built-in device: calls times | errno | limits | shared | never_empty. Prints "ok", or what is wrong and
 * ends with 1. */
#include <fcntl.h>

#include "program.h"

static struct ibv_context* context;
static struct ibv_pd* pd;
static union ibv_gid gid;
static char* memory;
enum { memory_bytes = 65536 };

/* --- the times of completions --- */

static void check_times(unsigned flags, uint32_t create_flags) {
  enum { rounds = 300, in_a_round = 16 };
  struct ibv_cq_init_attr_ex attr = {.cqe = 64,
                                     .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | flags,
                                     .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                     .flags = create_flags};
  struct ibv_cq_ex* ex = ibv_create_cq_ex(context, &attr);
  CHECK(ex);
  struct ibv_cq* cq = ibv_cq_ex_to_cq(ex);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, memory_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  CHECK(mr);
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {in_a_round, 1, 1, 1, 0}};
  struct ibv_qp *one = ibv_create_qp(pd, &init), *other = ibv_create_qp(pd, &init);
  CHECK(one && other);
  const struct ibv_ah_attr path = path_to(gid, 0);
  connect_to(one, &path, other->qp_num);
  connect_to(other, &path, one->qp_num);
  uint64_t last = 0, last_raw = 0;
  long back = 0, back_raw = 0, differ = 0, far = 0, count = 0;
  for (int round = 0; round < rounds; ++round) {
    struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr* bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
    wr.wr.rdma.rkey = mr->rkey;
    for (int i = 0; i < in_a_round; ++i) CHECK(ibv_post_send(one, &wr, &bad) == 0);
    if (round % 100 == 0) usleep(1000); /* then they wait in the queue */
    const double until = seconds() + 20;
    for (int taken = 0; taken < in_a_round;) {
      struct ibv_poll_cq_attr poll = {0};
      CHECK(seconds() < until);
      const int status = ibv_start_poll(ex, &poll);
      if (status == ENOENT) continue;
      CHECK(status == 0);
      do {
        CHECK(ex->status == IBV_WC_SUCCESS);
        const uint64_t raw = ibv_wc_read_completion_ts(ex);
        back_raw += raw < last_raw;
        last_raw = raw;
        if (flags != 0) {
          const uint64_t time = ibv_wc_read_completion_wallclock_ns(ex);
          back += time < last;
          last = time;
          if (round % 50 == 0) usleep(20);
          differ += ibv_wc_read_completion_wallclock_ns(ex) != time;
          struct timespec now;
          clock_gettime(CLOCK_REALTIME, &now);
          const double age = (double)now.tv_sec - (double)time / 1e9 + (double)now.tv_nsec * 1e-9;
          far += age < -1 || age > 60;
        }
        ++count;
        ++taken;
      } while (ibv_next_poll(ex) == 0);
      ibv_end_poll(ex);
    }
  }
  printf(
      "%ld completions: %ld wall clock times and %ld time stamps went back, two reads differ %ld times, %ld "
      "are no time of now\n",
      count, back, back_raw, differ, far);
  CHECK(back == 0 && back_raw == 0 && differ == 0 && far == 0);
  CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0 && ibv_destroy_cq(cq) == 0 &&
        ibv_dereg_mr(mr) == 0);
}

static void times(void) {
  check_times(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, 0);
  check_times(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
  check_times(0, 0);
}

/* --- errno: each call that fails sets it, each that succeeds leaves it alone --- */

enum { untouched = 4242 };
static int wrong;

/* A call that returns an errno. */
static void returns(const char* call, int line, int result, int wanted) {
  const int after = errno;
  if (wanted == 0 ? result == 0 && after == untouched : result == wanted && after == wanted) return;
  ++wrong;
  printf("line %d: %s returned %d and left errno %d (%s)\n", line, call, result, after, strerror(after));
}
/* A call that returns a pointer, or -1. */
static void gives(const char* call, int line, int good, int wanted) {
  const int after = errno;
  if (wanted == 0 ? good && after == untouched : !good && after == wanted) return;
  ++wrong;
  printf("line %d: %s %s and left errno %d (%s)\n", line, call, good ? "succeeded" : "failed", after,
         strerror(after));
}
#define RETURNS(wanted, call) (errno = untouched, returns(#call, __LINE__, (call), (wanted)))
#define GIVES(call) (errno = untouched, gives(#call, __LINE__, (call) != NULL, 0))
#define REFUSES(wanted, call) (errno = untouched, gives(#call, __LINE__, (call) != NULL, (wanted)))
#define MINUS_ONE(wanted, call) (errno = untouched, gives(#call, __LINE__, (call) == 0, (wanted)))

static void errors(void) {
  struct ibv_device_attr device;
  struct ibv_device_attr_ex device_ex;
  struct ibv_port_attr port;
  struct ibv_gid_entry entry;
  union ibv_gid some;
  __be16 pkey;
  RETURNS(0, ibv_query_device(context, &device));
  RETURNS(0, ibv_query_device_ex(context, NULL, &device_ex));
  RETURNS(0, ibv_query_port(context, 1, &port));
  RETURNS(EINVAL, ibv_query_port(context, 2, &port));
  MINUS_ONE(0, ibv_query_gid(context, 1, 0, &some));
  MINUS_ONE(EINVAL, ibv_query_gid(context, 1, 99, &some));
  RETURNS(0, ibv_query_gid_ex(context, 1, 0, &entry, 0));
  RETURNS(ENODATA, ibv_query_gid_ex(context, 1, 2, &entry, 0));
  MINUS_ONE(0, ibv_query_pkey(context, 1, 0, &pkey));
  MINUS_ONE(EINVAL, ibv_query_pkey(context, 1, 1, &pkey));
  MINUS_ONE(0, ibv_get_pkey_index(context, 1, pkey));
  MINUS_ONE(ENOENT, ibv_get_pkey_index(context, 1, (__be16)0x1234));
  struct ibv_gid_entry table[8];
  errno = untouched;
  CHECK(ibv_query_gid_table(context, table, 8, 0) == 1 && errno == untouched);
  errno = untouched;
  CHECK(ibv_query_gid_table(context, table, 8, 1) == -EOPNOTSUPP && errno == EOPNOTSUPP);
  struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
  RETURNS(0, ibv_query_rt_values_ex(context, &values));
  values.comp_mask = 0x100;
  RETURNS(EINVAL, ibv_query_rt_values_ex(context, &values));

  struct ibv_pd* own;
  GIVES(own = ibv_alloc_pd(context));
  struct ibv_mr *mr, *extra;
  GIVES(mr = ibv_reg_mr(own, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
  REFUSES(EINVAL, ibv_reg_mr(own, memory, 4096, IBV_ACCESS_REMOTE_WRITE));
  REFUSES(EFAULT, ibv_reg_mr(own, (void*)16, 16, 0));
  GIVES(extra = ibv_alloc_null_mr(own));
  RETURNS(0, ibv_dereg_mr(extra));
  GIVES(extra = ibv_reg_mr(own, memory, 4096, 0));
  RETURNS(0, ibv_rereg_mr(extra, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
  MINUS_ONE(EINVAL, ibv_rereg_mr(extra, 0, NULL, NULL, 0, 0));
  RETURNS(0, ibv_dereg_mr(extra));
  struct ibv_sge piece = {(uintptr_t)memory, 64, mr->lkey};
  RETURNS(0, ibv_advise_mr(own, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1));
  RETURNS(EINVAL, ibv_advise_mr(own, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0));
  struct ibv_mw* mw;
  GIVES(mw = ibv_alloc_mw(own, IBV_MW_TYPE_1));
  REFUSES(EINVAL, ibv_alloc_mw(own, 7));
  struct ibv_td_init_attr td_attr = {0};
  struct ibv_td* td;
  GIVES(td = ibv_alloc_td(context, &td_attr));
  td_attr.comp_mask = 1;
  REFUSES(EINVAL, ibv_alloc_td(context, &td_attr));
  struct ibv_parent_domain_init_attr parent_attr = {.pd = own};
  struct ibv_pd* parent;
  GIVES(parent = ibv_alloc_parent_domain(context, &parent_attr));
  parent_attr.pd = NULL;
  REFUSES(EINVAL, ibv_alloc_parent_domain(context, &parent_attr));
  RETURNS(0, ibv_dealloc_pd(parent));
  RETURNS(0, ibv_dealloc_td(td));
  struct ibv_xrcd_init_attr xrcd_attr = {
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0100 /* O_CREAT */};
  struct ibv_xrcd* xrcd;
  GIVES(xrcd = ibv_open_xrcd(context, &xrcd_attr));
  xrcd_attr.oflags = 0;
  REFUSES(EINVAL, ibv_open_xrcd(context, &xrcd_attr));
  RETURNS(0, ibv_close_xrcd(xrcd));

  struct ibv_comp_channel* channel;
  GIVES(channel = ibv_create_comp_channel(context));
  struct ibv_cq* cq;
  GIVES(cq = ibv_create_cq(context, 8, NULL, channel, 0));
  REFUSES(EINVAL, ibv_create_cq(context, 0, NULL, NULL, 0));
  REFUSES(EINVAL, ibv_create_cq(context, 8, NULL, NULL, 99));
  RETURNS(0, ibv_resize_cq(cq, 16));
  RETURNS(EINVAL, ibv_resize_cq(cq, device.max_cqe + 1));
  struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE};
  RETURNS(EOPNOTSUPP, ibv_modify_cq(cq, &moderate));
  RETURNS(EBUSY, ibv_destroy_comp_channel(channel));
  struct ibv_wc wc;
  RETURNS(0, ibv_poll_cq(cq, 1, &wc));
  struct ibv_cq_init_attr_ex ex_attr = {.cqe = 8, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
  struct ibv_cq_ex* ex;
  GIVES(ex = ibv_create_cq_ex(context, &ex_attr));
  ex_attr.wc_flags = 1U << 31;
  REFUSES(EOPNOTSUPP, ibv_create_cq_ex(context, &ex_attr));
  struct ibv_poll_cq_attr poll_attr = {.comp_mask = 1};
  RETURNS(EINVAL, ibv_start_poll(ex, &poll_attr));
  poll_attr.comp_mask = 0;
  errno = untouched;
  CHECK(ibv_start_poll(ex, &poll_attr) == ENOENT && errno == untouched); /* an empty queue is no failure */
  RETURNS(0, ibv_req_notify_cq(cq, 0));

  struct ibv_srq_init_attr srq_attr = {.attr = {4, 1, 0}};
  struct ibv_srq* srq;
  GIVES(srq = ibv_create_srq(own, &srq_attr));
  srq_attr.attr.max_wr = 0;
  REFUSES(EINVAL, ibv_create_srq(own, &srq_attr));
  struct ibv_srq_attr srq_now;
  RETURNS(0, ibv_query_srq(srq, &srq_now));
  RETURNS(EINVAL, ibv_query_srq(srq, NULL));
  srq_now.srq_limit = 99;
  RETURNS(EINVAL, ibv_modify_srq(srq, &srq_now, IBV_SRQ_LIMIT));
  srq_now.srq_limit = 2;
  RETURNS(0, ibv_modify_srq(srq, &srq_now, IBV_SRQ_LIMIT));
  uint32_t number;
  RETURNS(EOPNOTSUPP, ibv_get_srq_num(srq, &number));
  struct ibv_recv_wr receive = {.sg_list = &piece, .num_sge = 1}, *bad_receive;
  RETURNS(0, ibv_post_srq_recv(srq, &receive, &bad_receive));
  receive.num_sge = 2;
  RETURNS(EINVAL, ibv_post_srq_recv(srq, &receive, &bad_receive));
  receive.num_sge = 1;

  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  struct ibv_qp *qp, *peer;
  GIVES(qp = ibv_create_qp(own, &init));
  GIVES(peer = ibv_create_qp(own, &init));
  init.cap.max_send_wr = 1U << 20;
  REFUSES(EINVAL, ibv_create_qp(own, &init));
  init.cap.max_send_wr = 4;
  init.qp_type = IBV_QPT_RAW_PACKET;
  REFUSES(EOPNOTSUPP, ibv_create_qp(own, &init));
  struct ibv_qp_init_attr_ex more = {.send_cq = cq,
                                     .recv_cq = cq,
                                     .cap = {4, 4, 1, 1, 0},
                                     .qp_type = IBV_QPT_RC,
                                     .pd = own,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                     .send_ops_flags = IBV_QP_EX_WITH_SEND};
  struct ibv_qp* extended;
  GIVES(extended = ibv_create_qp_ex(context, &more));
  struct ibv_qp_ex* calls;
  GIVES(calls = ibv_qp_to_qp_ex(extended));
  REFUSES(EOPNOTSUPP, ibv_qp_to_qp_ex(qp));
  more.send_ops_flags = UINT64_C(1) << 60;
  REFUSES(EOPNOTSUPP, ibv_create_qp_ex(context, &more));
  struct ibv_qp_open_attr open_attr = {.comp_mask = 0};
  REFUSES(EINVAL, ibv_open_qp(context, &open_attr));
  ibv_wr_start(calls);
  ibv_wr_send(calls);
  ibv_wr_set_sge(calls, mr->lkey, (uintptr_t)memory, 8);
  RETURNS(EINVAL, ibv_wr_complete(calls)); /* in RESET */
  struct ibv_send_wr send = {.sg_list = &piece,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                     *bad_send;
  RETURNS(EINVAL, ibv_post_send(qp, &send, &bad_send));
  RETURNS(EINVAL, ibv_post_recv(qp, &receive, &bad_receive));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
  struct ibv_qp_init_attr init_now;
  RETURNS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  RETURNS(0, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init_now));
  RETURNS(EINVAL, ibv_query_qp(qp, NULL, IBV_QP_STATE, &init_now));
  const struct ibv_ah_attr path = path_to(gid, 0);
  RETURNS(0, to_init(qp, 0));
  RETURNS(0, to_rtr(qp, &path, peer->qp_num, test_psn));
  RETURNS(0, to_rts(qp, test_psn, 14, 7, 7));
  connect_to(peer, &path, qp->qp_num);
  for (int i = 0; i < 4; ++i) RETURNS(0, ibv_post_recv(peer, &receive, &bad_receive));
  RETURNS(ENOMEM, ibv_post_recv(peer, &receive, &bad_receive));
  for (int i = 0; i < 4; ++i) RETURNS(0, ibv_post_send(qp, &send, &bad_send));
  const double until = seconds() + 20;
  for (int left = 8; left > 0 && seconds() < until;) {
    errno = untouched;
    const int got = ibv_poll_cq(cq, 1, &wc);
    CHECK(got >= 0 && errno == untouched);
    left -= got;
    if (left == 0) break;
    usleep(100);
  }
  struct ibv_mw_bind bind = {.bind_info = {.mr = mr, .addr = (uintptr_t)memory, .length = 64},
                             .send_flags = 1 << 20};
  RETURNS(EINVAL, ibv_bind_mw(qp, mw, &bind));
  bind.send_flags = 0;
  RETURNS(0, ibv_bind_mw(qp, mw, &bind));
  RETURNS(0, ibv_dealloc_mw(mw));

  struct ibv_ah* ah;
  struct ibv_ah_attr way = path;
  GIVES(ah = ibv_create_ah(own, &way));
  way.grh.sgid_index = 9;
  REFUSES(EINVAL, ibv_create_ah(own, &way));
  way.is_global = 0;
  REFUSES(EINVAL, ibv_create_ah(own, &way));
  struct ibv_grh grh;
  memset(&grh, 0, sizeof grh);
  wc.wc_flags = IBV_WC_GRH;
  MINUS_ONE(EINVAL, ibv_init_ah_from_wc(context, 1, &wc, &grh, &way));
  REFUSES(EINVAL, ibv_create_ah_from_wc(own, &wc, &grh, 1));
  RETURNS(EINVAL, ibv_destroy_ah(NULL));
  union ibv_gid group = {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 5, 9}};
  RETURNS(EINVAL, ibv_attach_mcast(qp, &group, 0)); /* not UD */
  RETURNS(EINVAL, ibv_detach_mcast(qp, &group, 0));
  struct ibv_ece ece = {0};
  RETURNS(EOPNOTSUPP, ibv_set_ece(qp, &ece));
  RETURNS(EOPNOTSUPP, ibv_query_ece(qp, &ece));

  RETURNS(EBUSY, ibv_destroy_cq(cq));
  RETURNS(EBUSY, ibv_dealloc_pd(own));
  RETURNS(0, ibv_destroy_ah(ah));
  RETURNS(0, ibv_destroy_qp(qp));
  RETURNS(0, ibv_destroy_qp(peer));
  RETURNS(0, ibv_destroy_qp(extended));
  RETURNS(0, ibv_destroy_srq(srq));
  struct ibv_cq* which;
  void* its;
  CHECK(ibv_get_cq_event(channel, &which, &its) == 0);
  ibv_ack_cq_events(cq, 1);
  RETURNS(0, ibv_destroy_cq(cq));
  RETURNS(0, ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
  RETURNS(0, ibv_destroy_comp_channel(channel));
  RETURNS(0, ibv_dereg_mr(mr));
  RETURNS(EINVAL, ibv_dereg_mr(NULL));
  RETURNS(0, ibv_dealloc_pd(own));
  RETURNS(EINVAL, ibv_dealloc_pd(NULL));
  REFUSES(EINVAL, ibv_open_device(NULL));
  RETURNS(EINVAL, ibv_close_device(NULL));
  int devices;
  struct ibv_device** list;
  GIVES(list = ibv_get_device_list(&devices));
  struct ibv_context* second;
  GIVES(second = ibv_open_device(list[0]));
  RETURNS(0, ibv_close_device(second));
  errno = untouched;
  ibv_free_device_list(list);
  CHECK(errno == untouched);
  CHECK(wrong == 0);
}

/* --- limits that ibv_query_device() tells --- */

/* As many as the limit says, then ENOMEM; one that is given back is there again. */
#define REACHES(type, limit, make, undo)                                     \
  do {                                                                       \
    type** all = calloc((size_t)(limit) + 1, sizeof *all);                   \
    int made = 0;                                                            \
    CHECK(all);                                                              \
    while (made <= (limit) && (all[made] = (make))) ++made;                  \
    printf("%s: %d of %d\n", #limit, made, (limit));                         \
    CHECK(made == (limit) && errno == ENOMEM);                               \
    CHECK(undo(all[--made]) == 0 && (all[made] = (make)) != NULL && ++made); \
    while (made > 0) CHECK(undo(all[--made]) == 0);                          \
    free(all);                                                               \
  } while (0)

static void limits(void) {
  struct ibv_device_attr told;
  CHECK(ibv_query_device(context, &told) == 0);
  const int max_pd = told.max_pd - 1; /* one is there */
  REACHES(struct ibv_pd, max_pd, ibv_alloc_pd(context), ibv_dealloc_pd);
  struct ibv_ah_attr way = path_to(gid, 0);
  const int max_ah = told.max_ah;
  REACHES(struct ibv_ah, max_ah, ibv_create_ah(pd, &way), ibv_destroy_ah);
  const int max_mr = told.max_mr, max_mw = told.max_mw;
  struct ibv_mw* windows = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  CHECK(windows);
  REACHES(struct ibv_mr, max_mr, ibv_alloc_null_mr(pd), ibv_dereg_mr);
  CHECK(ibv_dealloc_mw(windows) == 0);
  REACHES(struct ibv_mw, max_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw);
  const int max_cq = told.max_cq;
  (void)max_cq; /* 65,536 rings: reached in the unit tests of the adapter */
  struct ibv_cq* cq = ibv_create_cq(context, 1, NULL, NULL, 0);
  CHECK(cq);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  const struct ibv_qp_cap most = {(uint32_t)told.max_qp_wr, (uint32_t)told.max_qp_wr, (uint32_t)told.max_sge,
                                  (uint32_t)told.max_sge, 0};
  init.cap = most;
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp && ibv_destroy_qp(qp) == 0);
  for (int i = 0; i < 4; ++i) {
    init.cap = most;
    uint32_t* const fields[] = {&init.cap.max_send_wr, &init.cap.max_recv_wr, &init.cap.max_send_sge,
                                &init.cap.max_recv_sge};
    ++*fields[i];
    CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
  }
  struct ibv_srq_init_attr srq_attr = {.attr = {(uint32_t)told.max_srq_wr, (uint32_t)told.max_srq_sge, 0}};
  struct ibv_srq* srq = ibv_create_srq(pd, &srq_attr);
  CHECK(srq && ibv_destroy_srq(srq) == 0);
  srq_attr.attr.max_wr = (uint32_t)told.max_srq_wr + 1;
  CHECK(!ibv_create_srq(pd, &srq_attr) && errno == EINVAL);
  srq_attr.attr.max_wr = 1;
  srq_attr.attr.max_sge = (uint32_t)told.max_srq_sge + 1;
  CHECK(!ibv_create_srq(pd, &srq_attr) && errno == EINVAL);
  CHECK(!ibv_create_cq(context, told.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
  init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
  CHECK(qp = ibv_create_qp(pd, &init));
  CHECK(to_init(qp, 0) == 0);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_1024,
                             .dest_qp_num = qp->qp_num,
                             .max_dest_rd_atomic = (uint8_t)(told.max_qp_rd_atom + 1),
                             .ah_attr = path_to(gid, 0)};
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  CHECK(ibv_modify_qp(qp, &attr, mask) == EINVAL);
  attr.max_dest_rd_atomic = (uint8_t)told.max_qp_rd_atom;
  CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
  CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

/* --- ibv_create_qp(3): with a shared receive queue, the receive queue's own capacity is ignored --- */

static int says_cap(struct ibv_qp* qp, struct ibv_qp_cap wanted) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  CHECK(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0);
  return memcmp(&attr.cap, &wanted, sizeof wanted) == 0 && memcmp(&init.cap, &wanted, sizeof wanted) == 0;
}

static void shared(void) {
  struct ibv_device_attr told;
  CHECK(ibv_query_device(context, &told) == 0);
  struct ibv_srq_init_attr srq_attr = {.attr = {4, 1, 0}};
  struct ibv_srq* srq = ibv_create_srq(pd, &srq_attr);
  struct ibv_cq* cq = ibv_create_cq(context, 8, NULL, NULL, 0);
  struct ibv_xrcd_init_attr xrcd_attr = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  struct ibv_xrcd* xrcd = ibv_open_xrcd(context, &xrcd_attr);
  CHECK(srq && cq && xrcd);
  const struct ibv_qp_cap too_much = {4, (uint32_t)told.max_qp_wr + 1, 1, (uint32_t)told.max_sge + 1, 0};
  const struct ibv_qp_cap sends = {4, 0, 1, 0, 64}; /* inline bytes are rounded up */
  const struct ibv_qp_cap all_too_much = {(uint32_t)told.max_qp_wr + 1, (uint32_t)told.max_qp_wr + 1,
                                          (uint32_t)told.max_sge + 1, (uint32_t)told.max_sge + 1, 1u << 30};
  const struct ibv_qp_cap nothing = {0, 0, 0, 0, 0};
  for (enum ibv_qp_type type = IBV_QPT_RC; type <= IBV_QPT_UD; ++type) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type, .cap = too_much};
    struct ibv_qp* qp = ibv_create_qp(pd, &init);
    CHECK(qp && memcmp(&init.cap, &sends, sizeof sends) == 0 && says_cap(qp, sends));
    CHECK(ibv_destroy_qp(qp) == 0);
    init.srq = NULL;
    init.cap = too_much;
    CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
  }
  static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
                                           IBV_QPT_XRC_RECV};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    for (int extended = 0; extended < 2; ++extended) {
      const int receives = types[i] == IBV_QPT_XRC_RECV;
      const int xrc = receives || types[i] == IBV_QPT_XRC_SEND;
      struct ibv_qp_init_attr_ex init = {.send_cq = receives ? NULL : cq,
                                         .recv_cq = xrc ? NULL : cq,
                                         .srq = xrc ? NULL : srq,
                                         .qp_type = types[i],
                                         .cap = receives ? all_too_much : too_much,
                                         .comp_mask = receives ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
                                         .pd = receives ? NULL : pd,
                                         .xrcd = receives ? xrcd : NULL};
      if (extended) {
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_SEND;
      }
      const struct ibv_qp_cap wanted = receives ? nothing : sends;
      struct ibv_qp* qp = ibv_create_qp_ex(context, &init);
      CHECK(qp && memcmp(&init.cap, &wanted, sizeof wanted) == 0 && says_cap(qp, wanted));
      CHECK(!extended || ibv_qp_to_qp_ex(qp));
      CHECK(ibv_destroy_qp(qp) == 0);
    }
  }
  CHECK(ibv_close_xrcd(xrcd) == 0 && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0);
}

/* --- a completion queue that has a completion at each poll: what a peer sends comes in all the same, within so many polls --- */

enum polled { plain, started, advanced }; /* ibv_poll_cq, ibv_start_poll, ibv_next_poll */

static void check_never_empty(enum polled how) {
  enum { polls_max = 300, receives = 8 };
  struct ibv_cq_init_attr_ex attr = {.cqe = 64};
  struct ibv_cq_ex* ex = ibv_create_cq_ex(context, &attr);
  struct ibv_cq* others = ibv_create_cq(context, 8, NULL, NULL, 0);
  CHECK(ex && others);
  struct ibv_cq* cq = ibv_cq_ex_to_cq(ex);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, memory_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  CHECK(mr);
  struct ibv_qp_init_attr init = {
      .send_cq = others, .recv_cq = others, .qp_type = IBV_QPT_RC, .cap = {8, 1, 1, 1, 0}};
  struct ibv_qp *one = ibv_create_qp(pd, &init), *other = ibv_create_qp(pd, &init);
  init.send_cq = init.recv_cq = cq;
  init.cap.max_recv_wr = receives;
  struct ibv_qp* broken = ibv_create_qp(pd, &init); /* flushes each receive at once */
  CHECK(one && other && broken);
  const struct ibv_ah_attr path = path_to(gid, 0);
  connect_to(one, &path, other->qp_num);
  connect_to(other, &path, one->qp_num);
  struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
  CHECK(to_init(broken, 0) == 0 && ibv_modify_qp(broken, &error, IBV_QP_STATE) == 0);
  volatile uint64_t* target = (volatile uint64_t*)(memory + 4096);
  struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
  struct ibv_send_wr wr = {
      .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  wr.wr.rdma.remote_addr = (uintptr_t)target;
  wr.wr.rdma.rkey = mr->rkey;
  struct ibv_recv_wr receive = {.wr_id = 5};
  struct ibv_recv_wr* bad_receive;
  long most = 0;
  if (how == advanced) CHECK(ibv_post_recv(broken, &receive, &bad_receive) == 0);
  struct ibv_poll_cq_attr poll = {0};
  if (how == advanced) CHECK(ibv_start_poll(ex, &poll) == 0);
  for (uint64_t round = 1; round <= 20; ++round) {
    *(uint64_t*)memory = round;
    CHECK(ibv_post_send(one, &wr, &bad) == 0);
    long polls = 0;
    for (; *target != round && polls < polls_max; ++polls) {
      struct ibv_wc wc;
      CHECK(ibv_post_recv(broken, &receive, &bad_receive) == 0);
      if (how == plain) {
        CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 5);
      } else {
        CHECK((how == started ? ibv_start_poll(ex, &poll) : ibv_next_poll(ex)) == 0);
        CHECK(ex->status == IBV_WC_WR_FLUSH_ERR && ex->wr_id == 5);
        if (how == started) ibv_end_poll(ex);
      }
    }
    CHECK(*target == round);
    most = polls > most ? polls : most;
    struct ibv_wc wc;
    const double until = seconds() + 20;
    while (ibv_poll_cq(others, 1, &wc) == 0) CHECK(seconds() < until);
    CHECK(wc.status == IBV_WC_SUCCESS);
  }
  if (how == advanced) ibv_end_poll(ex);
  printf("a write came within %ld polls of a queue that is never empty\n", most);
  CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0 && ibv_destroy_qp(broken) == 0);
  CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(others) == 0 && ibv_dereg_mr(mr) == 0);
  memset(memory, 0, memory_bytes);
}

static void never_empty(void) {
  for (enum polled how = plain; how <= advanced; ++how) check_never_empty(how);
}

int main(int count, char** words) {
  const char* what = count > 1 ? words[1] : "";
  context = open_named(NULL);
  CHECK(pd = ibv_alloc_pd(context));
  gid = gid_at(context, 0);
  memory = aligned_alloc(4096, memory_bytes);
  memset(memory, 0, memory_bytes);
  if (strcmp(what, "times") == 0) times();
  else if (strcmp(what, "errno") == 0) errors();
  else if (strcmp(what, "limits") == 0) limits();
  else if (strcmp(what, "shared") == 0) shared();
  else if (strcmp(what, "never_empty") == 0) never_empty();
  else return 2;
  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  puts("ok");
  return 0;
}
