// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/roce/groups.hpp"

#include <cerrno>
#include <cstring>
#include <string>

namespace weft::link::roce {

namespace {

// RFC 4291, 2.7: packets to these stay on the interface's machine. perftest's group is one unless -M names another.
Result<void> check_scope(const Gid& group) {
  if (group[0] == std::byte{0xff} && (group[1] & std::byte{0x0f}) == std::byte{1})
    return Error{
        EINVAL, "a multicast group ff?1:: is interface-local: nobody else hears it; ff?2:: reaches the link"};
  return {};
}

}  // namespace

Result<void> Groups::join(const Gid& group) {
  const int family = address_of(group).family();
  bool any = false;
  for (auto& port : ports_) {
    if (!port || port->address().family() != family) continue;
    int status = port->join(group, true);
    if (status == -EADDRINUSE) {
      // It is sent to already (reach()), and is heard from now on: leave() ends both.
      port->leave(group);
      --reached_;
      status = port->join(group, true);
    }
    if (status != 0) {
      for (auto& before : ports_) {
        if (&before == &port) break;
        if (before && before->address().family() == family) before->leave(group);
      }
      return Error{-status, std::string("cannot join the multicast group: ") + std::strerror(-status)};
    }
    any = true;
  }
  if (any) return {};
  return Error{EAFNOSUPPORT, family == AF_INET6 ? "groups of IPv6 need a GID of IPv6"
                                                : "groups of IPv4 need an IPv4 address"};
}

void Groups::leave(const Gid& group) noexcept {
  for (auto& port : ports_)
    if (port && port->address().family() == address_of(group).family()) port->leave(group);
}

Result<void> Groups::attach(proto::roce::QueuePair& qp, const Gid& group) {
  if (!is_group(group) || has_port(group)) return Error{EINVAL, "this GID names no multicast group"};
  if (auto ok = check_scope(group); !ok) return ok;
  auto is_new = adapter_.attach(qp, group);
  if (!is_new) return is_new.error();
  if (!*is_new) return {};
  auto joined = join(group);
  if (!joined) (void)adapter_.detach(qp, group);
  return joined;
}

Result<void> Groups::detach(proto::roce::QueuePair& qp, const Gid& group) {
  auto is_last = adapter_.detach(qp, group);
  if (!is_last) return is_last.error();
  if (*is_last) leave(group);
  return {};
}

void Groups::detach_all(proto::roce::QueuePair& qp) noexcept {
  while (const auto group = adapter_.first_group(qp)) (void)detach(qp, *group);
}

Result<Gid> Groups::reach(size_t index, const Gid& group) {
  if (auto ok = check_scope(group); !ok) return ok.error();
  if (!ports_.has(index) || ports_[index]->address().family() != address_of(group).family())
    return Error{EINVAL,
                 "the GID index and the group are not of one kind: one is of IPv4, the other of IPv6"};
  const int status = ports_[index]->join(group, false);
  if (status == 0 && reached_ == proto::roce::groups_max) {
    ports_[index]->leave(group);
    return Error{ENOMEM, "as many multicast groups as a device sends to"};
  }
  if (status == 0) ++reached_;
  if (status != 0 && status != -EADDRINUSE)
    return Error{-status, std::string("cannot send to the multicast group: ") + std::strerror(-status)};
  return group_for(group, ports_[index]->gid());
}

}  // namespace weft::link::roce
