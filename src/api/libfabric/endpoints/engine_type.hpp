// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the control path asks of an engine and its receive contexts, for each type of engine: the one template between
// EndpointEngine and the endpoints of endpoint.hpp, beside the data calls. Must not know which engines exist.
#pragma once

#include <rdma/fi_cm.h>

#include <concepts>
#include <memory>
#include <span>
#include <string>

#include "api/libfabric/endpoints/connected.hpp"
#include "api/libfabric/endpoints/device.hpp"
#include "api/libfabric/endpoints/endpoint.hpp"
#include "api/libfabric/endpoints/endpoint_control.hpp"
#include "api/libfabric/endpoints/endpoint_data.hpp"
#include "api/libfabric/endpoints/engine_open.hpp"
#include "api/libfabric/endpoints/extensions.hpp"
#include "api/libfabric/endpoints/group.hpp"
#include "api/libfabric/endpoints/link_settings.hpp"
#include "api/libfabric/endpoints/shown.hpp"
#include "api/libfabric/endpoints/unreported_warning.hpp"
#include "os/poll_set.hpp"

namespace weft::fi {

// Endpoints may share the context (SRX).
template <class R>
concept SharedReceive = requires(R& rx, core::CompletionQueue* reports) {
  {rx.shared = bool{}};
  {rx.reports = reports};
};

// Peers may reach regions without the engine: it tells them once the endpoint is enabled.
template <class E>
concept ServesDirectly = proto::ServesRegions<E> && requires(E& engine) {
  { engine.serve_regions(bool{}, bool{}) }
  noexcept->std::same_as<int>;
  { engine.stop_serving(bool{}) }
  noexcept->std::same_as<int>;
};

template <class R>
class ReceiverOf final : public Receiver {
 public:
  ReceiverOf(Domain& of, uint8_t index, const proto::EngineLimits& limits)
      : Receiver(of), context_(index, limits, os::random_bits()) {
    sink = &context_;
  }
  static std::unique_ptr<Receiver> make(Domain& domain, uint8_t index, const proto::EngineLimits& limits) {
    return std::make_unique<ReceiverOf>(domain, index, limits);
  }

  void choose(uint64_t caps) noexcept override { context_.choose(caps); }
  void apply_bindings() noexcept override { context_.apply_bindings(); }
  ssize_t cancel(const void* context) noexcept override { return context_.cancel(context); }
  size_t posted_max() const noexcept override { return context_.posted_max(); }
  size_t posted() const noexcept override { return context_.posted(); }
  size_t& multi_receive_min() noexcept override { return context_.multi_receive_min; }
  void set_shared() noexcept override {
    if constexpr (SharedReceive<R>) context_.shared = true;
  }
  void set_reports([[maybe_unused]] core::CompletionQueue* reports) noexcept override {
    if constexpr (SharedReceive<R>) context_.reports = reports;
  }

 private:
  R context_;
};

template <proto::EndpointEngine E>
class CoreOf final : public Core, core::Watcher {
 public:
  using Rx = typename E::Receive;

  CoreOf(Domain& of, const proto::EngineLimits& limits) : Core(of), engine_(limits) {
    engine = &engine_;
    if constexpr (proto::ServesRegions<E>) engine_.set_regions(&of.regions);
    if constexpr (proto::RunsDeferredWork<E>) {
      lane_ = std::make_unique<WorkLane>(of, engine_, engine_.deferred_due());
      engine_.set_deferred_runner(lane_.get());
      work = lane_.get();
    }
  }
  static std::unique_ptr<Core> make(Domain& domain, const proto::EngineLimits& limits) {
    return std::make_unique<CoreOf>(domain, limits);
  }

  const proto::EngineLimits& limits() const noexcept override { return engine_.limits(); }
  void set_address_vector(core::AddressVector* table) override { engine_.set_address_vector(table); }
  void set_receive_context(size_t index, proto::RxSink* context) override {
    engine_.set_receive_context(index, static_cast<Rx*>(context));
  }
  void add_queue(core::CompletionQueue* queue) override { engine_.add_queue(queue); }
  void remove_queue(core::CompletionQueue* queue) noexcept override { engine_.remove_queue(queue); }
  void count_sends() noexcept override { engine_.count_sends(); }
  ssize_t cancel(const void* context) noexcept override { return engine_.cancel(context); }
  size_t transmit_in_use() const noexcept override { return engine_.transmit_in_use(); }
  bool has_unsent() const noexcept override { return engine_.has_unsent(); }
  void push_unsent() noexcept override { engine_.push_unsent(); }
  void abandon() noexcept override { engine_.abandon(); }
  void close() noexcept override {
    end_statistics();
    engine_.close();
  }
  std::span<const std::byte> address() override { return engine_.address(); }

  ~CoreOf() override { unwatch(); }

  int open(Port& port, const fi_info& info, const std::string& name) override {
    watch();
    const int status = open_engine_of(port, info, name);
    if (status != 0) unwatch();
    else describe();
    return status;
  }
  Result<void> open_again([[maybe_unused]] Port& port, const std::string& name) override {
    watch();
    Result<void> opened = [&] {
      if constexpr (proto::ConnectedEngine<E>)
        return engine_.open(name, static_cast<Connector<E>&>(*port.connection));
      else return open_engine(engine_, domain, name, nullptr);
    }();
    if (!opened) unwatch();
    else describe();
    return opened;
  }

  int open_engine_of(Port& port, const fi_info& info, const std::string& name) {
    set_device(device_user(engine_), domain);
    if constexpr (HasLink<E>) apply_settings(engine_.link(), domain, info);
    if constexpr (proto::ConnectedEngine<E>) {
      return open_connection(port, engine_, info, name);
    } else {
      const Result<void> opened = open_engine(engine_, domain, name, &info);
      if (opened) return 0;
      log_warn(domain.provider->name, FI_LOG_EP_CTRL, "no endpoint: %s", opened.error().why.c_str());
      return -opened.error().code;
    }
  }
  bool has_receive_context([[maybe_unused]] size_t index) const noexcept override {
    if constexpr (proto::HasManyContexts<E>) return engine_.has_receive_context(index);
    return false;
  }
  void release_receive_context([[maybe_unused]] size_t index) noexcept override {
    if constexpr (proto::HasManyContexts<E>) engine_.release_receive_context(index);
  }
  void release_transmit_context([[maybe_unused]] const proto::TxContext& tx) noexcept override {
    if constexpr (proto::HasManyContexts<E>) engine_.release_transmit_context(tx);
  }
  void set_sink([[maybe_unused]] const proto::RxSink* sink) noexcept override {
    if constexpr (proto::HasManyContexts<E>) engine_.set_sink(sink);
  }
  int serve_regions([[maybe_unused]] bool reads_counted,
                    [[maybe_unused]] bool writes_counted) noexcept override {
    if constexpr (ServesDirectly<E>) return engine_.serve_regions(reads_counted, writes_counted);
    return 0;
  }
  int stop_serving([[maybe_unused]] bool closing) noexcept override {
    if constexpr (ServesDirectly<E>) return engine_.stop_serving(closing);
    return 0;
  }
  void end_in_place() noexcept override {
    if constexpr (InPlaceEngine<E>) engine_.end_in_place();
  }
  bool belongs_here() const noexcept override {
    if constexpr (proto::KnowsItsProcess<E>) return engine_.belongs_here();
    return true;
  }
  void hurry() noexcept override {
    if constexpr (proto::Hurries<E>) engine_.hurry();
  }
  void end_statistics() noexcept override {
    if constexpr (proto::Watched<E>)
      if (shown_) shown_.show(engine_.counts());
    unwatch();
  }

 private:
  // --- statistics (docs/statistics.md) ---
  void watch() noexcept {
    if constexpr (proto::Watched<E>) {
      shown_.open(domain.provider->name);
      engine_.set_watcher(this, shown_.id());
    }
  }
  void unwatch() noexcept {
    if constexpr (proto::Watched<E>) engine_.set_watcher(nullptr, 0);
    shown_.close();
  }
  void describe() noexcept {
    if constexpr (proto::Watched<E>) {
      std::span<const std::byte> peer;
      if constexpr (proto::ConnectedEngine<E>) peer = engine_.connection().peer_address();
      shown_.describe(*domain.provider, domain.addr_format, engine_.address(), peer);
      shown_.show(engine_.counts());
    }
  }
  void check() noexcept override {
    if constexpr (proto::Watched<E>) {
      if (!shown_.is_due()) return;
      if constexpr (proto::ConnectedEngine<E>)
        if (!shown_.names_peer()) return describe();
      shown_.show(engine_.counts());
    }
  }
  void unreported(const core::UnreportedErrors& errors) noexcept override {
    warn_of_unreported(*domain.provider, domain.addr_format, errors);
  }
  E engine_;
  std::unique_ptr<WorkLane> lane_;
  ShownEndpoint shown_;
};

// Data calls by lock. What the engine cannot do is refused.
template <class E, class Ops>
constexpr DataVectors data_vectors() noexcept {
  constexpr auto abilities = E::abilities;
  DataVectors made{&Ops::msg_ops, &NoSuchOps::tagged_ops, &NoSuchOps::rma_ops, &NoSuchOps::atomic_ops};
  if constexpr (abilities.has(FI_TAGGED)) made.tagged = &Ops::tagged_ops;
  if constexpr (abilities.has(FI_RMA)) made.rma = &Ops::rma_ops;
  if constexpr (abilities.has(FI_ATOMIC)) made.atomic = &Ops::atomic_ops;
  return made;
}
template <class E, class Lock>
constexpr DataCalls data_calls() noexcept {
  using Ops = DataOps<E, Lock>;
  return {data_vectors<E, Ops>(), data_vectors<E, TransmitOnly<Ops>>(), data_vectors<E, ReceiveOnly<Ops>>()};
}

template <class E>
inline fi_ops port_fid_ops = {sizeof(fi_ops),    close_port, bind_port, control_port,
                              open_extension<E>, no_tostr,   no_ops_set};
int no_listen(fid_pep* pep);                                        // -FI_ENOSYS
int no_reject(fid_pep* pep, fid_t, const void* param, size_t len);  // -FI_ENOSYS
template <class E>
inline fi_ops_cm port_cm_ops = {sizeof(fi_ops_cm),  setname,       getname,          CmOps<E>::getpeer,
                                CmOps<E>::connect,  no_listen,     CmOps<E>::accept, no_reject,
                                CmOps<E>::shutdown, Group<E>::join};

template <class E>
constexpr size_t connection_data_max() noexcept {
  if constexpr (proto::ConnectedEngine<E>) return E::Connection::connection_data_bytes_max;
  return 0;
}

template <proto::EndpointEngine E>
inline constexpr EngineType engine_type = {
    .abilities = E::abilities,
    .serves_regions = proto::ServesRegions<E>,
    .many_contexts = proto::HasManyContexts<E>,
    .defers = proto::RunsDeferredWork<E>,
    .uses_device = proto::UsesDevice<DeviceUser<E>>,
    .connection_data_max = connection_data_max<E>(),
    .make_core = CoreOf<E>::make,
    .make_receiver = ReceiverOf<typename E::Receive>::make,
    .locked = data_calls<E, SharedLock>(),
    .unlocked = data_calls<E, NoLock>(),
    .fid_ops = &port_fid_ops<E>,
    .cm_ops = &port_cm_ops<E>,
};

}  // namespace weft::fi
