// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exported calls of IBVERBS_1.0, the ABI of libibverbs 1.0 (2006), whose structs were other ones: no program of it is known, so they refuse. A
// program gets nowhere without the device list, which says why.
#include <cerrno>
#include <cstdint>

#include "api/verbs/entry/exported.hpp"
#include "api/verbs/library/log.hpp"

#define WEFT_OLD(type, name, value)    \
  WEFT_EXPORT type weft_old_##name() { \
    errno = EOPNOTSUPP;                \
    return value;                      \
  }                                    \
  WEFT_VERSIONED(weft_old_##name, #name "@IBVERBS_1.0");
#define WEFT_OLD_POINTER(name) WEFT_OLD(void*, name, nullptr)
#define WEFT_OLD_CODE(name) WEFT_OLD(int, name, EOPNOTSUPP)
#define WEFT_OLD_MINUS_ONE(name) WEFT_OLD(int, name, -1)
#define WEFT_OLD_ZERO(name) WEFT_OLD(uint64_t, name, 0)
#define WEFT_OLD_NOTHING(name) WEFT_OLD(void, name, void())

extern "C" {

WEFT_EXPORT void* weft_old_ibv_get_device_list(int* count) {
  weft::verbs::log(weft::verbs::Level::Error,
                   "this program was built for libibverbs 1.0 (symbols IBVERBS_1.0); Weft has the ABI from "
                   "1.1 on. Build it again");
  if (count != nullptr) *count = 0;
  errno = EOPNOTSUPP;
  return nullptr;
}
WEFT_VERSIONED(weft_old_ibv_get_device_list, "ibv_get_device_list@IBVERBS_1.0");

WEFT_OLD_NOTHING(ibv_ack_async_event)
WEFT_OLD_NOTHING(ibv_ack_cq_events)
WEFT_OLD_POINTER(ibv_alloc_pd)
WEFT_OLD_CODE(ibv_attach_mcast)
WEFT_OLD_CODE(ibv_close_device)
WEFT_OLD_POINTER(ibv_create_ah)
WEFT_OLD_POINTER(ibv_create_cq)
WEFT_OLD_POINTER(ibv_create_qp)
WEFT_OLD_POINTER(ibv_create_srq)
WEFT_OLD_CODE(ibv_dealloc_pd)
WEFT_OLD_CODE(ibv_dereg_mr)
WEFT_OLD_CODE(ibv_destroy_ah)
WEFT_OLD_CODE(ibv_destroy_cq)
WEFT_OLD_CODE(ibv_destroy_qp)
WEFT_OLD_CODE(ibv_destroy_srq)
WEFT_OLD_CODE(ibv_detach_mcast)
WEFT_OLD_NOTHING(ibv_free_device_list)
WEFT_OLD_MINUS_ONE(ibv_get_async_event)
WEFT_OLD_MINUS_ONE(ibv_get_cq_event)
WEFT_OLD_ZERO(ibv_get_device_guid)
WEFT_OLD_POINTER(ibv_get_device_name)
WEFT_OLD_CODE(ibv_modify_qp)
WEFT_OLD_CODE(ibv_modify_srq)
WEFT_OLD_POINTER(ibv_open_device)
WEFT_OLD_CODE(ibv_query_device)
WEFT_OLD_MINUS_ONE(ibv_query_gid)
WEFT_OLD_MINUS_ONE(ibv_query_pkey)
WEFT_OLD_CODE(ibv_query_port)
WEFT_OLD_CODE(ibv_query_qp)
WEFT_OLD_CODE(ibv_query_srq)
WEFT_OLD_POINTER(ibv_reg_mr)
WEFT_OLD_CODE(ibv_resize_cq)

// Providers of libibverbs 1.1 called it from constructors: their devices are those of a kernel.
WEFT_EXPORT void weft_old_ibv_register_driver() {}
WEFT_VERSIONED(weft_old_ibv_register_driver, "ibv_register_driver@IBVERBS_1.1");

}  // extern "C"
