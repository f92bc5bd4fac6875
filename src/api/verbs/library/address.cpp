// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Address handles, also those that answer a datagram.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "api/verbs/library/calls.hpp"

namespace weft::verbs {
namespace {

constexpr size_t ipv4_offset =
    20;  // IBTA annex A17.4.5.2: the IPv4 header has the second half of the 40 bytes
constexpr size_t ipv4_bytes = 20;
constexpr uint8_t reply_hop_limit = 0xff;

// Who sent a datagram and how.
struct Came {
  ibv_gid from, to;
  uint32_t flow_label;
  uint8_t traffic_class;
};

ibv_gid mapped(const uint8_t* address) noexcept {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, address, 4);
  return gid;
}

// RFC 791, section 3.1: no options, and the sum of all its words is all ones.
bool is_ipv4(std::span<const uint8_t, ipv4_bytes> header) noexcept {
  if (header[0] != 0x45) return false;
  uint32_t sum = 0;
  for (size_t i = 0; i < ipv4_bytes; i += 2) sum += static_cast<uint32_t>(header[i] << 8 | header[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

bool parse(const ibv_grh& grh, bool ethernet, Came* came) noexcept {
  uint8_t bytes[sizeof grh];
  static_assert(sizeof grh == ipv4_offset + ipv4_bytes);
  std::memcpy(bytes, &grh, sizeof bytes);
  if (ethernet && is_ipv4(std::span<const uint8_t, ipv4_bytes>(bytes + ipv4_offset, ipv4_bytes))) {
    const uint8_t* header = bytes + ipv4_offset;
    *came = {mapped(header + 12), mapped(header + 16), 0, header[1]};
    return true;
  }
  const uint32_t first = ntohl(grh.version_tclass_flow);
  if (first >> 28 != 6) return false;
  *came = {grh.sgid, grh.dgid, first & 0xfffff, static_cast<uint8_t>(first >> 20)};
  return true;
}

// -1: no entry has this GID.
int index_of(ibv_context* context, uint8_t port, int entries, const ibv_gid& gid) noexcept {
  for (int index = 0; index < entries; ++index) {
    ibv_gid_entry entry{};
    const int code = call(ops_of(context).query_gid, context, port, static_cast<uint32_t>(index), &entry);
    if (code == 0 && std::memcmp(entry.gid.raw, gid.raw, sizeof gid.raw) == 0) return index;
  }
  return -1;
}

bool is_group(const ibv_gid& gid) noexcept {
  constexpr uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return gid.raw[0] == 0xff ||
         (std::memcmp(gid.raw, mapped_prefix, sizeof mapped_prefix) == 0 && gid.raw[12] >> 4 == 0xe);
}

// How many bytes name the subnet. GIDs of a link-local address and a port have the port behind a prefix of their own.
size_t subnet_bytes(const ibv_gid& gid) noexcept {
  constexpr uint8_t with_port[6] = {0xfd, 0x57, 0x45, 0x46, 0x54, 0x02};
  return std::memcmp(gid.raw, with_port, sizeof with_port) == 0 ? sizeof with_port
                                                                : sizeof gid.global.subnet_prefix;
}

// A group is no entry of the table: the answer goes from the first one in the sender's subnet. -1: none is.
int index_near(ibv_context* context, uint8_t port, int entries, const ibv_gid& sender) noexcept {
  for (int index = 0; index < entries; ++index) {
    ibv_gid_entry entry{};
    const int code = call(ops_of(context).query_gid, context, port, static_cast<uint32_t>(index), &entry);
    if (code == 0 && std::memcmp(entry.gid.raw, sender.raw, subnet_bytes(sender)) == 0) return index;
  }
  return -1;
}

// 0 or an errno.
int answer(ibv_context* context, uint8_t port, const ibv_wc& wc, const ibv_grh* grh,
           ibv_ah_attr* attr) noexcept {
  *attr = {};
  attr->dlid = wc.slid;
  attr->sl = wc.sl;
  attr->src_path_bits = wc.dlid_path_bits;
  attr->port_num = port;
  if ((wc.wc_flags & IBV_WC_GRH) == 0) return 0;
  ibv_port_attr about{};
  if (const int code = query_port(context, port, &about, sizeof about)) return code;
  Came came{};
  if (grh == nullptr || !parse(*grh, about.link_layer == IBV_LINK_LAYER_ETHERNET, &came)) return EINVAL;
  const int index = is_group(came.to) ? index_near(context, port, about.gid_tbl_len, came.from)
                                      : index_of(context, port, about.gid_tbl_len, came.to);
  if (index < 0 || index > UINT8_MAX) return ENODATA;
  attr->is_global = 1;
  attr->grh.dgid = came.from;
  attr->grh.sgid_index = static_cast<uint8_t>(index);
  attr->grh.flow_label = came.flow_label;
  attr->grh.traffic_class = came.traffic_class;
  attr->grh.hop_limit = reply_hop_limit;
  return 0;
}

}  // namespace

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept {
  if (pd == nullptr || attr == nullptr) return refuse(EINVAL);
  ibv_ah* ah = call(ops_of(pd->context).create_ah, pd, attr);
  if (ah == nullptr) return nullptr;
  ah->context = pd->context;
  ah->pd = pd;
  return ah;
}

int destroy_ah(ibv_ah* ah) noexcept {
  return ah != nullptr ? call(ops_of(ah->context).destroy_ah, ah) : EINVAL;
}

int init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                    ibv_ah_attr* attr) noexcept {
  const int code = wc != nullptr && attr != nullptr ? answer(context, port, *wc, grh, attr) : EINVAL;
  if (code == 0) return 0;
  errno = code;
  return -1;
}

ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) noexcept {
  ibv_ah_attr attr;
  if (pd == nullptr) return refuse(EINVAL);
  return init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? create_ah(pd, &attr) : nullptr;
}

}  // namespace weft::verbs
