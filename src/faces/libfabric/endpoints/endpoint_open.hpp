// Opens endpoints, scalable endpoints and their contexts, shared contexts, over any engine (fi_endpoint(3)). A provider instantiates this.
#pragma once

#include <string>

#include "faces/libfabric/discovery/match.hpp"
#include "faces/libfabric/endpoints/device.hpp"
#include "faces/libfabric/endpoints/endpoint_control.hpp"
#include "faces/libfabric/endpoints/extensions.hpp"
#include "faces/libfabric/endpoints/group.hpp"
#include "faces/libfabric/endpoints/link_settings.hpp"
#include "os/poll_set.hpp"

namespace weft::fi {

template <proto::EndpointEngine E>
struct Opener {
  using P = Port<E>;
  using Control = ControlOps<E>;
  using Cm = CmOps<E, Control>;

  static proto::EngineLimits limits_of(const fi_tx_attr* tx, const fi_rx_attr* rx) noexcept {
    proto::EngineLimits limits;
    if (tx != nullptr && tx->size != 0) limits.transmit_size = std::max<size_t>(tx->size, 64);
    if (rx != nullptr && rx->size != 0) limits.receive_size = std::max<size_t>(rx->size, 64);
    return limits;
  }
  static Domain& domain_of(P& p) noexcept { return *p.domain; }

  static void set_vectors(P& p, size_t fclass, void* context) noexcept {
    p.fid.fid = {fclass, context, &fid_ops};
    p.fid.ops = &ep_ops;
    p.fid.cm = &cm_ops;
    p.lock = &p.domain->lock;
    Control::set_data_vectors(p);
  }

  static void set_transmitter(P& p, const fi_tx_attr* attr) {
    p.transmitter = std::make_unique<Transmitter>(*p.domain);
    p.tx = &p.transmitter->context;
    p.tx->op_flags = attr != nullptr ? attr->op_flags : 0;
    p.tx->settle();
  }
  static void set_receiver(P& p, const fi_rx_attr* attr, uint64_t caps, uint8_t index,
                           const proto::EngineLimits& limits) {
    p.receiver = std::make_unique<Receiver<typename E::Receive>>(*p.domain, index, limits, os::random_bits());
    p.rx = &p.receiver->context;
    p.rx->op_flags = attr != nullptr ? attr->op_flags : 0;
    p.rx->choose(caps);
    p.rx->settle();
  }
  // FI_SEND and FI_RECV are implied when neither is given with FI_MSG or FI_TAGGED (fi_getinfo(3), capabilities).
  static uint64_t full_caps(uint64_t caps) noexcept {
    if ((caps & (FI_MSG | FI_TAGGED | FI_MULTICAST)) != 0 && (caps & (FI_SEND | FI_RECV)) == 0)
      caps |= FI_SEND | FI_RECV;
    if ((caps & (FI_RMA | FI_ATOMIC)) != 0 &&
        (caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0)
      caps |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (E::abilities.type == FI_EP_DGRAM && (caps & (FI_SEND | FI_RECV)) == 0) caps |= FI_SEND | FI_RECV;
    return caps;
  }

  static std::unique_ptr<P> make_port(Domain& domain, fi_info& info, int& status) {
    auto port = std::make_unique<P>();
    port->domain = &domain;
    port->caps = full_caps(info.caps);
    auto limits = limits_of(info.tx_attr, info.rx_attr);
    if (info.ep_attr->max_msg_size != 0) limits.message_bytes = info.ep_attr->max_msg_size;
    port->owned_core = std::make_unique<Core<E>>(domain, limits);
    port->core = port->owned_core.get();
    port->core->caps = port->caps;
    port->engine = &port->core->engine;
    if constexpr (proto::ServesRegions<E>) port->engine->set_regions(&domain.regions);
    set_device(device_user(*port->engine), domain);
    const std::string name =
        source_name(*domain.provider, domain.addr_format, info.src_addr, info.src_addrlen);
    if constexpr (HasLink<E>) apply_settings(port->engine->link(), domain, info);
    if constexpr (proto::ConnectedEngine<E>) {
      status = open_connection(*port, info, name);
      if (status != 0) port.reset();
    } else {
      auto opened = open_engine(*port->engine, domain, name, &info);
      if (!opened) {
        log_warn(domain.provider->name, FI_LOG_EP_CTRL, "no endpoint: %s", opened.error().why.c_str());
        status = -opened.error().code;
        return nullptr;
      }
      status = 0;
    }
    return port;
  }
  // The last step of opening: Control::close() undoes it.
  static int enroll(P& p) {
    if constexpr (proto::ServesRegions<E>) {
      [[maybe_unused]] Enrolling<DeviceUser<E>> guard(p.domain->lock);
      if (const int status = p.domain->add_engine(*p.engine); status != 0) return status;
    }
    hold(p.domain->users);
    return 0;
  }

  static int refuse(Domain& domain, const fi_info* info) {
    if (info == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
    // Connected endpoints are opened by type (open_by_type); what comes here otherwise is a type that this provider has not.
    const bool unsaid = info->ep_attr->type == FI_EP_UNSPEC && !E::abilities.connects();
    if (info->ep_attr->type == E::abilities.type || unsaid) return 0;
    log_warn(domain.provider->name, FI_LOG_EP_CTRL,
             "ep_attr->type: this provider has no such endpoints of that type");
    return -FI_ENOSYS;
  }

  static int open_endpoint(Domain& domain, fi_info* info, fid_ep** ep, void* context) {
    if (const int refused = refuse(domain, info); refused != 0) return refused;
    return no_throw([&] {
      [[maybe_unused]] WholeOpening<DeviceUser<E>> guard(domain.lock);
      int status = 0;
      auto port = make_port(domain, *info, status);
      if (port == nullptr) return status;
      set_transmitter(*port, info->tx_attr);
      set_receiver(*port, info->rx_attr, port->caps, 0, port->engine->limits());
      port->engine->set_receive_context(0, port->rx);
      set_vectors(*port, FI_CLASS_EP, context);
      if (status = enroll(*port); status != 0) return status;
      *ep = &port.release()->fid;
      return 0;
    });
  }

  static int open_scalable(Domain& domain, fi_info* info, fid_ep** sep, void* context) {
    if (const int refused = refuse(domain, info); refused != 0) return refused;
    return no_throw([&] {
      if (domain.threading == FI_THREAD_COMPLETION && !domain.lock.enabled) {
        log_warn(domain.provider->name, FI_LOG_EP_CTRL,
                 "a scalable endpoint under FI_THREAD_COMPLETION needs a domain that was opened for it: with "
                 "tx_ctx_cnt or rx_ctx_cnt above 1");
        return -FI_EINVAL;
      }
      [[maybe_unused]] WholeOpening<DeviceUser<E>> guard(domain.lock);
      int status = 0;
      auto port = make_port(domain, *info, status);
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

  // A context of a scalable endpoint.
  static std::unique_ptr<P> make_context(P& sep, size_t index, uint64_t caps) {
    auto port = std::make_unique<P>();
    port->domain = sep.domain;
    port->core = sep.core;
    port->engine = sep.engine;
    port->parent = &sep;
    port->index = index;
    port->caps = caps;
    return port;
  }
  static int tx_ctx(fid_ep* sep_fid, int index, fi_tx_attr* attr, fid_ep** tx_ep, void* context) {
    if constexpr (proto::HasManyContexts<E>) {
      P& sep = port_of<E>(sep_fid);
      if (!sep.core->scalable || index < 0 || static_cast<size_t>(index) >= sep.core->tx_count)
        return -FI_EINVAL;
      return no_throw([&] {
        auto port = make_context(sep, static_cast<size_t>(index),
                                 sep.caps & ~(FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE));
        set_transmitter(*port, attr);
        set_vectors(*port, FI_CLASS_TX_CTX, context);
        hold(sep.users);
        hold(sep.domain->users);
        *tx_ep = &port.release()->fid;
        return 0;
      });
    } else {
      return -FI_ENOSYS;
    }
  }
  static int rx_ctx(fid_ep* sep_fid, int index, fi_rx_attr* attr, fid_ep** rx_ep, void* context) {
    if constexpr (proto::HasManyContexts<E>) {
      P& sep = port_of<E>(sep_fid);
      if (!sep.core->scalable || index < 0 || static_cast<size_t>(index) >= sep.core->rx_count ||
          index > 0xff)
        return -FI_EINVAL;
      return no_throw([&] {
        auto port = make_context(sep, static_cast<size_t>(index), sep.caps & ~(FI_SEND | FI_READ | FI_WRITE));
        set_receiver(*port, attr, sep.caps, static_cast<uint8_t>(index), limits_of(nullptr, attr));
        {
          std::scoped_lock guard(sep.domain->lock);
          if (sep.engine->has_receive_context(static_cast<size_t>(index))) return -FI_EBUSY;
          sep.engine->set_receive_context(static_cast<size_t>(index), port->rx);
        }
        set_vectors(*port, FI_CLASS_RX_CTX, context);
        hold(sep.users);
        hold(sep.domain->users);
        *rx_ep = &port.release()->fid;
        return 0;
      });
    } else {
      return -FI_ENOSYS;
    }
  }

  static int open_srx(Domain& domain, fi_rx_attr* attr, fid_ep** srx, void* context) {
    return no_throw([&] {
      auto port = std::make_unique<P>();
      port->domain = &domain;
      port->caps = full_caps(attr != nullptr && attr->caps != 0 ? attr->caps : domain.caps);
      set_receiver(*port, attr, port->caps, 0, limits_of(nullptr, attr));
      port->rx->shared = true;
      port->enabled = true;
      set_vectors(*port, FI_CLASS_SRX_CTX, context);
      hold(domain.users);
      *srx = &port.release()->fid;
      return 0;
    });
  }

  static int close_stx(::fid* fid) {
    auto* stx = reinterpret_cast<Stx*>(fid);
    if (busy(stx->users)) return -FI_EBUSY;
    drop(stx->domain->users);
    delete stx;
    return 0;
  }
  static int open_stx(Domain& domain, fi_tx_attr* attr, fid_stx** stx, void* context) {
    return no_throw([&] {
      static fi_ops stx_fid_ops = {sizeof(fi_ops), close_stx, no_bind,   no_control,
                                   no_ops_open,    no_tostr,  no_ops_set};
      auto made = std::make_unique<Stx>();
      made->fid.fid = {FI_CLASS_STX_CTX, context, &stx_fid_ops};
      made->fid.ops = &ep_ops;
      made->domain = &domain;
      if (attr != nullptr) made->attr = *attr;
      hold(domain.users);
      *stx = &made.release()->fid;
      return 0;
    });
  }

  static fi_ops fid_ops;
  static fi_ops_ep ep_ops;
  static fi_ops_cm cm_ops;
};

template <class E>
fi_ops Opener<E>::fid_ops = {sizeof(fi_ops),    Control::close, Control::bind, Control::control,
                             open_extension<E>, no_tostr,       no_ops_set};
template <class E>
fi_ops_ep Opener<E>::ep_ops = {
    sizeof(fi_ops_ep),     Control::cancel,      Control::getopt, Control::setopt, tx_ctx, rx_ctx,
    Control::rx_size_left, Control::tx_size_left};
template <class E>
fi_ops_cm Opener<E>::cm_ops = {sizeof(fi_ops_cm), Control::setname, Control::getname, Cm::getpeer,
                               Cm::connect,       Cm::no_listen,    Cm::accept,       Cm::no_reject,
                               Cm::shutdown,      Group<E>::join};

// The openers of a provider that has connected endpoints `C` besides the others: by the type of endpoint, and for what endpoints share by
// the type that the domain was opened for.
template <class E, class C>
struct OpenerByType {
  static int open_endpoint(Domain& domain, fi_info* info, fid_ep** ep, void* context) {
    const bool connected = info != nullptr && info->ep_attr != nullptr && info->ep_attr->type == FI_EP_MSG;
    return connected ? Opener<C>::open_endpoint(domain, info, ep, context)
                     : Opener<E>::open_endpoint(domain, info, ep, context);
  }
  static int open_srx(Domain& domain, fi_rx_attr* attr, fid_ep** srx, void* context) {
    return domain.endpoint_type == FI_EP_MSG ? Opener<C>::open_srx(domain, attr, srx, context)
                                             : Opener<E>::open_srx(domain, attr, srx, context);
  }
};

}  // namespace weft::fi
