// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text of flags, values and addresses, and the choice by fi_type. Must not know where the values came from.
#include "api/libfabric/text/tostr.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/text/raw.hpp"
#include "api/libfabric/text/tostr_attr.hpp"
#include "api/libfabric/text/tostr_names.hpp"
#include "api/libfabric/text/tostr_text.hpp"

namespace weft::fi {
namespace {

// Room for an fi_info with every bit and name; what does not fit is cut.
constexpr size_t kThreadBuffer = 16384;

// What FI_TYPE_VERSION says: the interface, and that it is us.
constexpr const char* kVersionText = "2.6.0-weft";

// The program's data has the type's alignment by contract, but a wrong pointer should not trap here.
template <class T>
T value_at(const void* data) noexcept {
  T value;
  memcpy(&value, data, sizeof value);
  return value;
}

void add_fid(Text& text, const fid* object) noexcept {
  char own[512];
  if (object->ops != nullptr && object->ops->size > offsetof(fi_ops, tostr) &&
      object->ops->tostr != nullptr && object->ops->tostr(object, own, sizeof own) == 0) {
    text.add_bounded(own, sizeof own);
    return;
  }
  for (const ValueName& entry : class_names()) {
    if (entry.value == object->fclass) return text.add("%s %p", entry.name, static_cast<const void*>(object));
  }
  text.add("class %zu %p", object->fclass, static_cast<const void*>(object));
}

void add_sockaddr(Text& text, const void* bytes, size_t length) noexcept {
  char host[INET6_ADDRSTRLEN];
  const auto family = value_at<sa_family_t>(bytes);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    const auto address = value_at<sockaddr_in>(bytes);
    inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
    text.add("fi_sockaddr_in://%s:%u", host, unsigned{ntohs(address.sin_port)});
  } else if (family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    const auto address = value_at<sockaddr_in6>(bytes);
    inet_ntop(AF_INET6, &address.sin6_addr, host, sizeof host);
    text.add("fi_sockaddr_in6://[%s", host);
    if (address.sin6_scope_id != 0) text.add("%%%u", unsigned{address.sin6_scope_id});
    text.add("]:%u", unsigned{ntohs(address.sin6_port)});
  } else {
    add_address(text, FI_FORMAT_UNSPEC, bytes, length);
  }
}

void add_structure(Text& text, const void* data, fi_type type) noexcept {
  switch (raw(type)) {
    case FI_TYPE_INFO:
      return add_info(text, static_cast<const fi_info*>(data), 0);
    case FI_TYPE_TX_ATTR:
      return add_tx_attr(text, static_cast<const fi_tx_attr*>(data), 0);
    case FI_TYPE_RX_ATTR:
      return add_rx_attr(text, static_cast<const fi_rx_attr*>(data), 0);
    case FI_TYPE_EP_ATTR:
      return add_ep_attr(text, static_cast<const fi_ep_attr*>(data), 0);
    case FI_TYPE_DOMAIN_ATTR:
      return add_domain_attr(text, static_cast<const fi_domain_attr*>(data), 0);
    case FI_TYPE_FABRIC_ATTR:
      return add_fabric_attr(text, static_cast<const fi_fabric_attr*>(data), 0);
    case FI_TYPE_FID:
      return add_fid(text, static_cast<const fid*>(data));
    case later::type_av_attr:
      return add_av_attr(text, static_cast<const fi_av_attr*>(data), 0);
    case later::type_cq_attr:
      return add_cq_attr(text, static_cast<const fi_cq_attr*>(data), 0);
    case later::type_mr_attr:
      return add_mr_attr(text, static_cast<const fi_mr_attr*>(data), 0);
    case later::type_cntr_attr:
      return add_cntr_attr(text, static_cast<const fi_cntr_attr*>(data), 0);
    case later::type_cq_err_entry:
      return add_cq_err_entry(text, static_cast<const fi_cq_err_entry*>(data), 0);
    default:
      text.add("fi_type %u is not known", static_cast<unsigned>(type));
  }
}

void add_any(Text& text, const void* data, fi_type type) noexcept {
  if (type == FI_TYPE_VERSION) return text.add("%s", kVersionText);
  if (data == nullptr) return text.add("(nil)");
  if (type == FI_TYPE_MR_MODE) add_flags(text, static_cast<uint32_t>(value_at<int>(data)), type, ", ");
  else if (!bit_names(type).empty()) add_flags(text, value_at<uint64_t>(data), type, ", ");
  else if (!value_names(type).empty()) add_value(text, value_at<uint32_t>(data), type);
  else add_structure(text, data, type);
}

}  // namespace

void add_flags(Text& text, uint64_t flags, fi_type type, const char* separator) noexcept {
  if (flags == 0) {
    if (type == FI_TYPE_MSG_ORDER) text.add("FI_ORDER_NONE");
    return;
  }
  const char* before = "";
  for (const BitName& entry : bit_names(type)) {
    if ((flags & entry.bit) == 0) continue;
    text.add("%s%s", before, entry.name);
    flags &= ~entry.bit;
    before = separator;
  }
  if (flags != 0) text.add("%s0x%llx", before, static_cast<unsigned long long>(flags));
}

void add_value(Text& text, uint32_t value, fi_type type) noexcept {
  for (const ValueName& entry : value_names(type)) {
    if (entry.value == value) return text.add("%s", entry.name);
  }
  text.add("0x%x", value);
}

void add_address(Text& text, uint32_t addr_format, const void* bytes, size_t length) noexcept {
  if (bytes == nullptr) return text.add("(null)");
  switch (addr_format) {
    case FI_ADDR_STR:
      return text.add_bounded(static_cast<const char*>(bytes), length);
    case FI_SOCKADDR:
    case FI_SOCKADDR_IN:
    case FI_SOCKADDR_IN6:
      if (length >= sizeof(sa_family_t)) return add_sockaddr(text, bytes, length);
      break;
    default:
      break;
  }
  text.add("0x");
  for (size_t i = 0; i < length; ++i) text.add("%02x", unsigned{static_cast<const unsigned char*>(bytes)[i]});
}

char* to_text(char* buffer, size_t length, const void* data, fi_type type) noexcept {
  if (buffer == nullptr || length == 0) return buffer;
  Text text(buffer, length);
  add_any(text, data, type);
  return buffer;
}

char* to_text(const void* data, fi_type type) noexcept {
  thread_local char buffer[kThreadBuffer];
  return to_text(buffer, sizeof buffer, data, type);
}

std::string flags_text(uint64_t flags, fi_type type) {
  if (flags == 0) return "none";
  char buffer[1024];
  Text text(buffer, sizeof buffer);
  add_flags(text, flags, type, "|");
  return buffer;
}

std::string value_text(uint32_t value, fi_type type) {
  char buffer[64];
  Text text(buffer, sizeof buffer);
  add_value(text, value, type);
  return buffer;
}

std::string version_text(uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

std::string address_text(uint32_t addr_format, const void* bytes, size_t length) {
  char buffer[512];
  Text text(buffer, sizeof buffer);
  add_address(text, addr_format, bytes, length);
  return buffer;
}

}  // namespace weft::fi
