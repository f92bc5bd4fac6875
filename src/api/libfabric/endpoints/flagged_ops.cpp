// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Calls without flags as ...msg calls with the port's default flags.
#include "api/libfabric/endpoints/flagged_ops.hpp"

#include "proto/engine/op.hpp"

namespace weft::fi {
namespace {

const PortHead::Flagged& of(fid_ep* ep) noexcept { return *reinterpret_cast<PortHead*>(ep)->flagged; }

// --- fi_msg(3) ---
ssize_t recvv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t src, void* context) {
  const auto& port = of(ep);
  if (port.receive == nullptr) return port.msg->recvv(ep, iov, desc, count, src, context);
  const fi_msg msg{iov, desc, count, src, context, 0};
  return port.msg->recvmsg(ep, &msg, *port.receive);
}
ssize_t recv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t src, void* context) {
  const auto& port = of(ep);
  if (port.receive == nullptr) return port.msg->recv(ep, buf, len, desc, src, context);
  const iovec part{buf, len};
  return recvv(ep, &part, &desc, 1, src, context);
}
ssize_t recvmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) { return of(ep).msg->recvmsg(ep, msg, flags); }
ssize_t send_parts(fid_ep* ep, const iovec* iov, size_t count, fi_addr_t dest, uint64_t data, void* context,
                   uint64_t more_flags) {
  const fi_msg msg{iov, nullptr, count, dest, context, data};
  return of(ep).msg->sendmsg(ep, &msg, *of(ep).transmit | more_flags);
}
ssize_t sendv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t dest, void* context) {
  if (of(ep).transmit == nullptr) return of(ep).msg->sendv(ep, iov, desc, count, dest, context);
  return send_parts(ep, iov, count, dest, 0, context, 0);
}
ssize_t send(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest, void* context) {
  if (of(ep).transmit == nullptr) return of(ep).msg->send(ep, buf, len, desc, dest, context);
  const iovec part{const_cast<void*>(buf), len};
  return send_parts(ep, &part, 1, dest, 0, context, 0);
}
ssize_t sendmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) { return of(ep).msg->sendmsg(ep, msg, flags); }
ssize_t inject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest) {
  return of(ep).msg->inject(ep, buf, len, dest);
}
ssize_t senddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data, fi_addr_t dest,
                 void* context) {
  if (of(ep).transmit == nullptr) return of(ep).msg->senddata(ep, buf, len, desc, data, dest, context);
  const iovec part{const_cast<void*>(buf), len};
  return send_parts(ep, &part, 1, dest, data, context, FI_REMOTE_CQ_DATA);
}
ssize_t injectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest) {
  return of(ep).msg->injectdata(ep, buf, len, data, dest);
}

// --- fi_tagged(3) ---
ssize_t trecvv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t src, uint64_t tag,
               uint64_t ignore, void* context) {
  const auto& port = of(ep);
  if (port.receive == nullptr) return port.tagged->recvv(ep, iov, desc, count, src, tag, ignore, context);
  const fi_msg_tagged msg{iov, desc, count, src, tag, ignore, context, 0};
  return port.tagged->recvmsg(ep, &msg, *port.receive);
}
ssize_t trecv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t src, uint64_t tag, uint64_t ignore,
              void* context) {
  const auto& port = of(ep);
  if (port.receive == nullptr) return port.tagged->recv(ep, buf, len, desc, src, tag, ignore, context);
  const iovec part{buf, len};
  return trecvv(ep, &part, &desc, 1, src, tag, ignore, context);
}
ssize_t trecvmsg(fid_ep* ep, const fi_msg_tagged* msg, uint64_t flags) {
  return of(ep).tagged->recvmsg(ep, msg, flags);
}
ssize_t tsend_parts(fid_ep* ep, const iovec* iov, size_t count, fi_addr_t dest, uint64_t tag, uint64_t data,
                    void* context, uint64_t more_flags) {
  const fi_msg_tagged msg{iov, nullptr, count, dest, tag, 0, context, data};
  return of(ep).tagged->sendmsg(ep, &msg, *of(ep).transmit | more_flags);
}
ssize_t tsendv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t dest, uint64_t tag,
               void* context) {
  if (of(ep).transmit == nullptr) return of(ep).tagged->sendv(ep, iov, desc, count, dest, tag, context);
  return tsend_parts(ep, iov, count, dest, tag, 0, context, 0);
}
ssize_t tsend(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest, uint64_t tag,
              void* context) {
  if (of(ep).transmit == nullptr) return of(ep).tagged->send(ep, buf, len, desc, dest, tag, context);
  const iovec part{const_cast<void*>(buf), len};
  return tsend_parts(ep, &part, 1, dest, tag, 0, context, 0);
}
ssize_t tsendmsg(fid_ep* ep, const fi_msg_tagged* msg, uint64_t flags) {
  return of(ep).tagged->sendmsg(ep, msg, flags);
}
ssize_t tinject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t tag) {
  return of(ep).tagged->inject(ep, buf, len, dest, tag);
}
ssize_t tsenddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data, fi_addr_t dest,
                  uint64_t tag, void* context) {
  if (of(ep).transmit == nullptr)
    return of(ep).tagged->senddata(ep, buf, len, desc, data, dest, tag, context);
  const iovec part{const_cast<void*>(buf), len};
  return tsend_parts(ep, &part, 1, dest, tag, data, context, FI_REMOTE_CQ_DATA);
}
ssize_t tinjectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest, uint64_t tag) {
  return of(ep).tagged->injectdata(ep, buf, len, data, dest, tag);
}

// --- fi_rma(3): these stand in only where transmits have flags ---
using RmaCall = ssize_t (*)(fid_ep*, const fi_msg_rma*, uint64_t);
ssize_t rma(RmaCall call, fid_ep* ep, const iovec* iov, size_t count, fi_addr_t peer, uint64_t addr,
            uint64_t key, uint64_t data, void* context, uint64_t more_flags) {
  const fi_rma_iov target{addr, proto::total_bytes(iov, count), key};
  const fi_msg_rma msg{iov, nullptr, count, peer, &target, 1, context, data};
  return call(ep, &msg, *of(ep).transmit | more_flags);
}
ssize_t readv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t src, uint64_t addr, uint64_t key,
              void* context) {
  return rma(of(ep).rma->readmsg, ep, iov, count, src, addr, key, 0, context, 0);
}
ssize_t read(fid_ep* ep, void* buf, size_t len, void*, fi_addr_t src, uint64_t addr, uint64_t key,
             void* context) {
  const iovec part{buf, len};
  return readv(ep, &part, nullptr, 1, src, addr, key, context);
}
ssize_t writev(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t dest, uint64_t addr,
               uint64_t key, void* context) {
  return rma(of(ep).rma->writemsg, ep, iov, count, dest, addr, key, 0, context, 0);
}
ssize_t write(fid_ep* ep, const void* buf, size_t len, void*, fi_addr_t dest, uint64_t addr, uint64_t key,
              void* context) {
  const iovec part{const_cast<void*>(buf), len};
  return writev(ep, &part, nullptr, 1, dest, addr, key, context);
}
ssize_t writedata(fid_ep* ep, const void* buf, size_t len, void*, uint64_t data, fi_addr_t dest,
                  uint64_t addr, uint64_t key, void* context) {
  const iovec part{const_cast<void*>(buf), len};
  return rma(of(ep).rma->writemsg, ep, &part, 1, dest, addr, key, data, context, FI_REMOTE_CQ_DATA);
}
ssize_t readmsg(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) {
  return of(ep).rma->readmsg(ep, msg, flags);
}
ssize_t writemsg(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) {
  return of(ep).rma->writemsg(ep, msg, flags);
}
ssize_t inject_write(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, uint64_t addr, uint64_t key) {
  return of(ep).rma->inject(ep, buf, len, dest, addr, key);
}
ssize_t inject_writedata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                         uint64_t addr, uint64_t key) {
  return of(ep).rma->injectdata(ep, buf, len, data, dest, addr, key);
}

// --- fi_atomic(3): as for RMA ---
struct Atomic {
  fi_rma_ioc target;
  fi_msg_atomic msg;
  Atomic(const fi_ioc* iov, size_t count, size_t elements, fi_addr_t dest, uint64_t addr, uint64_t key,
         fi_datatype datatype, fi_op op, void* context) noexcept
      : target{addr, elements, key}, msg{iov, nullptr, count, dest, &target, 1, datatype, op, context, 0} {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
};
size_t elements_of(const fi_ioc* list, size_t count) noexcept {
  size_t elements = 0;
  for (size_t i = 0; i < count; ++i) elements += list[i].count;
  return elements;
}
ssize_t atomic_writev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_addr_t dest, uint64_t addr,
                      uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  const Atomic call(iov, count, elements_of(iov, count), dest, addr, key, datatype, op, context);
  return of(ep).atomic->writemsg(ep, &call.msg, *of(ep).transmit);
}
ssize_t atomic_write(fid_ep* ep, const void* buf, size_t count, void*, fi_addr_t dest, uint64_t addr,
                     uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  const fi_ioc part{const_cast<void*>(buf), count};
  return atomic_writev(ep, &part, nullptr, 1, dest, addr, key, datatype, op, context);
}
ssize_t atomic_writemsg(fid_ep* ep, const fi_msg_atomic* msg, uint64_t flags) {
  return of(ep).atomic->writemsg(ep, msg, flags);
}
ssize_t atomic_inject(fid_ep* ep, const void* buf, size_t count, fi_addr_t dest, uint64_t addr, uint64_t key,
                      fi_datatype datatype, fi_op op) {
  return of(ep).atomic->inject(ep, buf, count, dest, addr, key, datatype, op);
}
ssize_t fetchv(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_ioc* resultv, void** desc,
               size_t result_count, fi_addr_t dest, uint64_t addr, uint64_t key, fi_datatype datatype,
               fi_op op, void* context) {
  const Atomic call(iov, count, elements_of(resultv, result_count), dest, addr, key, datatype, op, context);
  return of(ep).atomic->readwritemsg(ep, &call.msg, resultv, desc, result_count, *of(ep).transmit);
}
ssize_t fetch(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t dest,
              uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  const fi_ioc part{const_cast<void*>(buf), count};
  fi_ioc old{result, count};
  return fetchv(ep, &part, nullptr, 1, &old, nullptr, 1, dest, addr, key, datatype, op, context);
}
ssize_t fetchmsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* resultv, void** desc, size_t result_count,
                 uint64_t flags) {
  return of(ep).atomic->readwritemsg(ep, msg, resultv, desc, result_count, flags);
}
ssize_t comparev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, const fi_ioc* cmp, void** cmp_desc,
                 size_t cmp_count, fi_ioc* resultv, void** desc, size_t result_count, fi_addr_t dest,
                 uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  const Atomic call(iov, count, elements_of(iov, count), dest, addr, key, datatype, op, context);
  return of(ep).atomic->compwritemsg(ep, &call.msg, cmp, cmp_desc, cmp_count, resultv, desc, result_count,
                                     *of(ep).transmit);
}
ssize_t compare(fid_ep* ep, const void* buf, size_t count, void*, const void* cmp, void*, void* result, void*,
                fi_addr_t dest, uint64_t addr, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  const fi_ioc part{const_cast<void*>(buf), count};
  const fi_ioc against{const_cast<void*>(cmp), count};
  fi_ioc old{result, count};
  return comparev(ep, &part, nullptr, 1, &against, nullptr, 1, &old, nullptr, 1, dest, addr, key, datatype,
                  op, context);
}
ssize_t comparemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* cmp, void** cmp_desc, size_t cmp_count,
                   fi_ioc* resultv, void** desc, size_t result_count, uint64_t flags) {
  return of(ep).atomic->compwritemsg(ep, msg, cmp, cmp_desc, cmp_count, resultv, desc, result_count, flags);
}
int write_valid(fid_ep* ep, fi_datatype datatype, fi_op op, size_t* count) {
  return of(ep).atomic->writevalid(ep, datatype, op, count);
}
int fetch_valid(fid_ep* ep, fi_datatype datatype, fi_op op, size_t* count) {
  return of(ep).atomic->readwritevalid(ep, datatype, op, count);
}
int compare_valid(fid_ep* ep, fi_datatype datatype, fi_op op, size_t* count) {
  return of(ep).atomic->compwritevalid(ep, datatype, op, count);
}

fi_ops_msg msg_ops = {sizeof(fi_ops_msg), recv,      recvv, recvmsg, send, sendv, sendmsg, inject,
                      senddata,           injectdata};
fi_ops_tagged tagged_ops = {
    sizeof(fi_ops_tagged), trecv, trecvv, trecvmsg, tsend, tsendv, tsendmsg, tinject, tsenddata, tinjectdata};
fi_ops_rma rma_ops = {sizeof(fi_ops_rma), read,         readv,     readmsg,         write, writev,
                      writemsg,           inject_write, writedata, inject_writedata};
fi_ops_atomic atomic_ops = {sizeof(fi_ops_atomic),
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
                            write_valid,
                            fetch_valid,
                            compare_valid};

}  // namespace

void use_flagged_calls(PortHead& port, PortHead::Flagged& flagged, const uint64_t* transmit,
                       const uint64_t* receive) noexcept {
  flagged = {port.fid.msg, port.fid.tagged, port.fid.rma, port.fid.atomic, transmit, receive};
  port.flagged = &flagged;
  port.fid.msg = &msg_ops;
  port.fid.tagged = &tagged_ops;
  if (transmit == nullptr) return;
  port.fid.rma = &rma_ops;
  port.fid.atomic = &atomic_ops;
}

}  // namespace weft::fi
