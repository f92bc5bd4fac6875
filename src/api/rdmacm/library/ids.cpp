// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ids: from creation to the route, and listening. An id that begins connections and was not bound to a port shares a UDP socket with others.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <utility>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"
#include "api/rdmacm/library/objects.hpp"
#include "wire/roce/headers.hpp"

namespace weft::rdmacm {
namespace {

constexpr size_t backlog_max = 1024;    // the kernel's
constexpr uint8_t path_life_time = 16;  // 268 ms, the kernel's for RoCE
constexpr uint8_t hops = 64;

// With the lock of the service, which is part of the key: a forked child has another one.
// Never destroyed: the thread goes on while the process ends.
std::map<std::pair<const Service*, cm::Handle>, Id*>& ids_by_handle =
    *new std::map<std::pair<const Service*, cm::Handle>, Id*>;
std::set<Id*>& bound_ids = *new std::set<Id*>;

bool usable(const Id* id, const char* call) noexcept {
  if (id == nullptr) {
    refuse(EINVAL, "%s without an id", call);
    return false;
  }
  if (!id->service->is_here()) {
    refuse(EINVAL, "%s: the id was made before fork(2), and means nothing in this process", call);
    return false;
  }
  return true;
}

std::optional<os::SocketAddress> address_from(const sockaddr* address) noexcept {
  if (address == nullptr) return {};
  return os::SocketAddress::from(address, os::SocketAddress::length_of(address->sa_family));
}

// Whether two ids cannot have these addresses at once.
bool conflicts(const Id& a, const Id& b) noexcept {
  if (a.shown.ps != b.shown.ps || a.source.port() != b.source.port()) return false;
  if (a.reuse_address && b.reuse_address && !a.is_listening && !b.is_listening) return false;
  if (a.source.is_any() || b.source.is_any())
    return a.source.family() == b.source.family() || !(a.one_family || b.one_family);
  return os::same_neighbour(a.source, b.source);
}

int bind(Id& id, const os::SocketAddress& address) noexcept {
  Service& service = *id.service;
  if (id.is_bound || id.socket != 0) return refuse(EINVAL, "rdma_bind_addr: the id has an address already");
  const std::string text = address.text();
  const os::SocketAddress before = std::exchange(id.source, address);
  if (address.port() != 0) {
    for (const Id* other : bound_ids)
      if (other->service == id.service && conflicts(id, *other)) {
        id.source = before;
        return refuse(EADDRINUSE, "rdma_bind_addr: another id of this process has %s", text.c_str());
      }
  }
  auto socket = service.open_socket(address, id.one_family);
  if (!socket) {
    id.source = before;
    return refuse(socket.error().code, "rdma_bind_addr: %s: %s", text.c_str(), socket.error().why.c_str());
  }
  if (!address.is_any()) {
    Device* device = service.devices().of(address);
    if (device == nullptr) {
      service.close_socket(*socket);
      id.source = before;
      return refuse(ENODEV, "rdma_bind_addr: no RDMA device has the address %s", text.c_str());
    }
    bind_to_device(id, *device, address);
  }
  id.socket = *socket;
  id.source.set_port(service.address(*socket).port());
  show_address(id.shown.route.addr.src_storage, id.source);
  id.is_bound = true;
  bound_ids.insert(&id);
  return 0;
}

// The source address, the device and the socket toward id.destination. 0 or a negative errno.
int find_way(Id& id) noexcept {
  Service& service = *id.service;
  os::SocketAddress source = id.source;
  if (!source || source.is_any()) {
    const uint16_t port = source ? source.port() : uint16_t{0};
    source = os::source_toward(id.destination);
    if (!source) return -EHOSTUNREACH;
    source.set_port(port);
  }
  Device* device = service.devices().of(source);
  if (device == nullptr) {
    log(Level::Information, "rdma_resolve_addr: no RDMA device has the address %s", source.text().c_str());
    return -ENODEV;
  }
  if (id.socket == 0) {
    auto socket = service.open_client_socket(source);
    if (!socket) {
      log(Level::Information, "rdma_resolve_addr: %s", socket.error().why.c_str());
      return -socket.error().code;
    }
    id.socket = *socket;
  }
  if (source.port() == 0) source.set_port(service.next_port());
  bind_to_device(id, *device, source);
  return 0;
}

void fill_path(Id& id) noexcept {
  rdma_route& route = id.shown.route;
  ibv_sa_path_rec& path = id.path;
  path = {};
  path.dgid = route.addr.addr.ibaddr.dgid;
  path.sgid = route.addr.addr.ibaddr.sgid;
  path.pkey = route.addr.addr.ibaddr.pkey;
  path.hop_limit = hops;
  path.traffic_class = id.traffic_class;
  path.reversible = 1;
  path.numb_path = 1;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
  path.mtu = id.mtu;
  path.rate = IBV_RATE_100_GBPS;
  path.packet_life_time = path_life_time;
  route.path_rec = &path;
  route.num_paths = 1;
}

}  // namespace

void show_address(sockaddr_storage& out, const os::SocketAddress& address) noexcept {
  out = {};
  std::memcpy(&out, address.get(), address.size());
}

void bind_to_device(Id& id, Device& device, const os::SocketAddress& source) noexcept {
  id.device = &device;
  id.source = source;
  id.local_gid = device.gid_of(source);
  id.mtu = static_cast<uint8_t>(device.mtu());
  rdma_cm_id& shown = id.shown;
  shown.verbs = device.context();
  shown.port_num = device_port;
  if (shown.pd == nullptr) shown.pd = device.domain();
  show_address(shown.route.addr.src_storage, source);
  std::memcpy(shown.route.addr.addr.ibaddr.sgid.raw, id.local_gid->gid.data(), id.local_gid->gid.size());
  shown.route.addr.addr.ibaddr.pkey = wire::big(uint16_t{0xffff});
}

void register_handle(Id& id, cm::Handle handle) {
  id.handle = handle;
  ids_by_handle.emplace(std::pair<const Service*, cm::Handle>(id.service, handle), &id);
}
void forget_handle(Id& id) noexcept {
  ids_by_handle.erase({id.service, id.handle});
  id.handle = 0;
}
Id* find_id(cm::Handle handle) noexcept {
  const auto at = ids_by_handle.find({&Service::here(), handle});
  return at == ids_by_handle.end() ? nullptr : at->second;
}

Id* create(Channel* channel, void* context, rdma_port_space space, ibv_qp_type type) noexcept {
  auto id = std::unique_ptr<Id>(new (std::nothrow) Id);
  if (id == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  id->service = &Service::here();
  id->is_sync = channel == nullptr;
  if (channel == nullptr) channel = create_channel();
  if (channel == nullptr) return nullptr;
  attach(*id, *channel);
  id->shown.context = context;
  id->shown.ps = space;
  id->shown.qp_type = type;
  return id.release();
}

Id* create_accepted(Id& listener, const QueuedEvent& e) noexcept {
  Service& service = *listener.service;
  const cm::Path* path = service.manager().path(e.connection);
  const auto state = service.manager().state(e.connection);
  if (path == nullptr ||
      (state != cm::Manager::State::RequestReceived && state != cm::Manager::State::ServiceRequestReceived))
    return nullptr;  // the sender has given up
  const auto header = wire::cm::read_ip_header(e.data);
  const os::SocketAddress local = Service::address_of(path->local);
  os::SocketAddress remote = Service::address_of(path->remote);
  const std::string text = remote.text();
  if (listener.shown.qp_type != IBV_QPT_UD &&
      !os::same_host(link::roce::address_of(e.parameters.gid), address_for_gid(remote))) {
    // Packets of the queue pair would go to a third party.
    log(Level::Information, "a request of %s is refused: its GID is another host's", text.c_str());
    return nullptr;
  }
  Device* device = service.devices().of(local);
  if (device == nullptr) {
    log(Level::Information, "a request of %s is refused: no RDMA device has the address %s", text.c_str(),
        local.text().c_str());
    return nullptr;
  }
  Id* id = create(listener.is_sync ? nullptr : listener.channel, listener.shown.context, listener.shown.ps,
                  listener.shown.qp_type);
  if (id == nullptr) return nullptr;
  auto socket = service.open_socket(service.address(path->socket), listener.one_family);
  if (socket) id->socket = *socket;
  if (header) remote.set_port(header->source_port);
  id->is_passive = true;
  id->shown.pd = listener.shown.pd;
  bind_to_device(*id, *device, local);
  id->destination = remote;
  show_address(id->shown.route.addr.dst_storage, remote);
  id->request = e.parameters;
  id->remote = e.parameters;
  id->remote_gid = listener.shown.qp_type == IBV_QPT_UD ? link::roce::standard_gid(remote) : e.parameters.gid;
  std::memcpy(id->shown.route.addr.addr.ibaddr.dgid.raw, id->remote_gid.data(), id->remote_gid.size());
  id->responder_resources = e.parameters.initiator_depth;
  id->initiator_depth = e.parameters.responder_resources;
  id->retry_count = e.parameters.retry_count;
  id->rnr_retry_count = e.parameters.rnr_retry_count;
  id->traffic_class = e.parameters.traffic_class;
  if (e.parameters.mtu != 0) id->mtu = std::min(id->mtu, e.parameters.mtu);
  // Programs ask for the attributes of their queue pairs before they accept.
  id->psn = service.random() & wire::roce::mask24;
  id->ack_timeout = e.parameters.ack_timeout;
  fill_path(*id);
  register_handle(*id, e.connection);
  return id;
}

void destroy(Id& id) noexcept {
  Service& service = *id.service;
  const bool lives_here = service.is_here();
  Channel* own = nullptr;
  if (lives_here) {
    if (id.is_sync && id.shown.event != nullptr) {
      acknowledge_event(id.shown.event);
      id.shown.event = nullptr;
    }
    std::unique_lock guard(service.lock);
    service.changed.wait(guard, [&] { return id.events_given == 0; });
    if (id.shown.qp != nullptr)
      for (auto& [key, group] : id.groups)
        if (group.attached) ibv_detach_mcast(id.shown.qp, &group.gid, 0);
    if (id.handle != 0) {
      const cm::Handle handle = id.handle;
      forget_handle(id);
      service.manager().destroy(handle, service.now());
      service.wake();
    }
    drop_events(id);
    bound_ids.erase(&id);
    if (id.socket != 0) service.close_socket(id.socket);
    if (id.is_sync) own = id.channel;
    detach(id);
  } else {
    // What a parent's id left in this process's memory.
    const std::lock_guard guard(Service::here().lock);
    bound_ids.erase(&id);
    std::erase_if(ids_by_handle, [&](const auto& entry) { return entry.second == &id; });
  }
  if (own != nullptr) destroy_channel(own);
  delete &id;
}

// --- calls ---

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) noexcept {
  if (id == nullptr) return refuse(EINVAL, "rdma_create_id without a place for the id");
  Service::set_sink(&take_manager_event);
  if (space != RDMA_PS_TCP && space != RDMA_PS_UDP && space != RDMA_PS_IB && space != RDMA_PS_IPOIB)
    return refuse(EPROTONOSUPPORT, "rdma_create_id: no port space has the number 0x%x",
                  static_cast<unsigned>(space));
  const ibv_qp_type type = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
  if (channel != nullptr && !of(channel)->service->is_here())
    return refuse(EINVAL,
                  "rdma_create_id: the channel was made before fork(2), and means nothing in this process");
  Id* made;
  {
    const std::lock_guard guard(Service::here().lock);
    made = create(channel == nullptr ? nullptr : of(channel), context, space, type);
  }
  if (made == nullptr) return -1;
  *id = &made->shown;
  return 0;
}

int destroy_id(rdma_cm_id* id) noexcept {
  if (id == nullptr) return refuse(EINVAL, "rdma_destroy_id without an id");
  destroy(*of(id));
  return 0;
}

int migrate_id(rdma_cm_id* raw, rdma_event_channel* channel) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_migrate_id")) return -1;
  if (id->is_sync && channel == nullptr)
    return refuse(EINVAL, "rdma_migrate_id: the id is synchronous already");
  Channel* to = channel != nullptr ? of(channel) : create_channel();
  if (to == nullptr) return -1;
  if (id->is_sync && raw->event != nullptr) {
    acknowledge_event(raw->event);
    raw->event = nullptr;
  }
  Channel* own = nullptr;
  {
    std::unique_lock guard(id->service->lock);
    id->service->changed.wait(guard, [&] { return id->events_given == 0; });
    if (id->is_sync) own = id->channel;
    move_events(*id, *to);
    detach(*id);
    attach(*id, *to);
    id->is_sync = channel == nullptr;
  }
  if (own != nullptr) destroy_channel(own);
  return 0;
}

int bind_addr(rdma_cm_id* raw, const sockaddr* address) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_bind_addr")) return -1;
  const auto wanted = address_from(address);
  if (!wanted) return refuse(EAFNOSUPPORT, "rdma_bind_addr takes addresses of IPv4 and IPv6");
  const std::lock_guard guard(id->service->lock);
  return bind(*id, *wanted);
}

int resolve_addr(rdma_cm_id* raw, const sockaddr* source, const sockaddr* destination, int) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_resolve_addr")) return -1;
  auto to = address_from(destination);
  if (!to) return refuse(EAFNOSUPPORT, "rdma_resolve_addr takes addresses of IPv4 and IPv6");
  if (to->is_any()) *to = os::SocketAddress::loopback(to->family(), to->port());
  {
    const std::lock_guard guard(id->service->lock);
    if (id->handle != 0 || id->is_resolved)
      return refuse(EINVAL, "rdma_resolve_addr: the id has its addresses already, is connected or listens");
    if (source != nullptr) {
      const auto from = address_from(source);
      if (!from || from->family() != to->family())
        return refuse(EAFNOSUPPORT, "rdma_resolve_addr: source and destination are not of one family");
      if (!id->is_bound && from->port() != 0) {
        if (bind(*id, *from) != 0) return -1;
      } else if (!id->is_bound) {
        id->source = *from;
      }
    }
    if (id->source && id->source.family() != to->family() && !id->source.is_any())
      return refuse(EAFNOSUPPORT, "rdma_resolve_addr: the id is bound to an address of another family");
    if (to->is_link_local() && to->scope() == 0 && id->source) to->set_scope(id->source.scope());
    id->destination = *to;
    show_address(raw->route.addr.dst_storage, *to);
    const int error = find_way(*id);
    if (error != 0) {
      queue_event(*id, RDMA_CM_EVENT_ADDR_ERROR, error);
    } else {
      id->remote_gid = link::roce::standard_gid(*to);
      std::memcpy(raw->route.addr.addr.ibaddr.dgid.raw, id->remote_gid.data(), id->remote_gid.size());
      id->is_resolved = true;
      queue_event(*id, RDMA_CM_EVENT_ADDR_RESOLVED);
    }
  }
  return complete(*id);
}

int resolve_route(rdma_cm_id* raw, int) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_resolve_route")) return -1;
  {
    const std::lock_guard guard(id->service->lock);
    if (id->device == nullptr || !id->destination)
      return refuse(EINVAL, "rdma_resolve_route before the address is resolved");
    fill_path(*id);
    queue_event(*id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  return complete(*id);
}

int listen(rdma_cm_id* raw, int backlog) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_listen")) return -1;
  const std::lock_guard guard(id->service->lock);
  if (id->handle != 0) return refuse(EINVAL, "rdma_listen: the id listens already, or is connected");
  if (!id->is_bound && bind(*id, os::SocketAddress::any(AF_INET)) != 0) return -1;
  id->is_listening = true;
  for (const Id* other : bound_ids) {
    if (other == id || other->service != id->service || !conflicts(*id, *other)) continue;
    id->is_listening = false;
    return refuse(EADDRINUSE, "rdma_listen: another id of this process has the port %u", id->source.port());
  }
  const size_t most = backlog > 0 ? std::min(static_cast<size_t>(backlog), backlog_max) : backlog_max;
  const uint64_t wanted = wire::cm::service_of(static_cast<uint16_t>(raw->ps), id->source.port());
  const cm::Handle handle = id->service->manager().listen(id->socket, wanted, most);
  if (handle == 0) {
    id->is_listening = false;
    return refuse(EADDRINUSE, "rdma_listen: another id listens at the port %u", id->source.port());
  }
  register_handle(*id, handle);
  return 0;
}

int set_option(rdma_cm_id* raw, int level, int name, const void* value, size_t bytes) noexcept {
  Id* id = of(raw);
  if (!usable(id, "rdma_set_option")) return -1;
  const auto take = [&](auto& out) {
    if (value == nullptr || bytes != sizeof out) return false;
    std::memcpy(&out, value, sizeof out);
    return true;
  };
  const std::lock_guard guard(id->service->lock);
  uint8_t byte = 0;
  int number = 0;
  if (level == RDMA_OPTION_ID) {
    switch (name) {
      case RDMA_OPTION_ID_TOS:
        if (!take(byte)) break;
        id->traffic_class = byte;
        return 0;
      case RDMA_OPTION_ID_REUSEADDR:
        if (!take(number)) break;
        id->reuse_address = number != 0;
        return 0;
      case RDMA_OPTION_ID_AFONLY:
        if (!take(number)) break;
        if (id->is_bound)
          return refuse(EINVAL, "rdma_set_option: RDMA_OPTION_ID_AFONLY comes before rdma_bind_addr");
        id->one_family = number != 0;
        return 0;
      case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (!take(byte) || byte > 31) break;
        id->ack_timeout = byte;
        return 0;
      default:
        return refuse(ENOSYS, "rdma_set_option: option %d of an id is not known", name);
    }
    return refuse(EINVAL, "rdma_set_option: a value of %zu bytes does not fit option %d", bytes, name);
  }
  if (level == RDMA_OPTION_IB)
    return refuse(EINVAL, "rdma_set_option: a path of InfiniBand cannot be set on an Ethernet");
  return refuse(ENOSYS, "rdma_set_option: level %d is not known", level);
}

__be16 get_src_port(rdma_cm_id* id) noexcept { return wire::big(of(id)->source.port()); }
__be16 get_dst_port(rdma_cm_id* id) noexcept { return wire::big(of(id)->destination.port()); }

ibv_context** get_devices(int* count) noexcept {
  Service& service = Service::here();
  std::vector<ibv_context*> contexts;
  {
    const std::lock_guard guard(service.lock);
    contexts = service.devices().all();
  }
  auto** list = static_cast<ibv_context**>(std::calloc(contexts.size() + 1, sizeof(ibv_context*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  std::copy(contexts.begin(), contexts.end(), list);
  if (count != nullptr) *count = static_cast<int>(contexts.size());
  return list;
}
void free_devices(ibv_context** list) noexcept { std::free(list); }

}  // namespace weft::rdmacm
