// What is done to a datagram endpoint apart from moving data: binding, enabling, options, names, multicast groups, closing (fi_endpoint(3),
// fi_cm(3)). Must not know which links exist.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "faces/libfabric/answers.hpp"
#include "faces/libfabric/datagram_endpoint.hpp"
#include "link/packet/middleware.hpp"
#include "os/clock.hpp"

namespace weft::fi {

template <class L>
struct DatagramControl {
  using P = DatagramPort<L>;
  static constexpr uint64_t linger_ns =
      500'000'000;  // for datagrams that were accepted and found no room yet

  static const char* provider(const P& p) noexcept { return p.domain->provider->name; }

  // --- binding ---
  static int bind_cq(P& p, Cq& cq, uint64_t flags) {
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    const bool transmits = (flags & FI_TRANSMIT) != 0;
    const bool receives = (flags & FI_RECV) != 0;
    if (!transmits && !receives) {
      log_warn(provider(p), FI_LOG_EP_CTRL,
               "a completion queue is bound with FI_TRANSMIT or FI_RECV; neither was given");
      return -FI_EBADFLAGS;
    }
    if ((transmits && p.core->tx_cq != nullptr) || (receives && p.core->rx_cq != nullptr)) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "the endpoint has a completion queue for that direction already");
      return -FI_EINVAL;
    }
    if (p.core->tx_cq != &cq && p.core->rx_cq != &cq) p.engine->add_queue(&cq.queue);
    proto::RxSink& sink = p.engine->receiver().sink;
    if (transmits) {
      if (const int status = cq.attach(*p.engine); status != 0) return status;
      p.core->tx_cq = &cq;
      p.tx.cq = &cq.queue;
      p.tx.selective = selective;
      p.tx.settle();
    }
    if (receives) {
      if (const int status = cq.attach(*p.engine); status != 0) return status;
      p.core->rx_cq = &cq;
      sink.cq = &cq.queue;
      sink.selective = selective;
    }
    return 0;
  }
  static int bind_counter(P& p, Cntr& cntr, uint64_t flags) {
    if ((flags & (FI_SEND | FI_RECV)) == 0) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "a counter of a datagram endpoint counts FI_SEND or FI_RECV");
      return -FI_EBADFLAGS;
    }
    p.core->counters.reserve(p.core->counters.size() + 1);
    if (const int status = cntr.attach(*p.engine); status != 0) return status;
    p.core->counters.push_back(&cntr);
    if ((flags & FI_SEND) != 0) p.tx.sends = &cntr.counter;
    if ((flags & FI_RECV) != 0) p.engine->receiver().sink.receives = &cntr.counter;
    return 0;
  }
  static int bind(::fid* fid, ::fid* other, uint64_t flags) {
    P& p = datagram_of<L>(fid);
    if (other == nullptr || p.parent != nullptr) return -FI_EINVAL;
    if (p.enabled && other->fclass != FI_CLASS_CNTR) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "an endpoint is bound before it is enabled");
      return -FI_EOPBADSTATE;
    }
    if (!is_of(*p.domain, other)) {
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
          if (p.core->av != nullptr) return -FI_EINVAL;
          p.core->av = av_of(other);
          hold(p.core->av->users);
          p.engine->set_address_vector(p.core->av->table.get());
          return 0;
        case FI_CLASS_EQ:
          if (p.core->eq != nullptr) return -FI_EINVAL;
          p.core->eq = eq_of(other);
          hold(p.core->eq->users);
          return 0;
        default:
          log_warn(
              provider(p), FI_LOG_EP_CTRL,
              "a datagram endpoint is bound to completion queues, counters, an address vector and an event "
              "queue");
          return -FI_EINVAL;
      }
    });
  }

  // --- state ---
  static int enable(P& p) {
    if (p.enabled) return 0;
    if (p.core->av == nullptr) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_enable: no address vector is bound");
      return -FI_ENOAV;
    }
    const bool sends_unheard = (p.caps & FI_SEND) != 0 && p.tx.cq == nullptr && p.tx.sends == nullptr;
    if (sends_unheard || ((p.caps & FI_RECV) != 0 && !p.engine->receiver().sink.bound())) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_enable: no completion queue or counter is bound for %s",
               sends_unheard ? "transmitting" : "receiving");
      return -FI_ENOCQ;
    }
    if (const int status = p.domain->begin_progress(*p.engine); status != 0) return status;
    p.enabled = true;
    set_data_vectors(p);
    return 0;
  }
  // By lock, and refusing ones before the endpoint is enabled (fi_endpoint(3)).
  static void set_data_vectors(P& p) noexcept {
    if (!p.enabled) {
      use<AnsweringOps<FI_EOPBADSTATE>>(p);
      p.fid.msg = &AnsweringOps<FI_EOPBADSTATE>::msg_ops;
      return;
    }
    use<AnsweringOps<FI_ENOSYS>>(p);
    p.fid.msg = p.lock->enabled ? &DatagramOps<L, SharedLock>::msg_ops : &DatagramOps<L, NoLock>::msg_ops;
  }
  template <class Ops>
  static void use(P& p) noexcept {
    p.fid.tagged = &Ops::tagged_ops;
    p.fid.rma = &Ops::rma_ops;
    p.fid.atomic = &Ops::atomic_ops;
  }
  static int op_flags(P& p, bool set, uint64_t& value) noexcept {
    const bool transmits = (value & FI_TRANSMIT) != 0;
    if (transmits == ((value & FI_RECV) != 0)) return -FI_EINVAL;
    uint64_t& flags = transmits ? p.tx.op_flags : p.rx_op_flags;
    if (!set) {
      value = flags;
      return 0;
    }
    flags = value & ~(FI_TRANSMIT | FI_RECV);
    p.tx.settle();
    return 0;
  }
  // Another face of the same endpoint with its own default flags (fi_endpoint(3), fi_ep_alias).
  static int make_alias(P& p, struct fi_alias& alias) {
    if (!p.enabled) return -FI_EOPBADSTATE;
    auto made = face_of(p);
    made->tx = p.tx;
    made->rx_op_flags = p.rx_op_flags;
    if ((alias.flags & FI_RECV) != 0) made->rx_op_flags = alias.flags & ~FI_RECV;
    else made->tx.op_flags = alias.flags & ~FI_TRANSMIT;
    made->tx.settle();
    hold(p.users);
    *alias.fid = &made.release()->fid.fid;
    return 0;
  }
  static int control(::fid* fid, int command, void* arg) {
    P& p = datagram_of<L>(fid);
    return no_throw([&] {
      std::scoped_lock guard(p.domain->lock);
      switch (command) {
        case FI_ENABLE:
          return enable(p);
        case FI_GETOPSFLAG:
        case FI_SETOPSFLAG:
          return arg == nullptr ? -FI_EINVAL
                                : op_flags(p, command == FI_SETOPSFLAG, *static_cast<uint64_t*>(arg));
        case FI_ALIAS:
          return arg == nullptr ? -FI_EINVAL : make_alias(p, *static_cast<struct fi_alias*>(arg));
        default:
          return -FI_ENOSYS;
      }
    });
  }

  // --- options and queries ---
  static ssize_t cancel(::fid* fid, void* context) {
    P& p = datagram_of<L>(fid);
    std::scoped_lock guard(p.domain->lock);
    return p.engine->receiver().cancel(context);
  }
  static int getopt(::fid* fid, int level, int name, void* value, size_t* length) {
    P& p = datagram_of<L>(fid);
    if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
    if (value == nullptr || length == nullptr) return -FI_EINVAL;
    size_t answer = 0;
    switch (name) {
      case FI_OPT_MIN_MULTI_RECV:
        answer = p.engine->receiver().multi_receive_min;
        break;
      case FI_OPT_CM_DATA_SIZE:
        break;
      case FI_OPT_TX_SIZE:
        answer = p.engine->limits().transmit_size;
        break;
      case FI_OPT_RX_SIZE:
        answer = p.engine->receiver().bound();
        break;
      default:
        return -FI_ENOPROTOOPT;
    }
    return give_option(answer, value, length);
  }
  static int setopt(::fid* fid, int level, int name, const void* value, size_t length) {
    P& p = datagram_of<L>(fid);
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
    if (value == nullptr || length != sizeof(size_t)) return -FI_EINVAL;
    std::scoped_lock guard(p.domain->lock);
    std::memcpy(&p.engine->receiver().multi_receive_min, value, sizeof(size_t));
    return 0;
  }
  static ssize_t rx_size_left(fid_ep* ep) {
    P& p = datagram_of<L>(ep);
    if (!p.enabled) return -FI_EOPBADSTATE;
    std::scoped_lock guard(p.domain->lock);
    return static_cast<ssize_t>(p.engine->receiver().bound() - p.engine->receiver().in_use());
  }
  static ssize_t tx_size_left(fid_ep* ep) {
    P& p = datagram_of<L>(ep);
    if (!p.enabled) return -FI_EOPBADSTATE;
    std::scoped_lock guard(p.domain->lock);
    return static_cast<ssize_t>(p.engine->limits().transmit_size - p.engine->unsent());
  }
  static int getname(::fid* fid, void* address, size_t* length) {
    if (length == nullptr) return -FI_EINVAL;
    return give_address(datagram_of<L>(fid).engine->link().address(), address, length);
  }
  // With the middleware that the settings ask for.
  static Result<void> open_link(P& p, std::span<const std::byte> address) {
    link::packet::Audience audience;
    audience.warning = [](const void* who, const char* what) {
      log_warn(static_cast<const char*>(who), FI_LOG_EP_CTRL, "%s", what);
    };
    audience.warned = provider(p);
    if (log_enabled(FI_LOG_INFO, FI_LOG_EP_DATA, provider(p))) {
      audience.note = [](const void* who, const char* what) {
        log_info(static_cast<const char*>(who), FI_LOG_EP_DATA, "%s", what);
      };
      audience.noted = provider(p);
    }
    return link::packet::open_observed(p.engine->link(), address, audience);
  }
  // Another name, before the endpoint is enabled (fi_cm(3)). The old one stays when the new one is taken.
  static int setname(::fid* fid, void* address, size_t length) {
    P& p = datagram_of<L>(fid);
    const Domain& domain = *p.domain;
    if (p.parent != nullptr || address == nullptr || length < domain.addrlen) return -FI_EINVAL;
    if (p.enabled) return -FI_EOPBADSTATE;
    return no_throw([&] {
      const auto* first = static_cast<const std::byte*>(address);
      std::vector<std::byte> wanted(first, first + domain.addrlen);
      if (!domain.provider->normalise(domain.addr_format, wanted.data())) return -FI_EINVAL;
      std::scoped_lock guard(p.domain->lock);
      const auto own = p.engine->link().address();
      const std::vector<std::byte> before(own.begin(), own.end());
      p.engine->link().close();
      auto opened = open_link(p, wanted);
      if (opened) return 0;
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_setname: %s", opened.error().why.c_str());
      if (!open_link(p, before))
        log_warn(provider(p), FI_LOG_EP_CTRL, "fi_setname: the old name is lost, too");
      return -opened.error().code;
    });
  }

  // --- closing ---
  static void linger(P& p) noexcept {
    const uint64_t until = os::monotonic_ns() + linger_ns;
    while (!p.engine->push_unsent() && os::monotonic_ns() < until) {
    }
  }
  static int close(::fid* fid) {
    P& p = datagram_of<L>(fid);
    if (busy(p.users)) {
      log_warn(provider(p), FI_LOG_EP_CTRL, "fi_close: aliases or multicast groups still use this endpoint");
      return -FI_EBUSY;
    }
    Domain& domain = *p.domain;
    const bool alias = p.parent != nullptr;
    {
      std::scoped_lock guard(domain.lock);
      leave(p);
      delete &p;
    }
    if (!alias) drop(domain.users);  // last: another thread may wait for that to close the domain
    return 0;
  }
  static void leave(P& p) noexcept {
    if (p.parent != nullptr) {
      drop(p.parent->users);
    } else {
      linger(p);
      p.engine->abandon();
      if (p.enabled) p.domain->end_progress(*p.engine);
      if (p.core->tx_cq != nullptr) p.core->tx_cq->detach(*p.engine);
      if (p.core->rx_cq != nullptr) p.core->rx_cq->detach(*p.engine);
      for (Cntr* cntr : p.core->counters) cntr->detach(*p.engine);
      if (p.core->av != nullptr) drop(p.core->av->users);
      if (p.core->eq != nullptr) drop(p.core->eq->users);
    }
  }
};

}  // namespace weft::fi
