// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fabrics at the C ABI (fi_fabric(3)) and the entries that objects without an operation share. Must not
// know which links exist.
#include "api/libfabric/objects/open_fabric.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "api/libfabric/discovery/opened.hpp"
#include "api/libfabric/objects/objects.hpp"

namespace weft::fi {

namespace {

Fabric& self(fid_fabric* fid) noexcept { return *reinterpret_cast<Fabric*>(fid); }

int fabric_domain(fid_fabric* fid, fi_info* info, fid_domain** domain, void* context) {
  return no_throw([&] { return open_domain(self(fid), info, domain, context); });
}

int fabric_domain2(fid_fabric* fid, fi_info* info, fid_domain** domain, uint64_t flags, void* context) {
  if (flags == 0) return fabric_domain(fid, info, domain, context);
  log_warn(self(fid).provider->name, FI_LOG_FABRIC,
           "fi_domain2: flags must be 0, peer domains are not supported");
  return -FI_EBADFLAGS;
}

int fabric_passive_ep(fid_fabric* fid, fi_info* info, fid_pep** pep, void* context) {
  Fabric& fabric = self(fid);
  if (fabric.provider->passive_endpoint == nullptr) {
    log_warn(fabric.provider->name, FI_LOG_FABRIC,
             "fi_passive_ep: this provider has no connected endpoints (FI_EP_MSG)");
    return -FI_ENOSYS;
  }
  if (info == nullptr || pep == nullptr) return -FI_EINVAL;
  return no_throw([&] { return fabric.provider->passive_endpoint(fabric, info, pep, context); });
}

int fabric_eq_open(fid_fabric* fid, fi_eq_attr* attr, fid_eq** eq, void* context) {
  return no_throw([&] { return open_eq(self(fid), attr, eq, context); });
}

int fabric_wait_open(fid_fabric* fid, fi_wait_attr* attr, fid_wait** wait) {
  return no_throw([&] { return open_wait(self(fid), attr, wait); });
}

int fabric_close(::fid* fid) {
  auto* fabric = reinterpret_cast<Fabric*>(fid);
  if (busy(fabric->users)) return -FI_EBUSY;
  forget_opened(fid);
  delete fabric;
  return 0;
}

fi_ops fabric_fid_ops = {sizeof(fi_ops), fabric_close, no_bind,   no_control,
                         no_ops_open,    no_tostr,     no_ops_set};
fi_ops_fabric fabric_ops = {sizeof(fi_ops_fabric), fabric_domain, fabric_passive_ep, fabric_eq_open,
                            fabric_wait_open,      try_wait,      fabric_domain2};

}  // namespace

int open_fabric(const Provider& provider, fi_fabric_attr* attr, fid_fabric** out, void* context) {
  if (attr == nullptr || out == nullptr) return -FI_EINVAL;
  return no_throw([&] {
    auto* fabric = new Fabric;
    fabric->provider = &provider;
    if (attr->name != nullptr) fabric->name = attr->name;
    fabric->fid.fid = {FI_CLASS_FABRIC, context, &fabric_fid_ops};
    fabric->fid.ops = &fabric_ops;
    fabric->fid.api_version = attr->api_version;
    note_opened(provider, fabric->name.c_str(), &fabric->fid);
    *out = &fabric->fid;
    return 0;
  });
}

void Fabric::add(std::unique_ptr<ConnectionRequest> request) {
  std::scoped_lock guard(requests_mutex);
  requests.push_back(std::move(request));
}

std::unique_ptr<ConnectionRequest> Fabric::take(const ::fid* handle) noexcept {
  std::scoped_lock guard(requests_mutex);
  for (auto& entry : requests) {
    if (&entry->handle.fid != handle) continue;
    std::unique_ptr<ConnectionRequest> found = std::move(entry);
    entry = std::move(requests.back());
    requests.pop_back();
    return found;
  }
  return nullptr;
}

void Fabric::refuse_requests_of(const void* queue) noexcept {
  for (;;) {
    std::unique_ptr<ConnectionRequest> one;  // refused by its destructor, without the lock
    const std::scoped_lock guard(requests_mutex);
    const auto found = std::ranges::find_if(requests, [&](const auto& r) { return r->queue == queue; });
    if (found == requests.end()) return;
    one = std::move(*found);
    requests.erase(found);
  }
}

int no_bind(::fid*, ::fid*, uint64_t) { return -FI_ENOSYS; }
int no_control(::fid*, int, void*) { return -FI_ENOSYS; }
int no_ops_open(::fid*, const char*, uint64_t, void**, void*) { return -FI_ENOSYS; }
int no_tostr(const ::fid*, char*, size_t) { return -FI_ENOSYS; }
int no_ops_set(::fid*, const char*, uint64_t, void*, void*) { return -FI_ENOSYS; }

}  // namespace weft::fi
