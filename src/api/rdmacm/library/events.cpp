// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Event channels. The descriptor is an eventfd that counts one for each unread event, so poll(2), epoll(7) by edges, O_NONBLOCK and dup(2) are the
// kernel's. What an event means for the queue pair is done when the program takes it, in its thread.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "api/rdmacm/library/calls.hpp"
#include "api/rdmacm/library/log.hpp"
#include "api/rdmacm/library/objects.hpp"

namespace weft::rdmacm {
namespace {

void notify(const Channel& channel, uint64_t count) noexcept {
  [[maybe_unused]] const ssize_t written = ::write(channel.shown.fd, &count, sizeof count);
}

// An unread event is gone: its count, too. A thread that has taken the count already finds no event, and waits again.
void take_back(const Channel& channel) noexcept {
  uint64_t count;
  const iovec into{&count, sizeof count};
  if (::preadv2(channel.shown.fd, &into, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN) return;
  pollfd there{channel.shown.fd, POLLIN, 0};
  if (::poll(&there, 1, 0) == 1) [[maybe_unused]]
    const ssize_t got = ::read(channel.shown.fd, &count, sizeof count);
}

// What the program may read of the private data. The kernel's lengths, whatever the peer sent.
size_t data_bytes(const Id& id, rdma_cm_event_type type) noexcept {
  switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return is_datagram(id) ? wire::cm::program_service_request_bytes : wire::cm::program_request_bytes;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return wire::cm::reply_data_bytes;
    case RDMA_CM_EVENT_ESTABLISHED:
      return is_datagram(id) ? wire::cm::service_reply_data_bytes : wire::cm::ready_data_bytes;
    case RDMA_CM_EVENT_REJECTED:
      return wire::cm::reject_data_bytes;
    case RDMA_CM_EVENT_UNREACHABLE:
      return is_datagram(id) ? wire::cm::service_reply_data_bytes : 0;
    case RDMA_CM_EVENT_DISCONNECTED:
      return wire::cm::disconnect_data_bytes;
    default:
      return 0;
  }
}

// `bytes` of e.data from `at` on.
void show_data(QueuedEvent& e, size_t at, size_t bytes) noexcept {
  const void* data = bytes == 0 ? nullptr : e.data.data() + at;
  const auto length = static_cast<uint8_t>(bytes);
  if (is_datagram(*e.id)) {
    e.event.param.ud.private_data = data;
    e.event.param.ud.private_data_len = length;
  } else {
    e.event.param.conn.private_data = data;
    e.event.param.conn.private_data_len = length;
  }
}

void show_parameters(QueuedEvent& e) noexcept {
  rdma_conn_param& conn = e.event.param.conn;
  const cm::Parameters& p = e.parameters;
  // What the peer starts is what this end responds to, and the other way.
  conn.responder_resources = p.initiator_depth;
  conn.initiator_depth = p.responder_resources;
  conn.flow_control = p.flow_control ? 1 : 0;
  conn.retry_count = p.retry_count;
  conn.rnr_retry_count = p.rnr_retry_count;
  conn.srq = p.shared_receive_queue ? 1 : 0;
  conn.qp_num = p.qpn;
}

void show_address_handle(const Id& id, ibv_ah_attr& attr, const Gid& gid, uint8_t hops) noexcept {
  attr = {};
  attr.is_global = 1;
  attr.port_num = device_port;
  std::memcpy(attr.grh.dgid.raw, gid.data(), gid.size());
  attr.grh.sgid_index = id.local_gid == nullptr ? uint8_t{0} : id.local_gid->index;
  attr.grh.hop_limit = hops;
  attr.grh.traffic_class = id.traffic_class;
}

// Where the peer's queue pair is: a GID of ours where its GUID has a port.
Gid remote_gid_of(const Id& id, uint64_t guid) noexcept {
  if (const auto port = cm::port_of_guid(guid)) {
    os::SocketAddress peer = address_for_gid(id.destination);
    peer.set_port(*port);
    if (const auto gid = link::roce::gid_with_port(peer)) return *gid;
  }
  return link::roce::standard_gid(id.destination);
}

// The reply's numbers go into the queue pair, then RTU leaves.
void answer_reply(Id& id, QueuedEvent& e) noexcept {
  Service& service = *id.service;
  id.remote = e.parameters;
  id.initiator_depth = std::min(id.initiator_depth, e.parameters.responder_resources);
  id.responder_resources = e.parameters.initiator_depth;
  id.rnr_retry_count = e.parameters.rnr_retry_count;
  id.remote_gid = remote_gid_of(id, e.parameters.guid);
  if (id.shown.qp == nullptr) return;
  if (make_ready(id) != 0) {
    const int code = errno;
    log(Level::Information, "the queue pair of a new connection cannot be made ready: %s",
        strerrordesc_np(code));
    service.manager().reject(id.handle, cm::Reason::ConsumerDefined, {}, service.now());
    modify_to_error(id);
    e.event.event = RDMA_CM_EVENT_CONNECT_ERROR;
    e.event.status = -code;
    return;
  }
  service.manager().establish(id.handle, service.now());
  e.event.event = RDMA_CM_EVENT_ESTABLISHED;
}

void answer_lookup(Id& id, QueuedEvent& e) noexcept {
  rdma_ud_param& ud = e.event.param.ud;
  id.remote_gid = remote_gid_of(id, e.parameters.guid);
  show_address_handle(id, ud.ah_attr, id.remote_gid, 64);
  ud.qp_num = e.parameters.qpn;
  ud.qkey = e.parameters.qkey;
}

// Does what the event means. False: the program does not hear of it.
bool perform(QueuedEvent& e) noexcept {
  Id& id = *e.id;
  switch (e.event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
      id.service->manager().take(e.connection);
      Id* accepted = create_accepted(id, e);
      if (accepted == nullptr) {
        id.service->manager().destroy(e.connection, id.service->now());
        return false;
      }
      e.event.id = &accepted->shown;
      e.event.listen_id = &id.shown;
      return true;
    }
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      answer_reply(id, e);
      return true;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (is_datagram(id) && !id.is_passive) answer_lookup(id, e);
      return true;
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_UNREACHABLE:
      if (!is_datagram(id)) modify_to_error(id);
      return true;
    case RDMA_CM_EVENT_MULTICAST_JOIN: {
      if (id.shown.qp == nullptr || e.send_only) return true;
      std::array<uint8_t, 16> key;
      std::memcpy(key.data(), e.event.param.ud.ah_attr.grh.dgid.raw, key.size());
      const auto group = id.groups.find(key);
      if (group == id.groups.end() || group->second.attached) return true;
      const int code = ibv_attach_mcast(id.shown.qp, &e.event.param.ud.ah_attr.grh.dgid, 0);
      if (code == 0) {
        group->second.attached = true;
      } else {
        e.event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
        e.event.status = -code;
      }
      return true;
    }
    default:
      return true;
  }
}

}  // namespace

Channel* create_channel() noexcept {
  auto channel = std::unique_ptr<Channel>(new (std::nothrow) Channel);
  if (channel == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  channel->service = &Service::here();
  channel->shown.fd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (channel->shown.fd < 0) return nullptr;
  return channel.release();
}

void destroy_channel(Channel* channel) noexcept {
  std::unique_lock<std::mutex> guard;
  if (channel->service->is_here()) guard = std::unique_lock(channel->service->lock);
  channel->events.clear();
  ::close(channel->shown.fd);
  channel->shown.fd = -1;
  channel->is_closed = true;
  if (channel->ids == 0) delete channel;
}

void attach(Id& id, Channel& channel) noexcept {
  id.channel = &channel;
  id.shown.channel = &channel.shown;
  ++channel.ids;
}
void detach(Id& id) noexcept {
  Channel* channel = std::exchange(id.channel, nullptr);
  if (--channel->ids == 0 && channel->is_closed) delete channel;
}

namespace {
// To the end of the channel's list; nowhere, where the program has destroyed the channel.
void put(Channel& channel, std::unique_ptr<QueuedEvent> e) {
  if (channel.is_closed) return;
  channel.events.push_back(std::move(e));
  notify(channel, 1);
}
}  // namespace

void queue_event(Id& id, rdma_cm_event_type type, int status, void (*fill)(QueuedEvent&, void*),
                 void* argument) {
  auto e = std::make_unique<QueuedEvent>();
  e->event.id = &id.shown;
  e->event.event = type;
  e->event.status = status;
  e->id = &id;
  e->service = id.service;
  if (fill != nullptr) fill(*e, argument);
  put(*id.channel, std::move(e));
}

void drop_events(Id& id) noexcept {
  auto& events = id.channel->events;
  for (auto at = events.begin(); at != events.end();) {
    if ((*at)->id != &id) {
      ++at;
      continue;
    }
    at = events.erase(at);
    take_back(*id.channel);
  }
}

void move_events(Id& id, Channel& to) noexcept {
  Channel& from = *id.channel;
  for (auto at = from.events.begin(); at != from.events.end();) {
    if ((*at)->id != &id) {
      ++at;
      continue;
    }
    to.events.push_back(std::move(*at));
    at = from.events.erase(at);
    take_back(from);
    notify(to, 1);
  }
}

void take_manager_event(const cm::Event& event) {
  Id* id = find_id(event.kind == cm::EventKind::Request ? event.listener : event.connection);
  if (id == nullptr) return;
  rdma_cm_event_type type{};
  switch (event.kind) {
    case cm::EventKind::Request:
      type = RDMA_CM_EVENT_CONNECT_REQUEST;
      break;
    case cm::EventKind::Response:
      type = RDMA_CM_EVENT_CONNECT_RESPONSE;
      break;
    case cm::EventKind::Established:
      type = RDMA_CM_EVENT_ESTABLISHED;
      break;
    case cm::EventKind::Rejected:
      type = RDMA_CM_EVENT_REJECTED;
      break;
    case cm::EventKind::Unreachable:
      type = RDMA_CM_EVENT_UNREACHABLE;
      break;
    case cm::EventKind::Disconnected:
      type = RDMA_CM_EVENT_DISCONNECTED;
      break;
    case cm::EventKind::TimeWaitEnds:
      type = RDMA_CM_EVENT_TIMEWAIT_EXIT;
      break;
  }
  auto made = std::make_unique<QueuedEvent>();
  QueuedEvent& e = *made;
  e.event.id = &id->shown;
  e.event.event = type;
  e.event.status = type == RDMA_CM_EVENT_DISCONNECTED ? 0 : event.status;
  e.id = id;
  e.service = id->service;
  e.parameters = event.parameters;
  e.connection = event.connection;
  const std::span<const std::byte> data = event.private_data;
  std::copy_n(data.begin(), std::min(data.size(), e.data.size()), e.data.begin());
  const bool is_request = type == RDMA_CM_EVENT_CONNECT_REQUEST;
  if ((is_request || type == RDMA_CM_EVENT_CONNECT_RESPONSE) && !is_datagram(*id)) show_parameters(e);
  // The IP header stays in front, for who makes the id.
  show_data(e, is_request ? wire::cm::IpHeader::bytes : 0, data.empty() ? 0 : data_bytes(*id, type));
  put(*id->channel, std::move(made));
}

int get_event(Channel* channel, rdma_cm_event** event) noexcept {
  Service& service = *channel->service;
  if (!service.is_here())
    return refuse(
        EINVAL, "rdma_get_cm_event: the channel was made before fork(2), and means nothing in this process");
  while (true) {
    uint64_t count;
    if (::read(channel->shown.fd, &count, sizeof count) < 0) return -1;
    const std::lock_guard guard(service.lock);
    if (channel->events.empty()) {
      // It was dropped with its id meanwhile.
      const int flags = ::fcntl(channel->shown.fd, F_GETFL);
      if (flags >= 0 && (flags & O_NONBLOCK) != 0) {
        errno = EAGAIN;
        return -1;
      }
      continue;
    }
    std::unique_ptr<QueuedEvent> e = std::move(channel->events.front());
    channel->events.pop_front();
    const bool is_for_program = perform(*e);
    service.wake();
    if (!is_for_program) continue;
    ++e->id->events_given;
    *event = &e.release()->event;
    return 0;
  }
}

int acknowledge_event(rdma_cm_event* event) noexcept {
  auto* e = reinterpret_cast<QueuedEvent*>(event);
  if (e->service->is_here()) {
    Service& service = *e->service;
    const std::lock_guard guard(service.lock);
    --e->id->events_given;
    service.changed.notify_all();
  }
  delete e;
  return 0;
}

int complete(Id& id) noexcept {
  if (!id.is_sync) return 0;
  if (id.shown.event != nullptr) {
    acknowledge_event(id.shown.event);
    id.shown.event = nullptr;
  }
  if (get_event(id.channel, &id.shown.event) != 0) return -1;
  const rdma_cm_event& event = *id.shown.event;
  if (event.status == 0) return 0;
  if (event.event == RDMA_CM_EVENT_REJECTED) errno = ECONNREFUSED;
  else errno = event.status < 0 ? -event.status : ECONNREFUSED;
  return -1;
}

// --- calls ---

rdma_event_channel* create_event_channel() noexcept {
  Channel* channel = create_channel();
  return channel == nullptr ? nullptr : &channel->shown;
}
void destroy_event_channel(rdma_event_channel* channel) noexcept { destroy_channel(of(channel)); }
int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) noexcept {
  if (channel == nullptr || event == nullptr)
    return refuse(EINVAL, "rdma_get_cm_event without a channel or a place for the event");
  return get_event(of(channel), event);
}
int ack_cm_event(rdma_cm_event* event) noexcept {
  if (event == nullptr) return refuse(EINVAL, "rdma_ack_cm_event without an event");
  return acknowledge_event(event);
}

const char* event_name(rdma_cm_event_type event) noexcept {
  static constexpr std::array<const char*, 16> names{
      "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",      "RDMA_CM_EVENT_ROUTE_RESOLVED",
      "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",     "RDMA_CM_EVENT_REJECTED",
      "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
      "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
  const auto number = static_cast<unsigned>(event);
  return number < names.size() ? names[number] : "UNKNOWN EVENT";
}

}  // namespace weft::rdmacm
