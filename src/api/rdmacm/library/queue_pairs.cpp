// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs of ids and the states that they go through (rdma_create_qp(3), rdma_init_qp_attr(3)).
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"
#include "api/rdmacm/library/objects.hpp"

namespace weft::rdmacm {
namespace {

constexpr uint8_t hops = 64;

int modify(Id& id, ibv_qp_state state) noexcept {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = state;
  int code = init_attributes(id, attr, mask);
  if (code == 0) code = ibv_modify_qp(id.shown.qp, &attr, mask);
  if (code == 0) return 0;
  errno = code;
  return -1;
}

// A completion queue with a channel of its own.
bool make_queue(Id& id, ibv_comp_channel*& channel, ibv_cq*& queue, uint32_t entries) noexcept {
  id.owns_queues = true;
  channel = ibv_create_comp_channel(id.shown.verbs);
  if (channel == nullptr) return false;
  queue = ibv_create_cq(id.shown.verbs, static_cast<int>(std::max(entries, 1u)), &id.shown, channel, 0);
  return queue != nullptr;
}

void drop_queues(Id& id) noexcept {
  if (!id.owns_queues) return;
  rdma_cm_id& shown = id.shown;
  if (shown.recv_cq != nullptr) ibv_destroy_cq(shown.recv_cq);
  if (shown.recv_cq_channel != nullptr) ibv_destroy_comp_channel(shown.recv_cq_channel);
  if (shown.send_cq != nullptr) ibv_destroy_cq(shown.send_cq);
  if (shown.send_cq_channel != nullptr) ibv_destroy_comp_channel(shown.send_cq_channel);
  shown.recv_cq = shown.send_cq = nullptr;
  shown.recv_cq_channel = shown.send_cq_channel = nullptr;
  id.owns_queues = false;
}

}  // namespace

int init_attributes(const Id& id, ibv_qp_attr& attr, int& mask) noexcept {
  if (id.device == nullptr) return EINVAL;
  const ibv_qp_state state = attr.qp_state;
  attr = {};
  attr.qp_state = state;
  mask = IBV_QP_STATE;
  switch (state) {
    case IBV_QPS_INIT:
      attr.port_num = device_port;
      mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
      if (is_datagram(id)) {
        attr.qkey = id.qkey;
        mask |= IBV_QP_QKEY;
      } else {
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (id.responder_resources != 0)
          attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        mask |= IBV_QP_ACCESS_FLAGS;
      }
      return 0;
    case IBV_QPS_RTR:
      if (is_datagram(id)) return 0;
      attr.ah_attr.is_global = 1;
      attr.ah_attr.port_num = device_port;
      std::memcpy(attr.ah_attr.grh.dgid.raw, id.remote_gid.data(), id.remote_gid.size());
      attr.ah_attr.grh.sgid_index = id.local_gid == nullptr ? uint8_t{0} : id.local_gid->index;
      attr.ah_attr.grh.hop_limit = hops;
      attr.ah_attr.grh.traffic_class = id.traffic_class;
      attr.path_mtu = static_cast<ibv_mtu>(id.mtu);
      attr.dest_qp_num = id.remote.qpn;
      attr.rq_psn = id.remote.psn;
      attr.max_dest_rd_atomic = id.responder_resources;
      attr.min_rnr_timer = 0;
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
              IBV_QP_MIN_RNR_TIMER;
      return 0;
    case IBV_QPS_RTS:
      attr.sq_psn = id.psn;
      mask |= IBV_QP_SQ_PSN;
      if (is_datagram(id)) return 0;
      attr.timeout = id.ack_timeout.value_or(ack_timeout_of_path);
      attr.retry_cnt = id.retry_count;
      attr.rnr_retry = id.rnr_retry_count;
      attr.max_rd_atomic = id.initiator_depth;
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      return 0;
    default:
      return EINVAL;
  }
}

int make_ready(Id& id) noexcept {
  // INIT once more: the access depends on what was agreed.
  if (modify(id, IBV_QPS_INIT) != 0 || modify(id, IBV_QPS_RTR) != 0 || modify(id, IBV_QPS_RTS) != 0)
    return -1;
  return 0;
}

int modify_to_error(Id& id) noexcept {
  if (id.shown.qp == nullptr) return 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(id.shown.qp, &attr, IBV_QP_STATE);
}

int create_qp_ex(rdma_cm_id* raw, ibv_qp_init_attr_ex* attr) noexcept {
  Id* id = of(raw);
  if (id == nullptr || attr == nullptr) return refuse(EINVAL, "rdma_create_qp without an id or attributes");
  if (raw->qp != nullptr) return refuse(EINVAL, "rdma_create_qp: the id has a queue pair");
  if (raw->verbs == nullptr) return refuse(EINVAL, "rdma_create_qp before the id is bound to a device");
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) {
    attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
    attr->pd = raw->pd;
  } else if (attr->pd == nullptr) {
    attr->pd = raw->pd;
  }
  if (attr->pd == nullptr) return refuse(ENOMEM, "rdma_create_qp: no protection domain");
  if (attr->pd->context != raw->verbs)
    return refuse(EINVAL, "rdma_create_qp: the protection domain is another device's");
  if (attr->srq == nullptr && raw->srq != nullptr) attr->srq = raw->srq;
  // Where the program brings none, and the id has none.
  const bool had_queues = id->owns_queues;
  const auto fail = [&](const char* why) {
    const int code = errno;
    if (!had_queues) drop_queues(*id);
    return refuse(code, "rdma_create_qp: %s", why);
  };
  if ((attr->recv_cq == nullptr && raw->recv_cq == nullptr &&
       !make_queue(*id, raw->recv_cq_channel, raw->recv_cq, attr->cap.max_recv_wr)) ||
      (attr->send_cq == nullptr && raw->send_cq == nullptr &&
       !make_queue(*id, raw->send_cq_channel, raw->send_cq, attr->cap.max_send_wr)))
    return fail("no completion queues");
  if (attr->recv_cq == nullptr) attr->recv_cq = raw->recv_cq;
  if (attr->send_cq == nullptr) attr->send_cq = raw->send_cq;
  ibv_qp* qp = ibv_create_qp_ex(raw->verbs, attr);
  if (qp == nullptr) return fail("no queue pair");
  const std::lock_guard guard(id->service->lock);
  raw->qp = qp;
  raw->pd = attr->pd;
  id->qpn = qp->qp_num;
  const bool ready = is_datagram(*id) ? make_ready(*id) == 0 : modify(*id, IBV_QPS_INIT) == 0;
  if (ready) return 0;
  const int code = errno;
  ibv_destroy_qp(qp);
  raw->qp = nullptr;
  errno = code;
  return fail("the queue pair does not reach its first state");
}

int create_qp(rdma_cm_id* raw, ibv_pd* domain, ibv_qp_init_attr* attr) noexcept {
  if (attr == nullptr) return refuse(EINVAL, "rdma_create_qp without attributes");
  ibv_qp_init_attr_ex full{};
  full.qp_context = attr->qp_context;
  full.send_cq = attr->send_cq;
  full.recv_cq = attr->recv_cq;
  full.srq = attr->srq;
  full.cap = attr->cap;
  full.qp_type = attr->qp_type;
  full.sq_sig_all = attr->sq_sig_all;
  full.comp_mask = IBV_QP_INIT_ATTR_PD;
  full.pd = domain;
  const int result = create_qp_ex(raw, &full);
  if (result == 0) {
    attr->cap = full.cap;
    attr->send_cq = full.send_cq;
    attr->recv_cq = full.recv_cq;
    attr->srq = full.srq;
  }
  return result;
}

void destroy_qp(rdma_cm_id* raw) noexcept {
  Id& id = *of(raw);
  {
    const std::lock_guard guard(id.service->lock);
    for (auto& [key, group] : id.groups) {
      if (group.attached && raw->qp != nullptr) ibv_detach_mcast(raw->qp, &group.gid, 0);
      group.attached = false;
    }
  }
  if (raw->qp != nullptr) ibv_destroy_qp(raw->qp);
  raw->qp = nullptr;
  drop_queues(id);
}

int create_srq_ex(rdma_cm_id* raw, ibv_srq_init_attr_ex* attr) noexcept {
  Id* id = of(raw);
  if (id == nullptr || attr == nullptr) return refuse(EINVAL, "rdma_create_srq without an id or attributes");
  if (raw->srq != nullptr) return refuse(EINVAL, "rdma_create_srq: the id has a shared receive queue");
  if (raw->verbs == nullptr) return refuse(EINVAL, "rdma_create_srq before the id is bound to a device");
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attr->pd = raw->pd;
  }
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr->srq_type == IBV_SRQT_XRC &&
      attr->cq == nullptr) {
    if (!make_queue(*id, raw->recv_cq_channel, raw->recv_cq, attr->attr.max_wr))
      return refuse(errno, "rdma_create_srq: no completion queue");
    attr->cq = raw->recv_cq;
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
  }
  ibv_srq* srq = ibv_create_srq_ex(raw->verbs, attr);
  if (srq == nullptr) return refuse(errno, "rdma_create_srq: no shared receive queue");
  raw->srq = srq;
  if (raw->pd == nullptr) raw->pd = attr->pd;
  id->owns_srq = true;
  return 0;
}

int create_srq(rdma_cm_id* raw, ibv_pd* domain, ibv_srq_init_attr* attr) noexcept {
  if (attr == nullptr) return refuse(EINVAL, "rdma_create_srq without attributes");
  ibv_srq_init_attr_ex full{};
  full.srq_context = attr->srq_context;
  full.attr = attr->attr;
  full.comp_mask = IBV_SRQ_INIT_ATTR_PD;
  full.pd = domain;
  const int result = create_srq_ex(raw, &full);
  if (result == 0) attr->attr = full.attr;
  return result;
}

void destroy_srq(rdma_cm_id* raw) noexcept {
  if (raw->srq != nullptr) ibv_destroy_srq(raw->srq);
  raw->srq = nullptr;
  of(raw)->owns_srq = false;
  if (raw->qp == nullptr) drop_queues(*of(raw));
}

}  // namespace weft::rdmacm
