// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables of a context: what programs call without passing an exported symbol.
#include "api/verbs/library/calls.hpp"

#include <cerrno>

#include "api/verbs/library/errno_guard.hpp"
#include "api/verbs/library/log.hpp"

namespace weft::verbs {
namespace {

// The data path of a provider that lacks a call.
int no_poll_cq(ibv_cq*, int, ibv_wc*) { return -(errno = EOPNOTSUPP); }
int no_notify(ibv_cq*, int) { return errno = EOPNOTSUPP; }
int no_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad) {
  *bad = wr;
  return errno = EOPNOTSUPP;
}
int no_recv(ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  *bad = wr;
  return errno = EOPNOTSUPP;
}
int no_srq_recv(ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  *bad = wr;
  return errno = EOPNOTSUPP;
}

// Slots of ibv_context_ops that no header has called for long.
void* no_such_call() { return refuse(EOPNOTSUPP); }

template <class Function>
Function* either(Function* function, Function* otherwise) noexcept {
  return function != nullptr ? function : otherwise;
}

// struct ibv_port_attr as it was before port_cap_flags2 was added.
int compat_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return errno_guarded<query_port>(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                                   offsetof(ibv_port_attr, port_cap_flags2));
}

// Flow steering in the two forms that headers have had: the slots that are placeholders today, and the calls.
ibv_flow* no_create_flow(ibv_qp*, ibv_flow_attr*) { return refuse(EOPNOTSUPP); }
int no_destroy_flow(ibv_flow*) { return errno = EOPNOTSUPP; }

ibv_context_ops context_ops(const weft_verbs_ops& provider) noexcept {
  ibv_context_ops ops{};
  ops._compat_query_device = errno_guarded<query_device>;
  ops._compat_query_port = compat_query_port;
  for (auto* slot : {&ops._compat_alloc_pd,    &ops._compat_dealloc_pd,   &ops._compat_reg_mr,
                     &ops._compat_rereg_mr,    &ops._compat_dereg_mr,     &ops._compat_create_cq,
                     &ops._compat_cq_event,    &ops._compat_resize_cq,    &ops._compat_destroy_cq,
                     &ops._compat_create_srq,  &ops._compat_modify_srq,   &ops._compat_query_srq,
                     &ops._compat_destroy_srq, &ops._compat_create_qp,    &ops._compat_query_qp,
                     &ops._compat_modify_qp,   &ops._compat_destroy_qp,   &ops._compat_create_ah,
                     &ops._compat_destroy_ah,  &ops._compat_attach_mcast, &ops._compat_detach_mcast,
                     &ops._compat_async_event})
    *slot = no_such_call;
  ops.alloc_mw = errno_guarded<alloc_mw>;
  ops.bind_mw = errno_guarded<bind_mw>;
  ops.dealloc_mw = errno_guarded<dealloc_mw>;
  ops.poll_cq = either(provider.poll_cq, no_poll_cq);
  ops.req_notify_cq = either(provider.req_notify_cq, no_notify);
  ops.post_send = either(provider.post_send, no_send);
  ops.post_recv = either(provider.post_recv, no_recv);
  ops.post_srq_recv = either(provider.post_srq_recv, no_srq_recv);
  return ops;
}

#ifdef WEFT_VERBS_NEXT
int limit_rate(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) {
  return guard_errno([&] { return call(ops_of(qp->context).modify_qp_rate_limit, qp, attr); });
}
#endif

}  // namespace

// What is left null is EOPNOTSUPP in the header: counters, device memory, work queues, flow actions, rate limits, tag matching.
void fill_calls(Context& context) noexcept {
  verbs_context& shown = context.shown;
  shown.context.ops = context_ops(context.ops);
  shown.query_port = errno_guarded<query_port>;
  shown.query_device_ex = errno_guarded<query_device_ex>;
  shown.query_rt_values = errno_guarded<query_values>;
  shown.advise_mr = errno_guarded<advise_mr>;
  shown.alloc_null_mr = errno_guarded<alloc_null_mr>;
  shown.alloc_parent_domain = errno_guarded<alloc_parent_domain>;
  shown.alloc_td = errno_guarded<alloc_td>;
  shown.dealloc_td = errno_guarded<dealloc_td>;
  shown.create_cq_ex = errno_guarded<create_cq_ex>;
  shown.modify_cq = errno_guarded<modify_cq>;
  shown.create_srq_ex = errno_guarded<create_srq_ex>;
  shown.get_srq_num = errno_guarded<get_srq_num>;
  shown.open_xrcd = errno_guarded<open_xrcd>;
  shown.close_xrcd = errno_guarded<close_xrcd>;
  shown.create_qp_ex = errno_guarded<create_qp_ex>;
  shown.open_qp = errno_guarded<open_qp>;
  shown.ibv_create_flow = no_create_flow;
  shown.ibv_destroy_flow = no_destroy_flow;
  shown.ABI_placeholder1 = reinterpret_cast<void (*)()>(no_create_flow);
  shown.ABI_placeholder2 = reinterpret_cast<void (*)()>(no_destroy_flow);
#ifdef WEFT_VERBS_NEXT
  shown.modify_qp_rate_limit = limit_rate;
#endif
}

int says(int code, const char* why) noexcept {
  log(Level::Information, "%s", why);
  return code;
}

void init_waiting(pthread_mutex_t& mutex, pthread_cond_t& cond) noexcept {
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
}

void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed,
                       uint32_t delivered) noexcept {
  pthread_mutex_lock(&mutex);
  while (static_cast<int32_t>(completed - delivered) < 0) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

}  // namespace weft::verbs
