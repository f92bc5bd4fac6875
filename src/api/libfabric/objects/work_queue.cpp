// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How deferred operations wait, become ready, start and end. Must not know which links exist; what the
// program's structures look like is in trigger.cpp.
#include "api/libfabric/objects/work_queue.hpp"

#include <algorithm>
#include <thread>

#include "core/atomic.hpp"

namespace weft::fi {

// --- one operation ---

namespace {

template <class Part, size_t room>
int copy_list(const Part* from, size_t count, std::array<Part, room>& to) noexcept {
  if (count > room || (from == nullptr && count != 0)) return -FI_EINVAL;
  std::copy_n(from, count, to.begin());
  return 0;
}

}  // namespace

int Deferral::take(fi_op_type op, const fi_msg& msg, uint64_t op_flags) noexcept {
  type = op;
  flags = op_flags;
  message.msg = msg;
  message.msg.msg_iov = iov.data();
  message.msg.desc = nullptr;
  return copy_list(msg.msg_iov, msg.iov_count, iov);
}

int Deferral::take(fi_op_type op, const fi_msg_tagged& msg, uint64_t op_flags) noexcept {
  type = op;
  flags = op_flags;
  message.tagged = msg;
  message.tagged.msg_iov = iov.data();
  message.tagged.desc = nullptr;
  return copy_list(msg.msg_iov, msg.iov_count, iov);
}

int Deferral::take(fi_op_type op, const fi_msg_rma& msg, uint64_t op_flags) noexcept {
  type = op;
  flags = op_flags;
  message.rma = msg;
  message.rma.msg_iov = iov.data();
  message.rma.desc = nullptr;
  message.rma.rma_iov = remote.data();
  if (const int status = copy_list(msg.rma_iov, msg.rma_iov_count, remote); status != 0) return status;
  return copy_list(msg.msg_iov, msg.iov_count, iov);
}

int Deferral::take(fi_op_type op, const fi_msg_atomic& msg, const fi_msg_fetch* fetch,
                   const fi_msg_compare* compare, uint64_t op_flags) noexcept {
  type = op;
  flags = op_flags;
  message.atomic = msg;
  message.atomic.msg_iov = operands.data();
  message.atomic.desc = nullptr;
  message.atomic.rma_iov = remote_elements.data();
  if (number_of(msg.op) == FI_ATOMIC_READ) message.atomic.iov_count = 0;  // its operand list means nothing
  result_count = fetch != nullptr ? fetch->iov_count : 0;
  compare_count = compare != nullptr ? compare->iov_count : 0;
  int status = copy_list(msg.rma_iov, msg.rma_iov_count, remote_elements);
  if (status == 0) status = copy_list(msg.msg_iov, message.atomic.iov_count, operands);
  if (status == 0 && fetch != nullptr) status = copy_list<fi_ioc>(fetch->msg_iov, result_count, results);
  if (status == 0 && compare != nullptr) status = copy_list(compare->msg_iov, compare_count, compares);
  return status;
}

namespace {

// Moves the bytes of a list to `at` and makes it one piece there; `element` is the size of what counts count.
// Returns where it ends.
template <class Part>
std::byte* gather_list(Part* list, size_t& count, size_t element, std::byte* at) noexcept {
  std::byte* const begin = at;
  size_t units = 0;
  for (size_t i = 0; i < count; ++i) {
    const iovec piece = std::bit_cast<iovec>(list[i]);
    if (piece.iov_len != 0) std::memcpy(at, piece.iov_base, piece.iov_len * element);
    at += piece.iov_len * element;
    units += piece.iov_len;
  }
  if (count != 0) list[0] = std::bit_cast<Part>(iovec{begin, units});
  count = std::min<size_t>(count, 1);
  return at;
}

template <class Part>
size_t total_of(const Part* list, size_t count) noexcept {
  size_t units = 0;
  for (size_t i = 0; i < count; ++i) units += std::bit_cast<iovec>(list[i]).iov_len;
  return units;
}

}  // namespace

int Deferral::own_source() noexcept {
  if (receives() || type == FI_OP_READ) return 0;
  const bool atomic = type == FI_OP_ATOMIC || type == FI_OP_FETCH_ATOMIC || type == FI_OP_COMPARE_ATOMIC;
  const size_t element =
      atomic ? core::datatype_size(static_cast<uint32_t>(number_of(message.atomic.datatype))) : 1;
  size_t& count = atomic                ? message.atomic.iov_count
                  : type == FI_OP_SEND  ? message.msg.iov_count
                  : type == FI_OP_TSEND ? message.tagged.iov_count
                                        : message.rma.iov_count;
  const size_t bytes = element * (atomic ? total_of(operands.data(), count) : total_of(iov.data(), count));
  if (bytes > work_target.inject_bytes) return -FI_EMSGSIZE;
  const size_t compare_bytes = element * total_of(compares.data(), compare_count);
  if (compare_bytes > work_target.inject_bytes) return -FI_EMSGSIZE;
  source.reset(new (std::nothrow) std::byte[bytes + compare_bytes]);
  if (source == nullptr) return -FI_ENOMEM;
  if (!atomic) {
    gather_list(iov.data(), count, element, source.get());
  } else {
    std::byte* const behind = gather_list(operands.data(), count, element, source.get());
    gather_list(compares.data(), compare_count, element, behind);
  }
  return 0;
}

void* Deferral::context() const noexcept {
  switch (type) {
    case FI_OP_RECV:
    case FI_OP_SEND:
      return message.msg.context;
    case FI_OP_TRECV:
    case FI_OP_TSEND:
      return message.tagged.context;
    case FI_OP_READ:
    case FI_OP_WRITE:
      return message.rma.context;
    default:
      return on_counter() ? nullptr : message.atomic.context;
  }
}

void Deferral::reached() noexcept { domain.work->on_reached(*this); }
void Deferral::notify() noexcept { domain.work->on_finished(*this); }

// --- one endpoint ---

WorkLane::WorkLane(Domain& domain, core::Progressor& engine, std::atomic<uint32_t>& due)
    : queue_(*domain.work), engine_(engine), due_(due) {
  std::scoped_lock guard(queue_.mutex_);
  queue_.lanes_.push_back(this);
}

WorkLane::~WorkLane() {
  std::scoped_lock guard(queue_.mutex_);
  std::erase(queue_.lanes_, this);
  if (List<WorkLane, NamedHook<DueLane>>::linked(*this)) List<WorkLane, NamedHook<DueLane>>::remove(*this);
}

void WorkLane::close() noexcept {
  const auto here = [this](const Deferral& work) { return work.work_target.lane == this; };
  WorkQueue::AllList gone;
  queue_.withdraw(gone, here);
  std::vector<Cntr*> links;
  {
    std::scoped_lock guard(queue_.mutex_);
    queue_.all_.for_each([&](Deferral& work) {  // what was posted: the engine does not know it any more
      if (!here(work)) return;
      if (WorkQueue::ReadyList::linked(work)) WorkQueue::ReadyList::remove(work);
      queue_.forget(work);
      gone.push_back(work);
    });
    links.swap(links_);
  }
  WorkQueue::dispose(gone);
  for (Cntr* cntr : links) cntr->detach(engine_);
}

int WorkLane::link(Cntr& cntr) noexcept {
  const int status = no_throw([&] {
    std::scoped_lock guard(queue_.mutex_);
    if (std::find(links_.begin(), links_.end(), &cntr) != links_.end()) return FI_EALREADY;
    links_.push_back(&cntr);
    return 0;
  });
  if (status != 0) return status == FI_EALREADY ? 0 : status;
  if (const int attached = cntr.attach(engine_); attached != 0) {
    std::scoped_lock guard(queue_.mutex_);
    std::erase(links_, &cntr);
    return attached;
  }
  if (cntr.wait.sleeper != nullptr)
    cntr.wait.sleeper->notify();  // who sleeps on it shall look after this endpoint, too
  return 0;
}

void WorkLane::run() noexcept {
  if (queue_.serialised()) queue_.run_all();
  else queue_.run_lane(*this);
}

// What became ready first, of the queues that are not blocked.
Deferral* WorkLane::next_ready(const bool (&blocked)[2]) noexcept {
  std::scoped_lock guard(queue_.mutex_);
  Deferral* first = blocked[0] ? nullptr : ready_[0].front();
  Deferral* receive = blocked[1] ? nullptr : ready_[1].front();
  if (first == nullptr || (receive != nullptr && receive->turn < first->turn)) first = receive;
  if (first == nullptr) return nullptr;
  WorkQueue::ReadyList::remove(*first);
  first->state = Deferral::State::Running;
  return first;
}

bool WorkLane::start_ready() noexcept {
  if (running_) return false;  // posting drives the engine, which ends here again
  running_ = true;
  bool blocked[2] = {false, false};
  while (Deferral* work = next_ready(blocked)) {
    const bool receives = work->receives();
    if (!start(*work)) blocked[receives] = true;
  }
  queue_.reap(*this);
  running_ = false;
  return blocked[0] || blocked[1];
}

// False: no room. Deferred work that was posted stays until its relay is told.
bool WorkLane::start(Deferral& work) noexcept {
  const ssize_t status = work.work_target.start(work);
  if (status == -FI_EAGAIN) {
    std::scoped_lock guard(queue_.mutex_);
    work.state = Deferral::State::Ready;
    ready_[work.receives()].push_front(work);
    return false;
  }
  if (status != 0) queue_.report(work, static_cast<int>(-status));
  if (status != 0 || !work.is_deferred_work()) queue_.finish(work);
  return true;
}

// --- a domain ---

WorkQueue::~WorkQueue() {
  AllList left;
  withdraw(left, [](const Deferral&) { return true; });
  dispose(left);
}

int WorkQueue::submit(std::unique_ptr<Deferral> owned) noexcept {
  std::scoped_lock lock(domain_.lock);
  Deferral& work = *owned;
  WorkLane* lane = work.work_target.lane;
  // Under FI_THREAD_COMPLETION the triggering counter may be another thread's, which must not drive this
  // endpoint.
  if (lane != nullptr && serialised())
    if (const int status = lane->link(*work.trigger); status != 0) return status;
  if (lane != nullptr && work.completion != nullptr)
    if (const int status = lane->link(*work.completion); status != 0) return status;
  if (work.is_deferred_work() && !work.on_counter()) {
    work.quiet.cq = work.work_target.tx != nullptr ? work.work_target.tx->cq : nullptr;
    work.quiet.selective = true;
    work.relay.set_signal(&work);
    work.relay.arm(1);
  }
  {
    std::scoped_lock guard(mutex_);
    if (count_ >= deferred_work_max) return -FI_EAGAIN;
    all_.push_back(work);
    ++count_;
  }
  for (Cntr* cntr : {work.trigger, work.completion, work.target})
    if (cntr != nullptr) hold(cntr->users);
  const bool by_endpoint = !work.is_deferred_work();
  core::Counter& counter = work.trigger->counter;
  counter.when(*owned.release());  // it may be gone after this
  if (serialised()) start_due();
  else if (by_endpoint) run_lane(*lane);
  return 0;
}

// Any thread, in the middle of anything.
void WorkQueue::on_reached(Deferral& work) noexcept {
  std::unique_lock guard(mutex_);
  work.state = Deferral::State::Ready;
  work.turn = ++turns_;
  if (work.on_counter()) {
    counter_work_.push_back(work);
    if (!draining_) drain_counter_work(guard);
    return;
  }
  WorkLane& lane = *work.work_target.lane;
  lane.ready_[work.receives()].push_back(work);
  mark_due(lane);
  // The endpoint's own thread starts it; it may be asleep.
  if (!serialised() && work.completion != nullptr && work.completion->wait.sleeper != nullptr)
    work.completion->wait.sleeper->notify();
}

// One after the other, not one inside the other: a chain of any length needs no stack. `guard` holds the
// mutex.
void WorkQueue::drain_counter_work(std::unique_lock<std::mutex>& guard) noexcept {
  draining_ = true;
  while (Deferral* work = counter_work_.pop_front()) {
    forget(*work);
    guard.unlock();
    if (work->type == FI_OP_CNTR_SET) work->target->counter.set(work->value);
    else work->target->counter.add(work->value);
    AllList one;
    one.push_back(*work);
    dispose(one);
    guard.lock();
  }
  draining_ = false;
}

// Called by the engine, which still uses the relay when this returns: freed by reap(), at a safe point.
void WorkQueue::on_finished(Deferral& work) noexcept {
  Cntr* completion = work.completion;
  const bool failed = work.relay.errors() != 0;
  {
    std::scoped_lock guard(mutex_);
    work.state = Deferral::State::Finished;
    work.work_target.lane->finished_.push_back(work);
    mark_due(*work.work_target.lane);
  }
  if (completion == nullptr) return;
  if (failed) completion->counter.add_error(1);
  else completion->counter.add(1);
}

// Under the mutex. Whoever drives any endpoint that the same thread may drive starts what is due.
void WorkQueue::mark_due(WorkLane& lane) noexcept {
  keep_due(lane);
  if (!serialised()) return;
  for (WorkLane* each : lanes_) each->due_.store(1, std::memory_order_release);
}

// Under the mutex. What found no room is tried again when its own endpoint moves.
void WorkQueue::keep_due(WorkLane& lane) noexcept {
  if (!List<WorkLane, NamedHook<DueLane>>::linked(lane)) due_.push_back(lane);
  any_due_.store(true, std::memory_order_release);
  lane.due_.store(1, std::memory_order_release);
}

void WorkQueue::run_all() noexcept {
  if (!serialised()) return;
  List<WorkLane, NamedHook<DueLane>> blocked;
  const auto next = [this] {
    std::scoped_lock guard(mutex_);
    WorkLane* lane = due_.pop_front();
    if (lane == nullptr) any_due_.store(false, std::memory_order_release);
    return lane;
  };
  while (WorkLane* lane = next()) {
    if (!lane->start_ready()) continue;
    std::scoped_lock guard(mutex_);
    if (!List<WorkLane, NamedHook<DueLane>>::linked(*lane)) blocked.push_back(*lane);
  }
  std::scoped_lock guard(mutex_);
  while (WorkLane* lane = blocked.pop_front()) keep_due(*lane);
}

void WorkQueue::run_lane(WorkLane& lane) noexcept {
  {
    std::scoped_lock guard(mutex_);
    if (List<WorkLane, NamedHook<DueLane>>::linked(lane)) List<WorkLane, NamedHook<DueLane>>::remove(lane);
  }
  if (!lane.start_ready()) return;
  std::scoped_lock guard(mutex_);
  keep_due(lane);
}

// --- the end of work ---

// Under the mutex.
void WorkQueue::forget(Deferral& work) noexcept {
  AllList::remove(work);
  --count_;
}

void WorkQueue::dispose(AllList& list) noexcept {
  while (Deferral* work = list.pop_front()) {
    for (Cntr* cntr : {work->trigger, work->completion, work->target})
      if (cntr != nullptr) drop(cntr->users);
    delete work;
  }
}

void WorkQueue::finish(Deferral& work) noexcept {
  {
    std::scoped_lock guard(mutex_);
    forget(work);
  }
  AllList one;
  one.push_back(work);
  dispose(one);
}

void WorkQueue::reap(WorkLane& lane) noexcept {
  AllList done;
  {
    std::scoped_lock guard(mutex_);
    while (Deferral* work = lane.finished_.pop_front()) {
      forget(*work);
      done.push_back(*work);
    }
  }
  dispose(done);
}

// Takes what is meant and has not started out of where it waits. What another thread is just about to call
// ready is waited for.
template <class Predicate>
void WorkQueue::withdraw(AllList& out, Predicate&& is_meant) noexcept {
  for (;;) {
    bool in_between = false;
    {
      std::scoped_lock guard(mutex_);
      all_.for_each([&](Deferral& work) {
        if (!is_meant(work)) return;
        if (work.state == Deferral::State::Waiting) {
          if (!work.trigger->counter.cancel(work)) {
            in_between = true;
            return;
          }
        } else if (work.state == Deferral::State::Ready) {
          ReadyList::remove(work);
        } else {
          return;
        }
        forget(work);
        out.push_back(work);
      });
    }
    if (!in_between) return;
    std::this_thread::yield();
  }
}

int WorkQueue::cancel_work(const fi_deferred_work* request) noexcept {
  AllList found;
  {
    std::scoped_lock lock(domain_.lock);
    withdraw(found, [request](const Deferral& work) { return work.request == request; });
  }
  const bool any = !found.empty();
  dispose(found);
  return any ? 0 : -FI_ENOENT;
}

int WorkQueue::flush_work(const Cntr* trigger) noexcept {
  AllList found;
  {
    std::scoped_lock lock(domain_.lock);
    withdraw(found, [trigger](const Deferral& work) {
      return work.is_deferred_work() && (trigger == nullptr || work.trigger == trigger);
    });
  }
  dispose(found);
  return 0;
}

int WorkQueue::cancel_triggered(const void* port, const void* context) noexcept {
  AllList found;
  withdraw(found, [&](const Deferral& work) {
    return !work.is_deferred_work() && work.work_target.port == port && work.context() == context;
  });
  if (found.empty()) return -FI_ENOENT;
  for (const Deferral& work : found) report(work, FI_ECANCELED);
  dispose(found);
  return 0;
}

void WorkQueue::close_port(const void* port) noexcept {
  AllList gone;
  withdraw(gone, [port](const Deferral& work) { return work.work_target.port == port; });
  dispose(gone);
  // What was posted goes on in the engine, which may outlive the port's queues.
  std::scoped_lock guard(mutex_);
  for (Deferral& work : all_)
    if (work.work_target.port == port) work.quiet.cq = nullptr;
}

void WorkQueue::release(Cntr& cntr) noexcept {
  std::scoped_lock lock(domain_.lock);
  AllList done;
  {
    std::scoped_lock guard(mutex_);
    if (serialised()) {
      for (WorkLane* lane : lanes_) {
        while (Deferral* work = lane->finished_.pop_front()) {
          forget(*work);
          done.push_back(*work);
        }
      }
    }
  }
  dispose(done);
  while (core::Progressor* engine = unlink(cntr)) cntr.detach(*engine);
}

// An endpoint that drives the counter and need not any more, or null.
core::Progressor* WorkQueue::unlink(const Cntr& cntr) noexcept {
  std::scoped_lock guard(mutex_);
  const auto names = [&](const Deferral& work) {
    return work.trigger == &cntr || work.completion == &cntr || work.target == &cntr;
  };
  if (all_.find(names) != nullptr) return nullptr;
  for (WorkLane* lane : lanes_)
    if (std::erase(lane->links_, &cntr) != 0) return &lane->engine_;
  return nullptr;
}

// --- failures ---

namespace {

uint64_t completion_flags(fi_op_type type) noexcept {
  switch (type) {
    case FI_OP_RECV:
      return FI_RECV | FI_MSG;
    case FI_OP_SEND:
      return FI_SEND | FI_MSG;
    case FI_OP_TRECV:
      return FI_RECV | FI_TAGGED;
    case FI_OP_TSEND:
      return FI_SEND | FI_TAGGED;
    case FI_OP_READ:
      return FI_RMA | FI_READ;
    case FI_OP_WRITE:
      return FI_RMA | FI_WRITE;
    case FI_OP_ATOMIC:
      return FI_ATOMIC | FI_WRITE;
    default:
      return FI_ATOMIC | FI_READ;
  }
}

core::Counter* endpoint_counter(const Deferral& work) noexcept {
  switch (work.type) {
    case FI_OP_RECV:
    case FI_OP_TRECV:
      return work.work_target.rx->receives;
    case FI_OP_SEND:
    case FI_OP_TSEND:
      return work.work_target.tx->sends;
    case FI_OP_WRITE:
    case FI_OP_ATOMIC:
      return work.work_target.tx->writes;
    default:
      return work.work_target.tx->reads;
  }
}

}  // namespace

// The operation never started. Its completion says so, as if it had (fi_cq(3), fi_cq_readerr).
void WorkQueue::report(const Deferral& work, int error) noexcept {
  core::CompletionQueue* cq = work.receives() ? work.work_target.rx->cq : work.work_target.tx->cq;
  if (cq != nullptr) {
    core::CompletionError entry;
    entry.base = {work.context(), completion_flags(work.type), 0, nullptr, 0, work.tag(), FI_ADDR_NOTAVAIL};
    entry.err = error;
    if (error == FI_ECANCELED) entry.prov_errno = static_cast<int>(core::ProviderError::Cancelled);
    cq->push_error(entry);
  }
  core::Counter* own = work.is_quiet() ? nullptr : endpoint_counter(work);
  if (own != nullptr) own->add_error(1);
  if (work.completion != nullptr) work.completion->counter.add_error(1);
}

}  // namespace weft::fi
