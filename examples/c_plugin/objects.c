// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fabrics, domains and memory regions: fi_fabric(3), fi_domain(3), fi_mr(3).
#include <stdlib.h>
#include <string.h>

#include "example.h"

// Every entry of a vector must be a function: the inlines in the headers call most of them without a look.
int ex_no_bind(struct fid* fid, struct fid* other, uint64_t flags) {
  (void)fid, (void)other, (void)flags;
  return -FI_ENOSYS;
}
int ex_no_control(struct fid* fid, int command, void* arg) {
  (void)fid, (void)command, (void)arg;
  return -FI_ENOSYS;
}
int ex_no_ops_open(struct fid* fid, const char* name, uint64_t flags, void** ops, void* context) {
  (void)fid, (void)name, (void)flags, (void)ops, (void)context;
  return -FI_ENOSYS;
}

// --- memory regions ---

// The region that grants this access to all of the range, or null. A list will do for an example; many regions want a hash table.
struct ex_mr* ex_mr_find(struct ex_domain* domain, uint64_t key, uint64_t addr, uint64_t length,
                         uint64_t access) {
  struct ex_mr* mr = domain->regions;
  while (mr != NULL && mr->fid.key != key) mr = mr->next;
  if (mr == NULL || (mr->access & access) == 0) return NULL;
  return addr <= mr->length && length <= mr->length - addr ? mr : NULL;
}

static int mr_close(struct fid* fid) {
  struct ex_mr* mr = (struct ex_mr*)fid;
  pthread_mutex_t* lock = &mr->domain->fabric->lock;
  pthread_mutex_lock(lock);
  struct ex_mr** place = &mr->domain->regions;
  while (*place != mr) place = &(*place)->next;
  *place = mr->next;
  mr->domain->users--;
  pthread_mutex_unlock(lock);
  free(mr);
  return 0;
}

static struct fi_ops mr_fid_ops = {sizeof(struct fi_ops), mr_close, ex_no_bind, ex_no_control,
                                   ex_no_ops_open,        NULL,     NULL};

static int mr_regattr(struct fid* fid, const struct fi_mr_attr* attr, uint64_t flags, struct fid_mr** out) {
  struct ex_domain* domain = (struct ex_domain*)fid;
  (void)flags;
  if (attr->iov_count > 1) return -FI_EINVAL;
  struct ex_mr* mr = calloc(1, sizeof *mr);
  if (mr == NULL) return -FI_ENOMEM;
  mr->domain = domain;
  if (attr->iov_count == 1) {
    mr->base = attr->mr_iov[0].iov_base;
    mr->length = attr->mr_iov[0].iov_len;
  }
  mr->access = attr->access;
  mr->fid.fid = (struct fid){.fclass = FI_CLASS_MR, .context = attr->context, .ops = &mr_fid_ops};
  mr->fid.mem_desc = mr;
  mr->fid.key = attr->requested_key;
  pthread_mutex_lock(&domain->fabric->lock);
  for (const struct ex_mr* other = domain->regions; other != NULL; other = other->next) {
    if (other->fid.key != mr->fid.key) continue;
    pthread_mutex_unlock(&domain->fabric->lock);
    free(mr);
    return -FI_ENOKEY;
  }
  mr->next = domain->regions;
  domain->regions = mr;
  domain->users++;
  pthread_mutex_unlock(&domain->fabric->lock);
  *out = &mr->fid;
  return 0;
}

static int mr_regv(struct fid* fid, const struct iovec* iov, size_t count, uint64_t access, uint64_t offset,
                   uint64_t requested_key, uint64_t flags, struct fid_mr** mr, void* context) {
  const struct fi_mr_attr attr = {.mr_iov = iov,
                                  .iov_count = count,
                                  .access = access,
                                  .offset = offset,
                                  .requested_key = requested_key,
                                  .context = context};
  return mr_regattr(fid, &attr, flags, mr);
}

static int mr_reg(struct fid* fid, const void* buf, size_t len, uint64_t access, uint64_t offset,
                  uint64_t requested_key, uint64_t flags, struct fid_mr** mr, void* context) {
  const struct iovec iov = {(void*)buf, len};
  return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr, context);
}

static struct fi_ops_mr mr_ops = {sizeof(struct fi_ops_mr), mr_reg, mr_regv, mr_regattr};

// --- domains ---

static int no_av(struct fid_domain* domain, struct fi_av_attr* attr, struct fid_av** av, void* context) {
  (void)domain, (void)attr, (void)av, (void)context;
  return -FI_ENOSYS;  // connected endpoints need none
}
static int no_sep(struct fid_domain* domain, struct fi_info* info, struct fid_ep** sep, void* context) {
  (void)domain, (void)info, (void)sep, (void)context;
  return -FI_ENOSYS;
}
static int no_cntr(struct fid_domain* domain, struct fi_cntr_attr* attr, struct fid_cntr** cntr,
                   void* context) {
  (void)domain, (void)attr, (void)cntr, (void)context;
  return -FI_ENOSYS;
}
static int no_poll(struct fid_domain* domain, struct fi_poll_attr* attr, struct fid_poll** poll) {
  (void)domain, (void)attr, (void)poll;
  return -FI_ENOSYS;
}
static int no_stx(struct fid_domain* domain, struct fi_tx_attr* attr, struct fid_stx** stx, void* context) {
  (void)domain, (void)attr, (void)stx, (void)context;
  return -FI_ENOSYS;
}
static int no_srx(struct fid_domain* domain, struct fi_rx_attr* attr, struct fid_ep** srx, void* context) {
  (void)domain, (void)attr, (void)srx, (void)context;
  return -FI_ENOSYS;
}
static int no_atomic(struct fid_domain* domain, enum fi_datatype type, enum fi_op op,
                     struct fi_atomic_attr* attr, uint64_t flags) {
  (void)domain, (void)type, (void)op, (void)attr, (void)flags;
  return -FI_EOPNOTSUPP;
}
static int no_collective(struct fid_domain* domain, enum fi_collective_op op, struct fi_collective_attr* attr,
                         uint64_t flags) {
  (void)domain, (void)op, (void)attr, (void)flags;
  return -FI_ENOSYS;
}
static int endpoint2(struct fid_domain* domain, struct fi_info* info, struct fid_ep** ep, uint64_t flags,
                     void* context) {
  return flags != 0 ? -FI_EBADFLAGS : ex_endpoint(domain, info, ep, context);
}

static int domain_close(struct fid* fid) {
  struct ex_domain* domain = (struct ex_domain*)fid;
  pthread_mutex_lock(&domain->fabric->lock);
  const bool busy = domain->users != 0;
  if (!busy) domain->fabric->users--;
  pthread_mutex_unlock(&domain->fabric->lock);
  if (busy) return -FI_EBUSY;
  free(domain);
  return 0;
}

static struct fi_ops domain_fid_ops = {sizeof(struct fi_ops), domain_close, ex_no_bind, ex_no_control,
                                       ex_no_ops_open,        NULL,         NULL};
static struct fi_ops_domain domain_ops = {sizeof(struct fi_ops_domain),
                                          no_av,
                                          ex_cq_open,
                                          ex_endpoint,
                                          no_sep,
                                          no_cntr,
                                          no_poll,
                                          no_stx,
                                          no_srx,
                                          no_atomic,
                                          no_collective,
                                          endpoint2};

static int domain_open(struct fid_fabric* fid, struct fi_info* info, struct fid_domain** out, void* context) {
  struct ex_fabric* fabric = (struct ex_fabric*)fid;
  (void)info;
  struct ex_domain* domain = calloc(1, sizeof *domain);
  if (domain == NULL) return -FI_ENOMEM;
  domain->fabric = fabric;
  domain->fid.fid = (struct fid){.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid_ops};
  domain->fid.ops = &domain_ops;
  domain->fid.mr = &mr_ops;
  pthread_mutex_lock(&fabric->lock);
  fabric->users++;
  pthread_mutex_unlock(&fabric->lock);
  *out = &domain->fid;
  return 0;
}

static int domain2(struct fid_fabric* fabric, struct fi_info* info, struct fid_domain** domain,
                   uint64_t flags, void* context) {
  return flags != 0 ? -FI_EBADFLAGS : domain_open(fabric, info, domain, context);
}

// --- fabrics ---

static int no_wait(struct fid_fabric* fabric, struct fi_wait_attr* attr, struct fid_wait** wait) {
  (void)fabric, (void)attr, (void)wait;
  return -FI_ENOSYS;
}

static int fabric_close(struct fid* fid) {
  struct ex_fabric* fabric = (struct ex_fabric*)fid;
  if (fabric->users != 0) return -FI_EBUSY;
  pthread_mutex_destroy(&fabric->lock);
  free(fabric);
  return 0;
}

static struct fi_ops fabric_fid_ops = {sizeof(struct fi_ops), fabric_close, ex_no_bind, ex_no_control,
                                       ex_no_ops_open,        NULL,         NULL};
static struct fi_ops_fabric fabric_ops = {
    sizeof(struct fi_ops_fabric), domain_open, ex_passive_ep, ex_eq_open, no_wait, ex_trywait, domain2};

int ex_fabric_open(struct fi_fabric_attr* attr, struct fid_fabric** out, void* context) {
  if (attr->name != NULL && strcmp(attr->name, "example") != 0) return -FI_ENODATA;
  struct ex_fabric* fabric = calloc(1, sizeof *fabric);
  if (fabric == NULL) return -FI_ENOMEM;
  pthread_mutex_init(&fabric->lock, NULL);
  fabric->fid.fid = (struct fid){.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid_ops};
  fabric->fid.ops = &fabric_ops;
  fabric->fid.api_version = attr->api_version;
  *out = &fabric->fid;
  return 0;
}
