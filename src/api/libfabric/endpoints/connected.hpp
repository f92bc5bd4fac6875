// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connected endpoints (fi_cm(3), fi_eq(3)): the calls of both sides and the events that come of them, for any ConnectedEngine. For other
// engines the calls refuse. Must not know which links exist.
#pragma once

#include <rdma/fi_cm.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/libfabric/endpoints/answers.hpp"
#include "api/libfabric/endpoints/endpoint_control.hpp"
#include "api/libfabric/endpoints/passive.hpp"

namespace weft::fi {

// The connection of one endpoint: what the link says becomes events, what the event queue's reader drives becomes progress of the link.
// Everything but leave() and drive() is called with the domain lock held.
template <proto::ConnectedEngine E>
class Connector final : public ConnectionSide, public proto::ConnectionObserver, public ControlSource {
 public:
  enum class State : uint8_t {
    Idle,        // may connect
    Requested,   // made for a request: may accept
    Connecting,  // fi_connect has been called
    Connected,
    Shut,  // fi_shutdown has been called
    Over,  // refused, or the peer has left
  };

  explicit Connector(Port& port) : port_(port) {}

  State state = State::Idle;
  std::unique_ptr<RequestOf<typename E::Connection>> request;  // Requested
  std::vector<std::byte> destination;  // of the fi_info, for fi_connect without an address

  // Room in the event queue for all that may come: the outcome, and the end. An endpoint brings it along, so that a queue serves any number.
  int reserve() noexcept {
    if (!std::exchange(widened_, true)) port_.eq->queue.widen(events_max);
    if (const int status = port_.eq->queue.reserve(events_max); status != 0) return status;
    reserved_ = events_max;
    return 0;
  }
  void unreserve() noexcept {
    if (port_.eq != nullptr) port_.eq->queue.unreserve(std::exchange(reserved_, 0));
  }

  // --- ConnectionObserver ---
  void connected(std::span<const std::byte> data) noexcept override {
    state = State::Connected;
    report(FI_CONNECTED, data);
  }
  void refused(int error, core::ProviderError why, std::span<const std::byte> data) noexcept override {
    state = State::Over;
    core::EventError event;
    event.object = &port_.fid.fid;
    event.context = port_.fid.fid.context;
    event.err = error;
    event.prov_errno = static_cast<int>(why);
    try {
      event.err_data.assign(data.begin(), data.end());
    } catch (const std::bad_alloc&) {  // the refusal counts more than its data
    }
    if (reserved_ != 0 && port_.eq->queue.write_error_reserved(std::move(event)) == 0) --reserved_;
    unreserve();
  }
  void disconnected(core::ProviderError) noexcept override {
    if (std::exchange(state, State::Over) != State::Over) report(FI_SHUTDOWN, {});
    unreserve();
  }

  // --- ControlSource ---
  void drive() noexcept override {
    std::scoped_lock guard(port_.domain->lock);
    engine_of<E>(port_).connection().advance();
    port_.engine->poll();
  }
  int control_fd() noexcept override { return engine_of<E>(port_).connection().control_fd(); }

  // --- ConnectionSide ---
  void leave() noexcept override {
    if (port_.eq == nullptr) return;
    port_.eq->detach(*this, &port_.fid.fid);
    unreserve();
    if (std::exchange(widened_, false)) port_.eq->queue.narrow(events_max);
  }

 private:
  void report(uint32_t number, std::span<const std::byte> data) noexcept {
    std::array<std::byte, core::EventQueue::event_bytes_max> event{};
    fi_eq_cm_entry head{};
    head.fid = &port_.fid.fid;
    const size_t bytes = std::min(data.size(), event.size() - sizeof(head));
    std::memcpy(event.data(), &head, sizeof(head));
    if (bytes != 0) std::memcpy(event.data() + sizeof(head), data.data(), bytes);
    if (reserved_ == 0) return;
    if (port_.eq->queue.write_reserved(number, event.data(), sizeof(head) + bytes, sizeof(head)) == 0) {
      --reserved_;
      return;
    }
    log_warn(port_.domain->provider->name, FI_LOG_EP_CTRL, "a connection event was lost: out of memory");
  }

  static constexpr size_t events_max = 2;

  Port& port_;
  size_t reserved_ = 0;
  bool widened_ = false;
};

// fi_ops_cm of active endpoints.
template <class E>
struct CmOps {
  static int getpeer(fid_ep*, void*, size_t*) { return -FI_ENOSYS; }
  static int connect(fid_ep*, const void*, const void*, size_t) { return -FI_ENOSYS; }
  static int accept(fid_ep*, const void*, size_t) { return -FI_ENOSYS; }
  static int shutdown(fid_ep*, uint64_t) { return -FI_ENOSYS; }
};

template <proto::ConnectedEngine E>
struct CmOps<E> {
  using P = Port;
  using State = typename Connector<E>::State;

  static int refuse(const P& p, int code, const char* what, const char* why) {
    log_warn(p.domain->provider->name, FI_LOG_EP_CTRL, "%s: %s", what, why);
    return -code;
  }

  static int getpeer(fid_ep* ep, void* address, size_t* length) {
    P& p = port_of(ep);
    if (p.connection == nullptr) return -FI_ENOSYS;
    if (length == nullptr) return -FI_EINVAL;
    std::scoped_lock guard(p.domain->lock);
    const auto peer = engine_of<E>(p).connection().peer_address();
    if (peer.empty()) return -FI_ENOTCONN;
    return copy_address(peer, address, length);
  }

  static int connect(fid_ep* ep, const void* address, const void* param, size_t length) {
    P& p = port_of(ep);
    if (p.connection == nullptr) return -FI_ENOSYS;
    return no_throw([&] {
      return start(p, address, connection_data(param, length, E::Connection::connection_data_bytes_max));
    });
  }

  static int accept(fid_ep* ep, const void* param, size_t length) {
    P& p = port_of(ep);
    if (p.connection == nullptr) return -FI_ENOSYS;
    return no_throw(
        [&] { return answer(p, connection_data(param, length, E::Connection::connection_data_bytes_max)); });
  }

  static int shutdown(fid_ep* ep, uint64_t flags) {
    P& p = port_of(ep);
    if (p.connection == nullptr) return -FI_ENOSYS;
    if (flags != 0) return refuse(p, FI_EBADFLAGS, "fi_shutdown", "flags must be 0");
    auto& side = connector(p);
    std::scoped_lock guard(p.domain->lock);
    if (side.state == State::Shut || (side.state == State::Over && engine_of<E>(p).gone())) return 0;
    if (side.state != State::Connected) return -FI_ENOTCONN;
    linger(*p.core);
    if (side.state != State::Connected) return 0;  // the peer left meanwhile
    side.state = State::Shut;
    engine_of<E>(p).shut_down();
    return 0;
  }

 private:
  static auto& connector(P& p) noexcept { return static_cast<Connector<E>&>(*p.connection); }

  // An address of the program, or that of the fi_info, in its one form.
  static int target(P& p, const void* address, std::string& name) {
    const Domain& domain = *p.domain;
    std::vector<std::byte> bytes(domain.addrlen);
    if (address == nullptr) {
      if (connector(p).destination.empty())
        return refuse(p, FI_EINVAL, "fi_connect", "no address was given, and the fi_info had none");
      bytes = connector(p).destination;
      bytes.resize(domain.addrlen);
    } else if (domain.addr_format == FI_ADDR_STR) {
      const std::string text = link_name(domain.addr_format, address, domain.addrlen);
      if (text.size() >= bytes.size()) return refuse(p, FI_EINVAL, "fi_connect", "the address is too long");
      std::memcpy(bytes.data(), text.data(), text.size());
    } else {
      std::memcpy(bytes.data(), address, bytes.size());
    }
    if (!domain.provider->normalise(domain.addr_format, bytes.data()))
      return refuse(p, FI_EINVAL, "fi_connect", "the address is none of this provider's");
    name = link_name(domain.addr_format, bytes.data(), bytes.size());
    return 0;
  }

  // Both sides: the endpoint is enabled, the event queue has room for what will come, and its reader drives us.
  static int prepare(P& p, State wanted, const char* what) {
    {
      std::scoped_lock guard(p.domain->lock);
      if (connector(p).state != wanted)
        return refuse(p, FI_EOPBADSTATE, what, state_text(connector(p).state));
      if (const int status = enable(p); status != 0) return status;
      if (const int status = connector(p).reserve(); status != 0) return status;
    }
    const int status = p.eq->attach(connector(p));
    if (status != 0) {
      std::scoped_lock guard(p.domain->lock);
      connector(p).unreserve();
    }
    return status;
  }
  static const char* state_text(State state) noexcept {
    switch (state) {
      case State::Idle:
        return "the endpoint was not opened for a request";
      case State::Requested:
        return "the endpoint was opened to accept a request";
      default:
        return "an endpoint is connected once in its life";
    }
  }

  static int start(P& p, const void* address, std::span<const std::byte> data) {
    std::string name;
    if (const int status = target(p, address, name); status != 0) return status;
    if (const int status = prepare(p, State::Idle, "fi_connect"); status != 0) return status;
    std::scoped_lock guard(p.domain->lock);
    connector(p).state = State::Connecting;
    auto started = engine_of<E>(p).connection().start(name, data);
    if (started) return 0;
    connector(p).state = State::Idle;
    connector(p).unreserve();
    return refuse(p, started.error().code, "fi_connect", started.error().why.c_str());
  }

  static int answer(P& p, std::span<const std::byte> data) {
    if (const int status = prepare(p, State::Requested, "fi_accept"); status != 0) return status;
    std::scoped_lock guard(p.domain->lock);
    auto accepted = engine_of<E>(p).connection().accept(std::move(connector(p).request->incoming), data);
    connector(p).request.reset();
    if (accepted) return 0;
    connector(p).state = State::Over;
    connector(p).unreserve();
    return refuse(p, accepted.error().code, "fi_accept", accepted.error().why.c_str());
  }
};

// Gives a new port its connection and opens the link with the address that `info` says. 0 or -FI_E*.
template <proto::ConnectedEngine E>
int open_connection(Port& port, E& engine, const fi_info& info, std::string name) {
  Domain& domain = *port.domain;
  const auto refuse = [&](int code, const char* why) {
    log_warn(domain.provider->name, FI_LOG_EP_CTRL, "no endpoint: %s", why);
    return -code;
  };
  if (domain.endpoint_type != FI_EP_MSG)
    return refuse(FI_EINVAL,
                  "connected endpoints need a domain that was opened with an fi_info of FI_EP_MSG");
  auto side = std::make_unique<Connector<E>>(port);
  set_time_limits(domain.provider->name, engine.connection());
  if (info.dest_addr != nullptr) {
    const auto* first = static_cast<const std::byte*>(info.dest_addr);
    side->destination.assign(first, first + info.dest_addrlen);
  }
  const bool requested = info.handle != nullptr && info.handle->fclass == FI_CLASS_CONNREQ;
  if (requested) {
    name.clear();  // the connection has its address already
  } else if (Passive* passive = passive_of(info.handle)) {
    if (const int status = passive->surrender(name); status != 0) return status;
  } else if (info.handle != nullptr) {
    return refuse(FI_EINVAL, "fi_info::handle is neither a request nor a passive endpoint");
  }
  auto opened = engine.open(name, *side);
  if (!opened) return refuse(opened.error().code, opened.error().why.c_str());
  if (requested) {  // last, so that it stays valid when something failed
    auto taken = domain.fabric.take(info.handle);
    if (taken == nullptr) return refuse(FI_EINVAL, "fi_info::handle is a request that was answered before");
    side->request.reset(static_cast<RequestOf<typename E::Connection>*>(taken.release()));
    side->state = Connector<E>::State::Requested;
  }
  port.connection = std::move(side);
  return 0;
}

}  // namespace weft::fi
