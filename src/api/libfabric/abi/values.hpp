// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Flags, enumerators and capabilities of libfabric 1.18 to 2.6 that headers of 1.17 do not name, whichever are installed. The version behind
// each is the API that brought it: a program that asks for an older one does not mean it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::fi::later {

// Capabilities, fi_getinfo(3). Bit 48 was FI_VARIABLE_MSG before 2.0.
inline constexpr uint64_t tagged_directed_recv = uint64_t{1} << 45;  // 2.0
inline constexpr uint64_t tagged_multi_recv = uint64_t{1} << 46;     // 2.0
inline constexpr uint64_t exact_directed_recv = uint64_t{1} << 48;   // 2.0

// fi_mr(3), flags.
inline constexpr uint64_t mr_dmabuf = uint64_t{1} << 40;  // 1.20

// fi_domain(3).
inline constexpr uint32_t progress_control_unified = 3;  // 1.21
inline constexpr size_t av_auth_key = SIZE_MAX;          // auth_key_size, 1.20

// fi_getinfo(3), addr_format.
inline constexpr uint32_t addr_ucx = 16;     // 1.18
inline constexpr uint32_t sockaddr_ip = 17;  // 2.3

// fi_endpoint(3), options of FI_OPT_ENDPOINT.
enum Option : int {
  cuda_api_permitted = 10,  // 1.18
  shared_memory_permitted,  // 1.21
  max_msg_size,             // from here on 1.22
  max_tagged_size,
  max_rma_size,
  max_atomic_size,
  inject_msg_size,
  inject_tagged_size,
  inject_rma_size,
  inject_atomic_size,
};

// fi_tostr(3), types.
enum Type : int {
  type_av_attr = 29,
  type_cq_attr,
  type_mr_attr,
  type_cntr_attr,
  type_cq_err_entry,  // 1.20
  type_cq_wait_cond,  // 2.5
  type_wait_obj,
};

// fi_errno(3).
inline constexpr int efirewalladdr = 271;  // 2.2

}  // namespace weft::fi::later
