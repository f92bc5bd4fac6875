// What a plugin made by WEFT_PROVIDER_OVER_PACKETS calls: the rest of its fi_prov_ini (fi_provider(3)). Must not know the provider but by what the
// face knows of one.
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>
#include <weft/provider.hpp>

#include <string>

#include "faces/libfabric/fabric.hpp"
#include "faces/libfabric/getinfo.hpp"
#include "faces/libfabric/log.hpp"
#include "faces/libfabric/provider.hpp"

namespace {

const weft::fi::Provider* offered = nullptr;

weft::fi::Catalogue catalogue() { return {weft::fi::providers(), true, nullptr, ""}; }

int plugin_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                   const fi_info* hints, fi_info** info) {
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info);
}

int plugin_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  return weft::fi::find_and_open_fabric(catalogue(), attr, fabric, context);
}

// Nothing of ours outlives the objects of the program.
void plugin_cleanup() {}

}  // namespace

namespace weft::fi {

std::span<const Provider* const> providers() {
  return {&offered, offered != nullptr ? size_t{1} : size_t{0}};
}

}  // namespace weft::fi

namespace weft::plugin {

// An object may use what is older than the library: same major version, at most our minor one.
static bool fits(uint32_t version) noexcept {
  return version >> 16 == WEFT_PROVIDER_VERSION_MAJOR && (version & 0xffff) <= WEFT_PROVIDER_VERSION_MINOR;
}

// The provider is not looked at before its version is known to fit.
fi_provider* offer(uint32_t version, const fi::Provider& provider) noexcept {
  if (!fits(version)) {
    fi::log_warn(fi::kCore, FI_LOG_CORE,
                 "a provider was compiled for version %u.%u of weft/provider.hpp, libweft-core.a has %u.%u: "
                 "compile its source with WEFT_PROVIDER_OVER_PACKETS again, with the headers of this library",
                 version >> 16, version & 0xffff, unsigned{WEFT_PROVIDER_VERSION_MAJOR},
                 unsigned{WEFT_PROVIDER_VERSION_MINOR});
    return nullptr;
  }
  // Writable: the libfabric that loads it keeps its own state in `context`.
  static fi_provider made;
  offered = &provider;
  made.version = provider.version;
  made.fi_version = fi::kApiVersion;
  made.name = provider.name;
  made.getinfo = plugin_getinfo;
  made.fabric = plugin_fabric;
  made.cleanup = plugin_cleanup;
  return &made;
}

}  // namespace weft::plugin
