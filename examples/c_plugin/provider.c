// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a libfabric asks of a plugin: fi_prov_ini(), and through it fi_getinfo(3). See fi_provider(3).
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "example.h"

#define EX_CAPS                                                                                  \
  (FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | \
   FI_LOCAL_COMM | FI_REMOTE_COMM)
// Frames of one connection arrive in the order in which they were posted, and are handled in that order.
#define EX_ORDER                                                                                            \
  (FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_RAW | FI_ORDER_RAR | FI_ORDER_SAW | FI_ORDER_WAS | FI_ORDER_RAS | \
   FI_ORDER_SAR | FI_ORDER_WAR)

// FI_MR_BASIC, whose name programs of libfabric 1.x use and headers of 2.x warn of.
#define EX_MR_BASIC 1

// The same for hints and answer: each line is one attribute of fi_endpoint(3) or fi_domain(3). The reason goes to the log.
static bool refuse(const char* attribute) {
  FI_INFO(&ex_provider, FI_LOG_CORE, "the hints ask for another %s\n", attribute);
  return true;
}

static bool refused(uint32_t version, const struct fi_info* hints) {
  if (FI_VERSION_LT(version, FI_VERSION(1, 5))) return refuse("API: at least 1.5");
  if (hints == NULL) return false;
  if (hints->caps & ~EX_CAPS) return refuse("caps");
  if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FI_SOCKADDR &&
      hints->addr_format != FI_SOCKADDR_IN)
    return refuse("addr_format");
  const struct fi_ep_attr* ep = hints->ep_attr;
  if (ep != NULL) {
    if (ep->type != FI_EP_UNSPEC && ep->type != FI_EP_MSG) return refuse("ep_attr->type");
    if (ep->protocol != FI_PROTO_UNSPEC) return refuse("ep_attr->protocol");
    if (ep->tx_ctx_cnt > 1 || ep->rx_ctx_cnt > 1) return refuse("ep_attr: number of contexts");
    if (ep->auth_key_size != 0) return refuse("ep_attr->auth_key");
  }
  const struct fi_tx_attr* tx = hints->tx_attr;
  if (tx != NULL) {
    if (tx->caps & ~EX_CAPS) return refuse("tx_attr->caps");
    if (tx->msg_order & ~(uint64_t)EX_ORDER) return refuse("tx_attr->msg_order");
    if (tx->inject_size > EX_INJECT_MAX) return refuse("tx_attr->inject_size");
    if (tx->size > EX_SIZE_MAX) return refuse("tx_attr->size");
    if (tx->iov_limit > EX_IOV_MAX || tx->rma_iov_limit > 1) return refuse("tx_attr->iov_limit");
  }
  const struct fi_rx_attr* rx = hints->rx_attr;
  if (rx != NULL) {
    if (rx->caps & ~EX_CAPS) return refuse("rx_attr->caps");
    if (rx->msg_order & ~(uint64_t)EX_ORDER) return refuse("rx_attr->msg_order");
    if (rx->size > EX_SIZE_MAX) return refuse("rx_attr->size");
    if (rx->iov_limit > EX_IOV_MAX) return refuse("rx_attr->iov_limit");
  }
  const struct fi_domain_attr* domain = hints->domain_attr;
  if (domain != NULL) {
    if (domain->name != NULL && strcmp(domain->name, "example") != 0) return refuse("domain_attr->name");
    if (domain->data_progress == FI_PROGRESS_AUTO || domain->control_progress == FI_PROGRESS_AUTO)
      return refuse("domain_attr: progress");
    if (domain->mr_mode == EX_MR_BASIC) return refuse("domain_attr->mr_mode");
    if (domain->cq_data_size > sizeof(uint64_t)) return refuse("domain_attr->cq_data_size");
  }
  if (hints->fabric_attr != NULL && hints->fabric_attr->name != NULL &&
      strcmp(hints->fabric_attr->name, "example") != 0)
    return refuse("fabric_attr->name");
  return false;
}

// What we are. Everything that the program may rely on stands here, so it must be true.
static struct fi_info* describe(const struct fi_info* hints) {
  struct fi_info* info = fi_allocinfo();
  if (info == NULL) return NULL;
  info->caps = hints != NULL && hints->caps != 0 ? hints->caps | FI_LOCAL_COMM | FI_REMOTE_COMM : EX_CAPS;
  info->addr_format = FI_SOCKADDR_IN;

  info->tx_attr->caps = info->caps & (FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE);
  info->tx_attr->op_flags = hints != NULL && hints->tx_attr != NULL ? hints->tx_attr->op_flags : 0;
  info->tx_attr->msg_order = EX_ORDER;
  info->tx_attr->inject_size = EX_INJECT_MAX;
  info->tx_attr->size = hints != NULL && hints->tx_attr != NULL && hints->tx_attr->size != 0
                            ? hints->tx_attr->size
                            : EX_SIZE_DEFAULT;
  info->tx_attr->iov_limit = EX_IOV_MAX;
  info->tx_attr->rma_iov_limit = 1;

  info->rx_attr->caps = info->caps & (FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE);
  info->rx_attr->op_flags = hints != NULL && hints->rx_attr != NULL ? hints->rx_attr->op_flags : 0;
  info->rx_attr->msg_order = EX_ORDER;
  info->rx_attr->size = hints != NULL && hints->rx_attr != NULL && hints->rx_attr->size != 0
                            ? hints->rx_attr->size
                            : EX_SIZE_DEFAULT;
  info->rx_attr->iov_limit = EX_IOV_MAX;

  info->ep_attr->type = FI_EP_MSG;
  info->ep_attr->protocol = FI_PROTO_UNSPEC;
  info->ep_attr->protocol_version = 1;
  info->ep_attr->max_msg_size = SIZE_MAX / 4;
  info->ep_attr->tx_ctx_cnt = 1;
  info->ep_attr->rx_ctx_cnt = 1;
  info->ep_attr->max_order_raw_size = SIZE_MAX / 4;
  info->ep_attr->max_order_war_size = SIZE_MAX / 4;
  info->ep_attr->max_order_waw_size = SIZE_MAX / 4;

  info->domain_attr->name = strdup("example");
  info->domain_attr->threading = FI_THREAD_SAFE;
  info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->resource_mgmt = FI_RM_ENABLED;
  info->domain_attr->av_type = FI_AV_UNSPEC;
  info->domain_attr->mr_mode = 0;  // regions are addressed by offset, the program chooses keys
  info->domain_attr->mr_key_size = sizeof(uint64_t);
  info->domain_attr->cq_data_size = sizeof(uint64_t);
  info->domain_attr->cq_cnt = info->domain_attr->ep_cnt = 1 << 16;
  info->domain_attr->tx_ctx_cnt = info->domain_attr->rx_ctx_cnt = 1 << 16;
  info->domain_attr->max_ep_tx_ctx = info->domain_attr->max_ep_rx_ctx = 1;
  info->domain_attr->mr_iov_limit = 1;
  info->domain_attr->mr_cnt = 1 << 16;
  info->domain_attr->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;

  // prov_name stays null: the libfabric that asks fills it in.
  info->fabric_attr->name = strdup("example");
  info->fabric_attr->prov_version = ex_provider.version;
  if (info->domain_attr->name == NULL || info->fabric_attr->name == NULL) {
    fi_freeinfo(info);
    return NULL;
  }
  return info;
}

// Our address as that destination sees it: what a datagram socket would choose. Without one, the first interface that others can reach.
int ex_source_address(const struct sockaddr_in* destination, struct sockaddr_in* source) {
  memset(source, 0, sizeof *source);
  source->sin_family = AF_INET;
  if (destination != NULL && destination->sin_addr.s_addr != htonl(INADDR_ANY)) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof *source;
    if (fd < 0) return -errno;
    int status = connect(fd, (const struct sockaddr*)destination, sizeof *destination);
    if (status == 0) status = getsockname(fd, (struct sockaddr*)source, &length);
    status = status == 0 ? 0 : -errno;
    close(fd);
    source->sin_port = 0;
    return status;
  }
  source->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct ifaddrs* list;
  if (getifaddrs(&list) != 0) return 0;
  for (const struct ifaddrs* i = list; i != NULL; i = i->ifa_next) {
    if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
        (i->ifa_flags & IFF_LOOPBACK))
      continue;
    source->sin_addr = ((const struct sockaddr_in*)i->ifa_addr)->sin_addr;
    break;
  }
  freeifaddrs(list);
  return 0;
}

static int resolve(const char* node, const char* service, uint64_t flags, struct sockaddr_in* out) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
  if (flags & FI_SOURCE) hints.ai_flags |= AI_PASSIVE;
  if (flags & FI_NUMERICHOST) hints.ai_flags |= AI_NUMERICHOST;
  const int status = getaddrinfo(node, service, &hints, &found);
  if (status != 0) {
    FI_INFO(&ex_provider, FI_LOG_CORE, "%s, %s: %s\n", node != NULL ? node : "-",
            service != NULL ? service : "-", gai_strerror(status));
    return -FI_ENODATA;
  }
  memcpy(out, found->ai_addr, sizeof *out);
  freeaddrinfo(found);
  return 0;
}

static bool put_address(void** place, size_t* length, const struct sockaddr_in* address) {
  *place = malloc(sizeof *address);
  if (*place == NULL) return false;
  memcpy(*place, address, sizeof *address);
  *length = sizeof *address;
  return true;
}

// fi_getinfo(3), "node" to "flags": who is the source, who the destination.
static int add_addresses(struct fi_info* info, const char* node, const char* service, uint64_t flags,
                         const struct fi_info* hints) {
  struct sockaddr_in source, destination;
  bool have_source = false, have_destination = false;
  int status;
  if (hints != NULL && hints->src_addr != NULL && hints->src_addrlen >= sizeof source) {
    memcpy(&source, hints->src_addr, sizeof source);
    have_source = true;
  }
  if (hints != NULL && hints->dest_addr != NULL && hints->dest_addrlen >= sizeof destination) {
    memcpy(&destination, hints->dest_addr, sizeof destination);
    have_destination = true;
  }
  if (node != NULL || service != NULL) {
    status = resolve(node, service, flags, flags & FI_SOURCE ? &source : &destination);
    if (status != 0) return status;
    if (flags & FI_SOURCE) have_source = true;
    else have_destination = true;
  }
  if ((have_source && source.sin_family != AF_INET) ||
      (have_destination && destination.sin_family != AF_INET))
    return -FI_ENODATA;
  if (!have_source) {
    status = ex_source_address(have_destination ? &destination : NULL, &source);
    if (status != 0) return status;
  }
  if (!put_address(&info->src_addr, &info->src_addrlen, &source)) return -FI_ENOMEM;
  if (have_destination && !put_address(&info->dest_addr, &info->dest_addrlen, &destination))
    return -FI_ENOMEM;
  return 0;
}

static int ex_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                      const struct fi_info* hints, struct fi_info** out) {
  *out = NULL;
  if (refused(version, hints)) return -FI_ENODATA;
  struct fi_info* info = describe(hints);
  if (info == NULL) return -FI_ENOMEM;
  info->fabric_attr->api_version = version;
  const int status = add_addresses(info, node, service, flags, hints);
  if (status != 0) {
    fi_freeinfo(info);
    return status;
  }
  if (hints != NULL) info->handle = hints->handle;
  *out = info;
  return 0;
}

// Called before the libfabric that loaded us goes away.
static void ex_cleanup(void) {}

// Not const: the libfabric that loads us keeps notes of its own in `context`.
struct fi_provider ex_provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .name = "example",
    .getinfo = ex_getinfo,
    .fabric = ex_fabric_open,
    .cleanup = ex_cleanup,
};

__attribute__((visibility("default"))) struct fi_provider* fi_prov_ini(void) { return &ex_provider; }
