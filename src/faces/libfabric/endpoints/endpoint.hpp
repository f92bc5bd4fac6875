// Endpoints, transmit and receive contexts as the C ABI sees them, over any engine. A Port is what a program holds; several ports may
// share one Core (a scalable endpoint and its contexts, an endpoint and its aliases). Must not know which links exist.
//
// endpoint_data.hpp has the data calls, endpoint_control.hpp binding and state; a provider includes endpoint_open.hpp.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <memory>
#include <vector>

#include "faces/libfabric/endpoints/flagged_ops.hpp"
#include "faces/libfabric/objects/objects.hpp"
#include "faces/libfabric/objects/work_queue.hpp"
#include "proto/engine/endpoint_engine.hpp"

namespace weft::fi {

// A receive context with what it is bound to. A shared one (SRX) outlives the endpoints that use it.
template <class R>
struct Receiver {
  Receiver(Domain& of, uint8_t index, const proto::EngineLimits& limits, uint64_t seed)
      : domain(of), context(index, limits, seed) {}
  Domain& domain;
  R context;
  Cq* cq = nullptr;  // not of a shared one (fi_endpoint(3), shared contexts)
  std::vector<Cntr*> counters;
  Users users{0};  // endpoints that share it
  // The endpoints that share it, oldest first. Each is attached to all of `counters`.
  struct Sharer {
    core::Progressor* engine;
    Cq* cq;  // of its receives, or null
  };
  std::vector<Sharer> sharers;

  // A queue for what concerns no endpoint: that of the oldest which has one.
  void choose_reports() noexcept {
    context.reports = nullptr;
    for (const Sharer& sharer : sharers)
      if (context.reports == nullptr && sharer.cq != nullptr) context.reports = &sharer.cq->queue;
  }
};

struct Transmitter {
  explicit Transmitter(Domain& of) : domain(of) {}
  Domain& domain;
  proto::TxContext context;
  Cq* cq = nullptr;
  std::vector<Cntr*> counters;
};

// What the ports of one endpoint share.
template <proto::EndpointEngine E>
struct Core {
  Core(Domain& of, const proto::EngineLimits& limits) : domain(of), engine(limits) {
    if constexpr (proto::RunsDeferredWork<E>) {
      work = std::make_unique<WorkLane>(of, engine, engine.deferred_due());
      engine.set_deferred_runner(work.get());
    }
  }
  Domain& domain;
  E engine;
  std::unique_ptr<WorkLane> work;  // operations that wait for counters
  Av* av = nullptr;
  uint64_t caps = 0;
  bool in_progress = false;  // the progress thread's, too
  size_t rx_enabled = 0;     // receive contexts of a scalable endpoint, so far
  bool scalable = false;
  size_t tx_count = 1;
  size_t rx_count = 1;
  Users users{0};  // ports besides the first
  std::vector<core::Progressor*> attached;
};

// What a connected endpoint has besides: connected.hpp.
struct ConnectionSide {
  virtual ~ConnectionSide() = default;
  // The endpoint closes: no event of it comes any more, and nobody drives it through its event queue. Without the domain lock.
  virtual void leave() noexcept = 0;
};

// The engine stands on a link, which has settings and extensions of its own.
template <class E>
concept HasLink = requires(E& engine) {
  { engine.link() } -> std::same_as<typename E::Link&>;
};

// Peers may reach regions without the engine: it tells them once the endpoint is enabled.
template <class E>
concept ServesDirectly = proto::ServesRegions<E> && requires(E& engine) {
  { engine.serve_regions(bool{}, bool{}) }
  noexcept->std::same_as<int>;
  { engine.stop_serving() }
  noexcept->std::same_as<int>;
};

template <class E>
struct Port : PortHead {
  using Rx = typename E::Receive;
  // Hot.
  E* engine = nullptr;
  proto::TxContext* tx = nullptr;
  Rx* rx = nullptr;
  DomainLock* lock = nullptr;
  core::Counter* extra_counter = nullptr;  // while a deferred operation is being posted, like the next
  proto::TxContext* quiet = nullptr;       // stands in for tx where completions are not wanted
  // Cold.
  std::unique_ptr<ConnectionSide> connection;  // outlives the engine, whose link tells it
  Core<E>* core = nullptr;
  Domain* domain = nullptr;
  std::unique_ptr<Core<E>> owned_core;  // of the first port
  std::unique_ptr<Transmitter> transmitter;
  std::unique_ptr<Receiver<Rx>> receiver;
  Receiver<Rx>* shared_receiver = nullptr;  // SRX
  fid_stx* stx = nullptr;
  Eq* eq = nullptr;
  uint64_t caps = 0;
  uint64_t alias_receive_flags = 0;  // of an alias: its defaults; others have those of rx
  Flagged flagged_calls{};
  size_t index = 0;  // of a context in its scalable endpoint
  bool enabled = false;
  bool alias = false;
  Users users{0};  // contexts and aliases opened on it
  Port* parent = nullptr;

  uint64_t receive_flags() const noexcept { return alias ? alias_receive_flags : rx->op_flags; }
  Receiver<Rx>* receives() const noexcept {
    return shared_receiver != nullptr ? shared_receiver : receiver.get();
  }
};

template <class E>
Port<E>& port_of(::fid* fid) noexcept {
  return *reinterpret_cast<Port<E>*>(fid);
}
template <class E>
Port<E>& port_of(fid_ep* ep) noexcept {
  return *reinterpret_cast<Port<E>*>(ep);
}

// A transmit context that endpoints may share (fi_stx_context(3)): attributes only, since our endpoints never run out of hardware queues.
struct Stx {
  fid_stx fid{};
  Domain* domain = nullptr;
  fi_tx_attr attr{};
  Users users{0};
};

}  // namespace weft::fi
