// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues and shared receive queues.
#include <bit>
#include <cerrno>
#include <memory>

#include "api/verbs/roce/objects.hpp"

namespace weft::verbs::soft {
namespace {

// --- completion queues ---

ibv_cq_ex* create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept {
  return made<Cq>([&]() -> Result<Cq*> {
    Opened& own = opened(context);
    auto cq = std::make_unique<Cq>();
    cq->instance = own.instance.get();
    cq->is_single_threaded = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
                             (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    cq->has_wall_clock = (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0;
    fill_extended_cq(*cq);
    const Guard guard(own.lock());
    auto queue = own.adapter().create_cq(attr->cqe);
    if (!queue) return queue.error();
    cq->queue = *queue;
    cq->queue->context = handle_of(*cq);
    cq->cqe = static_cast<int>(attr->cqe);
    own.cqs.push_back(*cq);
    return cq.release();
  });
}

int resize_cq(ibv_cq* cq, int cqe) noexcept {
  return done([&]() -> Result<void> {
    Opened& own = opened(cq->context);
    const Guard guard(own.lock());
    if (cqe <= 0 || static_cast<uint32_t>(cqe) > roce::completions_max)
      return Error{EINVAL, "a completion queue has 1 to 4,194,304 entries"};
    if (!of(cq).queue->resize(static_cast<uint32_t>(cqe)))
      return Error{EINVAL, "more completions are in the queue than the new size has room for"};
    cq->cqe = cqe;
    return {};
  });
}

int destroy_cq(ibv_cq* cq) noexcept {
  Opened& own = opened(cq->context);
  Cq& mine = of(cq);
  {
    const Guard guard(own.lock());
    if (own.adapter().destroy_cq(*mine.queue) != 0) return EBUSY;
    own.cqs.remove(mine);
  }
  own.instance->await_raised();
  delete &mine;
  return 0;
}

// --- shared receive queues ---

ibv_srq* create_srq(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept {
  return made<Srq>([&]() -> Result<Srq*> {
    Opened& own = opened(context);
    const ibv_srq_type type =
        (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
    if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)
      return Error{EOPNOTSUPP, "a shared receive queue is basic or of an XRC domain"};
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr)
      return Error{EINVAL, "a shared receive queue needs a protection domain"};
    const bool is_xrc = type == IBV_SRQT_XRC;
    if (is_xrc && ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attr->xrcd == nullptr ||
                   (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attr->cq == nullptr))
      return Error{EINVAL, "a receive queue of an XRC domain needs the domain and a completion queue"};
    auto srq = std::make_unique<Srq>();
    srq->instance = own.instance.get();
    srq->xrcd = is_xrc ? &of(attr->xrcd) : nullptr;
    srq->elements = attr->attr.max_sge == 0 ? 1 : attr->attr.max_sge;
    const Guard guard(own.lock());
    auto queue =
        own.adapter().create_srq(base_of(attr->pd).number, attr->attr.max_wr, srq->elements,
                                 is_xrc ? srq->xrcd->number : 0, is_xrc ? of(attr->cq).queue : nullptr);
    if (!queue) return queue.error();
    srq->queue = *queue;
    srq->queue->context = static_cast<ibv_srq*>(srq.get());
    srq->handle = srq->queue->number;
    attr->attr.max_sge = srq->elements;
    ++of(attr->pd).users;
    if (is_xrc) ++srq->xrcd->users;
    own.srqs.push_back(*srq);
    return srq.release();
  });
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) noexcept {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // no IBV_DEVICE_SRQ_RESIZE
  Opened& own = opened(srq->context);
  const Guard guard(own.lock());
  roce::SharedReceiveQueue& queue = *of(srq).queue;
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    if (attr->srq_limit > queue.queue.capacity()) return EINVAL;
    queue.limit = attr->srq_limit;
  }
  return 0;
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) noexcept {
  Opened& own = opened(srq->context);
  const Guard guard(own.lock());
  const roce::SharedReceiveQueue& queue = *of(srq).queue;
  attr->max_wr = static_cast<uint32_t>(queue.queue.capacity());
  attr->max_sge = queue.queue.elements_each();
  attr->srq_limit = queue.limit;
  return 0;
}

int get_srq_num(ibv_srq* srq, uint32_t* number) noexcept {
  if (of(srq).xrcd == nullptr) return EOPNOTSUPP;
  *number = of(srq).queue->number;
  return 0;
}

int destroy_srq(ibv_srq* srq) noexcept {
  Opened& own = opened(srq->context);
  Srq& mine = of(srq);
  {
    const Guard guard(own.lock());
    if (own.adapter().destroy_srq(*mine.queue) != 0) return EBUSY;
    --of(srq->pd).users;
    if (mine.xrcd != nullptr) --mine.xrcd->users;
    own.srqs.remove(mine);
  }
  delete &mine;
  return 0;
}

}  // namespace

void fill_queue_ops(weft_verbs_ops& ops) noexcept {
  ops.create_cq = create_cq;
  ops.resize_cq = resize_cq;
  ops.destroy_cq = destroy_cq;
  ops.create_srq = create_srq;
  ops.modify_srq = modify_srq;
  ops.query_srq = query_srq;
  ops.get_srq_num = get_srq_num;
  ops.destroy_srq = destroy_srq;
}

}  // namespace weft::verbs::soft
