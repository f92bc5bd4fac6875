// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The generations of libfabric's binary interface up to 2.6, whichever headers are installed: which node a program was linked with, and what its
// structures have that those of 1.17 have not (fabric(7), "ABI CHANGES"). Must not know what the fields are used for.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::fi {

// Version nodes of fi_getinfo(3). Each has structures that grew at their ends:
//   v1_1  fabric_attr.api_version, domain_attr.cntr_cnt to mr_cnt, ep_attr.auth_key
//   v1_2  fi_info.nic
//   v1_3  tclass of domain and transmit attributes
//   v1_7  domain_attr.max_ep_auth_key
//   v1_8  domain_attr.max_group_id
//   v1_9  domain_attr.max_cntr_value, max_err_cntr_value
enum class Abi { v1_0, v1_1, v1_2, v1_3, v1_7, v1_8, v1_9 };

// The last API whose programs were linked with the node.
constexpr uint32_t last_api(Abi abi) noexcept {
  switch (abi) {
    case Abi::v1_0:
      return FI_VERSION(1, 4);
    case Abi::v1_1:
      return FI_VERSION(1, 6);
    case Abi::v1_2:
      return FI_VERSION(1, 8);
    case Abi::v1_3:
      return FI_VERSION(1, 19);
    case Abi::v1_7:
      return FI_VERSION(1, 22);
    case Abi::v1_8:
      return FI_VERSION(2, 4);
    case Abi::v1_9:
      break;
  }
  return FI_VERSION(2, 6);
}

// The latest API that programs of the node are served. Some ask for a later one, which fi_version(3) of the running library says. Not below
// 1.19: the loader binds objects that were linked without a libfabric to the oldest node, whatever headers they have.
constexpr uint32_t newest_api(Abi abi) noexcept { return std::max(last_api(abi), last_api(Abi::v1_3)); }

// The fields that a program which asked for this API has set, whatever it was linked with (fi_getinfo(3), "version").
constexpr Abi abi_of(uint32_t api_version) noexcept {
  for (const Abi abi : {Abi::v1_0, Abi::v1_1, Abi::v1_2, Abi::v1_3, Abi::v1_7, Abi::v1_8})
    if (FI_VERSION_GE(last_api(abi), api_version)) return abi;
  return Abi::v1_9;
}

namespace layout {

// fi_domain_attr behind the 192 bytes of 1.17.
struct DomainTail {
  size_t max_ep_auth_key = 0;
  uint32_t max_group_id = 0;
  uint32_t reserved = 0;
  uint64_t max_cntr_value = 0;
  uint64_t max_err_cntr_value = 0;
};
inline constexpr size_t domain_tail_at = 192;
constexpr size_t domain_bytes(Abi generation) noexcept {
  switch (generation) {
    case Abi::v1_0:
      return 120;
    case Abi::v1_1:
    case Abi::v1_2:
      return 184;
    case Abi::v1_3:
      return 192;
    case Abi::v1_7:
      return 200;
    case Abi::v1_8:
      return 208;
    case Abi::v1_9:
      break;
  }
  return 224;
}
static_assert(domain_bytes(Abi::v1_0) == offsetof(fi_domain_attr, cntr_cnt));
static_assert(domain_bytes(Abi::v1_1) == offsetof(fi_domain_attr, tclass));
static_assert(domain_bytes(Abi::v1_9) == domain_tail_at + sizeof(DomainTail));
static_assert(sizeof(fi_domain_attr) >= domain_tail_at);

// The generation of the headers that this is compiled with.
inline constexpr Abi compiled = sizeof(fi_domain_attr) <= 192   ? Abi::v1_3
                                : sizeof(fi_domain_attr) <= 200 ? Abi::v1_7
                                : sizeof(fi_domain_attr) <= 208 ? Abi::v1_8
                                                                : Abi::v1_9;

// What follows a structure that dup_info() made, zero unless it is written: later generations, up to the structures of 2.7, fit.
inline constexpr size_t slack = 64;

// Of an attribute that dup_info() made, or of a program of the generation that has the fields.
inline DomainTail tail_of(const fi_domain_attr& attr, Abi generation) noexcept {
  DomainTail tail;
  if (generation >= Abi::v1_7)
    std::memcpy(static_cast<void*>(&tail), reinterpret_cast<const std::byte*>(&attr) + domain_tail_at,
                domain_bytes(generation) - domain_tail_at);
  return tail;
}
// Of an attribute that dup_info() made.
inline void set_tail(fi_domain_attr& attr, const DomainTail& tail) noexcept {
  std::memcpy(reinterpret_cast<std::byte*>(&attr) + domain_tail_at, &tail, sizeof tail);
}

// fi_cq_err_entry: src_addr since API 1.20, behind the 80 bytes of 1.17.
inline constexpr size_t error_source_at = 80;
static_assert(sizeof(fi_cq_err_entry) >= error_source_at && offsetof(fi_cq_err_entry, err_data_size) == 72);
inline fi_addr_t error_source(const fi_cq_err_entry& entry) noexcept {
  fi_addr_t source;
  std::memcpy(&source, reinterpret_cast<const std::byte*>(&entry) + error_source_at, sizeof source);
  return source;
}
inline void set_error_source(fi_cq_err_entry& entry, fi_addr_t source) noexcept {
  std::memcpy(reinterpret_cast<std::byte*>(&entry) + error_source_at, &source, sizeof source);
}

// What is read of an fi_mr_attr. What came later, hmem_data (1.19), page_size (1.22), base_mr and sub_mr_cnt (2.0), is for device memory, or a
// hint: a region within another is served as one of its own, with its own key and rights (fi_mr(3)).
constexpr size_t region_bytes(uint32_t api_version) noexcept {
  if (FI_VERSION_LT(api_version, FI_VERSION(1, 5))) return offsetof(fi_mr_attr, auth_key_size);
  if (FI_VERSION_LT(api_version, FI_VERSION(1, 9))) return offsetof(fi_mr_attr, iface);
  return 80;
}
static_assert(sizeof(fi_mr_attr) >= region_bytes(FI_VERSION(2, 6)));

#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
static_assert(offsetof(fi_domain_attr, max_ep_auth_key) ==
              domain_tail_at + offsetof(DomainTail, max_ep_auth_key));
static_assert(offsetof(fi_cq_err_entry, src_addr) == error_source_at);
#endif
#if FI_MAJOR_VERSION >= 2
static_assert(offsetof(fi_domain_attr, max_group_id) == domain_tail_at + offsetof(DomainTail, max_group_id));
#endif

}  // namespace layout
}  // namespace weft::fi
