// Attributes and limits of a provider over the engine.
#include "faces/libfabric/offer.hpp"

#include <rdma/fi_errno.h>

#include "proto/datagram/receiver.hpp"
#include "proto/engine/engine.hpp"

namespace weft::fi {

Offer::Offer(const char* provider, uint32_t version, const providers::EndpointKind& kind,
             uint32_t addr_format)
    : name(provider) {
  constexpr uint64_t transmit_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE |
                                     FI_FENCE | FI_TRIGGER | FI_NAMED_RX_CTX;
  constexpr uint64_t receive_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ |
                                    FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE |
                                    FI_SOURCE_ERR | FI_RMA_EVENT | FI_TRIGGER;
  const uint64_t domain_caps = kind.reach | FI_SHARED_AV;
  constexpr uint64_t order = FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW |
                             FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW |
                             FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR |
                             FI_ORDER_ATOMIC_WAW;
  constexpr uint64_t completions =
      FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
  const proto::EngineLimits limits;

  tx.caps = transmit_caps;
  tx.op_flags = completions | FI_INJECT;
  tx.msg_order = order;
  tx.comp_order = FI_ORDER_NONE;
  tx.inject_size = limits.inject_bytes;
  tx.size = limits.transmit_size;
  tx.iov_limit = proto::iov_max;
  tx.rma_iov_limit = proto::rma_iov_max;

  rx.caps = receive_caps;
  rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  rx.msg_order = order;
  rx.comp_order = FI_ORDER_NONE;
  rx.total_buffered_recv = limits.unexpected_bytes;
  rx.size = limits.receive_size;
  rx.iov_limit = proto::iov_max;

  ep.type = kind.type;
  ep.protocol = kind.protocol;
  ep.protocol_version = kind.protocol_version;
  ep.max_msg_size = SIZE_MAX / 2;
  ep.max_order_raw_size = 8192;
  ep.max_order_war_size = 8192;
  ep.max_order_waw_size = 8192;
  ep.mem_tag_format = 0xaaaaaaaaaaaaaaaaULL;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;

  domain_attr.name = name.data();
  domain_attr.threading = FI_THREAD_SAFE;
  domain_attr.control_progress = FI_PROGRESS_AUTO;
  domain_attr.data_progress = FI_PROGRESS_AUTO;
  domain_attr.resource_mgmt = FI_RM_ENABLED;
  domain_attr.av_type = FI_AV_UNSPEC;
  domain_attr.mr_mode = 0;
  domain_attr.mr_key_size = sizeof(uint64_t);
  domain_attr.cq_data_size = sizeof(uint64_t);
  domain_attr.cq_cnt = 1024;
  domain_attr.ep_cnt = 1024;
  domain_attr.tx_ctx_cnt = 1024;
  domain_attr.rx_ctx_cnt = 1024;
  domain_attr.max_ep_tx_ctx = 256;
  domain_attr.max_ep_rx_ctx = 256;
  domain_attr.max_ep_stx_ctx = 1024;
  domain_attr.max_ep_srx_ctx = 1024;
  domain_attr.cntr_cnt = 1024;
  domain_attr.mr_iov_limit = core::MemoryRegion::iov_max;
  domain_attr.caps = domain_caps;
  domain_attr.max_err_data = 64;
  domain_attr.mr_cnt = core::MemoryRegionTable::count_max;

  fabric_attr.name = name.data();
  fabric_attr.prov_version = version;

  info.caps = transmit_caps | receive_caps | domain_caps;
  if (kind.type == FI_EP_MSG) one_peer();
  info.addr_format = addr_format;
  info.tx_attr = &tx;
  info.rx_attr = &rx;
  info.ep_attr = &ep;
  info.domain_attr = &domain_attr;
  info.fabric_attr = &fabric_attr;
}

void Offer::limit_to_datagrams(size_t message_bytes) {
  constexpr uint64_t transmit_caps = FI_MSG | FI_MULTICAST | FI_SEND;
  constexpr uint64_t receive_caps = FI_MSG | FI_MULTICAST | FI_RECV | FI_MULTI_RECV | FI_SOURCE;

  tx.caps = transmit_caps;
  tx.op_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;
  tx.msg_order = FI_ORDER_NONE;
  tx.inject_size = message_bytes;  // a datagram is copied in the call
  tx.rma_iov_limit = 0;

  rx.caps = receive_caps;
  rx.msg_order = FI_ORDER_NONE;
  rx.total_buffered_recv = proto::DatagramReceiver::kept_bytes_max;

  ep.max_msg_size = message_bytes;
  ep.max_order_raw_size = 0;
  ep.max_order_war_size = 0;
  ep.max_order_waw_size = 0;
  ep.mem_tag_format = 0;

  domain_attr.cq_data_size = 0;
  domain_attr.max_ep_tx_ctx = 1;
  domain_attr.max_ep_rx_ctx = 1;
  domain_attr.max_ep_stx_ctx = 0;
  domain_attr.max_ep_srx_ctx = 0;

  info.caps = transmit_caps | receive_caps | domain_attr.caps;
}

// A connected endpoint has one peer, which has no number, and one context each way.
void Offer::one_peer() {
  constexpr uint64_t sources = FI_DIRECTED_RECV | FI_SOURCE | FI_SOURCE_ERR;
  tx.caps &= ~FI_NAMED_RX_CTX;
  rx.caps &= ~sources;
  info.caps &= ~(sources | FI_NAMED_RX_CTX | FI_SHARED_AV);
  domain_attr.caps &= ~FI_SHARED_AV;
  rx.size = 8192;  // what many connections share: layers above ask for 4096
  domain_attr.max_ep_tx_ctx = 1;
  domain_attr.max_ep_rx_ctx = 1;
}

}  // namespace weft::fi
