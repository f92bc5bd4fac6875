// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Exchanges with a connected endpoint of the kernel (kofi_test over kofi_tcp), or with another one of itself: messages
 * of many sizes, RMA writes and reads, an atomic; all data are checked. Plain libfabric, FI_EP_MSG.
 *
 *   kernel_peer serve ADDRESS PORT      takes one connection; echoes messages, offers memory
 *   kernel_peer drive ADDRESS PORT      connects; sends, writes, reads, checks
 *
 *   weft run kernel_peer drive 127.0.0.1 4711      with Weft's provider tcp
 *
 * The server's first message names its memory: key, address, bytes (8 bytes each, little-endian). Then it echoes
 * whatever comes, until the driver shuts the connection down.
 */
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)2 << 20)
#define WAIT_MS 60000

static struct fid_fabric* fabric;
static struct fid_domain* domain;
static struct fid_eq* eq;
static struct fid_cq* cq;
static struct fid_ep* ep;
static struct fid_mr* mr;
static struct fi_info* info;
static unsigned char *out, *in, *memory; /* in: receives; memory: what the peer writes and reads */
static void* out_desc;
static void* in_desc;

static void die(const char* what, long status) {
  fprintf(stderr, "kernel_peer: %s: %ld (%s)\n", what, status,
          fi_strerror((int)(status < 0 ? -status : status)));
  exit(1);
}
static void check(const char* what, long status) {
  if (status < 0) die(what, status);
}

static void fill(unsigned char* to, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i) to[i] = (unsigned char)(seed + i + (i >> 8));
}
static void expect(const char* what, const unsigned char* at, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i)
    if (at[i] != (unsigned char)(seed + i + (i >> 8))) {
      fprintf(stderr, "kernel_peer: %s of %zu bytes: byte %zu is wrong\n", what, bytes, i);
      exit(1);
    }
}

/* One completion with this context; false: the connection has ended. Sends complete in between. */
static bool wait_for(void* context, size_t* bytes) {
  static int sends_done; /* completions of sends that nobody has waited for yet */
  if (context == out && sends_done > 0) {
    --sends_done;
    return true;
  }
  while (true) {
    struct fi_cq_data_entry entry;
    const ssize_t got = fi_cq_sread(cq, &entry, 1, NULL, WAIT_MS);
    if (got == -FI_EAVAIL) {
      struct fi_cq_err_entry error = {0};
      fi_cq_readerr(cq, &error, 0);
      if (error.err == FI_ECANCELED || error.err == FI_EIO) return false;
      die("completion", -error.err);
    }
    if (got != 1) die("fi_cq_sread", got);
    if (entry.op_context == context) {
      if (bytes) *bytes = entry.len;
      return true;
    }
    if (entry.op_context == out) ++sends_done;
  }
}

static void wait_event(uint32_t wanted, struct fi_info** request) {
  struct fi_eq_cm_entry entry;
  uint32_t event = 0;
  const ssize_t got = fi_eq_sread(eq, &event, &entry, sizeof(entry), WAIT_MS, 0);
  if (got == -FI_EAVAIL) {
    struct fi_eq_err_entry error = {0};
    fi_eq_readerr(eq, &error, 0);
    die("event", -error.err);
  }
  if (got < 0 || event != wanted) die("event", got);
  if (request) *request = entry.info;
}

static void open_endpoint(struct fi_info* from) {
  struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_UNSPEC};
  struct fid_mr* local;
  check("fi_domain", fi_domain(fabric, from, &domain, NULL));
  check("fi_cq_open", fi_cq_open(domain, &attr, &cq, NULL));
  check("fi_endpoint", fi_endpoint(domain, from, &ep, NULL));
  check("fi_ep_bind", fi_ep_bind(ep, &eq->fid, 0));
  check("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
  check("fi_enable", fi_enable(ep));
  if ((from->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    check("fi_mr_reg", fi_mr_reg(domain, out, BYTES, FI_SEND | FI_WRITE | FI_READ, 0, 1, 0, &local, NULL));
    out_desc = fi_mr_desc(local);
    check("fi_mr_reg", fi_mr_reg(domain, in, BYTES, FI_RECV, 0, 2, 0, &local, NULL));
    in_desc = fi_mr_desc(local);
  }
}

static void serve(void) {
  struct fid_pep* pep;
  struct fi_info* request;
  uint64_t named[3];
  size_t bytes;
  check("fi_passive_ep", fi_passive_ep(fabric, info, &pep, NULL));
  check("fi_pep_bind", fi_pep_bind(pep, &eq->fid, 0));
  check("fi_listen", fi_listen(pep));
  printf("listening\n");
  fflush(stdout);
  wait_event(FI_CONNREQ, &request);
  open_endpoint(request);
  check("fi_mr_reg", fi_mr_reg(domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL));
  check("fi_recv", fi_recv(ep, in, BYTES, in_desc, FI_ADDR_UNSPEC, in));
  check("fi_accept", fi_accept(ep, NULL, 0));
  wait_event(FI_CONNECTED, NULL);
  named[0] = fi_mr_key(mr);
  named[1] = (request->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? (uintptr_t)memory : 0;
  named[2] = BYTES;
  memcpy(out, named, sizeof(named));
  check("fi_send", fi_send(ep, out, sizeof(named), out_desc, FI_ADDR_UNSPEC, out));
  if (!wait_for(out, NULL)) die("the connection ended", 0);
  int echoed = 0;
  while (wait_for(in, &bytes)) {
    memcpy(out, in, bytes);
    check("fi_recv", fi_recv(ep, in, BYTES, in_desc, FI_ADDR_UNSPEC, in));
    check("fi_send", fi_send(ep, out, bytes, out_desc, FI_ADDR_UNSPEC, out));
    if (!wait_for(out, NULL)) die("the connection ended in an echo", 0);
    ++echoed;
  }
  printf("served: %d messages echoed\n", echoed);
  fi_close(&ep->fid);
  fi_close(&pep->fid);
}

static void drive(void) {
  static const size_t sizes[] = {1,     8,     100,    4096,   8192,   8193,   16384,   65536,
                                 65537, 99999, 131072, 262144, 262145, 524289, 1 << 20, (2 << 20) - 3};
  uint64_t named[3];
  size_t bytes;
  int checked = 0;
  open_endpoint(info);
  check("fi_recv", fi_recv(ep, in, BYTES, in_desc, FI_ADDR_UNSPEC, in));
  check("fi_connect", fi_connect(ep, info->dest_addr, NULL, 0));
  wait_event(FI_CONNECTED, NULL);
  if (!wait_for(in, &bytes) || bytes != sizeof(named)) die("the first message", -FI_EOTHER);
  memcpy(named, in, sizeof(named));
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    const size_t size = sizes[i];
    fill(out, size, (unsigned)i);
    memset(in, 0, size);
    check("fi_recv", fi_recv(ep, in, BYTES, in_desc, FI_ADDR_UNSPEC, in));
    check("fi_send", fi_send(ep, out, size, out_desc, FI_ADDR_UNSPEC, out));
    if (!wait_for(out, NULL) || !wait_for(in, &bytes) || bytes != size) die("an echo", -FI_EOTHER);
    expect("echo", in, size, (unsigned)i);
    fill(out, size, (unsigned)i + 77);
    check("fi_write", fi_write(ep, out, size, out_desc, FI_ADDR_UNSPEC, named[1], named[0], out));
    if (!wait_for(out, NULL)) die("a write", -FI_EOTHER);
    memset(out, 0, size);
    check("fi_read", fi_read(ep, out, size, out_desc, FI_ADDR_UNSPEC, named[1], named[0], out));
    if (!wait_for(out, NULL)) die("a read", -FI_EOTHER);
    expect("read", out, size, (unsigned)i + 77);
    checked += 3;
  }
  uint64_t old = 0, expected = 0, one = 1;
  memcpy(&expected, out, sizeof(expected));
  check("fi_fetch_atomic", fi_fetch_atomic(ep, &one, 1, NULL, &old, NULL, FI_ADDR_UNSPEC, named[1], named[0],
                                           FI_UINT64, FI_SUM, out));
  if (!wait_for(out, NULL) || old != expected) die("an atomic", -FI_EOTHER);
  printf("driven: %d operations checked\n", checked + 1);
  fi_shutdown(ep, 0);
  fi_close(&ep->fid);
}

int main(int argc, char** argv) {
  struct fi_info* hints = fi_allocinfo();
  if (argc != 4 || (strcmp(argv[1], "serve") != 0 && strcmp(argv[1], "drive") != 0)) {
    fprintf(stderr, "usage: kernel_peer serve|drive ADDRESS PORT\n");
    return 2;
  }
  const bool serves = strcmp(argv[1], "serve") == 0;
  if (!hints) return 1;
  out = calloc(1, BYTES);
  in = calloc(1, BYTES);
  memory = calloc(1, BYTES);
  if (!out || !in || !memory) return 1;
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->fabric_attr->prov_name = strdup("tcp");
  check("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), argv[2], argv[3], serves ? FI_SOURCE : 0, hints, &info));
  check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
  struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
  check("fi_eq_open", fi_eq_open(fabric, &attr, &eq, NULL));
  if (serves) serve();
  else drive();
  return 0;
}
