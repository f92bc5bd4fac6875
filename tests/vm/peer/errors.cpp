// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a responder must refuse: keys, bounds, rights, lengths. The requester's completion names the reason, the
// requests behind it are flushed, and memory that was not granted stays as it was.
#include "scenarios.hpp"

namespace weft::vm {
namespace {

// The requester's first request must end with that status; the second one is flushed.
template <class F>
void refused(Session& s, Pair& pair, ibv_wc_status status, F&& post) {
  if (s.is_requester) {
    fill(pair.memory->bytes, 1);
    post();
    pair.send(pair.memory->element(0, 10), 2);
    const uint64_t flushed[] = {2};
    pair.fails(status, 1, flushed);
  }
  s.control.barrier();
  if (!s.is_requester) check_all(pair.memory->bytes, 0, "memory of the responder");
  s.control.barrier();
}

void wrong_key_write(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] {
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 100), pair.peer.address,
                     pair.peer.rkey ^ 0x5a5a00, 1, IBV_SEND_SIGNALED);
  });
}

void wrong_key_read(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] {
    pair.post_remote(IBV_WR_RDMA_READ, pair.memory->element(0, 100), pair.peer.address,
                     pair.peer.rkey ^ 0x5a5a00, 1, IBV_SEND_SIGNALED);
  });
}

void wrong_key_atomic(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] {
    pair.peer.rkey ^= 0x5a5a00;
    pair.fetch_add(pair.memory->element(0, 8), 0, 1, 1);
  });
}

void beyond_the_end_write(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR,
          [&] { pair.write(pair.memory->element(0, 101), pair.memory->bytes.size() - 100, 1); });
}

// The first packets are inside.
void beyond_the_end_long_write(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR,
          [&] { pair.write(pair.memory->element(0, 20'000), pair.memory->bytes.size() - 19'999, 1); });
}

void beyond_the_end_read(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR,
          [&] { pair.read(pair.memory->element(0, 101), pair.memory->bytes.size() - 100, 1); });
}

void before_the_start(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] {
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 100), pair.peer.address - 1, pair.peer.rkey,
                     1, IBV_SEND_SIGNALED);
  });
}

void address_wraps(Session& s) {
  Pair pair(s);
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] {
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 100), UINT64_MAX - 49, pair.peer.rkey, 1,
                     IBV_SEND_SIGNALED);
  });
}

PairOptions responder_memory(const Session& s, int access) {
  PairOptions options;
  if (!s.is_requester) options.memory_access = access;
  return options;
}

void no_right_to_write(Session& s) {
  Pair pair(s, responder_memory(s, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] { pair.write(pair.memory->element(0, 100), 0, 1); });
}

void no_right_to_read(Session& s) {
  Pair pair(s, responder_memory(s, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] { pair.read(pair.memory->element(0, 100), 0, 1); });
}

void no_right_to_atomics(Session& s) {
  Pair pair(s,
            responder_memory(s, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] { pair.fetch_add(pair.memory->element(0, 8), 0, 1, 1); });
}

// The region grants what the queue pair does not. Both answers are in use: NAK invalid request and NAK remote
// access error.
void queue_pair_without_right(Session& s) {
  PairOptions options;
  if (!s.is_requester) options.qp_access = IBV_ACCESS_REMOTE_READ;
  Pair pair(s, options);
  if (s.is_requester) {
    fill(pair.memory->bytes, 1);
    pair.write(pair.memory->element(0, 100), 0, 1);
    const ibv_wc wc = pair.completion_of_send();
    require(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR ||
                pair.has_lost_its_answer(wc),
            "the completion is '%s'", ibv_wc_status_str(wc.status));
  }
  s.control.barrier();
  if (!s.is_requester) check_all(pair.memory->bytes, 0, "memory of the responder");
  s.control.barrier();
}

PairOptions with_calls(const Session& s, uint64_t calls, bool has_right = true) {
  PairOptions options;
  if (s.is_requester) options.calls = calls | IBV_QP_EX_WITH_SEND;
  if ((calls & ops_flush) == 0) return options;
  options.qp_access |= access_flush;
  if (has_right) options.memory_access |= access_flush;
  return options;
}

void wrong_key_atomic_write(Session& s) {
  s.needs(Ability::AtomicWrite);
  Pair pair(s, with_calls(s, IBV_QP_EX_WITH_ATOMIC_WRITE));
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] {
    pair.peer.rkey ^= 0x5a5a00;
    pair.atomic_write(1, 0, 1);
  });
}

void no_right_to_flush(Session& s) {
  s.needs(Ability::Flush);
  Pair pair(s, with_calls(s, ops_flush, s.is_requester));
  refused(s, pair, IBV_WC_REM_ACCESS_ERR, [&] { pair.flush(0, 8, Level::Range, 1); });
}

void beyond_the_end_flush(Session& s) {
  s.needs(Ability::Flush);
  Pair pair(s, with_calls(s, ops_flush));
  refused(s, pair, IBV_WC_REM_ACCESS_ERR,
          [&] { pair.flush(pair.memory->bytes.size() - 100, 101, Level::Range, 1); });
}

// A library may refuse it at once.
void unaligned_atomic(Session& s) {
  Pair pair(s);
  if (s.is_requester) {
    ibv_sge to = pair.memory->element(0, 8);
    ibv_send_wr r{}, *bad = nullptr;
    r.wr_id = 1;
    r.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    r.send_flags = IBV_SEND_SIGNALED;
    r.sg_list = &to;
    r.num_sge = 1;
    r.wr.atomic = {pair.peer.address + 4, 1, 0, pair.peer.rkey};
    if (ibv_post_send(pair.qp.get(), &r, &bad) == 0) pair.fails(IBV_WC_REM_INV_REQ_ERR, 1);
  }
  s.control.barrier();
  if (!s.is_requester) check_all(pair.memory->bytes, 0, "memory of the responder");
  s.control.barrier();
}

void deregistered(Session& s) {
  Pair pair(s);
  if (!s.is_requester) {
    Memory other(pair.pd, 4096);
    s.control.send(Name{{}, 0, 0, other.address(), other.mr->rkey});
    s.control.barrier();  // written once
    check(other.part(0, 100), 1, "written before");
    other.mr.reset();
    s.control.barrier();  // no longer registered
    s.control.barrier();  // refused
    check(other.part(0, 100), 1, "written before");
  } else {
    const auto other = s.control.receive<Name>();
    fill(pair.memory->part(0, 100), 1);
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 100), other.address, other.rkey, 1,
                     IBV_SEND_SIGNALED);
    pair.sent(1);
    s.control.barrier();
    s.control.barrier();
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(200, 100), other.address, other.rkey, 2,
                     IBV_SEND_SIGNALED);
    pair.fails(IBV_WC_REM_ACCESS_ERR, 2);
    s.control.barrier();
  }
}

void foreign_domain(Session& s) {
  Pair pair(s);
  const auto pd = owned(ibv_alloc_pd(s.context), "ibv_alloc_pd");
  Memory other(pd.get(), 4096);
  const Name there = s.control.swap(Name{{}, 0, 0, other.address(), other.mr->rkey});
  if (s.is_requester) {
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 100), there.address, there.rkey, 1,
                     IBV_SEND_SIGNALED);
    pair.fails(IBV_WC_REM_ACCESS_ERR, 1);
  }
  s.control.barrier();
}

void message_too_long(Session& s) {
  Pair pair(s);
  if (!s.is_requester) pair.receive(pair.memory->element(0, 99), 5);
  s.control.barrier();
  if (s.is_requester) {
    pair.send(pair.memory->element(0, 100), 1);
    pair.fails(s.responder_is_kernel ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR, 1);
  } else {
    const ibv_wc wc = pair.completion_of_receive();
    require(wc.status == (s.responder_is_kernel ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR) && wc.wr_id == 5,
            "the receive ended as '%s'", ibv_wc_status_str(wc.status));
  }
  s.control.barrier();
}

// The requester's own key is wrong. rxe says "local QP operation error", that of 6.12 that the request was flushed.
void local_key(Session& s) {
  Pair pair(s);
  if (s.is_requester) {
    ibv_sge wrong = pair.memory->element(0, 100);
    wrong.lkey ^= 0x5a5a00;
    pair.send(wrong, 1);
    const ibv_wc wc = pair.completion_of_send();
    require(wc.status == IBV_WC_LOC_PROT_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR ||
                (s.is_kernel && wc.status == IBV_WC_WR_FLUSH_ERR),
            "the completion is '%s'", ibv_wc_status_str(wc.status));
    require(pair.state() == IBV_QPS_ERR, "state %d", pair.state());
  }
  s.control.barrier();
}

constexpr Scenario scenarios[] = {
    {"error_write_wrong_key", wrong_key_write},
    {"error_read_wrong_key", wrong_key_read},
    {"error_atomic_wrong_key", wrong_key_atomic},
    {"error_write_beyond_the_end", beyond_the_end_write},
    {"error_long_write_beyond_the_end", beyond_the_end_long_write},
    {"error_read_beyond_the_end", beyond_the_end_read},
    {"error_write_before_the_start", before_the_start},
    {"error_address_wraps", address_wraps},
    {"error_no_right_to_write", no_right_to_write},
    {"error_no_right_to_read", no_right_to_read},
    {"error_no_right_to_atomics", no_right_to_atomics},
    {"error_queue_pair_without_right", queue_pair_without_right},
    {"error_unaligned_atomic", unaligned_atomic},
    {"error_atomic_write_wrong_key", wrong_key_atomic_write},
    {"error_no_right_to_flush", no_right_to_flush},
    {"error_flush_beyond_the_end", beyond_the_end_flush},
    {"error_deregistered", deregistered},
    {"error_foreign_domain", foreign_domain},
    {"error_message_too_long", message_too_long},
    {"error_local_key", local_key},
};

}  // namespace

std::span<const Scenario> error_scenarios() { return scenarios; }

}  // namespace weft::vm
