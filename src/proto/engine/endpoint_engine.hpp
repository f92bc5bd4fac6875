// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an API front end asks of an engine, so that endpoints can stand on it. Engine<Link> and Datagram<PacketLink> are two; an engine that knows
// messages only is a third with less. What an engine can do besides has a name of its own below; the front end asks by `if constexpr`.
// Must not know any engine or front end.
//
// Rules of the contract:
//   - The front end serialises all calls (domain lock or program), and the engine calls nobody but queues, counters and the observer of its connection.
//   - Receive contexts belong to the front end, of the type that the engine names; it is told of them before the first operation.
//   - Data calls return 0 or a negative errno; -FI_EAGAIN means that nothing happened, and progress() may make room.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "core/address_vector.hpp"
#include "core/atomic.hpp"
#include "core/memory_region.hpp"
#include "core/progress.hpp"
#include "proto/engine/connection.hpp"
#include "proto/engine/context.hpp"
#include "proto/setup.hpp"

namespace weft::proto {

// Of an operation whose completion waits for its target.
inline constexpr uint64_t acknowledged_flags = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

// A transmit operation as a program asks for it. Pointers are read during the call only, unless it must wait.
struct Request {
  OpKind kind = OpKind::Send;  // Send, Write, Read, Atomic
  bool tagged = false;
  const iovec* iov = nullptr;  // source, or destination of a read
  size_t iov_count = 0;
  fi_addr_t dest = FI_ADDR_UNSPEC;
  uint64_t tag = 0;
  uint64_t data = 0;   // with FI_REMOTE_CQ_DATA in flags
  uint64_t flags = 0;  // FI_*, op_flags merged in by the caller
  void* context = nullptr;
  const fi_rma_iov* targets = nullptr;
  size_t target_count = 0;
  uint32_t datatype = 0;  // Atomic
  uint32_t atomic_op = 0;
  core::AtomicKind atomic_kind = core::AtomicKind::Write;
  const iovec* compare = nullptr;
  size_t compare_count = 0;
  const iovec* result = nullptr;
  size_t result_count = 0;
  core::Counter* extra_counter = nullptr;
  bool silent = false;  // fi_inject...: never a completion
};

inline constexpr size_t atomic_bytes_max = 4096;  // operand of one atomic operation

// The most that endpoints over an engine can be asked for (fi_endpoint(3), fi_getinfo(3)).
struct EngineAbilities {
  uint64_t transmit_caps = 0;  // FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC, FI_MULTICAST and their modifiers
  uint64_t receive_caps = 0;
  uint64_t transmit_flags = 0;  // that may be a default (op_flags)
  uint64_t receive_flags = 0;
  uint64_t order = 0;  // FI_ORDER_*: always kept
  size_t inject_bytes = 0;
  size_t message_bytes_max = SIZE_MAX / 2;
  size_t ordered_bytes_max = 0;  // of RMA and atomics after one another
  size_t buffered_bytes = 0;     // messages that nobody waits for
  size_t data_bytes = 0;         // FI_REMOTE_CQ_DATA
  size_t contexts_max = 1;       // transmit and receive contexts of one endpoint
  bool shares_contexts = false;  // fi_srx_context(3), fi_stx_context(3)
  fi_ep_type type =
      FI_EP_RDM;  // FI_EP_MSG: one peer, by fi_connect and fi_accept, no address vector; FI_EP_DGRAM: no promises

  constexpr bool connects() const noexcept { return type == FI_EP_MSG; }
  constexpr bool has(uint64_t capability) const noexcept { return (transmit_caps & capability) != 0; }
};

// A receive context.
template <class R>
concept ReceiveContext = std::derived_from<R, RxSink> &&
    requires(R& rx, const R& known, const ReceiveRequest& request, const void* context, uint64_t caps) {
  { rx.choose(caps) }  // what the endpoint was opened with (FI_DIRECTED_RECV ...)
  noexcept;
  { rx.apply_bindings() }  // op_flags or what is bound has changed
  noexcept;
  { rx.receive(request) }
  noexcept->std::same_as<ssize_t>;
  { rx.peek(request) }
  noexcept->std::same_as<ssize_t>;
  { rx.cancel(context) }
  noexcept->std::same_as<ssize_t>;
  { known.posted_max() } -> std::convertible_to<size_t>;
  { known.posted() } -> std::convertible_to<size_t>;
  { rx.multi_receive_min } -> std::convertible_to<size_t>;
};

template <class E>
concept EndpointEngine = std::derived_from<E, core::Progressor> &&
    std::constructible_from<E, const EngineLimits&> && ReceiveContext<typename E::Receive> &&
    std::constructible_from<typename E::Receive, uint8_t, const EngineLimits&, uint64_t> &&
    requires(E& engine, const E& known, core::AddressVector* av, typename E::Receive* receive,
             core::CompletionQueue* queue, TxContext& tx, const Request& request, const void* context) {
  { E::abilities } -> std::convertible_to<EngineAbilities>;
  // --- set-up ---
  { known.limits() } -> std::same_as<const EngineLimits&>;
  {engine.set_address_vector(av)};
  {engine.set_receive_context(size_t{}, receive)};
  {engine.add_queue(queue)};  // takes no frames while it is full
  { engine.remove_queue(queue) }
  noexcept;
  { engine.count_sends() }  // a counter of sends is bound
  noexcept;
  // --- operations ---
  { engine.post(tx, request) }
  noexcept->std::same_as<ssize_t>;
  { engine.cancel(context) }
  noexcept->std::same_as<ssize_t>;
  { known.transmit_in_use() } -> std::convertible_to<size_t>;
  // --- closing ---
  { known.has_unsent() } -> std::same_as<bool>;  // accepted and not handed over
  { engine.push_unsent() }
  noexcept;
  { engine.abandon() }  // everything ends without a completion
  noexcept;
  { engine.close() }  // it may be opened again
  noexcept;
  { engine.address() } -> std::same_as<std::span<const std::byte>>;
};

// Takes a local address: a text, or all bytes of an address; empty: any. Connected engines take their observer with it (ConnectedEngine).
template <class E>
concept OpensByName = requires(E& engine, std::string_view name) {
  { engine.open(name) } -> std::same_as<Result<void>>;
};

// The usual calls without a Request: fi_send and its kin, with what tx has as defaults.
template <class E>
concept HasShortCalls = requires(E& engine, TxContext& tx, const void* buffer, void* context) {
  { engine.template send<false>(tx, buffer, size_t{}, fi_addr_t{}, uint64_t{}, context) }
  noexcept->std::same_as<ssize_t>;
  { engine.template inject<false>(tx, buffer, size_t{}, fi_addr_t{}, uint64_t{}) }
  noexcept->std::same_as<ssize_t>;
};

// The same with data; false: nothing has happened, and post() does it.
template <class E>
concept HasShortDataCalls = HasShortCalls<E> &&
    requires(E& engine, TxContext& tx, const void* buffer, void* context) {
  { engine.template send_data<false>(tx, buffer, size_t{}, uint64_t{}, fi_addr_t{}, uint64_t{}, context) }
  noexcept->std::same_as<bool>;
  { engine.template inject_data<false>(tx, buffer, size_t{}, uint64_t{}, fi_addr_t{}, uint64_t{}) }
  noexcept->std::same_as<bool>;
};

// Receives of one buffer without a request.
template <class R>
concept HasShortReceives = requires(R& rx, void* buffer, void* context) {
  { rx.post_plain(buffer, size_t{}, fi_addr_t{}, uint64_t{}, uint64_t{}, context) }
  noexcept->std::same_as<bool>;
  { rx.receive_tagged(buffer, size_t{}, fi_addr_t{}, uint64_t{}, uint64_t{}, context) }
  noexcept->std::same_as<ssize_t>;
};

// Peers read and write regions of the domain.
template <class E>
concept ServesRegions = requires(E& engine, core::MemoryRegionTable* regions) {
  { engine.set_regions(regions) }
  noexcept;
};

// Scalable endpoints, shared receive contexts: contexts come and go while the endpoint is open.
template <class E>
concept HasManyContexts = requires(E& engine, const E& known, const TxContext& tx, const RxSink* sink) {
  { known.has_receive_context(size_t{}) }
  noexcept->std::same_as<bool>;
  { engine.release_receive_context(size_t{}) }
  noexcept;
  { engine.release_transmit_context(tx) }
  noexcept;
  { engine.set_sink(sink) }  // where completions go when the receive context is shared
  noexcept;
};

// What became due in the middle of the engine, or on another thread, and must wait for a safe point: run() may post operations.
struct DeferredRunner {
  virtual void run() noexcept = 0;

 protected:
  ~DeferredRunner() = default;
};

// What an endpoint has done and has to do.
struct EngineCounts {
  uint64_t sent = 0;             // messages, RMA operations and atomics that were accepted
  uint64_t received = 0;         // receives that have ended
  size_t send_queue = 0;         // operations under way
  size_t receive_queue = 0;      // receives posted
  size_t unexpected = 0;         // messages that wait for a receive
  size_t completions = 0;        // that the program has not read
  uint64_t lost = 0;             // messages that found no room (datagrams)
  bool shares_receives = false;  // others receive there, too: nothing is said of receives
  uint64_t bytes_sent = 0;       // of those sent
  uint64_t unreported = 0;       // errors that no completion entry told of
  uint64_t bytes_received = 0;   // of messages received, and what RMA reads and atomics brought
};
inline constexpr uint32_t polls_per_check = 64;  // where nothing else measures the time
// Shows them: `watcher` is called now and then while the endpoint is driven. `entry` is its place, in which paths say that they belong to it.
template <class E>
concept Watched = requires(E& engine, const E& known, core::Watcher* watcher, uint32_t entry) {
  { known.counts() }
  noexcept->std::same_as<EngineCounts>;
  { engine.set_watcher(watcher, entry) }
  noexcept;
};

// Triggered operations and deferred work (fi_trigger(3)): whoever stores 1 into deferred_due() has run() called at the end of a progress().
template <class E>
concept RunsDeferredWork = requires(E& engine, DeferredRunner* runner) {
  { engine.set_deferred_runner(runner) }
  noexcept;
  { engine.deferred_due() } -> std::same_as<std::atomic<uint32_t>&>;
};

// Multicast groups (fi_join(3)): 0 or a negative errno.
template <class E>
concept HasGroups = requires(E& engine, std::span<const std::byte> group) {
  { engine.join(group, bool{}) } -> std::same_as<int>;
  {engine.leave(group)};
};

// Receives of a connected endpoint, whose peer may leave: what had come before is still received, then they end.
template <class R>
concept EndsReceives = requires(R& rx, const ReceiveRequest& request) {
  { rx.has_unexpected(request) }
  noexcept->std::same_as<bool>;
  { rx.end_posted(int{}, core::ProviderError{}) }
  noexcept;
};

// Endpoints that are connected (FI_EP_MSG): connection() is the object of which connection.hpp says how it connects and ends; gone(): the peer has been
// there and has left; shut_down(): what is under way ends, nothing is sent any more.
template <class E>
concept ConnectedEngine = EndpointEngine<E> && E::abilities.connects() &&
                          Connects<typename E::Connection>&& EndsReceives<typename E::Receive>&& requires(
                              E& engine, const E& known, std::string_view name,
                              ConnectionObserver& observer) {
  { engine.open(name, observer) } -> std::same_as<Result<void>>;
  { engine.connection() } -> std::same_as<typename E::Connection&>;
  { known.gone() }
  noexcept->std::same_as<bool>;
  { engine.shut_down() }
  noexcept;
};

}  // namespace weft::proto
