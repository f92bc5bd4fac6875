// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The traffic of kofi_test's case `scarce` by plain work requests of a program over libibverbs, between two devices of one machine:
 * tells what a device does to bytes on a wire that loses packets when nothing of kOFI has a part in it. Then atomics, each of them behind
 * a SEND: when the acknowledgement of the SEND and the response are lost, the SEND comes again, and its ACK counts for the atomic, too.
 *
 * usage: bare_loss DEVICE ADDRESS DEVICE ADDRESS SECONDS. Prints each wrong completion, then one line for each kind of traffic, which runs
 * so long; status 0 unless it could not run.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIXED_ROUNDS 4
#define BEHIND_ROUNDS 1000
#define SLOTS 4
#define SLOT_BYTES (128u << 10)
#define BUFFER_BYTES (16 * SLOT_BYTES)
#define STALL_SECONDS 20
#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
// Four slots each; peers read and write the first slot of TARGET, and count in the second.
enum area { RECV, SEND, RMA, TARGET };
#define TARGET_OFFSET (TARGET * SLOTS * SLOT_BYTES)
#define COUNTER_OFFSET (TARGET_OFFSET + SLOT_BYTES)

static const unsigned lengths[] = {1, 100, 4000, 9000, 66000, SLOT_BYTES};

struct side {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  union ibv_gid gid;
  int gid_index;
  unsigned char* buffer;
  bool busy[TARGET * SLOTS];
  enum ibv_wr_opcode opcode[TARGET * SLOTS];
  unsigned length[TARGET * SLOTS];
};

static struct side sides[2];
static unsigned pairs, stalls, failed, sends, writes, reads, atomics, wrong_reads, wrong_messages,
    wrong_atomics, again;
static uint64_t counted;

static unsigned char pattern(size_t at, unsigned seed) { return (unsigned char)(seed + at + (at >> 8)); }
static void fill(unsigned char* to, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; i++) to[i] = pattern(i, seed);
}
static size_t first_wrong(const unsigned char* at, size_t length, unsigned seed) {
  size_t i = 0;
  while (i < length && at[i] == pattern(i, seed)) i++;
  return i;
}

static void open_side(struct side* side, const char* name, const char* address) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  struct in_addr ip;
  union ibv_gid wanted = {.raw = {[10] = 0xff, [11] = 0xff}};
  for (int i = 0; i < count; i++)
    if (!strcmp(ibv_get_device_name(list[i]), name)) side->context = ibv_open_device(list[i]);
  if (!side->context || inet_pton(AF_INET, address, &ip) != 1) goto fail;
  memcpy(wanted.raw + 12, &ip, 4);
  side->gid_index = -1;
  for (int i = 0; i < 32; i++)
    if (!ibv_query_gid(side->context, 1, i, &side->gid) && !memcmp(&side->gid, &wanted, sizeof(wanted))) {
      side->gid_index = i;
      break;
    }
  side->pd = ibv_alloc_pd(side->context);
  side->buffer = aligned_alloc(4096, BUFFER_BYTES);
  if (side->gid_index < 0 || !side->pd || !side->buffer) goto fail;
  memset(side->buffer, 0, BUFFER_BYTES);
  fill(side->buffer + TARGET_OFFSET, SLOT_BYTES, 1);
  side->mr = ibv_reg_mr(side->pd, side->buffer, BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS);
  if (!side->mr) goto fail;
  ibv_free_device_list(list);
  return;
fail:
  fprintf(stderr, "bare_loss: %s with the address %s cannot be used\n", name, address);
  exit(2);
}

static void open_pair(uint8_t timeout) {
  for (int i = 0; i < 2; i++) {
    struct side* side = &sides[i];
    side->cq = ibv_create_cq(side->context, 256, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = side->cq,
        .recv_cq = side->cq,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1}};
    side->qp = side->cq ? ibv_create_qp(side->pd, &init) : NULL;
    if (!side->qp) exit(2);
    memset(side->busy, 0, sizeof(side->busy));
  }
  for (int i = 0; i < 2; i++) {
    struct side *side = &sides[i], *peer = &sides[!i];
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE_ACCESS};
    int status =
        ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qp->qp_num,
        .rq_psn = 7,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = peer->gid, .hop_limit = 64, .sgid_index = (uint8_t)side->gid_index}}};
    status |= ibv_modify_qp(side->qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = timeout,
                                .retry_cnt = 7,
                                .rnr_retry = 7,
                                .sq_psn = 7,
                                .max_rd_atomic = 16};
    status |= ibv_modify_qp(side->qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (status) {
      fprintf(stderr, "bare_loss: a queue pair cannot be connected\n");
      exit(2);
    }
  }
  pairs++;
}

static void close_pair(void) {
  for (int i = 0; i < 2; i++) ibv_destroy_qp(sides[i].qp);
  for (int i = 0; i < 2; i++) ibv_destroy_cq(sides[i].cq);
}

static void post(struct side* side, struct side* peer, unsigned slot, unsigned length,
                 enum ibv_wr_opcode opcode) {
  unsigned char* at = side->buffer + slot * SLOT_BYTES;
  struct ibv_sge sge = {(uintptr_t)at, slot < SEND * SLOTS ? SLOT_BYTES : length, side->mr->lkey};
  int status;
  side->length[slot] = length;
  side->opcode[slot] = opcode;
  if (slot < SEND * SLOTS) {
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    status = ibv_post_recv(side->qp, &wr, &bad);
  } else {
    struct ibv_send_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    switch (opcode) {
      case IBV_WR_SEND:
        fill(at, length, (unsigned)rand()), sends++;
        break;
      case IBV_WR_RDMA_WRITE:
        fill(at, length, 1), writes++;
        break;
      case IBV_WR_RDMA_READ:
        memset(at, 0, length), reads++;
        break;
      default:
        memset(at, 0xff, length), atomics++;
    }
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = (uintptr_t)peer->buffer + COUNTER_OFFSET;
      wr.wr.atomic.rkey = peer->mr->rkey;
      wr.wr.atomic.compare_add = 1;
    } else {
      wr.wr.rdma.remote_addr = (uintptr_t)peer->buffer + TARGET_OFFSET;
      wr.wr.rdma.rkey = peer->mr->rkey;
    }
    status = ibv_post_send(side->qp, &wr, &bad);
  }
  side->busy[slot] = !status;
}

static bool busy(const struct side* side, unsigned from) {
  for (unsigned slot = from; slot < TARGET * SLOTS; slot++)
    if (side->busy[slot]) return true;
  return false;
}

static void wrong(const char* what, const unsigned char* at, size_t length, size_t first, unsigned seed) {
  size_t last = length;
  while (last > first && at[last - 1] == pattern(last - 1, seed)) last--;
  printf("%s of %zu bytes: %zu to %zu are wrong; the first is %02x, not %02x\n", what, length, first, last,
         at[first], pattern(first, seed));
  // Twice: bytes that came late would be right by now.
  struct timespec pause = {0, 300000000};
  nanosleep(&pause, NULL);
  if (first_wrong(at, length, seed) == length) again++, printf("  right 0.3 s later\n");
}

static bool reap(struct side* side) {  // false: the connection is over
  struct ibv_wc wc;
  while (ibv_poll_cq(side->cq, 1, &wc) == 1) {
    unsigned char* at = side->buffer + wc.wr_id * SLOT_BYTES;
    side->busy[wc.wr_id] = false;
    if (wc.status != IBV_WC_SUCCESS) {
      failed++;
      return false;
    }
    size_t length = wc.wr_id < SEND * SLOTS ? wc.byte_len : side->length[wc.wr_id];
    unsigned seed = wc.wr_id < SEND * SLOTS ? at[0] : 1;
    if (side->opcode[wc.wr_id] == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      uint64_t before;
      memcpy(&before, at, sizeof(before));
      if (before != counted) wrong_atomics++, printf("an atomic: %lx instead of %lx\n", before, counted);
      counted++;
    }
    if (wc.wr_id >= SEND * SLOTS && side->opcode[wc.wr_id] != IBV_WR_RDMA_READ) continue;
    size_t first = first_wrong(at, length, seed);
    if (first == length) continue;
    if (wc.wr_id < SEND * SLOTS) wrong_messages++;
    else wrong_reads++;
    wrong(wc.wr_id < SEND * SLOTS ? "message" : "read", at, length, first, seed);
  }
  return true;
}

static bool wait_for_sent(void) {
  time_t until = time(NULL) + STALL_SECONDS;
  while (busy(&sides[0], SEND * SLOTS) || busy(&sides[1], SEND * SLOTS)) {
    if (!reap(&sides[0]) || !reap(&sides[1])) return false;
    if (time(NULL) > until) {
      stalls++;
      return false;
    }
    struct timespec pause = {0, 500000};
    nanosleep(&pause, NULL);
  }
  return true;
}

static bool mixed(void) {
  for (unsigned slot = 0; slot < TARGET * SLOTS; slot++)
    for (int i = 0; i < 2; i++)
      if (!sides[i].busy[slot])
        post(&sides[i], &sides[!i], slot, lengths[(unsigned)rand() % 6],
             slot < RMA * SLOTS ? IBV_WR_SEND
             : rand() & 1       ? IBV_WR_RDMA_READ
                                : IBV_WR_RDMA_WRITE);
  return wait_for_sent();
}

static bool behind(void) {
  if (!sides[1].busy[RECV * SLOTS]) post(&sides[1], &sides[0], RECV * SLOTS, 1, IBV_WR_SEND);
  post(&sides[0], &sides[1], SEND * SLOTS, 1, IBV_WR_SEND);
  post(&sides[0], &sides[1], RMA * SLOTS, sizeof(counted), IBV_WR_ATOMIC_FETCH_AND_ADD);
  return wait_for_sent();
}

static void run(const char* name, bool (*round)(void), int rounds, uint8_t timeout, int seconds) {
  time_t until = time(NULL) + seconds;
  pairs = stalls = failed = sends = writes = reads = atomics = wrong_reads = wrong_messages = wrong_atomics =
      again = 0;
  while (time(NULL) < until) {
    open_pair(timeout);
    memset(sides[1].buffer + COUNTER_OFFSET, 0, sizeof(counted));
    counted = 0;
    for (int i = 0; i < rounds && time(NULL) < until && round(); i++) {
    }
    close_pair();
  }
  printf(
      "%s: %u pairs, %u sends, %u writes, %u reads, %u atomics: %u reads, %u messages and %u atomics with "
      "wrong bytes (%u right later), "
      "%u connections over, %u stalled\n",
      name, pairs, sends, writes, reads, atomics, wrong_reads, wrong_messages, wrong_atomics, again, failed,
      stalls);
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  srand((unsigned)time(NULL));
  open_side(&sides[0], argv[1], argv[2]);
  open_side(&sides[1], argv[3], argv[4]);
  run("mixed", mixed, MIXED_ROUNDS, 15, atoi(argv[5]));
  run("atomics behind a SEND", behind, BEHIND_ROUNDS, 12, atoi(argv[5]));
  return 0;
}
