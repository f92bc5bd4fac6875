// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/rdmacm/library/devices.hpp"

#include <algorithm>
#include <cstring>

namespace weft::rdmacm {
namespace {

std::unique_ptr<Device> open(ibv_device* device) {
  ibv_context* context = ibv_open_device(device);
  if (context == nullptr) return nullptr;
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  if (ibv_query_device(context, &attributes) != 0 || ibv_query_port(context, device_port, &port) != 0) {
    ibv_close_device(context);
    return nullptr;
  }
  std::vector<LocalGid> gids;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid raw{};
    if (ibv_query_gid(context, device_port, i, &raw) != 0) continue;
    LocalGid gid;
    std::memcpy(gid.gid.data(), raw.raw, gid.gid.size());
    if (gid.gid == Gid{}) continue;
    gid.index = static_cast<uint8_t>(i);
    gid.address = link::roce::address_of(gid.gid);
    gid.has_port = link::roce::has_port(gid.gid);
    gids.push_back(gid);
  }
  return std::make_unique<Device>(context, std::move(gids), attributes, port.active_mtu);
}

}  // namespace

os::SocketAddress address_for_gid(const os::SocketAddress& address) noexcept {
  if (address.family() == AF_INET6 && address.is_loopback())
    return os::SocketAddress::loopback(AF_INET, address.port());
  return address;
}

const LocalGid* Device::gid_of(const os::SocketAddress& host) const noexcept {
  const os::SocketAddress address = address_for_gid(host);
  const LocalGid* found = nullptr;
  for (const LocalGid& gid : gids_)
    if (os::same_host(gid.address, address) && (found == nullptr || (gid.has_port && !found->has_port)))
      found = &gid;
  return found;
}

const LocalGid* Device::gid(const Gid& gid) const noexcept {
  const auto at = std::find_if(gids_.begin(), gids_.end(), [&](const LocalGid& l) { return l.gid == gid; });
  return at == gids_.end() ? nullptr : &*at;
}

ibv_pd* Device::domain() {
  if (domain_ == nullptr) domain_ = ibv_alloc_pd(context_);
  return domain_;
}

void Devices::look(bool keep_open) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return;
  for (int i = 0; i < count; ++i) {
    const std::string name = ibv_get_device_name(list[i]);
    auto at = std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.name == name; });
    if (at == known_.end()) at = known_.insert(known_.end(), Known{name, {}, nullptr});
    if (at->open != nullptr) continue;
    std::unique_ptr<Device> device = open(list[i]);
    if (device == nullptr) continue;
    at->addresses.clear();
    for (const LocalGid& gid : device->gids()) at->addresses.push_back(gid.address);
    if (keep_open) at->open = std::move(device);
    else ibv_close_device(device->context());
  }
  ibv_free_device_list(list);
}

Device* Devices::of(const os::SocketAddress& host) {
  const os::SocketAddress address = address_for_gid(host);
  const auto has = [&](const Known& k) {
    return std::any_of(k.addresses.begin(), k.addresses.end(),
                       [&](const auto& a) { return os::same_host(a, address); });
  };
  for (const bool again : {false, true}) {
    if (again || known_.empty()) look(false);
    for (Known& known : known_) {
      if (!has(known)) continue;
      if (known.open != nullptr && known.open->has(address)) return known.open.get();
      if (known.open != nullptr) continue;
      int count = 0;
      ibv_device** list = ibv_get_device_list(&count);
      for (int i = 0; list != nullptr && i < count; ++i)
        if (known.name == ibv_get_device_name(list[i])) known.open = open(list[i]);
      if (list != nullptr) ibv_free_device_list(list);
      if (known.open != nullptr && known.open->has(address)) return known.open.get();
    }
  }
  return nullptr;
}

Device* Devices::of(const ibv_context* context) const noexcept {
  for (const Known& known : known_)
    if (known.open != nullptr && known.open->context() == context) return known.open.get();
  return nullptr;
}

std::vector<ibv_context*> Devices::all() {
  look(true);
  std::vector<ibv_context*> contexts;
  for (const Known& known : known_)
    if (known.open != nullptr) contexts.push_back(known.open->context());
  return contexts;
}

}  // namespace weft::rdmacm
