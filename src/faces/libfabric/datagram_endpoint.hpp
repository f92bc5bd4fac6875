// Datagram endpoints (FI_EP_DGRAM) as the C ABI sees them, over any PacketLink: messages, and nothing that an unreliable packet cannot carry.
// What they do not have is -FI_ENOSYS. Must not know which links exist.
//
// datagram_control.hpp has binding, state, names and groups; a provider includes datagram_open.hpp.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <memory>
#include <vector>

#include "faces/libfabric/objects.hpp"
#include "proto/datagram/datagram.hpp"

namespace weft::fi {

// What an endpoint and its aliases share.
template <class L>
struct DatagramCore {
  DatagramCore(Domain& of, const proto::DatagramLimits& limits) : domain(of), engine(limits) {}
  Domain& domain;
  proto::Datagram<L> engine;
  Av* av = nullptr;
  Eq* eq = nullptr;
  Cq* tx_cq = nullptr;
  Cq* rx_cq = nullptr;
  std::vector<Cntr*> counters;
};

template <class L>
struct DatagramPort {
  fid_ep fid{};
  // Hot.
  proto::Datagram<L>* engine = nullptr;
  DomainLock* lock = nullptr;
  proto::TxContext tx;
  uint64_t rx_op_flags = 0;
  // Cold.
  DatagramCore<L>* core = nullptr;
  Domain* domain = nullptr;
  std::unique_ptr<DatagramCore<L>> owned_core;  // not of an alias
  DatagramPort* parent = nullptr;               // of an alias
  uint64_t caps = 0;
  bool enabled = false;
  Users users{0};  // aliases and multicast groups
};

template <class L>
DatagramPort<L>& datagram_of(::fid* fid) noexcept {
  return *reinterpret_cast<DatagramPort<L>*>(fid);
}
template <class L>
DatagramPort<L>& datagram_of(fid_ep* ep) noexcept {
  return *reinterpret_cast<DatagramPort<L>*>(ep);
}

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

// fi_msg(3).
template <class L, class Lock>
struct DatagramOps {
  using P = DatagramPort<L>;
  static constexpr uint64_t refused_receive_flags = FI_PEEK | FI_CLAIM | FI_DISCARD | FI_TRIGGER;

  static ssize_t receive(P& p, const iovec* iov, size_t count, void* context, uint64_t flags) noexcept {
    if ((flags & refused_receive_flags) != 0) [[unlikely]]
      return -FI_EOPNOTSUPP;
    Lock guard(*p.lock);
    const ssize_t status = p.engine->receiver().post(iov, count, context, flags);
    if (status == -FI_EAGAIN) [[unlikely]]
      p.engine->progress();  // a program that only retries must still move
    return status;
  }
  static ssize_t recv(fid_ep* ep, void* buf, size_t len, void*, fi_addr_t, void* context) {
    const iovec part{buf, len};
    return receive(datagram_of<L>(ep), &part, 1, context, datagram_of<L>(ep).rx_op_flags);
  }
  static ssize_t recvv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t, void* context) {
    return receive(datagram_of<L>(ep), iov, count, context, datagram_of<L>(ep).rx_op_flags);
  }
  static ssize_t recvmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) {
    return receive(datagram_of<L>(ep), msg->msg_iov, msg->iov_count, msg->context, flags);
  }
  static ssize_t transmit(P& p, const iovec* iov, size_t count, fi_addr_t dest, void* context, uint64_t flags,
                          bool silent = false) noexcept {
    Lock guard(*p.lock);
    return p.engine->send(p.tx, iov, count, dest, flags, context, silent);
  }
  static ssize_t send(fid_ep* ep, const void* buf, size_t len, void*, fi_addr_t dest, void* context) {
    const iovec part{const_cast<void*>(buf), len};
    return transmit(datagram_of<L>(ep), &part, 1, dest, context, datagram_of<L>(ep).tx.op_flags);
  }
  static ssize_t sendv(fid_ep* ep, const iovec* iov, void**, size_t count, fi_addr_t dest, void* context) {
    return transmit(datagram_of<L>(ep), iov, count, dest, context, datagram_of<L>(ep).tx.op_flags);
  }
  static ssize_t sendmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) {
    return transmit(datagram_of<L>(ep), msg->msg_iov, msg->iov_count, msg->addr, msg->context, flags);
  }
  static ssize_t inject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest) {
    const iovec part{const_cast<void*>(buf), len};
    return transmit(datagram_of<L>(ep), &part, 1, dest, nullptr, FI_INJECT, true);
  }

  static inline const Answer<FI_ENOSYS> no{};
  static fi_ops_msg msg_ops;
};

template <class L, class Lock>
fi_ops_msg DatagramOps<L, Lock>::msg_ops = {
    sizeof(fi_ops_msg), recv, recvv, recvmsg, send, sendv, sendmsg, inject, no, no};

}  // namespace weft::fi
