// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What <infiniband/verbs.h> of rdma-core 45 to 64 has and that of 44 has not, whichever is installed: structures, flags and fields behind the
// ends of older structures. Must not know what the calls do.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

// The types of these headers in prototypes; older headers do not declare them.
struct ibv_mr_init_attr;
struct ibv_dmah_init_attr;
struct ibv_dmah;
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

namespace weft::verbs::layout {

// FLUSH, since 45: ibv_wr_post(3), ibv_reg_mr(3).
inline constexpr unsigned access_flush_global = 256, access_flush_persistent = 512;
inline constexpr uint64_t device_flush_global = uint64_t{1} << 38;  // of device_cap_flags_ex
inline constexpr uint64_t device_atomic_write = uint64_t{1} << 40;
inline constexpr uint64_t qp_with_flush = 1 << 11;  // of send_ops_flags
inline constexpr int wr_flush_opcode = 14, wc_flush_opcode = 8;
inline constexpr uint8_t flush_global = 1, flush_persistent = 2;  // type
inline constexpr uint8_t flush_range = 0, flush_region = 1;       // level
using WrFlush = void (*)(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t type,
                         uint8_t level);

template <class T>
concept HasFlush = requires(T qp) {
  qp.wr_flush;
};
// ibv_qp_ex with the calls of later headers behind it.
template <class Theirs>
struct QpEx : Theirs {
  WrFlush wr_flush = nullptr;
};
template <HasFlush Theirs>
struct QpEx<Theirs> : Theirs {};
using ExtendedQp = QpEx<ibv_qp_ex>;
static_assert(sizeof(ExtendedQp) == offsetof(ibv_qp_ex, wr_atomic_write) + 2 * sizeof(void*));

// ibv_alloc_dmah(3), since 59.
struct Dmah {
  ibv_context* context;
};
struct DmahInitAttr {
  uint32_t comp_mask;
  uint32_t cpu_id;
  uint8_t ph;
  uint8_t tph_mem_type;
};
inline constexpr uint32_t dmah_cpu_id = 1, dmah_hint = 2, dmah_memory_type = 4;  // of comp_mask
inline constexpr uint8_t hint_max = 3;
inline constexpr uint8_t memory_type_max = 1;  // persistent memory

// ibv_alloc_parent_domain(3), comp_mask, since 64: IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC.
inline constexpr uint32_t parent_domain_unprotected = 4;

// ibv_reg_mr_ex(3), since 59. A field is there only if comp_mask says so: the structure of 59 ends with `dmah`.
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask;
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  Dmah* dmah;
  ibv_buf* buf;  // since 64
};
inline constexpr uint64_t mr_iova = 1, mr_addr = 2, mr_fd = 4, mr_fd_offset = 8, mr_dmah = 16,
                          mr_buf = 32;  // of comp_mask

// ibv_query_port(3), since 49: the speed behind the 52 bytes of ibv_port_attr; 0: active_speed has it. With room for what a provider writes
// that was built with later headers.
union PortAttr {
  ibv_port_attr attr;
  unsigned char bytes[128];
};
inline constexpr size_t active_speed_ex_at = 52;
static_assert(sizeof(ibv_port_attr) >= active_speed_ex_at && sizeof(ibv_port_attr) < sizeof(PortAttr));
inline uint32_t active_speed_ex(const PortAttr& port) noexcept {
  uint32_t speed = 0;
  std::memcpy(&speed, port.bytes + active_speed_ex_at, sizeof speed);
  return speed;
}

// Against the headers that have them.
template <class T>
concept Declared = requires {
  sizeof(T);
};
template <class T>
concept HasExtendedSpeed = requires(T attr) {
  attr.active_speed_ex;
};
template <class Theirs>
constexpr bool is_dmah() {
  if constexpr (Declared<Theirs>) return sizeof(Theirs) == sizeof(Dmah) && offsetof(Theirs, context) == 0;
  return true;
}
template <class Theirs>
constexpr bool is_dmah_init_attr() {
  if constexpr (Declared<Theirs>)
    return offsetof(Theirs, comp_mask) == 0 && offsetof(Theirs, cpu_id) == offsetof(DmahInitAttr, cpu_id) &&
           offsetof(Theirs, tph_mem_type) == offsetof(DmahInitAttr, tph_mem_type);
  return true;
}
template <class Theirs>
constexpr bool is_mr_init_attr() {
  if constexpr (Declared<Theirs>)
    return offsetof(Theirs, length) == 0 && offsetof(Theirs, access) == offsetof(MrInitAttr, access) &&
           offsetof(Theirs, comp_mask) == offsetof(MrInitAttr, comp_mask) &&
           offsetof(Theirs, addr) == offsetof(MrInitAttr, addr) &&
           offsetof(Theirs, fd_offset) == offsetof(MrInitAttr, fd_offset) &&
           offsetof(Theirs, iova) == offsetof(MrInitAttr, iova) &&
           offsetof(Theirs, fd) == offsetof(MrInitAttr, fd) &&
           offsetof(Theirs, dmah) == offsetof(MrInitAttr, dmah);
  return true;
}
template <class Theirs>
constexpr bool is_port_attr() {
  if constexpr (HasExtendedSpeed<Theirs>) return offsetof(Theirs, active_speed_ex) == active_speed_ex_at;
  return sizeof(Theirs) == active_speed_ex_at;
}
static_assert(is_dmah<ibv_dmah>());
static_assert(is_dmah_init_attr<ibv_dmah_init_attr>());
static_assert(is_mr_init_attr<ibv_mr_init_attr>());
static_assert(is_port_attr<ibv_port_attr>());

}  // namespace weft::verbs::layout
