// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Two processes that pass records through shared memory without a copy: the sender writes each where the receiver reads it. With a library or a
 * provider that cannot do that, the same program sends and receives as ever; see <weft/extensions.h> and docs/linking.md.
 *
 * usage: in_place [PROVIDER]      (default shm)
 *
 *   cc in_place.c -I$PREFIX/include -lfabric                                any libfabric; $PREFIX is where Weft is installed
 *   cc in_place.c $(pkg-config --cflags --libs weft-mux)                    the multiplexer
 *   cc in_place.c $(pkg-config --cflags --libs weft-direct-shm)             directly */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <weft/extensions.h>

enum { records = 2000, words = 1000, record_tag = 7 };

struct side {
  struct fi_info* info;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_av* av;
  struct fid_cq* cq;
  struct fid_ep* ep;
  fi_addr_t peer;
  const struct weft_shm_ops* ops; /* null: this library or provider has none */
};

static void check(const char* what, long status) {
  if (status >= 0) return;
  fprintf(stderr, "in_place: %s: %s\n", what, fi_strerror((int)-status));
  exit(1);
}

static void open_side(struct side* s, const char* provider) {
  struct fi_info* hints = fi_allocinfo();
  if (hints == NULL) check("fi_allocinfo", -FI_ENOMEM);
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_TAGGED;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(provider);
  check("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &s->info));
  fi_freeinfo(hints);
  check("fi_fabric", fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
  check("fi_domain", fi_domain(s->fabric, s->info, &s->domain, NULL));
  struct fi_av_attr av = {.type = FI_AV_MAP};
  check("fi_av_open", fi_av_open(s->domain, &av, &s->av, NULL));
  struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
  check("fi_cq_open", fi_cq_open(s->domain, &cq, &s->cq, NULL));
  check("fi_endpoint", fi_endpoint(s->domain, s->info, &s->ep, NULL));
  check("fi_ep_bind", fi_ep_bind(s->ep, &s->av->fid, 0));
  check("fi_ep_bind", fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
  check("fi_enable", fi_enable(s->ep));
  if (weft_shm_open(s->ep, &s->ops) != 0) s->ops = NULL;
}

static void close_side(struct side* s) {
  fi_close(&s->ep->fid);
  fi_close(&s->cq->fid);
  fi_close(&s->av->fid);
  fi_close(&s->domain->fid);
  fi_close(&s->fabric->fid);
  fi_freeinfo(s->info);
}

/* The two sides tell each other their addresses through pipes. */
static void meet(struct side* s, int from, int to) {
  char mine[256] = {0};
  char theirs[256];
  size_t length = sizeof mine;
  check("fi_getname", fi_getname(&s->ep->fid, mine, &length));
  if (write(to, mine, sizeof mine) != sizeof mine || read(from, theirs, sizeof theirs) != sizeof theirs)
    check("the pipe", -FI_EIO);
  if (fi_av_insert(s->av, theirs, 1, &s->peer, 0, NULL) != 1) check("fi_av_insert", -FI_EINVAL);
}

static void finish(struct side* s) {
  struct fi_cq_tagged_entry done;
  ssize_t got;
  while ((got = fi_cq_read(s->cq, &done, 1)) == -FI_EAGAIN) continue;
  check("fi_cq_read", (long)got);
}

static void make(uint64_t* record, uint64_t number) {
  for (uint64_t i = 0; i < words; ++i) record[i] = number * i;
}
static uint64_t use(const uint64_t* record) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words; ++i) sum += record[i];
  return sum;
}

/* The record is made where the receiver will read it. */
static int send_in_place(struct side* s, uint64_t number) {
  struct weft_shm_room room = {.size = sizeof room};
  int status;
  while ((status = weft_shm_reserve(s->ops, s->ep, s->peer, words * sizeof(uint64_t), &room)) == -FI_EAGAIN)
    continue;
  if (status == -FI_ENOSYS || status == -FI_EOPNOTSUPP) return 0; /* the usual way, then */
  check("weft_shm_reserve", status);
  make(room.data, number);
  struct weft_shm_send how = {
      .size = sizeof how, .flags = FI_TAGGED, .length = room.length, .tag = record_tag};
  check("weft_shm_commit", weft_shm_commit(s->ops, s->ep, room.handle, &how));
  return 1;
}

static void send_copied(struct side* s, uint64_t number) {
  static uint64_t record[words];
  make(record, number);
  ssize_t status;
  while ((status = fi_tsend(s->ep, record, sizeof record, NULL, s->peer, record_tag, NULL)) == -FI_EAGAIN)
    (void)fi_cq_read(s->cq, NULL, 0);
  check("fi_tsend", (long)status);
  finish(s);
}

/* The record is read where the sender made it. */
static int receive_in_place(struct side* s, uint64_t* sum) {
  struct weft_shm_wanted wanted = {
      .size = sizeof wanted, .flags = FI_TAGGED, .source = FI_ADDR_UNSPEC, .tag = record_tag};
  struct weft_shm_message message = {.size = sizeof message};
  int status;
  while ((status = weft_shm_take(s->ops, s->ep, &wanted, &message)) == -FI_EAGAIN) continue;
  if (status == -FI_ENOSYS || status == -FI_EMSGSIZE) return 0;
  check("weft_shm_take", status);
  *sum += use(message.data);
  check("weft_shm_release", weft_shm_release(s->ops, s->ep, message.handle));
  return message.place == WEFT_SHM_IN_RING;
}

static void receive_copied(struct side* s, uint64_t* sum) {
  static uint64_t record[words];
  ssize_t status;
  while ((status = fi_trecv(s->ep, record, sizeof record, NULL, FI_ADDR_UNSPEC, record_tag, 0, NULL)) ==
         -FI_EAGAIN)
    continue;
  check("fi_trecv", (long)status);
  finish(s);
  *sum += use(record);
}

int main(int argc, char** argv) {
  const char* provider = argc > 1 ? argv[1] : "shm";
  int there[2];
  int back[2];
  if (pipe(there) != 0 || pipe(back) != 0) check("pipe", -FI_EMFILE);
  const pid_t child = fork();
  struct side s;
  open_side(&s, provider);
  if (child == 0) {
    meet(&s, there[0], back[1]);
    for (uint64_t i = 0; i < records; ++i)
      if (s.ops == NULL || !send_in_place(&s, i)) send_copied(&s, i);
    /* Until the other side has read the last one. */
    char byte;
    close(there[1]);
    while (read(there[0], &byte, 1) > 0) continue;
    close_side(&s);
    return 0;
  }
  meet(&s, back[0], there[1]);
  uint64_t sum = 0;
  unsigned in_ring = 0;
  for (uint64_t i = 0; i < records; ++i) {
    if (s.ops == NULL) receive_copied(&s, &sum);
    else in_ring += (unsigned)receive_in_place(&s, &sum);
  }
  printf("%d records over %s, sum %llu, %s\n", records, s.info->fabric_attr->prov_name,
         (unsigned long long)sum,
         s.ops == NULL        ? "copied"
         : in_ring == records ? "in place"
                              : "in part in place");
  close_side(&s);
  close(there[1]);
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) check("the other side", -FI_EIO);
  return 0;
}
