// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tables of calls in front of a provider's own: fi_mr(3), FI_MR_LOCAL and FI_MR_ENDPOINT.
#include "local_modes.hpp"

#include <malloc.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "fixture.hpp"

namespace weft::conformance {

namespace {

constexpr uintptr_t page = 4096;
constexpr uint64_t sending = FI_SEND | FI_WRITE;
constexpr uint64_t receiving = FI_RECV | FI_READ;

// A copy of a table of calls, of which a provider may know fewer.
template <class Table>
Table copy_of(const Table* theirs) {
  Table own{};
  std::memcpy(static_cast<void*>(&own), theirs, std::min(theirs->size, sizeof own));
  return own;
}

struct Endpoint;

struct Domain {
  fid_domain* fid = nullptr;
  bool local = false, by_endpoint = false;
  uint64_t next_key = 0;
  const fi_ops* ops = nullptr;
  const fi_ops_domain* calls = nullptr;
  const fi_ops_mr* mr = nullptr;
  fi_ops own_ops{};
  fi_ops_domain own_calls{};
  fi_ops_mr own_mr{};
  fid_ep* last = nullptr;  // the regions of a domain with one endpoint belong to that
  // By first page, pages, access and endpoint; they stay until the endpoint or the domain goes.
  std::map<std::tuple<uintptr_t, size_t, uint64_t, fid_ep*>, fid_mr*> regions;

  // Registered for good: an endpoint's own region, switched on.
  int complete(fid_mr* region, fid_ep* ep) const {
    if (!by_endpoint || ep == nullptr) return 0;
    if (const int rc = fi_mr_bind(region, &ep->fid, 0); rc != 0) return rc;
    return fi_mr_enable(region);
  }
  void forget(const fid_ep* ep) {
    for (auto at = regions.begin(); at != regions.end();) {
      if (ep != nullptr && std::get<3>(at->first) != ep) {
        ++at;
        continue;
      }
      fi_close(&at->second->fid);
      at = regions.erase(at);
    }
  }
};

struct Endpoint {
  fid_ep* fid = nullptr;
  fid_ep* owner = nullptr;  // whose its regions are: of an alias the endpoint itself
  Domain* domain = nullptr;
  const fi_ops* ops = nullptr;
  const fi_ops_cm* cm = nullptr;
  fi_ops own_ops{};
  fi_ops_cm own_cm{};
  std::tuple<const fi_ops_msg*, const fi_ops_tagged*, const fi_ops_rma*, const fi_ops_atomic*> calls{};
  std::tuple<fi_ops_msg, fi_ops_tagged, fi_ops_rma, fi_ops_atomic> own_calls{};

  void* descriptor(const void* buf, size_t len, uint64_t access);
};

std::recursive_mutex guard;
std::map<fid_domain*, std::unique_ptr<Domain>> domains;
std::map<fid_ep*, std::unique_ptr<Endpoint>> endpoints;

Endpoint& endpoint_of(fid_ep* ep) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  return *endpoints.at(ep);
}

Domain& domain_of(struct fid* fid) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  return *domains.at(reinterpret_cast<fid_domain*>(fid));
}

// Whole pages: neighbours share a region, and the heap gives none back (meet_demands()).
void* Endpoint::descriptor(const void* buf, size_t len, uint64_t access) {
  if (buf == nullptr || len == 0 || !domain->local) return nullptr;
  const auto at = reinterpret_cast<uintptr_t>(buf);
  const uintptr_t first = at / page * page;
  const size_t pages = (at + len - first + page - 1) / page;
  const std::lock_guard<std::recursive_mutex> lock(guard);
  fid_mr*& region = domain->regions[{first, pages, access, domain->by_endpoint ? owner : nullptr}];
  if (region == nullptr) {
    const auto* start = static_cast<const uint8_t*>(buf) - (at - first);
    int rc = domain->mr->reg(&domain->fid->fid, start, pages * page, access, 0, domain->next_key++, 0,
                             &region, nullptr);
    if (rc == 0) rc = domain->complete(region, owner);
    if (rc != 0) ADD_FAILURE() << "registration of a local buffer: " << error_name(rc);
    if (region == nullptr) return nullptr;
  }
  return fi_mr_desc(region);
}

// --- calls with one buffer, with several, with a structure; Table is the table that the call stands in

template <auto Call, uint64_t access, class Table, class Buf, class... Rest>
void one_buffer(Table& table, ssize_t (*Table::*)(fid_ep*, Buf, size_t, void*, Rest...)) {
  table.*Call = [](fid_ep* ep, Buf buf, size_t len, void*, Rest... rest) -> ssize_t {
    Endpoint& own = endpoint_of(ep);
    return (std::get<const Table*>(own.calls)->*Call)(ep, buf, len, own.descriptor(buf, len, access),
                                                      rest...);
  };
}

// The descriptors of some parts, for the time of a call.
struct Descriptors {
  Descriptors(Endpoint& ep, const iovec* parts, size_t count, uint64_t access) : all(count) {
    for (size_t i = 0; i < count; ++i) all[i] = ep.descriptor(parts[i].iov_base, parts[i].iov_len, access);
  }
  Descriptors(Endpoint& ep, const fi_ioc* parts, size_t count, size_t width, uint64_t access) : all(count) {
    for (size_t i = 0; i < count; ++i) all[i] = ep.descriptor(parts[i].addr, parts[i].count * width, access);
  }
  std::vector<void*> all;
};

template <auto Call, uint64_t access, class Table, class... Rest>
void parts(Table& table, ssize_t (*Table::*)(fid_ep*, const iovec*, void**, size_t, Rest...)) {
  table.*Call = [](fid_ep* ep, const iovec* iov, void**, size_t count, Rest... rest) -> ssize_t {
    Endpoint& own = endpoint_of(ep);
    Descriptors descriptors(own, iov, count, access);
    return (std::get<const Table*>(own.calls)->*Call)(ep, iov, descriptors.all.data(), count, rest...);
  };
}

template <auto Call, uint64_t access, class Table, class Message>
void structure(Table& table, ssize_t (*Table::*)(fid_ep*, const Message*, uint64_t)) {
  table.*Call = [](fid_ep* ep, const Message* message, uint64_t flags) -> ssize_t {
    Endpoint& own = endpoint_of(ep);
    Descriptors descriptors(own, message->msg_iov, message->iov_count, access);
    Message copy = *message;
    copy.desc = descriptors.all.data();
    return (std::get<const Table*>(own.calls)->*Call)(ep, &copy, flags);
  };
}

// `t` is a table.
#define WEFT_FRONT(kind, call, access) \
  kind<&std::remove_reference_t<decltype(t)>::call, access>(t, &std::remove_reference_t<decltype(t)>::call)

// The calls of both have the same names.
template <class Ops>
void front_messages(Ops& t) {
  WEFT_FRONT(one_buffer, recv, receiving);
  WEFT_FRONT(parts, recvv, receiving);
  WEFT_FRONT(structure, recvmsg, receiving);
  WEFT_FRONT(one_buffer, send, sending);
  WEFT_FRONT(parts, sendv, sending);
  WEFT_FRONT(structure, sendmsg, sending);
  WEFT_FRONT(one_buffer, senddata, sending);
}

void front(fi_ops_msg& t) { front_messages(t); }
void front(fi_ops_tagged& t) { front_messages(t); }

void front(fi_ops_rma& t) {
  WEFT_FRONT(one_buffer, read, receiving);
  WEFT_FRONT(parts, readv, receiving);
  WEFT_FRONT(structure, readmsg, receiving);
  WEFT_FRONT(one_buffer, write, sending);
  WEFT_FRONT(parts, writev, sending);
  WEFT_FRONT(structure, writemsg, sending);
  WEFT_FRONT(one_buffer, writedata, sending);
}

size_t width_of(fi_datatype type) {
  constexpr size_t widths[] = {1, 1, 2, 2,  4,  4,  8,  8,
                               4, 8, 8, 16, 16, 32, 16, 16};  // fi_atomic(3), in its order
  return static_cast<size_t>(type) < std::size(widths) ? widths[type] : 32;
}

const fi_ops_atomic& atomics(const Endpoint& own) { return *std::get<const fi_ops_atomic*>(own.calls); }

void front(fi_ops_atomic& t) {
  t.write = [](fid_ep* ep, const void* buf, size_t n, void*, fi_addr_t to, uint64_t addr, uint64_t key,
               fi_datatype type, fi_op op, void* context) {
    Endpoint& own = endpoint_of(ep);
    void* desc = own.descriptor(buf, n * width_of(type), sending);
    return atomics(own).write(ep, buf, n, desc, to, addr, key, type, op, context);
  };
  t.writev = [](fid_ep* ep, const fi_ioc* iov, void**, size_t n, fi_addr_t to, uint64_t addr, uint64_t key,
                fi_datatype type, fi_op op, void* context) {
    Endpoint& own = endpoint_of(ep);
    Descriptors from(own, iov, n, width_of(type), sending);
    return atomics(own).writev(ep, iov, from.all.data(), n, to, addr, key, type, op, context);
  };
  t.writemsg = [](fid_ep* ep, const fi_msg_atomic* msg, uint64_t flags) {
    Endpoint& own = endpoint_of(ep);
    Descriptors from(own, msg->msg_iov, msg->iov_count, width_of(msg->datatype), sending);
    fi_msg_atomic copy = *msg;
    copy.desc = from.all.data();
    return atomics(own).writemsg(ep, &copy, flags);
  };
  t.readwrite = [](fid_ep* ep, const void* buf, size_t n, void*, void* result, void*, fi_addr_t to,
                   uint64_t addr, uint64_t key, fi_datatype type, fi_op op, void* context) {
    Endpoint& own = endpoint_of(ep);
    const size_t len = n * width_of(type);
    return atomics(own).readwrite(ep, buf, n, own.descriptor(buf, len, sending), result,
                                  own.descriptor(result, len, receiving), to, addr, key, type, op, context);
  };
  t.readwritev = [](fid_ep* ep, const fi_ioc* iov, void**, size_t n, fi_ioc* resultv, void**, size_t results,
                    fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type, fi_op op, void* context) {
    Endpoint& own = endpoint_of(ep);
    Descriptors from(own, iov, n, width_of(type), sending);
    Descriptors result(own, resultv, results, width_of(type), receiving);
    return atomics(own).readwritev(ep, iov, from.all.data(), n, resultv, result.all.data(), results, to, addr,
                                   key, type, op, context);
  };
  t.readwritemsg = [](fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* resultv, void**, size_t results,
                      uint64_t flags) {
    Endpoint& own = endpoint_of(ep);
    Descriptors from(own, msg->msg_iov, msg->iov_count, width_of(msg->datatype), sending);
    Descriptors result(own, resultv, results, width_of(msg->datatype), receiving);
    fi_msg_atomic copy = *msg;
    copy.desc = from.all.data();
    return atomics(own).readwritemsg(ep, &copy, resultv, result.all.data(), results, flags);
  };
  t.compwrite = [](fid_ep* ep, const void* buf, size_t n, void*, const void* compare, void*, void* result,
                   void*, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type, fi_op op,
                   void* context) {
    Endpoint& own = endpoint_of(ep);
    const size_t len = n * width_of(type);
    return atomics(own).compwrite(ep, buf, n, own.descriptor(buf, len, sending), compare,
                                  own.descriptor(compare, len, sending), result,
                                  own.descriptor(result, len, receiving), to, addr, key, type, op, context);
  };
  t.compwritev = [](fid_ep* ep, const fi_ioc* iov, void**, size_t n, const fi_ioc* comparev, void**,
                    size_t compares, fi_ioc* resultv, void**, size_t results, fi_addr_t to, uint64_t addr,
                    uint64_t key, fi_datatype type, fi_op op, void* context) {
    Endpoint& own = endpoint_of(ep);
    Descriptors from(own, iov, n, width_of(type), sending);
    Descriptors compare(own, comparev, compares, width_of(type), sending);
    Descriptors result(own, resultv, results, width_of(type), receiving);
    return atomics(own).compwritev(ep, iov, from.all.data(), n, comparev, compare.all.data(), compares,
                                   resultv, result.all.data(), results, to, addr, key, type, op, context);
  };
  t.compwritemsg = [](fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* comparev, void**, size_t compares,
                      fi_ioc* resultv, void**, size_t results, uint64_t flags) {
    Endpoint& own = endpoint_of(ep);
    Descriptors from(own, msg->msg_iov, msg->iov_count, width_of(msg->datatype), sending);
    Descriptors compare(own, comparev, compares, width_of(msg->datatype), sending);
    Descriptors result(own, resultv, results, width_of(msg->datatype), receiving);
    fi_msg_atomic copy = *msg;
    copy.desc = from.all.data();
    return atomics(own).compwritemsg(ep, &copy, comparev, compare.all.data(), compares, resultv,
                                     result.all.data(), results, flags);
  };
}

template <class Table>
void put_in_front(Endpoint& own, Table*& theirs) {
  using Plain = std::remove_const_t<Table>;
  Plain& front_table = std::get<Plain>(own.own_calls);
  if (theirs == nullptr || theirs == &front_table) return;
  std::get<const Plain*>(own.calls) = theirs;
  front_table = copy_of(theirs);
  front(front_table);
  theirs = &front_table;
}

// A provider may choose its tables when the endpoint is enabled.
void wrap_calls(Endpoint& own) {
  put_in_front(own, own.fid->msg);
  put_in_front(own, own.fid->tagged);
  put_in_front(own, own.fid->rma);
  put_in_front(own, own.fid->atomic);
}

void unwrap_calls(Endpoint& own) {
  const auto give_back = [](auto*& front_table, const auto* theirs) {
    using Table = std::remove_reference_t<decltype(*front_table)>;
    if (theirs != nullptr) front_table = const_cast<Table*>(theirs);
  };
  give_back(own.fid->msg, std::get<0>(own.calls));
  give_back(own.fid->tagged, std::get<1>(own.calls));
  give_back(own.fid->rma, std::get<2>(own.calls));
  give_back(own.fid->atomic, std::get<3>(own.calls));
}

// A shared receive context and an alias have the calls alone: a provider may know its own objects by their other tables.
void wrap_context(Domain& domain, fid_ep* ep, fid_ep* owner) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  auto owned = std::make_unique<Endpoint>();
  owned->fid = ep;
  owned->owner = owner;
  owned->domain = &domain;
  wrap_calls(*owned);
  endpoints[ep] = std::move(owned);  // and not what was at this address before
}

void wrap(Domain& domain, fid_ep* ep) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  auto owned = std::make_unique<Endpoint>();
  Endpoint& own = *owned;
  own.fid = own.owner = ep;
  own.domain = &domain;
  domain.last = ep;
  own.ops = ep->fid.ops;
  own.own_ops = copy_of(own.ops);
  own.own_ops.control = [](struct fid* fid, int command, void* arg) {
    Endpoint& of = endpoint_of(reinterpret_cast<fid_ep*>(fid));
    if (command == FI_ALIAS) unwrap_calls(of);  // it is a copy
    const int rc = of.ops->control(fid, command, arg);
    if (command == FI_ENABLE || command == FI_ALIAS) wrap_calls(of);
    if (command == FI_ALIAS && rc == 0) {
      auto* const alias = reinterpret_cast<fid_ep*>(*static_cast<struct fi_alias*>(arg)->fid);
      wrap_context(*of.domain, alias, of.fid);
      endpoint_of(alias).ops = of.ops;
      endpoint_of(alias).cm = of.cm;
    }
    return rc;
  };
  own.own_ops.close = [](struct fid* fid) {
    const std::lock_guard<std::recursive_mutex> held(guard);
    auto* closing = reinterpret_cast<fid_ep*>(fid);
    Endpoint& of = endpoint_of(closing);
    if (of.domain->by_endpoint) of.domain->forget(closing);
    if (of.domain->last == closing) of.domain->last = nullptr;
    const int rc = of.ops->close(fid);
    if (rc == 0) endpoints.erase(closing);
    return rc;
  };
  ep->fid.ops = &own.own_ops;
  if (ep->cm != nullptr) {
    own.cm = ep->cm;
    own.own_cm = copy_of(own.cm);
    own.own_cm.connect = [](fid_ep* of, const void* addr, const void* param, size_t len) {
      const int rc = endpoint_of(of).cm->connect(of, addr, param, len);
      wrap_calls(endpoint_of(of));
      return rc;
    };
    own.own_cm.accept = [](fid_ep* of, const void* param, size_t len) {
      const int rc = endpoint_of(of).cm->accept(of, param, len);
      wrap_calls(endpoint_of(of));
      return rc;
    };
    ep->cm = &own.own_cm;
  }
  wrap_calls(own);
  endpoints[ep] = std::move(owned);
}

// A region of a case, with the endpoint that it is meant for.
int completed(Domain& domain, int rc, fid_mr** mr) {
  if (rc != 0 || !domain.by_endpoint) return rc;
  rc = domain.complete(*mr, domain.last);
  if (rc != 0) fi_close(&(*mr)->fid);
  return rc;
}

}  // namespace

int demanded_mr_modes() {
  static const int demanded = [] {
    const auto ask = [](int mr_mode) {
      const Info hints(fi_allocinfo());
      hints->mode = FI_CONTEXT | FI_CONTEXT2;
      hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | mr_mode;
      hints->fabric_attr->prov_name = strdup(provider_name().c_str());
      fi_info* found = nullptr;
      (void)fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found);
      return own_of(Info(found).get());
    };
    constexpr int all = FI_MR_LOCAL | FI_MR_ENDPOINT;
    if (ask(0)) return 0;
    const Info with = ask(all);
    return with ? with->domain_attr->mr_mode & all : 0;
  }();
  return demanded;
}

void meet_demands(fid_domain* fid, const fi_info* info) {
  const int mode = info->domain_attr->mr_mode;
  // FI_MR_BASIC and FI_MR_SCALABLE are no bits of that kind.
  const bool bits = mode != retired::mr_basic && mode != retired::mr_scalable;
  if (fid == nullptr || demanded_mr_modes() == 0 || !bits || (mode & (FI_MR_LOCAL | FI_MR_ENDPOINT)) == 0)
    return;
  // Memory that was registered stays where it is.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  const std::lock_guard<std::recursive_mutex> lock(guard);
  auto owned = std::make_unique<Domain>();
  Domain& own = *owned;
  own.fid = fid;
  own.local = (mode & FI_MR_LOCAL) != 0;
  own.by_endpoint = (mode & FI_MR_ENDPOINT) != 0;
  own.next_key = uint64_t{1} << (8 * std::clamp<size_t>(info->domain_attr->mr_key_size, 1, 8) - 1);
  own.ops = fid->fid.ops;
  own.calls = fid->ops;
  own.mr = fid->mr;
  own.own_ops = copy_of(own.ops);
  own.own_calls = copy_of(own.calls);
  own.own_mr = copy_of(own.mr);
  own.own_ops.close = [](struct fid* closing) {
    const std::lock_guard<std::recursive_mutex> held(guard);
    Domain& of = domain_of(closing);
    of.forget(nullptr);
    const int rc = of.ops->close(closing);
    if (rc == 0) domains.erase(reinterpret_cast<fid_domain*>(closing));
    return rc;
  };
  // The operations of deferred work have descriptors of their own, which nobody fills in here.
  own.own_ops.control = [](struct fid* of, int command, void* arg) {
    return command == FI_QUEUE_WORK ? -FI_ENOSYS : domain_of(of).ops->control(of, command, arg);
  };
  own.own_calls.endpoint = [](fid_domain* of, fi_info* with, fid_ep** ep, void* context) {
    Domain& domain = domain_of(&of->fid);
    const int rc = domain.calls->endpoint(of, with, ep, context);
    if (rc == 0) wrap(domain, *ep);
    return rc;
  };
  own.own_calls.srx_ctx = [](fid_domain* of, fi_rx_attr* attr, fid_ep** ep, void* context) {
    Domain& domain = domain_of(&of->fid);
    const int rc = domain.calls->srx_ctx(of, attr, ep, context);
    if (rc == 0) wrap_context(domain, *ep, domain.last);
    return rc;
  };
  own.own_mr.reg = [](struct fid* of, const void* buf, size_t len, uint64_t access, uint64_t offset,
                      uint64_t key, uint64_t flags, fid_mr** mr, void* context) {
    Domain& domain = domain_of(of);
    return completed(domain, domain.mr->reg(of, buf, len, access, offset, key, flags, mr, context), mr);
  };
  own.own_mr.regv = [](struct fid* of, const iovec* iov, size_t count, uint64_t access, uint64_t offset,
                       uint64_t key, uint64_t flags, fid_mr** mr, void* context) {
    Domain& domain = domain_of(of);
    return completed(domain, domain.mr->regv(of, iov, count, access, offset, key, flags, mr, context), mr);
  };
  own.own_mr.regattr = [](struct fid* of, const fi_mr_attr* attr, uint64_t flags, fid_mr** mr) {
    Domain& domain = domain_of(of);
    return completed(domain, domain.mr->regattr(of, attr, flags, mr), mr);
  };
  fid->fid.ops = &own.own_ops;
  fid->ops = &own.own_calls;
  fid->mr = &own.own_mr;
  domains[fid] = std::move(owned);
}

}  // namespace weft::conformance
