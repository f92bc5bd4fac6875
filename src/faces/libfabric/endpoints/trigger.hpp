// Triggered operations and deferred work (fi_trigger(3)) of a port, whatever its link: what the data calls do
// with FI_TRIGGER, and how an operation that waited is posted. How they wait is in work_queue.hpp.
#pragma once

#include <rdma/fi_trigger.h>

#include "faces/libfabric/endpoints/endpoint.hpp"
#include "faces/libfabric/objects/work_queue.hpp"

namespace weft::fi {

template <class E, class Lock>
struct DataOps;

template <class E>
ssize_t post_deferred(fid_ep* ep, Deferral& work) noexcept {
  using Ops = DataOps<E, NoLock>;  // progress and everybody else who starts work holds the lock
  const auto& message = work.message;
  const uint64_t flags = work.flags;
  switch (work.type) {
    case FI_OP_RECV:
      return Ops::recvmsg(ep, &message.msg, flags);
    case FI_OP_SEND:
      return Ops::sendmsg(ep, &message.msg, flags);
    case FI_OP_TRECV:
      return Ops::trecvmsg(ep, &message.tagged, flags);
    case FI_OP_TSEND:
      return Ops::tsendmsg(ep, &message.tagged, flags);
    case FI_OP_READ:
      return Ops::readmsg(ep, &message.rma, flags);
    case FI_OP_WRITE:
      return Ops::writemsg(ep, &message.rma, flags);
    case FI_OP_ATOMIC:
      return Ops::atomic_writemsg(ep, &message.atomic, flags);
    case FI_OP_FETCH_ATOMIC:
      return Ops::fetchmsg(ep, &message.atomic, work.results.data(), nullptr, work.result_count, flags);
    case FI_OP_COMPARE_ATOMIC:
      return Ops::comparemsg(ep, &message.atomic, work.compares.data(), nullptr, work.compare_count,
                             work.results.data(), nullptr, work.result_count, flags);
    default:
      return -FI_ENOSYS;
  }
}

template <class E>
ssize_t start_deferred(Deferral& work) noexcept {
  auto& port = *static_cast<Port<E>*>(work.place.port);
  port.extra_counter = work.is_deferred_work() ? &work.relay : nullptr;
  port.quiet = work.is_quiet() ? &work.quiet : nullptr;
  const ssize_t status = post_deferred<E>(&port.fid, work);
  port.extra_counter = nullptr;
  port.quiet = nullptr;
  return status;
}

template <class E>
[[gnu::cold]] WorkPlace place_of(Port<E>& port) noexcept {
  WorkPlace place;
  place.domain = port.domain;
  place.lane = port.core != nullptr ? port.core->work.get() : nullptr;
  place.port = &port;
  place.tx = port.tx;
  place.rx = port.shared_receiver == nullptr ? port.rx : nullptr;
  place.caps = port.caps;
  place.enabled = port.enabled;
  place.inject_bytes = port.engine != nullptr ? port.engine->limits().inject_bytes : 0;
  place.start = start_deferred<E>;
  return place;
}

// FI_TRIGGER of a ...msg call: `msg.context` is a fi_triggered_context. Copies what it needs. 0 or -FI_E*.
ssize_t defer_message(const WorkPlace& place, fi_op_type type, const fi_msg& msg, uint64_t flags) noexcept;
ssize_t defer_tagged(const WorkPlace& place, fi_op_type type, const fi_msg_tagged& msg,
                     uint64_t flags) noexcept;
ssize_t defer_rma(const WorkPlace& place, fi_op_type type, const fi_msg_rma& msg, uint64_t flags) noexcept;
ssize_t defer_atomic(const WorkPlace& place, fi_op_type type, const fi_msg_atomic& msg,
                     const fi_msg_fetch* fetch, const fi_msg_compare* compare, uint64_t flags) noexcept;

}  // namespace weft::fi
