// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts instructions of single verbs calls: RC queue pairs of two devices in one process, which meet in shared memory,
// and callgrind collects around exactly one call at a time. Written against <infiniband/verbs.h> alone.
// bench/verbs.py --instructions runs it.
//
//   WEFT_PROGRESS=manual WEFT_VERBS_DEVICES=a=127.0.0.1,b=127.0.0.1
//     valgrind --tool=callgrind --collect-atstart=no verbs_ops CALL COUNT
//
// CALL is  nothing  an empty stretch: what the counting itself costs
//          post     ibv_post_send of a SEND of 8 bytes, inline
//          write    ibv_post_send of a WRITE of 8 bytes, inline
//          empty    ibv_poll_cq of a queue to which nothing comes
//          receive  ibv_poll_cq that returns a receive completion
//          sent     ibv_poll_cq that returns a send completion: takes the acknowledgement
//          post_recv  ibv_post_recv
//          turn     all that one side calls in a ping-pong: takes the message, posts a receive and the answer, and
//                   takes its completion when the next message comes
#include <infiniband/verbs.h>
#include <valgrind/callgrind.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "command_line.hpp"

namespace {

constexpr int warm_count = 20'000;  // messages either way; the devices meet meanwhile
constexpr int polls_most = 1 << 22;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

struct Side {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::array<uint64_t, 2> memory{};  // received; written by the peer

  explicit Side(ibv_device* device) {
    context = ibv_open_device(device);
    if (context == nullptr) die("ibv_open_device");
    pd = ibv_alloc_pd(context);
    send_cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
    receive_cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = send_cq;
    attr.recv_cq = receive_cq;
    attr.cap = {128, 128, 1, 1, 64};
    qp = ibv_create_qp(pd, &attr);
    if (qp == nullptr || mr == nullptr) die("ibv_create_qp");
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
      die("ibv_modify_qp to INIT");
  }
  void connect(const Side& peer) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.dest_qp_num = peer.qp->qp_num;
    to.max_dest_rd_atomic = to.max_rd_atomic = 1;
    to.min_rnr_timer = 12;
    to.ah_attr.is_global = 1;
    to.ah_attr.port_num = 1;
    if (ibv_query_gid(peer.context, 1, 0, &to.ah_attr.grh.dgid) != 0) die("ibv_query_gid");
    if (ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
      die("ibv_modify_qp to RTR");
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = to.rnr_retry = 7;
    if (ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC) != 0)
      die("ibv_modify_qp to RTS");
  }
  void post_recv() {
    ibv_sge element{reinterpret_cast<uintptr_t>(memory.data()), sizeof(uint64_t), mr->lkey};
    ibv_recv_wr request{};
    request.sg_list = &element;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp, &request, &bad) != 0) die("ibv_post_recv");
  }
  void post(uint64_t value, const Side* target = nullptr) {
    ibv_sge element{reinterpret_cast<uintptr_t>(&value), sizeof value, 0};
    ibv_send_wr request{};
    request.sg_list = &element;
    request.num_sge = 1;
    request.opcode = target == nullptr ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    if (target != nullptr) {
      request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(&target->memory[1]);
      request.wr.rdma.rkey = target->mr->rkey;
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp, &request, &bad) != 0) die("ibv_post_send");
  }
};

bool poll(ibv_cq* cq) {
  ibv_wc wc;
  const int n = ibv_poll_cq(cq, 1, &wc);
  if (n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS)) die("ibv_poll_cq");
  return n == 1;
}

enum class Call { None, Post, Write, Empty, Receive, Sent, PostReceive };

class Counted {
 public:
  explicit Counted(bool is_on) : is_on_(is_on) {
    if (is_on_) CALLGRIND_TOGGLE_COLLECT;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() {
    if (is_on_) CALLGRIND_TOGGLE_COLLECT;
  }

 private:
  bool is_on_;
};

uint64_t taken = 0;  // calls that were counted

// Polls until there is one; every call counts.
void take(ibv_cq* cq, bool is_counted) {
  for (int i = 0;; ++i) {
    bool is_there;
    {
      const Counted counted(is_counted);
      is_there = poll(cq);
    }
    if (is_counted) ++taken;
    if (is_there) return;
    if (i > polls_most) die("a message was lost");
  }
}

// One message from `a` to `b` to its end; what `call` names, is counted.
void message(Side& a, Side& b, uint64_t value, Call call) {
  if (call == Call::Write) {
    {
      const Counted counted(true);
      a.post(value, &b);
    }
    ++taken;
    for (int i = 0; !poll(a.send_cq) && i < polls_most; ++i) poll(b.receive_cq);
    return;
  }
  {
    const Counted counted(call == Call::PostReceive);
    b.post_recv();
  }
  {
    const Counted counted(call == Call::Post);
    a.post(value);
  }
  if (call == Call::Post || call == Call::PostReceive) ++taken;
  take(b.receive_cq, call == Call::Receive);
  if (b.memory[0] != value) die("a message came with other bytes");
  take(a.send_cq, call == Call::Sent);
}

// What `a` calls, is counted.
void turn(Side& a, Side& b, uint64_t value) {
  {
    const Counted counted(true);
    a.post_recv();
    a.post(value);
  }
  take(b.receive_cq, false);
  b.post_recv();
  b.post(value);
  take(a.receive_cq, true);
  take(a.send_cq, true);
  // b takes what acknowledges its answer with the next message.
  take(b.send_cq, false);
}

}  // namespace

int main(int argc, char** argv) {
  std::string call;
  uint64_t count = 0;
  CLI::App app("Counts instructions of single verbs calls", "verbs_ops");
  app.add_option("call", call, "what is counted")
      ->required()
      ->check(CLI::IsMember({"nothing", "post", "write", "empty", "receive", "sent", "post_recv", "turn"}));
  app.add_option("count", count, "calls")->required();
  weft::bench::read_command_line(app, argc, argv);
  int devices = 0;
  ibv_device** list = ibv_get_device_list(&devices);
  if (devices < 2) {
    std::fprintf(stderr, "verbs_ops: two devices are needed: WEFT_VERBS_DEVICES=a=127.0.0.1,b=127.0.0.1\n");
    return 1;
  }
  Side a(list[0]), b(list[1]);
  a.connect(b);
  b.connect(a);
  for (uint64_t i = 0; i < warm_count; ++i) {
    message(a, b, i, Call::None);
    message(b, a, i, Call::None);
  }
  const auto each = [&](Call what) {
    for (uint64_t i = 0; i < count; ++i) message(a, b, i, what);
  };
  if (call == "nothing") {
    for (uint64_t i = 0; i < count; ++i) const Counted counted(true);
    taken = count;
  } else if (call == "post") {
    each(Call::Post);
  } else if (call == "write") {
    each(Call::Write);
  } else if (call == "receive") {
    each(Call::Receive);
  } else if (call == "sent") {
    each(Call::Sent);
  } else if (call == "post_recv") {
    each(Call::PostReceive);
  } else if (call == "empty") {
    for (uint64_t i = 0; i < count; ++i) {
      const Counted counted(true);
      if (poll(b.receive_cq)) die("a completion came of nothing");
    }
    taken = count;
  } else {
    b.post_recv();
    for (uint64_t i = 0; i < count; ++i) turn(a, b, i);
  }
  std::printf("calls %.3f\n", static_cast<double>(taken) / static_cast<double>(count));
  return 0;
}
