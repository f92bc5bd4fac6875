// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Calls that headers of libfabric 2.x declare deprecated, made through the objects' operations as the standard headers make them. Libraries still have them:
// fi_poll(3), fi_av(3), fi_endpoint(3) of 1.17.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstdint>

namespace weft::retired {

inline int wait_open(fid_fabric* fabric, fi_wait_attr* attr, fid_wait** set) {
  return fabric->ops->wait_open(fabric, attr, set);
}
inline int wait(fid_wait* set, int timeout) { return set->ops->wait(set, timeout); }

inline int poll_open(fid_domain* domain, fi_poll_attr* attr, fid_poll** set) {
  return domain->ops->poll_open(domain, attr, set);
}
inline int poll(fid_poll* set, void** contexts, int count) { return set->ops->poll(set, contexts, count); }
inline int poll_add(fid_poll* set, fid* event_fid, uint64_t flags) {
  return set->ops->poll_add(set, event_fid, flags);
}
inline int poll_del(fid_poll* set, fid* event_fid, uint64_t flags) {
  return set->ops->poll_del(set, event_fid, flags);
}

inline int av_bind(fid_av* av, fid* event_queue, uint64_t flags) {
  return av->fid.ops->bind(&av->fid, event_queue, flags);
}

inline ssize_t rx_size_left(fid_ep* ep) { return ep->ops->rx_size_left(ep); }
inline ssize_t tx_size_left(fid_ep* ep) { return ep->ops->tx_size_left(ep); }

}  // namespace weft::retired
