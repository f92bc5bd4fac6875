// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RDMA devices by IP address, through the public calls of libibverbs: one context and one protection domain a device and process, which are never
// closed (programs compare the contexts of their ids). Must not know connections.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/roce/gid.hpp"
#include "os/socket_address.hpp"

namespace weft::rdmacm {

using link::roce::Gid;

inline constexpr uint8_t device_port = 1;

// The address whose GID stands for this one: that of ::1 is 127.0.0.1's, for GIDs of ours have no room for it.
os::SocketAddress address_for_gid(const os::SocketAddress& address) noexcept;

struct LocalGid {
  Gid gid{};
  uint8_t index = 0;
  os::SocketAddress address;  // and the port of its packets
  bool has_port = false;      // one of ours, which peers of ours alone understand
};

class Device {
 public:
  Device(ibv_context* context, std::vector<LocalGid> gids, const ibv_device_attr& attributes, ibv_mtu mtu)
      : context_(context), gids_(std::move(gids)), attributes_(attributes), mtu_(mtu) {}

  ibv_context* context() const noexcept { return context_; }
  const ibv_device_attr& attributes() const noexcept { return attributes_; }
  ibv_mtu mtu() const noexcept { return mtu_; }
  const std::vector<LocalGid>& gids() const noexcept { return gids_; }
  // Of this host address: one of ours before a standard one.
  const LocalGid* gid_of(const os::SocketAddress& address) const noexcept;
  const LocalGid* gid(const Gid& gid) const noexcept;
  bool has(const os::SocketAddress& address) const noexcept { return gid_of(address) != nullptr; }
  ibv_pd* domain();  // null: errno says why

 private:
  ibv_context* context_;
  std::vector<LocalGid> gids_;
  ibv_device_attr attributes_;
  ibv_mtu mtu_;
  ibv_pd* domain_ = nullptr;
};

class Devices {
 public:
  // Opens it where it was not open. Null: no device has the address.
  Device* of(const os::SocketAddress& address);
  Device* of(const ibv_context* context) const noexcept;
  std::vector<ibv_context*> all();  // opens all of them

 private:
  struct Known {
    std::string name;
    std::vector<os::SocketAddress> addresses;  // when it was looked at
    std::unique_ptr<Device> open;
  };
  void look(bool keep_open);
  std::vector<Known> known_;
};

}  // namespace weft::rdmacm
