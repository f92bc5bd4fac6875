// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables. Must not know how names are laid out in a text.
#include "api/libfabric/text/tostr_names.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_trigger.h>
#include <rdma/providers/fi_log.h>
#include <weft/libfabric_retired.hpp>

#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/text/raw.hpp"

namespace weft::fi {
namespace {

// A constant and its own name.
#define WEFT_NAMED(constant) \
  { constant, #constant }

// Likewise, of a name that newer headers do not have.
#define WEFT_RETIRED(constant, name) \
  { retired::constant, #name }

constexpr BitName kCaps[] = {
    WEFT_NAMED(FI_MSG),
    WEFT_NAMED(FI_RMA),
    WEFT_NAMED(FI_TAGGED),
    WEFT_NAMED(FI_ATOMIC),
    WEFT_NAMED(FI_MULTICAST),
    WEFT_NAMED(FI_COLLECTIVE),
    WEFT_NAMED(FI_READ),
    WEFT_NAMED(FI_WRITE),
    WEFT_NAMED(FI_RECV),
    WEFT_NAMED(FI_SEND),
    WEFT_NAMED(FI_REMOTE_READ),
    WEFT_NAMED(FI_REMOTE_WRITE),
    WEFT_NAMED(FI_MULTI_RECV),
    WEFT_NAMED(FI_REMOTE_CQ_DATA),
    WEFT_NAMED(FI_TRIGGER),
    WEFT_NAMED(FI_FENCE),
    WEFT_NAMED(FI_AV_USER_ID),
    WEFT_NAMED(FI_PEER),
    {later::tagged_directed_recv, "FI_TAGGED_DIRECTED_RECV"},
    {later::tagged_multi_recv, "FI_TAGGED_MULTI_RECV"},
    WEFT_NAMED(FI_HMEM),
    {later::exact_directed_recv, "FI_EXACT_DIRECTED_RECV"},
    WEFT_NAMED(FI_RMA_PMEM),
    WEFT_NAMED(FI_SOURCE_ERR),
    WEFT_NAMED(FI_LOCAL_COMM),
    WEFT_NAMED(FI_REMOTE_COMM),
    WEFT_NAMED(FI_SHARED_AV),
    WEFT_NAMED(FI_RMA_EVENT),
    WEFT_NAMED(FI_SOURCE),
    WEFT_NAMED(FI_NAMED_RX_CTX),
    WEFT_NAMED(FI_DIRECTED_RECV),
};

constexpr BitName kOpFlags[] = {
    WEFT_NAMED(FI_MULTICAST),
    WEFT_NAMED(FI_READ),
    WEFT_NAMED(FI_WRITE),
    WEFT_NAMED(FI_RECV),
    WEFT_NAMED(FI_SEND),
    WEFT_NAMED(FI_REMOTE_READ),
    WEFT_NAMED(FI_REMOTE_WRITE),
    WEFT_NAMED(FI_MULTI_RECV),
    WEFT_NAMED(FI_REMOTE_CQ_DATA),
    WEFT_NAMED(FI_MORE),
    WEFT_NAMED(FI_PEEK),
    WEFT_NAMED(FI_TRIGGER),
    WEFT_NAMED(FI_FENCE),
    WEFT_RETIRED(priority, FI_PRIORITY),
    WEFT_NAMED(FI_COMPLETION),
    WEFT_NAMED(FI_INJECT),
    WEFT_NAMED(FI_INJECT_COMPLETE),
    WEFT_NAMED(FI_TRANSMIT_COMPLETE),
    WEFT_NAMED(FI_DELIVERY_COMPLETE),
    WEFT_NAMED(FI_AFFINITY),
    WEFT_NAMED(FI_COMMIT_COMPLETE),
    WEFT_NAMED(FI_MATCH_COMPLETE),
    WEFT_RETIRED(peer_transfer, FI_PEER_TRANSFER),
    WEFT_RETIRED(xpu_trigger, FI_XPU_TRIGGER),
    WEFT_NAMED(FI_HMEM_HOST_ALLOC),
    WEFT_NAMED(FI_HMEM_DEVICE_ONLY),
    WEFT_NAMED(FI_DISCARD),
    WEFT_NAMED(FI_CLAIM),
};

// fi_cq(3), "COMPLETION FLAGS".
constexpr BitName kCqEventFlags[] = {
    WEFT_NAMED(FI_MSG),         WEFT_NAMED(FI_RMA),
    WEFT_NAMED(FI_TAGGED),      WEFT_NAMED(FI_ATOMIC),
    WEFT_NAMED(FI_MULTICAST),   WEFT_NAMED(FI_COLLECTIVE),
    WEFT_NAMED(FI_READ),        WEFT_NAMED(FI_WRITE),
    WEFT_NAMED(FI_RECV),        WEFT_NAMED(FI_SEND),
    WEFT_NAMED(FI_REMOTE_READ), WEFT_NAMED(FI_REMOTE_WRITE),
    WEFT_NAMED(FI_MULTI_RECV),  WEFT_NAMED(FI_REMOTE_CQ_DATA),
    WEFT_NAMED(FI_MORE),        WEFT_NAMED(FI_CLAIM),
};

constexpr BitName kMode[] = {
    WEFT_RETIRED(peer_transfer, FI_PEER_TRANSFER),
    WEFT_RETIRED(buffered_recv, FI_BUFFERED_RECV),
    WEFT_NAMED(FI_CONTEXT2),
    WEFT_RETIRED(restricted_comp, FI_RESTRICTED_COMP),
    WEFT_RETIRED(notify_flags_only, FI_NOTIFY_FLAGS_ONLY),
    WEFT_RETIRED(local_mr, FI_LOCAL_MR),
    WEFT_NAMED(FI_RX_CQ_DATA),
    WEFT_NAMED(FI_ASYNC_IOV),
    WEFT_NAMED(FI_MSG_PREFIX),
    WEFT_NAMED(FI_CONTEXT),
};

constexpr BitName kMrMode[] = {
    WEFT_RETIRED(mr_basic, FI_MR_BASIC),
    WEFT_RETIRED(mr_scalable, FI_MR_SCALABLE),
    WEFT_NAMED(FI_MR_LOCAL),
    WEFT_NAMED(FI_MR_RAW),
    WEFT_NAMED(FI_MR_VIRT_ADDR),
    WEFT_NAMED(FI_MR_ALLOCATED),
    WEFT_NAMED(FI_MR_PROV_KEY),
    WEFT_NAMED(FI_MR_MMU_NOTIFY),
    WEFT_NAMED(FI_MR_RMA_EVENT),
    WEFT_NAMED(FI_MR_ENDPOINT),
    WEFT_NAMED(FI_MR_HMEM),
    WEFT_NAMED(FI_MR_COLLECTIVE),
};

constexpr BitName kMsgOrder[] = {
    WEFT_NAMED(FI_ORDER_RAR),        WEFT_NAMED(FI_ORDER_RAW),
    WEFT_NAMED(FI_ORDER_RAS),        WEFT_NAMED(FI_ORDER_WAR),
    WEFT_NAMED(FI_ORDER_WAW),        WEFT_NAMED(FI_ORDER_WAS),
    WEFT_NAMED(FI_ORDER_SAR),        WEFT_NAMED(FI_ORDER_SAW),
    WEFT_NAMED(FI_ORDER_SAS),        WEFT_RETIRED(order_data, FI_ORDER_DATA),
    WEFT_NAMED(FI_ORDER_RMA_RAR),    WEFT_NAMED(FI_ORDER_RMA_RAW),
    WEFT_NAMED(FI_ORDER_RMA_WAR),    WEFT_NAMED(FI_ORDER_RMA_WAW),
    WEFT_NAMED(FI_ORDER_ATOMIC_RAR), WEFT_NAMED(FI_ORDER_ATOMIC_RAW),
    WEFT_NAMED(FI_ORDER_ATOMIC_WAR), WEFT_NAMED(FI_ORDER_ATOMIC_WAW),
};

constexpr ValueName kEpType[] = {
    WEFT_NAMED(FI_EP_UNSPEC),
    WEFT_NAMED(FI_EP_MSG),
    WEFT_NAMED(FI_EP_DGRAM),
    WEFT_NAMED(FI_EP_RDM),
    WEFT_RETIRED(ep_sock_stream, FI_EP_SOCK_STREAM),
    WEFT_RETIRED(ep_sock_dgram, FI_EP_SOCK_DGRAM),
};

constexpr ValueName kAddrFormat[] = {
    WEFT_NAMED(FI_FORMAT_UNSPEC), WEFT_NAMED(FI_SOCKADDR),          WEFT_NAMED(FI_SOCKADDR_IN),
    WEFT_NAMED(FI_SOCKADDR_IN6),  WEFT_NAMED(FI_SOCKADDR_IB),       WEFT_NAMED(FI_ADDR_PSMX),
    WEFT_NAMED(FI_ADDR_GNI),      WEFT_NAMED(FI_ADDR_BGQ),          WEFT_NAMED(FI_ADDR_MLX),
    WEFT_NAMED(FI_ADDR_STR),      WEFT_NAMED(FI_ADDR_PSMX2),        WEFT_NAMED(FI_ADDR_IB_UD),
    WEFT_NAMED(FI_ADDR_EFA),      WEFT_NAMED(FI_ADDR_PSMX3),        WEFT_NAMED(FI_ADDR_OPX),
    WEFT_NAMED(FI_ADDR_CXI),      {later::addr_ucx, "FI_ADDR_UCX"}, {later::sockaddr_ip, "FI_SOCKADDR_IP"},
};

constexpr ValueName kThreading[] = {
    WEFT_NAMED(FI_THREAD_UNSPEC), WEFT_NAMED(FI_THREAD_SAFE),       WEFT_NAMED(FI_THREAD_FID),
    WEFT_NAMED(FI_THREAD_DOMAIN), WEFT_NAMED(FI_THREAD_COMPLETION), WEFT_NAMED(FI_THREAD_ENDPOINT),
};

constexpr ValueName kProgress[] = {
    WEFT_NAMED(FI_PROGRESS_UNSPEC),
    WEFT_NAMED(FI_PROGRESS_AUTO),
    WEFT_NAMED(FI_PROGRESS_MANUAL),
    {later::progress_control_unified, "FI_PROGRESS_CONTROL_UNIFIED"},
};

constexpr ValueName kProtocol[] = {
    WEFT_NAMED(FI_PROTO_UNSPEC),
    WEFT_NAMED(FI_PROTO_RDMA_CM_IB_RC),
    WEFT_NAMED(FI_PROTO_IWARP),
    WEFT_NAMED(FI_PROTO_IB_UD),
    WEFT_NAMED(FI_PROTO_PSMX),
    WEFT_NAMED(FI_PROTO_UDP),
    WEFT_NAMED(FI_PROTO_SOCK_TCP),
    WEFT_NAMED(FI_PROTO_MXM),
    WEFT_NAMED(FI_PROTO_IWARP_RDM),
    WEFT_NAMED(FI_PROTO_IB_RDM),
    WEFT_NAMED(FI_PROTO_GNI),
    WEFT_NAMED(FI_PROTO_RXM),
    WEFT_NAMED(FI_PROTO_RXD),
    WEFT_NAMED(FI_PROTO_MLX),
    WEFT_NAMED(FI_PROTO_NETWORKDIRECT),
    WEFT_NAMED(FI_PROTO_PSMX2),
    WEFT_NAMED(FI_PROTO_SHM),
    WEFT_NAMED(FI_PROTO_MRAIL),
    WEFT_NAMED(FI_PROTO_RSTREAM),
    WEFT_NAMED(FI_PROTO_RDMA_CM_IB_XRC),
    WEFT_NAMED(FI_PROTO_EFA),
    WEFT_NAMED(FI_PROTO_PSMX3),
    WEFT_NAMED(FI_PROTO_RXM_TCP),
    WEFT_NAMED(FI_PROTO_OPX),
    WEFT_NAMED(FI_PROTO_CXI),
    WEFT_NAMED(FI_PROTO_XNET),
    {FI_PROTO_XNET + 1, "FI_PROTO_COLL"},
    {FI_PROTO_XNET + 2, "FI_PROTO_UCX"},
    {FI_PROTO_XNET + 3, "FI_PROTO_SM2"},
    {FI_PROTO_XNET + 4, "FI_PROTO_CXI_RNR"},
    {FI_PROTO_XNET + 5, "FI_PROTO_LPP"},
    {FI_PROTO_XNET + 6, "FI_PROTO_LNX"},
};

constexpr ValueName kAvType[] = {
    WEFT_NAMED(FI_AV_UNSPEC),
    WEFT_NAMED(FI_AV_MAP),
    WEFT_NAMED(FI_AV_TABLE),
};

constexpr ValueName kDatatype[] = {
    WEFT_NAMED(FI_INT8),
    WEFT_NAMED(FI_UINT8),
    WEFT_NAMED(FI_INT16),
    WEFT_NAMED(FI_UINT16),
    WEFT_NAMED(FI_INT32),
    WEFT_NAMED(FI_UINT32),
    WEFT_NAMED(FI_INT64),
    WEFT_NAMED(FI_UINT64),
    WEFT_NAMED(FI_FLOAT),
    WEFT_NAMED(FI_DOUBLE),
    WEFT_NAMED(FI_FLOAT_COMPLEX),
    WEFT_NAMED(FI_DOUBLE_COMPLEX),
    WEFT_NAMED(FI_LONG_DOUBLE),
    WEFT_NAMED(FI_LONG_DOUBLE_COMPLEX),
    WEFT_NAMED(FI_INT128),
    WEFT_NAMED(FI_UINT128),
    {FI_UINT128 + 1, "FI_FLOAT16"},
    {FI_UINT128 + 2, "FI_BFLOAT16"},
    {FI_UINT128 + 3, "FI_FLOAT8_E4M3"},
    {FI_UINT128 + 4, "FI_FLOAT8_E5M2"},
    WEFT_NAMED(FI_VOID),
};

constexpr ValueName kAtomicOp[] = {
    WEFT_NAMED(FI_MIN),      WEFT_NAMED(FI_MAX),      WEFT_NAMED(FI_SUM),         WEFT_NAMED(FI_PROD),
    WEFT_NAMED(FI_LOR),      WEFT_NAMED(FI_LAND),     WEFT_NAMED(FI_BOR),         WEFT_NAMED(FI_BAND),
    WEFT_NAMED(FI_LXOR),     WEFT_NAMED(FI_BXOR),     WEFT_NAMED(FI_ATOMIC_READ), WEFT_NAMED(FI_ATOMIC_WRITE),
    WEFT_NAMED(FI_CSWAP),    WEFT_NAMED(FI_CSWAP_NE), WEFT_NAMED(FI_CSWAP_LE),    WEFT_NAMED(FI_CSWAP_LT),
    WEFT_NAMED(FI_CSWAP_GE), WEFT_NAMED(FI_CSWAP_GT), WEFT_NAMED(FI_MSWAP),       {FI_MSWAP + 1, "FI_DIFF"},
    WEFT_NAMED(FI_NOOP),
};

constexpr ValueName kEqEvent[] = {
    WEFT_NAMED(FI_NOTIFY),        WEFT_NAMED(FI_CONNREQ),     WEFT_NAMED(FI_CONNECTED),
    WEFT_NAMED(FI_SHUTDOWN),      WEFT_NAMED(FI_MR_COMPLETE), WEFT_NAMED(FI_AV_COMPLETE),
    WEFT_NAMED(FI_JOIN_COMPLETE),
};

constexpr ValueName kOpType[] = {
    WEFT_NAMED(FI_OP_RECV),     WEFT_NAMED(FI_OP_SEND),         WEFT_NAMED(FI_OP_TRECV),
    WEFT_NAMED(FI_OP_TSEND),    WEFT_NAMED(FI_OP_READ),         WEFT_NAMED(FI_OP_WRITE),
    WEFT_NAMED(FI_OP_ATOMIC),   WEFT_NAMED(FI_OP_FETCH_ATOMIC), WEFT_NAMED(FI_OP_COMPARE_ATOMIC),
    WEFT_NAMED(FI_OP_CNTR_SET), WEFT_NAMED(FI_OP_CNTR_ADD),
};

constexpr ValueName kCollectiveOp[] = {
    WEFT_NAMED(FI_BARRIER),   WEFT_NAMED(FI_BROADCAST), WEFT_NAMED(FI_ALLTOALL),
    WEFT_NAMED(FI_ALLREDUCE), WEFT_NAMED(FI_ALLGATHER), WEFT_NAMED(FI_REDUCE_SCATTER),
    WEFT_NAMED(FI_REDUCE),    WEFT_NAMED(FI_SCATTER),   WEFT_NAMED(FI_GATHER),
};

constexpr ValueName kHmemIface[] = {
    WEFT_NAMED(FI_HMEM_SYSTEM), WEFT_NAMED(FI_HMEM_CUDA),   WEFT_NAMED(FI_HMEM_ROCR),
    WEFT_NAMED(FI_HMEM_ZE),     WEFT_NAMED(FI_HMEM_NEURON), WEFT_NAMED(FI_HMEM_SYNAPSEAI),
};

constexpr ValueName kCqFormat[] = {
    WEFT_NAMED(FI_CQ_FORMAT_UNSPEC), WEFT_NAMED(FI_CQ_FORMAT_CONTEXT), WEFT_NAMED(FI_CQ_FORMAT_MSG),
    WEFT_NAMED(FI_CQ_FORMAT_DATA),   WEFT_NAMED(FI_CQ_FORMAT_TAGGED),
};

constexpr ValueName kWaitObject[] = {
    WEFT_NAMED(FI_WAIT_NONE),   WEFT_NAMED(FI_WAIT_UNSPEC),     WEFT_NAMED(FI_WAIT_SET),
    WEFT_NAMED(FI_WAIT_FD),     WEFT_NAMED(FI_WAIT_MUTEX_COND), WEFT_NAMED(FI_WAIT_YIELD),
    WEFT_NAMED(FI_WAIT_POLLFD),
};

constexpr ValueName kWaitCondition[] = {WEFT_NAMED(FI_CQ_COND_NONE), WEFT_NAMED(FI_CQ_COND_THRESHOLD)};

// As FI_LOG_LEVEL and FI_LOG_SUBSYS spell them, fabric(7).
constexpr ValueName kLogLevel[] = {
    {FI_LOG_WARN, "warn"}, {FI_LOG_TRACE, "trace"}, {FI_LOG_INFO, "info"}, {FI_LOG_DEBUG, "debug"}};

constexpr ValueName kLogSubsys[] = {
    {FI_LOG_CORE, "core"},       {FI_LOG_FABRIC, "fabric"},   {FI_LOG_DOMAIN, "domain"},
    {FI_LOG_EP_CTRL, "ep_ctrl"}, {FI_LOG_EP_DATA, "ep_data"}, {FI_LOG_AV, "av"},
    {FI_LOG_CQ, "cq"},           {FI_LOG_EQ, "eq"},           {FI_LOG_MR, "mr"},
    {FI_LOG_CNTR, "cntr"},
};

constexpr ValueName kClass[] = {
    WEFT_NAMED(FI_CLASS_UNSPEC),
    WEFT_NAMED(FI_CLASS_FABRIC),
    WEFT_NAMED(FI_CLASS_DOMAIN),
    WEFT_NAMED(FI_CLASS_EP),
    WEFT_NAMED(FI_CLASS_SEP),
    WEFT_NAMED(FI_CLASS_RX_CTX),
    WEFT_NAMED(FI_CLASS_SRX_CTX),
    WEFT_NAMED(FI_CLASS_TX_CTX),
    WEFT_NAMED(FI_CLASS_STX_CTX),
    WEFT_NAMED(FI_CLASS_PEP),
    WEFT_NAMED(FI_CLASS_INTERFACE),
    WEFT_NAMED(FI_CLASS_AV),
    WEFT_NAMED(FI_CLASS_MR),
    WEFT_NAMED(FI_CLASS_EQ),
    WEFT_NAMED(FI_CLASS_CQ),
    WEFT_NAMED(FI_CLASS_CNTR),
    WEFT_NAMED(FI_CLASS_WAIT),
    WEFT_NAMED(FI_CLASS_POLL),
    WEFT_NAMED(FI_CLASS_CONNREQ),
    WEFT_NAMED(FI_CLASS_MC),
    WEFT_NAMED(FI_CLASS_NIC),
    WEFT_NAMED(FI_CLASS_AV_SET),
    WEFT_NAMED(FI_CLASS_MR_CACHE),
    WEFT_NAMED(FI_CLASS_MEM_MONITOR),
    WEFT_NAMED(FI_CLASS_PEER_CQ),
    WEFT_NAMED(FI_CLASS_PEER_SRX),
    WEFT_NAMED(FI_CLASS_LOG),
    WEFT_NAMED(FI_CLASS_PEER_AV),
    WEFT_NAMED(FI_CLASS_PEER_AV_SET),
    {FI_CLASS_PEER_AV_SET + 1, "FI_CLASS_PEER_CNTR"},
    {FI_CLASS_PEER_AV_SET + 2, "FI_CLASS_PROFILE"},
};

#undef WEFT_NAMED

}  // namespace

std::span<const BitName> bit_names(fi_type type) noexcept {
  switch (type) {
    case FI_TYPE_CAPS:
      return kCaps;
    case FI_TYPE_OP_FLAGS:
      return kOpFlags;
    case FI_TYPE_CQ_EVENT_FLAGS:
      return kCqEventFlags;
    case FI_TYPE_MODE:
      return kMode;
    case FI_TYPE_MR_MODE:
      return kMrMode;
    case FI_TYPE_MSG_ORDER:
      return kMsgOrder;
    default:
      return {};
  }
}

std::span<const ValueName> value_names(fi_type type) noexcept {
  switch (raw(type)) {
    case FI_TYPE_EP_TYPE:
      return kEpType;
    case FI_TYPE_ADDR_FORMAT:
      return kAddrFormat;
    case FI_TYPE_THREADING:
      return kThreading;
    case FI_TYPE_PROGRESS:
      return kProgress;
    case FI_TYPE_PROTOCOL:
      return kProtocol;
    case FI_TYPE_AV_TYPE:
      return kAvType;
    case FI_TYPE_ATOMIC_TYPE:
      return kDatatype;
    case FI_TYPE_ATOMIC_OP:
      return kAtomicOp;
    case FI_TYPE_EQ_EVENT:
      return kEqEvent;
    case FI_TYPE_OP_TYPE:
      return kOpType;
    case FI_TYPE_COLLECTIVE_OP:
      return kCollectiveOp;
    case FI_TYPE_HMEM_IFACE:
      return kHmemIface;
    case FI_TYPE_CQ_FORMAT:
      return kCqFormat;
    case FI_TYPE_LOG_LEVEL:
      return kLogLevel;
    case FI_TYPE_LOG_SUBSYS:
      return kLogSubsys;
    case later::type_cq_wait_cond:
      return kWaitCondition;
    case later::type_wait_obj:
      return kWaitObject;
    default:
      return {};
  }
}

std::span<const ValueName> class_names() noexcept { return kClass; }

}  // namespace weft::fi
