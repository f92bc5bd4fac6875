// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A program that uses <weft/extensions.h>, for extensions_test.sh. With NEW it is one of the next version: it uses what that has besides, where
 * the header that it is compiled with has it. Prints one line of what it found; exit status 1 when something of version 1 does not work.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/extensions.h>

#define CHECK(call)                                                                         \
  do {                                                                                      \
    const long status_ = (long)(call);                                                      \
    if (status_ < 0) {                                                                      \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, fi_strerror(-status_)); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

static struct fid_ep* ep;
static struct fid_cq* cq;
static fi_addr_t self;

static void open_endpoint(void) {
  struct fi_info *hints = fi_allocinfo(), *info;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_av* av;
  struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
  struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
  char name[64];
  size_t length = sizeof name;
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_TAGGED;
  hints->fabric_attr->prov_name = strdup("shm");
  CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
  CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
  CHECK(fi_domain(fabric, info, &domain, NULL));
  CHECK(fi_av_open(domain, &av_attr, &av, NULL));
  CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
  CHECK(fi_endpoint(domain, info, &ep, NULL));
  CHECK(fi_ep_bind(ep, &av->fid, 0));
  CHECK(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV));
  CHECK(fi_enable(ep));
  CHECK(fi_getname(&ep->fid, name, &length));
  if (fi_av_insert(av, name, 1, &self, 0, NULL) != 1) CHECK(-FI_EINVAL);
  fi_freeinfo(info);
  fi_freeinfo(hints);
}

/* Version 1: a message is sent and taken in place, and the bounds are asked for. */
static void use_version_1(const struct weft_shm_ops* ops) {
  static const char text[] = "a message";
  struct weft_shm_limits limits = {.size = sizeof limits};
  struct weft_shm_rings rings = {.size = sizeof rings};
  struct weft_shm_wanted wanted = {
      .size = sizeof wanted, .flags = FI_TAGGED, .source = FI_ADDR_UNSPEC, .tag = 5};
  struct weft_shm_message message = {.size = sizeof message};
  int status, turns;
  CHECK(weft_shm_query_limits(ops, ep, &limits));
  CHECK(weft_shm_query_rings(ops, ep, self, &rings));
  if (limits.entries == 0 || limits.size != sizeof limits || rings.size != sizeof rings) CHECK(-FI_EOTHER);
  CHECK(fi_tinject(ep, text, sizeof text, self, 5));
  for (turns = 0; (status = weft_shm_take(ops, ep, &wanted, &message)) == -FI_EAGAIN && turns < 1000000;
       ++turns) {
  }
  CHECK(status);
  if (message.length != sizeof text || memcmp(message.data, text, sizeof text) != 0) CHECK(-FI_EOTHER);
  CHECK(weft_shm_release(ops, ep, message.handle));
}

#if defined(NEW) && WEFT_EXTENSIONS_VERSION >= 4
static void use_next_version(const struct weft_shm_ops* ops) {
  struct weft_shm_limits limits = {.size = sizeof limits, .room_alignment = 77};
  const int status = weft_shm_query_ready(ops, ep);
  CHECK(weft_shm_query_limits(ops, ep, &limits));
  printf("works; new call: %s, new member: %zu\n",
         status == 0            ? "works"
         : status == -FI_ENOSYS ? "-FI_ENOSYS"
                                : "broken",
         limits.room_alignment);
}
#else
static void use_next_version(const struct weft_shm_ops* ops) {
  (void)ops;
  puts("works");
}
#endif

int main(void) {
  const struct weft_shm_ops* ops;
  open_endpoint();
  CHECK(weft_shm_open(ep, &ops));
  use_version_1(ops);
  use_next_version(ops);
  return 0;
}
