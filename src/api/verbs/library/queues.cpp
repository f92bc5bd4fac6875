// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues, shared receive queues and XRC domains.
#include <cerrno>

#include "api/verbs/library/calls.hpp"

namespace weft::verbs {
namespace {

// What a call that returns an object does when the library cannot keep track of it.
template <class T>
T* undone(T* object, int (*destroy)(T*), int code) noexcept {
  call(destroy, object);
  return refuse(code);
}

int check(ibv_context* context, const ibv_cq_init_attr_ex& attr) noexcept {
  const weft_verbs_ops& ops = ops_of(context);
  if (unknown(attr.comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) return EINVAL;
  if (unknown(attr.wc_flags, ops.cq_flags & IBV_CREATE_CQ_SUP_WC_FLAGS)) return EOPNOTSUPP;
  if (attr.cqe == 0 || attr.cqe > INT32_MAX)
    return says(EINVAL, "ibv_create_cq: a completion queue has at least one entry, and at most max_cqe");
  if (attr.comp_vector >= static_cast<uint32_t>(context->num_comp_vectors))
    return says(EINVAL, "ibv_create_cq: comp_vector is not below num_comp_vectors of the context");
  if (attr.channel != nullptr && attr.channel->context != context) return EINVAL;
  constexpr uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if (unknown(attr.flags, flags)) return EINVAL;
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
      (attr.parent_domain == nullptr || attr.parent_domain->context != context))
    return EINVAL;
  return 0;
}

ibv_cq_ex* make_cq(ibv_context* context, ibv_cq_init_attr_ex& attr) noexcept {
  if (const int code = check(context, attr)) return refuse(code);
  const weft_verbs_ops& ops = ops_of(context);
  ibv_cq_ex* cq = call(ops.create_cq, context, &attr);
  if (cq == nullptr) return nullptr;
  cq->context = context;
  cq->channel = attr.channel;
  cq->cq_context = attr.cq_context;
  cq->comp_events_completed = 0;
  cq->async_events_completed = 0;
  init_waiting(cq->mutex, cq->cond);
  Channel* channel = attr.channel != nullptr ? &Channel::of(attr.channel) : nullptr;
  if (const int code = events_of(context).add(cq, channel)) {
    call(ops.destroy_cq, ibv_cq_ex_to_cq(cq));
    return refuse(code);
  }
  return cq;
}

int check(ibv_context* context, const ibv_srq_init_attr_ex& attr) noexcept {
  constexpr uint32_t known = IBV_SRQ_INIT_ATTR_RESERVED - 1;
  if (unknown(attr.comp_mask, known)) return EINVAL;
  if (attr.pd == nullptr || attr.pd->context != context) return EINVAL;
  if (attr.attr.max_wr == 0) return says(EINVAL, "ibv_create_srq: max_wr is 0");
  switch (attr.srq_type) {
    case IBV_SRQT_BASIC:
      return 0;
    case IBV_SRQT_XRC:
      return attr.xrcd != nullptr && attr.xrcd->context == context && attr.cq != nullptr &&
                     attr.cq->context == context
                 ? 0
                 : EINVAL;
    case IBV_SRQT_TM:
      return EOPNOTSUPP;
  }
  return EINVAL;
}

// What comp_mask leaves out of the caller's struct is not read: the struct may end before it.
ibv_srq_init_attr_ex copy_of(const ibv_srq_init_attr_ex& attr) noexcept {
  ibv_srq_init_attr_ex copy{};
  copy.srq_context = attr.srq_context;
  copy.attr = attr.attr;
  copy.comp_mask = attr.comp_mask;
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0) copy.srq_type = attr.srq_type;
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0) copy.pd = attr.pd;
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) != 0) copy.xrcd = attr.xrcd;
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0) copy.cq = attr.cq;
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_TM) != 0) copy.tm_cap = attr.tm_cap;
  return copy;
}

ibv_srq* make_srq(ibv_context* context, ibv_srq_init_attr_ex& attr) noexcept {
  if (const int code = check(context, attr)) return refuse(code);
  const weft_verbs_ops& ops = ops_of(context);
  ibv_srq* srq = call(ops.create_srq, context, &attr);
  if (srq == nullptr) return nullptr;
  srq->context = context;
  srq->srq_context = attr.srq_context;
  srq->pd = attr.pd;
  srq->events_completed = 0;
  init_waiting(srq->mutex, srq->cond);
  if (const int code = events_of(context).add(srq, nullptr, {attr.cq}))
    return undone(srq, ops.destroy_srq, code);
  return srq;
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, uint32_t& completed, uint32_t count) noexcept {
  pthread_mutex_lock(&mutex);
  completed += count;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}

}  // namespace

ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int vector) noexcept {
  if (cqe <= 0 || vector < 0)
    return refuse(
        EINVAL, "ibv_create_cq: a completion queue has at least one entry, and comp_vector is not negative");
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<uint32_t>(cqe);
  attr.cq_context = cq_context;
  attr.channel = channel;
  attr.comp_vector = static_cast<uint32_t>(vector);
  ibv_cq_ex* cq = make_cq(context, attr);
  return cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept {
  if (attr == nullptr) return refuse(EINVAL);
  ibv_cq_init_attr_ex copy{};
  copy.cqe = attr->cqe;
  copy.cq_context = attr->cq_context;
  copy.channel = attr->channel;
  copy.comp_vector = attr->comp_vector;
  copy.wc_flags = attr->wc_flags;
  copy.comp_mask = attr->comp_mask;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0) copy.flags = attr->flags;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) copy.parent_domain = attr->parent_domain;
  return make_cq(context, copy);
}

int resize_cq(ibv_cq* cq, int cqe) noexcept {
  return cqe > 0 ? call(ops_of(cq->context).resize_cq, cq, cqe) : EINVAL;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept {
  if (attr == nullptr || unknown(attr->attr_mask, IBV_CQ_ATTR_MODERATE)) return EINVAL;
  return call(ops_of(cq->context).modify_cq, cq, attr);
}

int destroy_cq(ibv_cq* cq) noexcept {
  const weft_verbs_ops& ops = ops_of(cq->context);
  if (ops.destroy_cq == nullptr) return EOPNOTSUPP;
  Events& events = events_of(cq->context);
  Events::Leaving leaving;
  if (const int code = events.begin_destroy(cq, &leaving))
    return says(code, "ibv_destroy_cq: queue pairs or receive queues use the completion queue");
  wait_acknowledged(cq->mutex, cq->cond, cq->comp_events_completed, leaving.completion);
  wait_acknowledged(cq->mutex, cq->cond, cq->async_events_completed, leaving.async);
  const int code = ops.destroy_cq(cq);
  events.end_destroy(leaving, code == 0);
  return code;
}

void ack_cq_events(ibv_cq* cq, unsigned count) noexcept {
  if (count != 0) acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, count);
}

void ack_async_event(ibv_async_event* event) noexcept {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: {
      ibv_cq& cq = *event->element.cq;
      return acknowledge(cq.mutex, cq.cond, cq.async_events_completed, 1);
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
      ibv_qp& qp = *event->element.qp;
      return acknowledge(qp.mutex, qp.cond, qp.events_completed, 1);
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
      ibv_srq& srq = *event->element.srq;
      return acknowledge(srq.mutex, srq.cond, srq.events_completed, 1);
    }
    default:
      return;
  }
}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) noexcept {
  if (pd == nullptr || attr == nullptr) return refuse(EINVAL);
  ibv_srq_init_attr_ex copy{};
  copy.srq_context = attr->srq_context;
  copy.attr = attr->attr;
  copy.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  copy.srq_type = IBV_SRQT_BASIC;
  copy.pd = pd;
  ibv_srq* srq = make_srq(pd->context, copy);
  if (srq != nullptr) attr->attr = copy.attr;
  return srq;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept {
  if (attr == nullptr) return refuse(EINVAL);
  ibv_srq_init_attr_ex copy = copy_of(*attr);
  ibv_srq* srq = make_srq(context, copy);
  if (srq != nullptr) attr->attr = copy.attr;
  return srq;
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) noexcept {
  if (attr == nullptr || unknown(static_cast<unsigned>(mask), IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) return EINVAL;
  return call(ops_of(srq->context).modify_srq, srq, attr, mask);
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) noexcept {
  return attr != nullptr ? call(ops_of(srq->context).query_srq, srq, attr) : EINVAL;
}

int get_srq_num(ibv_srq* srq, uint32_t* number) noexcept {
  return number != nullptr ? call(ops_of(srq->context).get_srq_num, srq, number) : EINVAL;
}

int destroy_srq(ibv_srq* srq) noexcept {
  const weft_verbs_ops& ops = ops_of(srq->context);
  if (ops.destroy_srq == nullptr) return EOPNOTSUPP;
  Events& events = events_of(srq->context);
  Events::Leaving leaving;
  if (const int code = events.begin_destroy(srq, &leaving))
    return says(code, "ibv_destroy_srq: queue pairs use the shared receive queue");
  wait_acknowledged(srq->mutex, srq->cond, srq->events_completed, leaving.async);
  const int code = ops.destroy_srq(srq);
  events.end_destroy(leaving, code == 0);
  return code;
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) noexcept {
  constexpr uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr == nullptr || attr->comp_mask != needed) return refuse(EINVAL);
  ibv_xrcd* xrcd = call(ops_of(context).open_xrcd, context, attr);
  if (xrcd != nullptr) xrcd->context = context;
  return xrcd;
}

int close_xrcd(ibv_xrcd* xrcd) noexcept { return call(ops_of(xrcd->context).close_xrcd, xrcd); }

}  // namespace weft::verbs
