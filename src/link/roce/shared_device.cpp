// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The devices of this process by address.
#include "link/roce/shared_device.hpp"

#include <netinet/in.h>

#include <cerrno>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/lasting.hpp"
#include "base/settings.hpp"

namespace weft::link::roce {
namespace {

struct Directory {
  std::mutex mutex;
  std::unordered_map<uint32_t, std::weak_ptr<SharedDevice>> devices;
};

Directory& directory() {
  static Directory& the_directory = make_lasting<Directory>();
  return the_directory;
}

}  // namespace

Result<std::shared_ptr<SharedDevice>> SharedDevice::at(const os::SocketAddress& host) {
  if (host.family() != AF_INET || host.is_any())
    return Error{EADDRNOTAVAIL, "verbs endpoints need an IPv4 address of this host"};
  const uint32_t key = reinterpret_cast<const sockaddr_in*>(host.get())->sin_addr.s_addr;
  const std::scoped_lock guard(directory().mutex);
  std::weak_ptr<SharedDevice>& entry = directory().devices[key];
  // A forked child has its parent's, and makes one of its own.
  if (auto known = entry.lock(); known != nullptr && known->device->is_here()) return known;
  auto made = std::make_shared<SharedDevice>();
  DeviceSettings settings;
  settings.may_wait = false;  // programs that end without closing would leave messages unacknowledged
  settings.name = "verbs";
  settings.ipv4 = host;
  settings.has_standard = false;
  settings.has_shm = settings::flag("WEFT_VERBS_SHM");
  settings.has_selective = settings::flag("WEFT_VERBS_SELECTIVE");
  auto device = Device::open(settings, made->notices);
  if (!device) return device.error();
  made->device = std::move(*device);
  entry = made;
  return made;
}

}  // namespace weft::link::roce
