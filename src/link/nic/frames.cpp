// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An endpoint comes to a card and leaves it.
#include "link/nic/frames.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

namespace weft::link::nic {

Result<void> Frames::open() {
  if (device_ == nullptr) return Error{ENODEV, "the endpoint has no network card"};
  inbox_.open(Device::inbox_bytes);
  if (auto ok = device_->attach(*this, port_); !ok) return ok;
  is_open_ = true;
  return {};
}

void Frames::close() noexcept {
  if (!std::exchange(is_open_, false)) return;
  sleep_.close(*device_);
  for (const wire::Mac& group : groups_) device_->leave(group);
  groups_.clear();
  device_->detach(*this);
  inbox_.close();
}

int Frames::join_mac(const wire::Mac& group) noexcept try {
  groups_.reserve(groups_.size() + 1);
  const int status = device_->join(group);
  if (status == 0) groups_.push_back(group);
  return status;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

void Frames::leave_mac(const wire::Mac& group) noexcept {
  const auto at = std::ranges::find(groups_, group);
  if (at == groups_.end()) return;
  groups_.erase(at);
  device_->leave(group);
}

Result<void> Packets::open(std::span<const std::byte> address) {
  Device* const device = frames().device();
  if (device == nullptr) return Error{ENODEV, "the endpoint has no network card"};
  os::SocketAddress own = device->configuration().address;
  if (const auto asked = os::SocketAddress::from(address.data(), address.size())) {
    if (asked->family() != own.family() || (!asked->is_any() && !os::same_host(*asked, own)))
      return Error{EADDRNOTAVAIL, asked->text() + " is not the address of the network card " +
                                      device->configuration().card + ", which is " + own.text()};
    own.set_port(asked->port());
  } else if (!address.empty()) {
    return Error{EINVAL, "an endpoint on a network card has an IPv4 or IPv6 address"};
  }
  if (own.port() == 0) own.set_port(device->draw_port());
  if (own.port() == 0) return Error{EADDRINUSE, "all dynamic ports of the network card are taken"};
  frames().set_port(own.port());
  set_network(device->configuration().network);
  return Base::open(own.bytes());
}

}  // namespace weft::link::nic
