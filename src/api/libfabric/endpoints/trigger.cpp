// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Triggered contexts and the deferred work queue as programs fill them in (fi_trigger(3)): reads, checks,
// copies. Must not know which links exist, nor how work waits.
#include "api/libfabric/endpoints/trigger.hpp"

namespace weft::fi {

namespace {

int refuse(const Domain& domain, int code, const char* why) noexcept {
  log_warn(domain.provider->name, FI_LOG_EP_DATA, "deferred operation: %s", why);
  return -code;
}

bool is_receive(fi_op_type type) noexcept { return type == FI_OP_RECV || type == FI_OP_TRECV; }

// The counter behind a fid of this domain, or null.
Cntr* counter_of(const Domain& domain, fid_cntr* fid) noexcept {
  Cntr* cntr = fid != nullptr ? cntr_of(&fid->fid) : nullptr;
  return cntr != nullptr && &cntr->domain == &domain ? cntr : nullptr;
}

// What may be deferred on this port: 0 or -FI_E*, with a line in the log.
int check_target(const WorkTarget& work_target, fi_op_type type, uint64_t flags) noexcept {
  const Domain& domain = *work_target.domain;
  if (work_target.lane == nullptr) return refuse(domain, FI_ENOSYS, "a shared receive context takes none");
  if ((work_target.caps & FI_TRIGGER) == 0)
    return refuse(domain, FI_EOPNOTSUPP, "the endpoint was opened without FI_TRIGGER");
  if (!work_target.enabled) return refuse(domain, FI_EOPBADSTATE, "the endpoint is not enabled");
  if (!is_receive(type))
    return work_target.tx != nullptr ? 0 : refuse(domain, FI_EINVAL, "a receive context does not transmit");
  if (work_target.rx == nullptr)
    return refuse(domain, FI_ENOSYS, "the endpoint has no receive queue of its own");
  if ((flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) != 0)
    return refuse(domain, FI_ENOSYS, "FI_PEEK, FI_CLAIM and FI_DISCARD cannot wait for a counter");
  return 0;
}

// Reads the fi_triggered_context, and starts or queues the operation. 0 or -FI_E*.
ssize_t submit_triggered(std::unique_ptr<Deferral> work, const void* triggered_context) noexcept {
  Domain& domain = work->domain;
  // fi_triggered_context2 begins like fi_triggered_context.
  const auto* context = static_cast<const fi_triggered_context*>(triggered_context);
  if (context == nullptr) return refuse(domain, FI_EINVAL, "FI_TRIGGER needs a context");
  switch (number_of(context->event_type)) {
    case FI_TRIGGER_THRESHOLD:
      break;
    case FI_TRIGGER_XPU:
      return refuse(domain, FI_ENOSYS, "FI_TRIGGER_XPU is not there");
    default:
      return refuse(domain, FI_EINVAL, "the event type is none");
  }
  work->trigger = counter_of(domain, context->trigger.threshold.cntr);
  if (work->trigger == nullptr)
    return refuse(domain, FI_EINVAL, "the triggering counter is none of this domain");
  work->at = context->trigger.threshold.threshold;
  if ((work->flags & FI_INJECT) != 0)
    if (const int status = work->own_source(); status != 0) return status;
  return domain.work->submit(std::move(work));
}

// The body of defer_...: `take(work, flags)` copies the operation.
template <class Take>
ssize_t defer(const WorkTarget& work_target, fi_op_type type, const void* context, uint64_t flags,
              Take&& take) noexcept {
  if (const int status = check_target(work_target, type, flags); status != 0) return status;
  std::unique_ptr<Deferral> work(new (std::nothrow) Deferral(*work_target.domain));
  if (work == nullptr) return -FI_ENOMEM;
  work->work_target = work_target;
  if (const int status = take(*work, flags & ~uint64_t{FI_TRIGGER}); status != 0) return status;
  return submit_triggered(std::move(work), context);
}

// As the data call does, without a lock: progress and everybody else who starts work holds it.
ssize_t post(Port& port, Deferral& work) noexcept {
  const auto& [msg, tagged, rma, atomic] = port.type->unlocked.both;
  fid_ep* const ep = &port.fid;
  const auto& message = work.message;
  const uint64_t flags = work.flags;
  switch (work.type) {
    case FI_OP_RECV:
      return msg->recvmsg(ep, &message.msg, flags);
    case FI_OP_SEND:
      return msg->sendmsg(ep, &message.msg, flags);
    case FI_OP_TRECV:
      return tagged->recvmsg(ep, &message.tagged, flags);
    case FI_OP_TSEND:
      return tagged->sendmsg(ep, &message.tagged, flags);
    case FI_OP_READ:
      return rma->readmsg(ep, &message.rma, flags);
    case FI_OP_WRITE:
      return rma->writemsg(ep, &message.rma, flags);
    case FI_OP_ATOMIC:
      return atomic->writemsg(ep, &message.atomic, flags);
    case FI_OP_FETCH_ATOMIC:
      return atomic->readwritemsg(ep, &message.atomic, work.results.data(), nullptr, work.result_count,
                                  flags);
    case FI_OP_COMPARE_ATOMIC:
      return atomic->compwritemsg(ep, &message.atomic, work.compares.data(), nullptr, work.compare_count,
                                  work.results.data(), nullptr, work.result_count, flags);
    default:
      return -FI_ENOSYS;
  }
}

ssize_t start(Deferral& work) noexcept {
  auto& port = *static_cast<Port*>(work.work_target.port);
  port.extra_counter = work.is_deferred_work() ? &work.relay : nullptr;
  port.quiet = work.is_quiet() ? &work.quiet : nullptr;
  const ssize_t status = post(port, work);
  port.extra_counter = nullptr;
  port.quiet = nullptr;
  return status;
}

}  // namespace

WorkTarget work_target_of(Port& port) noexcept {
  WorkTarget work_target;
  work_target.domain = port.domain;
  work_target.lane = port.core != nullptr ? port.core->work : nullptr;
  work_target.port = &port;
  work_target.tx = port.tx;
  work_target.rx = port.shared_receiver == nullptr ? port.rx : nullptr;
  work_target.caps = port.caps;
  work_target.enabled = port.enabled;
  work_target.inject_bytes = port.core != nullptr ? port.core->limits().inject_bytes : 0;
  work_target.start = start;
  return work_target;
}

ssize_t defer_message(const WorkTarget& work_target, fi_op_type type, const fi_msg& msg,
                      uint64_t flags) noexcept {
  return defer(work_target, type, msg.context, flags,
               [&](Deferral& work, uint64_t own) { return work.take(type, msg, own); });
}
ssize_t defer_tagged(const WorkTarget& work_target, fi_op_type type, const fi_msg_tagged& msg,
                     uint64_t flags) noexcept {
  return defer(work_target, type, msg.context, flags,
               [&](Deferral& work, uint64_t own) { return work.take(type, msg, own); });
}
ssize_t defer_rma(const WorkTarget& work_target, fi_op_type type, const fi_msg_rma& msg,
                  uint64_t flags) noexcept {
  return defer(work_target, type, msg.context, flags,
               [&](Deferral& work, uint64_t own) { return work.take(type, msg, own); });
}
ssize_t defer_atomic(const WorkTarget& work_target, fi_op_type type, const fi_msg_atomic& msg,
                     const fi_msg_fetch* fetch, const fi_msg_compare* compare, uint64_t flags) noexcept {
  return defer(work_target, type, msg.context, flags,
               [&](Deferral& work, uint64_t own) { return work.take(type, msg, fetch, compare, own); });
}

// --- fi_control of the domain ---

int WorkQueue::control(int command, void* arg) {
  const auto* request = static_cast<const fi_deferred_work*>(arg);
  switch (command) {
    case FI_QUEUE_WORK:
      return request == nullptr ? -FI_EINVAL : queue_work(request);
    case FI_CANCEL_WORK:
      return request == nullptr ? -FI_EINVAL : cancel_work(request);
    case FI_FLUSH_WORK: {  // nothing, or a request of which only the triggering counter counts
      if (request == nullptr || request->triggering_cntr == nullptr) return flush_work(nullptr);
      const Cntr* trigger = counter_of(domain_, request->triggering_cntr);
      return trigger == nullptr ? refuse(domain_, FI_EINVAL, "the triggering counter is none of this domain")
                                : flush_work(trigger);
    }
    default:
      return -FI_ENOSYS;
  }
}

int WorkQueue::queue_work(const fi_deferred_work* request) {
  auto work = std::make_unique<Deferral>(domain_);
  if (const int status = fill(*work, *request); status != 0) return status;
  work->request = request;
  return submit(std::move(work));
}

int WorkQueue::fill(Deferral& work, const fi_deferred_work& request) const {
  work.trigger = counter_of(domain_, request.triggering_cntr);
  if (work.trigger == nullptr)
    return refuse(domain_, FI_EINVAL, "the triggering counter is none of this domain");
  work.at = request.threshold;
  work.with_errors = true;
  if (request.op.msg == nullptr) return refuse(domain_, FI_EINVAL, "the operation is missing");
  const int type = number_of(request.op_type);
  if (type == FI_OP_CNTR_SET || type == FI_OP_CNTR_ADD) {
    if (request.completion_cntr != nullptr)
      return refuse(domain_, FI_EINVAL, "an operation on a counter has no completion counter");
    work.type = request.op_type;
    return fill_counter_operation(work, *request.op.cntr);
  }
  if (type < FI_OP_RECV || type > FI_OP_COMPARE_ATOMIC)
    return refuse(domain_, FI_ENOSYS, "the operation's type is unknown");
  if (request.completion_cntr != nullptr) {
    work.completion = counter_of(domain_, request.completion_cntr);
    if (work.completion == nullptr)
      return refuse(domain_, FI_EINVAL, "the completion counter is none of this domain");
  }
  return fill_operation(work, request);
}

int WorkQueue::fill_counter_operation(Deferral& work, const fi_op_cntr& op) const {
  work.target = counter_of(domain_, op.cntr);
  if (work.target == nullptr)
    return refuse(domain_, FI_EINVAL, "the counter to change is none of this domain");
  work.value = op.value;
  return 0;
}

namespace {

// Every fi_op_... of a data transfer starts with its endpoint.
fid_ep* endpoint_of(const fi_deferred_work& request) noexcept { return request.op.msg->ep; }

int work_target_for(const Domain& domain, fid_ep* ep, WorkTarget& work_target) {
  if (ep == nullptr) return refuse(domain, FI_EINVAL, "the endpoint is missing");
  switch (ep->fid.fclass) {
    case FI_CLASS_EP:
    case FI_CLASS_TX_CTX:
    case FI_CLASS_RX_CTX:
    case FI_CLASS_SRX_CTX:
      break;
    default:
      return refuse(domain, FI_EINVAL, "the endpoint is none that moves data");
  }
  if (fi_control(&ep->fid, work_target_command, &work_target) != 0 || work_target.domain != &domain)
    return refuse(domain, FI_EINVAL, "the endpoint is none of this domain");
  return 0;
}

uint64_t flags_of(const fi_deferred_work& request) noexcept {
  switch (request.op_type) {
    case FI_OP_RECV:
    case FI_OP_SEND:
      return request.op.msg->flags;
    case FI_OP_TRECV:
    case FI_OP_TSEND:
      return request.op.tagged->flags;
    case FI_OP_READ:
    case FI_OP_WRITE:
      return request.op.rma->flags;
    case FI_OP_ATOMIC:
      return request.op.atomic->flags;
    case FI_OP_FETCH_ATOMIC:
      return request.op.fetch_atomic->flags;
    default:
      return request.op.compare_atomic->flags;
  }
}

}  // namespace

int WorkQueue::fill_operation(Deferral& work, const fi_deferred_work& request) const {
  if (const int status = work_target_for(domain_, endpoint_of(request), work.work_target); status != 0)
    return status;
  const fi_op_type type = request.op_type;
  const uint64_t flags = flags_of(request) & ~uint64_t{FI_TRIGGER};
  if (const int status = check_target(work.work_target, type, flags); status != 0) return status;
  if (is_receive(type) && (flags & FI_MULTI_RECV) != 0)
    return refuse(domain_, FI_ENOSYS, "a multi-receive buffer has no one completion to count");
  switch (type) {
    case FI_OP_RECV:
    case FI_OP_SEND:
      return work.take(type, request.op.msg->msg, flags);
    case FI_OP_TRECV:
    case FI_OP_TSEND:
      return work.take(type, request.op.tagged->msg, flags);
    case FI_OP_READ:
    case FI_OP_WRITE:
      return work.take(type, request.op.rma->msg, flags);
    case FI_OP_ATOMIC:
      return work.take(type, request.op.atomic->msg, nullptr, nullptr, flags);
    case FI_OP_FETCH_ATOMIC:
      return work.take(type, request.op.fetch_atomic->msg, &request.op.fetch_atomic->fetch, nullptr, flags);
    default:
      return work.take(type, request.op.compare_atomic->msg, &request.op.compare_atomic->fetch,
                       &request.op.compare_atomic->compare, flags);
  }
}

}  // namespace weft::fi
