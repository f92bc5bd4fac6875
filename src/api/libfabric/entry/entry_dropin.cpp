// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The exported symbols of the drop-in libfabric.so.1: 36 symbols in 10 version nodes (libfabric.map). Each
// only calls the front end. Must not know anything else. Not compiled with -flto where symbol versions are
// assembler lines (clang).
#include "api/libfabric/entry/all_providers.inc"
#include "api/libfabric/entry/exported_calls.inc"
#include "api/libfabric/entry/unload.inc"
#include "api/libfabric/entry/versioned.inc"

extern "C" {

// fi_getinfo, fi_freeinfo, fi_dupinfo by generation of fi_info; see Abi in info.hpp.

WEFT_EXPORT int weft_getinfo_1_0(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  note_use();
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_0);
}
WEFT_EXPORT int weft_getinfo_1_1(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  note_use();
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_1);
}
WEFT_EXPORT int weft_getinfo_1_2(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  note_use();
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_2);
}
WEFT_EXPORT int weft_getinfo_1_3(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  note_use();
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_3);
}
WEFT_EXPORT int weft_getinfo_1_7(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  note_use();
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_7);
}
WEFT_EXPORT int weft_getinfo_1_8(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  note_use();
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_8);
}
WEFT_EXPORT int weft_getinfo_1_9(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  note_use();
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_9);
}
WEFT_VERSIONED(weft_getinfo_1_0, "fi_getinfo@FABRIC_1.0");
WEFT_VERSIONED(weft_getinfo_1_1, "fi_getinfo@FABRIC_1.1");
WEFT_VERSIONED(weft_getinfo_1_2, "fi_getinfo@FABRIC_1.2");
WEFT_VERSIONED(weft_getinfo_1_3, "fi_getinfo@FABRIC_1.3");
WEFT_VERSIONED(weft_getinfo_1_7, "fi_getinfo@FABRIC_1.7");
WEFT_VERSIONED(weft_getinfo_1_8, "fi_getinfo@FABRIC_1.8");
WEFT_VERSIONED(weft_getinfo_1_9, "fi_getinfo@@FABRIC_1.9");

WEFT_EXPORT void weft_freeinfo_1_0(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_0); }
WEFT_EXPORT void weft_freeinfo_1_1(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_1); }
WEFT_EXPORT void weft_freeinfo_1_2(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_2); }
WEFT_EXPORT void weft_freeinfo_1_3(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_3); }
WEFT_EXPORT void weft_freeinfo_1_7(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_7); }
WEFT_EXPORT void weft_freeinfo_1_8(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_8); }
WEFT_EXPORT void weft_freeinfo_1_9(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_9); }
WEFT_VERSIONED(weft_freeinfo_1_0, "fi_freeinfo@FABRIC_1.0");
WEFT_VERSIONED(weft_freeinfo_1_1, "fi_freeinfo@FABRIC_1.1");
WEFT_VERSIONED(weft_freeinfo_1_2, "fi_freeinfo@FABRIC_1.2");
WEFT_VERSIONED(weft_freeinfo_1_3, "fi_freeinfo@FABRIC_1.3");
WEFT_VERSIONED(weft_freeinfo_1_7, "fi_freeinfo@FABRIC_1.7");
WEFT_VERSIONED(weft_freeinfo_1_8, "fi_freeinfo@FABRIC_1.8");
WEFT_VERSIONED(weft_freeinfo_1_9, "fi_freeinfo@@FABRIC_1.9");

WEFT_EXPORT fi_info* weft_dupinfo_1_0(const fi_info* info) {
  return weft::fi::dup_info(info, weft::fi::Abi::v1_0);
}
WEFT_EXPORT fi_info* weft_dupinfo_1_1(const fi_info* info) {
  return weft::fi::dup_info(info, weft::fi::Abi::v1_1);
}
WEFT_EXPORT fi_info* weft_dupinfo_1_2(const fi_info* info) {
  return weft::fi::dup_info(info, weft::fi::Abi::v1_2);
}
WEFT_EXPORT fi_info* weft_dupinfo_1_3(const fi_info* info) {
  return weft::fi::dup_info(info, weft::fi::Abi::v1_3);
}
WEFT_EXPORT fi_info* weft_dupinfo_1_7(const fi_info* info) {
  return weft::fi::dup_info(info, weft::fi::Abi::v1_7);
}
WEFT_EXPORT fi_info* weft_dupinfo_1_8(const fi_info* info) {
  return weft::fi::dup_info(info, weft::fi::Abi::v1_8);
}
WEFT_EXPORT fi_info* weft_dupinfo_1_9(const fi_info* info) {
  return weft::fi::dup_info(info, weft::fi::Abi::v1_9);
}
WEFT_VERSIONED(weft_dupinfo_1_0, "fi_dupinfo@FABRIC_1.0");
WEFT_VERSIONED(weft_dupinfo_1_1, "fi_dupinfo@FABRIC_1.1");
WEFT_VERSIONED(weft_dupinfo_1_2, "fi_dupinfo@FABRIC_1.2");
WEFT_VERSIONED(weft_dupinfo_1_3, "fi_dupinfo@FABRIC_1.3");
WEFT_VERSIONED(weft_dupinfo_1_7, "fi_dupinfo@FABRIC_1.7");
WEFT_VERSIONED(weft_dupinfo_1_8, "fi_dupinfo@FABRIC_1.8");
WEFT_VERSIONED(weft_dupinfo_1_9, "fi_dupinfo@@FABRIC_1.9");

WEFT_EXPORT int weft_fabric_1_0(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  note_use();
  return weft::fi::find_and_open_fabric(catalogue(), attr, fabric, context, weft::fi::Abi::v1_0);
}
WEFT_EXPORT int weft_fabric_1_1(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  note_use();
  return weft::fi::find_and_open_fabric(catalogue(), attr, fabric, context, weft::fi::Abi::v1_3);
}
WEFT_VERSIONED(weft_fabric_1_0, "fi_fabric@FABRIC_1.0");
WEFT_VERSIONED(weft_fabric_1_1, "fi_fabric@@FABRIC_1.1");

// fi_fabric(3) since 2.0, by the whole fi_info.
WEFT_EXPORT int fi_fabric2(fi_info* info, fid_fabric** fabric, uint64_t flags, void* context) {
  note_use();
  if (info == nullptr || flags != 0) return -FI_EINVAL;
  return weft::fi::find_and_open_fabric(catalogue(), info->fabric_attr, fabric, context);
}

}  // extern "C"
