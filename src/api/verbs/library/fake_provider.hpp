// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider for unit tests of the library: objects that do nothing, and a record of what it was asked. For tests alone.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "api/verbs/library/calls.hpp"

namespace weft::verbs::fake {

// What the next calls do, and what the last ones got.
struct Knobs {
  int destroy = 0;  // what destroy_cq, destroy_qp and destroy_srq return
  int destroyed = 0;
  int closed = 0;
  size_t ops_bytes = sizeof(weft_verbs_ops);  // of an older provider: less
  ibv_cq_init_attr_ex cq{};
  ibv_qp_init_attr_ex qp{};
  ibv_srq_init_attr_ex srq{};
  unsigned access = 0;
  uint64_t iova = 0;
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  uint8_t width = 2;
  uint8_t speed = 32;
  uint32_t speed_ex = 0;  // not 0: the provider was built with later headers
  ibv_gid gids[3]{};      // zeros: empty
};
inline Knobs knobs;
inline const weft_verbs_services* services = nullptr;

template <class T>
T* made() noexcept {
  return static_cast<T*>(std::calloc(1, sizeof(T)));
}
template <class T>
int freed(T* object) {
  std::free(object);
  return 0;
}
template <class T>
int destroyed(T* object) {
  if (knobs.destroy != 0) return knobs.destroy;
  ++knobs.destroyed;
  std::free(object);
  return 0;
}

inline ibv_pd* alloc_pd(ibv_context*) { return made<ibv_pd>(); }
inline ibv_td* alloc_td(ibv_context*) { return made<ibv_td>(); }
inline ibv_pd* parent_domain(ibv_pd*, ibv_td*) { return made<ibv_pd>(); }
inline ibv_mr* reg_mr(ibv_pd*, void*, size_t, uint64_t iova, unsigned access) {
  knobs.iova = iova;
  knobs.access = access;
  return made<ibv_mr>();
}
inline int rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, unsigned) { return 0; }
inline ibv_mw* alloc_mw(ibv_pd*, ibv_mw_type) { return made<ibv_mw>(); }
inline ibv_cq_ex* create_cq(ibv_context*, ibv_cq_init_attr_ex* attr) {
  knobs.cq = *attr;
  return made<ibv_cq_ex>();
}
inline ibv_srq* create_srq(ibv_context*, ibv_srq_init_attr_ex* attr) {
  knobs.srq = *attr;
  attr->attr.max_wr *= 2;
  return made<ibv_srq>();
}
inline ibv_xrcd* open_xrcd(ibv_context*, ibv_xrcd_init_attr*) { return made<ibv_xrcd>(); }
inline ibv_qp* create_qp(ibv_context*, ibv_qp_init_attr_ex* attr) {
  knobs.qp = *attr;
  attr->cap.max_send_wr = 77;
  return made<ibv_qp>();
}
inline ibv_qp* open_qp(ibv_context*, ibv_qp_open_attr*) { return made<ibv_qp>(); }
inline int modify_qp(ibv_qp*, ibv_qp_attr*, int) { return 0; }
inline ibv_ah* create_ah(ibv_pd*, ibv_ah_attr*) { return made<ibv_ah>(); }
inline int query_device(ibv_context*, ibv_device_attr_ex* attr) {
  attr->orig_attr.phys_port_cnt = 2;
  attr->phys_port_cnt_ex = 2;
  return 0;
}
inline int query_port(ibv_context*, uint8_t port, ibv_port_attr* attr) {
  if (port < 1 || port > 2) return EINVAL;
  attr->state = IBV_PORT_ACTIVE;
  attr->gid_tbl_len = 3;
  attr->pkey_tbl_len = 2;
  attr->link_layer = knobs.link_layer;
  attr->port_cap_flags2 = 0xabcd;
  attr->active_width = knobs.width;
  attr->active_speed = knobs.speed;
  if (knobs.speed_ex != 0)
    std::memcpy(reinterpret_cast<unsigned char*>(attr) + layout::active_speed_ex_at, &knobs.speed_ex, 4);
  return 0;
}
inline int query_gid(ibv_context*, uint8_t, uint32_t index, ibv_gid_entry* entry) {
  if (index >= 3) return EINVAL;
  constexpr ibv_gid empty{};
  if (std::memcmp(&knobs.gids[index], &empty, sizeof empty) == 0) return ENODATA;
  entry->gid = knobs.gids[index];
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}
inline int query_pkey(ibv_context*, uint8_t, int index, __be16* pkey) {
  *pkey = static_cast<__be16>(index);
  return 0;
}

inline int start(const weft_verbs_services* given) {
  services = given;
  return 0;
}
inline int list_devices(void (*add)(void*, const weft_verbs_device*), void* list) {
  weft_verbs_device device{};
  device.size = sizeof device;
  std::strcpy(device.name, "fake0");
  device.node_type = IBV_NODE_CA;
  device.guid = 0x1234;
  add(list, &device);
  add(list, &device);  // the second one of this name is left out
  return 0;
}
inline int open(const weft_verbs_device*, ibv_context*, weft_verbs_ops* ops, void** state) {
  weft_verbs_ops calls{};
  calls.alloc_pd = alloc_pd;
  calls.dealloc_pd = freed<ibv_pd>;
  calls.alloc_td = alloc_td;
  calls.dealloc_td = freed<ibv_td>;
  calls.alloc_parent_domain = parent_domain;
  calls.reg_mr = reg_mr;
  calls.rereg_mr = rereg_mr;
  calls.dereg_mr = freed<ibv_mr>;
  calls.alloc_mw = alloc_mw;
  calls.dealloc_mw = freed<ibv_mw>;
  calls.create_cq = create_cq;
  calls.destroy_cq = destroyed<ibv_cq>;
  calls.create_srq = create_srq;
  calls.destroy_srq = destroyed<ibv_srq>;
  calls.open_xrcd = open_xrcd;
  calls.close_xrcd = freed<ibv_xrcd>;
  calls.create_qp = create_qp;
  calls.open_qp = open_qp;
  calls.modify_qp = modify_qp;
  calls.destroy_qp = destroyed<ibv_qp>;
  calls.create_ah = create_ah;
  calls.destroy_ah = freed<ibv_ah>;
  calls.query_device = query_device;
  calls.query_port = query_port;
  calls.query_gid = query_gid;
  calls.query_pkey = query_pkey;
  calls.cq_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM;
  calls.send_ops_flags = IBV_QP_EX_WITH_SEND;
  calls.qp_create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SOURCE_QPN;
  calls.comp_vectors = 2;
  std::memcpy(ops, &calls, knobs.ops_bytes);
  *state = &knobs;
  return 0;
}
inline void close(ibv_context*, void* state) {
  if (state == &knobs) ++knobs.closed;
}

inline constexpr weft_verbs_provider provider = {sizeof provider, "fake", start, list_devices, open, close};

// An open fake0; the knobs are reset.
class Opened {
 public:
  Opened() {
    register_provider(&provider);
    ibv_device** list = device_list(nullptr);
    for (ibv_device** at = list; *at != nullptr; ++at) {
      if (std::strcmp((*at)->name, "fake0") == 0) context = open_device(*at);
    }
    free_device_list(list);
  }
  explicit Opened(const Knobs& with) : Opened(&(knobs = with)) {}
  ~Opened() {
    if (context != nullptr) close_device(context);
    knobs = {};
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  ibv_context* context = nullptr;

 private:
  explicit Opened(const Knobs*) : Opened() {}
};

}  // namespace weft::verbs::fake
