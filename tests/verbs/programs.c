// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Programs of five generations of <infiniband/verbs.h>, for matrix_test.sh: programs GENERATION, with a device toy0. Prints one line of what it
 * found; exit status 1 when something that its generation has does not work.
 *
 *   legacy  exported symbols of IBVERBS_1.1 and struct ibv_context_ops alone; struct ibv_port_attr ends before port_cap_flags2
 *   first   struct verbs_context as it was when it came (libibverbs 1.1.8): from flow steering down
 *   today   everything inline in the header
 *   next    a struct verbs_context with one call more than today's
 *   cut     today's program on a library whose struct verbs_context ends where that of `first` does
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(good)                                                                  \
  do {                                                                               \
    if (!(good)) {                                                                   \
      printf("FAILED: line %d: %s (errno: %s)\n", __LINE__, #good, strerror(errno)); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

enum { bytes = 64 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_qp* qps[2];
static struct ibv_mr* mr;
static struct ibv_comp_channel* channel;
static char memory[2 * bytes];

/* `size` zeroed bytes before, or after, a page that must not be touched. */
static void* before_edge(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(map + page, page, PROT_NONE);
  return map + page - size;
}
static void* after_edge(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(map, page, PROT_NONE);
  return map + page;
}

static void open_toy(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  CHECK(list && count > 0);
  for (int i = 0; i < count && !context; ++i)
    if (strcmp(ibv_get_device_name(list[i]), "toy0") == 0) context = ibv_open_device(list[i]);
  CHECK(context);
  ibv_free_device_list(list);
  CHECK(strcmp(context->device->name, "toy0") == 0 && ibv_get_device_guid(context->device) != 0);
}

static void connect_pair(void) {
  CHECK(pd = ibv_alloc_pd(context));
  CHECK(channel = ibv_create_comp_channel(context));
  CHECK(cq = ibv_create_cq(context, 16, memory, channel, 0));
  CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
  for (int i = 0; i < 2; ++i) CHECK(qps[i] = ibv_create_qp(pd, &init));
  for (int i = 0; i < 2; ++i) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .dest_qp_num = qps[1 - i]->qp_num};
    CHECK(ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_DEST_QPN) == 0 && qps[i]->state == IBV_QPS_RTS);
  }
}

/* One message from one half of the memory to the other, with an event. */
static void exchange(void) {
  struct ibv_sge from = {(uintptr_t)memory, bytes, mr->lkey},
                 to = {(uintptr_t)(memory + bytes), bytes, mr->lkey};
  struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_recv;
  struct ibv_send_wr send = {.wr_id = 2,
                             .sg_list = &from,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                     *bad_send;
  memset(memory, 0, sizeof memory);
  strcpy(memory, "a message");
  CHECK(ibv_req_notify_cq(cq, 0) == 0);
  CHECK(ibv_post_recv(qps[1], &recv, &bad_recv) == 0 && ibv_post_send(qps[0], &send, &bad_send) == 0);
  struct ibv_cq* got = NULL;
  void* with = NULL;
  CHECK(ibv_get_cq_event(channel, &got, &with) == 0 && got == cq && with == memory);
  ibv_ack_cq_events(cq, 1);
  struct ibv_wc wc[3];
  CHECK(ibv_poll_cq(cq, 3, wc) == 2 && wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS);
  CHECK(wc[0].wr_id + wc[1].wr_id == 3 && strcmp(memory + bytes, "a message") == 0);
}

static void close_all(void) {
  CHECK(ibv_destroy_cq(cq) == EBUSY && ibv_destroy_comp_channel(channel) == EBUSY);
  for (int i = 0; i < 2; ++i) CHECK(ibv_destroy_qp(qps[i]) == 0);
  CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void* of_1_1(const char* name) {
  void* found = dlvsym(RTLD_DEFAULT, name, "IBVERBS_1.1");
  CHECK(found);
  return found;
}

static const char* legacy(void) {
  int (*query_port)(struct ibv_context*, uint8_t, void*);
  *(void**)&query_port = of_1_1("ibv_query_port");
  const size_t old = offsetof(struct ibv_port_attr, port_cap_flags2);
  struct ibv_port_attr* attr = before_edge(old);
  CHECK(query_port(context, 1, attr) == 0 && attr->state == IBV_PORT_ACTIVE && attr->gid_tbl_len == 2);
  int (*query_device)(struct ibv_context*, struct ibv_device_attr*);
  *(void**)&query_device = of_1_1("ibv_query_device");
  struct ibv_device_attr* device = before_edge(sizeof *device);
  CHECK(query_device(context, device) == 0 && device->phys_port_cnt == 1);
  CHECK(context->ops.poll_cq && context->ops.post_srq_recv && context->ops.alloc_mw && context->ops.bind_mw);
  errno = 0;
  CHECK(context->ops.alloc_mw(pd, IBV_MW_TYPE_1) == NULL && errno == EOPNOTSUPP);
  return "works";
}

/* struct verbs_context of libibverbs 1.1.8, without the types that changed. */
struct first_context {
  int (*destroy_flow)(void*);
  void (*unused)(void);
  void* (*create_flow)(struct ibv_qp*, void*);
  void* (*open_qp)(struct ibv_context*, struct ibv_qp_open_attr*);
  struct ibv_qp* (*create_qp_ex)(struct ibv_context*, struct ibv_qp_init_attr_ex*);
  int (*get_srq_num)(struct ibv_srq*, uint32_t*);
  struct ibv_srq* (*create_srq_ex)(struct ibv_context*, struct ibv_srq_init_attr_ex*);
  struct ibv_xrcd* (*open_xrcd)(struct ibv_context*, struct ibv_xrcd_init_attr*);
  int (*close_xrcd)(struct ibv_xrcd*);
  uint64_t placeholder;
  size_t sz;
  struct ibv_context context;
};

static const char* first(void) {
  CHECK(context->abi_compat == __VERBS_ABI_IS_EXTENDED);
  struct first_context* view =
      (struct first_context*)((char*)context - offsetof(struct first_context, context));
  CHECK(view->sz >= sizeof *view && view->create_qp_ex && view->open_xrcd && view->close_xrcd &&
        view->create_flow && view->destroy_flow);
  /* The struct of then ended after xrcd. */
  const size_t old = offsetof(struct ibv_qp_init_attr_ex, create_flags);
  struct ibv_qp_init_attr_ex* init = before_edge(old);
  init->send_cq = init->recv_cq = cq;
  init->qp_type = IBV_QPT_RC;
  init->comp_mask = IBV_QP_INIT_ATTR_PD;
  init->pd = pd;
  struct ibv_qp* qp = view->create_qp_ex(context, init);
  CHECK(qp && qp->pd == pd && ibv_destroy_qp(qp) == 0);
  init->comp_mask |= 1U << 30;
  CHECK(view->create_qp_ex(context, init) == NULL && errno == EINVAL);
  struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1};
  CHECK(view->open_xrcd(context, &domain) == NULL && errno == EOPNOTSUPP);
  errno = 0;
  CHECK(view->create_flow(qps[0], NULL) == NULL && errno == EOPNOTSUPP &&
        view->destroy_flow(NULL) == EOPNOTSUPP);
  return "works";
}

static void poll_extended(void) {
  struct ibv_cq_init_attr_ex attr = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
  struct ibv_cq_ex* extended = ibv_create_cq_ex(context, &attr);
  CHECK(extended && extended->context == context);
  struct ibv_poll_cq_attr poll = {0};
  CHECK(ibv_start_poll(extended, &poll) == ENOENT);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)) == 0);
  attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
  CHECK(ibv_create_cq_ex(context, &attr) == NULL && errno == EOPNOTSUPP);
  attr.wc_flags = 0;
  attr.comp_mask = 1U << 31;
  CHECK(ibv_create_cq_ex(context, &attr) == NULL && errno == EINVAL);
}

static const char* today(void) {
  static char text[64];
  struct ibv_port_attr port;
  CHECK(ibv_query_port(context, 1, &port) == 0 && port.port_cap_flags2 == IBV_PORT_INFO_EXT_SUP);
  struct ibv_device_attr_ex device;
  CHECK(ibv_query_device_ex(context, NULL, &device) == 0 && device.orig_attr.phys_port_cnt == 1);
  struct ibv_gid_entry entries[2];
  CHECK(ibv_query_gid_table(context, entries, 2, 0) == 1 && entries[0].gid_type == IBV_GID_TYPE_ROCE_V2 &&
        entries[0].port_num == 1);
  CHECK(ibv_query_gid_ex(context, 1, 1, entries, 0) == ENODATA &&
        ibv_get_pkey_index(context, 1, 0xffff) == 0);
  poll_extended();
  struct ibv_td_init_attr td = {0};
  CHECK(ibv_alloc_td(context, &td) == NULL && errno == EOPNOTSUPP);
  struct ibv_qp_rate_limit_attr limit = {.rate_limit = 1000};
  snprintf(text, sizeof text, "works; rate limit: %s",
           ibv_modify_qp_rate_limit(qps[0], &limit) == 0 ? "works" : "EOPNOTSUPP");
  return text;
}

struct next_context {
  int (*newer)(struct ibv_context*);
  struct verbs_context today;
};

static const char* next(void) {
  /* As verbs_get_ctx_op() finds it: nothing before the struct of the library is read. */
  struct next_context* view =
      (struct next_context*)((char*)context - offsetof(struct next_context, today.context));
  const int has = view->today.sz >= sizeof *view - offsetof(struct next_context, newer) && view->newer;
  return has ? "FAILED" : "works; new call: EOPNOTSUPP";
}

static const char* cut(void) {
  struct first_context* old = after_edge();
  memset(old, 0, sizeof *old);
  old->sz = sizeof *old;
  old->context = *context;
  struct ibv_context* mine = &old->context;
  struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4};
  CHECK(ibv_create_cq_ex(mine, &cq_attr) == NULL && errno == EOPNOTSUPP);
  struct ibv_td_init_attr td = {0};
  CHECK(ibv_alloc_td(mine, &td) == NULL && errno == EOPNOTSUPP);
  struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
  CHECK(ibv_query_rt_values_ex(mine, &values) == EOPNOTSUPP);
  struct ibv_pd mine_pd = {mine, 0};
  CHECK(ibv_alloc_null_mr(&mine_pd) == NULL &&
        ibv_advise_mr(&mine_pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0) == EOPNOTSUPP);
  struct ibv_parent_domain_init_attr parent = {.pd = &mine_pd};
  CHECK(ibv_alloc_parent_domain(mine, &parent) == NULL && errno == EOPNOTSUPP);
  struct ibv_wq_init_attr wq = {0};
  CHECK(ibv_create_wq(mine, &wq) == NULL &&
        ibv_create_counters(mine, &(struct ibv_counters_init_attr){0}) == NULL);
  struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1};
  CHECK(ibv_open_xrcd(mine, &domain) == NULL && errno == EOPNOTSUPP);
  return "works; new calls: EOPNOTSUPP";
}

int main(int count, char** arguments) {
  static const struct {
    const char* name;
    const char* (*run)(void);
  } generations[] = {{"legacy", legacy}, {"first", first}, {"today", today}, {"next", next}, {"cut", cut}};
  open_toy();
  connect_pair();
  exchange();
  for (size_t i = 0; i < sizeof generations / sizeof *generations; ++i) {
    if (count != 2 || strcmp(generations[i].name, arguments[1]) != 0) continue;
    const char* outcome = generations[i].run();
    exchange();
    close_all();
    puts(outcome);
    return 0;
  }
  return 2;
}
