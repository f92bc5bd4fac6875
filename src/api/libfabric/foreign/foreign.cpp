// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A plugin's fi_getinfo(3) and fi_fabric(3), with what the libfabric around a plugin adds to them.
#include "api/libfabric/foreign/foreign.hpp"

#include <rdma/fi_errno.h>

#include <cstring>
#include <new>

#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/strerror.hpp"
#include "api/libfabric/text/tostr.hpp"

namespace weft::fi {
namespace {

Error too_old(const Foreign& foreign, uint32_t version) {
  return {FI_ENODATA, "version: API " + version_text(version) + " was asked, " + foreign.name() +
                          " is made for " + version_text(foreign.plugin->fi_version)};
}

// Plugins leave the name to us; what they say of their version is what they were loaded with.
bool sign(const Foreign& foreign, uint32_t version, fi_info& info) {
  if (info.fabric_attr == nullptr || info.domain_attr == nullptr || info.ep_attr == nullptr) return false;
  if (info.fabric_attr->prov_name == nullptr && !assign_string(&info.fabric_attr->prov_name, foreign.name()))
    throw std::bad_alloc();
  info.fabric_attr->prov_version = foreign.plugin->version;
  info.fabric_attr->api_version = version;
  return true;
}

}  // namespace

Result<InfoPtr> Foreign::ask(uint32_t version, const char* node, const char* service, uint64_t flags,
                             const fi_info* hints) const {
  if (FI_VERSION_LT(plugin->fi_version, version)) return too_old(*this, version);
  fi_info* list = nullptr;
  const int status = plugin->getinfo(version, node, service, flags, hints, &list);
  InfoPtr answer(status == 0 ? list : nullptr);
  if (answer == nullptr)
    return Error{FI_ENODATA, std::string("the plugin ") + path + " answered \"" +
                                 error_text(status == 0 ? FI_ENODATA : -status) +
                                 "\"; FI_LOG_LEVEL=info may show why"};
  for (fi_info* info = answer.get(); info != nullptr; info = info->next)
    if (!sign(*this, version, *info))
      return Error{FI_ENODATA, std::string("the plugin ") + path +
                                   " answered without fabric, domain or endpoint attributes"};
  // Programs of later generations look behind what the plugin knew.
  if (!add_slack(answer.get(), abi_of(plugin->fi_version))) throw std::bad_alloc();
  return answer;
}

int Foreign::open_fabric(fi_fabric_attr& attr, fid_fabric** fabric, void* context) const {
  if (FI_VERSION_LT(plugin->fi_version, attr.api_version)) {
    log_warn(name(), FI_LOG_FABRIC, "%s", too_old(*this, attr.api_version).why.c_str());
    return -FI_ENOSYS;
  }
  const int status = plugin->fabric(&attr, fabric, context);
  if (status != 0) {
    log_warn(name(), FI_LOG_FABRIC, "fi_fabric: the plugin %s answered \"%s\"", path.c_str(),
             error_text(-status));
    return status;
  }
  (*fabric)->api_version = attr.api_version;
  return 0;
}

}  // namespace weft::fi
