// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider for tests of `weft check`: another one ("loopback") under its own name, with some calls put out of order. fi_tsend() of 1 KiB and more
// delivers a wrong byte, fi_tsendv() writes to nowhere, fi_trecvmsg() never returns, and fi_cancel() says that it cannot. All else works.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIAR_NAME "liar"
#define LIAR_TRUTH "loopback"

// The tables of the one below, of which a few entries are changed. One of each is enough: they are the same for all objects.
static struct fi_ops_fabric fabric_ops;
static struct fi_ops_domain domain_ops;
static struct fi_ops ep_fid_ops;
static struct fi_ops_ep ep_ops;
static struct fi_ops_tagged tagged_ops;
static int (*true_domain)(struct fid_fabric*, struct fi_info*, struct fid_domain**, void*);
static int (*true_endpoint)(struct fid_domain*, struct fi_info*, struct fid_ep**, void*);
static int (*true_control)(struct fid*, int, void*);
static ssize_t (*true_send)(struct fid_ep*, const void*, size_t, void*, fi_addr_t, uint64_t, void*);

static char* renamed(char* old, const char* name) {
  free(old);
  return strdup(name);
}

static struct fi_info* as_truth(const struct fi_info* info) {
  struct fi_info* copy = info != NULL ? fi_dupinfo(info) : fi_allocinfo();
  copy->fabric_attr->prov_name = renamed(copy->fabric_attr->prov_name, LIAR_TRUTH);
  return copy;
}

static ssize_t lying_send(struct fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t to,
                          uint64_t tag, void* context) {
  static char changed[64 << 20];
  if (len < 1024 || len > sizeof changed) return true_send(ep, buf, len, desc, to, tag, context);
  memcpy(changed, buf, len);
  changed[len / 2] ^= 1;
  return true_send(ep, changed, len, desc, to, tag, context);
}

static ssize_t crashing_sendv(struct fid_ep* ep, const struct iovec* iov, void** desc, size_t count,
                              fi_addr_t to, uint64_t tag, void* context) {
  (void)iov, (void)desc, (void)count, (void)to, (void)tag, (void)context;
  *(volatile int*)((char*)ep - (size_t)ep + 8) = 1;
  return 0;
}

static ssize_t hanging_recvmsg(struct fid_ep* ep, const struct fi_msg_tagged* msg, uint64_t flags) {
  (void)ep, (void)msg, (void)flags;
  while (pause() != 0) continue;
  return 0;
}

static ssize_t refusing_cancel(fid_t fid, void* context) {
  (void)fid, (void)context;
  return -FI_ENOSYS;
}

// The data path may get its table when the endpoint is enabled.
static int lying_control(struct fid* fid, int command, void* arg) {
  struct fid_ep* ep = (struct fid_ep*)fid;
  const int rc = true_control(fid, command, arg);
  if (rc != 0 || command != FI_ENABLE || ep->tagged == &tagged_ops) return rc;
  tagged_ops = *ep->tagged;
  true_send = tagged_ops.send;
  tagged_ops.send = lying_send;
  tagged_ops.sendv = crashing_sendv;
  tagged_ops.recvmsg = hanging_recvmsg;
  ep->tagged = &tagged_ops;
  return 0;
}

static int lying_endpoint(struct fid_domain* domain, struct fi_info* info, struct fid_ep** ep,
                          void* context) {
  struct fi_info* truth = as_truth(info);
  const int rc = true_endpoint(domain, truth, ep, context);
  fi_freeinfo(truth);
  if (rc != 0) return rc;
  ep_ops = *(*ep)->ops;
  ep_ops.cancel = refusing_cancel;
  ep_fid_ops = *(*ep)->fid.ops;
  true_control = ep_fid_ops.control;
  ep_fid_ops.control = lying_control;
  (*ep)->fid.ops = &ep_fid_ops;
  (*ep)->ops = &ep_ops;
  return 0;
}

static int lying_domain(struct fid_fabric* fabric, struct fi_info* info, struct fid_domain** domain,
                        void* context) {
  struct fi_info* truth = as_truth(info);
  const int rc = true_domain(fabric, truth, domain, context);
  fi_freeinfo(truth);
  if (rc != 0) return rc;
  domain_ops = *(*domain)->ops;
  true_endpoint = domain_ops.endpoint;
  domain_ops.endpoint = lying_endpoint;
  (*domain)->ops = &domain_ops;
  return 0;
}

static int lying_fabric(struct fi_fabric_attr* attr, struct fid_fabric** fabric, void* context) {
  struct fi_fabric_attr truth = *attr;
  truth.prov_name = (char*)LIAR_TRUTH;
  const int rc = fi_fabric(&truth, fabric, context);
  if (rc != 0) return rc;
  fabric_ops = *(*fabric)->ops;
  true_domain = fabric_ops.domain;
  fabric_ops.domain = lying_domain;
  (*fabric)->ops = &fabric_ops;
  return 0;
}

static int lying_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                         const struct fi_info* hints, struct fi_info** info) {
  struct fi_info* truth = as_truth(hints);
  const int rc = fi_getinfo(version, node, service, flags, truth, info);
  fi_freeinfo(truth);
  for (struct fi_info* i = rc == 0 ? *info : NULL; i != NULL; i = i->next)
    i->fabric_attr->prov_name = renamed(i->fabric_attr->prov_name, LIAR_NAME);
  return rc;
}

static void lying_cleanup(void) {}

__attribute__((visibility("default"))) struct fi_provider* fi_prov_ini(void);
struct fi_provider* fi_prov_ini(void) {
  static struct fi_provider provider = {.version = FI_VERSION(1, 0),
                                        .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
                                        .name = LIAR_NAME,
                                        .getinfo = lying_getinfo,
                                        .fabric = lying_fabric,
                                        .cleanup = lying_cleanup};
  return &provider;
}
