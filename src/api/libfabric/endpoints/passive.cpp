// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Passive endpoints at the C ABI: fi_passive_ep, fi_pep_bind, fi_listen, fi_reject (fi_endpoint(3), fi_cm(3)). Must not know which links
// exist.
#include "api/libfabric/endpoints/passive.hpp"
#include "api/libfabric/abi/prepared.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "api/libfabric/endpoints/answers.hpp"
#include "api/libfabric/text/log.hpp"

namespace weft::fi {

namespace {

Passive& self(::fid* fid) noexcept { return *reinterpret_cast<Passive*>(fid); }
Passive& self(fid_pep* pep) noexcept { return *reinterpret_cast<Passive*>(pep); }

int refuse(const Passive& passive, int code, const char* what, const char* why) {
  log_warn(passive.fabric.provider->name, FI_LOG_EP_CTRL, "%s: %s", what, why);
  return -code;
}

int pep_bind(::fid* fid, ::fid* other, uint64_t flags) {
  Passive& passive = self(fid);
  Eq* eq = eq_of(other);
  if (eq == nullptr)
    return refuse(passive, FI_EINVAL, "fi_pep_bind", "a passive endpoint is bound to an event queue");
  if (flags != 0) return refuse(passive, FI_EBADFLAGS, "fi_pep_bind", "flags must be 0");
  std::scoped_lock guard(passive.mutex);
  if (passive.eq != nullptr || passive.surrendered)
    return refuse(passive, FI_EINVAL, "fi_pep_bind", "an event queue is bound already");
  if (&eq->fabric != &passive.fabric)
    return refuse(passive, FI_EINVAL, "fi_pep_bind", "the event queue belongs to another fabric");
  hold(eq->users);
  passive.eq = eq;
  return 0;
}

int pep_control(::fid* fid, int command, void* arg) {
  Passive& passive = self(fid);
  if (command != FI_BACKLOG) return -FI_ENOSYS;
  if (arg == nullptr) return -FI_EINVAL;
  const int backlog = *static_cast<const int*>(arg);
  if (backlog < 0) return -FI_EINVAL;
  return no_throw([&] {
    std::scoped_lock guard(passive.mutex);
    passive.backlog = std::clamp(backlog, 1, Passive::backlog_max);
    if (!passive.listening) return 0;
    auto again = passive.side->listen(passive.backlog);
    return again ? 0 : refuse(passive, again.error().code, "FI_BACKLOG", again.error().why.c_str());
  });
}

int pep_listen(fid_pep* pep) {
  Passive& passive = self(pep);
  return no_throw([&] {
    {
      std::scoped_lock guard(passive.mutex);
      if (passive.surrendered) return -FI_EOPBADSTATE;
      if (passive.eq == nullptr) return refuse(passive, FI_ENOEQ, "fi_listen", "no event queue is bound");
      if (passive.listening) return 0;
      auto listens = passive.side->listen(passive.backlog);
      if (!listens) return refuse(passive, listens.error().code, "fi_listen", listens.error().why.c_str());
      passive.listening = true;
    }
    return passive.eq->attach(passive.source);
  });
}

int pep_reject(fid_pep* pep, ::fid* handle, const void* param, size_t length) {
  Passive& passive = self(pep);
  const std::unique_ptr<ConnectionRequest> request = passive.fabric.take(handle);
  if (request == nullptr)
    return refuse(passive, FI_EINVAL, "fi_reject", "the handle is no request, or was answered before");
  request->reject(connection_data(param, length, passive.data_bytes_max));
  return 0;
}

int pep_getname(::fid* fid, void* address, size_t* length) {
  Passive& passive = self(fid);
  if (length == nullptr) return -FI_EINVAL;
  std::scoped_lock guard(passive.mutex);
  if (passive.surrendered) return -FI_EOPBADSTATE;
  return copy_address(passive.side->address(), address, length);
}

uint32_t format_of(const Passive& passive) noexcept {
  return passive.info->addr_format != FI_FORMAT_UNSPEC
             ? passive.info->addr_format
             : passive.fabric.provider->offers(*passive.fabric.provider)->addr_format;
}

int pep_setname(::fid* fid, void* address, size_t length) {
  Passive& passive = self(fid);
  if (address == nullptr) return -FI_EINVAL;
  return no_throw([&] {
    const uint32_t format = format_of(passive);
    std::vector<std::byte> bytes(passive.fabric.provider->addrlen(format));
    const std::string given = link_name(format, address, length);
    if (given.empty() || (format == FI_ADDR_STR ? given.size() >= bytes.size() : given.size() < bytes.size()))
      return -FI_EINVAL;
    std::memcpy(bytes.data(), given.data(), std::min(given.size(), bytes.size()));
    if (!passive.fabric.provider->normalise(format, bytes.data())) return -FI_EINVAL;
    std::scoped_lock guard(passive.mutex);
    if (passive.listening || passive.surrendered) return -FI_EOPBADSTATE;
    auto opened =
        passive.side->open(source_name(*passive.fabric.provider, format, bytes.data(), bytes.size()));
    return opened ? 0 : refuse(passive, opened.error().code, "fi_setname", opened.error().why.c_str());
  });
}

int pep_getopt(::fid* fid, int level, int name, void* value, size_t* length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  if (value == nullptr || length == nullptr) return -FI_EINVAL;
  return copy_option(self(fid).data_bytes_max, value, length);
}

int pep_close(::fid* fid) {
  Passive* passive = &self(fid);
  if (passive->eq != nullptr) {
    passive->eq->detach(passive->source, fid);
    drop(passive->eq->users);
  }
  drop(passive->fabric.users);
  delete passive;
  return 0;
}

// A request that the program neither accepts nor rejects may be closed: its maker hears that it was refused.
int request_close(::fid* fid) {
  auto* request = reinterpret_cast<ConnectionRequest::Handle*>(fid)->request;
  return request->fabric.take(fid) == nullptr ? -FI_EINVAL : 0;
}

ssize_t no_cancel(::fid*, void*) { return -FI_ENOSYS; }
int no_setopt(::fid*, int, int, const void*, size_t) { return -FI_ENOPROTOOPT; }
int no_tx_ctx(fid_ep*, int, fi_tx_attr*, fid_ep**, void*) { return -FI_ENOSYS; }
int no_rx_ctx(fid_ep*, int, fi_rx_attr*, fid_ep**, void*) { return -FI_ENOSYS; }
ssize_t no_size_left(fid_ep*) { return -FI_ENOSYS; }
int no_getpeer(fid_ep*, void*, size_t*) { return -FI_ENOSYS; }
int no_connect(fid_ep*, const void*, const void*, size_t) { return -FI_ENOSYS; }
int no_accept(fid_ep*, const void*, size_t) { return -FI_ENOSYS; }
int no_shutdown(fid_ep*, uint64_t) { return -FI_ENOSYS; }
int no_join(fid_ep*, const void*, uint64_t, fid_mc**, void*) { return -FI_ENOSYS; }

fi_ops pep_fid_ops = {sizeof(fi_ops), pep_close, pep_bind, pep_control, no_ops_open, no_tostr, no_ops_set};
layout::Prepared<fi_ops_ep, 1> pep_ops = {
    {sizeof(fi_ops_ep), no_cancel, pep_getopt, no_setopt, no_tx_ctx, no_rx_ctx, no_size_left, no_size_left},
    {}};
fi_ops_cm pep_cm_ops = {sizeof(fi_ops_cm), pep_setname, pep_getname, no_getpeer,  no_connect,
                        pep_listen,        no_accept,   pep_reject,  no_shutdown, no_join};

// The fi_info of a request: that of the passive endpoint, with both addresses and the handle (fi_eq(3)).
InfoPtr describe(const Passive& passive, ConnectionRequest& request) {
  InfoPtr info(dup_info(passive.info.get(), Abi::v1_9));
  if (info == nullptr) throw std::bad_alloc();
  const auto put = [](void** place, size_t* length, std::span<const std::byte> bytes) {
    if (!assign_bytes(place, length, bytes.data(), bytes.size())) throw std::bad_alloc();
  };
  put(&info->src_addr, &info->src_addrlen, request.local_address());
  put(&info->dest_addr, &info->dest_addrlen, request.peer_address());
  info->handle = &request.handle.fid;
  return info;
}

// False: out of memory; the request is gone and its maker refused.
bool announce(Passive& passive, std::unique_ptr<ConnectionRequest> request) noexcept try {
  InfoPtr info = describe(passive, *request);
  std::array<std::byte, core::EventQueue::event_bytes_max> event{};
  fi_eq_cm_entry head{};
  head.fid = &passive.fid.fid;
  head.info = info.get();
  const auto data = request->data();
  const size_t bytes = std::min(data.size(), event.size() - sizeof(head));
  std::memcpy(event.data(), &head, sizeof(head));
  if (bytes != 0) std::memcpy(event.data() + sizeof(head), data.data(), bytes);
  ::fid* handle = &request->handle.fid;
  request->queue = passive.eq;
  passive.fabric.add(std::move(request));
  if (passive.eq->queue.write_reserved(FI_CONNREQ, event.data(), sizeof(head) + bytes, sizeof(head)) != 0) {
    (void)passive.fabric.take(handle);
    return false;
  }
  (void)info.release();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace

fi_ops request_ops = {sizeof(fi_ops), request_close, no_bind, no_control, no_ops_open, no_tostr, no_ops_set};

// Takes requests in as long as the event queue has room; the others wait in the listener, up to its backlog.
void Passive::Source::drive() noexcept {
  std::scoped_lock guard(passive.mutex);
  if (!passive.listening) return;
  passive.side->poll();
  for (;;) {
    if (passive.eq->queue.reserve(1) != 0) return;
    std::unique_ptr<ConnectionRequest> request;
    try {
      request = passive.side->next();
    } catch (const std::bad_alloc&) {
    }
    if (request == nullptr || !announce(passive, std::move(request))) {
      passive.eq->queue.unreserve(1);
      return;
    }
  }
}

int Passive::surrender(std::string& name) {
  Eq* left = nullptr;
  {
    std::scoped_lock guard(mutex);
    if (listening || surrendered)
      return refuse(*this, FI_EINVAL, "fi_endpoint", "a passive endpoint that listens keeps its address");
    const auto own = side->address();
    name = link_name(format_of(*this), own.data(), own.size());
    side->close();
    surrendered = true;
    left = std::exchange(eq, nullptr);
  }
  if (left != nullptr) drop(left->users);
  return 0;
}

int open_passive(Fabric& fabric, fi_info* info, std::unique_ptr<PassiveSide> side, size_t data_bytes_max,
                 fid_pep** pep, void* context) {
  if (info->ep_attr == nullptr || info->ep_attr->type != FI_EP_MSG) {
    log_warn(fabric.provider->name, FI_LOG_EP_CTRL, "fi_passive_ep: ep_attr->type must be FI_EP_MSG");
    return -FI_EINVAL;
  }
  InfoPtr copy(dup_info(info, abi_of(fabric.fid.api_version)));
  if (copy == nullptr) return -FI_ENOMEM;
  copy->handle = nullptr;
  auto passive = std::make_unique<Passive>(fabric, std::move(copy));
  auto opened =
      side->open(source_name(*fabric.provider, format_of(*passive), info->src_addr, info->src_addrlen));
  if (!opened) return refuse(*passive, opened.error().code, "fi_passive_ep", opened.error().why.c_str());
  passive->side = std::move(side);
  passive->data_bytes_max = data_bytes_max;
  passive->fid.fid = {FI_CLASS_PEP, context, &pep_fid_ops};
  passive->fid.ops = &pep_ops;
  passive->fid.cm = &pep_cm_ops;
  hold(fabric.users);
  *pep = &passive.release()->fid;
  return 0;
}

}  // namespace weft::fi
