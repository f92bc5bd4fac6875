// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// struct fi_info as JSON. Knows nothing of the command line.
#include "info_json.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "names.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;

std::string word(const void* value, fi_type type) {
  const char* text = fi_tostr(value, type);
  return text ? text : "?";
}

// Unknown bits are shown as a number: a later library may have more.
json flags(uint64_t value, std::span<const Name> names) {
  json list = json::array();
  for (const Name& name : names) {
    const bool single = (name.value & (name.value - 1)) == 0;  // leaves out names for several flags
    if (single && name.value != 0 && (value & name.value) == name.value) {
      list.push_back(name.text);
      value &= ~name.value;
    }
  }
  if (value != 0) list.push_back(fmt::format("{:#x}", value));
  return list;
}

json text(const char* value) { return value ? json(value) : json(nullptr); }

json address(const void* bytes, size_t length, uint32_t format) {
  if (!bytes || length == 0) return nullptr;
  if (format == FI_ADDR_STR) {
    std::string result(static_cast<const char*>(bytes), length);
    return result.substr(0, result.find('\0'));
  }
  std::string hex;
  for (size_t i = 0; i < length; ++i) hex += fmt::format("{:02x}", static_cast<const uint8_t*>(bytes)[i]);
  return hex;
}

json of(const fi_tx_attr& a) {
  return {{"caps", flags(a.caps, capability_names())},
          {"mode", flags(a.mode, mode_names())},
          {"op_flags", flags(a.op_flags, op_flag_names())},
          {"msg_order", flags(a.msg_order, order_names())},
          {"comp_order", flags(a.comp_order, order_names())},
          {"inject_size", a.inject_size},
          {"size", a.size},
          {"iov_limit", a.iov_limit},
          {"rma_iov_limit", a.rma_iov_limit}};
}

json of(const fi_rx_attr& a) {
  return {{"caps", flags(a.caps, capability_names())},
          {"mode", flags(a.mode, mode_names())},
          {"op_flags", flags(a.op_flags, op_flag_names())},
          {"msg_order", flags(a.msg_order, order_names())},
          {"comp_order", flags(a.comp_order, order_names())},
          {"total_buffered_recv", a.total_buffered_recv},
          {"size", a.size},
          {"iov_limit", a.iov_limit}};
}

json of(const fi_ep_attr& a) {
  return {{"type", word(&a.type, FI_TYPE_EP_TYPE)},
          {"protocol", word(&a.protocol, FI_TYPE_PROTOCOL)},
          {"protocol_version", a.protocol_version},
          {"max_msg_size", a.max_msg_size},
          {"msg_prefix_size", a.msg_prefix_size},
          {"max_order_raw_size", a.max_order_raw_size},
          {"max_order_war_size", a.max_order_war_size},
          {"max_order_waw_size", a.max_order_waw_size},
          {"mem_tag_format", fmt::format("{:#018x}", a.mem_tag_format)},
          {"tx_ctx_cnt", a.tx_ctx_cnt},
          {"rx_ctx_cnt", a.rx_ctx_cnt},
          {"auth_key_size", a.auth_key_size}};
}

json of(const fi_domain_attr& a) {
  return {{"name", text(a.name)},
          {"threading", word(&a.threading, FI_TYPE_THREADING)},
          {"control_progress", word(&a.control_progress, FI_TYPE_PROGRESS)},
          {"data_progress", word(&a.data_progress, FI_TYPE_PROGRESS)},
          {"resource_mgmt", a.resource_mgmt == FI_RM_ENABLED ? "FI_RM_ENABLED" : "FI_RM_DISABLED"},
          {"av_type", word(&a.av_type, FI_TYPE_AV_TYPE)},
          {"mr_mode", flags(static_cast<uint64_t>(static_cast<unsigned>(a.mr_mode)), mr_mode_names())},
          {"mr_key_size", a.mr_key_size},
          {"cq_data_size", a.cq_data_size},
          {"cq_cnt", a.cq_cnt},
          {"ep_cnt", a.ep_cnt},
          {"tx_ctx_cnt", a.tx_ctx_cnt},
          {"rx_ctx_cnt", a.rx_ctx_cnt},
          {"max_ep_tx_ctx", a.max_ep_tx_ctx},
          {"max_ep_rx_ctx", a.max_ep_rx_ctx},
          {"max_ep_stx_ctx", a.max_ep_stx_ctx},
          {"max_ep_srx_ctx", a.max_ep_srx_ctx},
          {"cntr_cnt", a.cntr_cnt},
          {"mr_iov_limit", a.mr_iov_limit},
          {"mr_cnt", a.mr_cnt},
          {"max_err_data", a.max_err_data},
          {"caps", flags(a.caps, capability_names())},
          {"mode", flags(a.mode, mode_names())}};
}

json of(const fi_fabric_attr& a) {
  return {{"name", text(a.name)},
          {"prov_name", text(a.prov_name)},
          {"prov_version", fmt::format("{}.{}", FI_MAJOR(a.prov_version), FI_MINOR(a.prov_version))},
          {"api_version", fmt::format("{}.{}", FI_MAJOR(a.api_version), FI_MINOR(a.api_version))}};
}

}  // namespace

json to_json(const fi_info& info) {
  return {{"caps", flags(info.caps, capability_names())},
          {"mode", flags(info.mode, mode_names())},
          {"addr_format", word(&info.addr_format, FI_TYPE_ADDR_FORMAT)},
          {"src_addr", address(info.src_addr, info.src_addrlen, info.addr_format)},
          {"dest_addr", address(info.dest_addr, info.dest_addrlen, info.addr_format)},
          {"tx_attr", of(*info.tx_attr)},
          {"rx_attr", of(*info.rx_attr)},
          {"ep_attr", of(*info.ep_attr)},
          {"domain_attr", of(*info.domain_attr)},
          {"fabric_attr", of(*info.fabric_attr)}};
}

}  // namespace weft::tool
