// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exported symbols of IBVERBS_PRIVATE_34: what the providers of that version (libmlx5.so.1, libefa.so.1 and the like) are linked to. Programs
// link some of these for calls of their own, so the symbols must be there; the devices of a kernel are not, so all but a few refuse.
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "api/verbs/entry/exported.hpp"
#include "api/verbs/library/calls.hpp"
#include "api/verbs/library/errno_guard.hpp"

#define WEFT_PRIVATE(name) \
  WEFT_EXPORT int name() { return errno = EOPNOTSUPP; }

extern "C" {

// Whether a device may be taken away under a program.
WEFT_EXPORT bool verbs_allow_disassociate_destroy = false;

// Called from constructors.
WEFT_EXPORT void verbs_register_driver_34(const void*) {}

// ibv_devinfo(1) and Python's pyverbs ask it.
WEFT_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) {
  return weft::verbs::errno_guarded<weft::verbs::query_gid_type>(context, port, index, type);
}

WEFT_EXPORT void __verbs_log(void*, uint32_t, const char*, ...) {}
WEFT_EXPORT int ibv_read_ibdev_sysfs_file(char*, size_t, ibv_device*, const char*, ...) {
  errno = EOPNOTSUPP;
  return -1;
}
WEFT_EXPORT unsigned __ioctl_final_num_attrs(unsigned, void*) { return 0; }
WEFT_EXPORT void verbs_init_cq(void*, void*, void*, void*) {}
WEFT_EXPORT void verbs_set_ops(void*, const void*) {}
WEFT_EXPORT void verbs_uninit_context(void*) {}
WEFT_EXPORT void* _verbs_init_and_alloc_context() { return weft::verbs::refuse(EOPNOTSUPP); }
WEFT_EXPORT void* verbs_open_device() { return weft::verbs::refuse(EOPNOTSUPP); }
WEFT_PRIVATE(execute_ioctl)

WEFT_PRIVATE(ibv_cmd_advise_mr)
WEFT_PRIVATE(ibv_cmd_alloc_dm)
WEFT_PRIVATE(ibv_cmd_alloc_mw)
WEFT_PRIVATE(ibv_cmd_alloc_pd)
WEFT_PRIVATE(ibv_cmd_attach_mcast)
WEFT_PRIVATE(ibv_cmd_close_xrcd)
WEFT_PRIVATE(ibv_cmd_create_ah)
WEFT_PRIVATE(ibv_cmd_create_counters)
WEFT_PRIVATE(ibv_cmd_create_cq)
WEFT_PRIVATE(ibv_cmd_create_cq_ex)
WEFT_PRIVATE(ibv_cmd_create_flow)
WEFT_PRIVATE(ibv_cmd_create_flow_action_esp)
WEFT_PRIVATE(ibv_cmd_create_qp)
WEFT_PRIVATE(ibv_cmd_create_qp_ex)
WEFT_PRIVATE(ibv_cmd_create_qp_ex2)
WEFT_PRIVATE(ibv_cmd_create_rwq_ind_table)
WEFT_PRIVATE(ibv_cmd_create_srq)
WEFT_PRIVATE(ibv_cmd_create_srq_ex)
WEFT_PRIVATE(ibv_cmd_create_wq)
WEFT_PRIVATE(ibv_cmd_dealloc_mw)
WEFT_PRIVATE(ibv_cmd_dealloc_pd)
WEFT_PRIVATE(ibv_cmd_dereg_mr)
WEFT_PRIVATE(ibv_cmd_destroy_ah)
WEFT_PRIVATE(ibv_cmd_destroy_counters)
WEFT_PRIVATE(ibv_cmd_destroy_cq)
WEFT_PRIVATE(ibv_cmd_destroy_flow)
WEFT_PRIVATE(ibv_cmd_destroy_flow_action)
WEFT_PRIVATE(ibv_cmd_destroy_qp)
WEFT_PRIVATE(ibv_cmd_destroy_rwq_ind_table)
WEFT_PRIVATE(ibv_cmd_destroy_srq)
WEFT_PRIVATE(ibv_cmd_destroy_wq)
WEFT_PRIVATE(ibv_cmd_detach_mcast)
WEFT_PRIVATE(ibv_cmd_free_dm)
WEFT_PRIVATE(ibv_cmd_get_context)
WEFT_PRIVATE(ibv_cmd_modify_cq)
WEFT_PRIVATE(ibv_cmd_modify_flow_action_esp)
WEFT_PRIVATE(ibv_cmd_modify_qp)
WEFT_PRIVATE(ibv_cmd_modify_qp_ex)
WEFT_PRIVATE(ibv_cmd_modify_srq)
WEFT_PRIVATE(ibv_cmd_modify_wq)
WEFT_PRIVATE(ibv_cmd_open_qp)
WEFT_PRIVATE(ibv_cmd_open_xrcd)
WEFT_PRIVATE(ibv_cmd_poll_cq)
WEFT_PRIVATE(ibv_cmd_post_recv)
WEFT_PRIVATE(ibv_cmd_post_send)
WEFT_PRIVATE(ibv_cmd_post_srq_recv)
WEFT_PRIVATE(ibv_cmd_query_context)
WEFT_PRIVATE(ibv_cmd_query_device_any)
WEFT_PRIVATE(ibv_cmd_query_mr)
WEFT_PRIVATE(ibv_cmd_query_port)
WEFT_PRIVATE(ibv_cmd_query_qp)
WEFT_PRIVATE(ibv_cmd_query_srq)
WEFT_PRIVATE(ibv_cmd_read_counters)
WEFT_PRIVATE(ibv_cmd_reg_dm_mr)
WEFT_PRIVATE(ibv_cmd_reg_dmabuf_mr)
WEFT_PRIVATE(ibv_cmd_reg_mr)
WEFT_PRIVATE(ibv_cmd_req_notify_cq)
WEFT_PRIVATE(ibv_cmd_rereg_mr)
WEFT_PRIVATE(ibv_cmd_resize_cq)

}  // extern "C"
