// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "session.hpp"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>

namespace weft::vm {

void fill(std::span<uint8_t> bytes, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005 + 1442695040888963407;
    bytes[i] = static_cast<uint8_t>(state >> (8 * (i % 8)));
  }
}

void check(std::span<const uint8_t> bytes, uint64_t seed, const char* what) {
  Bytes wanted(bytes.size());
  fill(wanted, seed);
  if (bytes.empty() || std::memcmp(bytes.data(), wanted.data(), bytes.size()) == 0) return;
  size_t at = 0;
  while (bytes[at] == wanted[at]) ++at;
  throw Failure(text("%s: byte %zu of %zu is %02x, not %02x", what, at, bytes.size(), bytes[at], wanted[at]));
}

void check_all(std::span<const uint8_t> bytes, uint8_t value, const char* what) {
  for (size_t i = 0; i < bytes.size(); ++i)
    require(bytes[i] == value, "%s: byte %zu of %zu is %02x, not %02x", what, i, bytes.size(), bytes[i],
            value);
}

uint32_t random_psn() {
  static std::random_device source;
  return source() & 0xffffff;
}

Memory::Memory(ibv_pd* pd, size_t count, int access)
    : bytes(count), mr(owned(ibv_reg_mr(pd, bytes.data(), count, access), "ibv_reg_mr")) {}

Pair::Pair(Session& session, const PairOptions& options) : is_lossy_(session.is_lossy) {
  create(session, options);
  own = {session.gid, qp->qp_num, random_psn(), memory->address(), memory->mr->rkey};
  peer = session.control.swap(own);
  connect(session, options);
  session.control.barrier();
}

void Pair::create(Session& session, const PairOptions& options) {
  if (options.pd == nullptr) own_pd_ = owned(ibv_alloc_pd(session.context), "ibv_alloc_pd");
  pd = options.pd == nullptr ? own_pd_.get() : options.pd;
  if (options.has_events)
    channel = owned(ibv_create_comp_channel(session.context), "ibv_create_comp_channel");
  const int entries = static_cast<int>(options.requests) * 2;
  send_cq_ = owned(ibv_create_cq(session.context, entries, nullptr, nullptr, 0), "ibv_create_cq");
  foreign_cq_ = options.receive_cq;
  if (foreign_cq_ == nullptr)
    receive_cq_ = owned(ibv_create_cq(session.context, entries, nullptr, channel.get(), 0), "ibv_create_cq");
  memory = std::make_unique<Memory>(pd, options.bytes, options.memory_access);
  ibv_qp_init_attr init{};
  init.qp_type = options.type;
  init.send_cq = send_cq_.get();
  init.recv_cq = receive_cq();
  init.srq = options.srq;
  init.sq_sig_all = options.is_signalling_all ? 1 : 0;
  init.cap = {options.requests, options.srq != nullptr ? 0 : options.requests, 4, 4, 64};
  if (options.calls == 0) {
    qp = owned(ibv_create_qp(pd, &init), "ibv_create_qp");
  } else {
    ibv_qp_init_attr_ex wide{};
    std::memcpy(static_cast<void*>(&wide), &init, sizeof init);  // begins like the other
    wide.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wide.pd = pd;
    wide.send_ops_flags = options.calls;
    qp = owned(ibv_create_qp_ex(session.context, &wide), "ibv_create_qp_ex");
  }
  modify_to_init(qp.get(), options);
}

namespace {

bool has(ibv_context* context, Ability ability) {
  ibv_device_attr_ex attr{};
  return ibv_query_device_ex(context, nullptr, &attr) == 0 &&
         (attr.device_cap_flags_ex >> static_cast<unsigned>(ability) & 1) != 0;
}

bool has_calls(ibv_context* context, uint64_t calls) {
  const Owned<ibv_pd> pd = owned(ibv_alloc_pd(context), "ibv_alloc_pd");
  const Owned<ibv_cq> cq = owned(ibv_create_cq(context, 1, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {1, 1, 1, 1, 8};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd.get();
  init.send_ops_flags = calls;
  return Owned<ibv_qp>(ibv_create_qp_ex(context, &init)) != nullptr;
}

}  // namespace

void Session::needs(Ability ability) const {
  struct Has {
    bool device, calls;
  };
  const uint64_t calls = ability == Ability::Flush ? ops_flush : uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE};
  const Has own{has(context, ability), !is_requester || has_calls(context, calls)};
  const Has theirs = control.swap(own);
  const char* const name = ability == Ability::Flush ? "FLUSH" : "ATOMIC WRITE";
  if (!own.device || !theirs.device) throw Skipped(text("one of the devices has no %s", name));
  if (!own.calls || !theirs.calls) throw Skipped(text("the requester's library has no call for %s", name));
}

void modify_to_init(ibv_qp* qp, const PairOptions& options) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = options.type == IBV_QPT_RC ? static_cast<unsigned>(options.qp_access)
                                                 : static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE);
  const int result =
      ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  require(result == 0, "ibv_modify_qp to INIT: %d", result);
}

void Pair::connect(Session& session, const PairOptions& options) {
  const bool is_rc = options.type == IBV_QPT_RC;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = session.mtu;
  a.dest_qp_num = peer.qpn ^ options.qpn_error;
  a.rq_psn = peer.psn;
  a.max_dest_rd_atomic = max_reads;
  a.min_rnr_timer = options.min_rnr_timer;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = peer.gid;
  a.ah_attr.grh.sgid_index = session.gid_index;
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.port_num = 1;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (is_rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  int result = ibv_modify_qp(qp.get(), &a, mask);
  require(result == 0, "ibv_modify_qp to RTR: %d", result);
  a.qp_state = IBV_QPS_RTS;
  a.sq_psn = own.psn;
  a.timeout = options.timeout;
  a.retry_cnt = options.retry_count;
  a.rnr_retry = options.rnr_retry;
  a.max_rd_atomic = max_reads;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (is_rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  result = ibv_modify_qp(qp.get(), &a, mask);
  require(result == 0, "ibv_modify_qp to RTS: %d", result);
}

void Pair::post(ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  const int result = ibv_post_send(qp.get(), &request, &bad);
  require(result == 0, "ibv_post_send of opcode %d: %d", request.opcode, result);
}

namespace {

ibv_send_wr request(ibv_wr_opcode opcode, const ibv_sge& element, uint64_t id, unsigned flags) {
  ibv_send_wr r{};
  r.wr_id = id;
  r.opcode = opcode;
  r.send_flags = flags;
  r.sg_list = const_cast<ibv_sge*>(&element);
  r.num_sge = 1;
  return r;
}

}  // namespace

void Pair::send(const ibv_sge& from, uint64_t id, unsigned flags) {
  post(request(IBV_WR_SEND, from, id, flags));
}

void Pair::send_immediate(const ibv_sge& from, uint32_t immediate, uint64_t id, unsigned flags) {
  ibv_send_wr r = request(IBV_WR_SEND_WITH_IMM, from, id, flags);
  r.imm_data = immediate;
  post(r);
}

void Pair::send_invalidate(const ibv_sge& from, uint32_t rkey) {
  ibv_send_wr r = request(IBV_WR_SEND_WITH_INV, from, 0, IBV_SEND_SIGNALED);
  r.invalidate_rkey = rkey;
  post(r);
}

void Pair::post_remote(ibv_wr_opcode opcode, const ibv_sge& local, uint64_t address, uint32_t rkey,
                       uint64_t id, unsigned flags) {
  ibv_send_wr r = request(opcode, local, id, flags);
  r.wr.rdma.remote_addr = address;
  r.wr.rdma.rkey = rkey;
  post(r);
}

void Pair::write(const ibv_sge& from, size_t offset, uint64_t id, unsigned flags) {
  post_remote(IBV_WR_RDMA_WRITE, from, peer.address + offset, peer.rkey, id, flags);
}

void Pair::write_immediate(const ibv_sge& from, size_t offset, uint32_t immediate, uint64_t id) {
  ibv_send_wr r = request(IBV_WR_RDMA_WRITE_WITH_IMM, from, id, IBV_SEND_SIGNALED);
  r.wr.rdma.remote_addr = peer.address + offset;
  r.wr.rdma.rkey = peer.rkey;
  r.imm_data = immediate;
  post(r);
}

void Pair::read(const ibv_sge& to, size_t offset, uint64_t id, unsigned flags) {
  post_remote(IBV_WR_RDMA_READ, to, peer.address + offset, peer.rkey, id, flags);
}

void Pair::compare_swap(const ibv_sge& to, size_t offset, uint64_t compare, uint64_t swap, uint64_t id) {
  ibv_send_wr r = request(IBV_WR_ATOMIC_CMP_AND_SWP, to, id, IBV_SEND_SIGNALED);
  r.wr.atomic = {peer.address + offset, compare, swap, peer.rkey};
  post(r);
}

void Pair::fetch_add(const ibv_sge& to, size_t offset, uint64_t add, uint64_t id) {
  ibv_send_wr r = request(IBV_WR_ATOMIC_FETCH_AND_ADD, to, id, IBV_SEND_SIGNALED);
  r.wr.atomic = {peer.address + offset, add, 0, peer.rkey};
  post(r);
}

namespace {

// ibv_qp_ex ends with wr_atomic_write in headers of rdma-core 44; wr_flush follows.
using WrFlush = void (*)(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, size_t length, uint8_t type,
                         uint8_t level);
WrFlush flush_of(ibv_qp_ex* qp) {
  WrFlush call;
  const auto* end =
      reinterpret_cast<const std::byte*>(qp) + offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*);
  std::memcpy(&call, end, sizeof call);
  return call;
}

ibv_qp_ex* start(ibv_qp* qp, uint64_t id) {
  ibv_qp_ex* const wide = ibv_qp_to_qp_ex(qp);
  require(wide != nullptr, "ibv_qp_to_qp_ex");
  ibv_wr_start(wide);
  wide->wr_id = id;
  wide->wr_flags = IBV_SEND_SIGNALED;
  return wide;
}

void complete(ibv_qp_ex* qp, const char* call) {
  const int result = ibv_wr_complete(qp);
  require(result == 0, "ibv_wr_complete of %s: %d", call, result);
}

}  // namespace

void Pair::write_by_calls(const ibv_sge& from, size_t offset, uint64_t id) {
  ibv_qp_ex* const wide = start(qp.get(), id);
  ibv_wr_rdma_write(wide, peer.rkey, peer.address + offset);
  ibv_wr_set_sge(wide, from.lkey, from.addr, from.length);
  complete(wide, "ibv_wr_rdma_write");
}

void Pair::atomic_write(uint64_t value, size_t offset, uint64_t id) {
  ibv_qp_ex* const wide = start(qp.get(), id);
  ibv_wr_atomic_write(wide, peer.rkey, peer.address + offset, &value);
  complete(wide, "ibv_wr_atomic_write");
}

void Pair::flush(size_t offset, size_t length, Level level, uint64_t id) {
  ibv_qp_ex* const wide = start(qp.get(), id);
  constexpr uint8_t global = 1;
  flush_of(wide)(wide, peer.rkey, peer.address + offset, length, global, static_cast<uint8_t>(level));
  complete(wide, "ibv_wr_flush");
}

void Pair::receive(const ibv_sge& to, uint64_t id) {
  ibv_recv_wr r{};
  r.wr_id = id;
  r.sg_list = const_cast<ibv_sge*>(&to);
  r.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int result = ibv_post_recv(qp.get(), &r, &bad);
  require(result == 0, "ibv_post_recv: %d", result);
}

ibv_wc Pair::completion(ibv_cq* cq, const char* what) {
  const auto start = Clock::now();
  ibv_wc wc{};
  for (;;) {
    const int n = ibv_poll_cq(cq, 1, &wc);
    require(n >= 0, "ibv_poll_cq: %d", n);
    if (n == 1) return wc;
    require(seconds_since(start) < patience_s, "no %s completion for %.0f s", what, patience_s);
    sched_yield();
  }
}

ibv_wc Pair::good(const ibv_wc& wc, uint64_t id, const char* what) {
  require(wc.status == IBV_WC_SUCCESS, "%s completion %llu: %s (vendor %u)", what,
          static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status), wc.vendor_err);
  require(wc.wr_id == id, "%s completion of request %llu, not %llu", what,
          static_cast<unsigned long long>(wc.wr_id), static_cast<unsigned long long>(id));
  return wc;
}

void Pair::fails(ibv_wc_status status, uint64_t id, std::span<const uint64_t> flushed) {
  const ibv_wc wc = completion_of_send();
  require(wc.status == status || has_lost_its_answer(wc), "the completion is '%s', not '%s'",
          ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
  require(wc.wr_id == id, "completion of request %llu, not %llu", static_cast<unsigned long long>(wc.wr_id),
          static_cast<unsigned long long>(id));
  for (const uint64_t next : flushed) {
    const ibv_wc after = completion_of_send();
    require(after.status == IBV_WC_WR_FLUSH_ERR && after.wr_id == next,
            "request %llu ended as '%s' where %llu was to be flushed",
            static_cast<unsigned long long>(after.wr_id), ibv_wc_status_str(after.status),
            static_cast<unsigned long long>(next));
  }
  require(state() == IBV_QPS_ERR, "the queue pair is in state %d after an error", state());
}

void Pair::nothing_received() {
  ibv_wc wc;
  require(ibv_poll_cq(receive_cq(), 1, &wc) == 0, "a receive completion that should not be");
}

ibv_qp_state Pair::state() const {
  ibv_qp_attr a{};
  ibv_qp_init_attr init{};
  const int result = ibv_query_qp(qp.get(), &a, IBV_QP_STATE, &init);
  require(result == 0, "ibv_query_qp: %d", result);
  return a.qp_state;
}

void Pair::to_error() {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  const int result = ibv_modify_qp(qp.get(), &a, IBV_QP_STATE);
  require(result == 0, "ibv_modify_qp to ERR: %d", result);
}

}  // namespace weft::vm
