// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Traffic class, hop limit and flow label of address handles and of paths: traffic datagrams DEVICE INDEX ROUNDS LABELS | rc DEVICE. Datagrams go
 * from the device to itself, each with marks of its own, and the receiver's GRH has them; LABELS is 1 where it has the flow label, too, 2 where
 * it has that after a while. What an RC
 * queue pair sends goes to a plain UDP socket, which sees the headers. Prints "ok", or what is wrong and ends with 1. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "program.h"

enum { payload_bytes = 16, grh_bytes = 40, slots = 8 };

struct marks {
  uint8_t traffic_class, hop_limit;
  uint32_t flow_label;
};
/* The last has what packets have by default. */
static const struct marks all[] = {
    {0x68, 7, 0x12345}, {0xb8, 255, 0}, {0x20, 64, 0xfffff}, {0, 1, 1}, {0, 64, 0}};
enum { kinds = sizeof all / sizeof *all };

static struct ibv_ah_attr path_with(union ibv_gid gid, int index, const struct marks* marks) {
  struct ibv_ah_attr path = path_to(gid, index);
  path.grh.traffic_class = marks->traffic_class;
  path.grh.hop_limit = marks->hop_limit;
  path.grh.flow_label = marks->flow_label;
  return path;
}

static struct marks marks_of(const char* grh) {
  const uint8_t* b = (const uint8_t*)grh;
  if (b[0] >> 4 == 6) {
    const struct marks six = {(uint8_t)(b[0] << 4 | b[1] >> 4), b[7],
                              (uint32_t)((b[1] & 15) << 16 | b[2] << 8 | b[3])};
    return six;
  }
  CHECK(b[20] == 0x45); /* the IPv4 header is in the second half */
  const struct marks four = {b[21], b[28], 0};
  return four;
}

/* The first datagrams between two devices of a host go by UDP, and over IPv4 no flow label is there. */
static int knows_label(int has_labels, int i, int rounds) {
  return has_labels == 1 || (has_labels == 2 && i >= 2 * rounds);
}

static void datagrams(const char* name, int index, int rounds, int has_labels) {
  struct ibv_context* context = open_named(name);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq *sent = ibv_create_cq(context, 64, NULL, NULL, 0),
                *received = ibv_create_cq(context, 64, NULL, NULL, 0);
  char* memory = aligned_alloc(4096, 16384);
  memset(memory, 0, 16384);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, 16384, IBV_ACCESS_LOCAL_WRITE);
  CHECK(pd && sent && received && mr);
  struct ibv_qp_init_attr init = {
      .send_cq = sent, .recv_cq = received, .cap = {slots, slots, 1, 1, 0}, .qp_type = IBV_QPT_UD};
  struct ibv_qp *from = ibv_create_qp(pd, &init), *to = ibv_create_qp(pd, &init);
  CHECK(from && to);
  connect_to(from, NULL, 0);
  connect_to(to, NULL, 0);
  const union ibv_gid gid = gid_at(context, index);
  struct ibv_ah* handles[kinds];
  for (int i = 0; i < kinds; ++i) {
    struct ibv_ah_attr path = path_with(gid, index, &all[i]);
    CHECK(handles[i] = ibv_create_ah(pd, &path));
  }
  int wrong = 0;
  /* First they change with every message, then each is kept for a while, then they change again. */
  for (int i = 0; i < 3 * rounds; ++i) {
    const int both[2] = {i / rounds == 1 ? i * kinds / rounds % kinds : i % kinds,
                         i / rounds == 1 ? i * kinds / rounds % kinds : (i + 2) % kinds};
    struct ibv_sge places[2], pieces[2];
    struct ibv_send_wr list[2], *bad;
    for (int k = 0; k < 2; ++k) {
      places[k] = (struct ibv_sge){(uintptr_t)memory + (size_t)k * 256, grh_bytes + payload_bytes, mr->lkey};
      pieces[k] = (struct ibv_sge){(uintptr_t)memory + 4096, payload_bytes, mr->lkey};
      struct ibv_recv_wr receive = {.wr_id = (uint64_t)k, .sg_list = &places[k], .num_sge = 1}, *bad_receive;
      CHECK(ibv_post_recv(to, &receive, &bad_receive) == 0);
      list[k] = (struct ibv_send_wr){
          .sg_list = &pieces[k], .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
      list[k].next = k == 0 ? &list[1] : NULL;
      list[k].wr.ud.ah = handles[both[k]];
      list[k].wr.ud.remote_qpn = to->qp_num;
      list[k].wr.ud.remote_qkey = test_qkey;
    }
    CHECK(ibv_post_send(from, list, &bad) == 0);
    for (int k = 0; k < 2; ++k) {
      struct ibv_wc wc;
      CHECK(one_completion(sent, &wc, 10) == 1 && wc.status == IBV_WC_SUCCESS);
      CHECK(one_completion(received, &wc, 10) == 1 && wc.status == IBV_WC_SUCCESS);
      CHECK((wc.wc_flags & IBV_WC_GRH) != 0 && wc.wr_id == (uint64_t)k);
      const struct marks wanted = all[both[k]], got = marks_of(memory + (size_t)k * 256);
      /* The two lower bits are ECN, which is the device's. */
      if ((got.traffic_class & 0xfc) != wanted.traffic_class || got.hop_limit != wanted.hop_limit ||
          (knows_label(has_labels, i, rounds) && got.flow_label != wanted.flow_label)) {
        if (++wrong < 8)
          printf("message %d: traffic class %02x hop limit %d flow label %05x came, sent were %02x %d %05x\n",
                 2 * i + k, got.traffic_class, got.hop_limit, got.flow_label, wanted.traffic_class,
                 wanted.hop_limit, wanted.flow_label);
      }
      struct ibv_ah_attr answer;
      struct ibv_grh grh;
      memcpy(&grh, memory + (size_t)k * 256, sizeof grh);
      CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &answer) == 0);
      CHECK((answer.grh.traffic_class & 0xfc) == wanted.traffic_class && answer.grh.sgid_index == index);
      CHECK(!knows_label(has_labels, i, rounds) || answer.grh.flow_label == wanted.flow_label);
      CHECK(memcmp(&answer.grh.dgid, &gid, sizeof gid) == 0);
      struct ibv_ah* back = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
      CHECK(back && ibv_destroy_ah(back) == 0);
    }
  }
  CHECK(wrong == 0);
  /* A hop limit of 0 would not leave the host: the default one is taken. */
  struct ibv_ah_attr none = path_with(gid, index, &all[kinds - 1]);
  none.grh.hop_limit = 0;
  struct ibv_ah* zero = ibv_create_ah(pd, &none);
  CHECK(zero && ibv_destroy_ah(zero) == 0);
}

/* An RC queue pair whose peer is a UDP socket, by the GID that has its port in it. */
static void rc(const char* name) {
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof own;
  const int on = 1;
  CHECK(udp >= 0 && bind(udp, (struct sockaddr*)&own, sizeof own) == 0);
  CHECK(getsockname(udp, (struct sockaddr*)&own, &length) == 0);
  CHECK(setsockopt(udp, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) == 0);
  CHECK(setsockopt(udp, IPPROTO_IP, IP_RECVTTL, &on, sizeof on) == 0);
  const struct timeval patience = {10, 0};
  CHECK(setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  struct ibv_context* context = open_named(name);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 64, NULL, NULL, 0);
  char* memory = aligned_alloc(4096, 4096);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
  CHECK(pd && cq && mr);
  union ibv_gid gid = gid_at(context, 0);
  memcpy(gid.raw + 8, &own.sin_port, sizeof own.sin_port);
  for (int i = 0; i < kinds; ++i) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {64, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp* qp = ibv_create_qp(pd, &init);
    CHECK(qp && to_init(qp, 0) == 0);
    struct ibv_ah_attr path = path_with(gid, 0, &all[i]);
    CHECK(to_rtr(qp, &path, 77, test_psn) == 0 && to_rts(qp, test_psn, 14, 7, 7) == 0);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init_now;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_AV, &init_now) == 0);
    CHECK(attr.ah_attr.grh.traffic_class == all[i].traffic_class &&
          attr.ah_attr.grh.hop_limit == all[i].hop_limit);
    for (int k = 0; k < 50; ++k) { /* more than marks take to become the socket's */
      struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
      struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
      CHECK(ibv_post_send(qp, &wr, &bad) == 0);
      struct ibv_wc wc;
      (void)ibv_poll_cq(cq, 1, &wc);
      char bytes[4200], control[256];
      struct iovec part = {bytes, sizeof bytes};
      struct msghdr message = {
          .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
      /* What is not answered is sent again: those packets have the marks, too. */
      CHECK(recvmsg(udp, &message, 0) > 0);
      int traffic_class = -1, ttl = -1;
      for (struct cmsghdr* entry = CMSG_FIRSTHDR(&message); entry; entry = CMSG_NXTHDR(&message, entry)) {
        if (entry->cmsg_type == IP_TOS) traffic_class = *CMSG_DATA(entry);
        if (entry->cmsg_type == IP_TTL) memcpy(&ttl, CMSG_DATA(entry), sizeof ttl);
      }
      CHECK((traffic_class & 0xfc) == all[i].traffic_class && ttl == all[i].hop_limit);
    }
    CHECK(ibv_destroy_qp(qp) == 0);
    char rest[4200];
    while (recv(udp, rest, sizeof rest, MSG_DONTWAIT) > 0) continue;
  }
}

int main(int count, char** words) {
  if (count == 6 && strcmp(words[1], "datagrams") == 0) {
    datagrams(words[2], atoi(words[3]), atoi(words[4]), atoi(words[5]));
  } else if (count == 3 && strcmp(words[1], "rc") == 0) {
    rc(words[2]);
  } else {
    return 2;
  }
  puts("ok");
  return 0;
}
