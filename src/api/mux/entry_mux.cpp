// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of libweft.so.1 that libfabric.so.1 has as functions too: the provider is chosen in them, at run time. Each only calls the front end.
// The calls that the standard headers define inline are generated from calls.txt (cmake/mux.cmake), but for those that are not the same in all
// headers. Must not know anything else.
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "api/libfabric/entry/all_providers.inc"
#include "api/libfabric/entry/exported_calls.inc"
#include "api/libfabric/entry/unload.inc"
#include "api/libfabric/entry/versioned.inc"

namespace {

// Calls of fi_ops_av behind those of 1.17, since 1.20.
struct LaterAvOps {
  int (*insert_auth_key)(fid_av* av, const void* auth_key, size_t auth_key_size, fi_addr_t* fi_addr,
                         uint64_t flags);
  int (*lookup_auth_key)(fid_av* av, fi_addr_t addr, void* auth_key, size_t* auth_key_size);
  int (*set_user_id)(fid_av* av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags);
};
constexpr size_t av_ops_of_1_17 = 64;
static_assert(sizeof(fi_ops_av) >= av_ops_of_1_17);

// The table's entry, null where the provider's table ends before it.
template <class Call>
Call later_call(const fid_av* av, Call LaterAvOps::*member) {
  LaterAvOps ops{};
  if (av->ops->size > av_ops_of_1_17)
    std::memcpy(&ops, reinterpret_cast<const std::byte*>(av->ops) + av_ops_of_1_17,
                std::min(av->ops->size - av_ops_of_1_17, sizeof ops));
  return ops.*member;
}

}  // namespace

extern "C" {

// The node that the headers of a program choose (weft/libfabric_generation.h) has the sizes of its structures.
#define WEFT_OF_GENERATION(generation, node)                                                         \
  WEFT_EXPORT int weft_getinfo_##generation(uint32_t version, const char* name, const char* service, \
                                            uint64_t flags, const fi_info* hints, fi_info** info) {  \
    return weft::fi::get_info(catalogue(), version, name, service, flags, hints, info,               \
                              weft::fi::Abi::generation);                                            \
  }                                                                                                  \
  WEFT_EXPORT void weft_freeinfo_##generation(fi_info* info) {                                       \
    weft::fi::free_info(info, weft::fi::Abi::generation);                                            \
  }                                                                                                  \
  WEFT_EXPORT fi_info* weft_dupinfo_##generation(const fi_info* info) {                              \
    return weft::fi::dup_info(info, weft::fi::Abi::generation);                                      \
  }                                                                                                  \
  WEFT_VERSIONED(weft_getinfo_##generation, "fi_getinfo" node);                                      \
  WEFT_VERSIONED(weft_freeinfo_##generation, "fi_freeinfo" node);                                    \
  WEFT_VERSIONED(weft_dupinfo_##generation, "fi_dupinfo" node)

WEFT_OF_GENERATION(v1_3, "@WEFT_1.0");
WEFT_OF_GENERATION(v1_7, "@WEFT_1.1");
WEFT_OF_GENERATION(v1_8, "@WEFT_1.2");
WEFT_OF_GENERATION(v1_9, "@@WEFT_1.3");

WEFT_EXPORT int fi_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  return weft::fi::find_and_open_fabric(catalogue(), attr, fabric, context, weft::fi::Abi::v1_9);
}

// fi_fabric(3) since 2.0, by the whole fi_info.
WEFT_EXPORT int fi_fabric2(fi_info* info, fid_fabric** fabric, uint64_t flags, void* context) {
  if (info == nullptr || flags != 0) return -FI_EINVAL;
  return weft::fi::find_and_open_fabric(catalogue(), info->fabric_attr, fabric, context);
}

// Some headers have these as inline functions, so they have names of their own here.
WEFT_EXPORT int weft_av_insert_auth_key(fid_av* av, const void* auth_key, size_t auth_key_size,
                                        fi_addr_t* fi_addr, uint64_t flags) {
  const auto call = later_call(av, &LaterAvOps::insert_auth_key);
  return call != nullptr ? call(av, auth_key, auth_key_size, fi_addr, flags) : -FI_ENOSYS;
}

WEFT_EXPORT int weft_av_lookup_auth_key(fid_av* av, fi_addr_t addr, void* auth_key, size_t* auth_key_size) {
  const auto call = later_call(av, &LaterAvOps::lookup_auth_key);
  return call != nullptr ? call(av, addr, auth_key, auth_key_size) : -FI_ENOSYS;
}

WEFT_EXPORT int weft_av_set_user_id(fid_av* av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags) {
  const auto call = later_call(av, &LaterAvOps::set_user_id);
  return call != nullptr ? call(av, fi_addr, user_id, flags) : -FI_ENOSYS;
}

// The inline call of 2.x writes src_addr, which the entry of a program of 1.17 has not.
WEFT_EXPORT ssize_t weft_cq_readerr(fid_cq* cq, fi_cq_err_entry* buf, uint64_t flags) {
  return cq->ops->readerr(cq, buf, flags);
}

WEFT_VERSIONED(weft_cq_readerr, "fi_cq_readerr@@WEFT_1.0");
WEFT_VERSIONED(weft_av_insert_auth_key, "fi_av_insert_auth_key@@WEFT_1.1");
WEFT_VERSIONED(weft_av_lookup_auth_key, "fi_av_lookup_auth_key@@WEFT_1.1");
WEFT_VERSIONED(weft_av_set_user_id, "fi_av_set_user_id@@WEFT_1.1");

}  // extern "C"
