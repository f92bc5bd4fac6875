// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Binding, enabling, options, names and closing of endpoints, whatever their engine.
#include "api/libfabric/endpoints/endpoint_control.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/discovery/link_name.hpp"
#include "api/libfabric/endpoints/answers.hpp"
#include "api/libfabric/endpoints/endpoint_data.hpp"
#include "api/libfabric/endpoints/trigger.hpp"
#include "os/clock.hpp"

namespace weft::fi {
namespace {

const char* provider(const Port& p) noexcept { return p.domain->provider->name; }

// --- binding ---
int attach(Port& p, Cq& cq) {
  if (p.core == nullptr) return -FI_EINVAL;
  if (const int status = cq.attach(*p.core->engine); status != 0) return status;
  try {
    p.core->add_queue(&cq.queue);
  } catch (const std::bad_alloc&) {
    cq.detach(*p.core->engine);
    return -FI_ENOMEM;
  }
  return 0;
}
// An SRX drives nothing by itself: it holds what its endpoints attach to, those that are there and those that come.
int attach(Port& p, Cntr& cntr) {
  if (p.core != nullptr) return cntr.attach(*p.core->engine);
  const auto& sharers = p.receiver->sharers;
  for (size_t i = 0; i < sharers.size(); ++i) {
    const int status = cntr.attach(*sharers[i].engine);
    if (status == 0) continue;
    while (i-- > 0) cntr.detach(*sharers[i].engine);
    return status;
  }
  hold(cntr.users);
  return 0;
}
int bind_cq(Port& p, Cq& cq, uint64_t flags) {
  const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
  const bool transmits = (flags & FI_TRANSMIT) != 0;
  const bool receives = (flags & FI_RECV) != 0;
  if (!transmits && !receives) {
    log_warn(provider(p), FI_LOG_EP_CTRL,
             "a completion queue is bound with FI_TRANSMIT or FI_RECV; neither was given");
    return -FI_EBADFLAGS;
  }
  if (transmits && p.transmitter == nullptr) return -FI_EINVAL;
  if ((transmits && p.transmitter->cq != nullptr) ||
      (receives && p.receiver != nullptr && p.receiver->cq != nullptr)) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "the endpoint has a completion queue for that direction already");
    return -FI_EINVAL;
  }
  if (transmits) {
    if (const int status = attach(p, cq); status != 0) return status;
    p.transmitter->cq = &cq;
    p.tx->cq = &cq.queue;
    p.tx->selective = selective;
    p.tx->apply_bindings();
  }
  if (receives && p.receiver != nullptr) {
    if (const int status = attach(p, cq); status != 0) return status;
    p.receiver->cq = &cq;
    p.receiver->sink->cq = &cq.queue;
    p.receiver->sink->selective = selective;
    p.receiver->sink->hidden_source = (p.caps & FI_SOURCE) != 0 ? 0 : FI_ADDR_NOTAVAIL;
    p.receiver->apply_bindings();
    if (p.shared_receiver != nullptr) {
      for (auto& sharer : p.shared_receiver->sharers)
        if (sharer.engine == p.core->engine) sharer.cq = &cq;
      p.shared_receiver->choose_reports();
    }
  }
  return 0;
}
int bind_counter(Port& p, Cntr& cntr, uint64_t flags) {
  const uint64_t transmit_flags = p.type->abilities.transmit_caps & (FI_SEND | FI_READ | FI_WRITE);
  const uint64_t receive_flags =
      p.type->abilities.receive_caps & (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE);
  if ((flags & (transmit_flags | receive_flags)) == 0) {
    log_warn(provider(p), FI_LOG_EP_CTRL,
             "a counter is bound with what it counts, FI_SEND and FI_RECV at least; none of it was given");
    return -FI_EBADFLAGS;
  }
  if ((flags & transmit_flags) != 0 && p.transmitter != nullptr) {
    p.transmitter->counters.reserve(p.transmitter->counters.size() + 1);
    if (const int status = attach(p, cntr); status != 0) return status;
    p.transmitter->counters.push_back(&cntr);
    if ((flags & FI_SEND) != 0) {
      p.tx->sends = &cntr.counter;
      if (p.core != nullptr) p.core->count_sends();
    }
    if ((flags & FI_READ) != 0) p.tx->reads = &cntr.counter;
    if ((flags & FI_WRITE) != 0) p.tx->writes = &cntr.counter;
  }
  if ((flags & receive_flags) != 0 && p.receiver != nullptr) {
    p.receiver->counters.reserve(p.receiver->counters.size() + 1);
    if (const int status = attach(p, cntr); status != 0) return status;
    p.receiver->counters.push_back(&cntr);
    auto& rx = *p.receiver->sink;
    if ((flags & FI_RECV) != 0) rx.receives = &cntr.counter;
    if ((flags & FI_REMOTE_READ) != 0) rx.remote_reads = &cntr.counter;
    if ((flags & FI_REMOTE_WRITE) != 0) rx.remote_writes = &cntr.counter;
    // What peers do by themselves could not be counted.
    if (p.enabled && p.core != nullptr && (flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
      (void)p.core->stop_serving(false);
  }
  return 0;
}
int bind_av(Port& p, Av& av) {
  if (p.core == nullptr || p.core->av != nullptr) return -FI_EINVAL;
  if (p.type->abilities.connects()) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "a connected endpoint has one peer and no address vector");
    return -FI_EINVAL;
  }
  p.core->av = &av;
  hold(av.users);
  p.core->set_address_vector(av.table.get());
  return 0;
}
int bind_srx(Port& p, Port& srx) {
  if (p.core == nullptr || p.receiver == nullptr || p.shared_receiver != nullptr) return -FI_EINVAL;
  auto& shared = *srx.receiver;
  shared.sharers.reserve(shared.sharers.size() + 1);
  for (size_t i = 0; i < shared.counters.size(); ++i) {
    const int status = shared.counters[i]->attach(*p.core->engine);
    if (status == 0) continue;
    while (i-- > 0) shared.counters[i]->detach(*p.core->engine);
    return status;
  }
  p.core->set_receive_context(0, shared.sink);
  p.core->set_sink(p.receiver->sink);
  p.shared_receiver = &shared;
  p.receives = &shared;
  p.rx = shared.sink;
  hold(shared.users);
  shared.sharers.push_back({p.core->engine, p.receiver->cq});
  shared.choose_reports();
  return 0;
}
bool same_domain(const Port& p, ::fid* other) noexcept {
  if (other->fclass == FI_CLASS_SRX_CTX) return port_of(other).domain == p.domain;
  if (other->fclass == FI_CLASS_STX_CTX) return reinterpret_cast<Stx*>(other)->domain == p.domain;
  return is_of(*p.domain, other);
}

}  // namespace

int bind_port(::fid* fid, ::fid* other, uint64_t flags) {
  Port& p = port_of(fid);
  if (other == nullptr) return -FI_EINVAL;
  if (p.alias) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "an alias has the bindings of its endpoint, and none of its own");
    return -FI_EINVAL;
  }
  if (p.core == nullptr && other->fclass == FI_CLASS_CQ) {
    log_warn(
        provider(p), FI_LOG_EP_CTRL,
        "a shared receive context has no completion queue: what it receives is reported by its endpoints'");
    return -FI_EINVAL;
  }
  if (p.enabled && other->fclass != FI_CLASS_CNTR && other->fclass != FI_CLASS_MR) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "an endpoint is bound before it is enabled");
    return -FI_EOPBADSTATE;
  }
  if (!same_domain(p, other)) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "an endpoint is bound to objects of its own domain only");
    return -FI_EDOMAIN;
  }
  return no_throw([&] {
    std::scoped_lock guard(p.domain->lock);
    switch (other->fclass) {
      case FI_CLASS_CQ:
        return bind_cq(p, *cq_of(other), flags);
      case FI_CLASS_CNTR:
        return bind_counter(p, *cntr_of(other), flags);
      case FI_CLASS_AV:
        return bind_av(p, *av_of(other));
      case FI_CLASS_EQ:
        if (p.eq != nullptr) return -FI_EINVAL;
        p.eq = eq_of(other);
        hold(p.eq->users);
        return 0;
      case FI_CLASS_SRX_CTX:
        if (port_of(other).type != p.type) {
          log_warn(provider(p), FI_LOG_EP_CTRL,
                   "the shared receive context is of a domain that was opened for another type of endpoint");
          return -FI_EINVAL;
        }
        return p.type->many_contexts ? bind_srx(p, port_of(other)) : -FI_ENOSYS;
      case FI_CLASS_STX_CTX:
        if (p.transmitter == nullptr || p.stx != nullptr) return -FI_EINVAL;
        p.stx = reinterpret_cast<fid_stx*>(other);
        hold(reinterpret_cast<Stx*>(other)->users);
        return 0;
      case FI_CLASS_MR:  // every region of the domain is reachable through every endpoint
        return p.type->serves_regions ? 0 : -FI_EINVAL;
      default:
        log_warn(provider(p), FI_LOG_EP_CTRL,
                 "an endpoint is bound to completion queues, counters, an event queue, and to what its "
                 "type has besides: not to this object");
        return -FI_EINVAL;
    }
  });
}

namespace {

// --- state ---
bool has_completions(const proto::TxContext& tx) noexcept {
  return tx.cq != nullptr || tx.sends != nullptr || tx.reads != nullptr || tx.writes != nullptr;
}
bool has_completions(const Port& p) noexcept {
  return p.rx->bound() || (p.receiver != nullptr && p.receiver->sink->bound());
}
// Whether the progress thread may take frames from now on: of a scalable endpoint when the last of its receive contexts
// is enabled, for a frame to one that is not there yet is lost.
bool takes_part(Port& p) noexcept {
  if (p.core == nullptr || p.core->in_progress) return false;
  if (!p.core->scalable) return true;
  if (p.fid.fid.fclass == FI_CLASS_RX_CTX && !p.enabled) ++p.core->rx_enabled;
  return p.core->rx_enabled == p.core->rx_count;
}

}  // namespace

int enable(Port& p) {
  if (p.enabled) return 0;
  if (p.type->abilities.connects()) {
    if (p.core != nullptr && p.eq == nullptr) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_enable: no event queue is bound");
      return -FI_ENOEQ;
    }
  } else if (p.core != nullptr && p.core->av == nullptr) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "fi_enable: no address vector is bound");
    return -FI_ENOAV;
  }
  const bool sends = p.tx != nullptr && (p.caps & (FI_SEND | FI_READ | FI_WRITE)) != 0;
  const bool receives = p.rx != nullptr && (p.caps & FI_RECV) != 0;
  if (p.fid.fid.fclass != FI_CLASS_SEP &&
      ((sends && !has_completions(*p.tx)) || (receives && !has_completions(p)))) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "fi_enable: no completion queue or counter is bound for %s",
             sends && !has_completions(*p.tx) ? "transmitting" : "receiving");
    return -FI_ENOCQ;
  }
  // Whoever shares a receive context may bind counters to it later.
  if (p.core != nullptr && !p.core->scalable && p.receiver != nullptr && p.shared_receiver == nullptr) {
    const proto::RxSink& rx = *p.receiver->sink;
    if (const int status = p.core->serve_regions(rx.remote_reads != nullptr, rx.remote_writes != nullptr);
        status != 0)
      return status;
  }
  if (takes_part(p)) {
    if (const int status = p.domain->begin_progress(*p.core->engine); status != 0) return status;
    p.core->in_progress = true;
  }
  p.enabled = true;
  set_data_vectors(p);
  return 0;
}

namespace {

void use(Port& p, const DataVectors& vectors) noexcept {
  p.fid.msg = vectors.msg;
  p.fid.tagged = vectors.tagged;
  p.fid.rma = vectors.rma;
  p.fid.atomic = vectors.atomic;
}
constexpr DataVectors refusing = {&RefusingOps::msg_ops, &RefusingOps::tagged_ops, &RefusingOps::rma_ops,
                                  &RefusingOps::atomic_ops};
// Before fi_enable. What the engine cannot do is not there afterwards either.
DataVectors refusing_for(const DataVectors& all) noexcept {
  return {all.msg == &NoSuchOps::msg_ops ? all.msg : refusing.msg,
          all.tagged == &NoSuchOps::tagged_ops ? all.tagged : refusing.tagged,
          all.rma == &NoSuchOps::rma_ops ? all.rma : refusing.rma,
          all.atomic == &NoSuchOps::atomic_ops ? all.atomic : refusing.atomic};
}
const DataVectors& vectors_of(const Port& p) noexcept {
  const DataCalls& calls = p.lock->enabled ? p.type->locked : p.type->unlocked;
  if (p.tx != nullptr && p.rx != nullptr) return calls.both;
  if (p.tx != nullptr) return calls.transmit;
  return p.rx != nullptr ? calls.receive : refusing;
}

}  // namespace

void set_data_vectors(Port& p) noexcept {
  if (!p.enabled) return use(p, refusing_for(p.type->unlocked.both));
  use(p, vectors_of(p));
  const bool transmit = p.type->defers && p.tx != nullptr && (p.tx->op_flags & FI_TRIGGER) != 0;
  const bool receive = p.rx != nullptr && (p.alias || (p.type->defers && (p.rx->op_flags & FI_TRIGGER) != 0));
  if (!transmit && !receive) return;
  use_flagged_calls(p, p.flagged_calls, transmit ? &p.tx->op_flags : nullptr,
                    !receive  ? nullptr
                    : p.alias ? &p.alias_receive_flags
                              : &p.rx->op_flags);
}

namespace {

int get_op_flags(Port& p, void* arg) {
  auto* flags = static_cast<uint64_t*>(arg);
  const uint64_t which = *flags;
  if (((which & FI_TRANSMIT) != 0) == ((which & FI_RECV) != 0)) return -FI_EINVAL;
  *flags = (which & FI_TRANSMIT) != 0 ? (p.tx != nullptr ? p.tx->op_flags : 0)
                                      : (p.rx != nullptr ? p.receive_flags() : 0);
  return 0;
}
int set_op_flags(Port& p, void* arg) {
  const uint64_t flags = *static_cast<uint64_t*>(arg);
  if (((flags & FI_TRANSMIT) != 0) == ((flags & FI_RECV) != 0)) return -FI_EINVAL;
  const uint64_t op_flags = flags & ~(FI_TRANSMIT | FI_RECV);
  if ((flags & FI_TRANSMIT) != 0 && p.tx != nullptr) {
    p.tx->op_flags = op_flags;
    p.tx->apply_bindings();
  }
  if ((flags & FI_RECV) != 0 && p.rx != nullptr) {
    if (p.alias) {
      p.alias_receive_flags = op_flags;
    } else {
      p.rx->op_flags = op_flags;
      p.receives->apply_bindings();
    }
  }
  set_data_vectors(p);
  return 0;
}
// The beginning of an alias: what every face of an endpoint has in common.
std::unique_ptr<Port> face_of(Port& p) {
  auto made = std::make_unique<Port>();
  made->fid = p.fid;
  made->type = p.type;
  made->engine = p.engine;
  made->rx = p.rx;
  made->lock = p.lock;
  made->core = p.core;
  made->domain = p.domain;
  made->shared_receiver = p.shared_receiver;
  made->receives = p.receives;
  made->caps = p.caps;
  made->enabled = p.enabled;
  made->parent = &p;
  return made;
}
// Another face of the same endpoint with its own default flags (fi_endpoint(3), fi_ep_alias).
int make_alias(Port& p, struct fi_alias& alias) {
  if (!p.enabled) return -FI_EOPBADSTATE;
  if ((alias.flags & FI_RECV) != 0 && (alias.flags & FI_TRIGGER) != 0) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "fi_ep_alias: receives are triggered by calls with flags only");
    return -FI_ENOSYS;
  }
  auto made = face_of(p);
  made->alias = true;
  if (p.rx != nullptr)
    made->alias_receive_flags = (alias.flags & FI_RECV) != 0 ? alias.flags & ~FI_RECV : p.receive_flags();
  if (p.tx != nullptr) {
    made->transmitter = std::make_unique<Transmitter>(*p.domain);
    made->transmitter->context = *p.tx;
    made->tx = &made->transmitter->context;
    if ((alias.flags & FI_RECV) == 0) {
      made->tx->op_flags = alias.flags & ~FI_TRANSMIT;
      made->tx->apply_bindings();
    }
  }
  set_data_vectors(*made);
  hold(p.users);
  *alias.fid = &made->fid.fid;
  (void)made.release();
  return 0;
}

}  // namespace

int control_port(::fid* fid, int command, void* arg) {
  Port& p = port_of(fid);
  return no_throw([&] {
    std::scoped_lock guard(p.domain->lock);
    switch (command) {
      case FI_ENABLE:
        return enable(p);
      case FI_GETOPSFLAG:
        return arg == nullptr ? -FI_EINVAL : get_op_flags(p, arg);
      case FI_SETOPSFLAG:
        return arg == nullptr ? -FI_EINVAL : set_op_flags(p, arg);
      case work_target_command:
        if (!p.type->defers) return -FI_ENOSYS;
        *static_cast<WorkTarget*>(arg) = work_target_of(p);
        return 0;
      case FI_ALIAS:
        return arg == nullptr ? -FI_EINVAL : make_alias(p, *static_cast<struct fi_alias*>(arg));
      default:
        return -FI_ENOSYS;
    }
  });
}

// --- options and queries ---
ssize_t cancel(::fid* fid, void* context) {
  Port& p = port_of(fid);
  std::scoped_lock guard(p.domain->lock);
  if (p.domain->work->cancel_triggered(&p, context) == 0) return 0;
  if (p.rx != nullptr && p.receives->cancel(context) == 0) return 0;
  return p.core != nullptr && p.tx != nullptr ? p.core->cancel(context) : -FI_ENOENT;
}
// fi_endpoint(3), FI_OPT_MAX_MSG_SIZE to FI_OPT_INJECT_ATOMIC_SIZE. A program that lowers one promises it and reads it back; more than
// promised is still taken. Those of atomics are not offered: a call has fi_atomic_valid(3) elements at most.
size_t size_option(int name) noexcept { return static_cast<size_t>(name - later::max_msg_size); }
bool has_size(const Port& p, int name) noexcept {
  if (p.core == nullptr || p.tx == nullptr) return false;
  const bool tagged = name == later::max_tagged_size || name == later::inject_tagged_size;
  const bool rma = name == later::max_rma_size || name == later::inject_rma_size;
  if (name == later::max_atomic_size || name == later::inject_atomic_size) return false;
  return (p.caps & (tagged ? uint64_t{FI_TAGGED} : rma ? uint64_t{FI_RMA} : FI_MSG | FI_MULTICAST)) != 0;
}
size_t size_limit(const Port& p, int name) noexcept {
  const auto& limits = p.core->limits();
  return name >= later::inject_msg_size ? limits.inject_bytes : limits.message_bytes;
}
int getopt(::fid* fid, int level, int name, void* value, size_t* length) {
  Port& p = port_of(fid);
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  if (value == nullptr || length == nullptr) return -FI_EINVAL;
  size_t answer = 0;
  switch (name) {
    case FI_OPT_MIN_MULTI_RECV:
      if (p.rx == nullptr) return -FI_ENOPROTOOPT;
      answer = p.receives->multi_receive_min();
      break;
    case FI_OPT_CM_DATA_SIZE:
      answer = p.type->connection_data_max;
      break;
    case FI_OPT_TX_SIZE:
      if (p.core == nullptr) return -FI_ENOPROTOOPT;
      answer = p.core->limits().transmit_size;
      break;
    case FI_OPT_RX_SIZE:
      if (p.rx == nullptr) return -FI_ENOPROTOOPT;
      answer = p.receives->posted_max();
      break;
    case later::max_msg_size:
    case later::max_tagged_size:
    case later::max_rma_size:
    case later::inject_msg_size:
    case later::inject_tagged_size:
    case later::inject_rma_size:
      if (!has_size(p, name)) return -FI_ENOPROTOOPT;
      {
        std::scoped_lock guard(p.domain->lock);
        answer = std::min(size_limit(p, name), p.size_options[size_option(name)]);
      }
      break;
    default:
      return -FI_ENOPROTOOPT;
  }
  return copy_option(answer, value, length);
}
// bool options take any of its bytes that are not 0 as true.
int set_permission(const Port& p, int name, const void* value, size_t length) {
  if (value == nullptr || length != sizeof(bool)) return -FI_EINVAL;
  if (name == later::cuda_api_permitted) return 0;  // no call goes there, permitted or not
  if (*static_cast<const unsigned char*>(value) != 0 || !p.domain->provider->shares_memory) return 0;
  log_warn(provider(p), FI_LOG_EP_CTRL,
           "FI_OPT_SHARED_MEMORY_PERMITTED: the provider reaches peers on the same host by shared memory");
  return -FI_EOPNOTSUPP;
}
int set_size(Port& p, int name, const void* value, size_t length) {
  if (!has_size(p, name)) return -FI_ENOPROTOOPT;
  if (value == nullptr || length != sizeof(size_t)) return -FI_EINVAL;
  size_t asked = 0;
  std::memcpy(&asked, value, sizeof asked);
  if (const size_t limit = size_limit(p, name); asked > limit) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "fi_setopt: a size of %zu was asked, the endpoint has at most %zu",
             asked, limit);
    return -FI_EINVAL;
  }
  std::scoped_lock guard(p.domain->lock);
  p.size_options[size_option(name)] = asked;
  return 0;
}
int setopt(::fid* fid, int level, int name, const void* value, size_t length) {
  Port& p = port_of(fid);
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  if (name == later::cuda_api_permitted || name == later::shared_memory_permitted)
    return set_permission(p, name, value, length);
  if (name >= later::max_msg_size && name <= later::inject_atomic_size)
    return set_size(p, name, value, length);
  if (name != FI_OPT_MIN_MULTI_RECV || p.rx == nullptr) return -FI_ENOPROTOOPT;
  if (value == nullptr || length != sizeof(size_t)) return -FI_EINVAL;
  std::scoped_lock guard(p.domain->lock);
  std::memcpy(&p.receives->multi_receive_min(), value, sizeof(size_t));
  return 0;
}
ssize_t rx_size_left(fid_ep* ep) {
  Port& p = port_of(ep);
  if (p.rx == nullptr) return -FI_EINVAL;
  if (!p.enabled) return -FI_EOPBADSTATE;
  std::scoped_lock guard(p.domain->lock);
  return static_cast<ssize_t>(p.receives->posted_max() - p.receives->posted());
}
ssize_t tx_size_left(fid_ep* ep) {
  Port& p = port_of(ep);
  if (p.tx == nullptr || p.core == nullptr) return -FI_EINVAL;
  if (!p.enabled) return -FI_EOPBADSTATE;
  std::scoped_lock guard(p.domain->lock);
  return static_cast<ssize_t>(p.core->limits().transmit_size - p.core->transmit_in_use());
}
int getname(::fid* fid, void* address, size_t* length) {
  Port& p = port_of(fid);
  if (length == nullptr || p.core == nullptr) return -FI_EINVAL;
  return copy_address(p.core->address(), address, length);
}

int setname(::fid* fid, void* address, size_t length) {
  Port& p = port_of(fid);
  if (p.owned_core == nullptr || address == nullptr) return -FI_EINVAL;
  if (p.enabled) return -FI_EOPBADSTATE;
  return no_throw([&] {
    std::vector<std::byte> bytes(p.domain->addrlen);
    const std::string given = link_name(p.domain->addr_format, address, length);
    const bool text = p.domain->addr_format == FI_ADDR_STR;
    if (given.empty() || (text ? given.size() >= bytes.size() : length < bytes.size())) return -FI_EINVAL;
    std::memcpy(bytes.data(), given.data(), std::min(given.size(), bytes.size()));
    if (!p.domain->provider->normalise(p.domain->addr_format, bytes.data())) return -FI_EINVAL;
    const std::string name =
        source_name(*p.domain->provider, p.domain->addr_format, bytes.data(), bytes.size());
    std::scoped_lock guard(p.domain->lock);
    const auto own = p.core->address();
    const std::string before = link_name(p.domain->addr_format, own.data(), own.size());
    p.core->close();
    auto opened = p.core->open_again(p, name);
    if (opened) return 0;
    log_warn(provider(p), FI_LOG_EP_CTRL, "fi_setname: %s", opened.error().why.c_str());
    if (!p.core->open_again(p, before))
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_setname: the old name is lost, too");
    return -opened.error().code;
  });
}

namespace {

// --- closing ---
// The engine may outlive the queue: that of a scalable endpoint is open while its contexts come and go.
void detach(Core& core, Cq& cq) noexcept {
  cq.detach(*core.engine);
  for (const core::Progressor* still : cq.queue.progressors())
    if (still == core.engine) return;
  core.remove_queue(&cq.queue);
}
void detach_all(Port& p) noexcept {
  const auto leave = [&](Cq* cq, std::vector<Cntr*>& counters) {
    if (cq != nullptr) detach(*p.core, *cq);
    for (Cntr* cntr : counters) {
      if (p.core != nullptr) cntr->detach(*p.core->engine);
      else drop(cntr->users);
    }
  };
  if (p.alias) return;
  if (p.transmitter != nullptr) leave(p.transmitter->cq, p.transmitter->counters);
  if (p.receiver != nullptr) leave(p.receiver->cq, p.receiver->counters);
  if (p.shared_receiver != nullptr) {
    leave(nullptr, p.shared_receiver->counters);
    std::erase_if(p.shared_receiver->sharers,
                  [&](const auto& sharer) { return sharer.engine == p.core->engine; });
    p.shared_receiver->choose_reports();
    drop(p.shared_receiver->users);
  }
  if (p.eq != nullptr) drop(p.eq->users);
  if (p.stx != nullptr) drop(reinterpret_cast<Stx*>(p.stx)->users);
}

}  // namespace

void linger(Core& core) noexcept {
  if (!core.belongs_here()) return;  // a forked child must not speak for its parent
  if (!core.has_unsent()) return;
  core.hurry();
  const uint64_t until = os::monotonic_ns() + close_linger_ns;
  while (core.has_unsent() && os::monotonic_ns() < until) {
    core.engine->progress();
    core.push_unsent();
  }
}

int close_port(::fid* fid) {
  Port& p = port_of(fid);
  if (busy(p.users) || (p.receiver != nullptr && busy(p.receiver->users))) {
    log_warn(provider(p), FI_LOG_EP_CTRL, "fi_close: contexts, aliases or endpoints still use this endpoint");
    return -FI_EBUSY;
  }
  Domain& domain = *p.domain;
  const bool alias = p.alias;
  if (p.owned_core != nullptr) {
    std::scoped_lock guard(domain.lock);
    if (const int status = p.core->stop_serving(true); status != 0) {
      log_warn(provider(p), FI_LOG_EP_CTRL,
               "fi_close: a peer that is stopped may still write to memory of the endpoint");
      return status;
    }
  }
  if (p.connection != nullptr) {
    {
      std::scoped_lock guard(domain.lock);
      if (std::exchange(p.core->in_progress, false)) domain.end_progress(*p.core->engine);
    }
    p.connection->leave();
  }
  {
    std::scoped_lock guard(domain.lock);
    domain.work->close_port(&p);
    if (p.owned_core != nullptr) {
      p.core->end_in_place();
      linger(*p.core);
      p.core->end_statistics();
      p.core->abandon();
      if (p.core->work != nullptr) p.core->work->close();
    } else if (p.core != nullptr && !p.alias && p.core->scalable && p.receiver != nullptr) {
      p.core->release_receive_context(p.index);
    }
    if (p.owned_core == nullptr && p.core != nullptr && p.transmitter != nullptr)
      p.core->release_transmit_context(*p.tx);
    if (p.owned_core != nullptr) {
      if (p.type->serves_regions) domain.remove_engine(*p.core->engine);
      if (std::exchange(p.core->in_progress, false)) domain.end_progress(*p.core->engine);
    }
    detach_all(p);
    if (p.owned_core != nullptr && p.core->av != nullptr) drop(p.core->av->users);
    if (p.parent != nullptr) drop(p.parent->users);
    delete &p;
  }
  if (!alias) drop(domain.users);  // last: another thread may wait for that to close the domain
  return 0;
}

}  // namespace weft::fi
