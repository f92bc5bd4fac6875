// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An IOMMU group of VFIO: the devices that cannot be isolated from each other, and so are handed over together. linux/vfio.h. Must not know what the
// devices are.
#pragma once

#include <string>

#include <weft/pci.hpp>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/vfio/container.hpp"

namespace weft::os::vfio {

class Group {
 public:
  // Opens the group of a function, attaches it to `container` and starts that. Refuses a group that is not viable, naming who blocks it. Waits up
  // to a second for one that is held: a process that was killed lets go of it while it ends.
  static Result<Group> open(const pci::Function& function, Container& container, unsigned address_bits,
                            const std::string& root);
  // The descriptor of a function in it.
  Result<Fd> device(const pci::Function& function) const;

 private:
  explicit Group(Fd fd) noexcept : fd_(static_cast<Fd&&>(fd)) {}

  Fd fd_;
};

}  // namespace weft::os::vfio
