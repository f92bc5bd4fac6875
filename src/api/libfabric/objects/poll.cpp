// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Poll sets at the C ABI: fi_poll(3). Must not know which links exist.
#include <algorithm>

#include "api/libfabric/objects/objects.hpp"

namespace weft::fi {

namespace {

Poll& self(fid_poll* fid) noexcept { return *reinterpret_cast<Poll*>(fid); }

// Drives a member and tells whether its context is to be returned: fi_poll(3), fi_poll.
bool has_events(::fid* member) noexcept {
  if (Cq* cq = cq_of(member)) {
    std::scoped_lock guard(cq->domain.lock);
    cq->queue.progress();
    return cq->queue.pending() != 0;
  }
  Cntr& cntr = *cntr_of(member);
  std::scoped_lock guard(cntr.domain.lock);
  cntr.counter.progress();
  const uint64_t value = cntr.counter.value();
  const uint64_t errors = cntr.counter.errors();
  const bool changed = value != cntr.polled_value || errors != cntr.polled_errors;
  cntr.polled_value = value;
  cntr.polled_errors = errors;
  return changed;
}

// A counter's news are consumed by being returned, so nothing beyond the room is looked at.
int poll_poll(fid_poll* fid, void** context, int count) {
  if (count < 0 || (context == nullptr && count != 0)) return -FI_EINVAL;
  Poll& poll = self(fid);
  int n = 0;
  const size_t members = poll.members.size();
  const size_t first = poll.first.load(std::memory_order_relaxed);
  size_t checked = 0;
  for (; checked < members && n != count; ++checked) {
    ::fid* const member = poll.members[(first + checked) % members];
    if (has_events(member)) context[n++] = member->context;
  }
  if (checked < members) poll.first.store((first + checked) % members, std::memory_order_relaxed);
  return n;
}

Users* users_of(::fid* member) noexcept {
  if (Cq* cq = cq_of(member)) return &cq->users;
  if (Cntr* cntr = cntr_of(member)) return &cntr->users;
  return nullptr;
}

int poll_add(fid_poll* fid, ::fid* member, uint64_t flags) {
  return no_throw([&] {
    Poll& poll = self(fid);
    Users* users = users_of(member);
    if (users == nullptr || flags != 0) {
      log_warn(poll.domain.provider->name, FI_LOG_DOMAIN,
               "fi_poll_add: flags must be 0 and the object a completion queue or a counter");
      return -FI_EINVAL;
    }
    if (std::find(poll.members.begin(), poll.members.end(), member) != poll.members.end()) return 0;
    poll.members.push_back(member);
    hold(*users);
    return 0;
  });
}

int poll_del(fid_poll* fid, ::fid* member, uint64_t flags) {
  Poll& poll = self(fid);
  const auto place = std::find(poll.members.begin(), poll.members.end(), member);
  if (flags != 0 || place == poll.members.end()) return -FI_EINVAL;
  poll.members.erase(place);
  drop(*users_of(member));
  return 0;
}

int poll_close(::fid* fid) {
  auto* poll = reinterpret_cast<Poll*>(fid);
  if (busy(poll->users) || !poll->members.empty()) return -FI_EBUSY;  // fi_poll(3), fi_close
  drop(poll->domain.users);
  delete poll;
  return 0;
}

fi_ops poll_fid_ops = {sizeof(fi_ops), poll_close, no_bind, no_control, no_ops_open, no_tostr, no_ops_set};
fi_ops_poll poll_ops = {sizeof(fi_ops_poll), poll_poll, poll_add, poll_del};

}  // namespace

int open_poll(Domain& domain, fi_poll_attr* attr, fid_poll** out) {
  if (out == nullptr || (attr != nullptr && attr->flags != 0)) {
    log_warn(domain.provider->name, FI_LOG_DOMAIN, "fi_poll_open: flags must be 0");
    return -FI_EINVAL;
  }
  auto* poll = new Poll(domain);
  poll->fid.fid = {FI_CLASS_POLL, nullptr, &poll_fid_ops};
  poll->fid.ops = &poll_ops;
  hold(domain.users);
  *out = &poll->fid;
  return 0;
}

}  // namespace weft::fi
