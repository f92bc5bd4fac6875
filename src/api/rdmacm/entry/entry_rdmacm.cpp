// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The exported calls of librdmacm.so.1 (librdmacm.map) but rsockets, which only call the library.
#include <rdma/rdma_cma.h>

#include <cerrno>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"

#define WEFT_EXPORT __attribute__((visibility("default"), used))

namespace library = weft::rdmacm;

extern "C" {

WEFT_EXPORT rdma_event_channel* rdma_create_event_channel(void) { return library::create_event_channel(); }
WEFT_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  library::destroy_event_channel(channel);
}
WEFT_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  return library::get_cm_event(channel, event);
}
WEFT_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) { return library::ack_cm_event(event); }
WEFT_EXPORT const char* rdma_event_str(rdma_cm_event_type event) { return library::event_name(event); }

WEFT_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                               rdma_port_space space) {
  return library::create_id(channel, id, context, space);
}
WEFT_EXPORT int rdma_destroy_id(rdma_cm_id* id) { return library::destroy_id(id); }
WEFT_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return library::migrate_id(id, channel);
}
WEFT_EXPORT int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) { return library::bind_addr(id, address); }
WEFT_EXPORT int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms) {
  return library::resolve_addr(id, source, destination, timeout_ms);
}
WEFT_EXPORT int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
  return library::resolve_route(id, timeout_ms);
}
WEFT_EXPORT int rdma_listen(rdma_cm_id* id, int backlog) { return library::listen(id, backlog); }
WEFT_EXPORT int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, size_t bytes) {
  return library::set_option(id, level, name, value, bytes);
}
WEFT_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) { return library::get_src_port(id); }
WEFT_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) { return library::get_dst_port(id); }

WEFT_EXPORT int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  return library::connect(id, parameters);
}
WEFT_EXPORT int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  return library::accept(id, parameters);
}
WEFT_EXPORT int rdma_establish(rdma_cm_id* id) { return library::establish(id); }
WEFT_EXPORT int rdma_reject(rdma_cm_id* id, const void* data, uint8_t bytes) {
  return library::reject(id, data, bytes, false);
}
WEFT_EXPORT int rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t bytes) {
  return library::reject(id, data, bytes, true);
}
WEFT_EXPORT int rdma_disconnect(rdma_cm_id* id) { return library::disconnect(id); }
WEFT_EXPORT int rdma_notify(rdma_cm_id* id, ibv_event_type event) { return library::notify(id, event); }
WEFT_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
  return library::init_qp_attr(id, attr, mask);
}
WEFT_EXPORT int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) { return library::set_local_ece(id, ece); }
WEFT_EXPORT int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) { return library::get_remote_ece(id, ece); }

WEFT_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* attr) {
  return library::create_qp(id, domain, attr);
}
WEFT_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  return library::create_qp_ex(id, attr);
}
WEFT_EXPORT void rdma_destroy_qp(rdma_cm_id* id) { library::destroy_qp(id); }
WEFT_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* domain, ibv_srq_init_attr* attr) {
  return library::create_srq(id, domain, attr);
}
WEFT_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  return library::create_srq_ex(id, attr);
}
WEFT_EXPORT void rdma_destroy_srq(rdma_cm_id* id) { library::destroy_srq(id); }

WEFT_EXPORT int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* to, ibv_pd* domain, ibv_qp_init_attr* attr) {
  return library::create_ep(id, to, domain, attr);
}
WEFT_EXPORT void rdma_destroy_ep(rdma_cm_id* id) { library::destroy_ep(id); }
WEFT_EXPORT int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  return library::get_request(listener, id);
}

WEFT_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  return library::join_multicast(id, address, context, false);
}
WEFT_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context) {
  constexpr uint32_t known = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if (attr == nullptr || attr->comp_mask != known || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
    return library::refuse(
        EINVAL, "rdma_join_multicast_ex wants an address and flags of this version, and nothing else");
  return library::join_multicast(id, attr->addr, context,
                                 attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
}
WEFT_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) {
  return library::leave_multicast(id, address);
}

WEFT_EXPORT ibv_context** rdma_get_devices(int* count) { return library::get_devices(count); }
WEFT_EXPORT void rdma_free_devices(ibv_context** list) { library::free_devices(list); }

WEFT_EXPORT int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                 rdma_addrinfo** found) {
  return library::get_addrinfo(node, service, hints, found);
}
WEFT_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* found) { library::free_addrinfo(found); }

// Of rdma-core 60: names that the fabric resolves, and events of the program's own. Other headers do not have them.
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument);
WEFT_EXPORT int rdma_resolve_addrinfo(rdma_cm_id*, const char*, const char*, const rdma_addrinfo*) {
  return library::refuse(EOPNOTSUPP, "rdma_resolve_addrinfo: the fabric has no service that resolves names");
}
WEFT_EXPORT int rdma_query_addrinfo(rdma_cm_id*, rdma_addrinfo**) {
  return library::refuse(EOPNOTSUPP, "rdma_query_addrinfo: the fabric has no service that resolves names");
}
WEFT_EXPORT int rdma_write_cm_event(rdma_cm_id*, rdma_cm_event_type, int, uint64_t) {
  return library::refuse(EOPNOTSUPP, "rdma_write_cm_event is not there yet");
}

}  // extern "C"
