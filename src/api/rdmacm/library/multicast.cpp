// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Multicast groups by IP address (rdma_join_multicast(3)): the GID of a group is its address, as everywhere in RoCEv2 (annex A17), so no subnet administrator is asked.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"
#include "api/rdmacm/library/objects.hpp"

namespace weft::rdmacm {
namespace {

constexpr uint32_t multicast_qpn = 0xffffff;

std::optional<ibv_gid> group_of(const sockaddr* address) noexcept {
  if (address == nullptr) return {};
  auto found = os::SocketAddress::from(address, os::SocketAddress::length_of(address->sa_family));
  if (!found) return {};
  const Gid gid = link::roce::standard_gid(*found);
  if (!link::roce::is_group(gid)) return {};
  ibv_gid out;
  std::memcpy(out.raw, gid.data(), gid.size());
  return out;
}

std::array<uint8_t, 16> key_of(const ibv_gid& gid) noexcept {
  std::array<uint8_t, 16> key;
  std::memcpy(key.data(), gid.raw, key.size());
  return key;
}

}  // namespace

int join_multicast(rdma_cm_id* raw, const sockaddr* address, void* context, bool send_only) noexcept {
  Id* id = of(raw);
  if (id == nullptr || !id->service->is_here())
    return refuse(EINVAL, "rdma_join_multicast: no id, or one that was made before fork(2)");
  if (id->shown.qp_type != IBV_QPT_UD) return refuse(EINVAL, "rdma_join_multicast is for ids of datagrams");
  const auto gid = group_of(address);
  if (!gid) return refuse(EINVAL, "rdma_join_multicast: the address is none of a group of IPv4 or IPv6");
  {
    const std::lock_guard guard(id->service->lock);
    if (id->device == nullptr)
      return refuse(EINVAL, "rdma_join_multicast before the id is bound to a device");
    const auto [at, is_new] = id->groups.try_emplace(key_of(*gid), Group{*gid, false});
    if (!is_new) return refuse(EADDRINUSE, "rdma_join_multicast: the id is in that group");
    struct Join {
      const Id& id;
      const ibv_gid& gid;
      void* context;
      bool send_only;
    } join{*id, *gid, context, send_only};
    queue_event(
        *id, RDMA_CM_EVENT_MULTICAST_JOIN, 0,
        [](QueuedEvent& e, void* argument) {
          const Join& j = *static_cast<const Join*>(argument);
          e.send_only = j.send_only;
          rdma_ud_param& ud = e.event.param.ud;
          ud.private_data = j.context;
          ud.ah_attr.is_global = 1;
          ud.ah_attr.port_num = device_port;
          ud.ah_attr.grh.dgid = j.gid;
          ud.ah_attr.grh.sgid_index = j.id.local_gid->index;
          ud.ah_attr.grh.hop_limit = 1;
          ud.qp_num = multicast_qpn;
          ud.qkey = j.id.qkey;
        },
        &join);
  }
  return complete(*id);
}

int leave_multicast(rdma_cm_id* raw, const sockaddr* address) noexcept {
  Id* id = of(raw);
  const auto gid = group_of(address);
  if (id == nullptr || !id->service->is_here() || !gid)
    return refuse(EINVAL, "rdma_leave_multicast: no id of this process, or no address of a group");
  const std::lock_guard guard(id->service->lock);
  const auto at = id->groups.find(key_of(*gid));
  if (at == id->groups.end())
    return refuse(EADDRNOTAVAIL, "rdma_leave_multicast: the id is not in that group");
  if (at->second.attached && raw->qp != nullptr) ibv_detach_mcast(raw->qp, &at->second.gid, 0);
  id->groups.erase(at);
  return 0;
}

}  // namespace weft::rdmacm
