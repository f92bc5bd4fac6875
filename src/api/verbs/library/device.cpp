// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "api/verbs/library/log.hpp"
#include "api/verbs/library/setting_report.hpp"

namespace weft::verbs {
namespace {

struct Devices {
  std::mutex lock;
  std::vector<std::unique_ptr<Device>> known;
};

Devices& devices() {
  static auto* made = new Devices;
  return *made;
}

struct Listed {
  const Provider* provider;
  std::vector<std::pair<const Provider*, weft_verbs_device>>* found;
  bool no_memory = false;
};

// A provider calls this, so nothing may be thrown.
void add(void* list, const weft_verbs_device* device) noexcept {
  auto& listed = *static_cast<Listed*>(list);
  weft_verbs_device reported{};
  std::memcpy(&reported, device, std::min(device->size, sizeof reported));
  reported.size = sizeof reported;
  reported.name[sizeof reported.name - 1] = '\0';
  if (reported.name[0] == '\0') return;
  const bool taken = std::ranges::any_of(
      *listed.found, [&](const auto& other) { return std::strcmp(other.second.name, reported.name) == 0; });
  if (taken) {
    log(Level::Warning, "provider %s has a second device %s; it is left out", listed.provider->name.c_str(),
        reported.name);
    return;
  }
  try {
    listed.found->emplace_back(listed.provider, reported);
  } catch (const std::bad_alloc&) {
    listed.no_memory = true;
  }
}

// What the paths of a kernel device would be: programs build file names of them and live without the files.
void describe(Device& device) noexcept {
  ibv_device& shown = device.shown;
  shown.node_type = device.reported.node_type;
  shown.transport_type = device.reported.transport_type;
  std::memcpy(shown.name, device.reported.name, sizeof shown.name);
  std::memcpy(shown.dev_name, device.reported.name, sizeof shown.dev_name);
  snprintf(shown.dev_path, sizeof shown.dev_path, "/sys/class/infiniband_verbs/%s", shown.dev_name);
  snprintf(shown.ibdev_path, sizeof shown.ibdev_path, "/sys/class/infiniband/%s", shown.name);
}

// With the lock. A provider that is asked again may say other things of a device that nobody has opened.
Device& device_of(const Provider& provider, const weft_verbs_device& reported) {
  auto& known = devices().known;
  const auto at = std::ranges::find_if(known, [&](const auto& device) {
    return device->provider == &provider && std::strcmp(device->reported.name, reported.name) == 0 &&
           device->reported.guid == reported.guid && device->reported.data == reported.data;
  });
  if (at != known.end()) return **at;
  known.push_back(std::make_unique<Device>(Device{{}, &provider, reported, 0}));
  describe(*known.back());
  return *known.back();
}

void drop(Device& device) noexcept {
  if (--device.holders != 0) return;
  std::erase_if(devices().known, [&](const auto& other) { return other.get() == &device; });
}

std::vector<std::pair<const Provider*, weft_verbs_device>> find_all() {
  std::vector<std::pair<const Provider*, weft_verbs_device>> found;
  for (const Provider* provider : providers()) {
    Listed listed{provider, &found};
    const int code = provider->calls.list_devices(add, &listed);
    if (listed.no_memory) throw std::bad_alloc();
    if (code != 0)
      log(Level::Warning, "provider %s cannot list its devices: %s", provider->name.c_str(), strerror(code));
  }
  return found;
}

ibv_device** make_list(int* count) {
  report_settings();
  const auto found = find_all();
  auto list = std::make_unique<ibv_device*[]>(found.size() + 1);
  std::vector<Device*> held;
  held.reserve(found.size());
  const std::lock_guard guard(devices().lock);
  try {
    for (const auto& [provider, reported] : found) {
      Device& device = device_of(*provider, reported);
      ++device.holders;
      held.push_back(&device);
    }
  } catch (...) {
    for (Device* device : held) drop(*device);
    throw;
  }
  for (size_t i = 0; i < held.size(); ++i) list[i] = &held[i]->shown;
  if (count != nullptr) *count = static_cast<int>(held.size());
  return list.release();
}

}  // namespace

ibv_device** device_list(int* count) noexcept {
  if (count != nullptr) *count = 0;
  try {
    return make_list(count);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

void free_device_list(ibv_device** list) noexcept {
  if (list == nullptr) return;
  {
    const std::lock_guard guard(devices().lock);
    for (ibv_device** at = list; *at != nullptr; ++at) drop(Device::of(*at));
  }
  delete[] list;
}

void hold(Device& device) noexcept {
  const std::lock_guard guard(devices().lock);
  ++device.holders;
}

void release(Device& device) noexcept {
  const std::lock_guard guard(devices().lock);
  drop(device);
}

}  // namespace weft::verbs
