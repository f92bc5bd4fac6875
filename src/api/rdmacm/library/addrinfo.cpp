// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names to addresses: rdma_getaddrinfo(3) by getaddrinfo(3). One result; routes are not resolved ahead.
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"
#include "os/socket_address.hpp"

namespace weft::rdmacm {
namespace {

sockaddr* copy(const sockaddr* from, socklen_t bytes) noexcept {
  auto* out = static_cast<sockaddr*>(std::calloc(1, sizeof(sockaddr_storage)));
  if (out != nullptr) std::memcpy(out, from, std::min<size_t>(bytes, sizeof(sockaddr_storage)));
  return out;
}

int error_of(int code) noexcept {
  switch (code) {
    case EAI_MEMORY:
      return ENOMEM;
    case EAI_SYSTEM:
      return errno;
    case EAI_AGAIN:
      return EAGAIN;
    default:
      return EINVAL;
  }
}

}  // namespace

void free_addrinfo(rdma_addrinfo* found) noexcept {
  while (found != nullptr) {
    rdma_addrinfo* next = found->ai_next;
    std::free(found->ai_src_addr);
    std::free(found->ai_dst_addr);
    std::free(found->ai_src_canonname);
    std::free(found->ai_dst_canonname);
    std::free(found->ai_route);
    std::free(found->ai_connect);
    std::free(found);
    found = next;
  }
}

int get_addrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                 rdma_addrinfo** found) noexcept {
  if (found == nullptr || (node == nullptr && service == nullptr && hints == nullptr))
    return refuse(EINVAL, "rdma_getaddrinfo without a node, a service or hints");
  const rdma_addrinfo none{};
  const rdma_addrinfo& want = hints != nullptr ? *hints : none;
  const bool is_passive = (want.ai_flags & RAI_PASSIVE) != 0;
  auto* out = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (out == nullptr) return refuse(ENOMEM, "rdma_getaddrinfo");
  out->ai_flags = want.ai_flags;
  out->ai_port_space = want.ai_port_space;
  out->ai_qp_type = want.ai_qp_type;
  if (out->ai_port_space == 0) out->ai_port_space = want.ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (out->ai_qp_type == 0)
    out->ai_qp_type =
        out->ai_port_space == RDMA_PS_UDP || out->ai_port_space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
  const auto fail = [&](int code, const char* why) {
    free_addrinfo(out);
    return refuse(code, "rdma_getaddrinfo: %s: %s",
                  node != nullptr      ? node
                  : service != nullptr ? service
                                       : "",
                  why);
  };
  if (node != nullptr || service != nullptr) {
    addrinfo ask{};
    ask.ai_family = (want.ai_flags & RAI_FAMILY) != 0 ? want.ai_family : AF_UNSPEC;
    ask.ai_socktype = out->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
    if (is_passive) ask.ai_flags |= AI_PASSIVE;
    if ((want.ai_flags & RAI_NUMERICHOST) != 0) ask.ai_flags |= AI_NUMERICHOST;
    addrinfo* answer = nullptr;
    const int code = ::getaddrinfo(node, service, &ask, &answer);
    if (code != 0) {
      fail(error_of(code), gai_strerror(code));
      return code;  // programs print it by gai_strerror(3)
    }
    sockaddr*& address = is_passive ? out->ai_src_addr : out->ai_dst_addr;
    (is_passive ? out->ai_src_len : out->ai_dst_len) = answer->ai_addrlen;
    address = copy(answer->ai_addr, answer->ai_addrlen);
    out->ai_family = answer->ai_family;
    ::freeaddrinfo(answer);
    if (address == nullptr) return fail(ENOMEM, "no memory");
  } else if (want.ai_dst_addr != nullptr && want.ai_dst_len != 0) {
    out->ai_dst_addr = copy(want.ai_dst_addr, want.ai_dst_len);
    out->ai_dst_len = want.ai_dst_len;
    out->ai_family = want.ai_dst_addr->sa_family;
  }
  if (!is_passive && want.ai_src_addr != nullptr && want.ai_src_len != 0) {
    out->ai_src_addr = copy(want.ai_src_addr, want.ai_src_len);
    out->ai_src_len = want.ai_src_len;
    if (out->ai_family == 0) out->ai_family = want.ai_src_addr->sa_family;
  }
  if (is_passive && out->ai_src_addr == nullptr && want.ai_src_addr != nullptr) {
    out->ai_src_addr = copy(want.ai_src_addr, want.ai_src_len);
    out->ai_src_len = want.ai_src_len;
    out->ai_family = want.ai_src_addr->sa_family;
  }
  *found = out;
  return 0;
}

}  // namespace weft::rdmacm
