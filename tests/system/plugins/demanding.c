// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider for tests of `weft check`: another one ("loopback") under its own name, which demands FI_MR_LOCAL and FI_MR_ENDPOINT. A call whose
// buffer no region covers that is bound to this endpoint, enabled and still open fails with -FI_EINVAL. WEFT_DEMANDING=local or endpoint demands one.
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>
#include <stdlib.h>
#include <string.h>

#define OWN_NAME "demanding"
#define OTHER_NAME "loopback"

struct region {
  struct fid_mr* mr;
  const char* begin;
  size_t len;
  const struct fid* ep;
  int enabled;
  struct region* next;
};
static struct region* regions;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

// The tables of the one below, of which a few entries are changed. One of each is enough: they are the same for all objects.
static struct fi_ops_fabric fabric_ops;
static struct fi_ops_domain domain_ops;
static struct fi_ops_mr mr_ops;
static struct fi_ops mr_fid_ops, ep_fid_ops;
static struct fi_ops_msg msg_ops, true_msg;
static struct fi_ops_tagged tagged_ops, true_tagged;
static struct fi_ops_rma rma_ops, true_rma;
static int (*true_domain)(struct fid_fabric*, struct fi_info*, struct fid_domain**, void*);
static int (*true_endpoint)(struct fid_domain*, struct fi_info*, struct fid_ep**, void*);
static int (*true_reg)(struct fid*, const void*, size_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       struct fid_mr**, void*);
static int (*true_mr_close)(struct fid*);
static int (*true_mr_bind)(struct fid*, struct fid*, uint64_t);
static int (*true_control)(struct fid*, int, void*);

static int demanded(void) {
  const char* what = getenv("WEFT_DEMANDING");
  if (what != NULL && strcmp(what, "local") == 0) return FI_MR_LOCAL;
  if (what != NULL && strcmp(what, "endpoint") == 0) return FI_MR_ENDPOINT;
  return FI_MR_LOCAL | FI_MR_ENDPOINT;
}

// Whether the descriptor is good for these bytes at this endpoint.
static int covers(const struct fid_ep* ep, const void* desc, const void* buf, size_t len) {
  if (len == 0 || (demanded() & FI_MR_LOCAL) == 0) return 1;
  pthread_mutex_lock(&guard);
  const struct region* r = regions;
  while (r != NULL && r != desc) r = r->next;
  const char* begin = buf;
  const int good = r != NULL && begin >= r->begin && begin + len <= r->begin + r->len &&
                   ((demanded() & FI_MR_ENDPOINT) == 0 || (r->ep == &ep->fid && r->enabled));
  pthread_mutex_unlock(&guard);
  return good;
}

static ssize_t own_send(struct fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t to,
                        void* context) {
  return covers(ep, desc, buf, len) ? true_msg.send(ep, buf, len, NULL, to, context) : -FI_EINVAL;
}
static ssize_t own_recv(struct fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t from, void* context) {
  return covers(ep, desc, buf, len) ? true_msg.recv(ep, buf, len, NULL, from, context) : -FI_EINVAL;
}
static ssize_t own_sendv(struct fid_ep* ep, const struct iovec* iov, void** desc, size_t count, fi_addr_t to,
                         void* context) {
  for (size_t i = 0; i < count; ++i)
    if (!covers(ep, desc[i], iov[i].iov_base, iov[i].iov_len)) return -FI_EINVAL;
  return true_msg.sendv(ep, iov, NULL, count, to, context);
}
static ssize_t own_tsend(struct fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t to,
                         uint64_t tag, void* context) {
  return covers(ep, desc, buf, len) ? true_tagged.send(ep, buf, len, NULL, to, tag, context) : -FI_EINVAL;
}
static ssize_t own_trecv(struct fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t from, uint64_t tag,
                         uint64_t ignore, void* context) {
  return covers(ep, desc, buf, len) ? true_tagged.recv(ep, buf, len, NULL, from, tag, ignore, context)
                                    : -FI_EINVAL;
}
static ssize_t own_trecvmsg(struct fid_ep* ep, const struct fi_msg_tagged* msg, uint64_t flags) {
  for (size_t i = 0; i < msg->iov_count && (flags & (FI_PEEK | FI_DISCARD)) == 0; ++i)
    if (!covers(ep, msg->desc[i], msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len)) return -FI_EINVAL;
  return true_tagged.recvmsg(ep, msg, flags);
}
static ssize_t own_write(struct fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t to,
                         uint64_t addr, uint64_t key, void* context) {
  return covers(ep, desc, buf, len) ? true_rma.write(ep, buf, len, NULL, to, addr, key, context) : -FI_EINVAL;
}
static ssize_t own_read(struct fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t from, uint64_t addr,
                        uint64_t key, void* context) {
  return covers(ep, desc, buf, len) ? true_rma.read(ep, buf, len, NULL, from, addr, key, context)
                                    : -FI_EINVAL;
}

static int mr_bind(struct fid* fid, struct fid* to, uint64_t flags) {
  struct region* r = ((struct fid_mr*)fid)->mem_desc;
  if (to->fclass != FI_CLASS_EP) return true_mr_bind(fid, to, flags);
  pthread_mutex_lock(&guard);
  r->ep = to;
  pthread_mutex_unlock(&guard);
  return 0;
}

static int mr_control(struct fid* fid, int command, void* arg) {
  (void)arg;
  struct region* r = ((struct fid_mr*)fid)->mem_desc;
  if (command != FI_ENABLE || r->ep == NULL) return -FI_EINVAL;
  r->enabled = 1;
  return 0;
}

static int mr_close(struct fid* fid) {
  struct region* own = ((struct fid_mr*)fid)->mem_desc;
  const int rc = true_mr_close(fid);
  if (rc != 0) return rc;
  pthread_mutex_lock(&guard);
  for (struct region** at = &regions; *at != NULL; at = &(*at)->next)
    if (*at == own) {
      *at = own->next;
      break;
    }
  pthread_mutex_unlock(&guard);
  free(own);
  return 0;
}

static int own_reg(struct fid* fid, const void* buf, size_t len, uint64_t access, uint64_t offset,
                   uint64_t key, uint64_t flags, struct fid_mr** mr, void* context) {
  const int rc = true_reg(fid, buf, len, access, offset, key, flags, mr, context);
  if (rc != 0) return rc;
  struct region* own = calloc(1, sizeof *own);
  if (own == NULL) abort();
  own->mr = *mr;
  own->begin = buf;
  own->len = len;
  pthread_mutex_lock(&guard);
  own->next = regions;
  regions = own;
  pthread_mutex_unlock(&guard);
  if (mr_fid_ops.close == NULL) {
    mr_fid_ops = *(*mr)->fid.ops;
    true_mr_close = mr_fid_ops.close;
    true_mr_bind = mr_fid_ops.bind;
    mr_fid_ops.close = mr_close;
    mr_fid_ops.bind = mr_bind;
    mr_fid_ops.control = mr_control;
  }
  (*mr)->fid.ops = &mr_fid_ops;
  (*mr)->mem_desc = own;
  return 0;
}

// The data path may get its table when the endpoint is enabled.
static int own_control(struct fid* fid, int command, void* arg) {
  struct fid_ep* ep = (struct fid_ep*)fid;
  const int rc = true_control(fid, command, arg);
  if (rc != 0 || command != FI_ENABLE) return rc;
  if (ep->msg != NULL && ep->msg != &msg_ops) {
    msg_ops = true_msg = *ep->msg;
    msg_ops.send = own_send;
    msg_ops.recv = own_recv;
    msg_ops.sendv = own_sendv;
    ep->msg = &msg_ops;
  }
  if (ep->tagged != NULL && ep->tagged != &tagged_ops) {
    tagged_ops = true_tagged = *ep->tagged;
    tagged_ops.send = own_tsend;
    tagged_ops.recv = own_trecv;
    tagged_ops.recvmsg = own_trecvmsg;
    ep->tagged = &tagged_ops;
  }
  if (ep->rma != NULL && ep->rma != &rma_ops) {
    rma_ops = true_rma = *ep->rma;
    rma_ops.write = own_write;
    rma_ops.read = own_read;
    ep->rma = &rma_ops;
  }
  return 0;
}

static struct fi_info* as_other(const struct fi_info* info) {
  struct fi_info* copy = info != NULL ? fi_dupinfo(info) : fi_allocinfo();
  free(copy->fabric_attr->prov_name);
  copy->fabric_attr->prov_name = strdup(OTHER_NAME);
  copy->domain_attr->mr_mode &= ~(FI_MR_LOCAL | FI_MR_ENDPOINT);
  return copy;
}

static int own_endpoint(struct fid_domain* domain, struct fi_info* info, struct fid_ep** ep, void* context) {
  struct fi_info* other = as_other(info);
  const int rc = true_endpoint(domain, other, ep, context);
  fi_freeinfo(other);
  if (rc != 0) return rc;
  ep_fid_ops = *(*ep)->fid.ops;
  true_control = ep_fid_ops.control;
  ep_fid_ops.control = own_control;
  (*ep)->fid.ops = &ep_fid_ops;
  return 0;
}

static int own_domain(struct fid_fabric* fabric, struct fi_info* info, struct fid_domain** domain,
                      void* context) {
  struct fi_info* other = as_other(info);
  const int rc = true_domain(fabric, other, domain, context);
  fi_freeinfo(other);
  if (rc != 0) return rc;
  domain_ops = *(*domain)->ops;
  true_endpoint = domain_ops.endpoint;
  domain_ops.endpoint = own_endpoint;
  (*domain)->ops = &domain_ops;
  mr_ops = *(*domain)->mr;
  true_reg = mr_ops.reg;
  mr_ops.reg = own_reg;
  (*domain)->mr = &mr_ops;
  return 0;
}

static int own_fabric(struct fi_fabric_attr* attr, struct fid_fabric** fabric, void* context) {
  struct fi_fabric_attr other = *attr;
  other.prov_name = (char*)OTHER_NAME;
  const int rc = fi_fabric(&other, fabric, context);
  if (rc != 0) return rc;
  fabric_ops = *(*fabric)->ops;
  true_domain = fabric_ops.domain;
  fabric_ops.domain = own_domain;
  (*fabric)->ops = &fabric_ops;
  return 0;
}

static int own_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                       const struct fi_info* hints, struct fi_info** info) {
  if (hints != NULL && hints->domain_attr != NULL && (hints->domain_attr->mr_mode & demanded()) != demanded())
    return -FI_ENODATA;
  struct fi_info* other = as_other(hints);
  const int rc = fi_getinfo(version, node, service, flags, other, info);
  fi_freeinfo(other);
  for (struct fi_info* i = rc == 0 ? *info : NULL; i != NULL; i = i->next) {
    free(i->fabric_attr->prov_name);
    i->fabric_attr->prov_name = strdup(OWN_NAME);
    i->domain_attr->mr_mode |= demanded();
  }
  return rc;
}

static void own_cleanup(void) {}

__attribute__((visibility("default"))) struct fi_provider* fi_prov_ini(void);
struct fi_provider* fi_prov_ini(void) {
  static struct fi_provider provider = {.version = FI_VERSION(1, 0),
                                        .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
                                        .name = OWN_NAME,
                                        .getinfo = own_getinfo,
                                        .fabric = own_fabric,
                                        .cleanup = own_cleanup};
  return &provider;
}
