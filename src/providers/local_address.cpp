// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text addresses: chosen by the library, or named by a service.
#include "providers/local_address.hpp"

#include <cerrno>
#include <cstring>
#include <string_view>

#include "os/host.hpp"

namespace weft::providers {

Result<std::vector<std::byte>> resolve_local(const char* node, const char* service, bool source,
                                             size_t address_bytes) {
  std::string text;
  const std::string_view host = node != nullptr ? node : "";
  if (host.starts_with("fi_shm://") || host.starts_with("fi_ns://")) {
    text = host;
  } else if (service != nullptr && *service != 0) {
    if (!host.empty() && !os::is_this_host(node))
      return Error{ENODATA, std::string(host) + " is not known to be this host, and others are not reached"};
    text = std::string("fi_ns://").append(service);
  } else if (!host.empty() && !source) {
    text = std::string("fi_ns://").append(host);
  }
  if (text.empty()) return std::vector<std::byte>{};
  if (text.size() >= address_bytes)
    return Error{EINVAL, "the address " + text + " is longer than " + std::to_string(address_bytes - 1) +
                             " characters"};
  std::vector<std::byte> bytes(address_bytes);
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<std::byte> unnamed_local(size_t address_bytes) {
  constexpr std::string_view text = "fi_shm://";
  std::vector<std::byte> bytes(address_bytes);
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::string local_to_string(const void* bytes, size_t address_bytes) {
  const char* text = static_cast<const char*>(bytes);
  const std::string_view address(text, ::strnlen(text, address_bytes));
  const bool sound = address.size() < address_bytes && address.find("://") != std::string_view::npos;
  return sound ? std::string(address) : std::string();
}

}  // namespace weft::providers
