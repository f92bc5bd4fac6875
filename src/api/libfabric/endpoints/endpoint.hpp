// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints, transmit and receive contexts as the C ABI sees them. A Port is what a program holds; several ports may
// share one Core (a scalable endpoint and its contexts, an endpoint and its aliases). None of it is a template: what
// the control path asks of an engine and of a receive context is virtual here, and engine_type.hpp answers for each
// type. The data path knows the type (endpoint_data.hpp). Must not know which engines exist.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/libfabric/endpoints/flagged_ops.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "api/libfabric/objects/work_queue.hpp"
#include "proto/engine/context.hpp"
#include "proto/engine/endpoint_engine.hpp"

namespace weft::fi {

struct Core;
struct EngineType;
struct Port;

// A receive context with what it is bound to; ReceiverOf<R> has the context. A shared one (SRX) outlives the endpoints
// that use it.
struct Receiver {
  explicit Receiver(Domain& of) : domain(of) {}
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  virtual ~Receiver() = default;

  // --- the context, as proto::ReceiveContext has it ---
  virtual void choose(uint64_t caps) noexcept = 0;
  virtual void apply_bindings() noexcept = 0;
  virtual ssize_t cancel(const void* context) noexcept = 0;
  virtual size_t posted_max() const noexcept = 0;
  virtual size_t posted() const noexcept = 0;
  virtual size_t& multi_receive_min() noexcept = 0;
  // Several endpoints receive here; `reports` has what concerns none of them. Contexts that cannot be shared do
  // nothing.
  virtual void set_shared() noexcept = 0;
  virtual void set_reports(core::CompletionQueue* reports) noexcept = 0;

  Domain& domain;
  proto::RxSink* sink = nullptr;  // the context
  Cq* cq = nullptr;               // not of a shared one (fi_endpoint(3), shared contexts)
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
    core::CompletionQueue* reports = nullptr;
    for (const Sharer& sharer : sharers)
      if (reports == nullptr && sharer.cq != nullptr) reports = &sharer.cq->queue;
    set_reports(reports);
  }
};

struct Transmitter {
  explicit Transmitter(Domain& of) : domain(of) {}
  Domain& domain;
  proto::TxContext context;
  Cq* cq = nullptr;
  std::vector<Cntr*> counters;
};

// What the ports of one endpoint share; CoreOf<E> has the engine. The virtual calls are those of the control path,
// serialised as the engine's are (domain lock or program).
struct Core {
  explicit Core(Domain& of) : domain(of) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  virtual ~Core() = default;

  // --- the engine, as proto::EndpointEngine has it ---
  virtual const proto::EngineLimits& limits() const noexcept = 0;
  virtual void set_address_vector(core::AddressVector* table) = 0;
  virtual void set_receive_context(size_t index, proto::RxSink* context) = 0;
  virtual void add_queue(core::CompletionQueue* queue) = 0;
  virtual void remove_queue(core::CompletionQueue* queue) noexcept = 0;
  virtual void count_sends() noexcept = 0;
  virtual ssize_t cancel(const void* context) noexcept = 0;
  virtual size_t transmit_in_use() const noexcept = 0;
  virtual bool has_unsent() const noexcept = 0;
  virtual void push_unsent() noexcept = 0;
  virtual void abandon() noexcept = 0;
  virtual void close() noexcept = 0;
  virtual std::span<const std::byte> address() = 0;

  // --- opening: 0 or -FI_E*, with a line in the log ---
  // The device, settings and address of a new endpoint.
  virtual int open(Port& port, const fi_info& info, const std::string& name) = 0;
  // After close(): another name. Logs nothing.
  virtual Result<void> open_again(Port& port, const std::string& name) = 0;

  // --- what an engine may have besides; without it nothing happens ---
  virtual bool has_receive_context(size_t index) const noexcept = 0;  // proto::HasManyContexts
  virtual void release_receive_context(size_t index) noexcept = 0;
  virtual void release_transmit_context(const proto::TxContext& tx) noexcept = 0;
  virtual void set_sink(const proto::RxSink* sink) noexcept = 0;
  virtual int serve_regions(bool reads_counted, bool writes_counted) noexcept = 0;  // ServesDirectly
  virtual int stop_serving(bool closing) noexcept = 0;
  virtual void end_in_place() noexcept = 0;        // InPlaceEngine
  virtual bool belongs_here() const noexcept = 0;  // proto::KnowsItsProcess
  virtual void hurry() noexcept = 0;               // proto::Hurries
  virtual void end_statistics() noexcept = 0;      // proto::Watched: as it is now is how it was at its end

  Domain& domain;
  core::Progressor* engine = nullptr;
  WorkLane* work = nullptr;  // operations that wait for counters; null: the engine has none
  Av* av = nullptr;
  bool in_progress = false;  // the progress thread's, too
  size_t rx_enabled = 0;     // receive contexts of a scalable endpoint, so far
  bool scalable = false;
  size_t tx_count = 1;
  size_t rx_count = 1;
};

// What a connected endpoint has besides: connected.hpp.
struct ConnectionSide {
  virtual ~ConnectionSide() = default;
  // The endpoint closes: no event of it comes any more, and nobody drives it through its event queue. Without the
  // domain lock.
  virtual void leave() noexcept = 0;
};

// The engine stands on a link, which has settings and extensions of its own.
template <class E>
concept HasLink = requires(E& engine) {
  { engine.link() } -> std::same_as<typename E::Link&>;
};

struct Port : PortHead {
  // Hot. The engine's and the context's types are those of the data calls that the port has (engine_of, rx_of).
  core::Progressor* engine = nullptr;
  proto::TxContext* tx = nullptr;
  proto::RxSink* rx = nullptr;
  DomainLock* lock = nullptr;
  core::Counter* extra_counter = nullptr;  // while a deferred operation is being posted, like the next
  proto::TxContext* quiet = nullptr;       // stands in for tx where completions are not wanted
  // Cold.
  const EngineType* type = nullptr;
  std::unique_ptr<ConnectionSide> connection;  // outlives the engine, whose link tells it
  Core* core = nullptr;                        // null: an SRX
  Domain* domain = nullptr;
  std::unique_ptr<Core> owned_core;  // of the first port
  std::unique_ptr<Transmitter> transmitter;
  std::unique_ptr<Receiver> receiver;
  Receiver* shared_receiver = nullptr;  // SRX
  Receiver* receives = nullptr;         // whose context rx is
  fid_stx* stx = nullptr;
  Eq* eq = nullptr;
  uint64_t caps = 0;
  uint64_t alias_receive_flags = 0;  // of an alias: its defaults; others have those of rx
  Flagged flagged_calls{};
  size_t index = 0;  // of a context in its scalable endpoint
  // fi_setopt(3), FI_OPT_MAX_MSG_SIZE and the seven behind it, as far as the program has lowered them.
  std::array<size_t, 8> size_options{SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX,
                                     SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  bool enabled = false;
  bool alias = false;
  Users users{0};  // contexts and aliases opened on it
  Port* parent = nullptr;

  uint64_t receive_flags() const noexcept { return alias ? alias_receive_flags : rx->op_flags; }
};

inline Port& port_of(::fid* fid) noexcept { return *reinterpret_cast<Port*>(fid); }
inline Port& port_of(fid_ep* ep) noexcept { return *reinterpret_cast<Port*>(ep); }

// For who knows the type.
template <class E>
E& engine_of(const Port& port) noexcept {
  return static_cast<E&>(*port.engine);
}
template <class E>
typename E::Receive& rx_of(const Port& port) noexcept {
  return static_cast<typename E::Receive&>(*port.rx);
}

// The vectors of a port's data calls.
struct DataVectors {
  fi_ops_msg* msg;
  fi_ops_tagged* tagged;
  fi_ops_rma* rma;
  fi_ops_atomic* atomic;
};
// By what the port has.
struct DataCalls {
  DataVectors both;
  DataVectors transmit;
  DataVectors receive;
};

// What the control path knows of a type of engine: engine_type<E> (engine_type.hpp).
struct EngineType {
  proto::EngineAbilities abilities;
  bool serves_regions;  // proto::ServesRegions
  bool many_contexts;   // proto::HasManyContexts
  bool defers;          // proto::RunsDeferredWork
  bool uses_device;     // proto::UsesDevice
  size_t
      connection_data_max;  // bytes of user data in fi_connect and fi_accept; 0: the engine does not connect
  std::unique_ptr<Core> (*make_core)(Domain& domain, const proto::EngineLimits& limits);
  std::unique_ptr<Receiver> (*make_receiver)(Domain& domain, uint8_t index,
                                             const proto::EngineLimits& limits);
  DataCalls locked;  // each call takes the domain's lock
  DataCalls unlocked;
  fi_ops* fid_ops;
  fi_ops_cm* cm_ops;
};

// A transmit context that endpoints may share (fi_stx_context(3)): attributes only, since our endpoints never run out
// of hardware queues.
struct Stx {
  fid_stx fid{};
  Domain* domain = nullptr;
  fi_tx_attr attr{};
  Users users{0};
};

}  // namespace weft::fi
