// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory windows of types 1 and 2, and invalidation of them by the owner and by the peer (IBTA 10.6.7).
#include "scenarios.hpp"

namespace weft::vm {
namespace {

constexpr size_t window_offset = 8192, window_bytes = 4096;

// The responder's window, told to the requester.
struct Window {
  Owned<ibv_mw> mw;
  uint32_t rkey = 0;
  uint64_t address = 0;
};

ibv_mw_bind_info covered(Pair& pair) {
  return {pair.memory->mr.get(), pair.memory->address() + window_offset, window_bytes,
          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
}

Window bound_type_1(Session& s, Pair& pair) {
  Window w;
  if (!s.is_requester) {
    w.mw = owned(ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1), "ibv_alloc_mw");
    ibv_mw_bind bind{};
    bind.wr_id = 50;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = covered(pair);
    const int result = ibv_bind_mw(pair.qp.get(), w.mw.get(), &bind);
    require(result == 0, "ibv_bind_mw: %d", result);
    require(pair.sent(50).opcode == IBV_WC_BIND_MW, "opcode");
    w.rkey = w.mw->rkey;
    w.address = bind.bind_info.addr;
    s.control.send(Name{{}, 0, 0, w.address, w.rkey});
  } else {
    const auto name = s.control.receive<Name>();
    w.rkey = name.rkey;
    w.address = name.address;
  }
  return w;
}

Window bound_type_2(Session& s, Pair& pair) {
  Window w;
  if (!s.is_requester) {
    w.mw = owned(ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2), "ibv_alloc_mw");
    ibv_send_wr r{};
    r.wr_id = 51;
    r.opcode = IBV_WR_BIND_MW;
    r.send_flags = IBV_SEND_SIGNALED;
    r.bind_mw.mw = w.mw.get();
    r.bind_mw.rkey = ibv_inc_rkey(w.mw->rkey);
    r.bind_mw.bind_info = covered(pair);
    pair.post(r);
    require(pair.sent(51).opcode == IBV_WC_BIND_MW, "opcode");
    w.rkey = r.bind_mw.rkey;
    w.address = r.bind_mw.bind_info.addr;
    s.control.send(Name{{}, 0, 0, w.address, w.rkey});
  } else {
    const auto name = s.control.receive<Name>();
    w.rkey = name.rkey;
    w.address = name.address;
  }
  return w;
}

// Writes into the window and reads it back.
void use(Session& s, Pair& pair, const Window& w) {
  if (s.is_requester) {
    fill(pair.memory->part(0, 3000), 4);
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 3000), w.address + 10, w.rkey, 1,
                     IBV_SEND_SIGNALED);
    pair.sent(1);
    pair.post_remote(IBV_WR_RDMA_READ, pair.memory->element(4096, 3000), w.address + 10, w.rkey, 2,
                     IBV_SEND_SIGNALED);
    pair.sent(2);
    check(pair.memory->part(4096, 3000), 4, "read back");
  }
  s.control.barrier();
  if (!s.is_requester) check(pair.memory->part(window_offset + 10, 3000), 4, "written");
  s.control.barrier();
}

void write_is_refused(Session& s, Pair& pair, uint64_t address, uint32_t rkey) {
  if (s.is_requester) {
    pair.post_remote(IBV_WR_RDMA_WRITE, pair.memory->element(0, 64), address, rkey, 9, IBV_SEND_SIGNALED);
    pair.fails(IBV_WC_REM_ACCESS_ERR, 9);
  }
  s.control.barrier();
}

void type_1(Session& s) {
  Pair pair(s);
  const Window w = bound_type_1(s, pair);
  use(s, pair, w);
}

// rxe checks the bounds of the region below a window instead of the window's.
void type_1_bounds(Session& s) {
  Pair pair(s);
  const Window w = bound_type_1(s, pair);
  const uint64_t end =
      s.responder_is_kernel ? pair.peer.address + pair.memory->bytes.size() : w.address + window_bytes;
  write_is_refused(s, pair, end - 63, w.rkey);
}

// The key of before is refused after the next bind.
void type_1_rebound(Session& s) {
  Pair pair(s);
  Window w = bound_type_1(s, pair);
  use(s, pair, w);
  if (!s.is_requester) {
    ibv_mw_bind bind{};
    bind.wr_id = 52;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = covered(pair);
    const int result = ibv_bind_mw(pair.qp.get(), w.mw.get(), &bind);
    require(result == 0, "ibv_bind_mw: %d", result);
    pair.sent(52);
    require(w.mw->rkey != w.rkey, "the key is the same after a bind");
  }
  s.control.barrier();
  write_is_refused(s, pair, w.address, w.rkey);
}

void type_2(Session& s) {
  Pair pair(s);
  const Window w = bound_type_2(s, pair);
  use(s, pair, w);
}

void local_invalidate(Session& s) {
  Pair pair(s);
  const Window w = bound_type_2(s, pair);
  use(s, pair, w);
  if (!s.is_requester) {
    ibv_send_wr r{};
    r.wr_id = 60;
    r.opcode = IBV_WR_LOCAL_INV;
    r.send_flags = IBV_SEND_SIGNALED;
    r.invalidate_rkey = w.rkey;
    pair.post(r);
    require(pair.sent(60).opcode == IBV_WC_LOCAL_INV, "opcode");
  }
  s.control.barrier();
  write_is_refused(s, pair, w.address, w.rkey);
}

void send_invalidate(Session& s) {
  Pair pair(s);
  const Window w = bound_type_2(s, pair);
  use(s, pair, w);
  if (!s.is_requester) pair.receive(pair.memory->element(0, 4096), 7);
  s.control.barrier();
  if (s.is_requester) {
    fill(pair.memory->part(0, 2000), 8);
    pair.send_invalidate(pair.memory->element(0, 2000), w.rkey);
    pair.sent();
  } else {
    const ibv_wc wc = pair.received(7);
    // rxe gives the flag's value inside of the kernel.
    const unsigned flag = s.responder_is_kernel ? 4 : IBV_WC_WITH_INV;
    require((wc.wc_flags & flag) != 0 && wc.invalidated_rkey == w.rkey, "flags %u, key %08x instead of %08x",
            wc.wc_flags, wc.invalidated_rkey, w.rkey);
    check(pair.memory->part(0, 2000), 8, "message");
  }
  s.control.barrier();
  write_is_refused(s, pair, w.address, w.rkey);
}

// A peer may invalidate windows, never the region of a program. rxe acknowledges the message first and then fails.
void send_invalidate_of_a_region(Session& s) {
  Pair pair(s);
  if (!s.is_requester) pair.receive(pair.memory->element(0, 4096), 7);
  s.control.barrier();
  if (s.is_requester) {
    pair.send_invalidate(pair.memory->element(0, 200), pair.peer.rkey);
    const ibv_wc wc = pair.completion_of_send();
    require(s.responder_is_kernel || wc.status != IBV_WC_SUCCESS, "it was taken");
  }
  s.control.barrier();
}

constexpr Scenario scenarios[] = {
    {"window_type_1", type_1},
    {"window_type_1_bounds", type_1_bounds},
    {"window_type_1_rebound", type_1_rebound},
    {"window_type_2", type_2},
    {"window_local_invalidate", local_invalidate},
    {"window_send_invalidate", send_invalidate},
    {"window_send_invalidate_of_a_region", send_invalidate_of_a_region},
};

}  // namespace

std::span<const Scenario> window_scenarios() { return scenarios; }

}  // namespace weft::vm
