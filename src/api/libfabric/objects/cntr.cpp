// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counters at the C ABI: fi_cntr(3). Must not know which links exist.
#include <utility>

#include "api/libfabric/abi/prepared.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "api/libfabric/objects/work_queue.hpp"

namespace weft::fi {

namespace {

constexpr uint32_t polls_per_service = 8;  // empty polls between two calls of Domain::serve_others()

Cntr& self(fid_cntr* fid) noexcept { return *reinterpret_cast<Cntr*>(fid); }

// After a look that has driven the endpoints. `read_value` is what the program knows.
void count_check(Cntr& cntr) noexcept {
  if (cntr.counter.value() != cntr.read_value) {
    cntr.polls_left = YieldWhenIdle::polls_min;
    cntr.arrived = true;
  } else if (--cntr.polls_left == 0) {
    cntr.polls_left = cntr.yielding.idle(std::exchange(cntr.arrived, false));
  }
}

// The domain lock is taken to change a value too: what waits for it (fi_trigger(3)) starts operations of an
// endpoint.
template <class Guard>
struct Calls {
  // Reading drives the endpoints (fi_domain(3), FI_PROGRESS_MANUAL).
  static uint64_t read(fid_cntr* fid) {
    Cntr& cntr = self(fid);
    Guard guard(cntr.domain.lock);
    cntr.counter.progress();
    count_check(cntr);
    if (cntr.counter.value() == cntr.read_value && cntr.polls_left % polls_per_service == 0)
      cntr.domain.serve_others();
    return cntr.read_value = cntr.counter.value();
  }

  static uint64_t readerr(fid_cntr* fid) {
    Cntr& cntr = self(fid);
    Guard guard(cntr.domain.lock);
    cntr.counter.progress();
    return cntr.read_errors = cntr.counter.errors();
  }

  static int add(fid_cntr* fid, uint64_t value) {
    Cntr& cntr = self(fid);
    Guard guard(cntr.domain.lock);
    cntr.counter.add(value);
    cntr.polled_value = cntr.counter.value();
    cntr.domain.work->start_due();
    return 0;
  }

  static int set(fid_cntr* fid, uint64_t value) {
    Cntr& cntr = self(fid);
    Guard guard(cntr.domain.lock);
    cntr.counter.set(value);
    cntr.polled_value = cntr.counter.value();
    cntr.domain.work->start_due();
    return 0;
  }

  static int adderr(fid_cntr* fid, uint64_t value) {
    Cntr& cntr = self(fid);
    Guard guard(cntr.domain.lock);
    cntr.counter.add_error(value);
    cntr.domain.work->start_due();
    return 0;
  }

  static int seterr(fid_cntr* fid, uint64_t value) {
    Cntr& cntr = self(fid);
    Guard guard(cntr.domain.lock);
    cntr.counter.set_error(value);
    cntr.domain.work->start_due();
    return 0;
  }

  // Errors that the program has not seen yet end the wait, even those from before it: fi_cntr(3),
  // fi_cntr_wait.
  static int wait(fid_cntr* fid, uint64_t threshold, int timeout) {
    Cntr& cntr = self(fid);
    auto check = [&]() -> long {
      cntr.read_value = cntr.counter.value();
      if (cntr.read_value >= threshold) return 0;
      const uint64_t errors = cntr.counter.errors();
      if (errors == cntr.read_errors) return -FI_EAGAIN;
      cntr.read_errors = errors;
      return -FI_EAVAIL;
    };
    uint32_t attempts = 0;
    // fi_cntr(3) calls it invalid for a counter without a wait object of its own. Programs do it, so it polls.
    const bool polls = cntr.wait.owned == nullptr;
    bool has_driven = false;
    auto attempt = [&]() -> long {
      if (cntr.counter.value() < threshold) {
        cntr.counter.progress();
        has_driven = true;
        if (polls) count_check(cntr);
      } else if (!has_driven && cntr.is_due()) {
        cntr.counter.drive();  // a program may never wait for more than there is
      }
      if (cntr.counter.value() < threshold && ++attempts % polls_per_service == 0) cntr.domain.serve_others();
      return check();
    };
    auto arm = [&] {
      cntr.counter.arm(threshold);
      return cntr.counter.value() < threshold && cntr.counter.errors() == cntr.read_errors;
    };
    const long status = polls ? os::wait_by_polling(cntr.domain.lock, -FI_EAGAIN, timeout, attempt)
                              : cntr.wait.sleeper->wait(cntr.domain.lock, cntr.counter.progressors(),
                                                        -FI_EAGAIN, timeout, attempt, arm);
    return status == -FI_EAGAIN ? -FI_ETIMEDOUT : int(status);
  }

  static layout::Prepared<fi_ops_cntr, 1> ops;
};

template <class Guard>
layout::Prepared<fi_ops_cntr, 1> Calls<Guard>::ops = {
    {sizeof(fi_ops_cntr), read, readerr, add, set, wait, adderr, seterr}, {}};

int cntr_close(::fid* fid) {
  Cntr* cntr = cntr_of(fid);
  cntr->domain.work->release(*cntr);
  if (busy(cntr->users)) return -FI_EBUSY;
  close_wait_object(cntr->wait, fid);
  drop(cntr->domain.users);
  delete cntr;
  return 0;
}

int cntr_control(::fid* fid, int command, void* arg) {
  Cntr& cntr = *cntr_of(fid);
  if (command != FI_GETOPSFLAG && command != FI_SETOPSFLAG) return wait_control(cntr.wait, command, arg);
  if (arg == nullptr) return -FI_EINVAL;
  auto* flags = static_cast<uint64_t*>(arg);
  (command == FI_GETOPSFLAG ? *flags : cntr.op_flags) = command == FI_GETOPSFLAG ? cntr.op_flags : *flags;
  return 0;
}

fi_ops cntr_fid_ops = {sizeof(fi_ops), cntr_close, no_bind, cntr_control, no_ops_open, no_tostr, no_ops_set};

}  // namespace

int Cntr::attach(core::Progressor& progressor) noexcept {
  return no_throw([&] {
    counter.add(progressor);
    hold(users);
    return 0;
  });
}

void Cntr::detach(core::Progressor& progressor) noexcept {
  if (counter.remove(progressor) && wait.sleeper != nullptr) wait.sleeper->forget(progressor);
  drop(users);
}

int open_cntr(Domain& domain, fi_cntr_attr* attr, fid_cntr** out, void* context) {
  const fi_cntr_attr defaults{};
  const fi_cntr_attr& asked = attr == nullptr ? defaults : *attr;
  if (out == nullptr) return -FI_EINVAL;
  if (number_of(asked.events) != FI_CNTR_EVENTS_COMP || asked.flags != 0) {
    log_warn(domain.provider->name, FI_LOG_CNTR,
             "fi_cntr_open: events must be FI_CNTR_EVENTS_COMP and flags 0");
    return -FI_EINVAL;
  }
  auto cntr = std::make_unique<Cntr>(domain);
  cntr->fid.fid = {FI_CLASS_CNTR, context, &cntr_fid_ops};
  cntr->fid.ops = domain.lock.enabled ? &Calls<SharedLock>::ops : &Calls<NoLock>::ops;
  const int status = open_wait_object(*domain.provider, FI_LOG_CNTR, asked.wait_obj, asked.wait_set,
                                      &cntr->fid.fid, cntr->wait);
  if (status != 0) return status;
  cntr->counter.set_signal(cntr->wait.sleeper);
  hold(domain.users);
  *out = &cntr.release()->fid;
  return 0;
}

}  // namespace weft::fi
