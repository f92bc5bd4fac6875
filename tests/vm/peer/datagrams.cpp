// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UC: SEND and WRITE with and without immediate. UD: messages both ways, the GRH, Q_Keys. With loss: what arrives
// is whole and in order.
#include <poll.h>
#include <unistd.h>

#include <cstring>

#include "scenarios.hpp"

namespace weft::vm {
namespace {

PairOptions uc() {
  PairOptions options;
  options.type = IBV_QPT_UC;
  return options;
}

void uc_send(Session& s) {
  const uint32_t mtu = s.mtu_bytes();
  const size_t lengths[] = {0, 1, mtu - 1, mtu, mtu + 1, 3 * mtu + 5, 20'000};
  Pair pair(s, uc());
  for (uint64_t i = 0; i < std::size(lengths); ++i) {
    if (!s.is_requester) pair.receive(pair.memory->element(0, 32768), i);
    s.control.barrier();
    if (s.is_requester) {
      fill(pair.memory->part(0, lengths[i]), i);
      pair.send_immediate(pair.memory->element(0, lengths[i]), static_cast<uint32_t>(i) + 40, i);
      pair.sent(i);
    } else {
      const ibv_wc wc = pair.received(i);
      require(wc.byte_len == lengths[i] && wc.imm_data == i + 40, "%u bytes, immediate %u", wc.byte_len,
              wc.imm_data);
      check(pair.memory->part(0, lengths[i]), i, "message");
    }
    s.control.barrier();
  }
}

void uc_write(Session& s) {
  Pair pair(s, uc());
  if (!s.is_requester) pair.receive(pair.memory->element(0, 0), 3);
  s.control.barrier();
  if (s.is_requester) {
    fill(pair.memory->part(0, 10'000), 1);
    fill(pair.memory->part(10'000, 700), 2);
    pair.write(pair.memory->element(0, 10'000), 100, 1);
    pair.write_immediate(pair.memory->element(10'000, 700), 20'000, 0xabcd, 2);
    pair.sent(1);
    pair.sent(2);
  } else {
    const ibv_wc wc = pair.received(3);
    require(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == 0xabcd, "opcode %d, immediate %x",
            wc.opcode, wc.imm_data);
    check(pair.memory->part(100, 10'000), 1, "first write");
    check(pair.memory->part(20'000, 700), 2, "second write");
  }
  s.control.barrier();
}

// A message is all there or not at all. A packet that begins one is taken whatever its PSN (IBTA 9.8.2.2), so that
// messages of one packet may come twice, or behind later ones.
void uc_lossy(Session& s) {
  constexpr uint32_t count = 60, length = 3000;
  PairOptions options = uc();
  options.bytes = count * length;
  Pair pair(s, options);
  if (!s.is_requester)
    for (uint32_t i = 0; i < count; ++i) pair.receive(pair.memory->element(i * length, length), i);
  s.control.barrier();
  if (s.is_requester) {
    for (uint32_t i = 0; i < count; ++i) {
      fill(pair.memory->part(0, length), i);
      pair.send_immediate(pair.memory->element(0, length), i, i);
      pair.sent(i);
      usleep(2000);
    }
    usleep(50'000);
    s.control.barrier();
    return;
  }
  s.control.barrier();
  uint32_t came = 0;
  ibv_wc wc;
  while (ibv_poll_cq(pair.receive_cq(), 1, &wc) == 1) {
    require(wc.status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(wc.status));
    require(wc.byte_len == length && wc.imm_data < count, "%u bytes, message %u", wc.byte_len, wc.imm_data);
    check(pair.memory->part(wc.wr_id * length, length), wc.imm_data, "message");
    ++came;
  }
  require(came >= count / 3, "%u of %u messages came", came, count);
}

constexpr uint32_t qkey = 0x11223344;
constexpr size_t grh_bytes = 40;

// A UD queue pair, and where the peer's is. Not a Pair: it is connected to nobody.
struct Datagram {
  explicit Datagram(Session& s)
      : session(s),
        pd(owned(ibv_alloc_pd(s.context), "ibv_alloc_pd")),
        send_cq(owned(ibv_create_cq(s.context, 128, nullptr, nullptr, 0), "ibv_create_cq")),
        receive_cq(owned(ibv_create_cq(s.context, 128, nullptr, nullptr, 0), "ibv_create_cq")),
        memory(pd.get(), 1 << 18) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_UD;
    init.send_cq = send_cq.get();
    init.recv_cq = receive_cq.get();
    init.cap = {64, 64, 2, 2, 64};
    qp = owned(ibv_create_qp(pd.get(), &init), "ibv_create_qp");
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qkey = qkey;
    modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    a.qp_state = IBV_QPS_RTR;
    modify(a, IBV_QP_STATE);
    a.qp_state = IBV_QPS_RTS;
    a.sq_psn = random_psn();
    modify(a, IBV_QP_STATE | IBV_QP_SQ_PSN);
    peer = s.control.swap(Name{s.gid, qp->qp_num, 0, 0, 0});
    ibv_ah_attr to{};
    to.is_global = 1;
    to.grh.dgid = peer.gid;
    to.grh.sgid_index = s.gid_index;
    to.grh.hop_limit = 64;
    to.port_num = 1;
    ah = owned(ibv_create_ah(pd.get(), &to), "ibv_create_ah");
  }
  void modify(ibv_qp_attr& a, int mask) const {
    const int result = ibv_modify_qp(qp.get(), &a, mask);
    require(result == 0, "ibv_modify_qp to %d: %d", a.qp_state, result);
  }
  void receive(size_t offset, uint64_t id) const {
    ibv_sge to = memory.element(offset, 4096 + grh_bytes);
    ibv_recv_wr r{}, *bad = nullptr;
    r.wr_id = id;
    r.sg_list = &to;
    r.num_sge = 1;
    require(ibv_post_recv(qp.get(), &r, &bad) == 0, "ibv_post_recv");
  }
  void send(size_t offset, size_t length, uint64_t id, ibv_ah* to, uint32_t qpn, uint32_t key,
            uint32_t immediate) const {
    ibv_sge from = memory.element(offset, length);
    ibv_send_wr r{}, *bad = nullptr;
    r.wr_id = id;
    r.opcode = IBV_WR_SEND_WITH_IMM;
    r.imm_data = immediate;
    r.send_flags = IBV_SEND_SIGNALED;
    r.sg_list = &from;
    r.num_sge = 1;
    r.wr.ud = {to, qpn, key};
    const int result = ibv_post_send(qp.get(), &r, &bad);
    require(result == 0, "ibv_post_send: %d", result);
    Pair::good(Pair::completion(send_cq.get(), "send"), id, "send");
  }
  ibv_wc received() const { return Pair::completion(receive_cq.get(), "receive"); }

  Session& session;
  Owned<ibv_pd> pd;
  Owned<ibv_cq> send_cq, receive_cq;
  Memory memory;
  Owned<ibv_qp> qp;
  Owned<ibv_ah> ah;
  Name peer;
};

void ud_send(Session& s) {
  Datagram d(s);
  const size_t lengths[] = {0, 1, 17, 500, s.mtu_bytes() - 1, s.mtu_bytes()};
  if (!s.is_requester)
    for (uint64_t i = 0; i < std::size(lengths); ++i) d.receive(i * 8192, i);
  s.control.barrier();
  for (uint64_t i = 0; i < std::size(lengths); ++i) {
    if (s.is_requester) {
      fill(d.memory.part(0, lengths[i]), i);
      d.send(0, lengths[i], i, d.ah.get(), d.peer.qpn, qkey, static_cast<uint32_t>(i) + 9);
    } else {
      const ibv_wc wc = Pair::good(d.received(), i, "receive");
      require(wc.byte_len == lengths[i] + grh_bytes, "%u bytes, not %zu", wc.byte_len,
              lengths[i] + grh_bytes);
      require(wc.src_qp == d.peer.qpn, "from queue pair %u, not %u", wc.src_qp, d.peer.qpn);
      require((wc.wc_flags & IBV_WC_GRH) != 0 && (wc.wc_flags & IBV_WC_WITH_IMM) != 0, "flags %u",
              wc.wc_flags);
      require(wc.imm_data == i + 9, "immediate %u", wc.imm_data);
      check(d.memory.part(i * 8192 + grh_bytes, lengths[i]), i, "datagram");
    }
  }
  s.control.barrier();
}

// The addresses in the GRH's place are those of both sides: annex A17 puts an IPv4 header into its second half.
void ud_grh(Session& s) {
  Datagram d(s);
  if (!s.is_requester) d.receive(0, 1);
  s.control.barrier();
  if (s.is_requester) {
    d.send(4096, 10, 1, d.ah.get(), d.peer.qpn, qkey, 0);
  } else {
    Pair::good(d.received(), 1, "receive");
    const uint8_t* grh = d.memory.bytes.data();
    constexpr uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::memcmp(s.gid.raw, mapped, sizeof mapped) == 0) {
      require(grh[20] == 0x45, "no IPv4 header: %02x", grh[20]);
      require(
          std::memcmp(grh + 32, d.peer.gid.raw + 12, 4) == 0 && std::memcmp(grh + 36, s.gid.raw + 12, 4) == 0,
          "IPv4 addresses");
    } else {
      require(grh[0] >> 4 == 6, "no version 6: %02x", grh[0]);
      require(std::memcmp(grh + 8, d.peer.gid.raw, 16) == 0 && std::memcmp(grh + 24, s.gid.raw, 16) == 0,
              "GIDs");
    }
  }
  s.control.barrier();
}

// An answer by an address handle out of the completion and the GRH.
void ud_answer(Session& s) {
  Datagram d(s);
  d.receive(0, 1);
  s.control.barrier();
  if (s.is_requester) {
    fill(d.memory.part(8192, 100), 5);
    d.send(8192, 100, 2, d.ah.get(), d.peer.qpn, qkey, 0);
    Pair::good(d.received(), 1, "receive");
    check(d.memory.part(grh_bytes, 100), 6, "answer");
  } else {
    ibv_wc wc = Pair::good(d.received(), 1, "receive");
    check(d.memory.part(grh_bytes, 100), 5, "question");
    const auto back =
        owned(ibv_create_ah_from_wc(d.pd.get(), &wc, reinterpret_cast<ibv_grh*>(d.memory.bytes.data()), 1),
              "ibv_create_ah_from_wc");
    fill(d.memory.part(8192, 100), 6);
    d.send(8192, 100, 2, back.get(), wc.src_qp, qkey, 0);
  }
  s.control.barrier();
}

void ud_wrong_qkey(Session& s) {
  Datagram d(s);
  if (!s.is_requester) d.receive(0, 1);
  s.control.barrier();
  if (s.is_requester) {
    d.send(4096, 20, 1, d.ah.get(), d.peer.qpn, qkey + 1, 1);
    d.send(4096, 20, 2, d.ah.get(), d.peer.qpn, qkey, 2);
  } else {
    const ibv_wc wc = Pair::good(d.received(), 1, "receive");
    require(wc.imm_data == 2, "datagram %u came", wc.imm_data);
  }
  s.control.barrier();
}

void ud_lossy(Session& s) {
  Datagram d(s);
  constexpr uint32_t count = 60;
  if (!s.is_requester)
    for (uint32_t i = 0; i < count; ++i) d.receive(i * 4200, i);
  s.control.barrier();
  if (s.is_requester) {
    for (uint32_t i = 0; i < count; ++i) {
      fill(d.memory.part(0, 700), i);
      d.send(0, 700, i, d.ah.get(), d.peer.qpn, qkey, i);
      usleep(1000);
    }
    usleep(50'000);
    s.control.barrier();
    return;
  }
  s.control.barrier();
  uint32_t came = 0;
  ibv_wc wc;
  while (ibv_poll_cq(d.receive_cq.get(), 1, &wc) == 1) {
    require(wc.status == IBV_WC_SUCCESS && wc.imm_data < count, "receive: %s", ibv_wc_status_str(wc.status));
    check(d.memory.part(wc.wr_id * 4200 + grh_bytes, 700), wc.imm_data, "datagram");
    ++came;
  }
  require(came >= count / 2, "%u of %u datagrams came", came, count);
}

constexpr Scenario scenarios[] = {
    {"uc_send", uc_send, Network::Good},
    {"uc_write", uc_write, Network::Good},
    {"uc_lossy", uc_lossy, Network::Lossy},
    {"ud_send", ud_send, Network::Good},
    {"ud_grh", ud_grh, Network::Good},
    {"ud_answer", ud_answer, Network::Good},
    {"ud_wrong_qkey", ud_wrong_qkey, Network::Good},
    {"ud_lossy", ud_lossy, Network::Lossy},
};

}  // namespace

std::span<const Scenario> datagram_scenarios() { return scenarios; }

}  // namespace weft::vm
