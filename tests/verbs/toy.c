// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* A verbs device that is the memory of one process: the smallest provider that carries messages (docs/verbs-provider.md). RC queue pairs with
 * SEND, RDMA WRITE and RDMA READ; a request is done when it is posted. One lock for everything.
 * WEFT_VERBS_NEXT: built against the next version of the interface, for the compatibility matrix. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <weft/verbs_provider.h>

enum { regions_max = 64, receives_max = 64, qps_max = 64, cqe_max = 4096 };

/* Every object begins with the standard struct: the library passes pointers to that. */
struct toy_cq {
  struct ibv_cq_ex shown;
  struct ibv_wc* ring;
  unsigned first, count, size;
  int armed;
  struct ibv_wc current; /* of ibv_start_poll() */
};

struct toy_qp {
  struct ibv_qp shown;
  struct ibv_qp_attr attr;
  struct ibv_qp_cap cap;
  int signal_all;
  struct {
    uint64_t wr_id;
    struct ibv_sge sge;
  } receives[receives_max];
  unsigned first, count;
};

struct toy_mr {
  struct ibv_mr shown;
  uint64_t iova;
  unsigned access;
};

static const struct weft_verbs_services* library;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct toy_mr* regions[regions_max];
static struct toy_qp* qps[qps_max];

static int query_device(struct ibv_context* context, struct ibv_device_attr_ex* attr) {
  (void)context;
  strcpy(attr->orig_attr.fw_ver, "toy");
  attr->orig_attr.phys_port_cnt = 1;
  attr->orig_attr.max_qp = qps_max;
  attr->orig_attr.max_mr = regions_max;
  attr->orig_attr.max_qp_wr = receives_max;
  attr->orig_attr.max_sge = 1;
  attr->orig_attr.max_cqe = cqe_max;
  return 0;
}

static int query_port(struct ibv_context* context, uint8_t port, struct ibv_port_attr* attr) {
  (void)context;
  if (port != 1) return EINVAL;
  attr->state = IBV_PORT_ACTIVE;
  attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
  attr->gid_tbl_len = 2;
  attr->pkey_tbl_len = 1;
  attr->max_msg_sz = 1U << 30;
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  attr->port_cap_flags2 = IBV_PORT_INFO_EXT_SUP;
  return 0;
}

static int query_gid(struct ibv_context* context, uint8_t port, uint32_t index, struct ibv_gid_entry* entry) {
  (void)context;
  if (port != 1 || index > 1) return EINVAL;
  if (index == 1) return ENODATA;
  entry->gid.raw[0] = 0xfe;
  entry->gid.raw[1] = 0x80;
  entry->gid.raw[15] = 1;
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}

static int query_pkey(struct ibv_context* context, uint8_t port, int index, __be16* pkey) {
  (void)context;
  if (port != 1 || index != 0) return EINVAL;
  *pkey = 0xffff;
  return 0;
}

/* --- memory --- */

static struct ibv_pd* alloc_pd(struct ibv_context* context) {
  (void)context;
  return calloc(1, sizeof(struct ibv_pd));
}

static int dealloc_pd(struct ibv_pd* pd) {
  free(pd);
  return 0;
}

static struct ibv_mr* reg_mr(struct ibv_pd* pd, void* address, size_t length, uint64_t iova,
                             unsigned access) {
  (void)pd, (void)address, (void)length;
  struct toy_mr* mr = calloc(1, sizeof *mr);
  if (!mr) return NULL;
  mr->iova = iova;
  mr->access = access;
  pthread_mutex_lock(&lock);
  unsigned key = 1;
  while (key < regions_max && regions[key]) ++key;
  if (key < regions_max) regions[key] = mr;
  pthread_mutex_unlock(&lock);
  if (key == regions_max) {
    free(mr);
    errno = ENOMEM;
    return NULL;
  }
  mr->shown.handle = mr->shown.lkey = mr->shown.rkey = key;
  return &mr->shown;
}

static int dereg_mr(struct ibv_mr* mr) {
  pthread_mutex_lock(&lock);
  regions[mr->lkey] = NULL;
  pthread_mutex_unlock(&lock);
  free(mr);
  return 0;
}

/* Where a range of a region lies, or null. */
static char* at(uint32_t key, uint64_t address, uint64_t length, unsigned access) {
  struct toy_mr* mr = key < regions_max ? regions[key] : NULL;
  if (!mr || (mr->access & access) != access || address < mr->iova) return NULL;
  const uint64_t offset = address - mr->iova;
  return offset <= mr->shown.length && length <= mr->shown.length - offset ? (char*)mr->shown.addr + offset
                                                                           : NULL;
}

/* --- completion queues --- */

static int take(struct toy_cq* cq, struct ibv_wc* wc) {
  if (cq->count == 0) return 0;
  *wc = cq->ring[cq->first];
  cq->first = (cq->first + 1) % cq->size;
  --cq->count;
  return 1;
}

static void complete(struct toy_cq* cq, const struct ibv_wc* wc) {
  if (cq->count == cq->size) { /* the program has let it overrun */
    struct ibv_async_event event = {.element.cq = ibv_cq_ex_to_cq(&cq->shown),
                                    .event_type = IBV_EVENT_CQ_ERR};
    library->async_event(cq->shown.context, &event);
    return;
  }
  cq->ring[(cq->first + cq->count++) % cq->size] = *wc;
  if (!cq->armed) return;
  cq->armed = 0;
  library->completion_event(ibv_cq_ex_to_cq(&cq->shown));
}

static int poll_cq(struct ibv_cq* shown, int count, struct ibv_wc* wc) {
  int got = 0;
  pthread_mutex_lock(&lock);
  while (got < count && take((struct toy_cq*)shown, &wc[got])) ++got;
  pthread_mutex_unlock(&lock);
  return got;
}

static int req_notify_cq(struct ibv_cq* shown, int solicited_only) {
  (void)solicited_only; /* more events than asked for are allowed */
  pthread_mutex_lock(&lock);
  ((struct toy_cq*)shown)->armed = 1;
  pthread_mutex_unlock(&lock);
  return 0;
}

static int next_poll(struct ibv_cq_ex* shown) {
  struct toy_cq* cq = (struct toy_cq*)shown;
  if (poll_cq(ibv_cq_ex_to_cq(shown), 1, &cq->current) == 0) return ENOENT;
  shown->wr_id = cq->current.wr_id;
  shown->status = cq->current.status;
  return 0;
}

static int start_poll(struct ibv_cq_ex* shown, struct ibv_poll_cq_attr* attr) {
  return attr->comp_mask == 0 ? next_poll(shown) : EINVAL;
}
static void end_poll(struct ibv_cq_ex* shown) { (void)shown; }
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex* shown) {
  return ((struct toy_cq*)shown)->current.opcode;
}
static uint32_t read_vendor_err(struct ibv_cq_ex* shown) {
  return ((struct toy_cq*)shown)->current.vendor_err;
}
static unsigned read_wc_flags(struct ibv_cq_ex* shown) { return ((struct toy_cq*)shown)->current.wc_flags; }
static uint32_t read_byte_len(struct ibv_cq_ex* shown) { return ((struct toy_cq*)shown)->current.byte_len; }

static struct ibv_cq_ex* create_cq(struct ibv_context* context, struct ibv_cq_init_attr_ex* attr) {
  (void)context;
  struct toy_cq* cq = attr->cqe <= cqe_max ? calloc(1, sizeof *cq) : NULL;
  if (cq) cq->ring = calloc(attr->cqe, sizeof *cq->ring);
  if (!cq || !cq->ring) {
    free(cq);
    errno = attr->cqe <= cqe_max ? ENOMEM : EINVAL;
    return NULL;
  }
  cq->size = attr->cqe;
  cq->shown.cqe = (int)attr->cqe;
  cq->shown.start_poll = start_poll;
  cq->shown.next_poll = next_poll;
  cq->shown.end_poll = end_poll;
  cq->shown.read_opcode = read_opcode;
  cq->shown.read_vendor_err = read_vendor_err;
  cq->shown.read_wc_flags = read_wc_flags;
  if (attr->wc_flags & IBV_WC_EX_WITH_BYTE_LEN) cq->shown.read_byte_len = read_byte_len;
  return &cq->shown;
}

static int destroy_cq(struct ibv_cq* shown) {
  free(((struct toy_cq*)shown)->ring);
  free(shown);
  return 0;
}

/* --- queue pairs --- */

static struct ibv_qp* create_qp(struct ibv_context* context, struct ibv_qp_init_attr_ex* attr) {
  (void)context;
  if (attr->qp_type != IBV_QPT_RC || attr->srq) {
    errno = EOPNOTSUPP;
    return NULL;
  }
  struct toy_qp* qp = calloc(1, sizeof *qp);
  if (!qp) return NULL;
  attr->cap.max_recv_wr = receives_max;
  attr->cap.max_send_sge = attr->cap.max_recv_sge = 1;
  qp->cap = attr->cap;
  qp->signal_all = attr->sq_sig_all;
  pthread_mutex_lock(&lock);
  unsigned number = 2;
  while (number < qps_max && qps[number]) ++number;
  if (number < qps_max) qps[number] = qp;
  pthread_mutex_unlock(&lock);
  if (number == qps_max) {
    free(qp);
    errno = ENOMEM;
    return NULL;
  }
  qp->shown.handle = qp->shown.qp_num = number;
  qp->shown.state = IBV_QPS_RESET;
  return &qp->shown;
}

static int modify_qp(struct ibv_qp* shown, struct ibv_qp_attr* attr, int mask) {
  struct toy_qp* qp = (struct toy_qp*)shown;
  pthread_mutex_lock(&lock);
  if (mask & IBV_QP_STATE) qp->attr.qp_state = attr->qp_state;
  if (mask & IBV_QP_DEST_QPN) qp->attr.dest_qp_num = attr->dest_qp_num;
  pthread_mutex_unlock(&lock);
  return 0;
}

static int query_qp(struct ibv_qp* shown, struct ibv_qp_attr* attr, int mask, struct ibv_qp_init_attr* init) {
  const struct toy_qp* qp = (const struct toy_qp*)shown;
  (void)mask;
  *attr = qp->attr;
  attr->cap = qp->cap;
  memset(init, 0, sizeof *init);
  init->qp_context = shown->qp_context;
  init->send_cq = shown->send_cq;
  init->recv_cq = shown->recv_cq;
  init->cap = qp->cap;
  init->qp_type = shown->qp_type;
  init->sq_sig_all = qp->signal_all;
  return 0;
}

static int destroy_qp(struct ibv_qp* shown) {
  pthread_mutex_lock(&lock);
  qps[shown->qp_num] = NULL;
  pthread_mutex_unlock(&lock);
  free(shown);
  return 0;
}

static int post_recv(struct ibv_qp* shown, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad) {
  struct toy_qp* qp = (struct toy_qp*)shown;
  int code = 0;
  pthread_mutex_lock(&lock);
  for (; wr && !code; wr = code ? wr : wr->next) {
    code = qp->count == receives_max ? ENOMEM : wr->num_sge > 1 ? EINVAL : 0;
    if (code) break;
    const unsigned place = (qp->first + qp->count++) % receives_max;
    qp->receives[place].wr_id = wr->wr_id;
    qp->receives[place].sge = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){0, 0, 0};
  }
  pthread_mutex_unlock(&lock);
  if (code) *bad = wr;
  return code;
}

/* The peer's half of a SEND. */
static enum ibv_wc_status receive(struct toy_qp* peer, struct toy_qp* from, const struct ibv_send_wr* wr,
                                  const char* data, uint32_t length) {
  if (peer->count == 0) return IBV_WC_RNR_RETRY_EXC_ERR;
  const struct ibv_sge sge = peer->receives[peer->first].sge;
  char* to = length <= sge.length ? at(sge.lkey, sge.addr, length, IBV_ACCESS_LOCAL_WRITE) : NULL;
  struct ibv_wc wc = {.wr_id = peer->receives[peer->first].wr_id,
                      .opcode = IBV_WC_RECV,
                      .byte_len = length,
                      .qp_num = peer->shown.qp_num,
                      .src_qp = from->shown.qp_num};
  peer->first = (peer->first + 1) % receives_max;
  --peer->count;
  if (wr->opcode == IBV_WR_SEND_WITH_IMM) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = wr->imm_data;
  }
  if (to) memmove(to, data, length);
  else if (length > 0) wc.status = IBV_WC_LOC_PROT_ERR;
  complete((struct toy_cq*)peer->shown.recv_cq, &wc);
  return wc.status == IBV_WC_SUCCESS ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR;
}

static enum ibv_wc_status carry_out(struct toy_qp* qp, const struct ibv_send_wr* wr) {
  struct toy_qp* peer = qp->attr.dest_qp_num < qps_max ? qps[qp->attr.dest_qp_num] : NULL;
  if (!peer || qp->attr.qp_state != IBV_QPS_RTS || peer->attr.qp_state < IBV_QPS_RTR)
    return IBV_WC_RETRY_EXC_ERR;
  const uint32_t length = wr->num_sge ? wr->sg_list[0].length : 0;
  char* here = NULL;
  if (length > 0) {
    here = at(wr->sg_list[0].lkey, wr->sg_list[0].addr, length,
              wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!here) return IBV_WC_LOC_PROT_ERR;
  }
  if (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM)
    return receive(peer, qp, wr, here, length);
  const int reads = wr->opcode == IBV_WR_RDMA_READ;
  char* there = at(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length,
                   reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
  if (!there) return IBV_WC_REM_ACCESS_ERR;
  if (length > 0) memmove(reads ? here : there, reads ? there : here, length);
  return IBV_WC_SUCCESS;
}

static int post_send(struct ibv_qp* shown, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  struct toy_qp* qp = (struct toy_qp*)shown;
  int code = 0;
  pthread_mutex_lock(&lock);
  for (; wr; wr = wr->next) {
    const int known = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM ||
                      wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ;
    if (!known || wr->num_sge > 1) {
      code = EINVAL;
      *bad = wr;
      break;
    }
    struct ibv_wc wc = {.wr_id = wr->wr_id, .qp_num = shown->qp_num};
    wc.status = carry_out(qp, wr);
    wc.opcode = wr->opcode == IBV_WR_RDMA_READ    ? IBV_WC_RDMA_READ
                : wr->opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE
                                                  : IBV_WC_SEND;
    if (wc.status != IBV_WC_SUCCESS || qp->signal_all || (wr->send_flags & IBV_SEND_SIGNALED))
      complete((struct toy_cq*)shown->send_cq, &wc);
  }
  pthread_mutex_unlock(&lock);
  return code;
}

#ifdef WEFT_VERBS_NEXT
static int modify_qp_rate_limit(struct ibv_qp* qp, struct ibv_qp_rate_limit_attr* attr) {
  (void)qp;
  return attr->rate_limit == 0 ? EINVAL : 0;
}
#endif

/* --- the provider --- */

static const struct weft_verbs_ops calls = {
    .size = sizeof calls,
    .poll_cq = poll_cq,
    .req_notify_cq = req_notify_cq,
    .post_send = post_send,
    .post_recv = post_recv,
    .query_device = query_device,
    .query_port = query_port,
    .query_gid = query_gid,
    .query_pkey = query_pkey,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = dereg_mr,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .create_qp = create_qp,
    .query_qp = query_qp,
    .modify_qp = modify_qp,
    .destroy_qp = destroy_qp,
    .cq_flags = IBV_WC_EX_WITH_BYTE_LEN,
    .comp_vectors = 1,
#ifdef WEFT_VERBS_NEXT
    .modify_qp_rate_limit = modify_qp_rate_limit,
#endif
};

static int start(const struct weft_verbs_services* services) {
  library = services;
#ifdef WEFT_VERBS_NEXT
  /* Of a library that is older than this provider the table ends before. */
  if (services->size > offsetof(struct weft_verbs_services, library_name))
    services->log(2, services->library_name());
#endif
  return 0;
}

static int list_devices(void (*add)(void* list, const struct weft_verbs_device* device), void* list) {
  const struct weft_verbs_device device = {.size = sizeof device,
                                           .name = "toy0",
                                           .node_type = IBV_NODE_CA,
                                           .transport_type = IBV_TRANSPORT_IB,
                                           .guid = 0x0100000000594f54};
  add(list, &device);
  return 0;
}

static int open_device(const struct weft_verbs_device* device, struct ibv_context* context,
                       struct weft_verbs_ops* ops, void** state) {
  (void)device, (void)context;
  *state = NULL;
  const size_t size = ops->size < sizeof calls ? ops->size : sizeof calls; /* the smaller of both */
  memcpy(ops, &calls, size);
  return 0;
}

static void close_device(struct ibv_context* context, void* state) { (void)context, (void)state; }

static const struct weft_verbs_provider provider = {.size = sizeof provider,
                                                    .name = "toy",
                                                    .start = start,
                                                    .list_devices = list_devices,
                                                    .open = open_device,
                                                    .close = close_device};

__attribute__((constructor)) static void enter(void) { weft_verbs_register(&provider); }
