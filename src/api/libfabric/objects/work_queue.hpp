// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Operations that wait for a counter, of a domain and of one endpoint (fi_trigger(3)). Must not know which
// links exist.
//
// A Deferral waits in its counter. When the value is there it moves to the ready queues of its lane (an
// endpoint), and the lane posts it at a safe point: the end of Engine::progress(), fi_cntr_add() and its
// like, or the call that queued it. What finds no room stays and is tried again. Triggered operations
// (FI_TRIGGER) are then ordinary ones; deferred work reports to its completion counter.
//
// Where the domain is serialised (a lock, or FI_THREAD_DOMAIN) whoever drives one endpoint starts what is due
// on all of them. Under FI_THREAD_COMPLETION each endpoint starts its own.
#pragma once

#include <rdma/fi_trigger.h>
#include <weft/libfabric_retired.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "api/libfabric/objects/objects.hpp"
#include "base/list.hpp"
#include "proto/engine/endpoint_engine.hpp"

namespace weft::fi {

class WorkLane;
struct Deferral;

// What a domain keeps queued at most; beyond it -FI_EAGAIN.
inline constexpr size_t deferred_work_max = size_t{1} << 16;

// Where operations are posted: a port whose type is forgotten.
struct WorkTarget {
  Domain* domain = nullptr;
  WorkLane* lane = nullptr;  // null: a shared receive context, which no endpoint drives
  void* port = nullptr;
  proto::TxContext* tx = nullptr;
  proto::RxSink* rx = nullptr;  // null as well where receives go to a shared context
  uint64_t caps = 0;
  bool enabled = false;
  size_t inject_bytes = 0;
  // Posts under the domain's lock; as the data call does.
  ssize_t (*start)(Deferral& work) noexcept = nullptr;
};

// One operation that waits, with copies of all lists it names. The lists hold what the endpoint takes;
// descriptors are dropped.
struct Deferral final : core::Threshold,
                        core::Signal,
                        NamedHook<struct AllWork>,
                        NamedHook<struct ReadyWork> {
  enum class State : uint8_t {
    Waiting,   // in its counter
    Ready,     // reached, in the lane
    Running,   // posted, or being posted
    Finished,  // its counter has been told
  };

  explicit Deferral(Domain& of) : domain(of) {}
  Deferral(const Deferral&) = delete;
  Deferral& operator=(const Deferral&) = delete;

  // Copies: 0, or -FI_EINVAL when lists are too long.
  int take(fi_op_type op, const fi_msg& msg, uint64_t op_flags) noexcept;
  int take(fi_op_type op, const fi_msg_tagged& msg, uint64_t op_flags) noexcept;
  int take(fi_op_type op, const fi_msg_rma& msg, uint64_t op_flags) noexcept;
  int take(fi_op_type op, const fi_msg_atomic& msg, const fi_msg_fetch* fetch, const fi_msg_compare* compare,
           uint64_t op_flags) noexcept;
  // FI_INJECT: the source is copied, so that the program has its buffer back. 0 or -FI_E*.
  int own_source() noexcept;

  bool receives() const noexcept { return type == FI_OP_RECV || type == FI_OP_TRECV; }
  bool on_counter() const noexcept { return type == FI_OP_CNTR_SET || type == FI_OP_CNTR_ADD; }
  bool is_deferred_work() const noexcept { return request != nullptr; }
  bool is_quiet() const noexcept { return is_deferred_work() && (flags & FI_COMPLETION) == 0; }
  void* context() const noexcept;
  uint64_t tag() const noexcept {
    return type == FI_OP_TSEND || type == FI_OP_TRECV ? message.tagged.tag : 0;
  }

  void reached() noexcept override;  // the triggering counter
  void notify() noexcept override;   // the operation has completed: `relay` has changed

  Domain& domain;
  WorkTarget work_target;
  State state = State::Waiting;  // under the queue's mutex
  Cntr* trigger = nullptr;       // held, like the next two
  Cntr* completion = nullptr;
  Cntr* target = nullptr;  // of counter operations
  uint64_t value = 0;
  uint64_t turn = 0;                          // the order in which work became ready
  const fi_deferred_work* request = nullptr;  // the program's name for it, not read again; null: FI_TRIGGER
  fi_op_type type = FI_OP_SEND;
  uint64_t flags = 0;

  union Message {
    fi_msg msg;
    fi_msg_tagged tagged;
    fi_msg_rma rma;
    fi_msg_atomic atomic;
  } message{};
  size_t result_count = 0;
  size_t compare_count = 0;
  std::array<iovec, proto::iov_max> iov{};
  std::array<fi_rma_iov, proto::rma_iov_max> remote{};
  std::array<fi_ioc, proto::iov_max> operands{};
  std::array<fi_ioc, proto::iov_max> results{};
  std::array<fi_ioc, proto::iov_max> compares{};
  std::array<fi_rma_ioc, proto::rma_iov_max> remote_elements{};
  std::unique_ptr<std::byte[]> source;

  // Deferred work is posted with this transmit context unless it asks for completions: errors come to the
  // queue, nothing else.
  proto::TxContext quiet;
  // What the engine counts the operation on. Its change ends the work; the completion counter follows.
  core::Counter relay;
};

// What waits on, or is posted to, one endpoint. Lives in its Core. All calls as the engine's: serialised by
// the domain or by the program.
class WorkLane final : public proto::DeferredRunner, public NamedHook<struct DueLane> {
 public:
  // `due` is the engine's flag for deferred work.
  WorkLane(Domain& domain, core::Progressor& engine, std::atomic<uint32_t>& due);
  ~WorkLane();
  WorkLane(const WorkLane&) = delete;
  WorkLane& operator=(const WorkLane&) = delete;

  void run() noexcept override;
  // The engine has been abandoned: what was posted is forgotten, counters are let go of. Under the domain's
  // lock.
  void close() noexcept;

 private:
  friend class WorkQueue;

  // Posts what is ready here. True: something found no room.
  bool start_ready() noexcept;
  Deferral* next_ready(const bool (&blocked)[2]) noexcept;
  bool start(Deferral& work) noexcept;
  // Lets the program drive the endpoint through this counter. 0 or -FI_ENOMEM.
  int link(Cntr& cntr) noexcept;

  WorkQueue& queue_;
  core::Progressor& engine_;
  std::atomic<uint32_t>& due_;
  bool running_ = false;
  List<Deferral, NamedHook<ReadyWork>>
      ready_[2];  // transmits, receives: apart, so that neither holds up the other
  List<Deferral, NamedHook<ReadyWork>> finished_;
  std::vector<Cntr*> links_;  // counters that the engine is attached to
};

// All that is deferred in a domain.
class WorkQueue {
 public:
  explicit WorkQueue(Domain& domain) : domain_(domain) {}
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Takes what is filled in (place, counters, operation) and starts it when its value is there. Lock not
  // held. 0 or -FI_E*.
  int submit(std::unique_ptr<Deferral> work) noexcept;
  // fi_control(3) of the domain: FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK. Lock not held.
  int control(int command, void* arg);
  // fi_cancel(3) of a triggered operation that has not started: an FI_ECANCELED completion. Under the lock. 0
  // or -FI_ENOENT.
  int cancel_triggered(const void* port, const void* context) noexcept;
  // The port goes away. Under the lock, before its queues go.
  void close_port(const void* port) noexcept;
  // Counters have changed outside an engine. Under the lock.
  void start_due() noexcept {
    if (any_due_.load(std::memory_order_acquire)) run_all();
  }
  // Lets go of a counter that no work names any more, for it is to be closed. Lock not held.
  void release(Cntr& cntr) noexcept;

 private:
  friend class WorkLane;
  friend struct Deferral;
  using AllList = List<Deferral, NamedHook<AllWork>>;
  using ReadyList = List<Deferral, NamedHook<ReadyWork>>;

  // Its threads never run at once in the domain.
  bool serialised() const noexcept { return domain_.lock.enabled || domain_.threading == FI_THREAD_DOMAIN; }

  int queue_work(const fi_deferred_work* request);
  int cancel_work(const fi_deferred_work* request) noexcept;
  int flush_work(const Cntr* trigger) noexcept;
  int fill(Deferral& work, const fi_deferred_work& request) const;
  int fill_counter_operation(Deferral& work, const fi_op_cntr& op) const;
  int fill_operation(Deferral& work, const fi_deferred_work& request) const;

  void on_reached(Deferral& work) noexcept;
  void on_finished(Deferral& work) noexcept;
  void run_all() noexcept;
  void run_lane(WorkLane& lane) noexcept;
  void mark_due(WorkLane& lane) noexcept;
  void keep_due(WorkLane& lane) noexcept;
  void drain_counter_work(std::unique_lock<std::mutex>& guard) noexcept;
  void report(const Deferral& work, int error) noexcept;
  void finish(Deferral& work) noexcept;
  void reap(WorkLane& lane) noexcept;
  core::Progressor* unlink(const Cntr& cntr) noexcept;
  void forget(Deferral& work) noexcept;
  static void dispose(AllList& list) noexcept;
  template <class Predicate>
  void withdraw(AllList& out, Predicate&& is_meant) noexcept;

  Domain& domain_;
  std::atomic<bool> any_due_{false};
  std::mutex mutex_;  // all below, states and lists of work; a counter's mutex may be taken inside
  AllList all_;
  size_t count_ = 0;
  uint64_t turns_ = 0;
  List<WorkLane, NamedHook<DueLane>> due_;
  std::vector<WorkLane*> lanes_;
  ReadyList counter_work_;  // reached operations on counters
  bool draining_ = false;   // somebody is at them
};

// Asks a port for its WorkTarget: fi_control(&ep->fid, work_target_command, WorkTarget*). Private to this
// library.
inline constexpr int work_target_command = static_cast<int>(retired::prov_specific | 0x776f);

}  // namespace weft::fi
