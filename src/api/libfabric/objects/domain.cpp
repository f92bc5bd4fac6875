// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Domains at the C ABI: fi_domain(3). Must not know which links exist.
#include <algorithm>
#include <cstring>
#include <weft/libfabric_retired.hpp>

#include "api/libfabric/abi/prepared.hpp"
#include "api/libfabric/discovery/interface_offer.hpp"
#include "api/libfabric/discovery/link_name.hpp"
#include "api/libfabric/discovery/match.hpp"
#include "api/libfabric/discovery/opened.hpp"
#include "api/libfabric/discovery/progress_choice.hpp"
#include "api/libfabric/objects/domain_device.hpp"
#include "api/libfabric/objects/objects.hpp"
#include "api/libfabric/objects/work_queue.hpp"
#include "core/atomic.hpp"

namespace weft::fi {

namespace {

Domain& self(fid_domain* fid) noexcept { return *reinterpret_cast<Domain*>(fid); }
Domain& self(::fid* fid) noexcept { return *reinterpret_cast<Domain*>(fid); }

int refuse(const Provider& provider, int code, const char* what, const char* why) {
  log_warn(provider.name, FI_LOG_DOMAIN, "%s: %s", what, why);
  return -code;
}

// An endpoint-like object, if the provider has a way to open it.
template <class Open, class... Args>
int open_by_provider(fid_domain* fid, const char* what, Open open, Args... args) {
  return no_throw([&] {
    Domain& domain = self(fid);
    if (open == nullptr) return refuse(*domain.provider, FI_ENOSYS, what, "this provider has none");
    return open(domain, args...);
  });
}

int domain_endpoint(fid_domain* fid, fi_info* info, fid_ep** ep, void* context) {
  if (info == nullptr || ep == nullptr) return -FI_EINVAL;
  return open_by_provider(fid, "fi_endpoint", self(fid).provider->endpoint, info, ep, context);
}

int domain_endpoint2(fid_domain* fid, fi_info* info, fid_ep** ep, uint64_t flags, void* context) {
  if (flags != 0) return refuse(*self(fid).provider, FI_EBADFLAGS, "fi_endpoint2", "flags must be 0");
  return domain_endpoint(fid, info, ep, context);
}

int domain_scalable_ep(fid_domain* fid, fi_info* info, fid_ep** sep, void* context) {
  if (info == nullptr || sep == nullptr) return -FI_EINVAL;
  return open_by_provider(fid, "fi_scalable_ep", self(fid).provider->scalable_endpoint, info, sep, context);
}

int domain_stx(fid_domain* fid, fi_tx_attr* attr, fid_stx** stx, void* context) {
  if (stx == nullptr) return -FI_EINVAL;
  return open_by_provider(fid, "fi_stx_context", self(fid).provider->stx, attr, stx, context);
}

int domain_srx(fid_domain* fid, fi_rx_attr* attr, fid_ep** srx, void* context) {
  if (srx == nullptr) return -FI_EINVAL;
  return open_by_provider(fid, "fi_srx_context", self(fid).provider->srx, attr, srx, context);
}

int domain_av_open(fid_domain* fid, fi_av_attr* attr, fid_av** av, void* context) {
  return no_throw([&] { return open_av(self(fid), attr, av, context); });
}

int domain_cq_open(fid_domain* fid, fi_cq_attr* attr, fid_cq** cq, void* context) {
  return no_throw([&] { return open_cq(self(fid), attr, cq, context); });
}

int domain_cntr_open(fid_domain* fid, fi_cntr_attr* attr, fid_cntr** cntr, void* context) {
  return no_throw([&] { return open_cntr(self(fid), attr, cntr, context); });
}

int domain_poll_open(fid_domain* fid, fi_poll_attr* attr, fid_poll** poll) {
  return no_throw([&] { return open_poll(self(fid), attr, poll); });
}

// fi_atomic(3), fi_query_atomic. Tagged atomic messages (FI_TAGGED) are not offered.
int domain_query_atomic(fid_domain* fid, fi_datatype datatype, fi_op op, fi_atomic_attr* attr,
                        uint64_t flags) {
  const Domain& domain = self(fid);
  if (attr == nullptr) return -FI_EINVAL;
  if ((domain.caps & FI_ATOMIC) == 0) return -FI_EOPNOTSUPP;
  if ((flags & ~uint64_t{FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC}) != 0 ||
      flags == (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC))
    return refuse(*domain.provider, FI_EBADFLAGS, "fi_query_atomic",
                  "flags is 0, FI_FETCH_ATOMIC or FI_COMPARE_ATOMIC");
  const core::AtomicKind kind = (flags & FI_COMPARE_ATOMIC) != 0 ? core::AtomicKind::Compare
                                : (flags & FI_FETCH_ATOMIC) != 0 ? core::AtomicKind::Fetch
                                                                 : core::AtomicKind::Write;
  if (!core::atomic_supported(uint32_t(datatype), uint32_t(op), kind)) return -FI_EOPNOTSUPP;
  attr->size = core::datatype_size(uint32_t(datatype));
  attr->count = atomic_bytes_max / attr->size;
  return 0;
}

int domain_query_collective(fid_domain* fid, fi_collective_op, fi_collective_attr*, uint64_t) {
  return refuse(*self(fid).provider, FI_ENOSYS, "fi_query_collective", "there are no collective operations");
}

int domain_bind(::fid* fid, ::fid* other, uint64_t flags) {
  Domain& domain = self(fid);
  Eq* eq = eq_of(other);
  if (eq == nullptr)
    return refuse(*domain.provider, FI_EINVAL, "fi_domain_bind", "a domain is bound to an event queue");
  if ((flags & ~uint64_t{retired::reg_mr}) != 0)
    return refuse(*domain.provider, FI_EBADFLAGS, "fi_domain_bind", "flags knows only FI_REG_MR");
  Eq*& place = (flags & retired::reg_mr) != 0 ? domain.registration_eq : domain.eq;
  if (place != nullptr)
    return refuse(*domain.provider, FI_EBUSY, "fi_domain_bind", "an event queue is bound already");
  hold(eq->users);
  place = eq;
  return 0;
}

// fi_mr(3), fi_mr_map_raw: our raw key is the key, so that there is nothing to keep and nothing to release.
int map_raw(struct fi_mr_map_raw* raw) noexcept {
  if (raw == nullptr || raw->raw_key == nullptr || raw->key == nullptr || raw->key_size != sizeof(uint64_t))
    return -FI_EINVAL;
  std::memcpy(raw->key, raw->raw_key, sizeof(uint64_t));
  return 0;
}

int domain_control(::fid* fid, int command, void* arg) {
  return no_throw([&] {
    Domain& domain = self(fid);
    switch (command) {
      case FI_MAP_RAW_MR:
        return map_raw(static_cast<struct fi_mr_map_raw*>(arg));
      case FI_UNMAP_KEY:
        return 0;
      case FI_QUEUE_WORK:
      case FI_CANCEL_WORK:
      case FI_FLUSH_WORK:
        return domain.work->control(command, arg);
      default:
        return -FI_ENOSYS;
    }
  });
}

int domain_close(::fid* fid) {
  Domain* domain = &self(fid);
  if (busy(domain->users)) return -FI_EBUSY;
  forget_opened(fid);
  if (domain->eq != nullptr) drop(domain->eq->users);
  if (domain->registration_eq != nullptr) drop(domain->registration_eq->users);
  drop(domain->fabric.users);
  delete domain;
  return 0;
}

fi_ops domain_fid_ops = {sizeof(fi_ops), domain_close, domain_bind, domain_control,
                         no_ops_open,    no_tostr,     no_ops_set};
layout::Prepared<fi_ops_domain, 1> domain_ops = {
    {sizeof(fi_ops_domain), domain_av_open, domain_cq_open, domain_endpoint, domain_scalable_ep,
     domain_cntr_open, domain_poll_open, domain_stx, domain_srx, domain_query_atomic, domain_query_collective,
     domain_endpoint2},
    {}};

bool needs_lock(fi_threading threading) noexcept {
  return threading != FI_THREAD_DOMAIN && threading != FI_THREAD_COMPLETION;
}

// Without a lock, threads of FI_THREAD_COMPLETION may be in several endpoints at once.
core::MemoryRegionTable::Mode table_mode(const fi_domain_attr& attr) noexcept {
  const int bits = mr_mode_bits(attr.mr_mode);
  return {(bits & FI_MR_PROV_KEY) != 0, (bits & FI_MR_VIRT_ADDR) != 0,
          attr.threading == FI_THREAD_COMPLETION};
}

}  // namespace

// Contexts of a scalable endpoint, and endpoints with a shared receive context, meet in one engine or one matcher though each may have a
// completion queue and a thread of its own: they need the lock under FI_THREAD_COMPLETION, too.
static bool shares_contexts(const fi_info& info) noexcept {
  return info.ep_attr != nullptr && (info.ep_attr->tx_ctx_cnt > 1 || info.ep_attr->rx_ctx_cnt > 1);
}

Domain::Domain(Fabric& of, const fi_info& info)
    : fabric(of),
      provider(of.provider),
      name(info.domain_attr->name == nullptr ? "" : info.domain_attr->name),
      api_version(of.fid.api_version),
      caps(info.caps),
      mode(info.mode),
      attr(*info.domain_attr),
      mr_mode(mr_mode_bits(info.domain_attr->mr_mode)),
      threading(info.domain_attr->threading),
      endpoint_type(info.ep_attr == nullptr ? FI_EP_UNSPEC : info.ep_attr->type),
      addr_format(info.addr_format != FI_FORMAT_UNSPEC ? info.addr_format
                                                       : provider->offers(*provider)->addr_format),
      addrlen(provider->addrlen(addr_format)),
      unnamed([this] {
        const std::vector<std::byte> bytes = provider->unnamed(addr_format);
        return core::Address(bytes.data(), bytes.size());
      }()),
      regions(table_mode(*info.domain_attr), os::random_bytes),
      work(std::make_unique<WorkQueue>(*this)) {
  lock.enabled = needs_lock(threading) || (threading == FI_THREAD_COMPLETION && shares_contexts(info));
  // Whoever reads an event queue drives connected endpoints, too, and the queue belongs to the fabric: no level of threading makes the
  // program serialise the two.
  if (endpoint_type == FI_EP_MSG) lock.enabled = true;
  // Endpoints meet in their device, though each may have a thread of its own.
  if (provider->open_device != nullptr && threading == FI_THREAD_COMPLETION) lock.enabled = true;
  attr.mr_mode = mr_mode;
  attr.domain = nullptr;
  attr.name = nullptr;
  attr.auth_key = nullptr;
  attr.auth_key_size = 0;
  fid.fid.fclass = FI_CLASS_DOMAIN;
  fid.fid.ops = &domain_fid_ops;
  fid.ops = &domain_ops;
  fid.mr = &region_ops;
}

Domain::~Domain() {
  progress.reset();
  note_counters();
  device.reset();
}

Result<void> Domain::open_device(const fi_info& info) {
  if (provider->open_device == nullptr) return {};
  proto::DeviceRequest request;
  request.domain = name;
  request.address_format = addr_format;
  if (!source_name(*provider, addr_format, info.src_addr, info.src_addrlen).empty())
    request.source = {static_cast<const std::byte*>(info.src_addr), info.src_addrlen};
  Result<std::unique_ptr<DomainDevice>> opened = provider->open_device(*provider, request);
  if (!opened) return opened.error();
  device = std::move(*opened);
  regions.set_registrar(device->registrar());
  return {};
}

void Domain::note_counters() const noexcept {
  if (device == nullptr || !log_enabled(FI_LOG_INFO, FI_LOG_DOMAIN, provider->name)) return;
  (void)no_throw([&] {
    std::string text;
    for (const proto::DeviceCounter& counter : device->counters())
      text += (text.empty() ? "" : ", ") + counter.name + ' ' + std::to_string(counter.value);
    if (!text.empty()) log_info(provider->name, FI_LOG_DOMAIN, "device: %s", text.c_str());
    return 0;
  });
}

void Domain::make_progress_thread() {
  const ProgressChoice choice = progress_choice();
  const bool automatic = attr.data_progress == FI_PROGRESS_AUTO ||
                         attr.control_progress == FI_PROGRESS_AUTO || choice == ProgressChoice::Auto;
  // Where calls are locked anyway the thread costs nothing until it is needed.
  const bool in_background = lock.enabled || provider->repeats_packets;
  if (choice == ProgressChoice::Manual || (!automatic && !in_background)) return;
  using Duty = os::ProgressThread::Duty;
  progress =
      std::make_unique<os::ProgressThread>(lock.mutex, automatic ? Duty::Everything : Duty::BackgroundWork);
  lock.enabled = true;
}

int Domain::drive(core::Progressor& progressor) noexcept {
  const int status = progress->add(progressor);
  if (status != 0)
    log_warn(provider->name, FI_LOG_DOMAIN, "fi_enable: the progress thread cannot take the endpoint on: %s",
             std::strerror(-status));
  return status;
}

int Domain::begin_progress(core::Progressor& engine) noexcept {
  if (progress == nullptr) return 0;
  core::Progressor* const shared = device != nullptr ? device->progressor() : nullptr;
  // First, so that the endpoints find what it has distributed.
  if (shared != nullptr && in_progress_ == 0)
    if (const int status = drive(*shared); status != 0) return status;
  const int status = drive(engine);
  if (status == 0) ++in_progress_;
  else if (shared != nullptr && in_progress_ == 0) progress->remove(*shared);
  return status;
}

void Domain::end_progress(core::Progressor& engine) noexcept {
  if (progress == nullptr) return;
  progress->remove(engine);
  if (--in_progress_ == 0 && device != nullptr && device->progressor() != nullptr)
    progress->remove(*device->progressor());
}

int Domain::add_engine(core::Progressor& engine) noexcept {
  if (!drives_all()) return 0;
  return no_throw([&] {
    engines_.reserve(engines_.size() + 1);
    for (size_t i = 0; i < region_counters_.size(); ++i) {
      if (region_counters_[i]->attach(engine) == 0) continue;
      while (i-- > 0) region_counters_[i]->detach(engine);
      return -FI_ENOMEM;
    }
    engines_.push_back(&engine);
    return 0;
  });
}

void Domain::remove_engine(core::Progressor& engine) noexcept {
  if (std::erase(engines_, &engine) == 0) return;
  for (Cntr* counter : region_counters_) counter->detach(engine);
}

int Domain::add_region_counter(Cntr& counter) noexcept {
  if (!drives_all()) return 0;
  return no_throw([&] {
    region_counters_.reserve(region_counters_.size() + 1);
    for (size_t i = 0; i < engines_.size(); ++i) {
      if (counter.attach(*engines_[i]) == 0) continue;
      while (i-- > 0) counter.detach(*engines_[i]);
      return -FI_ENOMEM;
    }
    region_counters_.push_back(&counter);
    return 0;
  });
}

void Domain::remove_region_counter(Cntr& counter) noexcept {
  const auto found = std::find(region_counters_.begin(), region_counters_.end(), &counter);
  if (found == region_counters_.end()) return;
  region_counters_.erase(found);
  for (core::Progressor* engine : engines_) counter.detach(*engine);
}

int open_domain(Fabric& fabric, fi_info* info, fid_domain** out, void* context) {
  if (info == nullptr || info->domain_attr == nullptr || out == nullptr)
    return refuse(*fabric.provider, FI_EINVAL, "fi_domain", "info with domain_attr is needed");
  // The program may have edited what fi_getinfo gave it.
  Result<InfoPtr> answer = match_any(*fabric.provider, fabric.fid.api_version, info);
  if (!answer) return refuse(*fabric.provider, FI_EINVAL, "fi_domain", answer.error().why.c_str());
  // Any style of registration is served, so the one in `info` counts, not the least that is demanded.
  (*answer)->domain_attr->mr_mode = info->domain_attr->mr_mode;
  auto domain = std::make_unique<Domain>(fabric, **answer);
  domain->fid.fid.context = context;
  const std::vector<std::byte> source = source_in_domain(*fabric.provider, domain->addr_format, *info);
  domain->source = link_name(domain->addr_format, source.data(), source.size());
  if (Result<void> opened = domain->open_device(*info); !opened)
    return refuse(*fabric.provider, opened.error().code, "fi_domain", opened.error().why.c_str());
  domain->make_progress_thread();
  hold(fabric.users);
  *out = &domain.release()->fid;
  note_opened(*fabric.provider, self(*out).name.c_str(), *out);
  return 0;
}

}  // namespace weft::fi
