// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Attributes and limits of a provider, from what its engine can do.
#include "api/libfabric/discovery/offer.hpp"

#include <rdma/fi_errno.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <utility>

#include "core/memory_region.hpp"

namespace weft::fi {

Offer::Offer(const char* provider, uint32_t version, const providers::EndpointKind& kind,
             uint32_t addr_format, const proto::EngineAbilities& abilities)
    : name(provider) {
  const proto::EngineLimits limits;
  const bool addresses = !abilities.connects();
  const bool reaches_memory = abilities.has(FI_RMA | FI_ATOMIC);

  tx.caps = abilities.transmit_caps;
  tx.op_flags = abilities.transmit_flags;
  tx.msg_order = abilities.order;
  tx.comp_order = retired::order_none;
  tx.inject_size = abilities.inject_bytes;
  tx.size = limits.transmit_size;
  tx.iov_limit = proto::iov_max;
  tx.rma_iov_limit = reaches_memory ? proto::rma_iov_max : 0;

  rx.caps = abilities.receive_caps;
  rx.op_flags = abilities.receive_flags;
  rx.msg_order = abilities.order;
  rx.comp_order = retired::order_none;
  rx.total_buffered_recv = abilities.buffered_bytes;
  rx.size = addresses ? limits.receive_size : 8192;  // what many connections share: layers above ask for 4096
  rx.iov_limit = proto::iov_max;

  ep.type = kind.type;
  ep.protocol = kind.protocol;
  ep.protocol_version = kind.protocol_version;
  ep.max_msg_size = abilities.message_bytes_max;
  ep.max_order_raw_size = abilities.ordered_bytes_max;
  ep.max_order_war_size = abilities.ordered_bytes_max;
  ep.max_order_waw_size = abilities.ordered_bytes_max;
  ep.mem_tag_format = abilities.has(FI_TAGGED) ? 0xaaaaaaaaaaaaaaaaULL : 0;
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
  domain_attr.cq_data_size = abilities.data_bytes;
  domain_attr.cq_cnt = 1024;
  domain_attr.ep_cnt = 1024;
  domain_attr.tx_ctx_cnt = 1024;
  domain_attr.rx_ctx_cnt = 1024;
  domain_attr.max_ep_tx_ctx = abilities.contexts_max;
  domain_attr.max_ep_rx_ctx = abilities.contexts_max;
  domain_attr.max_ep_stx_ctx = abilities.shares_contexts ? 1024 : 0;
  domain_attr.max_ep_srx_ctx = abilities.shares_contexts ? 1024 : 0;
  domain_attr.cntr_cnt = 1024;
  domain_attr.mr_iov_limit = core::MemoryRegion::iov_max;
  domain_attr.caps = kind.reach | (addresses ? FI_SHARED_AV : 0);
  domain_attr.max_err_data = 64;
  domain_attr.mr_cnt = core::MemoryRegionTable::count_max;

  fabric_attr.name = name.data();
  fabric_attr.prov_version = version;

  info.caps = tx.caps | rx.caps | domain_attr.caps;
  info.addr_format = addr_format;
  info.tx_attr = &tx;
  info.rx_attr = &rx;
  info.ep_attr = &ep;
  info.domain_attr = &domain_attr;
  info.fabric_attr = &fabric_attr;
}

void Offer::limit_messages(size_t bytes) {
  ep.max_msg_size = std::min(ep.max_msg_size, bytes);
  tx.inject_size = std::min(tx.inject_size, ep.max_msg_size);
}

void Offer::set_names(const char* fabric, std::string domain) {
  name = std::move(domain);
  fabric_name = fabric;
  domain_attr.name = name.data();
  fabric_attr.name = fabric_name.data();
}

}  // namespace weft::fi
