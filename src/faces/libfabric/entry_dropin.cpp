// The exported symbols of the drop-in libfabric.so.1: 26 symbols in 7 version nodes (libfabric.map). Each
// only calls the face. Must not know anything else. Not compiled with -flto where symbol versions are
// assembler lines (clang).
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <cstdarg>
#include <cstdio>

#include "faces/libfabric/fabric.hpp"
#include "faces/libfabric/foreign.hpp"
#include "faces/libfabric/getinfo.hpp"
#include "faces/libfabric/info.hpp"
#include "faces/libfabric/log.hpp"
#include "faces/libfabric/param.hpp"
#include "faces/libfabric/strerror.hpp"
#include "faces/libfabric/tostr.hpp"

// Functions of one version carry their plain name and get the version from the map. Functions of several
// versions are defined under names of ours, and this gives each its versioned name; "@@" is the one that new
// programs are linked to.
#if defined(__has_attribute) && __has_attribute(symver)
#define WEFT_VERSIONED(function, versioned) __attribute__((symver(versioned))) decltype(function) function
#else
#define WEFT_VERSIONED(function, versioned) __asm__(".symver " #function "," versioned)
#endif
#define WEFT_EXPORT __attribute__((visibility("default"), used))

namespace {

weft::fi::Catalogue catalogue() {
  const weft::fi::Loaded& all = weft::fi::loaded();
  return {all.providers, false, &all.plugins};
}

// Plugins are told when this library goes, after the program's own destructors, if it was loaded before them.
struct Leaving {
  ~Leaving() { weft::fi::clean_up_plugins(); }
} leaving;

}  // namespace

extern "C" {

// fi_getinfo, fi_freeinfo, fi_dupinfo by generation of fi_info; see Abi in info.hpp.

WEFT_EXPORT int weft_getinfo_1_0(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_0);
}
WEFT_EXPORT int weft_getinfo_1_1(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_1);
}
WEFT_EXPORT int weft_getinfo_1_2(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_2);
}
WEFT_EXPORT int weft_getinfo_1_3(uint32_t version, const char* node, const char* service, uint64_t flags,
                                 const fi_info* hints, fi_info** info) {
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info, weft::fi::Abi::v1_3);
}
WEFT_VERSIONED(weft_getinfo_1_0, "fi_getinfo@FABRIC_1.0");
WEFT_VERSIONED(weft_getinfo_1_1, "fi_getinfo@FABRIC_1.1");
WEFT_VERSIONED(weft_getinfo_1_2, "fi_getinfo@FABRIC_1.2");
WEFT_VERSIONED(weft_getinfo_1_3, "fi_getinfo@@FABRIC_1.3");

WEFT_EXPORT void weft_freeinfo_1_0(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_0); }
WEFT_EXPORT void weft_freeinfo_1_1(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_1); }
WEFT_EXPORT void weft_freeinfo_1_2(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_2); }
WEFT_EXPORT void weft_freeinfo_1_3(fi_info* info) { weft::fi::free_info(info, weft::fi::Abi::v1_3); }
WEFT_VERSIONED(weft_freeinfo_1_0, "fi_freeinfo@FABRIC_1.0");
WEFT_VERSIONED(weft_freeinfo_1_1, "fi_freeinfo@FABRIC_1.1");
WEFT_VERSIONED(weft_freeinfo_1_2, "fi_freeinfo@FABRIC_1.2");
WEFT_VERSIONED(weft_freeinfo_1_3, "fi_freeinfo@@FABRIC_1.3");

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
WEFT_VERSIONED(weft_dupinfo_1_0, "fi_dupinfo@FABRIC_1.0");
WEFT_VERSIONED(weft_dupinfo_1_1, "fi_dupinfo@FABRIC_1.1");
WEFT_VERSIONED(weft_dupinfo_1_2, "fi_dupinfo@FABRIC_1.2");
WEFT_VERSIONED(weft_dupinfo_1_3, "fi_dupinfo@@FABRIC_1.3");

WEFT_EXPORT int weft_fabric_1_0(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  return weft::fi::find_and_open_fabric(catalogue(), attr, fabric, context, weft::fi::Abi::v1_0);
}
WEFT_EXPORT int weft_fabric_1_1(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  return weft::fi::find_and_open_fabric(catalogue(), attr, fabric, context, weft::fi::Abi::v1_3);
}
WEFT_VERSIONED(weft_fabric_1_0, "fi_fabric@FABRIC_1.0");
WEFT_VERSIONED(weft_fabric_1_1, "fi_fabric@@FABRIC_1.1");

// One version each.

WEFT_EXPORT uint32_t fi_version() { return weft::fi::kApiVersion; }

WEFT_EXPORT const char* fi_strerror(int errnum) { return weft::fi::error_text(errnum); }

WEFT_EXPORT char* fi_tostr(const void* data, fi_type datatype) { return weft::fi::to_text(data, datatype); }

WEFT_EXPORT char* fi_tostr_r(char* buf, size_t len, const void* data, fi_type datatype) {
  return weft::fi::to_text(buf, len, data, datatype);
}

WEFT_EXPORT int fi_open(uint32_t version, const char* name, void* attr, size_t attr_len, uint64_t flags,
                        fid** object, void* context) {
  return weft::fi::open_object(version, name, attr, attr_len, flags, object, context);
}

WEFT_EXPORT int fi_log_enabled(const fi_provider* prov, fi_log_level level, fi_log_subsys subsys) {
  return weft::fi::log_enabled_c(prov, level, subsys);
}

WEFT_EXPORT int fi_log_ready(const fi_provider* prov, fi_log_level level, fi_log_subsys subsys,
                             uint64_t* showtime) {
  return weft::fi::log_ready_c(prov, level, subsys, showtime);
}

WEFT_EXPORT void fi_log(const fi_provider* prov, fi_log_level level, fi_log_subsys subsys, const char* func,
                        int line, const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  weft::fi::log_c(prov, level, subsys, func, line, fmt, args);
  va_end(args);
}

WEFT_EXPORT int fi_param_define(const fi_provider* provider, const char* param_name, fi_param_type type,
                                const char* help_string_fmt, ...) {
  if (help_string_fmt == nullptr) return -FI_EINVAL;
  char help[1024];
  va_list args;
  va_start(args, help_string_fmt);
  vsnprintf(help, sizeof help, help_string_fmt, args);
  va_end(args);
  return weft::fi::param_define(provider != nullptr ? provider->name : nullptr, param_name, type, help);
}

WEFT_EXPORT int fi_param_get(fi_provider* provider, const char* param_name, void* value) {
  return weft::fi::param_get(provider != nullptr ? provider->name : nullptr, param_name, value);
}

WEFT_EXPORT int fi_getparams(fi_param** params, int* count) {
  weft::fi::param_define_core();
  for (const weft::fi::Provider* provider : weft::fi::loaded().providers) provider->offers(*provider);
  return weft::fi::param_list(params, count);
}

WEFT_EXPORT void fi_freeparams(fi_param* params) { weft::fi::param_list_free(params); }

}  // extern "C"
