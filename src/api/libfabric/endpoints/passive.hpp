// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Passive endpoints and requests for connections (fi_cm(3), fi_endpoint(3)), over any link's listener. The calls are in passive.cpp; what
// depends on the link is behind PassiveSide and ConnectionRequest, which templates make. Must not know which links exist.
#pragma once

#include <rdma/fi_cm.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/libfabric/discovery/link_name.hpp"
#include "api/libfabric/discovery/traffic_class.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "api/libfabric/text/param.hpp"
#include "proto/engine/connection.hpp"

namespace weft::fi {

// A listener whose type is forgotten. Under the passive endpoint's mutex.
struct PassiveSide {
  virtual ~PassiveSide() = default;
  virtual Result<void> open(std::string_view name) = 0;
  virtual std::span<const std::byte> address() = 0;
  virtual Result<void> listen(int backlog) = 0;
  virtual void poll() noexcept = 0;
  virtual std::unique_ptr<ConnectionRequest> next() = 0;  // may throw std::bad_alloc, then nothing is lost
  virtual int control_fd() noexcept = 0;
  virtual void close() noexcept = 0;
};

struct Passive {
  static constexpr int backlog_default = 128;
  static constexpr int backlog_max = 65'536;

  Passive(Fabric& of, InfoPtr with) : fabric(of), info(std::move(with)), source(*this) {}

  fid_pep fid{};
  Fabric& fabric;
  InfoPtr info;  // that opened it; requests get copies
  Eq* eq = nullptr;
  std::unique_ptr<PassiveSide> side;
  size_t data_bytes_max = 0;
  std::mutex mutex;
  int backlog = backlog_default;
  bool listening = false;
  bool surrendered = false;  // an active endpoint has taken its address

  struct Source final : ControlSource {
    explicit Source(Passive& of) : passive(of) {}
    void drive() noexcept override;
    int control_fd() noexcept override { return passive.side->control_fd(); }
    Passive& passive;
  } source;

  // Gives its address to an active endpoint (fi_endpoint(3), fi_info::handle): lets go of it and returns it. 0 or -FI_E*.
  int surrender(std::string& name);
};

// Sets up `passive` around a side that has been opened. 0 or -FI_E*.
int open_passive(Fabric& fabric, fi_info* info, std::unique_ptr<PassiveSide> side, size_t data_bytes_max,
                 fid_pep** pep, void* context);
extern fi_ops request_ops;  // of a request's fid

// User data of the connection calls beyond what fits is cut off without a word (fi_cm(3), notes).
inline std::span<const std::byte> connection_data(const void* param, size_t length, size_t most) noexcept {
  if (param == nullptr) return {};
  return {static_cast<const std::byte*>(param), length < most ? length : most};
}

template <proto::ConnectedLink L>
struct RequestOf final : ConnectionRequest {
  using Incoming = typename L::Listener::Request;
  explicit RequestOf(Fabric& of) : ConnectionRequest(of) {
    handle.fid = {FI_CLASS_CONNREQ, nullptr, &request_ops};
    handle.request = this;
  }
  std::span<const std::byte> data() const override { return incoming->data(); }
  std::span<const std::byte> peer_address() const override { return incoming->peer_address(); }
  std::span<const std::byte> local_address() const override { return incoming->local_address(); }
  void reject(std::span<const std::byte> data) noexcept override { incoming->reject(data); }

  std::unique_ptr<Incoming> incoming;
};

template <proto::ConnectedLink L>
struct PassiveSideOf final : PassiveSide {
  explicit PassiveSideOf(Fabric& of) : fabric(of) {}
  Result<void> open(std::string_view name) override { return listener.open(name); }
  std::span<const std::byte> address() override { return listener.address(); }
  Result<void> listen(int backlog) override { return listener.listen(backlog); }
  void poll() noexcept override { listener.poll(); }
  std::unique_ptr<ConnectionRequest> next() override {
    auto request = std::make_unique<RequestOf<L>>(fabric);
    request->incoming = listener.next();
    if (request->incoming == nullptr) return nullptr;
    return request;
  }
  int control_fd() noexcept override { return listener.control_fd(); }
  void close() noexcept override { listener.close(); }

  Fabric& fabric;
  typename L::Listener listener;
};

// Variables of a provider whose connections have time limits; read when an endpoint is opened. `what` is a connection or a listener.
template <class T>
void set_time_limits(const char* provider, T& what) {
  if constexpr (proto::HasConnectTimeout<T>)
    what.set_connect_timeout_ms(
        param_size(provider, "connect_timeout", 10'000,
                   "Milliseconds until the host that fi_connect tries to reach must have "
                   "answered, and until who connects to us must have said who it is (default: 10000 ms)"));
  if constexpr (proto::HasAcceptTimeout<T>)
    what.set_accept_timeout_ms(
        param_size(provider, "accept_timeout", 60'000,
                   "Milliseconds until the program that fi_connect has reached must have "
                   "accepted or rejected (default: 60000 ms)"));
}

template <proto::ConnectedLink L>
int open_passive_endpoint(Fabric& fabric, fi_info* info, fid_pep** pep, void* context) {
  auto side = std::make_unique<PassiveSideOf<L>>(fabric);
  if constexpr (proto::HasAddressFormats<typename L::Listener>)
    side->listener.set_address_format(info->addr_format != FI_FORMAT_UNSPEC
                                          ? info->addr_format
                                          : fabric.provider->offers(*fabric.provider)->addr_format);
  set_time_limits(fabric.provider->name, side->listener);
  set_traffic_class(side->listener, code_point_of(*info, fabric.fid.api_version));
  return open_passive(fabric, info, std::move(side), L::connection_data_bytes_max, pep, context);
}

}  // namespace weft::fi
