// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data calls of an endpoint: fi_msg(3), fi_tagged(3), fi_rma(3), fi_atomic(3). Each turns its arguments into a request and hands it to
// the engine under the lock that was chosen when the endpoint was opened.
#pragma once

#include <array>

#include "api/libfabric/endpoints/atomic_request.hpp"
#include "api/libfabric/endpoints/endpoint.hpp"
#include "api/libfabric/endpoints/trigger.hpp"

namespace weft::fi {

// Operation flags that only direct the call and never come from op_flags.
inline constexpr uint64_t receive_default_flags = FI_COMPLETION | FI_MULTI_RECV;

template <class E, class Lock>
struct DataOps {
  using P = Port;
  static P& port(fid_ep* ep) noexcept { return port_of(ep); }
  static E& engine(const P& p) noexcept { return engine_of<E>(p); }
  static auto& rx(const P& p) noexcept { return rx_of<E>(p); }

  // --- receiving ---
  static ssize_t receive(P& p, bool tagged, const iovec* iov, size_t count, fi_addr_t source, uint64_t tag,
                         uint64_t ignore, void* context, uint64_t flags) noexcept {
    Lock guard(*p.lock);
    proto::ReceiveRequest request;
    request.iov = iov;
    request.iov_count = count;
    request.source = source;
    request.tag = tag;
    request.ignore = ignore;
    request.context = context;
    request.flags = flags;
    request.tagged = tagged;
    request.extra_counter = p.extra_counter;
    if ((flags & FI_PEEK) != 0) {
      drive(p);
      return rx(p).peek(request);
    }
    if constexpr (proto::ConnectedEngine<E>)
      if (is_over(p)) return receive_rest(p, request);
    return driven(p, rx(p).receive(request));
  }
  // A connection has ended: only what had come before is still received.
  static bool is_over(const P& p) noexcept {
    if constexpr (proto::ConnectedEngine<E>) return p.engine != nullptr && engine(p).gone() && !rx(p).shared;
    return false;
  }
  static ssize_t receive_rest(P& p, const proto::ReceiveRequest& request) noexcept {
    const bool claims = (request.flags & FI_CLAIM) != 0;
    if (!claims && !rx(p).has_unexpected(request)) return -FI_ENOTCONN;
    const ssize_t status = rx(p).receive(request);
    rx(p).end_posted(FI_ECANCELED,
                     core::ProviderError::PeerClosed);  // what is left of a multi-receive buffer
    return status;
  }
  // What has arrived is taken; of a shared receive context by all its endpoints, where the caller's thread may drive them.
  static void drive(P& p) noexcept {
    if (p.engine != nullptr) return engine(p).progress();
    if (p.receiver == nullptr || (!p.lock->enabled && p.domain->threading != FI_THREAD_DOMAIN)) return;
    for (const auto& sharer : p.receiver->sharers) sharer.engine->progress();
  }
  // A program that only retries must still move.
  static ssize_t driven(P& p, ssize_t status) noexcept {
    if (status == -FI_EAGAIN) [[unlikely]]
      drive(p);
    return status;
  }
  static ssize_t tagged_rest(P& p, void* buf, size_t len, uint64_t tag, uint64_t ignore,
                             void* context) noexcept {
    const iovec part{buf, len};
    proto::ReceiveRequest request;
    request.iov = &part;
    request.iov_count = 1;
    request.tag = tag;
    request.ignore = ignore;
    request.context = context;
    request.flags = p.rx->op_flags;
    request.tagged = true;
    return receive_rest(p, request);
  }
  static ssize_t recv(fid_ep* ep, void* buf, size_t len, void*, fi_addr_t src, void* context) {
    const iovec part{buf, len};
    return receive(port(ep), false, &part, 1, src, 0, 0, context, port(ep).rx->op_flags);
  }
  static ssize_t recvv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t src, void* context) {
    return receive(port(ep), false, iov, count, src, 0, 0, context, port(ep).rx->op_flags);
  }
  static ssize_t recvmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) {
    if constexpr (proto::RunsDeferredWork<E>)
      if ((flags & FI_TRIGGER) != 0) return defer_message(work_target_of(port(ep)), FI_OP_RECV, *msg, flags);
    return receive(port(ep), false, msg->msg_iov, msg->iov_count, msg->addr, 0, 0, msg->context, flags);
  }
  static ssize_t trecv(fid_ep* ep, void* buf, size_t len, void*, fi_addr_t src, uint64_t tag, uint64_t ignore,
                       void* context) {
    P& p = port(ep);
    if constexpr (!proto::HasShortReceives<typename E::Receive>) {
      const iovec part{buf, len};
      return receive(p, true, &part, 1, src, tag, ignore, context, p.rx->op_flags);
    } else {
      return trecv_short(p, buf, len, src, tag, ignore, context);
    }
  }
  [[gnu::always_inline]] static ssize_t trecv_short(P& p, void* buf, size_t len, fi_addr_t src, uint64_t tag,
                                                    uint64_t ignore, void* context) {
    {
      Lock guard(*p.lock);
      if constexpr (proto::ConnectedEngine<E>) {
        if (is_over(p)) return tagged_rest(p, buf, len, tag, ignore, context);
      }
      if (rx(p).post_plain(buf, len, src, tag, ignore, context)) [[likely]]
        return 0;
    }
    return trecv_slow(p, buf, len, src, tag, ignore, context);
  }
  [[gnu::noinline]] static ssize_t trecv_slow(P& p, void* buf, size_t len, fi_addr_t src, uint64_t tag,
                                              uint64_t ignore, void* context) {
    Lock guard(*p.lock);
    return driven(p, rx(p).receive_tagged(buf, len, src, tag, ignore, context));
  }
  static ssize_t trecvv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t src, uint64_t tag,
                        uint64_t ignore, void* context) {
    return receive(port(ep), true, iov, count, src, tag, ignore, context, port(ep).rx->op_flags);
  }
  static ssize_t trecvmsg(fid_ep* ep, const fi_msg_tagged* msg, uint64_t flags) {
    if ((flags & FI_TRIGGER) != 0) return defer_tagged(work_target_of(port(ep)), FI_OP_TRECV, *msg, flags);
    return receive(port(ep), true, msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->ignore,
                   msg->context, flags);
  }

  // --- sending ---
  static proto::Request message(bool tagged, const iovec* iov, size_t count, fi_addr_t dest, uint64_t tag,
                                void* context, uint64_t flags) noexcept {
    proto::Request request;
    request.tagged = tagged;
    request.iov = iov;
    request.iov_count = count;
    request.dest = dest;
    request.tag = tag;
    request.context = context;
    request.flags = flags;
    return request;
  }
  static ssize_t post(P& p, proto::Request& request) noexcept {
    Lock guard(*p.lock);
    request.extra_counter = p.extra_counter;
    return engine(p).post(p.quiet == nullptr ? *p.tx : *p.quiet, request);
  }
  template <bool tagged>
  static ssize_t send_one(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t tag,
                          void* context) {
    P& p = port(ep);
    if constexpr (proto::HasShortCalls<E>) {
      Lock guard(*p.lock);
      return engine(p).template send<tagged>(*p.tx, buf, len, dest, tag, context);
    } else {
      const iovec part{const_cast<void*>(buf), len};
      proto::Request request = message(tagged, &part, 1, dest, tag, context, p.tx->op_flags);
      return post(p, request);
    }
  }
  static ssize_t send(fid_ep* ep, const void* buf, size_t len, void*, fi_addr_t dest, void* context) {
    return send_one<false>(ep, buf, len, dest, 0, context);
  }
  static ssize_t tsend(fid_ep* ep, const void* buf, size_t len, void*, fi_addr_t dest, uint64_t tag,
                       void* context) {
    return send_one<true>(ep, buf, len, dest, tag, context);
  }
  static ssize_t sendv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t dest, void* context) {
    proto::Request request = message(false, iov, count, dest, 0, context, port(ep).tx->op_flags);
    return post(port(ep), request);
  }
  static ssize_t tsendv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t dest, uint64_t tag,
                        void* context) {
    proto::Request request = message(true, iov, count, dest, tag, context, port(ep).tx->op_flags);
    return post(port(ep), request);
  }
  static ssize_t sendmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) {
    if constexpr (proto::RunsDeferredWork<E>)
      if ((flags & FI_TRIGGER) != 0) return defer_message(work_target_of(port(ep)), FI_OP_SEND, *msg, flags);
    proto::Request request = message(false, msg->msg_iov, msg->iov_count, msg->addr, 0, msg->context, flags);
    request.data = msg->data;
    return post(port(ep), request);
  }
  static ssize_t tsendmsg(fid_ep* ep, const fi_msg_tagged* msg, uint64_t flags) {
    if ((flags & FI_TRIGGER) != 0) return defer_tagged(work_target_of(port(ep)), FI_OP_TSEND, *msg, flags);
    proto::Request request =
        message(true, msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->context, flags);
    request.data = msg->data;
    return post(port(ep), request);
  }
  template <bool tagged>
  static ssize_t inject_one(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t tag) {
    P& p = port(ep);
    if constexpr (proto::HasShortCalls<E>) {
      Lock guard(*p.lock);
      return engine(p).template inject<tagged>(*p.tx, buf, len, dest, tag);
    } else {
      const iovec part{const_cast<void*>(buf), len};
      proto::Request request = message(tagged, &part, 1, dest, tag, nullptr, inject_flags(p));
      request.silent = true;
      return post(p, request);
    }
  }
  // For programs that are linked directly, of domains without a lock.
  static ssize_t inject_direct(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest) {
    return engine(port(ep)).template inject_cached<false>(*port(ep).tx, buf, len, dest, 0);
  }
  static ssize_t tinject_direct(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t tag) {
    return engine(port(ep)).template inject_cached<true>(*port(ep).tx, buf, len, dest, tag);
  }
  static ssize_t inject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest) {
    return inject_one<false>(ep, buf, len, dest, 0);
  }
  static ssize_t tinject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t tag) {
    return inject_one<true>(ep, buf, len, dest, tag);
  }
  template <bool tagged>
  static ssize_t data_one(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                          uint64_t tag, void* context) {
    P& p = port(ep);
    if constexpr (proto::HasShortDataCalls<E>) {
      Lock guard(*p.lock);
      if (engine(p).template send_data<tagged>(*p.tx, buf, len, data, dest, tag, context)) [[likely]]
        return 0;
    }
    const iovec part{const_cast<void*>(buf), len};
    proto::Request request =
        message(tagged, &part, 1, dest, tag, context, port(ep).tx->op_flags | FI_REMOTE_CQ_DATA);
    request.data = data;
    return post(port(ep), request);
  }
  static ssize_t senddata(fid_ep* ep, const void* buf, size_t len, void*, uint64_t data, fi_addr_t dest,
                          void* context) {
    if constexpr (E::abilities.data_bytes == 0) return -FI_ENOSYS;
    else return data_one<false>(ep, buf, len, data, dest, 0, context);
  }
  static ssize_t tsenddata(fid_ep* ep, const void* buf, size_t len, void*, uint64_t data, fi_addr_t dest,
                           uint64_t tag, void* context) {
    return data_one<true>(ep, buf, len, data, dest, tag, context);
  }
  static uint64_t inject_flags(const P& p) noexcept {
    return (p.tx->op_flags & ~(proto::acknowledged_flags | FI_COMPLETION)) | FI_INJECT;
  }
  template <bool tagged>
  static ssize_t inject_data_one(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                                 uint64_t tag) {
    P& p = port(ep);
    if constexpr (proto::HasShortDataCalls<E>) {
      Lock guard(*p.lock);
      if (engine(p).template inject_data<tagged>(*p.tx, buf, len, data, dest, tag)) [[likely]]
        return 0;
    }
    return inject_data_slow<tagged>(ep, buf, len, data, dest, tag);
  }
  template <bool tagged>
  [[gnu::noinline]] static ssize_t inject_data_slow(fid_ep* ep, const void* buf, size_t len, uint64_t data,
                                                    fi_addr_t dest, uint64_t tag) {
    const iovec part{const_cast<void*>(buf), len};
    proto::Request request =
        message(tagged, &part, 1, dest, tag, nullptr, inject_flags(port(ep)) | FI_REMOTE_CQ_DATA);
    request.data = data;
    request.silent = true;
    return post(port(ep), request);
  }
  static ssize_t injectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest) {
    if constexpr (E::abilities.data_bytes == 0) return -FI_ENOSYS;
    else return inject_data_one<false>(ep, buf, len, data, dest, 0);
  }
  static ssize_t tinjectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                             uint64_t tag) {
    return inject_data_one<true>(ep, buf, len, data, dest, tag);
  }

  // --- RMA ---
  static ssize_t rma(P& p, proto::OpKind kind, const iovec* iov, size_t count, fi_addr_t peer,
                     const fi_rma_iov* targets, size_t target_count, uint64_t data, void* context,
                     uint64_t flags, bool silent = false) noexcept {
    proto::Request request = message(false, iov, count, peer, 0, context, flags);
    request.kind = kind;
    request.targets = targets;
    request.target_count = target_count;
    request.data = data;
    request.silent = silent;
    return post(p, request);
  }
  static ssize_t read(fid_ep* ep, void* buf, size_t len, void*, fi_addr_t src, uint64_t addr, uint64_t key,
                      void* context) {
    const iovec part{buf, len};
    const fi_rma_iov target{addr, len, key};
    return rma(port(ep), proto::OpKind::Read, &part, 1, src, &target, 1, 0, context, port(ep).tx->op_flags);
  }
  static ssize_t readv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t src, uint64_t addr,
                       uint64_t key, void* context) {
    const fi_rma_iov target{addr, proto::total_bytes(iov, count), key};
    return rma(port(ep), proto::OpKind::Read, iov, count, src, &target, 1, 0, context, port(ep).tx->op_flags);
  }
  static ssize_t readmsg(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) {
    if ((flags & FI_TRIGGER) != 0) return defer_rma(work_target_of(port(ep)), FI_OP_READ, *msg, flags);
    return rma(port(ep), proto::OpKind::Read, msg->msg_iov, msg->iov_count, msg->addr, msg->rma_iov,
               msg->rma_iov_count, 0, msg->context, flags);
  }
  static ssize_t write(fid_ep* ep, const void* buf, size_t len, void*, fi_addr_t dest, uint64_t addr,
                       uint64_t key, void* context) {
    const iovec part{const_cast<void*>(buf), len};
    const fi_rma_iov target{addr, len, key};
    return rma(port(ep), proto::OpKind::Write, &part, 1, dest, &target, 1, 0, context, port(ep).tx->op_flags);
  }
  static ssize_t writev(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t dest, uint64_t addr,
                        uint64_t key, void* context) {
    const fi_rma_iov target{addr, proto::total_bytes(iov, count), key};
    return rma(port(ep), proto::OpKind::Write, iov, count, dest, &target, 1, 0, context,
               port(ep).tx->op_flags);
  }
  static ssize_t writemsg(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) {
    if ((flags & FI_TRIGGER) != 0) return defer_rma(work_target_of(port(ep)), FI_OP_WRITE, *msg, flags);
    return rma(port(ep), proto::OpKind::Write, msg->msg_iov, msg->iov_count, msg->addr, msg->rma_iov,
               msg->rma_iov_count, msg->data, msg->context, flags);
  }
  static ssize_t inject_write(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t addr,
                              uint64_t key) {
    const iovec part{const_cast<void*>(buf), len};
    const fi_rma_iov target{addr, len, key};
    return rma(port(ep), proto::OpKind::Write, &part, 1, dest, &target, 1, 0, nullptr, inject_flags(port(ep)),
               true);
  }
  static ssize_t writedata(fid_ep* ep, const void* buf, size_t len, void*, uint64_t data, fi_addr_t dest,
                           uint64_t addr, uint64_t key, void* context) {
    const iovec part{const_cast<void*>(buf), len};
    const fi_rma_iov target{addr, len, key};
    return rma(port(ep), proto::OpKind::Write, &part, 1, dest, &target, 1, data, context,
               port(ep).tx->op_flags | FI_REMOTE_CQ_DATA);
  }
  static ssize_t inject_writedata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                                  uint64_t addr, uint64_t key) {
    const iovec part{const_cast<void*>(buf), len};
    const fi_rma_iov target{addr, len, key};
    return rma(port(ep), proto::OpKind::Write, &part, 1, dest, &target, 1, data, nullptr,
               inject_flags(port(ep)) | FI_REMOTE_CQ_DATA, true);
  }

  // --- atomics ---
  static ssize_t atomic(P& p, const AtomicCall& call, fi_addr_t dest, const fi_rma_ioc* targets,
                        size_t target_count, fi_datatype datatype, fi_op op, uint64_t data, void* context,
                        uint64_t flags, bool silent = false) noexcept {
    AtomicRequest made;
    if (const int status = made.build(call, targets, target_count, datatype, op, data, silent); status != 0)
      return status;
    made.request.dest = dest;
    made.request.context = context;
    made.request.flags = flags;
    return post(p, made.request);
  }
  static ssize_t atomic_writev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_addr_t dest,
                               uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    size_t elements = 0;
    for (size_t i = 0; i < count; ++i) elements += iov[i].count;
    const fi_rma_ioc target{addr, elements, key};
    return atomic(port(ep), {core::AtomicKind::Write, iov, count}, dest, &target, 1, datatype, op, 0, context,
                  port(ep).tx->op_flags);
  }
  static ssize_t atomic_write(fid_ep* ep, const void* buf, size_t count, void*, fi_addr_t dest, uint64_t addr,
                              uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const fi_ioc part{const_cast<void*>(buf), count};
    return atomic_writev(ep, &part, nullptr, 1, dest, addr, key, datatype, op, context);
  }
  static ssize_t atomic_writemsg(fid_ep* ep, const fi_msg_atomic* msg, uint64_t flags) {
    if ((flags & FI_TRIGGER) != 0)
      return defer_atomic(work_target_of(port(ep)), FI_OP_ATOMIC, *msg, nullptr, nullptr, flags);
    return atomic(port(ep), {core::AtomicKind::Write, msg->msg_iov, msg->iov_count}, msg->addr, msg->rma_iov,
                  msg->rma_iov_count, msg->datatype, msg->op, msg->data, msg->context, flags);
  }
  static ssize_t atomic_inject(fid_ep* ep, const void* buf, size_t count, fi_addr_t dest, uint64_t addr,
                               uint64_t key, fi_datatype datatype, fi_op op) {
    const fi_ioc part{const_cast<void*>(buf), count};
    const fi_rma_ioc target{addr, count, key};
    return atomic(port(ep), {core::AtomicKind::Write, &part, 1}, dest, &target, 1, datatype, op, 0, nullptr,
                  inject_flags(port(ep)), true);
  }
  static ssize_t fetchv(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_ioc* resultv, void**,
                        size_t result_count, fi_addr_t dest, uint64_t addr, uint64_t key,
                        fi_datatype datatype, fi_op op, void* context) {
    size_t elements = 0;
    for (size_t i = 0; i < result_count; ++i) elements += resultv[i].count;
    const fi_rma_ioc target{addr, elements, key};
    return atomic(port(ep), {core::AtomicKind::Fetch, iov, count, nullptr, 0, resultv, result_count}, dest,
                  &target, 1, datatype, op, 0, context, port(ep).tx->op_flags);
  }
  static ssize_t fetch(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t dest,
                       uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const fi_ioc part{const_cast<void*>(buf), count};
    fi_ioc old{result, count};
    return fetchv(ep, &part, nullptr, 1, &old, nullptr, 1, dest, addr, key, datatype, op, context);
  }
  static ssize_t fetchmsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* resultv, void**, size_t result_count,
                          uint64_t flags) {
    if ((flags & FI_TRIGGER) != 0) {
      const fi_msg_fetch results{resultv, nullptr, result_count};
      return defer_atomic(work_target_of(port(ep)), FI_OP_FETCH_ATOMIC, *msg, &results, nullptr, flags);
    }
    return atomic(
        port(ep), {core::AtomicKind::Fetch, msg->msg_iov, msg->iov_count, nullptr, 0, resultv, result_count},
        msg->addr, msg->rma_iov, msg->rma_iov_count, msg->datatype, msg->op, msg->data, msg->context, flags);
  }
  static ssize_t comparev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, const fi_ioc* cmp, void**,
                          size_t cmp_count, fi_ioc* resultv, void**, size_t result_count, fi_addr_t dest,
                          uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    size_t elements = 0;
    for (size_t i = 0; i < count; ++i) elements += iov[i].count;
    const fi_rma_ioc target{addr, elements, key};
    return atomic(port(ep), {core::AtomicKind::Compare, iov, count, cmp, cmp_count, resultv, result_count},
                  dest, &target, 1, datatype, op, 0, context, port(ep).tx->op_flags);
  }
  static ssize_t compare(fid_ep* ep, const void* buf, size_t count, void*, const void* cmp, void*,
                         void* result, void*, fi_addr_t dest, uint64_t addr, uint64_t key,
                         fi_datatype datatype, fi_op op, void* context) {
    const fi_ioc part{const_cast<void*>(buf), count};
    const fi_ioc against{const_cast<void*>(cmp), count};
    fi_ioc old{result, count};
    return comparev(ep, &part, nullptr, 1, &against, nullptr, 1, &old, nullptr, 1, dest, addr, key, datatype,
                    op, context);
  }
  static ssize_t comparemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* cmp, void**, size_t cmp_count,
                            fi_ioc* resultv, void**, size_t result_count, uint64_t flags) {
    if ((flags & FI_TRIGGER) != 0) {
      const fi_msg_fetch results{resultv, nullptr, result_count};
      const fi_msg_compare compares{cmp, nullptr, cmp_count};
      return defer_atomic(work_target_of(port(ep)), FI_OP_COMPARE_ATOMIC, *msg, &results, &compares, flags);
    }
    return atomic(
        port(ep),
        {core::AtomicKind::Compare, msg->msg_iov, msg->iov_count, cmp, cmp_count, resultv, result_count},
        msg->addr, msg->rma_iov, msg->rma_iov_count, msg->datatype, msg->op, msg->data, msg->context, flags);
  }
  template <core::AtomicKind kind>
  static int atomic_valid(fid_ep*, fi_datatype datatype, fi_op op, size_t* count) {
    if (!core::atomic_supported(static_cast<uint32_t>(datatype), static_cast<uint32_t>(op), kind))
      return -FI_EOPNOTSUPP;
    if (count != nullptr)
      *count = proto::atomic_bytes_max / core::datatype_size(static_cast<uint32_t>(datatype));
    return 0;
  }

  static fi_ops_msg msg_ops;
  static fi_ops_tagged tagged_ops;
  static fi_ops_rma rma_ops;
  static fi_ops_atomic atomic_ops;
};

template <class E, class Lock>
fi_ops_msg DataOps<E, Lock>::msg_ops = {
    sizeof(fi_ops_msg), recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata};
template <class E, class Lock>
fi_ops_tagged DataOps<E, Lock>::tagged_ops = {
    sizeof(fi_ops_tagged), trecv, trecvv, trecvmsg, tsend, tsendv, tsendmsg, tinject, tsenddata, tinjectdata};
template <class E, class Lock>
fi_ops_rma DataOps<E, Lock>::rma_ops = {
    sizeof(fi_ops_rma), read,         readv,     readmsg,         write, writev,
    writemsg,           inject_write, writedata, inject_writedata};
template <class E, class Lock>
fi_ops_atomic DataOps<E, Lock>::atomic_ops = {sizeof(fi_ops_atomic),
                                              atomic_write,
                                              atomic_writev,
                                              atomic_writemsg,
                                              atomic_inject,
                                              fetch,
                                              fetchv,
                                              fetchmsg,
                                              compare,
                                              comparev,
                                              comparemsg,
                                              atomic_valid<core::AtomicKind::Write>,
                                              atomic_valid<core::AtomicKind::Fetch>,
                                              atomic_valid<core::AtomicKind::Compare>};

// Entries of vectors that do nothing but say so.
template <int error>
struct Answer {
  template <class R, class... Arguments>
  using Function = R (*)(Arguments...);
  template <class R, class... Arguments>
  operator Function<R, Arguments...>() const noexcept {  // NOLINT(google-explicit-constructor)
    return [](Arguments...) -> R { return -error; };
  }
};
template <int error>
struct AnsweringOps {
  static inline const Answer<error> no{};
  static inline fi_ops_msg msg_ops = {sizeof(fi_ops_msg), no, no, no, no, no, no, no, no, no};
  static inline fi_ops_tagged tagged_ops = {sizeof(fi_ops_tagged), no, no, no, no, no, no, no, no, no};
  static inline fi_ops_rma rma_ops = {sizeof(fi_ops_rma), no, no, no, no, no, no, no, no, no};
  static inline fi_ops_atomic atomic_ops = {
      sizeof(fi_ops_atomic), no, no, no, no, no, no, no, no, no, no, no, no, no};
};
using RefusingOps =
    AnsweringOps<FI_EOPBADSTATE>;           // before fi_enable an endpoint moves no data (fi_endpoint(3))
using NoSuchOps = AnsweringOps<FI_ENOSYS>;  // what the engine cannot do

// Contexts have one half of the calls (fi_endpoint(3), scalable endpoints): the other half is refused.
template <class Ops>
struct TransmitOnly {
  static inline const Answer<FI_EOPBADSTATE> no{};
  static inline fi_ops_msg msg_ops = {
      sizeof(fi_ops_msg), no, no, no, Ops::send, Ops::sendv, Ops::sendmsg, Ops::inject, Ops::senddata,
      Ops::injectdata};
  static inline fi_ops_tagged tagged_ops = {
      sizeof(fi_ops_tagged), no, no, no, Ops::tsend, Ops::tsendv, Ops::tsendmsg, Ops::tinject, Ops::tsenddata,
      Ops::tinjectdata};
  static inline fi_ops_rma& rma_ops = Ops::rma_ops;
  static inline fi_ops_atomic& atomic_ops = Ops::atomic_ops;
};
template <class Ops>
struct ReceiveOnly {
  static inline const Answer<FI_EOPBADSTATE> no{};
  static inline fi_ops_msg msg_ops = {
      sizeof(fi_ops_msg), Ops::recv, Ops::recvv, Ops::recvmsg, no, no, no, no, no, no};
  static inline fi_ops_tagged tagged_ops = {
      sizeof(fi_ops_tagged), Ops::trecv, Ops::trecvv, Ops::trecvmsg, no, no, no, no, no, no};
  static inline fi_ops_rma& rma_ops = RefusingOps::rma_ops;
  static inline fi_ops_atomic& atomic_ops = RefusingOps::atomic_ops;
};

}  // namespace weft::fi
