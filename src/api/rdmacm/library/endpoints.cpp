// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Synchronous endpoints: rdma_create_ep(3), rdma_get_request(3).
#include <cerrno>
#include <cstring>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"
#include "api/rdmacm/library/objects.hpp"

namespace weft::rdmacm {
namespace {

constexpr int resolve_ms = 2000;

}  // namespace

int create_ep(rdma_cm_id** out, const rdma_addrinfo* to, ibv_pd* domain, ibv_qp_init_attr* attr) noexcept {
  if (out == nullptr || to == nullptr)
    return refuse(EINVAL, "rdma_create_ep without a place for the id or an address");
  rdma_cm_id* id = nullptr;
  if (create_id(nullptr, &id, nullptr, static_cast<rdma_port_space>(to->ai_port_space)) != 0) return -1;
  Id& made = *of(id);
  if (to->ai_qp_type != 0) id->qp_type = static_cast<ibv_qp_type>(to->ai_qp_type);
  const auto fail = [&] {
    const int code = errno;
    destroy_ep(id);
    errno = code;
    return -1;
  };
  if ((to->ai_flags & RAI_PASSIVE) != 0) {
    if (bind_addr(id, to->ai_src_addr) != 0) return fail();
    if (attr != nullptr) {
      made.listener_qp = std::make_unique<ibv_qp_init_attr>(*attr);
      if (attr->qp_type != 0) made.listener_qp->qp_type = attr->qp_type;
      if (domain != nullptr) id->pd = domain;
    }
    *out = id;
    return 0;
  }
  if (resolve_addr(id, to->ai_src_addr, to->ai_dst_addr, resolve_ms) != 0 ||
      resolve_route(id, resolve_ms) != 0)
    return fail();
  if (attr != nullptr) {
    attr->qp_type = id->qp_type;
    if (create_qp(id, domain, attr) != 0) return fail();
  }
  if (to->ai_connect_len != 0 && to->ai_connect != nullptr) {
    const auto* data = static_cast<const std::byte*>(to->ai_connect);
    made.connect_data.assign(data, data + to->ai_connect_len);
  }
  *out = id;
  return 0;
}

void destroy_ep(rdma_cm_id* id) noexcept {
  if (id == nullptr) return;
  if (id->qp != nullptr) destroy_qp(id);
  if (of(id)->owns_srq) destroy_srq(id);
  destroy_id(id);
}

int get_request(rdma_cm_id* raw, rdma_cm_id** out) noexcept {
  Id* listener = of(raw);
  if (listener == nullptr || out == nullptr)
    return refuse(EINVAL, "rdma_get_request without a listener or a place for the id");
  if (!listener->is_sync)
    return refuse(EINVAL, "rdma_get_request is for synchronous ids; events of others are on their channel");
  if (raw->event != nullptr) {
    acknowledge_event(raw->event);
    raw->event = nullptr;
  }
  rdma_cm_event* event = nullptr;
  if (get_event(listener->channel, &event) != 0) return -1;
  if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
    acknowledge_event(event);
    return refuse(EINVAL, "rdma_get_request: the event is no request");
  }
  rdma_cm_id* id = event->id;
  if (listener->listener_qp != nullptr) {
    ibv_qp_init_attr attr = *listener->listener_qp;
    attr.qp_type = id->qp_type;
    if (raw->srq != nullptr && attr.srq == nullptr) attr.srq = raw->srq;
    if (create_qp(id, raw->pd, &attr) != 0) {
      const int code = errno;
      acknowledge_event(event);
      destroy_id(id);
      errno = code;
      return -1;
    }
  }
  id->event = event;
  *out = id;
  return 0;
}

}  // namespace weft::rdmacm
