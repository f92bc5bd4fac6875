// What is done to an endpoint apart from moving data: binding, enabling, options, names, closing (fi_endpoint(3), fi_cm(3)).
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "faces/libfabric/endpoints/answers.hpp"
#include "faces/libfabric/endpoints/connected.hpp"
#include "faces/libfabric/endpoints/endpoint_data.hpp"
#include "faces/libfabric/endpoints/engine_open.hpp"
#include "faces/libfabric/endpoints/in_place.hpp"
#include "os/clock.hpp"

namespace weft::fi {

inline constexpr uint64_t close_linger_ns =
    500'000'000;  // for operations that were accepted and not handed over yet

template <class E>
struct ControlOps {
  using P = Port<E>;

  static const char* provider(const P& p) noexcept { return p.domain->provider->name; }

  // --- binding ---
  static int attach(P& p, Cq& cq) {
    if (p.core == nullptr) return -FI_EINVAL;
    if (const int status = cq.attach(p.core->engine); status != 0) return status;
    p.core->engine.add_queue(&cq.queue);
    return 0;
  }
  // An SRX drives nothing by itself: it holds what its endpoints attach to, those that are there and those that come.
  static int attach(P& p, Cntr& cntr) {
    if (p.core != nullptr) return cntr.attach(p.core->engine);
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
  static int bind_cq(P& p, Cq& cq, uint64_t flags) {
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
      p.tx->settle();
    }
    if (receives && p.receiver != nullptr) {
      if (const int status = attach(p, cq); status != 0) return status;
      p.receiver->cq = &cq;
      p.receiver->context.cq = &cq.queue;
      p.receiver->context.selective = selective;
      p.receiver->context.settle();
      if constexpr (proto::HasManyContexts<E>)
        if (p.shared_receiver != nullptr) {
          for (auto& sharer : p.shared_receiver->sharers)
            if (sharer.engine == &p.core->engine) sharer.cq = &cq;
          p.shared_receiver->choose_reports();
        }
    }
    return 0;
  }
  static int bind_counter(P& p, Cntr& cntr, uint64_t flags) {
    constexpr uint64_t transmit_flags = E::abilities.transmit_caps & (FI_SEND | FI_READ | FI_WRITE);
    constexpr uint64_t receive_flags =
        E::abilities.receive_caps & (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE);
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
        if (p.engine != nullptr) p.engine->count_sends();
      }
      if ((flags & FI_READ) != 0) p.tx->reads = &cntr.counter;
      if ((flags & FI_WRITE) != 0) p.tx->writes = &cntr.counter;
    }
    if ((flags & receive_flags) != 0 && p.receiver != nullptr) {
      p.receiver->counters.reserve(p.receiver->counters.size() + 1);
      if (const int status = attach(p, cntr); status != 0) return status;
      p.receiver->counters.push_back(&cntr);
      auto& rx = p.receiver->context;
      if ((flags & FI_RECV) != 0) rx.receives = &cntr.counter;
      if ((flags & FI_REMOTE_READ) != 0) rx.remote_reads = &cntr.counter;
      if ((flags & FI_REMOTE_WRITE) != 0) rx.remote_writes = &cntr.counter;
      if constexpr (ServesDirectly<E>)  // what peers did by themselves could not be counted
        if (p.enabled && p.core != nullptr && (flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
          (void)p.core->engine.stop_serving();
    }
    return 0;
  }
  static int bind_av(P& p, Av& av) {
    if (p.core == nullptr || p.core->av != nullptr) return -FI_EINVAL;
    if constexpr (E::abilities.connects()) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "a connected endpoint has one peer and no address vector");
      return -FI_EINVAL;
    }
    p.core->av = &av;
    hold(av.users);
    p.core->engine.set_address_vector(av.table.get());
    return 0;
  }
  static int bind_srx(P& p, P& srx) {
    if (p.core == nullptr || p.receiver == nullptr || p.shared_receiver != nullptr) return -FI_EINVAL;
    auto& shared = *srx.receiver;
    shared.sharers.reserve(shared.sharers.size() + 1);
    for (size_t i = 0; i < shared.counters.size(); ++i) {
      const int status = shared.counters[i]->attach(p.core->engine);
      if (status == 0) continue;
      while (i-- > 0) shared.counters[i]->detach(p.core->engine);
      return status;
    }
    p.core->engine.set_receive_context(0, &shared.context);
    p.core->engine.set_sink(&p.receiver->context);
    p.shared_receiver = &shared;
    p.rx = &shared.context;
    hold(shared.users);
    shared.sharers.push_back({&p.core->engine, p.receiver->cq});
    shared.choose_reports();
    return 0;
  }
  static bool same_domain(const P& p, ::fid* other) noexcept {
    if (other->fclass == FI_CLASS_SRX_CTX) return port_of<E>(other).domain == p.domain;
    if (other->fclass == FI_CLASS_STX_CTX) return reinterpret_cast<Stx*>(other)->domain == p.domain;
    return is_of(*p.domain, other);
  }
  static int bind(::fid* fid, ::fid* other, uint64_t flags) {
    P& p = port_of<E>(fid);
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
          if (other->ops != fid->ops) {
            log_warn(
                provider(p), FI_LOG_EP_CTRL,
                "the shared receive context is of a domain that was opened for another type of endpoint");
            return -FI_EINVAL;
          }
          if constexpr (proto::HasManyContexts<E>) return bind_srx(p, port_of<E>(other));
          else return -FI_ENOSYS;
        case FI_CLASS_STX_CTX:
          if (p.transmitter == nullptr || p.stx != nullptr) return -FI_EINVAL;
          p.stx = reinterpret_cast<fid_stx*>(other);
          hold(reinterpret_cast<Stx*>(other)->users);
          return 0;
        case FI_CLASS_MR:  // every region of the domain is reachable through every endpoint
          return proto::ServesRegions<E> ? 0 : -FI_EINVAL;
        default:
          log_warn(provider(p), FI_LOG_EP_CTRL,
                   "an endpoint is bound to completion queues, counters, an event queue, and to what its "
                   "type has besides: not to this object");
          return -FI_EINVAL;
      }
    });
  }

  // --- state ---
  static bool has_completions(const proto::TxContext& tx) noexcept {
    return tx.cq != nullptr || tx.sends != nullptr || tx.reads != nullptr || tx.writes != nullptr;
  }
  static bool has_completions(const P& p) noexcept {
    return p.rx->bound() || (p.receiver != nullptr && p.receiver->context.bound());
  }
  static int enable(P& p) {
    if (p.enabled) return 0;
    if constexpr (E::abilities.connects()) {
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
    if constexpr (ServesDirectly<E>)
      // Whoever shares a receive context may bind counters to it later.
      if (p.core != nullptr && !p.core->scalable && p.receiver != nullptr && p.shared_receiver == nullptr) {
        const auto& rx = p.receiver->context;
        if (const int status =
                p.core->engine.serve_regions(rx.remote_reads != nullptr, rx.remote_writes != nullptr);
            status != 0)
          return status;
      }
    if (takes_part(p)) {
      if (const int status = p.domain->begin_progress(p.core->engine); status != 0) return status;
      p.core->in_progress = true;
    }
    p.enabled = true;
    set_data_vectors(p);
    return 0;
  }
  // Whether the progress thread may take frames from now on: of a scalable endpoint when the last of its receive contexts is enabled, for a frame to one
  // that is not there yet is lost.
  static bool takes_part(P& p) noexcept {
    if (p.core == nullptr || p.core->in_progress) return false;
    if (!p.core->scalable) return true;
    if (p.fid.fid.fclass == FI_CLASS_RX_CTX && !p.enabled) ++p.core->rx_enabled;
    return p.core->rx_enabled == p.core->rx_count;
  }
  // The data vectors by lock and default flags, and refusing ones before the endpoint is enabled.
  static void set_data_vectors(P& p) noexcept {
    if (!p.enabled) use<RefusingOps>(p);
    else if (p.lock->enabled) use_defaults<DataOps<E, SharedLock>>(p);
    else use_defaults<DataOps<E, NoLock>>(p);
  }
  template <class Ops>
  static void use_defaults(P& p) noexcept {
    use_half<Ops>(p);
    const bool triggers = proto::RunsDeferredWork<E>;
    const bool transmit = triggers && p.tx != nullptr && (p.tx->op_flags & FI_TRIGGER) != 0;
    const bool receive = p.rx != nullptr && (p.alias || (triggers && (p.rx->op_flags & FI_TRIGGER) != 0));
    if (!transmit && !receive) return;
    use_flagged_calls(p, p.flagged_calls, transmit ? &p.tx->op_flags : nullptr,
                      !receive  ? nullptr
                      : p.alias ? &p.alias_receive_flags
                                : &p.rx->op_flags);
  }
  template <class Ops>
  static void use_half(P& p) noexcept {
    if (p.tx != nullptr && p.rx != nullptr) use<Ops>(p);
    else if (p.tx != nullptr) use<TransmitOnly<Ops>>(p);
    else if (p.rx != nullptr) use<ReceiveOnly<Ops>>(p);
    else use<RefusingOps>(p);
  }
  template <class Ops>
  static void use(P& p) noexcept {
    p.fid.msg = &Ops::msg_ops;
    if constexpr (E::abilities.has(FI_TAGGED)) p.fid.tagged = &Ops::tagged_ops;
    else p.fid.tagged = &NoSuchOps::tagged_ops;
    if constexpr (E::abilities.has(FI_RMA)) p.fid.rma = &Ops::rma_ops;
    else p.fid.rma = &NoSuchOps::rma_ops;
    if constexpr (E::abilities.has(FI_ATOMIC)) p.fid.atomic = &Ops::atomic_ops;
    else p.fid.atomic = &NoSuchOps::atomic_ops;
  }
  static int get_op_flags(P& p, void* arg) {
    auto* flags = static_cast<uint64_t*>(arg);
    const uint64_t which = *flags;
    if (((which & FI_TRANSMIT) != 0) == ((which & FI_RECV) != 0)) return -FI_EINVAL;
    *flags = (which & FI_TRANSMIT) != 0 ? (p.tx != nullptr ? p.tx->op_flags : 0)
                                        : (p.rx != nullptr ? p.receive_flags() : 0);
    return 0;
  }
  static int set_op_flags(P& p, void* arg) {
    const uint64_t flags = *static_cast<uint64_t*>(arg);
    if (((flags & FI_TRANSMIT) != 0) == ((flags & FI_RECV) != 0)) return -FI_EINVAL;
    const uint64_t op_flags = flags & ~(FI_TRANSMIT | FI_RECV);
    if ((flags & FI_TRANSMIT) != 0 && p.tx != nullptr) {
      p.tx->op_flags = op_flags;
      p.tx->settle();
    }
    if ((flags & FI_RECV) != 0 && p.rx != nullptr) {
      if (p.alias) {
        p.alias_receive_flags = op_flags;
      } else {
        p.rx->op_flags = op_flags;
        p.rx->settle();
      }
    }
    set_data_vectors(p);
    return 0;
  }
  // Another face of the same endpoint with its own default flags (fi_endpoint(3), fi_ep_alias).
  static int make_alias(P& p, struct fi_alias& alias) {
    if (!p.enabled) return -FI_EOPBADSTATE;
    if ((alias.flags & FI_RECV) != 0 && (alias.flags & FI_TRIGGER) != 0) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_ep_alias: receives are triggered by calls with flags only");
      return -FI_ENOSYS;
    }
    auto made = face_of(p);
    made->alias = true;
    made->rx = p.rx;
    made->shared_receiver = p.shared_receiver;
    if (p.rx != nullptr)
      made->alias_receive_flags = (alias.flags & FI_RECV) != 0 ? alias.flags & ~FI_RECV : p.receive_flags();
    if (p.tx != nullptr) {
      made->transmitter = std::make_unique<Transmitter>(*p.domain);
      made->transmitter->context = *p.tx;
      made->tx = &made->transmitter->context;
      if ((alias.flags & FI_RECV) == 0) {
        made->tx->op_flags = alias.flags & ~FI_TRANSMIT;
        made->tx->settle();
      }
    }
    set_data_vectors(*made);
    hold(p.users);
    *alias.fid = &made->fid.fid;
    (void)made.release();
    return 0;
  }
  static int control(::fid* fid, int command, void* arg) {
    P& p = port_of<E>(fid);
    return no_throw([&] {
      std::scoped_lock guard(p.domain->lock);
      switch (command) {
        case FI_ENABLE:
          return enable(p);
        case FI_GETOPSFLAG:
          return arg == nullptr ? -FI_EINVAL : get_op_flags(p, arg);
        case FI_SETOPSFLAG:
          return arg == nullptr ? -FI_EINVAL : set_op_flags(p, arg);
        case work_place_command:
          if constexpr (proto::RunsDeferredWork<E>) *static_cast<WorkPlace*>(arg) = place_of<E>(p);
          return proto::RunsDeferredWork<E> ? 0 : -FI_ENOSYS;
        case FI_ALIAS:
          return arg == nullptr ? -FI_EINVAL : make_alias(p, *static_cast<struct fi_alias*>(arg));
        default:
          return -FI_ENOSYS;
      }
    });
  }

  // --- options and queries ---
  static ssize_t cancel(::fid* fid, void* context) {
    P& p = port_of<E>(fid);
    std::scoped_lock guard(p.domain->lock);
    if (p.domain->work->cancel_triggered(&p, context) == 0) return 0;
    if (p.rx != nullptr && p.rx->cancel(context) == 0) return 0;
    return p.engine != nullptr && p.tx != nullptr ? p.engine->cancel(context) : -FI_ENOENT;
  }
  static int getopt(::fid* fid, int level, int name, void* value, size_t* length) {
    P& p = port_of<E>(fid);
    if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
    if (value == nullptr || length == nullptr) return -FI_EINVAL;
    size_t answer = 0;
    switch (name) {
      case FI_OPT_MIN_MULTI_RECV:
        if (p.rx == nullptr) return -FI_ENOPROTOOPT;
        answer = p.rx->multi_receive_min;
        break;
      case FI_OPT_CM_DATA_SIZE:
        if constexpr (proto::ConnectedEngine<E>) answer = E::Connection::connection_data_bytes_max;
        break;
      case FI_OPT_TX_SIZE:
        if (p.engine == nullptr) return -FI_ENOPROTOOPT;
        answer = p.engine->limits().transmit_size;
        break;
      case FI_OPT_RX_SIZE:
        if (p.rx == nullptr) return -FI_ENOPROTOOPT;
        answer = p.rx->posted_max();
        break;
      default:
        return -FI_ENOPROTOOPT;
    }
    return give_option(answer, value, length);
  }
  static int setopt(::fid* fid, int level, int name, const void* value, size_t length) {
    P& p = port_of<E>(fid);
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV || p.rx == nullptr) return -FI_ENOPROTOOPT;
    if (value == nullptr || length != sizeof(size_t)) return -FI_EINVAL;
    std::scoped_lock guard(p.domain->lock);
    std::memcpy(&p.rx->multi_receive_min, value, sizeof(size_t));
    return 0;
  }
  static ssize_t rx_size_left(fid_ep* ep) {
    P& p = port_of<E>(ep);
    if (p.rx == nullptr) return -FI_EINVAL;
    if (!p.enabled) return -FI_EOPBADSTATE;
    std::scoped_lock guard(p.domain->lock);
    return static_cast<ssize_t>(p.rx->posted_max() - p.rx->posted());
  }
  static ssize_t tx_size_left(fid_ep* ep) {
    P& p = port_of<E>(ep);
    if (p.tx == nullptr || p.engine == nullptr) return -FI_EINVAL;
    if (!p.enabled) return -FI_EOPBADSTATE;
    std::scoped_lock guard(p.domain->lock);
    return static_cast<ssize_t>(p.engine->limits().transmit_size - p.engine->transmit_in_use());
  }
  static int getname(::fid* fid, void* address, size_t* length) {
    P& p = port_of<E>(fid);
    if (length == nullptr || p.engine == nullptr) return -FI_EINVAL;
    return give_address(p.engine->address(), address, length);
  }

  // Another name, before the endpoint is enabled (fi_cm(3)). The old one stays when the new one is taken.
  static int setname(::fid* fid, void* address, size_t length) {
    P& p = port_of<E>(fid);
    if (p.engine == nullptr || p.owned_core == nullptr || address == nullptr) return -FI_EINVAL;
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
      const auto own = p.engine->address();
      const std::string before = link_name(p.domain->addr_format, own.data(), own.size());
      p.engine->close();
      auto opened = open_link(p, name);
      if (opened) return 0;
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_setname: %s", opened.error().why.c_str());
      if (!open_link(p, before))
        log_warn(provider(p), FI_LOG_EP_CTRL, "fi_setname: the old name is lost, too");
      return -opened.error().code;
    });
  }
  static Result<void> open_link(P& p, const std::string& name) {
    if constexpr (proto::ConnectedEngine<E>)
      return p.engine->open(name, static_cast<Connector<E>&>(*p.connection));
    else return open_engine(*p.engine, *p.domain, name, nullptr);
  }

  // --- closing ---
  // The engine may outlive the queue: that of a scalable endpoint is open while its contexts come and go.
  static void detach(E& engine, Cq& cq) noexcept {
    cq.detach(engine);
    for (const core::Progressor* still : cq.queue.progressors())
      if (still == &engine) return;
    engine.remove_queue(&cq.queue);
  }
  static void detach_all(P& p) noexcept {
    const auto leave = [&](Cq* cq, std::vector<Cntr*>& counters) {
      if (cq != nullptr) detach(p.core->engine, *cq);
      for (Cntr* cntr : counters) {
        if (p.core != nullptr) cntr->detach(p.core->engine);
        else drop(cntr->users);
      }
    };
    if (p.alias) return;
    if (p.transmitter != nullptr) leave(p.transmitter->cq, p.transmitter->counters);
    if (p.receiver != nullptr) leave(p.receiver->cq, p.receiver->counters);
    if (p.shared_receiver != nullptr) {
      leave(nullptr, p.shared_receiver->counters);
      std::erase_if(p.shared_receiver->sharers,
                    [&](const auto& sharer) { return sharer.engine == &p.core->engine; });
      if constexpr (proto::HasManyContexts<E>) p.shared_receiver->choose_reports();
      drop(p.shared_receiver->users);
    }
    if (p.eq != nullptr) drop(p.eq->users);
    if (p.stx != nullptr) drop(reinterpret_cast<Stx*>(p.stx)->users);
  }
  // Gives what was accepted a chance to leave (an injected message belongs to us), within a bound.
  static void linger(P& p) noexcept {
    if constexpr (proto::KnowsItsProcess<E>) {
      if (!p.core->engine.belongs_here()) return;  // a forked child must not speak for its parent
    }
    if (!p.core->engine.has_unsent()) return;
    if constexpr (proto::Hurries<E>) p.core->engine.hurry();
    const uint64_t until = os::monotonic_ns() + close_linger_ns;
    while (p.core->engine.has_unsent() && os::monotonic_ns() < until) {
      p.core->engine.progress();
      p.core->engine.push_unsent();
    }
  }
  static int close(::fid* fid) {
    P& p = port_of<E>(fid);
    if (busy(p.users) || (p.receiver != nullptr && busy(p.receiver->users))) {
      log_warn(provider(p), FI_LOG_EP_CTRL,
               "fi_close: contexts, aliases or endpoints still use this endpoint");
      return -FI_EBUSY;
    }
    Domain& domain = *p.domain;
    const bool alias = p.alias;
    if constexpr (ServesDirectly<E>)
      if (p.owned_core != nullptr) {
        std::scoped_lock guard(domain.lock);
        if (const int status = p.core->engine.stop_serving(); status != 0) {
          log_warn(provider(p), FI_LOG_EP_CTRL,
                   "fi_close: a peer that is stopped may still write to memory of the endpoint");
          return status;
        }
      }
    if (p.connection != nullptr) {
      {
        std::scoped_lock guard(domain.lock);
        if (std::exchange(p.core->in_progress, false)) domain.end_progress(p.core->engine);
      }
      p.connection->leave();
    }
    {
      std::scoped_lock guard(domain.lock);
      domain.work->close_port(&p);
      if (p.owned_core != nullptr) {
        if constexpr (InPlaceEngine<E>) p.core->engine.end_in_place();
        linger(p);
        p.core->engine.abandon();
        if (p.core->work != nullptr) p.core->work->close();
      } else if (p.core != nullptr && !p.alias && p.core->scalable && p.receiver != nullptr) {
        if constexpr (proto::HasManyContexts<E>) p.core->engine.release_receive_context(p.index);
      }
      if constexpr (proto::HasManyContexts<E>)
        if (p.owned_core == nullptr && p.core != nullptr && p.transmitter != nullptr)
          p.core->engine.release_transmit_context(*p.tx);
      if (p.owned_core != nullptr) {
        if constexpr (proto::ServesRegions<E>) domain.remove_engine(p.core->engine);
        if (std::exchange(p.core->in_progress, false)) domain.end_progress(p.core->engine);
      }
      detach_all(p);
      if (p.owned_core != nullptr && p.core->av != nullptr) drop(p.core->av->users);
      if (p.parent != nullptr) drop(p.parent->users);
      delete &p;
    }
    if (!alias) drop(domain.users);  // last: another thread may wait for that to close the domain
    return 0;
  }
};

}  // namespace weft::fi
