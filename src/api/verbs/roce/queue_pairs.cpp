// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs: creation, ibv_modify_qp(3), ibv_query_qp(3).
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "api/verbs/roce/objects.hpp"

namespace weft::verbs::soft {
namespace {

// Queue pairs take so many inline bytes though fewer were asked for. Devices round up, and programs rely on it (rdma_xclient).
constexpr uint32_t inline_least = 64;

Result<roce::QpType> type_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return static_cast<roce::QpType>(type);
    default:
      return Error{EOPNOTSUPP,
                   "queue pairs are RC, UC, UD and XRC here; raw packets and drivers' own types are not"};
  }
}

Result<roce::QueuePairRequest> request_of(const ibv_qp_init_attr_ex& attr) {
  auto type = type_of(attr.qp_type);
  if (!type) return type.error();
  roce::QueuePairRequest request;
  request.type = *type;
  if (attr.qp_type == IBV_QPT_XRC_RECV) {
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr)
      return Error{EINVAL, "an XRC receive queue pair needs an XRC domain"};
    request.xrcd = of(attr.xrcd).number;
    return request;
  }
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr)
    return Error{EINVAL, "a queue pair needs a protection domain"};
  if (attr.qp_type == IBV_QPT_XRC_SEND && attr.srq != nullptr)
    return Error{EINVAL, "an XRC send queue pair has no receive queue"};
  request.pd = base_of(attr.pd).number;
  request.send_cq = attr.send_cq == nullptr ? nullptr : of(attr.send_cq).queue;
  if (attr.qp_type != IBV_QPT_XRC_SEND) {
    request.receive_cq = attr.recv_cq == nullptr ? nullptr : of(attr.recv_cq).queue;
    request.srq = attr.srq == nullptr ? nullptr : of(attr.srq).queue;
  }
  request.capacities.send_requests = attr.cap.max_send_wr;
  request.capacities.send_elements = attr.cap.max_send_sge;
  request.capacities.inline_bytes = attr.cap.max_inline_data;
  request.capacities.receive_requests = attr.cap.max_recv_wr;
  request.capacities.receive_elements = attr.cap.max_recv_sge;
  request.signal_all = attr.sq_sig_all != 0;
  return request;
}

std::unique_ptr<Batch> batch_for(const ibv_qp_cap& cap) {
  auto batch = std::make_unique<Batch>();
  batch->elements_each = std::max(1U, cap.max_send_sge);
  batch->inline_each = cap.max_inline_data;
  const size_t requests = std::max(1U, cap.max_send_wr);
  batch->requests.resize(requests);
  batch->bound.resize(requests);
  batch->elements.resize(requests * batch->elements_each);
  batch->inline_bytes.resize(requests * batch->inline_each);
  return batch;
}

ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept {
  Qp* const qp = made<Qp>([&]() -> Result<Qp*> {
    Opened& own = opened(context);
    if (attr->qp_type != IBV_QPT_XRC_RECV && attr->cap.max_send_wr != 0)
      attr->cap.max_inline_data = std::max(attr->cap.max_inline_data, inline_least);
    auto request = request_of(*attr);
    if (!request) return request.error();
    auto mine = std::make_unique<Qp>();
    mine->instance = own.instance.get();
    // Without a queue of its own it has no capacity of one, whatever was asked for.
    if (attr->qp_type == IBV_QPT_XRC_RECV) attr->cap = {};
    if (request->receive_cq == nullptr || request->srq != nullptr)
      attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
    mine->cap = attr->cap;
    mine->signal_all = request->signal_all;
    mine->handles = std::make_shared<std::vector<Qp*>>(1, mine.get());
    // More than a queue has is refused below, before memory is taken for it.
    const bool fits = attr->cap.max_send_wr <= roce::requests_max &&
                      attr->cap.max_send_sge <= roce::elements_max &&
                      attr->cap.max_inline_data <= roce::inline_bytes_max;
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 && fits) {
      mine->batch = batch_for(attr->cap);
      fill_extended_qp(*mine);
    }
    const Guard guard(own.lock());
    request->context = &mine->qp_base;
    auto pair = own.adapter().create_qp(*request);
    if (!pair) return pair.error();
    mine->pair = *pair;
    if (attr->qp_type == IBV_QPT_UD) own.device().ports().show_marks();
    mine->qp_base.qp_num = mine->qp_base.handle = (*pair)->number;
    mine->qp_base.state = IBV_QPS_RESET;
    if (attr->qp_type == IBV_QPT_XRC_RECV) {
      mine->xrcd = &of(attr->xrcd);
      ++mine->xrcd->users;
    } else {
      ++of(attr->pd).users;
    }
    own.qps.push_back(*mine);
    return mine.release();
  });
  return qp == nullptr ? nullptr : &qp->qp_base;
}

// Another handle of an XRC receive queue pair of the same domain.
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) noexcept {
  constexpr uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  Qp* const qp = made<Qp>([&]() -> Result<Qp*> {
    if ((attr->comp_mask & needed) != needed || attr->qp_type != IBV_QPT_XRC_RECV || attr->xrcd == nullptr)
      return Error{EINVAL, "only XRC receive queue pairs are opened, by number, domain and type"};
    Opened& own = opened(context);
    auto mine = std::make_unique<Qp>();
    const Guard guard(own.lock());
    roce::QueuePair* pair = own.adapter().find(attr->qp_num);
    if (pair == nullptr || pair->type != roce::QpType::XrcReceive || pair->xrcd != of(attr->xrcd).number ||
        pair->context == nullptr)
      return Error{EINVAL, "no XRC receive queue pair of this number in the domain"};
    mine->instance = own.instance.get();
    mine->pair = pair;
    mine->handles = of(static_cast<ibv_qp*>(pair->context)).handles;
    mine->handles->push_back(mine.get());
    mine->qp_base.qp_num = mine->qp_base.handle = pair->number;
    mine->qp_base.state = static_cast<ibv_qp_state>(pair->state);
    mine->xrcd = &of(attr->xrcd);
    ++mine->xrcd->users;
    own.qps.push_back(*mine);
    return mine.release();
  });
  return qp == nullptr ? nullptr : &qp->qp_base;
}

// An attribute of ibv_modify_qp(3) that this device does not have is refused by roce::check_transition, by its bit.
Result<roce::Attributes> attributes_of(Opened& own, const ibv_qp_attr& from, int mask) {
  roce::Attributes to;
  to.state = static_cast<roce::QpState>(from.qp_state);
  to.current_state = static_cast<roce::QpState>(from.cur_qp_state);
  to.drain_notify = from.en_sqd_async_notify != 0;
  to.access = from.qp_access_flags;
  to.pkey_index = from.pkey_index;
  to.port = from.port_num;
  to.qkey = from.qkey;
  to.path_mtu = static_cast<uint8_t>(from.path_mtu);
  to.timeout = from.timeout;
  to.retry_count = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.max_reads = from.max_rd_atomic;
  to.max_dest_reads = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.destination = from.dest_qp_num;
  if ((mask & IBV_QP_AV) != 0) {
    ibv_ah_attr path = from.ah_attr;
    if (path.port_num == 0) path.port_num = 1;  // the manual names it for address handles only
    roce::Gid peer;
    std::memcpy(peer.data(), path.grh.dgid.raw, peer.size());
    if (link::roce::is_group(peer)) return Error{EINVAL, "a connected queue pair has one peer, not a group"};
    auto address = address_vector_of(own, path);
    if (!address) return address.error();
    to.path = *address;
  }
  return to;
}

Result<void> check_path_mtu(Opened& own, const roce::Attributes& to) {
  const uint8_t most = own.device().path_mtu_max(to.path.source_index, to.path.destination);
  if (to.path_mtu <= most) return {};
  return Error{EINVAL, "the path to the peer takes packets of at most " + std::to_string(64U << (most + 1)) +
                           " bytes, and the queue pair asks for " + std::to_string(64U << (to.path_mtu + 1))};
}

// Programs set the attributes of RC on both sides of an XRC connection (perftest does). Those that a side does not have are passed
// over, as the kernel does for devices of its own.
int without_other_side(ibv_qp_type type, int mask) noexcept {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

// Programs say no more than that the call failed, so the first few refusals are worth a warning each.
int refuse_path(const Error& error) noexcept {
  static std::atomic<int> left{4};
  if (left.load(std::memory_order_relaxed) <= 0) return refuse(error);
  left.fetch_sub(1, std::memory_order_relaxed);
  log(1, "ibv_modify_qp: " + error.why);
  return error.code;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept {
  mask = without_other_side(qp->qp_type, mask);
  return done(
      [&]() -> Result<void> {
        if ((mask & IBV_QP_CAP) != 0)
          return Error{EOPNOTSUPP, "queues keep the size that they were made with"};
        if ((mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT)) != 0)
          return Error{EOPNOTSUPP, "alternate paths and rate limits are not supported"};
        Opened& own = opened(qp->context);
        auto to = attributes_of(own, *attr, mask);
        if (!to) return to.error();
        const Guard guard(own.lock());
        if ((mask & IBV_QP_PATH_MTU) != 0 && (mask & IBV_QP_AV) != 0)
          if (auto ok = check_path_mtu(own, *to); !ok) return ok;
        own.device().flush_deferred();
        if ((mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_ERR)
          own.device().await_acknowledgements(*of(qp).pair);
        auto ok = own.adapter().modify(*of(qp).pair, *to, static_cast<uint32_t>(mask), own.device().now());
        if (!ok) return ok;
        if ((mask & IBV_QP_AV) != 0) own.device().expect(to->path);
        own.device().posted();
        if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
        return {};
      },
      refuse_path);
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) noexcept {
  Opened& own = opened(qp->context);
  const Qp& mine = of(qp);
  const Guard guard(own.lock());
  const roce::QueuePair& pair = *mine.pair;
  const roce::Attributes& from = pair.attributes;
  *attr = {};
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(pair.state);
  attr->path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  attr->path_mig_state = IBV_MIG_MIGRATED;
  attr->qkey = from.qkey;
  attr->rq_psn = pair.state >= roce::QpState::ReadyToReceive ? pair.responder.expected : from.rq_psn;
  attr->sq_psn = pair.state >= roce::QpState::ReadyToSend ? pair.requester.next : from.sq_psn;
  attr->dest_qp_num = from.destination;
  attr->qp_access_flags = from.access;
  attr->cap = mine.cap;
  std::memcpy(attr->ah_attr.grh.dgid.raw, from.path.destination.data(), from.path.destination.size());
  attr->ah_attr.grh.flow_label = from.path.flow_label;
  attr->ah_attr.grh.sgid_index = from.path.source_index;
  attr->ah_attr.grh.hop_limit = from.path.hop_limit;
  attr->ah_attr.grh.traffic_class = from.path.traffic_class;
  attr->ah_attr.is_global = 1;
  attr->ah_attr.port_num = attr->port_num = 1;
  attr->sq_draining = pair.state == roce::QpState::SendDrained && pair.requester.cursor != pair.sends.head;
  attr->max_rd_atomic = from.max_reads;
  attr->max_dest_rd_atomic = from.max_dest_reads;
  attr->min_rnr_timer = from.min_rnr_timer;
  attr->timeout = from.timeout;
  attr->retry_cnt = from.retry_count;
  attr->rnr_retry = from.rnr_retry;
  qp->state = attr->qp_state;
  *init = {qp->qp_context, qp->send_cq, qp->recv_cq, qp->srq, mine.cap, qp->qp_type, mine.signal_all ? 1 : 0};
  return 0;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept { return of(qp).batch == nullptr ? nullptr : &of(qp); }

int destroy_qp(ibv_qp* qp) noexcept {
  Opened& own = opened(qp->context);
  Qp& mine = of(qp);
  {
    const Guard guard(own.lock());
    if (own.adapter().first_group(*mine.pair))
      return refuse({EBUSY, "the queue pair is attached to a multicast group"});
    own.device().flush_deferred();
    release_pair(mine);
    if (mine.xrcd != nullptr) {
      --mine.xrcd->users;
    } else {
      --of(qp->pd).users;
    }
    own.qps.remove(mine);
  }
  delete &mine;
  return 0;
}

roce::Gid gid_of(const ibv_gid& gid) noexcept {
  roce::Gid out;
  std::memcpy(out.data(), gid.raw, out.size());
  return out;
}

int attach_mcast(ibv_qp* qp, const ibv_gid* group, uint16_t) noexcept {
  return done([&] {
    Opened& own = opened(qp->context);
    const Guard guard(own.lock());
    return own.device().groups().attach(*of(qp).pair, gid_of(*group));
  });
}

int detach_mcast(ibv_qp* qp, const ibv_gid* group, uint16_t) noexcept {
  return done([&] {
    Opened& own = opened(qp->context);
    const Guard guard(own.lock());
    return own.device().groups().detach(*of(qp).pair, gid_of(*group));
  });
}

}  // namespace

void release_pair(Qp& qp) noexcept {
  std::erase(*qp.handles, &qp);
  if (qp.handles->empty()) return qp.instance->device().adapter().destroy_qp(*qp.pair);
  if (qp.pair->context == &qp.qp_base) qp.pair->context = &qp.handles->front()->qp_base;
}

void fill_queue_pair_ops(weft_verbs_ops& ops) noexcept {
  ops.create_qp = create_qp;
  ops.open_qp = open_qp;
  ops.qp_to_qp_ex = qp_to_qp_ex;
  ops.query_qp = query_qp;
  ops.modify_qp = modify_qp;
  ops.destroy_qp = destroy_qp;
  ops.attach_mcast = attach_mcast;
  ops.detach_mcast = detach_mcast;
}

}  // namespace weft::verbs::soft
