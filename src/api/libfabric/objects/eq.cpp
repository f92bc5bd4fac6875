// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Event queues at the C ABI: fi_eq(3). Must not know which links exist.
#include <cstdio>
#include <cstring>
#include <utility>

#include "api/libfabric/objects/objects.hpp"
#include "core/provider_error.hpp"

namespace weft::fi {

namespace {

Eq& self(fid_eq* fid) noexcept { return *reinterpret_cast<Eq*>(fid); }

// Events that are there come first; an empty queue drives what reports to it, and now and then another one does, too.
ssize_t eq_read(fid_eq* fid, uint32_t* event, void* buf, size_t len, uint64_t flags) {
  Eq& eq = self(fid);
  const bool peek = (flags & FI_PEEK) != 0;
  const ssize_t status = eq.queue.read(event, buf, len, peek);
  if (status != -FI_EAGAIN) {
    if (eq.is_due()) eq.control.drive();
    return status;
  }
  eq.control.drive();
  return eq.queue.read(event, buf, len, peek);
}

ssize_t eq_sread(fid_eq* fid, uint32_t* event, void* buf, size_t len, int timeout, uint64_t flags) {
  Eq& eq = self(fid);
  if (eq.wait.owned == nullptr) return -FI_EINVAL;  // FI_WAIT_NONE, FI_WAIT_SET: fi_eq(3), fi_eq_sread
  const core::ProgressorList nobody;
  return eq.wait.sleeper->wait(
      eq.lock, nobody, -FI_EAGAIN, timeout, [&]() -> long { return eq_read(fid, event, buf, len, flags); },
      [&] { return eq.queue.arm(); });
}

// err_data as in fi_cq_readerr: lent before interface 1.5 or with a size of 0.
void copy_error(Eq& eq, fi_eq_err_entry* out) noexcept {
  core::EventError& error = eq.last_error;
  out->fid = error.object;
  out->context = error.context;
  out->data = error.data;
  out->err = error.err;
  out->prov_errno = error.prov_errno;
  const size_t size = error.err_data.size();
  void* lent = size == 0 ? nullptr : error.err_data.data();
  if (FI_VERSION_GE(eq.fabric.fid.api_version, FI_VERSION(1, 5)) && out->err_data_size != 0 &&
      out->err_data != nullptr) {
    const size_t n = out->err_data_size < size ? out->err_data_size : size;
    if (n != 0) std::memcpy(out->err_data, lent, n);
    out->err_data_size = n;
    return;
  }
  out->err_data = lent;
  out->err_data_size = size;
}

ssize_t eq_readerr(fid_eq* fid, fi_eq_err_entry* out, uint64_t flags) {
  Eq& eq = self(fid);
  if (eq.is_due()) eq.control.drive();
  std::scoped_lock guard(eq.lock);
  core::EventError error;
  if (const int status = eq.queue.read_error(error, (flags & FI_PEEK) != 0); status != 0) return status;
  eq.last_error = std::move(error);
  copy_error(eq, out);
  return sizeof(fi_eq_err_entry);
}

ssize_t eq_write(fid_eq* fid, uint32_t event, const void* buf, size_t len, uint64_t flags) {
  Eq& eq = self(fid);
  if (!eq.writable || flags != 0) return -FI_EINVAL;  // opened without FI_WRITE: fi_eq(3), fi_eq_open
  const int status = eq.queue.write(event, buf, len);
  return status == 0 ? ssize_t(len) : status;
}

const char* eq_strerror(fid_eq*, int prov_errno, const void*, char* buf, size_t len) {
  const char* text = core::to_text(core::ProviderError(prov_errno));
  if (buf == nullptr || len == 0) return text;
  std::snprintf(buf, len, "%s", text);
  return buf;
}

int eq_close(::fid* fid) {
  Eq* eq = eq_of(fid);
  if (busy(eq->users)) return -FI_EBUSY;
  // Its passive endpoints are closed. The program tears down and will not answer what it has read; their makers hear that at once.
  eq->fabric.refuse_requests_of(eq);
  eq->control.close(eq->wait.sleeper);
  close_wait_object(eq->wait, fid);
  drop(eq->fabric.users);
  delete eq;
  return 0;
}

int eq_control(::fid* fid, int command, void* arg) { return wait_control(eq_of(fid)->wait, command, arg); }

fi_ops eq_fid_ops = {sizeof(fi_ops), eq_close, no_bind, eq_control, no_ops_open, no_tostr, no_ops_set};
fi_ops_eq eq_ops = {sizeof(fi_ops_eq), eq_read, eq_readerr, eq_write, eq_sread, eq_strerror};

}  // namespace

// An FI_CONNREQ that nobody read owns an fi_info and a request.
void Eq::detach(ControlSource& source, const ::fid* object) noexcept {
  control.remove(source);
  queue.purge(object, [&](uint32_t number, const std::byte* bytes) {
    if (number != FI_CONNREQ) return;
    fi_eq_cm_entry entry;
    std::memcpy(static_cast<void*>(&entry), bytes, sizeof(entry));
    (void)fabric.take(entry.info->handle);
    free_info(entry.info);
  });
}

int open_eq(Fabric& fabric, fi_eq_attr* attr, fid_eq** out, void* context) {
  const fi_eq_attr defaults{};
  const fi_eq_attr& asked = attr == nullptr ? defaults : *attr;
  if (out == nullptr) return -FI_EINVAL;
  if ((asked.flags & ~uint64_t{FI_WRITE | FI_AFFINITY}) != 0) {
    log_warn(fabric.provider->name, FI_LOG_EQ, "fi_eq_open: flags knows only FI_WRITE and FI_AFFINITY");
    return -FI_EBADFLAGS;
  }
  auto eq = std::make_unique<Eq>(fabric, asked.size);
  eq->fid.fid = {FI_CLASS_EQ, context, &eq_fid_ops};
  eq->fid.ops = &eq_ops;
  eq->writable = (asked.flags & FI_WRITE) != 0;
  const int status =
      open_wait_object(*fabric.provider, FI_LOG_EQ, asked.wait_obj, asked.wait_set, &eq->fid.fid, eq->wait);
  if (status != 0) return status;
  eq->queue.set_signal(eq->wait.sleeper);
  hold(fabric.users);
  *out = &eq.release()->fid;
  return 0;
}

}  // namespace weft::fi
