// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The exported calls of libibverbs.so.1 in their newest versions (libibverbs.map), which only call the library. Not compiled with -flto where
// symbol versions are assembler lines (clang).
#include <infiniband/verbs.h>
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#include <cerrno>

#include "api/verbs/entry/exported.hpp"
#include "api/verbs/library/calls.hpp"
#include "api/verbs/library/errno_guard.hpp"
#include "api/verbs/library/text.hpp"

namespace {

namespace library = weft::verbs;
namespace layout = library::layout;
using library::errno_guarded;
using library::guard_errno;

// The kernel's numbers of devices and handles are not there.
constexpr int no_index = -1;

}  // namespace

extern "C" {

WEFT_EXPORT int weft_verbs_register(const weft_verbs_provider* provider) {
  return library::register_provider(provider);
}

// --- devices ---
WEFT_EXPORT ibv_device** ibv_get_device_list(int* count) {
  return errno_guarded<library::device_list>(count);
}
WEFT_EXPORT void ibv_free_device_list(ibv_device** list) { errno_guarded<library::free_device_list>(list); }
WEFT_EXPORT const char* ibv_get_device_name(ibv_device* device) { return device->name; }
WEFT_EXPORT int ibv_get_device_index(ibv_device*) { return no_index; }
WEFT_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  return library::Device::of(device).reported.guid;
}
WEFT_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  return errno_guarded<library::open_device>(device);
}
WEFT_EXPORT int ibv_close_device(ibv_context* context) {
  return errno_guarded<library::close_device>(context);
}

// --- what only a kernel can share between processes ---
WEFT_EXPORT ibv_context* ibv_import_device(int) { return library::refuse(EOPNOTSUPP); }
WEFT_EXPORT ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return library::refuse(EOPNOTSUPP); }
WEFT_EXPORT void ibv_unimport_pd(ibv_pd*) {}
WEFT_EXPORT ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return library::refuse(EOPNOTSUPP); }
WEFT_EXPORT void ibv_unimport_mr(ibv_mr*) {}
WEFT_EXPORT ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return library::refuse(EOPNOTSUPP); }
WEFT_EXPORT void ibv_unimport_dm(ibv_dm*) {}

// --- values ---
WEFT_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return errno_guarded<library::query_device>(context, attr);
}
// Of programs that were built before port_cap_flags2.
WEFT_EXPORT int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return errno_guarded<library::query_port>(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                                            offsetof(ibv_port_attr, port_cap_flags2));
}
WEFT_EXPORT int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  return errno_guarded<library::query_port_speed>(context, port, speed);
}
WEFT_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  return errno_guarded<library::query_gid>(context, port, index, gid);
}
WEFT_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                                  uint32_t flags, size_t bytes) {
  return errno_guarded<library::query_gid_ex>(context, port, index, entry, flags, bytes);
}
WEFT_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t count,
                                         uint32_t flags, size_t bytes) {
  return errno_guarded<library::query_gid_table>(context, entries, count, flags, bytes);
}
WEFT_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  return errno_guarded<library::query_pkey>(context, port, index, pkey);
}
WEFT_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  library::ErrnoGuard keeper;
  const int index = library::pkey_index(context, port, pkey);
  if (index < 0) keeper.fails();
  return index;
}

// --- memory ---
WEFT_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) { return errno_guarded<library::alloc_pd>(context); }
WEFT_EXPORT int ibv_dealloc_pd(ibv_pd* pd) { return errno_guarded<library::dealloc_pd>(pd); }
WEFT_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return errno_guarded<library::reg_mr>(pd, address, length, reinterpret_cast<uintptr_t>(address),
                                        static_cast<unsigned>(access));
}
WEFT_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return errno_guarded<library::reg_mr>(pd, address, length, iova, static_cast<unsigned>(access));
}
WEFT_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                     unsigned access) {
  return errno_guarded<library::reg_mr>(pd, address, length, iova, access);
}
WEFT_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  return library::refuse(EOPNOTSUPP);
}
WEFT_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, int access) {
  return errno_guarded<library::rereg_mr>(mr, flags, pd, address, length, access);
}
WEFT_EXPORT ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
  return errno_guarded<library::reg_mr_ex>(pd, reinterpret_cast<layout::MrInitAttr*>(attr));
}
WEFT_EXPORT ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attr) {
  return reinterpret_cast<ibv_dmah*>(
      errno_guarded<library::alloc_dmah>(context, reinterpret_cast<layout::DmahInitAttr*>(attr)));
}
WEFT_EXPORT int ibv_dealloc_dmah(ibv_dmah* dmah) {
  return errno_guarded<library::dealloc_dmah>(reinterpret_cast<layout::Dmah*>(dmah));
}
WEFT_EXPORT void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf) {
  return errno_guarded<library::alloc_buf>(pd, size, buf);
}
WEFT_EXPORT void ibv_free_buf(ibv_buf* buf) { errno_guarded<library::free_buf>(buf); }
WEFT_EXPORT ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, size_t length, int access) {
  return errno_guarded<library::reg_buf_mr>(pd, buf, address, length, access);
}
// Buffers are pages of the process, and none is a dma-buf (ibv_alloc_buf(3)).
WEFT_EXPORT int ibv_export_buf_dmabuf_fd(ibv_buf* buf) {
  errno = buf != nullptr ? ENODATA : EINVAL;
  return -1;
}
// No device has memory of its own.
WEFT_EXPORT int ibv_dm_export_dmabuf_fd(ibv_dm*) {
  errno = EOPNOTSUPP;
  return -1;
}
WEFT_EXPORT int ibv_dereg_mr(ibv_mr* mr) { return errno_guarded<library::dereg_mr>(mr); }

// --- events ---
WEFT_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return guard_errno([&] { return library::events_of(context).create_channel(context); });
}
WEFT_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return guard_errno(
      [&] { return library::events_of(channel->context).destroy_channel(library::Channel::of(channel)); });
}
WEFT_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return guard_errno([&] {
    return library::events_of(channel->context)
        .next_completion(library::Channel::of(channel), cq, cq_context, &library::ops_of(channel->context));
  });
}
WEFT_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  errno_guarded<library::ack_cq_events>(cq, count);
}
WEFT_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return guard_errno([&] { return library::events_of(context).next_async(event); });
}
WEFT_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  errno_guarded<library::ack_async_event>(event);
}

// --- queues ---
WEFT_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                  int vector) {
  return errno_guarded<library::create_cq>(context, cqe, cq_context, channel, vector);
}
WEFT_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) { return errno_guarded<library::resize_cq>(cq, cqe); }
WEFT_EXPORT int ibv_destroy_cq(ibv_cq* cq) { return errno_guarded<library::destroy_cq>(cq); }
WEFT_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return errno_guarded<library::create_srq>(pd, attr);
}
WEFT_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return errno_guarded<library::modify_srq>(srq, attr, mask);
}
WEFT_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return errno_guarded<library::query_srq>(srq, attr);
}
WEFT_EXPORT int ibv_destroy_srq(ibv_srq* srq) { return errno_guarded<library::destroy_srq>(srq); }

// --- queue pairs ---
WEFT_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return errno_guarded<library::create_qp>(pd, attr);
}
WEFT_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) { return errno_guarded<library::qp_to_qp_ex>(qp); }
WEFT_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return errno_guarded<library::query_qp>(qp, attr, mask, init);
}
// No promise: packets of one request may be placed in any order.
WEFT_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }
WEFT_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return errno_guarded<library::modify_qp>(qp, attr, mask);
}
WEFT_EXPORT int ibv_destroy_qp(ibv_qp* qp) { return errno_guarded<library::destroy_qp>(qp); }
WEFT_EXPORT int ibv_set_ece(ibv_qp*, ibv_ece*) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_query_ece(ibv_qp*, ibv_ece*) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return errno_guarded<library::attach_mcast>(qp, gid, lid);
}
WEFT_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return errno_guarded<library::detach_mcast>(qp, gid, lid);
}

// --- completion counters ---
WEFT_EXPORT int _ibv_query_comp_cntr_caps(ibv_context*, ibv_comp_cntr_caps*, size_t) {
  return errno = EOPNOTSUPP;
}
WEFT_EXPORT ibv_comp_cntr* ibv_create_comp_cntr(ibv_context*, ibv_comp_cntr_init_attr*) {
  return library::refuse(EOPNOTSUPP);
}
WEFT_EXPORT int ibv_destroy_comp_cntr(ibv_comp_cntr*) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_set_comp_cntr(ibv_comp_cntr*, uint64_t) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_set_err_comp_cntr(ibv_comp_cntr*, uint64_t) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_inc_comp_cntr(ibv_comp_cntr*, uint64_t) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_inc_err_comp_cntr(ibv_comp_cntr*, uint64_t) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_read_comp_cntr(ibv_comp_cntr*, uint64_t*) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_read_err_comp_cntr(ibv_comp_cntr*, uint64_t*) { return errno = EOPNOTSUPP; }
WEFT_EXPORT int ibv_qp_attach_comp_cntr(ibv_qp*, ibv_comp_cntr*, ibv_qp_attach_comp_cntr_attr*) {
  return errno = EOPNOTSUPP;
}

// --- address handles ---
WEFT_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return errno_guarded<library::create_ah>(pd, attr);
}
WEFT_EXPORT int ibv_destroy_ah(ibv_ah* ah) { return errno_guarded<library::destroy_ah>(ah); }
WEFT_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                    ibv_ah_attr* attr) {
  return errno_guarded<library::init_ah_from_wc>(context, port, wc, grh, attr);
}
WEFT_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  return errno_guarded<library::create_ah_from_wc>(pd, wc, grh, port);
}
// Who sends Ethernet frames itself asks for this; nobody here does.
WEFT_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t*, uint16_t*) {
  return errno = EOPNOTSUPP;
}

// --- fork: registered memory is read and written by the process itself, so a child needs no care ---
WEFT_EXPORT int ibv_fork_init() { return 0; }
WEFT_EXPORT ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
WEFT_EXPORT int ibv_dontfork_range(void*, size_t) { return 0; }
WEFT_EXPORT int ibv_dofork_range(void*, size_t) { return 0; }

// --- text and rates ---
WEFT_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) { return library::status_text(status); }
WEFT_EXPORT const char* ibv_event_type_str(ibv_event_type type) { return library::event_text(type); }
WEFT_EXPORT const char* ibv_node_type_str(ibv_node_type type) { return library::node_text(type); }
WEFT_EXPORT const char* ibv_port_state_str(ibv_port_state state) { return library::state_text(state); }
WEFT_EXPORT int ibv_rate_to_mult(ibv_rate rate) { return library::rate_to_mult(rate); }
WEFT_EXPORT ibv_rate mult_to_ibv_rate(int mult) { return library::mult_to_rate(mult); }
WEFT_EXPORT int ibv_rate_to_mbps(ibv_rate rate) { return library::rate_to_mbps(rate); }
WEFT_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) { return library::mbps_to_rate(mbps); }

}  // extern "C"
