// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The objects that a program opens, as the C ABI sees them and as endpoints use them: fabric, domain,
// queues, counters, address vectors, memory regions, wait sets, poll sets. Must not know which links exist.
//
// Each starts with its fid, so that a fid pointer is the object's. `users` counts what is open or bound on
// an object; fi_close refuses with -FI_EBUSY while it is not zero. Endpoints take part: they hold() what
// they are opened on or bound to and drop() it at close.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/provider.hpp"
#include "api/libfabric/objects/control_set.hpp"
#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/raw.hpp"
#include "core/address_vector.hpp"
#include "core/completion_queue.hpp"
#include "core/counter.hpp"
#include "core/event_queue.hpp"
#include "core/memory_region.hpp"
#include "core/progress.hpp"
#include "core/yield_policy.hpp"
#include "os/lock.hpp"
#include "os/poller_board.hpp"
#include "os/progress_thread.hpp"
#include "os/sleeper.hpp"

namespace weft::fi {

// The one lock of a domain. Not enabled under FI_THREAD_DOMAIN and FI_THREAD_COMPLETION: then nobody takes
// it (fi_domain(3), threading).
struct DomainLock {
  bool enabled = true;
  os::Lock mutex;

  // For the control path, which asks at run time. The data path uses the guards below.
  void lock() noexcept {
    if (enabled) mutex.lock();
  }
  void unlock() noexcept {
    if (enabled) mutex.unlock();
  }
};

// Guards for data-path templates; the ops table that has the right one is chosen when the object is opened.
struct NoLock {
  explicit NoLock(DomainLock&) noexcept {}
};
class SharedLock {
 public:
  explicit SharedLock(DomainLock& lock) noexcept : lock_(lock) { lock_.mutex.lock(); }
  ~SharedLock() { lock_.mutex.unlock(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  DomainLock& lock_;
};

using Users = std::atomic<int>;
inline void hold(Users& users) noexcept { users.fetch_add(1, std::memory_order_relaxed); }
inline void drop(Users& users) noexcept { users.fetch_sub(1, std::memory_order_release); }
inline bool busy(const Users& users) noexcept { return users.load(std::memory_order_acquire) != 0; }

struct Eq;
struct Wait;
class DomainDevice;  // domain_device.hpp
class WorkQueue;     // work_queue.hpp

struct Fabric;

// A request for a connection between FI_CONNREQ and fi_endpoint or fi_reject. Its fid is the `handle` of the event's fi_info.
struct ConnectionRequest {
  explicit ConnectionRequest(Fabric& of) : fabric(of) {}
  virtual ~ConnectionRequest() = default;
  ConnectionRequest(const ConnectionRequest&) = delete;
  ConnectionRequest& operator=(const ConnectionRequest&) = delete;
  virtual std::span<const std::byte> data() const = 0;
  virtual std::span<const std::byte> peer_address() const = 0;
  virtual std::span<const std::byte> local_address() const = 0;
  virtual void reject(std::span<const std::byte> data) noexcept = 0;

  struct Handle {
    ::fid fid{};
    ConnectionRequest* request = nullptr;
  };
  Handle handle;
  Fabric& fabric;
  const void* queue = nullptr;  // the event queue of its FI_CONNREQ
};

struct Fabric {
  fid_fabric fid{};
  const Provider* provider = nullptr;
  std::string name;
  Users users{0};
  // What the program has not answered yet. It may do so after the passive endpoint is closed, until the event queue is closed, too.
  std::mutex requests_mutex;
  std::vector<std::unique_ptr<ConnectionRequest>> requests;

  void add(std::unique_ptr<ConnectionRequest> request);  // may throw std::bad_alloc
  // The request with this handle, which is then the caller's; null when there is none (any more).
  std::unique_ptr<ConnectionRequest> take(const ::fid* handle) noexcept;
  // Refuses the requests whose FI_CONNREQ came by that event queue.
  void refuse_requests_of(const void* queue) noexcept;
};

struct Cntr;

struct Domain {
  Domain(Fabric& of, const fi_info& info);  // `info` has domain_attr; see open_domain
  ~Domain();

  fid_domain fid{};
  Fabric& fabric;
  const Provider* provider;
  std::string name;
  uint32_t api_version;  // of fi_getinfo, decides over the sizes of structures
  uint64_t caps;         // of the fi_info that opened it
  uint64_t mode;
  // Scalars are valid; name, auth_key and domain are null; mr_mode holds bits, FI_MR_BASIC resolved.
  fi_domain_attr attr;
  int mr_mode;  // the same bits
  fi_threading threading;
  fi_ep_type endpoint_type;  // of the fi_info that opened it, FI_EP_UNSPEC if it did not say
  uint32_t addr_format;
  size_t addrlen;         // of that format
  core::Address unnamed;  // the source address that leaves the choice to the library
  std::string
      source;  // where endpoints are bound that say nothing: the address of the interface; empty: anywhere
  DomainLock lock;
  std::unique_ptr<DomainDevice> device;  // null: the provider has none. Outlives endpoints and regions
  core::MemoryRegionTable regions;
  Users users{0};
  Eq* eq = nullptr;  // fi_domain_bind
  Eq* registration_eq = nullptr;
  // FI_PROGRESS_AUTO, or endpoints with background work (docs/progress.md); the lock is enabled then. Null: the program makes all progress.
  std::unique_ptr<os::ProgressThread> progress;
  // Endpoints move while no thread of the program calls.
  bool driven() const noexcept {
    return progress != nullptr && progress->duty() == os::ProgressThread::Duty::Everything;
  }
  // A poll of a queue or a counter was empty. What it waits for may depend on an endpoint of this domain that only the progress thread drives. Under
  // the lock.
  void serve_others() noexcept {
    if (driven()) (void)progress->serve_unpolled();
  }

  // Operations that wait for counters (fi_trigger(3)).
  std::unique_ptr<WorkQueue> work;

  // A counter that is bound to a memory region (fi_mr_bind) may be bound to no endpoint, and any endpoint may be the one that is written to:
  // reading or waiting for it drives all of them. Under the domain lock; the engines are those that take remote accesses. Not under
  // FI_THREAD_COMPLETION without a lock, where the program serialises each endpoint with its own queues and counters only.
  int add_engine(core::Progressor& engine) noexcept;  // 0 or -FI_ENOMEM
  void remove_engine(core::Progressor& engine) noexcept;
  Result<void> open_device(const fi_info& info);  // if this provider has one: once, before anything is opened
  void make_progress_thread();                    // if this domain has one: once, before the first endpoint
  // An endpoint that is enabled is the progress thread's, too, and the device with the first. Under the domain lock.
  // 0 or -FI_E*.
  int begin_progress(core::Progressor& engine) noexcept;
  void end_progress(core::Progressor& engine) noexcept;
  int add_region_counter(Cntr& counter) noexcept;  // as often as it is bound; 0 or -FI_ENOMEM
  void remove_region_counter(Cntr& counter) noexcept;

 private:
  int drive(core::Progressor& progressor) noexcept;
  void note_counters() const noexcept;
  bool drives_all() const noexcept { return lock.enabled || threading == FI_THREAD_DOMAIN; }
  std::vector<core::Progressor*> engines_;
  size_t in_progress_ = 0;  // endpoints of the progress thread
  std::vector<Cntr*> region_counters_;
};

// The most bytes that one atomic operation carries (fi_query_atomic, "count"); engines hold it.
inline constexpr size_t atomic_bytes_max = 4096;

// Yields the CPU after empty polls of a queue or a counter, by core::YieldPolicy: with more programs that poll than CPUs, the one that
// would send what this one waits for would otherwise wait for the scheduler's next tick.
class YieldWhenIdle final : public core::IdlePolls {
 public:
  explicit YieldWhenIdle(DomainLock& lock) noexcept;
  static constexpr uint32_t polls_min = core::YieldPolicy::polls_min;
  uint32_t idle(bool arrived) noexcept override;

 private:
  DomainLock& lock_;
  core::YieldPolicy policy_;
  os::PollerWatch watch_;
};

// What a queue or counter sleeps on. Empty for FI_WAIT_NONE.
struct WaitObject {
  fi_wait_obj kind = FI_WAIT_NONE;
  std::unique_ptr<os::Sleeper> owned;
  os::Sleeper* sleeper = nullptr;  // owned, or the wait set's
  Wait* set = nullptr;
};

struct Cq {
  Cq(Domain& of, size_t size) : domain(of), queue(size), yielding(of.lock) {
    queue.set_idle_polls(&yielding);
  }

  fid_cq fid{};
  Domain& domain;
  core::CompletionQueue queue;
  YieldWhenIdle yielding;
  fi_cq_format format = FI_CQ_FORMAT_CONTEXT;
  fi_cq_wait_cond condition = FI_CQ_COND_NONE;
  WaitObject wait;
  core::CompletionError last_error;  // owns err_data for callers older than 1.5, until the next read
  Users users{0};

  // Binding, by endpoints, with the domain lock held. 0 or -FI_ENOMEM. Each attach counts as a user until
  // detach.
  int attach(core::Progressor& progressor) noexcept;
  void detach(core::Progressor& progressor) noexcept;
};

struct Cntr {
  explicit Cntr(Domain& of) : domain(of), yielding(of.lock) {}

  fid_cntr fid{};
  Domain& domain;
  core::Counter counter;
  WaitObject wait;
  // What the program knows, so that fi_poll, fi_wait and fi_trywait can tell news.
  uint64_t polled_value = 0;  // fi_poll
  uint64_t polled_errors = 0;
  uint64_t read_value = 0;   // fi_cntr_read, fi_cntr_wait
  uint64_t read_errors = 0;  // fi_cntr_readerr, fi_cntr_wait
  uint64_t op_flags = 0;
  YieldWhenIdle yielding;
  uint32_t polls_left = YieldWhenIdle::polls_min;  // empty polls until yielding.idle()
  bool arrived = true;                             // since the last yielding.idle()
  uint32_t reads = 0;                              // that found something and did not drive
  Users users{0};

  // For each of these: true for one of core::reads_per_drive, which is to drive.
  bool is_due() noexcept { return ++reads % core::reads_per_drive == 0; }
  int attach(core::Progressor& progressor) noexcept;  // as in Cq
  void detach(core::Progressor& progressor) noexcept;
};

struct Eq {
  Eq(Fabric& of, size_t size) : fabric(of), queue(size) {}

  fid_eq fid{};
  Fabric& fabric;
  core::EventQueue queue;
  WaitObject wait;
  ControlSet control;  // what reports here and is driven by reading and sleeping

  // 0 or -FI_E*.
  int attach(ControlSource& source) { return control.add(source, wait.sleeper); }
  // The source goes: it is not driven any more, and its events are gone, too.
  void detach(ControlSource& source, const ::fid* object) noexcept;
  // As Cntr::is_due(). Any thread.
  bool is_due() noexcept {
    return (reads.fetch_add(1, std::memory_order_relaxed) + 1) % core::reads_per_drive == 0;
  }
  std::atomic<uint32_t> reads{0};
  bool writable = false;
  core::EventError last_error;
  os::Lock lock;  // sleeping and last_error; the queue has its own
  Users users{0};
};

struct Av {
  explicit Av(Domain& of) : domain(of) {}

  fid_av fid{};
  Domain& domain;
  std::shared_ptr<core::AddressVector> table;  // shared by AVs of one name
  fi_av_type type = FI_AV_TABLE;
  std::string name;
  uint64_t flags = 0;  // FI_EVENT, FI_READ, FI_SYMMETRIC
  Eq* eq = nullptr;
  Users users{0};
};

struct Mr {
  explicit Mr(Domain& of) : domain(of) {}

  fid_mr fid{};  // mem_desc is this object
  Domain& domain;
  core::MemoryRegion* region = nullptr;
  std::vector<Cntr*> counters;  // held
  fid_ep* endpoint = nullptr;   // FI_MR_ENDPOINT
  Users users{0};
};

// fi_wait(3): what was opened with this set as its wait object.
struct Wait {
  explicit Wait(Fabric& of) : fabric(of) {}

  fid_wait fid{};
  Fabric& fabric;
  fi_wait_obj kind = FI_WAIT_UNSPEC;
  std::unique_ptr<os::Sleeper> sleeper;
  std::mutex mutex;
  std::vector<::fid*> members;
  uint32_t checks = 0;  // of fi_wait at the members
  Users users{0};
};

struct Poll {
  explicit Poll(Domain& of) : domain(of) {}

  fid_poll fid{};
  Domain& domain;
  std::vector<::fid*> members;  // held
  // That the next look begins with, behind those that the last one had room for: one with much to say does not hide the others.
  std::atomic<size_t> first{0};
  Users users{0};
};

// The object behind a fid, or null when its class is another one.
inline Cq* cq_of(::fid* fid) noexcept {
  return fid != nullptr && fid->fclass == FI_CLASS_CQ ? reinterpret_cast<Cq*>(fid) : nullptr;
}
inline Cntr* cntr_of(::fid* fid) noexcept {
  return fid != nullptr && fid->fclass == FI_CLASS_CNTR ? reinterpret_cast<Cntr*>(fid) : nullptr;
}
inline Eq* eq_of(::fid* fid) noexcept {
  return fid != nullptr && fid->fclass == FI_CLASS_EQ ? reinterpret_cast<Eq*>(fid) : nullptr;
}
// A passive endpoint of any link; passive.hpp has the rest.
struct Passive;
inline Passive* passive_of(::fid* fid) noexcept {
  return fid != nullptr && fid->fclass == FI_CLASS_PEP ? reinterpret_cast<Passive*>(fid) : nullptr;
}
inline Av* av_of(::fid* fid) noexcept {
  return fid != nullptr && fid->fclass == FI_CLASS_AV ? reinterpret_cast<Av*>(fid) : nullptr;
}
inline Mr* mr_of(::fid* fid) noexcept {
  return fid != nullptr && fid->fclass == FI_CLASS_MR ? reinterpret_cast<Mr*>(fid) : nullptr;
}
inline Wait* wait_of(::fid* fid) noexcept {
  return fid != nullptr && fid->fclass == FI_CLASS_WAIT ? reinterpret_cast<Wait*>(fid) : nullptr;
}
// Whether an endpoint of `domain` may be bound to it, as far as domains go; what has none may.
inline bool is_of(const Domain& domain, ::fid* fid) noexcept {
  if (const Cq* cq = cq_of(fid)) return &cq->domain == &domain;
  if (const Cntr* cntr = cntr_of(fid)) return &cntr->domain == &domain;
  if (const Av* av = av_of(fid)) return &av->domain == &domain;
  return true;
}

// Openers of the other files; all return 0 or -FI_E* and log why.
int open_domain(Fabric& fabric, fi_info* info, fid_domain** domain, void* context);
int open_eq(Fabric& fabric, fi_eq_attr* attr, fid_eq** eq, void* context);
int open_wait(Fabric& fabric, fi_wait_attr* attr, fid_wait** wait);
int open_poll(Domain& domain, fi_poll_attr* attr, fid_poll** poll);
int open_cq(Domain& domain, fi_cq_attr* attr, fid_cq** cq, void* context);
int open_cntr(Domain& domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context);
int open_av(Domain& domain, fi_av_attr* attr, fid_av** av, void* context);
extern fi_ops_mr region_ops;  // regions.cpp

// mr_mode as bits: FI_MR_BASIC stands for three of them, FI_MR_SCALABLE and FI_MR_UNSPEC for none (fi_mr(3)).
int mr_mode_bits(int mr_mode) noexcept;

// Entries of fi_ops for what an object does not have: never null, because header inlines call them without
// a look.
int no_bind(::fid* fid, ::fid* other, uint64_t flags);                                     // -FI_ENOSYS
int no_control(::fid* fid, int command, void* arg);                                        // -FI_ENOSYS
int no_ops_open(::fid* fid, const char* name, uint64_t flags, void** ops, void* context);  // -FI_ENOSYS
int no_tostr(const ::fid* fid, char* buf, size_t len);                                     // -FI_ENOSYS
int no_ops_set(::fid* fid, const char* name, uint64_t flags, void* ops, void* context);    // -FI_ENOSYS

// Wait objects (wait.cpp).
// Makes or joins what `kind` asks for; 0 or -FI_E*, with a line in the log.
int open_wait_object(const Provider& provider, fi_log_subsys subsystem, const fi_wait_obj& asked,
                     fid_wait* set, ::fid* owner, WaitObject& out);
void close_wait_object(WaitObject& wait, ::fid* owner) noexcept;
int wait_control(const WaitObject& wait, int command,
                 void* arg) noexcept;                       // FI_GETWAIT, FI_GETWAITOBJ; else -FI_ENOSYS
int try_wait(fid_fabric* fabric, ::fid** fids, int count);  // fi_trywait(3)

// raw() as an int, for comparison with the constants of libfabric's enumerations.
template <class Enum>
int number_of(const Enum& value) noexcept {
  return static_cast<int>(raw(value));
}

// Runs a control-path body at the C boundary: memory that runs out becomes -FI_ENOMEM.
template <class Body>
int no_throw(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  }
}

}  // namespace weft::fi
