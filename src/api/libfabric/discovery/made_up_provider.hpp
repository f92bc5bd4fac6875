// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider for the tests of this room: it offers much and opens nothing. Must not be used outside tests.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <weft/libfabric_retired.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// Offers are variables, so that a test may change one and see what the match says; each test makes its own.
struct MadeUpOffer {
  explicit MadeUpOffer(uint32_t addr_format = FI_ADDR_STR) {
    info.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ |
                FI_REMOTE_WRITE | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE |
                FI_SOURCE_ERR | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_FENCE | FI_TRIGGER | FI_RMA_EVENT;
    info.addr_format = addr_format;
    info.tx_attr = &tx;
    info.rx_attr = &rx;
    info.ep_attr = &ep;
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
    tx.op_flags =
        FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
    tx.msg_order = FI_ORDER_SAS | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW;
    tx.inject_size = 4096;
    tx.size = 1024;
    tx.iov_limit = 4;
    tx.rma_iov_limit = 2;
    rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
    rx.msg_order = tx.msg_order;
    rx.comp_order = retired::order_strict | retired::order_data;
    rx.size = 512;
    rx.iov_limit = 4;
    rx.total_buffered_recv = 1 << 20;
    ep.type = FI_EP_RDM;
    ep.protocol = FI_PROTO_SHM;
    ep.protocol_version = 3;
    ep.max_msg_size = size_t{1} << 40;
    ep.max_order_waw_size = SIZE_MAX;
    ep.mem_tag_format = 0xaaaaaaaaaaaaaaaaULL;
    ep.tx_ctx_cnt = 1;
    ep.rx_ctx_cnt = 1;
    ep.auth_key_size = 8;
    domain.name = name;
    domain.threading = FI_THREAD_SAFE;
    domain.control_progress = FI_PROGRESS_AUTO;
    domain.data_progress = FI_PROGRESS_MANUAL;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.mr_key_size = 8;
    domain.cq_data_size = 8;
    domain.max_ep_tx_ctx = 16;
    domain.max_ep_rx_ctx = 8;
    domain.max_ep_stx_ctx = 4;
    domain.mr_iov_limit = 4;
    domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    domain.max_err_data = 64;
    fabric.name = name;
  }

  char name[16] = "cloth";
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
  fi_info info{};
};

inline const fi_info* made_up_offers(const Provider&) {
  static const MadeUpOffer offer;
  return &offer.info;
}

constexpr size_t kMadeUpAddress = 32;

// "made://node:service"; a node that is "nowhere" is not found.
inline Result<std::vector<std::byte>> made_up_resolve(uint32_t, const char* node, const char* service,
                                                      bool source) {
  if (node == nullptr && service == nullptr) return std::vector<std::byte>{};
  if (node != nullptr && std::string_view(node) == "nowhere")
    return Error{FI_ENODATA, "node: there is no \"nowhere\""};
  std::string text = node != nullptr ? node : "";
  if (text.rfind("made://", 0) != 0) text = "made://" + text;
  if (service != nullptr) text += ':' + std::string(service);
  if (source) text += '!';
  std::vector<std::byte> bytes(kMadeUpAddress);
  memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size() - 1));
  return bytes;
}

inline Provider made_up_provider(const char* name = "cloth") {
  return {
      .name = name,
      .version = FI_VERSION(2, 1),
      .offers = made_up_offers,
      .addrlen = [](uint32_t) { return kMadeUpAddress; },
      .resolve = made_up_resolve,
      .unnamed =
          [](uint32_t) {
            std::vector<std::byte> bytes(kMadeUpAddress);
            memcpy(bytes.data(), "made://", 7);
            return bytes;
          },
      .normalise = [](uint32_t, std::byte*) { return true; },
      .to_string = [](uint32_t, const void* bytes) { return std::string(static_cast<const char*>(bytes)); },
      .endpoint = nullptr,
      .scalable_endpoint = nullptr,
      .stx = nullptr,
      .srx = nullptr};
}

// Empty hints with all parts.
inline InfoPtr made_up_hints() { return InfoPtr(dup_info(nullptr)); }

}  // namespace weft::fi
