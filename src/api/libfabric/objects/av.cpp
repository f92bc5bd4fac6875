// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Address vectors at the C ABI: fi_av(3). Must not know which links exist or what an address means.
//
// Every address of a provider has one length, and fi_av_insert takes an array of such entries, as
// fi_getname gives them; this is also so for FI_ADDR_STR, where an entry is a string that ends before its
// length and a last string may be shorter than an entry. named_av.hpp has address vectors with a
// name.
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "api/libfabric/abi/prepared.hpp"
#include "api/libfabric/objects/named_av.hpp"
#include "api/libfabric/objects/objects.hpp"

namespace weft::fi {

namespace {

Av& self(fid_av* fid) noexcept { return *reinterpret_cast<Av*>(fid); }

int refuse(const Av& av, int code, const char* what, const char* why) {
  log_warn(av.domain.provider->name, FI_LOG_AV, "%s: %s", what, why);
  return -code;
}

// One address of a call, or why there is none.
struct Candidate {
  core::Address address;
  int error = 0;  // positive FI_E*
};

Candidate candidate(const Domain& domain, const void* bytes) {
  const size_t len = domain.addrlen;
  Candidate result;
  const bool text = domain.addr_format == FI_ADDR_STR;
  const size_t used = text ? strnlen(static_cast<const char*>(bytes), len) : len;
  result.address = core::Address(bytes, used);
  result.address.len = uint8_t(len);
  if (used == 0 || !domain.provider->normalise(domain.addr_format, result.address.bytes.data()) ||
      result.address == domain.unnamed)  // nobody is there
    result.error = FI_EINVAL;
  return result;
}

Candidate resolve(const Domain& domain, const char* node, const char* service) {
  Result<std::vector<std::byte>> bytes = domain.provider->resolve(domain.addr_format, node, service, false);
  if (!bytes) {
    log_warn(domain.provider->name, FI_LOG_AV, "node %s service %s: %s", node == nullptr ? "(none)" : node,
             service == nullptr ? "(none)" : service, bytes.error().why.c_str());
    return {{}, bytes.error().code};
  }
  Candidate result{core::Address(bytes->data(), bytes->size()), 0};
  if (bytes->size() != domain.addrlen) result.error = FI_EINVAL;
  return result;
}

// What every insertion call checks before it looks at addresses.
int check_insert(const Av& av, uint64_t flags, const char* what) {
  if ((av.flags & FI_READ) != 0)
    return refuse(av, FI_EACCES, what, "the address vector was opened with FI_READ");
  if ((av.flags & FI_EVENT) != 0 && av.eq == nullptr)
    return refuse(av, FI_ENOEQ, what, "it was opened with FI_EVENT and has no event queue");
  if ((flags & FI_AV_USER_ID) != 0) return refuse(av, FI_ENOSYS, what, "FI_AV_USER_ID is not supported");
  if ((flags & ~uint64_t{FI_MORE | FI_SYNC_ERR}) != 0)
    return refuse(av, FI_EBADFLAGS, what, "flags knows only FI_MORE and FI_SYNC_ERR");
  own_after_fork(*av.table);
  return 0;
}

// Inserts one; its outcome goes where the call wants it.
int insert_one(Av& av, Candidate& from, fi_addr_t* out) {
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  if (from.error == 0) {
    index = av.table->insert(from.address);
    if (index == FI_ADDR_NOTAVAIL) from.error = FI_ENOMEM;
  }
  if (out != nullptr) *out = index;
  return from.error;
}

// fi_av(3), FI_SYNC_ERR: `context` is then an array of int. Returns the number of successes.
int insert_now(Av& av, std::span<Candidate> addresses, fi_addr_t* out, uint64_t flags, void* context) {
  int* errors = (flags & FI_SYNC_ERR) != 0 ? static_cast<int*>(context) : nullptr;
  int inserted = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const int error = insert_one(av, addresses[i], out == nullptr ? nullptr : out + i);
    if (errors != nullptr) errors[i] = error;
    if (error == 0) ++inserted;
  }
  return inserted;
}

// fi_av(3), FI_EVENT: an error event for each failure, then one event with the number of successes. The
// insertion itself is done at once. Room for all events is taken first; a full queue is -FI_EAGAIN and
// nothing has happened.
int insert_with_events(Av& av, std::span<Candidate> addresses, fi_addr_t* out, void* context) {
  core::EventQueue& queue = av.eq->queue;
  size_t reserved = 1;
  for (const Candidate& address : addresses) reserved += address.error != 0 ? 1 : 0;
  if (queue.reserve(reserved) != 0) return -FI_EAGAIN;
  uint64_t inserted = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const bool had_room = addresses[i].error != 0;
    const int error = insert_one(av, addresses[i], out == nullptr ? nullptr : out + i);
    if (error == 0) {
      ++inserted;
      continue;
    }
    core::EventError event;
    event.object = &av.fid.fid;
    event.context = context;
    event.data = i;
    event.err = error;
    if (had_room) {
      queue.write_error_reserved(std::move(event));
    } else {
      queue.write_error(std::move(event));
    }
  }
  fi_eq_entry done{};
  done.fid = &av.fid.fid;
  done.context = context;
  done.data = inserted;
  queue.write_reserved(FI_AV_COMPLETE, &done, sizeof done);
  return 0;
}

int insert_all(Av& av, std::span<Candidate> addresses, fi_addr_t* out, uint64_t flags, void* context) {
  if ((av.flags & FI_EVENT) != 0) return insert_with_events(av, addresses, out, context);
  return insert_now(av, addresses, out, flags, context);
}

int av_insert(fid_av* fid, const void* addr, size_t count, fi_addr_t* out, uint64_t flags, void* context) {
  return no_throw([&] {
    Av& av = self(fid);
    if (const int status = check_insert(av, flags, "fi_av_insert"); status != 0) return status;
    if (addr == nullptr && count != 0) return refuse(av, FI_EINVAL, "fi_av_insert", "addr is null");
    if (count > core::AddressVector::count_max)
      return refuse(av, FI_EINVAL, "fi_av_insert", "count is above 16777216");
    std::vector<Candidate> addresses(count);
    size_t malformed = 0;
    size_t first = count;
    for (size_t i = 0; i < count; ++i) {
      addresses[i] = candidate(av.domain, static_cast<const std::byte*>(addr) + i * av.domain.addrlen);
      if (addresses[i].error == 0) continue;
      ++malformed;
      first = std::min(first, i);
    }
    if (malformed != 0)
      log_warn(av.domain.provider->name, FI_LOG_AV,
               "fi_av_insert: %zu of %zu addresses are none of this format; the first is number %zu",
               malformed, count, first);
    return insert_all(av, addresses, out, flags, context);
  });
}

int av_insertsvc(fid_av* fid, const char* node, const char* service, fi_addr_t* out, uint64_t flags,
                 void* context) {
  return no_throw([&] {
    Av& av = self(fid);
    if (const int status = check_insert(av, flags, "fi_av_insertsvc"); status != 0) return status;
    if (node == nullptr && service == nullptr)
      return refuse(av, FI_EINVAL, "fi_av_insertsvc", "neither node nor service");
    Candidate address = resolve(av.domain, node, service);
    return insert_all(av, {&address, 1}, out, flags, context);
  });
}

// `name` with its trailing number raised by `add`: host09 + 1 is host10. False: there is no number and one
// is needed.
bool advance(const std::string& name, uint64_t add, std::string& out) {
  out = name;
  if (add == 0) return true;
  size_t digits = 0;
  while (digits < name.size() && digits < 18 && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9')
    ++digits;
  if (digits == 0) return false;
  const size_t stem = name.size() - digits;
  std::string number = std::to_string(std::stoull(name.substr(stem)) + add);
  if (number.size() < digits) number.insert(0, digits - number.size(), '0');
  out = name.substr(0, stem) + number;
  return true;
}

Candidate symmetric(const Domain& domain, const char* node, size_t node_step, const char* service,
                    size_t service_step) {
  std::string node_name;
  std::string service_name;
  if ((node != nullptr && !advance(node, node_step, node_name)) ||
      (service != nullptr && !advance(service, service_step, service_name)))
    return {{}, FI_EINVAL};
  return resolve(domain, node == nullptr ? nullptr : node_name.c_str(),
                 service == nullptr ? nullptr : service_name.c_str());
}

// fi_av(3), fi_av_insertsym: all services of a node before the next node.
int av_insertsym(fid_av* fid, const char* node, size_t nodecnt, const char* service, size_t svccnt,
                 fi_addr_t* out, uint64_t flags, void* context) {
  return no_throw([&] {
    Av& av = self(fid);
    if (const int status = check_insert(av, flags, "fi_av_insertsym"); status != 0) return status;
    if ((node == nullptr && nodecnt > 1) || (service == nullptr && svccnt > 1) ||
        (node == nullptr && service == nullptr))
      return refuse(av, FI_EINVAL, "fi_av_insertsym", "a count above 1 needs the name that it counts from");
    if (nodecnt > core::AddressVector::count_max ||
        svccnt > core::AddressVector::count_max / (nodecnt == 0 ? 1 : nodecnt))
      return refuse(av, FI_EINVAL, "fi_av_insertsym", "nodecnt times svccnt is above 16777216");
    std::vector<Candidate> addresses;
    addresses.reserve(nodecnt * svccnt);
    for (size_t n = 0; n < nodecnt; ++n) {
      for (size_t s = 0; s < svccnt; ++s) addresses.push_back(symmetric(av.domain, node, n, service, s));
    }
    return insert_all(av, addresses, out, flags, context);
  });
}

// Under the domain lock, so that no endpoint looks at the address meanwhile.
int av_remove(fid_av* fid, fi_addr_t* addresses, size_t count, uint64_t flags) {
  Av& av = self(fid);
  if (flags != 0) return refuse(av, FI_EBADFLAGS, "fi_av_remove", "flags must be 0");
  if ((av.flags & FI_READ) != 0)
    return refuse(av, FI_EACCES, "fi_av_remove", "the address vector was opened with FI_READ");
  if (addresses == nullptr && count != 0) return -FI_EINVAL;
  own_after_fork(*av.table);
  std::scoped_lock guard(av.domain.lock);
  int first_error = 0;
  for (size_t i = 0; i < count; ++i) {
    const int status = av.table->remove(av.table->peer_index(addresses[i]));
    if (first_error == 0) first_error = status;
  }
  return first_error;
}

int av_lookup(fid_av* fid, fi_addr_t index, void* addr, size_t* addrlen) {
  Av& av = self(fid);
  if (addrlen == nullptr || (addr == nullptr && *addrlen != 0)) return -FI_EINVAL;
  const core::Address* found = av.table->lookup(av.table->peer_index(index));
  if (found == nullptr) return -FI_EINVAL;
  const size_t n = *addrlen < found->len ? *addrlen : found->len;
  if (n != 0) std::memcpy(addr, found->bytes.data(), n);
  *addrlen = found->len;
  return 0;
}

const char* av_straddr(fid_av* fid, const void* addr, char* buf, size_t* len) {
  if (addr == nullptr || len == nullptr) return nullptr;
  try {
    const Domain& domain = self(fid).domain;
    const std::string text =
        domain.provider->to_string(domain.addr_format, candidate(domain, addr).address.bytes.data());
    if (buf != nullptr && *len != 0) std::snprintf(buf, *len, "%s", text.c_str());
    *len = text.size() + 1;
    return buf;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

int av_set(fid_av* fid, fi_av_set_attr*, fid_av_set**, void*) {
  return refuse(self(fid), FI_ENOSYS, "fi_av_set", "there are no collective operations");
}

int av_bind(::fid* fid, ::fid* other, uint64_t flags) {
  Av& av = *av_of(fid);
  Eq* eq = eq_of(other);
  if (eq == nullptr || flags != 0)
    return refuse(av, FI_EINVAL, "fi_av_bind", "flags must be 0 and the object an event queue");
  if (av.eq != nullptr) return refuse(av, FI_EBUSY, "fi_av_bind", "an event queue is bound already");
  hold(eq->users);
  av.eq = eq;
  return 0;
}

int av_close(::fid* fid) {
  Av* av = av_of(fid);
  if (busy(av->users)) return -FI_EBUSY;
  if (av->eq != nullptr) drop(av->eq->users);
  drop(av->domain.users);
  delete av;
  return 0;
}

fi_ops av_fid_ops = {sizeof(fi_ops), av_close, av_bind, no_control, no_ops_open, no_tostr, no_ops_set};
// Only as long as in 1.17: programs of newer headers see by `size` that the calls behind are not here.
layout::Prepared<fi_ops_av, 4> av_ops = [] {
  layout::Prepared<fi_ops_av, 4> ops{};
  ops.size = offsetof(fi_ops_av, av_set) + sizeof ops.av_set;
  ops.insert = av_insert;
  ops.insertsvc = av_insertsvc;
  ops.insertsym = av_insertsym;
  ops.remove = av_remove;
  ops.lookup = av_lookup;
  ops.straddr = av_straddr;
  ops.av_set = av_set;
  return ops;
}();

const char* why_not(const fi_av_attr& attr) noexcept {
  const int type = number_of(attr.type);
  if (type != FI_AV_UNSPEC && type != FI_AV_MAP && type != FI_AV_TABLE)
    return "type is none of MAP, TABLE, UNSPEC";
  if (attr.rx_ctx_bits < 0 || attr.rx_ctx_bits > 16) return "rx_ctx_bits is not within 0 to 16";
  if (attr.count > core::AddressVector::count_max) return "count is above 16777216";
  if ((attr.flags & ~uint64_t{FI_EVENT | FI_READ | FI_SYMMETRIC}) != 0)
    return "flags knows only FI_EVENT, FI_READ and FI_SYMMETRIC";
  if ((attr.flags & FI_READ) != 0 && attr.name == nullptr) return "FI_READ needs a name";
  return nullptr;
}

// fi_av(3), name. That nobody has the name has a normal way out: the program makes one of its own.
int join(const Domain& domain, fi_av_attr& attr, Av& av) {
  Result<NamedTable> named = open_named_table(domain, attr);
  if (!named) {
    const int code = named.error().code;
    const char* why = named.error().why.c_str();
    if (code == FI_ENOENT) log_info(domain.provider->name, FI_LOG_AV, "fi_av_open: %s", why);
    else log_warn(domain.provider->name, FI_LOG_AV, "fi_av_open: %s", why);
    return -code;
  }
  av.table = std::move(named->table);
  av.name = attr.name;
  if (attr.map_addr == nullptr) attr.map_addr = named->map_addr;
  return 0;
}

}  // namespace

int open_av(Domain& domain, fi_av_attr* attr, fid_av** out, void* context) {
  if (attr == nullptr || out == nullptr) return -FI_EINVAL;
  if (const char* why = why_not(*attr)) {
    log_warn(domain.provider->name, FI_LOG_AV, "fi_av_open: %s", why);
    return -FI_EINVAL;
  }
  auto av = std::make_unique<Av>(domain);
  if (attr->name == nullptr) {
    av->table = std::make_shared<core::AddressVector>(attr->rx_ctx_bits);
  } else if (const int status = join(domain, *attr, *av); status != 0) {
    return status;
  }
  if (attr->type == FI_AV_UNSPEC) attr->type = domain.attr.av_type == FI_AV_MAP ? FI_AV_MAP : FI_AV_TABLE;
  av->fid.fid = {FI_CLASS_AV, context, &av_fid_ops};
  av->fid.ops = &av_ops;
  av->type = attr->type;
  av->flags = attr->flags;
  hold(domain.users);
  *out = &av.release()->fid;
  return 0;
}

}  // namespace weft::fi
