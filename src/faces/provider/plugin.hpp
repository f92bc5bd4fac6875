// WEFT_PROVIDER_OVER_PACKETS: makes a plugin of libfabric out of a type that has weft::Packets (weft/provider.hpp). Included as <weft/plugin.hpp> by one
// source of the provider, which is linked with libweft-core.a: docs/provider-guide.md. Must not know which provider.
#pragma once

#include <version>
#if __cplusplus < 202002L
#error "weft/plugin.hpp needs C++20 (-std=c++20)"
#elif defined(_GLIBCXX_DEBUG) || defined(_LIBCPP_VERSION)
#error \
    "weft/plugin.hpp: libweft-core.a holds types of libstdc++ without _GLIBCXX_DEBUG; compile this one source like that"
#endif

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>
#include <weft/provider.hpp>

#include <cstdint>
#include <string_view>

#include "faces/libfabric/provider_of.hpp"
#include "providers/packets.hpp"

namespace weft::plugin {

// In libweft-core.a. Null, with the reason in the log, when the caller was compiled for another version of the interface. Once in a plugin.
fi_provider* offer(uint32_t interface_version, const fi::Provider& provider) noexcept;

// Names that libfabric gives a meaning to are none of a provider; addresses "fi_NAME://..." need room for more than it.
consteval bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 24 && name.find_first_of(";:,^/ ") == std::string_view::npos &&
         !name.starts_with("ofi_");
}

}  // namespace weft::plugin

// In one source of a plugin, outside of namespaces. The name is the one that programs see.
#define WEFT_PROVIDER_OVER_PACKETS(Type, provider_name)                                              \
  static_assert(::weft::explain_packets<Type>());                                                    \
  static_assert(                                                                                     \
      ::weft::plugin::is_name(provider_name),                                                        \
      "a provider's name has 1 to 24 characters, none of \";:,^/ \", and does not begin with ofi_"); \
  namespace {                                                                                        \
  struct WeftProviderName {                                                                          \
    static constexpr const char* name = provider_name;                                               \
  };                                                                                                 \
  }                                                                                                  \
  extern "C" __attribute__((visibility("default"), used)) ::fi_provider* fi_prov_ini() {             \
    using Provider = ::weft::providers::PacketsProvider<Type, WeftProviderName>;                     \
    return ::weft::plugin::offer(WEFT_PROVIDER_VERSION, ::weft::fi::provider_of<Provider>);          \
  }                                                                                                  \
  static_assert(true, "takes the semicolon")
