// The data calls of an endpoint whose default flags have FI_TRIGGER (fi_ep_alias of fi_endpoint(3), FI_SETOPSFLAG): the calls without flags
// of their own are triggered operations, too (fi_trigger(3)), and their context is a fi_triggered_context. Injects have no context and are
// none. Must not know which links exist.
#pragma once

#include "faces/libfabric/endpoints/endpoint_data.hpp"

namespace weft::fi {

// The calls of `Ops`, with those of the directions that are triggered sent through the ...msg calls.
template <class E, class Ops, bool transmit, bool receive>
struct TriggeredOps {
  static uint64_t tx_flags(fid_ep* ep) noexcept { return port_of<E>(ep).tx->op_flags; }
  static uint64_t rx_flags(fid_ep* ep) noexcept { return port_of<E>(ep).receive_flags(); }

  // --- fi_msg(3), fi_tagged(3) ---
  static ssize_t recvv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t src,
                       void* context) {
    if constexpr (!receive) return Ops::recvv(ep, iov, desc, count, src, context);
    const fi_msg msg{iov, desc, count, src, context, 0};
    return Ops::recvmsg(ep, &msg, rx_flags(ep));
  }
  static ssize_t recv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t src, void* context) {
    if constexpr (!receive) return Ops::recv(ep, buf, len, desc, src, context);
    const iovec part{buf, len};
    return recvv(ep, &part, &desc, 1, src, context);
  }
  static ssize_t trecvv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t src, uint64_t tag,
                        uint64_t ignore, void* context) {
    if constexpr (!receive) return Ops::trecvv(ep, iov, desc, count, src, tag, ignore, context);
    const fi_msg_tagged msg{iov, desc, count, src, tag, ignore, context, 0};
    return Ops::trecvmsg(ep, &msg, rx_flags(ep));
  }
  static ssize_t trecv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t src, uint64_t tag,
                       uint64_t ignore, void* context) {
    if constexpr (!receive) return Ops::trecv(ep, buf, len, desc, src, tag, ignore, context);
    const iovec part{buf, len};
    return trecvv(ep, &part, &desc, 1, src, tag, ignore, context);
  }
  static ssize_t send_parts(fid_ep* ep, const iovec* iov, size_t count, fi_addr_t dest, uint64_t data,
                            void* context, uint64_t more_flags) {
    const fi_msg msg{iov, nullptr, count, dest, context, data};
    return Ops::sendmsg(ep, &msg, tx_flags(ep) | more_flags);
  }
  static ssize_t sendv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t dest,
                       void* context) {
    if constexpr (!transmit) return Ops::sendv(ep, iov, desc, count, dest, context);
    return send_parts(ep, iov, count, dest, 0, context, 0);
  }
  static ssize_t send(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest, void* context) {
    if constexpr (!transmit) return Ops::send(ep, buf, len, desc, dest, context);
    const iovec part{const_cast<void*>(buf), len};
    return send_parts(ep, &part, 1, dest, 0, context, 0);
  }
  static ssize_t senddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data, fi_addr_t dest,
                          void* context) {
    if constexpr (!transmit) return Ops::senddata(ep, buf, len, desc, data, dest, context);
    const iovec part{const_cast<void*>(buf), len};
    return send_parts(ep, &part, 1, dest, data, context, FI_REMOTE_CQ_DATA);
  }
  static ssize_t tsend_parts(fid_ep* ep, const iovec* iov, size_t count, fi_addr_t dest, uint64_t tag,
                             uint64_t data, void* context, uint64_t more_flags) {
    const fi_msg_tagged msg{iov, nullptr, count, dest, tag, 0, context, data};
    return Ops::tsendmsg(ep, &msg, tx_flags(ep) | more_flags);
  }
  static ssize_t tsendv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t dest, uint64_t tag,
                        void* context) {
    if constexpr (!transmit) return Ops::tsendv(ep, iov, desc, count, dest, tag, context);
    return tsend_parts(ep, iov, count, dest, tag, 0, context, 0);
  }
  static ssize_t tsend(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest, uint64_t tag,
                       void* context) {
    if constexpr (!transmit) return Ops::tsend(ep, buf, len, desc, dest, tag, context);
    const iovec part{const_cast<void*>(buf), len};
    return tsend_parts(ep, &part, 1, dest, tag, 0, context, 0);
  }
  static ssize_t tsenddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data, fi_addr_t dest,
                           uint64_t tag, void* context) {
    if constexpr (!transmit) return Ops::tsenddata(ep, buf, len, desc, data, dest, tag, context);
    const iovec part{const_cast<void*>(buf), len};
    return tsend_parts(ep, &part, 1, dest, tag, data, context, FI_REMOTE_CQ_DATA);
  }

  // --- fi_rma(3) ---
  using RmaCall = ssize_t (*)(fid_ep*, const fi_msg_rma*, uint64_t);
  static ssize_t rma(RmaCall call, fid_ep* ep, const iovec* iov, size_t count, fi_addr_t peer, uint64_t addr,
                     uint64_t key, uint64_t data, void* context, uint64_t more_flags) {
    const fi_rma_iov target{addr, proto::total_bytes(iov, count), key};
    const fi_msg_rma msg{iov, nullptr, count, peer, &target, 1, context, data};
    return call(ep, &msg, tx_flags(ep) | more_flags);
  }
  static ssize_t readv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t src, uint64_t addr,
                       uint64_t key, void* context) {
    return rma(Ops::readmsg, ep, iov, count, src, addr, key, 0, context, 0);
  }
  static ssize_t read(fid_ep* ep, void* buf, size_t len, void*, fi_addr_t src, uint64_t addr, uint64_t key,
                      void* context) {
    const iovec part{buf, len};
    return rma(Ops::readmsg, ep, &part, 1, src, addr, key, 0, context, 0);
  }
  static ssize_t writev(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t dest, uint64_t addr,
                        uint64_t key, void* context) {
    return rma(Ops::writemsg, ep, iov, count, dest, addr, key, 0, context, 0);
  }
  static ssize_t write(fid_ep* ep, const void* buf, size_t len, void*, fi_addr_t dest, uint64_t addr,
                       uint64_t key, void* context) {
    const iovec part{const_cast<void*>(buf), len};
    return rma(Ops::writemsg, ep, &part, 1, dest, addr, key, 0, context, 0);
  }
  static ssize_t writedata(fid_ep* ep, const void* buf, size_t len, void*, uint64_t data, fi_addr_t dest,
                           uint64_t addr, uint64_t key, void* context) {
    const iovec part{const_cast<void*>(buf), len};
    return rma(Ops::writemsg, ep, &part, 1, dest, addr, key, data, context, FI_REMOTE_CQ_DATA);
  }

  // --- fi_atomic(3) ---
  struct Atomic {
    fi_rma_ioc target;
    fi_msg_atomic msg;
    Atomic(const fi_ioc* iov, size_t count, size_t elements, fi_addr_t dest, uint64_t addr, uint64_t key,
           fi_datatype datatype, fi_op op, void* context) noexcept
        : target{addr, elements, key}, msg{iov, nullptr, count, dest, &target, 1, datatype, op, context, 0} {}
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;
  };
  static size_t elements_of(const fi_ioc* list, size_t count) noexcept {
    size_t elements = 0;
    for (size_t i = 0; i < count; ++i) elements += list[i].count;
    return elements;
  }
  static ssize_t atomic_writev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_addr_t dest,
                               uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const Atomic call(iov, count, elements_of(iov, count), dest, addr, key, datatype, op, context);
    return Ops::atomic_writemsg(ep, &call.msg, tx_flags(ep));
  }
  static ssize_t atomic_write(fid_ep* ep, const void* buf, size_t count, void*, fi_addr_t dest, uint64_t addr,
                              uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const fi_ioc part{const_cast<void*>(buf), count};
    return atomic_writev(ep, &part, nullptr, 1, dest, addr, key, datatype, op, context);
  }
  static ssize_t fetchv(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_ioc* resultv, void** desc,
                        size_t result_count, fi_addr_t dest, uint64_t addr, uint64_t key,
                        fi_datatype datatype, fi_op op, void* context) {
    const Atomic call(iov, count, elements_of(resultv, result_count), dest, addr, key, datatype, op, context);
    return Ops::fetchmsg(ep, &call.msg, resultv, desc, result_count, tx_flags(ep));
  }
  static ssize_t fetch(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t dest,
                       uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const fi_ioc part{const_cast<void*>(buf), count};
    fi_ioc old{result, count};
    return fetchv(ep, &part, nullptr, 1, &old, nullptr, 1, dest, addr, key, datatype, op, context);
  }
  static ssize_t comparev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, const fi_ioc* cmp,
                          void** cmp_desc, size_t cmp_count, fi_ioc* resultv, void** desc,
                          size_t result_count, fi_addr_t dest, uint64_t addr, uint64_t key,
                          fi_datatype datatype, fi_op op, void* context) {
    const Atomic call(iov, count, elements_of(iov, count), dest, addr, key, datatype, op, context);
    return Ops::comparemsg(ep, &call.msg, cmp, cmp_desc, cmp_count, resultv, desc, result_count,
                           tx_flags(ep));
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

  // What TransmitOnly and ReceiveOnly take one by one.
  static constexpr auto recvmsg = Ops::recvmsg;
  static constexpr auto trecvmsg = Ops::trecvmsg;
  static constexpr auto sendmsg = Ops::sendmsg;
  static constexpr auto tsendmsg = Ops::tsendmsg;
  static constexpr auto inject = Ops::inject;
  static constexpr auto tinject = Ops::tinject;
  static constexpr auto injectdata = Ops::injectdata;
  static constexpr auto tinjectdata = Ops::tinjectdata;

  static inline fi_ops_msg msg_ops = {
      sizeof(fi_ops_msg), recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata};
  static inline fi_ops_tagged tagged_ops = {sizeof(fi_ops_tagged),
                                            trecv,
                                            trecvv,
                                            trecvmsg,
                                            tsend,
                                            tsendv,
                                            tsendmsg,
                                            tinject,
                                            tsenddata,
                                            tinjectdata};
  static inline fi_ops_rma triggered_rma = {sizeof(fi_ops_rma),
                                            read,
                                            readv,
                                            Ops::readmsg,
                                            write,
                                            writev,
                                            Ops::writemsg,
                                            Ops::inject_write,
                                            writedata,
                                            Ops::inject_writedata};
  static inline fi_ops_atomic triggered_atomic = {sizeof(fi_ops_atomic),
                                                  atomic_write,
                                                  atomic_writev,
                                                  Ops::atomic_writemsg,
                                                  Ops::atomic_inject,
                                                  fetch,
                                                  fetchv,
                                                  Ops::fetchmsg,
                                                  compare,
                                                  comparev,
                                                  Ops::comparemsg,
                                                  Ops::template atomic_valid<core::AtomicKind::Write>,
                                                  Ops::template atomic_valid<core::AtomicKind::Fetch>,
                                                  Ops::template atomic_valid<core::AtomicKind::Compare>};
  static inline fi_ops_rma& rma_ops = transmit ? triggered_rma : Ops::rma_ops;
  static inline fi_ops_atomic& atomic_ops = transmit ? triggered_atomic : Ops::atomic_ops;
};

}  // namespace weft::fi
