// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exported symbols of IBVERBS_PRIVATE_34 (rdma-core up to 56), _57, _59, _64 and _65: what the providers of these releases (libmlx5.so.1,
// libefa.so.1 and the like) are linked to, and ibv_devinfo(1). A release has one of these nodes; ours has all, with the same functions. Programs link
// some of the providers for calls of their own, so the symbols must be there; the devices of a kernel are not, so all but a few refuse.
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "api/verbs/entry/exported.hpp"
#include "api/verbs/library/calls.hpp"
#include "api/verbs/library/errno_guard.hpp"
#include "api/verbs/library/text.hpp"

// `name` at each node since that of the release in which it appeared, of the function or object weft_private_`name`.
#define WEFT_SINCE_65(name) WEFT_VERSIONED(weft_private_##name, #name "@@IBVERBS_PRIVATE_65")
#define WEFT_SINCE_64(name)                                         \
  WEFT_VERSIONED(weft_private_##name, #name "@IBVERBS_PRIVATE_64"); \
  WEFT_SINCE_65(name)
#define WEFT_SINCE_59(name)                                         \
  WEFT_VERSIONED(weft_private_##name, #name "@IBVERBS_PRIVATE_59"); \
  WEFT_SINCE_64(name)
#define WEFT_SINCE_34(name)                                         \
  WEFT_VERSIONED(weft_private_##name, #name "@IBVERBS_PRIVATE_34"); \
  WEFT_VERSIONED(weft_private_##name, #name "@IBVERBS_PRIVATE_57"); \
  WEFT_SINCE_59(name)
#define WEFT_REFUSES(since, name)                                      \
  WEFT_EXPORT int weft_private_##name() { return errno = EOPNOTSUPP; } \
  WEFT_SINCE_##since(name);

extern "C" {

// Whether a device may be taken away under a program.
WEFT_EXPORT bool weft_private_verbs_allow_disassociate_destroy = false;
WEFT_SINCE_34(verbs_allow_disassociate_destroy);

// Called from constructors.
WEFT_EXPORT void verbs_register_driver_34(const void*) {}
WEFT_EXPORT void verbs_register_driver_57(const void*) {}
WEFT_EXPORT void verbs_register_driver_59(const void*) {}
WEFT_EXPORT void verbs_register_driver_64(const void*) {}
WEFT_EXPORT void verbs_register_driver_65(const void*) {}

// ibv_devinfo(1) and Python's pyverbs ask it.
WEFT_EXPORT int weft_private_ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                                int* type) {
  return weft::verbs::errno_guarded<weft::verbs::query_gid_type>(context, port, index, type);
}
WEFT_SINCE_34(ibv_query_gid_type);

// Declared in <infiniband/verbs.h> since rdma-core 50.
WEFT_EXPORT const char* weft_private_ibv_wr_opcode_str(int opcode) {
  return weft::verbs::opcode_text(opcode);
}
WEFT_SINCE_34(ibv_wr_opcode_str);

WEFT_EXPORT void weft_private___verbs_log(void*, uint32_t, const char*, ...) {}
WEFT_SINCE_34(__verbs_log);
WEFT_EXPORT int weft_private_ibv_read_ibdev_sysfs_file(char*, size_t, ibv_device*, const char*, ...) {
  errno = EOPNOTSUPP;
  return -1;
}
WEFT_SINCE_34(ibv_read_ibdev_sysfs_file);
// Providers make room for so many attributes.
WEFT_EXPORT unsigned weft_private___ioctl_final_num_attrs(unsigned count, void*) { return count; }
WEFT_SINCE_34(__ioctl_final_num_attrs);
WEFT_EXPORT void weft_private_verbs_init_cq(void*, void*, void*, void*) {}
WEFT_SINCE_34(verbs_init_cq);
WEFT_EXPORT void weft_private_verbs_set_ops(void*, const void*) {}
WEFT_SINCE_34(verbs_set_ops);
WEFT_EXPORT void weft_private_verbs_uninit_context(void*) {}
WEFT_SINCE_34(verbs_uninit_context);
WEFT_EXPORT void* weft_private__verbs_init_and_alloc_context() { return weft::verbs::refuse(EOPNOTSUPP); }
WEFT_SINCE_34(_verbs_init_and_alloc_context);
WEFT_EXPORT void* weft_private_verbs_open_device() { return weft::verbs::refuse(EOPNOTSUPP); }
WEFT_SINCE_34(verbs_open_device);
WEFT_EXPORT int weft_private_ibv_cmd_export_dmabuf_fd() {
  errno = EOPNOTSUPP;
  return -1;
}
WEFT_SINCE_59(ibv_cmd_export_dmabuf_fd);
WEFT_EXPORT void* weft_private_ibv_dmabuf_heap_alloc() { return weft::verbs::refuse(EOPNOTSUPP); }
WEFT_SINCE_64(ibv_dmabuf_heap_alloc);
WEFT_EXPORT void* weft_private_ibv_dmabuf_heap_cc_shared_init() { return weft::verbs::refuse(EOPNOTSUPP); }
WEFT_SINCE_64(ibv_dmabuf_heap_cc_shared_init);
WEFT_EXPORT void weft_private_ibv_dmabuf_heap_destroy(void*) {}
WEFT_SINCE_64(ibv_dmabuf_heap_destroy);
WEFT_EXPORT void weft_private_ibv_dmabuf_heap_free(void*) {}
WEFT_SINCE_64(ibv_dmabuf_heap_free);

// A number of completions, or -1.
WEFT_EXPORT int weft_private_ibv_cmd_poll_cq() {
  errno = EOPNOTSUPP;
  return -1;
}
WEFT_SINCE_34(ibv_cmd_poll_cq);
WEFT_REFUSES(34, execute_ioctl)
WEFT_REFUSES(34, ibv_cmd_advise_mr)
WEFT_REFUSES(34, ibv_cmd_alloc_dm)
WEFT_REFUSES(34, ibv_cmd_alloc_mw)
WEFT_REFUSES(34, ibv_cmd_alloc_pd)
WEFT_REFUSES(34, ibv_cmd_attach_mcast)
WEFT_REFUSES(34, ibv_cmd_close_xrcd)
WEFT_REFUSES(34, ibv_cmd_create_ah)
WEFT_REFUSES(34, ibv_cmd_create_counters)
WEFT_REFUSES(34, ibv_cmd_create_cq)
WEFT_REFUSES(34, ibv_cmd_create_cq_ex)
WEFT_REFUSES(34, ibv_cmd_create_cq_ex2)
WEFT_REFUSES(34, ibv_cmd_create_flow)
WEFT_REFUSES(34, ibv_cmd_create_flow_action_esp)
WEFT_REFUSES(34, ibv_cmd_create_qp)
WEFT_REFUSES(34, ibv_cmd_create_qp_ex)
WEFT_REFUSES(34, ibv_cmd_create_qp_ex2)
WEFT_REFUSES(34, ibv_cmd_create_rwq_ind_table)
WEFT_REFUSES(34, ibv_cmd_create_srq)
WEFT_REFUSES(34, ibv_cmd_create_srq_ex)
WEFT_REFUSES(34, ibv_cmd_create_wq)
WEFT_REFUSES(34, ibv_cmd_dealloc_mw)
WEFT_REFUSES(34, ibv_cmd_dealloc_pd)
WEFT_REFUSES(34, ibv_cmd_dereg_mr)
WEFT_REFUSES(34, ibv_cmd_destroy_ah)
WEFT_REFUSES(34, ibv_cmd_destroy_counters)
WEFT_REFUSES(34, ibv_cmd_destroy_cq)
WEFT_REFUSES(34, ibv_cmd_destroy_flow)
WEFT_REFUSES(34, ibv_cmd_destroy_flow_action)
WEFT_REFUSES(34, ibv_cmd_destroy_qp)
WEFT_REFUSES(34, ibv_cmd_destroy_rwq_ind_table)
WEFT_REFUSES(34, ibv_cmd_destroy_srq)
WEFT_REFUSES(34, ibv_cmd_destroy_wq)
WEFT_REFUSES(34, ibv_cmd_detach_mcast)
WEFT_REFUSES(34, ibv_cmd_free_dm)
WEFT_REFUSES(34, ibv_cmd_get_context)
WEFT_REFUSES(34, ibv_cmd_modify_cq)
WEFT_REFUSES(34, ibv_cmd_modify_flow_action_esp)
WEFT_REFUSES(34, ibv_cmd_modify_qp)
WEFT_REFUSES(34, ibv_cmd_modify_qp_ex)
WEFT_REFUSES(34, ibv_cmd_modify_srq)
WEFT_REFUSES(34, ibv_cmd_modify_wq)
WEFT_REFUSES(34, ibv_cmd_open_qp)
WEFT_REFUSES(34, ibv_cmd_open_xrcd)
WEFT_REFUSES(34, ibv_cmd_post_recv)
WEFT_REFUSES(34, ibv_cmd_post_send)
WEFT_REFUSES(34, ibv_cmd_post_srq_recv)
WEFT_REFUSES(34, ibv_cmd_query_context)
WEFT_REFUSES(34, ibv_cmd_query_device_any)
WEFT_REFUSES(34, ibv_cmd_query_mr)
WEFT_REFUSES(34, ibv_cmd_query_port)
WEFT_REFUSES(34, ibv_cmd_query_qp)
WEFT_REFUSES(34, ibv_cmd_query_srq)
WEFT_REFUSES(34, ibv_cmd_read_counters)
WEFT_REFUSES(34, ibv_cmd_reg_dm_mr)
WEFT_REFUSES(34, ibv_cmd_reg_dmabuf_mr)
WEFT_REFUSES(34, ibv_cmd_reg_mr)
WEFT_REFUSES(34, ibv_cmd_req_notify_cq)
WEFT_REFUSES(34, ibv_cmd_rereg_mr)
WEFT_REFUSES(34, ibv_cmd_resize_cq)

WEFT_REFUSES(59, ibv_cmd_alloc_dmah)
WEFT_REFUSES(59, ibv_cmd_free_dmah)
WEFT_REFUSES(59, ibv_cmd_query_port_speed)
WEFT_REFUSES(59, ibv_cmd_reg_mr_ex)

WEFT_REFUSES(65, ibv_cmd_create_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_destroy_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_inc_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_inc_err_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_qp_attach_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_query_comp_cntr_caps)
WEFT_REFUSES(65, ibv_cmd_read_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_read_err_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_set_comp_cntr)
WEFT_REFUSES(65, ibv_cmd_set_err_comp_cntr)

}  // extern "C"
