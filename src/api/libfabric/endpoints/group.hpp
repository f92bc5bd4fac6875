// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Multicast groups of an endpoint: fi_join, fi_mc_addr (fi_cm(3)), where the engine has them. Must not know which links exist.
//
// Joining ends at once, and the event says so. The group's address stands in the endpoint's address vector while it is joined.
#pragma once

#include <vector>

#include "api/libfabric/endpoints/endpoint.hpp"
#include "api/libfabric/text/strerror.hpp"

namespace weft::fi {

template <class E>
struct Group {
  static int join(fid_ep*, const void*, uint64_t, fid_mc**, void*) { return -FI_ENOSYS; }
};

template <proto::HasGroups E>
struct Group<E> {
  using P = Port;

  fid_mc fid{};
  P* port = nullptr;
  std::vector<std::byte> address;
  bool receives = false;

  static int refuse(const P& p, int error, const char* why) {
    log_warn(p.domain->provider->name, FI_LOG_EP_CTRL, "fi_join: %s", why);
    return -error;
  }

  // That of the endpoint whose alias this may be.
  static Eq* eq_of_port(const P& p) noexcept { return p.parent != nullptr ? eq_of_port(*p.parent) : p.eq; }
  static int join(fid_ep* ep, const void* addr, uint64_t flags, fid_mc** mc, void* context) {
    P& p = port_of(ep);
    const Domain& domain = *p.domain;
    if (addr == nullptr || mc == nullptr) return -FI_EINVAL;
    if ((flags & ~uint64_t{FI_SEND | FI_RECV}) != 0)
      return refuse(p, FI_EBADFLAGS, "flags knows only FI_SEND and FI_RECV");
    if ((p.caps & FI_MULTICAST) == 0)
      return refuse(p, FI_EOPNOTSUPP, "the endpoint was opened without FI_MULTICAST");
    if (!p.enabled) return refuse(p, FI_EOPBADSTATE, "the endpoint is not enabled");
    if (eq_of_port(p) == nullptr) return refuse(p, FI_ENOEQ, "the endpoint is bound to no event queue");
    if ((flags & FI_SEND & ~p.caps) != 0 || (flags & FI_RECV & ~p.caps) != 0)
      return refuse(p, FI_EINVAL, "the endpoint does not transfer in that direction");
    return no_throw([&] {
      const auto* first = static_cast<const std::byte*>(addr);
      auto made = std::make_unique<Group>();
      made->address.assign(first, first + domain.addrlen);
      made->port = &p;
      made->receives = (flags == 0 ? p.caps & FI_RECV : flags & FI_RECV) != 0;
      if (!domain.provider->normalise(domain.addr_format, made->address.data()))
        return refuse(p, FI_EINVAL, "this is no address");
      if (const int status = eq_of_port(p)->queue.reserve(1); status != 0) return status;
      const int status = enter(p, *made);
      if (status != 0) {
        eq_of_port(p)->queue.unreserve(1);
        return status;
      }
      static fi_ops group_ops = {sizeof(fi_ops), leave,    no_bind,   no_control,
                                 no_ops_open,    no_tostr, no_ops_set};
      made->fid.fid = {FI_CLASS_MC, context, &group_ops};
      hold(p.users);
      fi_eq_entry event{&made->fid.fid, context, 0};
      *mc = &made.release()->fid;
      (void)eq_of_port(p)->queue.write_reserved(FI_JOIN_COMPLETE, &event, sizeof event);
      return 0;
    });
  }

  static int why_not(const P& p, int status) {
    log_warn(p.domain->provider->name, FI_LOG_EP_CTRL, "fi_join: the group cannot be joined: %s",
             status == -EINVAL ? "it is no multicast address with a port, or there is no interface for it"
                               : error_text(-status));
    return status;
  }

  static int enter(P& p, Group& group) {
    std::scoped_lock guard(p.domain->lock);
    if (const int status = engine_of<E>(p).join(group.address, group.receives); status != 0)
      return why_not(p, status);
    group.fid.fi_addr = p.core->av->table->insert(core::Address(group.address.data(), group.address.size()));
    if (group.fid.fi_addr != FI_ADDR_NOTAVAIL) return 0;
    engine_of<E>(p).leave(group.address);
    return -FI_ENOMEM;
  }

  static int leave(::fid* fid) {
    auto* group = reinterpret_cast<Group*>(fid);
    P& p = *group->port;
    {
      std::scoped_lock guard(p.domain->lock);
      engine_of<E>(p).leave(group->address);
      (void)p.core->av->table->remove(group->fid.fi_addr);
    }
    drop(p.users);
    delete group;
    return 0;
  }
};

}  // namespace weft::fi
