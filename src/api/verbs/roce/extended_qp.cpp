// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Extended queue pairs: the ibv_wr_* calls (ibv_wr_post(3)). Requests are collected in the queue pair's batch and posted
// together by wr_complete, or not at all.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api/verbs/library/errno_guard.hpp"
#include "api/verbs/roce/data.hpp"

namespace weft::verbs::soft {
namespace {

// The request that is being built; past the room it goes into the last place, and wr_complete says ENOMEM.
size_t last_index(const Batch& batch) noexcept { return batch.count == 0 ? 0 : batch.count - 1; }
roce::SendRequest& current(Batch& batch) noexcept { return batch.requests[last_index(batch)]; }
roce::SendRequest& current(ibv_qp_ex* qp) noexcept { return current(*of(qp).batch); }

roce::SendRequest& begin(ibv_qp_ex* qp, roce::SendOpcode opcode) noexcept {
  Batch& batch = *of(qp).batch;
  if (batch.count == batch.requests.size()) {
    batch.status = ENOMEM;
  } else {
    ++batch.count;
  }
  roce::SendRequest& request = current(batch);
  request = {};
  request.id = qp->wr_id;
  request.opcode = opcode;
  request.flags =
      static_cast<uint8_t>(qp->wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
  batch.bound[batch.count - 1] = nullptr;
  return request;
}

roce::SendRequest& begin_remote(ibv_qp_ex* qp, roce::SendOpcode opcode, uint32_t rkey,
                                uint64_t address) noexcept {
  roce::SendRequest& request = begin(qp, opcode);
  request.remote_key = rkey;
  request.remote_address = address;
  return request;
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare,
                       uint64_t swap) noexcept {
  roce::SendRequest& request = begin_remote(qp, roce::SendOpcode::CompareSwap, rkey, address);
  request.compare_add = compare;
  request.swap = swap;
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) noexcept {
  begin_remote(qp, roce::SendOpcode::FetchAdd, rkey, address).compare_add = add;
}
void wr_atomic_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, const void* value) noexcept {
  roce::SendRequest& request = begin_remote(qp, roce::SendOpcode::AtomicWrite, rkey, address);
  request.flags |= roce::inline_data;
  std::memcpy(&request.compare_add, value, sizeof request.compare_add);
}
void wr_flush(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, size_t length, uint8_t type,
              uint8_t level) noexcept {
  roce::SendRequest& request = begin_remote(qp, roce::SendOpcode::Flush, rkey, address);
  request.compare_add = level == layout::flush_region ? 0 : length;
  if (type > 15 || level > 3) {  // they have 4 bits and 2
    of(qp).batch->status = EINVAL;
    return;
  }
  request.immediate = wire::roce::Feth{type, level}.bits();
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) noexcept {
  roce::SendRequest& request = begin(qp, roce::SendOpcode::BindWindow);
  Batch& batch = *of(qp).batch;
  if (mw == nullptr || mw->type != IBV_MW_TYPE_2) {
    batch.status = EINVAL;
    return;
  }
  set_bind(request, *mw, rkey, *info);
  // An earlier bind of this batch gives the window the key that this one replaces.
  for (size_t i = 0; i + 1 < batch.count; ++i)
    if (batch.bound[i] == &of(mw)) request.bind.window_key = batch.requests[i].remote_key;
  batch.bound[batch.count - 1] = &of(mw);
}
void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) noexcept {
  begin(qp, roce::SendOpcode::LocalInvalidate).invalidate = rkey;
}
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) noexcept {
  begin_remote(qp, roce::SendOpcode::Read, rkey, address);
}
void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) noexcept {
  begin_remote(qp, roce::SendOpcode::Write, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 immediate) noexcept {
  begin_remote(qp, roce::SendOpcode::WriteImmediate, rkey, address).immediate = be32toh(immediate);
}
void wr_send(ibv_qp_ex* qp) noexcept { begin(qp, roce::SendOpcode::Send); }
void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) noexcept {
  begin(qp, roce::SendOpcode::SendImmediate).immediate = be32toh(immediate);
}
void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) noexcept {
  begin(qp, roce::SendOpcode::SendInvalidate).invalidate = rkey;
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey) noexcept {
  roce::SendRequest& request = current(qp);
  if (ah == nullptr) {
    of(qp).batch->status = EINVAL;
    return;
  }
  request.to = of(ah).to;
  request.remote_qpn = qpn;
  request.remote_qkey = qkey;
}
void wr_set_xrc_srqn(ibv_qp_ex* qp, uint32_t number) noexcept { current(qp).remote_srqn = number; }

// The data of the current request.
void set_elements(Batch& batch, const roce::Element* from, size_t count) noexcept {
  if (count > batch.elements_each) {
    batch.status = EINVAL;
    return;
  }
  roce::Element* to = &batch.elements[last_index(batch) * batch.elements_each];
  std::copy_n(from, count, to);
  current(batch).elements = {to, count};
}

void set_inline(Batch& batch, size_t count, const ibv_data_buf* list) noexcept {
  std::byte* const begin = batch.inline_bytes.data() + last_index(batch) * batch.inline_each;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].length > batch.inline_each - bytes) {
      batch.status = EINVAL;
      return;
    }
    if (list[i].length != 0) std::memcpy(begin + bytes, list[i].addr, list[i].length);
    bytes += list[i].length;
  }
  current(batch).flags |= roce::inline_data;
  const roce::Element all{reinterpret_cast<uint64_t>(begin), static_cast<uint32_t>(bytes), 0};
  set_elements(batch, &all, 1);
}

void wr_set_inline_data(ibv_qp_ex* qp, void* data, size_t length) noexcept {
  const ibv_data_buf one{data, length};
  set_inline(*of(qp).batch, 1, &one);
}
void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) noexcept {
  set_inline(*of(qp).batch, count, list);
}
void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) noexcept {
  const roce::Element one{address, length, lkey};
  set_elements(*of(qp).batch, &one, 1);
}
void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) noexcept {
  set_elements(*of(qp).batch, elements_of(list, count).data(), count);
}

void wr_start(ibv_qp_ex* qp) noexcept {
  Batch& batch = *of(qp).batch;
  batch.mutex.lock();
  batch.count = 0;
  batch.status = 0;
}

int post(Qp& qp, Batch& batch) noexcept {
  if (batch.status != 0) return batch.status;
  link::roce::Device& device = qp.instance->device();
  const Guard guard(device.lock());
  if (batch.count > qp.pair->sends.room()) [[unlikely]] {
    device.adapter().log_refused(*qp.pair, batch.requests[0]);
    return ENOMEM;
  }
  const uint64_t now = device.now();
  int status = 0;
  for (size_t i = 0; i < batch.count; ++i)
    if (status = -device.adapter().check(*qp.pair, batch.requests[i]); status != 0) [[unlikely]] {
      device.adapter().log_refused(*qp.pair, batch.requests[i]);
      return status;
    }
  for (size_t i = 0; i < batch.count; ++i) {
    status = -device.adapter().post_send(*qp.pair, batch.requests[i], now);
    if (status != 0) break;
    if (batch.bound[i] != nullptr) batch.bound[i]->rkey = batch.requests[i].remote_key;
  }
  device.posted(now);
  return status;
}

int wr_complete(ibv_qp_ex* qp) noexcept {
  Batch& batch = *of(qp).batch;
  ErrnoGuard keeper;
  const int status = post(of(qp), batch);
  batch.mutex.unlock();
  return status == 0 ? 0 : keeper.fails(status);
}
void wr_abort(ibv_qp_ex* qp) noexcept { of(qp).batch->mutex.unlock(); }

}  // namespace

void fill_extended_qp(Qp& qp) noexcept {
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_atomic_write = wr_atomic_write;
  qp.wr_flush = wr_flush;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
}

}  // namespace weft::verbs::soft
