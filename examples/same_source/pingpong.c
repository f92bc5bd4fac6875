// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Two processes and tagged messages, in C against the standard headers only. The same source is built against a libfabric, against the
 * multiplexer and directly against a provider; see README.md here.
 *
 * usage: pingpong [PROVIDER]      (default shm; "any": the first that fits) */
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

enum { rounds = 1000, address_max = 64, message_max = 4096 };

struct side {
  struct fi_info* info;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_av* av;
  struct fid_cq* cq;
  struct fid_ep* ep;
  fi_addr_t peer;
};

static void check(const char* what, long status) {
  if (status >= 0) return;
  fprintf(stderr, "pingpong: %s: %s\n", what, fi_strerror((int)-status));
  exit(1);
}

static void open_side(struct side* s, const char* provider) {
  struct fi_info* hints = fi_allocinfo();
  if (hints == NULL) check("fi_allocinfo", -FI_ENOMEM);
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_TAGGED;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  if (strcmp(provider, "any") != 0) hints->fabric_attr->prov_name = strdup(provider);
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
  char mine[address_max] = {0};
  char theirs[address_max];
  size_t length = sizeof mine;
  check("fi_getname", fi_getname(&s->ep->fid, mine, &length));
  if (write(to, mine, sizeof mine) != sizeof mine || read(from, theirs, sizeof theirs) != sizeof theirs)
    check("the pipe", -FI_EIO);
  if (fi_av_insert(s->av, theirs, 1, &s->peer, 0, NULL) != 1) check("fi_av_insert", -FI_EINVAL);
}

static struct fi_cq_tagged_entry finish(struct side* s) {
  struct fi_cq_tagged_entry done;
  ssize_t got;
  while ((got = fi_cq_read(s->cq, &done, 1)) == -FI_EAGAIN) continue;
  check("fi_cq_read", (long)got);
  return done;
}

static void send_one(struct side* s, const void* buffer, size_t length, uint64_t tag) {
  ssize_t status;
  if (length <= s->info->tx_attr->inject_size) {
    while ((status = fi_tinject(s->ep, buffer, length, s->peer, tag)) == -FI_EAGAIN)
      (void)fi_cq_read(s->cq, NULL, 0);
    check("fi_tinject", (long)status);
    return;
  }
  while ((status = fi_tsend(s->ep, buffer, length, NULL, s->peer, tag, NULL)) == -FI_EAGAIN)
    (void)fi_cq_read(s->cq, NULL, 0);
  check("fi_tsend", (long)status);
  finish(s);
}

static size_t length_of(uint64_t round) { return round % 8 == 7 ? message_max : 8 * (size_t)(round % 8 + 1); }

/* The starting side sends first. Each message carries its number in every eighth byte. */
static uint64_t play(struct side* s, int starts) {
  static uint64_t out[message_max / 8];
  static uint64_t in[message_max / 8];
  uint64_t sum = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const size_t length = length_of(round);
    for (size_t i = 0; i < length / 8; ++i) out[i] = round + i;
    if (starts) send_one(s, out, length, round);
    ssize_t status;
    while ((status = fi_trecv(s->ep, in, sizeof in, NULL, s->peer, round, 0, NULL)) == -FI_EAGAIN) continue;
    check("fi_trecv", (long)status);
    const struct fi_cq_tagged_entry done = finish(s);
    if (done.len != length || done.tag != round) check("a message of the wrong length", -FI_EIO);
    for (size_t i = 0; i < length / 8; ++i) {
      if (in[i] != round + i) check("a message with the wrong bytes", -FI_EIO);
      sum += in[i];
    }
    if (!starts) send_one(s, out, length, round);
  }
  return sum;
}

int main(int argc, char** argv) {
  const char* provider = argc > 1 ? argv[1] : "shm";
  int there[2];
  int back[2];
  if (pipe(there) != 0 || pipe(back) != 0) check("pipe", -FI_EMFILE);
  const pid_t child = fork();
  const int starts = child != 0;
  struct side s;
  open_side(&s, provider);
  meet(&s, starts ? back[0] : there[0], starts ? there[1] : back[1]);
  const uint64_t sum = play(&s, starts);
  if (!starts) {
    /* Until the other side has read the last message. */
    char byte;
    close(there[1]);
    while (read(there[0], &byte, 1) > 0) continue;
    close_side(&s);
    return 0;
  }
  printf("%d rounds over %s, sum %llu\n", rounds, s.info->fabric_attr->prov_name, (unsigned long long)sum);
  close_side(&s);
  close(there[1]);
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) check("the other side", -FI_EIO);
  return 0;
}
