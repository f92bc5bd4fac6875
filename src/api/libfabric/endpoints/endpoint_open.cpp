// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening of endpoints and contexts, whatever their engine.
#include "api/libfabric/endpoints/endpoint_open.hpp"
#include "api/libfabric/abi/prepared.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "api/libfabric/discovery/link_name.hpp"
#include "api/libfabric/discovery/match.hpp"
#include "api/libfabric/endpoints/endpoint_control.hpp"
#include "base/settings.hpp"

namespace weft::fi {
namespace {

int tx_ctx(fid_ep* sep_fid, int index, fi_tx_attr* attr, fid_ep** tx_ep, void* context);
int rx_ctx(fid_ep* sep_fid, int index, fi_rx_attr* attr, fid_ep** rx_ep, void* context);

layout::Prepared<fi_ops_ep, 1> port_ops = {
    {sizeof(fi_ops_ep), cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left}, {}};

proto::EngineLimits limits_of(const fi_tx_attr* tx, const fi_rx_attr* rx) noexcept {
  proto::EngineLimits limits;
  limits.inject_errors = settings::flag("WEFT_INJECT_ERRORS");
  if (tx != nullptr && tx->size != 0) limits.transmit_size = std::max<size_t>(tx->size, 64);
  if (rx != nullptr && rx->size != 0) limits.receive_size = std::max<size_t>(rx->size, 64);
  return limits;
}

void set_vectors(Port& p, size_t fclass, void* context) noexcept {
  p.fid.fid = {fclass, context, p.type->fid_ops};
  p.fid.ops = &port_ops;
  p.fid.cm = p.type->cm_ops;
  p.lock = &p.domain->lock;
  set_data_vectors(p);
}

void set_transmitter(Port& p, const fi_tx_attr* attr) {
  p.transmitter = std::make_unique<Transmitter>(*p.domain);
  p.tx = &p.transmitter->context;
  p.tx->op_flags = attr != nullptr ? attr->op_flags : 0;
  p.tx->apply_bindings();
}
void set_receiver(Port& p, const fi_rx_attr* attr, uint64_t caps, uint8_t index,
                  const proto::EngineLimits& limits) {
  p.receiver = p.type->make_receiver(*p.domain, index, limits);
  p.receives = p.receiver.get();
  p.rx = p.receiver->sink;
  p.rx->op_flags = attr != nullptr ? attr->op_flags : 0;
  p.receiver->choose(caps);
  p.receiver->apply_bindings();
}
// FI_SEND and FI_RECV are implied when neither is given with FI_MSG or FI_TAGGED (fi_getinfo(3), capabilities).
uint64_t full_caps(uint64_t caps, fi_ep_type type) noexcept {
  if ((caps & (FI_MSG | FI_TAGGED | FI_MULTICAST)) != 0 && (caps & (FI_SEND | FI_RECV)) == 0)
    caps |= FI_SEND | FI_RECV;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 &&
      (caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0)
    caps |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if (type == FI_EP_DGRAM && (caps & (FI_SEND | FI_RECV)) == 0) caps |= FI_SEND | FI_RECV;
  return caps;
}

// A device is entered with the domain's lock held only, so with one the lock is held from before the link exists until
// the endpoint is enrolled, or gone. Else while it is enrolled.
std::unique_lock<DomainLock> lock_opening(const EngineType& type, Domain& domain) {
  return type.uses_device ? std::unique_lock(domain.lock) : std::unique_lock(domain.lock, std::defer_lock);
}

std::unique_ptr<Port> make_port(const EngineType& type, Domain& domain, const fi_info& info, int& status) {
  auto port = std::make_unique<Port>();
  port->type = &type;
  port->domain = &domain;
  port->caps = full_caps(info.caps, type.abilities.type);
  auto limits = limits_of(info.tx_attr, info.rx_attr);
  if (info.ep_attr->max_msg_size != 0) limits.message_bytes = info.ep_attr->max_msg_size;
  limits.driven = domain.driven();
  port->owned_core = type.make_core(domain, limits);
  port->core = port->owned_core.get();
  port->engine = port->core->engine;
  std::string source = source_name(*domain.provider, domain.addr_format, info.src_addr, info.src_addrlen);
  if (source.empty()) source = domain.source;
  status = port->core->open(*port, info, source);
  if (status != 0) port.reset();
  return port;
}
// The last step of opening: close_port() undoes it.
int enroll(Port& p) {
  if (p.type->serves_regions) {
    std::unique_lock lock(p.domain->lock, std::defer_lock);
    if (!p.type->uses_device) lock.lock();
    if (const int status = p.domain->add_engine(*p.engine); status != 0) return status;
  }
  hold(p.domain->users);
  return 0;
}

int refuse(const EngineType& type, const Domain& domain, const fi_info* info) {
  if (info == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
  // Connected endpoints are opened by type (OpenerByType); what comes here otherwise is a type that this provider has
  // not.
  const bool unsaid = info->ep_attr->type == FI_EP_UNSPEC && !type.abilities.connects();
  if (info->ep_attr->type == type.abilities.type || unsaid) return 0;
  log_warn(domain.provider->name, FI_LOG_EP_CTRL,
           "ep_attr->type: this provider has no such endpoints of that type");
  return -FI_ENOSYS;
}

// A context of a scalable endpoint.
std::unique_ptr<Port> make_context(Port& sep, size_t index, uint64_t caps) {
  auto port = std::make_unique<Port>();
  port->type = sep.type;
  port->domain = sep.domain;
  port->core = sep.core;
  port->engine = sep.engine;
  port->parent = &sep;
  port->index = index;
  port->caps = caps;
  return port;
}
bool is_context(const Port& sep, int index, size_t count) noexcept {
  return sep.core != nullptr && sep.core->scalable && index >= 0 && static_cast<size_t>(index) < count;
}
int give(Port& sep, std::unique_ptr<Port> port, fid_ep** out) noexcept {
  hold(sep.users);
  hold(sep.domain->users);
  *out = &port.release()->fid;
  return 0;
}
int tx_ctx(fid_ep* sep_fid, int index, fi_tx_attr* attr, fid_ep** tx_ep, void* context) {
  Port& sep = port_of(sep_fid);
  if (!sep.type->many_contexts) return -FI_ENOSYS;
  if (!is_context(sep, index, sep.core->tx_count)) return -FI_EINVAL;
  return no_throw([&] {
    auto port = make_context(sep, static_cast<size_t>(index),
                             sep.caps & ~(FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE));
    set_transmitter(*port, attr);
    set_vectors(*port, FI_CLASS_TX_CTX, context);
    return give(sep, std::move(port), tx_ep);
  });
}
int rx_ctx(fid_ep* sep_fid, int index, fi_rx_attr* attr, fid_ep** rx_ep, void* context) {
  Port& sep = port_of(sep_fid);
  if (!sep.type->many_contexts) return -FI_ENOSYS;
  if (!is_context(sep, index, std::min<size_t>(sep.core->rx_count, 0x100))) return -FI_EINVAL;
  return no_throw([&] {
    auto port = make_context(sep, static_cast<size_t>(index), sep.caps & ~(FI_SEND | FI_READ | FI_WRITE));
    set_receiver(*port, attr, sep.caps, static_cast<uint8_t>(index), limits_of(nullptr, attr));
    {
      std::scoped_lock guard(sep.domain->lock);
      if (sep.core->has_receive_context(static_cast<size_t>(index))) return -FI_EBUSY;
      sep.core->set_receive_context(static_cast<size_t>(index), port->rx);
    }
    set_vectors(*port, FI_CLASS_RX_CTX, context);
    return give(sep, std::move(port), rx_ep);
  });
}

int close_stx(::fid* fid) {
  auto* stx = reinterpret_cast<Stx*>(fid);
  if (busy(stx->users)) return -FI_EBUSY;
  drop(stx->domain->users);
  delete stx;
  return 0;
}

}  // namespace

int no_listen(fid_pep*) { return -FI_ENOSYS; }
int no_reject(fid_pep*, fid_t, const void*, size_t) { return -FI_ENOSYS; }

int open_endpoint(const EngineType& type, Domain& domain, fi_info* info, fid_ep** ep, void* context) {
  if (const int refused = refuse(type, domain, info); refused != 0) return refused;
  return no_throw([&] {
    const auto lock = lock_opening(type, domain);
    int status = 0;
    auto port = make_port(type, domain, *info, status);
    if (port == nullptr) return status;
    set_transmitter(*port, info->tx_attr);
    set_receiver(*port, info->rx_attr, port->caps, 0, port->core->limits());
    port->core->set_receive_context(0, port->rx);
    set_vectors(*port, FI_CLASS_EP, context);
    if (status = enroll(*port); status != 0) return status;
    *ep = &port.release()->fid;
    return 0;
  });
}

int open_scalable(const EngineType& type, Domain& domain, fi_info* info, fid_ep** sep, void* context) {
  if (const int refused = refuse(type, domain, info); refused != 0) return refused;
  return no_throw([&] {
    if (domain.threading == FI_THREAD_COMPLETION && !domain.lock.enabled) {
      log_warn(domain.provider->name, FI_LOG_EP_CTRL,
               "a scalable endpoint under FI_THREAD_COMPLETION needs a domain that was opened for it: with "
               "tx_ctx_cnt or rx_ctx_cnt above 1");
      return -FI_EINVAL;
    }
    const auto lock = lock_opening(type, domain);
    int status = 0;
    auto port = make_port(type, domain, *info, status);
    if (port == nullptr) return status;
    port->core->scalable = true;
    port->core->tx_count = std::max<size_t>(info->ep_attr->tx_ctx_cnt, 1);
    port->core->rx_count = std::max<size_t>(info->ep_attr->rx_ctx_cnt, 1);
    set_vectors(*port, FI_CLASS_SEP, context);
    if (status = enroll(*port); status != 0) return status;
    *sep = &port.release()->fid;
    return 0;
  });
}

int open_srx(const EngineType& type, Domain& domain, fi_rx_attr* attr, fid_ep** srx, void* context) {
  return no_throw([&] {
    auto port = std::make_unique<Port>();
    port->type = &type;
    port->domain = &domain;
    port->caps =
        full_caps(attr != nullptr && attr->caps != 0 ? attr->caps : domain.caps, type.abilities.type);
    set_receiver(*port, attr, port->caps, 0, limits_of(nullptr, attr));
    port->receiver->set_shared();
    port->enabled = true;
    set_vectors(*port, FI_CLASS_SRX_CTX, context);
    hold(domain.users);
    *srx = &port.release()->fid;
    return 0;
  });
}

int open_stx(Domain& domain, fi_tx_attr* attr, fid_stx** stx, void* context) {
  static fi_ops fid_ops = {sizeof(fi_ops), close_stx, no_bind, no_control, no_ops_open, no_tostr, no_ops_set};
  static const Answer<FI_ENOSYS> no{};
  static layout::Prepared<fi_ops_ep, 1> ops = {{sizeof(fi_ops_ep), no, no, no, no, no, no, no}, {}};
  return no_throw([&] {
    auto made = std::make_unique<Stx>();
    made->fid.fid = {FI_CLASS_STX_CTX, context, &fid_ops};
    made->fid.ops = &ops;
    made->domain = &domain;
    if (attr != nullptr) made->attr = *attr;
    hold(domain.users);
    *stx = &made.release()->fid;
    return 0;
  });
}

}  // namespace weft::fi
