// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Values of devices and ports. Structs of the caller are as long as it says: shorter ones get a truncated copy, longer ones zeros at the end.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "api/verbs/library/calls.hpp"

namespace weft::verbs {
namespace {

template <class T>
void copy_out(void* to, size_t bytes, const T& from) noexcept {
  std::memset(to, 0, bytes);
  std::memcpy(to, &from, std::min(bytes, sizeof from));
}

int gid_entry(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry) noexcept {
  if (port == 0 || port > UINT8_MAX) return EINVAL;
  *entry = {};
  const int code = call(ops_of(context).query_gid, context, static_cast<uint8_t>(port), index, entry);
  entry->gid_index = index;
  entry->port_num = port;
  return code;
}

struct Code {
  uint32_t code;
  uint32_t value;
};
// ibv_port_attr::active_width in lanes, active_speed and active_speed_ex in 100 Mbit/s of one lane, as ibv_devinfo(1) prints them.
constexpr Code widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
constexpr Code speeds[] = {{1, 25},   {2, 50},   {4, 100},    {8, 100},   {16, 140},
                           {32, 250}, {64, 500}, {128, 1000}, {256, 2000}};

uint64_t value_of(std::span<const Code> codes, uint32_t code) noexcept {
  const auto found = std::ranges::find(codes, code, &Code::code);
  return found != codes.end() ? found->value : 0;
}

// How many entries fitted, or a negative errno.
ssize_t gids_of_port(ibv_context* context, uint8_t port, char* to, size_t room, size_t bytes) noexcept {
  ibv_port_attr attr{};
  if (const int code = query_port(context, port, &attr, sizeof attr)) return -code;
  size_t count = 0;
  for (int index = 0; index < attr.gid_tbl_len; ++index) {
    ibv_gid_entry entry;
    const int code = gid_entry(context, port, static_cast<uint32_t>(index), &entry);
    if (code == ENODATA) continue;
    if (code != 0) return -code;
    if (count == room) return -EINVAL;
    copy_out(to + count * bytes, bytes, entry);
    ++count;
  }
  return static_cast<ssize_t>(count);
}

}  // namespace

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t bytes) noexcept {
  if (attr == nullptr || (input != nullptr && input->comp_mask != 0)) return EINVAL;
  if (bytes < offsetof(ibv_device_attr_ex, comp_mask) + sizeof attr->comp_mask) return EINVAL;
  ibv_device_attr_ex full{};
  if (const int code = call(ops_of(context).query_device, context, &full)) return code;
  copy_out(attr, bytes, full);
  return 0;
}

int query_device(ibv_context* context, ibv_device_attr* attr) noexcept {
  if (attr == nullptr) return EINVAL;
  ibv_device_attr_ex full{};
  if (const int code = call(ops_of(context).query_device, context, &full)) return code;
  *attr = full.orig_attr;
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t bytes) noexcept {
  if (attr == nullptr) return EINVAL;
  layout::PortAttr full{};
  if (const int code = call(ops_of(context).query_port, context, port, &full.attr)) return code;
  copy_out(attr, bytes, full);
  return 0;
}

int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) noexcept {
  if (speed == nullptr || port == 0 || port > UINT8_MAX) return EINVAL;
  layout::PortAttr full{};
  if (const int code = query_port(context, static_cast<uint8_t>(port), &full.attr, sizeof full)) return code;
  const uint32_t extended = active_speed_ex(full);
  const uint64_t lanes = value_of(widths, full.attr.active_width);
  const uint64_t of_a_lane = value_of(speeds, extended != 0 ? extended : full.attr.active_speed);
  if (lanes == 0 || of_a_lane == 0) return EOPNOTSUPP;
  *speed = lanes * of_a_lane;
  return 0;
}

int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) noexcept {
  ibv_gid_entry entry{};
  const int code =
      index < 0 || gid == nullptr ? EINVAL : gid_entry(context, port, static_cast<uint32_t>(index), &entry);
  if (code != 0 && code != ENODATA) {
    errno = says(code, "ibv_query_gid: the port has no GID of this index (ibv_devinfo -v lists them)");
    return -1;
  }
  // An empty entry is a GID of zeros here.
  *gid = code == 0 ? entry.gid : ibv_gid{};
  return 0;
}

int query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t flags,
                 size_t bytes) noexcept {
  if (entry == nullptr) return EINVAL;
  if (flags != 0) return EOPNOTSUPP;
  ibv_gid_entry full;
  if (const int code = gid_entry(context, port, index, &full)) return code;
  copy_out(entry, bytes, full);
  return 0;
}

ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t count, uint32_t flags,
                        size_t bytes) noexcept {
  if (entries == nullptr || count == 0 || bytes == 0) return -EINVAL;
  if (flags != 0) return -EOPNOTSUPP;
  ibv_device_attr device{};
  if (const int code = query_device(context, &device)) return -code;
  size_t found = 0;
  for (int port = 1; port <= device.phys_port_cnt; ++port) {
    const ssize_t more = gids_of_port(context, static_cast<uint8_t>(port),
                                      reinterpret_cast<char*>(entries) + found * bytes, count - found, bytes);
    if (more < 0) return more;
    found += static_cast<size_t>(more);
  }
  return static_cast<ssize_t>(found);
}

int query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) noexcept {
  ibv_gid_entry entry{};
  const int code = gid_entry(context, port, index, &entry);
  if (code != 0 && code != ENODATA) {
    errno = code;
    return -1;
  }
  *type = code == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}

int query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) noexcept {
  int code =
      index < 0 || pkey == nullptr ? EINVAL : call(ops_of(context).query_pkey, context, port, index, pkey);
  if (code == ENODATA) *pkey = 0;
  if (code == 0 || code == ENODATA) return 0;
  errno = code;
  return -1;
}

int pkey_index(ibv_context* context, uint8_t port, __be16 pkey) noexcept {
  ibv_port_attr attr{};
  const int code = query_port(context, port, &attr, sizeof attr);
  if (code == 0) {
    for (int index = 0; index < attr.pkey_tbl_len; ++index) {
      __be16 found = 0;
      if (call(ops_of(context).query_pkey, context, port, index, &found) == 0 && found == pkey) return index;
    }
  }
  errno = code != 0 ? code : ENOENT;
  return -1;
}

int query_values(ibv_context* context, ibv_values_ex* values) noexcept {
  if (values == nullptr || unknown(values->comp_mask, IBV_VALUES_MASK_RAW_CLOCK)) return EINVAL;
  return call(ops_of(context).query_values, context, values);
}

}  // namespace weft::verbs
