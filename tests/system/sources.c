// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What fi_cq_readfrom says of who sent, with and without FI_SOURCE: sources PROVIDER. Three messages, read one at a time and with room for more, and
 * the completions of their sends. A line each: the address of the sender, or "-" for FI_ADDR_NOTAVAIL. C, and C++20 for direct linking
 * (tests/install/direct_test.sh); `weft trace` watches it (trace_test.sh). */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(good)                                           \
  do {                                                        \
    if (!(good)) {                                            \
      fprintf(stderr, "sources.c:%d: %s\n", __LINE__, #good); \
      exit(1);                                                \
    }                                                         \
  } while (0)

enum { tries_max = 100000000 };

struct node {
  struct fid_cq* cq;
  struct fid_av* av;
  struct fid_ep* ep;
  fi_addr_t to;
};

static struct node nodes[2];

static void open_node(struct node* at, struct fid_domain* domain, struct fi_info* info) {
  struct fi_cq_attr cq_attr;
  struct fi_av_attr av_attr;
  memset(&cq_attr, 0, sizeof cq_attr);
  memset(&av_attr, 0, sizeof av_attr);
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  av_attr.type = FI_AV_TABLE;
  CHECK(fi_cq_open(domain, &cq_attr, &at->cq, NULL) == 0);
  CHECK(fi_av_open(domain, &av_attr, &at->av, NULL) == 0);
  CHECK(fi_endpoint(domain, info, &at->ep, NULL) == 0);
  CHECK(fi_ep_bind(at->ep, &at->av->fid, 0) == 0);
  CHECK(fi_ep_bind(at->ep, &at->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
  CHECK(fi_enable(at->ep) == 0);
}

static void insert(struct node* at, struct node* other) {
  char name[256];
  size_t len = sizeof name;
  CHECK(fi_getname(&other->ep->fid, name, &len) == 0);
  CHECK(fi_av_insert(at->av, name, 1, &at->to, 0, NULL) == 1);
}

/* One entry of the queue at `from`, while the other one makes progress; its source. */
static fi_addr_t next(struct node* from, size_t room, uint64_t flag) {
  struct fi_cq_tagged_entry entries[4];
  fi_addr_t source[4] = {7, 7, 7, 7};
  ssize_t n = 0;
  for (long i = 0; i < tries_max; ++i) {
    if ((n = fi_cq_readfrom(from->cq, entries, room, source)) != -FI_EAGAIN) break;
    (void)fi_cq_read(nodes[from == nodes].cq, NULL, 0);
  }
  CHECK(n == 1 && (entries[0].flags & flag) != 0);
  return source[0];
}

static void print(const char* what, fi_addr_t source) {
  if (source == FI_ADDR_NOTAVAIL) printf(" %s -", what);
  else printf(" %s %d", what, (int)source);
}

static void exchange(const char* provider, uint64_t with) {
  static const size_t rooms[3] = {1, 4, 1};
  struct fi_info *hints = fi_allocinfo(), *info = NULL;
  struct fid_fabric* fabric = NULL;
  struct fid_domain* domain = NULL;
  CHECK(hints);
  hints->caps = FI_TAGGED | with;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(provider);
  CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == 0);
  CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
  CHECK(fi_domain(fabric, info, &domain, NULL) == 0);
  open_node(&nodes[0], domain, info);
  open_node(&nodes[1], domain, info);
  insert(&nodes[0], &nodes[1]);
  insert(&nodes[1], &nodes[0]);
  printf("%s FI_SOURCE:", with != 0 ? "with" : "without");
  for (uint64_t i = 0; i < 3; ++i) {
    struct fi_context receive, sent;
    uint64_t in = 0;
    ssize_t rc;
    CHECK(fi_trecv(nodes[1].ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, i, 0, &receive) == 0);
    while ((rc = fi_tsend(nodes[0].ep, &i, sizeof i, NULL, nodes[0].to, i, &sent)) == -FI_EAGAIN)
      (void)fi_cq_read(nodes[1].cq, NULL, 0);
    CHECK(rc == 0);
    print("received", next(&nodes[1], rooms[i], FI_RECV));
    print("sent", next(&nodes[0], rooms[i], FI_SEND));
    CHECK(in == i);
  }
  puts("");
  for (int i = 0; i < 2; ++i)
    CHECK(fi_close(&nodes[i].ep->fid) == 0 && fi_close(&nodes[i].av->fid) == 0 &&
          fi_close(&nodes[i].cq->fid) == 0);
  CHECK(fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
  fi_freeinfo(info);
  fi_freeinfo(hints);
}

int main(int count, char** words) {
  const char* provider = count > 1 ? words[1] : "shm";
  exchange(provider, 0);
  exchange(provider, FI_SOURCE);
  return 0;
}
