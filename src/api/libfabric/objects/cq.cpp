// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues at the C ABI: fi_cq(3). Must not know which links exist.
#include <cstdio>
#include <cstring>

#include "api/libfabric/abi/prepared.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "base/settings.hpp"
#include "core/provider_error.hpp"
#include "os/clock.hpp"

namespace weft::fi {

namespace {

constexpr uint32_t polls_per_service = 8;  // empty polls between two calls of Domain::serve_others()

Cq& self(fid_cq* fid) noexcept { return *reinterpret_cast<Cq*>(fid); }

// fi_cq(3), err_data: before interface 1.5, or with a size of 0, the queue lends its own buffer until the
// next read.
void copy_error(Cq& cq, fi_cq_err_entry* out) noexcept {
  const core::CompletionError& error = cq.last_error;
  out->op_context = error.base.context;
  out->flags = error.base.flags;
  out->len = error.base.len;
  out->buf = error.base.buf;
  out->data = error.base.data;
  out->tag = error.base.tag;
  out->olen = error.olen;
  out->err = error.err;
  out->prov_errno = error.prov_errno;
  void* lent = error.err_data_size == 0 ? nullptr : cq.last_error.err_data.data();
  if (FI_VERSION_LT(cq.domain.api_version, FI_VERSION(1, 5))) {
    out->err_data = lent;  // the structure of that time ends here
    return;
  }
  if (out->err_data_size == 0 || out->err_data == nullptr) {
    out->err_data = lent;
    out->err_data_size = error.err_data_size;
  } else {
    const size_t n = out->err_data_size < error.err_data_size ? out->err_data_size : error.err_data_size;
    std::memcpy(out->err_data, error.err_data.data(), n);
    out->err_data_size = n;
  }
  // fi_cq(3), src_addr: for authorization keys of addresses.
  if (FI_VERSION_GE(cq.domain.api_version, FI_VERSION(1, 20)))
    layout::set_error_source(*out, FI_ADDR_NOTAVAIL);
}

// fi_cq(3), wait_cond: "the cond field is interpreted as a size_t". Some programs pass the number itself, others where it is; no address is
// as low as the number may be.
size_t threshold_of(const void* condition) noexcept {
  const auto number = reinterpret_cast<uintptr_t>(condition);
  return number <= core::CompletionQueue::size_max ? number : *static_cast<const size_t*>(condition);
}

// fi_cq(3), wait_cond: at least this many before a blocking read returns; an error ends the wait as well.
bool below_threshold(Cq& cq, size_t threshold) noexcept {
  if (cq.queue.pending() < threshold) cq.queue.progress();
  return cq.queue.pending() < threshold && !cq.queue.error_pending();
}

template <class Format, class Guard>
struct Reader {
  static long read_with_source(Cq& cq, void* buf, size_t count, fi_addr_t* source) noexcept {
    return source == nullptr ? cq.queue.read<Format, false>(buf, count, nullptr)
                             : cq.queue.read<Format, true>(buf, count, source);
  }

  static ssize_t read(fid_cq* fid, void* buf, size_t count) {
    Cq& cq = self(fid);
    Guard guard(cq.domain.lock);
    return cq.queue.read<Format, false>(buf, count, nullptr);
  }

  static ssize_t readfrom(fid_cq* fid, void* buf, size_t count, fi_addr_t* source) {
    Cq& cq = self(fid);
    Guard guard(cq.domain.lock);
    return read_with_source(cq, buf, count, source);
  }

  static ssize_t readerr(fid_cq* fid, fi_cq_err_entry* out, uint64_t) {
    Cq& cq = self(fid);
    Guard guard(cq.domain.lock);
    if (const int status = cq.queue.read_error(cq.last_error); status != 0) return status;
    copy_error(cq, out);
    return 1;
  }

  static ssize_t sreadfrom(fid_cq* fid, void* buf, size_t count, fi_addr_t* source, const void* condition,
                           int timeout) {
    Cq& cq = self(fid);
    if (cq.wait.owned == nullptr) return -FI_EINVAL;  // FI_WAIT_NONE, FI_WAIT_SET: fi_cq(3), fi_cq_sread
    size_t threshold = 0;
    if (cq.condition == FI_CQ_COND_THRESHOLD) threshold = threshold_of(condition);
    if (threshold > cq.queue.size()) threshold = cq.queue.size();
    auto read_now = [&]() -> long { return read_with_source(cq, buf, count, source); };
    uint32_t attempts = 0;
    auto attempt = [&]() -> long {
      const long status = threshold > 1 && below_threshold(cq, threshold) ? -FI_EAGAIN : read_now();
      if (status == -FI_EAGAIN && ++attempts % polls_per_service == 0) cq.domain.serve_others();
      return status;
    };
    auto arm = [&] {
      cq.queue.arm();
      return true;
    };
    const long status =
        cq.wait.sleeper->wait(cq.domain.lock, cq.queue.progressors(), -FI_EAGAIN, timeout, attempt, arm);
    if (status != -FI_EAGAIN || threshold <= 1) return status;
    std::scoped_lock guard(cq.domain.lock);
    return read_now();  // the time is over: what is there, if less
  }

  static ssize_t sread(fid_cq* fid, void* buf, size_t count, const void* condition, int timeout) {
    return sreadfrom(fid, buf, count, nullptr, condition, timeout);
  }

  static int signal(fid_cq* fid) {
    Cq& cq = self(fid);
    if (cq.wait.sleeper == nullptr) return -FI_EINVAL;
    cq.wait.sleeper->interrupt();
    return 0;
  }

  static const char* strerror(fid_cq*, int prov_errno, const void*, char* buf, size_t len) {
    const char* text = core::to_text(core::ProviderError(prov_errno));
    if (buf == nullptr || len == 0) return text;
    std::snprintf(buf, len, "%s", text);
    return buf;
  }

  static layout::Prepared<fi_ops_cq, 1> ops;
};

template <class Format, class Guard>
layout::Prepared<fi_ops_cq, 1> Reader<Format, Guard>::ops = {
    {sizeof(fi_ops_cq), read, readfrom, readerr, sread, sreadfrom, signal, strerror}, {}};

template <class Guard>
fi_ops_cq* ops_for(int format) noexcept {
  switch (format) {
    case FI_CQ_FORMAT_UNSPEC:
    case FI_CQ_FORMAT_CONTEXT:
      return &Reader<fi_cq_entry, Guard>::ops;
    case FI_CQ_FORMAT_MSG:
      return &Reader<fi_cq_msg_entry, Guard>::ops;
    case FI_CQ_FORMAT_DATA:
      return &Reader<fi_cq_data_entry, Guard>::ops;
    case FI_CQ_FORMAT_TAGGED:
      return &Reader<fi_cq_tagged_entry, Guard>::ops;
  }
  return nullptr;
}

fi_ops_cq* ops_for(const Domain& domain, int format) noexcept {
  return domain.lock.enabled ? ops_for<SharedLock>(format) : ops_for<NoLock>(format);
}

int cq_close(::fid* fid) {
  Cq* cq = cq_of(fid);
  if (busy(cq->users)) return -FI_EBUSY;
  close_wait_object(cq->wait, fid);
  drop(cq->domain.users);
  delete cq;
  return 0;
}

int cq_control(::fid* fid, int command, void* arg) { return wait_control(cq_of(fid)->wait, command, arg); }

fi_ops cq_fid_ops = {sizeof(fi_ops), cq_close, no_bind, cq_control, no_ops_open, no_tostr, no_ops_set};

// What a layer may ask for that counts every peer there could be; more is a mistake.
constexpr size_t size_asked_max = size_t{1} << 24;

int refuse(const Domain& domain, int code, const char* why) {
  log_warn(domain.provider->name, FI_LOG_CQ, "fi_cq_open: %s", why);
  return -code;
}

core::YieldMode chosen_yield_mode() noexcept {
  const uint64_t word = settings::number("WEFT_YIELD");  // auto, never, always
  return word == 0 ? core::YieldMode::Auto : static_cast<core::YieldMode>(word);
}

}  // namespace

YieldWhenIdle::YieldWhenIdle(DomainLock& lock) noexcept : lock_(lock), policy_(chosen_yield_mode()) {}

uint32_t YieldWhenIdle::idle(bool arrived) noexcept {
  const uint64_t now = os::monotonic_ns();
  const bool shared = policy_.mode() == core::YieldMode::Auto && watch_.others_poll_here(now);
  if (policy_.wants_yield(now, arrived, shared)) {
    const bool learns = policy_.mode() == core::YieldMode::Auto;
    const bool in_doubt = learns && policy_.is_in_doubt();
    lock_.unlock();
    const uint64_t switches = in_doubt ? os::involuntary_switches() : 0;
    const uint64_t began = os::monotonic_ns();
    os::yield_processor();
    const uint64_t ended = os::monotonic_ns();
    const bool switched = in_doubt && os::involuntary_switches() != switches;
    const bool was_long = learns && ended - began >= core::YieldPolicy::slice_ns;
    if (was_long) os::PollerWatch::join();
    lock_.lock();
    policy_.yielded(began, ended, switched, was_long && watch_.another_polled());
  }
  return policy_.polls();
}

int Cq::attach(core::Progressor& progressor) noexcept {
  return no_throw([&] {
    queue.add(progressor);
    hold(users);
    return 0;
  });
}

void Cq::detach(core::Progressor& progressor) noexcept {
  if (queue.remove(progressor) && wait.sleeper != nullptr) wait.sleeper->forget(progressor);
  drop(users);
}

int open_cq(Domain& domain, fi_cq_attr* attr, fid_cq** out, void* context) {
  const fi_cq_attr defaults{};
  const fi_cq_attr& asked = attr == nullptr ? defaults : *attr;
  if (out == nullptr) return -FI_EINVAL;
  const int format = number_of(asked.format);
  fi_ops_cq* ops = ops_for(domain, format);
  if (ops == nullptr) return refuse(domain, FI_ENOSYS, "format is none of CONTEXT, MSG, DATA, TAGGED");
  if (asked.size > size_asked_max) return refuse(domain, FI_EINVAL, "size is above 16777216");
  // A program asks for more so that the queue does not overrun. Ours never does: what finds it full waits.
  if (asked.size > core::CompletionQueue::size_max)
    log_info(domain.provider->name, FI_LOG_CQ, "fi_cq_open: a size of %zu was asked, 1048576 are enough",
             asked.size);
  if ((asked.flags & ~uint64_t{FI_AFFINITY}) != 0)
    return refuse(domain, FI_EBADFLAGS, "flags knows only FI_AFFINITY");
  auto cq = std::make_unique<Cq>(domain, asked.size);
  cq->fid.fid = {FI_CLASS_CQ, context, &cq_fid_ops};
  cq->fid.ops = ops;
  cq->format = format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : fi_cq_format(format);
  if (number_of(asked.wait_cond) == FI_CQ_COND_THRESHOLD) cq->condition = FI_CQ_COND_THRESHOLD;
  const int status =
      open_wait_object(*domain.provider, FI_LOG_CQ, asked.wait_obj, asked.wait_set, &cq->fid.fid, cq->wait);
  if (status != 0) return status;
  cq->queue.set_signal(cq->wait.sleeper);
  hold(domain.users);
  *out = &cq.release()->fid;
  return 0;
}

}  // namespace weft::fi
