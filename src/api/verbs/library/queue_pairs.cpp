// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs and multicast groups.
#include <cerrno>

#include "api/verbs/library/calls.hpp"

namespace weft::verbs {
namespace {

constexpr uint32_t init_known = (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS << 1) - 1;
// What no provider here has, for the interface has no words for it.
constexpr uint32_t init_unsupported =
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
constexpr uint32_t create_flags_known = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SCATTER_FCS |
                                        IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SOURCE_QPN |
                                        IBV_QP_CREATE_PCI_WRITE_END_PADDING;
constexpr unsigned modify_known = ((IBV_QP_DEST_QPN << 1) - 1) | IBV_QP_RATE_LIMIT;

template <class T>
bool of_another(const T* object, const ibv_context* context) noexcept {
  return object != nullptr && object->context != context;
}

// What comp_mask leaves out of the caller's struct is not read: the struct may end before it.
ibv_qp_init_attr_ex copy_of(const ibv_qp_init_attr_ex& attr) noexcept {
  ibv_qp_init_attr_ex copy{};
  copy.qp_context = attr.qp_context;
  copy.send_cq = attr.send_cq;
  copy.recv_cq = attr.recv_cq;
  copy.srq = attr.srq;
  copy.cap = attr.cap;
  copy.qp_type = attr.qp_type;
  copy.sq_sig_all = attr.sq_sig_all;
  copy.comp_mask = attr.comp_mask;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) != 0) copy.pd = attr.pd;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0) copy.xrcd = attr.xrcd;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0) {
    copy.create_flags = attr.create_flags;
    if ((attr.create_flags & IBV_QP_CREATE_SOURCE_QPN) != 0) copy.source_qpn = attr.source_qpn;
  }
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) copy.send_ops_flags = attr.send_ops_flags;
  return copy;
}

// The objects that a QP of its type needs: ibv_create_qp(3), ibv_create_qp_ex(3).
int check_objects(ibv_context* context, const ibv_qp_init_attr_ex& attr) noexcept {
  if (of_another(attr.pd, context) || of_another(attr.xrcd, context) || of_another(attr.send_cq, context) ||
      of_another(attr.recv_cq, context) || of_another(attr.srq, context))
    return EINVAL;
  switch (attr.qp_type) {
    case IBV_QPT_XRC_RECV:
      return attr.xrcd != nullptr ? 0 : EINVAL;
    case IBV_QPT_XRC_SEND:
      return attr.pd != nullptr && attr.send_cq != nullptr && attr.srq == nullptr ? 0 : EINVAL;
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
      return attr.pd != nullptr && attr.send_cq != nullptr && attr.recv_cq != nullptr ? 0 : EINVAL;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER:
      return attr.pd != nullptr ? 0 : EINVAL;
  }
  return EINVAL;
}

int check(ibv_context* context, const ibv_qp_init_attr_ex& attr) noexcept {
  const weft_verbs_ops& ops = ops_of(context);
  if (unknown(attr.comp_mask, init_known)) return says(EINVAL, "ibv_create_qp: unknown bits of comp_mask");
  if ((attr.comp_mask & init_unsupported) != 0)
    return says(EOPNOTSUPP, "ibv_create_qp: TSO, indirection tables and RSS are not there");
  if (unknown(attr.create_flags, create_flags_known))
    return says(EINVAL, "ibv_create_qp: unknown create_flags");
  if (unknown(attr.create_flags, ops.qp_create_flags))
    return says(EOPNOTSUPP, "ibv_create_qp: the device does not have these create_flags");
  if (unknown(attr.send_ops_flags, ops.send_ops_flags))
    return says(EOPNOTSUPP, "ibv_create_qp: the device does not have these send_ops_flags");
  const int code = check_objects(context, attr);
  return code == 0 ? 0
                   : says(code,
                          "ibv_create_qp: a queue pair of this type needs other objects (domain, completion "
                          "queues), "
                          "or one is of another context");
}

ibv_qp* make_qp(ibv_context* context, ibv_qp_init_attr_ex& attr) noexcept {
  if (const int code = check(context, attr)) return refuse(code);
  // ibv_create_qp(3): with a shared receive queue, these are ignored. No provider needs to know.
  if (attr.srq != nullptr) attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
  const weft_verbs_ops& ops = ops_of(context);
  ibv_qp* qp = call(ops.create_qp, context, &attr);
  if (qp == nullptr) return nullptr;
  qp->context = context;
  qp->qp_context = attr.qp_context;
  qp->pd = attr.pd;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->srq = attr.srq;
  qp->qp_type = attr.qp_type;
  qp->events_completed = 0;
  init_waiting(qp->mutex, qp->cond);
  if (const int code = events_of(context).add(qp, nullptr, {attr.send_cq, attr.recv_cq, attr.srq})) {
    call(ops.destroy_qp, qp);
    return refuse(code);
  }
  return qp;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) noexcept {
  if (pd == nullptr || attr == nullptr) return refuse(EINVAL);
  ibv_qp_init_attr_ex copy{};
  copy.qp_context = attr->qp_context;
  copy.send_cq = attr->send_cq;
  copy.recv_cq = attr->recv_cq;
  copy.srq = attr->srq;
  copy.cap = attr->cap;
  copy.qp_type = attr->qp_type;
  copy.sq_sig_all = attr->sq_sig_all;
  copy.comp_mask = IBV_QP_INIT_ATTR_PD;
  copy.pd = pd;
  ibv_qp* qp = make_qp(pd->context, copy);
  if (qp != nullptr) attr->cap = copy.cap;
  return qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept {
  if (attr == nullptr) return refuse(EINVAL);
  ibv_qp_init_attr_ex copy = copy_of(*attr);
  ibv_qp* qp = make_qp(context, copy);
  if (qp != nullptr) attr->cap = copy.cap;
  return qp;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) noexcept {
  constexpr uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (attr == nullptr || unknown(attr->comp_mask, IBV_QP_OPEN_ATTR_RESERVED - 1)) return refuse(EINVAL);
  if ((attr->comp_mask & needed) != needed || attr->qp_type != IBV_QPT_XRC_RECV) return refuse(EINVAL);
  if (attr->xrcd == nullptr || attr->xrcd->context != context) return refuse(EINVAL);
  ibv_qp_open_attr copy = *attr;
  if ((attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) == 0) copy.qp_context = nullptr;
  const weft_verbs_ops& ops = ops_of(context);
  ibv_qp* qp = call(ops.open_qp, context, &copy);
  if (qp == nullptr) return nullptr;
  qp->context = context;
  qp->qp_context = copy.qp_context;
  qp->pd = nullptr;
  qp->send_cq = nullptr;
  qp->recv_cq = nullptr;
  qp->srq = nullptr;
  qp->qp_type = copy.qp_type;
  qp->events_completed = 0;
  init_waiting(qp->mutex, qp->cond);
  if (const int code = events_of(context).add(qp)) {
    call(ops.destroy_qp, qp);
    return refuse(code);
  }
  return qp;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept {
  const auto convert = ops_of(qp->context).qp_to_qp_ex;
  ibv_qp_ex* const extended = convert != nullptr ? convert(qp) : nullptr;
  return extended != nullptr ? extended : refuse(EOPNOTSUPP);
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) noexcept {
  if (attr == nullptr || init == nullptr) return EINVAL;
  const int code = call(ops_of(qp->context).query_qp, qp, attr, mask, init);
  if (code == 0 && (mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return code;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept {
  if (attr == nullptr || unknown(static_cast<unsigned>(mask), modify_known))
    return says(EINVAL, "ibv_modify_qp: no attributes, or unknown bits of the mask");
  const int code = call(ops_of(qp->context).modify_qp, qp, attr, mask);
  if (code == 0 && (mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return code;
}

int destroy_qp(ibv_qp* qp) noexcept {
  const weft_verbs_ops& ops = ops_of(qp->context);
  if (ops.destroy_qp == nullptr) return EOPNOTSUPP;
  Events& events = events_of(qp->context);
  Events::Leaving leaving;
  if (const int code = events.begin_destroy(qp, &leaving)) return code;
  wait_acknowledged(qp->mutex, qp->cond, qp->events_completed, leaving.async);
  const int code = ops.destroy_qp(qp);
  events.end_destroy(leaving, code == 0);
  return code;
}

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept {
  return gid != nullptr ? call(ops_of(qp->context).attach_mcast, qp, gid, lid) : EINVAL;
}

int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept {
  return gid != nullptr ? call(ops_of(qp->context).detach_mcast, qp, gid, lid) : EINVAL;
}

}  // namespace weft::verbs
