// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// /dev/vfio/N.
#include "os/vfio/group.hpp"

#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "os/vfio/refusal.hpp"

namespace weft::os::vfio {
namespace {

constexpr int busy_attempts = 50;
constexpr timespec busy_pause = {0, 20'000'000};

Error not_viable(const pci::Function& function, const std::string& root) {
  std::string why =
      function.address + ": IOMMU group " + std::to_string(function.group.value_or(0)) + " is not viable";
  for (const pci::Function& one : pci::group_blockers(function, root))
    why += "; " + one.address + " in it is bound to " + one.driver;
  return {EBUSY, why + ": every device of a group has to leave the kernel's drivers"};
}

}  // namespace

Result<Group> Group::open(const pci::Function& function, Container& container, unsigned address_bits,
                          const std::string& root) {
  const std::string path = pci::group_path(function, root);
  Fd fd;
  for (int attempt = 0; attempt < busy_attempts; ++attempt) {
    fd = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd || errno != EBUSY) break;
    ::nanosleep(&busy_pause, nullptr);
    errno = EBUSY;
  }
  if (!fd) return group_refusal(errno, "open", function, root);
  vfio_group_status status{};
  status.argsz = sizeof status;
  if (::ioctl(fd.get(), VFIO_GROUP_GET_STATUS, &status) != 0)
    return group_refusal(errno, "VFIO_GROUP_GET_STATUS", function, root);
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) return not_viable(function, root);
  const int container_fd = container.fd();
  if (::ioctl(fd.get(), VFIO_GROUP_SET_CONTAINER, &container_fd) != 0)
    return group_refusal(errno, "VFIO_GROUP_SET_CONTAINER", function, root);
  if (const int code = container.start(address_bits); code != 0)
    return group_refusal(code, "VFIO_SET_IOMMU", function, root);
  return Group(std::move(fd));
}

Result<Fd> Group::device(const pci::Function& function) const {
  const int fd = ::ioctl(fd_.get(), VFIO_GROUP_GET_DEVICE_FD, function.address.c_str());
  if (fd < 0) {
    const int code = errno;
    return Error{code, function.address + ": VFIO_GROUP_GET_DEVICE_FD: " + std::strerror(code)};
  }
  return Fd(fd);
}

}  // namespace weft::os::vfio
