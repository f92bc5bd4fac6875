// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of librdmacm without rsockets, as their manual pages say (rdma_cm(7)): 0 or a pointer, else -1 or null with errno.
#pragma once

#include <rdma/rdma_cma.h>

namespace weft::rdmacm {

rdma_event_channel* create_event_channel() noexcept;
void destroy_event_channel(rdma_event_channel* channel) noexcept;
int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) noexcept;
int ack_cm_event(rdma_cm_event* event) noexcept;

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) noexcept;
int destroy_id(rdma_cm_id* id) noexcept;
int migrate_id(rdma_cm_id* id, rdma_event_channel* channel) noexcept;
int bind_addr(rdma_cm_id* id, const sockaddr* address) noexcept;
int resolve_addr(rdma_cm_id* id, const sockaddr* source, const sockaddr* destination,
                 int timeout_ms) noexcept;
int resolve_route(rdma_cm_id* id, int timeout_ms) noexcept;
int listen(rdma_cm_id* id, int backlog) noexcept;
int set_option(rdma_cm_id* id, int level, int name, const void* value, size_t bytes) noexcept;
__be16 get_src_port(rdma_cm_id* id) noexcept;
__be16 get_dst_port(rdma_cm_id* id) noexcept;

int connect(rdma_cm_id* id, const rdma_conn_param* parameters) noexcept;
int accept(rdma_cm_id* id, const rdma_conn_param* parameters) noexcept;
int establish(rdma_cm_id* id) noexcept;
int reject(rdma_cm_id* id, const void* data, uint8_t bytes, bool for_ece) noexcept;
int disconnect(rdma_cm_id* id) noexcept;
int notify(rdma_cm_id* id, ibv_event_type event) noexcept;
int init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) noexcept;
int set_local_ece(rdma_cm_id* id, const ibv_ece* ece) noexcept;
int get_remote_ece(rdma_cm_id* id, ibv_ece* ece) noexcept;

int create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* attr) noexcept;
int create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) noexcept;
void destroy_qp(rdma_cm_id* id) noexcept;
int create_srq(rdma_cm_id* id, ibv_pd* domain, ibv_srq_init_attr* attr) noexcept;
int create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) noexcept;
void destroy_srq(rdma_cm_id* id) noexcept;

int create_ep(rdma_cm_id** id, const rdma_addrinfo* to, ibv_pd* domain, ibv_qp_init_attr* attr) noexcept;
void destroy_ep(rdma_cm_id* id) noexcept;
int get_request(rdma_cm_id* listener, rdma_cm_id** id) noexcept;

int join_multicast(rdma_cm_id* id, const sockaddr* address, void* context, bool send_only) noexcept;
int leave_multicast(rdma_cm_id* id, const sockaddr* address) noexcept;

ibv_context** get_devices(int* count) noexcept;
void free_devices(ibv_context** list) noexcept;
const char* event_name(rdma_cm_event_type event) noexcept;

int get_addrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                 rdma_addrinfo** found) noexcept;
void free_addrinfo(rdma_addrinfo* found) noexcept;

}  // namespace weft::rdmacm
