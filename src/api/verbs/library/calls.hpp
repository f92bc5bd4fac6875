// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of libibverbs as functions of this library: what the exported symbols and the tables of contexts lead to. Each checks what the manual
// pages and <infiniband/verbs.h> say of its arguments, calls the provider, and fills the fields that are the same for all devices. Conventions
// and errors are those of the manual page of the same name; EOPNOTSUPP: the provider has no such call. Any thread.
// Must not know symbols and their versions.
#pragma once

#include <sys/types.h>

#include "api/verbs/library/context.hpp"
#include "api/verbs/library/generations.hpp"

namespace weft::verbs {

// --- query.cpp ---
int query_device(ibv_context* context, ibv_device_attr* attr) noexcept;
// `bytes`: of the caller's struct. EINVAL: it ends before comp_mask, or input has an unknown bit.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t bytes) noexcept;
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t bytes) noexcept;
// In units of 100 Mbit/s. EOPNOTSUPP: width and speed of the port have no known code.
int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) noexcept;
int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) noexcept;
int query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t flags,
                 size_t bytes) noexcept;
ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t count, uint32_t flags,
                        size_t bytes) noexcept;
// As ibv_devinfo(1) asks: 0 is InfiniBand or RoCEv1, 1 is RoCEv2.
int query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) noexcept;
int query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) noexcept;
int pkey_index(ibv_context* context, uint8_t port, __be16 pkey) noexcept;
int query_values(ibv_context* context, ibv_values_ex* values) noexcept;

// --- memory.cpp ---
ibv_pd* alloc_pd(ibv_context* context) noexcept;
int dealloc_pd(ibv_pd* pd) noexcept;
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept;
int dealloc_td(ibv_td* td) noexcept;
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept;
ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) noexcept;
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, int access) noexcept;
int dereg_mr(ibv_mr* mr) noexcept;
ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept;
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list,
              uint32_t count) noexcept;
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept;
int dealloc_mw(ibv_mw* mw) noexcept;
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept;

// --- buffers.cpp ---
layout::Dmah* alloc_dmah(ibv_context* context, const layout::DmahInitAttr* attr) noexcept;
int dealloc_dmah(layout::Dmah* dmah) noexcept;
void free_dma_handles(const ibv_context* context) noexcept;  // those that the program has left
ibv_mr* reg_mr_ex(ibv_pd* pd, const layout::MrInitAttr* attr) noexcept;
void* alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf) noexcept;
void free_buf(ibv_buf* buf) noexcept;
ibv_mr* reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, size_t length, int access) noexcept;

// --- queues.cpp ---
ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int vector) noexcept;
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept;
int resize_cq(ibv_cq* cq, int cqe) noexcept;
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept;
int destroy_cq(ibv_cq* cq) noexcept;
void ack_cq_events(ibv_cq* cq, unsigned count) noexcept;
void ack_async_event(ibv_async_event* event) noexcept;
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) noexcept;
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept;
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) noexcept;
int query_srq(ibv_srq* srq, ibv_srq_attr* attr) noexcept;
int get_srq_num(ibv_srq* srq, uint32_t* number) noexcept;
int destroy_srq(ibv_srq* srq) noexcept;
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) noexcept;
int close_xrcd(ibv_xrcd* xrcd) noexcept;

// --- queue_pairs.cpp ---
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) noexcept;
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept;
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) noexcept;
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept;
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) noexcept;
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept;
int destroy_qp(ibv_qp* qp) noexcept;
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept;
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept;

// --- address.cpp ---
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept;
int destroy_ah(ibv_ah* ah) noexcept;
// 0, or -1 and errno. The GRH is an IPv6 header, or has an IPv4 header in its last 20 bytes (RoCEv2; IBTA annex A17.4.5.2).
int init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) noexcept;
ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) noexcept;

// --- shared by these ---

// A call that the provider may lack.
template <class... Parameters, class... Arguments>
int call(int (*function)(Parameters...), Arguments... arguments) noexcept {
  return function != nullptr ? function(arguments...) : EOPNOTSUPP;
}
template <class T, class... Parameters, class... Arguments>
T* call(T* (*function)(Parameters...), Arguments... arguments) noexcept {
  if (function != nullptr) return function(arguments...);
  errno = EOPNOTSUPP;
  return nullptr;
}

inline std::nullptr_t refuse(int code) noexcept {
  errno = code;
  return nullptr;
}
// The same with a line of the log that says why; says() for calls that return the errno.
int says(int code, const char* why) noexcept;
inline std::nullptr_t refuse(int code, const char* why) noexcept { return refuse(says(code, why)); }

// Bits of `mask` that are not in `known`.
constexpr bool unknown(uint64_t mask, uint64_t known) noexcept { return (mask & ~known) != 0; }

inline const weft_verbs_ops& ops_of(ibv_context* context) noexcept { return Context::of(context).ops; }
inline Events& events_of(ibv_context* context) noexcept { return *Context::of(context).events; }

// The fields of a CQ, QP or SRQ that acknowledging needs.
void init_waiting(pthread_mutex_t& mutex, pthread_cond_t& cond) noexcept;
// Sleeps until `completed` has reached `delivered`; both count modulo 2^32.
void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed,
                       uint32_t delivered) noexcept;

}  // namespace weft::verbs
