// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory registration at the C ABI: fi_mr(3). Must not know which links exist.
#include <cstring>
#include <weft/libfabric_retired.hpp>

#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/objects/objects.hpp"

namespace weft::fi {

namespace {

constexpr uint64_t known_access =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_COLLECTIVE;
constexpr uint64_t known_flags = FI_RMA_EVENT | FI_RMA_PMEM;

int refuse(const Domain& domain, int code, const char* why) {
  log_warn(domain.provider->name, FI_LOG_MR, "memory registration: %s", why);
  return -code;
}

// An application's key has to fit the size that the domain was opened with.
bool key_fits(const Domain& domain, uint64_t key) noexcept {
  const size_t bytes = domain.attr.mr_key_size;
  return bytes == 0 || bytes >= sizeof key || (key >> (8 * bytes)) == 0;
}

int check(const Domain& domain, const fi_mr_attr& attr, uint64_t flags) {
  const size_t limit = domain.attr.mr_iov_limit != 0 && domain.attr.mr_iov_limit < core::MemoryRegion::iov_max
                           ? domain.attr.mr_iov_limit
                           : core::MemoryRegion::iov_max;
  if (attr.mr_iov == nullptr || attr.iov_count == 0) return refuse(domain, FI_EINVAL, "no buffer was given");
  if (attr.iov_count > limit) return refuse(domain, FI_EINVAL, "there are more pieces than mr_iov_limit");
  if ((attr.access & ~known_access) != 0)
    return refuse(domain, FI_EINVAL, "access has bits that fi_mr(3) does not define");
  if (attr.offset != 0) return refuse(domain, FI_EINVAL, "offset must be 0");
  if ((flags & ~known_flags) != 0)
    return refuse(domain, FI_EBADFLAGS, "flags knows only FI_RMA_EVENT and FI_RMA_PMEM");
  if ((domain.mr_mode & FI_MR_PROV_KEY) == 0 && !key_fits(domain, attr.requested_key))
    return refuse(domain, FI_EKEYREJECTED, "requested_key is longer than mr_key_size");
  return 0;
}

// Regions that fi_mr_enable has to switch on: fi_mr(3), FI_MR_RMA_EVENT and FI_MR_ENDPOINT.
bool starts_disabled(const Domain& domain, uint64_t flags) noexcept {
  if ((domain.mr_mode & FI_MR_ENDPOINT) != 0) return true;
  return (domain.mr_mode & FI_MR_RMA_EVENT) != 0 && (flags & FI_RMA_EVENT) != 0;
}

// A device is entered with the domain lock held only; without one, registration does not wait for the data path.
std::unique_lock<DomainLock> lock_device(Domain& domain) noexcept {
  return domain.device != nullptr ? std::unique_lock(domain.lock) : std::unique_lock<DomainLock>();
}

int mr_enable(Mr& mr) noexcept {
  if ((mr.domain.mr_mode & FI_MR_ENDPOINT) != 0 && mr.endpoint == nullptr)
    return refuse(mr.domain, FI_EINVAL,
                  "FI_MR_ENDPOINT: bind the region to an endpoint before it is enabled");
  const auto guard = lock_device(mr.domain);
  mr.domain.regions.enable(*mr.region);
  return 0;
}

// fi_mr(3), fi_mr_raw_attr: our raw key is the key.
int raw_attr(const Mr& mr, struct fi_mr_raw_attr* raw) noexcept {
  if (raw == nullptr || raw->key_size == nullptr) return -FI_EINVAL;
  const size_t room = *raw->key_size;
  *raw->key_size = sizeof mr.fid.key;
  if (room < sizeof mr.fid.key || raw->raw_key == nullptr) return -FI_ETOOSMALL;
  std::memcpy(raw->raw_key, &mr.fid.key, sizeof mr.fid.key);
  if (raw->base_addr != nullptr) *raw->base_addr = mr.region->base();
  return 0;
}

int mr_control(::fid* fid, int command, void* arg) {
  Mr& mr = *mr_of(fid);
  switch (command) {
    case FI_ENABLE:
      return mr_enable(mr);
    case FI_GET_RAW_MR:
      return raw_attr(mr, static_cast<struct fi_mr_raw_attr*>(arg));
    case FI_REFRESH:
      return 0;  // pages are looked up at each access, so there is nothing to refresh
    default:
      return -FI_ENOSYS;
  }
}

int bind_counter(Mr& mr, Cntr& cntr, uint64_t flags) {
  if (flags == 0 || (flags & ~uint64_t{FI_REMOTE_WRITE | FI_REMOTE_READ}) != 0)
    return refuse(mr.domain, FI_EBADFLAGS, "a counter is bound with FI_REMOTE_WRITE, FI_REMOTE_READ or both");
  if (&cntr.domain != &mr.domain)
    return refuse(mr.domain, FI_EINVAL, "the counter belongs to another domain");
  mr.counters.reserve(mr.counters.size() + 1);
  if (const int status = mr.domain.add_region_counter(cntr); status != 0) return status;
  mr.counters.push_back(&cntr);
  hold(cntr.users);
  mr.domain.regions.bind(*mr.region, &cntr.counter, flags);
  return 0;
}

int mr_bind(::fid* fid, ::fid* other, uint64_t flags) {
  return no_throw([&] {
    Mr& mr = *mr_of(fid);
    std::scoped_lock guard(mr.domain.lock);
    if (starts_disabled(mr.domain, mr.region->flags()) && mr.region->enabled())
      return refuse(mr.domain, FI_EINVAL, "nothing can be bound after fi_mr_enable");
    if (Cntr* cntr = cntr_of(other)) return bind_counter(mr, *cntr, flags);
    if (other != nullptr && (other->fclass == FI_CLASS_EP || other->fclass == FI_CLASS_SEP)) {
      if (flags != 0) return refuse(mr.domain, FI_EBADFLAGS, "an endpoint is bound with flags 0");
      mr.endpoint = reinterpret_cast<fid_ep*>(other);
      return 0;
    }
    return refuse(mr.domain, FI_EINVAL, "a region is bound to a counter or an endpoint");
  });
}

// Under the domain lock, so that no transfer starts meanwhile; one that runs keeps the region: -FI_EBUSY.
int mr_close(::fid* fid) {
  Mr* mr = mr_of(fid);
  if (busy(mr->users)) return -FI_EBUSY;
  Domain& domain = mr->domain;
  {
    std::scoped_lock guard(domain.lock);
    if (const int status = domain.regions.remove(*mr->region); status != 0) return status;
    for (Cntr* cntr : mr->counters) domain.remove_region_counter(*cntr);
  }
  for (Cntr* cntr : mr->counters) drop(cntr->users);
  drop(domain.users);
  delete mr;
  return 0;
}

fi_ops mr_fid_ops = {sizeof(fi_ops), mr_close, mr_bind, mr_control, no_ops_open, no_tostr, no_ops_set};

int open_region(Domain& domain, const fi_mr_attr& attr, uint64_t flags, fid_mr** out) {
  auto mr = std::make_unique<Mr>(domain);
  core::RegionRequest request;
  request.iov = attr.mr_iov;
  request.iov_count = attr.iov_count;
  request.access = attr.access;
  request.requested_key = attr.requested_key;
  request.flags = flags;
  request.context = attr.context;
  request.enabled = !starts_disabled(domain, flags);
  Result<core::MemoryRegion*> region = [&] {
    const auto guard = lock_device(domain);
    return domain.regions.add(request);
  }();
  if (!region) return refuse(domain, region.error().code, region.error().why.c_str());
  mr->region = *region;
  mr->fid.fid = {FI_CLASS_MR, attr.context, &mr_fid_ops};
  mr->fid.mem_desc = mr.get();
  mr->fid.key = mr->region->key();
  hold(domain.users);
  *out = &mr.release()->fid;
  return 0;
}

// fi_domain(3), fi_domain_bind with FI_REG_MR: the result comes as an event. The work is done at once; room
// for the event is taken first.
int open_region_with_event(Domain& domain, const fi_mr_attr& attr, uint64_t flags, fid_mr** out) {
  core::EventQueue& queue = domain.registration_eq->queue;
  if (queue.reserve(1) != 0) return -FI_EAGAIN;
  if (const int status = open_region(domain, attr, flags, out); status != 0) {
    queue.unreserve(1);
    return status;
  }
  fi_eq_entry done{};
  done.fid = &(*out)->fid;
  done.context = attr.context;
  queue.write_reserved(FI_MR_COMPLETE, &done, sizeof done);
  return 0;
}

int register_region(::fid* fid, const fi_mr_attr& attr, uint64_t flags, fid_mr** out) {
  if (fid == nullptr || fid->fclass != FI_CLASS_DOMAIN || out == nullptr) return -FI_EINVAL;
  return no_throw([&] {
    Domain& domain = *reinterpret_cast<Domain*>(fid);
    if (const int status = check(domain, attr, flags); status != 0) return status;
    if (domain.registration_eq != nullptr) return open_region_with_event(domain, attr, flags, out);
    return open_region(domain, attr, flags, out);
  });
}

int regv(::fid* fid, const iovec* iov, size_t count, uint64_t access, uint64_t offset, uint64_t requested_key,
         uint64_t flags, fid_mr** out, void* context) {
  fi_mr_attr attr{};
  attr.mr_iov = iov;
  attr.iov_count = count;
  attr.access = access;
  attr.offset = offset;
  attr.requested_key = requested_key;
  attr.context = context;
  return register_region(fid, attr, flags, out);
}

int reg(::fid* fid, const void* buf, size_t len, uint64_t access, uint64_t offset, uint64_t requested_key,
        uint64_t flags, fid_mr** out, void* context) {
  const iovec iov{const_cast<void*>(buf), len};
  return regv(fid, &iov, 1, access, offset, requested_key, flags, out, context);
}

// Fields that came with later interfaces are looked at only when the program knows them.
int regattr(::fid* fid, const fi_mr_attr* attr, uint64_t flags, fid_mr** out) {
  if (fid == nullptr || fid->fclass != FI_CLASS_DOMAIN || attr == nullptr) return -FI_EINVAL;
  const Domain& domain = *reinterpret_cast<Domain*>(fid);
  if ((flags & later::mr_dmabuf) != 0)  // the memory is described by another structure
    return refuse(domain, FI_ENOSYS, "FI_MR_DMABUF: only memory of the process");
  fi_mr_attr asked{};
  std::memcpy(static_cast<void*>(&asked), attr, layout::region_bytes(domain.api_version));
  if (asked.auth_key_size != 0) return refuse(domain, FI_ENOSYS, "there are no authorization keys");
  if (number_of(asked.iface) != FI_HMEM_SYSTEM)
    return refuse(domain, FI_ENOSYS, "iface: only system memory (FI_HMEM_SYSTEM)");
  return register_region(fid, asked, flags, out);
}

}  // namespace

fi_ops_mr region_ops = {sizeof(fi_ops_mr), reg, regv, regattr};

int mr_mode_bits(int mr_mode) noexcept {
  if (mr_mode == retired::mr_basic) return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  return mr_mode & ~(retired::mr_basic | retired::mr_scalable);
}

}  // namespace weft::fi
