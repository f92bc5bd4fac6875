// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The device of a domain (proto/device.hpp) as the front end holds it: opened by fi_domain, given to the links of endpoints,
// closed with the domain. A provider with a type Device has one; for others nothing of this is compiled into their
// endpoints. Must not know which devices exist.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/libfabric/discovery/provider.hpp"
#include "api/libfabric/discovery/provider_type.hpp"
#include "api/libfabric/endpoints/endpoint.hpp"
#include "api/libfabric/objects/domain_device.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "api/libfabric/text/log.hpp"
#include "base/result.hpp"
#include "proto/device.hpp"
#include "proto/packet/abilities.hpp"

namespace weft::fi {

template <proto::Device D>
class DeviceOf final : public DomainDevice {
 public:
  ~DeviceOf() override { device_.close(); }
  D& device() noexcept { return device_; }

  core::Registrar* registrar() noexcept override {
    if constexpr (proto::RegistersMemory<D>) return &device_;
    return nullptr;
  }
  core::Progressor* progressor() noexcept override {
    if constexpr (proto::MakesProgress<D>) return &device_;
    return nullptr;
  }
  std::vector<proto::DeviceCounter> counters() const override {
    if constexpr (proto::HasDeviceCounters<D>) return device_.counters();
    return {};
  }

  // Provider::open_device.
  static Result<std::unique_ptr<DomainDevice>> open(const Provider& provider,
                                                    const proto::DeviceRequest& request) {
    auto made = std::make_unique<DeviceOf>();
    if constexpr (proto::HasContext<D>) made->device_.set_context(provider.context);
    if constexpr (proto::HasWarnings<D>)
      made->device_.set_warning(
          [](const void* who, const char* what) {
            log_warn(static_cast<const Provider*>(who)->name, FI_LOG_DOMAIN, "%s", what);
          },
          &provider);
    if (Result<void> opened = made->device_.open(request); !opened) return opened.error();
    return std::unique_ptr<DomainDevice>(std::move(made));
  }

 private:
  D device_;
};

// Gives a new endpoint's link the device of the domain, before it is opened.
template <class L>
void set_device([[maybe_unused]] L& link, [[maybe_unused]] Domain& domain) noexcept {
  if constexpr (proto::UsesDevice<L>)
    link.set_device(static_cast<DeviceOf<typename L::Device>&>(*domain.device).device());
}

// Who of an endpoint uses the device: the engine's link, or an engine that stands on none.
template <class E>
auto& device_user(E& engine) noexcept {
  if constexpr (HasLink<E>) return engine.link();
  else return engine;
}
template <class E>
using DeviceUser = std::remove_reference_t<decltype(device_user(std::declval<E&>()))>;

// A provider P has the Device that its links use.
template <class P, class L>
constexpr bool has_device_for() noexcept {
  if constexpr (!proto::UsesDevice<L>) return true;
  else if constexpr (BringsDevice<P>) return std::is_same_v<typename P::Device, typename L::Device>;
  else return false;
}

// Provider::open_device of a provider P; null without a Device.
template <class P>
constexpr decltype(Provider::open_device) device_opener() noexcept {
  if constexpr (BringsLink<P>)
    static_assert(has_device_for<P, typename P::Link>(), "P::Device is not P::Link::Device");
  if constexpr (BringsConnections<P>)
    static_assert(has_device_for<P, typename P::Connection>(), "P::Device is not P::Connection::Device");
  if constexpr (BringsEngine<P>)
    static_assert(has_device_for<P, DeviceUser<typename P::Engine>>(),
                  "P::Device is not the one that P::Engine uses");
  if constexpr (BringsPackets<P>)
    static_assert(has_device_for<P, typename P::Packets>(), "P::Device is not P::Packets::Device");
  if constexpr (BringsDevice<P>) {
    static_assert(proto::Device<typename P::Device>, "P::Device is no proto::Device");
    return DeviceOf<typename P::Device>::open;
  } else {
    return nullptr;
  }
}

}  // namespace weft::fi
