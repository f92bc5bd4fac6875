// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Wait objects, wait sets and fi_trywait: fi_poll(3), fi_cq(3) wait_obj. Must not know which links exist.
#include "api/libfabric/objects/objects.hpp"

#include <span>

namespace weft::fi {

namespace {

// Something that can be waited for, whatever its class. Nothing for other fids.
struct Waitable {
  const WaitObject* wait = nullptr;
  const core::ProgressorList* progressors = nullptr;
  DomainLock* lock = nullptr;
  bool driven = true;  // it is signalled even if no thread of the program drives it
};

Waitable waitable_of(::fid* fid) noexcept {
  if (Cq* cq = cq_of(fid))
    return {&cq->wait, &cq->queue.progressors(), &cq->domain.lock, cq->domain.driven()};
  if (Cntr* cntr = cntr_of(fid))
    return {&cntr->wait, &cntr->counter.progressors(), &cntr->domain.lock, cntr->domain.driven()};
  if (Eq* eq = eq_of(fid)) return {&eq->wait, nullptr, nullptr, eq->control.empty()};
  return {};
}

bool has_news(const Cntr& cntr) noexcept {
  return cntr.counter.value() != cntr.read_value || cntr.counter.errors() != cntr.read_errors;
}

// Drives what is empty, now and then (or `always`) what is not, and looks again. Under the lock.
bool has_events(::fid* fid, bool always = false) noexcept {
  if (Cq* cq = cq_of(fid)) {
    if (cq->queue.pending() == 0) cq->queue.progress();
    else if (cq->queue.is_due() || always) cq->queue.drive();
    return cq->queue.pending() != 0;
  }
  if (Cntr* cntr = cntr_of(fid)) {
    if (!has_news(*cntr)) cntr->counter.progress();
    else if (cntr->is_due() || always) cntr->counter.drive();
    return has_news(*cntr);
  }
  if (Eq* eq = eq_of(fid)) {
    if (eq->queue.pending() == 0 || eq->is_due() || always) eq->control.drive();
    return eq->queue.pending() != 0;
  }
  return false;
}

// False: there is something already. Under the lock.
bool arm(::fid* fid, os::Sleeper& sleeper) noexcept {
  if (Cq* cq = cq_of(fid)) {
    cq->queue.arm();
    return sleeper.arm(cq->queue.progressors()) && cq->queue.pending() == 0;
  }
  if (Cntr* cntr = cntr_of(fid)) {
    cntr->counter.arm(cntr->read_value + 1);
    return sleeper.arm(cntr->counter.progressors()) && !has_news(*cntr);
  }
  if (Eq* eq = eq_of(fid)) return eq->queue.arm();
  return true;
}

// Runs `body` under the lock of an object's domain, if it has one.
template <class Body>
auto under_lock(const Waitable& object, Body&& body) {
  if (object.lock == nullptr) return body();
  std::scoped_lock guard(*object.lock);
  return body();
}

// 0: it is armed and nobody needs to read it; -FI_EAGAIN: there is something, or a sleep would have no end.
int try_one(::fid* fid, os::Sleeper& sleeper) {
  const Waitable object = waitable_of(fid);
  return under_lock(object, [&] {
    if (has_events(fid) || !arm(fid, sleeper)) return -FI_EAGAIN;
    // A condition variable is signalled by threads of this process only. Where peers' messages arrive only
    // when the program drives its endpoints, nobody would signal it: "if blocking could hang the
    // application", fi_poll(3), fi_trywait.
    const bool hangs = sleeper.kind() == os::Sleeper::Kind::mutex_cond && !object.driven &&
                       (object.progressors == nullptr || !object.progressors->empty());
    if (hangs || sleeper.kind() == os::Sleeper::Kind::yield) return -FI_EAGAIN;
    sleeper.hold();
    return 0;
  });
}

// Drives the objects behind the first ready one; the program may be waiting for them.
void drive_rest(std::span<::fid* const> members) {
  for (::fid* member : members) {
    if (Wait* set = wait_of(member)) {
      std::scoped_lock guard(set->mutex);
      for (::fid* each : set->members) under_lock(waitable_of(each), [&] { return has_events(each); });
    } else {
      under_lock(waitable_of(member), [&] { return has_events(member); });
    }
  }
}

int try_set(Wait& set) {
  std::scoped_lock guard(set.mutex);
  set.sleeper->drain();
  for (size_t i = 0; i < set.members.size(); ++i) {
    if (const int status = try_one(set.members[i], *set.sleeper); status != 0) {
      drive_rest(std::span(set.members).subspan(i + 1));
      return status;
    }
  }
  return 0;
}

int wait_wait(fid_wait* fid, int timeout_ms) {
  return no_throw([&] {
    Wait& set = *wait_of(&fid->fid);
    os::Sleeper& sleeper = *set.sleeper;
    const int64_t deadline = timeout_ms < 0 ? INT64_MAX : os::now_ms() + timeout_ms;
    for (;;) {
      bool armed = true;
      {
        std::scoped_lock guard(set.mutex);
        // The first that has something ends the look, but not each time: the others may depend on it.
        const bool goes_on = ++set.checks % core::reads_per_drive == 0;
        bool found = false;
        for (::fid* member : set.members) {
          found = under_lock(waitable_of(member), [&] { return has_events(member, goes_on); }) || found;
          if (found && !goes_on) break;
        }
        if (found) return 0;
        sleeper.drain();
        for (::fid* member : set.members) {
          armed = under_lock(waitable_of(member), [&] { return arm(member, sleeper); }) && armed;
        }
      }
      const int64_t left = deadline - os::now_ms();
      if (left <= 0) return -FI_ETIMEDOUT;
      if (!armed) continue;
      sleeper.enter();
      sleeper.sleep(left < os::Sleeper::slice_ms ? int(left) : os::Sleeper::slice_ms);
      if (!sleeper.leave()) continue;  // what woke this one wakes the others too
      std::scoped_lock guard(set.mutex);
      for (::fid* member : set.members) {
        const Waitable object = waitable_of(member);
        if (object.progressors == nullptr) continue;
        under_lock(object, [&] { sleeper.disarm(*object.progressors); });
      }
    }
  });
}

int wait_close(::fid* fid) {
  Wait* set = wait_of(fid);
  if (busy(set->users)) return -FI_EBUSY;
  drop(set->fabric.users);
  delete set;
  return 0;
}

int wait_set_control(::fid* fid, int command, void* arg) {
  Wait& set = *wait_of(fid);
  WaitObject view;
  view.kind = set.kind;
  view.sleeper = set.sleeper.get();
  return wait_control(view, command, arg);
}

fi_ops wait_fid_ops = {sizeof(fi_ops), wait_close, no_bind,   wait_set_control,
                       no_ops_open,    no_tostr,   no_ops_set};
fi_ops_wait wait_ops = {sizeof(fi_ops_wait), wait_wait};

Result<std::unique_ptr<os::Sleeper>> make_sleeper(int kind) {
  switch (kind) {
    case FI_WAIT_MUTEX_COND:
      return os::Sleeper::create(os::Sleeper::Kind::mutex_cond);
    case FI_WAIT_YIELD:
      return os::Sleeper::create(os::Sleeper::Kind::yield);
    case FI_WAIT_UNSPEC:
    case FI_WAIT_FD:
      return os::Sleeper::create(os::Sleeper::Kind::descriptor);
    default:
      return Error{FI_ENOSYS, "there are wait objects NONE, UNSPEC, SET, FD, MUTEX_COND and YIELD; number " +
                                  std::to_string(kind) + " was asked"};
  }
}

int join_wait_set(const Provider& provider, fi_log_subsys subsystem, fid_wait* set_fid, ::fid* owner,
                  WaitObject& out) {
  Wait* set = set_fid == nullptr ? nullptr : wait_of(&set_fid->fid);
  if (set == nullptr) {
    log_warn(provider.name, subsystem, "wait_obj is FI_WAIT_SET but wait_set is not a wait set");
    return -FI_EINVAL;
  }
  std::scoped_lock guard(set->mutex);
  set->members.push_back(owner);
  hold(set->users);
  out.kind = FI_WAIT_SET;
  out.set = set;
  out.sleeper = set->sleeper.get();
  return 0;
}

}  // namespace

int open_wait_object(const Provider& provider, fi_log_subsys subsystem, const fi_wait_obj& asked,
                     fid_wait* set, ::fid* owner, WaitObject& out) {
  const int kind = number_of(asked);
  if (kind == FI_WAIT_NONE) return 0;
  if (kind == FI_WAIT_SET) return join_wait_set(provider, subsystem, set, owner, out);
  Result<std::unique_ptr<os::Sleeper>> sleeper = make_sleeper(kind);
  if (!sleeper) {
    log_warn(provider.name, subsystem, "no wait object: %s", sleeper.error().why.c_str());
    return -sleeper.error().code;
  }
  out.kind = kind == FI_WAIT_UNSPEC ? FI_WAIT_FD : fi_wait_obj(kind);
  out.owned = std::move(*sleeper);
  out.sleeper = out.owned.get();
  return 0;
}

void close_wait_object(WaitObject& wait, ::fid* owner) noexcept {
  if (wait.set == nullptr) return;
  {
    std::scoped_lock guard(wait.set->mutex);
    std::erase(wait.set->members, owner);
  }
  drop(wait.set->users);
  wait.set = nullptr;
}

// fi_cq(3), fi_eq(3), fi_cntr(3), fi_poll(3): fi_control.
int wait_control(const WaitObject& wait, int command, void* arg) noexcept {
  if (command != FI_GETWAIT && command != FI_GETWAITOBJ) return -FI_ENOSYS;
  if (arg == nullptr) return -FI_EINVAL;
  if (command == FI_GETWAITOBJ) {
    *static_cast<fi_wait_obj*>(arg) = wait.kind;
    return 0;
  }
  switch (wait.kind) {
    case FI_WAIT_FD:
      *static_cast<int*>(arg) = wait.sleeper->fd();
      return 0;
    case FI_WAIT_MUTEX_COND:
      *static_cast<fi_mutex_cond*>(arg) = {wait.sleeper->mutex(), wait.sleeper->cond()};
      return 0;
    case FI_WAIT_SET: {
      if (wait.set == nullptr) return -FI_EINVAL;
      WaitObject of_set;
      of_set.kind = wait.set->kind;
      of_set.sleeper = wait.set->sleeper.get();
      return wait_control(of_set, command, arg);
    }
    default:
      return -FI_ENODATA;  // nothing that a program could wait on
  }
}

int try_wait(fid_fabric*, ::fid** fids, int count) {
  if (fids == nullptr || count < 0) return -FI_EINVAL;
  return no_throw([&] {
    for (int i = 0; i < count; ++i) {
      int status = -FI_EINVAL;
      if (Wait* set = wait_of(fids[i])) {
        status = try_set(*set);
      } else if (const Waitable object = waitable_of(fids[i]);
                 object.wait != nullptr && object.wait->sleeper != nullptr) {
        object.wait->sleeper->drain();
        status = try_one(fids[i], *object.wait->sleeper);
      }
      if (status != 0) {
        drive_rest({fids + i + 1, static_cast<size_t>(count - i - 1)});
        return status;
      }
    }
    return 0;
  });
}

int open_wait(Fabric& fabric, fi_wait_attr* attr, fid_wait** wait) {
  const int kind = attr == nullptr ? FI_WAIT_UNSPEC : number_of(attr->wait_obj);
  if (wait == nullptr || (attr != nullptr && attr->flags != 0) || kind == FI_WAIT_NONE ||
      kind == FI_WAIT_SET) {
    log_warn(fabric.provider->name, FI_LOG_FABRIC,
             "fi_wait_open: flags must be 0 and wait_obj UNSPEC, FD, MUTEX_COND or YIELD");
    return -FI_EINVAL;
  }
  Result<std::unique_ptr<os::Sleeper>> sleeper = make_sleeper(kind);
  if (!sleeper) {
    log_warn(fabric.provider->name, FI_LOG_FABRIC, "fi_wait_open: %s", sleeper.error().why.c_str());
    return -sleeper.error().code;
  }
  auto* set = new Wait(fabric);
  set->fid.fid = {FI_CLASS_WAIT, nullptr, &wait_fid_ops};
  set->fid.ops = &wait_ops;
  set->kind = kind == FI_WAIT_UNSPEC ? FI_WAIT_FD : fi_wait_obj(kind);
  set->sleeper = std::move(*sleeper);
  hold(fabric.users);
  *wait = &set->fid;
  return 0;
}

}  // namespace weft::fi
