// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Constants of libfabric 1.x that the headers of 2.x removed, defined as 0 or warn about. Programs built with 1.x still pass them, so their values are
// part of the binary interface whichever headers are installed (fi_getinfo(3), fi_mr(3), fi_domain(3), fi_endpoint(3) of 1.17).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstdint>

namespace weft::retired {

// domain_attr.mr_mode
inline constexpr int mr_unspec = 0;
inline constexpr int mr_basic = 1 << 0;
inline constexpr int mr_scalable = 1 << 1;

// msg_order, comp_order
inline constexpr uint64_t order_none = 0;
inline constexpr uint64_t order_strict = 0x1FF;
inline constexpr uint64_t order_data = uint64_t{1} << 16;

// caps, flags
inline constexpr uint64_t priority = uint64_t{1} << 22;
inline constexpr uint64_t peer_transfer = uint64_t{1} << 36;
inline constexpr uint64_t xpu_trigger = uint64_t{1} << 44;
inline constexpr uint64_t variable_msg = uint64_t{1} << 48;
inline constexpr uint64_t reg_mr = uint64_t{1} << 59;

// mode
inline constexpr uint64_t buffered_recv = uint64_t{1} << 51;
inline constexpr uint64_t restricted_comp = uint64_t{1} << 53;
inline constexpr uint64_t notify_flags_only = uint64_t{1} << 54;
inline constexpr uint64_t local_mr = uint64_t{1} << 55;

// ep_attr.type; integers, because fi_ep_type of 2.x cannot hold them
inline constexpr uint32_t ep_sock_stream = 4;
inline constexpr uint32_t ep_sock_dgram = 5;

// The values of a provider's own: protocols, commands of fi_control
inline constexpr uint32_t prov_specific = uint32_t{1} << 31;

// One past the last of fi_log_level and fi_log_subsys (rdma/providers/fi_log.h, whose macros programs need not have)
inline constexpr int log_levels = 4;
inline constexpr int log_subsystems = 10;

#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION == 17
static_assert(mr_unspec == FI_MR_UNSPEC && mr_basic == FI_MR_BASIC && mr_scalable == FI_MR_SCALABLE);
static_assert(order_none == FI_ORDER_NONE && order_strict == FI_ORDER_STRICT && order_data == FI_ORDER_DATA);
static_assert(priority == FI_PRIORITY && peer_transfer == FI_PEER_TRANSFER && xpu_trigger == FI_XPU_TRIGGER);
static_assert(variable_msg == FI_VARIABLE_MSG && reg_mr == FI_REG_MR && buffered_recv == FI_BUFFERED_RECV);
static_assert(restricted_comp == FI_RESTRICTED_COMP && notify_flags_only == FI_NOTIFY_FLAGS_ONLY);
static_assert(local_mr == FI_LOCAL_MR && ep_sock_stream == FI_EP_SOCK_STREAM &&
              ep_sock_dgram == FI_EP_SOCK_DGRAM);
static_assert(prov_specific == FI_PROV_SPECIFIC);
#endif

}  // namespace weft::retired
