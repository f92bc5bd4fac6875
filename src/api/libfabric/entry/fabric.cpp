// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_fabric(3) and fi_open: finds who is meant. Must not know the objects behind them.
#include "api/libfabric/entry/fabric.hpp"

#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>

#include "api/libfabric/objects/open_fabric.hpp"
#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/tostr.hpp"

namespace weft::fi {
namespace {

// A plugin has been chosen by the libfabric around it, which may have left prov_name out, put its own there,
// or layers around it.
bool meant(const Catalogue& catalogue, const Provider& provider, const fi_fabric_attr& attr) {
  if (attr.prov_name == nullptr) return catalogue.plugin && catalogue.providers.size() == 1;
  if (!catalogue.plugin) return strcasecmp(attr.prov_name, provider.name) == 0;
  return catalogue.providers.size() == 1 || strstr(attr.prov_name, provider.name) != nullptr;
}

bool has_fabric(const Provider& provider, const char* name) {
  if (name == nullptr) return true;
  for (const fi_info* offer = provider.offers(provider); offer != nullptr; offer = offer->next)
    if (std::strcmp(offer->fabric_attr->name, name) == 0) return true;
  return false;
}

int find_and_open(const Catalogue& catalogue, fi_fabric_attr attr, fid_fabric** fabric, void* context) {
  if (FI_VERSION_LT(kApiVersion, attr.api_version)) {
    log_warn(kCore, FI_LOG_FABRIC, "fabric_attr->api_version: API %s was asked, this is %s",
             version_text(attr.api_version).c_str(), version_text(kApiVersion).c_str());
    return -FI_ENOSYS;
  }
  // A name may be that of several, with a fabric each; a fabric that none of them has is that of the first.
  const Provider* found = nullptr;
  for (const Provider* provider : catalogue.providers) {
    if (!meant(catalogue, *provider, attr)) continue;
    const bool is_exact = has_fabric(*provider, attr.name);
    if (found == nullptr || is_exact) found = provider;
    if (is_exact) break;
  }
  if (found != nullptr) return open_fabric(*found, &attr, fabric, context);
  if (attr.prov_name != nullptr)
    for (const PluginProvider* plugin : catalogue.plugins)
      if (strcasecmp(attr.prov_name, plugin->name()) == 0) return plugin->open_fabric(attr, fabric, context);
  log_warn(kCore, FI_LOG_FABRIC, "fabric_attr->prov_name: no provider is called \"%s\"",
           attr.prov_name != nullptr ? attr.prov_name : "");
  return -FI_ENODEV;
}

// fi_open("logging"): an object that takes one table. See fi_provider(3), fi_import_log.
std::atomic<bool> logging_open{false};

int logging_close(fid*) noexcept {
  logging_open.store(false);
  return 0;
}

// The program's object whose functions are in use. The program closes it with fi_close, which restores the library's own logging.
std::mutex import_mutex;
const fid* imported_object = nullptr;

int imported_close(fid* object) noexcept {
  const std::scoped_lock guard(import_mutex);
  if (imported_object != object) return 0;  // a later import has replaced it
  imported_object = nullptr;
  log_import(nullptr);
  return 0;
}

fi_ops imported_ops = {
    .size = sizeof(fi_ops),
    .close = imported_close,
    .bind = [](fid*, fid*, uint64_t) noexcept { return -FI_ENOSYS; },
    .control = [](fid*, int, void*) noexcept { return -FI_ENOSYS; },
    .ops_open = [](fid*, const char*, uint64_t, void**, void*) noexcept { return -FI_ENOSYS; },
    .tostr = nullptr,
    .ops_set = nullptr,
};

// Without functions there is nothing to take over, which is no error: those that are missing stay ours.
int logging_import(fid*, fid* other, uint64_t flags) noexcept {
  if (other == nullptr || other->fclass != FI_CLASS_LOG) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  const fi_ops_log* ops = reinterpret_cast<fid_logging*>(other)->ops;
  if (ops == nullptr || ops->size < sizeof(fi_ops_log)) return -FI_EINVAL;
  const std::scoped_lock guard(import_mutex);
  log_import(ops);
  imported_object = other;
  other->ops = &imported_ops;
  return 0;
}

fi_ops logging_ops = {
    .size = sizeof(fi_ops),
    .close = logging_close,
    .bind = logging_import,
    .control = [](fid*, int, void*) noexcept { return -FI_ENOSYS; },
    .ops_open = [](fid*, const char*, uint64_t, void**, void*) noexcept { return -FI_ENOSYS; },
    .tostr = nullptr,
    .ops_set = nullptr,
};

fid logging_object = {.fclass = FI_CLASS_LOG, .context = nullptr, .ops = &logging_ops};

}  // namespace

int find_and_open_fabric(const Catalogue& catalogue, fi_fabric_attr* attr, fid_fabric** fabric, void* context,
                         Abi abi) noexcept {
  if (attr == nullptr || fabric == nullptr) return -FI_EINVAL;
  fi_fabric_attr known{};
  known.name = attr->name;
  known.prov_name = attr->prov_name;
  known.prov_version = attr->prov_version;
  // Before ABI 1.1 the structure ended here; its programs ask for API 1.4 at most (fabric(7), "ABI CHANGES").
  known.api_version = abi < Abi::v1_1 ? FI_VERSION(1, 4) : attr->api_version;
  try {
    return find_and_open(catalogue, known, fabric, context);
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  } catch (...) {
    return -FI_EOTHER;
  }
}

int open_object(uint32_t version, const char* name, void* attr, size_t attr_len, uint64_t flags, fid** object,
                void* context) noexcept {
  if (name == nullptr || object == nullptr) return -FI_EINVAL;
  if (FI_VERSION_LT(kApiVersion, version)) return -FI_ENOSYS;
  if (strcmp(name, "logging") != 0) {
    // Programs try "mr_cache" to share a memory monitor; nothing here caches registrations.
    log_info(kCore, FI_LOG_CORE, "fi_open: there is no object \"%s\"", name);
    return -FI_ENOSYS;
  }
  if (attr != nullptr || attr_len != 0) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (logging_open.exchange(true)) return -FI_EALREADY;
  logging_object.context = context;
  *object = &logging_object;
  return 0;
}

}  // namespace weft::fi
