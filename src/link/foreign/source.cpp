// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Asking a provider that is known at run time only: fi_getinfo(3).
#include "link/foreign/source.hpp"

#include <rdma/fi_domain.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::link::foreign {

namespace {

constexpr int kMrMode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

bool put(void*& place, size_t& length, std::string_view bytes) {
  place = malloc(bytes.size());
  if (place == nullptr) return false;
  memcpy(place, bytes.data(), bytes.size());
  length = bytes.size();
  return true;
}

}  // namespace

fi_info* hints_for(const Source& source, fi_ep_type type, uint32_t addr_format) {
  fi_info* hints = source.dup_info(nullptr);
  if (hints == nullptr) return nullptr;
  hints->caps = FI_MSG;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->addr_format = addr_format;
  hints->ep_attr->type = type;
  hints->domain_attr->mr_mode = kMrMode;
  hints->domain_attr->mode = hints->mode;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(source.name.c_str());
  return hints;
}

Result<void> ask(const Source& source, fi_ep_type type, uint32_t addr_format, std::string_view address,
                 fi_info*& answer) {
  const Error no_memory{ENOMEM, "no memory"};
  fi_info* hints = hints_for(source, type, addr_format);
  if (hints == nullptr) return no_memory;
  if (!address.empty() && !put(hints->src_addr, hints->src_addrlen, address)) {
    source.free_info(hints);
    return no_memory;
  }
  const int status = source.getinfo(source.version, nullptr, nullptr, 0, hints, &answer);
  source.free_info(hints);
  if (status != 0) return failure(source, "it has no endpoints of the type that the layer needs", status);
  if (answer->src_addr == nullptr && !address.empty() &&  // it does not repeat what was asked
      !put(answer->src_addr, answer->src_addrlen, address))
    return no_memory;
  if (answer->fabric_attr->prov_name == nullptr) answer->fabric_attr->prov_name = strdup(source.name.c_str());
  return {};
}

Error failure(const Source& source, const char* what, int status) {
  return Error{status < 0 ? -status : EIO, source.name + ": " + what + ": " + strerror(std::abs(status))};
}

void Warning::operator()(const Source& source, const char* what, int status) const noexcept {
  if (say == nullptr) return;
  char text[160];
  snprintf(text, sizeof text, "%s: %s: %s", source.name.c_str(), what, strerror(std::abs(status)));
  say(who, text);
}

}  // namespace weft::link::foreign
