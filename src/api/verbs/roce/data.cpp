// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data path: posting and polling (ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3), ibv_req_notify_cq(3)).
#include "api/verbs/roce/data.hpp"

#include <cerrno>
#include <cstring>
#include <span>

#include "api/verbs/library/errno_guard.hpp"

namespace weft::verbs::soft {
namespace {

void fill(ibv_wc& to, const roce::Completion& c) noexcept {
  to.wr_id = c.id;
  to.status = static_cast<ibv_wc_status>(c.status);
  to.opcode = static_cast<ibv_wc_opcode>(c.opcode);
  to.vendor_err = c.cause;
  to.byte_len = c.bytes;
  to.imm_data = immediate_of(c);
  to.qp_num = c.qpn;
  to.src_qp = c.source_qpn;
  to.wc_flags = c.flags;
  to.pkey_index = 0;
  to.slid = 0;
  to.sl = 0;
  to.dlid_path_bits = 0;
}

// An address that no other thread has.
const void* this_thread() noexcept {
  thread_local const char here = 0;
  return &here;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) noexcept {
  Cq& mine = of(cq);
  ErrnoGuard keeper;
  const Guard guard(mine.instance->lock());
  if (count <= 0) return 0;
  const auto take = [&] {
    ibv_wc* to = wc;
    return mine.queue->poll(static_cast<size_t>(count), [&](const roce::Completion& c) { fill(*to++, c); });
  };
  link::roce::Device& device = mine.instance->device();
  if (const int taken = take(); taken > 0) {
    device.polled();
    return taken;
  }
  (void)device.poll();
  const int taken = take();
  if (taken < 0) keeper.fails(-taken);
  return taken;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept {
  Cq& mine = of(cq);
  const ErrnoGuard keeper;
  const Guard guard(mine.instance->lock());
  mine.instance->device().expect_sleep(*mine.queue, solicited_only != 0, this_thread());
  return 0;
}

int wait_event(ibv_context* context, int fd, int (*has_event)(void* of), void* of,
               const void* mask) noexcept {
  using Slept = link::roce::Device::Slept;
  link::roce::Device& device = opened(context).device();
  const Guard guard(device.lock());
  const Slept slept =
      device.sleep_instead(fd, has_event, of, this_thread(), static_cast<const sigset_t*>(mask));
  return slept == Slept::Over ? 0 : slept == Slept::Interrupted ? EINTR : EAGAIN;
}

// False: the request names what it must not.
bool fill(roce::SendRequest& to, const Qp& qp, const ibv_send_wr& wr) noexcept {
  to.id = wr.wr_id;
  to.opcode = static_cast<roce::SendOpcode>(wr.opcode);
  to.flags = static_cast<uint8_t>(
      wr.send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE));
  to.elements = elements_of(wr.sg_list, static_cast<size_t>(wr.num_sge));
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      to.immediate = be32toh(wr.imm_data);
      [[fallthrough]];
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
      to.remote_address = wr.wr.rdma.remote_addr;
      to.remote_key = wr.wr.rdma.rkey;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      to.remote_address = wr.wr.atomic.remote_addr;
      to.remote_key = wr.wr.atomic.rkey;
      to.compare_add = wr.wr.atomic.compare_add;
      to.swap = wr.wr.atomic.swap;
      break;
    case IBV_WR_ATOMIC_WRITE:
      to.remote_address = wr.wr.rdma.remote_addr;
      to.remote_key = wr.wr.rdma.rkey;
      if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
        if (to.elements.size() != 1 || to.elements[0].length != sizeof to.compare_add) return false;
        std::memcpy(&to.compare_add, reinterpret_cast<const void*>(to.elements[0].address),
                    sizeof to.compare_add);
        to.elements = {};
      }
      break;
    case IBV_WR_SEND_WITH_IMM:
      to.immediate = be32toh(wr.imm_data);
      break;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV:
      to.invalidate = wr.invalidate_rkey;
      break;
    case IBV_WR_BIND_MW:
      if (wr.bind_mw.mw == nullptr || wr.bind_mw.mw->type != IBV_MW_TYPE_2) return false;
      set_bind(to, *wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
      break;
    case IBV_WR_SEND:
      break;
    default:
      return false;
  }
  if (qp.pair->type == roce::QpType::Ud) {
    // What others have there is no address handle; the adapter refuses them.
    if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) return true;
    if (wr.wr.ud.ah == nullptr) return false;
    to.to = of(wr.wr.ud.ah).to;
    to.remote_qpn = wr.wr.ud.remote_qpn;
    to.remote_qkey = wr.wr.ud.remote_qkey;
  } else if (qp.pair->type == roce::QpType::XrcSend) {
    to.remote_srqn = wr.qp_type.xrc.remote_srqn;
  }
  return true;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) noexcept {
  Qp& mine = of(qp);
  link::roce::Device& device = mine.instance->device();
  ErrnoGuard keeper;
  const Guard guard(device.lock());
  const uint64_t now = device.now();
  int status = 0;
  for (; wr != nullptr; wr = wr->next) {
    roce::SendRequest request;
    if (wr->num_sge < 0 || !fill(request, mine, *wr)) [[unlikely]] {
      status = refuse(
          {EINVAL,
           "ibv_post_send: an unknown opcode, a negative num_sge, a window that is not of type 2, no address "
           "handle, or an inline ATOMIC WRITE that is not one element of 8 bytes"});
      break;
    }
    status = -device.adapter().post_send(*mine.pair, request, now);
    if (status != 0) [[unlikely]] {
      device.adapter().log_refused(*mine.pair, request);
      break;
    }
    if (wr->opcode == IBV_WR_BIND_MW) wr->bind_mw.mw->rkey = request.remote_key;
  }
  device.posted(now);
  if (status == 0) [[likely]]
    return 0;
  *bad = wr;
  return keeper.fails(status);
}

template <class Post>
int post_list(ErrnoGuard& keeper, ibv_recv_wr* wr, ibv_recv_wr** bad, Post&& post) noexcept {
  for (; wr != nullptr; wr = wr->next) {
    int status = -EINVAL;
    if (wr->num_sge >= 0)
      status =
          post(roce::ReceiveRequest{wr->wr_id, elements_of(wr->sg_list, static_cast<size_t>(wr->num_sge))});
    if (status == 0) continue;
    *bad = wr;
    return keeper.fails(-status);
  }
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  Qp& mine = of(qp);
  ErrnoGuard keeper;
  const Guard guard(mine.instance->lock());
  link::roce::Device& device = mine.instance->device();
  // The time of a completion: only a queue pair in the state ERR has one at once.
  const uint64_t now = mine.pair->state == roce::QpState::Error ? device.now() : 0;
  return post_list(keeper, wr, bad, [&](const roce::ReceiveRequest& request) {
    const int status = device.adapter().post_receive(*mine.pair, request, now);
    if (status != 0) [[unlikely]]
      device.adapter().log_refused(*mine.pair, request);
    return status;
  });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  Srq& mine = of(srq);
  ErrnoGuard keeper;
  const Guard guard(mine.instance->lock());
  return post_list(keeper, wr, bad, [&](const roce::ReceiveRequest& request) {
    return mine.instance->device().adapter().post_receive(*mine.queue, request);
  });
}

// Windows of type 1 (ibv_bind_mw(3)): the library chooses the new rkey.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept {
  Qp& mine = of(qp);
  link::roce::Device& device = mine.instance->device();
  if (mw->type != IBV_MW_TYPE_1) return EINVAL;
  roce::SendRequest request;
  request.id = bind->wr_id;
  request.flags =
      static_cast<uint8_t>(bind->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
  const Guard guard(device.lock());
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  set_bind(request, *mw, rkey, bind->bind_info);
  const int status = -device.adapter().post_send(*mine.pair, request, device.now());
  if (status == 0) mw->rkey = rkey;
  device.posted();
  return status;
}

}  // namespace

void fill_data_ops(weft_verbs_ops& ops) noexcept {
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.wait_event = wait_event;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
  ops.bind_mw = bind_mw;
}

}  // namespace weft::verbs::soft
