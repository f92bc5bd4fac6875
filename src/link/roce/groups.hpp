// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Groups: the multicast groups of a device. A group is heard at each port of its family: at group_port for GID 0 and at 4791 for the standard GIDs.
// Must not know schedules, nor shared memory.
#pragma once

#include <cstddef>

#include "base/result.hpp"
#include "link/roce/ports.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::link::roce {

class Groups {
 public:
  Groups(proto::roce::Adapter& adapter, Ports& ports) noexcept : adapter_(adapter), ports_(ports) {}

  // attach() and detach() are Adapter's; EINVAL also for what names no group, EAFNOSUPPORT where
  // the device has no port of its family.
  Result<void> attach(proto::roce::QueuePair& qp, const Gid& group);
  Result<void> detach(proto::roce::QueuePair& qp, const Gid& group);
  void detach_all(proto::roce::QueuePair& qp) noexcept;
  // How a packet by the port of that GID index names the group in its AddressVector. From then on packets to it leave by
  // the device's interface. ENOMEM: groups_max were reached before.
  Result<Gid> reach(size_t index, const Gid& group);

 private:
  Result<void> join(const Gid& group);
  void leave(const Gid& group) noexcept;

  proto::roce::Adapter& adapter_;
  Ports& ports_;
  size_t reached_ = 0;  // groups that are sent to, and were not heard when that began
};

}  // namespace weft::link::roce
